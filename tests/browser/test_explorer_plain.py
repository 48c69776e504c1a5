"""A model without capsules, and the results of a benchmark, as the service really gives them."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import expect


@pytest.fixture
def plain(new_explorer, plain_address):
    return new_explorer(at=plain_address)


def test_model_without_capsules_shows_its_sentences_and_what_they_mean(plain):
    example = plain.ask("about")["example"]
    page = plain.open("why", **example)
    told = plain.ask(f"explain?user={quote(example['user'])}&item={quote(example['item'])}")
    assert told["positive"] is None
    expect(page.locator(".answer .figure")).to_have_text(f"{told['rating']:.2f}")
    expect(page.locator(".capsules, .heat, .reason")).to_have_count(0)
    for kind in ("viewpoint", "aspect"):
        texts = [sentence["text"] for side in told[f"{kind}s"] for sentence in side["sentences"][:2]]
        assert texts
        shown = page.locator(f".sides.only .{kind}s blockquote").all_text_contents()
        assert shown == texts
    expect(page.locator(".every-pair")).to_contain_text(told["meaning"])
    plain.keep("without-capsules")


def test_every_view_answers_or_says_why_not(plain):
    example = plain.ask("about")["example"]
    other = next(row["id"] for row in plain.ask("items")["items"] if row["id"] != example["item"])
    for view in ("offers", "person", "thing", "compare"):
        page = plain.go(view, **example, other=other)
        assert page.locator("#view").inner_text().strip(), view
        assert "undefined" not in page.locator("#content").inner_text()
        assert "NaN" not in page.locator("#content").inner_text()
        plain.keep(f"plain-{view}")


def test_results_show_the_tables_and_plots_of_the_benchmark(plain, axe):
    page = plain.open("why", **plain.ask("about")["example"])
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Results").click()
    links = page.get_by_role("navigation", name="Views").get_by_role("link").all()
    assert len({link.bounding_box()["y"] for link in links}) == 1, "all views stand on one line of a wide window"
    expect(page.locator(".report").first).to_be_visible()  # then it is made, and asking for it keeps nobody waiting
    sections = plain.ask("results")["sections"]
    expect(page.locator(".report")).to_have_count(len(sections))
    assert page.locator(".report > h2").all_inner_texts() == [section["title"] for section in sections]
    for model in ("mean", "bias"):
        expect(page.locator(".report td", has_text=model).first).to_be_visible()
    expect(page.locator(".report img")).to_have_count(sum(section["html"].count("<img") for section in sections))
    for image in page.locator(".report img").all():
        image.scroll_into_view_if_needed()
        page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=image.element_handle())
    plain.keep("results", whole=True)
    page.evaluate(axe)
    assert page.evaluate("async () => (await axe.run()).violations.map(({id, nodes}) => [id, nodes[0].html])") == []
