"""The GPU's kernels against the plain model in float64 on a made-up corpus, for tests and benchmarks alike."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from carp.kernels.gpu.encoder import ReadingCut, encode_side_gpu
from carp.kernels.gpu.gpu_trainer import GpuTrainer, gpu_trainer
from carp.kernels.gpu.training_step import Precision, RecordedStep
from carp.kernels.gpu.workspace import Tuning
from carp.models.base import make_config
from carp.models.batch import Batch, Pairs, Sizes, TargetReviews, TrainingData
from carp.models.carp import Carp, Viewpoints
from carp.reviews.documents import Documents, make_documents, padded


class Batched:
    """The only setting that a trainer reads."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size


def made_up_data(
    *,
    users: int = 12,
    items: int = 9,
    pairs: int = 50,
    words: int = 60,
    longest: int = 90,
    review: int = 30,
    seed: int = 0,
    target_reviews: TargetReviews = "leave out",
) -> TrainingData:
    """Pairs with a review each, some empty, some of one word; ratings that follow from a word."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(users * items, pairs, replace=False)
    train = Pairs(
        users=cells // items,
        items=cells % items,
        ratings=rng.integers(1, 6, pairs).astype(np.float32),
        records=np.arange(pairs),
    )
    lengths = rng.integers(0, review, pairs)
    lengths[: pairs // 5] = rng.integers(0, 2, pairs // 5)
    record = np.repeat(np.arange(pairs), lengths).astype(np.int32)
    chosen = (1 + rng.zipf(1.3, len(record)) % words).astype(np.int32)
    place = np.zeros(len(record), np.int32)

    def documents(owner: np.ndarray, owners: int) -> Documents:
        return make_documents(chosen, record, place, owner.astype(np.int32), owners, max_words=longest)

    sizes = Sizes(users, items, words, 5, longest)
    of_users, of_items = documents(train.users, users), documents(train.items, items)
    return TrainingData(train, train, of_users, of_items, sizes, target_reviews)


def small_model(data: TrainingData, seed: int = 0, **settings: Any) -> Carp:
    torch.manual_seed(seed)
    model = Carp(make_config(Carp, settings), data.sizes)
    model.start(data)
    return model


def kept_features(step: RecordedStep) -> Tensor:
    """Which features [documents, longest, n] dropout will keep in the next step."""
    from carp.kernels.gpu import triton_encode as kernels

    room, shapes = step.room, step.packed.shapes
    rows = 2 * step.batch * room.longest
    kept = torch.empty(rows, shapes.N, dtype=torch.int8, device=room.state.device)
    keep = 1.0 - step.config.dropout
    kernels.show_kept[(-(-rows // 64),)](room.state, kept, rows, N=shapes.N, BLOCK=64, KEEP=keep)
    return kept.view(2 * step.batch, room.longest, shapes.N)[..., : shapes.n]


def repeat_dropout(model: Carp, data: TrainingData, chosen: np.ndarray, batch: Batch, kept: Tensor, size: int) -> None:
    """Make a model drop what the kernels dropped. They count a left-out review's places, the batch does not."""
    leave_out = data.target_reviews == "leave out"
    keep = 1.0 - model.config.dropout
    for number, (side, documents, owners, words) in enumerate(
        [
            (model.user_side, data.user_documents, data.train.users, batch.user_words),
            (model.item_side, data.item_documents, data.train.items, batch.item_words),
        ]
    ):
        mask = torch.zeros(*words.shape, kept.shape[-1], dtype=torch.float64)
        for row, pair in enumerate(chosen):
            stretch = slice(*documents.offsets[owners[pair] : owners[pair] + 2])
            reviews = documents.review[stretch]
            read = np.flatnonzero(reviews != data.train.records[pair]) if leave_out else np.arange(len(reviews))
            mask[row, : len(read)] = kept[number * size + row].cpu()[read].double() / keep
        _drop_by(side, mask)


def _drop_by(side: Viewpoints, mask: Tensor) -> None:
    def drop_features(features: Tensor) -> Tensor:
        return features * mask.to(features.device)

    side.drop_features = drop_features  # type: ignore[method-assign]
    side.drop = lambda tensor, what: tensor  # type: ignore[method-assign]


def distance(found: Tensor, wanted: Tensor) -> float:
    """‖found − wanted‖ / ‖wanted‖ in float64; infinite where a number found is not finite."""
    found, wanted = found.detach().double().cpu(), wanted.detach().double().cpu()
    if not bool(found.isfinite().all()):
        return float("inf")
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-30))


def make_trainer(
    model: Carp,
    data: TrainingData,
    size: int,
    device: torch.device,
    precision: Precision,
    *,
    record: bool = True,
    tuning: Tuning | None = None,
    **settings: Any,
) -> tuple[GpuTrainer, torch.optim.Optimizer]:
    """A trainer and its optimizer; without `record` its kernels are not compiled yet."""
    optimizer = torch.optim.RMSprop(model.parameters(), alpha=0.9, **settings)
    if not record:
        return GpuTrainer(model, data, size, device, optimizer, precision, tuning), optimizer
    trainer = gpu_trainer(model, data, Batched(size), device, optimizer, precision, tuning)
    assert trainer is not None, "the check is of models that the kernels cover"
    return trainer, optimizer


def step_errors(
    data: TrainingData,
    size: int,
    device: torch.device,
    *,
    number: int = 0,
    precision: Precision | None = None,
    tuning: Tuning | None = None,
    seed: int = 0,
    **settings: Any,
) -> dict[str, float]:
    """Relative errors of viewpoints, lengths, loss and every gradient of step `number`."""
    model = small_model(data, seed, **settings)
    plain = copy.deepcopy(model).double()
    trainer, _ = make_trainer(model.to(device), data, size, device, precision or Precision(), tuning=tuning, lr=0.001)
    step = trainer.prepare()
    order = np.random.default_rng(seed).permutation(len(data.train))
    step.order.copy_(torch.from_numpy(order.astype(np.int32)))
    step.room.state.copy_(torch.tensor([number, 1234567 + seed]))
    chosen = order[number * size : (number + 1) * size]
    batch = data.batch(data.train, chosen, training=True)
    if model.config.dropout:
        repeat_dropout(plain, data, chosen, batch, kept_features(step), size)
    with trainer.in_place():
        step.take_gradients()
    return _compare(step, plain, batch, len(chosen))


def encoding_errors(
    data: TrainingData, device: torch.device, how: ReadingCut | None = None, seed: int = 0, **settings: Any
) -> dict[str, float]:
    """Relative errors of the sides of whole documents."""
    model = small_model(data, seed, **settings)
    plain = copy.deepcopy(model).double().eval()
    model.to(device)
    errors = {}
    for name, documents, side, encode in (
        ("viewpoints", data.user_documents, model.user_side, plain.encode_users),
        ("aspects", data.item_documents, model.item_side, plain.encode_items),
    ):
        found = encode_side_gpu(side, model.embedding.weight, documents, device, how)
        words, reviews = map(torch.from_numpy, padded(documents, np.arange(len(documents))))
        with torch.no_grad():
            errors[name] = distance(found, encode(words, reviews))
    return errors


def _compare(step: RecordedStep, plain: Carp, batch: Batch, pairs: int) -> dict[str, float]:
    room, shapes = step.room, step.packed.shapes
    exact = _exact(batch)
    assert exact.ratings is not None
    viewpoints = plain.encode_users(exact.user_words, exact.user_reviews)
    aspects = plain.encode_items(exact.item_words, exact.item_reviews)
    prediction = plain.score(exact.users, exact.items, viewpoints, aspects, own_ratings=exact.ratings)
    loss = plain.loss(exact, prediction)
    loss.backward()  # type: ignore[no-untyped-call]
    sides = room.sides[..., : shapes.k].view(2, step.batch, shapes.M, shapes.k)[:, :pairs]
    errors = {
        "viewpoints": distance(sides[0], viewpoints),
        "aspects": distance(sides[1], aspects),
        "lengths": distance(room.judged.lengths[:pairs], prediction.tensors["lengths"]),
        "loss": distance(room.judged.losses.sum() / pairs, loss),
    }
    found = step.packed.gradients[step.packed.where.long()]
    for name, parameter in plain.named_parameters():
        own = step.room.table_change if name == "embedding.weight" else step.packed.view(found, name)
        assert parameter.grad is not None
        errors[f"d {name}"] = distance(own, parameter.grad)
    return errors


def _exact(batch: Batch) -> Batch:
    assert batch.ratings is not None
    return Batch(**{**vars(batch), "ratings": batch.ratings.double()})


def epoch_losses(
    data: TrainingData,
    size: int,
    device: torch.device,
    epochs: int,
    *,
    precision: Precision | None = None,
    tuning: Tuning | None = None,
    **settings: Any,
) -> tuple[list[float], list[float], Tensor, Tensor]:
    """Mean losses of some epochs, fast and plain in float64, and both models' ratings of the training pairs afterwards.

    The rate is small, since RMSprop's first steps are as large as the rate, however small the gradient: at the usual
    rate even the plain model in float32 soon differs from the one in float64.
    """
    fast = small_model(data, **settings).to(device)
    plain = copy.deepcopy(fast).double()
    rate = 0.0002
    trainer, _ = make_trainer(fast, data, size, device, precision or Precision(), tuning=tuning, lr=rate)
    optimizer = torch.optim.RMSprop(plain.parameters(), alpha=0.9, lr=rate)
    found, wanted = [], []
    for epoch in range(1, epochs + 1):
        found.append(trainer.epoch(0, epoch))
        batches = (_exact(batch.to(device)) for batch in data.training_batches(size, 0, epoch))
        wanted.append(plain.train_epoch(batches, optimizer))
    every = data.batch(data.train, np.arange(len(data.train))).to(device)
    with torch.no_grad():
        ratings = [model.eval()(every).rating for model in (fast, plain)]
    return found, wanted, ratings[0], ratings[1]
