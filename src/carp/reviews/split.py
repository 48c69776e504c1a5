"""Which records are for training, validation and test: by the paper's rule with a seed, by the user's own split, or by
time."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from carp.errors import CarpWarning, InputError
from carp.reviews.corpora.copied_texts import divided_groups, whole_groups
from carp.reviews.sources.addresses import bytes_of
from carp.reviews.split_by_time import TimeRule
from carp.reviews.split_parts import SPLIT_NAMES, TEST, TRAIN, VALID
from carp.shown_addresses import shown_address
from carp.storage import shown_path

if TYPE_CHECKING:
    from carp.reviews.corpora.corpus import Corpus

SplitRow = tuple[str, str, str]  # user, item, part
FEWEST = 10  # reviews that can be split at all


@dataclass(frozen=True)
class Split:
    """The part of every record of a corpus."""

    part: NDArray[np.int8]  # [N], TRAIN, VALID or TEST
    origin: str  # "80:20, seed 0" or where the user's own split came from

    def all_in_training(self) -> Split:
        """The same records, none held out: to fit for use, after everything is chosen."""
        return Split(np.zeros_like(self.part), f"all reviews, none held out (chosen on {self.origin})")

    def records(self, part: int) -> NDArray[np.int64]:
        return np.flatnonzero(self.part == part)

    @property
    def train(self) -> NDArray[np.int64]:
        return self.records(TRAIN)

    @property
    def valid(self) -> NDArray[np.int64]:
        return self.records(VALID)

    @property
    def test(self) -> NDArray[np.int64]:
        return self.records(TEST)


def split_corpus(
    corpus: Corpus, *, seed: int = 0, own: Path | str | Sequence[SplitRow] | TimeRule | None = None
) -> Split:
    """The split to use: the user's own, or the column of the corpus, or the paper's rule with this seed."""
    if isinstance(own, Path | str):
        return split_from_file(corpus, own)
    if isinstance(own, TimeRule):
        return checked(_undivided(Split(*own.parts(corpus.user, corpus.time)), corpus.copy_group))
    if own is not None:
        rows = ((f"row {number}", row) for number, row in enumerate(own))
        return split_from_rows(corpus, rows, "the split that was given")
    if corpus.split is not None:
        own_column = Split(np.asarray(corpus.split, dtype=np.int8), "the corpus' own split column")
        return _told_of_copies(checked(own_column), corpus)
    return random_split(corpus.user, corpus.item, seed=seed, copies=corpus.copy_group)


def _undivided(split: Split, copies: NDArray[np.int32] | None) -> Split:
    """The split with all copies of a text on one side: where it divided them, all are for training."""
    part = whole_groups(split.part, copies)
    if len(np.unique(part)) == len(np.unique(split.part)):
        return Split(part, split.origin)
    return Split(split.part, f"{split.origin}; copies are on both sides, since nearly all texts are copies")


def _told_of_copies(split: Split, corpus: Corpus) -> Split:
    """The user's own split as it is, with a warning if copies of a text are on both sides."""
    divided = 0 if corpus.copy_group is None else len(divided_groups(split.part, corpus.copy_group))
    if divided:
        warnings.warn(
            f"{split.origin}: {divided:,} texts have copies in more than one part, so that a model may know an "
            "answer from training. Fix: put the copies of a text into one part.",
            CarpWarning,
            stacklevel=3,
        )
    return split


def random_split(
    user: NDArray[np.int32],
    item: NDArray[np.int32],
    *,
    seed: int,
    test_share: float = 0.2,
    valid_share: float = 0.1,
    copies: NDArray[np.int32] | None = None,
) -> Split:
    """80:20, and a tenth of the training part for validation. Every user and every item occurs in training.

    One record of each user goes to training, and one of each item that is still missing there. The test and validation
    parts are drawn from the other records; their sizes are shares of all records. Where these are too few, because most
    people wrote once, records of such people are drawn too, and the origin says of how many. Copies of a text, by the
    numbers of their groups, stay together.
    """
    order = np.random.default_rng([seed, 80_20]).permutation(len(user))
    bound = _bound_to_training(user[order], item[order])
    free = order[~bound]
    test_size = round(test_share * len(user))
    valid_size = round(valid_share * (len(user) - test_size))
    if len(free) < test_size + valid_size / 2 and len(user) >= FEWEST:
        free = np.concatenate([free, _least_missed(order[bound], item, len(user))])
        test_size, valid_size = max(1, test_size), max(1, valid_size)
    test_size = min(test_size, len(free))
    part = np.full(len(user), TRAIN, dtype=np.int8)
    part[free[:test_size]] = TEST
    valid_size = min(valid_size, len(free) - test_size)
    part[free[test_size : test_size + valid_size]] = VALID
    split = _undivided(Split(part, f"80:20, seed {seed}"), copies)
    return checked(Split(split.part, split.origin + _strangers(user, item, split.part)))


def _least_missed(records: NDArray[np.int64], item: NDArray[np.int32], total: int) -> NDArray[np.int64]:
    """Records that training can spare: first those whose item has another one, then the others, all but one."""
    left = np.bincount(item)
    spared, needed = list[int](), list[int]()
    for record in records.tolist():
        (spared if left[item[record]] > 1 else needed).append(record)
        left[item[record]] -= 1
    return np.array([*spared, *needed], np.int64)[: max(0, total - 1)]


def _strangers(user: NDArray[np.int32], item: NDArray[np.int32], part: NDArray[np.int8]) -> str:
    """How many test records are of people or things that training does not have; empty if there are none."""
    train, test = part == TRAIN, part == TEST
    people, things = (int((~np.isin(column[test], column[train])).sum()) for column in (user, item))
    if not people and not things:
        return ""
    unknown = f"{people:,} are by people and {things:,} of things without training reviews"
    return f"; of {int(test.sum()):,} test reviews {unknown}"


def _bound_to_training(user: NDArray[np.int32], item: NDArray[np.int32]) -> NDArray[np.bool_]:
    bound = np.zeros(len(user), dtype=bool)
    bound[np.unique(user, return_index=True)[1]] = True
    uncovered = ~np.isin(item, item[bound])
    places = np.flatnonzero(uncovered)
    bound[places[np.unique(item[uncovered], return_index=True)[1]]] = True
    return bound


def checked(split: Split) -> Split:
    """The split, if no part is empty."""
    for name, part in (("training", TRAIN), ("validation", VALID), ("test", TEST)):
        if not len(split.records(part)):
            raise InputError(
                f"the {name} part of the split is empty ({len(split.part)} records in all)",
                where=split.origin,
                fix="give more reviews, or a split of your own that fills train, valid and test",
            )
    return split


def split_from_file(corpus: Corpus, file: Path | str) -> Split:
    """A split from a CSV with the columns user, item, split (train, valid or test). Every record needs a row."""
    rows = (
        (f"line {line}", tuple((row.get(role) or "").strip() for role in ("user", "item", "split")))
        for line, row in _rows(file)
    )
    return split_from_rows(corpus, rows, shown_address(shown_path(file)))


def split_from_rows(corpus: Corpus, rows: Iterable[tuple[str, Sequence[str]]], origin: str) -> Split:
    """A split from rows of user, item and part, each with its place in the origin. Every record needs a row."""
    known = {(int(u), int(i)): r for r, (u, i) in enumerate(zip(corpus.user, corpus.item, strict=True))}
    users, items = corpus.users.index(), corpus.items.index()
    part = np.full(len(corpus.user), -1, dtype=np.int8)
    for place, (user, item, name) in rows:
        if name.strip().lower() not in SPLIT_NAMES:
            raise InputError(
                f"{name!r} is no part of a split", where=f"{origin}, {place}", fix="write train, valid or test"
            )
        pair = users.get(user, -1), items.get(item, -1)
        if pair in known:  # rows of pairs that were dropped by preparing are ignored
            part[known[pair]] = SPLIT_NAMES[name.strip().lower()]
    missing = np.flatnonzero(part < 0)
    if len(missing):
        r = int(missing[0])
        raise InputError(
            f"{len(missing)} of {len(part)} records have no place in the split, the first is "
            f"{corpus.users[int(corpus.user[r])]}, {corpus.items[int(corpus.item[r])]}",
            where=origin,
            fix="add a line for each of them",
        )
    return _told_of_copies(checked(Split(part, origin)), corpus)


def _rows(file: Path | str) -> list[tuple[int, dict[str, str | None]]]:
    try:
        reader = csv.DictReader(io.StringIO(bytes_of(file).decode("utf-8-sig"), newline=""))
        missing = {"user", "item", "split"} - set(reader.fieldnames or ())
        if missing:
            raise InputError(
                f"the columns {', '.join(sorted(missing))} are missing",
                where=shown_address(str(file)),
                fix="give a CSV with the header user,item,split",
            )
        return [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        where = shown_address(str(file))
        raise InputError(f"cannot be read ({error})", where=where, fix="give a UTF-8 CSV file") from error
