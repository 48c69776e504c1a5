"""Ratings as people write them: 4.5, 4,5, 5 stars, ★★★★☆, 4/5, 4 out of 5, 80 %."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

_NUMBER = r"([+-]?\d+(?:[.,]\d{1,2})?|[+-]?\.\d+)"
_WRITTEN = re.compile(
    rf"{_NUMBER}\s*(?:(?:/|von|out of|of|sur|de)\s*{_NUMBER}\s*)?"
    r"(?:[-\s]?(?:stars?|sterne?n?|étoiles?|etoiles?|estrellas?|estrelas?|stelle?|points?|punkte?|pts?|[★⭐☆]️?))?",
    re.IGNORECASE,
)
_PERCENT = re.compile(rf"{_NUMBER}\s*(?:%|٪|％|percent|per cent)", re.IGNORECASE)
_STARS = re.compile(r"([★⭐🌟][\ufe0f]?\s?)+([☆✩][\ufe0f]?\s?)*|([☆✩][\ufe0f]?\s?)+")


class WrittenRating(NamedTuple):
    """A rating, and what it is out of if it says so."""

    value: float
    out_of: float | None = None


def read_rating(value: Any) -> WrittenRating | None:
    """The number that a rating stands for; None if it is none.

    >>> [tuple(read_rating(text) or ()) for text in ("4,5", "5 stars", "4/5", "80 %", "★★★☆☆")]
    [(4.5, None), (5.0, None), (4.0, 5.0), (80.0, 100.0), (3.0, 5.0)]
    >>> [read_rating(text) for text in ("1_0", "1,000", "five", "")]
    [None, None, None, None]
    """
    if isinstance(value, bool) or not isinstance(value, str | Real | Decimal):
        return None
    if isinstance(value, str):
        return _read_text(value.strip())
    return _finite(value)


def _finite(value: Any) -> WrittenRating | None:
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return WrittenRating(number) if math.isfinite(number) else None


def _read_text(text: str) -> WrittenRating | None:
    if "_" not in text and (plain := _finite(text)):  # Python reads 1_0 as ten, which is not what a file means
        return plain
    if len(text) > 40:
        return None
    if percent := _PERCENT.fullmatch(text):
        return WrittenRating(_number(percent[1]), 100.0)
    if _STARS.fullmatch(text):
        signs = [sign for sign in text if sign in "★⭐🌟☆✩"]
        whole = len(signs) if any(sign in "☆✩" for sign in signs) else None
        return WrittenRating(float(sum(sign in "★⭐🌟" for sign in signs)), None if whole is None else float(whole))
    written = _WRITTEN.fullmatch(text)
    if not written:
        return None
    return WrittenRating(_number(written[1]), _number(written[2]) if written[2] else None)


def _number(text: str) -> float:
    return float(text.replace(",", "."))
