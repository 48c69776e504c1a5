"""A service whose model is at an address: asked to, it fetches the model of now, and says what came of it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import threading

import fsspec
import polars
import pytest

from carp.errors import CarpError, StorageError
from carp.scale.served_copies import served_copies
from carp.serve.engine_messages import EngineStarted, Loaded, LoadFailed
from carp.serve.engine_pool import EnginePool
from carp.serve.engine_process import bundle_sum
from carp.serve.log_lines import LogLines
from carp.storage import MANIFEST
from carp.upkeep.updating import update_model
from played_engines import NO_PROCESS, OneEngine
from served_models import served
from swap_storm import reload

ADDRESS = "memory://bucket/model"


async def until(so):
    async with asyncio.timeout(60):  # only where it never will be
        while not so():
            await asyncio.sleep(0.001)


class PlayedLoader:
    """A loader that is there until the test says that its last engine has ended."""

    pid = NO_PROCESS

    def __init__(self):
        self.ended = threading.Event()

    def wait(self, patience=None):
        self.ended.wait()

    def poll(self):
        return 0 if self.ended.is_set() else None


class Playing(EnginePool):
    """A pool whose loaders are played by the test."""

    def __init__(self, copies):
        super().__init__(1, LogLines(None))
        self.copies, self.generations, self.waiting = copies, [], []

    def _load(self, generation):
        generation.loader = PlayedLoader()
        self.generations.append(generation)

    async def loading(self, count):
        await until(lambda: len(self.generations) == count)

    async def close(self):
        for generation in self.generations:
            generation.loader.ended.set()
        await super().close()


def write(manifest):
    fsspec.filesystem("memory").pipe_file(f"/bucket/model/{MANIFEST}", manifest)


@pytest.fixture
def copies():
    write(b"{}")
    with served_copies(ADDRESS) as made:
        yield made
    assert not made.folder.exists()
    fsspec.filesystem("memory").store.clear()


async def serving(copies):
    pool, place = Playing(copies), copies.fetch()
    await pool.start(place, None)
    pool.facts = Loaded(bundle_sum(place), "carp", b"{}")
    return pool, place


def test_what_is_served_already_is_not_fetched_again(copies):
    async def everything():
        pool, _ = await serving(copies)
        before = pool.facts
        facts = await pool.reload()
        await pool.close()
        return facts is before, len(pool.generations), len(list(copies.folder.iterdir()))

    assert asyncio.run(everything()) == (True, 1, 1)


def test_a_copy_stays_as_long_as_an_engine_may_have_it_mapped(copies):
    async def everything():
        pool, old = await serving(copies)
        write(b'{"other": 1}')
        swapping = asyncio.create_task(pool.reload())
        await pool.loading(2)
        coming = pool.generations[-1]
        assert old.exists()
        assert bundle_sum(coming.model) != bundle_sum(old)
        pool.take_news(Loaded(bundle_sum(coming.model), "carp", b"{}"), [], coming)
        pool.take_news(EngineStarted(NO_PROCESS), [OneEngine().door.detach()], coming)
        await swapping
        assert old.exists(), "an engine of before may still be answering"
        pool.generations[0].loader.ended.set()
        await until(lambda: not old.exists())
        assert coming.model.exists()
        await pool.close()

    asyncio.run(everything())


def test_what_cannot_be_fetched_or_loaded_leaves_the_model_of_before(copies):
    async def everything():
        pool, old = await serving(copies)
        fsspec.filesystem("memory").rm_file(f"/bucket/model/{MANIFEST}")
        with pytest.raises(StorageError, match="its manifest is missing"):
            await pool.reload()
        write(b'{"other": 1}')
        swapping = asyncio.create_task(pool.reload())
        await pool.loading(2)
        coming = pool.generations[-1]
        pool.take_news(LoadFailed("it is damaged", f"{coming.model}/{MANIFEST}", None, 1), [], coming)
        with pytest.raises(CarpError) as caught:
            await swapping
        assert caught.value.where == f"{ADDRESS}/{MANIFEST}", "nobody knows the place of the copy"
        coming.loader.ended.set()
        await until(lambda: not coming.model.exists())
        assert old.exists()
        assert pool.facts.bundle == bundle_sum(old)
        await pool.close()

    asyncio.run(everything())


def test_a_service_takes_what_is_at_its_address_and_says_what_it_took(bundle, tmp_path):
    place = shutil.copytree(bundle, tmp_path / "place")
    new = polars.DataFrame({"user": ["ann"], "item": ["thing-004"], "rating": [1], "text": ["It broke at once."]})
    address = f"local://{place}"

    with served(address) as (service, port):

        def told():
            service.send_signal(signal.SIGHUP)
            return next(service.stderr)

        first, weights = bundle_sum(place), (place / "model.safetensors").read_bytes()
        (place / "model.safetensors").write_bytes(b"damaged")  # which nobody looks at: the manifest is the same
        assert told() == (
            f"{address}: this is the model ({first[:12]}) that is being served already, and is not loaded again.\n"
        )
        (place / "model.safetensors").write_bytes(weights)
        update_model(place, new, device="cpu")
        assert told() == f"Serving {address} as it is now ({bundle_sum(place)[:12]}).\n"
        (place / MANIFEST).rename(place / "aside.json")
        said = told()
        assert said.startswith("The model is not loaded again, and the one of before goes on: ")
        assert f"{address}: there is no whole folder here" in said
        (place / "aside.json").rename(place / MANIFEST)
        assert reload(port) == bundle_sum(place) != first
