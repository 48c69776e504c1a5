"""The stages on a Ray cluster of three nodes on this machine, of which one is killed: the same bytes and answers.

Starting a cluster takes half a minute, so these run with `make cluster` (CARP_CLUSTER=1).
"""

from __future__ import annotations

import json
import os
import threading

import polars
import pytest

import carp
from carp.cli import entry
from carp.reviews.shop.made_up_shop import make_shop
from carp.scale import ray_cluster
from carp.scale.ray_cluster import connected

pytestmark = pytest.mark.skipif(
    os.environ.get("CARP_CLUSTER") != "1", reason="starting a cluster takes long; make cluster runs these"
)
SMALL = ["dimension=8", "filters=6", "latent_size=4", "viewpoints=2", "epochs=2"]


@pytest.fixture(scope="module")
def nodes():
    """A head without cores, and three nodes with one each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(3):
        cluster.add_node(num_cpus=1)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reviews")
    for number in range(3):
        records = make_shop(people=40, things=15, reviews_per_person=8, seed=number).records()
        lines = [json.dumps({**one, "user": f"{number}-{one['user']}"}) + "\n" for one in records]
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def corpus(reviews, tmp_path_factory):
    out = tmp_path_factory.mktemp("corpus") / "corpus"
    assert entry.main(["prepare", *map(str, reviews), "--out", str(out), "--min-reviews", "1"]) == 0
    return out


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("model") / "model"
    settings = ["--model", "carp", *(part for one in SMALL for part in ("--set", one))]
    assert entry.main(["train", str(corpus), "--out", str(out), "--device", "cpu", "--quiet", *settings]) == 0
    return out


def on(nodes, *words):
    return entry.main([*map(str, words), "--engine", "ray", "--ray-address", nodes.address])


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_corpus_is_the_same_bytes(nodes, corpus, reviews, tmp_path):
    assert on(nodes, "prepare", *reviews, "--out", tmp_path / "corpus", "--min-reviews", "1") == 0
    assert contents(tmp_path / "corpus") == contents(corpus)


def test_recommendations_are_the_same_though_a_node_is_killed_meanwhile(nodes, model, tmp_path, monkeypatch):
    from carp.scale import ray_jobs

    monkeypatch.setattr(ray_jobs, "PEOPLE_AT_ONCE", 5)
    alone, there = tmp_path / "alone.parquet", tmp_path / "there.parquet"
    assert entry.main(["recommend", str(model), "--all", "--out", str(alone)]) == 0
    victim = next(node for node in nodes.list_all_nodes() if node is not nodes.head_node)
    killed = threading.Event()
    result = ray_cluster.RayCluster.result

    def killing(self, reference):
        found = result(self, reference)
        if not killed.is_set():  # after the first of many tasks
            killed.set()
            nodes.remove_node(victim, allow_graceful=False)
        return found

    monkeypatch.setattr(ray_cluster.RayCluster, "result", killing)
    assert on(nodes, "recommend", model, "--all", "--out", there) == 0
    assert killed.is_set()
    nodes.add_node(num_cpus=1)
    assert polars.read_parquet(there).equals(polars.read_parquet(alone))
    assert polars.read_parquet(there)["user"].n_unique() == len(carp.load(model).fitted_corpus.users)


def test_cells_of_a_grid_are_the_same_and_those_that_are_done_are_not_run_again(nodes, corpus, tmp_path, capsys):
    words = ["bench", corpus, "--models", "mean,bias,mf", "--seeds", "2", "--device", "cpu", "--set", "epochs=2"]
    assert entry.main([*map(str, words), "--out", str(tmp_path / "alone")]) == 0
    assert on(nodes, *words, "--out", tmp_path / "there") == 0

    def found(folder):
        lines = map(json.loads, (folder / "bench.jsonl").read_text().splitlines())
        return {(line["model"], line["split_seed"]): line["test_mse"] for line in lines}

    assert found(tmp_path / "there") == found(tmp_path / "alone")
    capsys.readouterr()
    assert on(nodes, *words, "--out", tmp_path / "there", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ran"] == 0


def test_workers_with_another_carp_are_named(nodes, monkeypatch):
    monkeypatch.setattr(ray_cluster, "this_carp", lambda: ("9.9", "3.11"))
    with connected(nodes.address) as cluster, pytest.raises(carp.CarpError, match="a worker has carp"):
        cluster.result(cluster.submit(len, "abc"))
