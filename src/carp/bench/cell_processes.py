"""Cells in several processes. A process that dies takes its cell with it and nothing else."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import carp
from carp.bench.cells import Cell, CellResult, Line, machine
from carp.reviews.corpora.worker_pool import usable_cores


@dataclass
class Worker:
    process: BaseProcess
    pipe: Connection
    cell: Cell
    device: str

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def run_in_processes(cells: Sequence[Cell], out: Path, device: str, processes: int) -> Iterator[CellResult]:
    """What was found of the cells, in the order in which they are done."""
    threads = max(1, usable_cores() // processes)
    waiting = list(cells)[::-1]
    workers = [_start(waiting.pop(), out, device, threads) for _ in range(processes)]
    try:
        while workers:
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                found = _receive(worker)
                if waiting and worker.process.is_alive():
                    worker.cell = waiting.pop()
                    worker.pipe.send(worker.cell)
                else:
                    workers.remove(worker)
                    worker.end()
                    if waiting:
                        workers.append(_start(waiting.pop(), out, device, threads))
                yield found
    finally:
        for worker in workers:
            worker.end()


def _start(cell: Cell, out: Path, device: str, threads: int) -> Worker:
    context = multiprocessing.get_context("spawn")  # a GPU cannot be used in a forked process
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, str(out), device, threads, os.getpid()), daemon=True)
    process.start()
    theirs.close()
    ours.send(cell)
    return Worker(process, ours, cell, device)


def _receive(worker: Worker) -> CellResult:
    try:
        found: CellResult = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        how = worker.process.exitcode or 0
        reason = f"by signal {signal.Signals(-how).name}" if how < 0 else f"with exit code {how}"
        hint = "; was there enough memory?" if how == -signal.SIGKILL else ""
        return CellResult(_of_the_dead(worker, f"the process of this cell ended {reason}{hint}"))
    return found


def _of_the_dead(worker: Worker, error: str) -> Line:
    import torch

    known = {"error": error, "seconds": None, "peak_memory": None, "machine": machine(worker.device)}
    made = {"version": carp.__version__, "torch": torch.__version__}
    return {**worker.cell.describe(), **known, **made}


class Orphan:
    """Ends the process once whoever started it is gone: nobody is left to write its line down."""

    def __init__(self, parent: int) -> None:
        self.parent = parent

    def epoch_begins(self, epoch: int, batches: int) -> None:
        self.batch_done()

    def batch_done(self) -> None:
        if os.getppid() != self.parent:
            os._exit(1)

    def epoch_ends(self, record: dict[str, Any]) -> None:
        self.batch_done()


def _work(pipe: Connection, out: str, device: str, threads: int, parent: int) -> None:
    import torch

    from carp.bench.cells import run_cell
    from carp.bench.settings_search import choose_settings

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the starter's to answer
    if device == "cpu":
        torch.set_num_threads(threads)
    else:
        torch.set_num_threads(1)
    watcher = Orphan(parent)
    with contextlib.suppress(EOFError, OSError):
        while True:
            cell = pipe.recv()
            pipe.send(run_cell(cell, Path(out), device, choose=choose_settings, watcher=watcher))
