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
from typing import IO

from carp.errors import CarpError
from carp.training.company import LostCompany

AWHILE = 0.05  # seconds between looks at whether a process has ended
SETTLING = 20.0  # seconds for the others to end


class ProcessLost(CarpError):
    """One of several processes ended before its time."""


def run_together(words: Sequence[str], count: int, where: str, environment: Mapping[str, str] | None = None) -> int:
    """Run `carp` with these words in so many processes; the exit code of the first one.

    The first process speaks for all. If one fails, the others are ended, and the error says which it was and why.

    Args:
        words: What follows `carp` on the command line.
        count: Of processes.
        where: What is lost or kept where one fails, for the error.
        environment: Instead of this process's own.
    """
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(count)}
    own |= {"LOCAL_WORLD_SIZE": str(count), "CARP_STARTED_BY_CARP": "1"}
    started: list[subprocess.Popen[bytes]] = []
    said = [tempfile.TemporaryFile() for _ in range(count)]  # noqa: SIM115
    try:
        for rank in range(count):
            place = {**(environment or os.environ), **own, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            place.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
            errors = None if rank == 0 else said[rank]
            command = [sys.executable, "-m", "carp", *words]
            started.append(subprocess.Popen(command, env=place, stdout=None if rank == 0 else errors, stderr=errors))
        return _watch(started, said, where)
    except KeyboardInterrupt:
        _settle(started)
        return 1  # the first process has said what it kept
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
        for file in said:
            file.close()


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
