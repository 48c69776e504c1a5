"""Cells in several processes. A process that dies takes its cell with it and nothing else.

Within one executor of the library the death of a worker ends all others, so each process has an executor of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path

import torch

import carp
from carp.bench.cells import Cell, CellResult, Line, machine, run_cell
from carp.bench.settings_search import choose_settings
from carp.reviews.corpora.worker_processes import WorkerDied, WorkerProcesses, end_with_the_starter, usable_cores


def run_in_processes(cells: Sequence[Cell], out: Path, device: str, processes: int) -> Iterator[CellResult]:
    """What was found of the cells, in the order in which they are done."""
    threads = max(1, usable_cores() // processes) if device == "cpu" else 1
    waiting = list(cells)[::-1]
    running: dict[Future[Path], tuple[Cell, WorkerProcesses]] = {}

    def new_worker() -> WorkerProcesses:
        return WorkerProcesses(1, _begin, threads)

    def start(cell: Cell, worker: WorkerProcesses) -> None:
        try:
            future = worker.submit(_run, cell, out, device)
        except WorkerDied:  # between two cells
            worker = new_worker()
            future = worker.submit(_run, cell, out, device)
        running[future] = cell, worker

    try:
        for _ in range(processes):
            start(waiting.pop(), new_worker())
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell, worker = running.pop(future)
                try:
                    found = worker.result(future)
                except WorkerDied as death:
                    found, worker = CellResult(line_of_the_dead(cell, device, death)), new_worker()
                if waiting:
                    start(waiting.pop(), worker)
                else:
                    worker.end(at_once=True)
                yield found
    finally:
        for _, worker in running.values():
            worker.end(at_once=True)


def _begin(threads: int) -> None:
    end_with_the_starter()
    torch.set_num_threads(threads)


def _run(cell: Cell, out: Path, device: str) -> CellResult:
    return run_cell(cell, out, device, choose=choose_settings)


def line_of_the_dead(cell: Cell, device: str, death: WorkerDied) -> Line:
    error = f"the process of this cell ended {death.how}"
    known = {"error": error, "seconds": None, "peak_memory": None, "machine": machine(device)}
    return {**cell.describe(), **known, "version": carp.__version__, "torch": torch.__version__}
