"""The explorer by keyboard, on a phone, in the dark, and for those who hear it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

VIEWS = ("start", "why", "offers", "person", "thing", "compare", "whatif", "overview")
AXE_RUN = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .map(({id, nodes}) => [id, nodes.slice(0, 3).map(({html}) => html)])"""
WIDE = """[...document.querySelectorAll('#content *')].filter((element) => element.getBoundingClientRect().right > 361
    && !element.closest('.map, .unseen, svg')).map((element) => element.className)"""
AXE_COLOURS = AXE_RUN.replace("{resultTypes", "{runOnly: ['color-contrast'], resultTypes")


@pytest.fixture
def state(explorer, example):
    other = next(row["id"] for row in explorer.ask("items")["items"] if row["id"] != example["item"])
    return {**example, "other": other, "review": "Light, and the sound is clear."}


def tab_to(page, locator, most=40):
    for _ in range(most):
        page.keyboard.press("Tab")
        if locator.evaluate("element => element === document.activeElement"):
            return
    raise AssertionError(f"{most} presses of Tab do not reach it")


def test_person_is_chosen_by_keyboard_alone(explorer, example):
    page = explorer.open("why", **example)
    field = explorer.field("Person")
    tab_to(page, field)
    page.keyboard.type("person-01")
    expect(field).to_have_attribute("aria-expanded", "true")
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    active = page.locator(f"#{field.get_attribute('aria-activedescendant')}")
    expect(active).to_have_attribute("aria-selected", "true")
    wanted = active.locator(".option-name").inner_text()
    page.keyboard.press("Enter")
    expect(field).to_have_value(wanted)
    expect(field).to_have_attribute("aria-expanded", "false")
    expect(page.locator("#title")).to_have_text(f"How would {wanted} rate {example['item']}?")
    expect(field).to_be_focused()
    expect(page.locator("#said")).to_contain_text("Predicted rating")


def test_enter_right_after_typing_takes_what_was_typed(explorer, example):
    page = explorer.open("why", **example)
    explorer.field("Thing").focus()
    page.keyboard.type("thing-004")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text(f"How would {example['user']} rate thing-004?")


def test_escape_and_leaving_keep_the_choice(explorer, example):
    page = explorer.open("why", **example)
    field = explorer.field("Person")
    for leave in ("Escape", "Tab"):
        field.focus()
        page.keyboard.type("person-02")
        expect(page.get_by_role("option").first).to_be_visible()
        page.keyboard.press(leave)
        expect(page.locator(".popup:visible")).to_have_count(0)
        expect(field).to_have_value(example["user"])


def test_arrow_keys_walk_the_heat_map_and_enter_holds_a_cell(explorer, example):
    page = explorer.open("why", **example)
    grid = page.get_by_role("grid").first
    start = grid.locator("td[tabindex='0']")
    expect(start).to_have_count(1)
    start.focus()
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".viewpoints .lit")).to_have_attribute("data-index", "2")
    expect(page.locator(".aspects .lit")).to_have_attribute("data-index", "2")
    page.keyboard.press("Enter")
    assert "cell=2.2" in explorer.hash()
    expect(page.locator(".cell-said")).to_contain_text(re.compile(r"^.+ meets .+\. For it they count [\d.]+"))


def test_skip_link_leads_past_the_menu_and_keeps_the_state(explorer, example):
    page = explorer.open("why", **example)
    before = page.url
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()
    assert page.url == before


def test_new_view_takes_the_focus_to_its_title(explorer, example):
    page = explorer.open("offers", user=example["user"])
    page.locator(".offer h2 a").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_be_focused()


def test_phone_never_scrolls_sideways(new_explorer, state):
    phone = new_explorer(360, 740, has_touch=True, is_mobile=True)
    for view in VIEWS:
        page = phone.go(view, **state)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        assert (view, page.evaluate(WIDE)) == (view, [])
        phone.keep(f"phone-{view}")


def test_open_list_stays_inside_the_window(explorer, state):
    page = explorer.open("compare", **state)
    for width in (360, 760, 1000):
        page.set_viewport_size({"width": width, "height": 800})
        for label in ("Person", "First thing", "Second thing"):
            explorer.field(label).click()
            expect(page.get_by_role("option").first).to_be_visible()
            box = page.locator(".popup:visible").bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            page.keyboard.press("Escape")
            expect(page.locator(".popup:visible")).to_have_count(0)


def test_phone_has_a_menu_and_cells_answer_to_a_tap(new_explorer, state):
    phone = new_explorer(390, 844, has_touch=True, is_mobile=True)
    page = phone.open("why", **state)
    page.locator(".heat.negative tbody tr").nth(2).locator("td").nth(0).tap()
    expect(page.locator(".viewpoints .lit")).to_have_attribute("data-index", "3")
    expect(page.locator(".viewpoints .side-card:visible")).to_have_count(1)
    menu = page.locator("#menu")
    expect(menu).to_have_text("Why this rating")
    menu.tap()
    expect(menu).to_have_attribute("aria-expanded", "true")
    page.get_by_role("link", name="Compare", exact=True).tap()
    expect(menu).to_have_attribute("aria-expanded", "false")
    expect(page.locator("#title")).to_have_text(f"{state['item']} or {state['other']}?")


def test_dark_follows_the_system_and_a_choice_outlives_a_reload(new_explorer, state):
    explorer = new_explorer(color_scheme="dark")
    page = explorer.open("why", **state)
    background = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(background)
    explorer.keep("why-dark")
    button = page.get_by_role("button", name=re.compile("Theme"))
    button.click()
    expect(button).to_have_text("Theme: light")
    light = page.evaluate(background)
    assert sum(map(int, re.findall(r"\d+", dark)[:3])) < 150 < 600 < sum(map(int, re.findall(r"\d+", light)[:3]))
    page.reload()
    explorer.settled()
    assert page.evaluate(background) == light
    button.click()
    expect(button).to_have_text("Theme: dark")
    assert page.evaluate(background) == dark


def test_for_and_against_are_told_by_signs_and_words_not_by_colour_alone(explorer, example):
    page = explorer.open("why", **example)
    for sentiment, sign, words in (("positive", "+", "speaks for it"), ("negative", "−", "speaks against it")):
        for card in page.locator(f".reason.{sentiment}").all():
            expect(card.locator(".sign")).to_have_text(sign)
            expect(card.locator("h3")).to_contain_text(words)
        expect(page.locator(f".heat.{sentiment} caption")).to_contain_text(
            f"Heard as {words.replace('speaks', 'speaking')}"
        )
    assert page.locator(".reason").count()


def test_motion_stops_for_those_who_ask(new_explorer, state):
    page = new_explorer(reduced_motion="reduce").open("why", **state)
    assert page.locator(".capsule .bar span").first.evaluate("bar => getComputedStyle(bar).transitionDuration") == "0s"


def test_axe_finds_nothing_of_any_grade_in_light_and_dark(axe, new_explorer, state):
    explorer = new_explorer(reduced_motion="reduce")
    page = explorer.open("start")
    page.evaluate(axe)
    for view in VIEWS:
        explorer.go(view, **state)
        assert (view, page.evaluate(AXE_RUN)) == (view, [])
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        assert (view, page.evaluate(AXE_COLOURS)) == (view, [])
        page.evaluate("delete document.documentElement.dataset.theme")


def test_axe_finds_nothing_of_any_grade_in_an_open_list_and_in_a_problem(axe, explorer, example):
    page = explorer.open("why", **example)
    explorer.field("Person").click()
    expect(page.get_by_role("option").first).to_be_visible()
    page.evaluate(axe)
    assert page.evaluate(AXE_RUN) == []
    page = explorer.open("why", user="nobody", item=example["item"])
    expect(page.get_by_role("alert")).to_be_visible()
    page.evaluate(axe)
    assert page.evaluate(AXE_RUN) == []
