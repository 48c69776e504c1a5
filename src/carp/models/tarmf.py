"""TARMF: matrix factorisation whose factors and a reading of the documents learn from each other.

Lu, Dong, Smyth: "Coevolutionary Recommendation Model: Mutual Learning between Ratings and Reviews", WWW 2018.

    paper      here                         shape            meaning
    X_u, X_i   words                        [B, L]           documents as word numbers
    h_t        states                       [B, L, 2H]       forward and backward state of a gated recurrent unit
    α_{k,t}    attention                    [B, L, K]        how much of factor k is this word
    θ_u, θ_i   topics                       [B, K]           the document's factor vector
    U, V       user_factors, item_factors   [users, K + 1]   the ratings' factors, the bias last
    λ          pull                                          how strongly factors are pulled towards the documents

    α_{k,t} = softmax over t of v_k · tanh(W h_t + b),    one v_k for each factor
    θ_k     = w_k · Σ_t α_{k,t} h_t + c_k
    minimise  Σ (r_ui − μ − b_u − b_i − U_u·V_i)² + λ Σ ‖U_u − θ_u‖² + λ Σ ‖V_i − θ_i‖² + λ_b Σ b²

The two parts are fitted in turn. With U and V fixed, each network learns by gradient steps to give its side's
factors from the documents; with the documents' vectors fixed, U and then V have exact solutions, which are ridge
regressions around θ. Each document is read once an epoch in learning and once to give θ. A prediction is
μ + b_u + b_i + U_u·V_i; somebody unknown by number who has a document gets its θ for factors.

How it is computed: a pass over the documents needs w_k · h_t alone, so Σ_t α_{k,t} h_t is never formed. The
recurrent units meet padding only after the last word in their direction. The exact solutions of a side are found
together by conjugate gradients, whose products with a system matrix are sums over the rated pairs.

Ours: the reading of the paper itself (tanh in the attention, a linear output, exact solutions for the factors in
place of gradient steps); biases, which start at the tuned ones and keep the penalties that fit validation best when
they stand alone (`biases=zero` starts them at zero, with λ for a penalty, as factors like the others); factors start
as those of the factorisation without documents; the bias is a factor like the others, whose counterpart is 1, and the
document speaks for it too (`text_bias`); a document is read without the review of the pair that it came with in this
epoch; both networks share the word embeddings; all sizes, λ and dropout.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from carp.models.base import NO_DIRECTION, Attention, Prediction, RatingModel, shares
from carp.models.batch import Batch, Pairs, Sizes, TrainingData
from carp.models.batch_share import distinct_words, drop_rows, own_rows
from carp.models.divided_table import WordEmbedding, word_rows
from carp.models.layers import TunedBiases, masked_softmax

STARTING_ROUNDS = 5  # of the factorisation without documents
GRADIENT_STEPS = 15  # of conjugate gradients: past single precision for ridges of 1 and more


@dataclass(frozen=True)
class TarmfConfig:
    dimension: int = 300  # of word embeddings
    hidden_size: int = 50  # H, of each direction
    latent_size: int = 25  # K
    pull: float = 5.0  # λ
    text_bias: bool = True  # is the document asked for the bias too?
    biases: Literal["zero", "tuned"] = "tuned"  # where b_u and b_i start, and whose penalty they keep
    dropout: float = 0.3  # of the words' embeddings and of the states


class TopicalAttention(nn.Module):
    """A document's factors: recurrent units in both directions, and one attention for each factor."""

    def __init__(self, config: TarmfConfig, factors: int) -> None:
        super().__init__()
        self.dropout = config.dropout
        h = 2 * config.hidden_size
        self.onwards = nn.GRU(config.dimension, config.hidden_size, batch_first=True)
        self.backwards = nn.GRU(config.dimension, config.hidden_size, batch_first=True)
        self.hidden = nn.Linear(h, h)  # W, b
        self.queries = nn.Parameter(torch.randn(factors, h) * h**-0.5)  # v_k
        self.output = nn.Parameter(torch.randn(factors, h) * 0.1 * h**-0.5)  # w_k; small, so that θ starts small
        self.output_bias = nn.Parameter(torch.zeros(factors))  # c_k

    def forward(self, table: Tensor, words: Tensor) -> Tensor:
        """θ [B, factors]; c for a document without words."""
        states, attention = self.attend(table, words)
        return (attention * (states @ self.output.T)).sum(1) + self.output_bias

    def attend(self, table: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """h [B, L, 2H] and α [B, L, factors]."""
        there = words > 0
        states = drop_rows(self._states(table, words, there), self.dropout, self.training)
        scores = torch.tanh(self.hidden(states)) @ self.queries.T
        return states, masked_softmax(scores, there.unsqueeze(-1), dim=1)

    def _states(self, table: Tensor, words: Tensor, there: Tensor) -> Tensor:
        """Both directions' states [B, L, 2H]. The second unit reads every document from its own last word, so that
        both meet padding only after all the words: it has no effect on any state of a word."""
        distinct, slots = distinct_words(words)
        vectors = F.dropout(word_rows(table, distinct), self.dropout, self.training)
        turned = turned_places(there)
        onwards, _ = self.onwards(F.embedding(slots, vectors))
        back, _ = self.backwards(F.embedding(slots.flatten()[turned].view_as(slots), vectors))
        back = back.flatten(0, 1).index_select(0, turned).view_as(back)
        return torch.cat([onwards, back], -1)


def turned_places(there: Tensor) -> Tensor:
    """Where each place of flattened documents goes when each is read from its end; padding stays. [B · L]

    >>> turned_places(torch.tensor([[True, True, True, False]])).tolist()
    [2, 1, 0, 3]
    """
    places = torch.arange(there.shape[1], device=there.device)
    turned = torch.where(there, there.sum(1, keepdim=True) - 1 - places, places)
    return (turned + there.shape[1] * torch.arange(len(there), device=there.device).unsqueeze(1)).flatten()


@dataclass
class Stack:
    """The documents of one side that an epoch has met, each once, with their owners."""

    owners: list[int] = field(default_factory=list)
    documents: list[Tensor] = field(default_factory=list)
    waiting: int = 0  # how many of the last have not been learned from
    met: set[int] = field(default_factory=set)

    def add(self, owners: Tensor, words: Tensor) -> None:
        rows, lengths = words.cpu(), (words > 0).sum(1).tolist()
        for owner, row, length in zip(owners.tolist(), rows, lengths, strict=True):
            if owner not in self.met:
                self.met.add(owner)
                self.owners.append(owner)
                self.documents.append(row[:length].clone())
                self.waiting += 1

    def block(self, start: int, end: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Owners [n] and words [n, L] of a stretch of the stack."""
        words = pad_sequence([*self.documents[start:end], torch.zeros(1, dtype=torch.int32)], batch_first=True)
        return torch.tensor(self.owners[start:end], device=device), words[:-1].to(device)


class Tarmf(RatingModel):
    Config = TarmfConfig
    needs = frozenset({"ids", "documents"})
    explained_by = "attention"
    separates = True
    shares_batches = False  # an epoch's documents are learned from in blocks of their own, and these are shared
    config: TarmfConfig
    user_factors: Tensor
    item_factors: Tensor

    def __init__(self, config: TarmfConfig, sizes: Sizes) -> None:
        super().__init__(config, sizes)
        k = config.latent_size
        self.embedding = WordEmbedding(sizes.words + 1, config.dimension, padding_idx=0)
        self.user_network = TopicalAttention(config, k + 1)
        self.item_network = TopicalAttention(config, k + 1)
        self.biases = TunedBiases(sizes)
        self.register_buffer("user_factors", F.pad(torch.randn(sizes.users, k) * k**-0.5, (0, 1)))
        self.register_buffer("item_factors", F.pad(torch.randn(sizes.items, k) * k**-0.5, (0, 1)))

    @torch.no_grad()
    def start(self, data: TrainingData) -> None:
        self.biases.fit(data.train, data.valid, self.sizes.levels)
        if self.config.biases == "tuned":
            self.user_factors[:, -1] = self.biases.user
            self.item_factors[:, -1] = self.biases.item
        users, items, ratings = self._on_device(data.train)
        for _ in range(STARTING_ROUNDS):
            self.solve_users(users, items, ratings, torch.zeros_like(self.user_factors))
            self.solve_items(users, items, ratings, torch.zeros_like(self.item_factors))

    def welcome(self, side: str, places: Tensor, biases: Tensor, sides: Tensor | None) -> None:
        """What their documents say stands for factors that nobody has solved for."""
        assert sides is not None, "this model reads documents"
        factors = self.user_factors if side == "user" else self.item_factors
        factors[places] = sides.to(factors)
        factors[places, -1] = biases.to(factors)

    def _on_device(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        columns = (pairs.users, pairs.items, pairs.ratings)
        users, items, ratings = (torch.from_numpy(column).to(self.user_factors.device) for column in columns)
        return users, items, ratings

    # ---- predicting

    def forward(self, batch: Batch) -> Prediction:
        """Documents are read only where somebody is known by nothing else."""
        users, items = self.user_factors[:0], self.item_factors[:0]
        if bool((batch.users < 0).any()):
            users = self.encode_users(batch.user_words, batch.user_reviews)
        if bool((batch.items < 0).any()):
            items = self.encode_items(batch.item_words, batch.item_reviews)
        return self.score(batch.users, batch.items, users, items)

    def encode_users(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self._prior(self.user_network(self.embedding.weight, words))

    def encode_items(self, words: Tensor, reviews: Tensor) -> Tensor:
        return self._prior(self.item_network(self.embedding.weight, words))

    def _prior(self, topics: Tensor) -> Tensor:
        """θ, with nothing said of the bias where the document is not asked for it."""
        return topics if self.config.text_bias else F.pad(topics[:, :-1], (0, 1))

    def score(self, users: Tensor, items: Tensor, user_sides: Tensor, item_sides: Tensor) -> Prediction:
        """From factors, or from θ [B, K + 1] where the number is unknown."""
        user = factors_or(self.user_factors, users, user_sides)
        item = factors_or(self.item_factors, items, item_sides)
        rating = self.biases.mean + user[:, -1] + item[:, -1] + (user[:, :-1] * item[:, :-1]).sum(-1)
        return Prediction(rating, {"user_factors": user, "item_factors": item})

    def explain(self, batch: Batch, prediction: Prediction) -> Attention:
        """α of both documents, each factor counting as much as it moves the rating."""
        user, item = prediction.tensors["user_factors"], prediction.tensors["item_factors"]
        met = (user * item)[:, :-1].abs()  # what a factor moves, [B, K]
        table = self.embedding.weight
        return Attention(
            user_words=self._heard(self.user_network.attend(table, batch.user_words)[1], met, user[:, -1]),
            item_words=self._heard(self.item_network.attend(table, batch.item_words)[1], met, item[:, -1]),
            user_names=("topical attention",),
            item_names=("topical attention",),
            meaning=(
                "The rating comes from numbers learned for the person and for the thing, which were pulled towards "
                "what the model read in these words; only a newcomer's words are read for the rating itself. "
                + NO_DIRECTION
            ),
        )

    def _heard(self, attention: Tensor, met: Tensor, bias: Tensor) -> Tensor:
        """One attention [B, L, 1] of those of all factors [B, L, K + 1], the bias' last."""
        moved = torch.cat([met, bias.abs().unsqueeze(1) * self.config.text_bias], 1)
        weights = shares(moved, torch.ones_like(moved, dtype=torch.bool))
        return attention @ weights.unsqueeze(-1)

    # ---- learning

    def train_epoch(self, batches: Iterable[Batch], optimizer: torch.optim.Optimizer) -> float:
        """Networks learn from documents as they come in; then the factors are solved for. The mean objective."""
        users, items = Stack(), Stack()
        pairs: list[tuple[Tensor, Tensor, Tensor]] = []
        size = 1
        for batch in batches:
            assert batch.ratings is not None
            size = max(size, len(batch))
            pairs.append((batch.users, batch.items, batch.ratings))
            users.add(batch.users, batch.user_words)
            items.add(batch.items, batch.item_words)
            self._learn(users, self.user_network, self.user_factors, optimizer, at_least=size)
            self._learn(items, self.item_network, self.item_factors, optimizer, at_least=size)
        if not pairs:
            return 0.0
        self._learn(users, self.user_network, self.user_factors, optimizer, at_least=1)
        self._learn(items, self.item_network, self.item_factors, optimizer, at_least=1)
        u, i, r = (torch.cat(column) for column in zip(*pairs, strict=True))
        user_topics, item_topics = self.read(users, "user", size), self.read(items, "item", size)
        self.solve_users(u, i, r, user_topics)
        self.solve_items(u, i, r, item_topics)
        return self.objective(u, i, r, user_topics, item_topics) / len(r)

    def _learn(
        self, stack: Stack, network: nn.Module, factors: Tensor, optimizer: torch.optim.Optimizer, *, at_least: int
    ) -> None:
        """One step towards the factors, once enough documents are waiting."""
        if stack.waiting < at_least:
            return
        end = len(stack.owners)
        owners, words = stack.block(end - stack.waiting, end, factors.device)
        stack.waiting = 0
        with own_rows(len(owners)) as rows:
            distance = self._prior(network(self.embedding.weight, words[rows])) - factors[owners[rows]]
            if not self.config.text_bias:
                distance = distance[:, :-1]
            optimizer.zero_grad(set_to_none=True)
            distance.square().sum(-1).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    @torch.no_grad()
    def read(self, stack: Stack, side: str, size: int) -> Tensor:
        """θ of everybody met [owners, K + 1]; zeros for the others."""
        network, factors = (
            (self.user_network, self.user_factors) if side == "user" else (self.item_network, self.item_factors)
        )
        topics = torch.zeros_like(factors)
        was_training = self.training
        self.eval()
        for start in range(0, len(stack.owners), size):
            owners, words = stack.block(start, start + size, factors.device)
            topics[owners] = self._prior(network(self.embedding.weight, words))
        self.train(was_training)
        return topics

    @torch.no_grad()
    def solve_users(self, users: Tensor, items: Tensor, ratings: Tensor, topics: Tensor) -> None:
        others = self.item_factors[items]
        ridge = self._ridge(0)
        self.user_factors.copy_(ridge_around(topics, users, others, ratings - self.biases.mean, ridge))

    @torch.no_grad()
    def solve_items(self, users: Tensor, items: Tensor, ratings: Tensor, topics: Tensor) -> None:
        others = self.user_factors[users]
        ridge = self._ridge(1)
        self.item_factors.copy_(ridge_around(topics, items, others, ratings - self.biases.mean, ridge))

    def _ridge(self, side: int) -> Tensor:
        """λ for each factor, and last the biases' own penalty, where they were tuned. [K + 1]"""
        ridge = torch.full_like(self.user_factors[0], self.config.pull)
        if self.config.biases == "tuned":
            ridge[-1] = self.biases.shrinkage[side]
        return ridge

    @torch.no_grad()
    def objective(
        self, users: Tensor, items: Tensor, ratings: Tensor, user_topics: Tensor, item_topics: Tensor
    ) -> float:
        """What is minimised, over all pairs."""
        guess = self.score(users, items, self.user_factors[:0], self.item_factors[:0]).rating
        total = (guess - ratings).square().sum()
        total = total + (self._ridge(0) * (self.user_factors - user_topics).square()).sum()
        return float(total + (self._ridge(1) * (self.item_factors - item_topics).square()).sum())


def factors_or(factors: Tensor, places: Tensor, sides: Tensor) -> Tensor:
    """Factors at the places, and `sides` where a place is -1; no sides are needed where none is."""
    if not len(sides):
        return factors[places]
    return torch.where((places >= 0).unsqueeze(1), factors[places.clamp_min(0)], sides.flatten(1))


def ridge_around(topics: Tensor, owners: Tensor, others: Tensor, ratings: Tensor, ridge: Tensor) -> Tensor:
    """The x that minimise Σ (r − b_other − x_owner·(other; 1))² + Σ ridge ⊙ (x − topics)², for all owners at once.

    `others` [pairs, K + 1] are the counterparts' factors, their biases last; `ratings` are without the mean.
    """
    features = torch.cat([others[:, :-1], torch.ones_like(others[:, -1:])], -1)
    ratings = ratings - others[:, -1]

    def gathered(of_pairs: Tensor) -> Tensor:
        return torch.zeros_like(topics).index_add(0, owners, features * of_pairs.unsqueeze(1))

    rest = gathered(ratings - (features * topics[owners]).sum(-1))  # the residual of x = topics
    change, direction = torch.zeros_like(topics), rest / ridge
    steep = (rest * direction).sum(-1, keepdim=True)
    for _ in range(GRADIENT_STEPS):
        product = gathered((features * direction[owners]).sum(-1)) + ridge * direction
        step = steep / (direction * product).sum(-1, keepdim=True).clamp_min(1e-30)
        change = change + step * direction
        rest = rest - step * product
        scaled = rest / ridge
        steeper = (rest * scaled).sum(-1, keepdim=True)
        direction = scaled + steeper / steep.clamp_min(1e-30) * direction
        steep = steeper
    return topics + change
