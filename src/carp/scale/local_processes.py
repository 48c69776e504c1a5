"""One command in several processes of this machine, which end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from carp.errors import CarpError
from carp.scale.ending_signals import TERMINATED, Terminated, terminable
from carp.scale.launched_process import STARTED
from carp.training.checkpoint import CHECKPOINT
from carp.training.company import LostCompany
from carp.training.loop import Stopped

AWHILE = 0.05  # seconds between looks at whether a process has ended
SETTLING = 20.0  # seconds for the others to end
HAS_SAID_WHY = (0, 1)  # exit codes of a first process that was stopped: it was done already, or printed what is kept


class ProcessLost(CarpError):
    """One of several processes ended before its time."""


def run_together(words: Sequence[str], count: int, where: str, environment: Mapping[str, str] | None = None) -> int:
    """Run `carp` with these words in so many processes; the exit code of the first one.

    The first process speaks for all. If one fails, the others are ended, and the error says which it was and why.
    Ctrl-C and SIGTERM end all of them, and so does the end of this process, however it comes.

    Args:
        words: What follows `carp` on the command line.
        count: Of processes.
        where: What is lost or kept where one fails, for the error.
        environment: Instead of this process's own.
    """
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(count)}
    own |= {"LOCAL_WORLD_SIZE": str(count), STARTED: "1"}
    started: list[subprocess.Popen[bytes]] = []
    said = [tempfile.TemporaryFile() for _ in range(count)]  # noqa: SIM115
    try:
        with terminable():
            for rank in range(count):
                place = {**(environment or os.environ), **own, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                place.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
                started.append(_started(words, place, None if rank == 0 else said[rank]))
            return _watch(started, said, where)
    except KeyboardInterrupt as asked:
        return _stop(started, where, TERMINATED if isinstance(asked, Terminated) else 1)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
            _let_go(process)
        for file in said:
            file.close()


def _started(words: Sequence[str], place: Mapping[str, str], heard: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """One process, which ends when its standard input closes. What it says goes to a file, or where this one's goes."""
    command = [sys.executable, "-m", "carp", *words]
    return subprocess.Popen(command, env=place, stdin=subprocess.PIPE, stdout=heard, stderr=heard)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None, "every process was started with a pipe"
    process.stdin.close()


def _stop(started: Sequence[subprocess.Popen[bytes]], where: str, code: int) -> int:
    """End all processes in an orderly way. What is kept is said here where the first one could not."""
    for process in started:
        _let_go(process)
    _settle(started)
    first = started[0].returncode if started else None
    if first in HAS_SAID_WHY:
        return 0 if first == 0 else code
    kept = (Path(where) / CHECKPOINT).exists()
    fix = f"run the same command {'with --resume to go on' if kept else 'again'}"
    stopped = Stopped(f"training was interrupted; {'a' if kept else 'no'} checkpoint is kept", where=where, fix=fix)
    stopped.exit_code = code
    raise stopped


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _watch(started: Sequence[subprocess.Popen[bytes]], said: Sequence[IO[bytes]], where: str) -> int:
    """Wait until all have ended, or until one has failed."""
    while any(process.poll() is None for process in started):
        if any(process.poll() for process in started):
            break
        time.sleep(AWHILE)
    if not any(process.poll() for process in started):
        return 0
    _settle(started)
    codes = [process.returncode for process in started]
    culprits = [rank for rank, code in enumerate(codes) if code not in (0, LostCompany.exit_code, -signal.SIGTERM)]
    rank = culprits[0] if culprits else next(rank for rank, code in enumerate(codes) if code)
    if rank == 0 and codes[0] > 0 and codes[0] != LostCompany.exit_code:
        return codes[0]  # it has said why
    fix = "run the same command with --resume; any number of processes can go on from a checkpoint"
    what = (
        f"process {rank + 1} of {len(started)} was lost ({_reason(codes[rank], said[rank])}), and the others were ended"
    )
    raise ProcessLost(what, where=where, fix=fix)


def _settle(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Give the others a moment to end by themselves, then end them."""
    end = time.monotonic() + SETTLING
    for process in started:
        try:
            process.wait(max(0.1, min(2.0, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            process.terminate()
    for process in started:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _reason(code: int, said: IO[bytes]) -> str:
    said.seek(0)
    lines = [line for line in said.read().decode("utf-8", "replace").splitlines() if line.startswith("carp: ")]
    if lines:
        return lines[-1].removeprefix("carp: ").rstrip(".")
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
