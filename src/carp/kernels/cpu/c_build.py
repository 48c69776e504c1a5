"""How the C files become one library: by which compiler, with which flags.

It imports nothing but Python's standard library: the wheel's build hook runs this file before anything is installed.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
# No -ffast-math: linking with it would change how the whole process treats tiny numbers.
FLAGS = ["-O3", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
ON_ARM = platform.machine() in ("aarch64", "arm64")
ON_X86 = platform.machine() in ("x86_64", "AMD64")
FOR_THIS_PROCESSOR = ["-mcpu=native"] if ON_ARM else ["-march=native"]
FOR_MOST_PROCESSORS = ["-mavx2", "-mfma"] if ON_X86 else []  # without AVX2, C would be slower than torch


def find_compiler() -> str | None:
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def source_texts() -> list[str]:
    """Everything the library is compiled from."""
    return [file.read_text("utf-8") for file in sorted((*HERE.glob("*.c"), *HERE.glob("*.h")))]


def compile_library(compiler: str, flags: Sequence[str], target: Path) -> None:
    """Compile all C files into `target`, which appears when it is complete."""
    handle, beside = tempfile.mkstemp(suffix=".so", dir=target.parent)
    os.close(handle)
    try:
        command = [compiler, *FLAGS, *flags, *map(str, sorted(HERE.glob("*.c"))), "-o", beside, "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        os.replace(beside, target)  # noqa: PTH105
    finally:
        Path(beside).unlink(missing_ok=True)
