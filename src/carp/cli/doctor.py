"""Checks whether carp can run on this machine: what is there, what is missing, and how to fix it."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from carp.storage import readable_size

DISTRIBUTION = "carp-rec"
OLDEST_PYTHON = (3, 11)
LITTLE_SPACE = 1_000_000_000
LITTLE_MEMORY = 2_000_000_000
IMPORT_NAMES = {"scikit-learn": "sklearn"}  # where it is not the distribution's own
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)(?:\[[^]]*\])?[^;>]*(?:>=\s*([0-9.]+))?[^;]*(?:;(.*))?")


@dataclass(frozen=True)
class Finding:
    """`broken` means that carp cannot run; `warning` that something optional is missing or low."""

    name: str
    value: str
    state: Literal["ok", "warning", "broken"] = "ok"
    fix: str | None = None


@dataclass(frozen=True)
class Requirement:
    name: str
    least: str
    extra: str | None  # None: always needed


def examine() -> list[Finding]:
    """Check everything, even after something was found broken."""
    return [*_machine(), *_place(), *_libraries(), *_accelerator(), _data()]


def examination_text(findings: list[Finding]) -> str:
    from carp.render.console_tables import table

    marks = {"ok": "ok", "warning": "note", "broken": "BROKEN"}
    rows = [[marks[finding.state], finding.name, finding.value] for finding in findings]
    lines = [table([], rows, left=3), ""]
    wrong = [finding for finding in findings if finding.fix]
    lines += [f"{finding.name}: {finding.fix}" for finding in wrong]
    broken = sum(finding.state == "broken" for finding in findings)
    lines.append("OK: carp can run here." if not broken else f"carp cannot run here yet. Things to fix: {broken}.")
    return "\n".join(lines)


def _machine() -> Iterator[Finding]:
    import carp

    yield Finding("carp", carp.__version__)
    found = platform.python_version()
    if sys.version_info >= OLDEST_PYTHON:
        yield Finding("python", found)
    else:
        yield Finding("python", found, "broken", "install Python 3.11 or later")
    yield Finding("platform", platform.platform())
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("cores", str(usable))
    memory = _memory()
    if memory is not None:
        little = memory < LITTLE_MEMORY
        fix = "use a machine with 2 GB or more for all but small corpora" if little else None
        yield Finding("memory", readable_size(memory), "warning" if little else "ok", fix)


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _place() -> Iterator[Finding]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    if free < LITTLE_SPACE:
        yield Finding("disk space here", readable_size(free), "warning", "free some space, or work on another disk")
    else:
        yield Finding("disk space here", readable_size(free))
    try:
        with tempfile.TemporaryFile(dir=here):
            yield Finding("writing here", str(here))
    except OSError as error:
        yield Finding("writing here", f"{here}: {error.strerror}", "warning", "change to a folder you may write to")


def requirements() -> list[Requirement]:
    """What carp needs: from the installed package, or from pyproject.toml when run from source."""
    try:
        written = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        written = _written_in_source()
    return [read_requirement(line) for line in written]


def _written_in_source() -> list[str]:
    import tomllib

    source = Path(__file__).resolve().parents[3] / "pyproject.toml"
    if not source.is_file():
        return []
    project = tomllib.loads(source.read_text("utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    return [*project["dependencies"], *(f'{line}; extra == "{name}"' for name in extras for line in extras[name])]


def read_requirement(line: str) -> Requirement:
    """
    >>> read_requirement('fastapi>=0.110; extra == "serve"')
    Requirement(name='fastapi', least='0.110', extra='serve')
    >>> read_requirement("torch>=2.11")
    Requirement(name='torch', least='2.11', extra=None)
    """
    match = _REQUIREMENT.match(line)
    name, least, marker = match.groups() if match else (line, None, None)
    extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker or "")
    return Requirement(name, least or "0", extra[1] if extra else None)


def _libraries() -> Iterator[Finding]:
    needed = requirements()
    if not needed:
        yield Finding("carp-rec", "not installed, and not run from source", "broken", "pip install carp-rec")
    yield from (_required(one) for one in needed if one.extra is None)
    yield from (_optional(one) for one in needed if one.extra not in (None, "dev"))


def _required(one: Requirement) -> Finding:
    fix = f"pip install '{one.name}>={one.least}'"
    try:
        importlib.import_module(IMPORT_NAMES.get(one.name, one.name.replace("-", "_")))
        version = importlib.metadata.version(one.name)
    except ImportError as error:  # PackageNotFoundError is one too
        return Finding(one.name, f"cannot be used ({error})", "broken", fix)
    except Exception as error:  # a broken library may fail in any way, and the others are still of interest
        return Finding(one.name, f"cannot be imported ({type(error).__name__}: {error})", "broken", fix)
    if _numbers(version) < _numbers(one.least):
        return Finding(one.name, f"{version} is too old", "broken", fix)
    return Finding(one.name, version)


def _optional(one: Requirement) -> Finding:
    name = f"{one.name} (extra {one.extra})"
    try:
        return Finding(name, importlib.metadata.version(one.name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(
            name, "not installed", "warning", f"optional; to add it: pip install '{DISTRIBUTION}[{one.extra}]'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _accelerator() -> Iterator[Finding]:
    try:
        import torch
    except Exception:  # already found broken above
        return
    yield Finding("torch threads", str(torch.get_num_threads()))
    yield _compiled_kernels()
    if torch.cuda.is_available():
        yield Finding("GPU", f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}")
        triton = importlib.util.find_spec("triton") is not None
        fix = None if triton else "pip install triton, to use the fast GPU kernels"
        yield Finding("triton", "installed" if triton else "not installed", "ok" if triton else "warning", fix)
    elif shutil.which("nvidia-smi"):
        fix = "install a torch with CUDA, see https://pytorch.org/get-started"
        yield Finding("GPU", "found, but torch cannot use it", "warning", fix)
    else:
        yield Finding("GPU", "none; everything runs on the CPU")


def _compiled_kernels() -> Finding:
    from carp.kernels.cpu.compiler import library

    if (loaded := library()) is not None:
        made = "packaged with carp" if loaded.packaged else "compiled for this processor"
        return Finding("compiled kernels", f"in use, {made}; training and scoring run at full speed")
    if os.environ.get("CARP_NATIVE") == "0":
        return Finding("compiled kernels", "switched off by CARP_NATIVE=0")
    fix = "install gcc or clang; without one, torch does the same work several times slower"
    return Finding("compiled kernels", "no working C compiler found", "warning", fix)


def _data() -> Finding:
    folder = os.environ.get("CARP_DATA")
    if not folder:
        return Finding("real data", "CARP_DATA is not set; only tests and benchmarks on real data need it")
    if not Path(folder).is_dir():
        return Finding("real data", f"CARP_DATA is {folder}", "warning", "set CARP_DATA to a folder that exists")
    return Finding("real data", folder)
