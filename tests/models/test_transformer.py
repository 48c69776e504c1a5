"""The transformer over reviews against its equations written out, and what it must not hear."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from carp.errors import UsageError
from carp.models.batch import Batch, Sizes
from carp.models.transformer import Transformer
from carp.recommender import Recommender

SETTINGS = {"dimension": 6, "heads": 2, "hidden_size": 5, "latent_size": 4, "reviews": 3, "review_words": 4}
SIZES = Sizes(users=4, items=5, words=30)


@pytest.fixture
def model(every_weight_random):
    return every_weight_random(Transformer, SETTINGS, SIZES).eval()


def softmax(scores):
    raised = np.exp(scores - np.max(scores))
    return raised / raised.sum()


def normed(v, name, x):
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - x.mean(-1, keepdims=True)) / spread * v[f"{name}.weight"] + v[f"{name}.bias"]


def linear(v, name, x):
    return x @ v[f"{name}.weight"].T + v[f"{name}.bias"]


def pooled(v, name, vectors):
    scores = [np.tanh(linear(v, f"{name}.hidden", x)) @ v[f"{name}.query"] for x in vectors]
    return softmax(np.array(scores)) @ np.array(vectors)


def slow_review(v, words):
    x = v["embedding.weight"][words] + v["places"][: len(words)]
    size = SETTINGS["dimension"] // SETTINGS["heads"]
    for layer in range(2):
        asked = linear(v, f"encoder.{layer}.asked", normed(v, f"encoder.{layer}.attention_norm", x))
        q, k, values = np.split(asked, 3, axis=1)
        heads = []
        for head in range(SETTINGS["heads"]):
            own = slice(head * size, (head + 1) * size)
            heads.append([softmax(k[:, own] @ one[own] / np.sqrt(size)) @ values[:, own] for one in q])
        x = x + linear(v, f"encoder.{layer}.answered", np.concatenate(heads, 1))
        wide = linear(v, f"encoder.{layer}.widen", normed(v, f"encoder.{layer}.dense_norm", x))
        x = x + linear(v, f"encoder.{layer}.narrow", np.maximum(wide, 0))
    return pooled(v, "word_pool", list(normed(v, "last_norm", x)))


def slow_side(v, side, words, reviews):
    found: dict[int, list[int]] = {}
    for word, review in zip(words.tolist(), reviews.tolist(), strict=True):
        if word > 0:
            found.setdefault(review, []).append(word)
    read = [slow_review(v, one[: SETTINGS["review_words"]]) for one in list(found.values())[: SETTINGS["reviews"]]]
    together = pooled(v, f"{side}_pool.pool", read) if read else np.zeros(SETTINGS["dimension"])
    return linear(v, f"{side}_pool.dense", together)


def slow_rating(model, batch, row):
    v = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    t = {
        side: slow_side(v, side, getattr(batch, f"{side}_words")[row], getattr(batch, f"{side}_reviews")[row])
        for side in ("user", "item")
    }
    user, item = int(batch.users[row]), int(batch.items[row])
    known = float(user >= 0)
    met = (known * v["user_factors"][user] + t["user"]) * (v["item_factors"][item] + t["item"])
    return v["product_weight"] @ met + known * v["user_bias"][user] + v["item_bias"][item] + v["mean"]


def test_it_computes_its_equations(model, batch):
    found = model(batch).rating.detach().numpy()
    np.testing.assert_allclose(found, [slow_rating(model, batch, row) for row in range(3)], rtol=1e-9)


def test_a_review_is_read_by_itself(model, batch):
    """What stands in one review changes nothing in the words of another, which only share the attention anew."""
    before = model.read(model.user_pool, batch.user_words, batch.user_reviews)
    other = batch.user_words.clone()
    other[0, 0] = 30
    after = model.read(model.user_pool, other, batch.user_reviews)
    assert not torch.equal(before.word_attention[0, 0], after.word_attention[0, 0])
    torch.testing.assert_close(before.word_attention[0, 1:], after.word_attention[0, 1:])


def test_the_order_of_words_is_heard_and_that_of_reviews_is_not(model, batch):
    words, reviews = torch.tensor([[3, 9, 14, 4]]), torch.tensor([[0, 0, 5, 5]])
    turned = model.encode_users(words[:, [1, 0, 2, 3]], reviews)
    swapped = model.encode_users(words[:, [2, 3, 0, 1]], reviews[:, [2, 3, 0, 1]])
    side = model.encode_users(words, reviews)
    assert not torch.allclose(side, turned)
    torch.testing.assert_close(side, swapped)


def test_a_batch_without_any_review_is_rated(model, batch):
    silent = Batch(*(batch.users, batch.items), *(torch.zeros(3, 1).long(), torch.full((3, 1), -1)) * 2)
    assert torch.isfinite(model(silent).rating).all()


def test_heads_that_cannot_share_the_dimension_are_refused():
    with pytest.raises(UsageError, match="4 heads cannot share a dimension of 6"):
        Recommender("transformer", dimension=6)
