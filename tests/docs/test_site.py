"""The site builds strictly, all its links and pictures lead somewhere, and it asks nothing of any other host."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADED = {("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src"), ("link", "href"), ("use", "href")}
FETCHED = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?P<place>[^"')]+)""")


class Page(HTMLParser):
    """The links, pictures and ids of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded, self.without_words = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.update(given[name] for name in ("id", "name") if given.get(name))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        self.loaded += [given[name] for kind, name in LOADED if kind == tag and given.get(name)]
        if tag == "img" and not given.get("alt"):
            self.without_words.append(given.get("src"))


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}


def is_foreign(address):
    return bool(urlsplit(address).netloc)


def test_every_page_of_the_navigation_is_built(pages, site):
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {path.relative_to(site) for path in pages} == written


def test_internal_links_and_anchors_lead_somewhere(pages, site):
    lost = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            if not target.is_file() or (parts.fragment and known and unquote(parts.fragment) not in known.ids):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert not lost, "\n".join(lost)


def test_pictures_styles_and_scripts_are_there(pages, site):
    needed = [(path, address) for path, page in pages.items() for address in page.loaded if not is_foreign(address)]
    assert len(needed) > 100
    lost = [
        f"{path.relative_to(site)}: {address}"
        for path, address in needed
        if not address.startswith("data:") and not (path.parent / unquote(urlsplit(address).path)).is_file()
    ]
    assert not lost, "\n".join(lost)


def test_nothing_is_loaded_from_another_host(pages, site):
    foreign = [
        f"{path.relative_to(site)}: {one}" for path, page in pages.items() for one in page.loaded if is_foreign(one)
    ]
    for style in site.rglob("*.css"):
        foreign += [
            f"{style.name}: {one['place']}"
            for one in FETCHED.finditer(style.read_text("utf-8"))
            if is_foreign(one["place"])
        ]
    assert not foreign, "\n".join(foreign)


def test_pictures_say_what_they_show(pages, site):
    silent = [f"{path.relative_to(site)}: {one}" for path, page in pages.items() for one in page.without_words]
    assert not silent, "\n".join(silent)


def test_formulas_are_drawn_by_the_browser_alone(site):
    text = (site / "explanation" / "model.html").read_text("utf-8")
    assert 'class="arithmatex"' not in text
    numbers = [int(number) for number in re.findall(r'<span class="number">\((\d+)\)</span>', text)]
    assert numbers == list(range(1, 15)), "the paper's equations, all of them, in order"


def test_nothing_is_left_unmade(site):
    for path in site.rglob("*.html"):
        assert "<!-- make:" not in path.read_text("utf-8"), path


def test_the_explorer_is_shown(pages):
    shown = {Path(address).name for page in pages.values() for address in page.loaded}
    assert {path.name for path in (ROOT / "docs" / "images").glob("explorer-*.png")} <= shown
