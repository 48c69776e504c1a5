"""A hundred ways to become markup, in ids and reviews, shown by a real browser: none of them runs.

An ordinary run opens a few of them, drawn by chance. CARP_PAYLOADS=200 opens all.
"""

from __future__ import annotations

import json
import os
import random
from urllib.parse import urlencode

import pytest

from carp.recommender import Recommender, load
from carp.render.html_page import explanation_page
from carp.reviews.shop.made_up_shop import make_shop
from carp.reviews.sources.formats import read_reviews
from markup_payloads import PAYLOADS

MOST = int(os.environ.get("CARP_PAYLOADS", "3"))
VIEWS = ("why", "person")
# Whatever runs calls one of these, or asks somebody else for something, which the windows of these tests notice.
WATCH = "for (const name of ['alert', 'print', 'open']) window[name] = () => { window.hurt = name; };"


@pytest.fixture(scope="module")
def hostile_model(chromium, tmp_path_factory):
    """A shop in which every person's id, and all that they write, is a payload."""
    writable = [one for one in PAYLOADS if one.isprintable()]  # others do not get past the reader
    records = make_shop(people=len(writable), things=10, reviews_per_person=6, seed=3).records()
    names = dict(zip(dict.fromkeys(record["user"] for record in records), writable, strict=True))
    folder = tmp_path_factory.mktemp("payloads")
    lines = [
        json.dumps({**record, "user": names[record["user"]], "text": f"{names[record['user']]} {record['text']}"})
        for record in records
    ]
    (folder / "shop.jsonl").write_text("\n".join(lines))
    small = {"dimension": 8, "filters": 6, "latent_size": 4, "viewpoints": 2, "epochs": 1, "min_reviews": 1}
    reviews = read_reviews(folder / "shop.jsonl", markup=True)
    Recommender("carp", device="cpu", **small).fit(reviews, progress=False).save(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def chosen(hostile_model):
    """Pairs of a person whose name is a payload and a thing."""
    known = load(hostile_model, device="cpu").fitted_corpus
    people = [str(name) for name in known.users]
    assert len(people) >= 100
    some = random.sample(people, min(MOST, len(people)))
    return [(name, str(known.items[number % len(known.items)])) for number, name in enumerate(some)]


@pytest.fixture
def window(browser):
    """A window that hears of whatever is asked for in it."""
    page = browser.new_page()
    page.add_init_script(WATCH)
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    yield page
    page.close()


def test_no_payload_runs_in_the_explorer(hostile_model, chosen, window, serve):
    with serve(hostile_model) as address:
        for user, item in chosen:
            for view in VIEWS:
                window.goto("about:blank")
                window.goto(f"{address}/#/{view}?{urlencode({'user': user, 'item': item})}")
                window.locator("#view[aria-busy=false]").wait_for()
                assert "".join(user.split()) in "".join(window.locator("body").inner_text().split()), (view, user)
                assert window.evaluate("window.hurt") is None, f"{user!r} ran in {view}"
        assert [url for url in window.asked if not url.startswith((address, "about:", "data:"))] == []


def test_no_payload_runs_in_a_saved_page(hostile_model, chosen, window, tmp_path):
    recommender = load(hostile_model, device="cpu")
    for number, (user, item) in enumerate(chosen):
        path = tmp_path / f"{number}.html"
        path.write_text(explanation_page(recommender.explain(user, item)), encoding="utf-8")
        window.goto(path.as_uri())
        window.mouse.move(200, 200)
        assert window.evaluate("window.hurt") is None, f"{user!r} ran in the page"
        assert "".join(user.split()) in "".join(window.locator("body").inner_text().split()), user
    assert [url for url in window.asked if not url.startswith(tmp_path.as_uri())] == []


def test_what_runs_is_noticed(window, tmp_path):
    """Else the tests above could not fail."""
    (tmp_path / "a.html").write_text("<p>A page<img src=x onerror=alert(1)>")
    window.goto((tmp_path / "a.html").as_uri())
    window.wait_for_function("window.hurt === 'alert'")
