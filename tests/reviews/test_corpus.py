"""Cleaning drops what it says it drops; a saved corpus comes back whole or not at all."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carp.errors import CarpWarning, DamagedError, InputError, UsageError
from carp.reviews.corpora.cleaning import AS_IN_PAPER, in_k_core, last_of_each_pair
from carp.reviews.corpora.corpus import LAYOUT, Corpus, build_corpus
from carp.reviews.corpora.dataset_statistics import dataset_statistics, statistics_table
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.ledger import Ledger, Reviews
from carp.storage import new_folder

PAPER = {
    "users": 1429,
    "items": 900,
    "ratings": 10_261,
    "words_per_review": 32.45,
    "words_per_user": 141.32,
    "words_per_item": 200.12,
    "positive_negative_ratio": 7.28,
    "density_percent": 0.798,
}


def reviews_of(rows, *, splits=None, scale=RatingScale(1, 5, clip=False, origin="test")):  # noqa: B008
    users, items, ratings, texts = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    ledger = Ledger()
    ledger.accept(len(rows))
    return Reviews(
        users, items, np.array(ratings, float), texts, [None] * len(rows), splits, ledger, "csv", scale, ["made.csv"]
    )


SMALL = [
    ("ann", "amp", 5, "Warm tone, don't miss it"),
    ("bob", "amp", 2, "It buzzes a lot"),
    ("ann", "pick", 4, "the of and"),
    ("bob", "pick", 1, "12 + 34 !!!"),
    ("ann", "amp", 3, "After a month: it buzzes"),
]


@pytest.fixture
def small():
    return build_corpus(reviews_of(SMALL), min_reviews=1)


@pytest.fixture(scope="session")
def instruments(real_data):
    file = real_data / "reviews_Musical_Instruments_5.json.gz"
    if not file.exists():
        pytest.skip(f"{file} is absent")
    return read_reviews(file)


def assert_equal(one, other):
    assert one.facts == other.facts
    assert one.columns().keys() == other.columns().keys()
    for name, array in one.columns().items():
        np.testing.assert_array_equal(array, other.columns()[name], err_msg=name)
        assert array.dtype == other.columns()[name].dtype


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_strings_come_back_from_their_column(strings):
    column = StringColumn.from_strings(strings)
    assert list(column) == strings
    assert [column[place] for place in range(len(column))] == strings
    assert set(column.index()) == set(strings)
    with pytest.raises(IndexError):
        column[len(strings)]


def test_half_a_surrogate_pair_takes_one_character():
    assert StringColumn.from_strings(["a\ud800b"])[0] == "a?b"


def test_the_last_of_repeated_reviews_wins_and_is_counted(small):
    assert small.facts["dropped"]["duplicates"] == 1
    pairs = {(small.users[u], small.items[i]): r for r, (u, i) in enumerate(zip(small.user, small.item, strict=True))}
    record = pairs["ann", "amp"]
    assert small.text(record) == "After a month: it buzzes"
    assert small.rating[record] == 3


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(-1, 2)), max_size=30))
def test_keeping_the_latest_of_each_pair_equals_a_slow_form(rows):
    user, item, time = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    by_date = sorted(range(len(rows)), key=lambda place: rows[place][2])
    slow = sorted({rows[place][:2]: place for place in by_date}.values())
    assert last_of_each_pair(user, item, time).tolist() == slow


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40), st.integers(1, 4))
def test_the_core_equals_a_slow_form(pairs, minimum):
    left = list(enumerate(pairs))
    while True:
        rare = [
            entry
            for entry in left
            if sum(p[0] == entry[1][0] for _, p in left) < minimum
            or sum(p[1] == entry[1][1] for _, p in left) < minimum
        ]
        if not rare:
            break
        left.remove(rare[0])
    user = np.array([u for u, _ in pairs], dtype=np.int64)
    item = np.array([i for _, i in pairs], dtype=np.int64)
    assert np.flatnonzero(in_k_core(user, item, minimum)).tolist() == [place for place, _ in left]


def test_records_without_a_word_go_and_those_of_stop_words_alone_stay(small):
    assert small.facts["dropped"]["wordless"] == 1
    assert "the of and" in list(small.texts)
    assert not any("12 + 34" in text for text in small.texts)


def test_every_record_read_is_accounted_for(small):
    facts = small.facts
    assert facts["read"] == facts["rejected"] + sum(facts["dropped"].values()) + len(small)


def test_users_and_items_are_numbered_by_first_appearance(small):
    assert list(small.users) == ["bob", "ann"]
    assert list(small.items) == ["amp", "pick"]


def test_every_token_stands_where_the_corpus_says(small):
    for record in range(len(small)):
        text = small.text(record)
        stretch = slice(small.token_offsets[record], small.token_offsets[record + 1])
        starts, lengths = small.token_starts[stretch], small.token_lengths[stretch]
        written = [text[s : s + n].lower() for s, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
        assert written == small.review_words(record)


def test_ratings_are_mapped_to_stars_and_the_facts_say_how():
    beer = RatingScale(4, 20, clip=True, origin="test")
    rows = [("a", "x", 4, "one"), ("b", "y", 20, "two"), ("a", "y", 12, "three")]
    corpus = build_corpus(reviews_of(rows, scale=beer), min_reviews=1)
    assert corpus.rating.tolist() == [1, 5, 3]
    assert "4 to 20" in corpus.facts["scale"]


def test_the_datas_own_split_follows_its_records():
    names = ["train", "Test", "validation", "train", "dev"]
    corpus = build_corpus(reviews_of(SMALL, splits=names), min_reviews=1)
    assert corpus.split.tolist() == [2, 1, 1]
    with pytest.raises(InputError, match="'tset' is no part of a split"):
        build_corpus(reviews_of(SMALL, splits=["tset"] * 5), min_reviews=1)


def test_progress_counts_up_to_all_texts():
    seen = []
    build_corpus(reviews_of(SMALL), min_reviews=1, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3, 3)


def test_when_nothing_remains_the_error_says_what_would():
    with pytest.raises(InputError) as caught:
        build_corpus(reviews_of(SMALL), min_reviews=5)
    assert "3 at 1, 0 at 2, 0 at 3 would remain" in str(caught.value)
    assert "min_reviews" in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no reviews"),
        ([("a", "x", 1, "one"), ("a", "y", 1, "two")], "the same user, 'a'"),
        ([("a", "x", 1, "one"), ("b", "x", 1, "two")], "the same item, 'x'"),
        ([("a", "x", 1, "1"), ("b", "y", 1, "")], "no review has a word"),
    ],
)
def test_what_cannot_be_compared_is_refused(rows, message):
    with pytest.raises(InputError, match=message):
        build_corpus(reviews_of(rows), min_reviews=1)


@pytest.mark.parametrize("splits", [None, ["train", "test", "valid", "train", "dev"]])
def test_a_saved_corpus_comes_back_equal_and_stays_on_the_disk(tmp_path, splits):
    corpus = build_corpus(reviews_of(SMALL, splits=splits), min_reviews=1)
    corpus.save(tmp_path / "corpus")
    mapped = Corpus.load(tmp_path / "corpus")
    assert_equal(mapped, corpus)
    assert isinstance(mapped.tokens, np.memmap)
    assert isinstance(mapped.texts.data, np.memmap)
    assert mapped.fingerprint == corpus.fingerprint
    in_memory = Corpus.load(tmp_path / "corpus", mmap=False)
    assert_equal(in_memory, corpus)
    assert not isinstance(in_memory.tokens, np.memmap)


def test_the_fingerprint_tells_contents_apart(small):
    other = build_corpus(reviews_of([*SMALL[:4], ("ann", "amp", 4, SMALL[4][3])]), min_reviews=1)
    again = build_corpus(reviews_of(SMALL), min_reviews=1)
    assert small.fingerprint == again.fingerprint != other.fingerprint


def test_a_corpus_is_not_overwritten_unless_asked(small, tmp_path):
    small.save(tmp_path / "corpus")
    with pytest.raises(UsageError, match="already exists"):
        small.save(tmp_path / "corpus")
    small.save(tmp_path / "corpus", overwrite=True)
    assert_equal(Corpus.load(tmp_path / "corpus"), small)


def test_a_damaged_corpus_is_refused(small, tmp_path):
    small.save(tmp_path / "corpus")
    for file in sorted((tmp_path / "corpus").iterdir()):
        whole = file.read_bytes()
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 0x10
        for damaged in (bytes(flipped), whole[: len(whole) // 2], None):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            with pytest.raises(DamagedError):
                Corpus.load(tmp_path / "corpus")
        file.write_bytes(whole)
    assert_equal(Corpus.load(tmp_path / "corpus"), small)


def resave_manifest(folder, change):
    """Save again what `change` makes of the arrays and files of a corpus, under a manifest that fits."""
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "manifest.json"}
    change(files)
    with new_folder(folder, "corpus", overwrite=True) as partial:
        for name, content in files.items():
            (partial / name).write_bytes(content)


def as_npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_a_corpus_whose_manifest_leaves_out_a_needed_file_is_refused(small, tmp_path):
    folder = tmp_path / "corpus"
    names = ["corpus.json", *(f"{name}.npy" for name in small.columns() if name != "split")]
    assert len(names) == 17
    for name in names:
        small.save(folder, overwrite=True)
        resave_manifest(folder, lambda files, name=name: files.pop(name))
        with pytest.raises(DamagedError, match=f"does not name {name}"):
            Corpus.load(folder)


@pytest.mark.parametrize("splits", [None, ["train", "test", "valid", "train", "dev"]])
def test_a_corpus_whose_columns_differ_in_length_is_refused(tmp_path, splits):
    corpus = build_corpus(reviews_of(SMALL, splits=splits), min_reviews=1)
    folder = tmp_path / "corpus"
    for name, array in corpus.columns().items():
        for wrong in (array[:-1], np.append(array, array[-1:]), array[0]):
            corpus.save(folder, overwrite=True)
            resave_manifest(folder, lambda files, name=name, wrong=wrong: files.update({f"{name}.npy": as_npy(wrong)}))
            if name in ("users_offsets", "items_offsets", "words_offsets") and wrong.ndim and len(wrong) > len(array):
                continue  # one more name, an empty one: nothing contradicts it
            with pytest.raises(DamagedError):
                Corpus.load(folder)


def made_differently(folder, **made):
    """Save the corpus of a folder again as another version would have; what is None was not written down at all."""

    def change(files):
        about = json.loads(files["corpus.json"])
        changed = {**about["made_with"], **made}
        about["made_with"] = {key: value for key, value in changed.items() if value is not None}
        files["corpus.json"] = json.dumps(about).encode()

    resave_manifest(folder, change)


def test_a_corpus_from_before_versions_were_recorded_is_one_of_the_first_tokeniser(small, tmp_path):
    small.save(tmp_path / "corpus")

    def change(files):
        files["corpus.json"] = json.dumps({"fingerprint": small.fingerprint, "facts": small.facts}).encode()

    resave_manifest(tmp_path / "corpus", change)
    with pytest.warns(CarpWarning, match="version 1 of the tokeniser"):
        loaded = Corpus.load(tmp_path / "corpus")
    assert loaded.fingerprint == small.fingerprint
    assert loaded.facts == small.facts | {"made_by": "carp 0.1 or earlier", "tokeniser": 1}


def test_a_corpus_of_a_newer_layout_is_refused_with_the_version_that_made_it(small, tmp_path):
    small.save(tmp_path / "corpus")
    made_differently(tmp_path / "corpus", carp="9.1.0", layout=LAYOUT + 1)
    resave_manifest(tmp_path / "corpus", lambda files: files.pop("tokens.npy"))
    with pytest.raises(InputError, match=rf"saved by carp 9\.1\.0 in layout {LAYOUT + 1}") as caught:
        Corpus.load(tmp_path / "corpus")
    assert "update carp" in caught.value.fix


def test_a_corpus_of_another_tokeniser_loads_with_one_warning_and_still_says_so_when_saved_again(small, tmp_path):
    small.save(tmp_path / "corpus")
    made_differently(tmp_path / "corpus", tokeniser=7)
    for folder, saved in (("corpus", "again"), ("again", "and again")):
        with pytest.warns(CarpWarning, match="version 7 of the tokeniser") as told:
            loaded = Corpus.load(tmp_path / folder)
        assert len(told) == 1
        loaded.save(tmp_path / saved)


def test_statistics_of_a_small_corpus_are_counted_right(monkeypatch):
    rows = [
        ("ann", "amp", 5, "warm tone but not cheap"),
        ("bob", "amp", 3, "hum"),
        ("ann", "pick", 4, "the thin one"),
    ]
    found = dataset_statistics(build_corpus(reviews_of(rows), min_reviews=1))
    assert found["words_per_review"] == pytest.approx((3 + 1 + 1) / 3)
    assert found["words_per_user"] == pytest.approx((4 + 1) / 2)
    assert found["words_per_item"] == pytest.approx((4 + 1) / 2)
    assert found["positive_negative_ratio"] == 2
    assert found["density_percent"] == 75
    assert "documents of all reviews" in statistics_table(found), "three records cannot be split"
    monkeypatch.setattr("carp.reviews.corpora.dataset_statistics.MAX_WORDS", 2)
    capped = dataset_statistics(build_corpus(reviews_of(rows), min_reviews=1))
    assert capped["words_per_user"] == pytest.approx((2 + 1) / 2)
    assert capped["words_per_review"] == found["words_per_review"]


def test_documents_are_counted_without_the_test_part_of_the_datas_own_split():
    rows = [("ann", "amp", 5, "warm"), ("bob", "amp", 3, "a long hum"), ("ann", "pick", 4, "thin stiff dull")]
    corpus = build_corpus(reviews_of(rows, splits=["test", "train", "train"]), min_reviews=1)
    found = dataset_statistics(corpus)
    assert found["words_per_user"] == pytest.approx((3 + 2) / 2)
    assert found["words_per_item"] == pytest.approx((3 + 2) / 2)
    assert "documents of the 67 % that are not test" in statistics_table(found)
    all_test = build_corpus(reviews_of(rows, splits=["test"] * 3), min_reviews=1)
    assert dataset_statistics(all_test)["words_per_user"] == pytest.approx((1 + 3 + 2) / 2)


def test_musical_instruments_come_out_as_in_the_papers_table(instruments):
    corpus = build_corpus(instruments, **AS_IN_PAPER)
    assert corpus.facts["dropped"] == {"duplicates": 0, "copies": 0, "k_core": 0, "wordless": 7}
    found = dataset_statistics(corpus)
    assert {name: found[name] / value for name, value in PAPER.items()} == pytest.approx(
        dict.fromkeys(PAPER, 1), abs=0.03
    )
    assert statistics_table(found).endswith("documents of the 80 % that are not test, at most 300 words")
