"""MPCN against its equations written out, its pointers, and the set of reviews it makes of a document."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from carp.models.batch import Batch, Sizes
from carp.models.mpcn import Mpcn, MpcnConfig, choose, one_hot_largest
from carp.models.review_sets import as_reviews

CONFIG = MpcnConfig(dimension=7, latent_size=5, reviews=3, review_words=4, pointers=2, factors=3)


@pytest.fixture
def model():
    torch.manual_seed(5)
    return Mpcn(CONFIG, Sizes(users=4, items=5, words=30)).double().eval()


@pytest.fixture
def batch():
    return Batch(
        users=torch.tensor([0, 3]),
        items=torch.tensor([4, 1]),
        user_words=torch.tensor([[3, 9, 14, 4, 1, 22], [7, 2, 0, 0, 0, 0]]),
        user_reviews=torch.tensor([[0, 0, 0, 5, 5, 8], [2, 2, -1, -1, -1, -1]]),
        item_words=torch.tensor([[8, 3, 19, 6], [11, 12, 13, 25]]),
        item_reviews=torch.tensor([[1, 1, 3, 3], [6, 6, 7, 9]]),
    )


def swapped(batch):
    return replace(
        batch,
        user_words=batch.item_words,
        user_reviews=batch.item_reviews,
        item_words=batch.user_words,
        item_reviews=batch.user_reviews,
    )


def reviews_of(words, reviews):
    """Lists of words, one for each review in its order."""
    found: dict[int, list[int]] = {}
    for word, review in zip(words.tolist(), reviews.tolist(), strict=True):
        if word > 0:
            found.setdefault(review, []).append(word)
    return [one[: CONFIG.review_words] for one in found.values()][: CONFIG.reviews]


def softmax(scores):
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def slow_rating(model, batch, row):
    v = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    words = v["embedding.weight"] @ v["projection"]
    users = reviews_of(batch.user_words[row], batch.user_reviews[row])
    items = reviews_of(batch.item_words[row], batch.item_reviews[row])

    def gated(review):
        x = sum(words[w] for w in review)
        open_ = 1 / (1 + np.exp(-(v["gate.weight"] @ x + v["gate.bias"])))
        return open_ * np.tanh(v["content.weight"] @ x + v["content.bias"])

    a, b = [gated(review) for review in users], [gated(review) for review in items]
    found_a, found_b = [], []
    for p in range(CONFIG.pointers):

        def layer(kind, x, p=p):
            return np.maximum(x @ v[f"{kind}_layer"][p] + v[f"{kind}_bias"][p, 0], 0)

        phi = np.array([[layer("review", x) @ v["review_affinity"][p] @ layer("review", y) for y in b] for x in a])
        own, other = users[phi.max(1).argmax()], items[phi.max(0).argmax()]
        grid = np.array(
            [[layer("word", words[i]) @ v["word_affinity"][p] @ layer("word", words[j]) for j in other] for i in own]
        )
        found_a.append(softmax(grid.mean(1)) @ words[own])
        found_b.append(softmax(grid.mean(0)) @ words[other])
    sides = []
    for found, all_reviews in ((found_a, a), (found_b, b)):
        together = np.concatenate([*found, np.mean(all_reviews, 0)])
        sides.append(np.maximum(v["together.weight"] @ together + v["together.bias"], 0))
    x = np.concatenate(sides)
    pairs = sum((v["head.factors"][i] @ v["head.factors"][j]) * x[i] * x[j] for i in range(len(x)) for j in range(i))
    return v["head.mean"] + v["head.weight"] @ x + pairs


def test_it_computes_its_equations(model, batch):
    found = model(batch).rating.detach().numpy()
    np.testing.assert_allclose(found, [slow_rating(model, batch, row) for row in range(2)], rtol=1e-9)


@pytest.mark.parametrize("training", [False, True])
def test_every_pointer_chooses_one_review_that_is_there(model, batch, training):
    torch.manual_seed(1)
    shown = model.train(training)(batch).tensors
    for side, count in (("user_pointers", [3, 1]), ("item_pointers", [2, 3])):
        pointers = shown[side].detach()
        torch.testing.assert_close(pointers, pointers.round())
        torch.testing.assert_close(pointers.sum(-1), torch.ones(2, CONFIG.pointers, dtype=torch.float64))
        for row, there in enumerate(count):
            assert (pointers[row, :, there:].abs() < 1e-12).all()


def test_noise_is_drawn_in_training_only_and_repeats_with_the_seed(model, batch):
    model.train()
    user, item = (model.shelve(w, r) for w, r in ((batch.user_words, batch.user_reviews),) * 2)

    def drawn(seed):
        torch.manual_seed(seed)
        return torch.stack([model.point(user, item)[0].detach().round() for _ in range(20)])

    assert torch.equal(drawn(0), drawn(0))
    assert len(drawn(0).unique(dim=0)) > 1
    model.eval()
    assert len(drawn(0).unique(dim=0)) == 1


def test_gradients_reach_what_the_pointers_choose_by(model, batch):
    model(batch).rating.sum().backward()
    for name in ("review_layer", "review_affinity", "gate.weight"):
        assert dict(model.named_parameters())[name].grad.abs().sum() > 0, name


def test_the_items_vector_is_made_of_the_items_words(model, batch):
    """Both sides share their weights: with the two documents exchanged, so are the two vectors."""
    shown = model(batch).tensors
    assert not torch.allclose(shown["user_side"], shown["item_side"])
    with torch.no_grad():  # M and M' are read from the user to the item: with symmetric ones neither side is first
        for affinity in (model.review_affinity, model.word_affinity):
            affinity.copy_(affinity + affinity.mT)
    shown, turned = model(batch).tensors, model(swapped(batch)).tensors
    torch.testing.assert_close(shown["user_side"], turned["item_side"])
    torch.testing.assert_close(shown["item_side"], turned["user_side"])


def test_a_document_becomes_the_first_words_of_its_first_reviews():
    words = torch.tensor([[1, 2, 3, 4, 5, 6, 7], [8, 9, 0, 0, 0, 0, 0], [0] * 7])
    reviews = torch.tensor([[4, 4, 4, 6, 9, 9, 9], [2, 3, -1, -1, -1, -1, -1], [-1] * 7])
    assert as_reviews(words, reviews, 30, 2).tolist() == [
        [[1, 2], [4, 0], [5, 6]],
        [[8, 0], [9, 0], [0, 0]],
        [[0, 0], [0, 0], [0, 0]],
    ]
    assert as_reviews(words, reviews, 1, 9)[:, :, :3].tolist() == [[[1, 2, 3]], [[8, 0, 0]], [[0, 0, 0]]]


def test_a_chosen_review_brings_its_own_words(model, batch):
    side = model.shelve(batch.user_words, batch.user_reviews)
    pointers = one_hot_largest(torch.tensor([[[0.0, 2.0, 1.0]], [[3.0, 9.0, 9.0]]]).double(), side.any_words[:, None])
    vectors, there = choose(side, pointers)
    torch.testing.assert_close(vectors[0, 0], side.vectors[0, 1])
    torch.testing.assert_close(vectors[1, 0], side.vectors[1, 0])
    assert there.sum(-1).tolist() == [[2], [2]]


def test_empty_documents_point_nowhere(model, batch):
    silent = replace(batch, user_words=torch.zeros_like(batch.user_words), user_reviews=batch.user_reviews * 0 - 1)
    found = model(silent)
    assert torch.isfinite(found.rating).all()
    assert (found.tensors["user_pointers"] == 0).all()
