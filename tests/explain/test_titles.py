"""Whoever asks about a thing is told its title beside its id; without titles everything reads as before."""

from __future__ import annotations

import csv
import io
import json

import polars
import pytest

import carp
from carp.cli import entry as cli

SETTINGS = {"dimension": 8, "filters": 6, "latent_size": 4, "viewpoints": 2, "epochs": 1, "min_reviews": 1}
MARKED = "Amp <b>&amp; \x1b[31mco</b>"  # an entity becomes its character, everything else stays as it is written


def fitted(titles):
    shop = carp.make_shop(people=16, things=8, reviews_per_person=6, seed=2)
    records = [{**record, "name": titles(record["item"])} for record in shop.records()]
    reviews = carp.read_reviews(polars.DataFrame(records))
    return carp.Recommender("carp", device="cpu", **SETTINGS).fit(reviews, progress=False)


@pytest.fixture(scope="module")
def titled(single_thread):
    """Every thing but one has a title; two of them the same."""
    names = {"thing-001": "Twin", "thing-002": "Twin", "thing-003": MARKED, "thing-000": None}
    return fitted(lambda item: names.get(item, f"Title of {item}"))


@pytest.fixture(scope="module")
def model(titled, saved):
    return saved(titled)


@pytest.fixture
def run(capsys):
    def call(*arguments):
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return captured.out

    return call


def test_titles_are_known_by_id(titled):
    assert titled.title("thing-004") == "Title of thing-004"
    assert titled.title("thing-003") == "Amp <b>& \x1b[31mco</b>"
    assert titled.title("thing-000") is None
    assert titled.title("nothing") is None


def test_answers_carry_titles(titled):
    user = titled.fitted_corpus.users[0]
    offers = titled.recommend(user, 8, include_known=True)
    assert {(one.item, one.title) for one in offers} == {(i, titled.title(i)) for i in titled.fitted_corpus.items}
    assert titled.explain(user, "thing-001").title == "Twin"
    assert titled.profile(item="thing-002").title == titled.summary(user, "thing-002").title == "Twin"
    assert all(one.title == titled.title(one.item) for one in titled.similar("thing-001"))
    sentences = [one for side in titled.explain(user, "thing-001").viewpoints for one in side.sentences]
    assert sentences
    assert all(one.title == titled.title(one.item) for one in sentences)


def test_texts_show_the_title_with_the_id_behind_it(titled):
    user = titled.fitted_corpus.users[0]
    assert "Twin (thing-001)" in str(titled.explain(user, "thing-001"))
    assert "Twin (thing-002)" in str(titled.profile(item="thing-002"))
    assert "What people say of Twin (thing-002) that matters" in str(titled.summary(user, "thing-002"))
    untitled = str(titled.profile(item="thing-000"))
    assert "thing-000" in untitled
    assert "None" not in untitled


def test_a_title_with_markup_is_shown_and_not_obeyed(titled):
    user = titled.fitted_corpus.users[0]
    for page in (titled.explain(user, "thing-003")._repr_html_(), titled.profile(item="thing-003")._repr_html_()):
        assert "&lt;b&gt;&amp; " in page
        assert "<b>&" not in page
    for text in (str(titled.explain(user, "thing-003")), str(titled.summary(user, "thing-003"))):
        assert "\x1b" not in text
        assert "Amp <b>& " in text


def test_recommend_prints_titles_with_ids(titled, model, run):
    user = titled.fitted_corpus.users[0]
    printed = run("recommend", model, user)
    listed = json.loads(run("recommend", model, user, "--json"))["recommendations"]
    assert listed
    for one in listed:
        assert one["title"] == titled.title(one["item"])
        if one["title"] and one["item"] != "thing-003":
            assert f"{one['title']} ({one['item']})" in printed


def rows(printed):
    return list(csv.DictReader(io.StringIO(printed)))


def test_tables_get_a_column_of_titles_only_if_asked(titled, model, run, tmp_path):
    user = titled.fitted_corpus.users[0]
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(f"user,item,title\n{user},thing-001,mine\n{user},thing-000,mine\n{user},unknown,mine\n")
    plain, asked = rows(run("predict", model, pairs)), rows(run("predict", model, pairs, "--titles"))
    assert [row["title"] for row in plain] == ["mine"] * 3, "the column that was given"
    assert [row["title"] for row in asked] == ["Twin", "", ""]
    assert [row["given_title"] for row in asked] == ["mine"] * 3
    everybody = rows(run("recommend", model, "--all", "-n", "2", "--titles"))
    assert {row["title"] for row in everybody} == {titled.title(row["item"]) or "" for row in everybody}
    assert "title" not in rows(run("recommend", model, "--all", "-n", "2"))[0]
    predicted = json.loads(run("predict", model, "--user", user, "--item", "thing-001", "--json"))["predictions"]
    assert [one["title"] for one in predicted] == ["Twin"]


def test_prepare_says_where_titles_come_from(run, tmp_path):
    shop = carp.make_shop(people=16, things=8, reviews_per_person=6, seed=2).records()
    (tmp_path / "reviews.jsonl").write_text("".join(json.dumps({**one, "name": one["item"]}) + "\n" for one in shop))
    (tmp_path / "items.csv").write_text(
        "id,title,image\nthing-001,Drum,a.png\nthing-002,Drum,\nother,Horn,\n,Nobody,\n"
    )
    out = tmp_path / "corpus"
    told = run("prepare", tmp_path / "reviews.jsonl", "--items", tmp_path / "items.csv", "--out", out)
    for part in (
        "titles        from the column name of the reviews",
        "items: 4 read, 3 accepted, 1 rejected",
        "1 × item is empty (first: ",
        "columns      item is id, title, picture is image",
        "described    2 of 8 items; 8 titles, 0 categories, 0 descriptions, 0 pictures",
        "not used     1 without reviews, 0 repeated",
        "left out     1 × the picture is no address that begins with http:// or https://",
        "same title   2 items share theirs with another",
        f"rejected records are listed in {out / 'rejects-items.jsonl'}",
    ):
        assert part in told
    again = json.loads(run("prepare", tmp_path / "reviews.jsonl", "--no-titles", "--out", out, "--overwrite", "--json"))
    assert "titles" not in again
    assert "items" not in again
