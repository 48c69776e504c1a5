"""The part of a page that only a model with capsules fills: the two sentiments, the reasons, and who met whom."""

from __future__ import annotations

import math
from collections.abc import Sequence

from carp.explain.explanation import Capsule, Explanation, LogicUnit, Sentiment, Side
from carp.render.html_parts import gauge, heading, mark, safe, side_block
from carp.render.wording import SIDE_TITLE, SIGN, SPEAKS, listed_cells, number, side_name, weighed

PHRASE_KINDS = {
    "own": "a phrase of this viewpoint or aspect alone",
    "shared": "a phrase of several viewpoints or aspects",
}
HEAT_LEVELS = 10
PHRASES_ABOUT = 4
COLUMNS_BESIDE = 6  # wider heat maps stand one below the other


def meeting(explanation: Explanation, level: int) -> str:
    """How the person is likely to feel, the reasons, and every viewpoint with every aspect."""
    parts = [_capsules(explanation, level), _reasons(explanation, level), _couplings(explanation, level)]
    if explanation.viewpoints and explanation.aspects:
        parts.append(_roster(explanation, level))
    return "\n".join(parts)


def _capsules(explanation: Explanation, level: int) -> str:
    prevailing = explanation.prevailing
    assert explanation.positive is not None
    assert explanation.negative is not None
    cards = _capsule(level + 1, "positive", explanation.positive, prevailing == "positive")
    cards += _capsule(level + 1, "negative", explanation.negative, prevailing == "negative")
    return (
        f"<section>{heading(level, 'How the person is likely to feel')}\n"
        f'<p class="soft">{weighed(explanation)}</p>\n<div class="pair">{cards}</div></section>'
    )


def _capsule(level: int, sentiment: Sentiment, capsule: Capsule, longer: bool) -> str:
    note = '<span class="longer">the longer capsule</span>' if longer else ""
    words = f'<span class="sign" aria-hidden="true">{SIGN[sentiment]}</span>{SPEAKS[sentiment].capitalize()}{note}'
    relative = f"{number(capsule.relative_degree)} of the largest"
    degree = f"(degree {number(capsule.degree)})"
    return (
        f'<div class="card {sentiment}">{heading(level, words, "subheading")}\n'
        f"{gauge('How likely', '(length)', capsule.length, number(capsule.length))}\n"
        f"{gauge('How strong', degree, capsule.relative_degree, relative, 'degree')}</div>"
    )


def _reasons(explanation: Explanation, level: int) -> str:
    start = f"<section>{heading(level, 'Reasons')}\n"
    if not explanation.units:
        return f"{start}<p>No logic unit was listed for this prediction.</p></section>"
    legend = "".join(f"<li>{mark('phrase', [kind])} {words}</li>" for kind, words in PHRASE_KINDS.items())
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
        f'<article class="card reason {unit.sentiment}"><header>{heading(level, words, "subheading")}'
        f'<p class="coupling">coupling {" · ".join(figures)}</p></header>\n'
        f'<div class="pair">{sides}</div></article>'
    )


def _side(name: str, side: Side, level: int) -> str:
    return side_block(
        f"{SIDE_TITLE[name]} · {name} {side.index}",
        side,
        level,
        silent=f"No sentence stands for this {name}.",
        others=f"Other phrases of this {name}",
    )


def _couplings(explanation: Explanation, level: int) -> str:
    both = (*explanation.coupling_positive, *explanation.coupling_negative)
    values = [value for row in both for value in row if math.isfinite(value)]
    span = (min(values), max(values)) if values else (0.0, 0.0)
    tables = _heat("positive", explanation.coupling_positive, span, listed_cells(explanation, "positive"))
    tables += _heat("negative", explanation.coupling_negative, span, listed_cells(explanation, "negative"))
    layout = "pair wide" if max(map(len, both), default=0) > COLUMNS_BESIDE else "pair"
    return (
        f"<section>{heading(level, 'Every viewpoint with every aspect')}\n"
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


def _roster(explanation: Explanation, level: int) -> str:
    """What stands behind the letters of the heat maps."""
    cards = _about("Viewpoints of the person", explanation.viewpoints, level + 1)
    cards += _about("Aspects of the thing", explanation.aspects, level + 1)
    return (
        f"<section>{heading(level, 'What each viewpoint and aspect is about')}\n"
        '<p class="soft">By its best phrases, with the share of the longer capsule’s listening that falls on it.</p>\n'
        f'<div class="pair">{cards}</div></section>'
    )


def _about(title: str, sides: Sequence[Side], level: int) -> str:
    rows = "".join(
        gauge(safe(side_name(side)), _phrases(side), side.weight or 0.0, number(side.weight, 2)) for side in sides
    )
    return f'<div class="card heard">{heading(level, title, "subheading")}{rows}</div>'


def _phrases(side: Side) -> str:
    shown = " · ".join(f"<bdi>{safe(phrase)}</bdi>" for phrase in side.phrases[:PHRASES_ABOUT] if phrase.strip())
    return shown or "no phrase stands for it"
