# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""From the viewpoints and aspects of a batch's pairs to the loss, and back.

`batch`, `highway`, `rated`, `judged`, `sizes` and `terms` are the named tuples of kernel_arguments.py.
"""

from __future__ import annotations

from carp.kernels.gpu import triton_capsules as capsules
from carp.kernels.gpu import triton_places as places
from carp.kernels.gpu.triton_language import tl, triton


@triton.jit
def meet(sides, b, x, y, sizes: tl.constexpr):
    """Viewpoints x and aspects y [pairs, K] of some pairs."""
    k = tl.arange(0, sizes.K)
    there = (b < sizes.BATCH)[:, None]
    v = tl.load(sides + (b[:, None] * sizes.M + x) * sizes.K + k[None, :], mask=there, other=0.0)
    a = tl.load(sides + ((sizes.BATCH + b[:, None]) * sizes.M + y) * sizes.K + k[None, :], mask=there, other=0.0)
    return v, a


@triton.jit
def cast_votes(sides, vote_weight, votes, sizes: tl.constexpr, BLOCK: tl.constexpr):
    """t_{s,x,y} of a block of pairs for one capsule and one logic unit; the unit itself is never in memory."""
    cell = tl.program_id(0)
    b = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    u = cell % (sizes.M * sizes.M)
    v, a = meet(sides, b, u // sizes.M, u % sizes.M, sizes)
    vote = capsules.vote_of(tl.zeros([BLOCK, sizes.K], tl.float32), v, a, vote_weight, cell, sizes.K, sizes.PRECISION)
    tl.store(vote_rows(votes, b, cell // (sizes.M * sizes.M), u, sizes), vote, mask=(b < sizes.BATCH)[:, None])


@triton.jit
def vote_rows(votes, b, s, u, sizes: tl.constexpr):
    """Places [pairs, K] of the votes of one logic unit for one capsule."""
    return votes + ((b[:, None] * 2 + s) * sizes.U + u) * sizes.K + tl.arange(0, sizes.K)[None, :]


@triton.jit
def through(matrix, vector):
    """[2, j, k] times [2, k]."""
    return tl.sum(matrix * vector[:, None, :], 2)


@triton.jit
def hinge(distance, SQUARED: tl.constexpr):
    """The hinge's value and slope; at zero the slope is that of torch's clamp."""
    positive = tl.maximum(distance, 0.0)
    if SQUARED:
        value, slope = positive * positive, 2 * positive
    else:
        value, slope = positive, tl.where(distance >= 0, 1.0, 0.0)
    return value, slope


@triton.jit
def guess_of(batch, rated, pair, balance, terms: tl.constexpr):
    """The rating of a pair from its balance, and the sigmoid in it."""
    rate = tl.sigmoid(tl.load(rated.base + pair) + balance)
    guess = 1 + terms.SPAN * rate
    if terms.LEARNED:
        guess += tl.load(rated.user_bias + tl.load(batch.owners + pair))
        guess += tl.load(rated.item_bias + tl.load(batch.owners + batch.pairs + pair) - rated.users)
    return guess, rate


@triton.jit
def losses_of(rest, liked, length, s, terms: tl.constexpr):
    """A pair's loss, and its slopes in the rating and in the lengths [2]."""
    holds = tl.where(liked, s == 0, s == 1)
    kept_loss, kept_slope = hinge(terms.MARGIN - length, terms.SQUARED)
    other_loss, other_slope = hinge(length - 1 + terms.MARGIN, terms.SQUARED)
    sentiment = tl.sum(tl.where(holds, kept_loss, terms.OPPOSITE * other_loss), 0)
    loss = terms.WEIGHT * rest * rest + (1 - terms.WEIGHT) * sentiment
    length_slope = (1 - terms.WEIGHT) * tl.where(holds, -kept_slope, terms.OPPOSITE * other_slope)
    return loss, 2 * terms.WEIGHT * rest, length_slope


@triton.jit
def votes_of_pair(b, sizes: tl.constexpr):
    """Places [2, U, K] of a pair's votes, which of them are not padding, and which units [2, U] are not."""
    s, u, k = tl.arange(0, 2), tl.arange(0, sizes.U), tl.arange(0, sizes.K)
    place = ((b * 2 + s[:, None, None]) * sizes.U + u[None, :, None]) * sizes.K + k[None, None, :]
    real = u < sizes.M * sizes.M
    there = real[None, :, None] & (s[:, None, None] >= 0) & (k[None, None, :] >= 0)
    return place, there, real[None, :] & (s[:, None] >= 0)


@triton.jit
def force_backward(o, gate, changed, length, h1, h2, change_hidden, change_length):
    """From the highway's output and the lengths back to the capsules [2, K], the highway's gate and its change."""
    change_gate = change_hidden * (o - changed) * gate * (1 - gate)
    change_changed = change_hidden * (1 - gate) * (1 - changed * changed)
    gradient = change_hidden * gate + (change_length / length)[:, None] * o
    gradient += tl.sum(h1 * change_gate[:, :, None], 1) + tl.sum(h2 * change_changed[:, :, None], 1)
    return gradient, change_gate, change_changed


@triton.jit
def judge(batch, votes, highway, rated, judged, sizes: tl.constexpr, terms: tl.constexpr):
    """One pair: routing, highway, rating and losses, and all of it backward to the votes."""
    b = tl.program_id(0)
    pair, live = places.pair_of(batch, b, sizes.BATCH)
    before = tl.load(batch.state).to(tl.int32) * sizes.BATCH
    here = tl.maximum(tl.minimum(batch.pairs - before, sizes.BATCH), 1).to(tl.float32)  # pairs of this batch

    s, k = tl.arange(0, 2), tl.arange(0, sizes.K)
    place, there, real = votes_of_pair(b, sizes)
    t = tl.load(votes + place, mask=there, other=0.0)
    coupling, _between = capsules.couple(
        capsules.agreement_before(t, real, sizes.ITERATIONS - 1, sizes.BI), real, sizes.BI
    )
    o = capsules.squash_of(tl.sum(coupling[:, :, None] * t, 1))  # [2, K]

    square = s[:, None, None] * sizes.K * sizes.K + k[None, :, None] * sizes.K + k[None, None, :]
    line = s[:, None] * sizes.K + k[None, :]
    h1, h2 = tl.load(highway.gate_weight + square), tl.load(highway.weight + square)
    w = tl.load(highway.regression + line)
    to_gate = through(h1, o) + tl.load(highway.gate_bias + line)
    gate, changed, hidden = capsules.highway_of(o, to_gate, through(h2, o) + tl.load(highway.bias + line))
    degree = tl.sum(hidden * w, 1) + tl.load(highway.regression_bias + s)  # [2]
    length = capsules.length_of(o)
    sign = 1.0 - 2.0 * s.to(tl.float32)
    balance = tl.sum(sign * degree * length, 0)
    guess, rate = guess_of(batch, rated, pair, balance, terms)
    rating = tl.load(rated.ratings + pair)
    loss, slope, length_slope = losses_of(guess - rating, rating > terms.LIKED, length, s, terms)
    tl.store(judged.losses + b, tl.where(live, loss, 0.0))

    alive = tl.where(live, 1.0 / here, 0.0)
    tl.store(judged.errors + b, slope * alive)
    change_balance = slope * alive * terms.SPAN * rate * (1 - rate)
    change_degree = sign * length * change_balance
    change_length = sign * degree * change_balance + alive * length_slope
    gradient, change_gate, change_changed = force_backward(
        o, gate, changed, length, h1, h2, change_degree[:, None] * w, change_length
    )
    found = capsules.route_backward(t, real, gradient, sizes.ITERATIONS, sizes.BI)
    tl.store(judged.vote_gradients + place, found, mask=there)

    target = judged.vectors + b * 8 * sizes.K + line
    tl.store(target, o)
    tl.store(target + 2 * sizes.K, change_gate)
    tl.store(target + 4 * sizes.K, change_changed)
    tl.store(target + 6 * sizes.K, change_degree[:, None] * hidden)
    tl.store(judged.degrees + b * 2 + s, change_degree)
    tl.store(judged.lengths + b * 2 + s, length)


@triton.jit
def vote_weight_gradients(sides, vote_gradients, result, sizes: tl.constexpr, BLOCK: tl.constexpr):
    """The gradient of W_{s,x,y} over all pairs of the batch."""
    cell = tl.program_id(0)
    s, u = cell // (sizes.M * sizes.M), cell % (sizes.M * sizes.M)
    difference = tl.zeros([sizes.K, sizes.K], tl.float32)  # [to, from]
    product = tl.zeros([sizes.K, sizes.K], tl.float32)
    for begin in range(0, sizes.BATCH, BLOCK):
        b = begin + tl.arange(0, BLOCK)
        v, a = meet(sides, b, u // sizes.M, u % sizes.M, sizes)
        source = vote_rows(vote_gradients, b, s, u, sizes)
        change = tl.trans(tl.load(source, mask=(b < sizes.BATCH)[:, None], other=0.0))
        difference += tl.dot(change, v - a, input_precision=sizes.PRECISION)
        product += tl.dot(change, v * a, input_precision=sizes.PRECISION)
    target = result + cell * 2 * sizes.K * sizes.K + places.grid_of(sizes.K, sizes.K)
    tl.store(target, difference)
    tl.store(target + sizes.K * sizes.K, product)


@triton.jit
def side_gradients(sides, vote_weight, vote_gradients, result, sizes: tl.constexpr, BLOCK: tl.constexpr):
    """The gradient of one viewpoint (or aspect) of a block of pairs, over the aspects (viewpoints) it meets."""
    b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    side, own = tl.program_id(1) // sizes.M, tl.program_id(1) % sizes.M
    k = tl.arange(0, sizes.K)
    total = tl.zeros([BLOCK, sizes.K], tl.float32)
    for other in range(sizes.M):
        x = tl.where(side == 0, own, other)
        y = tl.where(side == 0, other, own)
        u = x * sizes.M + y
        v, a = meet(sides, b, x, y, sizes)
        difference = tl.zeros([BLOCK, sizes.K], tl.float32)
        product = tl.zeros([BLOCK, sizes.K], tl.float32)
        for s in tl.static_range(2):
            source = vote_rows(vote_gradients, b, s, u, sizes)
            change = tl.load(source, mask=(b < sizes.BATCH)[:, None], other=0.0)
            cell = s * sizes.M * sizes.M + u
            weight = vote_weight + cell * 2 * sizes.K * sizes.K + places.grid_of(sizes.K, sizes.K)
            difference += tl.dot(change, tl.load(weight), input_precision=sizes.PRECISION)
            product += tl.dot(change, tl.load(weight + sizes.K * sizes.K), input_precision=sizes.PRECISION)
        total += tl.where(side == 0, difference + product * a, product * v - difference)
    target = result + ((side * sizes.BATCH + b[:, None]) * sizes.M + own) * sizes.K + k[None, :]
    tl.store(target, total, mask=(b < sizes.BATCH)[:, None])
