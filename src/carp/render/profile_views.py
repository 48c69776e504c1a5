"""Profiles of people and things: as terminal text, as one self-contained page, as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from carp.explain.explainer import AspectOpinion
from carp.explain.explanation import Sentiment, Side, WeightsAre
from carp.explain.profiles import PersonProfile, ThingProfile
from carp.render.explanation_json import explanation_json
from carp.render.html_templates import filled
from carp.render.terminal_lines import (
    STYLE,
    TextLine,
    bar,
    heading_lines,
    note_lines,
    one_line,
    side_lines,
    text_width,
    written,
)
from carp.render.wording import SIGN, number, scale_words, thing_name

Profile = PersonProfile | ThingProfile
TITLES: dict[Sentiment, str] = {"positive": "What speaks for it", "negative": "What speaks against it"}
NOTHING: dict[Sentiment, str] = {
    "positive": "Nothing is known that speaks for it.",
    "negative": "Nothing is known that speaks against it.",
}
COUNTED = "A rater is counted if the aspect is in one of the two logic units that the capsule listens to most."
COUNTED_BY_SENTENCES = "A rater is counted if one of their sentences clearly praises the aspect, or complains of it."
VERB: dict[Sentiment, str] = {"positive": "praise", "negative": "complain of"}
BAR_CELLS = 20


def profile_text(profile: Profile, *, width: int | None = None, colour: bool = False) -> str:
    """The profile for a terminal. Colour only repeats what the words say."""
    lines = [*_head_lines(profile), *_rating_lines(profile)]
    if isinstance(profile, PersonProfile):
        lines += _person_lines(profile)
    else:
        lines += [*_thing_lines(profile, "positive"), *_thing_lines(profile, "negative")]
    return written([*lines, *note_lines(profile.notes)], text_width(width), colour)


def _head_lines(profile: Profile) -> list[TextLine]:
    kind, name = (
        ("person", profile.user)
        if isinstance(profile, PersonProfile)
        else ("thing", thing_name(profile.item, profile.title))
    )
    facts = [
        (kind, name, "bold"),
        ("reviews", f"{profile.reviews:,} in training", ""),
        ("average", f"{number(profile.mean, 2)} on a scale {scale_words(profile.rating_range)}", ""),
    ]
    title = "Who this is" if kind == "person" else "What this is"
    return [
        *heading_lines(title)[1:],
        *(TextLine([(one_line(words), style)], label=(f"{label:<14}", "dim")) for label, words, style in facts),
    ]


def _rating_lines(profile: Profile) -> list[TextLine]:
    if not profile.ratings:
        return []
    most = max(max(profile.ratings.values()), 1)
    title = "Ratings given" if isinstance(profile, PersonProfile) else "Ratings received"
    rows = [
        TextLine([(bar(many / most, BAR_CELLS), ""), (f"  {many:,}", "")], label=(one_line(f"{rating:>6}  "), "dim"))
        for rating, many in profile.ratings.items()
    ]
    return [*heading_lines(title), *rows]


def _person_lines(profile: PersonProfile) -> list[TextLine]:
    lines = heading_lines("What the person cares about")
    for side in profile.viewpoints:
        lines += [
            TextLine(),
            TextLine([(one_line(side.name), "bold"), (f"  {_weight(side, profile.weights_are)}", "dim")]),
        ]
        lines += [*_phrase_lines(side), *side_lines(side, "No sentence stands for this viewpoint.")]
    return lines if profile.viewpoints else [*lines, TextLine([("The model says nothing about it.", "")])]


def _weight(side: Side, weights_are: WeightsAre) -> str:
    if weights_are == "sentences" and side.weight is not None:
        return f"{100 * side.weight:.0f} % of their sentences"
    return f"weight {number(side.weight, 2)}"


def _phrases(side: Side) -> tuple[str, ...]:
    """Its phrases, where they are not its name already."""
    return () if ", ".join(side.phrases) == side.name else side.phrases


def _phrase_lines(side: Side) -> list[TextLine]:
    if not (words := _phrases(side)) and side.phrases:
        return []
    return [TextLine([(one_line(" · ".join(words) or "no phrase"), "")], indent=3, label=("phrases  ", "dim"))]


def _thing_lines(profile: ThingProfile, sentiment: Sentiment) -> list[TextLine]:
    regards = profile.liked if sentiment == "positive" else profile.disliked
    lines = heading_lines(TITLES[sentiment])
    if not regards:
        return [*lines, TextLine([(NOTHING[sentiment], "")])]
    lines.append(TextLine([(_counted(profile), "dim")]))
    for regard in regards:
        lines += [
            TextLine(),
            TextLine(
                [(one_line(regard.aspect.name), "bold"), (f"  {_weighed(regard, profile, sentiment)}", "")],
                label=(f"({SIGN[sentiment]}) ", STYLE[sentiment]),
            ),
            *side_lines(regard.aspect, "No sentence stands for this aspect."),
            *(
                TextLine(
                    [(one_line(" · ".join(met.phrases) or "no phrase"), "")],
                    indent=6,
                    label=(f"meets viewpoint {met.index}: ", "dim"),
                )
                for met in regard.viewpoints
            ),
        ]
    return lines


def _by_sentences(regard: AspectOpinion) -> bool:
    """Whether it was read off the sentences themselves, so that no viewpoint had to meet it."""
    return not regard.viewpoints


def _counted(profile: ThingProfile) -> str:
    return COUNTED_BY_SENTENCES if any(map(_by_sentences, (*profile.liked, *profile.disliked))) else COUNTED


def _weighed(regard: AspectOpinion, profile: ThingProfile, sentiment: Sentiment) -> str:
    if _by_sentences(regard):
        return f"{regard.raters:,} of {profile.raters:,} raters {VERB[sentiment]} it"
    more, less = ("liking", "disliking") if sentiment == "positive" else ("disliking", "liking")
    return (
        f"counts for {regard.raters:,} of {profile.raters:,} raters; "
        f"{more} outweighs {less} for {regard.prevailing:,} of them"
    )


def profile_page(profile: Profile) -> str:
    """One complete HTML file that opens anywhere, with no network and no script."""
    values = _values(profile)
    name = profile.user if isinstance(profile, PersonProfile) else thing_name(profile.item, profile.title)
    return filled("page.html", title=f"The profile of {name}", level=1, **values)


def profile_fragment(profile: Profile) -> str:
    """The same for a notebook."""
    return filled("fragment.html", level=2, **_values(profile))


def profile_json(profile: Profile) -> str:
    return explanation_json(cast(Any, profile))


@dataclass(frozen=True)
class OpinionGroup:
    """The aspects of a thing that speak for it, or against it, each with how many it counts for."""

    sentiment: Sentiment
    title: str
    nothing: str
    regards: list[tuple[AspectOpinion, str]]


def _values(profile: Profile) -> dict[str, Any]:
    of_kind = _person_values(profile) if isinstance(profile, PersonProfile) else _thing_values(profile)
    most = max([*profile.ratings.values(), 1])
    return {
        "content": "profile.html",
        "profile": profile,
        "reviews": f"{profile.reviews:,}",
        "scale_words": scale_words(profile.rating_range),
        "ratings": [(rating, f"{many:,}", many / most) for rating, many in profile.ratings.items()],
        **of_kind,
    }


def _person_values(profile: PersonProfile) -> dict[str, Any]:
    return {
        "about": "person_profile.html",
        "name": profile.user,
        "id": profile.user,
        "eyebrow": "A person and their reviews",
        "weight_of": lambda side: _weight(side, profile.weights_are),
        "phrases_of_side": _phrases,
    }


def _thing_values(profile: ThingProfile) -> dict[str, Any]:
    groups = [
        OpinionGroup(
            sentiment, title, NOTHING[sentiment], [(one, _weighed(one, profile, sentiment)) for one in regards]
        )
        for (sentiment, title), regards in zip(TITLES.items(), (profile.liked, profile.disliked), strict=True)
    ]
    return {
        "about": "thing_profile.html",
        "name": profile.title or profile.item,
        "id": profile.item,
        "eyebrow": "A thing and its reviews",
        "meaning": _counted(profile),
        "groups": groups,
    }
