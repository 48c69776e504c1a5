"""A grid that is killed at any moment goes on: no cell is lost, none is counted twice, and the numbers are the same.

Run as a script, this file is the parent of the grids that are killed: it imports torch once and forks.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import torch

from carp.bench import durable_lines
from carp.bench.cell_processes import run_in_processes
from carp.bench.datasets import find_sources
from carp.bench.durable_lines import append_line, whole_lines
from carp.bench.grid import Grid, read_systems, run_grid
from carp.bench.pair_errors import ErrorColumns
from carp.bench.results_folder import BENCH
from carp.reviews.corpora.corpus import build_corpus
from made_up_reviews import shop_reviews

KILLS = int(os.environ.get("CARP_KILLS", "5"))  # one at each of the moments below; `make torture` has 200
MODELS, SEEDS = "mean,bias,carp,carp:routing=agreement", 3
TINY = {"dimension": 4, "filters": 4, "latent_size": 3, "viewpoints": 2, "epochs": 1, "vocabulary_size": 60}
MOMENTS = ("before the line", "half a line", "the line before the disk has it", "half of the errors", "any")


def make_corpus(folder):
    build_corpus(shop_reviews(people=20, things=10, seed=1), min_reviews=1).save(folder)


def grid_of(corpus):
    return Grid(read_systems(MODELS), find_sources([Path(corpus)]), SEEDS, TINY).cells()


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arrange_death(moment, cell, rng):
    """Let this process die by kill -9 at a moment of the work on the cell of this number."""
    write, count = os.write, {"lines": 0, "errors": 0}

    def dying_write(handle, data):
        kind = "lines" if data.startswith(b'{"id"') else "errors"
        count[kind] += 1
        if count[kind] == cell and moment == "before the line" and kind == "lines":
            die()
        if count[kind] == cell and moment == ("half a line" if kind == "lines" else "half of the errors"):
            write(handle, data[: rng.randrange(1, len(data))])
            die()
        if count[kind] == cell and moment == "the line before the disk has it" and kind == "lines":
            write(handle, data)
            die()
        return write(handle, data)

    if moment == "any":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.005, 0.25))  # ends the process wherever it is
    else:
        durable_lines.os.write = dying_write


def killed_run(corpus, out, number):
    """A grid in a process of its own that dies; how it ended."""
    child = os.fork()
    if child == 0:
        rng = random.Random(number)
        cells = grid_of(corpus)
        arrange_death(MOMENTS[number % len(MOMENTS)], rng.randrange(1, 3), rng)
        run_grid(cells, Path(out), device="cpu")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def parent(corpus, out, reference, kills):
    """Kill grids again and again, beginning anew when one is through; report what was left each time."""
    torch.set_num_threads(1)
    cells = [cell.identity for cell in grid_of(corpus)]
    whole = {line["id"]: line["test_mse"] for line in run_grid(grid_of(corpus), Path(reference), device="cpu").lines}
    killed, folder = 0, Path(out) / "0"
    for number in range(10 * kills):
        if killed == kills:
            break
        killed += killed_run(corpus, folder, number) in (-signal.SIGKILL, -signal.SIGALRM)
        done = len((folder / BENCH).read_bytes().splitlines()) if (folder / BENCH).exists() else 0
        if done >= len(cells) - 1:
            check(run_grid(grid_of(corpus), folder, device="cpu"), folder, cells, whole)
            folder = Path(out) / str(number + 1)
    check(run_grid(grid_of(corpus), folder, device="cpu"), folder, cells, whole)
    print(json.dumps({"killed": killed}))


def check(outcome, folder, cells, whole):
    lines = [json.loads(line) for line in (folder / BENCH).read_bytes().splitlines()]
    assert sorted(line["id"] for line in lines) == sorted(cells), "a cell was lost or counted twice"
    assert {line["id"]: line.get("test_mse") for line in lines} == whole, "a number has changed"
    assert not outcome.failed
    assert not [*folder.rglob("*.partial")], "something half written was left behind"
    errors = ErrorColumns(folder)
    assert all(len(errors.of(line)[0]) == line["test_pairs"] for line in lines), "errors were lost"


def test_no_cell_is_lost_or_counted_twice_whenever_the_grid_is_killed(tmp_path):
    make_corpus(tmp_path / "corpus")
    command = [sys.executable, __file__, str(tmp_path / "corpus"), str(tmp_path / "out"), str(tmp_path / "ref")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [*command, str(KILLS)], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"killed": KILLS}


def test_a_grid_of_several_processes_is_killed_and_goes_on(tmp_path):
    """The command itself: its processes end with it, and the same command finishes the grid."""
    make_corpus(tmp_path / "corpus")
    cells = grid_of(tmp_path / "corpus")
    out = tmp_path / "out"
    options = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "carp", "bench", str(tmp_path / "corpus"), "--models", MODELS, "--out", str(out)]
    command += ["--seeds", str(SEEDS), "--device", "cpu", "--processes", "2", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline().startswith("1 of 12")
        running.kill()
        assert running.wait() == -signal.SIGKILL
        running.stderr.read()  # ends when the last of its processes has ended
    before = (out / BENCH).read_bytes()
    torch.set_num_threads(1)
    outcome = run_grid(cells, out, device="cpu")
    assert outcome.ran >= len(cells) - len(before.splitlines()) > 0
    lines = [json.loads(line) for line in (out / BENCH).read_bytes().splitlines()]
    assert sorted(line["id"] for line in lines) == sorted(cell.identity for cell in cells)
    assert not outcome.failed


def test_a_process_that_dies_costs_its_own_cell_alone(tmp_path):
    make_corpus(tmp_path / "corpus")
    cells = grid_of(tmp_path / "corpus")[:3]
    results = run_in_processes(cells, tmp_path, "cpu", 1)
    first = next(results)
    multiprocessing.active_children()[0].kill()  # it has been given the second cell
    found = [first.line, *(result.line for result in results)]
    assert [line["id"] for line in found] == [cell.identity for cell in cells]
    assert ["SIGKILL" in line.get("error", "") for line in found] in ([False, True, False], [False, False, True])
    assert not multiprocessing.active_children()


def add_lines(path, name):
    for number in range(20):
        append_line(path, {"id": f"{name} {number}", "data": name * 5_000})


def test_lines_that_several_processes_add_at_once_are_all_there_and_whole(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"id": "left by a process that di')
    context = multiprocessing.get_context("fork")
    adding = [context.Process(target=add_lines, args=(path, name)) for name in "abc"]
    for process in adding:
        process.start()
    for process in adding:
        process.join()
    found = [json.loads(line)["id"] for line in whole_lines(path)]
    assert sorted(found) == sorted(f"{name} {number}" for name in "abc" for number in range(20))


if __name__ == "__main__":
    _, corpus, out, reference, kills = sys.argv
    parent(corpus, out, reference, int(kills))
