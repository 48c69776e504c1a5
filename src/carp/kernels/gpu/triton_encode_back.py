# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""From the gradients of viewpoints back to gates and words.

A word's gradient is attention_j · W_pᵀ dv + dscore_j · scale · W_pᵀ rudiment + W_pᵀ drudiment / words: three vectors
a viewpoint and two numbers a word. Gates are computed again in each pass: cheaper than their memory.
"""

from __future__ import annotations

from carp.kernels.gpu.triton_places import (
    block_of,
    document_of,
    gate_of,
    gate_weights,
    grid_of,
    kept_words,
    neighbours,
    word_rows,
)

try:
    import triton
    import triton.language as tl
except ImportError:  # nothing below is called then
    from carp.kernels.gpu.availability import triton_is_missing as triton


@triton.jit
def attend_backward(
    gates,
    answers,
    projection,
    reviews,
    offsets,
    owners,
    records,
    order,
    state,
    features,
    wide,
    narrow,
    vectors,
    normal,
    counts,
    side_gradients,
    attention,
    pairs,
    BATCH: tl.constexpr,
    LONGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    M: tl.constexpr,
    SCALE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Of one viewpoint: every word's attention and its score's gradient, and the three vectors of its words."""
    document, x = tl.program_id(0), tl.program_id(1)
    side, start, length, left_out = document_of(order, owners, records, offsets, state, pairs, document, BATCH)
    i, k = tl.arange(0, N), tl.arange(0, K)
    own = document * M + x
    weight = tl.load(projection + side * K * N + grid_of(K, N))
    back = tl.sum(weight * tl.load(side_gradients + own * K + k)[:, None], 0)  # [N]
    ask = tl.load(vectors + own * 3 * N + N + i)
    through = tl.sum(back * tl.load(wide + own * 3 * N + i), 0)
    highest, inverse = tl.load(normal + own * 2), tl.load(normal + own * 2 + 1)
    gate_weight, answer = gate_weights(gates, answers, side * M + x, N)
    u = tl.zeros([N], tl.float32)
    for begin in range(0, length, BLOCK):
        t, kept, c = block_of(features, reviews, start, length, left_out, document, begin, LONGEST, BLOCK, N)
        g = c * gate_of(c, gate_weight, answer, PRECISION)
        score = tl.where(kept, tl.sum(g * ask[None, :], 1), -1e30)
        heard = tl.where(kept, tl.exp(score - highest) * inverse, 0.0)
        change = heard * (tl.sum(g * back[None, :], 1) - through)
        target = attention + (document * 2 * M + x) * LONGEST + t
        tl.store(target, heard, mask=t < length)
        tl.store(target + M * LONGEST, change, mask=t < length)
        u += tl.sum(change[:, None] * g, 0)
    rudiment = SCALE * tl.sum(weight * u[None, :], 1)  # its gradient, [K]
    spread = tl.sum(weight * rudiment[:, None], 0) / tl.load(counts + document)
    tl.store(vectors + own * 3 * N + i, back)
    tl.store(vectors + own * 3 * N + 2 * N + i, spread)
    tl.store(wide + own * 3 * N + N + i, u)
    tl.store(narrow + own * 2 * K + K + k, rudiment)


@triton.jit
def gate_backward(
    c,
    kept,
    t,
    length,
    gate_weight,
    answer,
    attention,
    back,
    ask,
    spread,
    x,
    document,
    LONGEST: tl.constexpr,
    M: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Of one viewpoint: the gate [BLOCK, N], its words' gradient, and the gradient before the sigmoid."""
    gate = gate_of(c, gate_weight, answer, PRECISION)
    source = attention + (document * 2 * M + x) * LONGEST + t
    weight = tl.load(source, mask=t < length, other=0.0)
    change = tl.load(source + M * LONGEST, mask=t < length, other=0.0)
    dg = weight[:, None] * back[None, :] + change[:, None] * ask[None, :] + spread[None, :]
    dg = tl.where(kept[:, None], dg, 0.0)
    return gate, dg, dg * c * gate * (1.0 - gate)


@triton.jit
def scatter(
    table_gradient,
    gradient,
    words,
    reviews,
    start,
    length,
    left_out,
    side,
    t,
    n,
    N: tl.constexpr,
    COLUMNS: tl.constexpr,
    WINDOW: tl.constexpr,
    FIXED: tl.constexpr,
):
    """Add a word's gradient to its neighbours' rows. In fixed point the sum does not depend on the order."""
    real = (tl.arange(0, N) < n)[None, :]
    review, kept = kept_words(reviews, start, length, left_out, t)
    if FIXED > 0:
        gradient = (gradient * FIXED).to(tl.int64)
    for j in tl.static_range(WINDOW):
        word, near = neighbours(words, reviews, start, length, t, review, kept, j - WINDOW // 2)
        target = word_rows(table_gradient, word, side, j, COLUMNS, WINDOW, N)
        tl.atomic_add(target, gradient, mask=near[:, None] & real, sem="relaxed")


@triton.jit
def words_backward(
    gates,
    answers,
    words,
    reviews,
    offsets,
    owners,
    records,
    order,
    state,
    features,
    attention,
    vectors,
    bias_parts,
    table_gradient,
    pairs,
    n,
    BATCH: tl.constexpr,
    LONGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    N: tl.constexpr,
    M: tl.constexpr,
    COLUMNS: tl.constexpr,
    WINDOW: tl.constexpr,
    KEEP: tl.constexpr,
    PRECISION: tl.constexpr,
    FIXED: tl.constexpr,
):
    """From all viewpoints back to the features of a block of words, and on to their projected words' rows."""
    document, block = tl.program_id(0), tl.program_id(1)
    side, start, length, left_out = document_of(order, owners, records, offsets, state, pairs, document, BATCH)
    begin = block * BLOCK
    i = tl.arange(0, N)
    part = bias_parts + (document * tl.num_programs(1) + block) * N + i
    if begin < length:
        t, kept, c = block_of(features, reviews, start, length, left_out, document, begin, LONGEST, BLOCK, N)
        dc = tl.zeros([BLOCK, N], tl.float32)
        for x in range(M):
            source = vectors + (document * M + x) * 3 * N + i
            gate_weight, answer = gate_weights(gates, answers, side * M + x, N)
            gate, dg, dpre = gate_backward(
                c, kept, t, length, gate_weight, answer, attention,
                tl.load(source), tl.load(source + N), tl.load(source + 2 * N), x, document, LONGEST, M, PRECISION,
            )  # fmt: skip
            turned_weight = tl.load(gates + (side * M + x) * N * N + grid_of(N, N))  # [to, from]
            dc += dg * gate
            dc += tl.dot(dpre, turned_weight, input_precision=PRECISION)
        dc = tl.where(c > 0, dc / KEEP, 0.0)
        tl.store(part, tl.sum(dc, 0))
        scatter(table_gradient, dc, words, reviews, start, length, left_out, side, t, n, N, COLUMNS, WINDOW, FIXED)
    else:
        tl.store(part, tl.zeros([N], tl.float32))


@triton.jit
def gate_gradients(
    gates,
    answers,
    reviews,
    offsets,
    owners,
    records,
    order,
    state,
    features,
    attention,
    vectors,
    gate_parts,
    answer_parts,
    pairs,
    BATCH: tl.constexpr,
    SPLIT: tl.constexpr,
    LONGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    N: tl.constexpr,
    M: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient of one viewpoint's W_1 and answer over every SPLIT-th document of a side."""
    split, which = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, N)
    total = tl.zeros([N, N], tl.float32)  # [to, from]
    answer_total = tl.zeros([N], tl.float32)
    gate_weight, answer = gate_weights(gates, answers, which, N)
    for b in range(split, BATCH, SPLIT):
        document = which // M * BATCH + b
        _side, start, length, left_out = document_of(order, owners, records, offsets, state, pairs, document, BATCH)
        source = vectors + (document * M + which % M) * 3 * N + i
        back, ask, spread = tl.load(source), tl.load(source + N), tl.load(source + 2 * N)
        for begin in range(0, length, BLOCK):
            t, kept, c = block_of(features, reviews, start, length, left_out, document, begin, LONGEST, BLOCK, N)
            _gate, _dg, dpre = gate_backward(
                c, kept, t, length, gate_weight, answer, attention, back, ask, spread,
                which % M, document, LONGEST, M, PRECISION,
            )  # fmt: skip
            total += tl.dot(tl.trans(dpre), c, input_precision=PRECISION)
            answer_total += tl.sum(dpre, 0)
    part = split * tl.num_programs(1) + which
    tl.store(gate_parts + part * N * N + grid_of(N, N), total)
    tl.store(answer_parts + part * N + i, answer_total)


@triton.jit
def projection_gradients(
    side_gradients,
    narrow,
    wide,
    parts,
    rows,
    ROWS: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """W_p's gradient from some viewpoints of a side: Σ dv ⊗ z + rudiment ⊗ Σ dscore g + drudiment ⊗ mean."""
    side, share = tl.program_id(0), tl.program_id(1)
    i, k = tl.arange(0, N), tl.arange(0, K)
    row = share * ROWS + tl.arange(0, ROWS)
    there = row < rows
    own = side * rows + row
    total = tl.zeros([K, N], tl.float32)
    for which in tl.static_range(3):
        if which == 0:
            column = tl.load(side_gradients + own[None, :] * K + k[:, None], mask=there[None, :], other=0.0)
        else:
            column = tl.load(narrow + (own[None, :] * 2 + which - 1) * K + k[:, None], mask=there[None, :], other=0.0)
        line = tl.load(wide + (own[:, None] * 3 + which) * N + i[None, :], mask=there[:, None], other=0.0)
        total += tl.dot(column, line, input_precision=PRECISION)
    tl.store(parts + (side * tl.num_programs(1) + share) * K * N + grid_of(K, N), total)
