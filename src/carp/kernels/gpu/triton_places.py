# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""Where kernels find things in memory: a step's pairs, their documents, neighbouring words, matrices.

`batch`, `trace` and `sizes` are the named tuples of kernel_arguments.py. A `document` is what `document_of` returns, a
`block` what `block_of` returns, a `gate` what `gate_weights` returns.
"""

from __future__ import annotations

from carp.kernels.gpu.triton_language import tl, triton


@triton.jit
def pair_of(batch, b, BATCH: tl.constexpr):
    """The pairs at places b of this step's batch, and whether they are there and ours; where not, the first of all."""
    place = tl.load(batch.state).to(tl.int32) * BATCH + b
    live = (b >= batch.first) & (b < batch.last) & (place < batch.pairs)
    return tl.load(batch.order + place, mask=live, other=0), live


@triton.jit
def has_pairs(batch, BATCH: tl.constexpr):
    """Whether this step has any pair; one without pairs changes nothing."""
    return tl.load(batch.state).to(tl.int32) * BATCH < batch.pairs


@triton.jit
def document_of(batch, number, BATCH: tl.constexpr):
    """Number, side, begin, length and left-out record of one of this step's documents.

    A batch has its users' documents first, then its items'.
    """
    side = number // BATCH
    pair, live = pair_of(batch, number % BATCH, BATCH)
    owner = tl.load(batch.owners + side * batch.pairs + pair)
    start = tl.load(batch.offsets + owner)
    length = (tl.load(batch.offsets + owner + 1) - start).to(tl.int32)
    return number, side, start, tl.where(live, length, 0), tl.load(batch.records + pair)


@triton.jit
def kept_words(batch, document, t):
    """The review that each place belongs to, and whether its word is read."""
    _number, _side, start, length, left_out = document
    inside = t < length
    review = tl.load(batch.reviews + start + t, mask=inside, other=-1)
    return review, inside & (review != left_out)


@triton.jit
def neighbours(batch, document, t, review, kept, STEP: tl.constexpr):
    """The word STEP places on, and whether there is one in the same review of the same document."""
    _number, _side, start, length, _left_out = document
    s = t + STEP
    near = kept & (s >= 0) & (s < length)
    near = near & (tl.load(batch.reviews + start + s, mask=near, other=-1) == review)
    return tl.load(batch.words + start + s, mask=near, other=0), near


@triton.jit
def word_rows(table, word, side, j, sizes: tl.constexpr):
    """Places [words, N] of words projected for place j of a window."""
    column = (side * sizes.WINDOW + j) * sizes.N + tl.arange(0, sizes.N)
    return table + word[:, None] * sizes.COLUMNS + column[None, :]


@triton.jit
def grid_of(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Places [ROWS, COLUMNS] of a matrix that is stored row by row."""
    return tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]


@triton.jit
def turned_grid(SIZE: tl.constexpr):
    """Places [from, to] of a square matrix that is stored [to, from]."""
    return tl.arange(0, SIZE)[None, :] * SIZE + tl.arange(0, SIZE)[:, None]


@triton.jit
def gate_weights(weights, which, N: tl.constexpr):
    """W_1 [from, to] and W_2 q + b of one viewpoint."""
    square = tl.load(weights.gates + which * N * N + turned_grid(N))
    return square, tl.load(weights.answers + which * N + tl.arange(0, N))


@triton.jit
def gate_of(c, gate, PRECISION: tl.constexpr):
    """sigmoid(W_1 c + W_2 q + b) [words, N]."""
    weight, answer = gate
    return tl.sigmoid(tl.dot(c, weight, input_precision=PRECISION) + answer[None, :])


@triton.jit
def feature_rows(features, document, begin, sizes: tl.constexpr):
    """Places [BLOCK, N] of the features of a document's words from `begin`."""
    number, _side, _start, _length, _left_out = document
    return features + (number * sizes.LONGEST + begin) * sizes.N + grid_of(sizes.BLOCK, sizes.N)


@triton.jit
def block_of(batch, features, document, begin, sizes: tl.constexpr):
    """Places of a document from `begin`, which of them are read, and their features [BLOCK, N]."""
    _number, _side, _start, length, _left_out = document
    t = begin + tl.arange(0, sizes.BLOCK)
    _review, kept = kept_words(batch, document, t)
    source = feature_rows(features, document, begin, sizes)
    return t, kept, tl.load(source, mask=(t < length)[:, None], other=0.0)
