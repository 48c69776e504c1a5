"""What is known of the things besides their reviews: titles, categories, descriptions and addresses of pictures.

Each is one column with an entry for each thing, empty where nothing is known. The words of titles and categories have a
list of their own, so that the words of the reviews, and the fingerprint of the corpus, are the same with and without
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.sources.item_records import ItemText
from carp.reviews.text.tokens import tokenise_many

BETWEEN_CATEGORIES = "\n"  # no category contains a line end
PREFIX = "item_"
TEXTS = ("titles", "categories", "descriptions", "pictures")
STRINGS = (*TEXTS, "words")


class ItemNames(NamedTuple):
    """The words of each thing's title and categories: thing i has `tokens[offsets[i]:offsets[i + 1]]`."""

    words: StringColumn  # distinct words; a token is a place in this list
    offsets: NDArray[np.int64]  # [items + 1]
    tokens: NDArray[np.int32]  # [T]


@dataclass(frozen=True, eq=False)
class ItemTexts:
    """The texts of all things of a corpus, by the numbers of the things.

    >>> texts = ItemTexts.of([ItemText("Röhre 12AX7", ("Amps", "Tubes")), ItemText()])
    >>> texts.titles[0], texts.categories_of(0), texts.titles[1], list(texts.words)
    ('Röhre 12AX7', ['Amps', 'Tubes'], '', ['röhre', '12ax7', 'amps', 'tubes'])
    >>> texts.names.offsets.tolist(), texts.names.tokens.tolist()
    ([0, 4, 4], [0, 1, 2, 3])
    """

    titles: StringColumn
    categories: StringColumn  # of each thing, with BETWEEN_CATEGORIES between them
    descriptions: StringColumn
    pictures: StringColumn
    words: StringColumn  # the words of titles and categories
    title_token_offsets: NDArray[np.int64]  # [items + 1]
    title_tokens: NDArray[np.int32]  # places in words
    category_token_offsets: NDArray[np.int64]  # [items + 1]
    category_tokens: NDArray[np.int32]

    @classmethod
    def of(cls, items: Sequence[ItemText]) -> ItemTexts:
        """The columns of the texts of all things, in the order of the things."""
        titles = [item.title for item in items]
        categories = [BETWEEN_CATEGORIES.join(item.categories) for item in items]
        cut = tokenise_many([*titles, *categories])
        middle = cut.offsets[len(items)]
        return cls(
            StringColumn.from_strings(titles),
            StringColumn.from_strings(categories),
            StringColumn.from_strings(item.description for item in items),
            StringColumn.from_strings(item.picture for item in items),
            StringColumn.from_strings(cut.words),
            cut.offsets[: len(items) + 1],
            cut.tokens[:middle],
            cut.offsets[len(items) :] - middle,
            cut.tokens[middle:],
        )

    def __len__(self) -> int:
        return len(self.titles)

    def categories_of(self, item: int) -> list[str]:
        joined = self.categories[item]
        return joined.split(BETWEEN_CATEGORIES) if joined else []

    def known(self) -> dict[str, int]:
        """For how many things there is a title, a category, a description and a picture."""
        return {name: int(np.count_nonzero(np.diff(getattr(self, name).offsets))) for name in TEXTS}

    @cached_property
    def names(self) -> ItemNames:
        """For each thing the words of its title, then those of its categories."""
        title_sizes, category_sizes = np.diff(self.title_token_offsets), np.diff(self.category_token_offsets)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(title_sizes + category_sizes)])
        tokens = np.zeros(int(offsets[-1]), np.int32)
        tokens[_places(offsets[:-1], title_sizes)] = self.title_tokens
        tokens[_places(offsets[:-1] + title_sizes, category_sizes)] = self.category_tokens
        return ItemNames(self.words, offsets, tokens)

    def columns(self) -> dict[str, NDArray[Any]]:
        """All columns as plain arrays, by the names of their files."""
        arrays: dict[str, NDArray[Any]] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, StringColumn):
                arrays |= {PREFIX + field.name: value.data, f"{PREFIX}{field.name}_offsets": value.offsets}
            else:
                arrays[PREFIX + field.name] = value
        return arrays

    @classmethod
    def from_columns(cls, arrays: Mapping[str, NDArray[Any]]) -> ItemTexts:
        """The texts from their columns; KeyError if one is missing."""
        columns: dict[str, Any] = {}
        for field in fields(cls):
            name = PREFIX + field.name
            columns[field.name] = (
                StringColumn(arrays[name], arrays[f"{name}_offsets"]) if field.name in STRINGS else arrays[name]
            )
        return cls(**columns)

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 sum over all columns. The fingerprint of the corpus is that of its reviews alone."""
        total = hashlib.sha256()
        for name, array in self.columns().items():
            total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()

    def without_texts(self) -> ItemTexts:
        """A copy that holds the words of titles and categories, which models read, and no text to show."""
        nothing = StringColumn(np.zeros(0, np.uint8), np.zeros(len(self) + 1, np.int64))
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return ItemTexts(**{**columns, **dict.fromkeys(TEXTS, nothing)})

    def fault(self, items: int) -> str | None:
        """Why these columns cannot belong to so many things, or None."""
        for name, column in self.columns().items():
            wanted = np.int64 if name.endswith("_offsets") else np.int32 if name.endswith("_tokens") else np.uint8
            if column.ndim != 1 or column.dtype != wanted:
                return f"{name} is not a plain column of {np.dtype(wanted)}"
        for name in STRINGS:
            strings: StringColumn = getattr(self, name)
            entries = len(strings) if name == "words" else items
            fault = _offsets_fault(strings.offsets, entries, len(strings.data)) or _text_fault(strings)
            if fault:
                return f"{PREFIX}{name} {fault}"
        for name in ("title_token", "category_token"):
            tokens = getattr(self, f"{name}s")
            if fault := _offsets_fault(getattr(self, f"{name}_offsets"), items, len(tokens)):
                return f"{PREFIX}{name}s {fault}"
            if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < len(self.words):
                return f"{PREFIX}{name}s name words that are not there"
        return None


def _offsets_fault(offsets: NDArray[np.int64], entries: int, end: int) -> str | None:
    if len(offsets) != entries + 1:
        return f"have {len(offsets):,} offsets and should have {entries + 1:,}"
    if int(offsets[0]) != 0 or int(offsets[-1]) != end or bool((np.diff(offsets) < 0).any()):
        return f"have offsets that do not span their {end:,} entries"
    return None


def _text_fault(strings: StringColumn) -> str | None:
    """Why the bytes are not so many texts: they are not UTF-8, or one begins inside a character."""
    try:
        strings.data.tobytes().decode()
    except UnicodeDecodeError:
        return "are not UTF-8"
    starts = strings.offsets[strings.offsets < len(strings.data)]
    return "are cut inside a character" if ((strings.data[starts] & 0xC0) == 0x80).any() else None


def _places(begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of stretches that begin there and have these sizes, end to end."""
    first = np.cumsum(sizes) - sizes
    places: NDArray[np.int64] = np.arange(int(sizes.sum())) + np.repeat(begins - first, sizes)
    return places


def no_names(items: int) -> ItemNames:
    """Names of so many things of which nothing but reviews is known."""
    return ItemNames(StringColumn.from_strings([]), np.zeros(items + 1, np.int64), np.zeros(0, np.int32))
