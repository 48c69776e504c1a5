"""Poor reviews lead to an answer that is right or to a clear word, in every model that solves instead of learning."""

from __future__ import annotations

import json

import numpy as np
import polars
import pytest

import carp
from carp.cli import entry as cli
from carp.errors import InputError

MODELS = ("meeting", "gaussian-process", "ridge")
SHOP = carp.make_shop(people=16, things=8, reviews_per_person=6, seed=2)
COLUMNS = ("user", "item", "rating", "text")
RECORDS = [{name: record[name] for name in COLUMNS} for record in SHOP.records()]

pytestmark = pytest.mark.parametrize("model", MODELS)


def fitted(model, records, **settings):
    made = carp.Recommender(model, device="cpu", **{"min_reviews": 1, **settings})
    return made.fit(carp.read_reviews(polars.DataFrame(records)), progress=False)


def all_ratings(recommender):
    """What everybody, a stranger too, would give to everything, an unknown thing too."""
    users, items = ([*side, "unknown"] for side in (recommender.fitted_corpus.users, recommender.fitted_corpus.items))
    found = recommender.predict([(user, item) for user in users for item in items])
    ratings = np.asarray(found)
    assert np.isfinite(ratings).all()
    assert 1 <= ratings.min() <= ratings.max() <= 5
    low, high = found.intervals()
    assert all(one is None or one <= rating for one, rating in zip(low, ratings, strict=True))
    assert all(one is None or one >= rating for one, rating in zip(high, ratings, strict=True))
    return ratings


def explained(recommender, user):
    """An explanation of each thing to a person, whose rating is the predicted one."""
    items = list(recommender.fitted_corpus.items)
    found = [recommender.explain(user, item) for item in items]
    assert [one.rating for one in found] == pytest.approx(
        list(recommender.predict([(user, i) for i in items])), abs=1e-4
    )
    return found


def test_reviews_without_texts_are_refused_with_what_helps(model):
    empty = [{**record, "text": ""} for record in RECORDS]
    with pytest.raises(InputError, match=r"no review has a word in it.*column of texts"):
        fitted(model, empty)
    with pytest.raises(InputError, match=r"no column is recognised as text.*columns={\"text\": \"NAME\"}"):
        fitted(model, [{name: one[name] for name in ("user", "item", "rating")} for one in RECORDS])


def test_texts_of_one_word_are_read(model):
    words = {1: "awful", 2: "poor", 3: "fair", 4: "good", 5: "great"}
    recommender = fitted(model, [{**one, "text": words[round(one["rating"])]} for one in RECORDS])
    assert set(recommender.fitted_corpus.vocabulary.words) <= set(words.values())
    all_ratings(recommender)
    explained(recommender, recommender.fitted_corpus.users[0])
    rows = recommender.evaluate()["rows"]
    assert rows[model]["mse"] < rows["mean"]["mse"]


def test_texts_that_all_say_the_same_word_are_refused_with_what_helps(model):
    with pytest.raises(InputError, match=r"no word is left for the vocabulary.*max_document_share=1"):
        fitted(model, same := [{**one, "text": "good"} for one in RECORDS])
    all_ratings(fitted(model, same, max_document_share=1))


def test_where_all_ratings_are_equal_that_is_predicted(model):
    recommender = fitted(model, [{**one, "rating": 4.0} for one in RECORDS])
    np.testing.assert_allclose(all_ratings(recommender), 4.0, atol=1e-6)
    assert {one.rating for one in explained(recommender, recommender.fitted_corpus.users[0])} == {4.0}
    assert recommender.evaluate()["rows"][model]["mse"] == pytest.approx(0, abs=1e-9)


def test_a_person_with_one_review_is_rated_and_explained(model):
    lonely = [{"user": "lonely", "item": item, "rating": 5.0, "text": "It is light."} for item in ("thing-001",)]
    recommender = fitted(model, RECORDS + lonely)
    corpus = recommender.fitted_corpus
    assert (corpus.user == recommender.number_of("user", "lonely")).sum() == 1
    all_ratings(recommender)
    found = explained(recommender, "lonely")
    assert {one.user for one in found} == {"lonely"}
    assert recommender.recommend("lonely", 3)


@pytest.fixture
def prepared(model, tmp_path, capsys):
    """A corpus of an items file that names half of the things, two of them alike."""
    reviews, names = tmp_path / "reviews.csv", tmp_path / "names.jsonl"
    polars.DataFrame(RECORDS).write_csv(reviews)
    called = {"thing-001": "Zither", "thing-002": "Zither", "thing-003": "Old drum", "thing-004": "Drum stand"}
    names.write_text("".join(json.dumps({"item": item, "title": title}) + "\n" for item, title in called.items()))
    out = tmp_path / "corpus"
    assert cli.main(["prepare", str(reviews), "--items", str(names), "--out", str(out), "--min-reviews", "1"]) == 0
    return out, called, capsys.readouterr().out


def test_an_items_file_that_names_half_of_the_things_two_of_them_alike_is_taken(model, prepared):
    folder, called, said = prepared
    assert "4 of 8" in said
    recommender = carp.Recommender(model, device="cpu").fit(carp.Corpus.load(folder), progress=False)
    all_ratings(recommender)
    titles = {item: recommender.title(item) for item in recommender.fitted_corpus.items}
    assert {item: title for item, title in titles.items() if title is not None} == called
    listed = recommender.recommend("unknown", 8)
    assert len({one.item for one in listed}) == 8  # two things of one name stay two things
    assert {one.item: one.title for one in listed} == titles


def test_dates_that_are_missing_are_told_where_the_latest_are_held_out(model, tmp_path, capsys):
    undated, dated = tmp_path / "undated.csv", tmp_path / "dated.csv"
    polars.DataFrame(RECORDS).write_csv(undated)
    some = [{**one, "time": None if n % 5 == 0 else 10**9 + n} for n, one in enumerate(RECORDS)]
    polars.DataFrame(some).write_csv(dated)
    for file in (undated, dated):
        assert cli.main(["prepare", str(file), "--out", str(file.with_suffix("")), "--min-reviews", "1"]) == 0
    capsys.readouterr()
    train = ["--model", model, "--split", "time", "--out", str(tmp_path / "model")]
    assert cli.main(["train", str(undated.with_suffix("")), *train]) == 1
    refused = capsys.readouterr()
    assert "no review has a date, so none is the latest" in refused.err
    assert not (tmp_path / "model").exists()
    assert cli.main(["train", str(dated.with_suffix("")), *train]) == 0
    assert "without a date are for training" in capsys.readouterr().out
    all_ratings(carp.load(tmp_path / "model"))
