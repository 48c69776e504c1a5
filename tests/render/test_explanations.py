"""Explanations as text, page and JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from itertools import groupby, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from carp.explain.explanation import Capsule, Explanation, LogicUnit, Mark, Sentence, Side, TargetReview
from carp.render.explanation_json import explanation_json
from carp.render.html_page import explanation_fragment, explanation_page, style_sheet
from carp.render.progress_bar import Bar
from carp.render.terminal import explanation_text
from carp.render.wording import neutral, phrases_of, split_by_marks

COLOUR_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")
VOID_TAGS = {"meta", "circle", "rect", "line"}
PAGE_TAGS = re.compile(
    "html|head|meta|title|style|body|main|header|section|article|aside|div|p|h[1-5]|span|bdi|b|strong|"
    "svg|circle|rect|line|text|dl|dt|dd|ul|li|figure|figcaption|blockquote|mark|sup|details|summary|"
    "table|caption|thead|tbody|tr|th|td"
)
PAGE_ATTRIBUTES = re.compile(
    "lang|charset|http-equiv|content|name|class|title|dir|role|tabindex|scope|aria-label|aria-hidden|"
    "x|y|x1|x2|y1|y2|cx|cy|r|rx|width|height|transform"
)

TAGS = ("script", "img", "svg", "iframe", "object", "embed", "style", "link", "meta", "base", "form", "video")
HANDLERS = ("onclick", "onerror", "onload", "onmouseover", "onfocus", "ontoggle", "onbegin", "onpointerenter")
PAYLOADS = (
    *(f"<{tag}>alert(1)</{tag}>" for tag in TAGS),
    *(f"<{tag} src=x onerror=alert(1)//" for tag in TAGS),
    *(f"</{tag}><b>free</b>" for tag in ("title", "style", "mark", "bdi", "td", "main", "textarea", "script")),
    *(f'" {handler}="alert(1)' for handler in HANDLERS),
    *(f"' {handler}='alert(1)" for handler in HANDLERS),
    *(f"<svg {handler}=alert(1)>" for handler in HANDLERS),
    *(f"`><x {handler}=alert`1`>" for handler in HANDLERS),
    *(
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,<script>1</script>",
        "vbscript:x",
        "//evil.example/x",
    ),
    *(
        "{{7*7}}",
        "${7*7}",
        "{% import os %}",
        "<%= 1 %>",
        "#{1}",
        "{0.__class__}",
        "%(x)s",
        "%s%n",
        "$(id)",
        "{x!r:>9}",
    ),
    *("[bold red]loud[/]", "[/]", "[link=file:///etc/passwd]x[/link]", ":warning:", "[@click=app.quit]x[/]"),
    *(
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\x1b]8;;http://evil.example\x1b\\\\x",
        "\x1b[2J",
        "\x9b31m",
        "\x08\x08\x7f",
    ),
    *(
        "\u202egnp.exe",
        "\u2066left\u2069",
        "\u202b\u202c",
        "a\u2028b\u2029c",
        "\x00\x01\x1f",
        "\ud800 lone",
        "\r\noverwritten\r",
    ),
    *(
        "&lt;script&gt;",
        "&#x3C;img src=x&#x3E;",
        "&",
        "<!--",
        "-->",
        "<![CDATA[x]]>",
        "]]>",
        "<?php 1 ?>",
        "<",
        "\"'`=/",
    ),
)


def marked(text, *phrases, kind="own"):
    return tuple(Mark(text.index(phrase), text.index(phrase) + len(phrase), kind) for phrase in phrases)


def side(index, text, own=(), shared=(), user="A2R6RA8FRBS608", item="B00006IFI3", rating=4.0):
    marks = (*marked(text, *own), *marked(text, *shared, kind="shared"))
    return Side(index, (Sentence(text, marks, user, item, rating),), (*own, *shared))


def sided(text, marks):
    return Side(1, (Sentence(text, marks, "u", "i", 4.0),), ())


def file_box() -> Explanation:
    """The first example of the paper: a person who likes solid things, and a cardboard box."""
    thing = "B0017D0E5G"
    metal = side(2, "The base is solid metal with high quality casters.", ["solid metal", "high quality casters"])
    light = side(
        2,
        "One last thing, I think is holds light stuffs, don`t over loading it.",
        ["holds light stuffs", "over loading it"],
        user="A1LK2Z9O8S5KVW",
        item=thing,
        rating=3.0,
    )
    money = side(1, "These labels save me money by letting me reuse old folders.", ["save me money"], item="B00007E7D2")
    price = side(
        5,
        "My concerns is the price. I think is seriously overprice for a cardboard box.",
        ["concerns is the price", "seriously overprice"],
        user="AQZH7YTWQPOBE",
        item=thing,
        rating=2.0,
    )
    tools = side(
        5,
        "These are great organizational tools, whether to replace lost tabs or to relabel a whole drawer in your own "
        "unique manner.",
        ["great organizational tools", "replace lost tabs", "relabel a whole drawer"],
        item="B0009F3PH6",
        rating=5.0,
    )
    papers = side(
        3,
        "I could easily use a bunch of these to organize papers and magazines at work and at home",
        ["organize"],
        ["papers and magazines"],
        user="A250AXLRBVYKB4",
        item=thing,
        rating=5.0,
    )
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
        coupling_positive=(
            (0.041, 0.030, 0.045, 0.038, 0.026),
            (0.036, 0.034, 0.042, 0.047, 0.039),
            (0.052, 0.033, 0.040, 0.035, 0.041),
            (0.037, 0.044, 0.029, 0.043, 0.036),
            (0.048, 0.031, 0.074, 0.046, 0.033),
        ),
        coupling_negative=(
            (0.038, 0.047, 0.033, 0.041, 0.064),
            (0.043, 0.079, 0.036, 0.030, 0.045),
            (0.029, 0.041, 0.038, 0.044, 0.035),
            (0.040, 0.036, 0.047, 0.031, 0.042),
            (0.034, 0.043, 0.029, 0.037, 0.048),
        ),
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
    sentence = Sentence(payload, (Mark(0, len(payload), "own"),), payload, payload, 1.0)
    one = Side(1, (sentence,), ("another " + payload,))
    return replace(
        file_box(),
        user=payload,
        item=payload,
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


class Outline(HTMLParser):
    """The elements of a page with all their attributes, and apart from them its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements, self.words, self.open, self.unbalanced = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, *attrs))
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, *attrs))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        self.words.append(data)

    def handle_comment(self, data):
        self.unbalanced.append("comment")

    def handle_pi(self, data):
        self.unbalanced.append("instruction")

    def unknown_decl(self, data):
        self.unbalanced.append("declaration")


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


MARKS = st.lists(
    st.builds(
        Mark,
        st.integers(-10, 60),
        st.integers(-10, 60),
        st.sampled_from(["own", "shared", "positive", "negative"]),
    ),
    max_size=8,
)


@given(st.text(max_size=40), MARKS)
def test_marks_cut_a_text_without_losing_a_character(text, marks):
    fragments = split_by_marks(text, marks)
    assert "".join(fragment for fragment, _ in fragments) == text
    assert all(fragment for fragment, _ in fragments)
    kinds = [kinds for fragment, kinds in fragments for _ in fragment]
    assert kinds == [{mark.kind for mark in marks if mark.start <= place < mark.end} for place in range(len(text))]


def test_touching_marks_of_one_kind_read_as_one_phrase():
    assert split_by_marks("ab", [Mark(0, 1, "own"), Mark(1, 2, "own"), Mark(1, 1, "shared")]) == [
        ("ab", frozenset({"own"}))
    ]


@given(st.text("ab. \n\u2003", max_size=40), MARKS)
@example("a  a", [Mark(0, 1, "own"), Mark(2, 4, "own")])
def test_phrases_keep_every_character_and_neither_begin_nor_end_in_a_space(text, marks):
    phrases = phrases_of(text, marks)
    assert "".join(words for words, _ in phrases) == text
    assert all(one != other for (_, one), (_, other) in pairwise(phrases))
    covering = [{mark.kind for mark in marks if mark.start <= place < mark.end} for place in range(len(text))]
    shown = [kinds for words, kinds in phrases for _ in words]
    for character, kinds, marked_with in zip(text, shown, covering, strict=True):
        expected = marked_with - {"own"} if "shared" in marked_with else marked_with
        assert kinds <= expected if character.isspace() else kinds == expected
    for kind in ("own", "shared", "positive", "negative"):
        stretches = groupby(phrases, key=lambda phrase: kind in phrase[1])
        joined = ["".join(words for words, _ in group) for inside, group in stretches if inside]
        assert joined == [words.strip() for words in joined]


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


@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_neutral_text_keeps_its_length_and_can_be_written(text):
    shown = neutral(text)
    assert len(shown) == len(text)
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)


def test_there_are_a_hundred_payloads():
    assert len(set(PAYLOADS)) >= 100


@pytest.mark.parametrize("render", [explanation_page, explanation_fragment])
@pytest.mark.parametrize("explain", [hostile, hostile_heard])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_data_never_becomes_markup(payload, explain, render):
    outline = Outline(render(explain(payload)))
    plain = Outline(render(explain("plain"))).elements
    # What a bar is called to those who cannot see it holds the name of what it measures.
    assert [without_label(element) for element in outline.elements] == [without_label(element) for element in plain]
    assert not outline.unbalanced
    assert not outline.open
    words = "".join(outline.words)
    # The title, both sides' sentences, their sources and phrases, the target and the note.
    assert words.count(neutral(payload)) >= 10


def without_label(element):
    return tuple(part for part in element if part[0] != "aria-label")


@pytest.mark.parametrize("explain", [hostile, hostile_heard])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_data_never_commands_a_terminal(payload, explain):
    plain = explanation_text(explain(payload), width=90)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", plain)
    assert re.sub(r"\s+", " ", neutral(payload)).strip() in plain
    coloured = explanation_text(explain(payload), width=90, colour=True)
    assert COLOUR_SEQUENCE.sub("", coloured) == plain


@pytest.mark.parametrize("explain", [hostile, hostile_heard])
@pytest.mark.parametrize("payload", PAYLOADS)
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
def test_page_is_whole_and_uses_only_the_elements_it_needs(explain):
    page = explanation_page(explain())
    outline = Outline(page)
    assert page.startswith("<!DOCTYPE html>")
    assert not outline.unbalanced
    assert not outline.open
    assert all(PAGE_TAGS.fullmatch(tag) for tag, *_ in outline.elements)
    assert all(PAGE_ATTRIBUTES.fullmatch(name) for _, *attributes in outline.elements for name, _ in attributes)
    assert ("html", ("lang", "en")) in outline.elements


@pytest.mark.parametrize("explain", [file_box, heard_box])
@pytest.mark.parametrize(("render", "top"), [(explanation_page, 1), (explanation_fragment, 2)])
def test_headings_go_down_without_a_gap(render, top, explain):
    levels = [int(tag[1]) for tag, *_ in Outline(render(explain())).elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == top
    assert levels.count(top) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_page_reaches_for_nothing_outside_itself():
    page = explanation_page(file_box())
    assert not re.search(r"https?:|//[a-z]|url\(|@import|src=|href=|style=|javascript:", page)


def test_page_policy_allows_its_own_style_and_nothing_else():
    page = explanation_page(file_box())
    style = re.search("<style>(.*)</style>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(
        dict(attributes)["content"]
        for tag, *attributes in Outline(page).elements
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


def test_text_says_which_way_each_reason_points():
    text = explanation_text(file_box(), width=100)
    assert "Of the reasons below, two speak against it and one speaks for it." in text
    assert "1. (−) speaks against it: viewpoint 2 meets aspect 2" in text
    assert "3. (+) speaks for it: viewpoint 5 meets aspect 3" in text


def test_every_viewpoint_and_aspect_is_told_by_its_phrases():
    text, page = explanation_text(file_box(), width=100), explanation_page(file_box())
    assert "v1  0.20  save me money" in text
    assert "a5  0.33  concerns is the price · seriously overprice" in text
    assert re.search(r"aspect 5 <span class=\"soft\"><bdi>concerns is the price</bdi> · <bdi>seriously", page)
    nobody = replace(file_box(), viewpoints=(Side(1, (), ()),), aspects=(Side(1, (), ()),))
    for shown in (explanation_text(nobody), explanation_page(nobody)):
        assert "no phrase stands for it" in shown


@pytest.mark.parametrize("render", [explanation_text, explanation_page, explanation_fragment])
def test_a_model_without_capsules_tells_what_it_listened_to_and_no_more(render):
    words = words_of(render, heard_box())
    for statement in (
        "Below is what the model mpcn listened to most in what the person wrote and in what people wrote of the thing.",
        "A pointer picks one review of each.",
        "In what the person wrote",
        "In what people wrote of the thing",
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
    shown = render(explanation).replace(style_sheet(), "")
    return re.sub(r"\s+", " ", shown if render is explanation_text else " ".join(Outline(shown).words))


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
    assert "(an empty sentence)" in words
    assert "No sentence stands for this aspect." in words
    assert "by the newcomer" in words
    assert "about a thing not named" in words
    assert "without a rating" in words
    assert "The review has no words." in words


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


# ---- training in a terminal


class Terminal(StringIO):
    def isatty(self):
        return True


def open_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    return screen


def record(epoch, best=True):
    return {"epoch": epoch, "loss": 1.25, "valid_mse": 0.875, "seconds": 2.0, "valid_seconds": 0.5, "best": best}


def train_two_epochs(bar):
    bar.epoch_begins(1, 2)
    bar.batch_done()
    bar.epoch_ends(record(1))
    bar.epoch_begins(2, 2)
    bar.batch_done()


def test_the_bar_shows_loss_and_validation_error_of_the_epoch_before(monkeypatch):
    terminal = open_terminal(monkeypatch)
    bar = Bar(epochs=9)
    train_two_epochs(bar)
    bar.close()
    shown = COLOUR_SEQUENCE.sub("", terminal.getvalue())
    assert "epoch   1   loss 1.2500   validation MSE 0.8750   2.0 s  best so far\n" in shown
    assert "epoch 2 of 9 (before: loss 1.2500, validation 0.8750)" in shown


def test_a_closed_bar_leaves_the_cursor_visible(monkeypatch):
    terminal = open_terminal(monkeypatch)
    bar = Bar(epochs=9)
    train_two_epochs(bar)
    assert terminal.getvalue().rfind("\x1b[?25l") > terminal.getvalue().rfind("\x1b[?25h")
    bar.close()
    bar.close()
    assert terminal.getvalue().rfind("\x1b[?25h") > terminal.getvalue().rfind("\x1b[?25l")


def test_a_bar_interrupted_while_it_starts_can_be_closed(monkeypatch):
    terminal = open_terminal(monkeypatch)
    bar = Bar(epochs=9)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bar.console, "push_render_hook", interrupt)
        with pytest.raises(KeyboardInterrupt):
            bar.epoch_begins(1, 2)
    bar.close()
    assert terminal.getvalue().endswith("\x1b[?25h")


def test_without_a_terminal_each_epoch_is_one_line(capsys):
    bar = Bar(epochs=9)
    train_two_epochs(bar)
    bar.epoch_ends(record(2, best=False))
    bar.close()
    line = "epoch {:3d}   loss 1.2500   validation MSE 0.8750   2.0 s{}\n"
    assert capsys.readouterr().err == line.format(1, "  best so far") + line.format(2, "")
