"""Which characters belong to words, in every script.

A word is a run of letters and digits with the marks on them. Scripts that write no spaces between words, such as Thai,
Chinese and Japanese, are cut by ICU, which has dictionaries for them. An emoji is a word of its own.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

# Han, kana, Thai, Lao, Burmese and Khmer. Their words are found by dictionaries.
UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0edf\u1000-\u109f\u1780-\u17d3\u17d7\u17dc\ua9e0-\ua9ff\uaa60-\uaa7f"
    "\u3005\u3007\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f"
)
# What Unicode calls extended pictographic, without signs such as © and arrows.
_PICTURES = (
    "\u231a\u231b\u23e9-\u23f3\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2714\u2716\u271d\u2721"
    "\u2728\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767\u2795-\u2797\u27b0\u27bf\u2b50\u2b55"
    "\U0001f000-\U0001f0ff\U0001f18e\U0001f191-\U0001f19a\U0001f201-\U0001f265\U0001f300-\U0001f3fa\U0001f400-\U0001faff"
)
_FLAGS, _TONES = "\U0001f1e6-\U0001f1ff", "\ufe0e\ufe0f\U0001f3fb-\U0001f3ff"
_JOINERS = "\u200c\u200d"
_ONE_PICTURE = f"[{_PICTURES}][{_TONES}]*+"
EMOJI = f"(?:[{_FLAGS}]{{2}}|{_ONE_PICTURE}(?:\u200d{_ONE_PICTURE})*+)"
# Bytes of characters that the fast way of cutting does not know: marks, joiners, emoji, and scripts other than Latin,
# Greek, Cyrillic and Armenian. Texts without them are cut alike by both ways.
NEEDS_CARE = re.compile(
    rb"[\xd6-\xe1\xe3-\xf4]|\xcc[\x80-\xbf]|\xcd[\x80-\xaf]|\xd2[\x83-\x89]|\xe2(?:\x80[\x8c\x8d]|[\x83\x8c-\x8f\x98-\x9f\xac-\xbf])"
)
_WIDE_FORMS = re.compile("[\ufb50-\ufdff\ufe70-\ufefe\uff00-\uffef]")  # of letters that have a usual form
_NOT_WRITTEN = re.compile(f"[{_JOINERS}{_TONES}\u0640]")  # joiners, tones of emoji, and the stretching of Arabic words
_IS_EMOJI = re.compile(EMOJI)
_UNSPACED = re.compile(f"[{UNSPACED}]")
SHARE_WITHOUT_SPACES = 0.2


@cache
def _marks() -> str:
    """All marks that stand on or around letters, as ranges for a regular expression."""
    found: list[tuple[int, int]] = []
    for code in (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0)):
        if unicodedata.category(chr(code)).startswith("M") and not 0xFE00 <= code <= 0xFE0F:
            if found and found[-1][1] == code - 1:
                found[-1] = found[-1][0], code
            else:
                found.append((code, code))
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in found)


@cache
def _runs() -> re.Pattern[str]:
    """An emoji, or a run of letters and digits of any script with their marks, and apostrophes inside."""
    run = f"[^\\W_](?:[^\\W_]|[{_marks()}{_JOINERS}])*+"
    return re.compile(f"{EMOJI}|{run}(?:['’]{run})*+")


@cache
def _stretches() -> re.Pattern[str]:
    """A stretch without spaces, or one of other letters."""
    marks = _marks() + _JOINERS
    return re.compile(f"([{UNSPACED}][{UNSPACED}{marks}]*+)|[^{UNSPACED}]++")


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where runs begin and end that may be words, in any script."""
    mixes: bool | None = None
    for run in _runs().finditer(text):
        if not _UNSPACED.search(run[0]):
            yield run.span()
            continue
        stretches = list(_stretches().finditer(text, run.start(), run.end()))
        if len(stretches) > 1:
            mixes = _writes_without_spaces(text) if mixes is None else mixes
            if not mixes:
                yield run.span()
                continue
        for stretch in stretches:
            yield from _segments(stretch[1], stretch.start()) if stretch[1] else [_trimmed(stretch)]


def _writes_without_spaces(text: str) -> bool:
    """Whether a text is to a good part in a script without spaces. If not, such letters inside a word are a damage."""
    letters = sum(map(str.isalpha, text))
    return len(_UNSPACED.findall(text)) >= SHARE_WITHOUT_SPACES * letters


def _trimmed(stretch: re.Match[str]) -> tuple[int, int]:
    """The stretch without apostrophes at its ends."""
    whole = stretch[0]
    return stretch.start() + len(whole) - len(whole.lstrip("'’")), stretch.start() + len(whole.rstrip("'’"))


def _segments(run: str, start: int) -> Iterator[tuple[int, int]]:
    """The words in a run of letters without spaces, by ICU. It counts characters beyond the first plane twice."""
    from icu4py.breakers import WordBreaker

    if max(run) < "\U00010000":
        for begin, end in WordBreaker(run, "root").segments():
            yield start + begin, start + end
        return
    place_of = [place for place, letter in enumerate(run) for _ in range(1 + (letter >= "\U00010000"))] + [len(run)]
    for begin, end in WordBreaker(run, "root").segments():
        yield start + place_of[begin], start + place_of[end]


def is_emoji(surface: str) -> bool:
    return _IS_EMOJI.match(surface) is not None


def normal_form(surface: str) -> str:
    """The one spelling of a word beyond ASCII, in lower case.

    >>> [normal_form(word) for word in ("CAFE\u0301", "ＡＢＣ", "İyi", "👍🏽", "می‌خواهم")]
    ['café', 'abc', 'iyi', '👍', 'میخواهم']
    """
    form: Literal["NFC", "NFKC"] = "NFKC" if _WIDE_FORMS.search(surface) else "NFC"
    word = unicodedata.normalize(form, surface).lower().replace("’", "'").replace("i\u0307", "i")
    return _NOT_WRITTEN.sub("", word)
