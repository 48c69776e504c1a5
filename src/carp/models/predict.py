"""Ratings for many pairs: each document encoded once where a model's two sides separate."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.models.base import Prediction, RatingModel
from carp.models.batch import Pairs, TrainingData
from carp.models.blocks import blocks_of_like_length, in_blocks
from carp.models.side_room import room_for_sides
from carp.reviews.documents import Documents, padded

BLOCK_WORDS = 30_000  # words encoded at once: bounds memory whatever the documents' lengths
BLOCK_PAIRS = 4_000

Sides = tuple[Tensor, Tensor]  # of all users, of all items


@torch.no_grad()
def encode_documents(encode: Callable[[Tensor, Tensor], Tensor], documents: Documents, device: torch.device) -> Tensor:
    """The sides of all documents [D, ...], those of like length together so that little is padded."""
    from carp.kernels import dispatch

    fast = dispatch.fast_encode_documents(encode, documents, device)
    if fast is not None:
        return fast
    sides: Tensor | None = None
    for chosen in blocks_of_like_length(documents.lengths(), most_words=BLOCK_WORDS, most=BLOCK_WORDS // 8):
        words, reviews = padded(documents, chosen)
        block = encode(torch.from_numpy(words).to(device), torch.from_numpy(reviews).to(device))
        if sides is None:
            sides = room_for_sides(block, len(documents), *block.shape[1:])
        sides[torch.from_numpy(chosen).to(device)] = block
    assert sides is not None, "there is always at least one document"
    return sides


@torch.no_grad()
def predict_pairs(model: RatingModel, data: TrainingData, pairs: Pairs, device: torch.device) -> NDArray[np.float32]:
    """Ratings clipped to [1, C], from whole documents of training reviews."""
    was_training = model.training
    model.eval()
    try:
        if model.separates:
            users = encode_documents(model.encode_users, data.user_documents, device)
            items = encode_documents(model.encode_items, data.item_documents, device)
            ratings = score_pairs(model, users, items, pairs)
        else:
            found = [model(batch.to(device)).rating for batch in data.batches(pairs, needs=model.needs)]
            ratings = torch.cat(found) if found else torch.zeros(0)
    finally:
        model.train(was_training)
    return ratings.clamp(1, data.sizes.levels).float().cpu().numpy()


@torch.no_grad()
def score_pairs(model: RatingModel, users: Tensor, items: Tensor, pairs: Pairs) -> Tensor:
    """Ratings of pairs from sides that are ready."""
    from carp.kernels import dispatch

    fast = dispatch.fast_score_pairs(model, users, items, pairs)
    if fast is not None:
        return fast

    def rated(begin: int, end: int) -> Tensor:
        u, i = (torch.from_numpy(of[begin:end]).to(users.device) for of in (pairs.users, pairs.items))
        return model.score(u, i, users.index_select(0, u), items.index_select(0, i)).rating

    return _rated_in_blocks(len(pairs), rated, users.device)


@torch.no_grad()
def score_newcomer(model: RatingModel, viewpoints: Tensor, items: Tensor, numbers: Tensor) -> Tensor:
    """Ratings of numbered items by somebody nobody knows, whose side [1, ...] is ready, as those of all items are."""

    def rated(begin: int, end: int) -> Tensor:
        some = numbers[begin:end]
        side = viewpoints.expand(len(some), *viewpoints.shape[1:])
        return model.score(torch.full_like(some, -1), some, side, items[some]).rating

    return _rated_in_blocks(len(numbers), rated, items.device)


def _rated_in_blocks(size: int, rated: Callable[[int, int], Tensor], device: torch.device) -> Tensor:
    ratings = torch.empty(size, device=device)
    in_blocks(size, BLOCK_PAIRS, rated, lambda begin, found: ratings[begin : begin + len(found)].copy_(found))
    return ratings


@torch.no_grad()
def score_blocks(model: RatingModel, sides: Sides, pairs: Pairs) -> Iterator[Prediction]:
    """Predictions of pairs from sides that are ready, a block at a time."""
    users, items = sides
    for start in range(0, len(pairs), BLOCK_PAIRS):
        u = torch.from_numpy(pairs.users[start : start + BLOCK_PAIRS]).to(users.device)
        i = torch.from_numpy(pairs.items[start : start + BLOCK_PAIRS]).to(users.device)
        yield model.score(u, i, users[u], items[i])
