"""An explanation as one self-contained page, or as the fragment a notebook shows.

Nothing is fetched and nothing runs: widths are SVG attributes and shades are classes, so that the page's policy
allows its one style sheet, by hash, and nothing else. Whatever comes from data passes through `_safe`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources

from carp.explain import Capsule, Explanation, LogicUnit, Mark, Sentiment, Side
from carp.render.words import (
    SIDE_TITLE,
    SIGN,
    SPEAKS,
    Fact,
    balance,
    facts,
    further_phrases,
    listed_cells,
    neutral,
    number,
    person,
    phrases_of,
    scale_words,
    source_parts,
    weighed,
)

MARK_TITLE = {
    "own": "a phrase of this viewpoint or aspect alone",
    "shared": "a phrase of several viewpoints or aspects",
    "positive": "matches a reason that speaks for it",
    "negative": "matches a reason that speaks against it",
}
FACT_SHAPE = {
    "predicted": '<circle class="predicted-sign" cx="{x}" cy="{y}" r="8"/>',
    "actual": '<circle class="actual-sign" cx="{x}" cy="{y}" r="6"/>',
    "biases": '<rect class="biases-sign" x="{x}" y="{y}" width="10" height="10" transform="translate(-5 -5)"/>',
    "average": '<rect class="average-sign" x="{x}" y="{y}" width="3" height="18" transform="translate(-1.5 -9)"/>',
}
HEAT_LEVELS = 10
COLUMNS_BESIDE = 6  # wider heat maps stand one below the other


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
        f"<title>{_safe(title)}</title>\n<style>{style_sheet()}</style>\n</head>\n"
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


def _safe(text: str) -> str:
    return html.escape(neutral(text), quote=True)


def _heading(level: int, words: str, kind: str = "heading") -> str:
    return f'<h{level} class="{kind}">{words}</h{level}>'


def _content(explanation: Explanation, level: int) -> str:
    parts = (
        _header(explanation, level),
        _capsules(explanation, level + 1),
        _reasons(explanation, level + 1),
        _couplings(explanation, level + 1),
        _target(explanation, level + 1),
    )
    return "\n".join(parts)


def _header(explanation: Explanation, level: int) -> str:
    known = facts(explanation)
    who, what = f"<bdi>{_safe(person(explanation))}</bdi>", f"<bdi>{_safe(explanation.item)}</bdi>"
    return (
        '<header><p class="eyebrow">A predicted rating and its reasons</p>\n'
        f"{_heading(level, f'How would {who} rate {what}?', 'title')}\n"
        f'<p class="verdict"><span class="figure">{number(explanation.rating, 2)}</span> '
        f'<span class="soft">{_icon("predicted")} predicted, on a scale {scale_words(explanation)}</span></p>\n'
        f"{_scale(explanation, known)}\n"
        f'<dl class="facts">{"".join(_fact(fact) for fact in known[1:])}</dl>\n'
        f'<p class="balance">{balance(explanation)}</p>\n{_notes(explanation.notes)}</header>'
    )


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    rows = "".join(f'<li dir="auto">{_safe(note)}</li>' for note in notes)
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


def _capsules(explanation: Explanation, level: int) -> str:
    prevailing = explanation.prevailing
    cards = _capsule(level + 1, "positive", explanation.positive, prevailing == "positive")
    cards += _capsule(level + 1, "negative", explanation.negative, prevailing == "negative")
    return (
        f"<section>{_heading(level, 'How the person is likely to feel')}\n"
        f'<p class="soft">{weighed(explanation)}</p>\n<div class="pair">{cards}</div></section>'
    )


def _capsule(level: int, sentiment: Sentiment, capsule: Capsule, longer: bool) -> str:
    note = '<span class="longer">the longer capsule</span>' if longer else ""
    words = f'<span class="sign" aria-hidden="true">{SIGN[sentiment]}</span>{SPEAKS[sentiment].capitalize()}{note}'
    relative = f"{number(capsule.relative_degree)} of the largest"
    return (
        f'<div class="card {sentiment}">{_heading(level, words, "subheading")}\n'
        f"{_gauge('How likely', 'length', capsule.length, number(capsule.length))}\n"
        f"{_gauge('How strong', f'degree {number(capsule.degree)}', capsule.relative_degree, relative)}</div>"
    )


def _gauge(words: str, measure: str, share: float, figure: str) -> str:
    width = 100 * min(abs(share), 1.0) if math.isfinite(share) else 0.0
    return (
        f'<div class="gauge"><span>{words} <span class="soft">({measure})</span></span><b>{figure}</b>'
        f'<svg role="img" aria-label="{words}: {figure}" height="10">'
        '<rect class="rest" width="100%" height="10" rx="5"/>'
        f'<rect class="part {measure.split()[0]}" width="{width:.1f}%" height="10" rx="5"/></svg></div>'
    )


def _reasons(explanation: Explanation, level: int) -> str:
    start = f"<section>{_heading(level, 'Reasons')}\n"
    if not explanation.units:
        return f"{start}<p>No logic unit was listed for this prediction.</p></section>"
    legend = "".join(f"<li>{_mark('phrase', [kind])} {MARK_TITLE[kind]}</li>" for kind in ("own", "shared"))
    units = "\n".join(_unit(place, unit, level + 1) for place, unit in enumerate(explanation.units, 1))
    return (
        f'{start}<p class="soft">Each is a viewpoint of the person that met an aspect of the thing, with the '
        f'sentences that show them best.</p>\n<ul class="legend">{legend}</ul>\n{units}</section>'
    )


def _unit(place: int, unit: LogicUnit, level: int) -> str:
    words = (
        f'<span class="sign" aria-hidden="true">{SIGN[unit.sentiment]}</span>Reason {place} {SPEAKS[unit.sentiment]}'
    )
    figures = [f"for {number(unit.positive)}", f"against {number(unit.negative)}"]
    bold = 0 if unit.sentiment == "positive" else 1
    figures[bold] = f"<b>{figures[bold]}</b>"
    sides = _side("viewpoint", unit.viewpoint, level + 1) + _side("aspect", unit.aspect, level + 1)
    return (
        f'<article class="card reason {unit.sentiment}"><header>{_heading(level, words, "subheading")}'
        f'<p class="coupling">coupling {" · ".join(figures)}</p></header>\n'
        f'<div class="pair">{sides}</div></article>'
    )


def _side(name: str, side: Side, level: int) -> str:
    parts = [_heading(level, f"{SIDE_TITLE[name]} · {name} {side.index}", "side-heading")]
    if not side.sentences:
        parts.append(f'<p class="soft">No sentence stands for this {name}.</p>')
    for sentence in side.sentences:
        words = f"“{_marked(sentence.text, sentence.marks)}”" if sentence.text.strip() else "(an empty sentence)"
        source = "".join(f"<bdi>{_safe(part)}</bdi>" for part in source_parts(sentence))
        parts.append(f'<figure><blockquote dir="auto">{words}</blockquote><figcaption>{source}</figcaption></figure>')
    further = further_phrases(side)
    if further:
        rows = "".join(f"<li><bdi>{_safe(phrase)}</bdi></li>" for phrase in further)
        parts.append(f"<details><summary>Other phrases of this {name}</summary><ul>{rows}</ul></details>")
    return f'<div class="side">{"".join(parts)}</div>'


def _couplings(explanation: Explanation, level: int) -> str:
    both = (*explanation.coupling_positive, *explanation.coupling_negative)
    values = [value for row in both for value in row if math.isfinite(value)]
    span = (min(values), max(values)) if values else (0.0, 0.0)
    tables = _heat("positive", explanation.coupling_positive, span, listed_cells(explanation, "positive"))
    tables += _heat("negative", explanation.coupling_negative, span, listed_cells(explanation, "negative"))
    layout = "pair wide" if max(map(len, both), default=0) > COLUMNS_BESIDE else "pair"
    return (
        f"<section>{_heading(level, 'Every viewpoint with every aspect')}\n"
        '<p class="soft">How much each sentiment listens to a pair: the coupling coefficients, stronger in colour '
        f'where larger. A framed cell is a reason above.</p>\n<div class="{layout}">{tables}</div></section>'
    )


def _heat(
    sentiment: Sentiment,
    rows: Sequence[Sequence[float]],
    span: tuple[float, float],
    listed: dict[tuple[int, int], int],
) -> str:
    caption = "Heard as speaking for it" if sentiment == "positive" else "Heard as speaking against it"
    columns = max(map(len, rows), default=0)
    if not columns:
        return f'<p class="card">{caption}: no coupling coefficients were given.</p>'
    heads = "".join(f'<th scope="col"><span class="unseen">aspect </span>a{place + 1}</th>' for place in range(columns))
    body = "".join(
        f'<tr><th scope="row"><span class="unseen">viewpoint </span>v{viewpoint}</th>'
        + "".join(_cell(value, span, listed.get((viewpoint, aspect))) for aspect, value in enumerate(row, 1))
        + "</tr>"
        for viewpoint, row in enumerate(rows, 1)
    )
    return (
        f'<div class="card sheet" tabindex="0" role="region" aria-label="{caption}">'
        f'<table class="{sentiment}"><caption>{caption}</caption>'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: float, span: tuple[float, float], reason: int | None) -> str:
    low, high = span
    share = (value - low) / (high - low) if high > low and math.isfinite(value) else 0.0
    shade = f"h{min(int(share * HEAT_LEVELS), HEAT_LEVELS - 1)}"
    if reason is None:
        return f'<td class="{shade}">{number(value)}</td>'
    words = f'{number(value)}<span class="unseen"> (reason {reason})</span>'
    return f'<td class="{shade} listed" title="reason {reason}">{words}</td>'


def _target(explanation: Explanation, level: int) -> str:
    start = f"<section>{_heading(level, 'What the person really wrote')}\n"
    target = explanation.target
    if target is None:
        return f"{start}<p>No held-out review: the person's own words on the thing are not known.</p></section>"
    legend = "".join(f"<li>{_mark('part', [kind])} {MARK_TITLE[kind]}</li>" for kind in ("positive", "negative"))
    words = f"“{_marked(target.text, target.marks)}”" if target.text.strip() else "The review has no words."
    return (
        f'{start}<p class="soft">The model has not seen this review. It came with a rating of '
        f'{number(target.rating, 2)}.</p>\n<ul class="legend">{legend}</ul>\n'
        f'<figure class="card wrote"><blockquote dir="auto">{words}</blockquote></figure></section>'
    )


def _marked(text: str, marks: Iterable[Mark]) -> str:
    return "".join(
        _mark(_safe(fragment), sorted(kinds)) if kinds else _safe(fragment)
        for fragment, kinds in phrases_of(text, marks)
    )


def _mark(safe_words: str, kinds: Sequence[str]) -> str:
    """A highlighted stretch; where it carries a sentiment the sign stands behind it, for eyes that see no colour."""
    kinds = [kind for kind in kinds if kind != "own" or "shared" not in kinds]
    title = "; ".join(MARK_TITLE[kind] for kind in kinds)
    signs = "".join(f'<sup class="{kind}">{SIGN[kind]}</sup>' for kind in SIGN if kind in kinds)
    return f'<mark class="{" ".join(kinds)}" title="{title}">{safe_words}</mark>{signs}'
