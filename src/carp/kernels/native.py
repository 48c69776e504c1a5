"""Compiles judge.c with the machine's own C compiler, once, and loads it; None where that cannot be done.

Routing reads the votes of a pair five times. Operations of a library sweep through memory for each reading; compiled
for this processor, the readings come from the nearest cache. What is compiled lies in the user's cache folder under
a name made of the source, the processor and the compiler. CARP_NATIVE=0 switches it off.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

LANES, PAIRS, TILE = 16, 32, 10  # as in judge.c
# No -ffast-math: linking with it would change how the whole process treats tiny numbers.
FLAGS = ["-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math"]
FLAGS += ["-ffp-contract=fast"]
SOURCE = Path(__file__).with_name("judge.c")


class Weights(ctypes.Structure):
    """`judge_weights` of judge.c."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("units", "size", "iterations")),
        *((name, ctypes.c_int) for name in ("bi_agreement", "reversed")),
        *((name, ctypes.c_void_p) for name in ("capsule_bias", "gate", "gate_bias", "highway", "highway_bias")),
        *((name, ctypes.c_void_p) for name in ("regression", "regression_bias")),
    ]


@cache
def library() -> ctypes.CDLL | None:
    numbers_agree = ctypes.sizeof(ctypes.c_long) == 8  # the pairs' numbers are of 64 bits
    if os.environ.get("CARP_NATIVE") == "0" or os.name != "posix" or not numbers_agree:
        return None
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        return None
    try:
        loaded = ctypes.CDLL(str(_compiled(compiler)))
    except (OSError, subprocess.SubprocessError):
        return None
    pointer = ctypes.c_void_p
    loaded.carp_judge.argtypes = [ctypes.POINTER(Weights), pointer, ctypes.c_long, pointer]
    loaded.carp_score.argtypes = [ctypes.POINTER(Weights), *[pointer] * 5, *[ctypes.c_long] * 3, pointer, pointer]
    loaded.carp_judge.restype = loaded.carp_score.restype = None
    return loaded


def _compiled(compiler: str) -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "carp"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise OSError("the cache folder is somebody else's")
    parts = [SOURCE.read_text("utf-8"), compiler, *FLAGS, platform.machine(), _processor()]
    file = folder / f"judge-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:20]}.so"
    if not file.exists():
        handle, beside = tempfile.mkstemp(suffix=".so", dir=folder)
        os.close(handle)
        try:
            command = [compiler, *FLAGS, str(SOURCE), "-o", beside, "-lm"]
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
