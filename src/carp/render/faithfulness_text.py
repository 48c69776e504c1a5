"""How true explanations are, as text: every figure beside chance, and what it means in words."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from carp.explain.explanation import LITTLE
from carp.explain.faithfulness.against_chance import CLEAR, ChanceComparison
from carp.explain.faithfulness.aspect_impressions import Impressions
from carp.explain.faithfulness.aspect_scores import READINGS, AspectCorrelation
from carp.explain.faithfulness.capsule_agreement import Agreement
from carp.explain.faithfulness.measures import Faithfulness
from carp.explain.faithfulness.resemblance import Resemblance
from carp.explain.faithfulness.signs import KnownSigns, Signs, StarsApart
from carp.explain.faithfulness.stability import Stability
from carp.explain.faithfulness.told_amounts import Sums, TextsMove
from carp.explain.faithfulness.word_removal import Moves, Removal
from carp.render.console_tables import table

COLUMNS = ["", "named", "random", "difference, 95 %", "p (t)", "p (Wilcoxon)"]
WIDTH = 110
LOW = {"score": "as they stand", "beside rating": "beside the overall rating"}


def faithfulness_text(found: Faithfulness) -> str:
    """All measures, each with what it means in words."""
    parts = [_heading(found), *_texts_move(found.texts_move), *_signs(found.signs)]
    parts += _removal("Sentences shown", found.sentences) + _removal("Phrases marked in them", found.phrases)
    parts += _agreement(found.agreement) + _resemblance(found.resemblance)
    parts += _stability(found.stability) + _aspects(found.aspects)
    parts += _impressions(found.impressions) + _sums(found.sums)
    if found.planted is not None:
        parts.append(f"Planted causes\n{found.planted}")
    parts += [f"Note: {note}." for note in found.notes]
    return "\n\n".join(_wrapped(part) for part in parts)


def _wrapped(part: str) -> str:
    """Sentences wrapped at the width of a page, rows of tables left whole."""
    return "\n".join(line if "   " in line else textwrap.fill(line, WIDTH) for line in part.splitlines())


def _heading(found: Faithfulness) -> str:
    return (
        f"Are the explanations of {found.model} (seed {found.seed}) true? {found.pairs:,} held-out pairs, "
        f"{found.split}.\n"
        f"“Named” are the sentences of the first {found.units} logic units of the stronger sentiment; without "
        f"capsules, those of the {found.units} sides that the model listens to most.\n"
        f"On average the prediction is {found.moved:.3f} stars away from that of the biases alone: that is how much "
        "there is to explain."
    )


# ---- one figure and its reading


def _row(name: str, found: ChanceComparison | None, digits: int = 4) -> list[list[str]]:
    if found is None:
        return []
    low, high = found.interval
    numbers = [f"{found.named:.{digits}f}", f"{found.chance:.{digits}f}", f"{low:+.{digits}f} to {high:+.{digits}f}"]
    return [[name, *numbers, _p(found.p_t), _p(found.p_wilcoxon)]]


def _p(value: float) -> str:
    """
    >>> _p(0.2), _p(3e-7)
    ('0.200', '< 0.001')
    """
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _verdict(found: ChanceComparison | None, above: str, below: str, undecided: str) -> str:
    if found is None:
        return "Not measured."
    return above if found.above else below if found.below else undecided


# ---- the measures


def _removal(title: str, found: Removal) -> list[str]:
    rows = _moves("random words", found.beside_words) + _moves("random sentences", found.beside_sentences)
    rows += _row("blanked out, |move|; random words", found.blanked_beside_words)
    rows += _row("blanked out, |move|; random sentences", found.blanked_beside_sentences)
    about = (
        f"{title}: {found.words:.0f} words a pair, {found.share:.0%} of both documents. Moves of the rating in stars; "
        "words are deleted unless a row says otherwise."
    )
    if found.unnamed:
        about += f" Pairs for which nothing is named: {found.unnamed:,}."
    return [f"{about}\n{table(COLUMNS, rows)}", _moves_reading(found.beside_words)] if rows else [about]


def _moves_reading(found: Moves) -> str:
    size = _verdict(
        found.comprehensiveness,
        "Without the named words the rating moves more than without random ones: it rests on them.",
        "Without the named words the rating moves less than without random ones: it does not rest on them.",
        f"The size of the move cannot be told from that of random words (p is not below {CLEAR} in both tests).",
    )
    direction = _verdict(
        found.signed_comprehensiveness,
        "It moves the way the explanation says.",
        "It moves the opposite way to what the explanation says.",
        "Its direction cannot be told from chance.",
    )
    alone = _verdict(
        found.sufficiency,
        "Alone, the named words change the rating more than random ones do: they do not carry it.",
        "Alone, the named words carry the rating better than random ones do.",
        "Alone, the named words carry the rating no better than random ones.",
    )
    carried = found.sufficiency is not None and found.sufficiency.below
    further = found.signed_sufficiency
    if not carried and further is not None and further.below and further.named < 0:
        alone = (
            "Alone, the named words push the rating further in their direction than the whole documents do: enough for "
            "the direction, not for the size."
        )
    if found.signed_comprehensiveness is None:
        direction = "The model names no direction."
    return f"{size}\n{direction}\n{alone}"


def _moves(beside: str, found: Moves) -> list[list[str]]:
    return (
        _row(f"without them, |move|; {beside}", found.comprehensiveness)
        + _row(f"without them, with sign; {beside}", found.signed_comprehensiveness)
        + _row(f"with them alone, |move|; {beside}", found.sufficiency)
        + _row(f"with them alone, with sign; {beside}", found.signed_sufficiency)
    )


def _agreement(found: Agreement | None) -> list[str]:
    if found is None:
        return []
    low, high = found.interval
    below, above = found.over_biases
    if below > 0:
        reading = "The capsules tell liked from disliked pairs better than the biases, which read no word."
    elif above < 0:
        reading = "The capsules tell liked from disliked pairs worse than the biases, which read no word."
    else:
        reading = "The capsules tell liked from disliked pairs no better and no worse than the biases."
    if low <= 0.5:
        reading = f"The capsules do not tell liked from disliked pairs better than chance. {reading}"
    rows = [
        ["two capsules", f"{found.auc:.3f}", f"{low:.3f} to {high:.3f}"],
        ["predicted rating", f"{found.rating_auc:.3f}", ""],
        ["biases alone", f"{found.bias_auc:.3f}", ""],
    ]
    title = f"Agreement with the sign of the held-out rating ({found.liked:,} of {found.pairs:,} liked); 0.5 is chance."
    prevailing = (
        f"The prevailing sentiment is right for {found.prevailing:.1%} of pairs; always naming the more common one "
        f"would be right for {found.always:.1%}."
    )
    return [f"{title}\n{table(['AUC of', '', '95 %'], rows)}", f"{reading}\n{prevailing}"]


def _resemblance(found: Resemblance) -> list[str]:
    rows = _row("any sentence of the same documents", found.any) + _row("sentences of like length", found.like_length)
    if not rows:
        return []
    reading = _verdict(
        found.like_length,
        "Named sentences resemble what was then written more than others of like length do.",
        "Named sentences resemble what was then written less than others of like length do.",
        "Named sentences resemble what was then written no more than others of like length do.",
    )
    title = f"Resemblance to the held-out review: TF-IDF cosine, {found.sentences:.1f} named sentences a pair."
    return [f"{title}\n{table(COLUMNS, rows)}", reading]


def _stability(found: Stability | None) -> list[str]:
    if found is None:
        return []
    rows = _row("overlap of named sentences (Jaccard)", found.overlap)
    shared = "an unknown share" if found.overlap is None else f"{found.overlap.named:.0%}"
    reading = _verdict(
        found.overlap,
        f"Models of other seeds share {shared} of the sentences they name, which is more than chance would.",
        "Models of other seeds name the same sentences less often than chance.",
        "Models of other seeds name the same sentences no more often than chance.",
    )
    told = []
    if found.reasons is not None and found.reasons_interval is not None:
        low, high = found.reasons_interval
        told.append(f"what a pair's sentences do: {found.reasons:+.3f} ({low:+.3f} to {high:+.3f})")
    if found.texts is not None:
        told.append(f"what the texts add, over pairs: {found.texts:+.3f}")
    ranks = f"\nRank correlation between models (0 is chance): {'; '.join(told)}." if told else ""
    return [f"Stability: {found.models} models of different seeds.\n{table(COLUMNS, rows)}", reading + ranks]


def _texts_move(found: TextsMove | None) -> list[str]:
    if found is None:
        return []
    quartiles = ", ".join(f"{share:.1%}" for share in found.quartiles)
    return [
        f"How much there is to explain, {found.counted}: the texts move half of {found.pairs:,} ratings by less than "
        f"{found.quartiles[1]:.1%} of the scale (quartiles {quartiles}; at most {found.largest:.1%}).\n"
        f"For {found.little:.0%} of the pairs they move it by less than {LITTLE:.0%}: there is next to nothing to "
        "explain."
    ]


def _signs(found: Signs | None) -> list[str]:
    if found is None:
        return ["Signs: not applicable. The model does not say what speaks for a thing and what against it."]
    title = (
        f"Signs: {found.for_it:,} sentences about things are shown as for them and {found.against_it:,} as against "
        f"them, for {found.pairs:,} pairs; {found.turned:,} more are told as turned round by the person's taste."
    )
    told = [*_known_signs(found.known), *_stars_apart("They come from", found.stars)]
    told += _stars_apart("Chosen without a look at those stars, they come from", found.stars_by_words)
    return ["\n".join([title, *told])]


def _known_signs(found: KnownSigns | None) -> list[str]:
    if found is None:
        return []
    praise, complaint = ("none" if share is None else f"{share:.0%}" for share in (found.praise, found.complaint))
    return [
        f"Of those for a thing {praise} praise, and of those against one {complaint} complain; {found.silent:.0%} "
        "of all say neither."
    ]


def _stars_apart(how: str, found: StarsApart | None) -> list[str]:
    if found is None:
        return []
    reach = "" if found.interval is None else f", 95 % {found.interval[0]:+.2f} to {found.interval[1]:+.2f}"
    return [
        f"{how} reviews with {found.for_it:.2f} and {found.against_it:.2f} of 5 stars: a difference of "
        f"{found.difference:+.2f}{reach}."
    ]


def _sums(found: Sums | None) -> list[str]:
    if found is None:
        return ["Sums: not applicable. The rating is not told as a sum."]
    return [
        f"Sums: the parts of a rating, {found.parts:.0f} on average, add up to it. The largest gap of {found.pairs:,} "
        f"ratings is {found.largest_gap:.1g}.\n"
        f"What the end of the scale takes off or adds is one of the parts: at most {found.largest_rest:.2g}."
    ]


def _impressions(found: Impressions | None) -> list[str]:
    if found is None:
        return []

    def cell(value: float, interval: tuple[float, float]) -> str:
        return f"{value:+.2f} [{interval[0]:+.2f} {interval[1]:+.2f}]"

    rows = [
        [one.aspect, f"{one.things:,}", *(cell(one.correlation[name], one.interval[name]) for name in found.mean)]
        for one in found.aspects
    ]  # fmt: skip
    rows.append(["mean", "", *(cell(found.mean[name], found.mean_interval[name]) for name in found.mean)])
    title = (
        "Aspects beside the whole impression: what is written about an aspect, less what is written in all, against "
        f"its scores less the overall ratings{' (both standardised)' if found.standardised else ''}: rank correlation "
        f"over things with at least {found.least} clauses about it and {found.least} scores [95 %]."
    )
    low, high = found.over["share"]
    names = "; ".join(f"{one.aspect} is {' + '.join(one.found) or 'none'}" for one in found.aspects)
    return [
        f"{title}\n{table(['aspect', 'things', *found.mean], rows)}",
        "found: aspects found without labels. matching: clauses with a word of the aspect. share: how many there are, "
        f"no sentiment.\nThe mean of the found aspects minus that of share: {low:+.2f} to {high:+.2f} (95 %).\n"
        f"{names}.",
    ]


def _aspects(found: Sequence[AspectCorrelation]) -> list[str]:
    parts = []
    for of in ("pairs", "items"):
        for low in LOW:
            here = [one for one in found if one.of == of and one.low == low]
            if here:
                title = f"Aspect scores no model has seen, {LOW[low]}: {of} scored low, rank correlation [95 %]."
                rows = [
                    [one.aspect, f"{one.number:,}", *(_correlation(one, reading) for reading in READINGS)]
                    for one in here
                ]
                parts += [f"{title}\n{table(['aspect', of, *READINGS], rows)}", _aspects_reading(here)]
    if parts:
        parts.append(
            "units: negative minus positive coupling of logic units about the aspect.\n"
            "capsules: the same, each times its capsule's length. lengths: those lengths alone, which know no aspect.\n"
            "pull: what the aspect's words do to the balance, downwards.\n"
            "words: their share of the document, no model. stars: how low the reviews with them were rated, no model.\n"
            "A correlation above 0 is right."
        )
    return parts


def _correlation(found: AspectCorrelation, reading: str) -> str:
    value, interval = found.correlation[reading], found.interval[reading]
    if value is None:
        return "unknown"
    return f"{value:+.2f}" if interval is None else f"{value:+.2f} [{interval[0]:+.2f} {interval[1]:+.2f}]"


def _aspects_reading(here: Sequence[AspectCorrelation]) -> str:
    def sides(intervals: Iterable[tuple[float, float] | None]) -> tuple[int, int]:
        known = [interval for interval in intervals if interval is not None]
        return sum(low > 0 for low, _ in known), sum(high < 0 for _, high in known)

    told = []
    for reading in READINGS:
        right, wrong = sides(one.interval[reading] for one in here)
        told.append(f"{reading} clearly right for {right}, clearly wrong for {wrong}")
    more, less = sides(one.over_words["capsules"] for one in here)
    over_words = f"capsules are clearly above words for {more}, below for {less}"
    more, less = sides(one.over_lengths["capsules"] for one in here)
    over_lengths = f"above lengths, by knowing the aspect, for {more}, below for {less}"
    return f"Of {len(here)} aspects: {'; '.join(told)}.\nOf them, {over_words}; {over_lengths}."
