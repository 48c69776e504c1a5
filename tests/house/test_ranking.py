"""Recommendations for one person and for everybody are the same, and are the best of all that is not yet rated."""

from __future__ import annotations

import csv
import io
import json

import pytest

import carp
from carp.cli import entry as cli
from carp.errors import UnknownIdError, UsageError
from carp.models.base import Prediction
from carp.ranking import best_first

TINY = {"dimension": 8, "filters": 6, "latent_size": 4, "viewpoints": 2, "epochs": 1}
SHOP_SIZE = {"people": 40, "things": 20, "reviews_per_person": 6}  # more people than are ranked at once below
THINGS = SHOP_SIZE["things"]


@pytest.fixture(scope="module")
def shop():
    return carp.read_reviews(carp.make_shop(seed=0, **SHOP_SIZE).frame())


@pytest.fixture(scope="module")
def recommender(shop, single_thread):
    return carp.Recommender("carp", seed=0, device="cpu", **TINY).fit(shop, progress=False)


@pytest.fixture(scope="module")
def folder(recommender, saved):
    return saved(recommender)


def rated(recommender, user):
    fitted = recommender.fitted_corpus
    number = fitted.users.index()[user]
    return {fitted.items[int(item)] for item in fitted.item[fitted.user == number]}


@pytest.mark.parametrize("by", ["taste", "rating"])
def test_everybody_gets_what_each_would_get_alone(recommender, monkeypatch, by):
    alone = {user: recommender.recommend(user, 5, by=by) for user in recommender.fitted_corpus.users}
    assert dict(recommender.recommend_all(5, by=by)) == alone
    monkeypatch.setattr(best_first, "PEOPLE_AT_ONCE", 7)
    assert dict(recommender.recommend_all(5, by=by)) == alone
    monkeypatch.setattr(best_first, "KEPT_AT_ONCE", 1)
    assert dict(recommender.recommend_all(5, by=by)) == alone


def test_the_best_by_rating_are_those_of_all_predictions_sorted(recommender):
    for user, found in recommender.recommend_all(5, by="rating"):
        left = sorted(set(recommender.fitted_corpus.items) - rated(recommender, user))
        predicted = dict(zip(left, recommender.predict([(user, item) for item in left]), strict=True))
        assert [one.rating for one in found] == pytest.approx(sorted(predicted.values(), reverse=True)[:5], abs=1e-5)
        assert [one.rating for one in found] == pytest.approx([predicted[one.item] for one in found], abs=1e-5)


@pytest.mark.parametrize("n", [THINGS - 1, THINGS, 10**12])
def test_more_than_what_is_left_is_everything_that_is_left_once(recommender, n):
    for user, found in recommender.recommend_all(n):
        named = [one.item for one in found]
        assert len(named) == len(set(named))
        assert set(named) == set(recommender.fitted_corpus.items) - rated(recommender, user)


def test_named_users_come_in_the_order_asked_for(recommender):
    names = ["person-007", "person-002", "person-007"]
    found = list(recommender.recommend_all(3, names))
    assert [user for user, _ in found] == names
    assert found[0] == found[2] == ("person-007", recommender.recommend("person-007", 3))


def test_what_cannot_be_asked_is_refused_before_anything_is_ranked(recommender):
    with pytest.raises(UnknownIdError, match="never seen the user 'person-xyz'"):
        recommender.recommend_all(3, ["person-001", "person-xyz"])
    with pytest.raises(UsageError, match="0 recommendations"):
        recommender.recommend_all(0)
    with pytest.raises(UsageError, match="-1 recommendations"):
        recommender.recommend("person-001", -1)


def too_kind(self, users, items, *sides):
    return Prediction(7.0 + (items % 3).float())


def test_ratings_beyond_the_scale_are_shown_at_its_end_and_ranked_by_what_they_are(recommender, monkeypatch):
    monkeypatch.setattr(type(recommender.model), "score", too_kind)
    monkeypatch.setattr("carp.kernels.cpu.pair_scores.covers_scoring", lambda model: False)
    ((_, found),) = recommender.recommend_all(THINGS, ["person-001"], by="rating")
    assert {one.rating for one in found} == {5.0}
    numbers = [recommender.fitted_corpus.items.index()[one.item] for one in found]
    assert numbers == sorted(numbers, key=lambda number: (-(number % 3), number))


def test_a_model_whose_sides_do_not_separate_is_asked_person_by_person(shop, single_thread):
    recommender = carp.Recommender("bias", seed=0, device="cpu").fit(shop, progress=False)
    assert not recommender.model.separates
    everybody = dict(recommender.recommend_all(4, by="rating"))
    assert list(everybody) == list(recommender.fitted_corpus.users)
    for user in ("person-000", "person-030"):
        left = sorted(set(recommender.fitted_corpus.items) - rated(recommender, user))
        ratings = recommender.predict([(user, item) for item in left])
        best = sorted(zip(ratings, left, strict=True), key=lambda pair: (-pair[0], pair[1]))[:4]
        assert [one.item for one in everybody[user]] == [item for _, item in best]
        assert everybody[user] == recommender.recommend(user, 4, by="rating")
    suited = dict(recommender.recommend_all(4, ["person-000"]))
    assert suited["person-000"] == recommender.recommend("person-000", 4)


# ---- on the command line


def answer(capsys, *words):
    code = cli.main(["recommend", *map(str, words)])
    return code, *capsys.readouterr()


def test_everybodys_recommendations_are_a_csv_file(recommender, folder, tmp_path, capsys):
    code, printed, _ = answer(capsys, folder, "--all", "-n", 3)
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert list(rows[0]) == ["user", "rank", "item", "predicted", "average"]
    wanted = [
        (user, rank, one.item, f"{one.rating:.6f}", f"{one.item_mean:.6f}")
        for user, found in recommender.recommend_all(3)
        for rank, one in enumerate(found, 1)
    ]
    assert [(row["user"], int(row["rank"]), row["item"], row["predicted"], row["average"]) for row in rows] == wanted
    out = tmp_path / "new" / "best.csv"
    assert answer(capsys, folder, "--all", "-n", 3, "--out", out)[0] == 0
    assert out.read_text("utf-8") == printed
    assert [file.name for file in out.parent.iterdir()] == ["best.csv"]
    assert answer(capsys, folder, "--all", "--out", out)[0] == 2
    assert answer(capsys, folder, "--all", "-n", 1, "--out", out, "--overwrite")[0] == 0
    assert len(out.read_text("utf-8").splitlines()) == 1 + SHOP_SIZE["people"]


def test_everybodys_recommendations_are_a_json_document(folder, tmp_path, capsys):
    out = tmp_path / "best.csv"
    document = json.loads(answer(capsys, folder, "--all", "-n", 2, "--out", out, "--json")[1])
    assert document["out"] == str(out)
    rows = list(csv.DictReader(out.open()))
    listed = [(one["user"], found["item"]) for one in document["users"] for found in one["recommendations"]]
    assert listed == [(row["user"], row["item"]) for row in rows]
    alone = json.loads(answer(capsys, folder, "person-003", "-n", 2, "--json")[1])
    assert alone == next(one for one in document["users"] if one["user"] == "person-003")


def test_a_file_that_breaks_off_is_not_left_half_written(folder, tmp_path, capsys, monkeypatch):
    out = tmp_path / "best.csv"
    out.write_text("what was here before")
    ranked = best_first.best_things
    asked = []

    def breaks_off(*given):
        asked.append(given)
        if len(asked) == 25:
            raise MemoryError
        return ranked(*given)

    monkeypatch.setattr(best_first, "best_things", breaks_off)
    code, printed, said = answer(capsys, folder, "--all", "--out", out, "--overwrite")
    assert (code, printed) == (1, "")
    assert "memory" in said
    assert [file.name for file in tmp_path.iterdir()] == ["best.csv"]
    assert out.read_text() == "what was here before"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["person-001", "--all"], "either a user or --all"),
        ([], "either a user or --all"),
        (["--all", "--reviews", "mine.txt"], "newcomer"),
        (["person-001", "--out", "best.csv"], "--out only works with --all"),
        (["person-001", "--overwrite"], "--overwrite only works with --all"),
    ],
)
def test_one_user_and_everybody_exclude_each_other(folder, capsys, words, said):
    code, printed, complained = answer(capsys, folder, *words)
    assert (code, printed) == (2, "")
    assert said in complained
    assert len(complained.splitlines()) == 1
