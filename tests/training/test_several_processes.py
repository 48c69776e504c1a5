"""Several processes train as one does: the same losses, and weights that any number of them can go on from."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import training_together
from carp.errors import CarpWarning
from carp.kernels.cpu.cpu_trainer import CpuTrainer
from carp.models import REGISTRY, model_class
from carp.storage import load_arrays

# Each has a way of its own to share a batch; the others share it as these do. `make cluster` takes them all.
TELLING = ["carp", "cmle", "mpcn", "tarmf"]
SINGLE = "carp:single"  # by the kernels in C, where there are any
ALL = sorted(name for name in REGISTRY if model_class(name).learns and not name.startswith("carp-"))
LEARNING = ALL if os.environ.get("CARP_CLUSTER") == "1" else TELLING
RESUMED = ["carp", "tarmf"]  # from a checkpoint of one process, and gone on from by one again
RESUMED_DIVIDED = [f"{name}:divided" for name in RESUMED]
KEPT = "mf:kept"  # from a checkpoint whose epoch stays the best
WITHOUT_TABLE = {"hft", "mf", "pmf", "rblt"}
DIVIDED = RESUMED_DIVIDED if LEARNING is TELLING else [f"{name}:divided" for name in ALL if name not in WITHOUT_TABLE]
ROOT = Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def members(count, *words):
    port = str(free_port())
    for rank in range(count):
        place = {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        place |= {"PYTHONPATH": f"{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(ROOT / "tests/twins/training_together.py"), *map(str, words)]
        yield subprocess.Popen(command, env={**os.environ, **place}, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def together(tmp_path_factory, single_thread):
    """What two processes made of every model, some of them from the checkpoint of one."""
    folder = tmp_path_factory.mktemp("together")
    for name in (*RESUMED, *RESUMED_DIVIDED, KEPT):
        training_together.trained(name, 1, folder / name)
    for process in list(members(2, folder, *LEARNING, SINGLE, *DIVIDED, KEPT)):
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
    return folder


@pytest.mark.parametrize("name", LEARNING)
def test_two_processes_have_the_losses_of_one(together, name):
    assert_those_of_one(together, name, numbers=3, rtol=1e-5)


def assert_those_of_one(together, name, numbers, rtol):
    """What two processes measured in three epochs is what one measures."""
    alone, _ = training_together.trained(name, 3)
    shared = json.loads((together / f"{name}.json").read_text())
    assert len(shared) == numbers
    assert np.allclose(shared, alone, rtol=rtol, atol=0)


def test_two_processes_use_the_kernels_in_c_and_have_their_losses(together):
    alone, weights = training_together.trained(SINGLE, 3)
    assert {one.dtype for one in weights.values() if one.is_floating_point()} == {torch.float32}
    shared = json.loads((together / f"{SINGLE}.json").read_text())
    assert np.allclose(shared, alone, rtol=1e-5, atol=0)


def test_the_parts_of_two_processes_are_the_step_of_one():
    """The kernels' trainer alone, and as each of two that tell each other nothing: their parts add up to its step."""
    recommender = training_together.recommender_of("carp")
    data = training_together.corpus_for(recommender)[1]
    found = {}
    for who, others in {"alone": None, "first": Deaf(0), "second": Deaf(1)}.items():
        torch.manual_seed(1)
        model = recommender.kind(recommender.config, data.sizes)
        trainer = CpuTrainer(model, data, 20, torch.optim.RMSprop(model.parameters()), others)
        steps = trainer.maker.steps(0, 1)
        loss, _ = trainer.learn(next(steps), steps)
        found[who] = {"loss": torch.tensor(loss)} | {
            n: p.grad for n, p in model.named_parameters() if p.grad is not None
        }
        if others is not None:
            assert len(others.told) == 1
    for name, whole in found["alone"].items():
        parts = found["first"][name] + found["second"][name]
        assert torch.allclose(parts, whole, rtol=1e-4, atol=1e-6), name


class Deaf:
    """One of two processes, to whom the other says nothing."""

    size = 2

    def __init__(self, rank):
        self.rank, self.told = rank, []

    def total(self, numbers):
        self.told.append(numbers)
        return numbers


@pytest.mark.parametrize("name", DIVIDED)
def test_two_processes_with_a_divided_word_table_have_the_losses_and_validation_errors_of_one(together, name):
    assert_those_of_one(together, name, numbers=6, rtol=1e-10)


@pytest.mark.parametrize("name", DIVIDED)
def test_each_process_holds_its_own_rows_of_a_divided_word_table_alone(together, name):
    """Of 61: weights, gradients, running squares and the best epoch, whatever is as wide as the table."""
    assert [int((together / f"{name}.{rank}.rows").read_text()) for rank in (0, 1)] == [31, 30]


@pytest.mark.parametrize("name", [*RESUMED, *RESUMED_DIVIDED])
def test_one_then_two_then_one_process_reach_the_weights_of_one_uninterrupted(together, name):
    uninterrupted = training_together.trained(name, 3)[1]
    assert load_arrays(together / f"{name}.0.safetensors"), "the two processes went on from the checkpoint"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        weights = training_together.trained(name, 3, together / name)[1]
    assert any("processes 2, now 1" in str(one.message) for one in told if one.category is CarpWarning)
    for key, value in uninterrupted.items():
        assert torch.allclose(weights[key], value, rtol=0, atol=1e-6), key


@pytest.mark.parametrize("name", RESUMED_DIVIDED)
def test_the_first_process_holds_the_whole_table_in_the_end(together, name):
    weights = training_together.trained(name, 2)[1]
    held = load_arrays(together / f"{name}.0.safetensors")
    for key, value in weights.items():
        assert np.allclose(held[key], value.numpy(), rtol=0, atol=1e-6), key


def test_every_process_ends_with_the_best_epoch_though_only_the_first_has_read_it(together):
    best = training_together.trained(KEPT, 1)[1]
    for rank in (0, 1):
        held = load_arrays(together / f"{KEPT}.{rank}.safetensors")
        assert all(np.allclose(held[key], value.numpy(), rtol=0, atol=1e-12) for key, value in best.items()), rank
