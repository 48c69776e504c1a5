"""Corpus: the reviews that are left after cleaning, as columns that can be larger than memory.

A corpus keeps every word. Which words a model sees is decided later, after the split, by a vocabulary.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.errors import DamagedError, InputError
from carp.reviews.corpora.cleaning import CorpusRules, Origin, facts_of, kept_records, refuse_single, sources_of
from carp.reviews.corpora.copied_texts import DROP, KEEP, CutWords, check_copy_rule, find_copies
from carp.reviews.corpora.corpus_checks import check_corpus
from carp.reviews.corpora.described_items import describe_items
from carp.reviews.corpora.item_texts import PREFIX, ItemNames, ItemTexts, no_names
from carp.reviews.corpora.provenance import check_made_with, differences, made_with
from carp.reviews.corpora.records import RecordColumns, columns_of_reviews
from carp.reviews.corpora.review_titles import titles_in_reviews
from carp.reviews.corpora.string_column import StringColumn, pieces
from carp.reviews.corpora.text_chunks import TextChunk, chunks_in_memory
from carp.reviews.corpora.word_columns import CutEach, WordColumns
from carp.reviews.sources.item_records import ItemText
from carp.reviews.split_parts import OnProgress
from carp.reviews.text.languages import recognise_languages
from carp.reviews.text.stop_words import stop_words
from carp.storage import SealedFolder, disk_errors, new_folder, opened_folder, write_json

if TYPE_CHECKING:
    from carp.reviews.rating_scale import RatingScale
    from carp.reviews.sources.item_files import Items
    from carp.reviews.sources.ledger import Ledger, Reviews

LAYOUT = 3  # raised when an older carp can no longer read the folder
LAYOUT_WITHOUT_COPIES, LAYOUT_WITHOUT_ITEM_TEXTS = 2, 1  # which older versions read as well
STRINGS = ("users", "items", "words", "texts")
OPTIONAL = ("split", "facts", "item_texts", "copy_group")
FIX = "prepare the corpus again, or restore it from a copy"
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
    split: NDArray[np.int8] | None  # [N] the split that came with the data: 0 train, 1 valid, 2 test
    token_offsets: NDArray[np.int64]  # [N + 1]
    tokens: NDArray[np.int32]  # [T] places in words
    token_starts: NDArray[np.int32]  # [T] characters from the beginning of the text
    token_lengths: NDArray[np.uint8]  # [T] characters
    facts: dict[str, Any]
    item_texts: ItemTexts | None = None  # titles and more, if anything but reviews is known of the items
    copy_group: NDArray[np.int32] | None = None  # [N] the same for copied texts, -1 where a text is alone

    def __len__(self) -> int:
        return len(self.user)

    def __repr__(self) -> str:
        return f"<Corpus: {len(self):,} reviews by {len(self.users):,} users of {len(self.items):,} items>"

    def text(self, record: int) -> str:
        """What was written in a review.

        Args:
            record: The review's number.

        Returns:
            Its text, as it was written.
        """
        return self.texts[record]

    def review_words(self, record: int) -> list[str]:
        """The words of a review.

        Args:
            record: The review's number.

        Returns:
            Its words in lower case, in their order.
        """
        tokens = self.tokens[self.token_offsets[record] : self.token_offsets[record + 1]]
        return [self.words[word] for word in tokens.tolist()]

    def tokens_of(self, records: Records) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The tokens of some records, end to end.

        Args:
            records: Numbers of records.

        Returns:
            For each token which of these records it belongs to, and the number of its word.
        """
        offsets = np.asarray(self.token_offsets)
        sizes = offsets[records + 1] - offsets[records]
        place = np.repeat(np.arange(len(records)), sizes)
        step = np.arange(len(place)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return place, np.asarray(self.tokens)[offsets[records][place] + step]

    def characters(self, tokens: Records) -> NDArray[np.int32]:
        """Where some tokens begin and end in the texts of their records.

        Args:
            tokens: Places of tokens in the columns.

        Returns:
            The first character of each token, and the one after its last. [tokens, 2]
        """
        if not len(self.token_starts):  # a slim copy has no texts
            return np.zeros((len(tokens), 2), np.int32)
        starts = np.asarray(self.token_starts)[tokens]
        return np.stack([starts, starts + np.asarray(self.token_lengths)[tokens]], axis=1)

    @cached_property
    def item_names(self) -> ItemNames:
        """The words of each item's title and categories, numbered by a list of their own. No words where unknown."""
        return no_names(len(self.items)) if self.item_texts is None else self.item_texts.names

    def columns(self) -> dict[str, NDArray[Any]]:
        """All columns of the reviews as plain arrays.

        Returns:
            The arrays by the names of their files.
        """
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
        """A sha256 sum over all columns of the reviews. It depends on the content alone, not on whether it is saved.

        Texts of items have a fingerprint of their own: the same reviews stay comparable with and without them.
        """
        total = hashlib.sha256()
        for name, array in self.columns().items():
            total.update(_heading(name, array.dtype, array.shape))
            for piece in pieces(array):
                total.update(np.ascontiguousarray(piece).data)
        return total.hexdigest()

    def save(self, folder: Path | str, *, overwrite: bool = False, ledger: Ledger | None = None) -> None:
        """Write the corpus as a folder.

        Args:
            folder: Where to; it must not exist yet.
            overwrite: Replace a corpus that is there.
            ledger: The account of refused records, which becomes `rejects.jsonl`.
        """
        with new_folder(folder, "corpus", overwrite=overwrite) as partial, disk_errors(Path(folder)):
            self.write_files(partial, ledger)

    def write_files(self, folder: Path, ledger: Ledger | None) -> None:
        """Write the files of the corpus into a folder. Columns whose file exists were written there as they grew.

        Args:
            folder: A folder that exists.
            ledger: The ledger of rejected records, if there is one.
        """
        more = {} if self.item_texts is None else self.item_texts.columns()
        for name, array in {**self.columns(), **more}.items():
            if not (folder / f"{name}.npy").exists():
                _save_column(folder / f"{name}.npy", array)
        layout = LAYOUT_WITHOUT_COPIES if more else LAYOUT_WITHOUT_ITEM_TEXTS
        layout = layout if self.copy_group is None else LAYOUT
        about = {"fingerprint": self.fingerprint, "facts": self.facts, "made_with": made_with(layout, self.facts)}
        write_json(folder / "corpus.json", about)
        if ledger is not None:
            ledger.save(folder / "rejects.jsonl")

    @classmethod
    def load(cls, folder: Path | str, *, mmap: bool = True) -> Corpus:
        """Load a saved corpus, and check every file against the manifest.

        Args:
            folder: What `save` or `carp prepare` made.
            mmap: Leave the columns on disk and read only what is needed.

        Returns:
            The corpus.
        """
        with opened_folder(folder, "corpus") as sealed:
            about = sealed.json("corpus.json") if "corpus.json" in sealed else {}
            check_made_with(about, "corpus", LAYOUT, str(folder))
            missing = [name for name in cls._needed_files() if name not in sealed]
            if missing:
                raise DamagedError(f"the manifest does not name {missing[0]}", where=str(folder), fix=FIX)
            try:
                facts = about["facts"] | differences(about, "corpus", str(folder))
                corpus = cls._open_columns(sealed, facts, mmap=mmap)
                sealed.check_all()
                check_corpus(corpus)
            except (OSError, ValueError, KeyError, TypeError, OverflowError, AttributeError, IndexError) as error:
                raise DamagedError(f"the columns do not fit together ({error})", where=str(folder), fix=FIX) from error
            corpus.__dict__["fingerprint"] = about["fingerprint"]  # saves reading every column again
        return corpus

    @classmethod
    def _open_columns(cls, sealed: SealedFolder, facts: dict[str, Any], *, mmap: bool) -> Corpus:
        """The columns in a folder, each as it was saved; whether they fit together is not yet known."""
        arrays: dict[str, Any] = {
            name.removesuffix(".npy"): sealed.column(name, mmap=mmap)
            for name in sealed.names()
            if name.endswith(".npy")
        }
        columns: dict[str, Any] = {
            name: StringColumn(arrays.pop(name), arrays.pop(f"{name}_offsets")) for name in STRINGS
        }
        texts = {name: arrays.pop(name) for name in list(arrays) if name.startswith(PREFIX)}
        item_texts = ItemTexts.from_columns(texts) if texts else None
        return cls(**{"split": None, **columns, **arrays}, facts=facts, item_texts=item_texts)

    @classmethod
    def _needed_files(cls) -> list[str]:
        arrays = [field.name for field in fields(cls) if field.name not in OPTIONAL]
        return ["corpus.json", *(f"{name}.npy" for name in [*arrays, *(f"{name}_offsets" for name in STRINGS)])]


def _save_column(path: Path, array: NDArray[Any]) -> None:
    try:
        np.save(path, array, allow_pickle=False)
    except OSError as error:  # numpy says that too few bytes were written, but not why
        raise OSError(error.errno or errno.ENOSPC, error.strerror or str(error), str(path)) from error


def _heading(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    return f"{name} {dtype.str} {shape}\n".encode()


def build_corpus(
    reviews: Reviews,
    *,
    min_reviews: int = 5,
    levels: int = 5,
    copies: str = DROP,
    core_first: bool = False,
    plain_words: bool = False,
    items: Items | None = None,
    progress: OnProgress | None = None,
) -> Corpus:
    """Clean reviews and number them.

    Of repeated reviews the latest stays. Rare users, rare items and reviews without words are dropped.

    Args:
        reviews: What `read_reviews` gives.
        min_reviews: How many reviews every user and every item must have.
        levels: The highest rating on the models' scale, which starts at 1.
        copies: What to do with a text that one person wrote under several items: `drop` all but the first, `group`
            them on one side of every split, or `keep` them like any other.
        core_first: Drop rare users and items before the reviews without a word, as the paper's data was made; some may
            then be left with fewer than `min_reviews`.
        plain_words: A word is a run of letters and digits, whatever the script.
        items: What `read_items` gives: titles, categories, descriptions and pictures of the items.
        progress: Called with how many texts have been cut into words, and how many there are.

    Returns:
        The corpus, in memory.
    """
    if not len(reviews) or reviews.scale is None:
        fix = "see the list of rejected records, or name the format and the columns"
        raise InputError("there are no reviews to work with", where=sources_of(reviews), fix=fix)
    check_copy_rule(copies)
    rules = CorpusRules(min_reviews, levels, copies, core_first, plain_words)
    records = columns_of_reviews(reviews, sources_of(reviews))
    cleaned = clean(reviews, records, chunks_in_memory(reviews.texts), WordColumns(), rules, progress=progress)
    corpus = assemble(reviews, reviews.scale, records, cleaned, rules)
    return corpus if items is None else describe_items(corpus, items)


class Cleaned(NamedTuple):
    """The records to keep, and their texts cut into words."""

    kept: NDArray[np.int64]  # which of the records that were read
    dropped: dict[str, int]  # how many others were dropped, by reason
    words: WordColumns


def clean(
    origin: Origin,
    records: RecordColumns,
    texts: Sequence[TextChunk],
    words: WordColumns,
    rules: CorpusRules,
    *,
    each: CutEach = map,
    progress: OnProgress | None = None,
) -> Cleaned:
    """Choose the records to keep and cut their texts into words. `each` may use several processes for the cutting."""
    kept, dropped = kept_records(origin, records, rules)
    words.cut(texts, kept, each, progress, plain=rules.plain_words)
    return Cleaned(kept, dropped, words)


def assemble(
    origin: Origin, scale: RatingScale, records: RecordColumns, cleaned: Cleaned, rules: CorpusRules
) -> Corpus:
    """Make the corpus of the records to keep. Users and items are numbered in order of first appearance."""
    kept, ratings = cleaned.kept, records.rating[cleaned.kept]
    user, item = records.user.only(kept), records.item.only(kept)
    refuse_single(origin, user.names, item.names)
    titles = titles_in_reviews(origin, records, item.names)
    columns = cleaned.words.finish()
    words = CutWords(columns["token_offsets"], columns["tokens"])
    copies = find_copies(user.number, records.mark[kept], cleaned.words.copy_keys(), words)
    counts = dict(zip(columns["words"], cleaned.words.counts()[0].tolist(), strict=True))
    facts = facts_of(origin, scale, ratings, cleaned.dropped, rules) | titles.facts()
    facts |= {"languages": recognise_languages(counts, stop_words())}
    return Corpus(
        users=StringColumn.from_strings(user.names),
        items=StringColumn.from_strings(item.names),
        user=user.number,
        item=item.number,
        rating=scale.to_stars(ratings, rules.levels).astype(np.float32),
        time=records.time[kept],
        split=records.split[kept] if records.has_split else None,
        facts=facts | {"copies": copies.facts(rules.copies)},
        item_texts=ItemTexts.of([ItemText(title) for title in titles.titles]) if any(titles.titles) else None,
        copy_group=None if rules.copies == KEEP else copies.group,
        **columns,
    )
