"""Errors that say what happened, where, and how to fix it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CarpError(Exception):
    """Something went wrong that the user can fix. If a traceback is shown instead, that is a bug.

    >>> print(CarpError("the file is empty", where="reviews.json", fix="give a file with reviews"))
    reviews.json: the file is empty. Fix: give a file with reviews.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what = what
        self.where = where
        self.fix = fix
        super().__init__(what)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f" Fix: {self.fix}" if self.fix else ""
        end = "" if not remedy or remedy.endswith(("?", ".", "!")) else "."
        return f"{place}{self.what}.{remedy}{end}"


class CarpWarning(UserWarning):
    """Something the user should know that stops nothing. The command line prints it as one line."""


class SlowerWarning(CarpWarning, RuntimeWarning):
    """A fast path cannot be used here. A slower one gives the same answers."""


class InputError(CarpError):
    """The given data cannot be used."""


class UsageError(CarpError):
    """The command or call itself is wrong: an unknown setting, or a folder that already exists."""

    exit_code = 2


class UnknownIdError(CarpError):
    """A user or an item the model has never seen, where a known one is needed."""


class DamagedError(CarpError):
    """A saved file is missing, truncated or altered."""


class StorageError(CarpError):
    """Reading or writing failed: no space, or no permission."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A suggested fix: the closest known name, or all of them if none is close.

    >>> nearest("lerning_rate", ["learning_rate", "seed"])
    'did you mean learning_rate?'
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return "choose one of " + ", ".join(known)
