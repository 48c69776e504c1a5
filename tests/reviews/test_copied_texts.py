"""Copied texts are counted, dropped or grouped as asked, and no split puts copies on both sides."""

from __future__ import annotations

import json

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

import carp
from carp.bench.datasets import load_corpus, save_slim
from carp.errors import CarpWarning, DamagedError, UsageError
from carp.reviews.corpora.cleaning import AS_IN_PAPER
from carp.reviews.corpora.copied_texts import (
    CutWords,
    divided_groups,
    find_copies,
    near_copy_keys,
    repeats_of_one_person,
    text_marks,
    whole_groups,
)
from carp.reviews.corpora.corpus import Corpus, build_corpus
from carp.reviews.corpora.preparation import prepare_corpus
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.request import SourceRequest
from carp.reviews.split import split_corpus
from carp.reviews.split_by_time import TimeRule
from carp.reviews.text.tokens import tokenise_many
from carp.storage import seal

PASTED = "I bought this for my brother and he has used it every single day since then, so five stars from both of us."


def shop(copied=0.4, people=30, things=12):
    """A shop where some people put the same text under everything."""
    chance = np.random.default_rng(4)
    words = [f"word{number}" for number in range(400)]
    rows = []
    for person in range(people):
        pastes = person < copied * people
        for thing in chance.choice(things, 8, replace=False).tolist():
            own = " ".join(chance.choice(words, 14)) + "."
            text = f"{PASTED} {person}" if pastes else own
            rows.append({"user": f"p{person}", "item": f"t{thing}", "rating": 1 + thing % 5, "text": text})
            rows[-1]["time"] = 1_000_000 + 86_400 * len(rows)
    return polars.DataFrame(rows)


@pytest.fixture(scope="module")
def reviews():
    return read_reviews(shop())


def test_exact_copies_by_one_person_are_dropped_unless_asked_otherwise(reviews):
    dropped, grouped, kept = (build_corpus(reviews, min_reviews=1, copies=rule) for rule in ("drop", "group", "keep"))
    assert dropped.facts["dropped"]["copies"] == 12 * 7
    assert len(grouped) == len(kept) == len(dropped) + 12 * 7
    assert kept.copy_group is None
    assert kept.facts["copies"] | {"rule": "group"} == grouped.facts["copies"]
    assert grouped.facts["copies"]["exact"] == 12 * 7


def test_of_copies_the_earliest_by_date_stays():
    user, mark = np.zeros(4, np.int64), np.full(4, 99, np.uint64)
    assert repeats_of_one_person(user, mark, np.array([-1, 30, 10, 20])).tolist() == [True, True, False, True]
    assert repeats_of_one_person(user, mark, np.full(4, -1)).tolist() == [False, True, True, True]


def test_short_texts_and_texts_of_other_people_are_no_copies_of_ones_own():
    marks = text_marks(["Great product!", "Great product!", PASTED, f" {PASTED}\n", PASTED, "?!"])
    assert marks[0] == marks[1] == 1
    assert marks[2] == marks[3] == marks[4] > 1
    assert marks[5] == 0
    user = np.array([0, 0, 0, 0, 1, 1])
    expected = [False, False, False, True, False, False]
    assert repeats_of_one_person(user, marks, np.full(6, -1)).tolist() == expected


@pytest.mark.parametrize("rule", ["drop", "group"])
@pytest.mark.parametrize("own", [None, TimeRule()], ids=["random", "by time"])
def test_no_split_puts_copies_on_both_sides(reviews, rule, own):
    corpus = build_corpus(reviews, min_reviews=1, copies=rule)
    assert corpus.copy_group is not None, "the texts of those who paste differ in a number only"
    for seed in range(5):
        part = split_corpus(corpus, seed=seed, own=own).part
        sides = {}
        for record, text in enumerate(corpus.texts):
            sides.setdefault(text.rstrip(" 0123456789"), set()).add(int(part[record]))
        assert max(len(found) for found in sides.values()) == 1
        assert set(part.tolist()) == {0, 1, 2}


def test_a_split_of_ones_own_is_used_as_it_is_with_a_warning(reviews):
    corpus = build_corpus(reviews, min_reviews=1, copies="group")
    rows = [(corpus.users[u], corpus.items[i], ["train", "valid", "test"][r % 3]) for r, (u, i) in
            enumerate(zip(corpus.user, corpus.item, strict=True))]  # fmt: skip
    with pytest.warns(CarpWarning, match="1 texts have copies in more than one part"):
        split = split_corpus(corpus, own=rows)
    assert np.bincount(split.part).tolist() == [80, 80, 80]


def test_copies_make_the_text_predict_its_own_rating_only_where_they_are_kept():
    """The same person rates what they paste under alike; with copies dropped no test text was seen in training."""
    kept = build_corpus(read_reviews(shop()), min_reviews=1, copies="keep")
    split = split_corpus(kept, seed=0)
    trained = {kept.texts[int(record)] for record in split.train}
    assert sum(kept.texts[int(record)] in trained for record in split.test) > 10
    dropped = build_corpus(read_reviews(shop()), min_reviews=1)
    split = split_corpus(dropped, seed=0)
    trained = {dropped.texts[int(record)] for record in split.train}
    assert not any(dropped.texts[int(record)] in trained for record in split.test)


def near_copies(texts):
    tokens = tokenise_many(texts)
    marks, user = text_marks(texts), np.arange(len(texts))
    return find_copies(user, marks, near_copy_keys(tokens), CutWords(tokens.offsets, tokens.tokens))


def test_texts_that_differ_in_a_few_words_are_found_and_others_are_not():
    chance = np.random.default_rng(0)
    words = [f"w{number}" for number in range(2_000)]
    texts = [" ".join(chance.choice(words, 60)) for _ in range(500)]
    changed = []
    for text in texts[:200]:
        cut = text.split()
        cut[int(chance.integers(60))] = "other"
        changed.append(" ".join(cut))
    found = near_copies([*texts, *changed])
    assert found.exact == 0
    assert 190 <= found.near <= 200
    assert (found.group[200:500] == -1).all()
    paired = found.group[:200] >= 0
    assert (found.group[:200][paired] == found.group[500:][paired]).all()


def test_texts_without_copies_have_no_groups():
    assert near_copies(["one two three", "four five six"]) == (None, 0, 0)
    assert near_copies([]) == (None, 0, 0)


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 2)), min_size=1, max_size=20))
def test_a_divided_group_goes_to_training_as_a_whole(rows):
    group, part = np.array(rows, np.int32).T
    found = whole_groups(part.astype(np.int8), group)
    assert not len(divided_groups(found, group))
    for record, (number, before) in enumerate(rows):
        sides = {other for name, other in rows if name == number}
        assert found[record] == (0 if number >= 0 and len(sides) > 1 else before)


def test_groups_are_saved_and_loaded_and_travel_in_slim_copies(tmp_path, reviews):
    corpus = build_corpus(reviews, min_reviews=1, copies="group")
    corpus.save(tmp_path / "corpus")
    loaded = Corpus.load(tmp_path / "corpus")
    assert loaded.copy_group.tolist() == corpus.copy_group.tolist()
    save_slim(corpus, tmp_path / "slim.npz")
    assert load_corpus(tmp_path / "slim.npz").copy_group.tolist() == corpus.copy_group.tolist()
    assert json.loads((tmp_path / "corpus" / "corpus.json").read_text())["made_with"]["layout"] == 3


def test_groups_that_cannot_be_are_refused(tmp_path, reviews):
    corpus = build_corpus(reviews, min_reviews=1, copies="group")
    corpus.save(tmp_path / "corpus")
    np.save(tmp_path / "corpus" / "copy_group.npy", np.full(len(corpus), 10**6, np.int32))
    seal(tmp_path / "corpus", "corpus")
    with pytest.raises(DamagedError, match="copy_group"):
        Corpus.load(tmp_path / "corpus")


@pytest.mark.parametrize("workers", [1, 2])
def test_preparing_finds_the_same_copies_as_building_in_memory(tmp_path, workers):
    shop().write_ndjson(tmp_path / "reviews.jsonl")
    in_memory = build_corpus(read_reviews(tmp_path / "reviews.jsonl"), min_reviews=1, copies="group")
    out = tmp_path / "corpus"
    found = prepare_corpus(
        [tmp_path / "reviews.jsonl"], out, SourceRequest(), min_reviews=1, copies="group", workers=workers
    )
    assert found.fingerprint == in_memory.fingerprint
    assert found.facts == in_memory.facts


def test_an_unknown_rule_is_refused(reviews):
    with pytest.raises(UsageError, match=r"'dorp'.*drop"):
        build_corpus(reviews, copies="dorp")


@pytest.mark.parametrize(
    ("file", "asked", "dropped", "fingerprint"),
    [
        ("reviews_Musical_Instruments_5.json.gz", {}, 0, "94e9c9b8"),
        ("ratebeer.jsonl.gz", {"rating_range": (4, 20), "clip_ratings": True}, 415, "039b0bf9"),
    ],
)
def test_of_real_reviews_the_papers_way_of_cleaning_keeps_all_copies(real_data, file, asked, dropped, fingerprint):
    reviews = read_reviews(real_data / file, markup=True, **asked)
    assert build_corpus(reviews).facts["dropped"]["copies"] == dropped
    paper = build_corpus(reviews, **AS_IN_PAPER)
    assert paper.facts["dropped"]["copies"] == 0
    assert paper.fingerprint.startswith(fingerprint), "the reviews are those that the published figures are about"


def test_the_core_holds_after_reviews_without_a_word_are_gone():
    rows = [(f"p{person}", f"t{thing}", 5, f"word{person} word{thing}") for person in range(3) for thing in range(3)]
    rows[0] = (*rows[0][:3], "!!!")
    frame = polars.DataFrame(rows, schema=["user", "item", "rating", "text"], orient="row")
    reviews = carp.read_reviews(frame)
    corpus = build_corpus(reviews, min_reviews=2)
    assert len(corpus) == 8
    before = build_corpus(reviews, min_reviews=3, core_first=True)
    assert np.bincount(before.user).min() == 2
    with pytest.raises(carp.CarpError, match="no review is left"):
        build_corpus(reviews, min_reviews=3)


def test_where_nearly_all_texts_are_copies_the_split_says_that_it_divides_them():
    rows = [{"user": f"p{n}", "item": f"t{n % 3}", "rating": 1 + n % 5, "text": PASTED} for n in range(30)]
    rows += [{"user": f"p{n}", "item": f"t{(n + 1) % 3}", "rating": 3, "text": f"{PASTED} {n}"} for n in range(30)]
    corpus = build_corpus(read_reviews(polars.DataFrame(rows)), min_reviews=1)
    assert "copies are on both sides" in split_corpus(corpus).origin
