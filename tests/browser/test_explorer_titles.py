"""The explorer shows what things are called, with their ids beside it, and finds them by their titles."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

TITLE = '<b onclick="document.body.dataset.hurt=1">Drum</b> & Bass'


@pytest.fixture
def titled(new_explorer, titled_address):
    return new_explorer(at=titled_address)


def test_recommendations_show_titles_with_their_ids(titled):
    page = titled.open("offers", user="person-003")
    offered = titled.ask("recommend?user=person-003&n=10")["recommendations"]
    shown = [f"{one['title']} {one['item']}" if one["title"] else one["item"] for one in offered]
    assert page.locator(".offer h2").all_inner_texts() == shown
    titled.keep("titles-offers")


def test_a_link_with_an_id_is_shown_with_the_title_once_it_is_known(titled):
    page = titled.open("why", user="person-003", item="thing-004")
    expect(titled.field("Thing")).to_have_value("Title of thing-004")
    expect(page.locator(".picker-id", has_text="thing-004")).to_be_visible()
    expect(page).to_have_title("How would person-003 rate Title of thing-004? · carp")
    titled.keep("titles-why")
    titled.open("why", user="person-003", item="thing-000")
    expect(titled.field("Thing")).to_have_value("thing-000")


def test_a_thing_is_found_by_its_title_and_chosen_by_its_id(titled):
    page = titled.open("thing", item="thing-004")
    field = titled.field("Thing")
    field.fill("drum</b>")
    option = page.get_by_role("option")
    expect(option).to_have_count(1)
    expect(option).to_contain_text(f"{TITLE} thing-002")
    field.press("Enter")
    expect(field).to_have_value(TITLE)
    titled.settled()
    assert "item=thing-002" in titled.hash()
    field.fill("half written")
    field.press("Escape")
    expect(field).to_have_value(TITLE)
    assert page.locator("body").get_attribute("data-hurt") is None


def test_comparing_names_both_things(titled):
    page = titled.open("compare", user="person-003", item="thing-002", other="thing-004")
    assert page.locator(".compared h2 .name").all_inner_texts() == [
        TITLE,
        "thing-002",
        "Title of thing-004",
        "thing-004",
    ]
    expect(page.locator(".balance").first).to_contain_text("Title of thing-004 (thing-004)")
