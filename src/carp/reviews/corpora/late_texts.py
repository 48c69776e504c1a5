"""Texts of a saved model that stay on the disk unread, and are checked when somebody reads them.

Nothing but an explanation or a search reads texts, and they are more than half of a large model. Whatever this column
gives out has been checked: some strings by the blocks they lie in, all bytes by all blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carp.errors import DamagedError
from carp.reviews.corpora.column_checks import ColumnFault, characters_in, check_strings, need
from carp.reviews.corpora.string_column import StringColumn, stretch, stretches
from carp.storage import BytesCheckedOnUse

FIX = "train the model again, or restore it from a copy"
NOT_UTF8 = "texts are not UTF-8"
OTHER_LENGTH = "a text has not as many characters as it should"


class LateTexts(StringColumn):
    """A column of texts that is checked on use. Its offsets and the lengths in characters are checked before."""

    characters: NDArray[np.int32]  # how many each text has
    _content: BytesCheckedOnUse
    _where: str
    _all_checked: bool

    def __init__(
        self, content: BytesCheckedOnUse, offsets: NDArray[np.int64], characters: NDArray[np.int32], where: str
    ) -> None:
        # The column it stands for is frozen.
        self.__dict__.update(offsets=offsets, characters=characters, _content=content, _where=where, _all_checked=False)

    @property
    def data(self) -> NDArray[np.uint8]:
        """All bytes, once all are checked."""
        if not self._all_checked:
            whole = StringColumn(self._content.whole(), self.offsets)
            try:
                check_strings("texts", whole, entries=len(self))
                self._check_lengths(whole)
            except ColumnFault as fault:
                raise self._refusal(str(fault)) from None
            self.__dict__["_all_checked"] = True
        return self._content.content

    def between(self, begin: int, end: int) -> bytes:
        return self._content.between(begin, end).tobytes()

    def __getitem__(self, place: int) -> str:
        try:
            return self._checked(place, super().__getitem__(place))
        except UnicodeDecodeError:
            raise self._refusal(NOT_UTF8) from None

    def __iter__(self) -> Iterator[str]:
        try:
            for place, text in enumerate(super().__iter__()):
                yield self._checked(place, text)
        except UnicodeDecodeError:
            raise self._refusal(NOT_UTF8) from None

    def __reduce__(self) -> tuple[type[StringColumn], tuple[NDArray[Any], ...]]:
        """Other processes get a plain column of what is checked."""
        return StringColumn, (np.array(self.data, subok=False), np.array(self.offsets, subok=False))

    def _checked(self, place: int, text: str) -> str:
        if len(text) != self.characters[place]:
            raise self._refusal(OTHER_LENGTH)
        return text

    def _check_lengths(self, whole: StringColumn) -> None:
        found = characters_in(whole)
        for first, last in stretches(len(found)):
            need(bool((found[first:last] == stretch(self.characters, first, last)).all()), OTHER_LENGTH)

    def _refusal(self, what: str) -> DamagedError:
        return DamagedError(f"the files of the model do not fit together ({what})", where=self._where, fix=FIX)
