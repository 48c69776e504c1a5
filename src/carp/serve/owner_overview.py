"""What an owner asks first: praise and complaints by aspect, things at risk, things loved by few, people who left."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.explain.kept_readings import LastUsed
from carp.explain.reading_guide import ReadingGuide
from carp.reviews.split_parts import TRAIN
from carp.serve.problems import Problem
from carp.serve.read_sentences import Ints, SentenceReader, SentencesRead
from carp.serve.thing_facts import ThingFacts
from carp.training.fitted_corpus import FittedCorpus

MOST_READ = 1_500  # reviews, evenly spread, whose sentences are read for the aspects
MOST_SHOWN = 10  # lines of each list
SENTENCES = 2  # of each line
MOST_OF_ONE = 30  # reviews of one thing that are read, evenly spread
ENOUGH_REVIEWS = 5  # of a thing at risk
FEWEST_OF_LOVED = 3  # reviews of a thing that is loved by few
FEWEST_OF_LEFT = 3  # reviews of somebody who left
SURE = 1.64  # standard errors: one in twenty would be so by chance
DAY = 86_400
QUIET_DAYS = 180  # without a review before somebody counts as gone
QUIET_TIMES = 4  # as long as they usually wait between two reviews
READ_AT_ONCE = 25  # reviews in one step, while nobody asks
KEPT = 20  # overviews of periods that are remembered
CSV_COLUMNS = ("list", "id", "title", "reviews", "average", "what", "sentence", "sentence_by", "sentence_about")
Row = dict[str, Any]


@dataclass(frozen=True)
class Period:
    """Days from the first to the last, both included; None: no limit."""

    since: str | None = None
    until: str | None = None

    def mask(self, time: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which moments lie in it; those nobody knows do only where there is no limit."""
        inside = np.ones(len(time), bool)
        if self.since is not None:
            inside &= time >= _moment(self.since)
        if self.until is not None:
            inside &= (time >= 0) & (time < _moment(self.until) + DAY)
        return inside

    @property
    def limited(self) -> bool:
        return self.since is not None or self.until is not None


class OwnerOverview:
    """Overviews of the training reviews of one corpus; what was read stays in memory."""

    def __init__(self, corpus: FittedCorpus, guide: Callable[[], ReadingGuide], facts: ThingFacts) -> None:
        self.corpus, self.facts = corpus, facts
        self._guide = guide
        self._reader: SentenceReader | None = None
        self._kept: LastUsed[Row] = LastUsed(KEPT)

    @property
    def reader(self) -> SentenceReader:
        if self._reader is None:
            self._reader = SentenceReader(self.corpus, self._guide())
        return self._reader

    def warming(self) -> Iterator[None]:
        """Read what the overview of all reviews rests on, a little at each step."""
        chosen = _spread(np.flatnonzero(self.corpus.part == TRAIN), MOST_READ)
        for start in range(0, len(chosen), READ_AT_ONCE):
            self.reader.read(chosen[start : start + READ_AT_ONCE])
            yield
        tally = _Tally.of(self.corpus, np.flatnonzero(self.corpus.part == TRAIN))
        for item, _ in [*self._most_reviewed(tally), *self._at_risk(tally), *self._loved(tally)]:
            self.reader.read(_spread(tally.records_of(item), MOST_OF_ONE))
            yield

    def overview(self, since: str | None = None, until: str | None = None) -> Row:
        """All lists, of the reviews in a period."""
        return self._kept.get((since, until), lambda: self._made(since, until))

    def _made(self, since: str | None, until: str | None) -> Row:
        corpus, period = self.corpus, Period(since, until)
        if period.limited and corpus.time is None:
            what = "the reviews of this model have no dates"
            fix = "leave since and until out, or train from reviews with dates"
            raise Problem(409, what, fix=fix, kind="no-dates")
        train = np.flatnonzero(corpus.part == TRAIN)
        records = train if corpus.time is None else train[period.mask(corpus.time[train])]
        held = int(len(corpus.part) - len(train))
        read = self.reader.read(_spread(records, MOST_READ))
        praised, complained = self._aspects(read)
        tally = _Tally.of(corpus, records)
        return {
            "reviews": len(records),
            "held_back": held,
            "read": len(np.unique(read.record)),
            "mean": None if not len(records) else corpus.own_rating(float(corpus.rating[records].mean())),
            "dates": self._dates(train),
            "praised": praised,
            "complained": complained,
            "most_reviewed": self._things(self._most_reviewed(tally), tally, -1),
            "at_risk": self._things(self._at_risk(tally), tally, -1),
            "loved_by_few": self._things(self._loved(tally), tally, 1),
            "left": self._left(records, period) if corpus.time is not None else None,
        }

    def _dates(self, records: Ints) -> Row | None:
        if self.corpus.time is None:
            return None
        time = self.corpus.time[records]
        known = time[time >= 0]
        if not len(known):
            return None
        return {"first": _day(int(known.min())), "last": _day(int(known.max())), "undated": int((time < 0).sum())}

    # ---- aspects

    def _aspects(self, read: SentencesRead) -> tuple[list[Row], list[Row]]:
        reviews = max(len(np.unique(read.record)), 1)
        names = self.reader.guide.aspects.names[:-1]
        clear = self.reader.guide.clear_tone
        lists = []
        for sign in (1, -1):
            said = read.saying(sign, clear)
            rows = [self._aspect(read, said, a, name, sign, reviews) for a, name in enumerate(names)]
            rows = [row for row in rows if row["sentences"]]
            lists.append(sorted(rows, key=lambda row: -row["reviews"])[:MOST_SHOWN])
        return lists[0], lists[1]

    def _aspect(
        self, read: SentencesRead, said: NDArray[np.bool_], aspect: int, name: str, sign: int, reviews: int
    ) -> Row:
        among = said & (read.aspect == aspect)
        saying = len(np.unique(read.record[among]))
        sentences = self.reader.best(read, among, sign, SENTENCES + 1)
        return {"name": name, "reviews": saying, "share": saying / reviews, "sentences": sentences}

    # ---- things

    def _most_reviewed(self, tally: _Tally) -> list[tuple[int, str]]:
        return [(item, "") for item in _first(-tally.count, MOST_SHOWN // 2) if tally.count[item]]

    def _at_risk(self, tally: _Tally) -> list[tuple[int, str]]:
        """Things with enough reviews whose average is clearly below that of all, or whose newer half is clearly below
        the older one; those that most reviews speak of first."""
        enough = tally.count >= ENOUGH_REVIEWS
        below = np.where(enough & (tally.mean + SURE * tally.error < tally.overall), tally.overall - tally.mean, 0.0)
        fall = np.where(enough & (tally.older - tally.newer > SURE * 2 * tally.error), tally.older - tally.newer, 0.0)
        worth = tally.count * np.maximum(below, fall)
        return [
            (item, self._risk_words(item, tally, float(fall[item]), float(below[item])))
            for item in _first(-worth, MOST_SHOWN)
            if worth[item] > 0
        ]

    def _risk_words(self, item: int, tally: _Tally, fall: float, below: float) -> str:
        own = self.corpus.own_rating
        words = []
        if fall > 0:
            older, newer = own(float(tally.older[item])), own(float(tally.newer[item]))
            words.append(f"its newer reviews give it {newer:.1f}, its older ones {older:.1f}")
        if below > 0:
            mean, overall = own(float(tally.mean[item])), own(tally.overall)
            words.append(f"rated {mean:.1f} on average, where all things together get {overall:.1f}")
        return "; ".join(words)

    def _loved(self, tally: _Tally) -> list[tuple[int, str]]:
        """Things with no more reviews than most whose average is clearly above that of all."""
        middle = float(np.median(tally.count[tally.count > 0])) if (tally.count > 0).any() else 0.0
        few = (tally.count >= FEWEST_OF_LOVED) & (tally.count <= middle)
        bound = np.where(few, tally.mean - SURE * tally.error, -np.inf)
        words = "few know it, and they rate it {mean:.1f} on average"
        return [
            (item, words.format(mean=self.corpus.own_rating(float(tally.mean[item]))))
            for item in _first(-bound, MOST_SHOWN)
            if bound[item] > tally.overall
        ]

    def _things(self, chosen: list[tuple[int, str]], tally: _Tally, sign: int) -> list[Row]:
        return [self._thing(item, tally, sign, why) for item, why in chosen]

    def _thing(self, item: int, tally: _Tally, sign: int, why: str) -> Row:
        records = _spread(tally.records_of(item), MOST_OF_ONE)
        read = self.reader.read(records)
        said = read.saying(sign, self.reader.guide.clear_tone)
        return {
            "item": self.corpus.items[item],
            "title": self.corpus.title(item),
            "facts": self.facts.brief(item),
            "reviews": int(tally.count[item]),
            "mean": self.corpus.own_rating(float(tally.mean[item])) if tally.count[item] else None,
            "why": why,
            "sentences": self.reader.best(read, said, sign, SENTENCES),
        }

    # ---- people

    def _left(self, records: Ints, period: Period) -> list[Row]:
        """People whose last review is long ago and was worse than their others; the most disappointed first."""
        corpus = self.corpus
        assert corpus.time is not None
        dated = records[corpus.time[records] >= 0]
        if not len(dated):
            return []
        now = int(corpus.time[dated].max()) if period.until is None else _moment(period.until)
        dated = dated[np.lexsort((corpus.time[dated], corpus.user[dated]))]
        found = []
        for own in np.split(dated, np.flatnonzero(np.diff(corpus.user[dated])) + 1):
            time, stars = corpus.time[own], corpus.rating[own]
            if len(own) < FEWEST_OF_LEFT:
                continue
            usual = float(np.median(np.diff(time)))
            quiet = now - int(time[-1])
            worse = float(stars[:-1].mean() - stars[-1])
            if quiet >= max(QUIET_DAYS * DAY, QUIET_TIMES * usual) and worse > 0:
                found.append((worse * np.sqrt(len(own)), own, quiet // DAY))
        found.sort(key=lambda one: -one[0])
        return [self._gone(own, int(days)) for _, own, days in found[:MOST_SHOWN]]

    def _gone(self, own: Ints, days: int) -> Row:
        corpus = self.corpus
        assert corpus.time is not None
        last, usual = int(own[-1]), corpus.own_rating(float(corpus.rating[own[:-1]].mean()))
        read = self.reader.read(own[-1:])
        sentences = self.reader.best(read, read.saying(-1, self.reader.guide.clear_tone), -1, SENTENCES)
        given = corpus.own_rating(float(corpus.rating[last]))
        item = int(corpus.item[last])
        return {
            "user": corpus.users[int(corpus.user[last])],
            "item": corpus.items[item],
            "title": corpus.title(item),
            "reviews": len(own),
            "mean": corpus.own_rating(float(corpus.rating[own].mean())),
            "last": _day(int(corpus.time[last])),
            "why": f"nothing for {days:,} days; the last rating was {given:.1f}, and {usual:.1f} was usual before",
            "sentences": sentences,
        }


@dataclass(frozen=True, eq=False)
class _Tally:
    """How things were rated, in stars, by their numbers; nan where nobody rated one."""

    count: NDArray[np.int64]
    mean: NDArray[np.float64]
    error: NDArray[np.float64]  # standard error of the mean
    older: NDArray[np.float64]  # mean of the older half, where dates are known
    newer: NDArray[np.float64]
    overall: float
    order: Ints  # records by thing, in order of time where it is known
    starts: Ints

    @staticmethod
    def of(corpus: FittedCorpus, records: Ints) -> _Tally:
        items = len(corpus.items)
        time = np.zeros(len(records), np.int64) if corpus.time is None else corpus.time[records]
        order = records[np.lexsort((time, corpus.item[records]))]
        item, stars = corpus.item[order], corpus.rating[order].astype(np.float64)
        count = np.bincount(item, minlength=items)
        starts = np.concatenate([[0], np.cumsum(count)])
        mean = np.bincount(item, stars, items) / np.maximum(count, 1)
        spread = float(np.sqrt(np.square(stars - mean[item]).mean())) if len(stars) else 0.0
        within = np.arange(len(order)) - starts[item]
        newer = within >= (count[item] + 1) // 2
        dated = corpus.time is not None
        before, after = (_mean_of(item[half], stars[half], items, known=dated) for half in (~newer, newer))
        error = spread / np.sqrt(np.maximum(count, 1))
        overall = float(stars.mean()) if len(stars) else 0.0
        return _Tally(count, mean, error, before, after, overall, order, starts)

    def records_of(self, item: int) -> Ints:
        return self.order[self.starts[item] : self.starts[item + 1]]


def _mean_of(item: NDArray[np.int32], stars: NDArray[np.float64], items: int, *, known: bool) -> NDArray[np.float64]:
    """The mean of each thing; 0 for all where the order of the reviews is not known."""
    if not known:
        return np.zeros(items)
    return np.asarray(np.bincount(item, stars, items) / np.maximum(np.bincount(item, minlength=items), 1))


def _first(order: NDArray[Any], most: int) -> list[int]:
    return [int(place) for place in np.argsort(order, kind="stable")[:most]]


def _spread(records: Ints, most: int) -> Ints:
    """So many of the records at most, evenly spread."""
    return records if len(records) <= most else records[np.linspace(0, len(records) - 1, most).astype(np.int64)]


def _moment(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


def _day(time: int) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d")


# ---- as a table


def overview_csv(found: Row) -> str:
    """The lists as one table, a row for each sentence; a line without a sentence has one row too."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(CSV_COLUMNS)
    for cells in _table_rows(found):
        writer.writerow([_harmless(cell) for cell in cells])
    return out.getvalue()


def _table_rows(found: Row) -> Iterator[list[Any]]:
    for kind in ("praised", "complained", "most_reviewed", "at_risk", "loved_by_few", "left"):
        for row in found[kind] or []:
            name = row.get("user") or row.get("item") or row["name"]
            mean = "" if row.get("mean") is None else f"{row['mean']:.2f}"
            what = row.get("why") or (f"{row['share']:.0%} of the reviews read" if "share" in row else "")
            start = [kind.replace("_", " "), name, row.get("title") or "", row["reviews"], mean, what]
            for one in row["sentences"] or [None]:
                yield [*start, *(["", "", ""] if one is None else [one.text, one.user or "", one.item or ""])]


def _harmless(cell: Any) -> Any:
    """A spreadsheet takes a cell that begins so for a formula; a quote before it makes it text.

    >>> _harmless("=1+1"), _harmless("fine"), _harmless(3)
    ("'=1+1", 'fine', 3)
    """
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
