"""Whatever stands in the data, pages have the elements their templates give them, and no others."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from jinja2 import UndefinedError

import carp.render
from carp.bench.report import Section, Table
from carp.bench.report_page import report_page, section_part
from carp.explain.explanation import Explanation, Mark, TargetReview
from carp.explain.profiles import PersonProfile, ThingProfile
from carp.render import html_templates
from carp.render.html_page import explanation_fragment, explanation_page
from carp.render.profile_views import profile_fragment, profile_page
from carp.render.wording import neutral
from carp.serve.page_files import docs_page

SOURCE = Path(carp.render.__file__).parents[1]
TEMPLATES = SOURCE / "render" / "templates"
NUMBERED = re.compile(r"#(\d+)#")


def full(kind, text, numbers):
    """A value of this type in which nothing is left out, every string is the text, and each has its own number."""
    of = typing.get_args(kind)
    if kind is str:
        return f"{text}#{next(numbers)}#"
    if typing.get_origin(kind) is typing.Literal:
        return of[next(numbers) % len(of)]
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return full(of[0], text, numbers)
    if typing.get_origin(kind) in (tuple, list):
        repeated = of[:1] * 2 if typing.get_origin(kind) is list or of[-1] is ... else of
        return typing.get_origin(kind)(full(one, text, numbers) for one in repeated)
    if typing.get_origin(kind) is dict:
        return {full(of[0], text, numbers): full(of[1], text, numbers) for _ in range(2)}
    if typing.get_origin(kind) is not None and issubclass(typing.get_origin(kind), typing.Callable):
        return lambda: "<svg/>"
    if dataclasses.is_dataclass(kind):
        hints, names = typing.get_type_hints(kind), [field.name for field in dataclasses.fields(kind)]
        return typing.cast(type, kind)(**{name: full(hints[name], text, numbers) for name in names})
    return kind(1)


def explanation_as_a_sum(text):
    found = full(Explanation, text, count())
    return replace(found, rating_range=(1.0, 5.0), target=TargetReview(text + "#t#", 2.0, (Mark(0, 3, "matched"),)))


def explanation_with_capsules(text):
    target = TargetReview(text + "#t#", 2.0, (Mark(0, 3, "positive"),))
    return replace(explanation_as_a_sum(text), target=target, parts=(), findings=(), texts_move=None, baseline=None)


def explanation_without_capsules(text):
    return replace(explanation_with_capsules(text), positive=None, negative=None, units=())


def profile_of(kind):
    return lambda text: full(kind, text, count())


def report_of(text):
    section = full(Section, text, count())
    return [replace(section, tables=[replace(table, left=1, marked=2) for table in section.tables])]


def schema_of(text):
    """An OpenAPI document of twenty routes."""
    numbers = count()

    def route():
        return {"summary": full(str, text, numbers), "parameters": [{"name": full(str, text, numbers)}]}

    return {"paths": {f"/{full(str, text, numbers)}": {"get": route(), "post": route()} for _ in range(10)}}


SHOWN = {
    "capsules, page": lambda text: explanation_page(explanation_with_capsules(text)),
    "capsules, page with a title": lambda text: explanation_page(explanation_with_capsules(text), title=text),
    "capsules, fragment": lambda text: explanation_fragment(explanation_with_capsules(text)),
    "attention, page": lambda text: explanation_page(explanation_without_capsules(text)),
    "attention, fragment": lambda text: explanation_fragment(explanation_without_capsules(text)),
    "sum, page": lambda text: explanation_page(explanation_as_a_sum(text)),
    "person, page": lambda text: profile_page(profile_of(PersonProfile)(text)),
    "person, fragment": lambda text: profile_fragment(profile_of(PersonProfile)(text)),
    "thing, page": lambda text: profile_page(profile_of(ThingProfile)(text)),
    "thing, fragment": lambda text: profile_fragment(profile_of(ThingProfile)(text)),
    "report": lambda text: report_page(report_of(text), title=text),
    "routes of the service": lambda text: docs_page(schema_of(text)).decode(),
    "section of a report": lambda text: section_part(report_of(text)[0]),
}


def structure(page, text):
    """The elements with all their attributes, the text in them taken out."""
    return [
        (tag, *((name, (value or "").replace(text, "")) for name, value in attributes if name != "src"))
        for tag, *attributes in page.elements
    ]


def words(page):
    return "\n".join([*page.words, *(value or "" for _, *attributes in page.elements for _, value in attributes)])


def test_there_are_a_hundred_payloads(payloads):
    assert len(set(payloads)) >= 100


@pytest.mark.parametrize("shown", SHOWN)
def test_no_string_of_the_data_becomes_markup(payload, shown, outline):
    page, plain = outline(SHOWN[shown](payload)), outline(SHOWN[shown]("plain"))
    assert not page.unbalanced
    assert not page.open
    assert structure(page, neutral(payload)) == structure(plain, "plain")
    reached = set(NUMBERED.findall(words(plain)))
    assert len(reached) >= 10
    assert {number for number in reached if neutral(f"{payload}#{number}#") in words(page)} == reached


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.html")), ids=lambda path: path.name)
def test_templates_declare_nothing_safe(path):
    assert not re.search(r"\|\s*safe\b|\bautoescape\b|__html__", path.read_text("utf-8"))


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_module_declares_text_safe(path):
    assert not re.search(r"\bMarkup\(|__html__|autoescape=False", path.read_text("utf-8"))


def test_every_template_is_filled_by_some_page():
    """So that the payloads go through all of them."""
    used = set()
    environment = html_templates.environment()
    found = environment.loader.get_source
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(environment.loader, "get_source", lambda env, name: (used.add(name), found(env, name))[1])
        environment.cache.clear()
        for show in SHOWN.values():
            show("plain")
    assert used == {path.name for path in TEMPLATES.iterdir()}


def test_a_value_that_a_template_misses_is_an_error_and_no_gap():
    with pytest.raises(UndefinedError):
        html_templates.filled("report_section.html")
    with pytest.raises(UndefinedError):
        html_templates.filled("report_section.html", section=Table("t", [], []))
