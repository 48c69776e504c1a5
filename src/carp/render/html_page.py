"""An explanation as one self-contained page, or as the fragment a notebook shows.

Nothing is fetched and nothing runs: widths are SVG attributes and shades are classes, so that the page's policy
allows its one style sheet, by hash, and nothing else. Whatever comes from data passes through `safe`.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources

from carp.explain.explanation import Explanation
from carp.render.attention_section import listening
from carp.render.capsule_section import meeting
from carp.render.html_parts import MARK_TITLE, heading, mark, marked, safe
from carp.render.wording import Fact, balance, facts, number, person, scale_words

FACT_SHAPE = {
    "predicted": '<circle class="predicted-sign" cx="{x}" cy="{y}" r="8"/>',
    "actual": '<circle class="actual-sign" cx="{x}" cy="{y}" r="6"/>',
    "biases": '<rect class="biases-sign" x="{x}" y="{y}" width="10" height="10" transform="translate(-5 -5)"/>',
    "average": '<rect class="average-sign" x="{x}" y="{y}" width="3" height="18" transform="translate(-1.5 -9)"/>',
}


def explanation_page(explanation: Explanation, *, title: str | None = None) -> str:
    """One complete HTML file that opens anywhere, with no network and no script."""
    if title is None:
        title = f"Why {person(explanation)} would rate {explanation.item} {number(explanation.rating, 2)}"
    policy = f"default-src 'none'; style-src {style_source()}; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{safe(title)}</title>\n<style>{style_sheet()}</style>\n</head>\n"
        f'<body class="carp-page">\n<main class="carp-explanation">\n{_content(explanation, 1)}\n</main>\n'
        "</body>\n</html>\n"
    )


def explanation_fragment(explanation: Explanation) -> str:
    """The same for a notebook: every rule of its style sheet begins with the fragment's own class."""
    return f'<div class="carp-explanation"><style>{style_sheet()}</style>\n{_content(explanation, 2)}\n</div>'


@cache
def style_sheet() -> str:
    return resources.files("carp.render").joinpath("style.css").read_text(encoding="utf-8")


@cache
def style_source() -> str:
    """The style sheet's hash, as a Content-Security-Policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(style_sheet().encode()).digest()).decode()}'"


def _content(explanation: Explanation, level: int) -> str:
    parts = (
        _header(explanation, level),
        listening(explanation, level + 1) if explanation.prevailing is None else meeting(explanation, level + 1),
        _target(explanation, level + 1),
    )
    return "\n".join(parts)


def _header(explanation: Explanation, level: int) -> str:
    known = facts(explanation)
    who, what = f"<bdi>{safe(person(explanation))}</bdi>", f"<bdi>{safe(explanation.item)}</bdi>"
    return (
        '<header><p class="eyebrow">A predicted rating and its reasons</p>\n'
        f"{heading(level, f'How would {who} rate {what}?', 'title')}\n"
        f'<p class="verdict"><span class="figure">{number(explanation.rating, 2)}</span> '
        f'<span class="soft">{_icon("predicted")} predicted, on a scale {scale_words(explanation)}</span></p>\n'
        f"{_scale(explanation, known)}\n"
        f'<dl class="facts">{"".join(_fact(fact) for fact in known[1:])}</dl>\n'
        f'<p class="balance">{safe(balance(explanation))}</p>\n{_notes(explanation.notes)}</header>'
    )


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    rows = "".join(f'<li dir="auto">{safe(note)}</li>' for note in notes)
    return f'<aside class="notes" aria-label="Notes"><strong>Good to know</strong><ul>{rows}</ul></aside>\n'


def _fact(fact: Fact) -> str:
    icon = _icon(fact.kind) if fact.value is not None else ""
    return (
        f"<div><dt>{icon}{fact.label.capitalize()}</dt>"
        f'<dd><strong>{number(fact.value, 2)}</strong> <span class="soft">{fact.remark}</span></dd></div>'
    )


def _icon(kind: str) -> str:
    return f'<svg class="icon" aria-hidden="true" width="16" height="16">{FACT_SHAPE[kind].format(x=8, y=8)}</svg>'


def _scale(explanation: Explanation, known: Iterable[Fact]) -> str:
    low, high = explanation.rating_range

    def place(value: float) -> str:
        share = (value - low) / (high - low) if high > low else 0.5
        return f"{100 * max(0.0, min(share, 1.0)):.2f}%"

    # A scale of very many whole steps would be a smear of ticks.
    steps = range(math.ceil(low), math.floor(high) + 1) if high - low <= 20 else ()
    ends_and_steps = sorted({low, high, *map(float, steps)})
    ticks = "".join(
        f'<line class="tick" x1="{place(step)}" x2="{place(step)}" y1="22" y2="28"/>'
        f'<text x="{place(step)}" y="43">{step:g}</text>'
        for step in ends_and_steps
    )
    # Drawn last, the prediction is never hidden by what it is compared with.
    shapes = "".join(
        FACT_SHAPE[fact.kind].format(x=place(fact.value), y=14)
        for fact in reversed(list(known))
        if fact.value is not None and math.isfinite(fact.value)
    )
    label = f"Rating scale {scale_words(explanation)}; the figures follow."
    rail = '<line class="rail" x1="0" x2="100%" y1="14" y2="14"/>'
    return f'<svg class="scale" role="img" aria-label="{label}" height="46">{rail}{ticks}{shapes}</svg>'


def _target(explanation: Explanation, level: int) -> str:
    start = f"<section>{heading(level, 'What the person really wrote')}\n"
    target = explanation.target
    if target is None:
        return f"{start}<p>No held-out review: the person's own words on the thing are not known.</p></section>"
    kinds = ("matched",) if explanation.prevailing is None else ("positive", "negative")
    legend = "".join(f"<li>{mark('part', [kind])} {MARK_TITLE[kind]}</li>" for kind in kinds)
    words = f"“{marked(target.text, target.marks)}”" if target.text.strip() else "The review has no words."
    return (
        f'{start}<p class="soft">The model has not seen this review. It came with a rating of '
        f'{number(target.rating, 2)}.</p>\n<ul class="legend">{legend}</ul>\n'
        f'<figure class="card wrote"><blockquote dir="auto">{words}</blockquote></figure></section>'
    )
