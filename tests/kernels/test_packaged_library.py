"""Wheels can bring the C kernels compiled: they serve where there is no compiler, with the plain model's numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from carp.kernels.cpu import c_build

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "carp/kernels/cpu/packaged.so"
LOADED = "import json; from carp.kernels.cpu.compiler import library as l; f = l(); print(json.dumps(f and f.packaged))"


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


def asked(installed, cache, code, path="", **more):
    """What a new process prints as JSON, with programs looked for in `path` alone; and what it says beside."""
    environment = {"PYTHONPATH": str(installed), "PATH": str(path), "XDG_CACHE_HOME": str(cache), **more}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout), done.stderr


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
    found, _ = asked(installed, tmp_path, NUMBERS)
    assert found["packaged"] is True
    assert found["form"] == "NativeStep"
    assert {name: error for name, error in found["errors"].items() if not error < 1e-4} == {}
    assert len(found["errors"]) == 4


def test_a_compiler_is_preferred_to_what_the_wheel_brought(installed, tmp_path):
    folder = Path(c_build.find_compiler()).parent
    found, _ = asked(installed, tmp_path, LOADED, path=f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert found is False
    assert len(list(tmp_path.glob("carp/kernels-*.so"))) == 1


def test_where_the_compiler_fails_the_wheels_library_is_used_and_one_line_says_so(installed, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cc").symlink_to("/bin/false")
    found, said = asked(installed, tmp_path, LOADED, path=tmp_path / "bin")
    assert found is True
    assert said.count("the C kernels could not be compiled, those that came with the package are used") == 1


@pytest.mark.skipif(not c_build.ON_X86, reason="elsewhere the wheel's library is for every processor")
def test_a_processor_that_cannot_run_the_wheels_library_does_without(installed, tmp_path):
    found, _ = asked(installed, tmp_path, LOADED, ATEN_CPU_CAPABILITY="default")
    assert found is None


def test_what_no_library_can_be_loaded_from_is_passed_over(installed, tmp_path):
    library = installed / LIBRARY
    whole = library.read_bytes()
    library.write_bytes(b"made for another system")
    try:
        assert asked(installed, tmp_path, LOADED)[0] is None
    finally:
        library.write_bytes(whole)


def test_a_plain_wheel_needs_no_compiler_and_fits_every_platform(tmp_path):
    pytest.importorskip("hatchling")
    wheel = build(tmp_path, CARP_BUILD_C="0", PATH="")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert LIBRARY not in packed.namelist()
        assert "carp/kernels/cpu/judge.c" in packed.namelist()
