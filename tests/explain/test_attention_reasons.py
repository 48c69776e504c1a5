"""What models without capsules say they listened to is what made their ratings."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from carp.models.anr import Anr, AnrConfig
from carp.models.base import first_order_influence, shares
from carp.models.batch import Batch, Sizes
from carp.models.dattn import DAttn, DAttnConfig
from carp.models.deepconn import DeepConn, DeepConnConfig
from carp.models.mpcn import Mpcn, MpcnConfig
from carp.models.ridge import Ridge, RidgeConfig
from carp.models.tarmf import Tarmf, TarmfConfig
from carp.models.transnet import TransNet, TransNetConfig

SIZES = Sizes(users=4, items=5, words=30)
STEP = 1e-6


@pytest.fixture
def batch():
    return Batch(
        users=torch.tensor([0, 3, 2]),
        items=torch.tensor([4, 1, 0]),
        user_words=torch.tensor([[3, 9, 14, 4, 1, 22], [7, 2, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]),
        user_reviews=torch.tensor([[0, 0, 0, 5, 5, 8], [2, 2, -1, -1, -1, -1], [-1, -1, -1, -1, -1, -1]]),
        item_words=torch.tensor([[8, 3, 19, 6], [11, 12, 13, 25], [3, 3, 0, 0]]),
        item_reviews=torch.tensor([[1, 1, 3, 3], [6, 6, 7, 9], [4, 4, -1, -1]]),
    )


def made(kind, config):
    torch.manual_seed(3)
    model = kind(config, SIZES).double().eval()
    for name, parameter in model.named_parameters():
        if name.startswith(("machine", "head")):  # they start so small that little moves
            torch.nn.init.normal_(parameter)
    return model


def heard(model, batch):
    with torch.no_grad():
        prediction = model(batch)
        found = model.explain(batch, prediction)
    return found, prediction


def test_shares_are_even_where_nothing_stands_out_and_zero_where_nothing_is():
    amounts = torch.tensor([[2.0, 6.0, 5.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    there = torch.tensor([[True, True, False], [True, True, False], [False, False, False]])
    assert shares(amounts, there).tolist() == [[0.25, 0.75, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]


def test_pulls_are_those_of_small_steps():
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3).double(), torch.randn(3, 3).double()

    def rating(x):
        return torch.tanh(x @ weight).sum(-1)

    (found,) = first_order_influence(rating, x)
    for row in range(2):
        for place in range(3):
            moved = x.clone()
            moved[row, place] += STEP
            slope = (rating(moved) - rating(x)).sum() / STEP
            assert found[row, place] == pytest.approx(abs(float(x[row, place] * slope)), abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (DeepConn, DeepConnConfig(dimension=6, filters=7, latent_size=4, factors=3)),
        (TransNet, TransNetConfig(dimension=6, filters=7, latent_size=4, factors=3)),
    ],
)
def test_a_pooled_word_is_heard_as_much_as_its_features_move_the_rating(kind, config, batch):
    """One word after another and one filter after another, slopes by small steps."""
    model = made(kind, config)
    found, _ = heard(model, batch)
    texts = {
        "user": (model.user_side, batch.user_words, batch.user_reviews, found.user_words),
        "item": (model.item_side, batch.item_words, batch.item_reviews, found.item_words),
    }
    for side, (network, words, reviews, attention) in texts.items():
        for row in range(len(batch)):
            length = int((words[row] > 0).sum())
            if length == 0:
                assert attention[row].abs().sum() == 0
                continue
            with torch.no_grad():
                features = network.convolution(model.embedding.weight, words, reviews)[row, :length]
                pooled = features.amax(0).clamp_min(0)
                expected = np.zeros(length)
                for j in range(config.filters):
                    step = torch.zeros(config.filters, dtype=torch.double)
                    step[j] = STEP
                    moved = rate_with(model, batch, row, side, network, pooled + step)
                    slope = (moved - rate_with(model, batch, row, side, network, pooled)) / STEP
                    expected[int(features[:, j].argmax())] += abs(float(pooled[j]) * slope)
            assert expected.sum() > 1e-4, "something moves the rating"
            np.testing.assert_allclose(attention[row, :length, 0], expected / expected.sum(), atol=1e-4)


def rate_with(model, batch, row, side, network, pooled):
    """The rating of one pair with one side's pooled features replaced."""
    users = model.encode_users(batch.user_words, batch.user_reviews)[row : row + 1]
    items = model.encode_items(batch.item_words, batch.item_reviews)[row : row + 1]
    changed = network.vector(pooled.unsqueeze(0))
    sides = (changed, items) if side == "user" else (users, changed)
    return float(model.score(batch.users[row : row + 1], batch.items[row : row + 1], *sides).rating)


def test_dattn_shows_both_of_its_attentions_and_weighs_them_by_what_their_features_move(batch):
    config = DAttnConfig(dimension=6, filters=3, hidden=8, latent_size=4)
    model = made(DAttn, config)
    found, _ = heard(model, batch)
    words, reviews = batch.user_words, batch.user_reviews
    reading = model.user_side.read(model.embedding.weight, words, reviews)
    for column, attention in enumerate((reading.local_attention, reading.global_attention)):
        expected = attention[0] / attention[0].sum()
        torch.testing.assert_close(found.user_words[0, :, column], expected)
    assert found.user_names == ("local attention", "global attention")
    assert 0.01 < float(found.user_weights[0, 0]) < 0.99
    with torch.no_grad():
        model.user_side.hidden.weight[:, config.filters :] = 0  # the global attention's features reach nothing
    deaf, _ = heard(model, batch)
    assert deaf.user_weights[0].tolist() == [1.0, 0.0]
    assert deaf.item_weights[0, 1] > 0


def test_mpcn_attends_to_the_words_that_make_what_its_pointers_found(batch):
    config = MpcnConfig(dimension=7, latent_size=5, reviews=2, review_words=2, pointers=3, factors=3)
    model = made(Mpcn, config)
    found, prediction = heard(model, batch)
    vectors = model.embedding.weight.detach() @ model.projection.detach()
    for side, words, attention in (
        ("user", batch.user_words, found.user_words),
        ("item", batch.item_words, found.item_words),
    ):
        made_again = torch.einsum("blp,blk->bpk", attention, vectors[words.long()])
        torch.testing.assert_close(made_again, prediction.tensors[f"{side}_pooled"])
    for pointer in range(3):
        reviews = batch.user_reviews[0][found.user_words[0, :, pointer] > 0]
        assert len(reviews.unique()) == 1, "a pointer reads one review"
    assert found.user_words[0, 2].sum() == 0, "the third word of a review is beyond the two that are read"
    assert found.user_words[0, 5].sum() == 0, "the third review is beyond the two that are read"


def test_anr_weighs_its_aspects_by_their_importance(batch):
    model = made(Anr, AnrConfig(dimension=6, aspects=3, latent_size=4, hidden_size=5))
    found, prediction = heard(model, batch)
    read = model.read(batch.item_words, batch.item_reviews)
    mixed = torch.einsum("blk,bld->bkd", found.item_words, model.embedding.weight.detach()[batch.item_words.long()])
    torch.testing.assert_close(torch.einsum("bkd,kdh->bkh", mixed, model.projection.detach()), read.aspects.detach())
    assert torch.equal(found.user_weights, prediction.tensors["user_importance"])


@pytest.mark.parametrize("text_bias", [True, False])
def test_tarmf_listens_with_the_factors_that_move_the_rating(batch, text_bias):
    model = made(Tarmf, TarmfConfig(dimension=6, hidden_size=3, latent_size=4, text_bias=text_bias))
    with torch.no_grad():
        model.user_factors[:, -1] = 0.5
        model.item_factors[:, [0, 1, 3]] = 0  # one factor and the bias are left
    found, _ = heard(model, batch)
    _, attention = model.user_network.attend(model.embedding.weight, batch.user_words)
    for row in (0, 1):
        user, item = int(batch.users[row]), int(batch.items[row])
        factor = abs(float(model.user_factors[user, 2] * model.item_factors[item, 2]))
        bias = 0.5 if text_bias else 0.0
        expected = (factor * attention[row, :, 2] + bias * attention[row, :, -1]) / (factor + bias)
        torch.testing.assert_close(found.user_words[row, :, 0], expected.detach())


def test_the_words_of_ridge_add_up_to_its_text(batch):
    model = made(Ridge, RidgeConfig(bigrams=4))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        pairs = [(3, 9), (4, 1), (14, 4), (8, 3)]  # the third one lies across two reviews
        model.bigrams.copy_(torch.tensor(sorted(first * 31 + second for first, second in pairs)))
        for text in (model.user_text, model.item_text):
            text.weight.copy_(torch.randn(len(text.weight), generator=generator))
            text.idf.copy_(1 + torch.rand(len(text.idf), generator=generator))
    found, prediction = heard(model, batch)
    user = model.added(model.user_text, batch.user_words, batch.user_reviews)
    item = model.added(model.item_text, batch.item_words, batch.item_reviews)
    torch.testing.assert_close(user.sum(1) + item.sum(1), prediction.tensors["text"])
    assert item[2, 0] == item[2, 1], "the same word twice adds alike"
    up, down = user[0].clamp_min(0), (-user[0]).clamp_min(0)
    torch.testing.assert_close(found.user_words[0], torch.stack([up / up.sum(), down / down.sum()], -1))
    torch.testing.assert_close(found.user_weights[0], torch.stack([up.sum(), down.sum()]) / (up + down).sum())
