"""Explanations as text, page and JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import unescape
from itertools import pairwise

import pytest
from rich.cells import cell_len

from carp.explain.explanation import Capsule, Explanation, LogicUnit, Mark, Sentence, Side, TargetReview
from carp.render.explanation_json import explanation_json
from carp.render.html_page import explanation_fragment, explanation_page
from carp.render.html_templates import style_sheet
from carp.render.terminal import explanation_text
from carp.render.wording import neutral

COLOUR_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
PAGE_TAGS = re.compile(
    "html|head|meta|title|style|body|main|header|section|article|aside|div|p|h[1-5]|span|bdi|b|strong|"
    "svg|circle|rect|line|text|dl|dt|dd|ul|li|figure|figcaption|blockquote|mark|sup|details|summary|"
    "table|caption|thead|tbody|tr|th|td"
)
PAGE_ATTRIBUTES = re.compile(
    "lang|charset|http-equiv|content|name|class|title|dir|role|tabindex|scope|aria-label|aria-hidden|"
    "x|y|x1|x2|y1|y2|cx|cy|r|rx|width|height|transform"
)

LIGHT = "One last thing, I think is [holds light stuffs], don`t [over loading it]."
PRICE = "My [concerns is the price]. I think is [seriously overprice] for a cardboard box."
TOOLS = (
    "These are [great organizational tools], whether to [replace lost tabs] or to [relabel a whole drawer] in your own "
    "unique manner."
)
PAPERS = "I could easily use a bunch of these to [organize] {papers and magazines} at work and at home"


def marked(text, *phrases, kind="own"):
    return tuple(Mark(text.index(phrase), text.index(phrase) + len(phrase), kind) for phrase in phrases)


def side(index, written, user="A2R6RA8FRBS608", item="B00006IFI3", rating=4.0):
    """A side of one sentence, in which [own] and {shared} phrases stand in brackets."""
    text, marks, phrases = "", [], []
    for part in re.split(r"(\[.*?\]|\{.*?\})", written):
        words = part[1:-1] if part[:1] in ("[", "{") else part
        if words != part:
            marks.append(Mark(len(text), len(text) + len(words), "own" if part[0] == "[" else "shared"))
            phrases.append(words)
        text += words
    return Side(index, (Sentence(text, tuple(marks), user, item, rating),), tuple(phrases))


def grid(thousandths):
    """Rows of coupling coefficients, written as thousandths."""
    return tuple(tuple(int(number) / 1000 for number in row.split()) for row in thousandths.split(","))


def sided(text, marks):
    return Side(1, (Sentence(text, marks, "u", "i", 4.0),), ())


def file_box() -> Explanation:
    """The first example of the paper: a person who likes solid things, and a cardboard box."""
    thing = "B0017D0E5G"
    metal = side(2, "The base is [solid metal] with [high quality casters].")
    light = side(2, LIGHT, user="A1LK2Z9O8S5KVW", item=thing, rating=3.0)
    money = side(1, "These labels [save me money] by letting me reuse old folders.", item="B00007E7D2")
    price = side(5, PRICE, user="AQZH7YTWQPOBE", item=thing, rating=2.0)
    tools = side(5, TOOLS, item="B0009F3PH6", rating=5.0)
    papers = side(3, PAPERS, user="A250AXLRBVYKB4", item=thing, rating=5.0)
    wrote = (
        "The Smead MO File Box seemed like it could be a good way to keep those papers right at hand. It's a little "
        "disapointing for the price that it doesn't come with a slip-cover. The overall would not recommend it for "
        "general use unless they reassess the price."
    )
    return Explanation(
        user="A2R6RA8FRBS608",
        item=thing,
        rating=3.03,
        rating_range=(1.0, 5.0),
        item_mean=3.86,
        baseline=3.71,
        positive=Capsule(0.589, 1.842, 0.761),
        negative=Capsule(0.460, 1.779, 0.735),
        coupling_positive=grid("41 30 45 38 26, 36 34 42 47 39, 52 33 40 35 41, 37 44 29 43 36, 48 31 74 46 33"),
        coupling_negative=grid("38 47 33 41 64, 43 79 36 30 45, 29 41 38 44 35, 40 36 47 31 42, 34 43 29 37 48"),
        units=(
            LogicUnit(metal, light, 0.034, 0.079, "negative"),
            LogicUnit(money, price, 0.026, 0.064, "negative"),
            LogicUnit(tools, papers, 0.074, 0.029, "positive"),
        ),
        target=TargetReview(
            wrote,
            2.0,
            (
                *marked(wrote, "it could be a good way to keep those papers right at hand.", kind="positive"),
                *marked(
                    wrote, "a little disapointing for the price", "unless they reassess the price", kind="negative"
                ),
            ),
        ),
        notes=("The thing has 34 training reviews; the most recent 20 were read.",),
        viewpoints=tuple(
            replace(one, index=place, name=f"viewpoint {place}", weight=0.2)
            for place, one in enumerate((money, metal, tools, metal, tools), 1)
        ),
        aspects=tuple(
            replace(one, index=place, name=f"aspect {place}", weight=place / 15)
            for place, one in enumerate((light, light, papers, price, price), 1)
        ),
    )


def heard_box() -> Explanation:
    """The same pair by a model of four pointers that knows nothing of for and against."""
    box = file_box()
    weights = (0.1, 0.4, 0.2, 0.3)

    def pointers(sides):
        return tuple(
            replace(one, name=f"pointer {one.index}", weight=weight)
            for one, weight in zip(sides[:4], weights, strict=True)
        )

    return replace(
        box,
        positive=None,
        negative=None,
        coupling_positive=(),
        coupling_negative=(),
        units=(),
        target=replace(box.target, marks=marked(box.target.text, "keep those papers", kind="matched")),
        model="mpcn",
        viewpoints=pointers(box.viewpoints),
        aspects=pointers(box.aspects),
        meaning="A pointer picks one review of each.",
    )


def hostile(payload: str) -> Explanation:
    """The payload in every place that data can reach."""
    sentence = Sentence(payload, (Mark(0, len(payload), "own"),), payload, payload, 1.0, title="called " + payload)
    one = Side(1, (sentence,), ("another " + payload,))
    return replace(
        file_box(),
        user=payload,
        item=payload,
        title="called " + payload,
        units=(LogicUnit(one, one, 0.1, 0.2, "negative"),),
        target=TargetReview(payload, 1.0, (Mark(0, len(payload), "positive"),)),
        notes=(payload,),
        viewpoints=(replace(one, name=payload, weight=0.5),),
        aspects=(replace(one, name=payload, weight=0.5),),
    )


def hostile_heard(payload: str) -> Explanation:
    """The same without capsules: names and meaning come from models, which anybody may register."""
    loud = hostile(payload)
    both = (loud.viewpoints[0], replace(loud.viewpoints[0], index=2))
    return replace(
        loud,
        positive=None,
        negative=None,
        units=(),
        model=payload,
        meaning=payload,
        viewpoints=both * 2,
        aspects=both,
        target=TargetReview(payload, 1.0, (Mark(0, len(payload), "matched"),)),
    )


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def test_phrases_that_overlap_read_one_after_the_other():
    text = "to clamp without hitting strings, which I need."
    marks = (*marked(text, "clamp without "), *marked(text, "without hitting", " strings, which", kind="shared"))
    explanation = replace(
        file_box(), target=None, units=(LogicUnit(sided(text, marks), Side(1, (), ()), 1, 0, "positive"),)
    )
    assert "“to [clamp] {without hitting strings, which} I need.”" in explanation_text(explanation, width=100)
    assert re.search(
        r"to <mark[^>]*>clamp</mark> <mark[^>]*>without hitting strings, which</mark> I need",
        explanation_page(explanation),
    )


@pytest.mark.parametrize("render", [explanation_page, explanation_fragment])
@pytest.mark.parametrize("explain", [hostile, hostile_heard])
def test_data_never_becomes_markup(payload, explain, render, outline):
    shown = outline(render(explain(payload)))
    plain = outline(render(explain("plain"))).elements
    # What a bar or a column of a heat map is called in full holds the name of what it shows.
    assert [without_label(element) for element in shown.elements] == [without_label(element) for element in plain]
    assert not shown.unbalanced
    assert not shown.open
    words = "".join(shown.words)
    # The title, both sides' sentences, their sources and phrases, the target and the note.
    assert words.count(neutral(payload)) >= 10


def without_label(element):
    return tuple(part for part in element if part[0] not in ("aria-label", "title"))


@pytest.mark.parametrize("explain", [hostile, hostile_heard])
def test_data_never_commands_a_terminal(payload, explain):
    plain = explanation_text(explain(payload), width=90)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", plain)
    assert re.sub(r"\s+", " ", neutral(payload)).strip() in plain
    coloured = explanation_text(explain(payload), width=90, colour=True)
    assert COLOUR_SEQUENCE.sub("", coloured) == plain


@pytest.mark.parametrize("explain", [hostile, hostile_heard])
def test_json_gives_back_the_data_and_holds_nothing_to_obey(payload, explain):
    written = explanation_json(explain(payload))
    assert not re.search("[<\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", written)
    read = json.loads(written)
    assert read["user"] == read["item"] == read["target"]["text"] == read["notes"][0] == payload


def test_json_has_no_number_that_json_does_not_know():
    broken = replace(file_box(), rating=float("nan"), baseline=float("inf"), user="Зоя")
    written = explanation_json(broken, indent=None)
    read = json.loads(written, parse_constant=refuse)
    assert read["rating"] is None
    assert read["baseline"] is None
    assert "Зоя" in written
    assert "\n" not in written


def test_json_takes_numbers_of_numpy():
    import numpy

    built = replace(file_box(), rating=numpy.float32(3.5), coupling_positive=((numpy.float32(0.25),),))
    read = json.loads(explanation_json(built))
    assert read["rating"] == 3.5
    assert read["coupling_positive"] == [[0.25]]


@pytest.mark.parametrize("explain", [file_box, heard_box])
def test_page_is_whole_and_uses_only_the_elements_it_needs(explain, outline):
    page = explanation_page(explain())
    shown = outline(page)
    assert page.startswith("<!DOCTYPE html>")
    assert not shown.unbalanced
    assert not shown.open
    assert all(PAGE_TAGS.fullmatch(tag) for tag, *_ in shown.elements)
    assert all(PAGE_ATTRIBUTES.fullmatch(name) for _, *attributes in shown.elements for name, _ in attributes)
    assert ("html", ("lang", "en")) in shown.elements


@pytest.mark.parametrize("explain", [file_box, heard_box])
@pytest.mark.parametrize(("render", "top"), [(explanation_page, 1), (explanation_fragment, 2)])
def test_headings_go_down_without_a_gap(render, top, explain, outline):
    levels = [int(tag[1]) for tag, *_ in outline(render(explain())).elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == top
    assert levels.count(top) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_page_reaches_for_nothing_outside_itself():
    page = explanation_page(file_box())
    assert not re.search(r"https?:|//[a-z]|url\(|@import|src=|href=|style=|javascript:", page)


def test_page_policy_allows_its_own_style_and_nothing_else(outline):
    page = explanation_page(file_box())
    style = re.search("<style>(.*)</style>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(
        dict(attributes)["content"]
        for tag, *attributes in outline(page).elements
        if tag == "meta" and ("http-equiv", "Content-Security-Policy") in attributes
    )
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_page_title_can_be_chosen_and_is_escaped():
    assert "<title>&lt;b&gt; &amp; co</title>" in explanation_page(file_box(), title="<b> & co")


def test_fragment_leaves_the_rest_of_a_notebook_alone():
    fragment = explanation_fragment(file_box())
    assert not re.search("<(html|head|body|main|h1)[ >]", fragment)
    rules = re.sub(r"@media[^{]*\{", "", style_sheet())
    selectors = [part.strip() for rule in re.findall(r"([^{}]+)\{", rules) for part in rule.split(",")]
    assert len(selectors) > 50
    assert all(re.match(r"\.carp-(explanation|page)\b", selector) for selector in selectors)


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(scheme):
    blocks = re.findall(r"\.carp-explanation \{([^}]*--paper[^}]*)\}", style_sheet())
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", blocks[scheme]))
    pairs = [("ink", back) for back in ("paper", "card", "track", "own", "shared")]
    pairs += [(front, back) for front in ("soft", "for", "against") for back in ("paper", "card")]
    for front, back in pairs:
        light, dark = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (front, back)


def test_page_shows_marks_couplings_and_reasons():
    page = explanation_page(file_box())
    assert re.search('<mark class="own" title="[^"]+">solid metal</mark>', page)
    assert re.search('<mark class="shared" title="[^"]+">papers and magazines</mark>', page)
    assert re.search(
        '<mark class="negative" title="[^"]+">unless they reassess the price</mark><sup[^>]*>−</sup>', page
    )
    assert re.search(r'<td class="h9 listed" title="reason 1">0\.079', page)
    assert page.count("<caption>") == 2
    assert page.count('scope="row"') == page.count('scope="col"') == 10


def test_text_keeps_ids_numbers_and_marks():
    text = explanation_text(file_box(), width=100)
    for shown in ("A2R6RA8FRBS608", "B0017D0E5G", "3.03", "2.00", "3.71", "3.86", "from 1 to 5", "0.589", "0.460"):
        assert shown in text
    assert "“The base is [solid metal] with [high quality casters].”" in text
    assert "{papers and magazines}" in text
    assert "__a little disapointing for the price__(−)" in text
    assert text.count("*") == 4  # three listed units and the legend
    assert all(f"{value:.3f}" in text for row in file_box().coupling_negative for value in row)


def test_a_title_stands_before_the_id_wherever_a_thing_is_named():
    box = replace(file_box(), title="Smead MO File Box")
    aspect = replace(box.units[0].aspect.sentences[0], title="Smead MO File Box")
    unit = replace(box.units[0], aspect=replace(box.units[0].aspect, sentences=(aspect,)))
    shown = replace(box, units=(unit,))
    text = explanation_text(shown, width=100)
    assert "thing         Smead MO File Box (B0017D0E5G)\n" in text
    assert "about Smead MO File Box (B0017D0E5G)" in text
    page = explanation_page(shown)
    assert '<bdi>Smead MO File Box</bdi> <bdi class="id">B0017D0E5G</bdi>?' in page
    assert "would rate Smead MO File Box (B0017D0E5G) 3.03</title>" in page
    read = json.loads(explanation_json(shown))
    assert (read["item"], read["title"]) == ("B0017D0E5G", "Smead MO File Box")
    assert read["units"][0]["aspect"]["sentences"][0]["title"] == "Smead MO File Box"


def test_text_says_which_way_each_reason_points():
    text = explanation_text(file_box(), width=100)
    assert "Of the reasons below, two speak against it and one speaks for it." in text
    assert "1. (−) speaks against it: viewpoint 2 meets aspect 2" in text
    assert "3. (+) speaks for it: viewpoint 5 meets aspect 3" in text


def test_every_viewpoint_and_aspect_is_told_by_its_phrases():
    text, page = explanation_text(file_box(), width=100), explanation_page(file_box())
    assert "0.20  v1  save me money" in text
    assert "0.33  a5  concerns is the price · seriously overprice" in text
    assert re.search(r"aspect 5 <span class=\"soft\"><bdi>concerns is the price</bdi> · <bdi>seriously", page)
    nobody = replace(file_box(), viewpoints=(Side(1, (), ()),), aspects=(Side(1, (), ()),))
    for shown in (explanation_text(nobody), explanation_page(nobody)):
        assert "no phrase stands for it" in shown


def test_sides_with_names_are_called_by_them_in_titles_on_axes_and_in_the_list():
    box = file_box()
    names = [f"topic{place}, of, its own" for place in range(1, 6)]
    viewpoints, aspects = (
        tuple(replace(side, name=names[side.index - 1]) for side in sides) for sides in (box.viewpoints, box.aspects)
    )
    units = tuple(
        replace(
            unit,
            viewpoint=replace(unit.viewpoint, name=names[unit.viewpoint.index - 1]),
            aspect=replace(unit.aspect, name=names[unit.aspect.index - 1]),
        )
        for unit in box.units
    )
    shown = replace(box, viewpoints=viewpoints, aspects=aspects, units=units)
    text, page = explanation_text(shown, width=100), explanation_page(shown)
    assert "1. (−) speaks against it: “topic2, of, its own” meets “topic2, of, its own”" in text
    assert re.search(r"^for it +topic1 +topic2 +topic3 +topic4 +topic5$", text, re.MULTILINE)
    assert re.search(r"^ +topic5 +[\d.]+", text, re.MULTILINE)
    assert "0.20  topic1, of, its own  save me money" in text
    assert "speaks against it: <bdi>“topic2, of, its own” meets “topic2, of, its own”</bdi>" in page
    assert '<th scope="col" title="topic3, of, its own"><span class="unseen">aspect </span><bdi>topic3</bdi>' in page
    assert all(len(line) <= 60 for line in explanation_text(shown, width=60).splitlines())


@pytest.mark.parametrize("render", [explanation_text, explanation_page, explanation_fragment])
def test_a_model_without_capsules_tells_what_it_listened_to_and_no_more(render):
    words = words_of(render, heard_box())
    for statement in (
        "Below is what the model mpcn listened to most in what the person wrote and in what people wrote about the "
        "thing.",
        "A pointer picks one review of each.",
        "In what the person wrote",
        "In what people wrote about the thing",
        "the prediction is 0.68 below",  # the biases alone: nothing says that the texts moved it
        "words that the model listened to in other reviews",
        "Listened to less: pointer 1 (0.10).",
    ):
        assert statement in words
    places = [words.index(f"pointer {index}") for index in (2, 4, 3)]
    assert places == sorted(places), "the one that is listened to most comes first"
    for claim in ("speaks", "capsule", "coupling", "viewpoint", "the texts move it", "likely", "Reason "):
        assert claim not in words


def test_text_without_capsules_keeps_its_marks():
    text = explanation_text(heard_box(), width=100)
    assert "“The base is [solid metal] with [high quality casters].”" in text
    assert "good way to __keep those papers__ right at hand" in re.sub(r"\s+", " ", text)
    page = explanation_page(heard_box())
    assert re.search('<mark class="matched" title="[^"]+">keep those papers</mark> right', page)


@pytest.mark.parametrize("render", [explanation_text, explanation_page])
def test_one_side_alone_is_neither_named_nor_weighed(render):
    box = heard_box()
    words = words_of(render, replace(box, viewpoints=box.viewpoints[1:2], aspects=(Side(1, (), (), 1.0, "pointer 1"),)))
    assert "a phrase the model listened to" in words
    assert "No word stands out." in words
    assert "pointer 1" not in words
    assert "weight" not in words
    assert "several" not in words


@pytest.mark.parametrize("explain", [file_box, heard_box])
@pytest.mark.parametrize("width", [40, 57, 80, 100, 160])
@pytest.mark.parametrize("name", ["plain", "長い名前" * 30, "x" * 300])
def test_text_fits_its_width(width, name, explain):
    text = explanation_text(replace(explain(), user=name, notes=(name,)), width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert name in re.sub(r"\n +", "", text)


def test_text_follows_the_terminal_up_to_a_readable_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, str(file_box()).splitlines())) <= 60
    monkeypatch.setenv("COLUMNS", "400")
    assert max(map(len, str(file_box()).splitlines())) <= 100


def test_colour_comes_only_when_asked(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in explanation_text(file_box())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" in explanation_text(file_box(), colour=True)


def sparse() -> Explanation:
    """A newcomer about whom, and a thing about which, next to nothing is known."""
    return Explanation(
        user=None,
        item="B1",
        rating=3.5,
        rating_range=(0.5, 5.0),
        item_mean=None,
        baseline=None,
        positive=Capsule(0.2, -0.1, -0.05),
        negative=Capsule(0.3, float("nan"), 1.7),
        coupling_positive=(),
        coupling_negative=(),
        units=(),
    )


def words_of(render, explanation):
    shown = render(explanation)
    if render is not explanation_text:
        shown = unescape(re.sub("<[^>]+>", " ", shown.replace(style_sheet(), "")))
    return re.sub(r"\s+", " ", shown)


@pytest.mark.parametrize("render", [explanation_text, explanation_page, explanation_fragment])
def test_what_is_missing_is_said(render):
    words = words_of(render, sparse())
    for statement in (
        "a newcomer",
        "no held-out review of this pair",
        "the model gave no prediction from biases alone",
        "no training rating of the thing",
        "No reason stands out",
        "No logic unit was listed for this prediction.",
        "no coupling coefficients were given",
        "No held-out review: the person's own words on the thing are not known.",
        "unknown",
        "from 0.5 to 5",
        "−0.100",
    ):
        assert statement in words
    assert "None" not in words
    assert "nan" not in words


@pytest.mark.parametrize("render", [explanation_text, explanation_page, explanation_fragment])
def test_empty_sentences_are_named_as_such(render):
    silent = Side(1, (Sentence("  ", (Mark(0, 9, "own"),), None, None, None),), ())
    explanation = replace(
        file_box(),
        units=(LogicUnit(silent, Side(4, (), ("",)), 0.1, 0.1, "positive"),),
        target=TargetReview("", 4.0, (Mark(0, 3, "positive"),)),
    )
    words = words_of(render, explanation)
    for statement in (
        "(an empty sentence)",
        "No sentence stands for this aspect.",
        "by the newcomer about an unnamed thing without a rating",
        "The review has no words.",
    ):
        assert statement in words.replace(",", "")


def test_uneven_and_wide_couplings_are_shown_whole():
    wide = tuple(tuple((row * 20 + column) / 1000 for column in range(20)) for row in range(3))
    explanation = replace(file_box(), coupling_positive=wide, coupling_negative=((0.5,), (0.25, 0.125)))
    text = explanation_text(explanation, width=80)
    page = explanation_page(explanation)
    for value in (*(value for row in wide for value in row), 0.5, 0.25, 0.125):
        assert f"{value:.3f}" in text
        assert f">{value:.3f}" in page


def test_an_explanation_shows_itself():
    assert str(file_box()) == explanation_text(file_box())
    assert file_box()._repr_html_() == explanation_fragment(file_box())
