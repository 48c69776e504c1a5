"""One training on a Ray cluster, by Ray Train: several processes on its nodes, which begin again where one is lost."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from carp.errors import CarpError
from carp.scale.ray_cluster import AGAIN, RayCluster, Versions, check_versions, this_carp
from carp.training.checkpoint import CHECKPOINT
from carp.training.company import LostCompany
from carp.training.loop import Stopped

Work = Callable[[list[str]], None]


def train_on(cluster: RayCluster, work: Work, words: Sequence[str], count: int | None, where: Path) -> None:
    """Let several processes of a cluster do the same work together, as torchrun would.

    If a process or its node is lost, all of them are started again, five times at most; the work has to go on from its
    own checkpoint. All nodes must see the same folders.

    Args:
        cluster: Where.
        work: What every process calls, with the words.
        words: Of a command line.
        count: Of processes; None: one for each card of the cluster, or for each node where there are none.
        where: The folder of the checkpoints. What Ray notes about the training goes beside it.
    """
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    cards = cluster.cards
    size = count or cards or cluster.nodes
    scaling = ScalingConfig(
        num_workers=size,
        use_gpu=cards > 0,
        resources_per_worker={"CPU": 1, **({"GPU": 1} if cards else {})},
        placement_strategy="SPREAD",
    )
    with _notes(where) as folder, cluster.telling_of_cores(size):
        trainer = TorchTrainer(
            _run_rank,
            train_loop_config={"work": work, "words": list(words), "wanted": this_carp()},
            scaling_config=scaling,
            torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if cards else "gloo"),
            run_config=RunConfig(storage_path=str(folder), failure_config=FailureConfig(max_failures=AGAIN)),
        )
        _fit(trainer, where)


@contextlib.contextmanager
def _notes(where: Path) -> Iterator[Path]:
    """A folder for what Ray writes down, which goes when the training ends."""
    folder = where.absolute().with_name(f".{where.name}.ray")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fit(trainer: Any, where: Path) -> None:
    from ray.train.v2.api.exceptions import TrainingFailedError

    try:
        _interruptible(trainer.fit)
    except KeyboardInterrupt:
        if not (where / CHECKPOINT).exists():
            raise
        fix = "run the same command with --resume to go on"
        raise Stopped("training was interrupted; a checkpoint is kept", where=str(where), fix=fix) from None
    except TrainingFailedError as error:
        failures = [one for one in getattr(error, "worker_failures", {}).values() if one is not None]
        raise _first_reason(failures, error, where) from error


def _interruptible(work: Callable[[], Any]) -> None:
    """Work beside this thread, so that Ctrl-C ends the wait.

    In the main thread Ray Train would take Ctrl-C for itself, and go on waiting for cores that may never be free.
    """
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            ended.put(error)
        else:
            ended.put(None)

    threading.Thread(target=run, daemon=True).start()
    if (error := ended.get()) is not None:
        raise error


def _first_reason(failures: Sequence[BaseException], error: Exception, where: Path) -> CarpError:
    """What a process itself had to say, or else that it was lost."""
    causes = [getattr(one, "cause", None) or one for one in failures]
    for one in causes:
        if isinstance(one, CarpError) and not isinstance(one, LostCompany):
            return one
    said = " ".join(str(causes[0] if causes else error).split())[-300:]
    what = f"the training was begun {AGAIN + 1} times, and each time a process was lost ({said})"
    return LostCompany(what, where=str(where), fix="see the logs of the cluster, then run it again with --resume")


def _run_rank(config: dict[str, Any]) -> None:
    """What runs in each process. Ray has made them a company already."""
    import ray.train

    wanted: Versions = config["wanted"]
    check_versions(wanted)
    context = ray.train.get_context()
    place = {"RANK": context.get_world_rank(), "WORLD_SIZE": context.get_world_size()}
    place |= {"LOCAL_RANK": context.get_local_rank(), "LOCAL_WORLD_SIZE": context.get_local_world_size()}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")  # says that there are others; they have met already
    config["work"](config["words"])
