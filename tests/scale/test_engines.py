"""What can be refused before a cluster is looked for, and what needs none. tests/cluster has the rest."""

from __future__ import annotations

import errno
import importlib.util
import os
import platform
import signal
import sys
import threading
from types import SimpleNamespace

import numpy as np
import polars
import pytest

import carp
from carp.cli import entry
from carp.errors import CarpError, StorageError, UsageError
from carp.scale import ray_cluster, ray_training
from carp.serve.ray_replicas import check_replica_options
from carp.training.checkpoint import CHECKPOINT
from carp.training.company import LostCompany
from carp.training.loop import Stopped


def test_an_address_is_looked_at_before_ray_is_told_of_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it would fail
    with pytest.raises(CarpError, match="there is no cluster to join"), ray_cluster.connected("127.0.0.1:1"):
        pass


def test_without_ray_the_engine_says_how_to_have_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs ray, which is not installed"), ray_cluster.connected():
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "nothing", "--ray-address", "here:1"], "an address is for the engine ray"),
        (["prepare", "nothing", "--out", "out", "--ray-address", "here:1"], "an address is for the engine ray"),
        (["train", "nothing", "--out", "out", "--ray-address", "here:1"], "an address is for the engine ray"),
        (["serve", "nothing", "--ray-address", "here:1"], "an address is for the engine ray"),
        (["serve", "nothing", "--engine", "ray", "--connections", "50"], "--connections is not for the engine ray"),
        (["serve", "nothing", "--engine", "ray", "--client-connections", "5"], "--client-connections is not for the"),
        (["recommend", "nothing", "somebody", "--engine", "ray"], "one person needs no cluster"),
    ],
)
def test_engines_that_make_no_sense_are_refused(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert entry.main(words) == 2
    assert said in capsys.readouterr().err


def test_workers_of_another_version_are_named():
    with pytest.raises(UsageError, match=r"a worker has carp .* and this process carp 9.9, Python 3.11"):
        ray_cluster._call(len, "abc", ("9.9", "3.11"))
    assert ray_cluster._call(len, "abc", ray_cluster.this_carp()) == 3


def test_a_full_disk_on_a_worker_is_named_with_the_worker():
    def writing(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file)

    with pytest.raises(StorageError, match=r"a worker could not read or write \(No space left on device\)") as caught:
        ray_cluster._call(writing, "/shared/part", ray_cluster.this_carp())
    assert caught.value.where == f"{platform.node()}: /shared/part"


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ([LostCompany("another process ended"), CarpError("the loss is no number")], "the loss is no number"),
        ([LostCompany("another process ended")], "each time a process was lost"),
    ],
)
def test_a_training_that_failed_on_a_cluster_says_what_a_process_said(failures, said, tmp_path):
    error = ray_training._first_reason(failures, RuntimeError("x"), tmp_path)
    assert said in str(error)


def pretended_ray(cores, free, get=None):
    return SimpleNamespace(
        cluster_resources=lambda: {"CPU": float(cores)} if cores else {},
        available_resources=lambda: {"CPU": float(free)} if free else {},
        get=get,
        exceptions=SimpleNamespace(**dict.fromkeys(ERRORS_OF_RAY, ZeroDivisionError)),
    )


ERRORS_OF_RAY = ("RayTaskError", "WorkerCrashedError", "RayActorError", "ObjectLostError", "RaySystemError")


def test_a_cluster_without_cores_is_refused_with_what_to_start():
    with pytest.raises(CarpError, match="the cluster has no cores") as caught:
        ray_cluster.RayCluster(pretended_ray(0, 0), "10.0.0.5:6379")
    assert caught.value.where == "10.0.0.5:6379"
    assert "ray start --address=10.0.0.5:6379" in caught.value.fix


@pytest.mark.parametrize(("free", "wanted", "said"), [(0, 1, "of the cluster's 4 none was free"), (1, 3, "1 was free")])
def test_cores_that_others_have_are_awaited_in_words(monkeypatch, free, wanted, said):
    told, heard = threading.Event(), []
    monkeypatch.setattr(ray_cluster, "SILENCE", 0.0)
    monkeypatch.setattr(ray_cluster.warnings, "warn", lambda warning, **_: (heard.append(str(warning)), told.set()))
    with ray_cluster.RayCluster(pretended_ray(4, free), "here:1").telling_of_cores(wanted):
        assert told.wait(60)
    assert len(heard) == 1
    assert said in heard[0]
    assert "Ctrl-C ends this command" in heard[0]


def test_the_first_task_tells_of_cores_and_the_next_one_does_not(monkeypatch):
    told, heard = threading.Event(), []
    monkeypatch.setattr(ray_cluster, "SILENCE", 0.0)
    monkeypatch.setattr(ray_cluster.warnings, "warn", lambda warning, **_: (heard.append(warning), told.set()))
    cluster = ray_cluster.RayCluster(pretended_ray(2, 0, get=lambda one: told.wait(60) and one))
    assert cluster.result("first") == "first"
    assert cluster.result("second") == "second"
    assert len(heard) == 1


def test_nothing_is_told_of_cores_that_are_free():
    before = threading.active_count()
    with ray_cluster.RayCluster(pretended_ray(2, 2)).telling_of_cores(2):
        assert threading.active_count() == before


def test_what_ray_prints_of_itself_is_kept_from_the_user(capfd):
    with ray_cluster.without_raw_lines():
        os.write(2, b"[W 1 1] gcs_client.cc:210: a raw line\n")
        print("(raylet) another")
    print("ours", file=sys.stderr)
    assert capfd.readouterr() == ("", "ours\n")


@pytest.mark.parametrize("kept", [True, False])
def test_a_training_that_waits_on_a_cluster_ends_by_ctrl_c(monkeypatch, tmp_path, kept):
    errors_of_train = SimpleNamespace(TrainingFailedError=ZeroDivisionError)
    monkeypatch.setitem(sys.modules, "ray.train.v2.api.exceptions", errors_of_train)
    if kept:
        (tmp_path / CHECKPOINT).touch()

    def fit():
        assert threading.current_thread() is not threading.main_thread(), "there Ray Train takes Ctrl-C for itself"
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait()

    with pytest.raises(Stopped if kept else KeyboardInterrupt, match="a checkpoint is kept" if kept else None):
        ray_training._fit(SimpleNamespace(fit=fit), tmp_path)


def test_what_goes_wrong_while_a_cluster_trains_is_raised_here():
    def fail():
        raise CarpError("the loss is no number")

    with pytest.raises(CarpError, match="the loss is no number"):
        ray_training._interruptible(fail)


def test_options_of_the_service_that_ray_does_not_have_are_refused():
    with pytest.raises(UsageError, match="metrics_port is not for the engine ray"):
        check_replica_options(log=None, metrics_port=9000)
    check_replica_options(log=None, metrics_port=None)


def test_everybody_as_parquet_is_what_the_csv_says(tmp_path, single_thread):
    frame = carp.make_shop(people=12, things=12, reviews_per_person=6, seed=1).frame()
    made = carp.Recommender("bias", min_reviews=1, device="cpu").fit(carp.read_reviews(frame), progress=False)
    made.save(tmp_path / "model")
    for file in ("best.csv", "best.parquet"):
        assert (
            entry.main(["recommend", str(tmp_path / "model"), "--all", "-n", "2", "--out", str(tmp_path / file)]) == 0
        )
    rows, written = polars.read_parquet(tmp_path / "best.parquet"), polars.read_csv(tmp_path / "best.csv")
    assert rows.columns == ["user", "rank", "item", "rating", "item_average", "title"]
    assert rows.select("user", "item").equals(written.select("user", "item"))
    assert np.allclose(rows["rating"].to_list(), written["predicted"].to_list(), atol=1e-6)
