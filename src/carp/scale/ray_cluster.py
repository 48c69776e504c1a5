"""Work on a Ray cluster: functions of other packages as tasks, with results in the order of the tasks or as they come.

A task whose node is lost runs again elsewhere. Every task first looks whether its worker has the same carp as the
process that asked.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import platform
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import carp
from carp.errors import CarpError, CarpWarning, StorageError, UsageError
from carp.scale.cluster_address import check_cluster, no_cluster

Task = TypeVar("Task")
Result = TypeVar("Result")
AGAIN = 5  # times that a task runs again after its worker or node was lost
AHEAD = 2  # tasks for each core that are given out before results are taken
SILENCE = 5.0  # seconds without a free core before it is said what is awaited
Versions = tuple[str, str]


class TaskLost(CarpError):
    """A task was lost again and again."""


class RayCluster:
    """A cluster that this process is connected to."""

    def __init__(self, ray: Any, address: str | None = None) -> None:
        self._ray = ray
        self._address = address
        # Nodes may come and go; this says how many tasks are worth giving out at first.
        self.size = int(ray.cluster_resources().get("CPU", 0))
        if not self.size:
            fix = f"start a node that has some: ray start --address={address or 'HOST:PORT'} on another machine"
            raise CarpError("the cluster has no cores", where=address, fix=fix)
        self._free_at_first = self._free()
        self._functions: dict[Callable[..., Any], Any] = {}
        self._has_answered = False

    @property
    def cards(self) -> int:
        return int(self._ray.cluster_resources().get("GPU", 0))

    @property
    def nodes(self) -> int:
        """Nodes that are there and have a core to work with."""
        return sum(1 for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU"))

    def _free(self) -> int:
        return int(self._ray.available_resources().get("CPU", 0))

    @contextlib.contextmanager
    def telling_of_cores(self, wanted: int) -> Iterator[None]:
        """Say after some seconds what is awaited, where fewer cores were free at first than are wanted."""
        if self._free_at_first >= wanted:
            yield
            return
        timer = threading.Timer(SILENCE, self._tell_of_cores, [wanted])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _tell_of_cores(self, wanted: int) -> None:
        if self._free() >= wanted:
            return
        where = f"{self._address}: " if self._address else ""
        needed = "a core is needed" if wanted == 1 else f"{wanted} cores are needed at once"
        free = {0: "none was", 1: "1 was"}.get(self._free_at_first, f"{self._free_at_first} were")
        what = f"{needed}, and of the cluster's {self.size} {free} free"
        hope = "Work begins when others are done, or when more nodes are started; Ctrl-C ends this command"
        warnings.warn(CarpWarning(f"{where}{what}. {hope}."), stacklevel=2)

    @contextlib.contextmanager
    def _awaiting(self) -> Iterator[None]:
        """The wait for a task. Once one has been done, there is a core."""
        if self._has_answered:
            yield
            return
        with self.telling_of_cores(1):
            yield
        self._has_answered = True

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        """It is left where it was joined."""

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """The results in the order of the tasks. Only some tasks are taken ahead of the results."""
        waiting: deque[Any] = deque()
        for task in tasks:
            waiting.append(self.submit(function, task))
            while len(waiting) > AHEAD * self.size:
                yield self.result(waiting.popleft())
        while waiting:
            yield self.result(waiting.popleft())

    def as_done(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Each task with what reads its result, in the order in which they are done."""
        given = {self.submit(function, task): task for task in tasks}
        while given:
            with self._awaiting():
                done = self._ray.wait(list(given))[0]
            for one in done:
                yield given.pop(one), one

    def submit(self, function: Callable[[Task], Any], task: Task) -> Any:
        if function not in self._functions:
            called = self._ray.remote(_call).options(num_cpus=1, max_retries=AGAIN)
            self._functions[function] = called
        return self._functions[function].remote(function, task, this_carp())

    def result(self, reference: Any) -> Any:
        """What a task returned. Its own errors are raised here, and TaskLost where no worker could finish it."""
        errors = self._ray.exceptions
        try:
            with self._awaiting():
                return self._ray.get(reference)
        except errors.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, CarpError) else CarpError(f"a task failed ({cause})") from error
        except (
            errors.WorkerCrashedError,
            errors.RayActorError,
            errors.ObjectLostError,
            errors.RaySystemError,
        ) as error:
            what = f"a task was lost {AGAIN + 1} times, each time with its worker"
            raise TaskLost(what, fix="see the logs of the cluster; was there enough memory?") from error


def this_carp() -> Versions:
    return carp.__version__, ".".join(platform.python_version_tuple()[:2])


def check_versions(wanted: Versions) -> None:
    """Refuse to work for a process with another carp or Python."""
    if (found := this_carp()) != wanted:
        names = "carp {}, Python {}"
        what = f"a worker has {names.format(*found)}, and this process {names.format(*wanted)}"
        raise UsageError(what, where=platform.node(), fix="install the same versions on all nodes")


def _call(function: Callable[[Task], Result], task: Task, wanted: Versions) -> Result:
    """What runs on a worker."""
    check_versions(wanted)
    try:
        return function(task)
    except OSError as error:  # a disk, say, that is full on one node alone
        what = f"a worker could not read or write ({error.strerror or error})"
        where = ": ".join(str(part) for part in (platform.node(), error.filename) if part)
        raise StorageError(what, where=where, fix="make room there, then run the command again") from None


@contextlib.contextmanager
def connected(address: str | None = None) -> Iterator[RayCluster]:
    """Join the cluster at an address; without one, a cluster on this machine begins and ends here."""
    _check_installed()
    if address is not None:
        check_cluster(address)
    import ray

    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    begun = not ray.is_initialized()
    try:
        if begun:
            alone = {"include_dashboard": False} if address is None else {}
            with without_raw_lines():
                ray.init(address=address or "local", **quiet, **alone)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise no_cluster(address, said) from error
    try:
        yield RayCluster(ray, address)
    finally:
        if begun:
            with without_raw_lines():
                ray.shutdown()


def _check_installed() -> None:
    if importlib.util.find_spec("ray") is None:
        fix = "pip install 'carp-rec[ray]'"
        raise UsageError("the engine ray needs ray, which is not installed", where="--engine", fix=fix)


@contextlib.contextmanager
def without_raw_lines() -> Iterator[None]:
    """What Ray itself prints goes nowhere meanwhile, unless CARP_DEBUG=1. Its C++ writes past Python's streams."""
    if os.environ.get("CARP_DEBUG") == "1":
        yield
        return
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as instead:
        os.dup2(instead.fileno(), 2)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            os.dup2(before, 2)
            os.close(before)
