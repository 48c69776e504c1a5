# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""Viewpoints and aspects of a batch's pairs to the loss and back."""

from __future__ import annotations

from carp.kernels.gpu.triton_capsules import (
    agreement_before,
    couple,
    highway_of,
    length_of,
    route_backward,
    squash_of,
    vote_of,
)
from carp.kernels.gpu.triton_places import grid_of, pair_of

try:
    import triton
    import triton.language as tl
except ImportError:  # nothing below is called then
    from carp.kernels.gpu.availability import triton_is_missing as triton


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
    v, a = meet(sides, b, u // M, u % M, BATCH, M, K)
    vote = vote_of(tl.zeros([BLOCK, K], tl.float32), v, a, vote_weight, cell, K, PRECISION)
    tl.store(vote_rows(votes, b, cell // (M * M), u, U, K), vote, mask=(b < BATCH)[:, None])


@triton.jit
def vote_rows(votes, b, s, u, U: tl.constexpr, K: tl.constexpr):
    """Places [pairs, K] of the votes of one logic unit for one capsule."""
    return votes + ((b[:, None] * 2 + s) * U + u) * K + tl.arange(0, K)[None, :]


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
def guess_of(
    balance,
    base,
    user_bias,
    item_bias,
    owners,
    pair,
    pairs,
    users,
    LEARNED: tl.constexpr,
    SPAN: tl.constexpr,
):
    """The rating of a pair from its balance, and the sigmoid in it."""
    rate = tl.sigmoid(tl.load(base + pair) + balance)
    guess = 1 + SPAN * rate
    if LEARNED:
        guess += tl.load(user_bias + tl.load(owners + pair))
        guess += tl.load(item_bias + tl.load(owners + pairs + pair) - users)
    return guess, rate


@triton.jit
def losses_of(
    rest,
    liked,
    length,
    s,
    MARGIN: tl.constexpr,
    WEIGHT: tl.constexpr,
    OPPOSITE: tl.constexpr,
    SQUARED: tl.constexpr,
):
    """A pair's loss, and its slopes in the rating and in the lengths [2]."""
    holds = tl.where(liked, s == 0, s == 1)
    kept_loss, kept_slope = hinge(MARGIN - length, SQUARED)
    other_loss, other_slope = hinge(length - 1 + MARGIN, SQUARED)
    sentiment = tl.sum(tl.where(holds, kept_loss, OPPOSITE * other_loss), 0)
    loss = WEIGHT * rest * rest + (1 - WEIGHT) * sentiment
    return loss, 2 * WEIGHT * rest, (1 - WEIGHT) * tl.where(holds, -kept_slope, OPPOSITE * other_slope)


@triton.jit
def votes_of_pair(b, M: tl.constexpr, U: tl.constexpr, K: tl.constexpr):
    """Places [2, U, K] of a pair's votes, which of them are there, and which units [2, U]."""
    s, u, k = tl.arange(0, 2), tl.arange(0, U), tl.arange(0, K)
    place = ((b * 2 + s[:, None, None]) * U + u[None, :, None]) * K + k[None, None, :]
    there = (u < M * M)[None, :, None] & (s[:, None, None] >= 0) & (k[None, None, :] >= 0)
    return place, there, (u < M * M)[None, :] & (s[:, None] >= 0)


@triton.jit
def force_backward(o, gate, changed, length, h1, h2, change_hidden, change_length):
    """From the highway's output and the lengths back to the capsules [2, K], the highway's gate and its change."""
    change_gate = change_hidden * (o - changed) * gate * (1 - gate)
    change_changed = change_hidden * (1 - gate) * (1 - changed * changed)
    gradient = change_hidden * gate + (change_length / length)[:, None] * o
    gradient += tl.sum(h1 * change_gate[:, :, None], 1) + tl.sum(h2 * change_changed[:, :, None], 1)
    return gradient, change_gate, change_changed


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
    pair, live = pair_of(order, state, pairs, b, BATCH)
    before = tl.load(state).to(tl.int32) * BATCH
    here = tl.maximum(tl.minimum(pairs - before, BATCH), 1).to(tl.float32)  # pairs of this batch

    s, k = tl.arange(0, 2), tl.arange(0, K)
    place, there, real = votes_of_pair(b, M, U, K)
    t = tl.load(votes + place, mask=there, other=0.0)
    coupling, _between = couple(agreement_before(t, real, ITERATIONS - 1, BI), real, BI)
    o = squash_of(tl.sum(coupling[:, :, None] * t, 1))  # [2, K]

    square = s[:, None, None] * K * K + k[None, :, None] * K + k[None, None, :]
    line = s[:, None] * K + k[None, :]
    h1, h2, w = tl.load(gate_weight + square), tl.load(weight + square), tl.load(regression + line)
    gate, changed, hidden = highway_of(
        o, through(h1, o) + tl.load(gate_bias + line), through(h2, o) + tl.load(bias + line)
    )
    degree = tl.sum(hidden * w, 1) + tl.load(regression_bias + s)  # [2]
    length = length_of(o)
    sign = 1.0 - 2.0 * s.to(tl.float32)
    balance = tl.sum(sign * degree * length, 0)
    guess, rate = guess_of(balance, base, user_bias, item_bias, owners, pair, pairs, users, LEARNED, SPAN)
    rating = tl.load(ratings + pair)
    loss, slope, length_slope = losses_of(guess - rating, rating > LIKED, length, s, MARGIN, WEIGHT, OPPOSITE, SQUARED)
    tl.store(losses + b, tl.where(live, loss, 0.0))

    alive = tl.where(live, 1.0 / here, 0.0)
    tl.store(errors + b, slope * alive)
    change_balance = slope * alive * SPAN * rate * (1 - rate)
    change_degree = sign * length * change_balance
    change_length = sign * degree * change_balance + alive * length_slope
    gradient, change_gate, change_changed = force_backward(
        o, gate, changed, length, h1, h2, change_degree[:, None] * w, change_length
    )
    tl.store(vote_gradients + place, route_backward(t, real, gradient, ITERATIONS, BI), mask=there)

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
    difference = tl.zeros([K, K], tl.float32)  # [to, from]
    product = tl.zeros([K, K], tl.float32)
    for begin in range(0, BATCH, BLOCK):
        b = begin + tl.arange(0, BLOCK)
        v, a = meet(sides, b, u // M, u % M, BATCH, M, K)
        source = vote_rows(vote_gradients, b, s, u, U, K)
        change = tl.trans(tl.load(source, mask=(b < BATCH)[:, None], other=0.0))
        difference += tl.dot(change, v - a, input_precision=PRECISION)
        product += tl.dot(change, v * a, input_precision=PRECISION)
    target = result + cell * 2 * K * K + grid_of(K, K)
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
            source = vote_rows(vote_gradients, b, s, u, U, K)
            change = tl.load(source, mask=(b < BATCH)[:, None], other=0.0)
            weight = vote_weight + (s * M * M + u) * 2 * K * K + grid_of(K, K)
            difference += tl.dot(change, tl.load(weight), input_precision=PRECISION)
            product += tl.dot(change, tl.load(weight + K * K), input_precision=PRECISION)
        total += tl.where(side == 0, difference + product * a, product * v - difference)
    target = result + ((side * BATCH + b[:, None]) * M + own) * K + k[None, :]
    tl.store(target, total, mask=(b < BATCH)[:, None])
