from __future__ import annotations

import pytest

import carp
from carp.reviews.shop.made_up_shop import make_shop


@pytest.fixture(scope="module")
def saved(tmp_path_factory, single_thread):
    """A small model of tuned biases, as it lies on the disk."""
    frame = make_shop(people=12, things=8, reviews_per_person=6, seed=1).frame()
    made = carp.Recommender("bias", min_reviews=1, device="cpu").fit(carp.read_reviews(frame), progress=False)
    folder = tmp_path_factory.mktemp("saved") / "model"
    made.save(folder)
    return folder
