"""Which of the reviews that were read come into a model: cleaned as a corpus is, and not known already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.cleaning import CorpusRules, DaysKept, kept_records, sources_of
from carp.reviews.corpora.copied_texts import DROP, SHORT_MARK, text_marks
from carp.reviews.corpora.records import columns_of_reviews
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.ledger import Reviews
from carp.training.fitted_corpus import FittedCorpus
from carp.upkeep.revised_corpus import AddedReviews

CLEANED = ("wordless", "duplicates", "copies", "days")  # what is counted of an update; its people may be rare


class NewReviews(NamedTuple):
    """The reviews that come in, and what became of the others."""

    added: AddedReviews
    replaced: list[int]  # records whose place they take
    known_already: int  # word for word
    dropped: dict[str, int]  # by reason, as of a corpus


def new_reviews(corpus: FittedCorpus, reviews: Reviews, days: DaysKept | None = None) -> NewReviews:
    """What is new in these reviews, after the rules by which the corpus of the model was cleaned."""
    copies = corpus.facts["corpus"].get("copies", {}).get("rule", DROP)
    records = columns_of_reviews(reviews, sources_of(reviews))
    kept, counts = kept_records(reviews, records, CorpusRules(min_reviews=1, copies=copies, days=days))
    dropped = {reason: counts[reason] for reason in CLEANED if reason in counts}
    old = _records_of_pairs(corpus, reviews, kept)
    stars = _stars(corpus, reviews, kept)
    same = np.array(
        [
            record >= 0 and corpus.texts[record] == reviews.texts[row] and abs(corpus.rating[record] - star) < 1e-4
            for row, record, star in zip(kept.tolist(), old, stars.tolist(), strict=True)
        ],
        dtype=bool,
    )
    pasted = _pasted(corpus, reviews, kept, old) & ~same if copies == DROP else np.zeros(len(kept), dtype=bool)
    dropped["copies"] += int(pasted.sum())
    new = np.flatnonzero(~same & ~pasted).tolist()
    titles: Sequence[str | None] = reviews.titles or [None] * len(reviews)
    rows = [
        (reviews.users[row], reviews.items[row], stars[place], reviews.texts[row], titles[row], reviews.times[row])
        for place, row in ((place, int(kept[place])) for place in new)
    ]
    added = AddedReviews(*zip(*rows, strict=True)) if rows else AddedReviews()
    return NewReviews(added, [old[place] for place in new if old[place] >= 0], int(same.sum()), dropped)


def _stars(corpus: FittedCorpus, reviews: Reviews, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    scale = RatingScale(corpus.scale.low, corpus.scale.high, clip=False, origin="the model")
    return scale.to_stars(reviews.ratings, corpus.levels)[rows]


def _records_of_pairs(corpus: FittedCorpus, reviews: Reviews, rows: NDArray[np.int64]) -> list[int]:
    """For each review the record of the same person and thing that the model has, or -1."""
    users, items = corpus.users.index(), corpus.items.index()
    pairs = [(users.get(reviews.users[row], -1), items.get(reviews.items[row], -1)) for row in rows.tolist()]
    records: list[int] = corpus.record_of_pair.find(*np.array(pairs, dtype=np.int64).reshape(-1, 2).T).tolist()
    return records


def _pasted(corpus: FittedCorpus, reviews: Reviews, rows: NDArray[np.int64], old: list[int]) -> NDArray[np.bool_]:
    """Which reviews are copies of what the same person wrote of another thing that the model knows."""
    index = corpus.users.index()
    users = [index.get(reviews.users[row], -1) for row in rows.tolist()]
    theirs = np.flatnonzero(np.isin(corpus.user, np.unique(users)))
    theirs = np.setdiff1d(theirs, old)  # a record that is replaced says nothing against what replaces it
    marks = text_marks(corpus.texts[record] for record in theirs.tolist()).tolist()
    known = set(zip(corpus.user[theirs].tolist(), marks, strict=True))
    here = text_marks(reviews.texts[row] for row in rows.tolist()).tolist()
    found = [mark > SHORT_MARK and (user, mark) in known for user, mark in zip(users, here, strict=True)]
    return np.array(found, dtype=bool)
