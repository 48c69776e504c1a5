"""Compiles the C kernels into the wheel where that is asked for.

    CARP_BUILD_C=1 python -m build --wheel

The wheel then serves machines without a compiler at full speed; it is of one platform, for any Python. Without the
variable the wheel is pure Python, needs no compiler, and compiles the kernels on the machine where they are first used.
"""

from __future__ import annotations

import os
import platform
import runpy
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = "carp/kernels/cpu"


class CustomBuildHook(BuildHookInterface):
    """Found by hatchling under this name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or os.environ.get("CARP_BUILD_C") != "1":
            return
        self.folder = tempfile.TemporaryDirectory()
        library = compile_kernels(Path(self.root) / "src" / KERNELS, Path(self.folder.name))
        build_data["force_include"][str(library)] = f"{KERNELS}/packaged.so"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


def platform_tag() -> str:
    """Of this machine; a Python for two kinds of processors still compiles for one."""
    tag = sysconfig.get_platform().replace("universal2", platform.machine())
    return tag.replace("-", "_").replace(".", "_")


def compile_kernels(sources: Path, folder: Path) -> Path:
    """The library, for most processors of this platform."""
    how = runpy.run_path(str(sources / "c_build.py"))  # by its path: carp itself needs torch
    compiler = how["find_compiler"]()
    if compiler is None:
        raise RuntimeError(
            "CARP_BUILD_C=1 asks for compiled kernels, but there is no C compiler. Install gcc or clang."
        )
    target = folder / "packaged.so"
    try:
        how["compile_library"](compiler, how["FOR_MOST_PROCESSORS"], target)
    except subprocess.CalledProcessError as problem:
        said = problem.stderr.decode(errors="replace")
        raise RuntimeError(f"the C kernels could not be compiled by {compiler}:\n{said}") from problem
    return target
