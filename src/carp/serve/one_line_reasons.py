"""One line for a recommendation, one sentence for a comparison: no more than what the model says."""

from __future__ import annotations

from collections.abc import Sequence

from carp.explain.explanation import Explanation
from carp.render.summed_telling import first_words

SAME = 0.05  # of the range of ratings: closer ones are called about the same


def quoted(phrases: Sequence[str]) -> str:
    """
    >>> quoted(["easy to  use", "light", "cheap"])
    '“easy to use”'
    """
    shown = next((" ".join(phrase.split()) for phrase in phrases if phrase.strip()), None)
    return f"“{shown}”" if shown else "words that the model does not know"


def unit_line(viewpoint: Sequence[str], aspect: Sequence[str], moved: float) -> str:
    """The logic unit that the longer capsule listens to most, and what the texts do to the rating, in one line.

    >>> unit_line(["light weight"], ["very light"], 0.2)
    'Their “light weight” meets “very light” in its reviews; all that was written raises the rating by 0.20'
    """
    if abs(moved) < 0.005:
        effect = "leaves the rating where the averages have it"
    else:
        effect = f"{'raises' if moved > 0 else 'lowers'} the rating by {abs(moved):.2f}"
    return f"Their {quoted(viewpoint)} meets {quoted(aspect)} in its reviews; all that was written {effect}"


def plain_line(name: str, item_mean: float | None, *, explains: bool = False) -> str:
    """The average, and for a model that explains nothing that it does so.

    >>> plain_line("mf", 4.5)
    'The model mf gives ratings without reasons; people rate it 4.50 on average'
    >>> plain_line("meeting", 4.5, explains=True)
    'People rate it 4.50 on average'
    """
    known = "nobody has rated it in training" if item_mean is None else f"people rate it {item_mean:.2f} on average"
    return f"{known[0].upper()}{known[1:]}" if explains else f"The model {name} gives ratings without reasons; {known}"


def popular_line(reviews: int, item_mean: float | None) -> str:
    """
    >>> popular_line(46, 3.43)
    'Popular with everybody: 46 reviews, 3.43 on average'
    """
    average = "" if item_mean is None else f", {item_mean:.2f} on average"
    return f"Popular with everybody: {reviews:,} {'review' if reviews == 1 else 'reviews'}{average}"


def verdict(user: str, ratings: Sequence[tuple[str, float]], span: float, reasons: Sequence[Explanation | None]) -> str:
    """Which of two things would be rated higher, by how much, and the better one's strongest reason.

    >>> verdict("ann", [("drum", 4.0), ("horn", 3.0)], 4.0, [None, None])
    'ann would rate drum 4.00 and horn 3.00: drum is predicted 1.00 higher.'
    """
    (first, one), (second, other) = ratings
    start = f"{user} would rate {first} {one:.2f} and {second} {other:.2f}"
    if abs(one - other) < SAME * span:
        return f"{start}: about the same."
    better = 0 if one > other else 1
    apart = abs(round(one, 2) - round(other, 2))  # of the numbers as they are shown
    end = f"{ratings[better][0]} is predicted {apart:.2f} higher"
    because = reasons[better]
    if because is not None and (because.parts or because.little_known):
        return f"{start}: {end}. {first_words(because)}"
    if because is None or not because.units:
        return f"{start}: {end}."
    unit = because.units[0]
    meeting = f"their {quoted(unit.viewpoint.phrases)} meets {quoted(unit.aspect.phrases)} in its reviews"
    return f"{start}: {end}. The strongest reason {'for' if unit.sentiment == 'positive' else 'against'} it: {meeting}."
