"""A fitted model on a revised corpus: what was learned stays, what is solved for is solved again where touched."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch

from carp.models.batch import Pairs, TrainingData
from carp.models.layers import TunedBiases
from carp.models.predict import encode_documents
from carp.models.review_sets import ReviewPartners
from carp.persist.bounded_making import Undrawn
from carp.reviews.split_parts import TRAIN
from carp.settings import sort_settings
from carp.training.fitted_model import FittedModel
from carp.training.loop import train
from carp.training.model_tables import Kind, carried_over, empty_like, leave_out_again, rows_of_tables, solve_again
from carp.upkeep.revised_corpus import RevisedCorpus

BIAS_ROWS: dict[str, Kind] = {"user": "users", "item": "items", "user_weight": "users", "item_weight": "items"}
TENTH = 10  # of the training pairs, where none is held out to choose shrinkages on


def revised_model(before: FittedModel, revision: RevisedCorpus, *, refit: bool) -> FittedModel:
    """The model with new numbers for everybody: fitted again, or with what was learned before."""
    return _fitted_again(before, revision) if refit else _carried_model(before, revision)


def _carried_model(before: FittedModel, revision: RevisedCorpus) -> FittedModel:
    corpus, old = revision.corpus, before.model
    with Undrawn():
        model = type(old)(old.config, corpus.sizes).to(before.device)
    rows = rows_of_tables(type(old), old.config, old.sizes)
    state = carried_over(old.state_dict(), empty_like(model), rows, revision.old)
    if old.takes_in:
        state = {**old.state_dict(), **state}  # the other tables have a row a word, and the words stay
    model.load_state_dict(state, strict=False)
    baseline = TunedBiases(corpus.sizes).to(before.device)
    known = carried_over(before.baseline.state_dict(), empty_like(baseline), BIAS_ROWS, revision.old)
    baseline.load_state_dict(known, strict=False)
    train_pairs = corpus.pairs(TRAIN)
    for biases in [baseline, *(part for part in model.modules() if isinstance(part, TunedBiases))]:
        solve_again(biases, train_pairs, revision.users, revision.items)
    leave_out_again(baseline, before.baseline, train_pairs)
    earlier = dict(old.named_modules())
    for path, part in model.named_modules():
        if isinstance(part, TunedBiases):
            leave_out_again(part, cast(TunedBiases, earlier[path]), train_pairs, worked_out=baseline)
        if isinstance(part, ReviewPartners):
            part.fit(train_pairs)
    if old.takes_in:
        data = corpus.training_data(sort_settings(before.name, before.facts["fit"]).fit.target_reviews)
        model.take_in(data, *(torch.from_numpy(of).to(before.device) for of in (revision.users, revision.items)))
    after = FittedModel(before.name, model.eval(), baseline, corpus, before.device, dict(before.facts))
    _welcome_new(after, revision)
    return after


@torch.no_grad()
def _welcome_new(after: FittedModel, revision: RevisedCorpus) -> None:
    """Give people and things the model has never seen what it gives to those who are known by their reviews alone."""
    model, corpus = after.model, after.corpus
    for side, documents, encode, old, bias in (
        ("user", corpus.user_documents, model.encode_users, revision.old.users, after.baseline.user),
        ("item", corpus.item_documents, model.encode_items, revision.old.items, after.baseline.item),
    ):
        new = np.flatnonzero(old < 0)
        if len(new):
            places = torch.from_numpy(new).to(after.device)
            read = encode_documents(encode, documents.some(new), after.device) if model.separates else None
            model.welcome(side, places, bias[places], read)


def _fitted_again(before: FittedModel, revision: RevisedCorpus) -> FittedModel:
    corpus, old, facts = revision.corpus, before.model, before.facts
    settings = sort_settings(before.name, {**facts["fit"], **facts["text"], **facts["training"]})
    data = _with_validation(corpus.training_data(settings.fit.target_reviews))
    torch.manual_seed(facts["seed"])
    model = type(old)(replace(old.config, **old.chosen_settings()), corpus.sizes)
    train(model, data, settings.training, seed=facts["seed"], device=before.device)
    baseline = TunedBiases(corpus.sizes)
    baseline.fit(data.train, data.valid, corpus.levels)
    baseline.leave_out(data.train)
    return FittedModel(before.name, model.eval(), baseline.to(before.device), corpus, before.device, dict(facts))


def _with_validation(data: TrainingData) -> TrainingData:
    """Where no pair is held out, shrinkages are chosen on a tenth of the pairs, which is left out meanwhile."""
    if len(data.valid):
        return data
    chosen, train = np.arange(0, len(data.train), TENTH), data.train
    held = Pairs(train.users[chosen], train.items[chosen], train.ratings[chosen], train.records[chosen])
    return replace(data, valid=held)
