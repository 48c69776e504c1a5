"""Addresses such as s3://bucket/key: what is one, and what goes wrong with it in one sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from carp.errors import CarpError, InputError, let_missing_memory_through
from carp.shown_addresses import shown_address, without_secrets

_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_ON_THIS_MACHINE = "file://"


def is_address(place: str | os.PathLike[str]) -> bool:
    """Whether this is an address such as s3://bucket/key, and not a path."""
    return bool(_ADDRESS.match(os.fspath(place)))


def path_at(address: str) -> str | None:
    """The path that an address means, where it is one of this machine.

    >>> path_at("file:///data/model"), path_at("s3://bucket/model")
    ('/data/model', None)
    """
    return address.removeprefix(_ON_THIS_MACHINE) or None if address.startswith(_ON_THIS_MACHINE) else None


def bytes_of(place: str | os.PathLike[str]) -> bytes:
    """The content of a small file at a path or an address. A path's errors are raised as they are."""
    if not is_address(place):
        return Path(place).read_bytes()
    with address_errors(os.fspath(place)):
        import fsspec

        with fsspec.open(os.fspath(place), "rb") as remote:
            return bytes(remote.read())


@contextmanager
def address_errors(
    address: str, *, kind: type[CarpError] = InputError, may: str = "read", what: str = "file or bucket"
) -> Iterator[None]:
    """Whatever goes wrong with an address is said in one sentence: each store has its own kinds of errors.

    The address is named as it may be shown, and what the store says is freed of the address' own passwords.
    """
    where = shown_address(address)
    try:
        yield
    except CarpError:
        raise
    except ImportError as error:
        needed, fix = _missing(error)
        said = without_secrets(f"this kind of address needs {needed}", address)
        raise kind(said, where=where, fix=fix) from None
    except FileNotFoundError:
        raise kind(f"there is no such {what}", where=where, fix="check the address") from None
    except Exception as error:
        let_missing_memory_through(error)
        fix = "check the address, the network and your credentials"
        said = f"the address cannot be {may} ({in_short(error, address)})"
        raise kind(said, where=where, fix=fix) from None


def in_short(error: BaseException, address: str = "") -> str:
    """The kind of an error and the first line of what it says, without the secrets of an address."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {without_secrets(first, address)[:200]}"


def _missing(error: ImportError) -> tuple[str, str]:
    """What is not installed, and the command that installs it: fsspec says it itself or hands on who did."""
    named = error.name or getattr(error.__cause__, "name", None) or getattr(error.__context__, "name", None)
    if named is None:
        return f"a package ({str(error).splitlines()[0]})", "install it with pip"
    package = str(named).partition(".")[0]
    return f"the package {package}", f"install it with: pip install {package}"
