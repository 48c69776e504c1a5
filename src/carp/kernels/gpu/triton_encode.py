# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""Documents to viewpoints: features by a program for each block of words, viewpoints by a program for each of them.

The projection W_p is linear, so it is applied to sums over words and never to a word: with g_j = c_j ⊙ gate_j,

    rudiment = W_p mean(g)      score_j = scale · g_j · (W_pᵀ rudiment)      viewpoint = W_p Σ attention_j g_j
"""

from __future__ import annotations

from carp.kernels.gpu import triton_places as places
from carp.kernels.gpu.triton_language import tl, triton


@triton.jit
def answer_queries(gate_query, queries, bias, answers, N: tl.constexpr):
    """W_2 q + b for one viewpoint of one side: what every word's gate adds."""
    which = tl.program_id(0)
    i = which * N + tl.arange(0, N)
    weight = tl.load(gate_query + which * N * N + places.grid_of(N, N))
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
    """The mask of a step's dropout, so that another model can repeat it."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = keep_of(state, row, N, BLOCK, KEEP)
    target = kept + row[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(target, found.to(tl.int8), mask=(row < rows)[:, None])


@triton.jit
def write_features(batch, projected, bias, features, sizes: tl.constexpr):
    """Features of a block of words: relu of the sum of neighbours' projected words, after dropout; zero if not read."""
    begin = tl.program_id(1) * sizes.BLOCK
    document = places.document_of(batch, tl.program_id(0), sizes.BATCH)
    number, side, _start, length, _left_out = document
    if begin < length:
        t = begin + tl.arange(0, sizes.BLOCK)
        review, kept = places.kept_words(batch, document, t)
        c = tl.zeros([sizes.BLOCK, sizes.N], tl.float32)
        c += tl.load(bias + side * sizes.N + tl.arange(0, sizes.N))[None, :]
        for j in tl.static_range(sizes.WINDOW):
            word, near = places.neighbours(batch, document, t, review, kept, j - sizes.WINDOW // 2)
            source = places.word_rows(projected, word, side, j, sizes)
            c += tl.load(source, mask=near[:, None], other=0.0)
        c = tl.where(kept[:, None], tl.maximum(c, 0.0), 0.0)
        if sizes.KEEP < 1:
            row = number * sizes.LONGEST + t
            c = tl.where(keep_of(batch.state, row, sizes.N, sizes.BLOCK, sizes.KEEP), c / sizes.KEEP, 0.0)
        tl.store(places.feature_rows(features, document, begin, sizes), c, mask=(t < length)[:, None])


@triton.jit
def mean_of(batch, features, document, gate, sizes: tl.constexpr):
    """The mean of a document's gated words [N], and how many are read, at least one."""
    _number, _side, _start, length, _left_out = document
    total = tl.zeros([sizes.N], tl.float32)
    count = tl.zeros([sizes.BLOCK], tl.float32)
    for begin in range(0, length, sizes.BLOCK):
        _t, kept, c = places.block_of(batch, features, document, begin, sizes)
        count += kept.to(tl.float32)
        total += tl.sum(c * places.gate_of(c, gate, sizes.PRECISION), 0)
    read = tl.maximum(tl.sum(count, 0), 1.0)
    return total / read, read


@triton.jit
def attend(ask, batch, features, document, gate, sizes: tl.constexpr):
    """The sum of gated words [N] weighted by the softmax of their scores, by a running maximum; that and its scale."""
    _number, _side, _start, length, _left_out = document
    highest = -1e30
    share = 0.0
    z = tl.zeros([sizes.N], tl.float32)
    for begin in range(0, length, sizes.BLOCK):
        _t, kept, c = places.block_of(batch, features, document, begin, sizes)
        g = c * places.gate_of(c, gate, sizes.PRECISION)
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
def read_documents(batch, weights, trace, sides, sizes: tl.constexpr, TRAIN: tl.constexpr):
    """One viewpoint of a document; in training also what going backward needs: mean, weighted sum, softmax's scale."""
    x = tl.program_id(1)
    document = places.document_of(batch, tl.program_id(0), sizes.BATCH)
    number, side, _start, _length, _left_out = document
    own = number * sizes.M + x
    i, k = tl.arange(0, sizes.N), tl.arange(0, sizes.K)
    gate = places.gate_weights(weights, side * sizes.M + x, sizes.N)
    mean, read = mean_of(batch, trace.features, document, gate, sizes)
    weight = tl.load(weights.projection + side * sizes.K * sizes.N + places.grid_of(sizes.K, sizes.N))
    rudiment = sizes.SCALE * tl.sum(weight * mean[None, :], 1)  # [K]
    ask = tl.sum(weight * rudiment[:, None], 0)  # [N]
    z, highest, inverse = attend(ask, batch, trace.features, document, gate, sizes)
    tl.store(sides + own * sizes.K + k, tl.sum(weight * z[None, :], 1))
    if TRAIN:
        tl.store(trace.wide + own * 3 * sizes.N + i, z)
        tl.store(trace.wide + own * 3 * sizes.N + 2 * sizes.N + i, mean)
        tl.store(trace.narrow + own * 2 * sizes.K + k, rudiment)
        tl.store(trace.vectors + own * 3 * sizes.N + sizes.N + i, ask)
        tl.store(trace.normal + own * 2, highest)
        tl.store(trace.normal + own * 2 + 1, inverse)
        tl.store(trace.counts + number, read)
