"""What models share: the word convolution against torch's own, softmax with nothing to choose from, look-ups."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from carp.errors import UsageError
from carp.models.base import from_settings, make_config
from carp.models.carp import Carp, CarpConfig
from carp.models.layers import WordConvolution, masked_softmax, squash, take_or
from carp.training.loop import TrainingSettings


def documents(seed, rows=4, width=9, words=12):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, width + 1, rows)
    there = np.arange(width) < lengths[:, None]
    text = np.where(there, rng.integers(1, words + 1, (rows, width)), 0)
    reviews = np.where(there, np.cumsum(rng.random((rows, width)) < 0.3, axis=1), -1)
    return torch.from_numpy(text), torch.from_numpy(reviews)


def convolution(window, across, seed=0, dimension=5, filters=4):
    torch.manual_seed(seed)
    made = WordConvolution(dimension, filters, window, across_reviews=across).double()
    torch.nn.init.normal_(made.bias)
    table = torch.randn(13, dimension, dtype=torch.float64)
    table[0] = 0
    return made, table


@pytest.mark.parametrize("window", [1, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_word_convolution_across_reviews_is_torchs_convolution(window, seed):
    made, table = convolution(window, True, seed)
    words, reviews = documents(seed)
    expected = F.conv1d(table[words].mT, made.weight.permute(2, 1, 0), made.bias, padding=window // 2).mT
    torch.testing.assert_close(made(table, words, reviews), expected)


@pytest.mark.parametrize("window", [3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_within_reviews_it_is_torchs_convolution_of_each_review_alone(window, seed):
    made, table = convolution(window, False, seed)
    words, reviews = documents(seed)
    found = made(table, words, reviews)
    for row in range(len(words)):
        for review in set(reviews[row].tolist()) - {-1}:
            places = (reviews[row] == review).nonzero().squeeze(1)
            alone = table[words[row, places]].T[None]
            expected = F.conv1d(alone, made.weight.permute(2, 1, 0), made.bias, padding=window // 2)[0].T
            torch.testing.assert_close(found[row, places], expected)


def test_the_gradient_of_the_word_convolution_is_torchs():
    made, table = convolution(3, True)
    words, reviews = documents(1)
    table = table.requires_grad_()
    there = (words > 0).unsqueeze(-1)
    inputs = (table, made.weight, made.bias)
    ours = torch.autograd.grad((made(table, words, reviews) * there).square().sum(), inputs)
    theirs = F.conv1d((table[words] * there).mT, made.weight.permute(2, 1, 0), made.bias, padding=1).mT
    expected = torch.autograd.grad((theirs * there).square().sum(), inputs)
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert not ours[0][0].any(), "padding never learns"


def test_whatever_stands_in_the_row_of_padding_is_not_read():
    made, table = convolution(3, True)
    words, reviews = documents(2)
    other = table.clone()
    other[0] = 99
    torch.testing.assert_close(made(table, words, reviews), made(other, words, reviews), rtol=0, atol=0)


def test_convolution_weights_are_left_out_in_training_alone():
    made, table = convolution(3, True)
    words, reviews = documents(2)
    whole = made(table, words, reviews)
    torch.manual_seed(0)
    assert not torch.equal(made.train()(table, words, reviews, dropout=0.5), whole)
    torch.testing.assert_close(made.eval()(table, words, reviews, dropout=0.5), whole)


# ---- softmax over what is there


@given(st.lists(st.lists(st.one_of(st.none(), st.floats(-80, 80)), min_size=1, max_size=6), min_size=1, max_size=4))
def test_masked_softmax_is_the_softmax_of_what_is_there(rows):
    width = max(map(len, rows))
    padded = [row + [None] * (width - len(row)) for row in rows]
    mask = torch.tensor([[value is not None for value in row] for row in padded])
    scores = torch.tensor([[0.0 if value is None else value for value in row] for row in padded], dtype=torch.float64)
    found = masked_softmax(scores, mask, dim=1)
    for row in range(len(rows)):
        assert not found[row][~mask[row]].any()
        if mask[row].any():
            torch.testing.assert_close(found[row][mask[row]], scores[row][mask[row]].softmax(0))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_masked_softmax_has_a_finite_gradient_where_nothing_is_there(kind):
    scores = torch.tensor([[1.0, 2.0], [3.0, 1e4]], dtype=kind, requires_grad=True)
    mask = torch.tensor([[False, False], [True, True]])
    weights = masked_softmax(scores, mask, dim=1)
    weights.square().sum().backward()
    assert weights[0].tolist() == [0.0, 0.0]
    assert weights[1].tolist() == [0.0, 1.0]
    assert torch.isfinite(scores.grad).all()


# ---- squash


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6))
def test_squash_shortens_below_one_and_keeps_the_direction(vector):
    given_vector = torch.tensor(vector, dtype=torch.float64)
    short = squash(given_vector)
    assert float(short.norm()) < 1
    if given_vector.norm() > 1e-3:
        cosine = float(short @ given_vector / (short.norm() * given_vector.norm()))
        assert cosine == pytest.approx(1, abs=1e-9)


def test_squash_has_a_gradient_at_zero():
    vector = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    squash(vector).sum().backward()
    assert vector.grad.tolist() == [0.0, 0.0, 0.0]


def test_longer_vectors_stay_longer():
    lengths = torch.tensor([0.01, 0.1, 1.0, 5.0, 100.0], dtype=torch.float64)
    short = squash(lengths[:, None] * torch.tensor([0.6, 0.8], dtype=torch.float64)).norm(dim=1)
    torch.testing.assert_close(short, lengths**2 / (1 + lengths**2))
    assert (short.diff() > 0).all()


# ---- look-ups and settings


def test_take_or_gives_the_unknown_value_for_strangers_and_its_gradient_too():
    values = torch.tensor([1.0, 2.0, 6.0], requires_grad=True)
    found = take_or(values, torch.tensor([2, -1, 0]), values.mean())
    assert found.tolist() == [6.0, 3.0, 1.0]
    found.sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([1 + 1 / 3, 1 / 3, 1 + 1 / 3]))


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"viewpoints": "7"}, "viewpoints", 7),
        ({"viewpoints": 7.0}, "viewpoints", 7),
        ({"margin": "0.5"}, "margin", 0.5),
        ({"mutual_exclusion": "no"}, "mutual_exclusion", False),
        ({"mutual_exclusion": "True"}, "mutual_exclusion", True),
        ({"liked_above": "none"}, "liked_above", None),
        ({"liked_above": "3.5"}, "liked_above", 3.5),
        ({"routing": "agreement"}, "routing", "agreement"),
        ({"variant": "calibrated"}, "hinge", "squared"),
        ({"variant": "calibrated", "hinge": "linear"}, "hinge", "linear"),
    ],
)
def test_settings_are_read_as_their_kind(settings, name, value):
    found = getattr(make_config(Carp, settings), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"viewpoints": "7.5"}, "viewpoints cannot be '7.5'"),
        ({"viewpoints": "many"}, "viewpoints cannot be 'many'"),
        ({"viewpoints": float("inf")}, "viewpoints cannot be inf"),
        ({"viewpoints": None}, "viewpoints cannot be None"),
        ({"mutual_exclusion": "perhaps"}, "mutual_exclusion cannot be 'perhaps'"),
        ({"routing": "agreemnt"}, "routing cannot be 'agreemnt'"),
        ({"variant": "releaset"}, "did you mean released"),
        ({"viewpoint": 3}, "did you mean viewpoints"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings, words):
    with pytest.raises(UsageError, match=words):
        make_config(Carp, settings)


def test_training_settings_are_checked_the_same_way():
    assert from_settings(TrainingSettings, {"epochs": "3"}).epochs == 3
    with pytest.raises(UsageError, match="did you mean learning_rate"):
        from_settings(TrainingSettings, {"learning_rat": 1})
    assert from_settings(CarpConfig, {}) == CarpConfig()
