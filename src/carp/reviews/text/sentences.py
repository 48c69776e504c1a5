"""Where sentences begin and end, in characters of the original text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

LONGEST_SENTENCE = 300
# Besides the Latin marks those of Chinese and Japanese, Arabic and Urdu, Hindi, Burmese, Khmer, Armenian and Amharic.
_MARK = re.compile(r"""[.!?…]+["'”’)\]}»]*|[。！？｡؟۔।॥။។։።]+["'”’)\]}»」』）]*|[\r\n\v\f\x85\u2028\u2029]+""")
_LAST_WORD = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)*$")
_LETTERS_WITH_DOTS = re.compile(r"[^\W\d_](?:\.[^\W\d_])*")
_LONE_LETTER = re.compile(r"[^\W\d_]\b")
_NEVER_LAST = {"e.g", "i.e", "eg", "ie", "vs", "dr", "mr", "mrs", "ms", "st", "cf", "incl", "approx"}
_SELDOM_LAST = {
    "etc",
    "oz",
    "lb",
    "lbs",
    "ft",
    "inc",
    "ltd",
    "co",
    "jr",
    "sr",
    "min",
    "max",
    "a.m",
    "p.m",
    "u.s",
    "u.k",
    *("z.b", "d.h", "u.a", "o.ä", "bzw", "usw", "evtl", "ggf", "inkl", "vgl", "p.ej", "c.à.d", "т.е", "т.д", "т.к"),
}


def _ends_sentence(text: str, mark: re.Match[str]) -> bool:
    """Whether a mark ends a sentence. Reviews are careless about capital letters, so when in doubt, yes."""
    sign, place = mark[0], mark.end()
    if sign[0] not in ".!?…":
        return True
    rest = text[place : place + 40].lstrip()
    if text[place : place + 1] == rest[:1] and rest and not rest[0].isupper():
        return False  # 2.5, example.com
    if sign.startswith(("..", "…")):
        return not rest or not rest[0].islower()
    if sign[0] != "." or not rest:
        return True
    before = _LAST_WORD.search(text, max(0, mark.start() - 12), mark.start())
    word = before[0].lower() if before else ""
    if _LETTERS_WITH_DOTS.fullmatch(word) and _LONE_LETTER.match(text, place):
        return False  # U.S.A
    return word not in _NEVER_LAST and (word not in _SELDOM_LAST or rest[0].isupper())


def sentences(text: str) -> list[tuple[int, int]]:
    """Character spans of the sentences. Everything but white space is in exactly one of them.

    >>> text = "Quite affordable.I paid 9.95, e.g. half. :]"
    >>> [text[start:end] for start, end in sentences(text)]
    ['Quite affordable.', 'I paid 9.95, e.g. half.', ':]']
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for end in chain((mark.end() for mark in _MARK.finditer(text) if _ends_sentence(text, mark)), [len(text)]):
        spans += _short_spans(text, start, end)
        start = end
    return spans


def _short_spans(text: str, start: int, end: int) -> Iterable[tuple[int, int]]:
    """The span without white space around it, in several pieces if it is too long to be shown."""
    end = start + len(text[start:end].rstrip())
    while start < end:
        if text[start].isspace():
            start += 1
            continue
        cut = start + _cut(text[start : start + LONGEST_SENTENCE]) if end - start > LONGEST_SENTENCE else end
        yield start, start + len(text[start:cut].rstrip())
        start = cut


def _cut(window: str) -> int:
    """Where to cut a long sentence: after ; or , or else before a space, if there is one."""
    for sign in ("; ", "；", ", ", "，", "、", "، "):
        place = window.rfind(sign)
        if place >= LONGEST_SENTENCE // 3:  # no tiny pieces
            return place + 1
    return max((place for place, character in enumerate(window) if character.isspace()), default=len(window))
