"""Does an explanation show the cause that was planted? Known for the made-up shop alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from carp.evidence import ReadableDocument
from carp.explain import Sentence
from carp.recommender import Recommender
from carp.reviews.shop import Shop, topic_of_sentence

UNITS = 3


@dataclass(frozen=True)
class CausesFound:
    """Shares of held-out pairs whose planted cause is among the sentences shown."""

    pairs: int
    explained: float  # by the three logic units the capsule of the cause's sentiment listens to most
    random: float  # by as many random sentences of the same two documents

    def __str__(self) -> str:
        return (
            f"The planted cause is shown among the top {UNITS} logic units of its sentiment for {self.explained:.0%}\n"
            f"of {self.pairs} held-out pairs; as many random sentences of the same documents would show it for "
            f"{self.random:.0%}."
        )


def planted_causes_found(
    recommender: Recommender, shop: Shop, *, pairs: int | None = None, draws: int = 20, seed: int = 0
) -> CausesFound:
    """Look at held-out pairs: a cause is shown where one logic unit names its topic on both sides, in a sentence
    of the viewpoint and in a sentence of the aspect."""
    test = recommender.archive.test_pairs()
    rng = np.random.default_rng(seed)
    hits, chances = [], []
    for user, item in list(zip(test.users.tolist(), test.items.tolist(), strict=True))[:pairs]:
        names = recommender.archive.users[user], recommender.archive.items[item]
        cause = shop.planted_cause(*names)
        explanation = recommender.explain(*names, prevailing_units=UNITS, other_units=UNITS)
        units = [unit for unit in explanation.units if unit.sentiment == cause.sentiment]
        hits.append(any(_names(cause.topic, u.viewpoint.sentences, u.aspect.sentences) for u in units))
        sizes = [(len(unit.viewpoint.sentences), len(unit.aspect.sentences)) for unit in units]
        chances.append(_chance(recommender, (user, item), cause.topic, sizes, draws, rng))
    return CausesFound(len(hits), float(np.mean(hits)), float(np.mean(chances)))


def _names(topic: str, viewpoint: Iterable[Sentence], aspect: Iterable[Sentence]) -> bool:
    return all(any(topic_of_sentence(sentence.text) == topic for sentence in side) for side in (viewpoint, aspect))


def _chance(
    recommender: Recommender,
    pair: tuple[int, int],
    topic: str,
    sizes: list[tuple[int, int]],
    draws: int,
    rng: np.random.Generator,
) -> float:
    """How often random sentences in the same numbers would name the topic on both sides of one unit."""
    archive = recommender.archive
    record = archive.record_of_pair.get(pair, -1)
    about = [
        np.array([topic_of_sentence(text) == topic for text in _sentences(archive.readable(documents, owner, record))])
        for documents, owner in ((archive.user_documents, pair[0]), (archive.item_documents, pair[1]))
    ]
    if any(len(side) == 0 for side in about):
        return 0.0
    draw: Callable[[int, int], bool] = lambda side, size: bool(  # noqa: E731
        rng.choice(about[side], size=min(size, len(about[side])), replace=False).any()
    )
    return float(np.mean([any(draw(0, v) and draw(1, a) for v, a in sizes) for _ in range(draws)]))


def _sentences(document: ReadableDocument) -> list[str]:
    """Every sentence of the document that has a word the model sees."""
    keys = dict.fromkeys(document.sentence)
    sources = document.sources
    return [sources[review].text[slice(*sources[review].sentences[place])] for review, place in keys]
