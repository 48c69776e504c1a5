"""Explanations of a model that is a sum, as text and page: the words are true, and what is shown adds up."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from itertools import pairwise

import pytest

from carp.explain.explanation import (
    AspectFinding,
    Capsule,
    EarlierCase,
    Explanation,
    Mark,
    Meetings,
    Part,
    Sentence,
    TargetReview,
)
from carp.render.amounts_shown import digits_of, largest_meetings, rounded_to_sum, sum_rows
from carp.render.explanation_json import explanation_json
from carp.render.html_page import explanation_fragment, explanation_page
from carp.render.summed_telling import LONGEST_QUOTE, Told, first_words, reason_line, shortened, told
from carp.render.terminal import explanation_text
from carp.render.wording import neutral

AROMA, SWEET, STRAP = "aroma, hops, pine", "sweet, sugar, syrup", "strap, leather, buckle"
SMALL = [0.004, -0.003, 0.002, 0.0049, -0.0049, 0.001]


def said(text, rating, word):
    start = text.index(word)
    return Sentence(text, (Mark(start, start + len(word), "own"),), "zoe", "b7", rating, title="Stout")


def stout() -> Explanation:
    """A person who dislikes sweet things, and a beer that others praise for being sweet."""
    findings = (
        AspectFinding(
            AROMA,
            0.434,
            0.3,
            0.134,
            (said("A lovely aroma of pine.", 5.0, "lovely"),),
            viewpoint=AROMA,
            own_sentences=(Sentence("Hops are what I drink it for.", (), "ann", "b1", 5.0, title="Pale"),),
        ),
        AspectFinding(SWEET, -0.251, 0.05, -0.301, (said("Wonderfully sweet!", 5.0, "sweet"),), turned=True),
        AspectFinding(STRAP, -0.126, -0.126, 0.0, (said("The strap broke.", 1.0, "broke"),)),
    )
    amounts = [("mean", "the mean of all ratings", 3.715), ("person", "what this person usually gives", -0.152)]
    amounts += [
        ("thing", "what this thing usually gets", 0.0),
        *(("aspect", one.aspect, one.amount) for one in findings),
    ]
    amounts += [("aspect", f"smaller {place}", amount) for place, amount in enumerate(SMALL)]
    parts = tuple(Part(*amount) for amount in amounts)
    return Explanation(
        user="ann",
        item="b7",
        title="Stout",
        rating=sum(part.amount for part in parts),
        rating_range=(1.0, 5.0),
        item_mean=3.6,
        baseline=3.5,
        positive=None,
        negative=None,
        coupling_positive=(),
        coupling_negative=(),
        units=(),
        target=TargetReview("Too sweet.", 3.0, (Mark(4, 9, "matched"),)),
        model="meeting",
        parts=parts,
        findings=findings,
        cases=(EarlierCase("b2", 2.0, 0.7, "Porter"), EarlierCase("b3", 1.0, 0.3)),
        meetings=Meetings((AROMA, SWEET), (AROMA, STRAP), ((0.111, 0.001), (-0.052, 0.0))),
        texts_move=0.061,
    )


def words_of(render, explanation):
    shown = render(explanation)
    if render is not explanation_text:
        shown = unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", shown, flags=re.DOTALL))
    return re.sub(r"\s+", " ", shown)


RENDERS = pytest.mark.parametrize("render", [explanation_text, explanation_page, explanation_fragment])


@RENDERS
def test_first_words_say_what_speaks_for_it_and_what_against_it(render):
    words = words_of(render, stout())
    assert (
        "People praise “aroma”; complaints about “strap” count against it; others praise “sweet”, but for this person "
        "that speaks against it. In all, the texts raise the rating by 0.06." in words
    )


@RENDERS
def test_each_finding_has_its_amount_its_name_its_sentences_and_the_persons_own(render):
    words = words_of(render, stout())
    for name, amount, line in (
        (AROMA, "+0.43", "People praise “aroma”."),
        (SWEET, "−0.25", "Others praise “sweet”; for this person that speaks against it."),
        (STRAP, "−0.13", "Complaints about “strap” count against it."),
    ):
        assert name in words
        assert amount in words
        assert line in words
    assert "+0.30 for everybody, +0.13 by this person's taste" in words
    assert "This person writes about “aroma, hops, pine”:" in words
    assert "Hops are what I drink it for." in words
    assert words.count("rated 5") == 3  # two sentences about the thing, one of the person's own


@RENDERS
def test_shown_amounts_sum_to_the_shown_rating(render):
    words = words_of(render, stout())
    shown = words[words.index("How the rating comes about") : words.index("Rated before")]
    *amounts, total = (float(one.replace("−", "-")) for one in re.findall(r"[+−]?\d+\.\d\d", shown))
    assert len(amounts) == len(sum_rows(stout())) == 7
    assert "6 smaller amounts" in shown
    assert f"{sum(amounts):.2f}" == f"{total:.2f}" == f"{stout().rating:.2f}"


def test_rounding_never_breaks_a_sum():
    for parts in ([0.335, 0.335, 0.33], [3.004, 0.004, 0.004, -0.002], [14.17, -0.4551, 0.8849, -0.005, -0.005]):
        rounded = rounded_to_sum(parts, sum(parts), 2)
        assert f"{sum(rounded):.2f}" == f"{sum(parts):.2f}"
        assert all(abs(one - other) < 0.01 for one, other in zip(rounded, parts, strict=True))


def test_a_short_scale_is_told_to_a_third_digit():
    short = replace(stout(), rating_range=(0.0, 1.0))
    assert digits_of(short) == 3
    assert "+0.434" in explanation_text(short)


@RENDERS
def test_where_little_is_known_the_first_line_says_so_and_no_reason_is_counted(render):
    faint = tuple(replace(finding, amount=finding.amount / 10) for finding in stout().findings)
    words = words_of(render, replace(stout(), findings=faint, texts_move=-0.02))
    assert "This rests on the person's and the thing's averages; the texts move it by 0.02." in words
    assert "What speaks for it" not in words
    assert "People praise" not in words
    assert "How the rating comes about" in words
    assert "Of the reasons" not in words


@RENDERS
def test_texts_that_move_a_rating_without_a_clear_sentence_are_told_of_as_such(render):
    words = words_of(render, replace(stout(), findings=(), texts_move=-0.4))
    assert "No sentence says clearly why, but the texts lower the rating by 0.40." in words


def test_the_first_words_say_where_no_sentence_told_is_the_reason():
    explanation = stout()
    against = tuple(one for one in explanation.findings if one.amount < 0)
    raised = replace(explanation, findings=against, texts_move=0.4)
    told_so = "the texts raise the rating by 0.40 all the same, by words that no sentence here stands for."
    assert first_words(raised).endswith(told_so)
    writing = Part("writing", "how this person writes", 0.3)
    by_writing = replace(explanation, parts=(*explanation.parts, writing), texts_move=0.4)
    assert first_words(by_writing).endswith("by 0.40, most of it by how this person writes.")


@RENDERS
def test_earlier_cases_are_told_in_words(render):
    words = words_of(render, stout())
    assert "This person gave 2 to Porter (b2), of which people write much the same." in words
    assert "This person gave 1 to b3, of which people write similar things." in words


def test_praise_and_complaint_are_said_only_where_the_writers_ratings_agree():
    explanation = stout()
    doubtful = replace(explanation.findings[0], sentences=(said("A lovely aroma of pine.", 2.0, "pine"),))
    mild = replace(explanation.findings[2], sentences=(said("The strap broke.", 3.5, "broke"),))
    words = told(replace(explanation, findings=(doubtful, mild))).findings
    assert words[0].words == "What people write about “aroma” speaks for it."
    assert words[1].words == "What people write about “strap” counts against it."


def test_a_negative_amount_is_drawn_to_the_left_of_the_zero_line():
    text = explanation_text(stout(), width=90)
    assert re.search(r"\+0\.43  ·+│█+·*  aroma", text)
    assert re.search(r"−0\.25  ·*█+│·+  sweet", text)
    rows = re.findall(r'<tr class="(\w*)">(.*?)</tr>', explanation_page(stout()), re.DOTALL)
    drawn = [(tone, re.search(r'x="([\d.]+)%" width="([\d.]+)%"', row)) for tone, row in rows]
    bars = [(tone, *found.groups()) for tone, found in drawn if found]
    assert {tone for tone, *_ in bars} == {"positive", "negative", ""}
    for tone, start, width in bars:
        if tone == "negative":
            assert float(start) + float(width) == pytest.approx(50, abs=0.1)
            assert float(width) > 0
        else:
            assert float(start) == 50


def test_a_capsule_of_negative_degree_is_drawn_to_the_left_and_said():
    explanation = replace(
        stout(),
        parts=(),
        findings=(),
        texts_move=None,
        positive=Capsule(0.6, -1.2, -0.5),
        negative=Capsule(0.4, 0.9, 0.4),
        coupling_positive=((1.0,),),
        coupling_negative=((1.0,),),
    )
    page = explanation_page(explanation)
    assert '<rect class="part degree" x="25.0%" width="25.0%"' in page
    assert '<rect class="part degree" x="50.0%" width="20.0%"' in page
    for render in (explanation_text, explanation_page):
        assert "Its degree is below zero, so it takes away from the rating." in words_of(render, explanation)
        assert "so it adds" not in words_of(render, explanation)
    near = replace(explanation, rating=3.5, baseline=3.47)
    for render in (explanation_text, explanation_page):
        words = words_of(render, near)
        assert "This rests on the person's and the thing's averages; the texts move it by 0.03." in words
        assert "Of the reasons" not in words


def test_heat_map_names_both_axes_and_keeps_what_matters():
    many = 12
    names = tuple(f"name{place}, other" for place in range(many))
    amounts = tuple(tuple(0.01 * (row + 1) * (-1) ** column for column in range(many)) for row in range(many))
    wide = replace(stout(), meetings=Meetings(names, names, amounts))
    kept = largest_meetings(wide)
    assert kept.viewpoints == names[4:]  # the eight with the largest amounts
    assert len(kept.aspects) == 8
    assert kept.amounts[-1][:2] == (0.12, -0.12)
    assert largest_meetings(replace(wide, meetings=Meetings(names[:1], names[:1], ((0.001,),)))) is None
    page = explanation_page(wide)
    assert page.count('scope="col"') == 8
    assert re.search(r'<th scope="col" title="name0, other"><bdi>name0</bdi>', page)
    assert '<td class="h9 negative">−0.120</td>' in page
    text = explanation_text(wide, width=60)
    assert re.search(r"^name11 .*\+0\.120", text, re.MULTILINE)
    assert all(len(line) <= 60 for line in text.splitlines())


@RENDERS
def test_no_word_of_the_capsules_reaches_a_sum(render):
    words = words_of(render, stout())
    assert not re.search(r"prevail|weighs|strength|capsule|coupling|viewpoint \d|aspect \d|biases", words)


def test_page_of_a_sum_is_whole_and_its_headings_go_down_without_a_gap(outline):
    for render in (explanation_page, explanation_fragment):
        shown = outline(render(stout()))
        assert not shown.unbalanced
        assert not shown.open
        levels = [int(tag[1]) for tag, *_ in shown.elements if re.fullmatch("h[1-6]", tag)]
        assert all(after - before <= 1 for before, after in pairwise(levels))
    assert len(explanation_page(stout())) < 200_000


def test_data_of_a_sum_never_commands_a_terminal(payload):
    sentence = Sentence(payload, (Mark(0, len(payload), "own"),), payload, payload, 1.0, title="called " + payload)
    finding = AspectFinding(payload, 0.5, 0.1, 0.4, (sentence,), viewpoint=payload, own_sentences=(sentence,))
    hostile = replace(
        stout(),
        findings=(finding,),
        parts=(Part("mean", payload, 3.0), Part("aspect", payload, 0.5)),
        rating=3.5,
        cases=(EarlierCase(payload, 2.0, 0.9, "called " + payload),),
        meetings=Meetings((payload,), (payload,), ((0.2,),)),
    )
    text = explanation_text(hostile, width=90)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", text)
    assert re.sub(r"\s+", " ", neutral(payload)).strip() in text


def test_json_holds_the_parts_that_sum_to_the_rating():
    read = json.loads(explanation_json(stout()))
    assert sum(part["amount"] for part in read["parts"]) == pytest.approx(read["rating"], abs=1e-4)
    assert [finding["turned"] for finding in read["findings"]] == [False, True, False]


def test_a_model_that_is_no_sum_is_told_by_its_first_words_alone():
    words = told(replace(stout(), parts=(), findings=(), texts_move=None))
    assert words == Told(words.summary)
    assert words.summary


# ---- one line in a list


def test_a_line_in_a_list_quotes_praise_that_names_its_aspect_and_tells_what_counts_against_it():
    line = reason_line(stout())
    assert line == (
        "People praise “aroma”: “A lovely aroma of pine.” Complaints about “strap” count against it. "
        "Others praise “sweet”, but for this person that speaks against it."
    )


def test_a_line_does_not_say_what_its_sentence_is_about_where_the_sentence_does_not():
    praised = replace(stout().findings[0], sentences=(said("So stock up!", 5.0, "stock"),))
    assert reason_line(replace(stout(), findings=(praised,))) == "People praise it: “So stock up!”"


def test_a_line_without_praise_tells_the_average_and_what_the_texts_do():
    silent = replace(stout(), findings=(), texts_move=-0.25)
    assert reason_line(silent) == "Rated 3.60 on average. What is written lowers the prediction by 0.25."
    unmoved = replace(silent, texts_move=0.001)
    assert reason_line(unmoved).endswith("leaves the prediction where the averages have it.")
    assert reason_line(replace(silent, item_mean=None)).startswith("Nobody has rated it.")
    unsure = replace(
        stout(), item_mean=5.0, findings=(replace(stout().findings[0], sentences=(said("Piny.", 3.0, "P"),)),)
    )
    assert reason_line(unsure).endswith("What people write about “aroma” speaks for it.")


def test_where_little_is_known_a_line_quotes_nobody():
    little = replace(stout(), findings=(replace(stout().findings[0], amount=0.01),), texts_move=0.02)
    assert little.little_known
    assert "“" not in reason_line(little)


def test_a_long_sentence_is_cut_between_words():
    found = shortened("wonderful " * 40)
    assert len(found) <= LONGEST_QUOTE + 2
    assert found.endswith("wonderful …")
