"""Markup stays text, problems are told in words, and models that say less are shown for what they say."""

from __future__ import annotations

import json
import re

from playwright.sync_api import expect

NASTY = """<h2>Errors</h2><p class="note" >Fine words</p><script>document.body.dataset.hurt=1</script>
<img src="data:image/svg+xml;base64,PHN2Zy8+" alt="a plot"><img src="http://127.0.0.1:9/x.png" alt="elsewhere">
<table><caption>MSE</caption><tr class="best danger"><th scope="row">carp</th><td class="marked">0.7</td></tr></table>
<iframe src="/"></iframe><a href="javascript:document.body.dataset.hurt=1">a link</a><form><input></form>"""


def unhurt(page):
    return page.evaluate("document.body.dataset.hurt === undefined && !document.querySelector('#content img')")


def test_markup_in_ids_and_reviews_is_shown_as_text(explorer, markup):
    for view in ("why", "offers", "person", "thing", "whatif"):
        page = explorer.go(view, **markup)
        expect(page.locator("#view")).not_to_contain_text("There is nothing here")
        if view != "whatif":
            named = markup["item"] if view == "thing" else markup["user"]
            expect(page.locator("#title")).to_contain_text(named)
        assert unhurt(page), view
        explorer.keep(f"markup-{view}")
    explorer.go("person", **markup)  # and what they wrote is read as it was written
    expect(page.locator("blockquote", has_text="<script>").first).to_be_visible()
    assert unhurt(page)
    explorer.field("Person").fill("<img")
    expect(page.get_by_role("option", name=re.compile(re.escape("<img src=x")))).to_be_visible()
    assert unhurt(page)


def test_pasted_markup_is_only_words(explorer, example):
    page = explorer.open("whatif", item=example["item"])
    page.get_by_label("Review", exact=True).fill("<img src=x onerror=document.body.dataset.hurt=1> clear sound")
    expect(page.locator(".results .answer .figure")).to_be_visible()
    assert unhurt(page)


def test_unknown_ids_are_told_with_what_helps(explorer, example):
    page = explorer.open("why", user="person-0O2", item=example["item"])
    problem = page.get_by_role("alert")
    told = explorer.ask(f"explain?user=person-0O2&item={example['item']}")
    expect(problem).to_contain_text("Nobody here is called “person-0O2”")
    expect(problem).to_contain_text("Request ")
    expect(problem).not_to_contain_text("/api/")
    expect(problem.get_by_role("link", name="Say in your own words what you like")).to_be_visible()
    explorer.keep("problem")
    problem.get_by_role("link", name=told["nearest"], exact=True).click()
    expect(page.locator(".answer .figure")).to_be_visible()
    explorer.open("why", user=example["user"], item="nothing-like-it")
    expect(problem).to_contain_text("There is nothing here called “nothing-like-it”")
    explorer.field("Thing").fill(example["item"])
    page.keyboard.press("Enter")
    expect(page.locator(".answer .figure")).to_be_visible()


def test_service_that_is_gone_is_told_and_trying_again_works(explorer, example):
    page = explorer.page
    page.route("**/api/explain*", lambda route: route.abort())
    explorer.open("why", **example)
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer")
    page.unroute("**/api/explain*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".answer .figure")).to_be_visible()


def test_answer_that_is_no_json_is_told(explorer, example):
    explorer.page.route("**/api/explain*", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
    page = explorer.open("why", **example)
    expect(page.get_by_role("alert")).to_contain_text("The service answered 502")


def test_waiting_is_told_until_the_answer_comes(explorer, example):
    page, held = explorer.page, []
    page.route("**/api/explain*", lambda route: held.append(route))
    page.goto(explorer.link("why", **example))
    expect(page.locator(".loading")).to_have_text("Reading the reviews…")
    expect(page.locator("#view")).to_have_attribute("aria-busy", "true")
    held[0].continue_()
    expect(page.locator(".answer .figure")).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)


def test_slow_answer_never_replaces_a_later_one(explorer, example):
    page, held = explorer.page, []
    slow = json.dumps(explorer.ask(f"explain?user={example['user']}&item=thing-002"))
    page.route("**/api/explain?*thing-002*", lambda route: held.append(route))
    explorer.open("why", **example)
    page.evaluate("location.hash = location.hash.replace(/item=[^&]*/, 'item=thing-002')")
    expect(page.locator("#title")).to_contain_text("thing-002")
    page.evaluate("location.hash = location.hash.replace(/item=[^&]*/, 'item=thing-003')")
    told = explorer.ask(f"explain?user={example['user']}&item=thing-003")
    expect(page.locator(".answer .figure")).to_have_text(f"{told['rating']:.2f}")
    held[0].fulfill(body=slow, content_type="application/json")
    explorer.ask("about")
    expect(page.locator("#title")).to_contain_text("thing-003")
    expect(page.locator(".answer .figure")).to_have_text(f"{told['rating']:.2f}")


def test_too_much_text_is_refused_in_words(explorer, example):
    page = explorer.open("whatif", item=example["item"])
    page.get_by_label("Review", exact=True).evaluate(
        "area => { area.value = 'clear sound '.repeat(20000); area.dispatchEvent(new Event('input')); }"
    )
    expect(page.get_by_role("alert")).to_contain_text(re.compile("too (large|much|long)", re.IGNORECASE))


def changed_about(**change):
    def fulfil(route):
        route.fulfill(body=json.dumps({**route.fetch().json(), **change}), content_type="application/json")

    return fulfil


def test_model_without_reasons_shows_the_rating_and_says_so(explorer, example):
    explorer.page.route("**/api/about", changed_about(explains=False, newcomers=False, model="bias"))
    page = explorer.open("why", **example)
    expect(page.locator(".answer .figure")).to_be_visible()
    expect(page.locator(".notes")).to_contain_text("gives ratings without reasons")
    page.get_by_role("link", name="What if I were…").click()
    expect(page.locator(".empty")).to_contain_text("knows people by their ids alone")


def test_results_are_shown_without_their_scripts(explorer):
    page = explorer.page
    page.route("**/api/about", changed_about(results=True))
    body = json.dumps({"sections": [{"title": "Errors", "html": NASTY}]})
    page.route("**/api/results", lambda route: route.fulfill(body=body, content_type="application/json"))
    explorer.open("results")
    expect(page.get_by_role("heading", name="Errors")).to_have_count(1)
    expect(page.locator(".report tr.best td.marked")).to_have_text("0.7")
    expect(page.locator(".report img")).to_have_count(1)
    expect(page.locator(".report script, .report iframe, .report a, .report form, .danger")).to_have_count(0)
    assert page.evaluate("document.body.dataset.hurt === undefined")


def test_a_section_of_results_comes_when_it_is_wanted(explorer):
    page = explorer.page
    page.route("**/api/about", changed_about(results=True))
    first = {"title": "Leaderboard", "html": "<p>first</p>"}
    bodies = [json.dumps({"sections": [first, {"title": "Beers", "html": ""}]}), "{}"]
    bodies.append(json.dumps({"sections": [{"title": "Beers", "html": "<p>hops</p>"}]}))
    statuses = [200, 503, 200]

    def answer(route):
        route.fulfill(status=statuses.pop(0), body=bodies.pop(0), content_type="application/json")

    page.route("**/api/results*", answer)
    explorer.open("results")
    expect(page.locator(".report").nth(0)).to_contain_text("first")
    page.get_by_role("button", name="Show Beers").click()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".report").nth(1)).to_contain_text("hops")
    expect(page.get_by_role("heading", name="Beers")).to_have_count(1)


def test_a_table_of_results_is_sorted_by_the_heading_that_is_pressed(explorer):
    page = explorer.page
    page.route("**/api/about", changed_about(results=True))
    rows = "".join(f"<tr><td>{a}</td><td>{b}</td></tr>" for a, b in (("mf", "1,000.5"), ("carp", "0.9†"), ("bias", "")))
    table = f"<table><thead><tr><th>system</th><th>error</th></tr></thead><tbody>{rows}</tbody></table>"
    body = json.dumps({"sections": [{"title": "Errors", "html": table}]})
    page.route("**/api/results", lambda route: route.fulfill(body=body, content_type="application/json"))
    explorer.open("results")
    first = page.locator(".report tbody td:first-child")
    expect(first).to_have_text(["mf", "carp", "bias"])
    for heading, sorted_so in (
        ("error", ["carp", "mf", "bias"]),
        ("error", ["mf", "carp", "bias"]),
        ("system", ["bias", "carp", "mf"]),
    ):
        page.get_by_role("button", name=heading).click()
        expect(first).to_have_text(sorted_so)
    expect(page.locator("th[aria-sort]")).to_have_text(["system"])


def test_results_are_offered_only_where_there_are_some(explorer, example):
    page = explorer.open("why", **example)
    assert explorer.ask("about")["results"] is False
    expect(page.get_by_role("link", name="Results")).to_have_count(0)
    explorer.open("results")
    expect(page.get_by_role("alert")).to_contain_text("no results are served here")
