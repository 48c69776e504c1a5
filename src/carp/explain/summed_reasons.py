"""The reasons of a model that is a sum: what each aspect of a thing adds to the rating, with sentences that say so.

The rating is the mean, the person's level, the thing's level, what the person's way of writing says, and an amount for
each aspect of the thing: what is written about it says something to everybody, and something to this person. A sentence
stands for an aspect that raises the rating only if it praises, and for one that lowers it only if it complains. Where
none does, because the person likes what others complain of, the reason says that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from carp.explain.attention_reasons import AttentionExplainer
from carp.explain.explainer import AspectOpinion, SummarySentence
from carp.explain.explanation import (
    AspectFinding,
    EarlierCase,
    Mark,
    Meetings,
    Part,
    Reasons,
    Sentence,
    Side,
)
from carp.explain.guided_reasons import quoted_tone
from carp.explain.named_words import NamedReasons, NamedWords, nothing_named
from carp.explain.pair_amounts import PairAmounts, numbers, pair_amounts
from carp.explain.pair_texts import PLACES, Floats, PaddedTexts, PairTexts, batch_of, blocks
from carp.explain.phrases import merged
from carp.explain.pulling_sentences import ReadSentences, marked_words
from carp.explain.question import Detail, Question, as_tensors, held_out
from carp.models.meeting import Meeting
from carp.models.meeting_sides import KeptTerms
from carp.reviews.readable import ReadableDocument, WrittenReview
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_model import FittedModel

Ints = NDArray[np.int64]
FINDINGS = 6
TELLING = 0.0025  # of the rating range: an aspect that moves a rating by less is not told
SHARE_OF_LARGEST = 0.15  # of the largest amount, for another aspect to be told
OF_PERSON, SHARE_OF_LARGEST_OF_PERSON = 0.001, 0.05  # the same of what a person writes about, which takes less room
CASES = 2
ALIKE = 0.2  # likeness of two things of which it is worth telling
MEANING = "Every word adds to the rating or takes away from it, by itself and where it meets the other text."


class SummedExplainer(AttentionExplainer):
    """Explains `meeting`: parts that sum to the rating, by aspects with names."""

    for_and_against = True
    chooses_by_guide = True

    def __init__(self, fitted: FittedModel) -> None:
        super().__init__(fitted)
        # What is the same for every pair, as long as somebody keeps the document.
        self._read_before: WeakKeyDictionary[ReadableDocument, ReadSentences] = WeakKeyDictionary()
        self._of_people: WeakKeyDictionary[ReadableDocument, KeptTerms] = WeakKeyDictionary()
        self._of_things: WeakKeyDictionary[ReadableDocument, KeptTerms] = WeakKeyDictionary()

    @cached_property
    def _shares(self) -> torch.Tensor:
        return torch.from_numpy(self.guide.aspects.membership).to(self.fitted.device)

    @property
    def _model(self) -> Meeting:
        model = self.fitted.model
        assert isinstance(model, Meeting)
        return model

    @property
    def _star(self) -> float:
        """One star on the scale of the data."""
        return (self.corpus.scale.high - self.corpus.scale.low) / (self.corpus.levels - 1)

    @torch.no_grad()
    def rated_with_reasons(self, questions: Sequence[Question], detail: Detail) -> list[tuple[float, Reasons]]:
        device, model = self.fitted.device, self._model
        users = torch.tensor([question.user for question in questions], device=device)
        items = torch.tensor([question.item for question in questions], device=device)
        parts, *pulled = model.parts_of_kept(users, items, [self._terms(question) for question in questions])
        curved = model.curve(torch.cat([parts.total(), parts.levels()]))
        stars = model.width(curved, users.repeat(2)).double().cpu().numpy().reshape(2, -1)
        wider = stars[0] - curved[: len(questions)].double().cpu().numpy()
        told = zip(questions, pair_amounts(parts), stars.T.tolist(), wider.tolist(), *pulled, strict=True)
        return [
            self._rated_so(question, amounts, rated, wide, (numbers(user), numbers(item)), detail)
            for question, amounts, rated, wide, user, item in told
        ]

    def _rated_so(
        self,
        question: Question,
        amounts: PairAmounts,
        rated: list[float],
        wider: float,
        pulls: tuple[Floats, Floats],
        detail: Detail,
    ) -> tuple[float, Reasons]:
        """One pair by what its parts amount to, where it is `rated` so with the texts and without them, `wider` by the
        person's own width."""
        rating, without = (min(max(stars, 1.0), float(self.corpus.levels)) for stars in rated)
        user = self._read(question.user_document, pulls[0])
        item = self._read(question.item_document, pulls[1])
        findings = self._findings(question, amounts, user, item, pulls, detail)
        sides = _sides(findings)
        reasons = Reasons(
            viewpoints=self._viewpoints(question, amounts, user, pulls[0], detail),
            aspects=sides,
            target=held_out(self.corpus, question, {"matched": list(sides)}),
            meaning=MEANING,
            parts=self._parts(amounts, wider, rating),
            findings=findings,
            cases=self._cases(question, amounts.by_taste, rating - without),
            meetings=self._meetings(amounts),
            texts_move=self._star * (rating - without),
        )
        return rating, reasons

    def _terms(self, question: Question) -> tuple[KeptTerms, KeptTerms]:
        user, item, model = question.user_document, question.item_document, self._model
        if user not in self._of_people:
            self._of_people[user] = model.user_terms(*self._as_fed(user), self._shares)
        if item not in self._of_things:
            self._of_things[item] = model.item_terms(*self._as_fed(item), self._shares)
        return self._of_people[user], self._of_things[item]

    def _as_fed(self, document: ReadableDocument) -> tuple[torch.Tensor, torch.Tensor]:
        words, review = as_tensors(document)
        return words.to(self.fitted.device), review.to(self.fitted.device)

    # ---- the sum

    def _parts(self, amounts: PairAmounts, wider: float, rating: float) -> tuple[Part, ...]:
        """Amounts that sum to the rating shown: the scale's own low end is in the mean. A person's own width of rating
        makes it wider by so many stars."""
        names, star = self.guide.aspects.names, self._star
        *aspects, other, name = (star * amounts.of_aspects).tolist()
        found = [
            Part("mean", "the mean of all ratings", self.corpus.own_rating(amounts.mean)),
            Part("person", "what this person usually gives", star * amounts.person),
            Part("thing", "what this thing usually gets", star * amounts.thing),
            Part("writing", "how this person writes", star * amounts.writing),
            *(Part("aspect", aspect, amount) for aspect, amount in zip(names[:-1], aspects, strict=True)),
            Part("other words", "other words about this thing", other),
            Part("name", "what it is called", name),
            Part("width", "how widely this person rates", star * wider),
        ]
        scale = self.corpus.own_rating(rating) - sum(part.amount for part in found)
        return (*(part for part in found if part.amount or part.kind in ("mean", "person", "thing")),) + (
            (Part("scale", "how ratings crowd at the end of the scale", scale),) if abs(scale) > 1e-9 else ()
        )

    def _meetings(self, amounts: PairAmounts) -> Meetings:
        names = self.guide.aspects.names[:-1]
        return Meetings(names, names, tuple(map(tuple, (self._star * amounts.by_both[:-1, : len(names)]).tolist())))

    # ---- what is said

    def _findings(
        self,
        question: Question,
        amounts: PairAmounts,
        user: ReadSentences,
        item: ReadSentences,
        pulls: tuple[Floats, Floats],
        detail: Detail,
    ) -> tuple[AspectFinding, ...]:
        names, star = self.guide.aspects.names, self._star
        findings = []
        for aspect in telling(amounts.of_aspects[: len(names) - 1], self.corpus.levels):
            amount, by_itself = float(amounts.of_aspects[aspect]), float(amounts.by_themselves[aspect])
            chosen, turned = item.for_aspect(aspect, amount, by_itself, detail.sentences)
            if not chosen:
                continue
            own = own_viewpoint(amounts.by_both[:-1, aspect], amount)
            finding = AspectFinding(
                names[aspect],
                star * amount,
                star * by_itself,
                star * (amount - by_itself),
                self._sentences(question.item_document, item, chosen, pulls[1], amount),
                turned=turned,
                viewpoint=None if own is None else names[own],
                own_sentences=()
                if own is None
                else self._sentences(question.user_document, user, user.about(own, 1), np.abs(pulls[0]), 1.0),
            )
            findings.append(finding)
        return tuple(findings)

    def _viewpoints(
        self, question: Question, amounts: PairAmounts, user: ReadSentences, pull: Floats, detail: Detail
    ) -> tuple[Side, ...]:
        """What the person's reviews do, by what they are about."""
        names = self.guide.aspects.names
        found = []
        for aspect in telling(amounts.of_viewpoints[: len(names) - 1], self.corpus.levels, of_person=True):
            amount = float(amounts.of_viewpoints[aspect])
            chosen = user.about(aspect, detail.sentences, amount)
            if chosen:
                sentences = self._sentences(question.user_document, user, chosen, np.abs(pull), 1.0)
                found.append(AspectFinding(names[aspect], self._star * amount, 0.0, 0.0, sentences))
        return _sides(found)

    def _cases(self, question: Question, by_person: float, moved: float) -> tuple[EarlierCase, ...]:
        """What the person rated before that reads most like this thing, and went the way the texts move the rating."""
        corpus = self.corpus
        if question.user < 0 or abs(by_person) < TELLING * (corpus.levels - 1) or by_person * moved <= 0:
            return ()
        records = np.flatnonzero((corpus.user == question.user) & (corpus.part == TRAIN))
        records = records[records != question.record]
        if not len(records):
            return ()
        likeness = self._likeness(question.item, corpus.item[records].astype(np.int64))
        ratings = corpus.rating[records].astype(np.float64)
        agrees = (ratings - ratings.mean()) * by_person > 0
        best = [k for k in np.argsort(-likeness, kind="stable") if agrees[k] and likeness[k] >= ALIKE][:CASES]
        return tuple(self._case(int(records[k]), float(likeness[k])) for k in best)

    def _case(self, record: int, likeness: float) -> EarlierCase:
        source = self.corpus.source(record)
        assert source.item is not None
        assert source.rating is not None
        return EarlierCase(source.item, source.rating, likeness, source.title)

    def _likeness(self, item: int, others: Ints) -> Floats:
        """The cosines of what is written about a thing and about others, as the model sees them."""
        model, sides = self._model, self.fitted.sides[1]
        places = torch.from_numpy(np.append(others, item)).to(sides.device)
        seen, _ = model.item_side.seen(sides[places, 1:] + model.name_place[places])
        return numbers(seen[:-1] @ seen[-1])

    # ---- sentences

    def _read(self, document: ReadableDocument, pull: Floats) -> ReadSentences:
        pull = pull[: len(document.words)]
        before = self._read_before.get(document)
        if before is not None:
            return before.pulled_by(pull)
        found = self._reading(document.words, document.sentence_numbers, pull, self._tones(document))
        self._read_before[document] = found
        return found

    def _tones(self, document: ReadableDocument) -> list[tuple[float, float]]:
        if any(source.rating is None for source in document.sources.values()):  # pasted: their numbers are no records
            tones = {number: self.guide.tones(source) for number, source in document.sources.items()}
            return [(float(tones[number][place]), 0.0) for number, place in document.sentences]
        self.guide.remember(document.sources)
        return [self._tone(record, place, document.sources[record]) for record, place in document.sentences]

    def _tone(self, record: int, place: int, source: WrittenReview) -> tuple[float, float]:
        of_rating = self.guide.of_rating(float(self.corpus.rating[record]))
        return float(self.guide.tones(source, record)[place]), of_rating

    def _reading(
        self, words: NDArray[np.int32], of_word: Ints, pull: Floats, tones: list[tuple[float, float]]
    ) -> ReadSentences:
        tone, of_rating = np.array(tones).reshape(-1, 2).T
        aspect = self.guide.aspects.of_sentences(words, of_word, len(tone))
        own = self.guide.aspects.membership[words, aspect[of_word]]
        belonging = np.bincount(of_word, own, len(tone)) / np.maximum(np.bincount(of_word, minlength=len(tone)), 1)
        silent = np.zeros(len(tone))
        found = ReadSentences(words, of_word, silent, tone, of_rating, aspect, belonging, self.guide.clear_tone)
        return found.pulled_by(pull)

    def _sentences(
        self, document: ReadableDocument, read: ReadSentences, chosen: Sequence[int], pull: Floats, amount: float
    ) -> tuple[Sentence, ...]:
        found = []
        for number in chosen:
            record, place = document.sentences[number]
            source = document.sources[record]
            begin, end = source.sentences[place]
            marks = merged(
                Mark(int(document.starts[k]) - begin, int(document.ends[k]) - begin, "own", float(abs(pull[k])))
                for k in marked_words(read.of_word, pull, number, amount)
            )
            text = source.text[begin:end]
            tone = quoted_tone(text, source.rating, self.guide, self.corpus)
            found.append(Sentence(text, marks, source.user, source.item, source.rating, title=source.title, tone=tone))
        return tuple(found)

    # ---- people and things by themselves

    def viewpoints_of(self, user: int, records: Ints, sentences: int) -> tuple[tuple[Side, ...], tuple[str, ...]]:
        """What a person writes about, as shares of their sentences."""
        document = self.corpus.readable(self.corpus.user_documents, user)
        if not len(document.words):
            return (), ("the person's reviews hold no word the model knows",)
        read, shares = self._apart(document)
        return tuple(
            self._own_side(index, aspect, share, document, read, sentences)
            for index, (aspect, share) in enumerate(shares, start=1)
        ), ()

    def _apart(self, document: ReadableDocument) -> tuple[ReadSentences, list[tuple[int, float]]]:
        """A document read without a pair in mind, and its aspects by their shares, the largest first."""
        read = self._read(document, np.ones(len(document.words)))
        counts = np.bincount(read.aspect, minlength=len(self.guide.aspects))[:-1]
        largest = [int(a) for a in np.argsort(-counts, kind="stable") if counts[a]]
        return read, [(aspect, float(counts[aspect] / max(len(read.tone), 1))) for aspect in largest]

    def _own_side(
        self, index: int, aspect: int, share: float, document: ReadableDocument, read: ReadSentences, sentences: int
    ) -> Side:
        belongs = self.guide.aspects.membership[document.words, aspect].astype(np.float64)
        chosen = read.mostly_about(aspect, sentences)
        quoted = self._sentences(document, read, chosen, belongs, 1.0)
        name = self.guide.aspects.names[aspect]
        return Side(index, quoted, tuple(name.split(", ")), share, name=name)

    def opinions_of(
        self, item: int, raters: NDArray[np.int32], sentences: int
    ) -> tuple[tuple[AspectOpinion, ...], tuple[AspectOpinion, ...], tuple[str, ...]]:
        """What raters praise about a thing and what they complain of, aspect by aspect."""
        document = self.corpus.readable(self.corpus.item_documents, item)
        if not len(document.words):
            return (), (), ("the thing's reviews hold no word the model knows",)
        read, shares = self._apart(document)
        writer = np.array([document.sources[record].user for record, _ in document.sentences])
        liked: list[AspectOpinion] = []
        disliked: list[AspectOpinion] = []
        for aspect, share in shares:
            for sign, found in ((1.0, liked), (-1.0, disliked)):
                said = (read.aspect == aspect) & read.says(sign)
                if said.any():
                    found.append(self._opinion(aspect, share, said, sign, document, read, writer, sentences))
        by_raters = [
            tuple(replace(one, aspect=replace(one.aspect, index=place)) for place, one in enumerate(ranked, start=1))
            for ranked in (sorted(found, key=lambda one: -one.raters * one.strength) for found in (liked, disliked))
        ]
        return by_raters[0], by_raters[1], ()

    def _opinion(
        self,
        aspect: int,
        share: float,
        said: NDArray[np.bool_],
        sign: float,
        document: ReadableDocument,
        read: ReadSentences,
        writer: NDArray[np.str_],
        sentences: int,
    ) -> AspectOpinion:
        worth = np.where(said, sign * read.tone, 0)
        chosen = [int(place) for place in np.argsort(-worth, kind="stable")[:sentences] if worth[place] > 0]
        belongs = self.guide.aspects.membership[document.words, aspect].astype(np.float64)
        quoted = self._sentences(document, read, chosen, belongs, 1.0)
        name = self.guide.aspects.names[aspect]
        side = Side(1, quoted, tuple(name.split(", ")), share, name=name)
        who = len(np.unique(writer[said]))
        return AspectOpinion(side, who, who, float(worth[said].mean()), ())

    def summarise(self, question: Question, n: int) -> list[SummarySentence]:
        """The sentences of what is told of the thing, with whether they speak for or against it; no text twice."""
        (found,) = self.explain([question])
        names = self.guide.aspects.names
        told = [
            SummarySentence(
                **{field.name: getattr(sentence, field.name) for field in fields(sentence)},
                weight=abs(one.amount),
                aspect=names.index(one.aspect) + 1,
                sentiment="positive" if one.amount > 0 else "negative",
                turned=one.turned,
            )
            for one in found.findings
            for sentence in one.sentences
        ]
        return list({sentence.text: sentence for sentence in reversed(told)}.values())[::-1][:n]

    # ---- many pairs

    @torch.no_grad()
    def name_words(self, pairs: PairTexts) -> NamedReasons:
        """Named are the findings that pull as the texts do in all: the others, which are told too, ask for another
        rating."""
        model = self._model
        rating, balance = np.zeros(len(pairs)), np.zeros(len(pairs))
        user, item = (replace(named, told=np.zeros_like(named.shown)) for named in nothing_named(pairs))
        for chosen in blocks(pairs):
            batch = batch_of(pairs, chosen, self.fitted.device)
            parts, *pulled = model.parts(batch, self._shares)
            pulls = [numbers(found) for found in pulled]
            rating[chosen] = numbers(model.as_rating(parts.total(), batch.users))
            for place, (row, one) in enumerate(zip(chosen.tolist(), pair_amounts(parts), strict=True)):
                balance[row] = one.by_texts
                for texts, named, pull, of_person in (
                    (pairs.user, user, pulls[0][place], True),
                    (pairs.item, item, pulls[1][place], False),
                ):
                    self._name(texts, named, pull, row, one, of_person=of_person)
        return NamedReasons(rating, user, item, direction=np.where(balance >= 0, 1.0, -1.0))

    def _name(
        self,
        texts: PaddedTexts,
        named: NamedWords,
        pull: Floats,
        row: int,
        amounts: PairAmounts,
        *,
        of_person: bool,
    ) -> None:
        length = int(texts.there[row].sum())
        if not length:
            return
        words, keys, pull = texts.words[row, :length], texts.sentences[row, :length], pull[:length]
        named.pull[row, :length] = pull
        distinct, of_word = np.unique(keys, return_inverse=True)
        tones = [self._tone_of(int(key)) for key in distinct]
        read = self._reading(words, of_word, pull, tones)
        of_groups = amounts.of_viewpoints if of_person else amounts.of_aspects
        for aspect in telling(of_groups[: len(self.guide.aspects) - 1], self.corpus.levels, of_person=of_person):
            amount, by_itself = float(of_groups[aspect]), float(amounts.by_themselves[aspect])
            chosen = read.about(aspect, 2, amount) if of_person else read.for_aspect(aspect, amount, by_itself, 2)[0]
            assert named.told is not None
            named.told[row, :length] |= np.isin(of_word, chosen)
            if amount * amounts.by_texts <= 0:
                continue
            for number in chosen:
                named.shown[row, :length] |= of_word == number
                named.marked[row, marked_words(of_word, pull, number, amount)] = True

    def _tone_of(self, key: int) -> tuple[float, float]:
        record, place = divmod(key, PLACES)
        return self._tone(record, place, self.corpus.source(record))


def telling(amounts: Floats, levels: int, *, of_person: bool = False) -> list[int]:
    """The aspects of a thing worth telling of, or those of a person, the largest first: those that move the rating
    enough to be seen.

    >>> telling(np.array([0.5, -0.3, 0.05, 0.001]), 5)
    [0, 1]
    """
    size = np.abs(amounts)
    of_scale, of_largest = (OF_PERSON, SHARE_OF_LARGEST_OF_PERSON) if of_person else (TELLING, SHARE_OF_LARGEST)
    least = max(of_scale * (levels - 1), of_largest * float(size.max(initial=0)))
    return [int(a) for a in np.argsort(-size, kind="stable")[:FINDINGS] if size[a] >= least]


def own_viewpoint(meetings: Floats, amount: float) -> int | None:
    """The viewpoint that does most to an aspect's amount in its own direction; None where none does."""
    pull = meetings * (1.0 if amount > 0 else -1.0)
    return int(pull.argmax()) if len(pull) and pull.max() > 0.1 * abs(amount) else None


def _sides(findings: Sequence[AspectFinding]) -> tuple[Side, ...]:
    """The findings as sides, each by its share of what they do together."""
    total = sum(abs(finding.amount) for finding in findings)
    return tuple(
        Side(index, one.sentences, tuple(one.aspect.split(", ")), abs(one.amount) / total, name=one.aspect)
        for index, one in enumerate(findings, start=1)
    )
