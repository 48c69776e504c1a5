"""The reasons of CARP: which viewpoint met which aspect, what each capsule made of it, and what was written of them.

One orchestration for every use. `capsule_judgement` judges pairs and chooses units and sentences; what differs is what
is shown of it: texts in an Explanation (`capsule_units`), places of words in the measures of faithfulness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.explain.capsule_judgement import (
    ITEM,
    USER,
    Array,
    Judgement,
    ReadSide,
    ShownSide,
    added_by_words,
    judge_pairs,
    unit_reasons,
)
from carp.explain.capsule_opinions import opinions_of_raters, share_of_coupling
from carp.explain.capsule_units import SENTIMENTS, all_sides, logic_units, matrix, named_sides, names_in, names_of
from carp.explain.explainer import AspectOpinion, Explainer, StrongestMeeting, SummarySentence
from carp.explain.explanation import Capsule, Explanation, MatchKind, Reasons, Side, Tone, opposed_to
from carp.explain.influence import (
    judge_with_gradient,
    lost_sentences,
    sentence_influence,
    slopes_at,
)
from carp.explain.kept_readings import KeptReadings, LastUsed, read_all, read_document
from carp.explain.named_words import (
    DETAIL,
    CapsuleFigures,
    NamedReasons,
    NamedWords,
    nothing_named,
    sentence_numbers,
    words_of_sentences,
)
from carp.explain.pair_texts import PairTexts, batch_of, blocks
from carp.explain.phrases import phrase_book, weightiest_sides
from carp.explain.question import Detail, Question, held_out
from carp.explain.selection import weightiest_and_new
from carp.models.carp import NEGATIVE, POSITIVE, Carp, DocumentReading
from carp.models.predict import score_blocks
from carp.reviews.readable import ReadableDocument, WrittenReview
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_model import FittedModel

SIDES_KEPT = 6_000


class CapsuleExplainer(Explainer):
    """Explains CARP in all its forms."""

    for_and_against = True
    reads_by_guide = True

    def __init__(self, fitted: FittedModel) -> None:
        super().__init__(fitted)
        self.model = cast(Carp, fitted.model)  # only CARP names this explainer
        self.kept: tuple[KeptReadings, KeptReadings] | None = None
        self._sides: LastUsed[ShownSide] = LastUsed(SIDES_KEPT)
        self._prepared = 0  # people and things, from the first

    # ---- reading documents

    def keep_readings(self) -> None:
        if self.kept is not None or self.fitted.device.type != "cpu":
            return
        users = read_all(self.model, self.model.read_users, self.corpus.user_documents)
        items = read_all(self.model, self.model.read_items, self.corpus.item_documents)
        if users is not None and items is not None:
            self.kept = users, items
            self.fitted.sides = users.viewpoints, items.viewpoints  # read once, not twice

    def prepare_sides(self, most: int) -> None:
        """Make ready what is shown of the first `most` people and things, where readings are kept; those that were made
        ready before are not gone through again."""
        if self.kept is None:
            return
        for kind, names in enumerate((self.corpus.users, self.corpus.items)):
            for number in range(self._prepared, min(most, len(names))):
                side = self._whole(kind, number, Detail())
                side.prepare(self.guide.aspects)
                self.guide.remember(side.book.document.sources)  # what their sentences say
        self._prepared = max(self._prepared, most)

    def _read(self, kind: int, document: ReadableDocument, detail: Detail) -> ShownSide:
        read = (self.model.read_users, self.model.read_items)[kind]
        return self._shown_side(document, read_document(read, document, self.fitted.device), detail)

    def _whole(self, kind: int, owner: int, detail: Detail) -> ShownSide:
        """A whole document of the corpus, from what is kept of it if anything is."""

        def made() -> ShownSide:
            document = self.corpus.readable((self.corpus.user_documents, self.corpus.item_documents)[kind], owner)
            reading = None if self.kept is None else self.kept[kind].of(owner)
            return (
                self._read(kind, document, detail) if reading is None else self._shown_side(document, reading, detail)
            )

        return made() if self.kept is None else self._sides.get((kind, owner, detail.top_phrases), made)

    def _shown_side(self, document: ReadableDocument, reading: DocumentReading, detail: Detail) -> ShownSide:
        attention = reading.attention[0].double().cpu().numpy()[: len(document.words)]
        window, most = self.model.config.window, detail.top_phrases
        book = phrase_book(document, attention, window=window, top_phrases=most, tone_of=self._tone_of)
        lost = lost_sentences(self.model, reading, document.sentence_numbers)
        return ShownSide(reading, document.words, document.sentence_numbers, lost, book)

    def _tone_of(self, sentence: tuple[int, int], source: WrittenReview) -> Tone | None:
        """What a sentence of a review says, where it is shown."""
        (record, place), guide = sentence, self.guide
        if source.rating is None:  # pasted: its number is no record, and all of it would be read for each sentence
            return guide.tone_of_quoted(source.text[slice(*source.sentences[place])], None)
        of_rating = guide.of_rating(float(self.corpus.rating[record]))
        return guide.tone(float(guide.tones(source, record)[place]), of_rating)

    def _sides_of(self, question: Question, detail: Detail) -> tuple[ShownSide, ShownSide]:
        if self.kept is None or question.user < 0 or question.trained_on(self.corpus):
            return self._read(USER, question.user_document, detail), self._read(ITEM, question.item_document, detail)
        return self._whole(USER, question.user, detail), self._whole(ITEM, question.item, detail)

    # ---- explaining pairs

    def explain(self, questions: Sequence[Question], detail: Detail | None = None) -> list[Explanation]:
        return self.apart(questions, lambda some: self._explain_alike(some, detail or Detail()))

    def _explain_alike(self, questions: list[Question], detail: Detail) -> list[Explanation]:
        sides = [self._sides_of(question, detail) for question in questions]
        judged = self._judge(questions, sides)
        known = zip(self.baselines(questions), self.margins(questions), strict=True)
        return [
            self.explanation(question, one.rating, *beside, self._reasons(question, one, pair, detail))
            for question, pair, one, beside in zip(questions, sides, judged, known, strict=True)
        ]

    def _judge(self, questions: Sequence[Question], sides: Sequence[tuple[ReadSide, ReadSide]]) -> list[Judgement]:
        device = self.fitted.device
        return judge_pairs(
            self.model,
            torch.cat([user.reading.viewpoints for user, _ in sides]),
            torch.cat([item.reading.viewpoints for _, item in sides]),
            torch.tensor([question.user for question in questions], device=device),
            torch.tensor([question.item for question in questions], device=device),
            self.own_ratings(questions),
        )

    def _reasons(
        self, question: Question, judged: Judgement, sides: tuple[ShownSide, ShownSide], detail: Detail
    ) -> Reasons:
        influence = sentence_influence(sides[USER].lost, sides[ITEM].lost, judged.slopes)
        chosen = unit_reasons(judged, influence, (sides[USER].alike, sides[ITEM].alike), detail)
        names = names_in(chosen, sides, self.guide)
        units = logic_units(chosen, judged, sides, names)
        viewpoints, aspects = all_sides(sides, influence, judged.coupling[judged.prevailing], names, detail)
        matching: dict[MatchKind, list[Side]] = {
            sentiment: [side for unit in units if unit.sentiment == sentiment for side in (unit.viewpoint, unit.aspect)]
            for sentiment in SENTIMENTS
        }
        return Reasons(
            viewpoints=viewpoints,
            aspects=aspects,
            target=held_out(self.corpus, question, matching),
            positive=self._capsule(judged, POSITIVE),
            negative=self._capsule(judged, NEGATIVE),
            coupling_positive=matrix(judged.coupling[POSITIVE]),
            coupling_negative=matrix(judged.coupling[NEGATIVE]),
            units=units,
        )

    def _capsule(self, judged: Judgement, sentiment: int) -> Capsule:
        scale = float(self.fitted.facts["degree_scale"][sentiment])
        degree = float(judged.degrees[sentiment])
        return Capsule(float(judged.lengths[sentiment]), degree, degree / scale if scale else 0.0)

    def summarise(self, question: Question, n: int) -> list[SummarySentence]:
        """The sentences that move this person's rating most, up or down, with the aspect through which they do so most.

        A sentence's weight is what the balance of the two sentiments loses without it, through all logic units
        together; what was said before counts less, so that a summary does not repeat itself.
        """
        document = question.item_document
        if not len(document.words):
            return []
        sides = self._sides_of(question, Detail())
        (judged,) = self._judge([question], [sides])
        moved = sentence_influence(sides[USER].lost, sides[ITEM].lost, judged.slopes).item.sum(1)  # [T, M]
        strength = moved.sum(1)
        rows = []
        for place in weightiest_and_new(np.abs(strength), sides[ITEM].alike, n):
            review, span = document.sentences[place]
            source = document.sources[review]
            begin, end = source.sentences[span]
            rows.append(
                SummarySentence(
                    source.text[begin:end],
                    (),
                    source.user,
                    source.item,
                    source.rating,
                    title=source.title,
                    weight=float(abs(strength[place])),
                    aspect=int((np.sign(strength[place]) * moved[place]).argmax()) + 1,
                    sentiment="positive" if strength[place] >= 0 else "negative",
                )
            )
        return rows

    # ---- naming the words of many pairs

    def name_words(self, pairs: PairTexts) -> NamedReasons:
        rating, balance = np.zeros(len(pairs)), np.zeros(len(pairs))
        named = nothing_named(pairs)
        m = self.model.config.viewpoints
        lengths, coupling = np.zeros((len(pairs), 2)), np.zeros((len(pairs), 2, m, m))
        attention = np.zeros((*pairs.item.words.shape, m), dtype=np.float32)
        for chosen in blocks(pairs):
            batch = batch_of(pairs, chosen, self.fitted.device)
            with torch.no_grad():
                readings = (
                    self.model.read_users(batch.user_words, batch.user_reviews),
                    self.model.read_items(batch.item_words, batch.item_reviews),
                )
            attention[chosen, : readings[ITEM].attention.shape[1]] = readings[ITEM].attention.cpu().numpy()
            judged = judge_pairs(
                self.model, readings[USER].viewpoints, readings[ITEM].viewpoints, batch.users, batch.items
            )
            for place, (row, one) in enumerate(zip(chosen.tolist(), judged, strict=True)):
                rating[row], balance[row], lengths[row], coupling[row] = (
                    one.rating,
                    one.balance,
                    one.lengths,
                    one.coupling,
                )
                self._name_pair(one, readings, place, pairs, row, named)
        direction = np.where(lengths[:, POSITIVE] >= lengths[:, NEGATIVE], 1.0, -1.0)
        return NamedReasons(rating, *named, CapsuleFigures(balance, lengths, coupling, attention), direction)

    def _name_pair(
        self,
        judged: Judgement,
        readings: tuple[DocumentReading, DocumentReading],
        place: int,
        pairs: PairTexts,
        row: int,
        named: tuple[NamedWords, NamedWords],
    ) -> None:
        """Write one pair's named words into the rectangles: those of the sentences that its explanation shows."""
        sides = []
        for texts, reading in zip(pairs.sides, readings, strict=True):
            sentence = sentence_numbers(texts.sentences[row, : int(texts.there[row].sum())])
            alone = _alone(reading, place, len(sentence))
            lost = lost_sentences(self.model, alone, sentence)
            sides.append(ReadSide(alone, texts.words[row, : len(sentence)], sentence, lost))
        slopes = judged.slopes.user.sum(1), judged.slopes.item.sum(0)
        for side, words, slope in zip(sides, named, slopes, strict=True):
            pull = torch.einsum("lxk,xk->l", added_by_words(side.reading), slope)
            words.pull[row, : len(pull)] = pull.double().cpu().numpy()
        influence = sentence_influence(sides[USER].lost, sides[ITEM].lost, judged.slopes)
        for unit in unit_reasons(judged, influence, (sides[USER].alike, sides[ITEM].alike), DETAIL):
            of_unit = (unit.viewpoint, unit.reason.user), (unit.aspect, unit.reason.item)
            for side, words, (index, sentences) in zip(sides, named, of_unit, strict=True):
                attention = side.reading.attention[0, :, index].double().cpu().numpy()
                shown, marked = words_of_sentences(attention, side.sentence, self.model.config.window, sentences)
                words.shown[row, : len(shown)] |= shown
                words.marked[row, : len(marked)] |= marked

    # ---- people and things by themselves

    def viewpoints_of(
        self, user: int, records: NDArray[np.int64], sentences: int
    ) -> tuple[tuple[Side, ...], tuple[str, ...]]:
        side = self._whole(USER, user, Detail())
        coupling, lengths = self._coupling_and_lengths(np.full(len(records), user), self.corpus.item[records])
        shown = weightiest_sides(side.book, shown_sentences=sentences)
        empty = ("the person's reviews hold no word the model knows: the viewpoints are empty",)
        notes = () if len(side.words) else empty
        names = names_of("viewpoint", side, (), self.guide)
        return named_sides(names, shown, share_of_coupling(coupling, lengths)), notes

    def opinions_of(
        self, item: int, raters: NDArray[np.int32], sentences: int
    ) -> tuple[tuple[AspectOpinion, ...], tuple[AspectOpinion, ...], tuple[str, ...]]:
        coupling, lengths = self._coupling_and_lengths(raters, np.full(len(raters), item))
        side = self._whole(ITEM, item, Detail())
        names = names_of("aspect", side, (), self.guide)
        moved, phrases = self._common_influence(raters, side), cache(self.phrases_of_user)
        found = []
        for s, direction in ((POSITIVE, 1.0), (NEGATIVE, -1.0)):
            shown = weightiest_sides(side.book, shown_sentences=sentences, moved=direction * moved)
            shown = [
                replace(one, sentiment=SENTIMENTS[s], opposed=opposed_to(SENTIMENTS[s], one.sentences)) for one in shown
            ]
            aspects = named_sides(names, shown, coupling[:, s].sum(1).mean(0))
            strength = coupling[:, s] * lengths[:, s, None, None]  # [R, M, M]
            longer = lengths[:, s] > lengths[:, 1 - s]
            found.append(opinions_of_raters(raters, strength, longer, aspects, phrases))
        return found[0], found[1], ()

    @torch.no_grad()
    def _coupling_and_lengths(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> tuple[Array, Array]:
        """Couplings [R, 2, M, M] and lengths [R, 2] of pairs, from whole documents of training reviews."""
        user_sides, item_sides = self.fitted.sides
        shown = self.model.judge(self.model.pair(user_sides[_places(users)], item_sides[_places(items)]))
        return shown["coupling"].double().cpu().numpy(), shown["lengths"].double().cpu().numpy()

    def _common_influence(self, raters: NDArray[np.int32], side: ReadSide) -> Array:
        """How much each sentence of the thing moves the rating through each aspect, on average over raters. [S, M]

        As in the explanation of one pair: what an aspect loses without it, times the slope of the balance of
        sentiments.
        """
        viewpoints = self.fitted.sides[USER][_places(raters)]
        aspects = side.reading.viewpoints.expand(len(viewpoints), *side.reading.viewpoints.shape[1:])
        gradient = judge_with_gradient(self.model, viewpoints, aspects)[1]
        towards = slopes_at(self.model, gradient, viewpoints, aspects).item.sum(1).mean(0)  # [M, k]
        moved: Array = (side.lost * towards).sum(-1).detach().double().cpu().numpy()
        return moved

    def phrases_of_user(self, user: int) -> list[tuple[str, ...]]:
        """The phrases of every viewpoint of a numbered person."""
        return self._whole(USER, user, Detail()).book.texts

    @torch.no_grad()
    def strongest_meetings(self, person: int | ReadableDocument, items: Sequence[int]) -> list[StrongestMeeting]:
        """The unit that the longer capsule listens to most, of each item."""
        if not items:
            return []
        if isinstance(person, int):
            viewpoints, phrases = self.fitted.sides[USER][person : person + 1], self.phrases_of_user(person)
        else:
            side = self._read(USER, person, Detail())
            viewpoints, phrases = side.reading.viewpoints, side.book.texts
        aspects = self.fitted.sides[ITEM][torch.tensor(items, device=self.fitted.device)]
        shown = self.model.judge(self.model.pair(viewpoints.expand(len(items), -1, -1), aspects))
        coupling, lengths = shown["coupling"].cpu().numpy(), shown["lengths"].cpu().numpy()
        found = []
        for row, item in enumerate(items):
            s = POSITIVE if lengths[row, POSITIVE] >= lengths[row, NEGATIVE] else NEGATIVE
            x, y = np.unravel_index(int(coupling[row, s].argmax()), coupling[row, s].shape)
            found.append(StrongestMeeting(phrases[int(x)], self._whole(ITEM, item, Detail()).book.texts[int(y)]))
        return found

    # ---- what is kept

    def degree_scale(self) -> list[float]:
        largest = torch.zeros(2, device=self.fitted.sides[USER].device)
        for scored in score_blocks(self.model, self.fitted.sides, self.corpus.pairs(TRAIN)):
            largest = torch.maximum(largest, scored.tensors["degrees"].abs().amax(0))
        return [float(value) for value in largest]


def _alone(reading: DocumentReading, place: int, length: int) -> DocumentReading:
    one = slice(place, place + 1)
    return DocumentReading(reading.viewpoints[one], reading.attention[one, :length], reading.contextual[one, :length])


def _places(numbers: NDArray[np.int32]) -> Tensor:
    return torch.from_numpy(np.asarray(numbers, np.int64))
