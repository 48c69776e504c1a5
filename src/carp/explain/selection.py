"""Which sentences of two documents speak for a sentiment: those that pull the rating most and say something new."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
MEETING = 4.0  # how much more the meeting of two sentences counts: it is what a logic unit claims
SECOND_AT_LEAST = 1 / 3  # of what the first sentence is worth, for a second one to be shown


@dataclass(frozen=True)
class Reason:
    """Sentences of the person and of the thing that are shown together, best first."""

    user: tuple[int, ...]
    item: tuple[int, ...]


def likeness(words: NDArray[np.int32], sentence: Numbers) -> Array:
    """How much sentences of a document say the same, from 0 to 1: the cosine of their words, rare ones counting more.

    >>> likeness(np.array([5, 6, 5, 6, 7, 8], np.int32), np.array([0, 0, 1, 1, 2, 2])).round(2).tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    number = int(sentence.max()) + 1 if len(sentence) else 0
    distinct, place = np.unique(words, return_inverse=True)
    said = np.zeros((number, len(distinct)))
    said[sentence, place] = 1
    said *= np.log1p(number / np.maximum(said.sum(0), 1))
    said /= np.maximum(np.linalg.norm(said, axis=1, keepdims=True), 1e-12)
    return np.asarray(np.clip(said @ said.T, 0, 1))


@dataclass
class _Shown:
    """What of one document has been shown, and what its sentences are still worth."""

    alike: Array  # [S, S]
    # [S] the share of a sentence that has not been said, 0 once it was shown; None while all is new
    news: Array | None = None

    def worth(self, pull: Array) -> Array:
        """Of a pull in the wanted direction only the news counts; what was shown is never shown again."""
        if self.news is None:
            return pull
        worth = np.where(pull > 0, pull * self.news, pull)
        worth[self.news == 0] = -np.inf
        return worth

    def show(self, place: int) -> None:
        left: Array = (1 - self.alike[place]) ** 2
        self.news = left if self.news is None else self.news * left
        self.news[place] = 0

    @property
    def all_is_said(self) -> bool:
        return self.news is not None and not self.news.any()

    def start_again_if_all_is_said(self) -> None:
        if self.all_is_said:
            self.news = None


def choose_reasons(
    user: Array, item: Array, together: Array, alike: tuple[Array, Array], *, reasons: int, sentences: int = 2
) -> list[Reason]:
    """The reasons that pull most, each from other sentences than those before it.

    `user` [S] and `item` [T] are what each sentence pulls in the wanted direction, `together` [S, T] what two of them
    pull beside that because they meet; a sentence meets in the name of all that say the same. Each reason starts with
    the two sentences that are worth most together. Further ones follow on either side where they are worth at least
    a third of the first. What has been said before is worth less, down to nothing for the same words again; only where
    all of a document has been shown does it start again.
    """
    sides = _Shown(alike[0]), _Shown(alike[1])
    together = MEETING * alike[0] @ together @ alike[1]
    found = []
    for _ in range(reasons):
        for side in sides:
            side.start_again_if_all_is_said()
        s, t = _best_pair(user, item, together, sides)
        first = _further(user if t is None else user + together[:, t], s, sides[0], sentences)
        found.append(Reason(first, _further(item if s is None else item + together[s], t, sides[1], sentences)))
    return found


def weightiest_and_new(weight: Array, alike: Array, n: int) -> list[int]:
    """The n heaviest sentences, each counted for what it says that those before it did not; heaviest first."""
    news = np.ones(len(weight))
    chosen: list[int] = []
    while len(chosen) < min(n, len(weight)):
        worth = np.where(np.isin(np.arange(len(weight)), chosen), -1.0, weight * news)
        chosen.append(int(worth.argmax()))
        news = news * (1 - alike[chosen[-1]]) ** 2
    return sorted(chosen, key=lambda place: -weight[place])


def _best_pair(
    user: Array, item: Array, together: Array, sides: tuple[_Shown, _Shown]
) -> tuple[int | None, int | None]:
    """The two sentences worth most together; None on a side that has none."""
    if not len(user) or not len(item):
        return (int(sides[0].worth(user).argmax()) if len(user) else None), (
            int(sides[1].worth(item).argmax()) if len(item) else None
        )
    of_user, of_item = sides[0].news, sides[1].news
    met = together if of_user is None else together * of_user[:, None]
    met = met if of_item is None else met * of_item[None]
    worth = sides[0].worth(user)[:, None] + sides[1].worth(item)[None] + met
    return divmod(int(worth.argmax()), len(item))


def _further(pull: Array, first: int | None, side: _Shown, sentences: int) -> tuple[int, ...]:
    """The first sentence and those of the same side that may stand beside it; all of them count as shown now."""
    if first is None or sentences < 1:
        return ()
    least = SECOND_AT_LEAST * side.worth(pull)[first]
    chosen = [first]
    side.show(first)
    while len(chosen) < sentences and not side.all_is_said:
        worth = side.worth(pull)
        best = int(worth.argmax())
        if worth[best] <= 0 or worth[best] < least:
            break
        chosen.append(best)
        side.show(best)
    return tuple(chosen)
