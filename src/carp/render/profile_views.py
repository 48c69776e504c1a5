"""Profiles of people and things: as terminal text, as one self-contained page, as JSON."""

from __future__ import annotations

import shutil
from typing import Any, cast

from carp.explain.explainer import AspectOpinion
from carp.explain.explanation import Sentiment, Side
from carp.explain.profiles import PersonProfile, ThingProfile
from carp.render.explanation_json import explanation_json
from carp.render.html_page import style_sheet, style_source
from carp.render.html_parts import gauge, heading, safe, side_block
from carp.render.terminal import NARROWEST, STYLE, WIDEST, _flat, _heading, _Line, _quoted, _set, bar
from carp.render.wording import SIGN, number

Profile = PersonProfile | ThingProfile
TITLES: dict[Sentiment, str] = {"positive": "What speaks for it", "negative": "What speaks against it"}
NOTHING: dict[Sentiment, str] = {
    "positive": "Nothing is known that speaks for it.",
    "negative": "Nothing is known that speaks against it.",
}
COUNTED = (
    "Each is an aspect that raters have among the two logic units a capsule of theirs listens to most. "
    "Strength: how much it listens, times how likely that sentiment is."
)
BAR_CELLS = 20


def profile_text(profile: Profile, *, width: int | None = None, colour: bool = False) -> str:
    """The profile for a terminal; without colour it says the same."""
    if width is None:
        width = min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)
    lines = [*_head_lines(profile), *_rating_lines(profile)]
    if isinstance(profile, PersonProfile):
        lines += _person_lines(profile)
    else:
        lines += [*_thing_lines(profile, "positive"), *_thing_lines(profile, "negative")]
    if profile.notes:
        lines += [*_heading("Notes"), *(_Line([(_flat(note), "")], label=("• ", "")) for note in profile.notes)]
    return _set(lines, max(width, NARROWEST), colour)


def _head_lines(profile: Profile) -> list[_Line]:
    kind, name = ("person", profile.user) if isinstance(profile, PersonProfile) else ("thing", profile.item)
    low, high = profile.rating_range
    facts = [
        (kind, name, "bold"),
        ("reviews", f"{profile.reviews:,} in training", ""),
        ("average", f"{number(profile.mean, 2)} on a scale from {low:g} to {high:g}", ""),
    ]
    title = "Who this is" if kind == "person" else "What this is"
    return [
        *_heading(title)[1:],
        *(_Line([(_flat(words), style)], label=(f"{label:<14}", "dim")) for label, words, style in facts),
    ]


def _rating_lines(profile: Profile) -> list[_Line]:
    if not profile.ratings:
        return []
    most = max(max(profile.ratings.values()), 1)
    title = "Ratings given" if isinstance(profile, PersonProfile) else "Ratings received"
    rows = [
        _Line([(bar(many / most, BAR_CELLS), ""), (f"  {many:,}", "")], label=(_flat(f"{rating:>6}  "), "dim"))
        for rating, many in profile.ratings.items()
    ]
    return [*_heading(title), *rows]


def _person_lines(profile: PersonProfile) -> list[_Line]:
    lines = _heading("What the person cares about")
    for side in profile.viewpoints:
        share = f"  heard {number(side.weight, 2)}"
        lines += [_Line(), _Line([(_flat(side.name), "bold"), (share, "dim")])]
        lines += [_phrase_line(side), *_quoted(side, "No sentence stands for this viewpoint.")]
    return lines if profile.viewpoints else [*lines, _Line([("The model says nothing of it.", "")])]


def _phrase_line(side: Side) -> _Line:
    return _Line([(_flat(" · ".join(side.phrases) or "no phrase"), "")], indent=3, label=("phrases  ", "dim"))


def _thing_lines(profile: ThingProfile, sentiment: Sentiment) -> list[_Line]:
    regards = profile.liked if sentiment == "positive" else profile.disliked
    lines = _heading(TITLES[sentiment])
    if not regards:
        return [*lines, _Line([(NOTHING[sentiment], "")])]
    lines.append(_Line([(COUNTED, "dim")]))
    for regard in regards:
        lines += [
            _Line(),
            _Line(
                [(_flat(regard.aspect.name), "bold"), (f"  {_weighed(regard, profile)}", "")],
                label=(f"({SIGN[sentiment]}) ", STYLE[sentiment]),
            ),
            *_quoted(regard.aspect, "No sentence stands for this aspect."),
            *(
                _Line(
                    [(_flat(" · ".join(met.phrases) or "no phrase"), "")],
                    indent=6,
                    label=(f"meets viewpoint {met.index}: ", "dim"),
                )
                for met in regard.viewpoints
            ),
        ]
    return lines


def _weighed(regard: AspectOpinion, profile: ThingProfile) -> str:
    return (
        f"for {regard.raters:,} of {profile.raters:,} raters, strength {number(regard.strength)}; "
        f"the sentiment prevails for {regard.prevailing:,} of them"
    )


def profile_page(profile: Profile) -> str:
    """One complete HTML file that opens anywhere, with no network and no script."""
    name = profile.user if isinstance(profile, PersonProfile) else profile.item
    policy = f"default-src 'none'; style-src {style_source()}; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{safe(f'The profile of {name}')}</title>\n<style>{style_sheet()}</style>\n</head>\n"
        f'<body class="carp-page">\n<main class="carp-explanation">\n{_content(profile, 1)}\n</main>\n'
        "</body>\n</html>\n"
    )


def profile_fragment(profile: Profile) -> str:
    """The same for a notebook."""
    return f'<div class="carp-explanation"><style>{style_sheet()}</style>\n{_content(profile, 2)}\n</div>'


def profile_json(profile: Profile) -> str:
    return explanation_json(cast(Any, profile))


def _content(profile: Profile, level: int) -> str:
    if isinstance(profile, PersonProfile):
        body = _person_section(profile, level + 1)
    else:
        body = "\n".join(_thing_section(profile, sentiment, level + 1) for sentiment in TITLES)
    return f"{_header(profile, level)}\n{_ratings(profile, level + 1)}\n{body}"


def _header(profile: Profile, level: int) -> str:
    name, eyebrow = (
        (profile.user, "A person and their reviews")
        if isinstance(profile, PersonProfile)
        else (profile.item, "A thing and its reviews")
    )
    low, high = profile.rating_range
    rows = "".join(f'<li dir="auto">{safe(note)}</li>' for note in profile.notes)
    notes = '<aside class="notes" aria-label="Notes"><strong>Good to know</strong>' + f"<ul>{rows}</ul></aside>"
    return (
        f'<header><p class="eyebrow">{eyebrow}</p>\n'
        f"{heading(level, f'<bdi>{safe(name)}</bdi>', 'title')}\n"
        f'<p class="verdict"><span class="figure">{number(profile.mean, 2)}</span> <span class="soft">average of '
        f"{profile.reviews:,} training reviews, on a scale from {low:g} to {high:g}</span></p>\n"
        f"{notes if rows else ''}</header>"
    )


def _ratings(profile: Profile, level: int) -> str:
    most = max([*profile.ratings.values(), 1])
    bars = "\n".join(
        gauge(safe(f"rated {rating}"), "", many / most, f"{many:,}") for rating, many in profile.ratings.items()
    )
    return f"<section>{heading(level, 'Ratings')}\n{bars}</section>"


def _person_section(profile: PersonProfile, level: int) -> str:
    start = f"<section>{heading(level, 'What the person cares about')}\n"
    cards = "\n".join(_viewpoint(side, level + 1) for side in profile.viewpoints)
    return f"{start}{cards or '<p>The model says nothing of it.</p>'}</section>"


def _viewpoint(side: Side, level: int) -> str:
    phrases = " · ".join(f"<bdi>{safe(phrase)}</bdi>" for phrase in side.phrases)
    block = side_block("", side, level, silent="No sentence stands for this viewpoint.", others="Other phrases")
    return (
        f'<article class="card">{heading(level, safe(side.name), "subheading")}\n'
        f'<p class="soft">heard {number(side.weight, 2)} · {phrases}</p>\n{block}</article>'
    )


def _thing_section(profile: ThingProfile, sentiment: Sentiment, level: int) -> str:
    regards = profile.liked if sentiment == "positive" else profile.disliked
    start = f"<section>{heading(level, TITLES[sentiment])}\n"
    if not regards:
        return f"{start}<p>{NOTHING[sentiment]}</p></section>"
    cards = "\n".join(_regard(regard, profile, sentiment, level + 1) for regard in regards)
    return f'{start}<p class="soft">{COUNTED}</p>\n{cards}</section>'


def _regard(regard: AspectOpinion, profile: ThingProfile, sentiment: Sentiment, level: int) -> str:
    words = f'<span class="sign" aria-hidden="true">{SIGN[sentiment]}</span>{safe(regard.aspect.name)}'
    met = "".join(
        f"<li>viewpoint {one.index}: {' · '.join(f'<bdi>{safe(phrase)}</bdi>' for phrase in one.phrases)}</li>"
        for one in regard.viewpoints
    )
    block = side_block("", regard.aspect, level, silent="No sentence stands for this aspect.", others="Other phrases")
    return (
        f'<article class="card reason {sentiment}">{heading(level, words, "subheading")}\n'
        f'<p class="soft">{_weighed(regard, profile)}</p>\n{block}\n<p>It meets</p><ul>{met}</ul></article>'
    )
