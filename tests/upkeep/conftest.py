"""A small model that is saved anew for each test."""

from __future__ import annotations

import shutil

import pytest

import carp


@pytest.fixture(scope="module")
def frame():
    return carp.make_shop(people=30, things=14, reviews_per_person=8, seed=4).frame()


@pytest.fixture(scope="module")
def trained(frame, single_thread, tmp_path_factory):
    settings = {"epochs": 2, "dimension": 12, "filters": 8, "latent_size": 6, "viewpoints": 3, "max_words": 40}
    made = carp.Recommender("carp", min_reviews=1, device="cpu", **settings)
    made.fit(carp.read_reviews(frame[:180]), progress=False)
    folder = tmp_path_factory.mktemp("trained") / "model"
    made.save(folder)
    return folder


@pytest.fixture(scope="module")
def solved(frame, single_thread, tmp_path_factory):
    """A saved model that is solved for at once."""
    made = carp.Recommender("meeting", min_reviews=1, device="cpu", directions=6, rounds=2, rarity=0.5)
    made.fit(carp.read_reviews(frame[:180]), progress=False)
    folder = tmp_path_factory.mktemp("solved") / "model"
    made.save(folder)
    return folder


@pytest.fixture
def bundle(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "model")


@pytest.fixture(params=["trained", "solved"])
def either(request, tmp_path):
    """A bundle of a model that learns by steps, then one of a model that is solved for at once."""
    return shutil.copytree(request.getfixturevalue(request.param), tmp_path / "model")


@pytest.fixture
def contents():
    def of(folder):
        return {file.name: file.read_bytes() for file in folder.iterdir()}

    return of
