"""When the GPU's paths are taken, how parameters lie for them, and what happens where they cannot be taken."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from carp.errors import SlowerWarning
from carp.kernels import dispatch
from carp.kernels.gpu import availability, encoder, gpu_trainer, scorer
from carp.kernels.gpu import self_check as check
from carp.kernels.gpu.availability import NoFastPath
from carp.kernels.gpu.device_corpus import GpuCorpus
from carp.kernels.gpu.parameter_layout import Packed
from carp.kernels.gpu.workspace import Buffers, Tuning

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module")
def data():
    return check.made_up_data()


def optimizer_of(model, **more):
    return torch.optim.RMSprop(model.parameters(), **more)


@pytest.mark.parametrize("settings", [{}, {"variant": "calibrated"}, {"routing": "agreement"}, {"biases": "tuned"}])
def test_the_usual_variants_are_covered(data, settings):
    model = check.small_model(data, dimension=6, **settings)
    assert gpu_trainer.covers_training_on_gpu(model, optimizer_of(model))


@pytest.mark.parametrize(
    "settings",
    [
        {"variant": "released"},
        {"across_reviews": True},
        {"dropout_on": "weights"},
        {"capsule_bias": True},
        {"highway": "reversed"},
        {"logic_unit": "product first"},
        {"logic_unit": "appended"},
        {"filters": 200},
        {"viewpoints": 9},
    ],
    ids=str,
)
def test_other_choices_take_the_plain_path(data, settings):
    model = check.small_model(data, dimension=6, **settings)
    assert not gpu_trainer.covers_training_on_gpu(model, optimizer_of(model))


def test_another_optimizer_takes_the_plain_path(data):
    model = check.small_model(data, dimension=6)
    assert not gpu_trainer.covers_training_on_gpu(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert not gpu_trainer.covers_training_on_gpu(model, optimizer_of(model, momentum=0.9))


def test_the_packed_layout_holds_every_number_once(data):
    model = check.small_model(data, dimension=6, filters=5, latent_size=3, viewpoints=2)
    packed = Packed(model, CPU)
    places = [packed.view(packed.where, name).flatten() for name in packed.parameters]
    assert len(torch.cat(places).unique()) == sum(parameter.numel() for parameter in packed.parameters.values())
    assert set(packed.parameters) | {"embedding.weight"} == {name for name, _ in model.named_parameters()}
    for name, parameter in packed.parameters.items():
        packed.view(packed.native, name).copy_(parameter)
    packed.refresh()
    votes = packed.weights["vote_weight"]
    torch.testing.assert_close(votes[1, 2, 0, :3, :3], model.vote_weight[1, 2, :3].T)  # of the difference
    torch.testing.assert_close(votes[1, 2, 1, :3, :3], model.vote_weight[1, 2, 3:].T)  # of the product
    filters = model.item_side.convolution.weight
    torch.testing.assert_close(packed.weights["convolution"][:, 1, 2, :5], filters[2])
    assert votes[..., 3:].abs().sum() == 0  # padding
    assert votes[..., 3:, :].abs().sum() == 0


def test_too_little_memory_is_said_before_anything_is_allocated(data, monkeypatch):
    model = check.small_model(data, dimension=6)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 1000))
    with pytest.raises(NoFastPath, match="GB of GPU memory"):
        gpu_trainer._check_memory(model, data, 10, torch.device("cuda"), gpu_trainer.Precision())


def test_a_compiler_that_fails_is_one_line(data, monkeypatch):
    def fail(self):
        raise RuntimeError("ptxas was not found\nand much more")

    monkeypatch.setattr(gpu_trainer, "usable_on", lambda device: True)
    monkeypatch.setattr(gpu_trainer.GpuTrainer, "prepare", fail)
    model = check.small_model(data, dimension=6)
    with pytest.raises(NoFastPath, match=r"could not be prepared \(ptxas was not found\)"):
        gpu_trainer.gpu_trainer(model, data, check.Batched(10), CPU, optimizer_of(model))


class Recording:
    """Stands in for a recorded graph and for its event: counts steps, and how far the host ran ahead."""

    launched = finished = furthest = 0

    def __init__(self, steps):
        self.steps = steps

    def replay(self):
        Recording.launched += self.steps
        Recording.furthest = max(Recording.furthest, Recording.launched - Recording.finished)


class Event:
    def __init__(self, blocking):
        assert blocking  # a waiting host leaves its core to others

    def record(self):
        self.steps = Recording.launched

    def synchronize(self):
        Recording.finished = self.steps


class Watcher:
    seen = 0

    def batch_done(self):
        self.seen += 1


def test_an_epoch_is_recordings_of_several_steps_and_the_rest_one_by_one(data, monkeypatch):
    model = check.small_model(data, dimension=6)
    trainer, _ = check.make_trainer(model, data, 4, CPU, gpu_trainer.Precision(), record=False)
    several = gpu_trainer.STEPS_AT_ONCE
    trainer.graphs = {1: Recording(1), several: Recording(several)}
    monkeypatch.setattr(torch.cuda, "Event", Event)
    watcher = Watcher()
    trainer.run(None, 12 * several + 3, watcher)
    assert Recording.launched == watcher.seen == 12 * several + 3
    assert Recording.furthest <= several * (gpu_trainer.AHEAD + 1)


def test_the_order_made_ahead_is_the_epochs_own(data):
    trainer, _ = check.make_trainer(
        check.small_model(data, dimension=6), data, 4, CPU, gpu_trainer.Precision(), record=False
    )
    wanted = trainer._order(3, 7)
    trainer.next_order = (3, 7), wanted
    assert trainer._order(3, 7) is wanted
    assert sorted(wanted.tolist()) == list(range(len(data.train)))
    assert trainer._order(3, 8).tolist() != wanted.tolist()
    rows = [batch.users.tolist() for batch in data.training_batches(4, 3, 7)]
    assert data.train.users[wanted.numpy()].tolist() == [user for row in rows for user in row]


def test_wide_features_are_cut_to_fit_a_program(data):
    narrow, wide = (Packed(check.small_model(data, dimension=6, filters=n), CPU) for n in (50, 100))
    assert Tuning.of(narrow) == Tuning()
    assert Tuning.of(wide).back_stages == 1
    assert Tuning.of(wide).back_warps == 2 * Tuning().back_warps


def test_documents_are_read_in_whole_blocks(data):
    model = check.small_model(data, dimension=6)
    room = Buffers(Packed(model, CPU), GpuCorpus.of(data, model, CPU), 4, Tuning(block=128), repeatable=True)
    assert room.longest % 128 == 0
    assert room.bias_parts.shape[1] == 4 * room.longest // 128


def test_encoding_that_fails_takes_the_plain_path_with_one_line(data, monkeypatch):
    def fail(*given):
        raise RuntimeError("ptxas was not found\nand much more")

    monkeypatch.setattr(encoder, "usable_on", lambda device: True)
    monkeypatch.setattr(encoder, "encode_side_gpu", fail)
    model = check.small_model(data, dimension=6).eval()
    with pytest.warns(RuntimeWarning, match="^encoding documents takes the plain path: ptxas was not found and much"):
        assert dispatch._encode_on_gpu(model, model.user_side, data.user_documents, CPU) is None


def on_a_gpu_without_triton(monkeypatch):
    """Where tensors lie on the CPU, the paths are asked as if they lay on a GPU."""
    monkeypatch.setattr(availability, "has_triton", lambda: False)
    for module in (gpu_trainer, encoder, scorer):
        monkeypatch.setattr(module, "usable_on", lambda device: availability.usable_on(GPU))


def test_a_gpu_without_triton_is_told_once_for_a_model_that_the_kernels_cover(data, monkeypatch, recwarn):
    on_a_gpu_without_triton(monkeypatch)
    model = check.small_model(data, dimension=6).eval()
    sides = torch.randn(12, 5, 25), torch.randn(9, 5, 25)
    assert dispatch.trainer_for(model, data, check.Batched(10), GPU, optimizer_of(model)) is None
    assert dispatch._encode_on_gpu(model, model.user_side, data.user_documents, CPU) is None
    assert dispatch._score_on_gpu(model, *sides, data.train) is None
    (told,) = recwarn
    assert told.category is SlowerWarning
    assert str(told.message) == ("training takes the plain path: Triton is not installed. Fix: pip install triton.")


def test_a_gpu_without_triton_is_not_told_of_a_model_that_needs_none(data, monkeypatch, recwarn):
    on_a_gpu_without_triton(monkeypatch)
    model = check.small_model(data, dimension=6, variant="released").eval()
    assert dispatch.trainer_for(model, data, check.Batched(10), GPU, optimizer_of(model)) is None
    assert dispatch._encode_on_gpu(model, model.user_side, data.user_documents, CPU) is None
    assert list(recwarn) == []


def test_models_that_read_otherwise_are_not_encoded_by_the_kernels(data, monkeypatch):
    monkeypatch.setattr(encoder, "usable_on", lambda device: True)
    assert encoder.covers_encoding_on_gpu(
        check.small_model(data, dimension=6, dropout_on="weights", highway="reversed"), CPU
    )
    for settings in ({"variant": "released"}, {"across_reviews": True}, {"attention": "routed"}, {"filters": 200}):
        assert not encoder.covers_encoding_on_gpu(check.small_model(data, dimension=6, **settings), CPU)


def test_documents_that_kernels_cannot_address_are_refused(data):
    model = check.small_model(data, dimension=6)
    unnumbered = dataclasses.replace(data.user_documents, words=data.user_documents.words * 0)
    with pytest.raises(NoFastPath, match="without a number"):
        encoder.encode_side_gpu(model.user_side, model.embedding.weight, unnumbered, CPU)
