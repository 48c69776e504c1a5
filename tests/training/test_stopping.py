"""When training ends: after epochs without a better validation error, and at once where numbers are none."""

from __future__ import annotations

import json
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import carp
import carp.training.loop as loop
from carp.errors import CarpError, CarpWarning, InputError
from carp.kernels.gpu.self_check import made_up_data, small_model
from carp.training.checkpoint import CHECKPOINT
from carp.training.divergence import DivergedError, check_epoch
from carp.training.loop import TrainingSettings, train
from made_up_reviews import shop_reviews

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data():
    return made_up_data(users=10, items=8, pairs=60, review=8)


def validation_errors(monkeypatch, data, errors):
    """Let the validation of each epoch have a given error."""
    left = iter(errors)

    def guess(*_):
        return data.valid.ratings + np.float32(math.sqrt(next(left)))

    monkeypatch.setattr(loop, "predict_pairs", guess)


def settings(**more):
    return TrainingSettings(**{"batch_size": 20, "epochs": 20, "patience": 3, **more})


@pytest.mark.parametrize(
    ("errors", "patience", "stops", "best"),
    [
        ([4, 3, 2, 5, 5, 5, 5, 5], 3, 6, 3),
        ([4, 3, 2, 5, 5, 1, 5, 5, 5, 5], 3, 9, 6),
        ([4, 5, 5, 5], 1, 2, 1),
        ([4, 4, 4, 4, 4, 4], 2, 3, 1),
    ],
)
def test_training_stops_after_so_many_epochs_without_a_better_error(monkeypatch, data, errors, patience, stops, best):
    validation_errors(monkeypatch, data, errors)
    reached = train(small_model(data), data, settings(patience=patience), device=CPU)
    assert (reached.epoch, reached.best_epoch) == (stops, best)
    assert reached.best_error == pytest.approx(errors[best - 1], rel=1e-5)


def test_training_keeps_the_weights_of_the_best_epoch(monkeypatch, data):
    kept = {}

    class Watcher(loop.Silent):
        def epoch_ends(self, record):
            kept[record["epoch"]] = {n: t.clone() for n, t in model.state_dict().items()}

    validation_errors(monkeypatch, data, [4, 2, 5, 5, 5])
    model = small_model(data)
    train(model, data, settings(), device=CPU, watcher=Watcher())
    assert all(torch.equal(tensor, kept[2][name]) for name, tensor in model.state_dict().items())
    assert not torch.equal(kept[2]["vote_weight"], kept[5]["vote_weight"])


# ---- what is no number


def test_a_validation_error_that_is_no_number_stops_and_names_epoch_batch_and_checkpoint(monkeypatch, data, tmp_path):
    validation_errors(monkeypatch, data, [4, 3, float("nan")])
    with pytest.raises(DivergedError, match="epoch 3, batch 3 of 3: the validation error became nan") as caught:
        train(small_model(data), data, settings(), device=CPU, folder=tmp_path / "run")
    assert "the checkpoint of epoch 2 is kept" in str(caught.value)
    assert caught.value.where == str(tmp_path / "run")
    kept = json.loads((tmp_path / "run" / CHECKPOINT).read_bytes())
    assert kept["progress"]["epoch"] == 2


def test_without_a_folder_a_model_that_diverged_is_no_model(monkeypatch, data):
    validation_errors(monkeypatch, data, [float("nan")])
    with pytest.raises(DivergedError, match="nothing is kept"):
        train(small_model(data), data, settings(), device=CPU)


@pytest.mark.parametrize("fast", [True, False], ids=["kernels", "plain"])
def test_a_loss_that_is_no_number_names_the_batch(monkeypatch, data, fast):
    """The second batch's loss is made to be none, in the fast trainer and in the plain loop."""
    model, seen = small_model(data, dropout=0.0), []
    right = type(model).loss

    def loss(self, batch, prediction):
        seen.append(len(batch))
        return right(self, batch, prediction) * (float("nan") if len(seen) == 2 else 1.0)

    monkeypatch.setattr(type(model), "loss", loss)
    if not fast:
        monkeypatch.setattr(loop, "trainer_for", lambda *given: None)
    with pytest.raises(DivergedError, match="epoch 1, batch 2 of 3"):
        train(model, data, settings(), device=CPU)


@pytest.mark.parametrize("name", ["carp", "mf"])
def test_a_rate_that_is_far_too_high_ends_in_words(name, data):
    rows = shop_reviews(people=12, seed=1)
    tiny = {"learning_rate": 1e30, "epochs": 3, "min_reviews": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CarpError, match="training diverged in epoch") as caught:
            carp.Recommender(name, device="cpu", **tiny).fit(rows, progress=False)
    assert "learning_rate" in caught.value.fix


def test_a_weight_that_is_no_number_stops_training_even_if_no_error_shows_it(monkeypatch, data):
    model = small_model(data)
    trained = loop.trainer_for

    class Spoiling:
        def __init__(self, *given):
            self.inner = trained(*given)

        def epoch(self, seed, epoch, watcher):
            found = self.inner.epoch(seed, epoch, watcher)
            with torch.no_grad():
                model.embedding.weight[1, 0] = float("nan")
            return found

    monkeypatch.setattr(loop, "trainer_for", Spoiling)
    validation_errors(monkeypatch, data, [4, 3])
    with pytest.raises(DivergedError, match=r"embedding\.weight is no number any more"):
        train(model, data, settings(), device=CPU)


def test_a_weight_that_another_process_keeps_and_is_no_number_stops_this_one_too(data):
    model, company = small_model(data), SimpleNamespace(all_agree=lambda well: False)
    with pytest.raises(DivergedError, match="epoch 2: a word that another process keeps is no number any more"):
        check_epoch(model, {"loss": 1.0}, 2, None, 3, None, company)


def test_a_model_whose_weights_are_no_numbers_is_not_saved(tmp_path):
    rows = shop_reviews(people=12, seed=1)
    recommender = carp.Recommender("mf", device="cpu", epochs=1, min_reviews=1).fit(rows, progress=False)
    with torch.no_grad():
        next(recommender.model.parameters()).fill_(float("nan"))
    with pytest.raises(InputError, match="this model is not saved"):
        recommender.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    user, item = recommender.fitted_corpus.users[0], recommender.fitted_corpus.items[0]
    with pytest.raises(InputError, match="lead to what is no number"):
        recommender.predict([(user, item)])


# ---- resuming elsewhere


def test_resuming_with_other_threads_or_kernels_says_that_bits_may_differ(monkeypatch, data, tmp_path):
    train(small_model(data), data, settings(epochs=1), device=CPU, folder=tmp_path)
    here = loop.circumstances(small_model(data), CPU)
    other = {**here, "threads": here["threads"] + 3, "kernels": "torch of old"}
    monkeypatch.setattr(loop, "circumstances", lambda *given: other)
    with pytest.warns(CarpWarning, match="its last bits may differ") as told:
        reached = train(small_model(data), data, settings(epochs=2), device=CPU, folder=tmp_path, resume=True)
    assert f"threads {here['threads']}, now {other['threads']}" in str(told[0].message)
    assert reached.epoch == 2


def test_resuming_where_everything_is_as_it_was_says_nothing(data, tmp_path):
    train(small_model(data), data, settings(epochs=1), device=CPU, folder=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(small_model(data), data, settings(epochs=2), device=CPU, folder=tmp_path, resume=True)


def test_what_a_killed_training_left_half_written_is_swept_by_the_next(data, tmp_path):
    for name in ("epoch-0009.safetensors", CHECKPOINT, "log.jsonl"):
        (tmp_path / f".{name}.0123456789abcdef.partial").write_bytes(b"half")
    train(small_model(data), data, settings(epochs=1), device=CPU, folder=tmp_path)
    assert [file.name for file in tmp_path.iterdir() if file.name.endswith("partial")] == []


def test_two_trainings_do_not_share_a_folder(data, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    from carp.errors import UsageError

    class Meddling(loop.Silent):
        refusal: BaseException | None = None

        def epoch_ends(self, record):
            with ThreadPoolExecutor(1) as threads:
                work = threads.submit(train, small_model(data), data, settings(epochs=1), device=CPU, folder=tmp_path)
                self.refusal = work.exception()

    watcher = Meddling()
    reached = train(small_model(data), data, settings(epochs=2), device=CPU, folder=tmp_path, watcher=watcher)
    assert isinstance(watcher.refusal, UsageError)
    assert "another process is writing here" in str(watcher.refusal)
    assert reached.epoch == 2
