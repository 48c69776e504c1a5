"""The processes that compute: one loads the model, the engines are forked from it and answer, call after call.

The loader is started by the process at the door, with a socket to it as its only way out. Whoever finds the other end
of its line closed ends: nothing of the service outlives the door, however that ends.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import mmap
import os
import select
import signal
import socket
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from carp.errors import CarpError
from carp.serve.engine_messages import (
    Call,
    EngineStarted,
    Loaded,
    LoadFailed,
    News,
    Progress,
    frame,
    receive_frame,
)

if TYPE_CHECKING:
    from carp.serve.engine_calls import CallAnswerer
    from carp.serve.shared_readings import SharedReadings

EARLY = 2.0  # seconds after its start: an engine that ends so soon, asked for nothing, may do so again and again
MOST_EARLY = 5  # in a row
AWHILE = 0.2  # seconds between looks at whether an engine has died
STEPS_BETWEEN_LOOKS = 25  # calls, or things made ready beforehand, between looks for garbage
GIVES_WAY = 10  # nicer by so much than the door, which needs a core for a moment and should not wait for it


def main(control: int, model: str, results: str, engines: int) -> None:
    """Load a model and keep so many engines for it until the door closes."""
    gc.disable()  # until the engines are there: what is loaded now stays, and looking through it takes time
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # which may be sent to all processes of a service
        signal.signal(number, signal.SIG_IGN)  # the door says when it is over: what was asked is answered first
    # Python 3.12 warns of forks beside other threads. Those here are of libraries that free memory in the background.
    warnings.filterwarnings("ignore", message="This process .* is multi-threaded", category=DeprecationWarning)
    door = socket.socket(fileno=control)
    try:
        family = _load(door, Path(model), Path(results) if results else None)
        os.nice(GIVES_WAY)  # and the engines, which are forked from here
        for _ in range(engines):
            family.start()
        family.live()
    except CarpError as error:
        _tell_the_end(door, LoadFailed(error.what, error.where, error.fix, error.exit_code))
    except BrokenPipeError:
        pass  # the door has gone, and nobody needs the model any more
    except MemoryError:
        fix = "serve a smaller model, or use a larger machine"
        _tell_the_end(door, LoadFailed("this machine has too little memory", model, fix, 1))


def _tell_the_end(door: socket.socket, news: LoadFailed) -> None:
    with contextlib.suppress(BrokenPipeError):
        _tell(door, news)


def _tell(door: socket.socket, news: News) -> None:
    door.sendall(frame(news))


def _load(door: socket.socket, model: Path, results: Path | None) -> _Family:
    _tell(door, Progress("loading torch"))
    import torch

    import carp
    from carp.serve.answer_service import AnswerService
    from carp.serve.engine_calls import CallAnswerer
    from carp.serve.shared_readings import SharedReadings

    torch.set_num_threads(1)  # before the fork: threads do not survive it
    _tell(door, Progress("loading the model"))
    recommender = carp.load(model, device="cpu")
    service = AnswerService(recommender)
    _tell(door, Progress("reading documents"))
    service.warm(explain=not torch.accelerator.is_available())  # where gradients start threads, engines take the first
    answerer, readings = CallAnswerer(service, results), SharedReadings(service)
    told = answerer.about()
    gc.freeze()  # what is kept for good is not looked through again and again, nor copied into each engine by that
    _tell(door, Loaded(recommender.bundle_sum, recommender.name, told))
    return _Family(door, answerer, readings)


def bundle_sum(model: Path) -> str:
    """The sha256 sum of the manifest that is at its place now; that of a loaded model is its own `bundle_sum`."""
    return hashlib.sha256((model / "manifest.json").read_bytes()).hexdigest()


class _Engine(NamedTuple):
    began: float
    asked: mmap.mmap  # a byte that it shares with the loader: 1 as soon as somebody has asked it for something


class _Family:
    """Engines and who looks after them: one that dies is replaced, and all end with the door."""

    def __init__(self, door: socket.socket, answerer: CallAnswerer, readings: SharedReadings) -> None:
        self.door = door
        self.answerer = answerer
        self.readings = readings
        self.children: dict[int, _Engine] = {}  # by process
        self.early = 0  # engines in a row that ended as soon as they were there
        self.reporter = 0  # a process that makes the report of results, while there is one

    def start(self) -> None:
        ours, theirs = socket.socketpair()
        asked = mmap.mmap(-1, 1)
        child = os.fork()
        if child == 0:
            theirs.close()
            self.door.close()
            _live_as_engine(ours, self.answerer, self.readings, asked)
        ours.close()
        self.children[child] = _Engine(time.monotonic(), asked)
        socket.send_fds(self.door, [frame(EngineStarted(child))], [theirs.fileno()])
        theirs.close()

    def live(self) -> None:
        """Read all documents for the engines, then replace those that die, until the door closes."""
        self.readings.fill()
        gc.collect()
        gc.freeze()
        gc.enable()
        self._start_reporter()
        while not select.select([self.door], [], [], AWHILE)[0]:  # the door says nothing: it can only close
            self._replace_the_dead()
            self._forget_reporter(os.WNOHANG)
        if self.reporter:
            os.kill(self.reporter, signal.SIGKILL)
            self._forget_reporter(0)
        for child in self.children:  # each finds its own line closed
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)

    def _start_reporter(self) -> None:
        """The report of results takes seconds: it is made in a process of its own, and left in the user's cache."""
        if self.answerer.results_folder is None:
            return
        self.reporter = os.fork()
        if self.reporter == 0:
            with contextlib.suppress(BaseException):  # an engine that is asked for the report says what is wrong
                self.door.close()
                os.nice(10)
                self.answerer.prepare_results()
            os._exit(0)

    def _forget_reporter(self, how: int) -> None:
        if self.reporter and os.waitpid(self.reporter, how)[0]:
            self.reporter = 0

    def _replace_the_dead(self) -> None:
        for child, engine in list(self.children.items()):
            if not os.waitpid(child, os.WNOHANG)[0]:
                continue
            del self.children[child]
            # A request may end engines however often it is made, and must not end the service.
            by_itself = not engine.asked[0] and time.monotonic() - engine.began < EARLY
            self.early = self.early + 1 if by_itself else 0
            engine.asked.close()
            if self.early > MOST_EARLY:
                raise CarpError("the service stopped as soon as it started", fix="see the messages above")
            self.start()


def _live_as_engine(line: socket.socket, answerer: CallAnswerer, readings: SharedReadings, asked: mmap.mmap) -> None:
    code = 1
    try:
        answer_calls(line, answerer, readings, asked)
        code = 0
    except (BrokenPipeError, ConnectionResetError):
        code = 0  # the door has gone
    except BaseException as error:
        print(f"carp serve: an engine failed ({type(error).__name__}: {error})", file=sys.stderr, flush=True)
    finally:
        os._exit(code)  # nothing of the loader's is to run a second time


class Tidying:
    """Looks for garbage between two calls, and only among what is new.

    By itself Python looks in the middle of a call, and now and then through all that an engine keeps, which takes long.
    What is kept refers to nothing that refers back to it, so it needs no looking: it is gone when it is forgotten.
    """

    def __init__(self) -> None:
        self._steps = 0
        gc.disable()

    def step(self) -> None:
        self._steps += 1
        if self._steps % STEPS_BETWEEN_LOOKS == 0:
            gc.collect()
            gc.freeze()


def answer_calls(
    line: socket.socket, answerer: CallAnswerer, readings: SharedReadings, noted: mmap.mmap | bytearray
) -> None:
    """Answer until the line is closed; what can be made ready beforehand is, while nobody asks.

    The first byte of `noted` becomes 1 when somebody asks.
    """
    decoder = msgspec.msgpack.Decoder(Call)
    ready = readings.take()
    warming = answerer.service.warming()
    tidying = Tidying()
    more = True
    while True:
        if more and not select.select([line], [], [], 0 if ready else AWHILE)[0]:
            if ready:
                more = next(warming, warming) is None
                tidying.step()
            ready = ready or readings.take()
            continue
        ready = ready or readings.take()
        asked = receive_frame(line)
        if asked is None:
            return
        noted[0] = 1
        line.sendall(frame(answerer.reply(decoder.decode(asked))))
        tidying.step()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
