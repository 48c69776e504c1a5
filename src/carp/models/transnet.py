"""TransNet: a network that reads the documents learns to guess what another one sees in the pair's own review.

Catherine, Cohen: "TransNets: Learning to Transform for Recommendation", RecSys 2017.

    paper                  here                  meaning
    rev_AB                 target_words          the pair's own review, in training alone
    Γ_T, x_T               target, review        x_T = Γ_T(rev_AB), [B, k]
    Γ_A, Γ_B, x_A, x_B     user_side, item_side  the documents, without rev_AB, as vectors [B, k]
    G_l, g_l               transform             z_0 = (x_A, x_B); z_l = tanh(z_{l-1} G_l + g_l), l = 1 … L
    z_L                    guess                 [B, k]
    FM_T, FM_S             target_machine, machine

Γ is a convolution with ReLU, the max over the words and a dense layer with tanh. Each batch is learned from in three
steps, every one with its own parameters alone; a bar is dropout, δ the distance of two ratings:

    1  loss_T = δ(r, FM_T(x̄_T))           moves Γ_T and FM_T
    2  loss_trans = ½ ‖z̄_L − x_T‖²         moves Γ_A, Γ_B and G_l, g_l; x_T is held constant
    3  loss_S = δ(r, FM_S(z̄_L))           moves FM_S; z_L is held constant

One optimizer does all three: before each step all gradients are taken away, so it passes over the parameters the
step's loss does not reach, with their running squares. Only the source network predicts: r = FM_S(z_L).

Ours: δ is the squared error. The paper's is the absolute one (`rating_loss="absolute"`), which aims at the median; on
ratings that are mostly 5 it lost to the mean rating on validation, judged by squared error. The words are learned from
scratch and shared, and the losses of steps 1 and 2 both move them; the released code's are fixed. x_T and z̄_L are
computed once a batch, where the released code computes them again for each step. The square in loss_trans and its
dropout are the released code's. A window ends where a review ends. Both machines' constants start at the mean rating.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from carp.models.base import Attention, Prediction, RatingModel
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.batch_share import drop_rows
from carp.models.deepconn import TextNetwork, explain_pooled
from carp.models.divided_table import WordEmbedding
from carp.models.layers import FactorizationMachine


@dataclass(frozen=True)
class TransNetConfig:
    dimension: int = 300  # d, of word embeddings
    window: int = 3  # t
    filters: int = 50  # the paper has 100, CARP's comparison 50
    latent_size: int = 50  # k, of x_A, x_B, x_T and z_l
    transform_layers: int = 2  # L
    factors: int = 8  # of the factorisation machines
    dropout: float = 0.5
    rating_loss: Literal["squared", "absolute"] = "squared"


class TransNet(RatingModel):
    Config = TransNetConfig
    training_defaults: ClassVar[dict[str, Any]] = {"learning_rate": 0.002}
    needs = frozenset({"documents", "target_review"})
    explained_by = "attention"
    separates = True
    config: TransNetConfig

    def __init__(self, config: TransNetConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        k = config.latent_size
        shape = config.dimension, config.window, config.filters, k
        self.embedding = WordEmbedding(sizes.words + 1, config.dimension, padding_idx=0)
        self.user_side = TextNetwork(*shape, torch.tanh)  # Γ_A
        self.item_side = TextNetwork(*shape, torch.tanh)  # Γ_B
        self.transform = nn.ModuleList(nn.Linear(2 * k if n == 0 else k, k) for n in range(config.transform_layers))
        self.machine = FactorizationMachine(k, config.factors)  # FM_S
        self.target = TextNetwork(*shape, torch.tanh)  # Γ_T
        self.target_machine = FactorizationMachine(k, config.factors)  # FM_T

    @torch.no_grad()
    def start(self, data: TrainingData) -> None:
        for machine in (self.machine, self.target_machine):
            machine.mean.fill_(float(data.train.ratings.mean()))

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        vectors: Tensor = self.user_side(self.embedding.weight, words, reviews)  # x_A, [B, k]
        return vectors

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        vectors: Tensor = self.item_side(self.embedding.weight, words, reviews)  # x_B, [B, k]
        return vectors

    def score(self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor) -> Prediction:
        guess = torch.cat([user_sides, item_sides], -1)  # z_0
        for layer in self.transform:
            guess = torch.tanh(layer(guess))  # z_l
        guess = self._drop(guess)  # z̄_L
        return Prediction(self.machine(guess), {"guess": guess})

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        return explain_pooled(self, self.user_side, self.item_side, self.embedding.weight, batch)

    def loss(self, batch: Batch, prediction: Prediction) -> Tensor:
        """What step 3 minimises."""
        assert batch.ratings is not None
        return self._distance(prediction.rating, batch.ratings)

    def train_epoch(self, batches: Iterable[Batch], optimizer: torch.optim.Optimizer) -> float:
        """The three steps on each batch; the mean loss of the source network's ratings."""
        total, pairs = torch.zeros(()), 0.0
        for batch in batches:
            loss = self._learn(batch, optimizer)
            total = total.to(loss.device) + loss * batch.weight
            pairs += batch.weight
        return float(total) / max(pairs, 1)

    def _learn(self, batch: Batch, optimizer: torch.optim.Optimizer) -> Tensor:
        assert batch.ratings is not None
        assert batch.target_words is not None
        review = self.read_target(batch.target_words)  # x_T
        _step(optimizer, self._distance(self.target_machine(self._drop(review)), batch.ratings))  # 1
        guess = self(batch).tensors["guess"]  # z̄_L
        _step(optimizer, (guess - review.detach()).square().sum(-1).mean() / 2)  # 2
        loss = self._distance(self.machine(guess.detach()), batch.ratings)
        _step(optimizer, loss)  # 3
        return loss.detach()

    def read_target(self, words: Tensor) -> Tensor:
        reviews = torch.where(words > 0, 0, -1)  # all of one review
        vectors: Tensor = self.target(self.embedding.weight, words, reviews)
        return vectors

    def _distance(self, found: Tensor, ratings: Tensor) -> Tensor:
        rest = found - ratings
        return (rest.abs() if self.config.rating_loss == "absolute" else rest.square()).mean()

    def _drop(self, vectors: Tensor) -> Tensor:
        return drop_rows(vectors, self.config.dropout, self.training)


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)  # None, not zero: what the loss does not reach is passed over
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
