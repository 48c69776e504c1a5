"""The meeting model on the GPU: its fit on whole documents of Yelp's shape, at a sixteenth, a quarter and the whole.

Ratings follow from the documents here: from the words of the person, of the thing, from how the two meet, and from a
bias of each. With ratings that mean nothing all strengths would fall to zero, and fitting would be easier than it is.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from carp.models.base import make_config
from carp.models.batch import TrainingData
from carp.models.meeting import Meeting
from carp.reviews.documents import Documents
from gpu_corpora import made_up
from gpu_session import REVIEWS, Session, Shape, say

SHARES = (1 / 16, 1 / 4, 1)
WHOLE = 100_000  # words of a document: none is cut
LIMIT = 120.0  # seconds for 1.2 million reviews
SMALL = Shape(1_600, 320, 192, 400, WHOLE, 27, 200)  # goes through in seconds on a CPU
MEANINGS = 8  # numbers a word has, from which ratings are made
Floats = NDArray[np.float64]


def fits(session: Session) -> None:
    """Seconds, seconds a review and the peak memory of a fit at each size."""
    session.stage("a first fit, so that the card is awake", fit, session, SMALL)
    shape = SMALL if session.rehearsal else replace(session.shape, longest=WHOLE)
    found = {share: session.stage(f"{share:.4g} of the reviews", measured, session, shape, share) for share in SHARES}
    took = found[SHARES[-1]]
    if took is not None:
        session.compare("meeting: fit of 1.2 million reviews, of the time it may take", LIMIT, took, "s")


def measured(session: Session, shape: Shape, share: float) -> float:
    session.forget()
    took, pairs, words = fit(session, shape.times(share))
    each = took / pairs * 1e6
    say(f"  {took:.2f} s, {each:.1f} µs a training pair, {session.peak() / 1e9:.2f} GB at most")
    facts = {"reviews": round(share * REVIEWS), "pairs": pairs, "words": words, "seconds": took}
    session.note("meeting fit", **facts, peak_bytes=session.peak())
    return took


def fit(session: Session, shape: Shape) -> tuple[float, int, int]:
    """Seconds of a fit, its training pairs, and the words of all their reviews."""
    data = with_opinions(made_up(shape))
    torch.manual_seed(0)
    model = Meeting(make_config(Meeting, {}), data.sizes).to(session.device)
    session.wait()
    began = time.perf_counter()
    model.start(data)
    session.wait()
    return time.perf_counter() - began, len(data.train), len(data.user_documents.words)


def with_opinions(data: TrainingData, seed: int = 1) -> TrainingData:
    """The same pairs with ratings that follow from both documents."""
    rng = np.random.default_rng(seed)
    meanings = rng.normal(0, 1, (data.sizes.words + 1, MEANINGS))
    users, items = (_heard(of, meanings) for of in (data.user_documents, data.item_documents))
    u, i = data.train.users, data.train.items
    biases = rng.normal(0, 0.4, len(users))[u] + rng.normal(0, 0.3, len(items))[i]
    texts = 0.2 * users[u, 0] + 0.3 * items[i, 1] + 0.3 * (users[u, 2:] * items[i, 2:]).sum(1) / (MEANINGS - 2) ** 0.5
    stars = np.clip(np.rint(3.8 + biases + texts + rng.normal(0, 0.8, len(u))), 1, 5).astype(np.float32)
    train = replace(data.train, ratings=stars)
    return replace(data, train=train, valid=train)


def _heard(documents: Documents, meanings: Floats) -> Floats:
    """The mean meaning of each document's words, of spread 1 over documents [owners, meanings]."""
    owner = np.repeat(np.arange(len(documents)), documents.lengths())
    columns = [np.bincount(owner, one[documents.words], len(documents)) for one in meanings.T]
    found = np.stack(columns, 1) / np.maximum(documents.lengths(), 1)[:, np.newaxis] ** 0.5
    heard: Floats = (found - found.mean(0)) / np.maximum(found.std(0), 1e-12)
    return heard
