"""What would be obeyed if anybody let it, and a reader of pages that sees what became of it."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

VOID_TAGS = {"meta", "circle", "rect", "line", "img", "br"}

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
