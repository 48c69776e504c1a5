"""Errors that say what happened, where, and how to fix it."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

from carp.shown_addresses import without_secrets

_WITH_OPTIONS: ContextVar[bool] = ContextVar("with options", default=False)
_COMMAND = re.compile(r"\bcarp [a-z]+\b")  # something to type, in Python too
_IN_PYTHON = (
    (re.compile(r"--(?:item-)?column (\w+)=(\w+)"), r'columns={"\1": "\2"}'),
    (re.compile(r'"\} columns=\{'), '", '),
    (re.compile(r"--rating-range (\w+) (\w+)"), r"rating_range=(\1, \2)"),
    (re.compile(r"--set (\w+=)"), r"\1"),
    (re.compile(r"--set\b"), "settings"),
    (re.compile(r"--(device|model|format|encoding) ([a-z][\w:]*)"), r'\1="\2"'),
)
_OPTION = re.compile(r"(?<![^\s(])--([a-z]+(?:-[a-z]+)*)")
_NO_MEMORY = ("can't allocate memory", "cannot allocate memory", "out of memory", "bad_alloc")
_CLAUSE = re.compile(r"(; |, or )")


@contextlib.contextmanager
def telling_of_options() -> Iterator[None]:
    """Errors printed inside name options of the command line; those of Python calls name arguments."""
    before = _WITH_OPTIONS.set(True)
    try:
        yield
    finally:
        _WITH_OPTIONS.reset(before)


def in_python(text: str) -> str:
    """The arguments of a Python call for the options of a command.

    >>> in_python("lower it with --set learning_rate=..., or choose another --out")
    'lower it with learning_rate=..., or choose another out'
    >>> in_python("say which one it is with --column text=NAME")
    'say which one it is with columns={"text": "NAME"}'
    >>> in_python("run carp prepare FILE --out corpus first")
    'run carp prepare FILE --out corpus first'
    """
    return "".join(clause if _COMMAND.search(clause) else _argument(clause) for clause in _CLAUSE.split(text))


def _argument(text: str) -> str:
    for option, argument in _IN_PYTHON:
        text = option.sub(argument, text)
    return _OPTION.sub(lambda found: found[1].replace("-", "_"), text)


class CarpError(Exception):
    """Something went wrong that the user can fix. If a traceback is shown instead, that is a bug.

    Addresses in it are shown without their passwords.

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
        if not _WITH_OPTIONS.get():
            place = in_python(place) if place.startswith("--") else place
            return without_secrets(f"{place}{in_python(f'{self.what}.')}{in_python(f'{remedy}{end}')}")
        return without_secrets(f"{place}{self.what}.{remedy}{end}")


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


def is_missing_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python, torch's CPU and GPU, polars and the C++ library each say it in their own way."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    said = str(error).lower()
    return any(words in said for words in _NO_MEMORY)


def let_missing_memory_through(error: BaseException) -> None:
    """Raise MemoryError if memory ran out: that is no damage of what was being read, whoever says it."""
    if is_missing_memory(error):
        raise MemoryError(str(error)) from error


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
