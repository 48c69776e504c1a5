"""Training on one corpus and using it on another: what is known of the target, and what is measured on it."""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest

import carp
import transfer
from carp.reviews.corpora.corpus import build_corpus

SMALL = {"epochs": 1, "dimension": 4, "filters": 3, "latent_size": 2, "viewpoints": 2, "max_words": 20}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    places = []
    for seed, name in enumerate(("source", "target")):
        places.append(tmp_path_factory.mktemp("corpora") / name)
        shop = carp.make_shop(people=20, things=10, reviews_per_person=7, seed=seed)
        build_corpus(carp.read_reviews(shop.frame()), min_reviews=1).save(places[-1])
    return transfer.case_of("words", places, 0)


def test_every_way_is_measured_on_the_same_test_pairs_and_no_way_sees_them(case, monkeypatch):
    made = transfer.Recommender
    monkeypatch.setattr(
        transfer, "Recommender", lambda name, **given: made(name, **given, **(SMALL if name == "carp" else {}))
    )
    lines = list(transfer.measured(case, "carp", [0.5]))
    assert [line["way"] for line in lines] == [
        "biases of the target",
        "target alone",
        "source, then shown the target",
        "source, then trained on the target",
    ]
    assert {line["test_pairs"] for line in lines} == {case.target.filter(pl.col("split") == "test").height}
    half = transfer.with_share(case, 0.5)
    source = made("carp", device="cpu", **SMALL).fit(transfer.corpus_of(case.source), progress=False)
    held = {(row["user"], row["item"]) for row in half.target.filter(pl.col("split") == "test").to_dicts()}
    seen = transfer.shown(half, source).fitted_corpus
    assert not held & {(seen.users[u], seen.items[i]) for u, i in zip(seen.user, seen.item, strict=True)}


def test_a_share_keeps_all_test_reviews_and_fewer_others(case):
    half = transfer.with_share(case, 0.5)
    tests = [frame.filter(pl.col("split") == "test") for frame in (case.target, half.target)]
    assert tests[0].equals(tests[1])
    assert tests[0].height < half.target.height < case.target.height
    assert transfer.with_share(case, 1.0).target.equals(case.target)


def test_things_are_divided_by_the_first_word_of_their_name(tmp_path):
    file = tmp_path / "beers.jsonl.gz"
    names = {"1": "Founders Harvest", "2": "Founders Porter", "3": "Westmalle Tripel", "4": "Alesmith Stout"}
    lines = [
        {"user": user, "item": item, "name": name, "rating": 4 * stars, "text": "good"}
        for user in "ab"
        for stars, (item, name) in enumerate(names.items(), 1)
    ]
    with gzip.open(file, "wt") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
    halves = transfer.by_first_word(file)
    assert sorted(item for half in halves for item in half["item"]) == sorted("1234" * 2)
    assert not set(halves[0]["item"]) & set(halves[1]["item"])
    assert sum({"1", "2"} <= set(half["item"]) for half in halves) == 1
    assert {rating for half in halves for rating in half["rating"]} == {1.0, 2.0, 3.0, 4.0}
