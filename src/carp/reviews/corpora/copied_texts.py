"""Texts that were pasted: exact copies by one person, and texts that are the same but for a few words.

A copied text says its own rating: whoever has seen the copy in training knows the answer. So exact copies by one person
are dropped unless asked otherwise, and all other copies and near-copies stay on one side of every split.

Near-copies are found by minhashing: each text is reduced to a few keys, made of the smallest hashes of its triples of
words. Texts that share a key are compared; those that share most of their triples are near-copies.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.errors import UsageError, nearest
from carp.reviews.corpora.string_column import let_go
from carp.reviews.text.tokens import Tokens, has_word

DROP, GROUP, KEEP = COPY_RULES = ("drop", "group", "keep")
NO_WORD_MARK, SHORT_MARK = 0, 1  # instead of a mark: the text has no word, or is too short to be a copy
SHORTEST_COPY = 20  # characters; many people write "Great product!" twice without pasting it
SHORTEST_NEAR_COPY = 10  # words
PAIRS_AT_ONCE = 100  # compared before their pages are let go
SAME_SHARE = 0.8  # of the triples of two near-copies
KEYS, HASHES = 3, 3  # of each text, and those that make a key
_TRIPLE = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_TURNS = np.random.default_rng(3).integers(1, 1 << 63, KEYS * HASHES, dtype=np.uint64) * np.uint64(2) + np.uint64(1)

Marks = NDArray[np.uint64]
Groups = NDArray[np.int32]


class CopiesFound(NamedTuple):
    """The texts of a corpus that are alike."""

    group: Groups | None  # [N] the number of each record's group, -1 where its text is alone; None if all are
    exact: int  # records whose text is that of an earlier record
    near: int  # records whose text is nearly that of an earlier record

    def facts(self, rule: str) -> dict[str, Any]:
        """What to note of them."""
        groups = 0 if self.group is None else int(self.group.max()) + 1
        return {"rule": rule, "exact": self.exact, "near": self.near, "groups": groups}


def check_copy_rule(rule: str) -> None:
    if rule not in COPY_RULES:
        raise UsageError(f"there is no rule {rule!r} for copies", fix=nearest(rule, COPY_RULES))


def text_marks(texts: Iterable[str]) -> Marks:
    """A number for each text, the same for the same text whatever the white space around it.

    >>> text_marks([" I like it very much.", "I like it very much.", "Great!", "..."])[1:].tolist()[1:]
    [1, 0]
    """
    return np.fromiter(map(_mark, texts), np.uint64)


def _mark(text: str) -> int:
    if not has_word(text):
        return NO_WORD_MARK
    plain = text.strip()
    if len(plain) < SHORTEST_COPY:
        return SHORT_MARK
    return int.from_bytes(blake2b(plain.encode("utf-8", "replace"), digest_size=8).digest()) | 2


def repeats_of_one_person(user: NDArray[np.int64], mark: Marks, time: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which records have the text of an earlier record of the same person. Without a date, the file's order counts."""
    undated_last = np.where(time < 0, np.iinfo(np.int64).max, time)
    order = np.lexsort((undated_last, mark, user))
    same = (
        (user[order][1:] == user[order][:-1]) & (mark[order][1:] == mark[order][:-1]) & (mark[order][1:] > SHORT_MARK)
    )
    repeated = np.zeros(len(user), dtype=bool)
    repeated[order[1:][same]] = True
    return repeated


def near_copy_keys(tokens: Tokens) -> Marks:
    """For each text the keys that near-copies of it probably share; zeros if it is too short. [texts, KEYS]"""
    sizes = np.diff(tokens.offsets)
    keys = np.zeros((len(sizes), KEYS), np.uint64)
    long = np.flatnonzero(sizes >= SHORTEST_NEAR_COPY)
    if not len(long):
        return keys
    triples, begins = _triples(tokens, long, sizes[long] - 2)
    smallest = [np.minimum.reduceat(triples * turn, begins) for turn in _TURNS]
    for key in range(KEYS):
        mixed = np.zeros(len(long), np.uint64)
        for one in smallest[key * HASHES : (key + 1) * HASHES]:
            mixed = (mixed ^ one) * _TRIPLE[0]
        keys[long, key] = mixed | np.uint64(1)
    return keys


def _triples(tokens: Tokens, texts: NDArray[np.int64], sizes: NDArray[np.int64]) -> tuple[Marks, NDArray[np.int64]]:
    """The hashes of all triples of consecutive words of some texts, end to end, and where each text begins."""
    hashes = np.fromiter((zlib.crc32(word.encode()) for word in tokens.words), np.uint64, len(tokens.words))
    begins = np.cumsum(sizes) - sizes
    places = np.arange(int(sizes.sum())) + np.repeat(tokens.offsets[texts] - begins, sizes)
    each = [hashes[tokens.tokens[places + step]] * _TRIPLE[step] for step in range(3)]
    mixed = (each[0] + each[1]) ^ each[2]
    mixed ^= mixed >> np.uint64(32)
    return mixed * _TRIPLE[1], begins


class CutWords(NamedTuple):
    """What is compared of the texts: their words as numbers."""

    offsets: NDArray[np.int64]
    tokens: NDArray[np.int32]

    def triples(self, record: int) -> set[tuple[Any, ...]]:
        words = np.asarray(self.tokens[self.offsets[record] : self.offsets[record + 1]]).tolist()
        return set(zip(words, words[1:], words[2:], strict=False))

    def alike(self, one: int, other: int) -> bool:
        ours, theirs = self.triples(one), self.triples(other)
        return len(ours & theirs) >= SAME_SHARE * len(ours | theirs)

    def all_alike(self, pairs: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        """The pairs that are alike; of the words in a file, few are kept in memory."""
        found: list[Sequence[int]] = []
        for first in range(0, len(pairs), PAIRS_AT_ONCE):
            found += [pair for pair in pairs[first : first + PAIRS_AT_ONCE] if self.alike(*pair)]
            let_go(self.tokens)
        return found


def find_copies(user: NDArray[np.integer[Any]], mark: Marks, keys: Marks, words: CutWords) -> CopiesFound:
    """The groups of records whose texts are copies or near-copies of each other."""
    by_person = user.astype(np.uint64) * _TRIPLE[0] ^ mark
    person = _neighbours(np.where(mark > SHORT_MARK, by_person, 0))
    likely = np.unique(np.concatenate([_neighbours(keys[:, key]) for key in range(KEYS)]), axis=0)
    same = mark[likely[:, 0]] == mark[likely[:, 1]]
    near = words.all_alike(likely[~same].tolist())
    exact = np.concatenate([person, likely[same]])
    if not len(exact) and not near:
        return CopiesFound(None, 0, 0)
    pairs = np.concatenate([exact, np.array(near, np.int64).reshape(-1, 2)])
    group = _joined_groups(pairs, len(user))
    later_exact = len(np.unique(exact[:, 1]))
    grouped = group >= 0
    return CopiesFound(group, later_exact, int(grouped.sum()) - len(np.unique(group[grouped])) - later_exact)


def _neighbours(key: Marks) -> NDArray[np.int64]:
    """Each record with the next one that has the same key. [pairs, 2]"""
    there = np.flatnonzero(key)
    order = there[np.argsort(key[there], kind="stable")]
    same = key[order][1:] == key[order][:-1]
    return np.stack([order[:-1][same], order[1:][same]], axis=1)


def _joined_groups(pairs: NDArray[np.int64], records: int) -> Groups:
    """A number for each set of records that pairs connect, in order of appearance; -1 for records without a pair."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    paired, ends = np.unique(pairs, return_inverse=True)
    first, second = ends.reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(first), np.int8), (first, second)), shape=(len(paired), len(paired)))
    labels = connected_components(graph, directed=False)[1]
    seen = np.unique(labels, return_index=True)[1]
    rank = np.empty(len(seen), np.int32)
    rank[np.argsort(seen)] = np.arange(len(seen))
    group = np.full(records, -1, np.int32)
    group[paired] = rank[labels]
    return group


def whole_groups(part: NDArray[np.int8], group: Groups | None) -> NDArray[np.int8]:
    """The parts of a split, with every group of copies that was divided in training."""
    if group is None:
        return part
    divided = divided_groups(part, group)
    return np.where(np.isin(group, divided), np.int8(0), part).astype(np.int8)


def divided_groups(part: NDArray[np.int8], group: Groups) -> Groups:
    """The numbers of the groups that have records in more than one part."""
    inside = np.flatnonzero(group >= 0)
    pairs = np.unique(np.stack([group[inside], part[inside].astype(np.int32)], axis=1), axis=0)
    numbers, parts = np.unique(pairs[:, 0], return_counts=True)
    return np.asarray(numbers[parts > 1], np.int32)
