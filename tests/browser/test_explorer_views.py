"""Every view of the explorer shows what the service answers."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from carp.render.html_page import scale_steps


def marked_words(sentence):
    """What the service marks, letter by letter."""
    letters = set()
    for mark in sentence["marks"]:
        letters.update(range(mark["start"], mark["end"]))
    return "".join(sentence["text"][place] for place in sorted(letters) if not sentence["text"][place].isspace())


def two_digits(value):
    return f"{value:.2f}"


def test_first_look_is_at_an_example_with_its_reasons(explorer, example):
    page = explorer.page
    page.goto(f"{explorer.address}/")
    explorer.settled()
    expect(page.locator(".example")).to_contain_text("Their review was hidden from the model")
    explorer.keep("start")
    page.locator(".example h3 a").click()
    explorer.settled()
    told = explorer.ask(f"explain?user={quote(example['user'])}&item={quote(example['item'])}")
    assert (explorer.field("Person").input_value(), explorer.field("Thing").input_value()) == (
        example["user"],
        example["item"],
    )
    expect(page.locator(".answer .figure")).to_have_text(two_digits(told["rating"]))
    difference = told["rating"] - told["item_mean"]
    far = f"{abs(difference):.2f} {'above' if difference > 0 else 'below'} its average"
    told_difference = "the same as its average" if f"{abs(difference):.2f}" == "0.00" else far
    expect(page.locator(".verdict")).to_contain_text(told_difference)
    expect(page.locator(".reason")).to_have_count(len(told["units"]))
    assert "user=" in explorer.hash()
    explorer.keep("why")
    explorer.keep("why-whole", whole=True)


def test_both_capsules_are_bars_with_words(explorer, example):
    page = explorer.open("why", **example)
    told = explorer.ask(f"explain?user={quote(example['user'])}&item={quote(example['item'])}")
    for sentiment, feeling in (("positive", "to like it"), ("negative", "to dislike it")):
        capsule = page.locator(f".capsule.{sentiment}")
        expect(capsule.locator("h3")).to_contain_text(feeling)
        length = told[sentiment]["length"]
        expect(capsule.locator(".gauge b").first).to_have_text(two_digits(length))
        bar = capsule.locator(".bar.length")
        share = bar.locator("span").bounding_box()["width"] / bar.bounding_box()["width"]
        assert share == pytest.approx(length, abs=0.03)
    assert page.locator(".capsule h3", has_text="the stronger feeling").count() == 1


def test_phrases_are_marked_where_the_service_marks_them(explorer, example):
    page = explorer.open("why", **example)
    told = explorer.ask(f"explain?user={quote(example['user'])}&item={quote(example['item'])}")
    shown = [unit[kind]["sentences"] for unit in told["units"] for kind in ("viewpoint", "aspect")]
    sides = page.locator(".reason .side")
    compared = 0
    for place, sentences in enumerate(shown):
        for number, sentence in enumerate(sentences[:2]):
            quoted = sides.nth(place).locator("blockquote").nth(number)
            expect(quoted).to_have_text(" ".join(sentence["text"].split()))
            marks = "".join(quoted.locator("mark").all_inner_texts())
            assert re.sub(r"\s", "", marks) == marked_words(sentence)
            compared += bool(marks)
    assert compared
    own, shared = (
        page.locator(f".legend mark.{kind}").first.evaluate("element => getComputedStyle(element).backgroundColor")
        for kind in ("own", "shared")
    )
    assert own != shared


def test_marks_count_characters_and_shared_phrases_win(explorer, example):
    page = explorer.open("why", **example)
    cut = page.evaluate(
        """async () => (await import("./static/sentences.js"))
            .cut("\\u{1f600} clamp without hitting", [
                {start: 2, end: 15, kind: "own"}, {start: 8, end: 23, kind: "shared"}])
            .map(({words, kinds}) => [words, kinds.join()])"""
    )
    assert cut == [["\U0001f600 ", ""], ["clamp", "own"], [" ", ""], ["without hitting", "shared"]]


def test_a_rating_scale_has_the_same_few_numbers_as_on_a_saved_page(explorer):
    page = explorer.open("start")
    for ends in ((1, 5), (4, 20), (0.5, 5), (0, 100), (1, 100), (0, 5000)):
        drawn = page.evaluate(
            """async (ends) => [...(await import("./static/gauges.js")).scale([], ends).querySelectorAll("text")]
                .map((one) => Number(one.textContent))""",
            ends,
        )
        assert sorted(drawn) == scale_steps(*ends)


def test_held_out_review_stands_beside_the_reasons(explorer, example):
    page = explorer.open("why", **example)
    told = explorer.ask(f"explain?user={quote(example['user'])}&item={quote(example['item'])}")
    beside = page.locator(".held-out")
    page.locator(".wrote sup").evaluate_all("signs => signs.forEach(sign => sign.remove())")
    assert page.locator(".wrote blockquote").text_content() == told["target"]["text"]
    expect(beside).to_contain_text(f"rating of {told['target']['rating']:g}")
    reasons, review = page.locator(".reasons").bounding_box(), beside.bounding_box()
    assert review["x"] >= reasons["x"] + reasons["width"]
    assert review["y"] < reasons["y"] + reasons["height"]
    for kind in {mark["kind"] for mark in told["target"]["marks"]}:
        expect(page.locator(f".wrote mark.{kind}").first).to_be_visible()


def test_touched_cell_lights_the_sentences_it_stands_for(explorer, example):
    page = explorer.open("why", **example)
    cell = page.locator(".heat.positive tbody tr").nth(1).locator("td").nth(2)
    cell.hover()
    expect(page.locator(".viewpoints .lit")).to_have_attribute("data-index", "2")
    expect(page.locator(".aspects .lit")).to_have_attribute("data-index", "3")
    expect(page.locator(".cell-said")).to_contain_text(re.compile(r"^.+ meets .+\. For it they count [\d.]+"))
    assert "cell=" not in explorer.hash()
    cell.click()
    assert "cell=2.3" in explorer.hash()
    page.locator(".reasons h2").first.hover()
    expect(page.locator(".aspects .lit")).to_have_attribute("data-index", "3")
    page.reload()
    explorer.settled()
    expect(page.locator(".viewpoints .lit")).to_have_attribute("data-index", "2")


def test_both_heat_maps_show_every_coupling_as_a_number(explorer, example):
    page = explorer.open("why", **example)
    told = explorer.ask(f"explain?user={quote(example['user'])}&item={quote(example['item'])}")
    for sentiment in ("positive", "negative"):
        cells = page.locator(f".heat.{sentiment} tbody td").all_inner_texts()
        assert cells == [two_digits(value) for row in told[f"coupling_{sentiment}"] for value in row]


def test_search_as_you_type_finds_and_chooses(explorer, example):
    page = explorer.open("why", **example)
    field = explorer.field("Thing")
    field.fill("thing-00")
    expect(page.get_by_role("option").first).to_contain_text("thing-00")
    found = explorer.ask("items?q=thing-00")
    expect(page.get_by_role("option")).to_have_count(found["total"])
    explorer.keep("search")
    page.get_by_role("option", name=re.compile("thing-003")).click()
    expect(page).to_have_url(re.compile("item=thing-003"))
    expect(page.locator("#title")).to_have_text(f"How would {example['user']} rate thing-003?")
    field.fill("no such thing at all")
    expect(page.locator(".picker-status:visible")).to_have_text("Nothing matches “no such thing at all”.")


def test_recommendations_come_in_order_with_a_reason_each(explorer, example):
    page = explorer.open("offers", user=example["user"])
    told = explorer.ask(f"recommend?user={quote(example['user'])}&n=10")["recommendations"]
    assert page.locator(".offer h2").all_inner_texts() == [row["item"] for row in told]
    assert page.locator(".offer .figure").all_inner_texts() == [two_digits(row["rating"]) for row in told]
    assert page.locator(".offer-reason").all_inner_texts() == [row["reason"] for row in told]
    explorer.keep("recommendations")
    page.locator(".offer h2 a").first.click()
    expect(page.locator("#title")).to_have_text(f"How would {example['user']} rate {told[0]['item']}?")


def test_somebody_nobody_knows_is_shown_what_is_popular_and_told_so(explorer):
    page = explorer.open("offers", user="nobody")
    told = explorer.ask("recommend?user=nobody&n=10")
    assert page.locator(".offer h2").all_inner_texts() == [row["item"] for row in told["recommendations"]]
    expect(page.locator("#view .lead")).to_have_text(re.compile("Nobody here is called nobody.* popular"))
    page.locator(".offer h2 a").first.click()
    expect(page).to_have_url(re.compile("thing"))
    expect(page.get_by_role("alert")).to_have_count(0)


def test_person_is_shown_by_their_viewpoints(explorer, example):
    page = explorer.open("person", user=example["user"])
    told = explorer.ask(f"users/{quote(example['user'], safe='')}/profile")
    expect(page.locator(".portrait dd strong").first).to_have_text(str(told["reviews"]))
    cards = page.locator(".columns article")
    expect(cards).to_have_count(len(told["viewpoints"]))
    for place, side in enumerate(told["viewpoints"]):
        for number, sentence in enumerate(side["sentences"][:3]):
            expect(cards.nth(place).locator("blockquote").nth(number)).to_have_text(" ".join(sentence["text"].split()))
    counts = page.locator(".histogram tbody tr td:last-child").all_inner_texts()
    assert sum(map(int, counts)) == sum(told["ratings"].values())
    explorer.keep("person")


def test_thing_is_shown_by_what_people_like_and_dislike_and_by_what_matters_to_one(explorer, example):
    page = explorer.open("thing", **example)
    item = quote(example["item"], safe="")
    told = explorer.ask(f"items/{item}/profile")
    for sentiment, rows in (("positive", told["liked"]), ("negative", told["disliked"])):
        cards = page.locator(f".opinions.{sentiment} article")
        expect(cards).to_have_count(len(rows))
        for place, row in enumerate(rows):
            expect(cards.nth(place)).to_contain_text(f"{row['raters']} of {told['raters']} raters")
    summary = explorer.ask(f"items/{item}/summary?user={quote(example['user'])}")
    expect(page.locator(".summary-list li")).to_have_count(len(summary["sentences"]))
    explorer.keep("thing", whole=True)


def test_two_things_are_compared_for_one_person(explorer, example):
    other = next(row["id"] for row in explorer.ask("items")["items"] if row["id"] != example["item"])
    page = explorer.open("compare", **example, other=other)
    told = explorer.ask(
        f"compare?user={quote(example['user'])}&first={quote(example['item'])}&second={quote(other, safe='')}"
    )
    expect(page.locator(".balance")).to_have_text(told["verdict"])
    assert page.locator(".compared .figure").all_inner_texts() == [two_digits(row["rating"]) for row in told["items"]]
    explorer.keep("compare")
    page.get_by_role("link", name="Swap the two").click()
    expect(explorer.field("First thing")).to_have_value(other)
    expect(page.locator(".compared h2").first).to_contain_text(other)


def test_edited_reviews_change_rating_and_reasons(explorer, example):
    page = explorer.open("whatif", item=example["item"])
    expect(page.locator(".results .empty")).to_contain_text("Write or paste a review")
    review = page.get_by_label("Review", exact=True)
    review.fill("The sound is clear and crisp, every voice is there.")
    expect(page.locator(".results .figure").first).to_be_visible()
    before = page.locator(".results .answer .figure").inner_text()
    expect(page.locator(".results .reason").first).to_contain_text("sound")
    review.fill("Far too heavy. It broke after a week, and the battery is dead by noon.")
    expect(page.locator(".moved")).to_contain_text(f"{before} of before")
    expect(page.locator(".results .offer")).to_have_count(5)
    assert "review=Far+too+heavy" in explorer.hash()
    explorer.keep("what-if")
    page.get_by_role("button", name="Add another review").click()
    expect(page.get_by_label("Review", exact=True).nth(1)).to_be_focused()
    page.get_by_role("button", name="Remove").first.click()
    expect(page.locator(".results .empty")).to_contain_text("Write or paste a review")


def test_what_if_starts_from_the_words_of_somebody(explorer, example):
    page = explorer.open("person", **example)
    page.get_by_role("link", name="What if I were like them?").click()
    first = page.get_by_label("Review", exact=True).first
    expect(first).not_to_have_value("")
    told = explorer.ask(f"users/{quote(example['user'], safe='')}/profile")
    sentences = [sentence["text"] for side in told["viewpoints"] for sentence in side["sentences"]]
    assert any(sentence in first.input_value() for sentence in sentences)
    expect(page.locator(".results .answer .figure")).to_be_visible()
