# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""Viewpoints and aspects to the loss and back: votes, routing, highway and both losses."""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:  # nothing below is called then
    from carp.kernels.gpu_support import triton_is_missing as triton


@triton.jit
def meet(sides, b, x, y, BATCH: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    """Viewpoints x and aspects y [pairs, K] of some pairs."""
    k = tl.arange(0, K)
    there = (b < BATCH)[:, None]
    v = tl.load(sides + (b[:, None] * M + x) * K + k[None, :], mask=there, other=0.0)
    a = tl.load(sides + ((BATCH + b[:, None]) * M + y) * K + k[None, :], mask=there, other=0.0)
    return v, a


@triton.jit
def cast_votes(
    sides,
    vote_weight,
    votes,
    BATCH: tl.constexpr,
    BLOCK: tl.constexpr,
    M: tl.constexpr,
    U: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """t_{s,x,y} of a block of pairs for one capsule and one logic unit, which is never in memory."""
    cell = tl.program_id(0)
    b = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    u = cell % (M * M)
    k = tl.arange(0, K)
    v, a = meet(sides, b, u // M, u % M, BATCH, M, K)
    weight = vote_weight + cell * 2 * K * K + k[None, :] * K + k[:, None]  # [from, to]
    vote = tl.dot(v - a, tl.load(weight), input_precision=PRECISION)
    vote += tl.dot(v * a, tl.load(weight + K * K), input_precision=PRECISION)
    s = cell // (M * M)
    target = votes + ((b[:, None] * 2 + s) * U + u) * K + k[None, :]
    tl.store(target, vote, mask=(b < BATCH)[:, None])


@triton.jit
def couple(agreement, real, BI: tl.constexpr):
    """Coupling [2, U] from agreement, and the softmax over the two capsules."""
    top = tl.max(agreement, 0)
    between = tl.exp(agreement - top[None, :])
    total = tl.sum(between, 0)
    between = between / total[None, :]
    if BI:
        logits = (agreement + agreement - top[None, :] - tl.log(total)[None, :]) / 2
        logits = tl.where(real, logits, -1e30)
        weight = tl.where(real, tl.exp(logits - tl.max(logits, 1)[:, None]), 0.0)
        coupling = weight / tl.sum(weight, 1)[:, None]
    else:
        coupling = tl.where(real, between, 0.0)
    return coupling, between


@triton.jit
def squash_of(mixture):
    square = tl.sum(mixture * mixture, 1)
    return mixture * (square / (1 + square) / tl.sqrt(square + 1e-12))[:, None]


@triton.jit
def agreement_before(votes, real, iteration, BI: tl.constexpr):
    """Agreement [2, U] with which an iteration begins."""
    agreement = tl.sum(votes, 2) * 0.0
    for _ in range(iteration):
        coupling, _between = couple(agreement, real, BI)
        capsules = squash_of(tl.sum(coupling[:, :, None] * votes, 1))
        agreement += tl.sum(votes * capsules[:, None, :], 2)
    return agreement


@triton.jit
def route_backward(votes, real, gradient, ITERATIONS: tl.constexpr, BI: tl.constexpr):
    """The votes' gradient [2, U, K] from the capsules' [2, K], through every iteration."""
    result = votes * 0.0
    change = tl.sum(votes, 2) * 0.0  # of the agreement
    for back in range(ITERATIONS):
        iteration = ITERATIONS - 1 - back
        agreement = agreement_before(votes, real, iteration, BI)
        coupling, between = couple(agreement, real, BI)
        mixture = tl.sum(coupling[:, :, None] * votes, 1)
        if back > 0:
            capsules = squash_of(mixture)
            gradient = tl.sum(change[:, :, None] * votes, 1)
            result += change[:, :, None] * capsules[:, None, :]
        square = tl.sum(mixture * mixture, 1)
        root = tl.sqrt(square + 1e-12)
        factor = square / (1 + square) / root
        slope = 1 / ((1 + square) * (1 + square) * root) - square / (2 * (1 + square) * root * root * root)
        along = tl.sum(gradient * mixture, 1)
        change_mixture = gradient * factor[:, None] + mixture * (2 * slope * along)[:, None]
        result += coupling[:, :, None] * change_mixture[:, None, :]
        change_coupling = tl.sum(votes * change_mixture[:, None, :], 2)
        if BI:
            logits = coupling * (change_coupling - tl.sum(coupling * change_coupling, 1)[:, None]) / 2
            change += 2 * logits - between * tl.sum(logits, 0)[None, :]
        else:
            change += coupling * (change_coupling - tl.sum(coupling * change_coupling, 0)[None, :])
    return result


@triton.jit
def through(matrix, vector):
    """[2, j, k] times [2, k]."""
    return tl.sum(matrix * vector[:, None, :], 2)


@triton.jit
def hinge(distance, SQUARED: tl.constexpr):
    """The hinge's value and slope; at zero it slopes as torch's clamp does."""
    positive = tl.maximum(distance, 0.0)
    if SQUARED:
        value, slope = positive * positive, 2 * positive
    else:
        value, slope = positive, tl.where(distance >= 0, 1.0, 0.0)
    return value, slope


@triton.jit
def judge(
    votes,
    gate_weight,
    gate_bias,
    weight,
    bias,
    regression,
    regression_bias,
    base,
    user_bias,
    item_bias,
    ratings,
    owners,
    order,
    state,
    vote_gradients,
    vectors,
    degrees,
    losses,
    errors,
    lengths,
    pairs,
    users,
    BATCH: tl.constexpr,
    M: tl.constexpr,
    U: tl.constexpr,
    K: tl.constexpr,
    ITERATIONS: tl.constexpr,
    BI: tl.constexpr,
    LEARNED: tl.constexpr,
    SPAN: tl.constexpr,
    LIKED: tl.constexpr,
    MARGIN: tl.constexpr,
    WEIGHT: tl.constexpr,
    OPPOSITE: tl.constexpr,
    SQUARED: tl.constexpr,
):
    """One pair: routing, highway, rating and losses, and all of it backwards to the votes."""
    b = tl.program_id(0)
    step = tl.load(state).to(tl.int32)
    place = step * BATCH + b
    live = place < pairs
    here = tl.maximum(tl.minimum(pairs - step * BATCH, BATCH), 1).to(tl.float32)  # pairs of this batch
    pair = tl.load(order + place, mask=live, other=0)

    s, u, k = tl.arange(0, 2), tl.arange(0, U), tl.arange(0, K)
    cell = (b * 2 + s[:, None, None]) * U + u[None, :, None]
    there = (u < M * M)[None, :, None] & (s[:, None, None] >= 0) & (k[None, None, :] >= 0)
    t = tl.load(votes + cell * K + k[None, None, :], mask=there, other=0.0)
    real = ((u < M * M)[None, :]) & (s[:, None] >= 0)
    agreement = agreement_before(t, real, ITERATIONS - 1, BI)
    coupling, _between = couple(agreement, real, BI)
    o = squash_of(tl.sum(coupling[:, :, None] * t, 1))  # [2, K]

    square = s[:, None, None] * K * K + k[None, :, None] * K + k[None, None, :]
    line = s[:, None] * K + k[None, :]
    h1, h2, w = tl.load(gate_weight + square), tl.load(weight + square), tl.load(regression + line)
    gate = tl.sigmoid(through(h1, o) + tl.load(gate_bias + line))
    changed = 2 * tl.sigmoid(2 * (through(h2, o) + tl.load(bias + line))) - 1
    hidden = gate * o + (1 - gate) * changed
    degree = tl.sum(hidden * w, 1) + tl.load(regression_bias + s)  # [2]
    length = tl.sqrt(tl.sum(o * o, 1) + 1e-12)
    sign = 1.0 - 2.0 * s.to(tl.float32)
    balance = tl.sum(sign * degree * length, 0)

    rate = tl.sigmoid(tl.load(base + pair) + balance)
    guess = 1 + SPAN * rate
    if LEARNED:
        guess += tl.load(user_bias + tl.load(owners + pair)) + tl.load(
            item_bias + tl.load(owners + pairs + pair) - users
        )
    rating = tl.load(ratings + pair)
    rest = guess - rating
    liked = rating > LIKED
    holds = tl.where(liked, s == 0, s == 1)
    kept_loss, kept_slope = hinge(MARGIN - length, SQUARED)
    other_loss, other_slope = hinge(length - 1 + MARGIN, SQUARED)
    sentiment = tl.sum(tl.where(holds, kept_loss, OPPOSITE * other_loss), 0)
    loss = WEIGHT * rest * rest + (1 - WEIGHT) * sentiment
    tl.store(losses + b, tl.where(live, loss, 0.0))

    alive = tl.where(live, 1.0 / here, 0.0)
    change_rating = 2 * WEIGHT * rest * alive
    tl.store(errors + b, change_rating)
    change_balance = change_rating * SPAN * rate * (1 - rate)
    change_degree = sign * length * change_balance
    change_length = sign * degree * change_balance
    change_length += (1 - WEIGHT) * alive * tl.where(holds, -kept_slope, OPPOSITE * other_slope)
    change_hidden = change_degree[:, None] * w
    change_gate = change_hidden * (o - changed) * gate * (1 - gate)
    change_changed = change_hidden * (1 - gate) * (1 - changed * changed)
    gradient = change_hidden * gate + (change_length / length)[:, None] * o
    gradient += tl.sum(h1 * change_gate[:, :, None], 1) + tl.sum(h2 * change_changed[:, :, None], 1)
    result = route_backward(t, real, gradient, ITERATIONS, BI)
    tl.store(vote_gradients + cell * K + k[None, None, :], result, mask=there)

    target = vectors + b * 8 * K + line
    tl.store(target, o)
    tl.store(target + 2 * K, change_gate)
    tl.store(target + 4 * K, change_changed)
    tl.store(target + 6 * K, change_degree[:, None] * hidden)
    tl.store(degrees + b * 2 + s, change_degree)
    tl.store(lengths + b * 2 + s, length)


@triton.jit
def vote_weight_gradients(
    sides,
    vote_gradients,
    result,
    BATCH: tl.constexpr,
    BLOCK: tl.constexpr,
    M: tl.constexpr,
    U: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient of W_{s,x,y} over all pairs of the batch."""
    cell = tl.program_id(0)
    s, u = cell // (M * M), cell % (M * M)
    k = tl.arange(0, K)
    difference = tl.zeros([K, K], tl.float32)  # [to, from]
    product = tl.zeros([K, K], tl.float32)
    for begin in range(0, BATCH, BLOCK):
        b = begin + tl.arange(0, BLOCK)
        v, a = meet(sides, b, u // M, u % M, BATCH, M, K)
        source = vote_gradients + ((b[:, None] * 2 + s) * U + u) * K + k[None, :]
        change = tl.trans(tl.load(source, mask=(b < BATCH)[:, None], other=0.0))
        difference += tl.dot(change, v - a, input_precision=PRECISION)
        product += tl.dot(change, v * a, input_precision=PRECISION)
    target = result + cell * 2 * K * K + k[:, None] * K + k[None, :]
    tl.store(target, difference)
    tl.store(target + K * K, product)


@triton.jit
def side_gradients(
    sides,
    vote_weight,
    vote_gradients,
    result,
    BATCH: tl.constexpr,
    BLOCK: tl.constexpr,
    M: tl.constexpr,
    U: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient of one viewpoint (or aspect) of a block of pairs, over the aspects (viewpoints) it meets."""
    b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    side, own = tl.program_id(1) // M, tl.program_id(1) % M
    k = tl.arange(0, K)
    total = tl.zeros([BLOCK, K], tl.float32)
    for other in range(M):
        x = tl.where(side == 0, own, other)
        y = tl.where(side == 0, other, own)
        u = x * M + y
        v, a = meet(sides, b, x, y, BATCH, M, K)
        difference = tl.zeros([BLOCK, K], tl.float32)
        product = tl.zeros([BLOCK, K], tl.float32)
        for s in tl.static_range(2):
            source = vote_gradients + ((b[:, None] * 2 + s) * U + u) * K + k[None, :]
            change = tl.load(source, mask=(b < BATCH)[:, None], other=0.0)
            weight = vote_weight + (s * M * M + u) * 2 * K * K + k[:, None] * K + k[None, :]
            difference += tl.dot(change, tl.load(weight), input_precision=PRECISION)
            product += tl.dot(change, tl.load(weight + K * K), input_precision=PRECISION)
        total += tl.where(side == 0, difference + product * a, product * v - difference)
    target = result + ((side * BATCH + b[:, None]) * M + own) * K + k[None, :]
    tl.store(target, total, mask=(b < BATCH)[:, None])
