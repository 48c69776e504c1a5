"""Compiles the C files beside it with the machine's own compiler, once, and loads them; None where that cannot be done.

Operations of a library sweep through memory for each reading; compiled for this processor, what is needed again comes
from the nearest cache. What is compiled lies in the user's cache folder under a name made of the source, the processor
and the compiler. CARP_NATIVE=0 switches it off.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from functools import cache
from pathlib import Path

from carp.errors import SlowerWarning

# No -ffast-math: linking with it would change how the whole process treats tiny numbers.
FLAGS = ["-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math"]
FLAGS += ["-ffp-contract=fast"]
HERE = Path(__file__).parent
LANES = 16  # numbers in a vector, as in lanes.h
COMPILERS = ("cc", "gcc", "clang")


@cache
def library(name: str) -> ctypes.CDLL | None:
    """`name`.c compiled and loaded; whoever asks declares the arguments of its functions.

    Where there is no compiler, nothing is said: `carp doctor` knows. One that fails is worth a line.
    """
    numbers_agree = ctypes.sizeof(ctypes.c_long) == 8  # numbers of pairs and words are of 64 bits
    if os.environ.get("CARP_NATIVE") == "0" or os.name != "posix" or not numbers_agree:
        return None
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return None
    try:
        return ctypes.CDLL(str(_compiled(name, compiler)))
    except (OSError, subprocess.SubprocessError) as problem:
        reason = " ".join(str(problem).split())[:200]
        warnings.warn(f"{name}.c is not used, torch does its work: {reason}", SlowerWarning, stacklevel=2)
        return None


def _compiled(name: str, compiler: str) -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "carp"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise OSError("the cache folder is somebody else's")
    source = HERE / f"{name}.c"
    texts = [file.read_text("utf-8") for file in (source, *sorted(HERE.glob("*.h")))]
    parts = [*texts, compiler, *FLAGS]
    parts += [platform.machine(), _processor()]
    file = folder / f"{name}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:20]}.so"
    if not file.exists():
        handle, beside = tempfile.mkstemp(suffix=".so", dir=folder)
        os.close(handle)
        try:
            command = [compiler, *FLAGS, str(source), "-o", beside, "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            os.replace(beside, file)  # noqa: PTH105
        finally:
            Path(beside).unlink(missing_ok=True)
    return file


def _processor() -> str:
    """What `-march=native` looks at: a home folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
