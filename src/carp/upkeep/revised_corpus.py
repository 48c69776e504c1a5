"""A fitted corpus with some reviews taken out and others put in; only the documents they touch are made again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.item_texts import ItemTexts
from carp.reviews.corpora.records import LATEST, NO_TIME
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.documents import Documents, ReviewCut, collected
from carp.reviews.sources.item_records import ItemText
from carp.reviews.split_parts import TRAIN
from carp.reviews.text.tokens import tokenise
from carp.reviews.text.vocabulary import Vocabulary
from carp.training.fitted_corpus import FittedCorpus
from carp.training.model_tables import Renumbering

Places = NDArray[np.int64]
NOWHERE = -1


class AddedReviews(NamedTuple):
    """Reviews that come in, as columns of equal length; each pair of a person and a thing is there once."""

    users: Sequence[str] = ()
    items: Sequence[str] = ()
    stars: Sequence[float] = ()
    texts: Sequence[str] = ()
    titles: Sequence[str | None] = ()  # of the things, where the reviews say them
    times: Sequence[int | None] = ()  # seconds since 1970, where the reviews say them

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True)
class RevisedCorpus:
    """A corpus after a revision, and which people and things it touched, by their new numbers."""

    corpus: FittedCorpus
    old: Renumbering
    users: Places
    items: Places


def revise(
    corpus: FittedCorpus, *, gone: Iterable[int] = (), added: AddedReviews | None = None, forget_user: int | None = None
) -> RevisedCorpus:
    """Take out records and put in reviews, which train. A forgotten person goes with all records of theirs."""
    added = added or AddedReviews()
    out = np.zeros(len(corpus.user), dtype=bool)
    out[list(gone)] = True
    if forget_user is not None:
        out |= corpus.user == forget_user
    users = _names(corpus.users, added.users, forget_user)
    items = _names(corpus.items, added.items, None)
    new_user, new_item = (
        _inverse(side.old, len(column)) for side, column in ((users, corpus.users), (items, corpus.items))
    )
    user = np.concatenate([new_user[corpus.user[~out]], users.numbers(added.users)]).astype(np.int32)
    item = np.concatenate([new_item[corpus.item[~out]], items.numbers(added.items)]).astype(np.int32)
    texts = _joined(corpus.texts, ~out, added.texts)
    part = np.concatenate([corpus.part[~out], np.full(len(added), TRAIN, np.int8)])
    touched_users, touched_items = (
        np.union1d(back[column[out]], side.numbers(names)).astype(np.int64)
        for back, column, side, names in (
            (new_user, corpus.user, users, added.users),
            (new_item, corpus.item, items, added.items),
        )
    )
    touched_users, touched_items = (touched[touched >= 0] for touched in (touched_users, touched_items))
    words = _known_words(corpus, texts, np.flatnonzero(out)) if forget_user is not None else _all_words(corpus)
    vocabulary = Vocabulary([corpus.vocabulary.words[word - 1] for word in words[1:]], np.zeros(0, np.int32))
    new_word = _inverse(words, len(corpus.vocabulary) + 1)
    record = np.where(out, NOWHERE, np.cumsum(~out) - 1)
    new = np.arange(len(user)) >= (~out).sum()
    lost_user, lost_item = (
        _marked(back[column[out]], len(side.column))
        for back, column, side in ((new_user, corpus.user, users), (new_item, corpus.item, items))
    )
    read = np.flatnonzero((part == TRAIN) & (new | lost_user[user] | lost_item[item]))
    rewriting = _Rewriting(_WordsOf.records(read, texts, vocabulary), new, corpus.max_words, corpus.cut, new_word)
    revised = replace(
        corpus,
        users=users.column,
        items=items.column,
        texts=texts,
        user=user,
        item=item,
        rating=np.concatenate([corpus.rating[~out], np.asarray(added.stars, np.float32)]),
        part=part,
        vocabulary=vocabulary,
        user_documents=rewriting.documents(corpus.user_documents, users.old, record, user, lost_user),
        item_documents=rewriting.documents(corpus.item_documents, items.old, record, item, lost_item),
        item_texts=_item_texts(
            corpus.item_texts, len(items.column), dict(zip(added.items, added.titles, strict=False)), items
        ),
        reviews=None,
        time=_times(corpus.time, ~out, added),
    )
    revised = replace(revised, facts={**corpus.facts, "fingerprint": _fingerprint(revised)})
    return RevisedCorpus(revised, Renumbering(users.old, items.old, words), touched_users, touched_items)


def _times(known: NDArray[np.int64] | None, stay: NDArray[np.bool_], added: AddedReviews) -> NDArray[np.int64] | None:
    """When each review was written, those that stay first; None where nobody knows of any."""
    given = added.times or [None] * len(added)
    new = np.array([NO_TIME if time is None else time for time in given], dtype=np.int64)
    if known is None and not (new >= 0).any():
        return None
    before = np.full(int(stay.sum()), NO_TIME) if known is None else known[stay]
    times: NDArray[np.int64] = np.clip(np.concatenate([before, new]), NO_TIME, LATEST).astype(np.int64)
    return times


class _Names(NamedTuple):
    """Ids after a revision, and the old number of each."""

    column: StringColumn
    old: Places

    def numbers(self, names: Sequence[str]) -> Places:
        index = self.column.index() if names else {}
        return np.array([index[name] for name in names], dtype=np.int64)


def _names(known: StringColumn, more: Sequence[str], without: int | None) -> _Names:
    index = known.index() if more else {}
    new = [name for name in dict.fromkeys(more) if name not in index]
    stay = np.arange(len(known)) != (NOWHERE if without is None else without)
    old = np.concatenate([np.flatnonzero(stay), np.full(len(new), NOWHERE)]).astype(np.int64)
    return _Names(_joined(known, stay, new), old)


def _joined(column: StringColumn, stay: NDArray[np.bool_], more: Sequence[str]) -> StringColumn:
    """The strings that stay, then those that come; no byte of the others is left."""
    sizes = np.diff(column.offsets)
    new = StringColumn.from_strings(more)
    kept = np.asarray(column.data)[np.repeat(stay, sizes)]
    ends = np.cumsum(np.concatenate([sizes[stay], np.diff(new.offsets)]))
    return StringColumn(
        np.concatenate([kept, new.data]), np.concatenate([np.zeros(1, np.int64), ends]).astype(np.int64)
    )


def _inverse(old: Places, count: int) -> Places:
    """The new number of each old entry, -1 where it has gone.

    >>> _inverse(np.array([0, 2, -1]), 3).tolist()
    [0, -1, 1]
    """
    new = np.full(count, NOWHERE)
    new[old[old >= 0]] = np.flatnonzero(old >= 0)
    return new


def _all_words(corpus: FittedCorpus) -> Places:
    return np.arange(len(corpus.vocabulary) + 1)


def _known_words(corpus: FittedCorpus, texts: StringColumn, gone: Places) -> Places:
    """The words that stay: all but those that nobody else has written."""
    theirs = {word for record in gone for word in corpus.vocabulary.encode(corpus.texts[int(record)])[0]}
    others = ~np.isin(corpus.item_documents.review, gone)
    rare = theirs - set(np.unique(corpus.item_documents.words[others]).tolist())  # the rest need not be looked for
    wanted = {corpus.vocabulary.words[word - 1]: word for word in rare}
    for text in texts:
        if not wanted:
            break
        for word in tokenise(text)[0]:
            wanted.pop(word, None)
    return np.setdiff1d(_all_words(corpus), np.array(list(wanted.values()), dtype=np.int64))


class _WordsOf(NamedTuple):
    """The words of some records, one record after the other."""

    words: NDArray[np.int32]
    review: NDArray[np.int32]
    characters: NDArray[np.int32]

    @staticmethod
    def records(records: Places, texts: StringColumn, vocabulary: Vocabulary) -> _WordsOf:
        words, text, characters = vocabulary.encode_many([texts[record].encode() for record in records.tolist()])
        return _WordsOf(words, records[text].astype(np.int32), characters)

    def where(self, chosen: NDArray[np.bool_]) -> _WordsOf:
        return _WordsOf(self.words[chosen], self.review[chosen], self.characters[chosen])


@dataclass(frozen=True)
class _Rewriting:
    """Makes documents of one side.

    New reviews come last, and a document holds its first words: so it goes on from what it was. Only where a review
    went, words may come back that had no room, and the document is made of its texts again.
    """

    read: _WordsOf  # of the records whose texts are needed
    new: NDArray[np.bool_]  # [records] which of them came in
    max_words: int
    cut: ReviewCut | None
    new_word: Places

    def documents(
        self,
        before: Documents,
        old_owner: Places,
        record: Places,
        owner_of_record: NDArray[np.int32],
        lost: NDArray[np.bool_],
    ) -> Documents:
        """The documents of now; `lost` says whose reviews went."""
        owner = np.repeat(_inverse(old_owner, len(before)), before.lengths())
        stays = (owner >= 0) & ~lost[owner]
        more = self.read.where(self.new[self.read.review] | lost[owner_of_record[self.read.review]])
        words = np.concatenate([self.new_word[before.words[stays]].astype(np.int32), more.words])
        review = np.concatenate([record[before.review[stays]].astype(np.int32), more.review])
        characters = np.concatenate([before.characters[stays], more.characters])
        owners = np.concatenate([owner[stays].astype(np.int32), owner_of_record[more.review]])
        return collected(words, review, characters, owners, len(old_owner), max_words=self.max_words, cut=self.cut)


def _marked(places: Places, size: int) -> NDArray[np.bool_]:
    """Which of so many are among the places; those that are nowhere mark nothing."""
    marked = np.zeros(size, dtype=bool)
    marked[places[places >= 0]] = True
    return marked


def _item_texts(known: ItemTexts | None, count: int, titles: dict[str, str | None], items: _Names) -> ItemTexts | None:
    """What is known of all things; new ones have the title that their reviews say, if any."""
    if known is None:
        return None
    if len(known) == count:
        return known
    texts = [
        ItemText(known.titles[n], tuple(known.categories_of(n)), known.descriptions[n], known.pictures[n])
        for n in range(len(known))
    ]
    new = [items.column[number] for number in range(len(known), count)]
    return ItemTexts.of([*texts, *(ItemText(titles.get(name) or "") for name in new)])


def _fingerprint(corpus: FittedCorpus) -> str:
    whole = hashlib.sha256()
    for column in (corpus.users.data, corpus.items.data, corpus.texts.data, corpus.user, corpus.item, corpus.rating):
        whole.update(np.ascontiguousarray(column).tobytes())
    return whole.hexdigest()
