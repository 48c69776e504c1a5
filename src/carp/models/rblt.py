"""RBLT: latent topics of reviews, boosted by ratings, inside a matrix factorisation.

Tan, Zhang, Liu, Ma: "Rating-Boosted Latent Topics: Understanding Users and Items with Ratings and Reviews",
IJCAI 2016. No implementation was published; this is our reading.

    r̂ = μ + b_u + b_i + (κθ_u + p_u)·(κθ_i + q_i)        with the objective of mf.py; the paper's κ is 1

    paper      here                         shape     meaning
    θ_i        item_topics                  [I, K]    an item's recommendability in each topic
    θ_u        user_topics                  [U, K]    a user's preference for each topic, in the same topics
    p_u, q_i   user_factors, item_factors   [·, K]    what ratings say beyond the topics
    μ          mean                         []
    b_u, b_i   user_bias, item_bias         [·]
    K          latent_size
    κ²         meeting_weight               []

A review rated r enters the documents r times: what is praised shapes an item's topics most. LDA on the boosted
documents of the items gives the topics and θ_i.

Ours: θ_u is inferred from the user's boosted document with the topics held. Documents are made of whole reviews.
Every topic's prior in a document is 50/K, as is usual, but 1 at most, which is all scikit-learn takes.

Ours: κ. A training pair's own review is in both of its sides, the more often the higher its rating, so θ_u·θ_i looks
better in training than it is; no training error can tell how much to believe it. κ² is chosen on validation pairs
from MEETING_WEIGHTS, together with its exact biases, as their shrinkages are; `topic_weight=1` is the paper's form.
The topics and κ stay as they are from then on; factors and biases learn. Predicting looks at no text at all.

Ours: the biases start at the tuned ones, which are most of what a rating is, and keep their penalties, as in mf.py. The
paper's own form is `biases=learned` with `topic_weight=1`: biases start at zero and have one penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from carp.models.base import Prediction
from carp.models.batch import Batch, Sizes, TrainingData
from carp.models.layers import solve_biases, take_or, take_rows
from carp.models.mf import Mf, MfConfig

MEETING_WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.1)  # never 0: without topics it would not be this model


@dataclass(frozen=True)
class RbltConfig(MfConfig):
    topic_passes: int = 10  # of LDA over the documents
    topic_prior: float | None = None  # of every topic in a document, from 0 to 1; 50/K if not given
    word_prior: float = 0.01  # of every word in a topic, from 0 to 1
    topic_weight: float | None = None  # κ; chosen on validation if not given


class Rblt(Mf):
    Config = RbltConfig
    needs = frozenset({"ids", "reviews"})
    config: RbltConfig

    def __init__(self, config: RbltConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        k = config.latent_size
        self.user_topics = nn.Buffer(torch.full((sizes.users, k), 1 / k))  # θ_u
        self.item_topics = nn.Buffer(torch.full((sizes.items, k), 1 / k))  # θ_i
        self.meeting_weight = nn.Buffer(torch.ones(()))  # κ²
        self.mean = nn.Buffer(torch.zeros(()))  # μ

    def start(self, data: TrainingData) -> None:
        super().start(data)
        users, items = self.find_topics(data)
        self.user_topics.copy_(torch.from_numpy(users))
        self.item_topics.copy_(torch.from_numpy(items))
        weight, mean, user, item = self.weigh(data, users, items)
        self.meeting_weight.fill_(weight)
        self.mean.fill_(mean)
        if self.config.biases == "learned":
            return
        with torch.no_grad():
            self.user_bias.copy_(torch.from_numpy(user))
            self.item_bias.copy_(torch.from_numpy(item))

    def chosen_settings(self) -> dict[str, Any]:
        return {"topic_weight": float(self.meeting_weight) ** 0.5}

    def find_topics(self, data: TrainingData) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """θ_u and θ_i; somebody without words has the same share of every topic."""
        from sklearn.decomposition import LatentDirichletAllocation

        config = self.config
        assert data.reviews is not None, "topics are found on data that has the training reviews"
        if not len(data.reviews.words):
            return self.user_topics.double().cpu().numpy(), self.item_topics.double().cpu().numpy()
        topics = LatentDirichletAllocation(
            config.latent_size,
            doc_topic_prior=min(1.0, 50 / config.latent_size) if config.topic_prior is None else config.topic_prior,
            topic_word_prior=config.word_prior,
            learning_method="batch",
            max_iter=config.topic_passes,
            random_state=torch.initial_seed() % 2**32,
        )
        items = topics.fit_transform(boosted_counts(data, data.train.items, self.sizes.items))
        return topics.transform(boosted_counts(data, data.train.users, self.sizes.users)), items

    def weigh(
        self, data: TrainingData, users: NDArray[np.float64], items: NDArray[np.float64]
    ) -> tuple[float, float, NDArray[np.float64], NDArray[np.float64]]:
        """κ² of the lowest validation error, and the μ, b_u, b_i that are exact beside κ² θ_u·θ_i."""
        train, valid = data.train, data.valid
        met, valid_met = (np.einsum("nk,nk->n", users[p.users], items[p.items]) for p in (train, valid))
        user_shrinkage, item_shrinkage = self.biases.shrinkage.tolist()
        given = self.config.topic_weight
        found = []
        for weight in MEETING_WEIGHTS if given is None else (given**2,):
            rest = replace(train, ratings=(train.ratings - weight * met).astype(np.float32))
            mean, user, item = solve_biases(
                rest, user_shrinkage, item_shrinkage, self.sizes.users, self.sizes.items, rounds=50
            )
            guess = mean + user[valid.users] + item[valid.items] + weight * valid_met
            error = float(np.square(guess.clip(1, self.sizes.levels) - valid.ratings).mean())
            found.append((error, weight, mean, user, item))
        return min(found, key=lambda choice: choice[0])[1:]

    def forward(self, batch: Batch) -> Prediction:
        kappa = self.meeting_weight.sqrt()
        preference = kappa * take_rows(self.user_topics, batch.users) + take_rows(self.user_factors, batch.users)
        recommendability = kappa * take_rows(self.item_topics, batch.items) + take_rows(self.item_factors, batch.items)
        interaction = (preference * recommendability).sum(-1)  # (κθ_u + p_u)·(κθ_i + q_i)
        biases = take_or(self.user_bias, batch.users, 0.0) + take_or(self.item_bias, batch.items, 0.0)
        return Prediction(self.mean + biases + interaction, {"interaction": interaction})


def boosted_counts(data: TrainingData, owners: NDArray[np.int64], count: int) -> Any:
    """How often each word stands in each owner's document, a review rated r being there r times: sparse [owners, V].

    A rating of 3.5 is three and a half times there: LDA's counts need not be whole.
    """
    from sklearn.preprocessing import OneHotEncoder

    assert data.reviews is not None, "topics are found on data that has the training reviews"

    def one_hot(values: NDArray[Any], size: int) -> Any:
        return OneHotEncoder(categories=[np.arange(size)]).fit_transform(values[:, np.newaxis])  # sparse [T, size]

    review = np.repeat(np.arange(len(data.train)), data.reviews.lengths())  # of each word
    words = one_hot(data.reviews.words - 1, data.sizes.words)
    times = data.train.ratings[review].astype(np.float64)
    return one_hot(owners[review], count).T @ words.multiply(times[:, np.newaxis]).tocsr()
