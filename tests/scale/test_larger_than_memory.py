"""Corpora, models and catalogues larger than memory: the same answers, and little of them in memory at once."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from dataclasses import fields, replace

import numpy as np
import pytest
import safetensors.numpy
import torch

import carp
from carp.errors import DamagedError
from carp.kernels.cpu import ragged
from carp.kernels.cpu.ragged import Windows
from carp.models import side_room
from carp.models.side_room import unnamed_array
from carp.persist.bundle import read_bundle, write_bundle
from carp.reviews import training_documents as making
from carp.reviews.corpora import column_checks, string_column
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.documents import Documents, ReviewCut, make_documents, training_words
from carp.reviews.split import split_corpus
from carp.reviews.text.vocabulary import TextSettings
from carp.storage import block_sums, load_arrays, save_arrays
from carp.storage.array_files import mapped_arrays
from carp.training.fitted_corpus import fit_corpus

SMALL = {"epochs": 2, "dimension": 12, "filters": 8, "latent_size": 6, "viewpoints": 3, "max_words": 40}


@pytest.fixture(scope="module")
def corpus():
    return carp.build_corpus(carp.read_reviews(carp.make_shop(people=60, things=25, seed=2).frame()), min_reviews=1)


@pytest.fixture(scope="module")
def model(corpus, single_thread, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    carp.Recommender("carp", device="cpu", **SMALL).fit(corpus, progress=False).save(folder)
    return folder


@pytest.fixture
def on_disk(monkeypatch):
    """Everything that may be left on the disk is, and is made in many pieces."""
    monkeypatch.setattr(making, "WORDS_IN_MEMORY", 0)
    monkeypatch.setattr(making, "WORDS_AT_ONCE", 500)
    monkeypatch.setattr(ragged, "WORDS_AT_ONCE", 300)
    monkeypatch.setattr(block_sums, "LARGE", 1)
    monkeypatch.setattr(string_column, "ENTRIES_AT_ONCE", 1_000)
    monkeypatch.setattr(column_checks, "BYTES_AT_ONCE", 100_000)
    monkeypatch.setattr(side_room, "BYTES_IN_MEMORY", 0)


def same(one, other):
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(type(one)))


def peak(work):
    """Bytes of memory that were taken at once, files that the system maps left out."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# ---- documents


@pytest.mark.parametrize("cut", [None, ReviewCut(reviews=3, words=5)])
def test_documents_made_in_pieces_on_the_disk_are_those_of_all_words_at_once(corpus, cut, on_disk):
    split = split_corpus(corpus, seed=0)
    vocabulary = fit_corpus(corpus, split, TextSettings()).vocabulary
    seen = training_words(corpus, vocabulary, split.train)
    for owner, owners in ((corpus.user, len(corpus.users)), (corpus.item, len(corpus.items))):
        wanted = make_documents(*seen, owner, owners, max_words=60, cut=cut)
        found = making.training_documents(corpus, vocabulary, split.train, owner, owners, max_words=60, cut=cut)
        assert isinstance(found.words, np.memmap)
        assert same(found, wanted)


def test_an_owner_without_a_training_review_has_an_empty_document_on_the_disk_too(corpus, on_disk):
    vocabulary = fit_corpus(corpus, split_corpus(corpus, seed=0), TextSettings()).vocabulary
    few = np.arange(3)
    found = making.training_documents(corpus, vocabulary, few, corpus.user, len(corpus.users), max_words=60)
    assert len(found) == len(corpus.users)
    assert (found.lengths() > 0).sum() == len(np.unique(corpus.user[few]))


def test_making_documents_on_the_disk_takes_the_memory_of_a_piece(corpus, monkeypatch):
    split = split_corpus(corpus, seed=0)
    vocabulary = fit_corpus(corpus, split, TextSettings()).vocabulary

    def make():
        making.training_documents(corpus, vocabulary, split.train, corpus.user, len(corpus.users), max_words=300)

    at_once = peak(make)
    monkeypatch.setattr(making, "WORDS_IN_MEMORY", 0)
    monkeypatch.setattr(making, "WORDS_AT_ONCE", 500)
    assert peak(make) < at_once / 4


def test_windows_of_documents_on_the_disk_are_those_of_documents_in_memory(corpus, on_disk):
    fitted = fit_corpus(corpus, split_corpus(corpus, seed=0), TextSettings())
    documents = fitted.user_documents
    in_memory = Documents(*(np.array(getattr(documents, f.name), subok=False) for f in fields(Documents)))
    found, wanted = Windows.of(documents, 3), Windows.of(in_memory, 3)
    assert isinstance(found.neighbours, np.memmap)
    assert not isinstance(wanted.neighbours, np.memmap)
    assert same(found, wanted)


@pytest.mark.parametrize("name", ["carp", "deepconn"])
def test_training_on_documents_on_the_disk_ends_with_the_same_weights(corpus, name, on_disk, monkeypatch):
    settings = SMALL if name == "carp" else {"epochs": 1, "max_words": 40}
    mapped = carp.Recommender(name, device="cpu", **settings).fit(corpus, progress=False)
    assert isinstance(mapped.fitted_corpus.user_documents.words, np.memmap)
    monkeypatch.undo()
    plain = carp.Recommender(name, device="cpu", **settings).fit(corpus, progress=False)
    assert not isinstance(plain.fitted_corpus.user_documents.words, np.memmap)
    weights = plain.model.state_dict()
    assert all(torch.equal(tensor, weights[key]) for key, tensor in mapped.model.state_dict().items())


# ---- saved models


def test_arrays_are_written_as_safetensors_writes_them(tmp_path):
    rng = np.random.default_rng(0)
    kinds = [*("int64", "uint8", "float32", "int32", "float64", "int8"), "bool", "float16", "uint32", "int16"]
    arrays = {f"{name[::-1]}.ä": (9 * rng.random((3, 5))).astype(name) for name in kinds}
    arrays |= {"empty": np.zeros((0, 2), np.int32), "one": np.float64(3).reshape(()), "turned": arrays["46tni.ä"].T}
    save_arrays(tmp_path / "file", arrays)
    whole = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    assert (tmp_path / "file").read_bytes() == safetensors.numpy.save(whole, metadata={})


def test_mapped_arrays_are_those_that_are_read(model):
    for file in ("records.safetensors", "documents.safetensors", "model.safetensors"):
        with (model / file).open("rb") as opened:
            mapped = mapped_arrays(opened, model / file)
        read = load_arrays(model / file)
        assert mapped.keys() == read.keys()
        assert all(np.array_equal(mapped[name], read[name]) for name in read)
        assert all(mapped[name].dtype == read[name].dtype for name in read)


HEADERS = {
    "longer than the file": lambda facts: facts["b"].update(data_offsets=[12, 999]),
    "over each other": lambda facts: facts["b"].update(data_offsets=[0, 8]),
    "with a hole": lambda facts: facts["b"].update(data_offsets=[16, 24], shape=[2]),
    "backwards": lambda facts: facts["a"].update(data_offsets=[12, 0]),
    "of another length": lambda facts: facts["a"].update(shape=[4]),
    "of negative length": lambda facts: facts["a"].update(shape=[-1, -3]),
    "of half an entry": lambda facts: facts["a"].update(shape=[1.5]),
    "of true length": lambda facts: facts["a"].update(shape=[True, 3]),
    "of no kind": lambda facts: facts["a"].update(dtype="PICKLE"),
    "of a list of kinds": lambda facts: facts["a"].update(dtype=["I32"]),
    "without a place": lambda facts: facts["a"].pop("data_offsets"),
    "no facts": lambda facts: facts.update(a=3),
}


@pytest.mark.parametrize("edit", HEADERS.values(), ids=HEADERS)
def test_a_mapped_file_whose_header_lies_is_refused(tmp_path, edit):
    file = tmp_path / "file"
    save_arrays(file, {"a": np.arange(3, dtype=np.int32), "b": np.arange(2, dtype=np.int32)})
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    facts = json.loads(content[8 : 8 + size])
    edit(facts)
    header = json.dumps(facts).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + size :])
    with file.open("rb") as opened, pytest.raises(DamagedError, match="cannot be read"):
        mapped_arrays(opened, file)


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 40, (2).to_bytes(8, "little") + b"[]"])
def test_a_mapped_file_that_is_no_safetensors_file_is_refused(tmp_path, content):
    file = tmp_path / "file"
    file.write_bytes(content)
    with file.open("rb") as opened, pytest.raises(DamagedError, match="cannot be read"):
        mapped_arrays(opened, file)


def answers(recommender):
    people, things = list(recommender.fitted_corpus.users)[:5], list(recommender.fitted_corpus.items)[:5]
    pairs = [(person, thing) for person in people for thing in things]
    lists = [[(one.item, one.rating) for one in recommender.recommend(person, n=6)] for person in people]
    return list(recommender.predict(pairs)), lists, str(recommender.explain(people[0], things[0]))


def test_a_mapped_model_gives_the_same_answers(model, on_disk, monkeypatch):
    mapped = carp.load(model, device="cpu")
    assert isinstance(mapped.fitted_corpus.texts.data, np.memmap)
    assert isinstance(mapped.fitted_corpus.item_documents.words, np.memmap)
    found = answers(mapped)
    monkeypatch.undo()
    assert found == answers(carp.load(model, device="cpu"))


def test_a_mapped_model_stays_the_one_that_was_checked_when_its_folder_is_replaced(model, corpus, tmp_path, on_disk):
    folder = shutil.copytree(model, tmp_path / "model")
    opened = carp.load(folder, device="cpu")
    before = carp.load(model, device="cpu")
    carp.Recommender("bias", device="cpu").fit(corpus, progress=False).save(folder, overwrite=True)
    assert answers(opened) == answers(before)


def test_a_mapped_model_that_was_damaged_is_refused(model, tmp_path, on_disk):
    for file in ("records.safetensors", "documents.safetensors"):
        folder = shutil.copytree(model, tmp_path / file)
        content = bytearray((folder / file).read_bytes())
        content[-1] ^= 1
        (folder / file).write_bytes(content)
        with pytest.raises(DamagedError, match="differs from what was saved"):
            carp.load(folder, device="cpu")


def test_saving_and_opening_a_model_with_long_texts_takes_little_memory(model, tmp_path, on_disk):
    name, network, baseline, fitted, facts, _, guide, _ = read_bundle(model)
    longer = [text + " and so on" * 1_000 for text in fitted.texts]
    fitted = replace(fitted, texts=StringColumn.from_strings(longer))
    size = len(fitted.texts.data)
    facts = {key: facts[key] for key in facts if key not in ("model", "config", "levels", "max_words", "scale", "data")}
    facts.pop("made_with")

    def save():
        write_bundle(
            tmp_path / "long", name=name, model=network, baseline=baseline, fitted=fitted, facts=facts, guide=guide
        )

    assert peak(save) < size / 4
    assert peak(lambda: carp.load(tmp_path / "long", device="cpu")) < size / 4
    assert list(carp.load(tmp_path / "long", device="cpu").fitted_corpus.texts) == longer


# ---- catalogues


@pytest.mark.parametrize("kernels", ["1", "0"])
def test_sides_on_the_disk_are_scored_to_the_same_lists(model, kernels, monkeypatch):
    monkeypatch.setenv("CARP_NATIVE", kernels)
    wanted = answers(carp.load(model, device="cpu"))
    monkeypatch.setattr(side_room, "BYTES_IN_MEMORY", 0)
    files = []
    monkeypatch.setattr(side_room, "unnamed_array", lambda *given: files.append(unnamed_array(*given)) or files[-1])
    mapped = carp.load(model, device="cpu")
    assert answers(mapped) == wanted
    assert len(files) == 2, "the sides of all users, and those of all items"


def test_room_for_sides_beyond_memory_is_zero_and_not_in_memory(monkeypatch):
    like = torch.zeros(1, dtype=torch.float64)
    monkeypatch.setattr(side_room, "BYTES_IN_MEMORY", 1 << 20)
    assert peak(lambda: side_room.room_for_sides(like, 1_000, 20, 20)) < 1 << 18
    room = side_room.room_for_sides(like, 1_000, 20, 20)
    assert room.dtype == torch.float64
    assert room.shape == (1_000, 20, 20)
    assert not room.any()
