"""Large files are summed in blocks, and texts are checked when they are read: none is given out unchecked."""

from __future__ import annotations

import json
import pickle
import shutil

import numpy as np
import pytest

import carp
from carp.cli.entry import main
from carp.errors import DamagedError
from carp.reviews.corpora import column_checks
from carp.reviews.corpora.column_checks import ColumnFault, check_strings
from carp.reviews.corpora.late_texts import LateTexts
from carp.reviews.corpora.string_column import StringColumn
from carp.serve.answer_service import AnswerService
from carp.storage import MANIFEST, block_sums, check_folder, check_signed, load_arrays, save_arrays, seal, sha256
from carp.storage.array_files import mapped_arrays, place_in
from carp.storage.block_sums import CheckedBlocks, in_threads

pytestmark = pytest.mark.usefixtures("single_thread", "all_files_are_large")

BLOCK = 4096
RECORDS, DOCUMENTS = "records.safetensors", "documents.safetensors"
DIFFERS = "differs from what was saved"


@pytest.fixture(scope="module")
def all_files_are_large():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_sums, "LARGE", 1)
        patch.setattr(block_sums, "LEAST_BLOCK", BLOCK)
        yield


@pytest.fixture(scope="module")
def whole(all_files_are_large, saved, tmp_path_factory):
    records = carp.make_shop(people=40, things=15, reviews_per_person=6, seed=2).records()
    for record in records:
        record["user"] += " of a family with a long name" * 10  # ids lie after the texts, and fill blocks of their own
    for record in records[::3]:
        record["text"] += " Schön, eine Röhre für 5 €."
    file = tmp_path_factory.mktemp("shop") / "reviews.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    reviews = carp.read_reviews(file)
    return saved(carp.Recommender("bias", device="cpu", min_reviews=1).fit(reviews, progress=False))


@pytest.fixture
def model(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def texts_of(model):
    return carp.load(model, device="cpu").fitted_corpus.texts


def place_of_texts(model):
    """Where the texts begin and end in the file of the records."""
    with (model / RECORDS).open("rb") as file:
        column = mapped_arrays(file, model / RECORDS)["texts_bytes"]
    return place_in(column), place_in(column) + len(column)


def flip(file, place):
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def edit(model, column, change):
    """Change a column of the records and seal the model again, as somebody with intent would."""
    arrays = {name: array.copy() for name, array in load_arrays(model / RECORDS).items()}
    changed = change(arrays.pop(column))
    save_arrays(model / RECORDS, arrays if changed is None else {**arrays, column: changed})
    seal(model, "model")


# ---- sums of blocks


def test_the_manifest_has_the_sum_of_every_block_and_of_the_whole(model):
    for name, facts in json.loads((model / MANIFEST).read_text())["files"].items():
        content, block = (model / name).read_bytes(), facts.get("blocks")
        assert facts["sha256"] == sha256(model / name)
        if content:
            pieces = [content[at : at + block["bytes"]] for at in range(0, len(content), block["bytes"])]
            assert block["sha256"] == "".join(block_sums.hashlib.sha256(piece).hexdigest() for piece in pieces)


def test_small_files_have_no_sums_of_blocks(model, monkeypatch):
    monkeypatch.setattr(block_sums, "LARGE", 1 << 28)
    seal(model, "model")
    assert not any("blocks" in facts for facts in json.loads((model / MANIFEST).read_text())["files"].values())


def test_a_file_has_at_most_so_many_blocks(monkeypatch):
    monkeypatch.setattr(block_sums, "LEAST_BLOCK", 1 << 20)
    for size in (1, 10**9, 14 * 10**9, 10**12):
        assert -(-size // block_sums.block_size(size)) <= block_sums.MOST_BLOCKS


def test_damage_in_any_block_outside_of_the_texts_is_refused_on_opening(model):
    begin, end = place_of_texts(model)
    before = {name: (model / name).read_bytes() for name in (RECORDS, DOCUMENTS)}
    assert len(before[RECORDS]) > end + 2 * BLOCK, "or the texts are the last of the blocks"
    for name, content in before.items():
        for place in [*range(0, len(content), BLOCK), len(content) - 1]:
            if name == DOCUMENTS or not begin <= place < end:
                flip(model / name, place)
                with pytest.raises(DamagedError, match=DIFFERS):
                    carp.load(model, device="cpu")
                (model / name).write_bytes(content)
    carp.load(model, device="cpu")


BLOCKS = {
    "a list": lambda blocks: [],
    "a number": lambda blocks: 3,
    "of no length": lambda blocks: {**blocks, "bytes": 0},
    "of negative length": lambda blocks: {**blocks, "bytes": -BLOCK},
    "of half a block": lambda blocks: {**blocks, "bytes": BLOCK / 2},
    "of an odd length": lambda blocks: {**blocks, "bytes": BLOCK + 1},
    "of another length": lambda blocks: {**blocks, "bytes": 1 << 40},
    "with a sum less": lambda blocks: {**blocks, "sha256": blocks["sha256"][64:]},
    "without sums": lambda blocks: {"bytes": BLOCK},
    "with sums that are numbers": lambda blocks: {**blocks, "sha256": [1, 2]},
}


@pytest.mark.parametrize("change", BLOCKS.values(), ids=BLOCKS)
def test_sums_of_blocks_that_cannot_be_any_are_refused(model, change):
    manifest = json.loads((model / MANIFEST).read_text())
    facts = manifest["files"][RECORDS]
    facts["blocks"] = change(facts["blocks"])
    (model / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DamagedError, match=r"the manifest is damaged|differs from what was saved"):
        carp.load(model, device="cpu")


def test_a_model_without_sums_of_blocks_is_opened_and_checked_as_a_whole(model):
    manifest = json.loads((model / MANIFEST).read_text())
    for facts in manifest["files"].values():
        facts.pop("blocks", None)
    (model / MANIFEST).write_text(json.dumps(manifest))
    assert not isinstance(texts_of(model), LateTexts)
    flip(model / RECORDS, place_of_texts(model)[0] + 3 * BLOCK)
    with pytest.raises(DamagedError, match=DIFFERS):
        carp.load(model, device="cpu")


def test_the_error_of_a_piece_is_raised_from_threads():
    done = []

    def work(piece):
        done.append(piece)
        if piece == 3:
            raise DamagedError("this one", fix="none")

    with pytest.raises(DamagedError, match="this one"):
        in_threads(work, range(6))
    assert 3 in done


# ---- texts


def test_opening_and_predicting_read_no_text(model, monkeypatch):
    places = []
    check = CheckedBlocks.check
    monkeypatch.setattr(CheckedBlocks, "check", lambda *given: places.append(given[1:]) or check(*given))
    recommender = carp.load(model, device="cpu")
    recommender.predict([(recommender.fitted_corpus.users[0], recommender.fitted_corpus.items[0])])
    text = recommender.fitted_corpus.texts[5]
    assert places[-1][1] - places[-1][0] == len(text.encode())
    begin, end = place_of_texts(model)
    content = bytearray((model / RECORDS).read_bytes())
    content[begin + BLOCK : end - BLOCK] = bytes(end - begin - 2 * BLOCK)
    (model / RECORDS).write_bytes(content)
    carp.load(model, device="cpu").predict([(recommender.fitted_corpus.users[0], recommender.fitted_corpus.items[0])])


def test_late_texts_are_the_texts(model, monkeypatch):
    late = texts_of(model)
    assert isinstance(late, LateTexts)
    monkeypatch.setattr(block_sums, "LARGE", 1 << 28)
    plain = texts_of(model)
    assert not isinstance(plain, LateTexts)
    wanted = list(plain)
    assert any(not text.isascii() for text in wanted), "or characters are the same as bytes"
    assert list(late) == wanted
    assert [late[place] for place in range(len(late))] == wanted
    assert np.array_equal(late.data, plain.data)
    assert list(pickle.loads(pickle.dumps(late))) == wanted
    with pytest.raises(IndexError):
        late[len(late)]


READINGS = {
    "one": lambda texts, place: texts[place],
    "all, one by one": lambda texts, place: list(texts),
    "all at once": lambda texts, place: texts.data,
    "for another process": lambda texts, place: pickle.dumps(texts),
}


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
def test_a_damaged_text_is_refused_when_it_is_read(model, reading):
    begin, _ = place_of_texts(model)
    flip(model / RECORDS, begin + 3 * BLOCK)
    texts = texts_of(model)
    place = int(np.searchsorted(texts.offsets, 3 * BLOCK, side="right")) - 1
    for _ in range(2):  # a second time too
        with pytest.raises(DamagedError, match=DIFFERS):
            reading(texts, place)
    assert texts[0]


def test_a_text_that_was_cut_off_before_its_block_was_checked_is_refused_and_ends_no_process(model):
    texts, (begin, _) = texts_of(model), place_of_texts(model)
    place = int(np.searchsorted(texts.offsets, 4 * BLOCK))
    with (model / RECORDS).open("r+b") as file:
        file.truncate(begin + 2 * BLOCK)
    with pytest.raises(DamagedError, match=DIFFERS):
        _ = texts[place]


def test_damaged_texts_are_found_by_whoever_checks_everything(model, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    assert main(["sign", str(model), "--key-file", str(key)]) == 0
    check_folder(model, "model")
    check_signed(model, "model", key)
    flip(model / RECORDS, place_of_texts(model)[0] + 3 * BLOCK)
    with pytest.raises(DamagedError, match=DIFFERS):
        check_folder(model, "model")
    with pytest.raises(DamagedError, match=DIFFERS):
        check_signed(model, "model", key)


def test_the_signature_covers_the_sums_of_blocks(model, tmp_path):
    """Text and its block's sum changed together are found by the signature."""
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    assert main(["sign", str(model), "--key-file", str(key)]) == 0
    carp.load(model, device="cpu", key_file=key)
    signature = (model / "signature.json").read_bytes()
    flip(model / RECORDS, place_of_texts(model)[0] + 3 * BLOCK)
    seal(model, "model")
    (model / "signature.json").write_bytes(signature)
    with pytest.raises(DamagedError, match="not signed with this key"):
        carp.load(model, device="cpu", key_file=key)


def test_a_service_refuses_damaged_texts_before_it_answers(model):
    flip(model / RECORDS, place_of_texts(model)[0] + 3 * BLOCK)
    with pytest.raises(DamagedError, match=DIFFERS):
        AnswerService(carp.load(model, device="cpu"))


def test_an_update_of_damaged_texts_is_refused_and_changes_nothing(model, tmp_path, capsys):
    flip(model / RECORDS, place_of_texts(model)[0] + 3 * BLOCK)
    before = {file.name: file.read_bytes() for file in model.iterdir()}
    new = tmp_path / "new.jsonl"
    new.write_text(json.dumps({"user": "somebody new", "item": "something new", "rating": 4, "text": "fine drum"}))
    assert main(["update", str(model), str(new), "--device", "cpu"]) == 1
    assert DIFFERS in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before


# ---- texts of somebody with intent


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
def test_texts_that_are_not_utf8_are_refused_when_they_are_read(model, reading):
    edit(model, "texts_bytes", lambda content: np.full_like(content, 0xFF))
    with pytest.raises(DamagedError, match="texts are not UTF-8"):
        reading(texts_of(model), 5)


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
def test_a_text_of_another_length_than_its_words_were_checked_by_is_refused(model, reading):
    def shorter(content):  # two letters of a byte become one of two bytes
        content[:2] = np.frombuffer("ä".encode(), np.uint8)
        return content

    edit(model, "texts_bytes", shorter)
    with pytest.raises(DamagedError, match="as many characters"):
        reading(texts_of(model), 0)


LENGTHS = {
    "below nothing": (lambda lengths: lengths * 0 - 1, "more than the texts can have"),
    "more than bytes": (lambda lengths: lengths + 1000, "more than the texts can have"),
    "of another kind": (lambda lengths: lengths.astype(np.int64), "texts_characters holds int64"),
    "one less": (lambda lengths: lengths[1:], "texts_characters has"),
}


@pytest.mark.parametrize(("change", "reason"), LENGTHS.values(), ids=LENGTHS)
def test_lengths_of_texts_that_cannot_be_are_refused_on_opening(model, change, reason):
    edit(model, "texts_characters", change)
    with pytest.raises(DamagedError, match=reason):
        carp.load(model, device="cpu")


def test_places_of_texts_that_fall_are_refused_on_opening(model):
    edit(model, "texts_offsets", lambda offsets: np.concatenate([offsets[:1], offsets[:0:-1]]))
    with pytest.raises(DamagedError, match="offsets of texts"):
        carp.load(model, device="cpu")


def test_texts_without_their_lengths_are_checked_on_opening(model):
    edit(model, "texts_characters", lambda lengths: None)
    assert not isinstance(texts_of(model), LateTexts)
    edit(model, "texts_bytes", lambda content: np.full_like(content, 0xFF))
    with pytest.raises(DamagedError, match="texts are not UTF-8"):
        carp.load(model, device="cpu")


def test_a_review_that_goes_on_into_the_next_document_is_refused(model):
    """What holds of a review is looked up once for words that stand together, but for each document anew."""
    for side in ("user", "item"):
        arrays = {name: array.copy() for name, array in load_arrays(model / DOCUMENTS).items()}
        review, edge = arrays[f"{side}.review"], int(arrays[f"{side}.offsets"][1])
        kept, review[edge] = int(review[edge]), review[edge - 1]
        save_arrays(model / DOCUMENTS, arrays)
        seal(model, "model")
        with pytest.raises(DamagedError, match=rf"{side}\.review names reviews of others"):
            carp.load(model, device="cpu")
        review[edge] = kept
        save_arrays(model / DOCUMENTS, arrays)


# ---- many strings


@pytest.mark.parametrize("step", [column_checks.STEP, np.uint64(0)], ids=["numbers that differ", "numbers that do not"])
def test_many_strings_are_distinct_or_one_occurs_twice(step, monkeypatch):
    monkeypatch.setattr(column_checks, "MANY", 5)
    monkeypatch.setattr(column_checks, "STEP", step)
    strings = [f"{'x' * (number % 7)}{number}" for number in range(500)] + ["", "a\0", "a", "\0a"]
    check_strings("users", StringColumn.from_strings(strings), distinct=True)
    for again in (strings[0], strings[-1], ""):
        with pytest.raises(ColumnFault, match="one of users occurs twice"):
            check_strings("users", StringColumn.from_strings([*strings, again]), distinct=True)
