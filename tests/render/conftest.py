"""What would be obeyed if anybody let it, and a reader of pages that sees what became of it."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from markup_payloads import PAYLOADS

VOID_TAGS = {"meta", "circle", "rect", "line", "img", "br"}


def pytest_generate_tests(metafunc):
    """A test that takes a payload is asked with each."""
    if "payload" in metafunc.fixturenames:
        metafunc.parametrize("payload", PAYLOADS)


@pytest.fixture(scope="session")
def payloads():
    return PAYLOADS


@pytest.fixture(scope="session")
def outline():
    """Reads a page."""
    return Outline


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
