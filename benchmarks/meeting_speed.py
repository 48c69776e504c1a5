"""The meeting model on the CPU: its fit against the time it may take, and its answers beside those of carp.

Both models are fitted on the same corpus in the same process, carp for one epoch: what it answers takes as long as if
it had learned for twenty. Answers of the two are timed in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from carp.recommender import Recommender
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.split_parts import TEST
from carp.serve.answer_service import AnswerService, encode, explanation_fields

MOST_SECONDS = 20.0  # for Musical Instruments on two cores
EXPLAINED = 40  # pairs in a turn
InTurns = Callable[[Callable[[], Any], Callable[[], Any], int], tuple[float, float]]


def meeting_rows(
    corpus: Corpus, seconds: Callable[[Callable[[], Any]], float], in_turns: InTurns, rounds: int
) -> Iterator[tuple[str, float, float]]:
    """Of each work its name, what it may take or what carp takes, and what meeting takes, in seconds."""
    meeting = Recommender("meeting", device="cpu")
    yield "meeting: fit, of the seconds it may take", MOST_SECONDS, seconds(lambda: meeting.fit(corpus, progress=False))
    carp = Recommender("carp", device="cpu", epochs=1).fit(corpus, progress=False)
    pairs = _test_pairs(meeting)
    for name, work in _works(pairs).items():
        yield f"meeting: {name}, beside carp, seconds", *in_turns(partial(work, carp), partial(work, meeting), rounds)
    first, second = (_warmed(one) for one in (carp, meeting))
    for name, ask in _requests(_some(pairs)).items():
        both = in_turns(partial(ask, first), partial(ask, second), rounds)
        yield f"meeting: {name} of the service, beside carp, seconds", *both


def _warmed(fitted: Recommender) -> AnswerService:
    service = AnswerService(fitted)
    service.warm()
    return service


def _works(pairs: list[tuple[str, str]]) -> dict[str, Callable[[Recommender], Any]]:
    return {
        "ratings of the test set": lambda one: one.predict(pairs),
        f"explanations of {EXPLAINED} pairs": lambda one: [one.explain(*pair) for pair in _some(pairs)],
        "ten things for everybody": lambda one: sum(len(found) for _, found in one.recommend_all(10)),
    }


def _requests(some: list[tuple[str, str]]) -> dict[str, Callable[[AnswerService], Any]]:
    """Requests as an engine answers them; explanations are made anew each time, and none is kept."""
    return {
        f"{EXPLAINED} predictions": lambda service: [encode(service.predict([pair])) for pair in some],
        f"{EXPLAINED} explanations": lambda service: [
            encode(explanation_fields(service.explanation(*p))) for p in some
        ],
        f"{EXPLAINED} recommendations": lambda service: [encode(service.recommend(user, 10)) for user, _ in some],
    }


def _test_pairs(fitted: Recommender) -> list[tuple[str, str]]:
    kept = fitted.fitted_corpus
    return [(kept.users[kept.user[n]], kept.items[kept.item[n]]) for n in np.flatnonzero(kept.part == TEST)]


def _some(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    chosen = np.random.default_rng(0).choice(len(pairs), min(EXPLAINED, len(pairs)), replace=False)
    return [pairs[n] for n in chosen]
