"""Reading and scoring on the GPU: documents to sides, pairs from ready sides, the best of a catalogue, other cuts."""

from __future__ import annotations

import torch
from torch import Tensor

from carp.kernels.gpu.encoder import ReadingCut, encode_side_gpu
from carp.kernels.gpu.scorer import Scorer, ScoreTiling, score_pairs_gpu, top_items_gpu
from carp.models.batch import TrainingData
from carp.models.carp import Carp
from carp.reviews.documents import Documents
from gpu_corpora import model_for, padded_on
from gpu_session import Session, against_ceilings, say
from straightforward import Straightforward

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
MOST_STRAIGHTFORWARD = 100_000  # pairs at once: more would only cost it memory
CUTS = [
    *(ScoreTiling(block, warps, stages, products)
      for products in ("tf32", "half") for block, warps in ((64, 4), (128, 8)) for stages in (1, 2, 3)),
    *(ScoreTiling(64, 8, stages, products) for products in ("tf32", "half") for stages in (1, 2)),
    *(ScoreTiling(block, warps, stages) for block, warps in ((32, 2), (32, 4), (64, 2)) for stages in (1, 2)),
    *(ScoreTiling(*cut, stages, "tf32x3") for cut in ((64, 4), (64, 8), (128, 8)) for stages in (1, 2)),
]  # fmt: skip
FEW_CUTS = [ScoreTiling(), ScoreTiling(stages=2), ScoreTiling(stages=2, products="tf32")]


class Ready:
    """A model with sides of everyone and pairs in any order."""

    def __init__(self, session: Session, data: TrainingData) -> None:
        self.model: Carp = model_for(session, data).to(session.device).eval()
        config, shape = self.model.config, session.shape
        self.plain = Straightforward(self.model).to(session.device).eval()
        self.viewpoints, self.aspects = (
            torch.randn(size, config.viewpoints, config.latent_size, device=session.device) * 0.5
            for size in (shape.users, shape.items)
        )
        self.count = 64 if session.rehearsal else 4_000_000 if session.quick else 20_000_000
        self.users, self.items = (
            torch.randint(0, size, (self.count,), device=session.device) for size in (shape.users, shape.items)
        )

    def straightforward(self, session: Session, size: int) -> float:
        """Pairs a second, so many at once."""
        u, i = self.users[:size], self.items[:size]
        with torch.no_grad():
            each = session.seconds_each(lambda: self.plain.score(u, i, self.viewpoints[u], self.aspects[i]), 5)
        return len(u) / each

    def ours(self, session: Session, cut: ScoreTiling, size: int | None = None) -> float:
        u, i = self.users[:size], self.items[:size]
        again = 1 if session.rehearsal else max(3, 3_000_000 // len(u))

        def score() -> Tensor | None:
            return score_pairs_gpu(self.model, self.viewpoints, self.aspects, u, i, cut)

        return len(u) / session.seconds_each(score, min(again, 100), 1)

    def catalogue(self, session: Session, cut: ScoreTiling, people: int) -> float:
        who = torch.arange(min(people, len(self.viewpoints)), device=session.device)
        best = session.seconds_each(
            lambda: top_items_gpu(self.model, self.viewpoints, self.aspects, who, 10, cut=cut), 2, 1
        )
        return len(who) * len(self.aspects) / best

    def rates(self, session: Session, cut: ScoreTiling) -> tuple[float, float]:
        """The kernels alone: listed pairs a second, and pairs a second of some people with everything."""
        scorer = Scorer(self.model, cut)
        v, a = scorer.padded(self.viewpoints), scorer.padded(self.aspects)
        users, items, people = self.users[:2_000_000], self.items[:2_000_000], v[:32]
        listed = session.seconds_each(lambda: scorer.of_pairs(v, a, users, items), 3, 1)
        dense = session.seconds_each(lambda: scorer.of_rectangle(people, a), 3, 1)
        return len(users) / listed, len(people) * len(a) / dense


def encode(session: Session, data: TrainingData) -> None:
    """Users' documents a second, the straightforward form's padded ones already on the GPU, ours with the way there."""
    model = model_for(session, data).to(session.device).eval()
    documents = data.user_documents
    theirs = session.stage("straightforward reading", straightforward_reading, session, model, data)
    for products in ("tf32x3", "tf32"):
        how = ReadingCut(products="ieee" if session.rehearsal else products)
        rate = session.stage(f"{len(documents):,} documents, {how.products}", reading, session, model, documents, how)
        if rate:
            name, seconds = f"encoding documents ({how.products})", len(documents) / rate / 1e3
            shares = against_ceilings(session, name, *reading_costs(model, documents), seconds, how.products)
            session.compare(name, theirs, rate, "thousand/s", shares)


def reading(session: Session, model: Carp, documents: Documents, how: ReadingCut) -> float:
    """Thousands of documents a second; a rehearsal reads them once, since its numbers mean nothing."""
    times, warm = (1, 0) if session.rehearsal else (2, 1)
    took = session.seconds_each(
        lambda: encode_side_gpu(model.user_side, model.embedding.weight, documents, session.device, how), times, warm
    )
    return len(documents) / took / 1e3


def straightforward_reading(session: Session, model: Carp, data: TrainingData) -> float:
    """Thousands of documents a second."""
    plain = Straightforward(model).to(session.device).eval()
    words = padded_on(data.user_documents, session.shape.longest, session.device)[0][:2000]
    with torch.no_grad():
        return len(words) / session.seconds_each(lambda: plain.encode_users(words), 5) / 1e3


def score(session: Session, data: TrainingData) -> None:
    ready = Ready(session, data)
    theirs = session.stage("straightforward scoring", best_straightforward, session, ready)
    few = [ScoreTiling(products="ieee")] if session.rehearsal else FEW_CUTS
    found = session.stage("cuts of scoring", try_cuts, session, ready, few)
    for products in ("half", "tf32", "tf32x3"):
        cut = (found or {}).get(products, ScoreTiling(stages=2, products=products))
        cut = ScoreTiling(products="ieee") if session.rehearsal else cut
        rate = session.stage(f"{ready.count:,} pairs in any order, {cut}", ready.ours, session, cut)
        if rate:
            name = f"scoring pairs from ready sides ({cut.products})"
            shares = against_ceilings(session, name, *pair_costs(ready.model), 1 / rate, cut.products)
            session.compare(name, theirs, rate / 1e6, "million/s", shares)
        people = 128 if session.quick else 1024
        name = f"the best 10 of the catalogue for {people} people, {cut}"
        rate = session.stage(name, ready.catalogue, session, cut, people)
        if rate:
            name = f"best 10 of the catalogue ({cut.products})"
            shares = against_ceilings(session, name, *catalogue_costs(ready.model), 1 / rate, cut.products)
            session.compare(name, theirs, rate / 1e6, "million/s", shares)


def reading_costs(model: Carp, documents: Documents) -> tuple[float, float]:
    """Fewest bytes and operations of reading documents: the table projected, features written and read, gates."""
    config, words, table = model.config, len(documents.words), model.embedding.weight.numel()
    n, projected = config.filters, len(model.embedding.weight) * config.window * config.filters
    moved = 4 * (
        table + 2 * projected + 2 * words + 2 * words * n + len(documents) * config.viewpoints * config.latent_size
    )
    return moved, 2 * (table * config.window * n + words * config.viewpoints * n * n)


def catalogue_costs(model: Carp) -> tuple[float, float]:
    """Of a pair whose person is folded into the weights: one product a unit, routing, and a rating out and in."""
    config = model.config
    k, units = config.latent_size, 2 * config.viewpoints**2
    return 8.0, units * (2 * k * k + config.routing_iterations * 4 * k)


def pair_costs(model: Carp) -> tuple[float, float]:
    """Fewest bytes and operations of a pair: two rows, two numbers and a rating; votes once, routing over them."""
    config = model.config
    k, units = config.latent_size, 2 * config.viewpoints**2
    return 4 * 2 * config.viewpoints * k + 8 * 2 + 4, units * (4 * k * k + config.routing_iterations * 4 * k)


def best_straightforward(session: Session, ready: Ready) -> float:
    """Millions of pairs a second."""
    rates = [ready.straightforward(session, size) / 1e6 for size in (20_000, MOST_STRAIGHTFORWARD)]
    say(f"20,000 pairs at once: {rates[0]:.1f} million a second; 100,000: {rates[1]:.1f}")
    return max(rates)


def try_cuts(session: Session, ready: Ready, cuts: list[ScoreTiling]) -> dict[str, ScoreTiling]:
    """The best cut for each kind of products, by the mean of listed pairs and the catalogue."""
    best: dict[str, tuple[float, ScoreTiling]] = {}
    for cut in cuts:
        try:
            listed, dense = ready.rates(session, cut)
        except Exception as error:
            say(f"  {cut} does not work: {' '.join(str(error).split())[:160]}")
            continue
        say(f"  {cut}: {listed / 1e6:.1f} million pairs a second, {dense / 1e6:.1f} dense")
        session.note("cut of scoring", cut=vars(cut), listed=listed, dense=dense)
        if cut.products not in best or listed + dense > best[cut.products][0]:
            best[cut.products] = listed + dense, cut
    for products, (_, cut) in best.items():
        say(f"best with {products}: {cut}")
        session.note("best cut of scoring", products=products, cut=vars(cut))
    return {products: cut for products, (_, cut) in best.items()}


def tune_scoring(session: Session, data: TrainingData) -> None:
    ready = Ready(session, data)
    cuts = [ScoreTiling(products="ieee")] if session.rehearsal else FEW_CUTS if session.quick else CUTS
    session.stage("other cuts of scoring", try_cuts, session, ready, cuts)


def score_batches(session: Session, data: TrainingData) -> None:
    """Pairs a second for several numbers of pairs at once, both forms."""
    ready = Ready(session, data)
    for size in (16,) if session.rehearsal else SIZES:
        if size > ready.count:
            continue
        theirs = ready.straightforward(session, min(size, MOST_STRAIGHTFORWARD))
        ours = ready.ours(session, ScoreTiling(), size)
        say(f"  {size:>10,} pairs at once: {theirs / 1e6:7.1f} and {ours / 1e6:7.1f} million a second")
        session.note("scoring batches", pairs=size, straightforward=theirs, ours=ours)
