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

from carp.cli.messages import say
from carp.cli.places import (
    Address,
    AnyThere,
    ChangedThere,
    FileNamedThere,
    FolderThere,
    NewModelThere,
    NewThere,
    shared_folder,
)
from carp.errors import CarpError, StorageError, UsageError
from carp.shown_addresses import shown_address


def at_addresses(command: Callable[..., None]) -> Callable[..., None]:
    """The same command, whose places may be addresses where their parsers allow it."""

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> None:
        with contextlib.ExitStack() as around:
            here = {name: _brought_here(value, given, around) for name, value in given.items()}
            context: typer.Context | None = here.get("context")
            for name, value in here.items():
                if isinstance(value, NewThere):
                    here[name] = _place_to_fill(value, bool(given.get("overwrite")), context, around)
            if context is not None:
                context.params.update({name: here[name] for name in context.params if name in here})
            command(*args, **here)

    return run


def _brought_here(value: Any, given: dict[str, Any], around: contextlib.ExitStack) -> Any:
    """What a parameter holds, with a path of this machine in the place of each address that is read."""
    if isinstance(value, list):
        return [_brought_here(one, given, around) for one in value]
    if isinstance(value, ChangedThere) and _changes(given):
        return around.enter_context(_changed(value))
    if isinstance(value, FolderThere | ChangedThere | AnyThere | FileNamedThere):
        copy = around.enter_context(_copied(value, shared_folder(given.get("engine"))))
        return str(copy) if isinstance(value, FileNamedThere) else copy
    return value


def _changes(given: dict[str, Any]) -> bool:
    """Whether a command that may change what it reads will: some of them only look, unless more is asked for."""
    looks = given.get("check", False) or ("rename" in given and not given["rename"] and given.get("words") is None)
    return not looks


@contextlib.contextmanager
def _copied(address: Address, shared: Path | None) -> Iterator[Path]:
    """A copy of what is read, in a folder that the nodes of a cluster see too where there is one."""
    from carp.scale.remote_folders import bring_any_here, bring_here, folder_for_copies

    bring = bring_here if isinstance(address, FolderThere | ChangedThere) else bring_any_here
    with folder_for_copies(shared) as folder, _called(folder / address.name, address) as place:
        yield bring(address, place)


@contextlib.contextmanager
def _changed(address: ChangedThere) -> Iterator[Path]:
    """A copy that a command may change; what it says of it is heard when the change is at the address."""
    from carp.scale.ending_signals import TERMINATED, Terminated, terminable
    from carp.scale.remote_exchanges import finish_there
    from carp.scale.remote_folders import bring_here

    try:
        with (
            terminable(),
            TemporaryDirectory(prefix="carp-") as folder,
            _called(Path(folder) / address.name, address) as place,
        ):
            begun = (
                f"{shown_address(address)}: a command that changed it ended in its last step, which is finished now."
            )
            finish_there(address, lambda: say(begun))
            before = bring_here(address, Path(folder) / "before" / address.name)
            shutil.copytree(before, place, copy_function=os.link)  # nothing is written into a file that is there
            with _brought_back(place, address, before):
                yield place
    except KeyboardInterrupt as asked:
        what = "interrupted; what is there is whole, as it was before or as it was to be"
        stopped = StorageError(what, where=address, fix="run the command again")
        stopped.exit_code = TERMINATED if isinstance(asked, Terminated) else 1
        raise stopped from None


@contextlib.contextmanager
def _brought_back(place: Path, address: ChangedThere, before: Path) -> Iterator[None]:
    from carp.scale.remote_changes import change_there
    from carp.scale.remote_exchanges import HalfThereError

    with _held_back() as tell:
        try:
            with _ending_well():
                yield
        except BaseException:
            tell()
            raise
        try:
            change_there(place, address, before)
            tell()
        except HalfThereError as error:
            error.where = address
            by_hand = f"copy the files of {_kept(place)} there, its manifest last, and remove that folder"
            error.fix = f"{error.fix}; or {by_hand}"
            raise


def _kept(made: Path) -> Path:
    kept = Path(mkdtemp(prefix="carp-kept-")) / made.name
    shutil.move(made, kept)
    return kept


@contextlib.contextmanager
def _ending_well() -> Iterator[None]:
    """Go on where a command ends with the exit code 0, as one whose processes have done the work."""
    try:
        yield
    except typer.Exit as end:
        if end.exit_code:
            raise


def _place_to_fill(
    address: NewThere, overwrite: bool, context: typer.Context | None, around: contextlib.ExitStack
) -> Path:
    """A place of this machine for what is made; what lies there in the end is brought to the address."""
    if isinstance(address, NewModelThere) and _is_led():
        return around.enter_context(_called(_work_folder(address) / address.name, address))
    outlast = around.enter_context if context is None else context.with_resource  # the locks of the command
    folder = outlast(_own_work_folder(address))
    return around.enter_context(_delivered(address, folder, overwrite))


def _is_led() -> bool:
    """Whether another process of the same training writes for this one, which must not look at the address."""
    from carp.training.company import own_rank

    return own_rank() > 0


def _work_folder(address: NewThere) -> Path:
    """Always the same for an address, so that a training that was stopped can go on from its checkpoint."""
    mark = hashlib.sha256(address.encode()).hexdigest()[:12]
    return Path(f".carp-out-{mark}").absolute()


@contextlib.contextmanager
def _own_work_folder(address: NewThere) -> Iterator[Path]:
    """The folder of an address, without what a killed command has left in it, checkpoints excepted; nobody else's."""
    from carp.storage import sole_writer

    folder = _work_folder(address)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(sole_writer(folder))
        except UsageError as busy:
            busy.where = address
            raise
        _remove(folder / address.name)
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):  # a checkpoint is left, and the command has said so
                folder.rmdir()


def _remove(made: Path) -> None:
    if made.is_dir():
        shutil.rmtree(made)
    made.unlink(missing_ok=True)


@contextlib.contextmanager
def _delivered(address: NewThere, folder: Path, overwrite: bool) -> Iterator[Path]:
    """A place in a folder of this machine; what lies there in the end is brought to the address."""
    from carp.scale.remote_deliveries import bring_there, check_address

    check_address(address, address.kind, overwrite)
    folder.mkdir(exist_ok=True)
    local = folder / address.name
    try:
        with _ending_well(), _called(local, address):
            yield local
        try:
            bring_there(local, address, address.kind, overwrite)
        except CarpError as error:
            error.where = error.where or address
            if local.exists():  # it may have taken days to make
                error.fix = f"{error.fix}; what was to be there is kept in {_kept(local)}"
            raise
    finally:
        _remove(local)


@contextlib.contextmanager
def _called(local: Path, address: str) -> Iterator[Path]:
    """Let what is printed, and what is said of an error, name the address instead of the place on this machine."""
    before, address = (sys.stdout, sys.stderr), shown_address(address)
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
