"""Where a GPU's fast path fails, the answer is the plain one and one line says so."""

from __future__ import annotations

import pytest
import torch

import carp.training.loop as training
from carp.errors import SlowerWarning
from carp.kernels import best_items, dispatch
from carp.kernels.gpu import encoder, gpu_trainer, scorer
from carp.kernels.gpu import self_check as check
from carp.models.predict import encode_documents, score_pairs

CPU = torch.device("cpu")
Sides = tuple[torch.Tensor, torch.Tensor]
SMALL = {"dimension": 6, "filters": 5, "latent_size": 4, "viewpoints": 2}


@pytest.fixture(scope="module")
def data():
    return check.made_up_data()


@pytest.fixture
def model(data):
    return check.small_model(data, **SMALL).eval()


@pytest.fixture
def sides() -> Sides:
    torch.manual_seed(0)
    return torch.randn(12, 2, 4), torch.randn(9, 2, 4)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Tensors lie on the CPU, and the GPU's paths are taken for them."""
    for module in (dispatch, best_items):
        monkeypatch.setattr(module, "gpu_kernels_wanted", lambda device: True)
    for module in (gpu_trainer, encoder, scorer):
        monkeypatch.setattr(module, "usable_on", lambda device: True)


def fail(*given, **named):
    raise RuntimeError("ptxas was not found\nand much more")


def the_line(caught):
    (told,) = [one for one in caught if issubclass(one.category, SlowerWarning)]
    return str(told.message)


def test_scores_are_the_plain_ones(data, model, sides: Sides, monkeypatch, as_on_a_gpu, recwarn):
    monkeypatch.setattr(scorer, "score_pairs_gpu", fail)
    found = [score_pairs(model, *sides, data.train) for _ in range(2)]
    u, i = torch.from_numpy(data.train.users), torch.from_numpy(data.train.items)
    with torch.no_grad():
        wanted = model.score(u, i, sides[0][u], sides[1][i]).rating
    assert torch.equal(found[0], wanted)
    assert torch.equal(found[1], wanted)
    assert the_line(recwarn) == "scoring takes the plain path: ptxas was not found and much more"


def test_the_best_items_are_the_plain_ones(model, sides: Sides, monkeypatch, as_on_a_gpu, recwarn):
    monkeypatch.setattr(scorer, "top_items_gpu", fail)
    exclude = torch.tensor([[0, 3], [1, 1]])
    best, ratings = best_items.top_items(model, *sides, 4, users=[5, 2], exclude=exclude)
    again, _ = best_items.top_items(model, *sides, 4, users=[5, 2], exclude=exclude)
    every = torch.arange(9)
    with torch.no_grad():
        rows = [model.score(every * 0 + u, every, sides[0][u].expand(9, -1, -1), sides[1]).rating for u in (5, 2)]
    rows[0][3] = rows[1][1] = float("-inf")
    wanted = torch.stack(rows).topk(4)
    assert best.tolist() == again.tolist() == wanted.indices.tolist()
    torch.testing.assert_close(ratings, wanted.values)
    assert the_line(recwarn) == "ranking takes the plain path: ptxas was not found and much more"


def test_documents_are_encoded_plainly(data, model, monkeypatch, as_on_a_gpu, recwarn):
    monkeypatch.setattr(encoder, "encode_side_gpu", fail)
    found = encode_documents(model.encode_users, data.user_documents, CPU)
    monkeypatch.setattr(dispatch, "fast_encode_documents", lambda *given: None)
    assert torch.equal(found, encode_documents(model.encode_users, data.user_documents, CPU))
    assert the_line(recwarn) == "encoding documents takes the plain path: ptxas was not found and much more"


def trained(data):
    model = check.small_model(data, **SMALL)
    settings = training.TrainingSettings(epochs=3, patience=3, batch_size=16)
    reached = training.train(model, data, settings, seed=3, device=CPU)
    return model.state_dict(), [record["loss"] for record in reached.history]


@pytest.mark.parametrize("broken", ["prepare", "_record"], ids=["at once", "with the parameters already moved"])
def test_training_goes_on_to_the_end_when_the_gpus_trainer_cannot_be_prepared(
    data, monkeypatch, as_on_a_gpu, recwarn, broken
):
    monkeypatch.setattr(gpu_trainer.GpuTrainer, broken, fail)
    monkeypatch.setattr(dispatch, "fast_encode_documents", lambda *given: None)
    monkeypatch.setattr(dispatch, "fast_score_pairs", lambda *given: None)
    weights, losses = trained(data)
    assert len(losses) == 3
    line = "training takes the plain path: the GPU kernels could not be prepared (ptxas was not found)."
    assert the_line(recwarn) == line
    monkeypatch.setattr(training, "trainer_for", lambda *given: None)
    plain, wanted = trained(data)
    assert losses == wanted
    assert [name for name in plain if not torch.equal(plain[name], weights[name])] == []


def test_a_gpu_whose_kernels_are_refused_takes_the_plain_path_in_silence(data, monkeypatch, recwarn):
    monkeypatch.setenv("CARP_GPU_KERNELS", "0")
    monkeypatch.setattr(gpu_trainer, "gpu_trainer", fail)
    model = check.small_model(data, **SMALL)
    optimizer = torch.optim.RMSprop(model.parameters())
    settings = training.TrainingSettings()
    assert dispatch.trainer_for(model, data, settings, torch.device("cuda"), optimizer) is None
    assert list(recwarn) == []
