"""TransNet: its equations, its three steps, and that the pair's own review is for training alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from carp.models.base import make_config
from carp.models.batch import Batch, Pairs, Sizes, TrainingData
from carp.models.transnet import TransNet
from carp.reviews.documents import make_documents
from carp.training.loop import TrainingSettings, make_optimizer, train

USERS, ITEMS, WORDS = 6, 5, 12
SIZES = Sizes(users=USERS, items=ITEMS, words=WORDS)
TINY = {"dimension": 4, "filters": 3, "latent_size": 2, "factors": 2}
TARGET = ("target.", "target_machine.")
SOURCE = ("user_side.", "item_side.", "transform.")


def made(seed=0, **settings):
    torch.manual_seed(seed)
    return TransNet(make_config(TransNet, {**TINY, **settings}), SIZES)


def training_data(seed=0):
    """Every user with every item, a review of 0 to 5 words each."""
    rng = np.random.default_rng(seed)
    users, items = (side.ravel() for side in np.meshgrid(np.arange(USERS), np.arange(ITEMS), indexing="ij"))
    records = np.arange(len(users))
    review = np.repeat(records, rng.integers(0, 6, len(records))).astype(np.int32)
    words = rng.integers(1, WORDS + 1, len(review)).astype(np.int32)
    place = np.zeros_like(words)
    ratings = rng.integers(1, 6, len(users)).astype(np.float32)
    pairs = Pairs(users, items, ratings, records)
    valid = Pairs(users[:7], items[:7], ratings[:7], np.full(7, -1))
    of_users = make_documents(words, review, place, users.astype(np.int32), USERS)
    of_items = make_documents(words, review, place, items.astype(np.int32), ITEMS)
    own = make_documents(words, review, place, records.astype(np.int32), len(records))
    return TrainingData(pairs, valid, of_users, of_items, SIZES, reviews=own)


def a_batch(data, chosen=tuple(range(8))):
    return data.batch(data.train, np.array(chosen), training=True, needs=TransNet.needs)


def changed(before, model):
    after = model.state_dict()
    return {name for name in before if not torch.equal(before[name], after[name])}


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def slow_text(network, table, words):
    """tanh(W max relu(V ∗ K + b) + g) of one review."""
    kernel, bias = network.convolution.weight.double(), network.convolution.bias.double()
    pooled = torch.zeros(len(bias), dtype=torch.float64)
    for middle in range(len(words)):
        z = bias.clone()
        for step in (-1, 0, 1):
            if 0 <= middle + step < len(words):
                z = z + table[words[middle + step]] @ kernel[step + 1]
        pooled = torch.maximum(pooled, z)
    return torch.tanh(network.dense.weight.double() @ pooled + network.dense.bias.double())


def slow_machine(machine, x):
    rating = machine.mean.item() + sum(float(w) * float(v) for w, v in zip(machine.weight, x, strict=True))
    for m in range(len(x)):
        for n in range(m + 1, len(x)):
            rating += float(machine.factors[m] @ machine.factors[n]) * float(x[m]) * float(x[n])
    return rating


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_source_network_predicts_by_the_papers_equations(layers):
    model = made(transform_layers=layers).double().eval()
    for parameter in model.machine.parameters():
        parameter.copy_(torch.randn_like(parameter))
    user, item = [1, 2, 3], [4, 5, 6, 7]
    table = model.embedding.weight
    z = torch.cat([slow_text(model.user_side, table, user), slow_text(model.item_side, table, item)])
    for layer in model.transform:
        z = torch.tensor(
            [math.tanh(float(row @ z + g)) for row, g in zip(layer.weight, layer.bias, strict=True)]
        ).double()
    one = torch.zeros(1, dtype=torch.long)
    batch = Batch(
        one, one, torch.tensor([user]), torch.zeros(1, 3).long(), torch.tensor([item]), torch.zeros(1, 4).long()
    )
    assert model(batch).rating.item() == pytest.approx(slow_machine(model.machine, z), rel=1e-6)


@torch.no_grad()
def test_the_target_network_reads_the_pairs_own_review():
    model = made().double().eval()
    expected = [slow_text(model.target, model.embedding.weight, words) for words in ([3, 1, 4], [5], [])]
    found = model.read_target(torch.tensor([[3, 1, 4], [5, 0, 0], [0, 0, 0]]))
    torch.testing.assert_close(found, torch.stack(expected))


def test_each_of_the_three_steps_moves_its_own_parameters(monkeypatch):
    data, model = training_data(), made()
    model.start(data)
    optimizer = make_optimizer(model, TrainingSettings())
    moved, before, plain = [], state(model), optimizer.step

    def step():
        plain()
        moved.append(changed(before, model))
        before.update(state(model))

    monkeypatch.setattr(optimizer, "step", step)
    model.train_epoch([a_batch(data)], optimizer)
    assert len(moved) == 3
    first, second, third = moved
    assert {name for name in first if not name.startswith(TARGET)} == {"embedding.weight"}
    assert any(name.startswith("target.") for name in first)
    assert any(name.startswith("target_machine.") for name in first)
    assert {name for name in second if not name.startswith(SOURCE)} == {"embedding.weight"}
    assert {prefix for prefix in SOURCE if any(name.startswith(prefix) for name in second)} == set(SOURCE)
    assert third == {"machine.mean", "machine.weight", "machine.factors"}


def test_the_source_network_comes_to_see_what_the_target_network_sees():
    data, model = training_data(), made(dropout=0.0, latent_size=4)
    model.start(data)
    optimizer = make_optimizer(model, TrainingSettings(learning_rate=0.01))
    batch = a_batch(data)

    def apart():
        with torch.no_grad():
            return float((model(batch).tensors["guess"] - model.read_target(batch.target_words)).square().sum())

    began = apart()
    for _ in range(150):
        model.train_epoch([batch], optimizer)
    assert apart() < 0.1 * began


def test_only_the_source_network_predicts():
    """Whatever the target network and the pair's own review are, the prediction is the same to the bit."""
    data, model = training_data(), made().eval()
    batch = a_batch(data)
    with torch.no_grad():
        expected = model(batch).rating
        others = 1 + (batch.target_words + 3) % WORDS
        for parameter in [*model.target.parameters(), *model.target_machine.parameters()]:
            parameter.fill_(math.nan)
        assert torch.equal(model(replace(batch, target_words=others)).rating, expected)
        assert torch.equal(model(replace(batch, target_words=None)).rating, expected)


def test_the_documents_of_training_hold_no_target_review():
    data = training_data()
    batch = a_batch(data)
    for row, record in enumerate(data.train.records[:8]):
        assert record not in batch.user_reviews[row]
        assert record not in batch.item_reviews[row]
        assert batch.target_words[row].count_nonzero() == (data.reviews.review == record).sum()


def test_stopped_and_resumed_it_ends_in_the_same_bits(tmp_path):
    data, device = training_data(), torch.device("cpu")
    settings = TrainingSettings(batch_size=7, epochs=4, patience=9)
    whole, halves, rest = made(), made(), made(seed=1)
    train(whole, data, settings, seed=3, device=device)
    train(halves, data, replace(settings, epochs=2), seed=3, device=device, folder=tmp_path)
    train(rest, data, settings, seed=3, device=device, folder=tmp_path, resume=True)
    assert changed(state(whole), rest) == set()


def test_both_ratings_are_fitted_by_the_chosen_distance():
    for name, expected in (("absolute", 1.5), ("squared", 2.5)):
        found = made(rating_loss=name)._distance(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 2.0]))
        assert float(found) == expected
