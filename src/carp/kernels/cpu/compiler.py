"""Loads the C files as one library: compiled here for this very processor, or else as the package brought it.

Each operation of torch reads its arguments from memory and writes its result back; in C, what is needed again is still
in the nearest cache. The compiler runs once: its library is kept in the user's cache folder, under a name made of the
sources, the processor and the compiler's version. Before it is run, its sum and its owner are checked. Where no
compiler works, a wheel may have brought a library for most processors of its platform. CARP_NATIVE=0 switches both off;
CARP_NATIVE=packaged leaves the compiler out.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import stat
import subprocess
import warnings
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import torch

from carp.errors import SlowerWarning
from carp.kernels.cpu import c_build
from carp.storage.own_cache import own_cache

PACKAGED = Path(__file__).with_name("packaged.so")  # in wheels that were built with CARP_BUILD_C=1
NO_MEMORY = 2  # what a function gives back that had too little
TYPES = {"p": ctypes.c_void_p, "l": ctypes.c_long, "i": ctypes.c_int, "d": ctypes.c_double}
SIGNATURES = {  # the arguments of each function: p an address, l a long, i an int, d a double
    "carp_lanes": "",
    "carp_pack": "pllllp",
    "carp_read": "ppllplippppp",
    "carp_read_round": "pplpp",
    "carp_read_back_round": "pplplppl",
    "carp_windows": "pppllllplilp",
    "carp_take": "pllplp",
    "carp_slices": "pplp",
    "carp_slices_round": "ppppp",
    "carp_words_round": "pppppp",
    "carp_rmsprop": "pppplddd",
    "carp_score_room": "p",
    "carp_score": "pppppllliplpp",
    "carp_group": "pllpp",
    "carp_pair_room": "p",
    "carp_pair_forward": "ppplppp",
    "carp_pair_back": "ppplpppp",
}
COUNTING = {"carp_lanes", "carp_score_room", "carp_group", "carp_pair_room"}  # these give a number back
SILENT = {"carp_pack", "carp_slices", "carp_rmsprop"}  # these nothing, and all others whether they did their work


class KernelLibrary(ctypes.CDLL):
    """The functions of the C files."""

    def __init__(self, file: Path, opened: int | None = None) -> None:
        there = Path(f"/proc/self/fd/{opened}")  # the very file that was checked, where the system lets us say so
        super().__init__(str(file if opened is None or not there.exists() else there))
        for name, arguments in SIGNATURES.items():
            function = getattr(self, name, None)
            if function is None:
                raise OSError(f"{file} has no function {name}")
            function.argtypes = [TYPES[kind] for kind in arguments]
            function.restype = None if name in SILENT else ctypes.c_long
            if name not in COUNTING | SILENT:
                function.errcheck = _done
        self.packaged = file == PACKAGED
        self.lanes: int = self.carp_lanes()  # numbers in a vector
        self.tile = 2 * self.lanes  # words worked on at once: TOKENS of tiles.h

    def filled_up(self, columns: int) -> int:
        """The columns of a row that is filled up to whole vectors."""
        return -(-columns // self.lanes) * self.lanes


def _done(refused: int, function: Any, given: tuple[Any, ...]) -> int:
    """Raise what a function of C says of what it was given."""
    if refused == NO_MEMORY:
        raise MemoryError(function.__name__)
    if refused:
        raise IndexError(f"{function.__name__} was given numbers that do not fit together")
    return refused


@cache
def library() -> KernelLibrary | None:
    """The C files, loaded; None where torch has to do their work.

    That there is neither a compiler nor a packaged library is left to `carp doctor` to say; a compiler that fails is
    worth a warning of one line.
    """
    numbers_agree = ctypes.sizeof(ctypes.c_long) == 8  # the numbers of pairs and words have 64 bits
    if os.environ.get("CARP_NATIVE") == "0" or os.name != "posix" or not numbers_agree:
        return None
    try:
        compiler = None if os.environ.get("CARP_NATIVE") == "packaged" else c_build.find_compiler()
        if compiler is None:
            return _packaged()
        return _loaded(_compiled(compiler), own=True)
    except (OSError, subprocess.SubprocessError) as problem:
        reason = " ".join(str(problem).split())[:200]
        found = _packaged()
        instead = "torch does their work" if found is None else "those that came with the package are used"
        warnings.warn(f"the C kernels could not be compiled, {instead}: {reason}", SlowerWarning, stacklevel=2)
        return found


def _packaged() -> KernelLibrary | None:
    """The library that came with the wheel, where the processor can run it."""
    fits = not c_build.ON_X86 or torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    try:
        return _loaded(PACKAGED, own=False) if fits and PACKAGED.exists() else None
    except OSError:  # damaged, or made for another system
        return None


def _loaded(file: Path, *, own: bool) -> KernelLibrary:
    """A library that is whole and, where it lies in a cache, was written by this user and can be by nobody else."""
    with _opened(file) as opened:
        if (fault := _fault(file, opened, own=own)) is not None:
            raise OSError(fault)
        return KernelLibrary(file, opened.fileno())


def _opened(file: Path) -> BinaryIO:
    """A file, opened without waiting for whoever writes into it: a pipe may stand in its place."""
    return open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK))


def _fault(file: Path, opened: BinaryIO, *, own: bool) -> str | None:
    """Why a library is not run."""
    facts = os.fstat(opened.fileno())
    if not stat.S_ISREG(facts.st_mode):
        return f"{file} is no plain file"
    if own and (facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o022):
        return f"{file} belongs to another user, or others may write to it"
    return None if c_build.is_whole(opened.read()) else f"{file} is damaged"


def _compiled(compiler: str) -> Path:
    """The library in the user's cache; compiled again where it is missing, damaged or somebody else's."""
    folder = own_cache()
    c_build.sweep_unfinished(folder)
    flags = c_build.FOR_THIS_PROCESSOR
    parts = [*c_build.source_texts(), compiler, c_build.compiler_version(compiler), *c_build.FLAGS, *flags]
    key = chr(0).join([*parts, platform.machine(), _processor()])
    file = folder / f"kernels-{hashlib.sha256(key.encode()).hexdigest()[:20]}.so"
    if not _usable(file):
        c_build.compile_library(compiler, flags, file, check=KernelLibrary)
    return file


def _usable(file: Path) -> bool:
    try:
        with _opened(file) as opened:
            return _fault(file, opened, own=True) is None
    except OSError:
        return False


def _processor() -> str:
    """What the compiled code depends on: a home folder may be shared by machines with different processors."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
