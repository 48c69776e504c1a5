"""What an argument that names a place may be: a path of this machine, or an address such as s3://bucket/key.

Each parameter of a command that names a place has one of these functions as its parser. `elsewhere` then brings what
lies at an address here before the command begins, or takes away what the command has made, so that commands themselves
know paths alone. Files of reviews, items and pairs are plain words to the commands: `reviews.sources` reads addresses.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from carp.errors import UsageError

HERE_ALONE = "give a path of this machine"


class Address(str):
    """Where something lies that is not on this machine, such as s3://bucket/key."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return self.rstrip("/").rsplit("/", 1)[-1]


class FolderThere(Address):
    """A sealed folder that is read."""


class ChangedThere(Address):
    """A sealed folder that is read, and brought back where the command has changed it."""


class ServedThere(Address):
    """A sealed folder that is read again and again: the command asks for it itself."""


class AnyThere(Address):
    """A file, or a folder without a seal, that is read."""


class FileNamedThere(Address):
    """A file that is read; the command wants its name as a text."""


class NewThere(Address):
    """A file that the command makes."""

    kind: ClassVar[str | None] = None


class NewCorpusThere(NewThere):
    """A corpus that the command makes."""

    kind = "corpus"


class NewModelThere(NewThere):
    """A model that the command makes."""

    kind = "model"


def shared_folder(engine: str | None) -> Path | None:
    """Where copies have to be that the nodes of a cluster read: they see the folder that the command begins in."""
    return Path.cwd() if engine == "ray" else None


def sealed_folder(text: str | Path) -> Path | Address:
    """A model or a corpus that is read."""
    return _place(text, FolderThere)


def changed_folder(text: str | Path) -> Path | Address:
    """A model or a corpus that is changed."""
    return _place(text, ChangedThere)


def served_folder(text: str | Path) -> Path | Address:
    """A model that is served."""
    return _place(text, ServedThere)


def any_place(text: str | Path) -> Path | Address:
    """A file that is read, or a folder of results."""
    return _place(text, AnyThere)


def new_place(text: str | Path) -> Path | Address:
    """A file that is made, at a path or at an address."""
    return _place(text, NewThere)


def new_corpus(text: str | Path) -> Path | Address:
    """A corpus that is made, at a path or at an address."""
    return _place(text, NewCorpusThere)


def new_model(text: str | Path) -> Path | Address:
    """A model that is made, at a path or at an address."""
    return _place(text, NewModelThere)


def text_or_file(text: str) -> str:
    """A file that is read, or a word that means something else."""
    found = _place(text, FileNamedThere)
    return found if isinstance(found, Address) else _path_at(text) or text


def new_path(text: str | Path) -> Path:
    """What is made on this machine, and cannot be made elsewhere."""
    found = _place(text, Address)
    if isinstance(found, Address):
        what = "this is an address, and the result is written on this machine alone"
        raise UsageError(what, where=found, fix=f"{HERE_ALONE}, and copy the result there")
    return found


def secret_path(text: str | Path) -> Path:
    """A file with a key. Who may read it is looked at, which an address cannot tell."""
    found = _place(text, Address)
    if isinstance(found, Address):
        what = "this is an address, and a key is read from a file that nobody else may read"
        raise UsageError(what, where=found, fix=HERE_ALONE)
    return found


def _place(text: str | Path, kind: type[Address]) -> Path | Address:
    """An address, or else a path; one that begins with file:// is a path too."""
    from carp.reviews.sources.addresses import is_address  # only now: the help of all commands needs none of it

    written = str(text)
    path = _path_at(written)
    return kind(written) if path is None and is_address(written) else Path(path or written)


def _path_at(text: str) -> str | None:
    from carp.reviews.sources.addresses import path_at

    return path_at(text)
