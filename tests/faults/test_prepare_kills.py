"""Whatever stops preparing: a clear error, the old corpus untouched, no process and no file left behind."""

from __future__ import annotations

import gzip
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from carp.errors import CarpError, InputError, StorageError
from carp.reviews.corpora import record_reading, word_columns
from carp.reviews.corpora.preparation import SMALL, prepare_corpus
from carp.reviews.corpora.worker_processes import usable_cores
from carp.reviews.sources import line_reading, unpacking
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.request import SourceRequest

SOURCE = Path(__file__).resolve().parents[2] / "src"


def lines_of(count, text="a fine and light thing"):
    chance = random.Random(count)
    for number in range(count):
        words = f"{text} word{number % 7} {chance.getrandbits(80):x}"
        row = {"user": f"u{number % 97}", "item": f"i{number % 89}", "rating": 1 + number % 5, "text": words}
        yield json.dumps(row).encode()


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.jsonl"
    path.write_bytes(b"\n".join(lines_of(2000)))
    return path


@pytest.fixture
def corpus(reviews, tmp_path):
    """A corpus that is to be replaced."""
    out = tmp_path / "corpus"
    prepare_corpus([reviews], out, SourceRequest())
    return out


@pytest.fixture(autouse=True)
def tiny_pieces(monkeypatch):
    monkeypatch.setattr(unpacking, "CHUNK", 2_000)
    monkeypatch.setattr(line_reading, "STRETCH", 8_000)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def crews(monkeypatch):
    """The processes of every worker that is started."""
    started = []
    start = SpawnProcess.start

    def noted(process):
        start(process)
        started.append(process.pid)

    monkeypatch.setattr(SpawnProcess, "start", noted)
    return started


def stopped(kind, match, source, corpus, crews):
    before, beside = contents(corpus), sorted(corpus.parent.iterdir())
    with pytest.raises(kind, match=match) as caught:
        prepare_corpus([source], corpus, SourceRequest(), min_reviews=3, overwrite=True, workers=2)
    assert len(crews) == 2
    assert not [process for process in crews if Path(f"/proc/{process}").exists()]
    assert contents(corpus) == before
    assert sorted(corpus.parent.iterdir()) == beside
    return caught.value


def test_a_worker_killed_while_decoding_is_an_error_with_a_remedy(monkeypatch, reviews, corpus, crews):
    monkeypatch.setattr(record_reading, "decode_stretch", kill_oneself)
    error = stopped(CarpError, "a worker process ended by signal SIGKILL", reviews, corpus, crews)
    assert "run the same command again" in str(error)


def test_a_worker_killed_while_cutting_is_an_error_with_a_remedy(monkeypatch, reviews, corpus, crews):
    monkeypatch.setattr(word_columns, "cut_texts", kill_oneself)
    stopped(CarpError, "a worker process ended by signal SIGKILL", reviews, corpus, crews)


def kill_oneself(_):
    os.kill(os.getpid(), signal.SIGKILL)


def fill_the_disk(_):
    raise OSError(28, "No space left on device", "somewhere")


@pytest.mark.parametrize(("place", "name"), [(record_reading, "decode_stretch"), (word_columns, "cut_texts")])
def test_a_disk_that_is_full_for_a_worker_is_told_as_such(monkeypatch, reviews, corpus, crews, place, name):
    monkeypatch.setattr(place, name, fill_the_disk)
    error = stopped(StorageError, "no space left on the disk", reviews, corpus, crews)
    assert error.where == str(corpus)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.999])
def test_a_gzip_file_that_breaks_off_is_told_with_the_lines_that_were_whole(tmp_path, corpus, crews, share):
    whole = gzip.compress(b"\n".join(lines_of(3000)), 1)
    broken = tmp_path / "broken.gz"
    broken.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError) as expected:
        read_reviews(broken)
    error = stopped(InputError, "breaks off after", broken, corpus, crews)
    assert str(error) == str(expected.value)


def test_an_interrupt_in_either_phase_leaves_nothing(monkeypatch, reviews, corpus, crews):
    def interrupt(*_):
        if len(crews) == 2:
            raise KeyboardInterrupt

    for phase in ("reading", "cutting"):
        crews.clear()
        before, beside = contents(corpus), sorted(corpus.parent.iterdir())
        with pytest.raises(KeyboardInterrupt):
            prepare_corpus([reviews], corpus, SourceRequest(), overwrite=True, workers=2, **{phase: interrupt})
        assert len(crews) == 2
        assert not [process for process in crews if Path(f"/proc/{process}").exists()]
        assert contents(corpus) == before
        assert sorted(corpus.parent.iterdir()) == beside


# ---- the command itself


@pytest.fixture
def large(tmp_path):
    """Just large enough that workers are started."""
    path = tmp_path / "large.jsonl"
    line = b"\n".join(lines_of(1000, text="a fine and light thing " * 20)) + b"\n"
    path.write_bytes(line * (1 + SMALL // len(line)))
    return path


# The command, which also writes down the process of every worker it starts.
COMMAND = """
import sys
from multiprocessing.context import SpawnProcess
from carp.cli.entry import main

start = SpawnProcess.start

def noted(process):
    start(process)
    print(process.pid, flush=True)

SpawnProcess.start = noted
sys.exit(main(sys.argv[1:]))
"""


def started(source, out):
    """The command, and its two workers as soon as there are some: a handle for each process, by its number."""
    command = [sys.executable, "-c", COMMAND, "prepare", str(source), "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    workers = [int(process.stdout.readline()) for _ in range(2)]
    return process, {worker: os.pidfd_open(worker) for worker in workers}


needs_cores = pytest.mark.skipif(
    usable_cores() < 2 or not hasattr(os, "pidfd_open"), reason="workers need cores and handles"
)


def ended(workers):
    for handle in workers.values():
        assert select.select([handle], [], [], 60)[0], "a worker is left"
        os.close(handle)


@needs_cores
def test_ctrl_c_ends_the_command_and_its_workers_with_one_line(large, tmp_path):
    process, workers = started(large, tmp_path / "out" / "corpus")
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=600)[1]
    assert process.returncode == 1
    assert said.strip() == "carp: interrupted; nothing incomplete was left at --out."
    ended(workers)
    assert [path.name for path in tmp_path.iterdir()] == ["large.jsonl"]


@needs_cores
def test_a_worker_killed_from_outside_ends_the_command_with_one_line(large, tmp_path):
    process, workers = started(large, tmp_path / "corpus")
    os.kill(next(iter(workers)), signal.SIGKILL)
    said = process.communicate(timeout=600)[1]
    assert process.returncode == 1
    assert said.startswith("carp: a worker process ended by signal SIGKILL")
    assert len(said.strip().splitlines()) == 1
    ended(workers)
    assert [path.name for path in tmp_path.iterdir()] == ["large.jsonl"]


@needs_cores
def test_a_killed_command_takes_its_workers_along_and_the_next_one_cleans_up(large, reviews, tmp_path):
    process, workers = started(large, tmp_path / "corpus")
    process.kill()
    process.communicate()
    ended(workers)
    prepare_corpus([reviews], tmp_path / "corpus", SourceRequest())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "large.jsonl", "reviews.jsonl"]


def test_a_disk_that_fills_up_while_workers_write_leaves_nothing(large, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    private = ["unshare", *(["-m"] if os.geteuid() == 0 else ["-r", "-m"]), "sh", "-c"]
    mount = f"mount -t tmpfs -o size=9m none '{small}'"
    if not shutil.which("unshare") or subprocess.run([*private, mount], capture_output=True).returncode:
        pytest.skip("a small disk of its own cannot be mounted here")
    script = f"""{mount} && '{sys.executable}' -m carp prepare '{large}' --out '{small}/corpus'
        echo "exit code $?"; ls -A '{small}'"""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    found = subprocess.run([*private, script], capture_output=True, text=True, env=environment, timeout=600)
    assert found.stdout == "exit code 1\n"
    assert "no space left on the disk" in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1
