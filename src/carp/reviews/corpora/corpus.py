"""Corpus: every review that is left after cleaning, as columns that can be larger than memory.

A corpus keeps every word; which of them a model sees is decided after the split, by a vocabulary.
"""

from __future__ import annotations

import errno
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from carp.errors import DamagedError, InputError
from carp.reviews.corpora.cleaning import facts_of, kept_records, refuse_single, sources_of
from carp.reviews.corpora.cleaning import in_core as in_core
from carp.reviews.corpora.cleaning import last_of_each_pair as last_of_each_pair
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.split_parts import SPLIT_NAMES, OnProgress
from carp.reviews.text.tokens import Tokens, join_tokens, tokenise_many
from carp.storage import CHUNK, check_folder, disk_errors, new_folder, read_json, write_json

if TYPE_CHECKING:
    from carp.reviews.rating_scale import RatingScale
    from carp.reviews.sources.ledger import Ledger, Reviews

TEXTS_AT_ONCE = 20_000
STRINGS = ("users", "items", "words", "texts")
FIX = "prepare the corpus anew, or restore it from a copy"
Records = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Reviews as columns; record r is user[r]'s review of item[r]."""

    users: StringColumn
    items: StringColumn
    words: StringColumn
    texts: StringColumn  # [N]
    user: NDArray[np.int32]  # [N]
    item: NDArray[np.int32]  # [N]
    rating: NDArray[np.float32]  # [N] from 1 to facts["levels"]
    time: NDArray[np.int64]  # [N] seconds since 1970, -1 where unknown
    split: NDArray[np.int8] | None  # [N] the data's own: 0 train, 1 valid, 2 test
    token_offsets: NDArray[np.int64]  # [N + 1]
    tokens: NDArray[np.int32]  # [T] places in words
    token_starts: NDArray[np.int32]  # [T] characters from the beginning of the text
    token_lengths: NDArray[np.uint8]  # [T] characters
    facts: dict[str, Any]

    def __len__(self) -> int:
        return len(self.user)

    def __repr__(self) -> str:
        return f"<Corpus: {len(self):,} reviews by {len(self.users):,} users of {len(self.items):,} items>"

    def text(self, record: int) -> str:
        return self.texts[record]

    def review_words(self, record: int) -> list[str]:
        tokens = self.tokens[self.token_offsets[record] : self.token_offsets[record + 1]]
        return [self.words[word] for word in tokens.tolist()]

    def tokens_of(self, records: Records) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The tokens of some records, end to end, each with the place of its record among those asked for."""
        offsets = np.asarray(self.token_offsets)
        sizes = offsets[records + 1] - offsets[records]
        place = np.repeat(np.arange(len(records)), sizes)
        step = np.arange(len(place)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return place, np.asarray(self.tokens)[offsets[records][place] + step]

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, StringColumn):
                arrays |= {field.name: value.data, f"{field.name}_offsets": value.offsets}
            elif isinstance(value, np.ndarray):
                arrays[field.name] = value
        return arrays

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 sum over all columns: the same for the same content, saved or not."""
        total = hashlib.sha256()
        for name, array in self._arrays().items():
            total.update(_heading(name, array.dtype, array.shape))
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()

    def save(self, folder: Path | str, *, overwrite: bool = False, ledger: Ledger | None = None) -> None:
        """Write the folder; with a ledger, `rejects.jsonl` in it lists every record that was refused."""
        with new_folder(folder, "corpus", overwrite=overwrite) as partial, disk_errors(Path(folder)):
            for name, array in self._arrays().items():
                save_column(partial / f"{name}.npy", array)
            write_json(partial / "corpus.json", {"fingerprint": self.fingerprint, "facts": self.facts})
            if ledger is not None:
                ledger.save(partial / "rejects.jsonl")

    @classmethod
    def load(cls, folder: Path | str, *, mmap: bool = True) -> Corpus:
        """A saved corpus, every file checked against its manifest; columns stay on the disk unless told otherwise."""
        folder = Path(folder)
        manifest = check_folder(folder, "corpus")
        missing = [name for name in cls._needed_files() if name not in manifest["files"]]
        if missing:
            raise DamagedError(f"the manifest does not name {missing[0]}", where=str(folder), fix=FIX)
        try:
            about = read_json(folder / "corpus.json")
            corpus = cls.open_columns(folder, manifest["files"], about["facts"], mmap=mmap)
            corpus.__dict__["fingerprint"] = about["fingerprint"]  # spares reading every column again
            fault = corpus._fault()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedError(f"the corpus cannot be read ({error})", where=str(folder), fix=FIX) from error
        if fault:
            raise DamagedError(f"the columns do not fit together ({fault})", where=str(folder), fix=FIX)
        return corpus

    @classmethod
    def open_columns(cls, folder: Path, files: Iterable[str], facts: dict[str, Any], *, mmap: bool = True) -> Corpus:
        """The columns that lie in a folder, as they are."""
        mode: Literal["r"] | None = "r" if mmap else None
        arrays = {
            name.removesuffix(".npy"): np.load(folder / name, mmap_mode=mode, allow_pickle=False)
            for name in files
            if name.endswith(".npy")
        }
        columns: dict[str, Any] = {
            name: StringColumn(arrays.pop(name), arrays.pop(f"{name}_offsets")) for name in STRINGS
        }
        return cls(**columns, **{"split": None, **arrays}, facts=facts)

    @classmethod
    def _needed_files(cls) -> list[str]:
        arrays = [field.name for field in fields(cls) if field.name not in ("split", "facts")]
        return ["corpus.json", *(f"{name}.npy" for name in [*arrays, *(f"{name}_offsets" for name in STRINGS)])]

    def _fault(self) -> str | None:
        """What keeps the columns from being one corpus: a length that does not follow from the others."""
        odd = next((name for name, array in self._arrays().items() if array.ndim != 1), None)
        if odd is not None:
            return f"{odd} is no plain column"
        records, tokens = len(self.user), len(self.tokens)
        expected = {name: records for name in ("item", "rating", "time", "split") if getattr(self, name) is not None}
        expected |= {"texts": records, "token_offsets": records + 1, "token_starts": tokens, "token_lengths": tokens}
        for name, length in expected.items():
            if len(getattr(self, name)) != length:
                return f"{name} has {len(getattr(self, name)):,} entries and should have {length:,}"
        ends = {name: (getattr(self, name).offsets, len(getattr(self, name).data)) for name in STRINGS}
        for name, (offsets, end) in {**ends, "tokens": (self.token_offsets, tokens)}.items():
            if len(offsets) == 0 or int(offsets[0]) != 0 or int(offsets[-1]) != end:
                return f"the offsets of {name} do not span its {end:,} entries"
        return None


def save_column(path: Path, array: NDArray[Any]) -> None:
    try:
        np.save(path, array, allow_pickle=False)
    except OSError as error:  # numpy tells that fewer bytes were written than asked for, and not why
        raise OSError(error.errno or errno.ENOSPC, error.strerror or str(error), str(path)) from error


def _heading(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    return f"{name} {dtype.str} {shape}\n".encode()


def fingerprint_of_files(folder: Path) -> str:
    """The fingerprint of the corpus whose columns lie in a folder, without holding any of them."""
    total = hashlib.sha256()
    columns = [field.name for field in fields(Corpus) if field.name != "facts"]
    for name in [part for c in columns for part in ([c, f"{c}_offsets"] if c in STRINGS else [c])]:
        path = folder / f"{name}.npy"
        if name == "split" and not path.exists():
            continue
        with path.open("rb") as file:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            total.update(_heading(name, dtype, shape))
            while block := file.read(CHUNK):
                total.update(block)
    return total.hexdigest()


def build_corpus(
    reviews: Reviews, *, min_reviews: int = 5, levels: int = 5, progress: OnProgress | None = None
) -> Corpus:
    """Clean what was read: the last of repeated reviews wins, rare users and items go, and so do wordless records."""
    if not len(reviews) or reviews.scale is None:
        fix = "see the list of rejected records, or name the format and the columns"
        raise InputError("there are no reviews to work with", where=sources_of(reviews), fix=fix)
    user, item = _numbered(reviews.users)[0], _numbered(reviews.items)[0]
    kept, dropped = kept_records(reviews, user, item, min_reviews)
    tokens = _tokenise([reviews.texts[r] for r in kept.tolist()], progress)
    worded = np.diff(tokens.offsets) > 0
    dropped["wordless"] = int((~worded).sum())
    kept = kept[worded]
    offsets = np.concatenate([tokens.offsets[:1], tokens.offsets[1:][worded]])
    return _assemble(reviews, reviews.scale, kept, tokens._replace(offsets=offsets), dropped, min_reviews, levels)


def _assemble(
    reviews: Reviews,
    scale: RatingScale,
    kept: Records,
    tokens: Tokens,
    dropped: dict[str, int],
    min_reviews: int,
    levels: int,
) -> Corpus:
    records = kept.tolist()
    user, users = _numbered(reviews.users[r] for r in records)
    item, items = _numbered(reviews.items[r] for r in records)
    refuse_single(reviews, users, items)
    times = [reviews.times[r] for r in records]
    ratings = np.asarray(reviews.ratings, dtype=np.float64)[kept]
    return Corpus(
        users=StringColumn.from_strings(users),
        items=StringColumn.from_strings(items),
        words=StringColumn.from_strings(tokens.words),
        texts=StringColumn.from_strings(reviews.texts[r] for r in records),
        user=user.astype(np.int32),
        item=item.astype(np.int32),
        rating=scale.to_stars(ratings, levels).astype(np.float32),
        time=np.array([-1 if time is None else time for time in times], dtype=np.int64),
        split=None if reviews.splits is None else _own_split([reviews.splits[r] for r in records], sources_of(reviews)),
        token_offsets=tokens.offsets,
        tokens=tokens.tokens,
        token_starts=tokens.starts,
        token_lengths=tokens.lengths,
        facts=facts_of(reviews, scale.describe(ratings, levels), dropped)
        | {"levels": levels, "min_reviews": min_reviews, "scale_range": [scale.low, scale.high]},
    )


def _tokenise(texts: Sequence[str], progress: OnProgress | None) -> Tokens:
    chunks = []
    for first in range(0, len(texts), TEXTS_AT_ONCE):
        chunks.append(tokenise_many(texts[first : first + TEXTS_AT_ONCE]))
        if progress is not None:
            progress(min(first + TEXTS_AT_ONCE, len(texts)), len(texts))
    return join_tokens(chunks)


def _numbered(names: Iterable[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Numbers in order of first appearance, and the names they stand for."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    return np.fromiter(map(numbers.__getitem__, names), np.int64), list(numbers)


def _own_split(names: list[str], where: str) -> NDArray[np.int8]:
    unknown = next((name for name in names if name.strip().lower() not in SPLIT_NAMES), None)
    if unknown is not None:
        raise InputError(f"{unknown!r} is no part of a split", where=where, fix="write train, valid or test")
    return np.array([SPLIT_NAMES[name.strip().lower()] for name in names], dtype=np.int8)
