"""New reviews come into a saved model: as if everything had been made again, and whole or not at all."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars
import pytest
import torch

import carp
from carp.cli import entry
from carp.errors import InputError, UsageError
from carp.models.predict import encode_documents
from carp.reviews.documents import ReviewCut, make_documents
from carp.reviews.split_parts import TRAIN
from carp.storage import sole_writer
from carp.upkeep import answer_moves, revised_sides
from carp.upkeep.revised_corpus import AddedReviews, revise
from carp.upkeep.updating import read_for, update, update_model

SIDES = ("user_documents", "item_documents")


def documents_from_scratch(corpus, cut=None):
    """The documents of both sides, made of all training texts."""
    rows = []
    for record in np.flatnonzero(corpus.part == TRAIN).tolist():
        rows += [(w, record, a, b) for w, a, b in zip(*corpus.vocabulary.encode(corpus.texts[record]), strict=True)]
    words, review, starts, ends = np.array(rows, dtype=np.int32).T
    seen = words, review, np.stack([starts, ends], 1)
    return [
        make_documents(*seen, owners, count, max_words=corpus.max_words, cut=cut)
        for owners, count in ((corpus.user, len(corpus.users)), (corpus.item, len(corpus.items)))
    ]


@pytest.mark.parametrize("cut", [None, ReviewCut(reviews=3, words=5)])
@pytest.mark.parametrize("replaced", [0, 25])
def test_documents_are_those_of_making_everything_again(trained, frame, replaced, cut):
    """Documents are full here: where an earlier review goes, words that had no room come back."""
    before = carp.load(trained).fitted_corpus
    before = replace(before, cut=cut, **dict(zip(SIDES, documents_from_scratch(before, cut), strict=True)))
    new = frame[180 - replaced :]
    gone = [before.record_of_pair.get((before.users.index()[u], before.items.index()[i])) for u, i in pairs_of(new)]
    gone = [record for record in gone if record >= 0]
    added = AddedReviews(*zip(*((u, i, 3.0, "It hums and it is loud.") for u, i in pairs_of(new)), strict=True))
    corpus = revise(before, gone=gone, added=added).corpus
    assert (len(gone), len(corpus.user)) == (replaced, len(frame))
    for side, again in zip(SIDES, documents_from_scratch(corpus, cut), strict=True):
        for name, column in again.arrays().items():
            assert np.array_equal(getattr(getattr(corpus, side), name), column), (side, name)


def pairs_of(frame):
    return list(zip(frame["user"], frame["item"], strict=True))


@pytest.mark.parametrize("asked_before", [True, False])
def test_answers_equal_those_of_encoding_everything_again_to_the_bit(either, frame, asked_before):
    """Where the model has answered before, what it read then is carried over."""
    before = carp.load(either, device="cpu")
    if asked_before:
        _ = before.fitted_model.sides
    after, report = update(before, read_for(before, frame[180:200]))
    after.save(either, overwrite=True)
    again = carp.load(either, device="cpu")
    assert 0 < report.touched_users < len(again.fitted_corpus.users)
    for one, other in zip(after.fitted_model.sides, again.fitted_model.sides, strict=True):
        assert torch.equal(one, other)
    pairs = [(user, item) for user in again.fitted_corpus.users for item in again.fitted_corpus.items]
    assert list(after.predict(pairs)) == list(again.predict(pairs))


def test_only_what_was_touched_moves(either):
    new = polars.DataFrame({"user": ["somebody"], "item": ["thing-003"], "rating": [1], "text": ["It broke at once."]})
    report = update_model(either, new, device="cpu")
    assert report.moved.touched.largest > 0
    assert report.moved.others.pairs > 100
    assert report.moved.others.largest == 0


def test_few_documents_are_read_to_say_how_far_answers_moved(either, frame, monkeypatch):
    """However many the model has; and what is said of these pairs is what reading all documents would say."""
    read = []

    def counted(encode, documents, device):
        read.append(len(documents))
        return encode_documents(encode, documents, device)

    monkeypatch.setattr(answer_moves, "CROWD", 3)
    reports = []
    for asked_before in (False, True):
        before = carp.load(either, device="cpu")
        if asked_before:
            _ = before.fitted_model.sides
        with monkeypatch.context() as counting:
            counting.setattr(revised_sides, "encode_documents", counted)
            reports.append(update(before, read_for(before, frame[180:200]))[1])
        if not asked_before:
            assert read
            assert sum(read) <= 2 * (3 + 3) + 2 * 3  # of the model before: touched and others; after: touched alone
    assert reports[0].moved == reports[1].moved
    assert reports[0].moved.touched.pairs
    assert reports[0].moved.others.pairs


def test_a_later_review_of_the_same_pair_replaces_the_earlier_one(bundle, frame):
    row = frame[5:6]
    again = row.with_columns(rating=polars.lit(2.0), text=polars.lit("Now it hums all day."))
    report = update_model(bundle, again, device="cpu")
    assert (report.reviews, report.replaced) == (1, 1)
    corpus = carp.load(bundle).fitted_corpus
    texts = list(corpus.texts)
    assert "Now it hums all day." in texts
    assert row["text"][0] not in texts
    assert len(texts) == 180


def test_an_update_that_is_run_twice_finds_nothing_to_do(bundle, frame, contents):
    update_model(bundle, frame[180:], device="cpu")
    whole = contents(bundle)
    report = update_model(bundle, frame[180:], device="cpu")
    assert (report.reviews, report.known_already) == (0, len(frame) - 180)
    assert contents(bundle) == whole


def test_people_who_came_with_an_update_are_explained(bundle):
    new = polars.DataFrame(
        {"user": ["ann"] * 2, "item": ["thing-001", "thing-002"], "rating": [5, 4], "text": ["Loud and light."] * 2}
    )
    update_model(bundle, new, device="cpu")
    explanation = carp.load(bundle).explain("ann", "thing-005")
    assert explanation.user == "ann"
    quoted = [sentence.text for unit in explanation.units for sentence in unit.viewpoint.sentences]
    assert any("oud and light" in text for text in quoted)


@pytest.mark.parametrize("rows", [1, 48])
def test_another_rating_scale_is_refused_and_the_model_stays(bundle, frame, contents, rows):
    whole = contents(bundle)
    new = (
        frame[180:]
        .with_row_index()
        .with_columns(
            rating=polars.when(polars.col("index") < rows)
            .then(20 * polars.col("rating"))
            .otherwise(polars.col("rating"))
        )
    )
    with pytest.raises(InputError, match="outside 1 to 5, the range of this model"):
        update_model(bundle, new.drop("index"), device="cpu")
    assert contents(bundle) == whole


def test_ratings_inside_the_range_that_look_like_another_scale_are_named(solved, frame):
    before = carp.load(solved, device="cpu")
    wide = {"user": frame["user"][180:], "item": frame["item"][180:], "text": frame["text"][180:]}
    low = polars.DataFrame({**wide, "rating": 1 + (frame["rating"][180:] - 1) / 40})
    assert "from 1 to 1.1" in update(before, read_for(before, low))[1].doubt
    assert update(before, read_for(before, low[:10]))[1].doubt is None
    assert update(before, read_for(before, frame[180:]))[1].doubt is None


@pytest.mark.parametrize("file", ["model.safetensors", "records.safetensors", "model.json", "log.jsonl"])
def test_an_update_stopped_midway_leaves_the_model_whole(bundle, frame, contents, monkeypatch, file):
    whole = contents(bundle)
    from carp.persist import bundle as writing

    def stopping(write):
        def stop(path, *rest, **more):
            if path.name == file:
                raise KeyboardInterrupt
            return write(path, *rest, **more)

        return stop

    for name in ("save_arrays", "write_json", "write_bytes"):
        monkeypatch.setattr(writing, name, stopping(getattr(writing, name)))
    with pytest.raises(KeyboardInterrupt):
        update_model(bundle, frame[180:], device="cpu")
    assert contents(bundle) == whole
    assert [path.name for path in bundle.parent.iterdir()] == ["model"]


def test_a_model_that_learns_by_training_is_not_refitted(bundle, frame, contents):
    whole = contents(bundle)
    with pytest.raises(UsageError, match="learns by training"):
        update_model(bundle, frame[180:], device="cpu", refit=True)
    assert contents(bundle) == whole


def test_two_updates_at_once_are_refused(bundle, frame):
    import threading

    told = []

    def second():
        with pytest.raises(UsageError, match="another process is writing here"):
            update_model(bundle, frame[180:], device="cpu")
        told.append(True)

    with sole_writer(bundle):
        other = threading.Thread(target=second)
        other.start()
        other.join()
    assert told == [True]


def test_the_command_says_what_came_in_and_how_far_answers_moved(bundle, frame, tmp_path, capsys):
    frame[180:].write_csv(tmp_path / "new.csv")
    assert entry.main(["update", str(bundle), str(tmp_path / "new.csv"), "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert f"{len(frame) - 180} reviews" in said.out
    assert "moved by" in said.out
    assert "SIGHUP" in said.err
    assert entry.main(["update", str(bundle), str(tmp_path / "new.csv"), "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["known_already"] == len(frame) - 180


def test_the_command_names_a_file_that_is_not_there(bundle, tmp_path, capsys):
    assert entry.main(["update", str(bundle), str(tmp_path / "none.csv")]) != 0
    assert "none.csv" in capsys.readouterr().err
