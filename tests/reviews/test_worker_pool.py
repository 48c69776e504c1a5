"""Several processes give results in the order of the tasks; errors, deaths and interrupts leave nobody behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from carp.errors import CarpError, InputError
from carp.reviews.corpora.worker_pool import MOST_WORKERS, WorkerPool, usable_cores


def gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def processes_of(pool):
    return [worker.pid for worker in pool._workers]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_results_come_in_the_order_of_the_tasks(size):
    with WorkerPool(size) as pool:
        assert list(pool.map(abs, range(-40, 0))) == list(range(40, 0, -1))
        assert list(pool.map(len, [b"x" * 3_000_000, b""])) == [3_000_000, 0]
        assert [found.sum() for found in pool.map(np.ones, [300_000] * 7)] == [300_000] * 7
        assert list(pool.map(abs, [])) == []
        workers = processes_of(pool)
    assert len(workers) == (size if size > 1 else 0)
    assert all(map(gone, workers))


def test_work_is_done_elsewhere_and_only_a_little_is_taken_ahead():
    taken = []

    def tasks():
        for number in range(50):
            taken.append(number)
            yield number

    with WorkerPool(2) as pool:
        results = pool.map(abs, tasks())
        next(results)
        assert len(taken) <= 6
        assert set(pool.map(eval, ["__import__('os').getpid()"] * 8)) <= set(processes_of(pool))


def test_one_worker_is_this_process():
    with WorkerPool(1) as pool:
        assert list(pool.map(eval, ["__import__('os').getpid()"])) == [os.getpid()]


def test_no_more_workers_than_memory_is_meant_for():
    assert WorkerPool(1000).size == MOST_WORKERS
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


def test_an_error_in_a_worker_is_raised_here_with_all_it_says(tmp_path):
    with WorkerPool(2) as pool:
        with pytest.raises(OSError, match="No such file") as caught:
            list(pool.map(Path.read_bytes, [tmp_path / "none"]))
        assert caught.value.errno == errno.ENOENT
        assert list(pool.map(abs, [-1])) == [1], "the pool goes on"


def raise_input_error(_):
    raise InputError("it broke", where="here", fix="glue it")


def test_errors_for_people_keep_their_place_and_remedy():
    with WorkerPool(2) as pool, pytest.raises(InputError) as caught:
        list(pool.map(raise_input_error, [None]))
    assert str(caught.value) == "here: it broke. Fix: glue it."


@pytest.mark.parametrize(
    ("end", "value", "words"),
    [
        (os._exit, 3, "a worker process ended with exit code 3"),
        (signal.raise_signal, signal.SIGKILL, "by signal SIGKILL; was there enough memory"),
        (signal.raise_signal, signal.SIGSEGV, "by signal SIGSEGV"),
    ],
)
def test_a_worker_that_dies_is_an_error_and_the_others_are_ended(end, value, words):
    with WorkerPool(2) as pool:
        workers = processes_of(pool)
        with pytest.raises(CarpError, match=words) as caught:
            list(pool.map(end, [value] * 10))
        assert caught.value.fix
    assert all(map(gone, workers))


def test_an_interrupt_ends_the_workers():
    def work():
        with WorkerPool(2) as pool:
            workers.extend(processes_of(pool))
            for _ in pool.map(abs, range(10)):
                raise KeyboardInterrupt

    workers: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        work()
    assert len(workers) == 2
    assert all(map(gone, workers))


def test_workers_have_a_session_of_their_own_so_that_a_terminals_interrupt_passes_them_by():
    with WorkerPool(2) as pool:
        assert all(os.getsid(process) == process for process in processes_of(pool))


STARTER = """
import sys
from carp.reviews.corpora.worker_pool import WorkerPool
with WorkerPool(2) as pool:
    list(pool.map(abs, [1, 2]))
    print(*[worker.pid for worker in pool._workers], flush=True)
    list(pool.map(eval, ["__import__('time').sleep(0.2)"] * 1000))
"""


def test_workers_end_when_their_starter_is_killed():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    starter = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True, env=environment)
    workers = [int(process) for process in starter.stdout.readline().split()]
    assert len(workers) == 2
    handles = [os.pidfd_open(process) for process in workers]
    starter.kill()
    starter.wait()
    import select

    for handle in handles:
        assert select.select([handle], [], [], 60)[0], "a worker outlives its starter"
        os.close(handle)


def test_what_a_library_prints_does_not_get_between_the_results():
    with WorkerPool(2) as pool:
        assert list(pool.map(eval, ["print('noise') or 7"] * 3)) == [7] * 3
