"""How the C files become one library: by which compiler, with which flags.

It imports nothing but Python's standard library: the wheel's build hook runs this file before anything is installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
SECONDS = 120  # that compiling may take
UNFINISHED, SUM = "unfinished-", b"\ncarp sha256 "
COMPILERS = ("cc", "gcc", "clang")
# No -ffast-math: linking with it would change how the whole process treats tiny numbers.
FLAGS = ["-O3", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
ON_ARM = platform.machine() in ("aarch64", "arm64")
ON_X86 = platform.machine() in ("x86_64", "AMD64")
FOR_THIS_PROCESSOR = ["-mcpu=native"] if ON_ARM else ["-march=native"]
FOR_MOST_PROCESSORS = ["-mavx2", "-mfma"] if ON_X86 else []  # without AVX2, C would be slower than torch


def find_compiler() -> str | None:
    """The command of $CC, else of a compiler that is there."""
    try:
        wanted = shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        raise OSError(f"$CC is no command ({error})") from None
    if wanted:
        program = shutil.which(wanted[0])
        return None if program is None else shlex.join([program, *wanted[1:]])
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def compiler_version(compiler: str) -> str:
    """What a compiler says it is; another version makes other code."""
    asked = subprocess.run([*shlex.split(compiler), "--version"], capture_output=True, timeout=30, check=True)
    return asked.stdout.decode(errors="replace")


def source_texts() -> list[str]:
    """Everything the library is compiled from."""
    return [file.read_text("utf-8") for file in sorted((*HERE.glob("*.c"), *HERE.glob("*.h")))]


def compile_library(
    compiler: str, flags: Sequence[str], target: Path, check: Callable[[Path], object] | None = None
) -> None:
    """Compile all C files into `target`, which appears when it is complete, on the disk and with its sum at the end.

    `check` raises an error if what the compiler wrote is no library.
    """
    handle, name = tempfile.mkstemp(prefix=UNFINISHED, suffix=".so", dir=target.parent)
    os.close(handle)
    beside = Path(name)
    try:
        command = [*shlex.split(compiler), *FLAGS, *flags, *map(str, sorted(HERE.glob("*.c"))), "-o", name, "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        if check is not None:
            check(beside)
        with beside.open("rb+") as file:
            file.write(SUM + hashlib.sha256(file.read()).hexdigest().encode())
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(0o700)
        beside.replace(target)
        _sync_folder(target.parent)
    finally:
        beside.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the renaming survive a power cut. `carp.storage` has this too, but cannot be imported here."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_whole(content: bytes) -> bool:
    """Whether a library is as it was compiled: its sum stands behind it, where no loader looks."""
    code, mark, found = content.rpartition(SUM)
    return bool(mark) and hashlib.sha256(code).hexdigest().encode() == found


def sweep_unfinished(folder: Path) -> None:
    """Remove what compilers left that were killed; none runs for so long."""
    for leftover in folder.glob(f"{UNFINISHED}*.so"):
        with contextlib.suppress(OSError):
            if leftover.stat().st_mtime < time.time() - 10 * SECONDS:
                leftover.unlink()
