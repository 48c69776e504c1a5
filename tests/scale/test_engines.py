"""What can be refused before a cluster is looked for, and what needs none. tests/cluster has the rest."""

from __future__ import annotations

import builtins
import errno
import os
import platform

import numpy as np
import polars
import pytest

import carp
from carp.cli import entry
from carp.errors import CarpError, StorageError, UsageError
from carp.scale import ray_cluster, ray_training
from carp.serve.ray_replicas import check_replica_options
from carp.training.company import LostCompany


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "ray://127.0.0.1:1", "127.0.0.1:999999"])
def test_no_cluster_at_the_address_is_told_at_once(monkeypatch, address):
    monkeypatch.setattr(ray_cluster, "_ray", Pretended)
    with pytest.raises(CarpError, match="there is no cluster to join"), ray_cluster.connected(address):
        pass


class Pretended:
    @staticmethod
    def is_initialized():
        return False


def test_without_ray_the_engine_says_how_to_have_it(monkeypatch):
    known = builtins.__import__

    def missing(name, *rest, **more):
        if name.split(".")[0] == "ray":
            raise ImportError(name)
        return known(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UsageError, match="needs ray, which is not installed"), ray_cluster.connected():
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "nothing", "--ray-address", "here:1"], "an address is for the engine ray"),
        (["prepare", "nothing", "--out", "out", "--ray-address", "here:1"], "an address is for the engine ray"),
        (["train", "nothing", "--out", "out", "--ray-address", "here:1"], "an address is for the engine ray"),
        (["serve", "nothing", "--ray-address", "here:1"], "an address is for the engine ray"),
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
