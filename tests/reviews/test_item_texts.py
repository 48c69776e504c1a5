"""Titles in the reviews become titles of things, and a corpus without any stays what it was, byte for byte."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import polars
import pytest

from carp.bench.datasets import load_corpus, save_slim
from carp.errors import DamagedError, UsageError
from carp.reviews.corpora.cleaning import AS_IN_PAPER
from carp.reviews.corpora.corpus import Corpus, build_corpus
from carp.reviews.corpora.item_texts import ItemTexts
from carp.reviews.corpora.preparation import prepare_corpus
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.item_records import ItemText
from carp.reviews.sources.ledger import title_of
from carp.reviews.sources.request import SourceRequest
from carp.storage import new_folder

BEERS = [
    ("ann", "b1", 5, "Warm and dark", "Black &amp; Tan"),
    ("bob", "b1", 2, "Too sweet for me", "Black and Tan"),
    ("ann", "b2", 4, "Hops all over", None),
    ("bob", "b2", 1, "Bitter, bitter hops", "  Modus \n Hoperandi "),
    ("cat", "b2", 3, "Fine", "Modus Hoperandi"),
    ("cat", "b3", 3, "Water", None),
    ("ann", "b3", 2, "Water it is", ""),
]


def rows(names="name"):
    return [
        {"user": user, "item": item, "rating": stars, "text": text, names: name}
        for user, item, stars, text, name in BEERS
    ]


def written(folder, records, name="reviews.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def corpus_of(folder, records, **asked):
    return build_corpus(read_reviews(written(folder, records), **asked), min_reviews=1)


def item_files(folder):
    return sorted(file.name for file in folder.glob("item_*.npy"))


def test_the_first_title_that_a_review_gives_counts_and_others_are_counted(tmp_path):
    corpus = corpus_of(tmp_path, rows())
    assert list(corpus.items) == ["b1", "b2", "b3"]
    assert list(corpus.item_texts.titles) == ["Black & Tan", "Modus Hoperandi", ""]
    assert corpus.facts["titles"] == {"column": "name", "taken": True, "items": 1, "reviews": 1}


def test_titles_are_read_as_words_with_numbers_of_their_own(tmp_path):
    corpus = corpus_of(tmp_path, rows())
    names = corpus.item_names
    read = [[names.words[token] for token in names.tokens[start:end]] for start, end in spans(names.offsets)]
    assert read == [["black", "tan"], ["modus", "hoperandi"], []]
    assert "hoperandi" not in list(corpus.words)


def spans(offsets):
    return zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)


def test_names_of_people_are_not_taken_as_titles_of_things(tmp_path):
    records = [{**record, "name": record["user"].title()} for record in rows()]
    corpus = corpus_of(tmp_path, records)
    assert corpus.item_texts is None
    assert corpus.facts["titles"] == {"column": "name", "taken": False, "items": 3, "reviews": 4}
    asked = corpus_of(tmp_path, records, columns={"title": "name"})
    assert list(asked.item_texts.titles) == ["Ann", "Ann", "Cat"], "who names the column is taken at their word"


def test_titles_can_be_ignored(tmp_path):
    corpus = corpus_of(tmp_path, rows(), titles=False)
    assert corpus.item_texts is None
    assert "titles" not in corpus.facts
    with pytest.raises(UsageError, match="titles are not wanted"):
        corpus_of(tmp_path, rows(), titles=False, columns={"title": "name"})


def test_the_heading_of_a_review_is_no_title_unless_asked_for(tmp_path):
    assert corpus_of(tmp_path, rows("title")).item_texts is None
    assert corpus_of(tmp_path, rows("title"), columns={"title": "title"}).item_texts is not None


def test_reviews_and_fingerprint_are_the_same_with_and_without_titles(tmp_path):
    with_titles, without = corpus_of(tmp_path, rows()), corpus_of(tmp_path, rows(), titles=False)
    assert with_titles.fingerprint == without.fingerprint
    without.save(tmp_path / "plain")
    with_titles.save(tmp_path / "titled")
    plain = {file.name: file.read_bytes() for file in (tmp_path / "plain").glob("*.npy")}
    assert not [name for name in plain if name.startswith("item_")]
    assert all((tmp_path / "titled" / name).read_bytes() == content for name, content in plain.items())
    layouts = [json.loads((tmp_path / kind / "corpus.json").read_text())["made_with"]["layout"] for kind in FOLDERS]
    assert layouts == [1, 2], "an older carp still reads the one, and says of the other that it is too new"


FOLDERS = ("plain", "titled")


def test_a_corpus_without_titles_has_things_without_words(tmp_path):
    corpus = corpus_of(tmp_path, rows(), titles=False)
    corpus.save(tmp_path / "corpus")
    loaded = Corpus.load(tmp_path / "corpus")
    assert loaded.item_texts is None
    assert loaded.item_names.offsets.tolist() == [0, 0, 0, 0]
    assert len(loaded.item_names.tokens) == len(loaded.item_names.words) == 0


def sources(folder):
    frame = polars.DataFrame(rows(), strict=False)
    frame.write_csv(folder / "reviews.csv")
    frame.write_parquet(folder / "reviews.parquet")
    blocks = []
    for user, item, stars, text, name in BEERS:
        lines = [f"beer/name: {(name or '').strip()}", f"beer/beerId: {item}", f"review/profileName: {user}"]
        lines += [f"review/overall: {stars}", f"review/text: {text}"]
        blocks.append("\n".join(" ".join(line.split()) for line in lines))
    (folder / "reviews.txt").write_text("\n\n".join(blocks))
    return [written(folder, rows()), folder / "reviews.csv", folder / "reviews.parquet", folder / "reviews.txt"]


def test_every_format_gives_the_same_titles_in_memory_and_from_files(tmp_path):
    expected = corpus_of(tmp_path, rows()).item_texts
    for path in sources(tmp_path):
        in_memory = build_corpus(read_reviews(path), min_reviews=1)
        prepare_corpus([path], tmp_path / "corpus", SourceRequest(), min_reviews=1, overwrite=True)
        saved = Corpus.load(tmp_path / "corpus")
        for found in (in_memory, saved):
            assert found.item_texts.fingerprint == expected.fingerprint, path
            assert found.facts["titles"]["reviews"] == 1
        assert isinstance(saved.item_texts.titles.data, np.memmap)


def test_titles_of_several_files_and_workers_are_joined_in_order(tmp_path):
    untitled = [{**record, "name": None} for record in rows()]
    late = [{**record, "user": f"{record['user']}2"} for record in rows()]
    files = [written(tmp_path, untitled, "one.jsonl"), written(tmp_path, late, "two.jsonl")]
    for workers in (1, 2):
        prepare_corpus(files, tmp_path / "corpus", SourceRequest(), min_reviews=1, workers=workers, overwrite=True)
        loaded = Corpus.load(tmp_path / "corpus")
        assert list(loaded.item_texts.titles) == ["Black & Tan", "Modus Hoperandi", ""]


def test_a_beer_with_a_name_in_an_older_encoding_keeps_its_reviews_and_its_name(tmp_path):
    block = "beer/name: Trappist Rôchefort\nbeer/beerId: {}\nreview/profileName: {}\nreview/overall: 15/20\n"
    blocks = [block.format(item, user) + "review/text: Dark" for item in "12" for user in "ab"]
    (tmp_path / "beer.txt").write_bytes("\n\n".join(blocks).encode("cp1252"))
    reviews = read_reviews(tmp_path / "beer.txt")
    assert reviews.ledger.rejected == 0
    assert set(reviews.titles) == {"Trappist Rôchefort"}


NO_TITLES = [None, "", " \t", [], {"a": 1}, True, float("nan"), "x" * 2000, "\ud800", 10**5000, np.array(["a", "b"])]


@pytest.mark.parametrize("place", range(len(NO_TITLES)))
def test_what_is_no_title_is_left_out_and_the_review_stays(place):
    assert title_of(NO_TITLES[place]) is None


@pytest.fixture
def saved(tmp_path):
    texts = [ItemText("Amp <b>5</b>", ("Amps", "Röhren"), "Loud.", "https://shop/a.png"), ItemText(), ItemText("Pick")]
    corpus = dataclasses.replace(corpus_of(tmp_path, rows(), titles=False), item_texts=ItemTexts.of(texts))
    corpus.save(tmp_path / "corpus")
    return tmp_path / "corpus"


def test_all_texts_of_things_come_back_from_the_folder(saved):
    texts = Corpus.load(saved).item_texts
    assert [list(getattr(texts, name)) for name in ("titles", "descriptions", "pictures")] == [
        ["Amp <b>5</b>", "", "Pick"],
        ["Loud.", "", ""],
        ["https://shop/a.png", "", ""],
    ]
    assert [texts.categories_of(item) for item in range(3)] == [["Amps", "Röhren"], [], []]
    assert [texts.words[token] for token in texts.names.tokens] == ["amp", "b", "b", "amps", "röhren", "pick"]
    assert texts.known() == {"titles": 2, "categories": 1, "descriptions": 1, "pictures": 1}


def test_a_corpus_whose_texts_of_things_do_not_fit_is_refused(saved):
    files = {file.name: file.read_bytes() for file in saved.iterdir() if file.name != "manifest.json"}
    names = item_files(saved)
    assert len(names) == 14
    for name in names:
        for change in ("missing", "longer", "falling", "other kind", "not UTF-8"):
            if change == "not UTF-8" and np.load(saved / name).dtype != np.uint8:
                continue
            column = np.load(saved / name) if change != "missing" else None
            with new_folder(saved, "corpus", overwrite=True) as partial:
                for other, content in files.items():
                    (partial / other).write_bytes(content)
                (partial / name).unlink()
                if column is not None:
                    np.save(partial / name, damaged(column, change))
            with pytest.raises(DamagedError):
                Corpus.load(saved)
            restore(saved, files)


def damaged(column, change):
    if change == "other kind":
        return column.astype(np.float64)
    if change == "not UTF-8" and len(column):
        return np.concatenate([column[:-1], np.array([0xFF], np.uint8)])
    if change == "falling" and column.dtype == np.int64:
        return column[::-1]
    return np.append(column, np.array([99], column.dtype))


def test_a_text_that_begins_inside_a_character_is_refused():
    texts = ItemTexts.of([ItemText("Ä"), ItemText("b")])
    assert texts.fault(2) is None
    cut = dataclasses.replace(texts.titles, offsets=np.array([0, 1, 3]))
    assert dataclasses.replace(texts, titles=cut).fault(2) == "item_titles are cut inside a character"


def restore(folder, files):
    with new_folder(folder, "corpus", overwrite=True) as partial:
        for name, content in files.items():
            (partial / name).write_bytes(content)


def test_a_slim_copy_keeps_the_words_of_titles_and_no_text(saved, tmp_path):
    corpus = Corpus.load(saved)
    save_slim(corpus, tmp_path / "slim.npz")
    slim = load_corpus(tmp_path / "slim.npz")
    assert slim.item_names.tokens.tolist() == corpus.item_names.tokens.tolist()
    assert list(slim.item_names.words) == list(corpus.item_names.words)
    assert set(slim.item_texts.titles) == set(slim.item_texts.descriptions) == {""}


def test_real_beers_have_their_names(real_data):
    reviews = read_reviews(real_data / "ratebeer.jsonl.gz", rating_range=(4, 20), clip_ratings=True, markup=True)
    corpus = build_corpus(reviews, **AS_IN_PAPER)
    assert corpus.item_texts.known()["titles"] == len(corpus.items) == 1520
    assert corpus.facts["titles"] == {"column": "name", "taken": True, "items": 2, "reviews": 8}
    assert corpus.fingerprint.startswith("039b0bf9"), "the reviews are those that the published figures are about"
