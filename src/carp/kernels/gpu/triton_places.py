# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""Where things lie, for all kernels: a step's pairs, their documents, words beside each other, matrices."""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:  # nothing below is called then
    from carp.kernels.gpu.availability import triton_is_missing as triton


@triton.jit
def pair_of(order, state, pairs, b, BATCH: tl.constexpr):
    """The pairs at places b of this step's batch, and whether they are there; the first pair stands in."""
    place = tl.load(state).to(tl.int32) * BATCH + b
    live = (b < BATCH) & (place < pairs)
    return tl.load(order + place, mask=live, other=0), live


@triton.jit
def has_pairs(state, pairs, BATCH: tl.constexpr):
    """Whether this step has any pair: one without changes nothing."""
    return tl.load(state).to(tl.int32) * BATCH < pairs


@triton.jit
def document_of(order, owners, records, offsets, state, pairs, document, BATCH: tl.constexpr):
    """Side of this step's document, where its words begin, its length, and the record it is read without."""
    side = document // BATCH
    pair, live = pair_of(order, state, pairs, document % BATCH, BATCH)
    owner = tl.load(owners + side * pairs + pair)
    start = tl.load(offsets + owner)
    length = (tl.load(offsets + owner + 1) - start).to(tl.int32)
    return side, start, tl.where(live, length, 0), tl.load(records + pair)


@triton.jit
def kept_words(reviews, start, length, left_out, t):
    """The review of each place, and whether its word is read."""
    inside = t < length
    review = tl.load(reviews + start + t, mask=inside, other=-1)
    return review, inside & (review != left_out)


@triton.jit
def neighbours(words, reviews, start, length, t, review, kept, STEP: tl.constexpr):
    """The word STEP places on, and whether it is there: in the same review of the same document."""
    s = t + STEP
    near = kept & (s >= 0) & (s < length)
    near = near & (tl.load(reviews + start + s, mask=near, other=-1) == review)
    return tl.load(words + start + s, mask=near, other=0), near


@triton.jit
def word_rows(table, word, side, j, COLUMNS: tl.constexpr, WINDOW: tl.constexpr, N: tl.constexpr):
    """Places [words, N] of projected words, as the j-th of a window sees them."""
    column = (side * WINDOW + j) * N + tl.arange(0, N)
    return table + word[:, None] * COLUMNS + column[None, :]


@triton.jit
def grid_of(ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Places [ROWS, COLUMNS] of a matrix that lies row by row."""
    return tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]


@triton.jit
def turned_grid(SIZE: tl.constexpr):
    """Places [from, to] of a square matrix that lies [to, from]."""
    return tl.arange(0, SIZE)[None, :] * SIZE + tl.arange(0, SIZE)[:, None]


@triton.jit
def gate_weights(gates, answers, which, N: tl.constexpr):
    """W_1 [from, to] and W_2 q + b of one viewpoint."""
    return tl.load(gates + which * N * N + turned_grid(N)), tl.load(answers + which * N + tl.arange(0, N))


@triton.jit
def gate_of(c, weight, answer, PRECISION: tl.constexpr):
    """sigmoid(W_1 c + W_2 q + b) [words, N]."""
    return tl.sigmoid(tl.dot(c, weight, input_precision=PRECISION) + answer[None, :])


@triton.jit
def block_of(
    features,
    reviews,
    start,
    length,
    left_out,
    document,
    begin,
    LONGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    N: tl.constexpr,
):
    """Places of a document from `begin`, which of them are read, and their features [BLOCK, N]."""
    t = begin + tl.arange(0, BLOCK)
    _, kept = kept_words(reviews, start, length, left_out, t)
    source = features + (document * LONGEST + begin) * N + grid_of(BLOCK, N)
    return t, kept, tl.load(source, mask=(t < length)[:, None], other=0.0)
