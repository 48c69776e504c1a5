"""A forgotten person leaves no byte in any file, and the command would notice one."""

from __future__ import annotations

import json

import numpy as np
import polars
import pytest

import carp
from carp.cli import entry
from carp.errors import InputError, UnknownIdError
from carp.persist import bundle as writing
from carp.storage import save_arrays
from carp.upkeep.forgetting import forget_person
from carp.upkeep.left_traces import search_traces
from carp.upkeep.updating import update_model

UNUSUAL = polars.DataFrame(
    {
        "user": ["zacharias-quine", "zacharias-quine"],
        "item": ["thing-001", "thing-004"],
        "rating": [4, 2],
        "text": ["Zyxtremely loud “quarble”.\nA second line.", "The quarble broke, xylophagous thing."],
    }
)


def test_no_byte_sequence_of_the_person_is_left_in_any_file(bundle, frame, contents):
    user = frame["user"][0]
    theirs = frame.filter(polars.col("user") == user)["text"].to_list()
    before = b"".join(contents(bundle).values())
    assert user.encode() in before
    report = forget_person(bundle, user, device="cpu")
    assert report.search.sequences == len({user, *theirs[: report.reviews]})
    for content in contents(bundle).values():
        for one in (user, *theirs):
            assert one.encode() not in content
    with pytest.raises(UnknownIdError):
        carp.load(bundle).explain(user, "thing-001")


def test_what_came_with_an_update_goes_with_its_words(bundle, contents):
    update_model(bundle, UNUSUAL, device="cpu")
    forget_person(bundle, "zacharias-quine", device="cpu")
    whole = b"".join(contents(bundle).values())
    assert b"quarble" not in whole
    assert b"zacharias" not in whole


def test_whoever_alone_wrote_of_a_thing_can_be_forgotten(bundle, contents):
    alone = UNUSUAL.with_columns(item=polars.Series(["thing-001", "thing-of-zacharias"]))
    update_model(bundle, alone, device="cpu")
    forget_person(bundle, "zacharias-quine", device="cpu")
    assert b"quarble" not in b"".join(contents(bundle).values())
    rest = carp.load(bundle)
    assert rest.predict([("person-003", "thing-of-zacharias")]).notes == (None,)
    assert len(rest.fitted_corpus.item_documents.part(14, 15).words) == 0


def test_reviews_that_came_with_an_update_are_not_said_to_be_in_the_weights(bundle, frame, capsys):
    known = frame["user"][0]
    their_own = UNUSUAL.with_columns(user=polars.lit(known), item=polars.Series(["new-thing-1", "new-thing-2"]))
    trained = carp.load(bundle).fitted_corpus
    of_known = int(((trained.user == trained.users.index()[known]) & (trained.part == 0)).sum())
    update_model(bundle, UNUSUAL, device="cpu")
    update_model(bundle, their_own.with_columns(text=polars.Series(["Rather loud.", "It broke."])), device="cpu")
    forget_person(bundle, frame["user"][100], device="cpu")  # records of the training go from before those of updates
    assert entry.main(["forget", str(bundle), "--user", "zacharias-quine", "--device", "cpu"]) == 0
    assert "weights were not learned with any of their reviews" in capsys.readouterr().err
    rest = carp.load(bundle).fitted_corpus
    report = forget_person(bundle, known, device="cpu")
    assert (report.trained, report.perhaps_trained) == (of_known, 0)
    assert report.all_trained == int((rest.part == 0).sum()) - len(their_own)


def test_a_review_that_replaced_another_may_stand_for_one_that_the_weights_were_learned_with(bundle, frame, capsys):
    known = frame["user"][0]
    corpus = carp.load(bundle).fitted_corpus
    record = np.flatnonzero((corpus.user == corpus.users.index()[known]) & (corpus.part == 0))[0]
    again = UNUSUAL[:1].with_columns(user=polars.lit(known), item=polars.lit(corpus.items[int(corpus.item[record])]))
    assert update_model(bundle, again, device="cpu").replaced == 1
    trained = int(((corpus.user == corpus.users.index()[known]) & (corpus.part == 0)).sum())
    assert entry.main(["forget", str(bundle), "--user", known, "--device", "cpu"]) == 0
    assert f"with at most {trained} of their reviews" in capsys.readouterr().err


def test_words_that_nobody_else_wrote_leave_the_vocabulary(frame, single_thread, tmp_path):
    mixed = polars.concat([frame.select(UNUSUAL.columns), UNUSUAL.with_columns(polars.col("rating").cast(float))])
    made = carp.Recommender("carp", min_reviews=1, device="cpu", epochs=1, dimension=8, filters=6, latent_size=4)
    own = ["train"] * len(mixed)
    own[:10] = ["valid"] * 5 + ["test"] * 5
    split = mixed.select("user", "item").with_columns(split=polars.Series(own))
    made.fit(carp.read_reviews(mixed), split=split, progress=False)
    made.save(tmp_path / "model")
    assert "quarble" in made.fitted_corpus.vocabulary.words
    report = forget_person(tmp_path / "model", "zacharias-quine", device="cpu")
    after = carp.load(tmp_path / "model", device="cpu")
    assert report.words > 0
    assert "quarble" not in after.fitted_corpus.vocabulary.words
    assert after.model.state_dict()["embedding.weight"].shape[0] == len(after.fitted_corpus.vocabulary) + 1
    pair = [("person-005", "thing-009")]
    assert np.isclose(list(after.predict(pair)), list(made.predict(pair)), atol=0.5).all()


@pytest.mark.parametrize("place", ["users", "facts", "log"])
def test_something_left_is_found_and_the_model_stays_as_it_was(bundle, frame, contents, monkeypatch, place):
    user = frame["user"][0]
    whole = contents(bundle)
    if place == "users":
        monkeypatch.setattr(
            writing, "save_arrays", lambda path, arrays: save_arrays(path, _with_id(path.name, arrays, user))
        )
    else:
        write = writing.write_bytes if place == "log" else writing.write_json
        more = (lambda value: value + user.encode()) if place == "log" else (lambda value: {**value, "by": user})
        name = "write_bytes" if place == "log" else "write_json"
        monkeypatch.setattr(writing, name, lambda path, value: write(path, more(value)))
    with pytest.raises(InputError, match="still"):
        forget_person(bundle, user, device="cpu")
    assert contents(bundle) == whole


def _with_id(file, arrays, user):
    """The arrays of a file, with the id once more among the weights."""
    if file != "model.safetensors":
        return arrays
    hidden = np.frombuffer(user.encode().ljust(16), np.float32)
    return {**arrays, "hidden": hidden}


def test_a_short_id_may_stand_in_numbers_and_words_of_others(tmp_path):
    save_arrays(tmp_path / "records.safetensors", {"texts_bytes": np.frombuffer(b"ann liked it", np.uint8)})
    (tmp_path / "model.json").write_text('{"seed": 7}')
    found = search_traces(tmp_path, ["7", "ann"], "somebody")
    assert (found.by_others, found.by_chance) == (1, 1)


@pytest.mark.parametrize("user", ["training", "fingerprint", "users_bytes", "data_offsets"])
def test_an_id_may_be_a_name_that_carp_gives_to_settings_and_tensors(bundle, contents, user):
    update_model(bundle, UNUSUAL.with_columns(user=polars.lit(user)), device="cpu")
    assert forget_person(bundle, user, device="cpu").search.by_chance > 0
    assert user not in carp.load(bundle).fitted_corpus.users.index()
    assert b"quarble" not in b"".join(contents(bundle).values())


def test_an_id_is_found_where_a_setting_has_it_as_its_value(tmp_path):
    (tmp_path / "model.json").write_text('{"training": {"source": "training"}}')
    with pytest.raises(InputError, match="at byte 25"):
        search_traces(tmp_path, ["training"], "somebody")


def test_the_command_says_what_is_left_in_the_weights(bundle, frame, capsys):
    user = frame["user"][0]
    assert entry.main(["forget", str(bundle), "--user", user, "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert "nothing of theirs is left" in said.out
    assert "Training again without them removes that too" in said.err
    assert entry.main(["forget", str(bundle), "--user", user, "--json"]) == 1
    assert "has never seen the user" in capsys.readouterr().err
    other = frame["user"][100]
    assert entry.main(["forget", str(bundle), "--user", other, "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["in_weights"] is True
