# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""The end of a step: parts of gradients added in a fixed order, RMSprop, and the counter that the next step reads.

`batch`, `judged`, `parameters`, `rates` and `sizes` are the named tuples of kernel_arguments.py.
"""

from __future__ import annotations

from carp.kernels.gpu import triton_places as places
from carp.kernels.gpu.triton_language import tl, triton


@triton.jit
def add_parts(parts, result, rows, size, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum parts [groups, rows, size] over the rows, always in the same order."""
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
    """The gradients of one viewpoint's W_2, q and b, from the parts of that of W_2 q + b."""
    which = tl.program_id(0)
    i, row = tl.arange(0, N), tl.arange(0, SPLITS)
    source = answer_parts + (row[:, None] * tl.num_programs(0) + which) * N + i[None, :]
    change = tl.sum(tl.load(source, mask=(row < SPLIT)[:, None], other=0.0), 0)
    tl.store(bias_change + which * N + i, change)
    vector = tl.load(vectors + which * N + i)
    square = which * N * N + places.grid_of(N, N)
    tl.store(query_change + square, change[:, None] * vector[None, :])
    weight = tl.load(gate_query + square)
    tl.store(vector_change + which * N + i, tl.sum(weight * change[:, None], 0))


@triton.jit
def highway_gradients(judged, result, sizes: tl.constexpr, BLOCK: tl.constexpr):
    """The gradients of all weights behind one capsule."""
    s = tl.program_id(0)
    k = tl.arange(0, sizes.K)
    gates = tl.zeros([sizes.K, sizes.K], tl.float32)
    changes = tl.zeros([sizes.K, sizes.K], tl.float32)
    gate_sum = tl.zeros([sizes.K], tl.float32)
    change_sum = tl.zeros([sizes.K], tl.float32)
    regression_sum = tl.zeros([sizes.K], tl.float32)
    degree_sum = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, sizes.BATCH, BLOCK):
        b = begin + tl.arange(0, BLOCK)
        there = (b < sizes.BATCH)[:, None]
        source = judged.vectors + b[:, None] * 8 * sizes.K + s * sizes.K + k[None, :]
        capsule = tl.load(source, mask=there, other=0.0)
        gate = tl.load(source + 2 * sizes.K, mask=there, other=0.0)
        changed = tl.load(source + 4 * sizes.K, mask=there, other=0.0)
        gates += tl.dot(tl.trans(gate), capsule, input_precision=sizes.PRECISION)
        changes += tl.dot(tl.trans(changed), capsule, input_precision=sizes.PRECISION)
        gate_sum += tl.sum(gate, 0)
        change_sum += tl.sum(changed, 0)
        regression_sum += tl.sum(tl.load(source + 6 * sizes.K, mask=there, other=0.0), 0)
        degree_sum += tl.load(judged.degrees + b * 2 + s, mask=b < sizes.BATCH, other=0.0)
    square = s * sizes.K * sizes.K + places.grid_of(sizes.K, sizes.K)
    tl.store(result.gate_weight + square, gates)
    tl.store(result.weight + square, changes)
    line = s * sizes.K + k
    tl.store(result.gate_bias + line, gate_sum)
    tl.store(result.bias + line, change_sum)
    tl.store(result.regression + line, regression_sum)
    tl.store(result.regression_bias + s, tl.sum(degree_sum, 0))


@triton.jit
def bias_gradients(batch, errors, user_change, item_change, users, BATCH: tl.constexpr, BLOCK: tl.constexpr):
    """The gradients of b_u and b_i: pairs that share an owner all write the same sum, taken in the same order."""
    b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    side = tl.program_id(1)
    pair, there = places.pair_of(batch, b, BATCH)
    owner = tl.load(batch.owners + side * batch.pairs + pair)
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, BATCH, BLOCK):
        c = begin + tl.arange(0, BLOCK)
        other, others = places.pair_of(batch, c, BATCH)
        candidate = tl.load(batch.owners + side * batch.pairs + other)
        error = tl.load(errors + c, mask=others, other=0.0)
        total += tl.sum(tl.where(owner[:, None] == candidate[None, :], error[None, :], 0.0), 1)
    tl.store(user_change + owner, total, mask=there & (side == 0))
    tl.store(item_change + owner - users, total, mask=there & (side == 1))


@triton.jit
def to_float(whole, result, size, FIXED: tl.constexpr, BLOCK: tl.constexpr):
    """Fixed point to float32; the sums are zero again for the next step."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = i < size
    value = tl.load(whole + i, mask=there, other=0)
    tl.store(result + i, value.to(tl.float32) * (1.0 / FIXED), mask=there)
    tl.store(whole + i, tl.zeros([BLOCK], tl.int64), mask=there & (value != 0))


@triton.jit
def stepped(parameters, squares, i, gradient, rates, there):
    """Update the parameters at places i and their running squares as torch's RMSprop does; the new parameters."""
    parameter = tl.load(parameters + i, mask=there, other=0.0)
    square = tl.load(squares + i, mask=there, other=0.0)
    gradient += rates.weight_decay * parameter
    square = rates.decay * square + (1 - rates.decay) * gradient * gradient
    parameter -= rates.learning * gradient / (tl.sqrt(square) + rates.epsilon)
    tl.store(parameters + i, parameter, mask=there)
    tl.store(squares + i, square, mask=there)
    return parameter


@triton.jit
def update_table(batch, table, squares, gradients, size, rates, BATCH: tl.constexpr, BLOCK: tl.constexpr):
    """Update the word table."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = (i < size) & places.has_pairs(batch, BATCH)
    stepped(table, squares, i, tl.load(gradients + i, mask=there, other=0.0), rates, there)


@triton.jit
def update_rest(batch, parameters, size, sparse_from, rates, BATCH: tl.constexpr, BLOCK: tl.constexpr):
    """Update all other parameters, in their own layout and in the kernels' padded one at `where`."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = (i < size) & places.has_pairs(batch, BATCH)
    place = tl.load(parameters.where + i, mask=there, other=0)
    gradient = tl.load(parameters.gradients + place, mask=there, other=0.0)
    parameter = stepped(parameters.native, parameters.squares, i, gradient, rates, there)
    tl.store(parameters.packed + place, parameter, mask=there)
    # A step writes the gradients of the biases it touches alone: the others have to be zero.
    tl.store(parameters.gradients + place, tl.zeros([BLOCK], tl.float32), mask=there & (i >= sparse_from))


@triton.jit
def finish(losses, total, state, BATCH: tl.constexpr, BLOCK: tl.constexpr):
    """Add the step's loss to the epoch's, and move on to the next step."""
    loss = tl.zeros([BLOCK], tl.float64)
    for begin in range(0, BATCH, BLOCK):
        b = begin + tl.arange(0, BLOCK)
        loss += tl.load(losses + b, mask=b < BATCH, other=0.0).to(tl.float64)
    tl.store(total, tl.load(total) + tl.sum(loss, 0))
    tl.store(state, tl.load(state) + 1)
