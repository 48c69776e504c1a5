"""What the loop around every model promises, whatever the model learns."""

from __future__ import annotations

import os

import pytest
import torch

import carp.training.loop as loop
from carp.errors import CarpError, UsageError
from carp.kernels.gpu.self_check import made_up_data, small_model
from carp.training.checkpoint import CHECKPOINT
from carp.training.divergence import FaultyBatch
from carp.training.loop import TrainingSettings, choose_device, repeatable, train

CPU = torch.device("cpu")
SETTINGS = TrainingSettings(batch_size=20, epochs=2, patience=2)


@pytest.fixture(scope="module")
def data():
    return made_up_data(users=10, items=8, pairs=60, review=8)


@pytest.fixture
def plain(monkeypatch):
    """Without kernels that train a whole epoch by themselves."""
    monkeypatch.setattr(loop, "trainer_for", lambda *given: None)


# ---- devices


@pytest.mark.parametrize("name", ["abacus", "meta", "cpu:0", "cuda:", "cuda:-1"])
def test_a_device_that_is_none_is_refused_by_name(name):
    with pytest.raises(UsageError, match=f"there is no device '{name}'"):
        choose_device(name)


def test_a_gpu_where_there_is_none_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="no GPU can be used here"):
        choose_device("cuda")


def test_a_gpu_beyond_the_last_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(UsageError, match="there is no GPU 2"):
        choose_device("cuda:2")


def test_a_model_without_room_on_the_device_is_refused_before_anything_is_written(monkeypatch, data, tmp_path):
    def no_room(*given):
        raise CarpError("the card is full")

    monkeypatch.setattr(loop, "check_room", no_room)
    with pytest.raises(CarpError, match="the card is full"):
        train(small_model(data), data, SETTINGS, device=CPU, folder=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_the_model_goes_to_the_device(monkeypatch, data):
    model, places = small_model(data), []
    monkeypatch.setattr(model, "to", lambda place: places.append(place) or model)
    train(model, data, SETTINGS, device=CPU)
    assert places[0] == CPU


# ---- the same bits


def test_operations_whose_order_is_left_to_chance_are_refused_while_training_and_allowed_again_after(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = torch.get_deterministic_debug_mode()
    with repeatable():
        assert torch.get_deterministic_debug_mode() == 2
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert torch.get_deterministic_debug_mode() == before != 2


# ---- who watches


class Diary(loop.Silent):
    def __init__(self, model):
        self.model, self.seen = model, []

    def epoch_begins(self, epoch, batches):
        self.seen.append(f"epoch {epoch} of {batches} batches")

    def batch_done(self):
        self.seen.append("in training" if self.model.training else "not in training")

    def epoch_ends(self, record):
        self.seen.append(f"epoch {record['epoch']} ended")


def test_a_watcher_hears_of_every_epoch_and_batch_and_the_model_is_ready_to_predict_in_the_end(data, plain):
    model = small_model(data)
    diary = Diary(model)
    reached = train(model, data, SETTINGS, device=CPU, watcher=diary)
    epochs = [[f"epoch {n} of 3 batches", *["in training"] * 3, f"epoch {n} ended"] for n in (1, 2)]
    assert diary.seen == [*epochs[0], *epochs[1]]
    assert [record["epoch"] for record in reached.history] == [1, 2]
    assert not model.training


def test_the_model_starts_before_others_begin_with_it(monkeypatch, data):
    model, order = small_model(data), []
    monkeypatch.setattr(model, "start", lambda data: order.append("started"))
    train(model, data, SETTINGS, device=CPU, begin=lambda: order.append("begun"))
    assert order == ["started", "begun"]


def test_an_interruption_without_a_folder_is_passed_on(data, plain):
    class Impatient(loop.Silent):
        def batch_done(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(small_model(data), data, SETTINGS, device=CPU, watcher=Impatient())


def test_an_interruption_in_the_first_epoch_leaves_a_checkpoint_that_is_gone_on_from(data, plain, tmp_path):
    class Impatient(loop.Silent):
        def batch_done(self):
            raise KeyboardInterrupt

    torch.manual_seed(1)
    stopped = small_model(data)
    torch.manual_seed(1)
    uninterrupted = small_model(data)
    with pytest.raises(CarpError, match="after 0 whole epochs; a checkpoint is kept"):
        train(stopped, data, SETTINGS, device=CPU, folder=tmp_path / "run", watcher=Impatient())
    assert (tmp_path / "run" / CHECKPOINT).exists()
    torch.manual_seed(2)  # whose start the checkpoint knows better
    resumed = small_model(data)
    train(resumed, data, SETTINGS, device=CPU, folder=tmp_path / "run", resume=True)
    train(uninterrupted, data, SETTINGS, device=CPU)
    for name, weight in uninterrupted.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], weight), name


# ---- batches whose gradients are no numbers


def test_steps_are_not_looked_at_any_more_once_the_looking_has_ended():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.RMSprop([weight])
    faulty = FaultyBatch(optimizer)
    faulty.begun = 1
    weight.grad = torch.ones(2)
    optimizer.step()
    assert faulty.end() is None
    faulty.begun = 2
    weight.grad = torch.full((2,), torch.nan)
    optimizer.step()
    assert faulty.end() is None


def test_the_first_faulty_batch_is_named_where_others_follow():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.RMSprop([weight])
    faulty = FaultyBatch(optimizer)
    for batch, slope in enumerate((1.0, torch.nan, torch.nan), start=1):
        faulty.begun = batch
        weight.grad = torch.full((2,), slope)
        optimizer.step()
    assert faulty.end() == 2
