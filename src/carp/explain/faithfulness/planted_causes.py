"""Does an explanation show the cause that was planted? Known for the made-up shop alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from carp.explain.explainer import Explainer
from carp.explain.explanation import Explanation, Sentence, Sentiment, Side
from carp.explain.question import Detail, known_pair
from carp.reviews.readable import ReadableDocument
from carp.reviews.shop.made_up_shop import Shop
from carp.reviews.shop.sentence_writer import topic_of_sentence
from carp.training.fitted_corpus import FittedCorpus

UNITS = 3
Shown = tuple[list[Sentence], list[Sentence]]  # together, of the person and of the thing


@dataclass(frozen=True)
class CausesFound:
    """Shares of held-out pairs whose planted cause is among the sentences shown."""

    pairs: int
    explained: float  # by the three logic units the capsule of the cause's sentiment listens to most
    random: float  # by as many random sentences of the same two documents
    shown_by: str = "logic units of its sentiment"

    def __str__(self) -> str:
        return (
            f"The planted cause is shown among the top {UNITS} {self.shown_by} for {self.explained:.0%}\n"
            f"of {self.pairs} held-out pairs; as many random sentences of the same documents would show it for "
            f"{self.random:.0%}."
        )


def planted_causes_found(
    explainer: Explainer, shop: Shop, *, pairs: int | None = None, draws: int = 20, seed: int = 0
) -> CausesFound:
    """Look at held-out pairs: a cause is shown where one logic unit names its topic on both sides, in a sentence
    of the viewpoint and in a sentence of the aspect.

    A model without logic units shows it where what it listens to most names the topic on both sides, whatever the
    sentiment and whichever went with which: an easier task, as its chance tells.
    """
    corpus = explainer.corpus
    test = corpus.test_pairs()
    detail = Detail(prevailing_units=UNITS, other_units=UNITS)
    rng = np.random.default_rng(seed)
    hits, chances, explains_by_units = [], [], True
    for user, item in list(zip(test.users.tolist(), test.items.tolist(), strict=True))[:pairs]:
        cause = shop.planted_cause(corpus.users[user], corpus.items[item])
        (explanation,) = explainer.explain([known_pair(corpus, user, item)], detail)
        explains_by_units = explanation.positive is not None
        shown = _shown(explanation, cause.sentiment)
        hits.append(any(_names(cause.topic, *sentences) for sentences in shown))
        sizes = [(len(viewpoint), len(aspect)) for viewpoint, aspect in shown]
        chances.append(_chance(corpus, (user, item), cause.topic, sizes, draws, rng))
    found = CausesFound(len(hits), float(np.mean(hits)), float(np.mean(chances)))
    return found if explains_by_units else replace(found, shown_by="sides it listens to")


def _shown(explanation: Explanation, sentiment: Sentiment) -> list[Shown]:
    if explanation.positive is None:
        return [(_most_heard(explanation.viewpoints), _most_heard(explanation.aspects))]
    units = [unit for unit in explanation.units if unit.sentiment == sentiment]
    return [([*unit.viewpoint.sentences], [*unit.aspect.sentences]) for unit in units]


def _most_heard(sides: tuple[Side, ...]) -> list[Sentence]:
    """Each sentence once, whichever sides show it."""
    most = sorted(sides, key=lambda side: -(side.weight or 0))[:UNITS]
    return list(dict.fromkeys(sentence for side in most for sentence in side.sentences))


def _names(topic: str, viewpoint: Iterable[Sentence], aspect: Iterable[Sentence]) -> bool:
    return all(any(topic_of_sentence(sentence.text) == topic for sentence in side) for side in (viewpoint, aspect))


def _chance(
    corpus: FittedCorpus,
    pair: tuple[int, int],
    topic: str,
    sizes: list[tuple[int, int]],
    draws: int,
    rng: np.random.Generator,
) -> float:
    """How often random sentences in the same numbers would name the topic on both sides of one unit."""
    record = corpus.record_of_pair.get(pair, -1)
    about = [
        np.array([topic_of_sentence(text) == topic for text in _sentences(corpus.readable(documents, owner, record))])
        for documents, owner in ((corpus.user_documents, pair[0]), (corpus.item_documents, pair[1]))
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
