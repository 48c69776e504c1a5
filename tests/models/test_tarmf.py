"""TARMF: the reading against its equations, the exact solutions against dense ones, and the turns of an epoch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from carp.models import tarmf
from carp.models.batch import Batch, Pairs, Sizes, TrainingData
from carp.models.tarmf import Tarmf, TarmfConfig, TopicalAttention, ridge_around
from carp.reviews.documents import Documents

CONFIG = TarmfConfig(dimension=6, hidden_size=3, latent_size=4, dropout=0.0)
WORDS = torch.tensor([[3, 9, 9, 4, 1], [7, 2, 0, 0, 0], [5, 0, 0, 0, 0]])


@pytest.fixture
def network():
    torch.manual_seed(2)
    return TopicalAttention(CONFIG, 5).double().eval()


@pytest.fixture
def table():
    return torch.randn(12, CONFIG.dimension, generator=torch.Generator().manual_seed(1)).double()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slow_states(unit, inputs):
    """A gated recurrent unit, one word after another."""
    w_i, w_h, b_i, b_h = (p.detach().numpy() for p in unit.parameters())
    h, found = np.zeros(CONFIG.hidden_size), []
    for x in inputs:
        (r_i, z_i, n_i), (r_h, z_h, n_h) = np.split(w_i @ x + b_i, 3), np.split(w_h @ h + b_h, 3)
        r, z = sigmoid(r_i + r_h), sigmoid(z_i + z_h)
        h = (1 - z) * np.tanh(n_i + r * n_h) + z * h
        found.append(h)
    return np.array(found)


def slow_topics(network, table, words):
    inputs = [table[w].numpy() for w in words.tolist() if w > 0]
    states = np.concatenate(
        [slow_states(network.onwards, inputs), slow_states(network.backwards, inputs[::-1])[::-1]], 1
    )
    hidden = np.tanh(states @ network.hidden.weight.detach().numpy().T + network.hidden.bias.detach().numpy())
    found = []
    for k in range(5):
        scores = hidden @ network.queries[k].detach().numpy()
        attention = np.exp(scores - scores.max())
        attention /= attention.sum()
        found.append(network.output[k].detach().numpy() @ (attention @ states) + network.output_bias[k].item())
    return np.array(found)


def test_a_document_is_read_by_the_equations(network, table):
    found = network(table, WORDS).detach().numpy()
    np.testing.assert_allclose(found, [slow_topics(network, table, row) for row in WORDS], rtol=1e-10)


def test_padding_has_no_effect(network, table):
    alone = torch.cat([network(table, row[row > 0].unsqueeze(0)) for row in WORDS])
    torch.testing.assert_close(network(table, WORDS), alone)
    table = table.clone()
    table[0] = 1e3
    torch.testing.assert_close(network(table, WORDS), alone)


def test_a_document_without_words_gives_the_constant(network, table):
    with torch.no_grad():
        network.output_bias.normal_()
    torch.testing.assert_close(network(table, torch.zeros(1, 3, dtype=torch.int64))[0], network.output_bias)


def test_the_factors_are_the_exact_solutions():
    rng = np.random.default_rng(0)
    owners, topics = rng.integers(0, 6, 80), rng.normal(size=(7, 5))  # owner 6 has no pair
    others, ratings, ridge = rng.normal(size=(80, 5)), rng.normal(size=80), np.array([2.0, 2, 2, 2, 3])
    found = ridge_around(*(torch.from_numpy(array) for array in (topics, owners, others, ratings, ridge))).numpy()
    features = np.concatenate([others[:, :-1], np.ones((80, 1))], 1)
    for owner in range(7):
        mine = owners == owner
        f, rest = features[mine], (ratings - others[:, -1])[mine] - features[mine] @ topics[owner]
        exact = topics[owner] + np.linalg.solve(f.T @ f + np.diag(ridge), f.T @ rest)
        np.testing.assert_allclose(found[owner], exact, atol=1e-8)
    np.testing.assert_array_equal(found[6], topics[6])


@pytest.fixture
def model():
    torch.manual_seed(4)
    model = Tarmf(CONFIG, Sizes(users=4, items=3, words=11))
    model.biases.mean.fill_(3.5)
    model.biases.shrinkage.fill_(2.0)
    return model


def batches():
    pairs = [((0, 1), (0, 2), (5.0, 2.0)), ((2, 0), (1, 2), (3.0, 4.0)), ((3,), (0,), (1.0,))]
    for users, items, ratings in pairs:
        words = torch.tensor(
            [[1 + (3 * u + i + step) % 11 for step in range(4)] for u, i in zip(users, items, strict=True)]
        )
        yield Batch(
            users=torch.tensor(users),
            items=torch.tensor(items),
            user_words=words,
            user_reviews=torch.zeros_like(words),
            item_words=words.flip(1),
            item_reviews=torch.zeros_like(words),
            ratings=torch.tensor(ratings),
            training=True,
        )


def test_an_epoch_learns_each_document_once_and_then_solves_for_the_factors(model):
    read = {"user": [], "item": []}
    for side in read:
        network = getattr(model, f"{side}_network")
        network.register_forward_hook(
            lambda module, given, out, side=side: read[side].append((torch.is_grad_enabled(), len(given[1])))
        )
    before = model.user_factors.clone()
    weights = model.user_network.output.detach().clone()
    loss = model.train().train_epoch(batches(), torch.optim.RMSprop(model.parameters(), lr=0.01))
    for side, owners in (("user", 4), ("item", 3)):
        assert sum(count for learning, count in read[side] if learning) == owners
        assert sum(count for learning, count in read[side] if not learning) == owners
    assert np.isfinite(loss)
    assert model.training
    assert not torch.equal(model.user_network.output, weights)
    assert not torch.equal(model.user_factors, before)


def test_a_strong_pull_leaves_the_documents_factors():
    torch.manual_seed(4)
    pulled = Tarmf(TarmfConfig(dimension=6, hidden_size=3, latent_size=4, dropout=0.0, pull=1e7), Sizes(4, 3, 11))
    pulled.biases.shrinkage.fill_(1e7)
    pulled.train().train_epoch(batches(), torch.optim.RMSprop(pulled.parameters(), lr=0.01))
    pulled.eval()
    first = next(iter(batches()))
    topics = pulled.encode_users(first.user_words, first.user_reviews)
    torch.testing.assert_close(pulled.user_factors[first.users], topics, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("biases", ["zero", "tuned"])
def test_in_its_own_form_biases_begin_at_zero_and_have_the_factors_penalty(biases, monkeypatch):
    monkeypatch.setattr(tarmf, "STARTING_ROUNDS", 0)
    rng = np.random.default_rng(3)
    columns = rng.integers(0, 4, 40), rng.integers(0, 3, 40), rng.integers(1, 6, 40).astype(np.float32)
    pairs = Pairs(*columns, np.arange(40))
    no_words = np.zeros(0, np.int32)
    none = Documents(no_words, no_words, np.zeros((0, 2), np.int32), np.zeros(1, np.int64))
    shape = {"dimension": 6, "hidden_size": 3, "latent_size": 4, "dropout": 0.0}
    model = Tarmf(TarmfConfig(**shape, pull=1e7, biases=biases), Sizes(4, 3, 11))
    model.start(TrainingData(pairs, pairs, none, none, model.sizes))
    own = biases == "zero"
    assert own is not bool(model.user_factors[:, -1].any())
    model.train().train_epoch(batches(), torch.optim.RMSprop(model.parameters(), lr=0.01))
    first = next(iter(batches()))
    topics = model.eval().encode_users(first.user_words, first.user_reviews)
    assert own is torch.allclose(model.user_factors[first.users, -1], topics[:, -1], atol=1e-5)


def test_somebody_known_by_a_document_alone_gets_its_factors(model):
    model.eval()
    batch = next(iter(batches()))
    user = model.encode_users(batch.user_words, batch.user_reviews)
    items = model.item_factors[batch.items]
    expected = 3.5 + user[:, -1] + items[:, -1] + (user[:, :-1] * items[:, :-1]).sum(-1)
    nobody = torch.full_like(batch.users, -1)
    found = model(
        Batch(nobody, batch.items, batch.user_words, batch.user_reviews, batch.item_words, batch.item_reviews)
    )
    torch.testing.assert_close(found.rating, expected)
    one = model.score(nobody, batch.items, user[:1].expand(2, -1, -1), items)  # a newcomer's side, beside many items
    torch.testing.assert_close(one.rating[0], expected[0])


def test_without_text_bias_the_documents_say_nothing_of_the_bias():
    torch.manual_seed(0)
    model = Tarmf(TarmfConfig(dimension=6, hidden_size=3, latent_size=4, text_bias=False), Sizes(4, 3, 11)).eval()
    with torch.no_grad():
        model.user_network.output_bias.fill_(1.0)
    assert (model.encode_users(WORDS, WORDS * 0)[:, -1] == 0).all()
