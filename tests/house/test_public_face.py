"""What users of the Python API expect: settings, ids of any kind, frames and columns, answers that compare."""

from __future__ import annotations

import numpy as np
import pandas
import polars
import pytest
from sklearn.base import clone

import carp
from carp.errors import UnknownIdError, UsageError
from carp.user_input import as_id, as_pairs, as_split

SETTINGS = {"dimension": 8, "filters": 6, "latent_size": 4, "viewpoints": 2, "epochs": 1, "min_reviews": 1}


@pytest.fixture(scope="module")
def reviews():
    """The shop's reviews with numbers for ids, as many shops have them."""
    shop = carp.make_shop(people=24, things=10, reviews_per_person=8, seed=4)
    frame = pandas.DataFrame(list(shop.records()))
    for role in ("user", "item"):
        frame[role] = frame[role].str.rsplit("-", n=1).str[-1].astype(int)
    return frame


@pytest.fixture(scope="module")
def fitted(reviews, single_thread):
    return carp.Recommender("carp", device="cpu", **SETTINGS).fit(reviews, progress=False)


# ---- settings


def test_scikit_learns_clone_gives_an_equal_recommender_that_is_not_fitted(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert copy.config == fitted.config
    with pytest.raises(UsageError, match="not been fitted"):
        copy.predict([(1, 1)])


def test_settings_can_be_changed_for_the_next_fit(fitted):
    copy = clone(fitted).set_params(epochs=2, seed=3)
    assert (copy.training.epochs, copy.seed, copy.config) == (2, 3, fitted.config)
    with pytest.raises(UsageError, match="did you mean epochs"):
        copy.set_params(epoch=2)
    assert "epoch" not in copy.get_params(), "a refused change changes nothing"
    assert copy.training.epochs == 2


def test_changing_settings_leaves_the_fitted_model_in_place(reviews, single_thread):
    made = carp.Recommender("bias", min_reviews=1).fit(reviews, progress=False)
    before = made.predict([(3, 4)])
    made.set_params(seed=9)
    assert made.predict([(3, 4)]) == before


def test_it_shows_its_settings(fitted, tmp_path):
    assert repr(carp.Recommender("mf", seed=2)) == "Recommender('mf', seed=2), not fitted"
    shown = repr(fitted)
    assert "viewpoints=2" in shown
    assert "24 users, 10 items" in shown
    fitted.save(tmp_path / "model")
    loaded = repr(carp.load(tmp_path / "model", device="cpu"))
    assert "viewpoints=2" in loaded
    assert "vocabulary_size" not in loaded, "what was not changed is not shown"


def test_the_usual_form_is_the_most_accurate_one_and_the_papers_is_a_setting_away():
    assert carp.Recommender("carp").config.variant == "calibrated"
    paper = carp.Recommender("carp", variant="paper").config
    assert (paper.variant, paper.hinge, paper.biases, paper.dropout) == ("paper", "linear", "learned", 0.1)


# ---- ids


@pytest.mark.parametrize("kind", [int, str, float, np.int64, np.float32, np.str_])
def test_every_method_takes_ids_of_any_kind_alike(fitted, kind):
    user, item = kind(3), kind(4)
    if kind is np.str_:
        user, item = np.str_("3"), np.str_("4")
    assert fitted.predict([(user, item)]) == fitted.predict([("3", "4")])
    assert fitted.recommend(user, 2) == fitted.recommend("3", 2)
    assert fitted.explain(user, item) == fitted.explain("3", "4")
    assert fitted.profile(user=user) == fitted.profile(user="3")
    assert fitted.profile(item=item) == fitted.profile(item="4")
    assert fitted.similar(item, 2) == fitted.similar("4", 2)
    assert fitted.summary(user, item, 2) == fitted.summary("3", "4", 2)
    assert [found for _, found in fitted.recommend_all(2, users=[user])] == [fitted.recommend("3", 2)]
    assert fitted.predict_for("It is light.", [item]) == fitted.predict_for("It is light.", ["4"])


@pytest.mark.parametrize("value", [None, [3], (3, 4), {"id": 3}, float("nan"), True, np.array([1, 2])], ids=repr)
def test_what_is_no_id_is_refused(fitted, value):
    for ask in (fitted.recommend, lambda one: fitted.explain(one, 4), lambda one: fitted.predict([(one, 4)])):
        with pytest.raises(UsageError):
            ask(value)


def test_an_unknown_number_is_refused_by_name(fitted):
    with pytest.raises(UnknownIdError, match="'999'"):
        fitted.profile(user=999)


def test_ids_read_from_frames_are_those_that_are_asked_for():
    assert [as_id(value) for value in (7, 7.0, "7", np.int32(7), np.float64(7))] == ["7"] * 5


# ---- frames and columns


PAIRS = [(3, 4), (5, 6), (3, 999)]
USERS, ITEMS = [3, 5, 3], [4, 6, 999]


@pytest.mark.parametrize(
    "given",
    [
        (PAIRS,),
        (np.array(PAIRS),),
        (USERS, ITEMS),
        (np.array(USERS), np.array(ITEMS)),
        (pandas.DataFrame(PAIRS, columns=["user", "item"]),),
        (pandas.DataFrame({"item_id": ITEMS, "Customer": USERS}),),
        (polars.DataFrame({"user": USERS, "item": ITEMS}),),
        ({"user": USERS, "item": ITEMS},),
        (pandas.Series(USERS), pandas.Series(ITEMS, index=[7, 8, 9])),
    ],
    ids=["pairs", "array", "lists", "arrays", "frame", "other names", "polars", "mapping", "series"],
)
def test_ratings_are_asked_for_by_pairs_by_columns_or_by_a_frame(fitted, given):
    assert fitted.predict(*given) == fitted.predict([(str(user), str(item)) for user, item in PAIRS])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (([1, 2], [3]), "2 users and 1 items"),
        ((pandas.DataFrame({"user": [1]}),), "recognised as item"),
        ((["ann"],), "pair 0"),
        (([(1, 2, 3)],), "pair 0"),
        (([5],), "pair 0"),
    ],
)
def test_what_is_no_table_of_pairs_is_refused(given, said):
    with pytest.raises(UsageError, match=said):
        as_pairs(*given)


def parts_of(frame):
    places = np.arange(len(frame))
    parts = np.where(places % 8 == 7, "test", np.where(places % 8 == 6, "valid", "train"))
    return frame.assign(split=parts)[["user", "item", "split"]]


def test_a_split_is_taken_from_a_frame_or_from_arrays_as_from_a_file(reviews, tmp_path):
    split = parts_of(reviews)
    split.to_csv(tmp_path / "split.csv", index=False)
    columns = tuple(split[name].to_numpy() for name in ("user", "item", "split"))
    found = []
    for given in (tmp_path / "split.csv", str(tmp_path / "split.csv"), split, polars.from_pandas(split), columns):
        made = carp.Recommender("bias", min_reviews=1).fit(reviews, split=given, progress=False)
        found.append(made.fitted_corpus.part.tolist())
    assert all(part == found[0] for part in found)
    assert set(found[0]) == {0, 1, 2}


def test_a_split_that_names_no_part_or_too_few_reviews_is_refused(reviews):
    split = parts_of(reviews)
    unfitted = carp.Recommender("bias", min_reviews=1)
    with pytest.raises(carp.CarpError, match="'later' is no part of a split"):
        unfitted.fit(reviews, split=split.assign(split="later"), progress=False)
    with pytest.raises(carp.CarpError, match="have no place in the split"):
        unfitted.fit(reviews, split=split.iloc[5:], progress=False)
    with pytest.raises(UsageError, match="three columns"):
        as_split(([1, 2], [3, 4]))


# ---- answers


def test_answers_compare_without_raising(fitted):
    some, same, other = (fitted.predict(pairs) for pairs in (PAIRS, PAIRS, PAIRS[:1]))
    assert some == same
    assert some != other
    assert some != [1.0]
    assert fitted.recommend(3) == fitted.recommend(3)
    assert fitted.explain(3, 4) != fitted.explain(5, 4)


def test_a_profile_is_of_a_person_or_of_a_thing(fitted):
    assert fitted.profile(user=3).user == "3"
    assert fitted.profile(item=4).item == "4"
    for wrong in ({}, {"user": 3, "item": 4}):
        with pytest.raises(UsageError, match="whose profile"):
            fitted.profile(**wrong)


def test_a_summary_shows_sentences_of_the_things_reviews(fitted):
    found, corpus = fitted.summary(3, 4, n=3), fitted.fitted_corpus
    assert 0 < len(found.sentences) <= 3
    number = fitted.number_of("item", 4)
    texts = [text for text, item in zip(corpus.texts, corpus.item, strict=True) if item == number]
    assert all(any(sentence.text in text for text in texts) for sentence in found.sentences)
    assert all(sentence.text in str(found) for sentence in found.sentences)


def test_similar_things_share_the_words_that_are_named():
    said = ["warm tube amplifier", "warm tube preamp", "steel strings", "nylon strings"]
    rows = [(user, item, 4, f"{text} number {user}") for user in range(6) for item, text in enumerate(said)]
    frame = pandas.DataFrame(rows, columns=["user", "item", "rating", "text"])
    made = carp.Recommender("bias", min_reviews=1, max_document_share=1.0).fit(frame, progress=False)
    first, *rest = made.similar(0)
    assert first.item == "1"
    assert set(first.words) >= {"tube", "warm"}
    assert 0 < first.likeness <= 1
    assert all(first.likeness >= other.likeness for other in rest)
    assert "0" not in [thing.item for thing in (first, *rest)]
