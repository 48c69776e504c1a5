"""What people like and dislike about a thing: the logic units of its raters, put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.explain.explainer import AspectOpinion, SharedViewpoint
from carp.explain.explanation import Side
from carp.models.carp import NEGATIVE, POSITIVE

Array = NDArray[np.float64]
Phrases = Callable[[int], list[tuple[str, ...]]]  # of each viewpoint of a numbered person
TOP_UNITS = 2  # of a rater's logic units that count for a sentiment, as many as an explanation lists
VIEWPOINTS_NAMED = 3  # that met an aspect most often
RATERS_QUOTED = 3  # whose phrases stand for such a viewpoint


def share_of_coupling(coupling: Array, lengths: Array) -> Array:
    """The share of the longer capsule's coupling that falls on each viewpoint, on average over pairs."""
    longer = np.where(lengths[:, POSITIVE] >= lengths[:, NEGATIVE], POSITIVE, NEGATIVE)
    heard = coupling[np.arange(len(longer)), longer].sum(2)  # [R, M]
    share: Array = (heard / np.maximum(heard.sum(1, keepdims=True), 1e-30)).mean(0)
    return share


def opinions_of_raters(
    raters: NDArray[np.int32], strength: Array, longer: NDArray[np.bool_], aspects: tuple[Side, ...], phrases: Phrases
) -> tuple[AspectOpinion, ...]:
    """The aspects by how many raters have them among their top units and how strong these are."""
    many, m = strength.shape[:2]
    order = np.argsort(-strength.reshape(many, -1), axis=1, kind="stable")[:, :TOP_UNITS]
    viewpoint, aspect = np.unravel_index(order, (m, m))  # [R, TOP_UNITS]
    opinions = []
    for y in range(m):
        who, which = np.nonzero(aspect == y)
        if len(who):
            best = np.zeros(many)
            np.maximum.at(best, who, strength[who, viewpoint[who, which], y])
            having = np.unique(who)
            met = _meetings(raters, viewpoint[who, which], who, best, phrases)
            prevailing = int(longer[having].sum())
            opinions.append(AspectOpinion(aspects[y], len(having), prevailing, float(best[having].mean()), met))
    return tuple(sorted(opinions, key=lambda opinion: -opinion.raters * opinion.strength))


def _meetings(
    raters: NDArray[np.int32], viewpoint: NDArray[Any], who: NDArray[Any], best: Array, phrases: Phrases
) -> tuple[SharedViewpoint, ...]:
    """The viewpoints that met an aspect, by phrases of those raters for whom it counts most."""
    spoken = []
    for x, _ in Counter(viewpoint.tolist()).most_common(VIEWPOINTS_NAMED):
        with_it = np.unique(who[viewpoint == x])
        strongest = with_it[np.argsort(-best[with_it], kind="stable")][:RATERS_QUOTED]
        said = dict.fromkeys(phrase for rater in strongest for phrase in phrases(int(raters[rater]))[x][:2])
        spoken.append(SharedViewpoint(x + 1, tuple(said)))
    return tuple(spoken)
