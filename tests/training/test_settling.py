"""The last epochs take small steps where that is asked for."""

from __future__ import annotations

import pytest
import torch

from carp.cli.demo import QUICK_SETTINGS, QUICK_SHOP_SIZE
from carp.recommender import Recommender
from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources.formats import read_reviews


@pytest.fixture(scope="module")
def corpus():
    return build_corpus(read_reviews(make_shop(seed=0, **QUICK_SHOP_SIZE).frame()))


def weights_after(corpus, **settings):
    recommender = Recommender("carp", seed=0, device="cpu", **{**QUICK_SETTINGS, **settings})
    return recommender.fit(corpus, progress=False).model.state_dict()


def test_a_settling_epoch_is_one_at_a_tenth_of_the_rate(corpus, single_thread):
    settled = weights_after(corpus, learning_rate=0.02, settling_share=1.0)
    slow = weights_after(corpus, learning_rate=0.02 * 0.1)
    fast = weights_after(corpus, learning_rate=0.02)
    assert all(torch.equal(settled[name], slow[name]) for name in slow)
    assert not torch.equal(settled["vote_weight"], fast["vote_weight"])
