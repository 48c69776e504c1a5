"""Several processes give results in the order of the tasks; errors, deaths and interrupts leave nobody behind."""

from __future__ import annotations

import errno
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from carp.errors import CarpError, InputError
from carp.reviews.corpora.worker_pool import MOST_WORKERS, WorkerPool
from carp.reviews.corpora.worker_processes import usable_cores


def gone(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def workers_now():
    return [process.pid for process in multiprocessing.active_children()]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_results_come_in_the_order_of_the_tasks(size):
    with WorkerPool(size) as pool:
        assert list(pool.map(abs, range(-40, 0))) == list(range(40, 0, -1))
        assert list(pool.map(len, [b"x" * 3_000_000, b""])) == [3_000_000, 0]
        assert [found.sum() for found in pool.map(np.ones, [300_000] * 7)] == [300_000] * 7
        assert list(pool.map(abs, [])) == []
        workers = workers_now()
    assert 1 < len(workers) <= size if size > 1 else not workers
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
        assert set(pool.map(eval, ["__import__('os').getpid()"] * 8)) <= set(workers_now())


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
        list(pool.map(abs, range(4)))
        workers = workers_now()
        with pytest.raises(CarpError, match=words) as caught:
            list(pool.map(end, [value] * 10))
        assert caught.value.fix
    assert workers
    assert all(map(gone, workers))


def die_while_giving_the_result(size):
    """The last bytes of a large result are never written."""

    class Cut:
        def __reduce__(self):
            os.kill(os.getpid(), signal.SIGKILL)
            return int, ()

    return [bytes(size), Cut()]


def test_a_worker_that_dies_while_it_gives_its_result_is_an_error_too():
    with WorkerPool(2) as pool, pytest.raises(CarpError, match="by signal SIGKILL"):
        list(pool.map(die_while_giving_the_result, [10_000_000] * 3))


def test_an_interrupt_ends_the_workers():
    def work():
        with WorkerPool(2) as pool:
            for _ in pool.map(abs, range(10)):
                workers.extend(workers_now())
                raise KeyboardInterrupt

    workers: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        work()
    assert workers
    assert all(map(gone, workers))


def test_an_interrupt_does_not_wait_for_the_tasks_that_are_being_worked_on():
    def work():
        with WorkerPool(2) as pool:
            for _ in pool.map(time.sleep, [0, 3600, 3600]):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not workers_now()


def test_a_terminals_interrupt_passes_the_workers_by():
    with WorkerPool(2) as pool:
        list(pool.map(abs, range(4)))
        before = workers_now()
        for process in before:
            os.kill(process, signal.SIGINT)
        assert list(pool.map(abs, range(4))) == [0, 1, 2, 3]
        assert workers_now() == before


def test_here_interrupts_are_answered_as_before():
    with WorkerPool(2) as pool:
        list(pool.map(abs, range(4)))
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_workers_import_no_torch_and_start_no_threads_of_linear_algebra():
    facts = "('torch' in __import__('sys').modules, __import__('os').environ['OPENBLAS_NUM_THREADS'])"
    with WorkerPool(2) as pool:
        assert set(pool.map(eval, [facts] * 4)) == {(False, "1")}


def test_nothing_is_left_in_the_folder_for_tasks_and_results(tmp_path):
    with WorkerPool(2, tmp_path) as pool:
        assert list(pool.map(abs, range(-4, 0))) == [4, 3, 2, 1]
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


STARTER = """
import multiprocessing
import time
from carp.reviews.corpora.worker_pool import WorkerPool
if __name__ == "__main__":
    with WorkerPool(2) as pool:
        list(pool.map(abs, [1, 2, 3, 4]))
        print(*[worker.pid for worker in multiprocessing.active_children()], flush=True)
        list(pool.map(time.sleep, [3600] * 4))
"""


def test_workers_end_when_their_starter_is_killed():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    starter = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True, env=environment)
    workers = [int(process) for process in starter.stdout.readline().split()]
    assert workers
    handles = [os.pidfd_open(process) for process in workers]
    starter.kill()
    starter.wait()
    for handle in handles:
        assert select.select([handle], [], [], 60)[0], "a worker outlives its starter"
        os.close(handle)


def test_what_a_library_prints_in_a_worker_is_not_seen(capfd):
    with WorkerPool(2) as pool:
        assert list(pool.map(eval, ["print('noise') or 7"] * 3)) == [7] * 3
    assert capfd.readouterr() == ("", "")
