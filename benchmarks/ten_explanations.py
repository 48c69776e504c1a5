"""Ten explanations of each model, drawn by a seed, as a page of the documentation prints them.

    python benchmarks/ten_explanations.py MODEL... [--seed 12] [--write docs/explanation/ten-explanations.md]
    python benchmarks/ten_explanations.py --study MODEL [--write docs/explanation/ten-explanations.md]

MODEL is a folder made by `carp train`. The pairs are held out: of each model ten test pairs that the seed chooses, good
or bad. They are printed as `carp explain` prints them, without the sum, the heat map and what comes after the fourth
aspect; long quotations are cut. With --study, a model with capsules tells three pairs as the paper's example study
does: the one it likes most, the one it dislikes most, and the one on which its two capsules are nearest. With --write,
what stands between `<!-- NAME -->` and `<!-- /NAME -->` in the page becomes the explanation of that name; verdicts
beside them stay.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import source_tree  # noqa: F401  carp of this checkout
from tables_in_pages import page_with

MANY = 10
FINDINGS = 4
QUOTED = 170  # characters of a quotation
WIDTH = 88
STUDIED = 400  # held-out pairs among which the study chooses
LEFT_OUT = ("How the rating comes about", "Where the two meet", "Every viewpoint with every aspect",
            "What each viewpoint and aspect is about")  # fmt: skip
CORPORA = {"reviews_Musical_Instruments_5": "musical-instruments"}


def shortened(explanation: Any) -> str:
    """As the terminal tells it, without the sections that are left out, and with long quotations cut."""
    from carp.render.terminal import explanation_text

    findings = tuple(
        replace(one, sentences=tuple(map(cut, one.sentences)), own_sentences=tuple(map(cut, one.own_sentences[:1])))
        for one in explanation.findings[:FINDINGS]
    )
    units = tuple(
        replace(unit, viewpoint=cut_side(unit.viewpoint), aspect=cut_side(unit.aspect)) for unit in explanation.units
    )
    target = explanation.target and cut(explanation.target)
    text = explanation_text(replace(explanation, findings=findings, units=units, target=target), width=WIDTH)
    return "\n".join(_kept(text.splitlines())).strip()


def cut_side(side: Any) -> Any:
    return replace(side, sentences=tuple(map(cut, side.sentences)), phrases=())


def cut(quoted: Any) -> Any:
    """A quotation of at most so many characters, with what is marked of it."""
    if len(quoted.text) <= QUOTED:
        return quoted
    marks = tuple(mark for mark in quoted.marks if mark.end <= QUOTED)
    return replace(quoted, text=quoted.text[:QUOTED].rstrip() + " …", marks=marks)


def _kept(lines: list[str]) -> list[str]:
    """Without the sections left out: each begins with its title over a line of dashes."""
    kept: list[str] = []
    leaving = False
    for place, line in enumerate(lines):
        if line and lines[place + 1 : place + 2] == ["─" * len(line)]:
            leaving = line in LEFT_OUT
        if not leaving:
            kept.append(line)
    return kept


def corpus_name(member: Any) -> str:
    facts = member.fitted_corpus.facts
    name = Path((facts["corpus"].get("sources") or [facts["fingerprint"][:12]])[0]).name.partition(".")[0]
    return CORPORA.get(name, name)


def held_out(member: Any) -> list[tuple[int, int]]:
    from carp.reviews.split_parts import TEST

    corpus = member.fitted_corpus
    return [(int(corpus.user[k]), int(corpus.item[k])) for k in (corpus.part == TEST).nonzero()[0]]


def explained(member: Any, pair: tuple[int, int]) -> Any:
    corpus = member.fitted_corpus
    return member.explain(corpus.users[pair[0]], corpus.items[pair[1]])


def drawn(member: Any, seed: int) -> dict[str, str]:
    """Ten pairs, by the name that the page has for each."""
    import numpy as np

    pairs = held_out(member)
    chosen = np.random.default_rng(seed).choice(len(pairs), size=min(MANY, len(pairs)), replace=False)
    name = corpus_name(member)
    return {f"{name} {at}": shortened(explained(member, pairs[k])) for at, k in enumerate(chosen.tolist(), start=1)}


def study(member: Any, seed: int) -> dict[str, str]:
    """The paper's example study: what is liked, what is disliked, and where both capsules speak."""
    import numpy as np

    pairs = held_out(member)
    some = np.random.default_rng(seed).choice(len(pairs), size=min(STUDIED, len(pairs)), replace=False)
    found = [explained(member, pairs[k]) for k in some.tolist()]
    told = [one for one in found if not one.little_known]
    balance = [one.positive.length - one.negative.length for one in told]
    chosen = {
        "like": int(np.argmax(balance)),
        "dislike": int(np.argmin(balance)),
        "mixed": int(np.abs(balance).argmin()),
    }
    return {f"study {kind}": shortened(told[place]) for kind, place in chosen.items()}


def main() -> None:
    import carp

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--study", type=Path, help="a model with capsules")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    told: dict[str, str] = {}
    for path in given.models:
        told |= drawn(carp.load(path, device="cpu"), given.seed)
    if given.study:
        told |= study(carp.load(given.study, device="cpu"), given.seed)
    if given.write:
        blocks = {name: f"```text\n{text}\n```" for name, text in told.items()}
        given.write.write_text(page_with(given.write.read_text("utf-8"), blocks), encoding="utf-8")
        return
    for name, text in told.items():
        print(f"{name}\n\n{text}\n{'=' * WIDTH}\n")


if __name__ == "__main__":
    main()
