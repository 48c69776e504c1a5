"""What users touch: fit, predict, explain, recommend, save, load. Knows raw ids, texts and files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from carp.answers import Predictions, Recommendation, Recommendations
from carp.errors import InputError, UnknownIdError, UsageError, nearest
from carp.evaluate.evaluation import evaluate_model
from carp.explain.aspect_overview import Aspects, aspects_of
from carp.explain.explainer import Explainer, explainer_for
from carp.explain.explanation import Explanation
from carp.explain.profiles import PersonProfile, Summary, ThingProfile, person_profile, summary_for, thing_profile
from carp.explain.question import Detail, Question, known_pair
from carp.explain.reading_guide import ReadingGuide, Seeds, aspects_from_seeds
from carp.explain.similar_things import SimilarThing, TextLikeness
from carp.models import DEFAULT, model_class
from carp.models.base import RatingModel, from_settings
from carp.models.batch import TrainingData
from carp.models.divided_table import is_divided
from carp.models.layers import TunedBiases
from carp.persist.bundle import read_bundle, write_bundle
from carp.ranking.advisor import STRANGER, Advisor
from carp.ranking.best_first import check_number
from carp.ranking.wishes import Order, Wish, allowed_things
from carp.reviews.corpora.corpus import Corpus, build_corpus
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.documents import ReviewCut
from carp.reviews.readable import ReadableDocument
from carp.reviews.split import Split, split_corpus
from carp.reviews.split_parts import VALID
from carp.settings import sort_settings
from carp.storage import folder_size
from carp.training.card_memory import place_for_answers
from carp.training.checkpoint import ALL_REVIEWS, TrainingState
from carp.training.fitted_corpus import FittedCorpus, fit_corpus
from carp.training.fitted_model import FittedModel
from carp.training.loop import Watcher, choose_device, train
from carp.training.model_tables import take_over, weights_digest
from carp.training.table_division import WordTable
from carp.user_input import as_id, as_pairs, as_split, as_texts

MOST_COMPARED = 200_000  # known ids: among more, looking for the nearest takes too long
NOT_FITTED = "this recommender has not been fitted"
Id = Any  # a text, a number, or any other single value that can be a key


class Trained(NamedTuple):
    """What training gives: the documents, what was looked at of them, the model, where it ended, and facts to keep."""

    corpus: FittedCorpus
    data: TrainingData
    model: RatingModel
    reached: TrainingState
    facts: dict[str, Any]


class Recommender:
    """Predicts how a person will rate a thing from what people wrote, and says why.

    Ids may be texts, numbers or other single values; every method takes them alike.

    Args:
        model: A name that `carp models` lists.
        seed: Of everything random in training.
        split_seed: Of the split into training, validation and test.
        device: auto, cpu, cuda or cuda:N.
        **settings: Settings of the model, of training, of the text and of fitting, all by name;
            `carp models --settings NAME` lists them.

    >>> Recommender("carp", variant="paper", epochs=10)
    Recommender('carp', variant='paper', epochs=10), not fitted
    """

    def __init__(
        self, model: str = DEFAULT, *, seed: int = 0, split_seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        self._given: dict[str, Any] = {
            "model": model,
            "seed": seed,
            "split_seed": split_seed,
            "device": device,
            **settings,
        }
        self.name = model
        self.seed = seed
        self.split_seed = split_seed
        self.device = choose_device(device)
        self.kind = model_class(model)
        sorted_settings = sort_settings(model, settings)
        self.fit_settings, self.text = sorted_settings.fit, sorted_settings.text
        self.training, self.config = sorted_settings.training, sorted_settings.config
        self._fitted: FittedModel | None = None
        self._guide: ReadingGuide | None = None  # of the saved model
        self.training_log = b""
        self.bundle_sum = ""  # of the manifest of the folder that this was loaded from

    @classmethod
    def of(cls, fitted: FittedModel, *, training_log: bytes = b"", guide: ReadingGuide | None = None) -> Recommender:
        """A recommender of a model that is fitted already, with the settings it was fitted with.

        Args:
            fitted: The model with its corpus and facts.
            training_log: One line of JSON an epoch, as training wrote it.
            guide: How sentences are read, where that is known already.

        Returns:
            A recommender that predicts and explains without being fitted again.
        """
        facts = fitted.facts
        recommender = cls(
            fitted.name,
            seed=facts["seed"],
            split_seed=facts["split_seed"],
            device=str(fitted.device),
            **facts["fit"],
            **facts["text"],
            **facts["training"],
            **asdict(fitted.model.config),
        )
        recommender._take(fitted, guide)
        recommender.training_log = training_log
        return recommender

    # ---- settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings as they were given, as scikit-learn asks for them.

        Args:
            deep: Makes no difference: no setting has settings of its own.

        Returns:
            The arguments that make an equal recommender, which is not fitted.
        """
        return dict(self._given)

    def set_params(self, **params: Any) -> Recommender:
        """Change settings for the next `fit`; a model that is fitted already goes on answering as it is.

        Args:
            **params: What `Recommender` takes.

        Returns:
            The recommender itself.
        """
        made = type(self)(**{**self._given, **params})  # refused before anything changes here
        made._fitted, made.training_log, made._guide = self._fitted, self.training_log, self._guide
        self.__dict__.update(made.__dict__)
        return self

    def __repr__(self) -> str:
        given = [repr(self.name), *(f"{name}={value!r}" for name, value in self._unusual().items())]
        name = f"Recommender({', '.join(given)})"
        if self._fitted is None:
            return f"{name}, not fitted"
        sizes = self.fitted_corpus.sizes
        return f"{name}, fitted on {sizes.users:,} users, {sizes.items:,} items and {sizes.words:,} words"

    def _unusual(self) -> dict[str, Any]:
        """The given settings that differ from what the model has anyway."""
        usual: dict[str, Any] = {"model": self.name, "seed": 0, "split_seed": 0, "device": self._given["device"]}
        presets = {name: value for name, value in self._given.items() if name == "variant"}
        settings = sort_settings(self.name, presets)
        for group in (settings.fit, settings.text, settings.training, settings.config):
            usual |= asdict(group)
        shown = {name: value for name, value in self._given.items() if name not in usual or usual[name] != value}
        return {**presets, **shown}

    # ---- fitting

    def fit(
        self,
        reviews: Any,
        *,
        split: Any = None,
        all_reviews: bool = False,
        start_from: Recommender | None = None,
        checkpoints: Path | str | None = None,
        resume: bool = False,
        progress: bool = True,
        watcher: Watcher | None = None,
        word_table: WordTable = "auto",
    ) -> Recommender:
        """Train on reviews.

        Args:
            reviews: A Corpus, what `read_reviews` gives, a file, or a frame with user, item, rating and text.
            split: Which reviews train, choose and test: a CSV file or a frame with user, item and split, or three
                arrays of these; or `time` for the latest fifth of each person's reviews as test, `time:2013-01-31` for
                all since that day. Without it, the corpus' own split column, or the paper's rule with `split_seed`.
            all_reviews: Choose epochs and settings on the split, then fit again on the reviews of all its parts, for
                use. No test figure belongs to such a model.
            start_from: A fitted recommender of the same model, whose learned weights are taken for the people, things
                and words that these reviews have too.
            checkpoints: A folder to keep the state of training in after each epoch.
            resume: Go on from the checkpoint in that folder.
            progress: Show a bar on standard error.
            watcher: Called as training goes on, instead of the bar.
            word_table: Where several processes train: `divided`, so that each keeps some rows of the word table;
                `whole`; or `auto`, which divides what needs more than half of a card.

        Returns:
            The recommender itself, ready to answer. Where a word table was divided, only the first process's is.
        """
        corpus = self._corpus(reviews)
        parts = split_corpus(corpus, seed=self.split_seed, own=as_split(split))
        folder = None if checkpoints is None else Path(checkpoints)
        with contextlib.ExitStack() as stack:
            if watcher is None and progress:
                from carp.render.progress_bar import Bar

                watcher = stack.enter_context(contextlib.closing(Bar(self.training.epochs)))
            running: dict[str, Any] = {"checkpoints": folder, "resume": resume, "watcher": watcher}
            running |= {"start_from": start_from, "word_table": word_table}
            train_on = self._train_on_all if all_reviews else self._train_on_split
            fitted, data, model, reached, facts = train_on(corpus, parts, running)
        if is_divided(model):
            return self  # the first process has the whole model
        baseline = TunedBiases(fitted.sizes)
        baseline.fit(data.train, data.valid, fitted.levels)
        baseline.leave_out(data.train)
        device = place_for_answers(model, self.device)
        model, baseline = model.to(device).eval(), baseline.to(device)
        self._take(FittedModel(self.name, model, baseline, fitted, device, self._facts(reached) | facts))
        self.facts["degree_scale"] = self.explainer.degree_scale()
        self.facts["margin"] = self.fitted_model.measure_margin()
        if start_from is not None:
            self.facts["seen_before"] = fitted.held_out_of(start_from.fitted_corpus)
        self.training_log = "".join(json.dumps(record) + "\n" for record in reached.history).encode()
        return self

    def _fit_corpus(self, corpus: Corpus, parts: Split) -> FittedCorpus:
        return fit_corpus(corpus, parts, self.text, self.review_cut, reviews=self.kind.reads_single_reviews())

    def _train_on_split(self, corpus: Corpus, parts: Split, running: dict[str, Any]) -> Trained:
        fitted = self._fit_corpus(corpus, parts)
        data = fitted.training_data(self.fit_settings.target_reviews)
        model, reached = self.train_model(fitted, data, **running)
        return Trained(fitted, data, model, reached, {})

    def _train_on_all(self, corpus: Corpus, parts: Split, running: dict[str, Any]) -> Trained:
        """Fit on all parts, with what the split chose. A model that chooses nothing on validation is fitted once."""
        chosen: dict[str, Any] = {}
        facts: dict[str, Any] = {"split": parts.origin}
        epochs = None
        if self.kind.learns or self.kind.chosen_settings is not RatingModel.chosen_settings:
            first = self._train_on_split(corpus, parts, running)
            chosen, epochs = first.model.chosen_settings(), first.reached.best_epoch
            facts |= {"epochs": epochs, "settings": chosen, "valid_mse": finite(first.reached.best_error)}
        fitted = self._fit_corpus(corpus, parts.all_in_training())
        data = replace(
            fitted.training_data(self.fit_settings.target_reviews), valid=fitted.pairs_of(parts.records(VALID))
        )
        folder = running["checkpoints"]
        model, reached = self.train_model(
            fitted,
            data,
            **(running | {"checkpoints": None if folder is None else folder / ALL_REVIEWS}),
            chosen=chosen,
            exactly=epochs,
        )
        return Trained(fitted, data, model, reached, {"all_reviews": True, "chosen_on": facts})

    def train_model(
        self,
        corpus: FittedCorpus,
        data: TrainingData,
        *,
        checkpoints: Path | None = None,
        resume: bool = False,
        watcher: Watcher | None = None,
        chosen: Mapping[str, Any] | None = None,
        exactly: int | None = None,
        start_from: Recommender | None = None,
        word_table: WordTable = "auto",
    ) -> tuple[RatingModel, TrainingState]:
        """Train a new model with these settings on documents that are ready; the recommender stays as it is.

        Args:
            corpus: The documents and the split.
            data: What training may look at of them.
            checkpoints: A folder to keep the state of training in after each epoch.
            resume: Go on from the checkpoint in that folder.
            watcher: Called as training goes on.
            chosen: Settings of the model to take instead of choosing them on validation.
            exactly: Train so many epochs and keep the last, instead of choosing one on validation.
            start_from: A fitted recommender of the same model, whose learned weights are taken first.
            word_table: Whether several processes divide the word table, as for `fit`.

        Returns:
            The model, and where training ended.
        """
        self._refuse_other_start(start_from)
        torch.manual_seed(self.seed)
        model = self.kind(replace(self.config, **(chosen or {})), corpus.sizes)
        begin = None
        if start_from is not None:
            begin = partial(take_over, model, corpus, start_from.model, start_from.fitted_corpus)
        reached = train(
            model,
            data,
            self.training,
            seed=self.seed,
            device=self.device,
            folder=checkpoints,
            identity=self._identity(corpus, start_from),
            resume=resume,
            watcher=watcher,
            exactly=exactly,
            begin=begin,
            word_table=word_table,
        )
        return model, reached

    def _corpus(self, reviews: Any) -> Corpus:
        if isinstance(reviews, Corpus):
            return reviews
        from carp.reviews.sources.formats import read_reviews
        from carp.reviews.sources.ledger import Reviews

        if not isinstance(reviews, Reviews):
            reviews = read_reviews(reviews)
        return build_corpus(reviews, min_reviews=self.fit_settings.min_reviews)

    def _refuse_other_start(self, earlier: Recommender | None) -> None:
        if earlier is None:
            return
        if not self.kind.learns:
            what = f"the model {self.name} is solved for in closed form: there is nothing to start from"
            raise UsageError(what, fix="train it without an earlier model")
        if type(earlier.model) is not self.kind:
            what = f"the earlier model is {earlier.name}, and this one is {self.name}"
            raise UsageError(what, fix=f"train {earlier.name}")

    def _identity(self, fitted: FittedCorpus, start_from: Recommender | None = None) -> str:
        """What a checkpoint must agree with to be continued. How long to train may change."""
        training = {k: v for k, v in asdict(self.training).items() if k not in ("epochs", "patience")}
        part = hashlib.sha256(np.asarray(fitted.part).tobytes()).hexdigest()
        whole = [self.name, asdict(self.config), training, asdict(self.text), asdict(self.fit_settings), self.seed]
        whole += [fitted.facts["fingerprint"], part, self.device.type]
        whole += [] if fitted.item_texts is None else [fitted.item_texts.fingerprint]
        whole += [] if start_from is None else [weights_digest(start_from.model)]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()

    def _take(self, fitted: FittedModel, guide: ReadingGuide | None = None) -> None:
        self.bundle_sum = ""
        self._fitted, self._guide = fitted, guide
        for made in ("explainer", "advisor", "_likeness"):  # what was made of an earlier model
            self.__dict__.pop(made, None)

    def _facts(self, reached: TrainingState) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "split_seed": self.split_seed,
            "fit": asdict(self.fit_settings),
            "text": asdict(self.text),
            "training": asdict(self.training),
            "best_epoch": reached.best_epoch,
            "epochs": reached.epoch,
            "valid_mse": finite(reached.best_error),
            "device": self.device.type,
            "threads": torch.get_num_threads(),
        }

    @property
    def review_cut(self) -> ReviewCut | None:
        """How much of which reviews the model reads, where it reads them one by one."""
        return self.kind.review_cut(self.config)

    @property
    def form(self) -> str | None:
        """The variant of the model, where it has several."""
        return getattr(self.config, "variant", None)

    # ---- what is there after fitting

    @property
    def fitted_model(self) -> FittedModel:
        if self._fitted is None:
            raise UsageError(NOT_FITTED, fix="call fit(reviews), or use carp.load")
        return self._fitted

    @property
    def model(self) -> RatingModel:
        return self.fitted_model.model

    @property
    def fitted_corpus(self) -> FittedCorpus:
        return self.fitted_model.corpus

    @property
    def baseline(self) -> TunedBiases:
        return self.fitted_model.baseline

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the training: seeds, settings, epochs, validation error."""
        return {} if self._fitted is None else self._fitted.facts

    @cached_property
    def explainer(self) -> Explainer:
        """Explains the fitted model, as the model itself asks for it."""
        return explainer_for(self.fitted_model, self._guide)

    # ---- predicting

    def predict(self, pairs: Any, items: Any = None) -> Predictions:
        """Ratings of pairs, in the range of the data. Unknown ids are answered too, and noted.

        Args:
            pairs: Pairs of a user and an item, or a frame with the columns user and item; or the users alone, if
                `items` are given.
            items: The items, one for each user.

        Returns:
            The ratings in the order of the pairs, with a note for each pair that has an unknown id.
        """
        listed = as_pairs(pairs, items)
        users = self._numbers(self.fitted_corpus.users.index(), (user for user, _ in listed))
        things = self._numbers(self.fitted_corpus.items.index(), (item for _, item in listed))
        notes = [_unknown_note(u < 0, i < 0) for u, i in zip(users, things, strict=True)]
        stars = self.fitted_model.rate(users, things)
        return self._predictions(stars, self.fitted_model.margins(users, things), tuple(notes))

    def _predictions(
        self,
        stars: NDArray[np.float64],
        margins: NDArray[np.float64],
        notes: tuple[str | None, ...],
        explanations: tuple[Explanation, ...] = (),
    ) -> Predictions:
        """Stars and their intervals in the range of the data."""
        low, high = (np.clip(stars + side * margins, 1, self.fitted_corpus.levels) for side in (-1, 1))
        ratings, low, high = (self._own_ratings(of) for of in (stars, low, high))
        return Predictions(ratings, notes, explanations, low, high)

    @staticmethod
    def _numbers(index: Mapping[str, int], names: Iterable[str]) -> NDArray[np.int64]:
        return np.array([index.get(name, -1) for name in names], dtype=np.int64)

    def _own_ratings(self, stars: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.fitted_corpus.scale.from_stars(stars, self.fitted_corpus.levels)

    def predict_for(self, reviews: str | Sequence[str], items: Iterable[Id], *, explain: bool = False) -> Predictions:
        """Ratings somebody would give who is known only by reviews of other things.

        Args:
            reviews: What this person wrote: one text, or several.
            items: The items to rate.
            explain: Whether to explain each rating too.

        Returns:
            The ratings in the order of the items, with `explanations` if they were asked for.
        """
        document = self.newcomer(reviews)
        names = [as_id(item, "item") for item in items]
        numbers = self._numbers(self.fitted_corpus.items.index(), names)
        stars = self.fitted_model.rate_newcomer(document, numbers)
        notes = tuple(_unknown_note(False, i < 0) for i in numbers)
        reasons = tuple(self.explain_for(reviews, item) for item in names) if explain else ()
        margins = self.fitted_model.margins(np.full(len(numbers), -1), numbers)
        return self._predictions(stars, margins, notes, reasons)

    def newcomer(self, reviews: str | Sequence[str]) -> ReadableDocument:
        """The document of somebody known only by reviews.

        Args:
            reviews: What this person wrote: one text, or several.

        Returns:
            Their words that the model knows, each with the characters it stands on.
        """
        if not self.model.reads_documents:
            raise UsageError(f"the model {self.name} cannot rate for a newcomer", fix="use carp")
        document = self.fitted_corpus.newcomer(as_texts(reviews))
        if not len(document.words):
            raise InputError(
                "these reviews hold no word the model knows", fix="write a few sentences about things of this kind"
            )
        return document

    # ---- recommending

    def recommend(
        self,
        user: Id,
        n: int = 10,
        *,
        by: Order = "taste",
        diversity: float | None = None,
        among: Iterable[Id] | None = None,
        min_reviews: int = 0,
        category: str | None = None,
        include_known: bool = False,
    ) -> Recommendations:
        """Things for a person.

        Args:
            user: Somebody of the training data. Anybody else gets what is popular, and `note` says so.
            n: How many.
            by: `taste` takes together what goes with the person's things, the predicted rating and what is written;
                `rating` is the predicted rating alone.
            diversity: From 0 to 1, for the order by taste: the higher, the less do things that many people have come
                up, and the less alike are the lists of two people. 0.3 unless given.
            among: Choose from these things alone.
            min_reviews: Leave out things with fewer training reviews.
            category: Choose from the things of this category alone.
            include_known: Whether things may be among them that this person rated already.

        Returns:
            The recommendations, best first; fewer than n where there are no more.
        """
        wish = self._wish(n, by, diversity, among, min_reviews, category)
        name = as_id(user, "user")
        number = self.fitted_corpus.users.index().get(name, STRANGER)
        if number < 0:
            guess = self._guess(self.fitted_corpus.users, name)
            meant = f" ({guess})" if guess else ""
            note = f"the model has never seen the user {name!r}{meant}: these things are popular with everybody"
            return Recommendations(self.advisor.popular(wish), note)
        found = self.advisor.with_known(number, wish) if include_known else next(self.advisor.ranked([number], wish))[1]
        note = f"{name} has no training reviews: these things are popular with everybody"
        return Recommendations(found, None if by == "rating" or self.advisor.taste.knows(number) else note)

    def recommend_all(
        self,
        n: int = 10,
        users: Iterable[Id] | None = None,
        *,
        by: Order = "taste",
        diversity: float | None = None,
        among: Iterable[Id] | None = None,
        min_reviews: int = 0,
        category: str | None = None,
    ) -> Iterator[tuple[str, list[Recommendation]]]:
        """The recommendations of everybody, one person after the other and in bounded memory.

        Args:
            n: How many for each.
            users: For these people alone.
            by: As for `recommend`.
            diversity: As for `recommend`.
            among: Choose from these things alone.
            min_reviews: Leave out things with fewer training reviews.
            category: Choose from the things of this category alone.

        Returns:
            Pairs of a user and that user's recommendations.
        """
        wish = self._wish(n, by, diversity, among, min_reviews, category)
        names = self.fitted_corpus.users
        numbers = range(len(names)) if users is None else [self.number_of("user", user) for user in users]
        return ((names[number], found) for number, found in self.advisor.ranked(numbers, wish))

    def recommend_for(
        self,
        reviews: str | Sequence[str],
        n: int = 10,
        *,
        by: Order = "taste",
        diversity: float | None = None,
        among: Iterable[Id] | None = None,
        min_reviews: int = 0,
        category: str | None = None,
    ) -> Recommendations:
        """Things for somebody who is known only by reviews.

        Args:
            reviews: What this person wrote: one text, or several.
            n: How many.
            by: `taste` takes together what people have who write alike, the predicted rating and what is written;
                `rating` is the predicted rating alone.
            diversity: As for `recommend`.
            among: Choose from these things alone.
            min_reviews: Leave out things with fewer training reviews.
            category: Choose from the things of this category alone.

        Returns:
            The recommendations, best first.
        """
        wish = self._wish(n, by, diversity, among, min_reviews, category)
        return Recommendations(self.advisor.for_newcomer(self.newcomer(reviews), wish))

    @cached_property
    def advisor(self) -> Advisor:
        """Recommends by the fitted model, to people known by their numbers."""
        return Advisor(self.fitted_model, self._likeness)

    def _wish(
        self,
        n: int,
        by: Order,
        diversity: float | None,
        among: Iterable[Id] | None,
        min_reviews: int,
        category: str | None,
    ) -> Wish:
        named = None if among is None else np.array([self.number_of("item", item) for item in among], dtype=np.int64)
        return Wish(n, by, diversity, allowed_things(self.fitted_corpus, named, min_reviews, category))

    # ---- explaining

    def explain(self, user: Id, item: Id, **detail: int) -> Explanation:
        """Why a person would rate a thing so.

        Args:
            user: Somebody of the training data.
            item: Something of the training data.
            **detail: How much to show: prevailing_units, other_units, top_phrases, sentences.

        Returns:
            The explanation, which shows itself in a terminal and in a notebook.
        """
        return self._explain(self.question(user, item), detail)

    def explain_for(self, reviews: str | Sequence[str], item: Id, **detail: int) -> Explanation:
        """Why somebody would rate a thing so who is known only by reviews.

        Args:
            reviews: What this person wrote: one text, or several.
            item: Something of the training data.
            **detail: As for `explain`.

        Returns:
            The explanation.
        """
        self._refuse_silent()
        number = self.number_of("item", item)
        thing = self.fitted_corpus.readable(self.fitted_corpus.item_documents, number)
        return self._explain(Question(-1, number, self.newcomer(reviews), thing), detail)

    def question(self, user: Id, item: Id) -> Question:
        """A pair of the training data with the documents that answer for it.

        Args:
            user: Somebody of the training data.
            item: Something of the training data.

        Returns:
            What an explainer is asked.
        """
        self._refuse_silent()
        return known_pair(self.fitted_corpus, self.number_of("user", user), self.number_of("item", item))

    def _refuse_silent(self) -> None:
        if self.model.explained_by is None:
            raise self.explainer.silent()

    def _explain(self, question: Question, detail: Mapping[str, int]) -> Explanation:
        return self.explainer.explain([question], from_settings(Detail, detail))[0]

    def summary(self, user: Id, item: Id, n: int = 5) -> Summary:
        """The sentences about a thing that matter to one person.

        Args:
            user: Somebody of the training data.
            item: Something of the training data.
            n: How many sentences at most.

        Returns:
            The sentences, weightiest first.
        """
        return summary_for(self.explainer, self.question(user, item), n)

    def profile(self, *, user: Id = None, item: Id = None, sentences: int = 2) -> PersonProfile | ThingProfile:
        """What a person cares about, or what people like and dislike about a thing.

        Args:
            user: Somebody of the training data; give this or `item`.
            item: Something of the training data.
            sentences: How many to show for each viewpoint or aspect.

        Returns:
            The profile, which shows itself in a terminal and in a notebook.
        """
        if (user is None) == (item is None):
            raise UsageError("it is not clear whose profile is wanted", fix="give either user or item")
        if user is not None:
            return person_profile(self.explainer, self.number_of("user", user), sentences=sentences)
        return thing_profile(self.explainer, self.number_of("item", item), sentences=sentences)

    def aspects(self, pairs: int = 200) -> Aspects:
        """What people write about, under names that are the same for everybody.

        Args:
            pairs: How many held-out pairs are explained, to count how often each aspect decides; 0 to leave that out.

        Returns:
            The aspects, those that are written about most first, with typical sentences; they show themselves.
        """
        return aspects_of(self.explainer, pairs)

    def rename_aspects(self, names: Mapping[str, str]) -> None:
        """Give aspects names of your own; `save` keeps them.

        Args:
            names: The new name of each aspect that gets one, by the name it has.
        """
        guide = self.explainer.guide
        self._read_by(guide.with_aspects(guide.aspects.renamed(names)))

    def seed_aspects(self, seeds: Seeds) -> None:
        """Replace the aspects by your own; `save` keeps them.

        Args:
            seeds: The name of each aspect and a few words that speak of it.
        """
        self._read_by(self.explainer.guide.with_aspects(aspects_from_seeds(self.fitted_corpus, seeds)))

    def _read_by(self, guide: ReadingGuide) -> None:
        self._guide = guide
        self.__dict__.pop("explainer", None)

    def similar(self, item: Id, n: int = 10) -> list[SimilarThing]:
        """Things of which people write alike.

        Args:
            item: Something of the training data.
            n: How many.

        Returns:
            The most alike first, each with the words that make it so; none whose reviews share no word with it.
        """
        check_number(n)
        return self._likeness.similar(self.number_of("item", item), n)

    @cached_property
    def _likeness(self) -> TextLikeness:
        return TextLikeness(self.fitted_corpus)

    # ---- ids

    def number_of(self, kind: Literal["user", "item"], name: Id) -> int:
        """The number of a user or an item in the corpus.

        Args:
            kind: user or item.
            name: An id.

        Returns:
            Its number; an id that the training data does not have is refused, and the nearest one named.
        """
        known = self.fitted_corpus.users if kind == "user" else self.fitted_corpus.items
        index, text = known.index(), as_id(name, kind)
        number = index.get(text, -1)
        if number < 0:
            fix = self._guess(known, text) or f"give a {kind} of the training data"
            raise UnknownIdError(f"the model has never seen the {kind} {text!r}", fix=fix)
        return number

    def title(self, item: Id) -> str | None:
        """What an item is called.

        Args:
            item: An id, known or not.

        Returns:
            Its title; None if it has none, or if the training data does not have the item.
        """
        number = self.fitted_corpus.items.index().get(as_id(item, "item"), -1)
        return self.fitted_corpus.title(number) if number >= 0 else None

    @staticmethod
    def _guess(known: StringColumn, name: str) -> str | None:
        """The known id that was meant, if one is much like it."""
        close = nearest(name, known.index()) if len(known) < MOST_COMPARED else ""
        return close if close.startswith("did") else None

    # ---- judging

    def evaluate(self) -> dict[str, Any]:
        """Test errors beside those of the mean and of the tuned biases, on the same pairs.

        Returns:
            Errors on the paper's scale from 1 to 5, and how they compare.
        """
        return evaluate_model(self.fitted_model)

    # ---- keeping

    def save(self, folder: Path | str, *, overwrite: bool = False, verify: Callable[[Path], None] | None = None) -> int:
        """Write the bundle: a folder that predicts and explains without the training data.

        Args:
            folder: Where to; it must not exist yet.
            overwrite: Replace a bundle that is there.
            verify: Called with the folder of the written files before they take their place, where an error of its
                leaves everything as it was.

        Returns:
            Its size in bytes.
        """
        folder = Path(folder)
        write_bundle(
            folder,
            name=self.name,
            model=self.model,
            baseline=self.baseline,
            fitted=self.fitted_corpus,
            facts=self.facts,
            guide=self.explainer.guide if self.explainer.reads_by_guide else None,
            log=self.training_log,
            overwrite=overwrite,
            verify=verify,
        )
        return folder_size(folder)


def load(folder: Path | str, *, device: str = "auto", key_file: Path | str | None = None) -> Recommender:
    """A saved recommender, ready to predict and explain. Damage is refused, in texts of large ones on reading.

    Args:
        folder: What `Recommender.save` or `carp train` made.
        device: auto, cpu, cuda or cuda:N.
        key_file: A key that the folder must have been signed with; by default the one of $CARP_KEY_FILE, if it is set.

    Returns:
        The recommender.
    """
    key = None if key_file is None else Path(key_file)
    name, model, baseline, corpus, facts, log, guide, read = read_bundle(Path(folder), key)
    where = place_for_answers(model, choose_device(device))
    kept = {f.name for f in dataclasses.fields(FittedCorpus)} | {"model", "config", "data", "made_with"}
    facts = {key: value for key, value in facts.items() if key not in kept}
    fitted = FittedModel(name, model.to(where).eval(), baseline.to(where), corpus, where, facts)
    loaded = Recommender.of(fitted, training_log=log, guide=guide)
    loaded.bundle_sum = read
    return loaded


def finite(error: float) -> float | None:
    """An error, or None where none was measured."""
    return error if np.isfinite(error) else None


def _unknown_note(user: bool, item: bool) -> str | None:
    if user and item:
        return "unknown user and item: the mean rating"
    if user:
        return "unknown user: the mean and the item's bias"
    return "unknown item: the mean and the user's bias" if item else None
