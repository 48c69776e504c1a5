"""The pieces of markup that the parts of a page share. Whatever comes from data passes through `safe`."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from carp.explain.explanation import Mark, Sentence, Side
from carp.render.wording import SIGN, further_phrases, neutral, phrases_of, source_parts

MARK_TITLE = {
    "own": "a phrase of this one alone",
    "shared": "a phrase of several",
    "positive": "matches a reason that speaks for it",
    "negative": "matches a reason that speaks against it",
    "matched": "words that the model listened to in other reviews",
}


def safe(text: str) -> str:
    return html.escape(neutral(text), quote=True)


def heading(level: int, words: str, kind: str = "heading") -> str:
    return f'<h{level} class="{kind}">{words}</h{level}>'


def gauge(words: str, remark: str, share: float, figure: str, kind: str = "length") -> str:
    """A bar for a share between 0 and 1, under its name, a remark and its figure, all of them safe."""
    width = 100 * min(abs(share), 1.0) if math.isfinite(share) else 0.0
    return (
        f'<div class="gauge"><span>{words} <span class="soft">{remark}</span></span><b>{figure}</b>'
        f'<svg role="img" aria-label="{words}: {figure}" height="10">'
        '<rect class="rest" width="100%" height="10" rx="5"/>'
        f'<rect class="part {kind}" width="{width:.1f}%" height="10" rx="5"/></svg></div>'
    )


def side_block(title: str, side: Side, level: int, *, silent: str, others: str) -> str:
    """A side by its sentences under a title; `silent` stands where it has none, `others` over its other phrases."""
    parts = [heading(level, safe(title), "side-heading")] if title else []
    if not side.sentences:
        parts.append(f'<p class="soft">{safe(silent)}</p>')
    parts += [_quoted(sentence) for sentence in side.sentences]
    further = further_phrases(side)
    if further:
        rows = "".join(f"<li><bdi>{safe(phrase)}</bdi></li>" for phrase in further)
        parts.append(f"<details><summary>{safe(others)}</summary><ul>{rows}</ul></details>")
    return f'<div class="side">{"".join(parts)}</div>'


def _quoted(sentence: Sentence) -> str:
    words = f"“{marked(sentence.text, sentence.marks)}”" if sentence.text.strip() else "(an empty sentence)"
    source = "".join(f"<bdi>{safe(part)}</bdi>" for part in source_parts(sentence))
    return f'<figure><blockquote dir="auto">{words}</blockquote><figcaption>{source}</figcaption></figure>'


def marked(text: str, marks: Iterable[Mark]) -> str:
    return "".join(
        mark(safe(fragment), sorted(kinds)) if kinds else safe(fragment) for fragment, kinds in phrases_of(text, marks)
    )


def mark(safe_words: str, kinds: Sequence[str]) -> str:
    """A highlighted stretch; where it carries a sentiment the sign stands behind it, for eyes that see no colour."""
    kinds = [kind for kind in kinds if kind != "own" or "shared" not in kinds]
    title = "; ".join(MARK_TITLE[kind] for kind in kinds)
    signs = "".join(f'<sup class="{kind}">{SIGN[kind]}</sup>' for kind in SIGN if kind in kinds)
    return f'<mark class="{" ".join(kinds)}" title="{title}">{safe_words}</mark>{signs}'
