"""Folders whose sums are right and whose content is not: all is checked, and what was checked is what is used."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest

import carp
import hostile_bundles
import mixed_loads
from carp.errors import CarpError, DamagedError, StorageError
from carp.persist import bundle
from carp.reviews.readable import WrittenReview
from carp.serve.answer_service import AnswerService
from carp.storage import (
    MANIFEST,
    block_sums,
    check_folder,
    load_arrays,
    new_folder,
    opened_folder,
    save_arrays,
    seal,
    sealed_folders,
    write_bytes,
)
from made_up_reviews import shop_reviews

BUNDLES = int(os.environ.get("CARP_BUNDLES", "40"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model and a corpus; no test may change them."""
    folder = tmp_path_factory.mktemp("made")
    hostile_bundles.make_bundle(folder / "model")
    carp.build_corpus(shop_reviews(), min_reviews=1).save(folder / "corpus")
    return folder


@pytest.fixture
def model(made, tmp_path):
    return shutil.copytree(made / "model", tmp_path / "model")


@pytest.fixture
def corpus(made, tmp_path):
    return shutil.copytree(made / "corpus", tmp_path / "corpus")


def put(place, value):
    def edit(array):
        array.reshape(-1)[place] = value
        return array

    return edit


def swapped(array):
    array[[1, 2]] = array[[2, 1]]
    return array


SHORTER, LONGER = (lambda a: a[:-1]), (lambda a: np.concatenate([a, a[-1:]]))
RECORDS, DOCUMENTS, WEIGHTS, BIASES = (f"{n}.safetensors" for n in ("records", "documents", "model", "baseline"))
COLUMNS = [
    (RECORDS, "user", put(0, 99), "an entry of user is not from 0 to"),
    (RECORDS, "user", put(0, -1), "an entry of user"),
    (RECORDS, "user", SHORTER, "texts"),
    (RECORDS, "user", lambda a: a.astype(np.int64), "user holds int64 and should hold int32"),
    (RECORDS, "item", put(5, 99), "an entry of item"),
    (RECORDS, "item", LONGER, "item has"),
    (RECORDS, "rating", put(0, np.nan), "an entry of rating"),
    (RECORDS, "rating", put(0, 5.5), "an entry of rating"),
    (RECORDS, "rating", lambda a: a.astype(np.float64), "rating holds float64"),
    (RECORDS, "part", put(0, 3), "an entry of part"),
    (RECORDS, "part", lambda a: a.astype(np.int16), "part holds int16"),
    (RECORDS, "texts_offsets", put(1, 10**12), "offsets of texts fall"),
    (RECORDS, "texts_offsets", put(0, 1), "do not span"),
    (RECORDS, "texts_offsets", put(-1, 3), "do not span"),
    (RECORDS, "texts_offsets", swapped, "offsets of texts fall"),
    (RECORDS, "texts_offsets", lambda a: a.astype(np.int32), "should hold int64"),
    (RECORDS, "texts_bytes", put(0, 0xFF), "texts are not UTF-8"),
    (RECORDS, "texts_bytes", put(-1, 0xC3), "texts are not UTF-8"),
    (RECORDS, "texts_bytes", lambda a: a.astype(np.int8), "texts holds int8"),
    (RECORDS, "users_bytes", lambda a: np.full_like(a, ord("x")), "one of users occurs twice"),
    (RECORDS, "items_offsets", lambda a: a[:1] * 0, "do not span"),
    (DOCUMENTS, "user.words", put(0, 0), r"an entry of user\.words"),
    (DOCUMENTS, "user.words", put(0, 10**6), r"an entry of user\.words"),
    (DOCUMENTS, "item.words", lambda a: a.astype(np.uint32), r"item\.words holds uint32"),
    (DOCUMENTS, "user.review", SHORTER, r"user\.review has"),
    (DOCUMENTS, "user.review", put(0, -1), r"an entry of user\.review"),
    (DOCUMENTS, "user.review", put(0, 10**6), r"an entry of user\.review"),
    (DOCUMENTS, "user.review", lambda a: a[::-1], r"user\.review names reviews of others"),
    (DOCUMENTS, "item.offsets", put(1, -1), r"item\.offsets fall"),
    (DOCUMENTS, "item.offsets", put(1, 10**15), r"item\.offsets fall"),
    (DOCUMENTS, "item.offsets", SHORTER, r"item\.offsets has"),
    (DOCUMENTS, "user.characters", put(0, -1), r"user\.characters stand outside"),
    (DOCUMENTS, "user.characters", put(1, 10**6), r"user\.characters stand outside"),
    (DOCUMENTS, "user.characters", lambda a: a[:, ::-1], r"user\.characters stand outside"),
    (DOCUMENTS, "item.characters", lambda a: a.reshape(-1), r"item\.characters has"),
    (WEIGHTS, "vote_weight", put(0, np.nan), "vote_weight holds what is no number"),
    (WEIGHTS, "vote_weight", put(0, np.inf), "vote_weight holds what is no number"),
    (WEIGHTS, "vote_weight", lambda a: a.astype(np.float64), "vote_weight is torch.float64"),
    (WEIGHTS, "vote_weight", lambda a: a.astype(np.int32), "vote_weight is torch.int32"),
    (WEIGHTS, "vote_weight", lambda a: a[:1], "vote_weight is torch.float32"),
    (WEIGHTS, "vote_weight", None, "the tensors are those of another model"),
    (BIASES, "user", put(0, np.inf), "user holds what is no number"),
    (BIASES, "mean", lambda a: a.astype(np.float16), "mean is torch.float16"),
]


@pytest.mark.parametrize(("file", "column", "edit", "reason"), COLUMNS)
def test_a_column_that_cannot_be_is_refused_by_name(model, file, column, edit, reason, monkeypatch):
    arrays = {name: array.copy() for name, array in load_arrays(model / file).items()}
    changed = None if edit is None else edit(arrays[column])
    arrays.pop(column)
    save_arrays(model / file, arrays if changed is None else {**arrays, column: changed})
    seal(model, "model")
    with pytest.raises(DamagedError, match=reason):
        carp.load(model, device="cpu")
    monkeypatch.setattr(block_sums, "LARGE", 1)  # as columns of many millions are opened
    with pytest.raises(DamagedError, match=reason):
        carp.load(model, device="cpu")
    seal(model, "model")  # with the sums of blocks
    with pytest.raises(DamagedError, match=reason):
        carp.load(model, device="cpu")


def test_a_review_that_did_not_train_is_in_no_document(model):
    arrays = {name: array.copy() for name, array in load_arrays(model / RECORDS).items()}
    arrays["part"][:] = 2
    save_arrays(model / RECORDS, arrays)
    seal(model, "model")
    with pytest.raises(DamagedError, match="names reviews that did not train"):
        carp.load(model, device="cpu")


STANDING_ELSEWHERE = {"blank lines": b"\n", "spaces": b" ", "one letter and spaces": b"x" + b" " * 400}


@pytest.mark.parametrize("filling", STANDING_ELSEWHERE.values(), ids=STANDING_ELSEWHERE)
def test_texts_in_whose_sentences_the_words_do_not_stand_are_refused_when_they_are_read(model, filling):
    arrays = {name: array.copy() for name, array in load_arrays(model / RECORDS).items()}
    arrays["texts_bytes"][:] = np.resize(np.frombuffer(filling, np.uint8), len(arrays["texts_bytes"]))
    save_arrays(model / RECORDS, arrays)
    seal(model, "model")
    found = carp.load(model, device="cpu")
    user, item = found.fitted_corpus.users[0], found.fitted_corpus.items[0]
    askings = [
        lambda: found.explain(user, item),
        lambda: found.profile(item=item),
        lambda: AnswerService(found).overview(None, None),
    ]
    for asking in askings:
        with pytest.raises(DamagedError, match="do not stand in the sentences of its texts"):
            asking()


def test_words_are_found_in_the_sentences_they_stand_in():
    written = WrittenReview(" One two.  Three four. ", None, None, None)
    assert written.sentences_at(np.array([1, 5, 11, 17])).tolist() == [0, 0, 1, 1]
    assert written.sentences_at(np.array([], np.int64)).tolist() == []
    for outside in (0, 9, 10, 22, 99):
        with pytest.raises(DamagedError):
            written.sentences_at(np.array([5, outside]))


def test_a_string_cut_inside_a_character_is_refused(model):
    arrays = {name: array.copy() for name, array in load_arrays(model / RECORDS).items()}
    place = int(arrays["texts_offsets"][1])
    arrays["texts_bytes"][place - 1 : place + 1] = list("é".encode())
    save_arrays(model / RECORDS, arrays)
    seal(model, "model")
    with pytest.raises(DamagedError, match="texts are cut inside a character"):
        carp.load(model, device="cpu")


FACTS = [
    (lambda f: f.update(seed="1"), "seed is not a number"),
    (lambda f: f.update(split_seed=-1), "split_seed is not a number"),
    (lambda f: f.update(levels=1), "the highest rating"),
    (lambda f: f.update(levels=True), "levels is not a number"),
    (lambda f: f.update(updated="7"), "updated is not a number"),
    (lambda f: f.update(learned_records=-1), "learned_records is not a number"),
    (lambda f: f.update(max_words=0), "max_words is not a number of words"),
    (lambda f: f.update(max_words=1), "more than 1 apart"),
    (lambda f: f.update(model=3), "the model has no name"),
    (lambda f: f.update(fit=[]), "settings or facts are missing"),
    (lambda f: f["data"].update(corpus=None), "settings or facts are missing"),
    (lambda f: f["fit"].update(model="carp"), "a setting is given twice"),
    (lambda f: f["fit"].update(epochs=3), "a setting is given twice"),
    (lambda f: f["config"].update(viewpoints=10**9), "viewpoints cannot be"),
    (lambda f: f["config"].update(filters=100_000), "a larger model than the file holds"),
    (lambda f: f["config"].update(variant=[1]), "variant is no setting"),
    (lambda f: f["data"].update(split=3), "the split is not named"),
    (lambda f: f["data"].update(fingerprint=None), "no fingerprint"),
    (lambda f: f.update(degree_scale=[1.0]), "degree_scale should be 2 numbers"),
    (lambda f: f.update(degree_scale=[1.0, True]), "degree_scale holds what is no number"),
    (lambda f: f.update(margin={}), "margin holds what is no number"),
    (lambda f: f.update(margin=-1.0), "margin is below 0"),
    (lambda f: f["scale"].update(low=1e300), "the scale holds what is no number"),
]


@pytest.mark.parametrize(("edit", "reason"), FACTS)
def test_facts_that_cannot_be_are_refused_by_name(model, edit, reason):
    facts = json.loads((model / "model.json").read_bytes())
    edit(facts)
    (model / "model.json").write_text(json.dumps(facts))
    seal(model, "model")
    with pytest.raises(CarpError, match=reason):
        carp.load(model, device="cpu")


@pytest.mark.parametrize("words", [[], ["a", "a"], ["a", 3], {"a": 1}])
def test_a_vocabulary_that_cannot_be_is_refused(model, words):
    (model / "tokeniser.json").write_text(json.dumps({"words": words}))
    seal(model, "model")
    with pytest.raises(DamagedError, match="vocabulary"):
        carp.load(model, device="cpu")


@pytest.mark.parametrize("file", ["model.json", "manifest.json", "tokeniser.json"])
def test_a_name_that_stands_twice_in_json_is_refused(model, file):
    """One reader would take the first value, another the last."""
    content = (model / file).read_text()
    name = next(iter(json.loads(content)))
    (model / file).write_text(content.replace("{", '{"' + name + '": 1, ', 1))
    if file != MANIFEST:
        seal(model, "model")
    with pytest.raises(DamagedError, match="a name stands twice"):
        carp.load(model, device="cpu")


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": Infinity}', '{"a": 1e999}', '{"a": "\\ud800"}'])
def test_json_that_carp_could_not_have_written_is_refused(model, text):
    (model / "tokeniser.json").write_text(text)
    seal(model, "model")
    with pytest.raises(DamagedError, match="cannot be read"):
        carp.load(model, device="cpu")


# ---- corpora

CORPUS = [
    ("user", put(0, 99), "an entry of user"),
    ("item", put(0, -3), "an entry of item"),
    ("rating", put(0, np.inf), "an entry of rating"),
    ("rating", lambda a: a.astype(np.float64), "rating holds float64"),
    ("time", SHORTER, "time has"),
    ("tokens", put(0, -1), "an entry of tokens"),
    ("tokens", put(0, 10**6), "an entry of tokens"),
    ("token_starts", put(0, 10**6), "a word stands outside of its text"),
    ("token_starts", put(0, -1), "a word stands outside of its text"),
    ("token_lengths", put(0, 255), "a word stands outside of its text"),
    ("token_offsets", swapped, "token_offsets fall"),
    ("token_offsets", put(-1, 10**9), "do not span"),
    ("texts", put(0, 0xFF), "texts are not UTF-8"),
    ("words", put(0, 0xFF), "words are not UTF-8"),
    ("users", lambda a: np.full_like(a, ord("x")), "one of users occurs twice"),
    ("items_offsets", swapped, "offsets of items fall"),
    ("user", lambda a: a[None], "plain column"),
    ("user", lambda a: a.astype("V4"), "user holds"),
]


@pytest.mark.parametrize(("name", "edit", "reason"), CORPUS)
@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
def test_a_column_of_a_corpus_that_cannot_be_is_refused_by_name(corpus, name, edit, reason, mmap):
    column = edit(np.load(corpus / f"{name}.npy"))
    np.save(corpus / f"{name}.npy", column)
    seal(corpus, "corpus")
    with pytest.raises(DamagedError, match=reason):
        carp.Corpus.load(corpus, mmap=mmap)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY\x01\x00",
        b"\x93NUMPY\x03\x00" + bytes(200),
        b"\x93NUMPY\x01\x00\x76\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(128),
        b"\x93NUMPY\x01\x00\x76\x00{'descr': '<i4', 'fortran_order': False, 'shape': (2**40,), }".ljust(128),
        b"\x93NUMPY\x01\x00\x76\x00__import__('os').abort()".ljust(128),
    ],
)
def test_a_file_that_is_no_column_is_refused(corpus, content):
    (corpus / "user.npy").write_bytes(content)
    seal(corpus, "corpus")
    with pytest.raises(DamagedError, match=r"user\.npy: cannot be read"):
        carp.Corpus.load(corpus)


@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
def test_a_column_of_another_length_than_it_says_is_refused(corpus, mmap):
    with (corpus / "user.npy").open("ab") as file:
        file.write(bytes(4))
    seal(corpus, "corpus")
    with pytest.raises(DamagedError, match="its length is not what it says"):
        carp.Corpus.load(corpus, mmap=mmap)


def test_a_column_in_a_format_that_carp_does_not_write_is_refused(corpus):
    column = np.load(corpus / "user.npy")
    with (corpus / "user.npy").open("wb") as file:
        np.lib.format.write_array(file, column, version=(2, 0))
    seal(corpus, "corpus")
    with pytest.raises(DamagedError, match="numpy's format"):
        carp.Corpus.load(corpus)


def test_a_corpus_whose_facts_cannot_be_is_refused(corpus):
    about = json.loads((corpus / "corpus.json").read_bytes())
    rating, scale = "the highest rating is not a whole number above 1", "the range of the ratings is none"
    edits = [({"levels": "5"}, rating), ({"levels": 1}, rating), ({"levels": 4.5}, rating), ({"levels": True}, rating)]
    edits += [({"scale_range": [5, 1]}, scale), ({"scale_range": None}, "do not fit together")]
    for edit, reason in edits:
        (corpus / "corpus.json").write_text(json.dumps({**about, "facts": {**about["facts"], **edit}}))
        seal(corpus, "corpus")
        with pytest.raises(DamagedError, match=reason):
            carp.Corpus.load(corpus)


# ---- what was checked is what is used


def test_a_folder_that_is_replaced_while_it_is_read_is_read_as_it_was(folder):
    with opened_folder(folder, "thing") as opened:
        assert opened.read("a.txt") == b"content"
        with new_folder(folder, "thing", overwrite=True) as partial:
            write_bytes(partial / "a.txt", b"new")
        assert opened.read("deep/b.txt") == b"content", "the file is gone from its place, and is read all the same"
    with opened_folder(folder, "thing") as opened:
        assert opened.read("a.txt") == b"new"


def test_a_folder_that_is_replaced_while_it_is_opened_is_opened_again(folder, monkeypatch):
    """What was found in the old one, which may be half gone, tells nothing of the new one."""
    opened, asked = sealed_folders._from_handle, []

    def found_damaged(*given):
        asked.append(given)
        if len(asked) > 1:
            return opened(*given)
        folder.rename(folder.with_name("old"))
        shutil.copytree(folder.with_name("old"), folder)
        raise DamagedError("a file is missing")

    monkeypatch.setattr(sealed_folders, "_from_handle", found_damaged)
    check_folder(folder, "thing")
    assert len(asked) == 2
    (folder / "a.txt").unlink()
    with pytest.raises(DamagedError, match="missing"):
        check_folder(folder, "thing")
    assert len(asked) == 3


def test_a_file_that_is_altered_while_the_folder_is_open_is_noticed(folder):
    with opened_folder(folder, "thing") as opened:
        (folder / "a.txt").write_bytes(b"altered")
        with pytest.raises(DamagedError, match="differs from what was saved"):
            opened.read("a.txt")


def test_a_mapped_corpus_stays_what_it_was_when_another_takes_its_place(corpus):
    loaded = carp.Corpus.load(corpus)
    text, fingerprint = loaded.text(3), loaded.fingerprint
    carp.build_corpus(shop_reviews(people=10, seed=9), min_reviews=1).save(corpus, overwrite=True)
    del loaded.__dict__["fingerprint"]
    assert loaded.text(3) == text
    assert loaded.fingerprint == fingerprint, "computed again, from the columns that were opened"


@pytest.mark.parametrize("what", ["file", "folder", "manifest"])
def test_links_inside_a_folder_are_not_followed(folder, tmp_path, what):
    place = {"file": folder / "a.txt", "folder": folder / "deep", "manifest": folder / MANIFEST}[what]
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match=r"link|missing"):
        check_folder(folder, "thing")


def test_a_link_to_a_whole_folder_is_followed(folder, tmp_path):
    (tmp_path / "current").symlink_to(folder)
    check_folder(tmp_path / "current", "thing")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(folder):
    (folder / "a.txt").unlink()
    os.mkfifo(folder / "a.txt")
    with pytest.raises(DamagedError, match="missing"):
        check_folder(folder, "thing")


def test_a_folder_that_may_not_be_opened_is_told_as_such(folder, monkeypatch):
    real = os.open

    def refuse(path, *rest, **named):
        if str(path) == str(folder):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageError, match="cannot be opened"):
        check_folder(folder, "thing")


def test_what_lies_in_another_folder_of_the_same_place_is_no_file_of_the_opened_one(made, model, tmp_path, monkeypatch):
    """A model without dates is opened; before it is read, one with dates takes its place."""
    other = shutil.copytree(model, tmp_path / "other")
    for name in ("dates.safetensors", "guide.safetensors", "items.safetensors"):
        (model / name).unlink(missing_ok=True)
        (other / name).write_bytes(b"of another")
    seal(model, "model")
    seal(other, "model")
    opened = bundle.opened_folder

    @contextlib.contextmanager
    def then_replaced(*given):
        with opened(*given) as sealed:
            model.rename(tmp_path / "before")
            other.rename(model)
            yield sealed

    monkeypatch.setattr(bundle, "opened_folder", then_replaced)
    assert bundle.read_bundle(model).corpus.time is None


@pytest.mark.parametrize("name", ["dates.safetensors", "baseline.safetensors"])
def test_a_file_that_the_manifest_does_not_name_is_refused(model, name):
    (model / name).touch()
    manifest = json.loads((model / MANIFEST).read_text())
    manifest["files"].pop(name, None)
    (model / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DamagedError, match=f"does not name {name}"):
        carp.load(model, device="cpu")


def test_no_load_mixes_two_models_while_they_are_saved_in_turn(made, tmp_path):
    asked = mixed_loads.make_models(tmp_path, made / "model")
    saver = subprocess.Popen([sys.executable, "-c", mixed_loads.SAVING, *asked], stdout=subprocess.PIPE, text=True)
    assert saver.stdout
    try:
        assert saver.stdout.readline() == "ready\n"
        seen = {mixed_loads.loaded(tmp_path / "all") for _ in range(BUNDLES * 3)}
    finally:
        saver.kill()
        saver.wait()
        saver.stdout.close()
    assert seen <= set(mixed_loads.NAMES), "one model's facts or files with another's"


def test_hostile_bundles_are_refused_or_answer_in_numbers():
    first = random.randrange(10**6)
    report = hostile_bundles.run(range(first, first + BUNDLES))
    assert report["faults"] == [], f"python benchmarks/hostile_bundles.py --seed {first} --bundles {BUNDLES}"
    assert sum(report["counts"].values()) == BUNDLES
    if BUNDLES >= 40:  # of fewer, chance alone may leave hardly one to refuse
        assert report["counts"].get("refused", 0) > BUNDLES / 3
