"""Ten questions of customers and owners, each answered on the page by its own way of clicks."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

PLAIN = re.compile(r"prevail|weighs \d|strength \d|without texts|capsule|coupling|undefined|NaN|/api/", re.IGNORECASE)


class Visitor:
    """Somebody who clicks from the first look on, and never reads a page of documentation."""

    def __init__(self, explorer):
        self.explorer, self.page = explorer, explorer.page

    def asks(self, question):
        self.page.goto(f"{self.explorer.address}/#/start")
        self.explorer.settled()
        self.page.get_by_role("link", name=re.compile(question)).click()
        expect(self.page.locator(".question-cards")).to_have_count(0)
        self.explorer.settled()
        shown = self.page.locator("#view")
        expect(shown).not_to_have_text("")
        assert not PLAIN.search(shown.inner_text())
        return shown

    def named(self, item):
        found = next(row for row in self.explorer.ask(f"items?q={quote(item)}")["items"] if row["id"] == item)
        return found["title"] or item


@pytest.fixture
def visitor(new_explorer, summed_address):
    return Visitor(new_explorer(at=summed_address))


def test_ten_questions_are_answered_by_clicks_alone(visitor):
    explorer, page = visitor.explorer, visitor.page
    page.goto(f"{explorer.address}/")
    explorer.settled()
    expect(page.locator(".question-cards a")).to_have_count(10)
    pair = explorer.ask("about")["example"]
    user, item, title = pair["user"], pair["item"], visitor.named(pair["item"])
    best = explorer.ask("items?limit=1")["items"][0]
    told = explorer.ask(f"explain?user={quote(user)}&item={quote(item)}")

    shown = visitor.asks("^Would ")  # 1. would they like it, and why?
    expect(shown.locator(".answer .figure")).to_have_text(f"{told['rating']:.2f}")
    expect(shown.locator(".answer .summary")).to_have_text(told["told"]["summary"])

    shown = visitor.asks("^How sure is that")  # 2.
    expect(shown.locator(".range")).to_contain_text(f"Likely between {told['low']:.1f} and {told['high']:.1f}")
    expect(shown.locator(".range")).to_be_in_viewport()
    band, rail = (shown.locator(f".answer .scale .{part}").bounding_box() for part in ("band", "rail"))
    assert 0 < band["width"] < rail["width"] + 14

    shown = visitor.asks("^What else would suit")  # 3. and of one category alone
    everything = shown.locator(".offer h2").all_inner_texts()
    explorer.field("Category").click()
    page.get_by_role("option", name=re.compile("headset")).click()
    expect(page).to_have_url(re.compile("category=headset"))
    explorer.settled()
    expect(shown.locator(".offer .chips li").first).to_have_text("headset")
    of_one = shown.locator(".offer h2").all_inner_texts()
    assert set(shown.locator(".offer .chips li").all_inner_texts()) == {"headset"}
    assert 0 < len(of_one) < len(everything)

    shown = visitor.asks("^Why this and not that")  # 4.
    *lines, total = (float(x.replace("−", "-")) for x in shown.locator(".difference .amount").all_inner_texts())
    first, second = (float(x) for x in shown.locator(".compared .figure").all_inner_texts())
    assert lines
    assert f"{sum(lines):.2f}" == f"{total:.2f}" == f"{first - second:.2f}"

    shown = visitor.asks("^What do people like and dislike about")  # 5.
    profile = explorer.ask(f"items/{quote(item, safe='')}/profile")
    assert shown.locator(".opinions.positive article").count() == len(profile["liked"]) > 0
    shown.locator(".description summary").click()
    expect(shown.locator(".description p")).to_have_text(profile["facts"]["description"])
    expect(shown.get_by_role("button", name="Print this page")).to_be_visible()

    shown = visitor.asks("^I am new here")  # 6.
    page.get_by_label("Review", exact=True).fill("I carry it all day, so it has to be light.")
    expect(page.locator(".results[aria-busy=false] .offer")).to_have_count(5)
    before = float(page.locator(".results .answer .figure").inner_text())
    page.get_by_label("Review", exact=True).fill("The sound must be clear. I do not mind what it weighs.")
    changed = page.locator(".difference .amount")
    expect(changed.first).to_be_visible()
    *lines, total = (float(x.replace("−", "-")) for x in changed.all_inner_texts())
    after = float(page.locator(".results .answer .figure").inner_text())
    assert f"{sum(lines):.2f}" == f"{total:.2f}" == f"{after - before:.2f}"

    shown = visitor.asks("^What do people praise")  # 7.
    whole = explorer.ask("overview")
    for part, rows in (("praised", whole["praised"]), ("complained", whole["complained"])):
        assert shown.locator(f"[data-part={part}] .line").count() == len(rows) > 0
        sentence = rows[0]["sentences"][0]["text"]
        expect(shown.locator(f"[data-part={part}] blockquote").first).to_have_text(sentence)

    shown = visitor.asks("best seller")  # 8.
    expect(explorer.field("Thing")).to_have_value(best["title"])
    expect(shown.locator("[data-part=disliked] h2")).to_be_in_viewport()
    assert shown.locator("[data-part=disliked] blockquote").count() > 0

    shown = visitor.asks("^Whom would")  # 9.
    people = explorer.ask(f"items/{quote(item, safe='')}/audience")["people"]
    expect(shown.locator("[data-part=audience] h2")).to_be_in_viewport()
    assert shown.locator(".people h3").all_inner_texts() == [one["user"] for one in people]

    shown = visitor.asks("^What is at risk")  # 10.
    expect(shown.locator("[data-part=at-risk] h2")).to_be_in_viewport()
    assert shown.locator("[data-part=at-risk] h3").count() == len(whole["at_risk"])
    assert shown.locator("[data-part=left] h3").count() == len(whole["left"])
    assert title


def test_the_overview_is_of_a_period_and_can_be_taken_along(visitor):
    explorer, page = visitor.explorer, visitor.page
    explorer.open("overview")
    dates = explorer.ask("overview")["dates"]
    page.get_by_label("From").fill("2023-01-01")
    page.get_by_label("From").dispatch_event("change")
    expect(page).to_have_url(re.compile("since=2023-01-01"))
    explorer.settled()
    part = explorer.ask("overview?since=2023-01-01")
    assert 0 < part["reviews"] < explorer.ask("overview")["reviews"]
    expect(page.locator("#view .lead").first).to_contain_text(f"{part['reviews']} reviews")
    with page.expect_download() as taken:
        page.get_by_role("link", name="Download as a table").click()
    rows = list(csv.DictReader(io.StringIO(Path(taken.value.path()).read_text())))
    assert {row["list"] for row in rows} >= {"praised", "complained", "at risk"}
    assert rows[0]["list"] == "praised"
    assert rows[0]["sentence"] == part["praised"][0]["sentences"][0]["text"]
    assert dates["first"] < "2023-01-01" < dates["last"]


def test_pictures_come_only_from_where_the_owner_allows_them(visitor):
    explorer, page = visitor.explorer, visitor.page
    explorer.open("offers", user=explorer.ask("users?limit=1")["users"][0]["id"])
    things = explorer.ask("items?limit=50")["items"]
    pictures = {row["facts"]["picture"] for row in things if row["facts"]["picture"]}
    assert any(address.startswith("https://elsewhere.example") for address in pictures), "known, and yet not shown"
    shown = page.locator("img.thumb")
    expect(shown.first).to_be_visible()
    assert all(src.startswith("https://pictures.example/") for src in shown.evaluate_all("all => all.map(i => i.src)"))
    assert page.locator("span.thumb").count() > 0, "things without a picture have a tile"
    policy = page.request.get(f"{explorer.address}/").headers["content-security-policy"]
    assert "img-src 'self' data: https://pictures.example;" in policy


def test_things_are_found_by_category_and_markup_in_facts_stays_text(visitor):
    explorer, page = visitor.explorer, visitor.page
    item = explorer.ask("items?q=Drum")["items"][0]["id"]
    explorer.open("thing", item=item)
    page.locator(".description summary").click()
    expect(page.locator(".description p")).to_contain_text("<b>Not bold</b>")
    explorer.field("Thing").click()
    page.get_by_role("button", name="mixer").click()
    wanted = explorer.ask("items?category=mixer")["items"]
    expect(page.get_by_role("option")).to_have_count(len(wanted))
    assert page.locator("body").get_attribute("data-hurt") is None


def test_a_thing_is_printed_without_what_only_a_screen_needs(visitor):
    explorer, page = visitor.explorer, visitor.page
    explorer.open("thing", item=explorer.ask("items?limit=1")["items"][0]["id"])
    page.emulate_media(media="print")
    expect(page.locator(".print-only")).to_be_visible()
    for hidden in (".top", ".question", ".tools"):
        expect(page.locator(hidden).first).to_be_hidden()
    expect(page.locator(".opinions.negative blockquote").first).to_be_visible()
    explorer.keep("printed-thing", whole=True)
