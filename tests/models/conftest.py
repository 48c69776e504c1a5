"""What the slow twins of models share: documents, and pairs few enough to write every matrix out."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from carp.models.base import make_config
from carp.models.batch import Batch, Pairs, Sizes, TrainingData
from carp.reviews.documents import make_documents
from slow_tfidf import rows_of


def _document(*reviews, width=9):
    words = [word for review in reviews for word in review]
    number = [place for place, review in enumerate(reviews) for _ in review]
    rest = width - len(words)
    return torch.tensor([[*words, *[0] * rest]]), torch.tensor([[*number, *[-1] * rest]])


@pytest.fixture
def document():
    """Words and reviews [1, L] of a document given as lists of words."""
    return _document


def _every_weight_random(kind, settings, sizes, seed=0):
    torch.manual_seed(seed)
    model = kind(make_config(kind, settings), sizes).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name != "embedding.weight":
                parameter.copy_(torch.randn_like(parameter))
    return model


@pytest.fixture
def every_weight_random():
    """A model in double precision none of whose weights starts at zero."""
    return _every_weight_random


@pytest.fixture
def batch():
    """For models that read reviews one by one: three of one person, one of another, a newcomer, a silent thing."""
    return Batch(
        users=torch.tensor([0, 3, -1]),
        items=torch.tensor([4, 1, 0]),
        user_words=torch.tensor([[3, 9, 14, 4, 1, 22, 5, 6, 7], [7, 2, *[0] * 7], [5, *[0] * 8]]),
        user_reviews=torch.tensor([[0, 0, 0, 5, 5, 8, 8, 8, 8], [2, 2, *[-1] * 7], [40, *[-1] * 8]]),
        item_words=torch.tensor([[8, 3, 19, 6], [11, 12, 13, 25], [0, 0, 0, 0]]),
        item_reviews=torch.tensor([[1, 1, 3, 3], [2, 6, 6, 9], [-1, -1, -1, -1]]),
    )


# ---- small pairs


USERS, ITEMS, WORDS = 8, 6, 11


@pytest.fixture(scope="session")
def small_pairs():
    return SimpleNamespace(
        users=USERS,
        items=ITEMS,
        words=WORDS,
        data=some_data,
        rows_of=partial(rows_of, known_words=WORDS),
        dense_terms=dense_terms,
    )


def some_data(seed=0, rating=None, longest=8, people=USERS, things=ITEMS, train=36):
    """Reviews of up to eight words, one in six of none; ratings follow a person, a thing and a word."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(people * things)
    users, items = cells // things, cells % things
    known = np.arange(train)
    lengths = rng.integers(0, longest + 1, train) * (rng.random(train) > 1 / 6)
    review = np.repeat(known, lengths).astype(np.int32)
    words = rng.integers(1, WORDS + 1, len(review)).astype(np.int32)
    characters = np.zeros((len(review), 2), np.int32)
    person, thing = rng.normal(0, 0.7, people), rng.normal(0, 0.7, things)
    ratings = np.clip(3 + person[users] + thing[items] + rng.normal(0, 0.5, len(cells)), 1, 5).astype(np.float32)
    if rating is not None:
        ratings[:] = rating

    def pairs(records):
        return Pairs(users[records], items[records], ratings[records], records)

    return TrainingData(
        pairs(known),
        pairs(np.arange(train, len(cells))),
        make_documents(words, review, characters, users[:train], people, max_words=1000),
        make_documents(words, review, characters, items[:train], things, max_words=1000),
        Sizes(people, things, WORDS, max_words=1000),
    )


def dense_terms(left, right):
    """The seven terms between two lists of pairs, by their definition."""
    (p, xu, zu, xi, zi), (q, yu, vu, yi, vi) = left, right
    same_user = (p.users[:, None] == q.users).astype(float)
    same_item = (p.items[:, None] == q.items).astype(float)
    words_u, words_i, like_u, like_i = xu @ yu.T, xi @ yi.T, zu @ vu.T, zi @ vi.T
    return [same_user, same_item, words_u, words_i, same_user * like_i, same_item * like_u, like_u * like_i]
