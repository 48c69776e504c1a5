"""Commands that read from addresses and write to them: they work in folders of this machine, and know nothing of it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer

from carp.cli.options import Address

READ = ("model", "corpus")  # arguments that may be folders at an address


def at_addresses(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, which may be given addresses instead of folders, and an address as --out."""

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> None:
        context: typer.Context | None = given.get("context")
        with contextlib.ExitStack() as around:
            for name in READ:
                if isinstance(given.get(name), Address):
                    given[name] = around.enter_context(_copied(given[name]))
            if isinstance(given.get("out"), Address):
                folder = _work_folder(given["out"])
                at_the_end = around.callback if context is None else context.call_on_close  # after a command's locks
                at_the_end(functools.partial(_remove_if_empty, folder))
                given["out"] = around.enter_context(_delivered(given["out"], folder, bool(given.get("overwrite"))))
            if context is not None:
                context.params.update({name: given[name] for name in (*READ, "out") if name in given})
            command(*args, **given)

    return run


@contextlib.contextmanager
def _copied(address: Address) -> Iterator[Path]:
    from carp.scale.remote_folders import bring_here

    with TemporaryDirectory() as folder, _called(folder, address):
        yield bring_here(address, Path(folder))


def _work_folder(address: Address) -> Path:
    """Always the same for an address, so that a training that was stopped can go on from its checkpoint."""
    mark = hashlib.sha256(address.encode()).hexdigest()[:12]
    return Path(f".carp-out-{mark}").absolute()


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # a checkpoint is left, and the command has said so
        folder.rmdir()


@contextlib.contextmanager
def _delivered(address: Address, folder: Path, overwrite: bool) -> Iterator[Path]:
    """A place in a folder of this machine; what lies there in the end is brought to the address."""
    from carp.scale.remote_folders import bring_there, check_address

    check_address(address, overwrite)
    folder.mkdir(exist_ok=True)
    local = folder / address.name
    try:
        try:
            with _called(str(local), address):
                yield local
        except typer.Exit as end:  # the end of a command whose processes have done the work
            if end.exit_code:
                raise
        bring_there(local, address)
    finally:
        if local.is_dir():
            shutil.rmtree(local)
        local.unlink(missing_ok=True)


@contextlib.contextmanager
def _called(local: str, address: Address) -> Iterator[None]:
    """Let what is printed name the address instead of the place on this machine."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Calling(stream, local, address) for stream in before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout, sys.stderr = before


class _Calling:
    """A stream that writes one name instead of another."""

    def __init__(self, stream: Any, name: str, instead: str) -> None:
        self._stream, self._name, self._instead = stream, name, instead

    def write(self, text: str) -> int:
        self._stream.write(text.replace(self._name, self._instead))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
