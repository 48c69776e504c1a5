"""What an update reads: in all the ways of preparing, cleaned alike, and with an account of what was left out."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import polars
import pytest

import carp
from carp.cli import entry, prepare_command, reading_options, upkeep_commands
from carp.storage import MANIFEST
from carp.upkeep.updating import update_model

LONG = "It is light, it lasts, and the strap never slips."


@pytest.fixture(scope="module")
def known(frame, single_thread, tmp_path_factory):
    """A model that is fitted at once, with dated reviews."""
    folder = tmp_path_factory.mktemp("known") / "model"
    reviews = carp.read_reviews(frame[:60])
    carp.Recommender("bias", min_reviews=1, device="cpu").fit(reviews, progress=False).save(folder)
    return folder


@pytest.fixture
def model(known, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(known, tmp_path / "model")


def written(*rows, name="new.csv", head="user,item,rating,text,date", encoding="utf-8"):
    Path(name).write_text("\n".join([head, *rows, ""]), encoding)
    return name


def updated(*words):
    return entry.main(["update", "model", *map(str, words), "--device", "cpu"])


def texts_of(user):
    corpus = carp.load("model").fitted_corpus
    return [corpus.texts[record] for record in (corpus.user == corpus.users.index()[user]).nonzero()[0]]


def test_rejected_lines_are_counted_named_and_listed(model, capsys):
    bad = [f"bob,thing-00{number},many,It hums.,2020-01-01" for number in range(7)]
    new = written("ann,thing-001,4,It hums.,2020-01-01", *bad)
    assert updated(new, "--rejects", "bad.jsonl") == 0
    said = capsys.readouterr()
    assert "7 records that cannot be used" in said.out
    assert "new.csv line 3: rating is not a number, 'many'" in said.err
    assert said.err.count("rating is not a number") == 5
    head, *listed = map(json.loads, Path("bad.jsonl").read_text().splitlines())
    assert (head["rejected"], len(listed)) == (7, 7)
    assert listed[6]["line"] == 9
    assert updated(new, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rejected"], found["reasons"]) == (7, {"rating is not a number": 7})
    first = {"file": "new.csv", "line": 3, "reason": "rating is not a number", "value": "'many'"}
    assert found["first_rejected"][0] == first
    assert updated(new) == 0
    assert "… and 2 more; --rejects FILE lists all of them." in capsys.readouterr().err


def test_rejects_never_replace_a_file(model, capsys):
    new = written("ann,thing-001,4,It hums.,2020-01-01")
    assert updated(new, "--rejects", new) == 2
    assert "this already exists. Fix: choose another --rejects" in capsys.readouterr().err


def test_where_every_line_is_rejected_nothing_changes_and_it_is_an_error(model, capsys):
    before = (model / MANIFEST).read_bytes()
    assert updated(written("ann,thing-001,many,It hums.,2020-01-01")) == 1
    assert "none of the 1 records can be used (line 2: rating is not a number, 'many')" in capsys.readouterr().err
    assert (model / MANIFEST).read_bytes() == before


def test_an_empty_review_neither_comes_in_nor_replaces_a_real_one(model, capsys):
    person = carp.load(model).fitted_corpus.users[0]
    thing = carp.load(model).fitted_corpus.items[int(carp.load(model).fitted_corpus.item[0])]
    before = texts_of(person)
    rows = [
        f"{who},{thing},{said},2020-01-01" for who, said in ((person, "1,..."), ("bob", "1,"), ("ann", "4,It hums."))
    ]
    new = written(*rows)
    assert updated(new, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["reviews"], found["replaced"], found["dropped"]["wordless"]) == (1, 0, 2)
    assert texts_of(person) == before
    assert "bob" not in carp.load("model").fitted_corpus.users.index()


def test_what_comes_in_is_what_preparing_keeps(model, tmp_path, capsys):
    """Repeated reviews, copies by one person, and days, on the same file."""
    new = written(
        "ann,thing-001,4,The later words.,2020-05-02",
        "ann,thing-001,2,The earlier words.,2020-05-01",
        f"bob,thing-001,4,{LONG.replace(',', ';')},2020-05-01",
        f"bob,thing-002,4,{LONG.replace(',', ';')},2020-05-02",
        "bob,thing-003,4,It hums.,2020-05-02",
        "eve,thing-002,4,Too old.,2001-01-01",
        "eve,thing-001,4,...,2020-05-02",
    )
    days = ["--since", "2020-01-01", "--until", "2020-12-31"]
    assert entry.main(["prepare", new, "--out", "corpus", "--min-reviews", "1", "--json", *days]) == 0
    prepared = json.loads(capsys.readouterr().out)["dropped"]
    assert updated(new, "--json", *days) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["dropped"] == {name: prepared[name] for name in found["dropped"]}
    assert found["dropped"] == {"wordless": 1, "duplicates": 1, "copies": 1, "days": 1}
    corpus = carp.Corpus.load("corpus")
    assert found["reviews"] == len(corpus)
    assert texts_of("ann") == ["The later words."]
    assert updated(new, *days) == 0
    out = capsys.readouterr().out
    assert "1 without a word, 1 repeated, 1 copied by one person, 1 of other days or without a date" in out


def test_a_copy_of_what_somebody_wrote_before_is_left_out(model):
    first = polars.DataFrame({"user": ["ann"], "item": ["thing-001"], "rating": [4], "text": [LONG]})
    assert update_model(model, first, device="cpu").reviews == 1
    again = first.with_columns(item=polars.lit("thing-002"))
    report = update_model(model, again, device="cpu")
    assert (report.reviews, report.dropped["copies"]) == (0, 1)
    other = first.with_columns(rating=polars.lit(2))
    assert update_model(model, other, device="cpu").replaced == 1, "the same thing may be rated anew"


def test_an_update_reads_queries_encodings_and_standard_ways_like_preparing(model, capsys):
    with sqlite3.connect("shop.db") as shop:
        shop.execute("create table r (user, item, rating, text)")
        shop.execute("insert into r values ('ann', 'thing-001', 4, 'It hums.')")
    query = ["--sql", "select * from r", "--database", "shop.db"]
    assert updated(*query) == 0
    assert texts_of("ann") == ["It hums."]
    assert updated("--sql", "select * from r where 1 = 0", "--database", "shop.db") == 1
    told = capsys.readouterr().err
    assert "the query gives no rows. Fix: check its conditions" in told
    assert updated("new.csv", *query) == 2
    new = written("bob,thing-001,4,Très léger.,2020-05-02", encoding="cp1252")
    assert updated(new, "--encoding", "cp1252") == 0
    assert texts_of("bob") == ["Très léger."]
    assert updated() == 2
    assert "carp update: there is nothing to read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ratings", "said"),
    [
        (["8/10", "80 %"], "new.csv: all ratings are out of another number than 5, the highest rating of this model"),
        (["4", "8/10", "7/10"], "new.csv line 3: 2 ratings are out of another number than 5"),
        (["4", "9"], "new.csv line 3: 1 rating is outside 1 to 5, the range of this model"),
        (["8", "9"], "new.csv: all ratings are outside 1 to 5"),
    ],
)
def test_ratings_on_another_scale_are_refused_with_a_fix_that_an_update_has(model, capsys, ratings, said):
    before = (model / MANIFEST).read_bytes()
    rows = [f"ann,thing-{number:03},{rating},It hums.,2020-01-01" for number, rating in enumerate(ratings)]
    assert updated(written(*rows)) == 1
    told = capsys.readouterr().err
    assert said in told
    assert "Fix: map the ratings to the model's range, or train a new model" in told
    assert "--rating-range" not in told
    assert (model / MANIFEST).read_bytes() == before


def test_both_commands_have_one_definition_of_each_option_for_reading():
    shared = ("files", "format", "column", "encoding", "sql", "database", "since", "until", "no_titles")
    for name in shared:
        kinds = [command.__annotations__[name] for command in (prepare_command.prepare, upkeep_commands.update)]
        assert kinds[0] == kinds[1]
        assert hasattr(reading_options, str(kinds[0]))
