"""What a fitted model keeps of its corpus: ids, reviews, the split, the vocabulary and the documents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.models.batch import NameWords, Pairs, Sizes, TargetReviews, TrainingData
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.corpora.item_texts import ItemNames, ItemTexts, no_names
from carp.reviews.corpora.records import LATEST, NO_TIME
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.corpora.vocabulary_choice import build_vocabulary
from carp.reviews.documents import Documents, ReviewCut, written_document
from carp.reviews.rating_scale import RatingScale
from carp.reviews.readable import ReadableDocument, WrittenReview
from carp.reviews.split import Split
from carp.reviews.split_parts import TEST, TRAIN, VALID
from carp.reviews.text.languages import ENGLISH
from carp.reviews.text.stop_words import read_stop_words
from carp.reviews.text.tokens import tokenise
from carp.reviews.text.vocabulary import TextSettings, Vocabulary
from carp.reviews.training_documents import training_documents
from carp.training.pair_records import RecordOfPair


@dataclass(frozen=True, eq=False)
class FittedCorpus:
    """The records of a corpus with their split, and documents made of the training records."""

    users: StringColumn
    items: StringColumn
    texts: StringColumn
    user: NDArray[np.int32]
    item: NDArray[np.int32]
    rating: NDArray[np.float32]  # 1 to levels
    part: NDArray[np.int8]
    vocabulary: Vocabulary
    user_documents: Documents
    item_documents: Documents
    max_words: int
    levels: int
    scale: RatingScale
    facts: dict[str, Any]
    reviews: Documents | None = None  # training reviews one by one; only while fitting
    item_texts: ItemTexts | None = None  # titles and more, if anything but reviews is known of the items
    cut: ReviewCut | None = None  # of the documents, where a model reads reviews one by one
    time: NDArray[np.int64] | None = None  # of each record, seconds since 1970 and -1 where unknown; None: no dates

    @cached_property
    def sizes(self) -> Sizes:
        return Sizes(len(self.users), len(self.items), len(self.vocabulary), self.levels, self.max_words)

    @cached_property
    def record_of_pair(self) -> RecordOfPair:
        return RecordOfPair(self.user, self.item, len(self.items))

    @cached_property
    def item_names(self) -> ItemNames:
        """The words of each item's title and categories; no words where unknown."""
        return no_names(len(self.items)) if self.item_texts is None else self.item_texts.names

    def check_texts(self) -> None:
        """Refuse damaged texts now; those of a large model are else checked when somebody reads them."""
        _ = self.texts.data

    def title(self, item: int) -> str | None:
        """What an item is called, if that is known."""
        return None if self.item_texts is None else self.item_texts.titles[item] or None

    @cached_property
    def item_means(self) -> NDArray[np.float64]:
        """The mean training rating of each item, or NaN."""
        train = self.part == TRAIN
        count = np.bincount(self.item[train], minlength=len(self.items))
        total = np.bincount(self.item[train], self.rating[train], minlength=len(self.items))
        means = np.full(len(count), np.nan)
        np.divide(total, count, out=means, where=count > 0)
        return means

    @cached_property
    def _items_by_user(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The items of all records, sorted by user, and where each user's items begin."""
        starts = np.concatenate([[0], np.bincount(self.user, minlength=len(self.users)).cumsum()])
        return self.item[np.argsort(self.user, kind="stable")].astype(np.int64), starts

    def rated_by(self, user: int) -> NDArray[np.int64]:
        """The items this user rated, in any part of the split."""
        items, starts = self._items_by_user
        return items[starts[user] : starts[user + 1]]

    def pairs(self, part: int) -> Pairs:
        return self.pairs_of(np.flatnonzero(self.part == part))

    def pairs_of(self, records: NDArray[np.int64]) -> Pairs:
        return Pairs(
            self.user[records].astype(np.int64),
            self.item[records].astype(np.int64),
            self.rating[records],
            records.astype(np.int64),
        )

    def training_data(self, target_reviews: TargetReviews = "leave out") -> TrainingData:
        return TrainingData(
            self.pairs(TRAIN),
            self.pairs(VALID),
            self.user_documents,
            self.item_documents,
            self.sizes,
            target_reviews,
            self.reviews,
            self._name_words(),
        )

    def _name_words(self) -> NameWords | None:
        names = self.item_names
        if not len(names.tokens):
            return None
        return NameWords(names.tokens.astype(np.int64), np.asarray(names.offsets), len(names.words))

    def held_out_of(self, earlier: FittedCorpus) -> int:
        """How many pairs are held out here that an earlier model was trained on."""
        trained = np.flatnonzero(earlier.part == TRAIN)
        users, items = list(earlier.users), list(earlier.items)
        known = {(users[u], items[i]) for u, i in zip(earlier.user[trained], earlier.item[trained], strict=True)}
        held = np.flatnonzero(self.part != TRAIN)
        users, items = list(self.users), list(self.items)
        return sum((users[u], items[i]) in known for u, i in zip(self.user[held], self.item[held], strict=True))

    def test_pairs(self) -> Pairs:
        return self.pairs(TEST)

    def own_rating(self, stars: float) -> float:
        """A rating on the scale of the original data."""
        return float(self.scale.from_stars(stars, self.levels))

    def source(self, record: int) -> WrittenReview:
        item = int(self.item[record])
        return WrittenReview(
            self.texts[record],
            self.users[int(self.user[record])],
            self.items[item],
            self.own_rating(float(self.rating[record])),
            self.title(item),
        )

    def readable(self, documents: Documents, owner: int, leave_out: int = -1) -> ReadableDocument:
        """A document with its texts, and without the words of one review if `leave_out` names it."""
        stretch = slice(int(documents.offsets[owner]), int(documents.offsets[owner + 1]))
        kept = documents.review[stretch] != leave_out
        review = documents.review[stretch][kept]
        starts, ends = documents.characters[stretch][kept].astype(np.int64).T
        sources = {record: self.source(record) for record in np.unique(review).tolist()}
        return ReadableDocument(documents.words[stretch][kept], review, starts, ends, sources)

    def newcomer(self, texts: list[str]) -> ReadableDocument:
        """The document of a person who is known only by these reviews."""
        numbered = list(enumerate(texts, start=len(self.user)))  # no record has these numbers
        words, review, starts, ends = written_document(numbered, self.vocabulary, self.max_words, self.cut).T
        sources = {number: WrittenReview(text, None, None, None) for number, text in numbered}
        return ReadableDocument(words.astype(np.int32), review.astype(np.int32), starts, ends, sources)

    def unseen_words(self, text: str) -> frozenset[str]:
        """The words of a text that the model does not know."""
        words = set(tokenise(text)[0])
        return frozenset(words - set(self.vocabulary.words))


def fit_corpus(
    corpus: Corpus, split: Split, settings: TextSettings, cut: ReviewCut | None = None, *, reviews: bool = True
) -> FittedCorpus:
    """Choose the vocabulary by the training records, and make the documents of them, cut as a model asks for it.

    `reviews` says whether it learns from single reviews too.
    """
    train = split.train
    vocabulary = build_vocabulary(
        corpus,
        train,
        size=settings.vocabulary_size,
        stop_words=read_stop_words(settings.stop_words, corpus.facts.get("languages", [ENGLISH])),
        max_document_share=settings.max_document_share,
    )
    made = partial(training_documents, corpus, vocabulary, train)
    low, high = corpus.facts["scale_range"]
    cap = settings.max_words if cut is None else min(settings.max_words, cut.longest)
    place_in_training = np.full(len(corpus), -1, np.int32)
    place_in_training[train] = np.arange(len(train))
    return FittedCorpus(
        users=corpus.users,
        items=corpus.items,
        texts=corpus.texts,
        user=np.asarray(corpus.user),
        item=np.asarray(corpus.item),
        rating=np.asarray(corpus.rating),
        part=split.part,
        vocabulary=vocabulary,
        user_documents=made(corpus.user, len(corpus.users), max_words=cap, cut=cut),
        item_documents=made(corpus.item, len(corpus.items), max_words=cap, cut=cut),
        max_words=cap,
        levels=int(corpus.facts["levels"]),
        scale=RatingScale(low, high, clip=False, origin="the corpus"),
        reviews=made(place_in_training, len(train), max_words=cap) if reviews else None,
        facts={"corpus": corpus.facts, "fingerprint": corpus.fingerprint, "split": split.origin},
        item_texts=corpus.item_texts,
        cut=cut,
        time=_dates(corpus.time),
    )


def _dates(time: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The dates of records as they are kept; None where no record has one."""
    kept = np.clip(np.asarray(time), NO_TIME, LATEST)
    return kept if bool((kept >= 0).any()) else None
