"""The aspects of a corpus as a reader sees them in a terminal."""

from __future__ import annotations

import textwrap

from carp.explain.aspect_overview import AspectOverview, Aspects
from carp.explain.explanation import Sentence

WIDTH = 100


def aspects_text(found: Aspects, width: int = WIDTH) -> str:
    """One paragraph an aspect."""
    head = "What people write about"
    lines = [head, "─" * len(head)]
    for one in found.aspects:
        lines += ["", f"{one.name}: {_often(one, found.pairs)}"]
        for mark, sentence in (("+", one.praise), ("−", one.complaint)):
            if sentence is not None:
                lines += _quoted(mark, sentence, width)
    if found.pairs:
        lines += ["", f"“Decides” is counted over {found.pairs:,} held-out pairs: the aspect that moves a rating most."]
    return "\n".join(lines) + "\n"


def _often(one: AspectOverview, pairs: int) -> str:
    said = f"{100 * one.share:.0f} % of the sentences"
    return said if one.decides is None or not pairs else f"{said}; decides {100 * one.decides:.0f} % of the ratings"


def _quoted(mark: str, sentence: Sentence, width: int) -> list[str]:
    rating = "" if sentence.rating is None else f" ({sentence.rating:g})"
    text = f"“{' '.join(sentence.text.split())}”{rating}"
    return textwrap.wrap(text, width, initial_indent=f"  {mark} ", subsequent_indent="    ")
