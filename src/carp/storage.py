"""Writing so that nothing is ever half there, and reading so that damage is never silent.

Files are written beside their place, flushed to the disk and renamed; folders likewise, with a manifest
of sha256 sums that is checked before anything in them is used. No pickle, no code in files.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from carp.errors import DamagedError, StorageError, UsageError

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
CHUNK = 1 << 20
SEALING_THREADS = 4


@contextlib.contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turn the disk's refusals into errors that say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what, fix = "there is no space left on the disk", "free some space and run the same command again"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what, fix = "writing is not allowed here", "choose a folder you may write to"
        elif error.errno in (errno.ENOTDIR, errno.EEXIST):
            what, fix = "a file stands where a folder is needed", "choose another place"
        else:
            what, fix = f"the disk refused ({error.strerror or error})", "check the disk and run it again"
        raise StorageError(what, where=str(where), fix=fix) from error


def sync_folder(folder: Path) -> None:
    """Make a rename inside the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Replace a file as a whole: readers see the old content or the new, never a mixture."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    with new_file(path) as file:
        file.write(data)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"cannot be read ({error})", where=str(path), fix="make it again") from error


def append_json_line(path: Path, value: Any) -> None:
    """Add one line to a log, in a single write so that a killed process leaves whole lines."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
    with disk_errors(path):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)


def read_json_lines(path: Path) -> list[Any]:
    """The whole lines of a log; a last line cut off by a kill is left out."""
    if not path.exists():
        return []
    *lines, rest = path.read_text("utf-8").split("\n")
    values = [json.loads(line) for line in lines if line.strip()]
    with contextlib.suppress(ValueError):
        values += [json.loads(rest)] if rest.strip() else []
    return values


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> None:
    from safetensors.numpy import save

    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    write_bytes(path, save(whole, metadata=dict(metadata or {})))


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    except (OSError, SafetensorError, ValueError) as error:
        raise DamagedError(f"cannot be read ({error})", where=str(path), fix="make it again") from error


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sweep(parent: Path, names: str) -> None:
    """Remove what dead processes left unfinished beside files or folders whose names match a pattern.

    An old folder that was set aside comes back if nothing took its place.
    """
    for leftover in _leftovers(parent, names, "replaced"):
        place = parent / _name_of(leftover)
        if place.exists():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.rename(place)
    for leftover in _leftovers(parent, names, "partial"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def bring_back(path: Path) -> None:
    """Give a folder its place again if a process died after setting it aside and before replacing it.

    Readers do this too, so nothing is removed here; where it may not be renamed, it stays as it is.
    """
    path = path.absolute()
    if not path.exists():
        for leftover in _leftovers(path.parent, glob.escape(path.name), "replaced"):
            if _name_of(leftover) == path.name:
                with contextlib.suppress(OSError):
                    leftover.rename(path)


def _leftovers(parent: Path, names: str, kind: str) -> list[Path]:
    """What dead processes left behind: `.NAME.PROCESS.KIND`."""
    found = []
    for leftover in parent.glob(f".{names}.*.{kind}"):
        owner = leftover.name.split(".")[-2]
        if owner.isdigit() and int(owner) != os.getpid() and not _alive(int(owner)):
            found.append(leftover)
    return found


def _name_of(leftover: Path) -> str:
    return leftover.name.rsplit(".", 2)[0].removeprefix(".")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def refuse_existing(path: Path, overwrite: bool, hint: str = "--overwrite") -> None:
    """An output that exists is never touched unless asked for."""
    if path.exists() and not overwrite:
        raise UsageError("this already exists", where=str(path), fix=f"choose another --out, or add {hint}")
    if path.exists() and overwrite and any(path.iterdir()) and not (path / MANIFEST).exists():
        raise UsageError(
            "this folder was not made by carp and is not overwritten", where=str(path), fix="choose another --out"
        )


@contextlib.contextmanager
def new_folder(path: Path | str, kind: str, *, overwrite: bool = False) -> Iterator[Path]:
    """Fill a temporary folder; it takes its place, with a manifest, only when everything has been written."""
    path = Path(path)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, glob.escape(path.name))
        refuse_existing(path, overwrite)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        aside = path.with_name(f".{path.name}.{os.getpid()}.replaced")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            yield partial
            seal(partial, kind)
            if path.exists():
                path.rename(aside)
            partial.rename(path)
            sync_folder(path.parent)
        finally:
            if aside.exists() and not path.exists():  # the new folder could not take its place
                aside.rename(path)
            shutil.rmtree(aside, ignore_errors=True)
            shutil.rmtree(partial, ignore_errors=True)


def seal(folder: Path, kind: str) -> None:
    """Write the manifest: every file with its size and sha256."""
    files = sorted(item for item in folder.rglob("*") if item.is_file() and item.name != MANIFEST)
    # The disk and the sums of large files take their time, and neither keeps the other waiting in threads.
    with ThreadPoolExecutor(SEALING_THREADS) as threads:
        facts = list(threads.map(_sealed, files))
    names = [file.relative_to(folder).as_posix() for file in files]
    listed = dict(zip(names, facts, strict=True))
    write_json(folder / MANIFEST, {"kind": kind, "version": FORMAT_VERSION, "files": listed})


def _sealed(file: Path) -> dict[str, Any]:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
    return {"bytes": file.stat().st_size, "sha256": sha256(file)}


def check_folder(path: Path | str, kind: str, *, contents: bool = True) -> dict[str, Any]:
    """The manifest of a folder whose files are all there and unaltered; anything else is an error."""
    path = Path(path)
    again = f"make the {kind} again, or restore it from a copy"
    bring_back(path)
    if not path.is_dir():
        raise StorageError(f"there is no {kind} here", where=str(path), fix=f"check the path of the {kind}")
    if not (path / MANIFEST).is_file():
        raise DamagedError(f"this folder is no carp {kind}: {MANIFEST} is missing", where=str(path), fix=again)
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise DamagedError("the manifest is damaged", where=str(path / MANIFEST), fix=again)
    if manifest.get("kind") != kind:
        raise UsageError(f"this is a {manifest.get('kind')}, not a {kind}", where=str(path), fix=f"give a {kind}")
    if manifest.get("version") != FORMAT_VERSION:
        raise DamagedError(
            f"it was made by another version (format {manifest.get('version')}, this reads {FORMAT_VERSION})",
            where=str(path),
            fix=again,
        )
    for name, facts in manifest["files"].items():
        _check_file(path, name, facts, contents=contents, fix=again)
    return manifest


def _check_file(folder: Path, name: str, facts: Any, *, contents: bool, fix: str) -> None:
    file = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts or len(name) > 200 or not isinstance(facts, dict):
        raise DamagedError("the manifest is damaged", where=str(folder / MANIFEST), fix=fix)
    if not file.is_file():
        raise DamagedError("a file of the folder is missing", where=str(file), fix=fix)
    if file.stat().st_size != facts.get("bytes") or (contents and sha256(file) != facts.get("sha256")):
        raise DamagedError("the file is damaged: it differs from what was saved", where=str(file), fix=fix)


def folder_size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def readable_size(size: float) -> str:
    """
    >>> readable_size(25_300_000)
    '25.3 MB'
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")
