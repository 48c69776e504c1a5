"""A running service takes an updated model: no request is dropped, and no answer is of two models."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import shutil
import signal
import sys

import polars
import pytest

import carp
from carp.errors import CarpError
from carp.persist.bundle_checks import check_facts
from carp.serve.access_control import check_administrator
from carp.serve.engine_messages import EngineStarted, Loaded, LoadFailed
from carp.serve.engine_pool import EnginePool
from carp.serve.engine_process import bundle_sum
from carp.serve.log_lines import LogLines
from carp.serve.problems import Problem
from carp.upkeep.updating import update_model
from played_engines import NO_PROCESS, OneEngine, settled
from served_models import served
from swap_storm import reload, replacing, requests_for, weather


@pytest.fixture
def updated(bundle, tmp_path):
    """The bundle with a review that moves its answers."""
    folder = shutil.copytree(bundle, tmp_path / "updated")
    rows = {"user": ["person-005"] * 5, "item": [f"thing-00{n}" for n in range(4, 9)]}
    said = [f"It broke after {days} days, and it was far too heavy for me." for days in range(5)]
    new = polars.DataFrame({**rows, "rating": [1] * 5, "text": said})
    update_model(folder, new, device="cpu")
    return folder


def test_a_model_tells_the_sum_of_the_very_folder_that_was_opened(bundle, tmp_path, monkeypatch):
    """Whatever is put in its place while it is being read."""
    place = shutil.copytree(bundle, tmp_path / "place")

    def check_what_was_opened(facts):
        (place / "manifest.json").rename(tmp_path / "manifest of before")
        (place / "manifest.json").write_text("{}")
        check_facts(facts)

    monkeypatch.setattr("carp.persist.bundle.check_facts", check_what_was_opened)
    assert carp.load(place, device="cpu").bundle_sum == bundle_sum(bundle) != bundle_sum(place)


def test_clients_do_not_notice_a_swap(bundle, updated, recommender, tmp_path):
    place = shutil.copytree(bundle, tmp_path / "place")
    asked = requests_for(list(recommender.fitted_corpus.users), list(recommender.fitted_corpus.items))
    put_next = replacing(place, itertools.cycle([updated, bundle]))
    with served(place) as (service, port):

        def swap(_):
            put_next()
            service.send_signal(signal.SIGHUP)
            said = next(service.stderr)
            assert f"as it is now ({bundle_sum(updated)[:12]})" in said

        storm = weather(port, asked, 2, swap, 1)  # `make torture-serve` has more clients and swaps
        assert storm.errors == []
        assert storm.mixed == 0
        assert storm.models == {bundle_sum(bundle), bundle_sum(updated)}
        assert storm.telling > 3
        assert reload(port) == bundle_sum(updated), "what is served already is not loaded again"


# ---- the pool, with engines that the test plays


class Playing(EnginePool):
    """A pool whose loaders are played by the test."""

    def __init__(self, engines):
        super().__init__(engines, LogLines(None))
        self.generations = []

    def _load(self, generation):
        self.generations.append(generation)


def test_what_an_engine_was_at_is_answered_by_the_model_it_was_given_to(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")

    async def everything():
        pool = Playing(1)
        await pool.start(tmp_path, None)
        old, new = OneEngine(), OneEngine()
        joined = asyncio.Event()
        pool.changed = joined.set
        pool.facts = Loaded("old", "carp", b"{}")
        pool.take_news(EngineStarted(NO_PROCESS), [old.door.detach()])
        await joined.wait()
        first = asyncio.create_task(pool.ask("recommend", "first"))
        await settled()
        swapping = asyncio.create_task(pool.reload())
        await settled()
        coming = pool.generations[-1]
        pool.take_news(Loaded("new", "carp", b"{}"), [], coming)
        assert pool.facts.bundle == "old", "until its engines are there, the one of before is served"
        pool.take_news(EngineStarted(NO_PROCESS + 1), [new.door.detach()], coming)
        assert (await swapping).bundle == "new"
        second = asyncio.create_task(pool.ask("recommend", "second"))
        new.may_answer.release()
        await second
        assert not first.done(), "a slow answer is waited for"
        old.may_answer.release()
        await first
        await pool.close()
        return [call.asked for call in old.asked], [call.asked for call in new.asked], pool.swaps, pool.restarts

    assert asyncio.run(everything()) == ([[["first"]]], [[["second"]]], 1, 0)


def test_a_model_that_cannot_be_loaded_leaves_the_one_of_before(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")

    async def everything():
        pool = Playing(1)
        await pool.start(tmp_path, None)
        pool.facts = Loaded("old", "carp", b"{}")
        swapping = asyncio.create_task(pool.reload())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        pool.take_news(LoadFailed("it is damaged", None, None, 1), [], pool.generations[-1])
        with pytest.raises(CarpError, match="it is damaged"):
            await swapping
        return pool.failure, pool.facts.bundle

    assert asyncio.run(everything()) == (None, "old")


def test_an_unchanged_model_is_not_loaded_again(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")

    async def everything():
        pool = Playing(1)
        await pool.start(tmp_path, None)
        pool.facts = Loaded(bundle_sum(tmp_path), "carp", b"{}")
        await pool.reload()
        return len(pool.generations)

    assert asyncio.run(everything()) == 1


# ---- who may ask for it


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        ("192.0.2.7", {"x-carp-admin": "reload"}),
        ("127.0.0.1", {}),
        ("127.0.0.1", {"x-carp-admin": "reload", "x-forwarded-for": "192.0.2.7"}),
        ("127.0.0.1", {"x-carp-admin": "reload", "via": "1.1 proxy"}),
        ("", {"x-carp-admin": "reload"}),
    ],
)
def test_only_this_machine_may_ask_for_a_swap(client, headers):
    with pytest.raises(Problem) as caught:
        check_administrator(headers, client)
    assert caught.value.status == 403


def test_a_service_made_in_python_says_that_it_has_one_model(client, recommender):
    from starlette import testclient

    from carp.serve.routes import make_app

    assert client.post("/admin/reload").status_code == 403
    here = testclient.TestClient(make_app(recommender), client=("127.0.0.1", 5))
    answer = here.post("/admin/reload", headers={"x-carp-admin": "reload"})
    assert answer.status_code == 409
    assert "given its model in Python" in json.loads(answer.content)["detail"]


def test_a_replica_on_ray_names_who_changes_its_model(recommender, tmp_path, monkeypatch):
    from starlette import testclient

    from carp.scale.ray_cluster import this_carp
    from carp.serve.ray_replicas import ReplicaOrder, replica_app
    from carp.serve.server import ServiceOptions

    monkeypatch.setattr(sys, "stderr", io.StringIO())  # where a replica writes its log
    recommender.save(tmp_path / "model")
    order = ReplicaOrder(ServiceOptions(tmp_path / "model"), bundle_sum(tmp_path / "model"), this_carp())
    here = testclient.TestClient(replica_app(order), client=("127.0.0.1", 5))
    answer = here.post("/admin/reload", headers={"x-carp-admin": "reload"})
    assert answer.status_code == 409
    said = json.loads(answer.content)
    assert "does not change its model by itself" in said["detail"]
    assert "send SIGHUP to the carp serve command" in said["fix"]
