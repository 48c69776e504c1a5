"""What users touch: fit, predict, explain, recommend, save, load. Knows raw ids, texts and files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carp.answers import Predictions, Recommendation
from carp.errors import InputError, UnknownIdError, UsageError, nearest
from carp.evaluate.evaluation import degree_scale, evaluate_model
from carp.explain.explainer import explain_question, explainable
from carp.explain.explanation import Explanation
from carp.explain.question import Detail, Question, known_pair
from carp.models import model_class, model_entry
from carp.models.base import RatingModel, from_settings
from carp.models.batch import Pairs
from carp.models.layers import TunedBiases
from carp.models.predict import encode_documents, score_newcomer, score_pairs
from carp.persist.bundle import read_bundle, write_bundle
from carp.ranking import best_things, check_number, rank_by_sides, rank_one_by_one
from carp.reviews.corpora.corpus import Corpus, build_corpus
from carp.reviews.split import split_corpus
from carp.reviews.split_parts import TRAIN
from carp.settings import sort_settings
from carp.storage import folder_size
from carp.training.checkpoint import LOG, TrainingState
from carp.training.fitted_corpus import FittedCorpus, fit_corpus
from carp.training.loop import Watcher, choose_device, train


class Recommender:
    """Predicts how a person will rate a thing from what people wrote, and says why.

    Settings are those of the model, of training, of the text and of fitting, all by name:
    `Recommender("carp", variant="calibrated", epochs=10, vocabulary_size=8000)`.
    """

    def __init__(
        self, model: str = "carp", *, seed: int = 0, split_seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        self.name = model
        self.seed = seed
        self.split_seed = split_seed
        self.device = choose_device(device)
        self.kind = model_class(model)
        sorted_settings = sort_settings(model, settings)
        self.fit_settings, self.text = sorted_settings.fit, sorted_settings.text
        self.training, self.config = sorted_settings.training, sorted_settings.config
        self._model: RatingModel | None = None
        self._fitted_corpus: FittedCorpus | None = None
        self._baseline: TunedBiases | None = None
        self.facts: dict[str, Any] = {}
        self._log = b""

    # ---- fitting

    def fit(
        self,
        reviews: Any,
        *,
        split: Path | str | None = None,
        checkpoints: Path | str | None = None,
        resume: bool = False,
        progress: bool = True,
        watcher: Watcher | None = None,
    ) -> Recommender:
        """Train on reviews: a Corpus, what `read_reviews` gives, a file, or a frame with user, item, rating, text."""
        corpus = self._corpus(reviews)
        parts = split_corpus(corpus, seed=self.split_seed, file=None if split is None else Path(split))
        fitted = fit_corpus(corpus, parts, self.text)
        data = fitted.training_data(self.fit_settings.target_reviews)
        torch.manual_seed(self.seed)
        model = self.kind(self.config, fitted.sizes)
        with contextlib.ExitStack() as stack:
            if watcher is None and progress:
                from carp.render.progress_bar import Bar

                watcher = stack.enter_context(contextlib.closing(Bar(self.training.epochs)))
            reached = train(
                model,
                data,
                self.training,
                seed=self.seed,
                device=self.device,
                folder=None if checkpoints is None else Path(checkpoints),
                identity=self._identity(fitted),
                resume=resume,
                watcher=watcher,
            )
        baseline = TunedBiases(fitted.sizes)
        baseline.fit(data.train, data.valid, fitted.levels)
        self._take(model, baseline.to(self.device), fitted)
        self._remember(reached, checkpoints)
        return self

    def _corpus(self, reviews: Any) -> Corpus:
        if isinstance(reviews, Corpus):
            return reviews
        from carp.reviews.sources.formats import read_reviews
        from carp.reviews.sources.ledger import Reviews

        if not isinstance(reviews, Reviews):
            reviews = read_reviews(reviews)
        return build_corpus(reviews, min_reviews=self.fit_settings.min_reviews)

    def _identity(self, fitted: FittedCorpus) -> str:
        """What a checkpoint must agree with to be continued. How long to train may change."""
        training = {k: v for k, v in asdict(self.training).items() if k not in ("epochs", "patience")}
        part = hashlib.sha256(np.asarray(fitted.part).tobytes()).hexdigest()
        whole = [self.name, asdict(self.config), training, asdict(self.text), asdict(self.fit_settings), self.seed]
        whole += [fitted.facts["fingerprint"], part, self.device.type]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()

    def _take(self, model: RatingModel, baseline: TunedBiases, fitted: FittedCorpus) -> None:
        self._model, self._baseline, self._fitted_corpus = model.to(self.device).eval(), baseline, fitted
        self.__dict__.pop("_sides", None)

    def _remember(self, reached: TrainingState, checkpoints: Path | str | None) -> None:
        self._log = "".join(json.dumps(record) + "\n" for record in reached.history).encode()
        self.facts = {
            "seed": self.seed,
            "split_seed": self.split_seed,
            "fit": asdict(self.fit_settings),
            "text": asdict(self.text),
            "training": asdict(self.training),
            "best_epoch": reached.best_epoch,
            "epochs": reached.epoch,
            "valid_mse": reached.best_error if np.isfinite(reached.best_error) else None,
            "device": self.device.type,
            "threads": torch.get_num_threads(),
            "degree_scale": degree_scale(self.model, self.fitted_corpus, self._sides if self.model.separates else None),
        }

    # ---- what is there after fitting

    @property
    def model(self) -> RatingModel:
        if self._model is None:
            raise UsageError("this recommender has not been fitted", fix="call fit(reviews), or use carp.load")
        return self._model

    @property
    def fitted_corpus(self) -> FittedCorpus:
        if self._fitted_corpus is None:
            raise UsageError("this recommender has not been fitted", fix="call fit(reviews), or use carp.load")
        return self._fitted_corpus

    @property
    def baseline(self) -> TunedBiases:
        if self._baseline is None:
            raise UsageError("this recommender has not been fitted", fix="call fit(reviews), or use carp.load")
        return self._baseline

    @cached_property
    def _sides(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Viewpoints of all users and aspects of all items, each encoded once."""
        return (
            encode_documents(self.model.encode_users, self.fitted_corpus.user_documents, self.device),
            encode_documents(self.model.encode_items, self.fitted_corpus.item_documents, self.device),
        )

    # ---- predicting

    def predict(self, pairs: Iterable[tuple[str, str]]) -> Predictions:
        """Ratings of (user, item) pairs, in the range of the data; unknown ids are answered and noted."""
        listed = _checked_pairs(pairs)
        users = self._numbers(self.fitted_corpus.users.index(), (user for user, _ in listed))
        items = self._numbers(self.fitted_corpus.items.index(), (item for _, item in listed))
        notes = [_unknown_note(u < 0, i < 0) for u, i in zip(users, items, strict=True)]
        stars = self._rate(users, items)
        return Predictions(self.fitted_corpus.scale.from_stars(stars, self.fitted_corpus.levels), tuple(notes))

    @staticmethod
    def _numbers(index: Mapping[str, int], names: Iterable[str]) -> NDArray[np.int64]:
        return np.array([index.get(name, -1) for name in names], dtype=np.int64)

    @torch.no_grad()
    def _rate(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float64]:
        """Stars of numbered pairs. The one place that decides what somebody unknown gets: the biases that are
        known, which is the mean for a stranger and a thing's own level for an unknown user."""
        stars = self.baseline(torch.from_numpy(users).to(self.device), torch.from_numpy(items).to(self.device)).double()
        known = np.flatnonzero((users >= 0) & (items >= 0))
        records = np.array([self._trained_record(int(users[k]), int(items[k])) for k in known], dtype=np.int64)
        for chosen, trained in ((known[records < 0], False), (known[records >= 0], True)):
            if len(chosen):
                own = records[records >= 0] if trained else np.full(len(chosen), -1)
                ratings = self.fitted_corpus.rating[own] if trained else np.zeros(len(chosen), np.float32)
                found = self._known(Pairs(users[chosen], items[chosen], ratings, own), trained)
                stars[torch.from_numpy(chosen).to(self.device)] = found.double()
        return np.asarray(stars.clamp(1, self.fitted_corpus.levels).cpu())

    def _trained_record(self, user: int, item: int) -> int:
        record = self.fitted_corpus.record_of_pair.get((user, item), -1)
        return record if record >= 0 and self.fitted_corpus.part[record] == TRAIN else -1

    def _known(self, pairs: Pairs, trained: bool) -> torch.Tensor:
        """Pairs of training are rated as in training: without their own review and rating."""
        if self.model.separates and not trained:
            return score_pairs(self.model, *self._sides, pairs)
        data = self.fitted_corpus.training_data()
        blocks = [np.arange(s, min(s + 500, len(pairs))) for s in range(0, len(pairs), 500)]
        return torch.cat(
            [self.model(data.batch(pairs, block, training=trained).to(self.device)).rating for block in blocks]
        )

    def predict_for(self, reviews: str | Sequence[str], items: Sequence[str], *, explain: bool = False) -> Predictions:
        """Ratings somebody would give who is known only by these reviews of other things, with reasons if so asked."""
        document = self._newcomer(reviews)
        numbers = self._numbers(self.fitted_corpus.items.index(), items)
        stars = self._rate_newcomer(document, numbers)
        notes = tuple(_unknown_note(False, i < 0) for i in numbers)
        reasons = tuple(self.explain_for(reviews, item) for item in items) if explain else ()
        return Predictions(self.fitted_corpus.scale.from_stars(stars, self.fitted_corpus.levels), notes, reasons)

    @torch.no_grad()
    def _rate_newcomer(self, document: Any, items: NDArray[np.int64]) -> NDArray[np.float64]:
        words = torch.from_numpy(document.words)[None].to(self.device)
        reviews = torch.from_numpy(document.review)[None].to(self.device)
        viewpoints = self.model.encode_users(words, reviews)
        places = torch.from_numpy(items).to(self.device)
        stars = self.baseline(torch.full_like(places, -1), places).double()
        known = places >= 0
        stars[known] = score_newcomer(self.model, viewpoints, self._sides[1], places[known]).double()
        return np.asarray(stars.clamp(1, self.fitted_corpus.levels).cpu())

    def _newcomer(self, reviews: str | Sequence[str]) -> Any:
        if not self.model.separates:
            raise UsageError(f"the model {self.name} cannot rate for a newcomer", fix="use carp")
        texts = [reviews] if isinstance(reviews, str) else list(reviews)
        document = self.fitted_corpus.newcomer(texts)
        if not len(document.words):
            raise InputError(
                "these reviews hold no word the model knows", fix="write a few sentences about things of this kind"
            )
        return document

    # ---- recommending and explaining

    def recommend(self, user: str, n: int = 10, *, include_known: bool = False) -> list[Recommendation]:
        """The things this person would rate highest, without those already rated."""
        number = self._find(self.fitted_corpus.users.index(), user, "user")
        if not include_known:
            return next(self._ranked([number], n))[1]
        items = np.arange(len(self.fitted_corpus.items))
        return best_things(self.fitted_corpus, items, self._rate(np.full(len(items), number), items), n)

    def recommend_all(
        self, n: int = 10, users: Iterable[str] | None = None
    ) -> Iterator[tuple[str, list[Recommendation]]]:
        """(user, recommendations) of everybody, or of these users, one after the other and in bounded memory."""
        index, names = self.fitted_corpus.users.index(), self.fitted_corpus.users
        numbers = range(len(names)) if users is None else [self._find(index, user, "user") for user in users]
        return ((names[number], found) for number, found in self._ranked(numbers, n))

    def _ranked(self, users: Sequence[int], n: int) -> Iterator[tuple[int, list[Recommendation]]]:
        check_number(n)
        if self.model.separates:
            return rank_by_sides(self.model, self.fitted_corpus, self._sides, users, n)
        return rank_one_by_one(self.fitted_corpus, self._rate, users, n)

    def recommend_for(self, reviews: str | Sequence[str], n: int = 10) -> list[Recommendation]:
        """The same for somebody known only by these reviews."""
        items = np.arange(len(self.fitted_corpus.items))
        return best_things(self.fitted_corpus, items, self._rate_newcomer(self._newcomer(reviews), items), n)

    def explain(self, user: str, item: str, **detail: int) -> Explanation:
        """Why this person would rate this thing so. Shows itself in a terminal and in a notebook."""
        explainable(self.model, self.name)
        question = known_pair(
            self.fitted_corpus,
            self._find(self.fitted_corpus.users.index(), user, "user"),
            self._find(self.fitted_corpus.items.index(), item, "item"),
        )
        return self._explain(question, detail)

    def explain_for(self, reviews: str | Sequence[str], item: str, **detail: int) -> Explanation:
        """The same for somebody known only by these reviews."""
        explainable(self.model, self.name)
        number = self._find(self.fitted_corpus.items.index(), item, "item")
        things = self.fitted_corpus.readable(self.fitted_corpus.item_documents, number)
        return self._explain(Question(-1, number, self._newcomer(reviews), things), detail)

    def _explain(self, question: Question, detail: Mapping[str, int]) -> Explanation:
        own = None
        if question.trained_on(self.fitted_corpus):
            own = torch.tensor([float(self.fitted_corpus.rating[question.record])], device=self.device)
        users = torch.tensor([question.user], device=self.device)
        items = torch.tensor([question.item], device=self.device)
        baseline = float(self.baseline(users, items, own).clamp(1, self.fitted_corpus.levels))
        positive, negative = self.facts["degree_scale"]
        return explain_question(
            explainable(self.model, self.name),
            self.fitted_corpus,
            question,
            self.device,
            baseline=baseline,
            degree_scale=(positive, negative),
            detail=from_settings(Detail, detail),
            name=self.name,
        )

    def _find(self, index: Mapping[str, int], name: str, kind: str) -> int:
        number = index.get(name, -1)
        if number < 0:
            close = nearest(name, index) if len(index) < 200_000 else ""
            fix = close if close.startswith("did") else f"give a {kind} of the training data"
            raise UnknownIdError(f"the model has never seen the {kind} {name!r}", fix=fix)
        return number

    # ---- judging

    def evaluate(self) -> dict[str, Any]:
        """Test errors on the paper's scale beside those of the mean and of the tuned biases, on the same pairs."""
        sides = self._sides if self.model.separates else None
        return evaluate_model(self.name, self.model, self.baseline, self.fitted_corpus, sides, self.device)

    # ---- keeping

    def save(self, folder: Path | str, *, overwrite: bool = False) -> int:
        """Write the bundle; its size in bytes."""
        folder = Path(folder)
        write_bundle(
            folder,
            name=self.name,
            model=self.model,
            baseline=self.baseline,
            fitted=self.fitted_corpus,
            facts=self.facts,
            log=self._log,
            overwrite=overwrite,
        )
        return folder_size(folder)

    def __repr__(self) -> str:
        if self._model is None:
            return f"<Recommender {self.name}, not fitted>"
        sizes = self.fitted_corpus.sizes
        return f"<Recommender {self.name}: {sizes.users:,} users, {sizes.items:,} items, {sizes.words:,} words>"


def load(folder: Path | str, *, device: str = "auto") -> Recommender:
    """A saved recommender, ready to predict and explain. Damage is refused."""
    folder = Path(folder)
    name, model, baseline, fitted, facts = read_bundle(folder)
    recommender = Recommender(
        name,
        seed=facts["seed"],
        split_seed=facts["split_seed"],
        device=device,
        **facts["fit"],
        **facts["text"],
        **facts["training"],
        **{k: v for k, v in facts["config"].items() if k not in model_entry(name).settings},
    )
    recommender._take(model, baseline.to(recommender.device), fitted)
    kept = {f.name for f in dataclasses.fields(FittedCorpus)} | {"model", "config", "data", "made_with"}
    recommender.facts = {key: value for key, value in facts.items() if key not in kept}
    recommender._log = (folder / LOG).read_bytes()
    return recommender


def _checked_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    listed = list(pairs)
    for place, pair in enumerate(listed):
        if isinstance(pair, str) or len(pair) != 2:
            raise UsageError(f"pair {place} is {pair!r}", fix="give pairs of a user and an item")
    return [(str(user), str(item)) for user, item in listed]


def _unknown_note(user: bool, item: bool) -> str | None:
    if user and item:
        return "unknown user and item: the mean rating"
    if user:
        return "unknown user: the mean and the item's bias"
    return "unknown item: the mean and the user's bias" if item else None
