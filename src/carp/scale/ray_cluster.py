"""Work on a Ray cluster: functions of other packages as tasks, with results in the order of the tasks or as they come.

A task whose node is lost runs again elsewhere. Every task first looks whether its worker has the same carp as the
process that asked.
"""

from __future__ import annotations

import contextlib
import platform
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import carp
from carp.errors import CarpError, StorageError, UsageError

Task = TypeVar("Task")
Result = TypeVar("Result")
AGAIN = 5  # times that a task runs again after its worker or node was lost
AHEAD = 2  # tasks for each core that are given out before results are taken
PATIENCE = 10  # seconds for somebody at an address to answer
Versions = tuple[str, str]


class TaskLost(CarpError):
    """A task was lost again and again."""


class RayCluster:
    """A cluster that this process is connected to."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        # Nodes may come and go; this says how many tasks are worth giving out at first.
        self.size = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._functions: dict[Callable[..., Any], Any] = {}

    @property
    def cards(self) -> int:
        return int(self._ray.cluster_resources().get("GPU", 0))

    @property
    def nodes(self) -> int:
        """Nodes that are there and have a core to work with."""
        return max(1, sum(1 for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")))

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
            for one in self._ray.wait(list(given))[0]:
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
    ray = _ray()
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    begun = not ray.is_initialized()
    if address is not None:
        _check_listening(address)  # Ray itself would try for minutes
    try:
        if begun:
            alone = {"include_dashboard": False} if address is None else {}
            ray.init(address=address or "local", **quiet, **alone)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise _no_cluster(address, error) from error
    try:
        yield RayCluster(ray)
    finally:
        if begun:
            ray.shutdown()


def _check_listening(address: str) -> None:
    """Refuse an address where nobody listens. `auto` is Ray's word for the cluster of this machine."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if address == "auto":
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str | None, error: Exception) -> CarpError:
    said = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    fix = "start one with ray start --head, or leave --ray-address out"
    return CarpError(f"there is no cluster to join ({said})", where=address, fix=fix)


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        fix = "pip install 'carp-rec[ray]'"
        raise UsageError("the engine ray needs ray, which is not installed", where="--engine", fix=fix) from error
    return ray
