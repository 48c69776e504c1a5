"""NARRE against its equations written out, and whom its attention knows a review by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from carp.models.batch import Pairs, Sizes
from carp.models.narre import Narre

SETTINGS = {"dimension": 7, "filters": 6, "latent_size": 5, "hidden_size": 4, "reviews": 3, "review_words": 4}
SIZES = Sizes(users=4, items=5, words=30)
RECORDS = Pairs(
    np.array([0, 1, 0, 2, 3, 0, 3, 1]),
    np.array([2, 4, 3, 4, 1, 0, 1, 3]),
    np.full(8, 3.0, np.float32),
    np.array([0, 1, 5, 3, 2, 8, 6, 7]),
)


@pytest.fixture
def model(every_weight_random):
    made = every_weight_random(Narre, SETTINGS, SIZES)
    made.records.fit(RECORDS)
    return made.eval()


def reviews_of(words, reviews):
    """Each review's number and its words, in their order."""
    found: dict[int, list[int]] = {}
    for word, review in zip(words.tolist(), reviews.tolist(), strict=True):
        if word > 0:
            found.setdefault(review, []).append(word)
    return [(review, words[: SETTINGS["review_words"]]) for review, words in found.items()][: SETTINGS["reviews"]]


def slow_side(v, side, reviews, partner_of):
    of = {name.removeprefix(f"{side}_reader."): value for name, value in v.items() if name.startswith(f"{side}_reader")}
    window, _, filters = of["convolution.weight"].shape
    pooled, scores = [], []
    for review, words in reviews:
        features = np.zeros((len(words), filters))
        for place in range(len(words)):
            features[place] = of["convolution.bias"]
            for step in range(window):
                near = place + step - window // 2
                if 0 <= near < len(words):
                    features[place] += v["embedding.weight"][words[near]] @ of["convolution.weight"][step]
        o = np.maximum(features, 0).max(0)
        known = partner_of.get(review)
        partner = np.zeros(SETTINGS["latent_size"]) if known is None else of["partners"][known]
        hidden = of["of_review.weight"] @ o + of["of_review.bias"] + partner @ of["of_partner"]
        pooled.append(o)
        scores.append(of["usefulness"] @ np.maximum(hidden, 0))
    weights = np.exp(np.array(scores) - max(scores, default=0.0))
    attended = sum((w / weights.sum() * o for w, o in zip(weights, pooled, strict=True)), np.zeros(filters))
    return of["dense.weight"] @ attended + of["dense.bias"]


def slow_rating(model, batch, row):
    v = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}
    thing_of = dict(zip(RECORDS.records.tolist(), RECORDS.items.tolist(), strict=True))
    writer_of = dict(zip(RECORDS.records.tolist(), RECORDS.users.tolist(), strict=True))
    x = slow_side(v, "user", reviews_of(batch.user_words[row], batch.user_reviews[row]), thing_of)
    y = slow_side(v, "item", reviews_of(batch.item_words[row], batch.item_reviews[row]), writer_of)
    user, item = int(batch.users[row]), int(batch.items[row])
    q = v["user_factors"][user] if user >= 0 else 0
    bias = v["user_bias"][user] if user >= 0 else 0
    met = v["product_weight"] @ ((q + x) * (v["item_factors"][item] + y))
    return met + bias + v["item_bias"][item] + v["mean"]


def test_it_computes_its_equations(model, batch):
    found = model(batch).rating.detach().numpy()
    np.testing.assert_allclose(found, [slow_rating(model, batch, row) for row in range(3)], rtol=1e-9)


def test_the_attention_knows_a_review_by_its_writer_and_by_what_it_is_about(model, batch):
    with torch.no_grad():
        for reader in (model.user_reader, model.item_reader):
            reader.usefulness.fill_(0.01)  # no review takes all the attention,
            reader.of_review.bias.fill_(30.0)  # and ReLU lets everything through
    before = model.read_items(batch.item_words, batch.item_reviews).attention
    other = model.read_items(batch.item_words, batch.item_reviews.where(batch.item_reviews != 3, 7)).attention
    assert not torch.allclose(before[0], other[0])
    torch.testing.assert_close(before[1], other[1])
    mine = model.read_users(batch.user_words, batch.user_reviews).attention
    with torch.no_grad():
        model.user_reader.partners[3] += 1.0  # what review 5 is about
    moved = model.read_users(batch.user_words, batch.user_reviews).attention
    assert not torch.allclose(mine[0], moved[0])
    torch.testing.assert_close(mine[1:], moved[1:])


def test_a_review_that_was_not_trained_on_has_no_partner(model):
    records = torch.tensor([[-1, 4, 8, 9, 1000]], dtype=torch.int32)
    assert model.records.writers(records).tolist() == [[-1, -1, 0, -1, -1]]
    assert model.records.things(records).tolist() == [[-1, -1, 0, -1, -1]]


def test_partners_that_are_not_there_are_not_loaded(model):
    state = model.state_dict()
    with pytest.raises(ValueError, match="somebody who is not there"):
        model.load_state_dict({**state, "records.user": state["records.user"] + 100})


def test_words_are_heard_as_much_as_their_reviews(model, batch):
    """In a document, the words of a review have its attention in all."""
    with torch.no_grad():
        heard = model.explain(batch, model(batch)).user_words[0, :, 0]
        attention = model.read_users(batch.user_words, batch.user_reviews).attention[0]
    for number, review in enumerate((0, 5, 8)):
        assert float(heard[batch.user_reviews[0] == review].sum()) == pytest.approx(float(attention[number]))


def test_dropout_is_on_the_product_alone(model, batch):
    model.train()
    model.config = replace(model.config, dropout=0.999999)
    alone = model.score(batch.users, batch.items, *(torch.ones(3, 5, dtype=torch.float64),) * 2).rating
    biases = model.mean + model.item_bias[batch.items] + torch.tensor([1, 1, 0]) * model.user_bias[batch.users]
    torch.testing.assert_close(alone, biases)
