"""A model fitted on all reviews: what the split chose is kept, every review is trained on, no figure is shown."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import carp
from carp.cli import entry as cli
from carp.errors import UsageError
from carp.models.layers import TunedBiases
from carp.reviews.split_parts import TEST, TRAIN
from carp.training.loop import Stopped

TINY = {"dimension": 8, "filters": 6, "latent_size": 4, "viewpoints": 2, "max_words": 40}


@pytest.fixture(scope="module")
def corpus():
    return carp.build_corpus(carp.read_reviews(carp.make_shop(seed=0, people=40, things=12).frame()))


def fitted(corpus, model, **settings):
    return carp.Recommender(model, seed=0, device="cpu", **settings).fit(corpus, all_reviews=True, progress=False)


@pytest.fixture(scope="module")
def mf(corpus):
    return fitted(corpus, "mf", epochs=8, patience=2)


def test_every_review_is_trained_on_for_as_many_epochs_as_were_best(corpus, mf):
    usual = carp.Recommender("mf", seed=0, device="cpu", epochs=8, patience=2).fit(corpus, progress=False)
    assert (mf.fitted_corpus.part == TRAIN).all()
    assert mf.facts["all_reviews"] is True
    assert mf.facts["epochs"] == mf.facts["best_epoch"] == usual.facts["best_epoch"]
    assert mf.facts["valid_mse"] is None
    chosen = mf.facts["chosen_on"]
    assert (chosen["epochs"], chosen["valid_mse"]) == (usual.facts["best_epoch"], usual.facts["valid_mse"])
    assert chosen["split"] == "80:20, seed 0"
    assert len(mf.training_log.splitlines()) == usual.facts["best_epoch"]


def test_the_shrinkages_are_those_that_the_split_chose(corpus, mf):
    usual = carp.Recommender("bias", seed=0, device="cpu").fit(corpus, progress=False)
    shrinkage = usual.baseline.shrinkage
    assert torch.equal(mf.baseline.shrinkage, shrinkage)
    everything = mf.fitted_corpus.training_data().train
    exact = TunedBiases(mf.fitted_corpus.sizes)
    exact.fit(everything, usual.fitted_corpus.training_data().valid, 5)
    assert torch.equal(exact.item, mf.baseline.item)
    counts = np.bincount(mf.fitted_corpus.item) + float(shrinkage[1])
    assert torch.equal(mf.baseline.item_weight, torch.from_numpy(counts).float())


def test_a_penalty_is_chosen_on_the_split_and_kept(corpus):
    usual = carp.Recommender("ridge", seed=0, device="cpu").fit(corpus, progress=False)
    both = fitted(corpus, "ridge")
    assert float(both.model.penalty) == float(usual.model.penalty)
    assert both.facts["chosen_on"]["settings"] == {"penalty": float(usual.model.penalty)}


def test_a_model_that_chooses_nothing_is_fitted_once(corpus, monkeypatch):
    kind = type(carp.Recommender("mean").kind.__name__, (carp.Recommender("mean").kind,), {})
    starts = []
    monkeypatch.setattr(kind, "start", lambda self, data: starts.append(len(data.train)))
    recommender = carp.Recommender("mean", device="cpu")
    recommender.kind = kind
    recommender.fit(corpus, all_reviews=True, progress=False)
    assert starts == [len(corpus)]


def test_a_bundle_says_so_and_shows_no_test_figure(corpus, mf, tmp_path, capsys):
    mf.save(tmp_path / "model")
    again = carp.load(tmp_path / "model")
    assert again.facts["all_reviews"] is True
    assert again.fitted_corpus.facts["split"] == "all reviews, none held out (chosen on 80:20, seed 0)"
    with pytest.raises(UsageError, match="fitted on all reviews: none was held out, so no test figure belongs to it"):
        again.evaluate()
    assert cli.main(["evaluate", str(tmp_path / "model")]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no test figure belongs to it" in shown.err


def test_the_command_says_that_no_test_figure_belongs_to_the_model(corpus, tmp_path, capsys):
    corpus.save(tmp_path / "corpus")
    asked = ["train", str(tmp_path / "corpus"), "--model", "mf", "--set", "epochs=2", "--all-reviews"]
    assert cli.main([*asked, "--out", str(tmp_path / "model")]) == 0
    shown = capsys.readouterr()
    assert "all reviews, none held out" in shown.out
    assert "No test figure belongs to this model" in shown.err
    assert "evaluate" not in shown.err
    assert cli.main([*asked, "--out", str(tmp_path / "other"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["all_reviews"] is True
    assert facts["chosen_on"]["split"] == "80:20, seed 0"
    assert not list(tmp_path.glob("*.training"))


class StopsIn:
    """Stops training in an epoch of the second fit."""

    def __init__(self, epoch):
        self.epoch = epoch
        self.second = False

    def epoch_begins(self, epoch, batches):
        if self.second and epoch == self.epoch:
            raise KeyboardInterrupt

    def batch_done(self):
        pass

    def epoch_ends(self, record):
        self.second = self.second or record["epoch"] == 3


def test_a_stop_in_the_second_fit_is_resumed_to_the_same_bits(corpus, tmp_path):
    settings = {**TINY, "epochs": 3, "patience": 3}
    straight = fitted(corpus, "carp", **settings)
    assert straight.facts["epochs"] >= 2
    stopped = carp.Recommender("carp", seed=0, device="cpu", **settings)
    with pytest.raises(Stopped):
        stopped.fit(corpus, all_reviews=True, checkpoints=tmp_path, watcher=StopsIn(2))
    stopped.fit(corpus, all_reviews=True, checkpoints=tmp_path, resume=True, progress=False)
    for name, tensor in straight.model.state_dict().items():
        assert torch.equal(tensor, stopped.model.state_dict()[name]), name


def test_reviews_that_were_held_out_are_read(corpus):
    recommender = carp.Recommender("mean", device="cpu").fit(corpus, progress=False)
    held = recommender.fitted_corpus.part == TEST
    both = fitted(corpus, "mean")
    assert held.any()
    assert set(both.fitted_corpus.user_documents.review.tolist()) > set(np.flatnonzero(held).tolist())
    assert float(both.model.mean) == pytest.approx(float(np.asarray(corpus.rating).mean()))
