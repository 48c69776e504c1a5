"""ANR against its equations written out, and what must not depend on padding or on other reviews."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from carp.models.anr import Anr, AnrConfig
from carp.models.batch import Batch, Sizes

CONFIG = AnrConfig(dimension=7, aspects=3, latent_size=4, hidden_size=6)


@pytest.fixture
def model():
    torch.manual_seed(3)
    model = Anr(CONFIG, Sizes(users=4, items=5, words=20)).double().eval()
    with torch.no_grad():
        model.mean.fill_(3.5)
        model.user_bias.normal_()
        model.item_bias.normal_()
    return model


@pytest.fixture
def batch():
    return Batch(
        users=torch.tensor([0, 3]),
        items=torch.tensor([4, 1]),
        user_words=torch.tensor([[3, 9, 9, 4, 1], [7, 2, 0, 0, 0]]),
        user_reviews=torch.tensor([[0, 0, 0, 5, 5], [2, 2, -1, -1, -1]]),
        item_words=torch.tensor([[8, 3, 0], [11, 12, 13]]),
        item_reviews=torch.tensor([[1, 1, -1], [6, 6, 7]]),
    )


def softmax(scores):
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def slow_aspects(model, words, reviews):
    table, project = (t.detach().numpy() for t in (model.embedding.weight, model.projection))
    queries = model.queries.detach().numpy()
    kept = [(w, r) for w, r in zip(words.tolist(), reviews.tolist(), strict=True) if w > 0]
    found = []
    for a in range(CONFIG.aspects):
        z = [table[w] @ project[a] for w, _ in kept]
        scores = []
        for j, (_, review) in enumerate(kept):
            score = 0.0
            for step in (-1, 0, 1):
                if 0 <= j + step < len(kept) and kept[j + step][1] == review:
                    score += queries[a, step + 1] @ z[j + step]
            scores.append(score)
        found.append(sum(weight * vector for weight, vector in zip(softmax(np.array(scores)), z, strict=True)))
    return np.stack(found)


def slow_rating(model, batch, row):
    values = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    p = slow_aspects(model, batch.user_words[row], batch.user_reviews[row])
    q = slow_aspects(model, batch.item_words[row], batch.item_reviews[row])
    s = np.maximum(p @ values["affinity"] @ q.T, 0)
    h_u = np.maximum(p @ values["user_hidden"] + s @ (q @ values["item_hidden"]), 0)
    h_i = np.maximum(q @ values["item_hidden"] + s.T @ (p @ values["user_hidden"]), 0)
    beta_u, beta_i = softmax(h_u @ values["user_importance"]), softmax(h_i @ values["item_importance"])
    rating = sum(beta_u[a] * beta_i[a] * (p[a] @ q[a]) for a in range(CONFIG.aspects))
    return rating + values["user_bias"][batch.users[row]] + values["item_bias"][batch.items[row]] + values["mean"]


def test_it_computes_its_equations(model, batch):
    found = model(batch).rating.detach().numpy()
    np.testing.assert_allclose(found, [slow_rating(model, batch, row) for row in range(2)], rtol=1e-10)


def test_importances_are_shares(model, batch):
    shown = model(batch).tensors
    for side in ("user_importance", "item_importance"):
        torch.testing.assert_close(shown[side].sum(-1), torch.ones(2, dtype=torch.float64))


def test_padding_takes_no_attention(model, batch):
    attention = model.read(batch.user_words, batch.user_reviews).attention
    assert (attention[1, 2:] == 0).all()
    torch.testing.assert_close(attention.sum(1), torch.ones(2, CONFIG.aspects, dtype=torch.float64))


def test_a_word_is_heard_with_its_neighbours_of_the_same_review_alone(model, batch):
    """The fourth word begins another review: in one review with the third it is heard otherwise."""
    joined = torch.where(batch.user_reviews == 5, 0, batch.user_reviews)
    apart = model.read(batch.user_words, batch.user_reviews).attention[0]
    together = model.read(batch.user_words, joined).attention[0]
    assert not torch.allclose(apart, together)


def test_empty_documents_leave_the_biases(model, batch):
    silent = replace(batch, user_words=torch.zeros_like(batch.user_words), user_reviews=batch.user_reviews * 0 - 1)
    biases = model.mean + model.user_bias[batch.users] + model.item_bias[batch.items]
    torch.testing.assert_close(model(silent).rating, biases)


def test_dropout_is_on_the_aspects_in_training_only(model, batch):
    again = [model(batch).rating for _ in range(2)]
    assert torch.equal(*again)
    model.train()
    torch.manual_seed(0)
    again = [model(batch).rating for _ in range(2)]
    assert not torch.equal(*again)
