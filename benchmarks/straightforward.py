"""CARP as one would first write it: padded batches, conv1d, einsum, autograd, a dense optimiser.

The equations are those of models/carp.py with the paper's settings, so with the same weights it gives the same
ratings. Every document is padded to the longest one allowed. Two things make it cheaper than a literal copy, so that
ratios against it are not flattering: windows are those of a plain conv1d, which crosses from one review into the
next, and biases, loss and routing are written as batched tensor operations, not as loops over pairs.
`with_blanks` puts a blank between reviews, which makes the windows those of models/carp.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import source_tree  # noqa: F401  carp of this checkout
from carp.models.batch import Pairs, TrainingData
from carp.models.carp import Carp
from carp.reviews.documents import Documents, padded

Words = NDArray[np.int32]


class Side(nn.Module):
    """Viewpoints [B, M, k] from padded documents [B, L]."""

    def __init__(self, dimension: int, window: int, filters: int, size: int, viewpoints: int, dropout: float) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(dimension, filters, window, padding=window // 2)
        self.gate_context = nn.Parameter(torch.empty(viewpoints, filters, filters))
        self.gate_query = nn.Parameter(torch.empty(viewpoints, filters, filters))
        self.gate_bias = nn.Parameter(torch.empty(viewpoints, filters))
        self.queries = nn.Parameter(torch.empty(viewpoints, filters))
        self.projection = nn.Parameter(torch.empty(size, filters))
        self.dropout = nn.Dropout(dropout)

    def forward(self, embedding: nn.Embedding, words: Tensor) -> Tensor:
        there = words > 0  # [B, L]
        features = self.convolution(embedding(words).transpose(1, 2)).transpose(1, 2)  # [B, L, n]
        features = self.dropout(F.relu(features))
        query = torch.einsum("xmn,xn->xm", self.gate_query, self.queries) + self.gate_bias
        gate = torch.sigmoid(torch.einsum("bln,xmn->blxm", features, self.gate_context) + query)
        words_seen = (features.unsqueeze(2) * gate) @ self.projection.T  # [B, L, M, k]
        words_seen = words_seen * there[:, :, None, None]
        rudiment = words_seen.sum(1) / there.sum(1).clamp_min(1)[:, None, None]
        scores = torch.einsum("blxk,bxk->blx", words_seen, rudiment)
        scores = scores.masked_fill(~there.unsqueeze(-1), torch.finfo(scores.dtype).min)
        attention = scores.softmax(1) * there.unsqueeze(-1)
        return torch.einsum("blx,blxk->bxk", attention, words_seen)


class Straightforward(nn.Module):
    vote_weight: Tensor
    highway_gate: Tensor
    highway_gate_bias: Tensor
    highway: Tensor
    highway_bias: Tensor
    regression: Tensor
    regression_bias: Tensor
    user_bias: Tensor
    item_bias: Tensor

    def __init__(self, model: Carp) -> None:
        """With a copy of the model's weights."""
        super().__init__()
        config, sizes = model.config, model.sizes
        self.config, self.levels, self.liked_above = config, sizes.levels, model.liked_above
        shape = config.dimension, config.window, config.filters, config.latent_size, config.viewpoints, config.dropout
        self.embedding = nn.Embedding(sizes.words + 1, config.dimension, padding_idx=0)
        self.user_side, self.item_side = Side(*shape), Side(*shape)
        for name in Straightforward.__annotations__:  # the weights named above
            setattr(self, name, nn.Parameter(getattr(model, name).detach().clone()))
        weights = {k: v for k, v in model.state_dict().items() if not k.startswith("biases.")}
        for side in ("user_side", "item_side"):
            weights[f"{side}.convolution.weight"] = weights[f"{side}.convolution.weight"].permute(2, 1, 0)
        self.to(model.embedding.weight.dtype).load_state_dict(weights)

    def forward(self, users: Tensor, items: Tensor, user_words: Tensor, item_words: Tensor) -> tuple[Tensor, Tensor]:
        return self.score(users, items, self.encode_users(user_words), self.encode_items(item_words))

    def encode_users(self, words: Tensor) -> Tensor:
        viewpoints: Tensor = self.user_side(self.embedding, words)
        return viewpoints

    def encode_items(self, words: Tensor) -> Tensor:
        aspects: Tensor = self.item_side(self.embedding, words)
        return aspects

    def score(self, users: Tensor, items: Tensor, viewpoints: Tensor, aspects: Tensor) -> tuple[Tensor, Tensor]:
        """Ratings [B] and capsule lengths [B, 2]."""
        v, a = viewpoints.unsqueeze(2), aspects.unsqueeze(1)
        logic_units = torch.cat([v - a, v * a], -1).flatten(1, 2)  # [B, M·M, 2k]
        votes = torch.einsum("bug,sugk->bsuk", logic_units, self.vote_weight)
        agreement = votes.new_zeros(votes.shape[:3])
        for iteration in range(self.config.routing_iterations):
            between, within = agreement.softmax(1), agreement.softmax(2)
            coupling = (between * within).sqrt()
            coupling = coupling / coupling.sum(2, keepdim=True)
            capsules = _squash(torch.einsum("bsu,bsuk->bsk", coupling, votes))
            if iteration < self.config.routing_iterations - 1:
                agreement = agreement + torch.einsum("bsuk,bsk->bsu", votes, capsules)
        gate = torch.sigmoid(torch.einsum("bsk,sjk->bsj", capsules, self.highway_gate) + self.highway_gate_bias)
        changed = torch.tanh(torch.einsum("bsk,sjk->bsj", capsules, self.highway) + self.highway_bias)
        hidden = gate * capsules + (1 - gate) * changed
        degrees = (hidden * self.regression).sum(-1) + self.regression_bias  # [B, 2]
        lengths = (capsules.square().sum(-1) + 1e-12).sqrt()
        balance = degrees[:, 0] * lengths[:, 0] - degrees[:, 1] * lengths[:, 1]
        rating = 1 + (self.levels - 1) * torch.sigmoid(balance) + self.user_bias[users] + self.item_bias[items]
        return rating, lengths

    def loss(self, ratings: Tensor, found: Tensor, lengths: Tensor) -> Tensor:
        margin, weight = self.config.margin, self.config.rating_weight
        liked = ratings > self.liked_above
        holds = torch.where(liked, lengths[:, 0], lengths[:, 1])
        opposite = torch.where(liked, lengths[:, 1], lengths[:, 0])
        sentiment = F.relu(margin - holds) + F.relu(opposite - 1 + margin)
        return weight * F.mse_loss(found, ratings) + (1 - weight) * sentiment.mean()


def _squash(vectors: Tensor) -> Tensor:
    square = vectors.square().sum(-1, keepdim=True)
    return square / (1 + square) * vectors / (square + 1e-12).sqrt()


def to_width(words: Words, width: int) -> Tensor:
    return torch.from_numpy(np.pad(words, ((0, 0), (0, max(0, width - words.shape[1])))))


def document_words(documents: Documents, owners: NDArray[np.int64], width: int) -> Tensor:
    """Whole documents padded to `width`."""
    return to_width(padded(documents, owners)[0], width)


def with_blanks(words: Words, reviews: Words, window: int = 3) -> Words:
    """The same documents with blanks between reviews, so that no window reaches from one into another."""
    rows = []
    for line, of in zip(words, reviews, strict=True):
        filled = line > 0
        line, of = line[filled], of[filled]
        breaks = np.flatnonzero(np.diff(of)) + 1
        rows.append(np.insert(line, np.repeat(breaks, window // 2), 0))
    width = max(1, max(len(row) for row in rows))
    return np.stack([np.pad(row, (0, width - len(row))) for row in rows])


def training_steps(
    model: Straightforward, data: TrainingData, size: int, seed: int = 0, epoch: int = 1, rate: float = 0.001
) -> Iterator[float]:
    """Learn batch by batch, giving each one's loss."""
    optimizer = torch.optim.RMSprop(model.parameters(), lr=rate, alpha=0.9)
    model.train()
    width = data.sizes.max_words
    for batch in data.training_batches(size, seed, epoch):
        assert batch.ratings is not None
        user_words = to_width(batch.user_words.numpy(), width)
        item_words = to_width(batch.item_words.numpy(), width)
        found, lengths = model(batch.users, batch.items, user_words, item_words)
        loss = model.loss(batch.ratings, found, lengths)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield loss.item()


@torch.no_grad()
def predict(model: Straightforward, data: TrainingData, pairs: Pairs, size: int = 100) -> Iterator[Tensor]:
    """Ratings of pairs, both documents encoded for each pair."""
    model.eval()
    for start in range(0, len(pairs), size):
        users, items = pairs.users[start : start + size], pairs.items[start : start + size]
        words = [
            document_words(documents, owners, data.sizes.max_words)
            for documents, owners in ((data.user_documents, users), (data.item_documents, items))
        ]
        yield model(torch.from_numpy(users), torch.from_numpy(items), *words)[0]
