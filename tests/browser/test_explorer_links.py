"""Every state is a link, and the browser's own buttons work."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

VIEWS = ("start", "why", "offers", "person", "thing", "compare", "whatif", "overview")


@pytest.fixture
def state(explorer, example):
    other = next(row["id"] for row in explorer.ask("items")["items"] if row["id"] != example["item"])
    return {**example, "other": other, "review": ["Light, and the sound is clear.", "It lasts & lasts #1 100%"]}


def test_link_opens_the_same_state_in_another_browser(explorer, new_explorer, state):
    another = new_explorer()
    again = another.page
    for view in VIEWS:
        page = explorer.go(view, **state)
        content = page.locator("#view").inner_text()
        assert "to begin" not in content
        again.goto("about:blank")
        again.goto(page.url)
        another.settled()
        if view == "whatif":
            again.locator(".results[aria-busy=false] .answer").wait_for()
            assert [area.input_value() for area in again.locator("textarea").all()] == state["review"]
        assert (view, again.locator("#view").inner_text()) == (view, content)
        assert again.title() == page.title()


def test_back_and_forward_walk_through_what_was_seen(explorer, example):
    page = explorer.open("why", **example)
    views = page.get_by_role("navigation", name="Views")
    views.get_by_role("link", name="Person").click()
    expect(page.locator("#title")).to_have_text(f"What does {example['user']} care about?")
    explorer.field("Person").fill("person-002")
    page.get_by_role("option", name=re.compile("person-002")).click()
    expect(page.locator("#title")).to_have_text("What does person-002 care about?")
    page.go_back()
    expect(page.locator("#title")).to_have_text(f"What does {example['user']} care about?")
    expect(explorer.field("Person")).to_have_value(example["user"])
    page.go_back()
    expect(page.locator("#title")).to_have_text(f"How would {example['user']} rate {example['item']}?")
    expect(page.locator(".reason").first).to_be_visible()
    page.go_forward()
    expect(page.locator("#title")).to_have_text(f"What does {example['user']} care about?")
    expect(views.get_by_role("link", name="Person")).to_have_attribute("aria-current", "page")


def test_views_carry_the_choice_along(explorer, example):
    page = explorer.open("why", **example)
    views = page.get_by_role("navigation", name="Views")
    for name, label, chosen in (
        ("Recommendations", "Person", "user"),
        ("Thing", "Thing", "item"),
        ("Compare", "First thing", "item"),
    ):
        views.get_by_role("link", name=name).click()
        expect(explorer.field(label)).to_have_value(example[chosen])


def test_long_reviews_stay_out_of_the_link_and_the_page_says_so(explorer, example):
    page = explorer.open("whatif", item=example["item"])
    page.get_by_label("Review", exact=True).fill("The sound is clear. " * 400)
    expect(page.locator(".editor")).to_contain_text("does not fit into the link")
    expect(page.locator(".results .answer .figure")).to_be_visible()
    assert "review=" not in explorer.hash()


def test_link_to_no_view_is_told(explorer):
    page = explorer.open("nowhere")
    expect(page.get_by_role("alert")).to_contain_text("There is no such page")
    page.get_by_role("link", name="Recommendations").click()
    expect(page.locator(".empty")).to_have_text("Choose a person to begin.")
