"""Jobs of a cluster, without one: every list of recommendations is of the model that the command has loaded."""

from __future__ import annotations

import contextlib

import pytest

import carp
from carp.cli import entry
from carp.errors import CarpError
from carp.scale import ray_cluster, ray_jobs


@pytest.fixture(scope="module")
def two_models(single_thread):
    """A model, and the one that comes after it."""

    def fitted(seed):
        frame = carp.make_shop(people=12, things=8, reviews_per_person=6, seed=seed).frame()
        made = carp.Recommender("bias", min_reviews=1, device="cpu")
        return made.fit(carp.read_reviews(frame), progress=False)

    return fitted(1), fitted(2)


@pytest.fixture
def model(two_models, tmp_path, monkeypatch):
    """A saved model, and workers that have nothing loaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_jobs, "PEOPLE_AT_ONCE", 4)
    ray_jobs._loaded.cache_clear()
    two_models[0].save(tmp_path / "model")
    yield tmp_path / "model"
    ray_jobs._loaded.cache_clear()


@pytest.fixture
def replace(two_models, model):
    """Puts the other model in the place of the first."""
    return lambda: two_models[1].save(model, overwrite=True)


class Workers:
    """A cluster that is this process. Each task may go to a worker that begins only then."""

    def __init__(self, before=lambda task: None):
        self.before = before

    def map(self, function, tasks):
        for number, task in enumerate(tasks):
            self.before(number)
            yield function(task)


def recommend(monkeypatch, workers, out):
    monkeypatch.setattr(ray_cluster, "connected", lambda address: contextlib.nullcontext(workers))
    return entry.main(["recommend", "model", "--all", "--engine", "ray", "--out", str(out)])


def test_a_cluster_recommends_what_this_machine_does(model, tmp_path, monkeypatch):
    assert recommend(monkeypatch, Workers(), tmp_path / "there.csv") == 0
    assert entry.main(["recommend", "model", "--all", "--out", "here.csv"]) == 0
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


def test_a_worker_that_begins_after_the_model_was_replaced_ends_the_command_and_nothing_is_mixed(
    model, replace, tmp_path, monkeypatch, capsys
):
    def change(number):
        if number == 1:
            replace()
            ray_jobs._loaded.cache_clear()  # a worker of its own

    assert recommend(monkeypatch, Workers(change), tmp_path / "there.csv") == 1
    told = capsys.readouterr().err
    assert f"{model}: the model was replaced while the cluster worked with it. Fix: run the command again" in told
    assert not (tmp_path / "there.csv").exists()


def test_a_worker_that_has_the_model_goes_on_with_it(model, replace, tmp_path, monkeypatch):
    assert entry.main(["recommend", "model", "--all", "--out", "here.csv"]) == 0
    workers = Workers(lambda number: replace() if number == 1 else None)
    assert recommend(monkeypatch, workers, tmp_path / "there.csv") == 0
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


def test_a_model_that_is_replaced_as_the_command_begins_is_what_all_work_with(model, replace, tmp_path, monkeypatch):
    load = carp.load

    def load_the_newer(folder, **more):
        replace()
        return load(folder, **more)

    monkeypatch.setattr(carp, "load", load_the_newer)
    assert recommend(monkeypatch, Workers(), tmp_path / "there.csv") == 0


def test_a_model_is_loaded_once_by_a_worker_and_another_is_refused(model):
    found = ray_jobs._loaded(str(model), carp.load(model).bundle_sum)
    assert ray_jobs._loaded(str(model), found.bundle_sum) is found
    with pytest.raises(CarpError, match="was replaced"):
        ray_jobs._loaded(str(model), "another sum")
