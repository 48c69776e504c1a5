# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""The end of a step: parts of gradients added in a fixed order, RMSprop, and the counter that the next step reads."""

from __future__ import annotations

from carp.kernels.gpu.triton_places import grid_of, has_pairs, pair_of

try:
    import triton
    import triton.language as tl
except ImportError:  # nothing below is called then
    from carp.kernels.gpu.availability import triton_is_missing as triton


@triton.jit
def add_parts(parts, result, rows, size, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """parts [groups, rows, size] to result [groups, size], always in the same order."""
    group = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for begin in range(0, rows, ROWS):
        row = begin + tl.arange(0, ROWS)
        source = parts + (group * rows + row[:, None]) * size + i[None, :]
        total += tl.load(source, mask=(row < rows)[:, None] & (i < size)[None, :], other=0.0)
    tl.store(result + group * size + i, tl.sum(total, 0), mask=i < size)


@triton.jit
def query_gradients(
    gate_query,
    vectors,
    answer_parts,
    query_change,
    vector_change,
    bias_change,
    SPLIT: tl.constexpr,
    SPLITS: tl.constexpr,
    N: tl.constexpr,
):
    """Of one viewpoint's W_2, q and b, from the parts of the gradient of W_2 q + b."""
    which = tl.program_id(0)
    i, row = tl.arange(0, N), tl.arange(0, SPLITS)
    source = answer_parts + (row[:, None] * tl.num_programs(0) + which) * N + i[None, :]
    change = tl.sum(tl.load(source, mask=(row < SPLIT)[:, None], other=0.0), 0)
    tl.store(bias_change + which * N + i, change)
    vector = tl.load(vectors + which * N + i)
    square = which * N * N + grid_of(N, N)
    tl.store(query_change + square, change[:, None] * vector[None, :])
    weight = tl.load(gate_query + square)
    tl.store(vector_change + which * N + i, tl.sum(weight * change[:, None], 0))


@triton.jit
def highway_gradients(
    vectors,
    degrees,
    gate_weight,
    gate_bias,
    weight,
    bias,
    regression,
    regression_bias,
    BATCH: tl.constexpr,
    BLOCK: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Of everything behind one capsule."""
    s = tl.program_id(0)
    k = tl.arange(0, K)
    gates = tl.zeros([K, K], tl.float32)
    changes = tl.zeros([K, K], tl.float32)
    gate_sum = tl.zeros([K], tl.float32)
    change_sum = tl.zeros([K], tl.float32)
    regression_sum = tl.zeros([K], tl.float32)
    degree_sum = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, BATCH, BLOCK):
        b = begin + tl.arange(0, BLOCK)
        there = (b < BATCH)[:, None]
        source = vectors + b[:, None] * 8 * K + s * K + k[None, :]
        capsule = tl.load(source, mask=there, other=0.0)
        gate = tl.load(source + 2 * K, mask=there, other=0.0)
        changed = tl.load(source + 4 * K, mask=there, other=0.0)
        gates += tl.dot(tl.trans(gate), capsule, input_precision=PRECISION)
        changes += tl.dot(tl.trans(changed), capsule, input_precision=PRECISION)
        gate_sum += tl.sum(gate, 0)
        change_sum += tl.sum(changed, 0)
        regression_sum += tl.sum(tl.load(source + 6 * K, mask=there, other=0.0), 0)
        degree_sum += tl.load(degrees + b * 2 + s, mask=b < BATCH, other=0.0)
    square = s * K * K + grid_of(K, K)
    tl.store(gate_weight + square, gates)
    tl.store(weight + square, changes)
    tl.store(gate_bias + s * K + k, gate_sum)
    tl.store(bias + s * K + k, change_sum)
    tl.store(regression + s * K + k, regression_sum)
    tl.store(regression_bias + s, tl.sum(degree_sum, 0))


@triton.jit
def bias_gradients(
    errors,
    owners,
    order,
    state,
    user_change,
    item_change,
    pairs,
    users,
    BATCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of b_u and b_i: pairs that share an owner all write the same sum, taken in the same order."""
    b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    side = tl.program_id(1)
    pair, there = pair_of(order, state, pairs, b, BATCH)
    owner = tl.load(owners + side * pairs + pair)
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, BATCH, BLOCK):
        c = begin + tl.arange(0, BLOCK)
        other, others = pair_of(order, state, pairs, c, BATCH)
        candidate = tl.load(owners + side * pairs + other)
        error = tl.load(errors + c, mask=others, other=0.0)
        total += tl.sum(tl.where(owner[:, None] == candidate[None, :], error[None, :], 0.0), 1)
    tl.store(user_change + owner, total, mask=there & (side == 0))
    tl.store(item_change + owner - users, total, mask=there & (side == 1))


@triton.jit
def to_float(whole, result, size, FIXED: tl.constexpr, BLOCK: tl.constexpr):
    """Fixed point to float32, leaving zeros for the next step."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = i < size
    value = tl.load(whole + i, mask=there, other=0)
    tl.store(result + i, value.to(tl.float32) * (1.0 / FIXED), mask=there)
    tl.store(whole + i, tl.zeros([BLOCK], tl.int64), mask=there & (value != 0))


@triton.jit
def stepped(parameter, square, gradient, rate, decay, epsilon, weight_decay):
    """RMSprop as in torch: the new parameter and its running square."""
    gradient += weight_decay * parameter
    square = decay * square + (1 - decay) * gradient * gradient
    return parameter - rate * gradient / (tl.sqrt(square) + epsilon), square


@triton.jit
def update_table(
    table,
    squares,
    gradients,
    state,
    pairs,
    size,
    rate,
    decay,
    epsilon,
    weight_decay,
    BATCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = (i < size) & has_pairs(state, pairs, BATCH)
    parameter = tl.load(table + i, mask=there, other=0.0)
    square = tl.load(squares + i, mask=there, other=0.0)
    gradient = tl.load(gradients + i, mask=there, other=0.0)
    parameter, square = stepped(parameter, square, gradient, rate, decay, epsilon, weight_decay)
    tl.store(table + i, parameter, mask=there)
    tl.store(squares + i, square, mask=there)


@triton.jit
def update_rest(
    native,
    squares,
    where,
    packed,
    gradients,
    state,
    pairs,
    size,
    sparse_from,
    rate,
    decay,
    epsilon,
    weight_decay,
    BATCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """All other parameters: in their own layout, and in the kernels' padded one at `where`."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = (i < size) & has_pairs(state, pairs, BATCH)
    place = tl.load(where + i, mask=there, other=0)
    parameter = tl.load(native + i, mask=there, other=0.0)
    square = tl.load(squares + i, mask=there, other=0.0)
    gradient = tl.load(gradients + place, mask=there, other=0.0)
    parameter, square = stepped(parameter, square, gradient, rate, decay, epsilon, weight_decay)
    tl.store(native + i, parameter, mask=there)
    tl.store(squares + i, square, mask=there)
    tl.store(packed + place, parameter, mask=there)
    # A step writes only the biases it touches: the others' gradient has to be zero.
    tl.store(gradients + place, tl.zeros([BLOCK], tl.float32), mask=there & (i >= sparse_from))


@triton.jit
def finish(losses, total, state, BATCH: tl.constexpr, BLOCK: tl.constexpr):
    """The step's loss into the epoch's, and on to the next step."""
    loss = tl.zeros([BLOCK], tl.float64)
    for begin in range(0, BATCH, BLOCK):
        b = begin + tl.arange(0, BLOCK)
        loss += tl.load(losses + b, mask=b < BATCH, other=0.0).to(tl.float64)
    tl.store(total, tl.load(total) + tl.sum(loss, 0))
    tl.store(state, tl.load(state) + 1)
