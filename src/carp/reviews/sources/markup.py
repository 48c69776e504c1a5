"""HTML in texts: tags go, entities become characters."""

from __future__ import annotations

import html
import re
from html.entities import html5

_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
ESCAPED_AT_MOST = 3
_HIDDEN_BEGIN = re.compile(r"<!--|<(script|style)\b[^<>]*>", re.IGNORECASE)
_HIDDEN_END = re.compile(r"-->|</(script|style)\s*>", re.IGNORECASE)
_LINE_TAG = re.compile(r"</?(?:br|p|div|li|tr|h[1-6]|blockquote|ul|ol|table|hr)(?:\s[^<>]*)?/?>", re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:a|abbr|b|big|center|cite|code|em|font|i|iframe|img|input|ins|kbd|mark|object|pre|q|s|small|span|strike|strong|sub"
    r"|sup|tbody|td|th|thead|tt|u|video)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)


def without_markup(text: str) -> str:
    """A text without tags of HTML, and with characters in place of entities, also of those that were escaped twice.

    >>> without_markup("Good &amp;amp; <b>loud</b>.<br />I <3 it<script>x()</script>, 2 < 3")
    'Good & loud.\\nI <3 it, 2 < 3'
    """
    for _ in range(ESCAPED_AT_MOST):
        if "&" not in text or (plain := unescape(text)) == text:
            break
        text = plain
    if "<" not in text:
        return text
    text = _LINE_TAG.sub("\n", without_hidden(text))
    return _TAG.sub("", text)


def without_hidden(text: str) -> str:
    """A text without comments, scripts and styles. What has no end stays.

    All ends are looked up once: to look for one behind each beginning would take the square of the length.
    """
    begin = _HIDDEN_BEGIN.search(text)
    if begin is None:
        return text
    ends: dict[str, list[tuple[int, int]]] = {}
    for end in reversed(list(_HIDDEN_END.finditer(text, begin.end()))):
        ends.setdefault(_hidden_kind(end), []).append(end.span())
    kept, place = [], 0
    while begin is not None:
        later = ends.get(_hidden_kind(begin), [])
        while later and later[-1][0] < begin.end():
            later.pop()
        after = begin.end()
        if later:
            kept.append(text[place : begin.start()])
            place = after = later[-1][1]
        begin = _HIDDEN_BEGIN.search(text, after)
    return "".join(kept) + text[place:]


def _hidden_kind(mark: re.Match[str]) -> str:
    return (mark[1] or "").lower()


def unescape(text: str) -> str:
    """Replace HTML entities by their characters. An & that begins no entity stays as it is.

    >>> unescape("5&#34; cable &amp; plug from AT&T; I&#8217;d &notice; it")
    '5" cable & plug from AT&T; I’d &notice; it'
    """
    return _ENTITY.sub(_character, text)


def _character(entity: re.Match[str]) -> str:
    # Browsers also accept beginnings of names: they would read &notice; as ¬ice;.
    named = entity[0][1:]
    return html.unescape(entity[0]) if named[0] == "#" or named in html5 else entity[0]
