"""A model whose rating is a sum: the explorer says why in words, and what it shows adds up."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

CAPSULE_WORDS = re.compile(r"prevail|weighs \d|strength \d|capsule|coupling|undefined|NaN")
MOST_LOADED = 200_000
AXE_RUN = "async () => (await axe.run()).violations.map(({id, nodes}) => [id, nodes[0].html])"


@pytest.fixture
def summed(new_explorer, summed_address):
    return new_explorer(at=summed_address)


@pytest.fixture
def pair(summed):
    """The first pair of some people and things with a finding on each side, and what the service says of it."""
    users, items = (summed.ask(kind)[kind] for kind in ("users", "items"))
    told = (explained(summed, user["id"], item["id"]) for user in users[:8] for item in items[:8])
    return next(one for one in told if {finding["amount"] > 0 for finding in one["findings"]} == {True, False})


def explained(explorer, user, item):
    return explorer.ask(f"explain?user={quote(user, safe='')}&item={quote(item, safe='')}")


def amount_of(words):
    return float(words.replace("−", "-"))


def test_the_sum_is_shown_in_words_and_adds_up(summed, pair):
    page = summed.open("why", user=pair["user"], item=pair["item"])
    expect(page.locator(".answer .figure")).to_have_text(f"{pair['rating']:.2f}")
    expect(page.locator(".answer .summary")).to_have_text(pair["told"]["summary"])
    *parts, total = map(amount_of, page.locator(".sum td.amount").all_inner_texts())
    assert len(parts) == len(pair["told"]["sum"])
    assert f"{sum(parts):.2f}" == f"{total:.2f}" == f"{pair['rating']:.2f}"
    assert sum(part["amount"] for part in pair["parts"]) == pytest.approx(pair["rating"], abs=1e-4)
    assert page.locator(".finding h3").all_inner_texts() == [finding["aspect"] for finding in pair["findings"]]
    quoted = [sentence["text"] for one in pair["findings"] for sentence in one["sentences"] + one["own_sentences"]]
    assert page.locator(".finding blockquote").all_text_contents() == quoted
    assert not CAPSULE_WORDS.search(page.locator("#content").inner_text())
    summed.keep("sum", whole=True)


def test_what_is_below_zero_stands_to_the_left_of_the_zero_line(summed, pair):
    page = summed.open("why", user=pair["user"], item=pair["item"])
    for tone in ("positive", "negative"):
        track = page.locator(f".sum tr.{tone} .bar").first.bounding_box()
        bar = page.locator(f".sum tr.{tone} .bar span").first.bounding_box()
        zero = track["x"] + track["width"] / 2
        outer = bar["x"] + bar["width"] / 2
        assert bar["width"] > 0
        assert (outer > zero) == (tone == "positive")
        shown = page.locator(f".sum tr.{tone} td.amount").first.inner_text()
        assert shown[0] == ("+" if tone == "positive" else "−")


def test_views_of_a_sum_are_narrow_light_and_free_of_capsule_words(summed_address, new_explorer, axe):
    phone = new_explorer(360, 740, at=summed_address)
    example = phone.ask("about")["example"]
    other = next(row["id"] for row in phone.ask("items")["items"] if row["id"] != example["item"])
    page = phone.page
    for view in ("why", "compare", "thing", "person", "offers", "start", "overview"):
        with phone.loading() as loaded:
            phone.open(view, **example, other=other)
        words = page.locator("#content").inner_text()
        assert words.strip(), view
        assert not CAPSULE_WORDS.search(words), view
        assert "without reasons" not in words, view
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), view
        assert 0 < sum(loaded) <= MOST_LOADED, view
        page.evaluate(axe)
        assert (view, page.evaluate(AXE_RUN)) == (view, [])


def test_little_is_said_where_little_is_known(summed, pair):
    """The answer of the service with everything but the averages taken out of it."""
    line = "This rests on the person's and the thing's averages; the texts move it by 0.02."
    quiet = {
        "summary": line,
        "findings": [],
        "sum": pair["told"]["sum"][:3],
        "cases": [],
        "meetings": None,
        "digits": 2,
    }
    body = json.dumps({**pair, "texts_move": 0.02, "told": quiet})
    summed.page.route("**/api/explain?*", lambda route: route.fulfill(body=body, content_type="application/json"))
    page = summed.open("why", user=pair["user"], item=pair["item"])
    expect(page.locator(".answer .summary")).to_have_text(line)
    expect(page.locator(".finding, .meetings")).to_have_count(0)
    expect(page.locator(".sum tbody tr")).to_have_count(3)
