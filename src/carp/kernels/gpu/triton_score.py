# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""Ready viewpoints and aspects to the balance of the two sentiments, a block of pairs a program.

Votes are never kept: every routing iteration computes them again, unit by unit, and adds them up under a softmax
with a running maximum. The first iteration hears all units alike, so that it is one long product; b_{s,x,y} of a
later one is the vote times the sum of the capsules so far.
"""

from __future__ import annotations

from carp.kernels.gpu.triton_capsules import highway_of, length_of, squash_of, times, vote_of
from carp.kernels.gpu.triton_places import grid_of, turned_grid

try:
    import triton
    import triton.language as tl
except ImportError:  # nothing below is called then
    from carp.kernels.gpu.availability import triton_is_missing as triton


@triton.jit
def unit_of(viewpoints, aspects, u, there, M: tl.constexpr, DENSE: tl.constexpr, K: tl.constexpr):
    """Viewpoint and aspect [BLOCK, K] of a logic unit; dense, the aspect alone."""
    a = tl.load(aspects + (u % M) * K, mask=there, other=0.0)
    v = a
    if not DENSE:
        v = tl.load(viewpoints + (u // M) * K, mask=there, other=0.0)
    return v, a


@triton.jit
def heard(total, v, a, weights, offsets, cell, DENSE: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    """total + t_{s,x,y} [BLOCK, K]; dense, of one person, whose viewpoint is folded into the weights."""
    if DENSE:
        weight = tl.load(weights + cell * K * K + turned_grid(K))
        total = times(total, a, weight, PRECISION)
        total += tl.load(offsets + cell * K + tl.arange(0, K))[None, :]
    else:
        total = vote_of(total, v, a, weights, cell, K, PRECISION)
    return total


@triton.jit
def add_agreeing(total, share, top, vote, agreement):
    """A vote added under a softmax over the units, with a running maximum."""
    after = tl.maximum(top, agreement)
    faded, weight = tl.exp(top - after), tl.exp(agreement - after)
    return total * faded[:, None] + vote * weight[:, None], share * faded + weight, after


@triton.jit
def hear_alike(
    viewpoints,
    aspects,
    weights,
    offsets,
    there,
    M: tl.constexpr,
    BI: tl.constexpr,
    DENSE: tl.constexpr,
    BLOCK: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The first iteration: every unit counts the same."""
    liked = tl.zeros([BLOCK, K], tl.float32)
    disliked = tl.zeros([BLOCK, K], tl.float32)
    for u in range(M * M):
        v, a = unit_of(viewpoints, aspects, u, there, M, DENSE, K)
        liked = heard(liked, v, a, weights, offsets, u, DENSE, K, PRECISION)
        disliked = heard(disliked, v, a, weights, offsets, M * M + u, DENSE, K, PRECISION)
    share = 1.0 / (M * M) if BI else 0.5
    return squash_of(liked * share), squash_of(disliked * share)


@triton.jit
def hear_agreeing(
    viewpoints,
    aspects,
    weights,
    offsets,
    there,
    liked_before,
    disliked_before,
    M: tl.constexpr,
    BI: tl.constexpr,
    DENSE: tl.constexpr,
    BLOCK: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A later iteration: units count as they agree with the capsules so far."""
    nothing = tl.zeros([BLOCK, K], tl.float32)
    liked = tl.zeros([BLOCK, K], tl.float32)
    disliked = tl.zeros([BLOCK, K], tl.float32)
    liked_top = tl.full([BLOCK], -1e30, tl.float32)
    disliked_top = tl.full([BLOCK], -1e30, tl.float32)
    liked_share = tl.zeros([BLOCK], tl.float32)
    disliked_share = tl.zeros([BLOCK], tl.float32)
    for u in range(M * M):
        v, a = unit_of(viewpoints, aspects, u, there, M, DENSE, K)
        for_it = heard(nothing, v, a, weights, offsets, u, DENSE, K, PRECISION)
        against = heard(nothing, v, a, weights, offsets, M * M + u, DENSE, K, PRECISION)
        b_for = tl.sum(for_it * liked_before, 1)
        b_against = tl.sum(against * disliked_before, 1)
        if BI:
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
    if BI:
        liked = liked / liked_share[:, None]
        disliked = disliked / disliked_share[:, None]
    return squash_of(liked), squash_of(disliked)


@triton.jit
def force_of(
    o, gate_weight, gate_bias, weight, bias, regression, regression_bias, s, K: tl.constexpr, PRECISION: tl.constexpr
):
    """A capsule's degree, through its highway, times its length [BLOCK]."""
    square, line = s * K * K + turned_grid(K), s * K + tl.arange(0, K)
    to_gate = tl.dot(o, tl.load(gate_weight + square), input_precision=PRECISION) + tl.load(gate_bias + line)[None, :]
    to_change = tl.dot(o, tl.load(weight + square), input_precision=PRECISION) + tl.load(bias + line)[None, :]
    _gate, _changed, hidden = highway_of(o, to_gate, to_change)
    degree = tl.sum(hidden * tl.load(regression + line)[None, :], 1) + tl.load(regression_bias + s)
    return degree * length_of(o)


@triton.jit
def balance_pairs(
    users,
    items,
    viewpoints,
    aspects,
    weights,
    offsets,
    gate_weight,
    gate_bias,
    weight,
    bias,
    regression,
    regression_bias,
    balance,
    size,
    M: tl.constexpr,
    K: tl.constexpr,
    ITERATIONS: tl.constexpr,
    BI: tl.constexpr,
    DENSE: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The balance of pairs: of listed ones, or (dense) of person program_id(1) with `size` items from the first."""
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = (pair < size)[:, None]
    k = tl.arange(0, K)
    if DENSE:
        person = tl.program_id(1).to(tl.int64)
        weights += person * (2 * M * M * K * K)
        offsets += person * (2 * M * M * K)
        balance += person * size
        aspect = aspects + pair.to(tl.int64)[:, None] * (M * K) + k[None, :]
        viewpoint = aspect
    else:
        user = tl.load(users + pair, mask=pair < size, other=0).to(tl.int64)
        item = tl.load(items + pair, mask=pair < size, other=0).to(tl.int64)
        viewpoint = viewpoints + user[:, None] * (M * K) + k[None, :]
        aspect = aspects + item[:, None] * (M * K) + k[None, :]
    liked, disliked = hear_alike(viewpoint, aspect, weights, offsets, there, M, BI, DENSE, BLOCK, K, PRECISION)
    liked_sum, disliked_sum = liked, disliked
    for _ in tl.static_range(ITERATIONS - 1):
        liked, disliked = hear_agreeing(
            viewpoint, aspect, weights, offsets, there, liked_sum, disliked_sum, M, BI, DENSE, BLOCK, K, PRECISION
        )
        liked_sum += liked
        disliked_sum += disliked
    rest = force_of(liked, gate_weight, gate_bias, weight, bias, regression, regression_bias, 0, K, PRECISION)
    rest -= force_of(disliked, gate_weight, gate_bias, weight, bias, regression, regression_bias, 1, K, PRECISION)
    tl.store(balance + pair, rest, mask=pair < size)


@triton.jit
def fold_people(viewpoints, weights, folded, offsets, M: tl.constexpr, K: tl.constexpr):
    """A person's viewpoint taken into a unit's weights: W₂ diag(v) − W₁ for the aspect, and W₁ v as the offset."""
    person, cell = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x = (cell % (M * M)) // M
    k = tl.arange(0, K)
    v = tl.load(viewpoints + (person * M + x) * K + k)
    square = grid_of(K, K)  # [to, from]
    difference = tl.load(weights + cell * 2 * K * K + square).to(tl.float32)
    product = tl.load(weights + cell * 2 * K * K + K * K + square).to(tl.float32)
    own = person * (2 * M * M) + cell
    tl.store(folded + own * K * K + square, product * v[None, :] - difference)
    tl.store(offsets + own * K + k, tl.sum(difference * v[None, :], 1))
