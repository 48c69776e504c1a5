"""The wheel's build hook compiles the kernels where nothing is installed yet: neither carp nor what it needs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carp.kernels.cpu import c_build

SOURCES = Path(c_build.__file__).parent


@pytest.fixture
def compiler(tmp_path):
    """A command that writes something where a compiler writes the library."""
    command = tmp_path / "cc"
    command.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho code > "$2"\n')
    command.chmod(0o700)
    return command


def test_compiling_imports_nothing_but_the_standard_library():
    found = set()
    for node in ast.walk(ast.parse((SOURCES / "c_build.py").read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            found.add(str(node.module).partition(".")[0])
    assert found
    assert found <= sys.stdlib_module_names


def test_a_bare_interpreter_compiles_the_kernels(compiler, tmp_path):
    """As the hook does it: by the path of the file, with no packages and nothing of the environment."""
    target = tmp_path / "packaged.so"
    code = (
        "import runpy, sys\n"
        "from pathlib import Path\n"
        "how = runpy.run_path(sys.argv[1])\n"
        "how['compile_library'](how['find_compiler'](), how['FOR_MOST_PROCESSORS'], Path(sys.argv[2]))\n"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(SOURCES / "c_build.py"), str(target)]
    environment = {"PATH": "/usr/bin:/bin", "CC": str(compiler)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert c_build.is_whole(target.read_bytes())


def test_the_build_hook_compiles_with_nothing_of_carp_to_import(compiler, tmp_path):
    """In a process of its own: hatchling is there, as in the environment that a build makes, and carp is not."""
    pytest.importorskip("hatchling")
    code = (
        "import runpy, sys\n"
        "sys.modules['carp'] = None  # whoever imports it fails\n"
        "from pathlib import Path\n"
        "hook = runpy.run_path(sys.argv[1])\n"
        "print(hook['compile_kernels'](Path(sys.argv[2]), Path(sys.argv[3])))\n"
    )
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", code, str(root / "hatch_build.py"), str(SOURCES), str(tmp_path)]
    environment = {**os.environ, "CC": str(compiler)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert c_build.is_whole((tmp_path / "packaged.so").read_bytes())
