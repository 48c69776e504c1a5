"""HTML from the templates beside this file.

Everything a template prints is escaped, and its control characters are made visible; only what the template files
themselves say is markup. Nothing is ever declared safe: style sheets are included as templates, and pictures are drawn
in them.
"""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from carp.render.capsule_telling import doubt_words
from carp.render.wording import (
    MARK_TITLE,
    SIDE_TITLE,
    SIGN,
    SPEAKS,
    TURNED_ROUND,
    further_phrases,
    neutral,
    number,
    phrases_of,
    side_name,
    source_parts,
)

if TYPE_CHECKING:
    from jinja2 import Environment


def filled(template: str, **values: Any) -> str:
    """A template with these values in it."""
    return environment().get_template(template).render(values)


@cache
def style_sheet(name: str = "explanation.css") -> str:
    return filled(name)


@cache
def style_hash(name: str) -> str:
    """The hash by which a Content-Security-Policy allows a style sheet."""
    return base64.b64encode(hashlib.sha256(style_sheet(name).encode()).digest()).decode()


@dataclass(frozen=True)
class SignedBar:
    """Where a bar stands in a box with a zero line in its middle, in per cent of the width."""

    start: str
    width: str


def signed_bar(share: float) -> SignedBar:
    """To the right of the zero line for a share above 0, to the left for one below; a whole share fills its half.

    >>> signed_bar(0.5), signed_bar(-1)
    (SignedBar(start='50.0%', width='25.0%'), SignedBar(start='0.0%', width='50.0%'))
    """
    size = 50 * min(abs(share), 1.0) if math.isfinite(share) else 0.0
    return SignedBar(f"{50 - size if share < 0 else 50:.1f}%", f"{size:.1f}%")


def bar_width(share: float) -> str:
    """The width of a share between 0 and 1; what can be below zero takes a `signed_bar`.

    >>> bar_width(0.25), bar_width(7), bar_width(-0.25), bar_width(float("nan"))
    ('25.0%', '100.0%', '0.0%', '0.0%')
    """
    return f"{100 * max(0.0, min(share, 1.0)) if math.isfinite(share) else 0.0:.1f}%"


@cache
def environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> str:
        """What a template prints: its own markup as it is, anything else as text without control characters."""
        return value if isinstance(value, Markup) else neutral(str(value))

    made = Environment(
        loader=PackageLoader("carp.render"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["number"] = number
    made.globals.update(
        MARK_TITLE=MARK_TITLE,
        SIDE_TITLE=SIDE_TITLE,
        SIGN=SIGN,
        SPEAKS=SPEAKS,
        TURNED_ROUND=TURNED_ROUND,
        bar_width=bar_width,
        doubt_words=doubt_words,
        further_phrases=further_phrases,
        phrases_of=phrases_of,
        side_name=side_name,
        signed_bar=signed_bar,
        source_parts=source_parts,
        style_hash=style_hash,
    )
    return made
