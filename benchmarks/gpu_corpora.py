"""Made-up corpora of Yelp's shape, and the straightforward form over them on the GPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carp.models.base import make_config
from carp.models.batch import Pairs, Sizes, TrainingData
from carp.models.carp import Carp
from carp.reviews.documents import Documents
from gpu_session import Session, Shape, say
from straightforward import Straightforward

Numbers = NDArray[np.int64]


def made_up(shape: Shape, seed: int = 0) -> TrainingData:
    """Everyone has a review at least; some have many more; words follow Zipf's law."""
    rng = np.random.default_rng(seed)

    def owners(count: int, spread: float) -> Numbers:
        weight = np.cumsum(rng.lognormal(0, spread, count))
        more = np.searchsorted(weight, rng.random(shape.pairs - count) * weight[-1])
        return rng.permutation(np.concatenate([np.arange(count), more]))

    users, items = owners(shape.users, 0.5), owners(shape.items, 1.1)
    lengths = rng.geometric(1 / shape.review, shape.pairs)
    zipf = np.cumsum(1 / (np.arange(shape.words) + 2.7))
    words = (1 + np.searchsorted(zipf, rng.random(lengths.sum()) * zipf[-1])).astype(np.int32)
    both = [documents_of(words, lengths, *side, shape.longest) for side in ((users, shape.users), (items, shape.items))]
    ratings = rng.integers(1, 6, shape.pairs).astype(np.float32)
    train = Pairs(users, items, ratings, np.arange(shape.pairs))
    sizes = Sizes(shape.users, shape.items, shape.words, 5, shape.longest)
    return TrainingData(train, train, both[0], both[1], sizes)


def documents_of(words: NDArray[np.int32], lengths: Numbers, owner: Numbers, owners: int, longest: int) -> Documents:
    """As make_documents cuts them, but reviews are sorted and not words: seconds instead of a minute."""
    order = np.argsort(owner, kind="stable")
    sorted_lengths, sorted_owner = lengths[order], owner[order]
    counts = np.bincount(sorted_owner, weights=sorted_lengths, minlength=owners).astype(np.int64)
    first = np.cumsum(counts) - counts  # of each document, before it is cut
    begins = np.cumsum(sorted_lengths) - sorted_lengths  # of each review, likewise
    kept = np.clip(longest - (begins - first[sorted_owner]), 0, sorted_lengths)
    starts = (np.cumsum(lengths) - lengths)[order]
    ends = np.cumsum(kept)
    source = np.repeat(starts - (ends - kept), kept) + np.arange(ends[-1])
    offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, longest))])
    review = np.repeat(order, kept).astype(np.int32)
    return Documents(words[source], review, np.zeros(len(source), np.int32), offsets)


def words_of_a_pair(data: TrainingData) -> float:
    """Words of both documents of a pair, on average: long ones come oftener than they are many."""
    both = ((data.user_documents, data.train.users), (data.item_documents, data.train.items))
    return float(sum(documents.lengths()[owners].mean() for documents, owners in both))


def describe(session: Session, data: TrainingData) -> TrainingData:
    users, items = (of.lengths().mean() for of in (data.user_documents, data.item_documents))
    say(
        f"{len(data.train):,} pairs; words a document: users {users:.0f}, items {items:.0f}; "
        f"of a pair {words_of_a_pair(data):.0f}"
    )
    session.note("corpus", pairs=len(data.train), user_words=users, item_words=items, pair_words=words_of_a_pair(data))
    return data


def model_for(session: Session, data: TrainingData) -> Carp:
    torch.manual_seed(0)
    small = {"dimension": 10, "filters": 12, "latent_size": 10, "viewpoints": 3} if session.rehearsal else {}
    return Carp(make_config(Carp, small), data.sizes)


def padded_on(documents: Documents, longest: int, device: torch.device) -> tuple[Tensor, Tensor]:
    words = torch.zeros(len(documents), longest, dtype=torch.int32)
    reviews = torch.full_like(words, -1)
    there = torch.arange(longest)[None, :] < torch.from_numpy(documents.lengths())[:, None]
    words[there], reviews[there] = torch.from_numpy(documents.words), torch.from_numpy(documents.review)
    return words.to(device), reviews.to(device)


class StraightforwardSteps:
    """The straightforward form with its padded documents on the GPU, a step a call."""

    def __init__(self, session: Session, data: TrainingData) -> None:
        self.model = Straightforward(model_for(session, data)).to(session.device).train()
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=0.001, alpha=0.9)
        longest = session.shape.longest
        both = (data.user_documents, data.item_documents)
        self.sides = [padded_on(documents, longest, session.device) for documents in both]
        train = data.train
        self.users, self.items, self.ratings, self.records = (
            torch.from_numpy(array).to(session.device)
            for array in (train.users, train.items, train.ratings, train.records)
        )
        self.order = torch.randperm(len(train), device=session.device)

    def of(self, batch: int) -> Callable[[], None]:
        number = 0
        batches = max(1, len(self.order) // batch)

        def step() -> None:
            nonlocal number
            chosen = self.order[number % batches * batch :][:batch]
            number += 1
            u, i, own = self.users[chosen], self.items[chosen], self.records[chosen, None]
            words = [side[0][of] * (side[1][of] != own) for side, of in zip(self.sides, (u, i), strict=True)]
            found, lengths = self.model(u, i, *words)
            loss = self.model.loss(self.ratings[chosen], found, lengths)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()

        return step
