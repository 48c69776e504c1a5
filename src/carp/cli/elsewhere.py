"""Commands that read from addresses and write to them: they work in folders of this machine, and know nothing of it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import typer

from carp.cli.places import AnyThere, ChangedThere, FileNamedThere, FolderThere, NewThere
from carp.errors import CarpError


def at_addresses(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, whose places may be addresses where their parsers allow it."""

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> None:
        with contextlib.ExitStack() as around:
            here = {name: _brought_here(value, around) for name, value in given.items()}
            context: typer.Context | None = here.get("context")
            for name, value in here.items():
                if isinstance(value, NewThere):
                    folder = _work_folder(value)
                    at_the_end = (
                        around.callback if context is None else context.call_on_close
                    )  # after a command's locks
                    at_the_end(functools.partial(_remove_if_empty, folder))
                    here[name] = around.enter_context(_delivered(value, folder, bool(given.get("overwrite"))))
            if context is not None:
                context.params.update({name: here[name] for name in context.params if name in here})
            command(*args, **here)

    return run


def _brought_here(value: Any, around: contextlib.ExitStack) -> Any:
    """What a parameter holds, with a path of this machine in the place of each address that is read."""
    if isinstance(value, list):
        return [_brought_here(one, around) for one in value]
    if isinstance(value, ChangedThere):
        return around.enter_context(_changed(value))
    if isinstance(value, FolderThere | AnyThere):
        return around.enter_context(_copied(value))
    return str(around.enter_context(_copied(value))) if isinstance(value, FileNamedThere) else value


@contextlib.contextmanager
def _copied(address: FolderThere | AnyThere | FileNamedThere) -> Iterator[Path]:
    from carp.scale.remote_folders import bring_any_here, bring_here

    with TemporaryDirectory(prefix="carp-") as folder, _called(Path(folder) / address.name, address) as place:
        yield (bring_here if isinstance(address, FolderThere) else bring_any_here)(address, place)


@contextlib.contextmanager
def _changed(address: ChangedThere) -> Iterator[Path]:
    """A copy that a command may change; what it says of it is heard when the change is at the address."""
    from carp.scale.remote_changes import HalfThereError, change_there
    from carp.scale.remote_folders import bring_here

    with TemporaryDirectory(prefix="carp-") as folder, _called(Path(folder) / address.name, address) as place:
        before = bring_here(address, Path(folder) / "before" / address.name)
        shutil.copytree(before, place, copy_function=os.link)  # nothing is written into a file that is there
        with _held_back() as tell:
            try:
                with _ending_well():
                    yield place
            except BaseException:
                tell()
                raise
            try:
                change_there(place, address, before)
                tell()
            except HalfThereError as error:
                error.where = address
                error.fix = f"copy the files of {_kept(place)} there, its manifest last; then remove that folder"
                raise


def _kept(folder: Path) -> Path:
    kept = Path(mkdtemp(prefix="carp-kept-")) / folder.name
    shutil.move(folder, kept)
    return kept


@contextlib.contextmanager
def _ending_well() -> Iterator[None]:
    """Go on where a command ends with the exit code 0, as one whose processes have done the work."""
    try:
        yield
    except typer.Exit as end:
        if end.exit_code:
            raise


def _work_folder(address: NewThere) -> Path:
    """Always the same for an address, so that a training that was stopped can go on from its checkpoint."""
    mark = hashlib.sha256(address.encode()).hexdigest()[:12]
    return Path(f".carp-out-{mark}").absolute()


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # a checkpoint is left, and the command has said so
        folder.rmdir()


@contextlib.contextmanager
def _delivered(address: NewThere, folder: Path, overwrite: bool) -> Iterator[Path]:
    """A place in a folder of this machine; what lies there in the end is brought to the address."""
    from carp.scale.remote_folders import bring_there, check_address

    check_address(address, overwrite)
    folder.mkdir(exist_ok=True)
    local = folder / address.name
    try:
        with _ending_well(), _called(local, address):
            yield local
        bring_there(local, address)
    finally:
        if local.is_dir():
            shutil.rmtree(local)
        local.unlink(missing_ok=True)


@contextlib.contextmanager
def _called(local: Path, address: str) -> Iterator[Path]:
    """Let what is printed, and what is said of an error, name the address instead of the place on this machine."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Calling(stream, str(local), address) for stream in before)
    try:
        yield local
    except CarpError as error:
        for part in ("what", "where", "fix"):
            said = getattr(error, part)
            setattr(error, part, said and str(said).replace(str(local), address))
        raise
    except OSError as error:
        error.filename = error.filename and str(error.filename).replace(str(local), address)
        raise
    finally:
        sys.stdout.flush()
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def _held_back() -> Iterator[Callable[[], None]]:
    """Keep what is printed inside until it is asked for: where a change could not be brought back, it is not true."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = held = io.StringIO(), io.StringIO()

    def tell() -> None:
        for stream, said in zip(before, held, strict=True):
            stream.write(said.getvalue())

    try:
        yield tell
    finally:
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
