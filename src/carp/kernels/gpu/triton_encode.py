# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""Documents to viewpoints, a program a document and block of words, then a document and viewpoint.

The projection W_p is linear, so it is applied to sums over words and never to a word: with g_j = c_j ⊙ gate_j,

    rudiment = W_p mean(g)      score_j = scale · g_j · (W_pᵀ rudiment)      viewpoint = W_p Σ attention_j g_j
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
def answer_queries(gate_query, queries, bias, answers, N: tl.constexpr):
    """W_2 q + b for one viewpoint of one side: what every word's gate adds."""
    which = tl.program_id(0)
    i = which * N + tl.arange(0, N)
    weight = tl.load(gate_query + which * N * N + grid_of(N, N))
    tl.store(answers + i, tl.sum(weight * tl.load(queries + i)[None, :], 1) + tl.load(bias + i))


@triton.jit
def keep_of(state, row, N: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr):
    """Which features [BLOCK, N] dropout keeps: a function of the epoch's seed, the step and the place."""
    counter = row[:, None] * (N // 4) + tl.arange(0, N // 4)[None, :]
    step = tl.load(state).to(tl.int32)
    nothing = counter * 0
    a, b, c, d = tl.philox(tl.load(state + 1), counter, nothing + step, nothing, nothing)
    bits = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [BLOCK, N])
    return tl.uint_to_uniform_float(bits) < KEEP


@triton.jit
def show_kept(state, kept, rows, N: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr):
    """The mask of a step's dropout, for whoever wants to repeat it."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = keep_of(state, row, N, BLOCK, KEEP)
    target = kept + row[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(target, found.to(tl.int8), mask=(row < rows)[:, None])


@triton.jit
def write_features(
    projected,
    bias,
    words,
    reviews,
    offsets,
    owners,
    records,
    order,
    state,
    features,
    pairs,
    BATCH: tl.constexpr,
    LONGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    N: tl.constexpr,
    COLUMNS: tl.constexpr,
    WINDOW: tl.constexpr,
    KEEP: tl.constexpr,
):
    """relu of the sum of neighbours' projected words, after dropout, for a block of words; zero where none is read."""
    document, begin = tl.program_id(0), tl.program_id(1) * BLOCK
    side, start, length, left_out = document_of(order, owners, records, offsets, state, pairs, document, BATCH)
    if begin < length:
        t = begin + tl.arange(0, BLOCK)
        review, kept = kept_words(reviews, start, length, left_out, t)
        c = tl.zeros([BLOCK, N], tl.float32) + tl.load(bias + side * N + tl.arange(0, N))[None, :]
        for j in tl.static_range(WINDOW):
            word, near = neighbours(words, reviews, start, length, t, review, kept, j - WINDOW // 2)
            source = word_rows(projected, word, side, j, COLUMNS, WINDOW, N)
            c += tl.load(source, mask=near[:, None], other=0.0)
        c = tl.where(kept[:, None], tl.maximum(c, 0.0), 0.0)
        if KEEP < 1:
            c = tl.where(keep_of(state, document * LONGEST + t, N, BLOCK, KEEP), c / KEEP, 0.0)
        target = features + (document * LONGEST + begin) * N + grid_of(BLOCK, N)
        tl.store(target, c, mask=(t < length)[:, None])


@triton.jit
def mean_of(
    gate_weight,
    answer,
    features,
    reviews,
    start,
    length,
    left_out,
    document,
    LONGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The mean of a document's gated words [N], and how many are read (one where none is)."""
    total = tl.zeros([N], tl.float32)
    count = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, length, BLOCK):
        _, kept, c = block_of(features, reviews, start, length, left_out, document, begin, LONGEST, BLOCK, N)
        count += kept.to(tl.float32)
        total += tl.sum(c * gate_of(c, gate_weight, answer, PRECISION), 0)
    read = tl.maximum(tl.sum(count, 0), 1.0)
    return total / read, read


@triton.jit
def attend(
    ask,
    gate_weight,
    answer,
    features,
    reviews,
    start,
    length,
    left_out,
    document,
    LONGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gated words weighted by the softmax of their scores [N], block by block with a running maximum; its scale."""
    highest = -1e30
    share = 0.0
    z = tl.zeros([N], tl.float32)
    for begin in range(0, length, BLOCK):
        _, kept, c = block_of(features, reviews, start, length, left_out, document, begin, LONGEST, BLOCK, N)
        g = c * gate_of(c, gate_weight, answer, PRECISION)
        score = tl.where(kept, tl.sum(g * ask[None, :], 1), -1e30)
        after = tl.maximum(highest, tl.max(score, 0))
        heard = tl.where(kept, tl.exp(score - after), 0.0)
        faded = tl.exp(highest - after)
        share = share * faded + tl.sum(heard, 0)
        z = z * faded + tl.sum(heard[:, None] * g, 0)
        highest = after
    inverse = tl.where(share > 0, 1.0 / tl.where(share > 0, share, 1.0), 0.0)
    return z * inverse, highest, inverse


@triton.jit
def read_documents(
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
    sides,
    wide,
    narrow,
    vectors,
    normal,
    counts,
    pairs,
    BATCH: tl.constexpr,
    LONGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    M: tl.constexpr,
    SCALE: tl.constexpr,
    PRECISION: tl.constexpr,
    TRAIN: tl.constexpr,
):
    """One viewpoint of a document; in training also what going back needs: mean, weighted sum, softmax's scale."""
    document, x = tl.program_id(0), tl.program_id(1)
    side, start, length, left_out = document_of(order, owners, records, offsets, state, pairs, document, BATCH)
    own = document * M + x
    i, k = tl.arange(0, N), tl.arange(0, K)
    gate_weight, answer = gate_weights(gates, answers, side * M + x, N)
    mean, read = mean_of(
        gate_weight, answer, features, reviews, start, length, left_out, document, LONGEST, BLOCK, N, PRECISION
    )
    weight = tl.load(projection + side * K * N + grid_of(K, N))
    rudiment = SCALE * tl.sum(weight * mean[None, :], 1)  # [K]
    ask = tl.sum(weight * rudiment[:, None], 0)  # [N]
    z, highest, inverse = attend(
        ask, gate_weight, answer, features, reviews, start, length, left_out, document, LONGEST, BLOCK, N, PRECISION
    )
    tl.store(sides + own * K + k, tl.sum(weight * z[None, :], 1))
    if TRAIN:
        tl.store(wide + own * 3 * N + i, z)
        tl.store(wide + own * 3 * N + 2 * N + i, mean)
        tl.store(narrow + own * 2 * K + k, rudiment)
        tl.store(vectors + own * 3 * N + N + i, ask)
        tl.store(normal + own * 2, highest)
        tl.store(normal + own * 2 + 1, inverse)
        tl.store(counts + document, read)
