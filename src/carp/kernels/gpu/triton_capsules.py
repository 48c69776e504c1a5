# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# Kernels are written in Triton's language, which has its own types.
"""Capsules, for training and for scoring: votes, routing forward and backward, squash, length, highway."""

from __future__ import annotations

from carp.kernels.gpu import triton_places as places
from carp.kernels.gpu.triton_language import tl, triton


@triton.jit
def vote_of(total, v, a, weights, cell, K: tl.constexpr, PRECISION: tl.constexpr):
    """total + t_{s,x,y} [pairs, K] of one capsule and one logic unit; the unit itself is never in memory."""
    place = weights + cell * 2 * K * K + places.turned_grid(K)
    total = times(total, v - a, tl.load(place), PRECISION)
    return times(total, v * a, tl.load(place + K * K), PRECISION)


@triton.jit
def times(total, vectors, weight, PRECISION: tl.constexpr):
    """total + vectors · weight, in the weight's own precision where that is half."""
    return tl.dot(vectors.to(weight.dtype), weight, total, input_precision=PRECISION)


@triton.jit
def squash_of(mixture):
    square = tl.sum(mixture * mixture, 1)
    return mixture * (square / (1 + square) / tl.sqrt(square + 1e-12))[:, None]


@triton.jit
def length_of(capsule):
    return tl.sqrt(tl.sum(capsule * capsule, 1) + 1e-12)


@triton.jit
def highway_of(capsule, to_gate, to_change):
    """Gate, changed and hidden vectors from a capsule and the inputs of its gate and its change."""
    gate = tl.sigmoid(to_gate)
    changed = 2 * tl.sigmoid(2 * to_change) - 1
    return gate, changed, gate * capsule + (1 - gate) * changed


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
def agreement_before(votes, real, iteration, BI: tl.constexpr):
    """The agreement [2, U] at the start of an iteration."""
    agreement = tl.sum(votes, 2) * 0.0
    for _ in range(iteration):
        coupling, _between = couple(agreement, real, BI)
        capsules = squash_of(tl.sum(coupling[:, :, None] * votes, 1))
        agreement += tl.sum(votes * capsules[:, None, :], 2)
    return agreement


@triton.jit
def squash_backward(mixture, gradient):
    square = tl.sum(mixture * mixture, 1)
    root = tl.sqrt(square + 1e-12)
    factor = square / (1 + square) / root
    slope = 1 / ((1 + square) * (1 + square) * root) - square / (2 * (1 + square) * root * root * root)
    along = tl.sum(gradient * mixture, 1)
    return gradient * factor[:, None] + mixture * (2 * slope * along)[:, None]


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
        change_mixture = squash_backward(mixture, gradient)
        result += coupling[:, :, None] * change_mixture[:, None, :]
        change_coupling = tl.sum(votes * change_mixture[:, None, :], 2)
        if BI:
            logits = coupling * (change_coupling - tl.sum(coupling * change_coupling, 1)[:, None]) / 2
            change += 2 * logits - between * tl.sum(logits, 0)[None, :]
        else:
            change += coupling * (change_coupling - tl.sum(coupling * change_coupling, 0)[None, :])
    return result
