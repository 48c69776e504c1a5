"""What a sum of parts says, in words for people: which aspects speak for a thing and which against it, and why.

The terminal, the page and the explorer all take their words from here, so that they say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from carp.explain.explanation import AspectFinding, EarlierCase, Explanation, Meetings
from carp.render.amounts_shown import SumRow, digits_of, largest_meetings, shown_amounts, signed, sum_rows
from carp.render.capsule_telling import UnitTold, units_told
from carp.render.wording import balance, number, thing_name

MUCH_ALIKE = 0.5  # likeness of two things of which people write "much the same"
COMPLAINT = 0.1  # of the rating range below the thing's average: who gave so little complains
LONGEST_QUOTE = 160  # characters of a sentence in a list
COUNTED_MARKS = {"own": "words that count most here"}
FOUND_TITLE = "What speaks for it and what against it"
SUM_TITLE = "How the rating comes about"
CASES_TITLE = "Rated before"
MEETINGS_TITLE = "Where the two meet"
MEETINGS_MEANING = (
    "Rows: what this person writes about. Columns: what people write about this thing. "
    "Each cell is what the two add to the rating or take from it; a dot is next to nothing."
)
# The first line tells of the first finding of its kind, the second of the next, and the last of all others.
LINES: dict[str, tuple[str, ...]] = {
    "praise": ("People praise {}.", "People praise {} as well.", "There is praise for {}, too."),
    "complaint": (
        "Complaints about {} count against it.",
        "People also complain about {}.",
        "There are complaints about {}, too.",
    ),
    "for": ("What people write about {} speaks for it.", "So does what they write about {}."),
    "against": ("What people write about {} counts against it.", "So does what they write about {}."),
    "turned against": ("Others praise {}; for this person that speaks against it.",),
    "turned for": ("Others complain about {}; for this person that speaks for it.",),
}
CLAUSES = {
    "praise": "people praise {}",
    "for": "what people write about {} speaks for it",
    "turned for": "others complain about {}, but for this person that speaks for it",
    "complaint": "complaints about {} count against it",
    "against": "what people write about {} counts against it",
    "turned against": "others praise {}, but for this person that speaks against it",
}

AGAINST = ("complaint", "against", "turned against")


@dataclass(frozen=True)
class FindingTold:
    """One finding in words, with its amount as the sum shows it."""

    words: str
    amount: float
    shares: str  # of everybody and of this person in the amount
    own: str  # what stands over the person's own sentences; empty where there are none


@dataclass(frozen=True)
class Told:
    """An explanation in words, in the order in which people read it."""

    summary: str  # one or two sentences: the answer to "why?"
    findings: tuple[FindingTold, ...] = ()  # in the order of Explanation.findings; none where little is known
    sum: tuple[SumRow, ...] = ()  # lines that add up to the rating as it is shown
    digits: int = 2  # of the amounts
    cases: tuple[str, ...] = ()
    meetings: Meetings | None = None  # those that move the rating most
    units: tuple[UnitTold, ...] = ()  # in the order of Explanation.units; none where little is known


def worth_telling(explanation: Explanation) -> Explanation:
    """The same without what is next to nothing: where little is known, little is said."""
    if not explanation.little_known:
        return explanation
    return replace(
        explanation,
        findings=(),
        cases=(),
        meetings=None,
        units=(),
        coupling_positive=(),
        coupling_negative=(),
        viewpoints=(),
        aspects=(),
        target=None if explanation.target is None else replace(explanation.target, marks=()),
    )


def told(explanation: Explanation) -> Told:
    """All words of an explanation; for a model that is no sum, the first sentence and its logic units."""
    explanation = worth_telling(explanation)
    digits = digits_of(explanation)
    if not explanation.parts:
        return Told(first_words(explanation), digits=digits, units=units_told(explanation))
    rows = sum_rows(explanation)
    return Told(
        first_words(explanation),
        tuple(_findings_told(explanation, rows)),
        tuple(rows),
        digits,
        tuple(map(case_words, explanation.cases)),
        largest_meetings(explanation),
    )


def first_words(explanation: Explanation) -> str:
    """The answer in a sentence or two, whatever the model."""
    if explanation.little_known:
        return _averages_alone(explanation)
    if explanation.findings:
        return f"{_for_and_against(explanation)} In all, {_in_all(explanation)}."
    if explanation.parts:
        return f"No sentence says clearly why, but {_in_all(explanation)}."
    return balance(explanation)


def reason_line(explanation: Explanation) -> str:
    """Why a thing stands in somebody's list, in one line: what is praised, in somebody's own words, and what counts
    against it; where nothing is praised, how it is rated on average and what the texts do to that."""
    if not explanation.parts:
        return first_words(explanation)
    told = worth_telling(explanation)
    kinds = [(kind_of(one, explanation), one) for one in told.findings]
    praised = next((one for kind, one in kinds if kind == "praise"), None)
    if praised is None:
        return " ".join([_average(explanation), *(_sentence(words) for _, words in _clauses(told))])
    against = [words for kind, words in _clauses(told) if kind in AGAINST]
    texts = [one.text for one in praised.sentences]
    named = next((text for text in texts if names_aspect(text, praised.aspect)), None)
    what, quote = ("it", texts[0]) if named is None else (quoted_aspect(praised), named)
    return " ".join([f"People praise {what}: “{shortened(quote)}”", *map(_sentence, against)])


def names_aspect(text: str, aspect: str) -> bool:
    """Whether a sentence has a word of the aspect's name in it.

    >>> names_aspect("Great little tuner.", "tuner, tune, accurate"), names_aspect("So stock up!", "strings, set")
    (True, False)
    """
    words = {word.strip(".,;:!?()'\"").casefold() for word in text.split()}
    return any(word.casefold() in words for word in aspect.replace(",", " ").split())


def _average(explanation: Explanation) -> str:
    moved = explanation.moved_by_texts or 0.0
    digits = digits_of(explanation)
    rated = "Nobody has rated it" if explanation.item_mean is None else f"Rated {explanation.item_mean:.2f} on average"
    if abs(moved) < 0.5 * 10.0**-digits:
        return f"{rated}. What is written leaves the prediction where the averages have it."
    way = "raises" if moved > 0 else "lowers"
    return f"{rated}. What is written {way} the prediction by {number(abs(moved), digits)}."


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def shortened(text: str) -> str:
    """A sentence on one line, cut between words where it is long.

    >>> shortened("Light\\n and sturdy."), shortened("so " * 100)[-7:]
    ('Light and sturdy.', 'so so …')
    """
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_QUOTE else f"{line[:LONGEST_QUOTE].rsplit(' ', 1)[0]} …"


def _averages_alone(explanation: Explanation) -> str:
    moved = explanation.moved_by_texts or 0.0
    digits = digits_of(explanation)
    least = 10.0**-digits
    amount = number(abs(moved), digits) if abs(moved) >= least / 2 else f"less than {number(least, digits)}"
    return f"This rests on the person's and the thing's averages; the texts move it by {amount}."


def _for_and_against(explanation: Explanation) -> str:
    return _sentence("; ".join(words for _, words in _clauses(explanation)))


def _clauses(explanation: Explanation) -> list[tuple[str, str]]:
    """What the findings of each kind say together, with the kind."""
    by_kind: dict[str, list[str]] = {kind: [] for kind in CLAUSES}
    for finding in explanation.findings:
        by_kind[kind_of(finding, explanation)].append(quoted_aspect(finding))
    return [(kind, CLAUSES[kind].format(listed(names))) for kind, names in by_kind.items() if names]


def _in_all(explanation: Explanation) -> str:
    moved = signed(explanation.texts_move or 0.0, digits_of(explanation))
    if moved[0] not in "+−":
        return "the texts leave the rating where the averages have it"
    up = moved[0] == "+"
    raised = f"the texts {'raise' if up else 'lower'} the rating by {moved[1:]}"
    if explanation.findings and all((one.amount > 0) != up for one in explanation.findings):
        return f"{raised} all the same, by words that no sentence here stands for"
    return f"{raised}, most of it by how this person writes" if _mostly_by_writing(explanation) else raised


def _mostly_by_writing(explanation: Explanation) -> bool:
    """Whether what the person writes of anything does more than half of what the texts do, so that no aspect of the
    thing can be the reason."""
    writing = sum(part.amount for part in explanation.parts if part.kind == "writing")
    moved = explanation.texts_move or 0.0
    return writing * moved > 0 and abs(writing) > abs(moved) / 2


def kind_of(finding: AspectFinding, explanation: Explanation) -> str:
    """What the finding is called. "Praise" and "complaint" are said only where the writers' own ratings agree."""
    speaks_for = finding.amount > 0
    if finding.turned:
        return "turned for" if speaks_for else "turned against"
    rated = [sentence.rating for sentence in finding.sentences if sentence.rating is not None]
    usual = explanation.item_mean
    if usual is None or not rated:
        return "for" if speaks_for else "against"
    if speaks_for:
        return "praise" if min(rated) >= usual else "for"
    low, high = explanation.rating_range
    return "complaint" if max(rated) <= usual - COMPLAINT * (high - low) else "against"


def short_name(aspect: str) -> str:
    """The first word of a name that is a few words of the corpus; a name of a shop's own as it is.

    >>> short_name("battery, charge, hours"), short_name("Battery life")
    ('battery', 'Battery life')
    """
    return aspect.partition(",")[0].strip() or aspect


def quoted_aspect(finding: AspectFinding) -> str:
    return f"“{short_name(finding.aspect)}”"


def listed(names: Iterable[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _findings_told(explanation: Explanation, rows: Sequence[SumRow]) -> Iterable[FindingTold]:
    seen = {kind: count() for kind in LINES}
    digits = digits_of(explanation)
    for finding, amount in zip(explanation.findings, shown_amounts(explanation, rows), strict=True):
        kind = kind_of(finding, explanation)
        lines = LINES[kind]
        words = lines[min(next(seen[kind]), len(lines) - 1)].format(quoted_aspect(finding))
        yield FindingTold(words, amount, _shares(finding, amount, digits), _own_words(finding))


def _shares(finding: AspectFinding, amount: float, digits: int) -> str:
    """How much of an amount is for everybody, and how much for this person; the two add up to it as it is shown."""
    everybody = round(finding.by_itself, digits)
    taste = round(amount - everybody, digits)
    if taste == 0:
        return ""
    if everybody == 0:
        return "all of it by this person's taste"
    return f"{signed(everybody, digits)} for everybody, {signed(taste, digits)} by this person's taste"


def _own_words(finding: AspectFinding) -> str:
    if not finding.own_sentences:
        return ""
    if finding.viewpoint is None:
        return "This person writes:"
    return f"This person writes about “{finding.viewpoint}”:"


def case_words(case: EarlierCase) -> str:
    alike = "much the same" if case.likeness >= MUCH_ALIKE else "similar things"
    return f"This person gave {case.rating:g} to {thing_name(case.item, case.title)}, of which people write {alike}."


def short_names(names: Sequence[str]) -> list[str]:
    """Short names where they stay apart, whole ones otherwise."""
    short = [short_name(name) for name in names]
    return [one if short.count(one) == 1 else name for one, name in zip(short, names, strict=True)]
