"""Whatever is given to a command, it ends with one clear message, the right exit code, and nothing lost."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import carp
from carp.cli import entry as cli
from carp.errors import CarpError
from carp.reviews.shop.made_up_shop import make_shop
from carp.storage import holding

SOURCE = Path(carp.__file__).parents[1]
TINY = ["dimension=8", "filters=6", "latent_size=4", "viewpoints=2", "epochs=1"]
TINY_OPTIONS = ["--model", "carp", *(part for setting in TINY for part in ("--set", setting))]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> SimpleNamespace:
    """Reviews, a corpus, and a model of each kind; no test may change them."""
    folder = tmp_path_factory.mktemp("made")
    records = make_shop(people=30, things=15, reviews_per_person=8, seed=1).records()
    lines = [json.dumps(record) + "\n" for record in records]
    paths = {name: folder / name for name in ("reviews", "corpus", "model", "bias")}
    paths["reviews"].write_text("".join(lines))
    assert cli.main(["prepare", str(paths["reviews"]), "--out", str(paths["corpus"])]) == 0
    train = ["train", str(paths["corpus"]), "--quiet", "--out"]
    assert cli.main([*train, str(paths["model"]), *TINY_OPTIONS]) == 0
    assert cli.main([*train, str(paths["bias"]), "--model", "bias"]) == 0
    return SimpleNamespace(folder=folder, records=records, lines=lines, **paths)


def sums(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def fails(capsys, made, tmp_path):
    """Runs a command that must fail with one message in the usual form, leaving all files as they were."""

    def call(code: int, *arguments: object) -> str:
        before = sums(made.folder), sums(tmp_path)
        capsys.readouterr()
        got = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert got == code, captured.err
        assert captured.out == ""
        message = captured.err.strip()
        assert len(message.splitlines()) == 1, message
        assert message.startswith("carp")
        assert "Fix: " in message
        assert "bug in carp" not in message
        assert (sums(made.folder), sums(tmp_path)) == before
        return message

    return call


# ---- reviews that cannot be prepared

GOOD = {"user": "u", "item": "i", "rating": 4, "text": "light and solid"}


def spoiled(**fields: object) -> bytes:
    return "".join(json.dumps({**GOOD, "user": f"u{n}", **fields}) + "\n" for n in range(9)).encode()


BAD_FILES = {
    "empty": (b"", "the file is empty"),
    "only blank lines": (b"\n\n\n", "no content"),
    "no valid line": (b"{broken\n" * 5, "none of the 5 records can be used"),
    "unknown format": (b"once upon a time\nthere was a shop\n", "the format is not recognised"),
    "one user only": (
        "".join(json.dumps({**GOOD, "item": f"i{n}", "text": f"light solid {n}"}) + "\n" for n in range(9)).encode(),
        "",
    ),
    "ratings out of range": (spoiled(rating=400), "--rating-range"),
    "ratings no numbers": (spoiled(rating="many"), "rating is not a number"),
    "missing column": (b"user,item,rating\nu,i,4\n", "no column is recognised as text"),
    "null texts": (spoiled(text=None), "text is missing"),
    "not UTF-8": (b'{"user": "u", "item": "i", "rating": 4, "text": "\xff\xfe"}\n', "UTF-8"),
    "only a text of ten megabytes": (spoiled(text="x" * 10_000_000)[:10_000_100] + b'"}\n', "line is longer"),
    "truncated gzip": (gzip.compress(spoiled(text="light and solid " * 400))[:-40], "breaks off"),
    "an archive": (b"PK\x03\x04" + b"0" * 100, "zip"),
    "nothing left": (spoiled(), "lower --min-reviews"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_useless_file_is_refused_by_name_and_leaves_no_corpus(fails, tmp_path, case):
    content, words = BAD_FILES[case]
    path = tmp_path / "given.bin"
    path.write_bytes(content)
    message = fails(1, "prepare", path, "--out", tmp_path / "corpus")
    assert str(path) in message
    assert words in message


def test_reviews_of_one_user_have_nothing_to_compare(fails, tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_bytes(BAD_FILES["one user only"][0])
    message = fails(1, "prepare", path, "--out", tmp_path / "corpus", "--min-reviews", "1")
    assert "the same user, 'u'" in message


def test_a_missing_file_and_a_folder_are_refused(fails, made, tmp_path):
    assert "there is no such file" in fails(1, "prepare", tmp_path / "none.json", "--out", tmp_path / "corpus")
    assert "the folder has no files" in fails(1, "prepare", tmp_path, "--out", tmp_path / "corpus")


def test_texts_without_a_usable_word_leave_no_corpus(fails, tmp_path):
    path = tmp_path / "same.jsonl"
    rows = [{**GOOD, "user": f"u{u}", "item": f"i{i}"} for u in range(6) for i in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert str(path) in fails(1, "prepare", path, "--out", tmp_path / "corpus")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "amazn"], "did you mean amazon?"),
        (["--column", "usr=user"], "did you mean user?"),
        (["--column", "user"], "--column"),
        (["--rating-range", "5", "1"], "not a range of ratings"),
        (["--rating-range", "1", "many"], "--rating-range"),
        (["--min-reviews", "0"], "--min-reviews"),
        (["--colour"], "No such option"),
    ],
)
def test_wrong_options_of_prepare_are_wrong_use(fails, made, tmp_path, options, words):
    assert words in fails(2, "prepare", made.reviews, "--out", tmp_path / "corpus", *options)


def test_a_command_that_is_not_there_is_answered_by_the_nearest_one(fails):
    assert "Did you mean 'train'? Fix:" in fails(2, "trian")


def test_bad_records_among_good_ones_are_listed_and_the_rest_is_used(made, tmp_path, capsys):
    path = tmp_path / "mixed.jsonl"
    huge = json.dumps({**GOOD, "text": "x" * 10_000_000}) + "\n"
    nothing = json.dumps({**GOOD, "text": None}) + "\n"
    path.write_bytes("".join([huge, nothing, *made.lines]).encode() + b'{"user": "\xff"}\n')
    assert cli.main(["prepare", str(path), "--out", str(tmp_path / "corpus"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["statistics"]["ratings"] == len(made.lines)
    assert document["rejected"] == 3
    rejects = (tmp_path / "corpus" / "rejects.jsonl").read_text().splitlines()[1:]
    assert [json.loads(line)["line"] for line in rejects] == [1, 2, len(made.lines) + 3]


# ---- outputs that exist, and inputs of the wrong kind


def test_an_output_that_exists_is_refused_before_any_work(fails, made, tmp_path):
    absent = tmp_path / "absent.json"
    assert "already exists" in fails(2, "prepare", absent, "--out", made.corpus)
    assert "already exists" in fails(2, "train", tmp_path / "absent", "--out", made.model)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "letter.txt").write_text("dear")
    for command in ("prepare", "train"):
        assert "not made by carp" in fails(2, command, absent, "--out", tmp_path / "own", "--overwrite")


def test_overwrite_never_puts_one_kind_in_the_place_of_another(fails, made):
    assert "this is a corpus" in fails(2, "train", made.corpus, "--out", made.corpus, "--overwrite")
    assert "this is a model" in fails(2, "prepare", made.reviews, "--out", made.model, "--overwrite")


def test_a_file_in_the_way_of_a_folder_is_refused(fails, made, tmp_path):
    (tmp_path / "file").write_text("here first")
    for options in ([], ["--overwrite"]):
        fails(2 if not options else 1, "prepare", made.reviews, "--out", tmp_path / "file", *options)
    assert "this is a file" in fails(1, "prepare", made.reviews, "--out", tmp_path / "file" / "corpus")


def test_a_folder_in_the_way_of_a_file_is_refused(fails, made, tmp_path):
    (tmp_path / "folder").mkdir()
    told = fails(2, "explain", made.model, "person-001", "thing-001", "--out", tmp_path / "folder", "--overwrite")
    assert "folder" in told
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_corpus_is_no_model_and_a_model_no_corpus(fails, made, tmp_path):
    assert "this is a model, not a corpus" in fails(2, "train", made.model, "--out", tmp_path / "m")
    assert "not a prepared corpus" in fails(2, "train", made.reviews, "--out", tmp_path / "m")
    for words in (["evaluate"], ["predict", "--user", "u", "--item", "i"], ["recommend"], ["explain"]):
        rest = {"recommend": ["u"], "explain": ["u", "i"]}.get(words[0], [])
        assert "this is a corpus, not a model" in fails(2, words[0], made.corpus, *words[1:], *rest)
    assert "there is no model here" in fails(1, "evaluate", tmp_path / "none")
    assert "there is no corpus here" in fails(1, "train", tmp_path / "none", "--out", tmp_path / "m")


def test_every_damaged_file_of_a_bundle_is_named(fails, made, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(made.model, copy)
    for file in sorted(copy.iterdir()):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        assert str(file) in fails(1, "evaluate", copy)
        file.unlink()
        assert file.name in fails(1, "evaluate", copy)
        file.write_bytes(whole)
    assert cli.main(["evaluate", str(copy)]) == 0


def test_a_damaged_corpus_is_refused(fails, made, tmp_path):
    copy = tmp_path / "corpus"
    shutil.copytree(made.corpus, copy)
    (copy / "rating.npy").write_bytes((copy / "user.npy").read_bytes())
    assert "rating.npy" in fails(1, "train", copy, "--out", tmp_path / "m")


# ---- training


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "carpp"], "did you mean carp?"),
        (["--set", "lerning_rate=1"], "did you mean learning_rate?"),
        (["--set", "epochs=soon"], "epochs cannot be 'soon'"),
        (["--set", "epochs=0"], "epochs cannot be 0"),
        (["--set", "batch_size=0"], "batch_size cannot be 0"),
        (["--set", "learning_rate=nan"], "learning_rate cannot be nan"),
        (["--set", "dropout=2"], "dropout cannot be 2"),
        (["--set", "routing=sideways"], "choose one of"),
        (["--set", "epochs"], "key=value"),
        (["--set", "seed=1"], "give --seed 1"),
        (["--set", "self=1"], "no setting 'self'"),
        (["--set", "min_reviews=2"], "carp prepare"),
        (["--device", "abacus"], "there is no device 'abacus'"),
        (["--device", "meta"], "there is no device 'meta'"),
        (["--device", "cpu:0"], "there is no device 'cpu:0'"),
        (["--device", "cuda:-1"], "there is no device 'cuda:-1'"),
        (["--device", "cuda:"], "there is no device 'cuda:'"),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_wrong_settings_are_wrong_use_and_leave_nothing(fails, made, tmp_path, options, words):
    assert words in fails(2, "train", made.corpus, "--out", tmp_path / "m", "--model", "carp", *options)


def test_a_gpu_that_is_not_there_is_wrong_use(fails, made, tmp_path, monkeypatch):
    import torch

    words = ["train", made.corpus, "--out", tmp_path / "m", "--device"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("cuda", "cuda:0"):
        assert "--device cpu" in fails(2, *words, name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    message = fails(2, *words, "cuda:2")
    assert "there is no GPU 2" in message
    assert "cuda:0 to cuda:1" in message


def test_an_output_set_aside_by_a_killed_process_is_refused_before_any_work(made, tmp_path, capsys):
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    shutil.copytree(made.bias, tmp_path / f".m.{finished.pid}.replaced")
    assert cli.main(["train", str(tmp_path / "absent"), "--out", str(tmp_path / "m")]) == 2
    assert "already exists" in capsys.readouterr().err
    assert sums(tmp_path / "m") == sums(made.bias)


def test_a_split_that_cannot_be_used_is_refused(fails, made, tmp_path):
    split = tmp_path / "split.csv"
    split.write_text("user,item,part\n")
    words = ["train", made.corpus, "--out", tmp_path / "m", "--model", "bias", "--split"]
    assert "split are missing" in fails(1, *words, split)
    split.write_text("user,item,split\nperson-001,thing-001,sometimes\n")
    assert f"{split}, line 2" in fails(1, *words, split)
    assert "cannot be read" in fails(1, *words, tmp_path / "none.csv")


def test_a_checkpoint_of_another_training_is_not_continued(fails, made, tmp_path, monkeypatch):
    from carp.recommender import Recommender

    def full_disk(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "m"))

    words = ["train", made.corpus, "--out", tmp_path / "m", "--quiet", *TINY_OPTIONS]
    with monkeypatch.context() as patch:
        patch.setattr(Recommender, "save", full_disk)
        assert cli.main([*map(str, words)]) == 1
    assert (tmp_path / "m.training" / "checkpoint.json").is_file()
    assert "of another training" in fails(2, *words, "--resume", "--seed", "9")
    assert cli.main([*map(str, words), "--resume"]) == 0


@pytest.mark.parametrize("command", ["train", "prepare"])
def test_who_overwrites_what_another_is_writing_is_told_who_it_is_and_removes_nothing(fails, made, tmp_path, command):
    out = tmp_path / "out"
    (tmp_path / "out.training").mkdir()
    (tmp_path / "out.training" / "checkpoint.json").write_text("of a training at work")
    words = {"train": [made.corpus, *TINY_OPTIONS], "prepare": [made.reviews]}[command]

    with ThreadPoolExecutor(1) as other, contextlib.ExitStack() as stack:
        other.submit(stack.enter_context, holding(out)).result()
        said = fails(2, command, *words, "--out", out, "--overwrite")
        other.submit(stack.close).result()
    assert "another process is writing here" in said
    assert f"process {os.getpid()}" in said


# ---- questions about people and things


def test_unknown_people_and_things_are_named_with_the_nearest_known(fails, made):
    assert "'person-0001'" in fails(1, "explain", made.model, "person-0001", "thing-001")
    assert "did you mean thing-0" in fails(1, "explain", made.model, "person-001", "thing-01")
    assert str(made.model) in fails(1, "profile", made.model, "--user", "nobody at all")


def test_a_model_without_reasons_says_so(fails, made, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("light and solid")
    assert "without reasons" in fails(2, "explain", made.bias, "person-001", "thing-001")
    assert "newcomer" in fails(2, "recommend", made.bias, "-", "--reviews", mine)


def test_a_newcomer_needs_words_the_model_can_read(fails, made, tmp_path):
    mine = tmp_path / "mine.txt"
    ask = ["recommend", made.model, "-", "--reviews", mine]
    assert "there is no such file" in fails(1, *ask)
    mine.write_text(" \n\n ")
    assert "no words in it" in fails(1, *ask)
    mine.write_bytes(b"fine\nbad \xff")
    assert f"{mine}, line 2" in fails(1, *ask)
    mine.write_text("zzyzx qwfp")
    assert "no word the model knows" in fails(1, *ask)
    mine.write_text("x" * 10_000_001)
    assert "more than 10 MB" in fails(1, *ask)
    assert "--reviews" in fails(2, "recommend", made.model, "-")
    assert "newcomer" in fails(2, "recommend", made.model, "person-001", "--reviews", mine)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"ann,lamp,5\n", "the first line looks like a pair and not like a header: ann, lamp, 5"),
        (b"user,thing\na,b\n", "the column item is missing; the columns are user, thing"),
        (b"user,item\n", "no pairs"),
        (b"user,item\na,b\n\na\n", ", line 4: 1 fields where the header has 2"),
        (b"user,item\na,b\n ,c\n", ", line 3: the user is empty"),
        (b'user,item\na,"b\n', ", line 2: the row cannot be read"),
        (b"user,item\na,b\na,\xff\n", ", line 3: the row cannot be read (not UTF-8)"),
        (b"user,item,user\na,b,c\n", "'user' is in the header twice"),
    ],
)
def test_a_bad_file_of_pairs_is_refused_by_line_and_nothing_is_written(fails, made, tmp_path, content, words):
    pairs = tmp_path / "pairs.csv"
    pairs.write_bytes(content)
    assert words in fails(1, "predict", made.bias, pairs, "--out", tmp_path / "out.csv")


def test_missing_pairs_and_unwritable_places_are_refused(fails, made, tmp_path):
    assert "there is no such file" in fails(1, "predict", made.bias, tmp_path / "none.csv")
    assert "the folder has no files" in fails(1, "predict", made.bias, tmp_path)
    assert "which pairs" in fails(2, "predict", made.bias)
    assert "which pairs" in fails(2, "predict", made.bias, tmp_path / "p.csv", "--user", "u", "--item", "i")


# ---- the machine refuses


def test_a_full_disk_while_saving_leaves_the_old_result(fails, made, tmp_path, monkeypatch):
    (tmp_path / "pairs.csv").write_text("user,item\nperson-001,thing-001\n")
    (tmp_path / "out.csv").write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    no_space = "no space left"
    assert no_space in fails(1, "prepare", made.reviews, "--out", made.corpus, "--overwrite")
    assert no_space in fails(
        1, "predict", made.bias, tmp_path / "pairs.csv", "--out", tmp_path / "out.csv", "--overwrite"
    )
    page = tmp_path / "page.html"
    assert no_space in fails(1, "explain", made.model, "person-001", "thing-001", "--out", page)


def test_a_disk_that_is_really_full_keeps_the_old_corpus(made, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    size = sum(path.stat().st_size for path in made.corpus.iterdir()) // 1000 + 200
    private = ["unshare", *(["-m"] if os.geteuid() == 0 else ["-r", "-m"]), "sh", "-c"]
    mount = f"mount -t tmpfs -o size={size}k none '{small}'"
    if not shutil.which("unshare") or subprocess.run([*private, mount], capture_output=True).returncode:
        pytest.skip("a small disk of its own cannot be mounted here")
    script = f"""{mount} && cp -r '{made.corpus}' '{small}/corpus' &&
        '{sys.executable}' -m carp prepare '{made.reviews}' --out '{small}/corpus' --min-reviews 6 --overwrite
        echo "exit code $?"; diff -r '{made.corpus}' '{small}/corpus' && ls -A '{small}'"""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    found = subprocess.run([*private, script], capture_output=True, text=True, env=environment, timeout=600)
    assert found.stdout == "exit code 1\ncorpus\n"
    assert "no space left" in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_standard_output_on_a_full_disk_is_a_failure_with_words():
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with Path("/dev/full").open("w") as full:
        environment = os.environ | {"PYTHONPATH": str(SOURCE)}
        words = [sys.executable, "-m", "carp", "--version"]
        found = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, timeout=600)
    assert found.returncode == 1
    assert found.stderr.startswith("carp: standard output: there is no space left")
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("closed", "given", "code", "told"),
    [
        (">&-", "--version", 0, ""),
        ("2>&-", "no-such-command", 2, ""),
        ("<&-", "prepare - --out nowhere", 1, "carp: standard input: the file is empty"),
    ],
)
def test_a_stream_that_is_closed_leads_nowhere(closed, given, code, told, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    command = f"'{sys.executable}' -m carp {given} {closed}"
    found = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=600
    )
    assert (found.returncode, found.stdout) == (code, "")
    assert found.stderr.startswith(told)
    assert len(found.stderr.splitlines()) == (1 if told else 0)


def test_memory_interrupts_and_refusals_are_told_in_words():
    cases: list[tuple[BaseException, str]] = [
        (MemoryError(), "memory"),
        (KeyboardInterrupt(), "interrupted"),
        (PermissionError(errno.EACCES, "denied", "/place"), "/place: writing is not allowed"),
        (OSError(errno.EIO, "I/O error", "/place"), "/place: the disk refused (I/O error)"),
        (CarpError("it broke", where="here", fix="glue it"), "carp: here: it broke. Fix: glue it."),
    ]
    for error, words in cases:
        message, code = cli._last_words(error)
        assert words in message
        assert code == 1


def test_what_nobody_foresaw_is_called_a_bug_in_one_line_and_shown_only_on_demand(capsys, made, monkeypatch):
    def surprise(_: Path) -> None:
        raise ZeroDivisionError("division by zero\nand more")

    monkeypatch.setattr(carp, "load", surprise)
    monkeypatch.delenv("CARP_DEBUG", raising=False)
    assert cli.main(["evaluate", str(made.model)]) == 1
    message = capsys.readouterr().err
    assert "bug in carp (ZeroDivisionError: division by zero)" in message
    assert f"{Path(__file__).name}:" in message
    assert len(message.splitlines()) == 1
    monkeypatch.setenv("CARP_DEBUG", "1")
    assert cli.main(["evaluate", str(made.model)]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["dance"], ["train"], ["train", "c"], ["explain", "m", "u"], ["recommend", "m", "u", "-n", "0"]]
)
def test_wrong_use_is_told_in_one_line(fails, words):
    assert "--help" in fails(2, *words)


def test_an_id_that_begins_with_a_dash_gets_a_hint(fails, made):
    assert "needs -- before it" in fails(2, "explain", made.model, "-0abc", "thing-001")
    assert "'-0abc'" in fails(1, "explain", "--", made.model, "-0abc", "thing-001")
