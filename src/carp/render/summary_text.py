"""A summary as terminal text."""

from __future__ import annotations

from carp.explain.explainer import SummarySentence
from carp.explain.profiles import Summary
from carp.render.capsule_telling import COUNTS, OPPOSITE, SAYS
from carp.render.wording import SIGN, neutral, thing_name

NOTHING = "No sentence of its reviews matters: the model knows no word of them."


def summary_text(summary: Summary) -> str:
    """The sentences with a sign each, where the model says whether they speak for the thing or against it."""
    title = f"What people say of {thing_name(summary.item, summary.title)} that matters to {summary.user}"
    lines = [_line(sentence) for sentence in summary.sentences] or [NOTHING]
    notes = [f"Note: {note}." for note in summary.notes]
    return neutral("\n".join([title, "", *lines, *notes]))


def _line(sentence: SummarySentence) -> str:
    sign = SIGN[sentence.sentiment] if sentence.sentiment else "·"
    rated = "" if sentence.rating is None else f", rated {sentence.rating:g}"
    return f"({sign}) “{sentence.text}” — {sentence.user}{rated}{_otherwise(sentence)}"


def _otherwise(sentence: SummarySentence) -> str:
    """Where what it says is not what it counts as: by the person's taste, or by the model alone."""
    if sentence.sentiment is None or sentence.tone != OPPOSITE[sentence.sentiment]:
        return ""
    says, counts = SAYS[sentence.tone][0], COUNTS[sentence.sentiment]
    who = "this person's taste" if sentence.turned else "the model"
    return f"; it {says}, but {who} counts it {counts}"
