"""The service on a Ray cluster: replicas behind one address, by Ray Serve, and a rolling change of the model.

Each replica is the whole service in one process, with its own copy of the model. A newer model is brought in replica by
replica: those of before answer until the others are there, and every answer is one model's.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import carp
from carp.errors import CarpError, UsageError
from carp.scale.ray_cluster import Versions, check_versions, connected, this_carp, without_raw_lines
from carp.serve.connection_places import KEPT_FOR_PROBES
from carp.serve.local_engine import MOST_WAITING, LocalEngine, NoOtherModel
from carp.serve.server import ServiceOptions

if TYPE_CHECKING:
    from fastapi import FastAPI

NAME = "carp"  # of the application in Ray Serve
TIME_TO_LOAD = 600.0  # seconds for a replica to load the model
# Requests that Ray gives to a replica at a time: those that wait there, and probes, which it answers meanwhile.
AT_ONCE = MOST_WAITING + KEPT_FOR_PROBES
MOST_QUEUED = 128  # requests that wait for a replica at the front; more are answered by 503
TIME_TO_FINISH = 20.0  # seconds for a replica that goes to answer what it has begun
OTHER_MODEL = NoOtherModel(
    "a replica on Ray does not change its model by itself",
    "send SIGHUP to the carp serve command that started the replicas; it brings the newer model to all of them",
)


@dataclass(frozen=True)
class ReplicaOrder:
    """What a replica is made from; it is sent to the nodes."""

    options: ServiceOptions
    bundle: str  # the sum of the model's manifest: all replicas of one order have the same model
    wanted: Versions


def run_replicas(
    options: ServiceOptions, host: str, port: int, address: str | None, say: Callable[[str], None]
) -> None:
    """Answer until told to stop; SIGHUP brings in the model that is at its place then.

    Args:
        options: What is served; `workers` is the number of replicas.
        host: Where the cluster's first node listens.
        port: The port; 0 takes a free one.
        address: The cluster to join; None: one on this machine begins and ends here.
        say: Hears what a person at the terminal wants to know.
    """
    options = replace(options, model=options.model.absolute())
    port = port or _free_port(host)
    with connected(address) as cluster:
        serve = _ray_serve()
        serve.start(http_options={"host": host, "port": port}, proxy_location="HeadOnly")
        try:
            with cluster.telling_of_cores(options.workers):
                _deploy(options)
            number = options.workers
            say(f"Serving {options.place} at http://{host}:{port}/ with {number} replica{'s' * (number > 1)}.")
            _wait(lambda: _deploy_again(options, say))
        finally:
            with without_raw_lines():
                serve.shutdown()


def _ray_serve() -> Any:
    """Ray Serve, whose own lines stay in its logs unless something is wrong. It comes with Ray's extra alone."""
    try:
        from ray import serve
    except ImportError as error:
        fix = "pip install 'carp-rec[ray]'"
        raise UsageError(f"serving by Ray needs {error.name or 'ray[serve]'}", where="--engine", fix=fix) from error
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    return serve


def _free_port(host: str) -> int:
    with socket.socket() as one:
        one.bind((host, 0))
        return int(one.getsockname()[1])


def _deploy(options: ServiceOptions) -> str:
    """Let the replicas be those of the model that is at its place now; its sum."""
    from ray import serve

    # A damaged model is refused here, in words.
    recommender = carp.load(options.model, device="cpu")
    recommender.fitted_corpus.check_texts()
    order = ReplicaOrder(options, recommender.bundle_sum, this_carp())

    def build() -> Any:
        return replica_app(order)

    deployment = serve.deployment(serve.ingress(build)()).options(
        name=NAME,
        num_replicas=options.workers,
        max_ongoing_requests=AT_ONCE,
        max_queued_requests=MOST_QUEUED,
        ray_actor_options={"num_cpus": 1},
        graceful_shutdown_timeout_s=TIME_TO_FINISH,
        health_check_timeout_s=TIME_TO_LOAD,
    )
    try:
        serve.run(deployment.bind(), name=NAME, route_prefix="/")
    except RuntimeError as error:
        said = " ".join(str(error).split())[-300:]
        raise CarpError(f"the replicas could not be started ({said})", where=str(options.model)) from error
    return order.bundle


def _deploy_again(options: ServiceOptions, say: Callable[[str], None]) -> None:
    try:
        if options.copies is not None:  # the copy of before stays: replicas may have it mapped until the very end
            options = replace(options, model=options.copies.fetch() or options.model)
        say(f"Serving {options.place} as it is now ({_deploy(options)[:12]}).")
    except (CarpError, MemoryError) as error:
        told = error if isinstance(error, CarpError) else "this machine has too little memory"
        say(f"The model is not loaded again, and the one of before goes on: {told}")


def _wait(again: Callable[[], None]) -> None:
    """Until SIGTERM or Ctrl-C; SIGHUP asks for the model again."""
    told, ending = threading.Event(), threading.Event()

    def end(*_: object) -> None:
        ending.set()
        told.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: told.set())
    try:
        while not ending.is_set():
            told.wait()
            told.clear()
            if not ending.is_set():
                again()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def replica_app(order: ReplicaOrder) -> FastAPI:
    """The service of one replica, in this process."""
    from carp.serve.log_lines import LogLines
    from carp.serve.routes import app_for

    check_versions(order.wanted)
    options = order.options
    recommender = carp.load(options.model, device="cpu")
    if recommender.bundle_sum != order.bundle:
        fix = "ask for it again with SIGHUP"
        raise CarpError("the model was replaced while it was being loaded", where=str(options.model), fix=fix)
    engine = LocalEngine(recommender, options.results, order.bundle, OTHER_MODEL)
    log = LogLines(sys.stderr)
    return app_for(engine, rules=options.rules, limit=options.limit(), log=log, pictures=options.pictures)


def check_replica_options(**given: Any) -> None:
    """Refuse options that are for the engine of this machine alone."""
    for name, value in given.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is not for the engine ray", where="--engine", fix=f"leave out {option}")
