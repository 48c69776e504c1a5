"""A real service with a small model, and a real browser that looks at it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync")
PATIENCE = 60_000  # milliseconds, for machines that have much else to do
AXE = "axe-core@4.14.0"
SHOP: dict[str, Any] = {"people": 30, "things": 15, "reviews_per_person": 8}
LARGER_SHOP: dict[str, Any] = {"people": 60, "things": 20, "reviews_per_person": 10}
SIZE: dict[str, Any] = {"dimension": 16, "filters": 8, "latent_size": 8, "epochs": 2}
# One person and one thing whose ids and words would be markup, if anybody let them.
MARKUP_USER = '<img src=x onerror="document.body.dataset.hurt=1">'
MARKUP_ITEM = "<b>bold</b>/../thing?a=b&c#d"
MARKUP_TITLE = '<b onclick="document.body.dataset.hurt=1">Drum</b> & Bass'
MARKUP_TEXT = '<script>document.body.dataset.hurt=1</script> & <i onclick="1">sound</i> \U0001f600 '


# The page listens first, so by then it is busy with what it was told.
GO = """link => location.hash === link || new Promise((told) => {
    addEventListener("hashchange", () => told(true), {once: true});
    location.hash = link;
})"""
PICTURES, ELSEWHERE = "https://pictures.example", "https://elsewhere.example"
KINDS = ("amplifier", "headset", "mixer", "radio", "speaker")
DRAWN = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle cx="4" cy="4" r="4" fill="teal"/></svg>'
REQUIRED = os.environ.get("CARP_BROWSER_REQUIRED") == "1"  # then a missing browser fails instead of skipping
if REQUIRED:
    import playwright.sync_api  # noqa: F401


@pytest.fixture(scope="session")
def chromium() -> str:
    named = os.environ.get("CARP_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        reason = f"there is no Chromium on this machine (looked for {', '.join(BROWSERS)}; CARP_CHROMIUM names one)"
        pytest.fail(reason) if REQUIRED else pytest.skip(reason)
    return str(found)


@pytest.fixture(scope="session")
def frame(chromium: str) -> Any:
    """The reviews of a made-up shop in which some ids and texts are full of markup."""
    return shop_reviews(**SHOP)


def shop_reviews(**size: int) -> Any:
    import polars as pl

    from carp.reviews.shop.made_up_shop import make_shop

    records = [_with_markup(dict(record)) for record in make_shop(**size).records()]
    return pl.DataFrame([{name: record[name] for name in ("user", "item", "rating", "text")} for record in records])


def _with_markup(record: dict[str, Any]) -> dict[str, Any]:
    if record["user"] == "person-001":
        record.update(user=MARKUP_USER, text=MARKUP_TEXT + record["text"])
    if record["item"] == "thing-001":
        record.update(item=MARKUP_ITEM, text=MARKUP_TEXT + record["text"])
    return record


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@contextlib.contextmanager
def served(model: Path, *options: str) -> Iterator[str]:
    """Where `carp serve` answers for this model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "carp", "serve", str(model), "--port", str(port), "--workers", "1", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as log:
        service = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}", service, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            service.terminate()
            service.wait(timeout=600)


@pytest.fixture(scope="session")
def serve() -> Callable[..., contextlib.AbstractContextManager[str]]:
    """Starts a service for a model; where it answers."""
    return served


def _wait_until_ready(address: str, service: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and service.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    log.seek(0)
    pytest.fail(f"carp serve did not come up:\n{log.read().decode(errors='replace')}")


@pytest.fixture(scope="session")
def address(frame: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a small CARP, of the form in which texts decide most: else there is nothing to explain."""
    from carp.recommender import Recommender
    from carp.reviews.sources.formats import read_reviews

    model = tmp_path_factory.mktemp("explorer") / "model"
    hostile = read_reviews(frame, markup=True)  # tags are usually taken out; here the page must bear them
    with one_thread():
        Recommender("carp", seed=0, **SIZE, viewpoints=3, variant="paper").fit(hostile, progress=False).save(model)
    with served(model) as address:
        yield address


@pytest.fixture(scope="session")
def plain_address(frame: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a model that has no capsules, and with results of a small benchmark."""
    from carp.bench.datasets import find_sources
    from carp.bench.grid import Grid, read_systems, run_grid
    from carp.recommender import Recommender
    from carp.reviews.corpora.corpus import build_corpus
    from carp.reviews.sources.formats import read_reviews

    folder = tmp_path_factory.mktemp("plain")
    build_corpus(read_reviews(frame), min_reviews=1).save(folder / "shop")
    with one_thread():
        grid = Grid(read_systems("mean,bias"), find_sources([folder / "shop"]), seeds=1)
        run_grid(grid.cells(), folder / "results", device="cpu")
        Recommender("dattn", seed=0, **SIZE).fit(frame, progress=False).save(folder / "model")
    with served(folder / "model", "--results", str(folder / "results")) as address:
        yield address


@pytest.fixture(scope="session")
def summed_address(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service whose ratings are sums, of a shop that has enough reviews for clear reasons."""
    from carp.recommender import Recommender

    model = tmp_path_factory.mktemp("summed") / "model"
    with one_thread():
        Recommender("meeting", seed=0).fit(shop_reviews(**LARGER_SHOP), progress=False).save(model)
    with served(model) as address:
        yield address


@pytest.fixture(scope="session")
def described_address(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service whose ratings are sums, with dates, titles, categories, descriptions and pictures: of some things, from
    where they may be loaded, and of one from elsewhere."""
    import polars as pl

    from carp.recommender import Recommender
    from carp.reviews.corpora.corpus import build_corpus
    from carp.reviews.sources.formats import read_reviews
    from carp.reviews.sources.item_files import read_items

    folder = tmp_path_factory.mktemp("described")
    frame = shop_reviews(**LARGER_SHOP)
    days = [1_640_995_200 + 86_400 * ((7 * n) % 1_000) for n in range(len(frame))]
    described(sorted(set(frame["item"]))).write_csv(folder / "things.csv")
    reviews = read_reviews(frame.with_columns(pl.Series("time", days)))
    corpus = build_corpus(reviews, items=read_items(folder / "things.csv"), min_reviews=1)
    with one_thread():
        Recommender("meeting", seed=0).fit(corpus, progress=False).save(folder / "model")
    with served(folder / "model", "--pictures-from", PICTURES) as address:
        yield address


def described(items: list[str]) -> Any:
    """A file about things in which every fourth has no picture, and one has a picture from elsewhere."""
    import polars as pl

    rows = [
        {
            "id": item,
            "title": f"Model {item[-3:]}" if n else MARKUP_TITLE,
            "category": KINDS[n % len(KINDS)],
            "description": f"A {KINDS[n % len(KINDS)]} for the road. <b>Not bold</b>",
            "picture": None if n % 4 == 0 else f"{ELSEWHERE if n == 1 else PICTURES}/{n}.png",
        }
        for n, item in enumerate(items)
    ]
    return pl.DataFrame(rows)


@pytest.fixture(scope="session")
def titled_address(frame: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service whose things have titles: all but thing-000, and that of thing-002 is full of markup."""
    import polars as pl

    from carp.recommender import Recommender

    named = pl.concat_str([pl.lit("Title of "), pl.col("item")])
    title = pl.when(pl.col("item") == "thing-002").then(pl.lit(MARKUP_TITLE)).otherwise(named)
    untitled = pl.when(pl.col("item") == "thing-000").then(None).otherwise(title)
    model = tmp_path_factory.mktemp("titled") / "model"
    with one_thread():
        titled = frame.with_columns(untitled.alias("name"))
        Recommender("carp", seed=0, **SIZE, viewpoints=3, variant="paper").fit(titled, progress=False).save(model)
    with served(model) as address:
        yield address


# Not for the whole session: while Playwright runs, no other test of this process could run an event loop.
@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Any]:
    from playwright import sync_api as playwright

    playwright.expect.set_options(timeout=PATIENCE)
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=list(QUIET))
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def artefacts() -> Path | None:
    """Where pictures are kept; they take longer than what is tested, so only where somebody wants to look at them."""
    named = os.environ.get("CARP_ARTEFACTS")
    if named:
        Path(named).mkdir(parents=True, exist_ok=True)
    return Path(named) if named else None


class Explorer:
    """The page in one window, with what it fetched and what went wrong in it."""

    def __init__(self, page: Any, address: str, artefacts: Path | None) -> None:
        self.page, self.address, self.artefacts = page, address, artefacts
        self.fetched: list[str] = []
        self.faults: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.context.route(f"{PICTURES}/**", lambda route: route.fulfill(body=DRAWN, content_type="image/svg+xml"))
        page.on("request", lambda request: self.fetched.append(request.url))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._hear)

    def _hear(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self.faults.append(message.text)

    def link(self, view: str, **state: Any) -> str:
        return f"{self.address}/#/{view}?{urlencode(state, doseq=True)}"

    def open(self, view: str, **state: Any) -> Any:
        """Open a link afresh, and wait until the page has its answer."""
        self.page.goto("about:blank")
        self.page.goto(self.link(view, **state))
        return self.settled()

    def go(self, view: str, **state: Any) -> Any:
        """Go to a view as its link in the menu does, within the page where one is open: it is not loaded again."""
        if not self.page.url.startswith(self.address):
            self.open(view, **state)
        else:
            self.page.evaluate(GO, f"#{urlsplit(self.link(view, **state)).fragment}")
            self.settled()
        if view == "whatif" and "review" in state:  # it asks a moment after what is written has come to rest
            self.page.locator(".results[aria-busy=false] .answer").wait_for()
        return self.page

    @contextlib.contextmanager
    def loading(self) -> Iterator[list[int]]:
        """The bytes of each answer that comes meanwhile, known at the end."""
        finished: list[Any] = []
        sizes: list[int] = []

        def note(request: Any) -> None:
            finished.append(request)

        self.page.on("requestfinished", note)
        yield sizes
        self.page.remove_listener("requestfinished", note)
        sizes += [request.sizes()["responseBodySize"] for request in finished]

    def settled(self) -> Any:
        self.page.locator("#view[aria-busy=false]").wait_for()
        return self.page

    def ask(self, path: str) -> Any:
        """The service's own answer, to hold the page against."""
        return self.page.request.get(f"{self.address}/api/{path}").json()

    def field(self, label: str) -> Any:
        return self.page.get_by_role("combobox", name=label, exact=True)

    def hash(self) -> str:
        return urlsplit(self.page.url).fragment

    def keep(self, name: str, *, whole: bool = False) -> None:
        if self.artefacts is not None:
            self.page.screenshot(path=str(self.artefacts / f"{name}.png"), full_page=whole)

    def wipe(self) -> None:
        """Leave nothing of a test to the next one in this window."""
        self.page.unroute_all(behavior="ignoreErrors")
        if self.page.url.startswith("http"):
            self.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        self.page.context.clear_cookies()
        self.page.emulate_media(media="null")
        self.page.mouse.move(0, 0)
        self.page.goto("about:blank")

    def found_wrong(self) -> list[str]:
        """What stumbled and what was asked of foreign hosts, which is then forgotten."""
        own = (self.address, PICTURES, "about:", "data:")
        wrong = [*self.faults, *(url for url in self.fetched if not url.startswith(own))]
        self.faults.clear()
        self.fetched.clear()
        return wrong


@pytest.fixture(scope="package")
def windows(browser: Any) -> dict[str, list[Explorer]]:
    """Windows that no test looks through just now, by how they were opened; a new one costs more than most tests."""
    return {}


@pytest.fixture
def new_explorer(
    browser: Any, windows: dict[str, list[Explorer]], request: pytest.FixtureRequest, artefacts: Path | None
) -> Iterator[Callable[..., Explorer]]:
    """Gives out windows; at the end none of them may have stumbled or asked a foreign host."""
    given: list[tuple[str, Explorer]] = []

    def make(width: int = 1280, height: int = 900, *, at: str | None = None, **options: Any) -> Explorer:
        at = at or request.getfixturevalue("address")
        kind = json.dumps(options, sort_keys=True)
        free = windows.setdefault(kind, [])
        explorer = free.pop() if free else Explorer(browser.new_context(**options).new_page(), at, artefacts)
        given.append((kind, explorer))
        explorer.address = at
        explorer.page.set_viewport_size({"width": width, "height": height})
        return explorer

    yield make
    wrong = []
    for kind, explorer in given:
        explorer.wipe()
        wrong += explorer.found_wrong()
        windows[kind].append(explorer)
    assert wrong == []


@pytest.fixture
def explorer(new_explorer: Callable[..., Explorer]) -> Explorer:
    return new_explorer()


@pytest.fixture
def example(explorer: Explorer) -> dict[str, str]:
    found: dict[str, str] = explorer.ask("about")["example"]
    return found


@pytest.fixture(scope="session")
def axe(request: pytest.FixtureRequest) -> str:
    """The source of axe-core, from the package registry that npm is set up for."""
    cache = request.config.cache
    assert cache is not None
    folder = Path(cache.mkdir("axe"))
    tarball = folder / f"{re.sub('@', '-', AXE)}.tgz"
    npm = shutil.which("npm")
    if not tarball.exists():
        if not npm:
            pytest.skip("npm, which fetches axe-core, is not on this machine")
        got = subprocess.run([str(npm), "pack", AXE], cwd=folder, capture_output=True, text=True, timeout=600)
        if got.returncode or not tarball.exists():
            pytest.skip(f"{AXE} cannot be had: {got.stderr.strip()[-300:]}")
    with tarfile.open(tarball) as packed:
        source = packed.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


@pytest.fixture(scope="session")
def markup() -> dict[str, str]:
    return {"user": MARKUP_USER, "item": MARKUP_ITEM}
