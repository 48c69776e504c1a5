# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""From the gradients of viewpoints back to gates and words.

A word's gradient is attention_j · W_pᵀ dv + dscore_j · scale · W_pᵀ rudiment + W_pᵀ drudiment / words: made of three
vectors for each viewpoint and two numbers for each word. Gates are computed again in each pass, which costs less than
keeping them in memory.
"""

from __future__ import annotations

from carp.kernels.gpu import triton_places as places
from carp.kernels.gpu.triton_language import tl, triton


@triton.jit
def attend_backward(batch, weights, trace, side_gradients, sizes: tl.constexpr):
    """For one viewpoint: every word's attention and its score's gradient, and the three vectors of its words."""
    x = tl.program_id(1)
    document = places.document_of(batch, tl.program_id(0), sizes.BATCH)
    number, side, _start, length, _left_out = document
    i, k = tl.arange(0, sizes.N), tl.arange(0, sizes.K)
    own = number * sizes.M + x
    weight = tl.load(weights.projection + side * sizes.K * sizes.N + places.grid_of(sizes.K, sizes.N))
    back = tl.sum(weight * tl.load(side_gradients + own * sizes.K + k)[:, None], 0)  # [N]
    ask = tl.load(trace.vectors + own * 3 * sizes.N + sizes.N + i)
    through = tl.sum(back * tl.load(trace.wide + own * 3 * sizes.N + i), 0)
    highest, inverse = tl.load(trace.normal + own * 2), tl.load(trace.normal + own * 2 + 1)
    gate = places.gate_weights(weights, side * sizes.M + x, sizes.N)
    u = tl.zeros([sizes.N], tl.float32)
    for begin in range(0, length, sizes.BLOCK):
        t, kept, c = places.block_of(batch, trace.features, document, begin, sizes)
        g = c * places.gate_of(c, gate, sizes.PRECISION)
        score = tl.where(kept, tl.sum(g * ask[None, :], 1), -1e30)
        heard = tl.where(kept, tl.exp(score - highest) * inverse, 0.0)
        change = heard * (tl.sum(g * back[None, :], 1) - through)
        target = attention_row(trace, number, x, t, sizes)
        tl.store(target, heard, mask=t < length)
        tl.store(target + sizes.M * sizes.LONGEST, change, mask=t < length)
        u += tl.sum(change[:, None] * g, 0)
    rudiment = sizes.SCALE * tl.sum(weight * u[None, :], 1)  # its gradient, [K]
    spread = tl.sum(weight * rudiment[:, None], 0) / tl.load(trace.counts + number)
    tl.store(trace.vectors + own * 3 * sizes.N + i, back)
    tl.store(trace.vectors + own * 3 * sizes.N + 2 * sizes.N + i, spread)
    tl.store(trace.wide + own * 3 * sizes.N + sizes.N + i, u)
    tl.store(trace.narrow + own * 2 * sizes.K + sizes.K + k, rudiment)


@triton.jit
def attention_row(trace, number, x, t, sizes: tl.constexpr):
    """Places [words] of one viewpoint's attention; the gradients of its scores lie M rows further."""
    return trace.attention + (number * 2 * sizes.M + x) * sizes.LONGEST + t


@triton.jit
def word_vectors(trace, number, x, sizes: tl.constexpr):
    """The three vectors [N] of one viewpoint that a word's gradient is made of: back, ask and spread."""
    source = trace.vectors + (number * sizes.M + x) * 3 * sizes.N + tl.arange(0, sizes.N)
    return tl.load(source), tl.load(source + sizes.N), tl.load(source + 2 * sizes.N)


@triton.jit
def gate_backward(trace, document, x, block, gate, vectors, sizes: tl.constexpr):
    """For one viewpoint: the gate [BLOCK, N], the gated words' gradient, and the gradient before the sigmoid."""
    number, _side, _start, length, _left_out = document
    t, kept, c = block
    back, ask, spread = vectors
    opened = places.gate_of(c, gate, sizes.PRECISION)
    source = attention_row(trace, number, x, t, sizes)
    weight = tl.load(source, mask=t < length, other=0.0)
    change = tl.load(source + sizes.M * sizes.LONGEST, mask=t < length, other=0.0)
    dg = weight[:, None] * back[None, :] + change[:, None] * ask[None, :] + spread[None, :]
    dg = tl.where(kept[:, None], dg, 0.0)
    return opened, dg, dg * c * opened * (1.0 - opened)


@triton.jit
def scatter(batch, document, table_gradient, gradient, t, n, sizes: tl.constexpr, FIXED: tl.constexpr):
    """Add a word's gradient to its neighbours' rows; in fixed point, so that the sum does not depend on the order."""
    _number, side, _start, _length, _left_out = document
    real = (tl.arange(0, sizes.N) < n)[None, :]
    review, kept = places.kept_words(batch, document, t)
    if FIXED > 0:
        gradient = (gradient * FIXED).to(tl.int64)
    for j in tl.static_range(sizes.WINDOW):
        word, near = places.neighbours(batch, document, t, review, kept, j - sizes.WINDOW // 2)
        target = places.word_rows(table_gradient, word, side, j, sizes)
        tl.atomic_add(target, gradient, mask=near[:, None] & real, sem="relaxed")


@triton.jit
def words_backward(batch, weights, trace, bias_parts, table_gradient, n, sizes: tl.constexpr, FIXED: tl.constexpr):
    """From all viewpoints back to the features of a block of words, and on to the rows of projected words."""
    part_number = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    part = bias_parts + part_number * sizes.N + tl.arange(0, sizes.N)
    document = places.document_of(batch, tl.program_id(0), sizes.BATCH)
    number, side, _start, length, _left_out = document
    begin = tl.program_id(1) * sizes.BLOCK
    if begin < length:
        block = places.block_of(batch, trace.features, document, begin, sizes)
        t, _kept, c = block
        dc = tl.zeros([sizes.BLOCK, sizes.N], tl.float32)
        for x in range(sizes.M):
            which = side * sizes.M + x
            gate = places.gate_weights(weights, which, sizes.N)
            vectors = word_vectors(trace, number, x, sizes)
            opened, dg, dpre = gate_backward(trace, document, x, block, gate, vectors, sizes)
            square = tl.load(weights.gates + which * sizes.N * sizes.N + places.grid_of(sizes.N, sizes.N))  # [to, from]
            dc += dg * opened
            dc += tl.dot(dpre, square, input_precision=sizes.PRECISION)
        dc = tl.where(c > 0, dc / sizes.KEEP, 0.0)
        tl.store(part, tl.sum(dc, 0))
        scatter(batch, document, table_gradient, dc, t, n, sizes, FIXED)
    else:
        tl.store(part, tl.zeros([sizes.N], tl.float32))


@triton.jit
def gate_gradients(batch, weights, trace, gate_parts, answer_parts, sizes: tl.constexpr, SPLIT: tl.constexpr):
    """The gradient of one viewpoint's W_1 and answer over every SPLIT-th document of a side."""
    split, which = tl.program_id(0), tl.program_id(1)
    total = tl.zeros([sizes.N, sizes.N], tl.float32)  # [to, from]
    answer_total = tl.zeros([sizes.N], tl.float32)
    gate = places.gate_weights(weights, which, sizes.N)
    x = which % sizes.M
    for b in range(split, sizes.BATCH, SPLIT):
        document = places.document_of(batch, which // sizes.M * sizes.BATCH + b, sizes.BATCH)
        number, _side, _start, length, _left_out = document
        vectors = word_vectors(trace, number, x, sizes)
        for begin in range(0, length, sizes.BLOCK):
            block = places.block_of(batch, trace.features, document, begin, sizes)
            _t, _kept, c = block
            _opened, _dg, dpre = gate_backward(trace, document, x, block, gate, vectors, sizes)
            total += tl.dot(tl.trans(dpre), c, input_precision=sizes.PRECISION)
            answer_total += tl.sum(dpre, 0)
    part = split * tl.num_programs(1) + which
    tl.store(gate_parts + part * sizes.N * sizes.N + places.grid_of(sizes.N, sizes.N), total)
    tl.store(answer_parts + part * sizes.N + tl.arange(0, sizes.N), answer_total)


@triton.jit
def projection_gradients(side_gradients, trace, parts, rows, sizes: tl.constexpr, ROWS: tl.constexpr):
    """W_p's gradient from some viewpoints of a side: Σ dv ⊗ z + rudiment ⊗ Σ dscore g + drudiment ⊗ mean."""
    side, share = tl.program_id(0), tl.program_id(1)
    i, k = tl.arange(0, sizes.N)[None, :], tl.arange(0, sizes.K)[:, None]
    row = share * ROWS + tl.arange(0, ROWS)
    there = row < rows
    own = side * rows + row
    total = tl.zeros([sizes.K, sizes.N], tl.float32)
    for which in tl.static_range(3):
        if which == 0:
            source = side_gradients + own[None, :] * sizes.K + k
        else:
            source = trace.narrow + (own[None, :] * 2 + which - 1) * sizes.K + k
        column = tl.load(source, mask=there[None, :], other=0.0)
        line = tl.load(trace.wide + (own[:, None] * 3 + which) * sizes.N + i, mask=there[:, None], other=0.0)
        total += tl.dot(column, line, input_precision=sizes.PRECISION)
    part = side * tl.num_programs(1) + share
    tl.store(parts + part * sizes.K * sizes.N + places.grid_of(sizes.K, sizes.N), total)
