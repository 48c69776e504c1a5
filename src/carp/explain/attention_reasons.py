"""The reasons of models without capsules: what they listened to on both sides, and what was written there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carp.explain.explainer import Explainer, SummarySentence
from carp.explain.explanation import Explanation, Reasons, Sentence, Side
from carp.explain.guided_reasons import side_names, with_tones
from carp.explain.named_words import UNITS, NamedReasons, NamedWords, named_words, nothing_named
from carp.explain.pair_texts import Floats, PaddedTexts, PairTexts, batch_of, blocks
from carp.explain.phrases import phrase_book, weightiest_sides
from carp.explain.question import Detail, Question, as_batch, held_out
from carp.models.base import Attention
from carp.reviews.readable import ReadableDocument

SHARE_MARKED = 0.1  # of the words a model without capsules listens to: the paper's 30 phrases of 300 words


class AttentionExplainer(Explainer):
    """Explains models that give their `Attention`, which says what was listened to and no more."""

    reads_by_guide = True

    def explain(self, questions: Sequence[Question], detail: Detail | None = None) -> list[Explanation]:
        if not questions:
            return []
        found = self.rated_with_reasons(questions, detail or Detail())
        baselines, margins = self.apart(questions, self.baselines), self.margins(questions)
        return [
            self.explanation(question, rating, baseline, margin, reasons)
            for question, (rating, reasons), baseline, margin in zip(questions, found, baselines, margins, strict=True)
        ]

    def rated_with_reasons(self, questions: Sequence[Question], detail: Detail) -> list[tuple[float, Reasons]]:
        """What the model says of each pair, in stars, and why, with what each quoted sentence says."""
        found = [self._rated(question, detail) for question in questions]
        return [(rating, with_tones(reasons, self.guide, self.corpus)) for rating, reasons in found]

    @torch.no_grad()
    def _rated(self, question: Question, detail: Detail) -> tuple[float, Reasons]:
        model = self.fitted.model
        batch = as_batch(self.corpus, question, self.fitted.device)
        prediction = model(batch)
        heard = model.explain(batch, prediction)
        user_names, item_names = self._names(question, heard)
        viewpoints, aspects = (
            _named(_sides(document, words[0].double().cpu().numpy(), heard.window, detail), names, weights)
            for document, words, names, weights in (
                (question.user_document, heard.user_words, user_names, heard.user_weights),
                (question.item_document, heard.item_words, item_names, heard.item_weights),
            )
        )
        if heard.directions:
            aspects = tuple(
                replace(side, sentiment="positive" if way > 0 else "negative")
                for side, way in zip(aspects, heard.directions, strict=True)
            )
        target = held_out(self.corpus, question, {"matched": [*viewpoints, *aspects]})
        rating = float(prediction.rating[0])
        return rating, Reasons(
            viewpoints, aspects, target, meaning=heard.meaning, texts_move=self._moved(rating, heard)
        )

    def _names(self, question: Question, heard: Attention) -> tuple[Sequence[str], Sequence[str]]:
        """What the sides are called: as the model calls them or, where they are aspects, as the guide does."""
        if not heard.same_aspects:
            return heard.user_names, heard.item_names
        documents = question.user_document, question.item_document
        words = np.concatenate([document.words for document in documents])
        attention = np.concatenate(
            [
                _numbers(found)[0][: len(document.words)]
                for found, document in zip((heard.user_words, heard.item_words), documents, strict=True)
            ]
        )
        nothing_shown = np.zeros((attention.shape[1], len(words)))
        names = side_names(self.guide, words, attention, nothing_shown, "aspect")
        return names, names

    def _moved(self, rating: float, heard: Attention) -> float | None:
        """How far the texts move the rating, on the scale of the data; None where the model does not say."""
        if heard.balance is None:
            return None
        with_texts, without = np.clip([rating, rating - float(heard.balance[0])], 1, self.corpus.levels).tolist()
        return self.corpus.own_rating(with_texts) - self.corpus.own_rating(without)

    def summarise(self, question: Question, n: int) -> list[SummarySentence]:
        """The sentences that stand for what was listened to in the thing's reviews."""
        (found,) = self.explain([question])
        sentences = [
            SummarySentence(**_fields(sentence), weight=side.weight, aspect=side.index, sentiment=None)
            for side in found.aspects
            for sentence in side.sentences
        ]
        return sentences[:n]

    def name_words(self, pairs: PairTexts) -> NamedReasons:
        """Named are the sentences of the sides that the model listens to most, so many of each document.

        Where each side pulls one way, named are those that pull as the texts do in all: the others ask for another
        rating.
        """
        model = self.fitted.model
        rating, balance = np.zeros(len(pairs)), np.full(len(pairs), np.nan)
        user, item = nothing_named(pairs)
        for chosen in blocks(pairs):
            batch = batch_of(pairs, chosen, self.fitted.device)
            with torch.no_grad():
                prediction = model(batch)
                heard = model.explain(batch, prediction)
            rating[chosen] = _numbers(prediction.rating)
            directions = np.array(heard.directions)
            if heard.balance is not None:
                balance[chosen] = _numbers(heard.balance)
            for texts, words, weights, named in (
                (pairs.user, heard.user_words, heard.user_weights, user),
                (pairs.item, heard.item_words, heard.item_weights, item),
            ):
                attention = _numbers(words)  # [B, L, M]
                m = attention.shape[2]
                weighed = np.full((len(chosen), m), 1 / m) if weights is None else _numbers(weights)
                for place, row in enumerate(chosen.tolist()):
                    of_sides = weighed[place]
                    if len(directions):
                        of_sides = np.where(directions == _sign(balance[row]), of_sides, 0)
                    _name_side(attention[place], of_sides, heard.window, texts, named, row)
        return NamedReasons(rating, user, item, direction=None if np.isnan(balance).any() else _sign(balance))


def _name_side(
    attention: Floats, weights: Floats, window: int, texts: PaddedTexts, named: NamedWords, row: int
) -> None:
    length = int(texts.there[row].sum())
    if not length:
        return
    attention, sentence = attention[:length], texts.sentences[row, :length]
    named.pull[row, :length] = attention @ weights
    attention = _standing_out(attention)
    most = np.argsort(-weights, kind="stable")[:UNITS]
    for side in most[weights[most] > 0]:
        shown, marked = named_words(attention[:, side], sentence, window, top_share=SHARE_MARKED)
        named.shown[row, :length] |= shown
        named.marked[row, :length] |= marked


def _sides(document: ReadableDocument, attention: NDArray[np.float64], window: int, detail: Detail) -> list[Side]:
    heard = _standing_out(attention[: len(document.words)])
    book = phrase_book(document, heard, window=window, top_phrases=detail.top_phrases, top_share=SHARE_MARKED)
    return weightiest_sides(book, shown_sentences=detail.sentences)


def _standing_out(attention: Floats) -> Floats:
    """The attention of sides that tell words apart; where no word is listened to more than another, none stands out."""
    return attention * (np.ptp(attention, axis=0) > 1e-9) if len(attention) > 1 else attention


def _named(sides: list[Side], names: Sequence[str], weights: torch.Tensor | None) -> tuple[Side, ...]:
    shares = [1 / len(sides)] * len(sides) if weights is None else weights[0].tolist()
    return tuple(
        replace(side, name=name, weight=float(share)) for side, name, share in zip(sides, names, shares, strict=True)
    )


def _fields(sentence: Sentence) -> dict[str, Any]:
    return {field.name: getattr(sentence, field.name) for field in fields(sentence)}


def _sign(balance: Floats) -> Floats:
    return np.where(balance >= 0, 1.0, -1.0)


def _numbers(tensor: torch.Tensor) -> Floats:
    return np.asarray(tensor.detach().double().cpu().numpy())
