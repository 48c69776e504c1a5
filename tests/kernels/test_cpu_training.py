"""A step on the CPU's fast path is a step of the plain model, whatever the documents look like."""

from __future__ import annotations

import copy
import dataclasses
import os
import signal
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from carp.kernels.cpu import compiler, ragged, step_c
from carp.kernels.cpu.cpu_trainer import CpuTrainer
from carp.kernels.cpu.ragged import Windows, lay_down, pair_weights
from carp.kernels.cpu.rmsprop_c import NativeRmsprop
from carp.kernels.cpu.step_torch import TorchStep
from carp.kernels.cpu.threads import Workers, workers
from carp.kernels.dispatch import trainer_for
from carp.models.batch import Pairs, Sizes, TrainingData
from carp.models.carp import Carp, CarpConfig
from carp.models.predict import predict_pairs
from carp.reviews.documents import Documents, padded
from carp.training.loop import Silent, TrainingSettings, make_optimizer, train

TINY = {"dimension": 12, "filters": 7, "latent_size": 5, "viewpoints": 3, "dropout": 0.0}
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def one_thread(single_thread):
    """Tiny models: see `single_thread`."""


def made_up_data(seed=0, users=9, items=6, pairs=50, words=40, longest=9, target_reviews="leave out"):
    """Random reviews, some empty, some of one word; the last user and item are only written of in empty ones."""
    rng = np.random.default_rng(seed)
    both = rng.permutation(users * items)[:pairs]
    who, what = both // items, both % items
    ratings = rng.integers(1, 6, pairs).astype(np.float32)
    texts = [rng.integers(1, words + 1, rng.choice([0, 1, 2, rng.integers(0, longest + 1)])) for _ in both]
    silent = (who == users - 1) | (what == items - 1)
    texts = [text[:0] if quiet else text for text, quiet in zip(texts, silent, strict=True)]
    train, valid = np.arange(pairs) % 5 != 0, np.arange(pairs) % 5 == 0

    def documents(owner, owners, most=20):
        rows = [
            [(w, record, n) for record in np.flatnonzero(train & (owner == o)) for n, w in enumerate(texts[record])]
            for o in range(owners)
        ]
        rows = [row[:most] for row in rows]
        flat = np.array([entry for row in rows for entry in row], dtype=np.int32).reshape(-1, 3)
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return Documents(flat[:, 0].copy(), flat[:, 1].copy(), flat[:, 2].copy(), offsets)

    def some(chosen):
        return Pairs(who[chosen], what[chosen], ratings[chosen], np.flatnonzero(chosen))

    sizes = Sizes(users, items, words, max_words=20)
    return TrainingData(
        some(train), some(valid), documents(who, users), documents(what, items), sizes, target_reviews=target_reviews
    )


def twins(data, dtype=torch.float64, **settings):
    torch.manual_seed(3)
    plain = Carp(CarpConfig(**{**TINY, **settings}), data.sizes).to(dtype)
    plain.start(data)
    return plain, copy.deepcopy(plain)


def plain_epoch(model, data, settings, optimizer, seed=0, epoch=1):
    def batches():
        for batch in data.training_batches(settings.batch_size, seed, epoch, model.needs):
            yield dataclasses.replace(batch, ratings=batch.ratings.to(model.embedding.weight.dtype))

    return model.train().train_epoch(batches(), optimizer)


def fast_epoch(model, data, settings, optimizer, seed=0, epoch=1):
    trainer = CpuTrainer(model.train(), data, settings.batch_size, optimizer)
    return trainer.epoch(seed, epoch, Silent())


VARIANTS = [
    {},
    {"hinge": "squared", "biases": "leave-one-out"},
    {"routing": "agreement"},
    {"biases": "tuned", "attention_scale": 2.5, "window": 5},
    {"window": 1, "viewpoints": 1, "mutual_exclusion": False},
    {"logic_unit": "product first", "highway": "reversed", "capsule_bias": True, "routing_epsilon": 1e-9},
    {"logic_unit": "appended"},
]


CASES = [(size, "leave out", variant) for size in (1, 16, 100) for variant in VARIANTS[:2]]
CASES += [(16, "leave out", variant) for variant in VARIANTS[2:]] + [(16, "keep", {}), (100, "keep", VARIANTS[1])]


@pytest.mark.parametrize(("size", "target_reviews", "variant"), CASES, ids=str)
def test_an_epoch_gives_the_plain_weights_and_running_squares(size, target_reviews, variant):
    pairs = 20 if size == 1 else 50  # each is a step of its own then
    data = made_up_data(seed=size, pairs=pairs, target_reviews=target_reviews)
    settings = TrainingSettings(batch_size=size, learning_rate=0.01)
    plain, fast = twins(data, **variant)
    optimizers = make_optimizer(plain, settings), make_optimizer(fast, settings)
    for epoch in (1, 2):
        expected = plain_epoch(plain, data, settings, optimizers[0], epoch=epoch)
        found = fast_epoch(fast, data, settings, optimizers[1], epoch=epoch)
        assert found == pytest.approx(expected, rel=1e-9)
    for (name, one), (_, other) in zip(plain.named_parameters(), fast.named_parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-9, msg=partial("{}: {}".format, name))
    for place, state in optimizers[0].state_dict()["state"].items():
        other = optimizers[1].state_dict()["state"][place]
        torch.testing.assert_close(other["square_avg"], state["square_avg"], rtol=1e-6, atol=1e-12)
        assert int(other["step"]) == int(state["step"])


def test_the_gradient_of_one_step_is_the_plain_one():
    """With a decay of 0 the running square is the squared gradient itself."""
    data = made_up_data(seed=7, pairs=50)
    settings = TrainingSettings(batch_size=100, learning_rate=1e-4, decay=0.0)
    plain, fast = twins(data)
    optimizers = make_optimizer(plain, settings), make_optimizer(fast, settings)
    plain_epoch(plain, data, settings, optimizers[0])
    fast_epoch(fast, data, settings, optimizers[1])
    reached = 0
    for place, state in optimizers[0].state_dict()["state"].items():
        other = optimizers[1].state_dict()["state"][place]["square_avg"]
        torch.testing.assert_close(other.sqrt(), state["square_avg"].sqrt(), rtol=1e-7, atol=1e-10)
        reached += int((other > 0).any())
    assert reached >= 16  # nothing was compared as zero with zero


@pytest.mark.parametrize("seed", range(4))
def test_pairs_see_their_documents_without_their_own_review(seed):
    data = made_up_data(seed=seed)
    pairs = data.train
    chosen = np.random.default_rng(seed).permutation(len(pairs))[:30]
    windows = Windows.of(data.item_documents, 3)
    tokens = lay_down(windows, pairs.items[chosen], pairs.records[chosen])
    expected, _ = padded(data.item_documents, pairs.items[chosen], pairs.records[chosen])
    seen = {}
    for number in range(len(tokens.blocks)):
        block = tokens.blocks[number]
        weights = pair_weights(block, np.float64)
        for row, pair in zip(weights, block.pairs, strict=True):
            seen[int(pair)] = tokens.neighbours[block.first : block.last, 1][row > 0].tolist()
            assert row.sum() == pytest.approx(1)
    assert len(tokens) < (expected > 0).sum()  # documents that pairs share lie there once
    for pair, line in enumerate(expected):
        assert seen.get(pair, []) == line[line > 0].tolist()


def test_dropout_leaves_out_its_share_and_repeats_with_the_seed():
    data = made_up_data(longest=20)
    settings = TrainingSettings(batch_size=20)
    _, model = twins(data, dropout=0.3)
    maker = CpuTrainer(model, data, settings.batch_size, make_optimizer(model, settings)).maker
    masks = [[mask for step in maker.steps(0, epoch) for mask in step.dropped] for epoch in (1, 1, 2)]
    assert all((one == other).all() for one, other in zip(masks[0], masks[1], strict=True))
    assert not all(len(a) == len(b) and (a == b).all() for a, b in zip(masks[0], masks[2], strict=True))
    assert np.concatenate(masks[0]).mean() == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_training_twice_and_resumed_gives_the_same_bits(tmp_path, dropout):
    data = made_up_data()
    settings = TrainingSettings(batch_size=16, epochs=3, patience=9, learning_rate=0.01)

    def fitted(folder, epochs, resume=False):
        torch.manual_seed(1)
        model = Carp(CarpConfig(**{**TINY, "dropout": dropout}), data.sizes)
        limits = dataclasses.replace(settings, epochs=epochs)
        train(model, data, limits, device=CPU, folder=folder, identity="x", resume=resume)
        return model.state_dict()

    whole, again = fitted(tmp_path / "a", 3), fitted(tmp_path / "b", 3)
    fitted(tmp_path / "c", 1)
    resumed = fitted(tmp_path / "c", 3, resume=True)
    for name, tensor in whole.items():
        assert torch.equal(tensor, again[name]), name
        assert torch.equal(tensor, resumed[name]), name


def test_as_many_threads_as_there_are_give_the_same_ratings():
    data = made_up_data(users=12, items=10, pairs=100)
    settings = TrainingSettings(batch_size=30, learning_rate=0.01)
    found = []
    for threads in (1, 2, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            _, model = twins(data, dropout=0.2)
            fast_epoch(model, data, settings, make_optimizer(model, settings))
            assert torch.get_num_threads() == threads
            found.append(predict_pairs(model, data, data.valid, CPU))
        finally:
            torch.set_num_threads(before)
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], atol=1e-6)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_works_with_threads_of_its_own():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = []
        workers().run(found.append, range(20))
        assert sorted(found) == list(range(20))
        child = os.fork()
        if child == 0:
            seen = []
            workers().run(seen.append, range(30))
            os._exit(0 if sorted(seen) == list(range(30)) else 1)
        limit = time.monotonic() + 60
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < limit:
            pass
        if ended == (0, 0):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert ended == (child, 0)
    finally:
        torch.set_num_threads(before)


def test_what_goes_wrong_in_a_piece_is_raised():
    def broken(piece):
        raise ValueError(f"piece {piece}")

    with pytest.raises(ValueError, match="piece"):
        Workers(2).run(broken, range(5))


def test_what_the_fast_path_does_not_cover_is_trained_the_plain_way():
    data = made_up_data()
    for settings in ({"across_reviews": True}, {"dropout_on": "weights"}, {"window": 2}, {"attention": "routed"}):
        model = Carp(CarpConfig(**{**TINY, **settings}), data.sizes)
        training = TrainingSettings()
        assert trainer_for(model, data, training, CPU, make_optimizer(model, training)) is None
    model = Carp(CarpConfig(**TINY), data.sizes)
    decayed = TrainingSettings(weight_decay=0.1)
    assert trainer_for(model, data, decayed, CPU, make_optimizer(model, decayed)) is None
    assert trainer_for(model, data, training, CPU, make_optimizer(model, training)) is not None


def test_a_fast_path_that_breaks_says_so_once_and_gives_way():
    data = made_up_data()
    model = Carp(CarpConfig(**TINY), data.sizes)
    broken = SimpleNamespace(param_groups=[{}], state={model.embedding.weight: {}})
    with pytest.warns(RuntimeWarning, match="plain path: 'lr'") as caught:
        assert trainer_for(model, data, TrainingSettings(), CPU, broken) is None
    assert len(caught) == 1


# ---- in C


def gradients_of_one_step(run, model, data):
    """With a decay of 0 the running square is the squared gradient itself."""
    settings = TrainingSettings(batch_size=len(data.train), learning_rate=1e-4, decay=0.0)
    optimizer = make_optimizer(model, settings)
    run(model, data, settings, optimizer)
    return {name: optimizer.state[p]["square_avg"].double().sqrt() for name, p in model.named_parameters()}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("block", [1, 576])
def test_the_compiled_gradient_of_one_step_is_the_plain_one(shape, block, monkeypatch):
    """Pairs share documents and leave different reviews out; some documents are empty, some of one word."""
    monkeypatch.setattr(ragged, "BLOCK_TOKENS", block)
    monkeypatch.setattr(step_c, "BLOCKS", 2)
    data = made_up_data(seed=7)
    exact, model = twins(data, **shape)
    expected = gradients_of_one_step(plain_epoch, exact, data)
    found = gradients_of_one_step(fast_epoch, model.float(), data)
    for name, grad in expected.items():
        assert grad.any(), name
        largest = float(grad.max())
        torch.testing.assert_close(
            found[name], grad, rtol=2e-4, atol=2e-5 * largest, msg=partial("{}: {}".format, name)
        )


@pytest.mark.usefixtures("compiled")
def test_words_that_come_back_have_been_forgetting_meanwhile():
    """Many small batches: rows rest for some steps, and their running squares decay when next needed."""
    data = made_up_data(seed=3)
    settings = TrainingSettings(batch_size=4, learning_rate=0.001)
    exact, model = twins(data)
    optimizers = make_optimizer(exact, settings), make_optimizer(model.float(), settings)
    expected = plain_epoch(exact, data, settings, optimizers[0])
    assert fast_epoch(model, data, settings, optimizers[1]) == pytest.approx(expected, rel=1e-4)
    both = zip(optimizers, (exact, model), strict=True)
    squares = [optimizer.state[each.embedding.weight]["square_avg"] for optimizer, each in both]
    torch.testing.assert_close(squares[1].double(), squares[0], rtol=1e-2, atol=1e-3 * float(squares[0].max()))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_compiled_and_torch_drop_the_same_features(dropout):
    data = made_up_data(seed=5, longest=20)
    settings = TrainingSettings(batch_size=16, learning_rate=1e-3)
    losses = []
    for form in (step_c.NativeStep, TorchStep):
        _, model = twins(data, dtype=torch.float32, dropout=dropout, filters=50)
        trainer = CpuTrainer(model.train(), data, settings.batch_size, make_optimizer(model, settings))
        assert trainer.form is step_c.NativeStep
        trainer.form = form
        losses.append([trainer.epoch(0, epoch, Silent()) for epoch in (1, 2)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.usefixtures("compiled")
def test_the_bits_do_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(ragged, "BLOCK_TOKENS", 20)
    data = made_up_data(users=12, items=10, pairs=100)
    settings = TrainingSettings(batch_size=30, learning_rate=0.01)
    found = []
    before = torch.get_num_threads()
    for threads in (1, 2, 3, 2):
        torch.set_num_threads(threads)
        try:
            _, model = twins(data, dtype=torch.float32, dropout=0.2)
            fast_epoch(model, data, settings, make_optimizer(model, settings))
            found.append(model.state_dict())
        finally:
            torch.set_num_threads(before)
    for other in found[1:]:
        for name, tensor in found[0].items():
            assert torch.equal(tensor, other[name]), name


@pytest.mark.usefixtures("compiled")
def test_double_precision_and_machines_without_a_compiler_are_served_by_torch(monkeypatch):
    data = made_up_data()
    settings = TrainingSettings(batch_size=16)
    exact, model = twins(data)
    assert CpuTrainer(exact, data, 16, make_optimizer(exact, settings)).form is TorchStep
    model.float()
    monkeypatch.setattr(compiler, "library", lambda: None)
    assert CpuTrainer(model, data, 16, make_optimizer(model, settings)).form is TorchStep
    monkeypatch.undo()
    assert CpuTrainer(model, data, 16, make_optimizer(model, settings)).form is step_c.NativeStep


@pytest.mark.usefixtures("compiled")
def test_the_optimizer_is_torchs_own():
    torch.manual_seed(0)
    tensors = [torch.nn.Parameter(torch.randn(shape)) for shape in ((3,), (17, 5), (64,), ())]
    twin = [torch.nn.Parameter(tensor.detach().clone()) for tensor in tensors]
    plain, ours = (torch.optim.RMSprop(some, lr=0.01, alpha=0.9, eps=1e-6) for some in (tensors, twin))
    compiled = NativeRmsprop.of(ours)
    assert compiled is not None
    for step in range(3):
        for one, other in zip(tensors, twin, strict=True):
            one.grad = None if step == 1 and one.ndim == 2 else torch.randn(one.shape)
            other.grad = None if one.grad is None else one.grad.clone()
        plain.step()
        compiled.step()
    for one, other in zip(tensors, twin, strict=True):
        torch.testing.assert_close(other, one)
        for name, value in plain.state[one].items():
            torch.testing.assert_close(ours.state[other][name], value)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"centered": True}, {"weight_decay": 0.1}], ids=str)
def test_other_optimizers_are_left_to_torch(settings):
    assert NativeRmsprop.of(torch.optim.RMSprop([torch.nn.Parameter(torch.zeros(3))], **settings)) is None
    assert NativeRmsprop.of(torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))])) is None
    assert NativeRmsprop.of(torch.optim.RMSprop([torch.nn.Parameter(torch.zeros(3).double())])) is None
