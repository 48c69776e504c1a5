"""What the pages show is what comes out."""

from __future__ import annotations

import doctest
import importlib

import pytest

import comparing
import examples

PAGES = examples.pages_with_examples()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_it_shows(page, ended):
    assert not ended(page)[0], "\n".join(map(str, ended(page)[0]))


def test_the_tutorial_and_the_pages_with_commands_are_among_those_run():
    for page in ("tutorial.md", "howto/own-data.md", "howto/serve.md", "howto/new-model.md", "howto/benchmark.md"):
        assert page in PAGES


def test_the_tutorial_ends_with_an_explanation_as_one_page(ended):
    page = (ended("tutorial.md")[1] / "why.html").read_text("utf-8")
    assert "person-050" in page
    assert "<html" in page


def test_the_tutorial_shows_no_digit_that_may_come_out_otherwise(ended):
    page = (examples.DOCS / "tutorial.md").read_text("utf-8")
    assert examples.ROUGHLY not in page
    assert comparing.exact_difference("predicted 4.50", "predicted 4.51") is not None
    assert comparing.difference("predicted 4.50", "predicted 4.51") is None
    found = ended("tutorial.md")[0]
    assert not found, "\n".join(map(str, found))


def test_a_session_of_a_page_leaves_no_model_behind(ended):
    from carp.models import REGISTRY

    ended("howto/new-model.md")
    assert "overlap" not in REGISTRY


@pytest.mark.parametrize("name", ["examples", "comparing", "sources", "command_reference", "routing_words"])
def test_examples_of_the_building_tools_hold(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("carp 0.50 end", "carp 0.90 end"),
        ("12 read", "13 read"),
        ("a\nb", "a\nb\nc"),
        ("a\n...\nz", "a\nb\ny"),
        ("", "carp: something failed"),
    ],
)
def test_another_output_is_told(shown, printed):
    assert comparing.difference(shown, printed) is not None


def test_an_error_instead_of_an_explanation_is_told_even_where_sentences_may_differ():
    shown = "Why this rating\npredicted 4.57\n“It is light.”"
    assert comparing.rough_difference(shown, "carp: the model has never seen the user 'x'.") is not None
    assert comparing.rough_difference(shown, "") is not None
    assert comparing.rough_difference(shown, "Why this rating\npredicted 3.1\n“It is so light.”") is None
