# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""Documents to viewpoints and back, a program a document and viewpoint, or a document and block of words.

The projection W_p is linear, so it is applied to sums over words and never to a word: with g_j = c_j ⊙ gate_j,

    rudiment = W_p mean(g)      score_j = scale · g_j · (W_pᵀ rudiment)      viewpoint = W_p Σ attention_j g_j

and backwards a word's gradient is attention_j · W_pᵀ dv + dscore_j · scale · W_pᵀ rudiment + W_pᵀ drudiment / words:
three vectors a viewpoint and two numbers a word. Gates are computed again in each pass: cheaper than their memory.
"""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:  # nothing below is called then
    from carp.kernels.gpu_support import triton_is_missing as triton


@triton.jit
def document_of(order, owners, records, offsets, state, pairs, side, b, BATCH: tl.constexpr):
    """Where the document of this step's pair b begins, its length, and the record it is read without."""
    place = tl.load(state).to(tl.int32) * BATCH + b
    live = place < pairs
    pair = tl.load(order + place, mask=live, other=0)
    document = tl.load(owners + side * pairs + pair)
    start = tl.load(offsets + document)
    length = (tl.load(offsets + document + 1) - start).to(tl.int32)
    return start, tl.where(live, length, 0), tl.load(records + pair)


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
def keep_of(state, row, N: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr):
    """Which features [BLOCK, N] dropout keeps: a function of the epoch's seed, the step and the place."""
    counter = row[:, None] * (N // 4) + tl.arange(0, N // 4)[None, :]
    step = tl.load(state).to(tl.int32)
    nothing = counter * 0
    a, b, c, d = tl.philox(tl.load(state + 1), counter, nothing + step, nothing, nothing)
    bits = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [BLOCK, N])
    return tl.uint_to_uniform_float(bits) < KEEP


@triton.jit
def gate_of(c, gates, queries, which, N: tl.constexpr, PRECISION: tl.constexpr):
    """sigmoid(W_1 c + query) [BLOCK, N] of one viewpoint."""
    i = tl.arange(0, N)
    weight = tl.load(gates + which * N * N + i[None, :] * N + i[:, None])  # [from, to]
    query = tl.load(queries + which * N + i)
    return tl.sigmoid(tl.dot(c, weight, input_precision=PRECISION) + query[None, :])


@triton.jit
def projection_of(projection, side, K: tl.constexpr, N: tl.constexpr):
    """W_p [K, N] of a side."""
    k, i = tl.arange(0, K), tl.arange(0, N)
    return tl.load(projection + side * K * N + k[:, None] * N + i[None, :])


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
    """Places, which of them are read, and their features [BLOCK, N]."""
    t = begin + tl.arange(0, BLOCK)
    i = tl.arange(0, N)
    _, kept = kept_words(reviews, start, length, left_out, t)
    place = document * LONGEST + t
    c = tl.load(features + place[:, None] * N + i[None, :], mask=(t < length)[:, None], other=0.0)
    return t, kept, c


@triton.jit
def answer_queries(
    gate_query,
    vectors,
    bias,
    queries,
    N: tl.constexpr,
):
    """W_2 q + b for one viewpoint of one side: what every word's gate adds."""
    which = tl.program_id(0)
    i = tl.arange(0, N)
    weight = tl.load(gate_query + which * N * N + i[:, None] * N + i[None, :])
    vector = tl.load(vectors + which * N + i)
    answer = tl.sum(weight * vector[None, :], 1) + tl.load(bias + which * N + i)
    tl.store(queries + which * N + i, answer)


@triton.jit
def features_of(
    projected,
    bias,
    words,
    reviews,
    start,
    length,
    left_out,
    side,
    t,
    BLOCK: tl.constexpr,
    N: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """relu of the sum of the neighbours' projected words [BLOCK, N]; zero where no word is read."""
    i = tl.arange(0, N)
    review, kept = kept_words(reviews, start, length, left_out, t)
    total = tl.zeros([BLOCK, N], tl.float32) + tl.load(bias + side * N + i)[None, :]
    for j in tl.static_range(WINDOW):
        word, near = neighbours(words, reviews, start, length, t, review, kept, j - WINDOW // 2)
        column = (side * WINDOW + j) * N + i
        source = projected + word[:, None] * (2 * WINDOW * N) + column[None, :]
        total += tl.load(source, mask=near[:, None], other=0.0)
    return tl.where(kept[:, None], tl.maximum(total, 0.0), 0.0), kept


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
    WINDOW: tl.constexpr,
    KEEP: tl.constexpr,
):
    """The features of a block of a document's words, after dropout."""
    document, begin = tl.program_id(0), tl.program_id(1) * BLOCK
    side, b = document // BATCH, document % BATCH
    start, length, left_out = document_of(order, owners, records, offsets, state, pairs, side, b, BATCH)
    if begin < length:
        t = begin + tl.arange(0, BLOCK)
        i = tl.arange(0, N)
        c, _kept = features_of(projected, bias, words, reviews, start, length, left_out, side, t, BLOCK, N, WINDOW)
        place = document * LONGEST + t
        if KEEP < 1:
            c = tl.where(keep_of(state, place, N, BLOCK, KEEP), c / KEEP, 0.0)
        tl.store(features + place[:, None] * N + i[None, :], c, mask=(t < length)[:, None])


@triton.jit
def read_documents(
    gates,
    queries,
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
    sides,
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
    """One viewpoint of a document, and what going back needs: the mean, the weighted sum, the softmax's scale."""
    document, x = tl.program_id(0), tl.program_id(1)
    side, b = document // BATCH, document % BATCH
    start, length, left_out = document_of(order, owners, records, offsets, state, pairs, side, b, BATCH)
    i, k = tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros([N], tl.float32)
    count = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, length, BLOCK):
        _, kept, c = block_of(features, reviews, start, length, left_out, document, begin, LONGEST, BLOCK, N)
        count += kept.to(tl.float32)
        total += tl.sum(c * gate_of(c, gates, queries, side * M + x, N, PRECISION), 0)
    read = tl.maximum(tl.sum(count, 0), 1.0)
    mean = total / read
    weight = projection_of(projection, side, K, N)
    rudiment = SCALE * tl.sum(weight * mean[None, :], 1)  # [K]
    ask = tl.sum(weight * rudiment[:, None], 0)  # [N]

    # The softmax over the words, block by block with a running maximum.
    highest = -1e30
    share = 0.0
    z = tl.zeros([N], tl.float32)
    for begin in range(0, length, BLOCK):
        _, kept, c = block_of(features, reviews, start, length, left_out, document, begin, LONGEST, BLOCK, N)
        g = c * gate_of(c, gates, queries, side * M + x, N, PRECISION)
        score = tl.where(kept, tl.sum(g * ask[None, :], 1), -1e30)
        after = tl.maximum(highest, tl.max(score, 0))
        heard = tl.where(kept, tl.exp(score - after), 0.0)
        faded = tl.exp(highest - after)
        share = share * faded + tl.sum(heard, 0)
        z = z * faded + tl.sum(heard[:, None] * g, 0)
        highest = after
    inverse = tl.where(share > 0, 1.0 / tl.where(share > 0, share, 1.0), 0.0)
    z = z * inverse
    own = document * M + x
    tl.store(sides + own * K + k, tl.sum(weight * z[None, :], 1))
    tl.store(wide + own * 3 * N + i, z)
    tl.store(wide + own * 3 * N + 2 * N + i, mean)
    tl.store(narrow + own * 2 * K + k, rudiment)
    tl.store(vectors + own * 3 * N + N + i, ask)
    tl.store(normal + own * 2, highest)
    tl.store(normal + own * 2 + 1, inverse)
    tl.store(counts + document, read)


@triton.jit
def attend_backward(
    gates,
    queries,
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
    side, b = document // BATCH, document % BATCH
    start, length, left_out = document_of(order, owners, records, offsets, state, pairs, side, b, BATCH)
    i, k = tl.arange(0, N), tl.arange(0, K)
    own = document * M + x
    weight = projection_of(projection, side, K, N)
    back = tl.sum(weight * tl.load(side_gradients + own * K + k)[:, None], 0)  # [N]
    ask = tl.load(vectors + own * 3 * N + N + i)
    through = tl.sum(back * tl.load(wide + own * 3 * N + i), 0)
    highest, inverse = tl.load(normal + own * 2), tl.load(normal + own * 2 + 1)
    u = tl.zeros([N], tl.float32)
    for begin in range(0, length, BLOCK):
        t, kept, c = block_of(features, reviews, start, length, left_out, document, begin, LONGEST, BLOCK, N)
        g = c * gate_of(c, gates, queries, side * M + x, N, PRECISION)
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
    gates,
    queries,
    attention,
    back,
    ask,
    spread,
    side,
    x,
    pid,
    LONGEST: tl.constexpr,
    N: tl.constexpr,
    M: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Of one viewpoint: the gate [BLOCK, N], its words' gradient, and the gradient before the sigmoid."""
    gate = gate_of(c, gates, queries, side * M + x, N, PRECISION)
    source = attention + (pid * 2 * M + x) * LONGEST + t
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
    WINDOW: tl.constexpr,
    FIXED: tl.constexpr,
):
    """Add a word's gradient to its neighbours' rows. In fixed point the sum does not depend on the order."""
    i = tl.arange(0, N)
    review, kept = kept_words(reviews, start, length, left_out, t)
    if FIXED > 0:
        gradient = (gradient * FIXED).to(tl.int64)
    for j in tl.static_range(WINDOW):
        word, near = neighbours(words, reviews, start, length, t, review, kept, j - WINDOW // 2)
        column = (side * WINDOW + j) * N + i
        target = table_gradient + word[:, None] * (2 * WINDOW * N) + column[None, :]
        tl.atomic_add(target, gradient, mask=near[:, None] & (i < n)[None, :], sem="relaxed")


@triton.jit
def words_backward(
    gates,
    queries,
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
    WINDOW: tl.constexpr,
    KEEP: tl.constexpr,
    PRECISION: tl.constexpr,
    FIXED: tl.constexpr,
):
    """From all viewpoints back to the features of a block of words, and on to their projected words' rows."""
    document, block = tl.program_id(0), tl.program_id(1)
    side, b = document // BATCH, document % BATCH
    begin = block * BLOCK
    start, length, left_out = document_of(order, owners, records, offsets, state, pairs, side, b, BATCH)
    i = tl.arange(0, N)
    part = bias_parts + (document * tl.num_programs(1) + block) * N + i
    if begin < length:
        t, kept, c = block_of(features, reviews, start, length, left_out, document, begin, LONGEST, BLOCK, N)
        dc = tl.zeros([BLOCK, N], tl.float32)
        for x in range(M):
            source = vectors + (document * M + x) * 3 * N + i
            gate, dg, dpre = gate_backward(
                c, kept, t, length, gates, queries, attention,
                tl.load(source), tl.load(source + N), tl.load(source + 2 * N),
                side, x, document, LONGEST, N, M, PRECISION,
            )  # fmt: skip
            gate_weight = tl.load(gates + (side * M + x) * N * N + i[:, None] * N + i[None, :])  # [to, from]
            dc += dg * gate
            dc += tl.dot(dpre, gate_weight, input_precision=PRECISION)
        dc = tl.where(c > 0, dc / KEEP, 0.0)
        tl.store(part, tl.sum(dc, 0))
        scatter(table_gradient, dc, words, reviews, start, length, left_out, side, t, n, N, WINDOW, FIXED)
    else:
        tl.store(part, tl.zeros([N], tl.float32))


@triton.jit
def gate_gradients(
    gates,
    queries,
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
    query_parts,
    pairs,
    BATCH: tl.constexpr,
    SPLIT: tl.constexpr,
    LONGEST: tl.constexpr,
    BLOCK: tl.constexpr,
    N: tl.constexpr,
    M: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient of one viewpoint's W_1 and query over every SPLIT-th document of a side."""
    split, which = tl.program_id(0), tl.program_id(1)
    side, x = which // M, which % M
    i = tl.arange(0, N)
    total = tl.zeros([N, N], tl.float32)  # [to, from]
    query = tl.zeros([N], tl.float32)
    for b in range(split, BATCH, SPLIT):
        document = side * BATCH + b
        start, length, left_out = document_of(order, owners, records, offsets, state, pairs, side, b, BATCH)
        source = vectors + (document * M + x) * 3 * N + i
        back, ask, spread = tl.load(source), tl.load(source + N), tl.load(source + 2 * N)
        for begin in range(0, length, BLOCK):
            t, kept, c = block_of(features, reviews, start, length, left_out, document, begin, LONGEST, BLOCK, N)
            _gate, _dg, dpre = gate_backward(
                c, kept, t, length, gates, queries, attention, back, ask, spread,
                side, x, document, LONGEST, N, M, PRECISION,
            )  # fmt: skip
            total += tl.dot(tl.trans(dpre), c, input_precision=PRECISION)
            query += tl.sum(dpre, 0)
    part = split * tl.num_programs(1) + which
    tl.store(gate_parts + part * N * N + i[:, None] * N + i[None, :], total)
    tl.store(query_parts + part * N + i, query)


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
    there = (row < rows)[None, :]
    own = side * rows + row
    total = tl.zeros([K, N], tl.float32)
    for which in tl.static_range(3):
        if which == 0:
            column = tl.load(side_gradients + own[None, :] * K + k[:, None], mask=there, other=0.0)
        else:
            column = tl.load(narrow + (own[None, :] * 2 + which - 1) * K + k[:, None], mask=there, other=0.0)
        line = tl.load(wide + (own[:, None] * 3 + which) * N + i[None, :], mask=(row < rows)[:, None], other=0.0)
        total += tl.dot(column, line, input_precision=PRECISION)
    target = (side * tl.num_programs(1) + share) * K * N
    tl.store(parts + target + k[:, None] * N + i[None, :], total)


@triton.jit
def show_kept(state, kept, rows, N: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr):
    """The mask of a step's dropout, for whoever wants to repeat it."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = keep_of(state, row, N, BLOCK, KEEP)
    target = kept + row[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(target, found.to(tl.int8), mask=(row < rows)[:, None])
