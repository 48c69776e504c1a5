"""Wheels can bring the C kernels compiled: they serve where there is no compiler, with the plain model's numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from carp.errors import SlowerWarning
from carp.kernels.cpu import c_build, compiler

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "carp/kernels/cpu/packaged.so"


def build(folder, **more):
    """The wheel of this tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **more}, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the contents of a wheel whose kernels are compiled."""
    pytest.importorskip("hatchling")
    if c_build.find_compiler() is None:
        pytest.skip("there is no C compiler here")
    wheel = build(tmp_path_factory.mktemp("wheel"), CARP_BUILD_C="1")
    assert "-py3-none-any" not in wheel.name
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as packed:
        assert LIBRARY in packed.namelist()
        packed.extractall(folder)
    return folder


@pytest.fixture
def real_compiler():
    """Asked for before `brought` hides it."""
    return c_build.find_compiler()


@pytest.fixture
def brought(installed, tmp_path, monkeypatch):
    """This process as it would be with the wheel's library beside it, no compiler and nothing compiled yet."""
    monkeypatch.setattr(compiler, "PACKAGED", installed / LIBRARY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    for name in ("CC", "CARP_NATIVE"):
        monkeypatch.delenv(name, raising=False)
    compiler.library.cache_clear()
    yield tmp_path
    compiler.library.cache_clear()


NUMBERS = """
import copy, json, warnings
import numpy as np, torch
warnings.simplefilter("error")
torch.set_num_threads(1)
from carp.kernels import dispatch
from carp.kernels.cpu.compiler import library
from carp.kernels.cpu.cpu_trainer import CpuTrainer
from carp.kernels.gpu.self_check import made_up_data, small_model
from carp.reviews.documents import padded
from carp.training.loop import Silent, TrainingSettings, make_optimizer

def off(found, wanted):
    return float((found.double() - wanted).abs().max() / wanted.abs().max())

cpu, data = torch.device("cpu"), made_up_data(users=20, items=15, pairs=150, review=40)
model = small_model(data, dropout=0.0)
exact = copy.deepcopy(model).double().eval()
errors, sides = {}, []
for name, documents in (("encode_users", data.user_documents), ("encode_items", data.item_documents)):
    found = dispatch.fast_encode_documents(getattr(model, name), documents, cpu)
    words, reviews = map(torch.from_numpy, padded(documents, np.arange(len(documents))))
    with torch.no_grad():
        errors[name] = off(found, getattr(exact, name)(words, reviews))
    sides.append(found)
u, i = torch.from_numpy(data.train.users), torch.from_numpy(data.train.items)
with torch.no_grad():
    wanted = exact.score(u, i, sides[0][u].double(), sides[1][i].double()).rating
errors["ratings"] = off(dispatch.fast_score_pairs(model, *sides, data.train), wanted)
settings = TrainingSettings(batch_size=50, learning_rate=1e-4, decay=0.0)
trainer = CpuTrainer(model.train(), data, 50, make_optimizer(model, settings))
batches = data.training_batches(50, 0, 1)
plain = exact.train().train_epoch(batches, make_optimizer(exact, settings))
errors["loss"] = abs(trainer.epoch(0, 1, Silent()) / plain - 1)
print(json.dumps({"packaged": library().packaged, "form": trainer.form.__name__, "errors": errors}))
"""


def test_without_a_compiler_the_wheels_library_gives_the_plain_models_numbers(installed, tmp_path):
    """In a new process, which finds carp and its library in what the wheel brought alone."""
    environment = {"PYTHONPATH": str(installed), "PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", NUMBERS]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)
    assert found["packaged"] is True
    assert found["form"] == "NativeStep"
    assert {name: error for name, error in found["errors"].items() if not error < 1e-4} == {}
    assert len(found["errors"]) == 4


def test_a_compiler_is_preferred_to_what_the_wheel_brought(real_compiler, brought, monkeypatch):
    (brought / "bin").mkdir()
    quick = brought / "bin" / "cc"  # which library is taken does not depend on how well it is compiled
    quick.write_text(f'#!/bin/sh\nexec {real_compiler} "$@" -O0\n')
    quick.chmod(0o700)
    monkeypatch.setenv("PATH", os.pathsep.join([str(quick.parent), "/usr/bin", "/bin"]))
    assert compiler.library().packaged is False
    assert len(list(brought.glob("carp/kernels-*.so"))) == 1


def test_where_the_compiler_fails_the_wheels_library_is_used_and_one_line_says_so(brought, monkeypatch):
    (brought / "bin").mkdir()
    (brought / "bin" / "cc").symlink_to("/bin/false")
    monkeypatch.setenv("PATH", str(brought / "bin"))
    with pytest.warns(SlowerWarning, match="could not be compiled, those that came with the package are used") as said:
        assert compiler.library().packaged is True
    assert len(said) == 1


@pytest.mark.skipif(not c_build.ON_X86, reason="elsewhere the wheel's library is for every processor")
@pytest.mark.usefixtures("brought")
def test_a_processor_that_cannot_run_the_wheels_library_does_without(monkeypatch):
    assert compiler.library().packaged is True
    compiler.library.cache_clear()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert compiler.library() is None


def test_what_no_library_can_be_loaded_from_is_passed_over(brought, monkeypatch):
    (brought / "packaged.so").write_bytes(b"made for another system")
    monkeypatch.setattr(compiler, "PACKAGED", brought / "packaged.so")
    assert compiler.library() is None


def test_a_plain_wheel_needs_no_compiler_and_fits_every_platform(tmp_path):
    pytest.importorskip("hatchling")
    wheel = build(tmp_path, CARP_BUILD_C="0", PATH="")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert LIBRARY not in packed.namelist()
        assert "carp/kernels/cpu/judge.c" in packed.namelist()
