# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""From ready viewpoints and aspects to the balance of the two sentiments; each program takes a block of pairs.

Votes are never kept: every routing iteration computes them again, unit by unit, and adds them up under a softmax with
a running maximum. In the first iteration all units count alike, so that it is one long product; in a later one
b_{s,x,y} is the vote times the sum of the capsules so far.

`highway` and `sizes` are the named tuples of kernel_arguments.py. `pairs` holds the places of a block's viewpoints and
aspects, the weights and offsets that make votes of them, and which pairs there are.
"""

from __future__ import annotations

from carp.kernels.gpu import triton_capsules as capsules
from carp.kernels.gpu import triton_places as places
from carp.kernels.gpu.triton_language import tl, triton


@triton.jit
def unit_of(pairs, u, sizes: tl.constexpr):
    """Viewpoint and aspect [BLOCK, K] of a logic unit; for dense scoring, the aspect alone."""
    viewpoints, aspects, _weights, _offsets, there = pairs
    a = tl.load(aspects + (u % sizes.M) * sizes.K, mask=there, other=0.0)
    v = a
    if not sizes.DENSE:
        v = tl.load(viewpoints + (u // sizes.M) * sizes.K, mask=there, other=0.0)
    return v, a


@triton.jit
def heard(total, pairs, unit, cell, sizes: tl.constexpr):
    """total + t_{s,x,y} [BLOCK, K]; for dense scoring, the person's viewpoint is folded into the weights."""
    _viewpoints, _aspects, weights, offsets, _there = pairs
    v, a = unit
    if sizes.DENSE:
        weight = tl.load(weights + cell * sizes.K * sizes.K + places.turned_grid(sizes.K))
        total = capsules.times(total, a, weight, sizes.PRECISION)
        total += tl.load(offsets + cell * sizes.K + tl.arange(0, sizes.K))[None, :]
    else:
        total = capsules.vote_of(total, v, a, weights, cell, sizes.K, sizes.PRECISION)
    return total


@triton.jit
def add_agreeing(total, share, top, vote, agreement):
    """A vote added under a softmax over the units, with a running maximum."""
    after = tl.maximum(top, agreement)
    faded, weight = tl.exp(top - after), tl.exp(agreement - after)
    return total * faded[:, None] + vote * weight[:, None], share * faded + weight, after


@triton.jit
def hear_alike(pairs, sizes: tl.constexpr):
    """The first iteration: every unit counts the same."""
    liked = tl.zeros([sizes.BLOCK, sizes.K], tl.float32)
    disliked = tl.zeros([sizes.BLOCK, sizes.K], tl.float32)
    for u in range(sizes.M * sizes.M):
        unit = unit_of(pairs, u, sizes)
        liked = heard(liked, pairs, unit, u, sizes)
        disliked = heard(disliked, pairs, unit, sizes.M * sizes.M + u, sizes)
    share = 1.0 / (sizes.M * sizes.M) if sizes.BI else 0.5
    return capsules.squash_of(liked * share), capsules.squash_of(disliked * share)


@triton.jit
def hear_agreeing(pairs, liked_before, disliked_before, sizes: tl.constexpr):
    """A later iteration: units count as they agree with the capsules so far."""
    nothing = tl.zeros([sizes.BLOCK, sizes.K], tl.float32)
    liked = tl.zeros([sizes.BLOCK, sizes.K], tl.float32)
    disliked = tl.zeros([sizes.BLOCK, sizes.K], tl.float32)
    liked_top = tl.full([sizes.BLOCK], -1e30, tl.float32)
    disliked_top = tl.full([sizes.BLOCK], -1e30, tl.float32)
    liked_share = tl.zeros([sizes.BLOCK], tl.float32)
    disliked_share = tl.zeros([sizes.BLOCK], tl.float32)
    for u in range(sizes.M * sizes.M):
        unit = unit_of(pairs, u, sizes)
        for_it = heard(nothing, pairs, unit, u, sizes)
        against = heard(nothing, pairs, unit, sizes.M * sizes.M + u, sizes)
        b_for = tl.sum(for_it * liked_before, 1)
        b_against = tl.sum(against * disliked_before, 1)
        if sizes.BI:
            top = tl.maximum(b_for, b_against)
            both = (top + tl.log(tl.exp(b_for - top) + tl.exp(b_against - top))) / 2
            liked, liked_share, liked_top = add_agreeing(liked, liked_share, liked_top, for_it, b_for - both)
            disliked, disliked_share, disliked_top = add_agreeing(
                disliked, disliked_share, disliked_top, against, b_against - both
            )
        else:
            share = tl.sigmoid(b_for - b_against)
            liked += for_it * share[:, None]
            disliked += against * (1 - share)[:, None]
    if sizes.BI:
        liked = liked / liked_share[:, None]
        disliked = disliked / disliked_share[:, None]
    return capsules.squash_of(liked), capsules.squash_of(disliked)


@triton.jit
def force_of(o, highway, s, K: tl.constexpr, PRECISION: tl.constexpr):
    """A capsule's degree, through its highway, times its length [BLOCK]."""
    square, line = s * K * K + places.turned_grid(K), s * K + tl.arange(0, K)
    to_gate = tl.dot(o, tl.load(highway.gate_weight + square), input_precision=PRECISION)
    to_gate += tl.load(highway.gate_bias + line)[None, :]
    to_change = tl.dot(o, tl.load(highway.weight + square), input_precision=PRECISION)
    to_change += tl.load(highway.bias + line)[None, :]
    _gate, _changed, hidden = capsules.highway_of(o, to_gate, to_change)
    degree = tl.sum(hidden * tl.load(highway.regression + line)[None, :], 1) + tl.load(highway.regression_bias + s)
    return degree * capsules.length_of(o)


@triton.jit
def balance_pairs(users, items, viewpoints, aspects, weights, offsets, highway, balance, size, sizes: tl.constexpr):
    """The balance of listed pairs, or, dense, of person program_id(1) with the first `size` items."""
    pair = tl.program_id(0) * sizes.BLOCK + tl.arange(0, sizes.BLOCK)
    there = (pair < size)[:, None]
    k = tl.arange(0, sizes.K)
    side = sizes.M * sizes.K
    if sizes.DENSE:
        person = tl.program_id(1).to(tl.int64)
        weights += person * (2 * sizes.M * sizes.M * sizes.K * sizes.K)
        offsets += person * (2 * sizes.M * sizes.M * sizes.K)
        balance += person * size
        aspect = aspects + pair.to(tl.int64)[:, None] * side + k[None, :]
        viewpoint = aspect
    else:
        user = tl.load(users + pair, mask=pair < size, other=0).to(tl.int64)
        item = tl.load(items + pair, mask=pair < size, other=0).to(tl.int64)
        viewpoint = viewpoints + user[:, None] * side + k[None, :]
        aspect = aspects + item[:, None] * side + k[None, :]
    pairs = viewpoint, aspect, weights, offsets, there
    liked, disliked = hear_alike(pairs, sizes)
    liked_sum, disliked_sum = liked, disliked
    for _ in tl.static_range(sizes.ITERATIONS - 1):
        liked, disliked = hear_agreeing(pairs, liked_sum, disliked_sum, sizes)
        liked_sum += liked
        disliked_sum += disliked
    rest = force_of(liked, highway, 0, sizes.K, sizes.PRECISION)
    rest -= force_of(disliked, highway, 1, sizes.K, sizes.PRECISION)
    tl.store(balance + pair, rest, mask=pair < size)


@triton.jit
def fold_people(viewpoints, weights, folded, offsets, M: tl.constexpr, K: tl.constexpr):
    """Fold a person's viewpoint into a unit's weights: W₂ diag(v) − W₁ for the aspect, and W₁ v as the offset."""
    person, cell = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x = (cell % (M * M)) // M
    k = tl.arange(0, K)
    v = tl.load(viewpoints + (person * M + x) * K + k)
    square = places.grid_of(K, K)  # [to, from]
    difference = tl.load(weights + cell * 2 * K * K + square).to(tl.float32)
    product = tl.load(weights + cell * 2 * K * K + K * K + square).to(tl.float32)
    own = person * (2 * M * M) + cell
    tl.store(folded + own * K * K + square, product * v[None, :] - difference)
    tl.store(offsets + own * K + k, tl.sum(difference * v[None, :], 1))
