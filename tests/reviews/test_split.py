"""Splits: the user's own file and column, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import carp
from carp.errors import InputError
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.split import Split, checked, random_split, split_corpus, split_from_file
from carp.reviews.split_parts import TEST, TRAIN, VALID

PAIRS = [(u, i) for u in range(4) for i in range(5)]


def small_corpus(split=None):
    user, item = np.array(PAIRS, dtype=np.int32).T
    users = StringColumn.from_strings(["ann", "bob, the elder", "Žofie", "dan"])
    items = StringColumn.from_strings([f"i{n}" for n in range(5)])
    return SimpleNamespace(user=user, item=item, users=users, items=items, split=split, copy_group=None)


def write_split(path, parts, corpus, header="user,item,split"):
    lines = [header]
    for (user, item), part in zip(PAIRS, parts, strict=True):
        lines.append(f'"{corpus.users[user]}",{corpus.items[item]},{part}')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


NAMES = (["train"] * 3 + ["valid", "test"]) * 4


def test_a_file_names_the_part_of_each_record(tmp_path):
    corpus = small_corpus()
    split = split_from_file(corpus, write_split(tmp_path / "split.csv", NAMES, corpus))
    assert split.part.tolist() == [0, 0, 0, 1, 2] * 4
    assert split.origin == str(tmp_path / "split.csv")
    assert split.train.tolist() == [n for n, name in enumerate(NAMES) if name == "train"]
    assert split.valid.tolist() == [3, 8, 13, 18]
    assert split.test.tolist() == [4, 9, 14, 19]


def test_other_words_order_and_a_byte_order_mark_are_understood(tmp_path):
    corpus = small_corpus()
    words = [{"valid": "Validation", "test": " TEST ", "train": "train"}[name] for name in NAMES]
    file = write_split(tmp_path / "split.csv", words, corpus)
    head, *rest = file.read_text("utf-8").splitlines()
    file.write_text("\ufeff" + "\n".join([head, *reversed(rest)]), encoding="utf-8")
    assert split_from_file(corpus, file).part.tolist() == [0, 0, 0, 1, 2] * 4


def test_pairs_the_corpus_does_not_have_may_stand_in_the_file(tmp_path):
    corpus = small_corpus()
    file = write_split(tmp_path / "split.csv", NAMES, corpus)
    file.write_text(file.read_text("utf-8") + "stranger,i0,test\nann,i99,test\n", encoding="utf-8")
    assert len(split_from_file(corpus, file).test) == 4


def test_a_record_without_a_part_is_named(tmp_path):
    corpus = small_corpus()
    file = write_split(tmp_path / "split.csv", NAMES, corpus)
    lines = file.read_text("utf-8").splitlines()
    file.write_text("\n".join(lines[:6] + lines[7:]), encoding="utf-8")
    with pytest.raises(InputError, match="1 of 20 records have no place in the split, the first is bob, the elder, i0"):
        split_from_file(corpus, file)


def test_an_unknown_part_is_named_with_its_line(tmp_path):
    corpus = small_corpus()
    file = write_split(tmp_path / "split.csv", [*NAMES[:7], "trian", *NAMES[8:]], corpus)
    with pytest.raises(InputError, match="'trian' is no part of a split") as caught:
        split_from_file(corpus, file)
    assert "line 9" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "columns item, split, user are missing"),
        (b"user,item\nann,i0\n", "columns split are missing"),
        (b"user;item;split\nann;i0;train\n", "are missing"),
        (b"user,item,split\n\xff\xfe,i0,train\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_split_is_refused(tmp_path, content, words):
    (tmp_path / "split.csv").write_bytes(content)
    with pytest.raises(InputError, match=words):
        split_from_file(small_corpus(), tmp_path / "split.csv")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        split_from_file(small_corpus(), tmp_path / "absent.csv")


def test_the_users_file_goes_before_the_corpus_column_and_that_before_the_rule(tmp_path):
    own = np.array(([0] * 3 + [1, 2]) * 4, dtype=np.int8)
    corpus = small_corpus(own)
    reverse = write_split(tmp_path / "split.csv", ["test", "valid", "train", "train", "train"] * 4, corpus)
    assert split_corpus(corpus, own=reverse).part.tolist() == [2, 1, 0, 0, 0] * 4
    assert split_corpus(corpus).part.tolist() == own.tolist()
    assert "own split" in split_corpus(corpus).origin
    assert split_corpus(small_corpus(), seed=3).origin == "80:20, seed 3"


@pytest.mark.parametrize(("gone", "name"), [(TRAIN, "training"), (VALID, "validation"), (TEST, "test")])
def test_an_empty_part_is_refused(gone, name):
    parts = np.array([part for part in (TRAIN, VALID, TEST) if part != gone] * 5, dtype=np.int8)
    with pytest.raises(InputError, match=f"the {name} part of the split is empty"):
        checked(Split(parts, "a test"))


def test_too_few_reviews_to_split_are_refused():
    user = np.arange(4, dtype=np.int32)
    with pytest.raises(InputError, match="is empty"):
        random_split(user, user, seed=0)


@given(st.integers(0, 10_000), st.integers(5, 30), st.integers(5, 30), st.floats(0.3, 1.0))
def test_the_rule_covers_everybody_and_keeps_its_sizes(seed, users, items, share):
    rng = np.random.default_rng(seed)
    user, item = (column.astype(np.int32) for column in np.nonzero(rng.random((users, items)) < share))
    assume(len(user) >= 2 * (users + items))  # thinner data cannot reach the shares
    split = random_split(user, item, seed=seed)
    assert set(user[split.train]) == set(user)
    assert set(item[split.train]) == set(item)
    assert len(split.test) == round(0.2 * len(user))
    assert len(split.valid) == round(0.1 * (len(user) - len(split.test)))
    assert sorted(np.concatenate([split.train, split.valid, split.test]).tolist()) == list(range(len(user)))


@given(st.integers(0, 100), st.integers(10, 300), st.integers(1, 20))
def test_where_most_people_wrote_once_the_split_still_has_all_parts_and_says_so(seed, people, things):
    rng = np.random.default_rng(seed)
    user, item = np.arange(people, dtype=np.int32), rng.integers(0, things, people).astype(np.int32)
    split = random_split(user, item, seed=seed)
    assert len(split.test) == max(1, round(0.2 * people))
    assert len(split.valid) >= 1
    assert len(split.train) >= 1
    assert f"{len(split.test):,} are by people" in split.origin
    if people >= 10 * things:
        assert set(item) == set(item[split.train]), "things are given up last"


def test_where_enough_people_wrote_twice_nobody_is_given_up():
    user, item = np.repeat(np.arange(40, dtype=np.int32), 2), np.tile(np.arange(8, dtype=np.int32), 10)
    split = random_split(user, item, seed=0)
    assert split.origin == "80:20, seed 0"
    assert set(user[split.train]) == set(user)


def test_a_small_shop_where_most_people_wrote_once_gets_answers():
    words = ["light", "loud", "cheap", "broken", "heavy", "lovely", "slow", "handy"]
    rng = np.random.default_rng(5)
    rows = [
        {
            "user": f"p{n if n % 9 else 0}",
            "item": f"t{n % 7}",
            "rating": 1 + n % 5,
            "text": " ".join(rng.choice(words, 3)),
        }
        for n in range(60)
    ]
    rec = carp.Recommender("carp", min_reviews=1, epochs=1, dimension=8, latent_size=4)
    rec.fit(polars.DataFrame(rows), progress=False)
    assert "are by people" in rec.fitted_corpus.facts["split"]
    assert 1 <= rec.predict([("p1", "t2")])[0] <= 5
    assert str(rec.explain("p1", "t2"))
    assert rec.recommend("p1", n=2)
