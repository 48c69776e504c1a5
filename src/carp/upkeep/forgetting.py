"""A person who wants to be forgotten: what a saved model holds of them goes, and the command looks whether it has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from carp.errors import InputError
from carp.recommender import Recommender, load
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.split_parts import TRAIN
from carp.storage import load_arrays, sole_writer
from carp.training.fitted_corpus import FittedCorpus
from carp.upkeep.answer_moves import AnswerMoves
from carp.upkeep.learned_records import learned_of, without
from carp.upkeep.left_traces import TraceSearch, search_traces
from carp.upkeep.revised_corpus import revise
from carp.upkeep.updating import measure_again, revised


@dataclass(frozen=True)
class ForgetReport:
    """What was taken out of a model, and what only training again can take out of its weights."""

    reviews: int
    trained: int  # of them, that the weights were learned with
    perhaps_trained: int  # came in with updates, but maybe in the place of others that the weights were learned with
    all_trained: int  # reviews of everybody that the weights were learned with
    things: int  # whose documents and biases changed
    words: int  # that nobody else had written
    search: TraceSearch
    in_weights: bool  # whether training again would change learned weights
    moved: AnswerMoves


def forget_person(folder: Path | str, user: str, *, device: str = "auto") -> ForgetReport:
    """Take a person out of a saved model, which is replaced as a whole or not at all.

    The new files are searched for the person's id and texts before they take the place of the old ones.

    Args:
        folder: A saved model.
        user: The person's id.
        device: auto, cpu, cuda or cuda:N.

    Returns:
        What was taken out and searched for, and what is left in learned weights.
    """
    folder = Path(folder)
    found: list[TraceSearch] = []
    with sole_writer(folder) as place:
        before = load(place, device=device)
        number = before.number_of("user", user)
        texts = _texts_of(before.fitted_corpus, number)

        def verify(written: Path) -> None:
            _check_records(written, user, before.fitted_corpus, number)
            found.append(search_traces(written, [user, *texts], f"the user {user!r}"))

        after, moves = _without(before, number)
        after.save(place, overwrite=True, verify=verify)
    corpus, rest = before.fitted_corpus, after.fitted_corpus
    theirs, learned = corpus.user == number, learned_of(before, number)
    return ForgetReport(
        reviews=len(texts),
        trained=learned.trained,
        perhaps_trained=learned.perhaps,
        all_trained=learned.all_trained,
        things=len(set(corpus.item[theirs].tolist())),
        words=len(corpus.vocabulary) - len(rest.vocabulary),
        search=found[-1],
        in_weights=before.model.learns,
        moved=moves,
    )


def forget(before: Recommender, user: str) -> Recommender:
    """A recommender without one person. The one that is given stays as it is.

    Args:
        before: Knows the person.
        user: The person's id.

    Returns:
        The recommender without their reviews and whatever was made of them, except for learned weights.
    """
    return _without(before, before.number_of("user", user))[0]


def _without(before: Recommender, number: int) -> tuple[Recommender, AnswerMoves]:
    corpus = before.fitted_corpus
    if not ((corpus.part == TRAIN) & (corpus.user != number)).any():
        raise InputError("nobody else has written a training review", fix="remove the model instead")
    after, moves = revised(before, revise(corpus, forget_user=number), refit=not before.model.learns)
    measure_again(after)
    if before.model.learns:
        after.facts.update(without(before, np.flatnonzero(corpus.user == number), replaced=False))
    after.facts["forgotten"] = int(after.facts.get("forgotten", 0)) + 1
    return after, moves


def _texts_of(corpus: FittedCorpus, number: int) -> list[str]:
    return [corpus.texts[int(record)] for record in (corpus.user == number).nonzero()[0]]


def _check_records(written: Path, user: str, before: FittedCorpus, number: int) -> None:
    """Refuse files whose lists still hold the person's id, or more texts than the others have written."""
    records = load_arrays(written / "records.safetensors")
    users = StringColumn(records["users_bytes"], records["users_offsets"])
    texts = StringColumn(records["texts_bytes"], records["texts_offsets"])
    left = [before.texts[int(record)] for record in (before.user != number).nonzero()[0]]
    if user in users.index() or list(texts) != left:
        raise InputError("the person's records are still there", where=str(written), fix="report this: it is a bug")
