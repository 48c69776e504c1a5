"""The stages on a Ray cluster of three nodes on this machine, of which one is killed: the same bytes and answers.

Starting a cluster takes half a minute, so these run with `make cluster` (CARP_CLUSTER=1).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request

import numpy as np
import polars
import pytest

import carp
from carp.cli import entry
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources import line_reading
from carp.scale import ray_cluster
from carp.scale.ray_cluster import connected
from carp.serve.engine_process import bundle_sum
from carp.storage import load_arrays
from carp.training.checkpoint import LOG

pytestmark = pytest.mark.skipif(
    os.environ.get("CARP_CLUSTER") != "1", reason="starting a cluster takes long; make cluster runs these"
)
SMALL = ["dimension=8", "filters=6", "latent_size=4", "viewpoints=2", "epochs=2"]


@pytest.fixture(scope="module")
def nodes():
    """A head without cores, and three nodes with two each: any two of them have room for three processes."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(3):
        cluster.add_node(num_cpus=2)
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


def killing(nodes, monkeypatch, name, after=1):
    """After so many results of a cluster, kill a node and bring another one; the event says that it happened."""
    killed, seen = threading.Event(), []
    method = getattr(ray_cluster.RayCluster, name)

    def counting(self, *given):
        found = method(self, *given)
        seen.append(found)
        if len(seen) == after:
            lose_a_node(nodes)
            nodes.add_node(num_cpus=2)
            killed.set()
        return found

    monkeypatch.setattr(ray_cluster.RayCluster, name, counting)
    return killed


def lose_a_node(nodes):
    victim = next(node for node in nodes.list_all_nodes() if node is not nodes.head_node)
    nodes.remove_node(victim, allow_graceful=False)


def test_a_corpus_is_the_same_bytes_though_a_node_is_killed_meanwhile(nodes, corpus, reviews, tmp_path, monkeypatch):
    monkeypatch.setattr(line_reading, "STRETCH", 20_000)  # several tasks a file
    killed = killing(nodes, monkeypatch, "result", after=2)
    assert on(nodes, "prepare", *reviews, "--out", tmp_path / "corpus", "--min-reviews", "1") == 0
    assert killed.is_set()
    assert contents(tmp_path / "corpus") == contents(corpus)


def epochs_in(log):
    try:
        return len(log.read_text().splitlines())
    except OSError:  # not yet
        return 0


def test_training_has_the_weights_of_an_undisturbed_one_though_a_node_is_killed_meanwhile(nodes, corpus, tmp_path):
    settings = [*SMALL[:-1], "epochs=30", "patience=100"]
    words = ["train", corpus, "--model", "carp", "--device", "cpu", "--processes", "3"]
    words += [part for one in settings for part in ("--set", one)]
    alone, there = tmp_path / "alone", tmp_path / "there"
    command = [sys.executable, "-m", "carp", *map(str, words), "--out", str(alone), "--quiet"]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    killed = threading.Event()

    def kill_after_two_epochs():
        log = tmp_path / "there.training" / LOG
        while epochs_in(log) < 2:
            killed.wait(0.05)
        lose_a_node(nodes)
        killed.set()

    thread = threading.Thread(target=kill_after_two_epochs, daemon=True)
    thread.start()
    assert on(nodes, *words, "--out", there) == 0
    thread.join()
    assert killed.is_set()
    nodes.add_node(num_cpus=2)
    ours, wanted = (load_arrays(folder / "model.safetensors") for folder in (there, alone))
    assert ours.keys() == wanted.keys()
    for name, weights in wanted.items():
        assert np.array_equal(ours[name], weights), name


def test_recommendations_are_the_same_though_a_node_is_killed_meanwhile(nodes, model, tmp_path, monkeypatch):
    from carp.scale import ray_jobs

    monkeypatch.setattr(ray_jobs, "PEOPLE_AT_ONCE", 5)
    alone, there = tmp_path / "alone.parquet", tmp_path / "there.parquet"
    assert entry.main(["recommend", str(model), "--all", "--out", str(alone)]) == 0
    killed = killing(nodes, monkeypatch, "result")  # after the first of many tasks
    assert on(nodes, "recommend", model, "--all", "--out", there) == 0
    assert killed.is_set()
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


def asked(port, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["x-carp-bundle"], json.loads(answer.read())


def test_replicas_answer_behind_one_address_and_a_newer_model_comes_in_without_an_error(nodes, model, tmp_path):
    served, port = tmp_path / "model", free_port()
    shutil.copytree(model, served)
    words = ["serve", served, "--port", port, "--workers", 2, "--engine", "ray", "--ray-address", nodes.address]
    command = [sys.executable, "-m", "carp", *map(str, words)]
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert any("with 2 replicas" in line for line in iter(service.stderr.readline, ""))
        fitted = carp.load(model).fitted_corpus
        pair = json.dumps({"user": fitted.users[0], "item": fitted.items[1]}).encode()
        old, before = asked(port, "/api/predict", pair)
        assert old == bundle_sum(model)
        (tmp_path / "new.csv").write_text(f"user,item,rating,text\n{fitted.users[0]},{fitted.items[1]},1,it is bad\n")
        assert entry.main(["update", str(served), str(tmp_path / "new.csv"), "--device", "cpu"]) == 0
        new = bundle_sum(served)
        service.send_signal(signal.SIGHUP)
        answers = {old: before}
        while new not in answers:
            bundle, answer = asked(port, "/api/predict", pair)
            assert answers.setdefault(bundle, answer) == answer, "each answer is one model's"
        assert answers.keys() == {old, new}
        assert answers[new] != before
    finally:
        service.send_signal(signal.SIGTERM)
        said = service.communicate(timeout=120)[1]
    assert service.returncode == 0
    assert [line for line in said.splitlines() if not line.startswith(f"Serving {served} as it is now")] == ["Stopped."]


@pytest.fixture
def guarded():
    """A head without cores that asks for a token, with its address."""
    address = f"127.0.0.1:{free_port()}"
    words = ["start", "--head", "--num-cpus=0", "--include-dashboard=false", "--block", f"--port={address[10:]}"]
    folder = tempfile.mkdtemp(dir="/tmp")  # Ray's sockets are in it, and their names must be short
    place = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4, "RAY_TMPDIR": folder}
    command = [sys.executable, "-m", "ray.scripts.scripts", *words]
    head = subprocess.Popen(
        command, env={**os.environ, **place}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert any("Ray runtime started" in line for line in iter(head.stdout.readline, ""))
        yield address, place["RAY_AUTH_TOKEN"]
    finally:
        head.terminate()
        head.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_cluster_that_asks_for_a_token_and_has_no_cores_is_told_in_one_line_each(guarded, model, tmp_path):
    address, token = guarded
    command = [
        sys.executable,
        "-m",
        "carp",
        "recommend",
        str(model),
        "--all",
        "--engine",
        "ray",
        "--ray-address",
        address,
    ]

    def said(**place):
        known = {**os.environ, "HOME": str(tmp_path), **place}
        done = subprocess.run(command, env=known, capture_output=True, text=True, check=False, timeout=120)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        return done.stderr

    assert "the cluster asks for a token, and there is none here" in said()
    assert "the cluster asks for another token" in said(RAY_AUTH_TOKEN="fedcba9876543210" * 4, RAY_AUTH_MODE="token")
    assert "the cluster has no cores" in said(RAY_AUTH_TOKEN=token), "it is of this machine, so its token is sent"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
