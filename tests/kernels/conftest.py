"""What the tests of the compiled kernels share."""

from __future__ import annotations

import importlib.metadata
import os
import sys

import pytest
import torch

from carp.kernels import dispatch
from carp.kernels.cpu import c_build, compiler

SHAPES = [
    {},
    {"filters": 50, "latent_size": 25, "viewpoints": 5, "dimension": 30},
    {"filters": 16, "latent_size": 150, "viewpoints": 1, "dimension": 16},
    {"filters": 13, "latent_size": 1, "viewpoints": 2, "window": 1, "dimension": 1},
    {"filters": 1, "latent_size": 33, "viewpoints": 4, "window": 5, "attention_scale": 2.5},
]


def interpreter_can_be_had() -> bool:
    """Whether Triton is there, not imported yet, and able to work with this NumPy: before 3.8 it is not with 2.4."""
    try:
        versions = {name: importlib.metadata.version(name).split(".") for name in ("triton", "numpy")}
    except importlib.metadata.PackageNotFoundError:
        return False
    triton, numpy = (tuple(map(int, version[:2])) for version in versions.values())
    return "triton" not in sys.modules and (triton >= (3, 8) or numpy < (2, 4))


if not torch.cuda.is_available() and interpreter_can_be_had():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # here, since Triton looks when it is imported


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    """Each test hears what a new process would say."""
    monkeypatch.setattr(dispatch, "_TOLD", set())


@pytest.fixture(params=SHAPES, ids=str)
def shape(request):
    """Settings of a model whose sizes are no multiple of anything, or just are."""
    return request.param


@pytest.fixture
def compiled():
    """Where there is a compiler, C files that it does not take are a failure, never a skip."""
    if c_build.find_compiler() is None and not compiler.PACKAGED.exists():
        pytest.skip("there is no C compiler here, nor a packaged library")
    if os.environ.get("CARP_NATIVE") == "0":
        pytest.skip("CARP_NATIVE=0 switches the compiled kernels off")
    assert compiler.library() is not None


@pytest.fixture
def no_compiler(monkeypatch):
    """As on a machine without one, whose package brought no library either."""
    compiler.library.cache_clear()
    monkeypatch.setattr(c_build.shutil, "which", lambda _: None)
    monkeypatch.setattr(compiler, "PACKAGED", compiler.PACKAGED.with_name("nothing.so"))
    yield
    compiler.library.cache_clear()
