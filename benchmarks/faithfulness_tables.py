"""What `faithfulness.py` measured, as the tables of the documentation.

    python benchmarks/faithfulness_tables.py results/faithfulness.jsonl [--write docs/faithfulness.md]

Seeds of one model on one corpus are one row: means over the seeds, and of p values the largest. With --write, what
stands between `<!-- NAME -->` and `<!-- /NAME -->` in the page becomes the table of that name.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tables_in_pages import print_or_write

Line = dict[str, Any]
CORPORA = {
    "musical-instruments": "Musical Instruments",
    "ratebeer": "RateBeer",
    "tripadvisor": "TripAdvisor",
    "made-up-shop": "the made-up shop",
    "reviews_Musical_Instruments_5": "Musical Instruments",  # as a bundle calls it, by its file
}
MODELS = {
    "meeting": "meeting",
    "carp-paper": "CARP, paper's form",
    "carp:variant=paper": "CARP, paper's form",
    "carp": "CARP, calibrated",
    "carp-ra": "CARP-RA",
    "gaussian-process": "Gaussian process",
    "ridge": "linear text",
    "anr": "ANR",
    "tarmf": "TARMF",
    "mpcn": "MPCN",
    "narre": "NARRE",
    "daml": "DAML",
    "transformer": "a transformer",
    "dattn": "D-Attn",
    "deepconn": "DeepCoNN",
    "transnet": "TransNet",
}
OTHER_READINGS = ("units", "pull", "lengths", "words", "stars")
KIND = ("of", "aspect", "low")


class Group:
    """The seeds of one model on one corpus."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = sorted(lines, key=lambda line: int(line["seed"]))
        corpus = str(lines[0]["corpus"])
        self.corpus = CORPORA.get(corpus, corpus)
        name = str(lines[0]["model"]).partition(":")[0]
        variant = lines[0]["settings"].get("variant")
        label = f"{name}:variant={variant}" if variant else name
        self.model = MODELS.get(label, label)

    def all(self, *path: str) -> list[Any]:
        found = []
        for line in self.lines:
            value: Any = line["explanations"]
            for step in path:
                value = None if value is None else value.get(step)  # older lines have fewer measures
            if value is not None:
                found.append(value)
        return found

    def mean(self, *path: str, form: str = "{:.3f}") -> str:
        found = self.all(*path)
        return form.format(statistics.mean(found)) if found else ""

    def p(self, *path: str) -> str:
        """The largest of both tests and all seeds."""
        found = [max(one["p_t"], one["p_wilcoxon"]) for one in self.all(*path)]
        return "" if not found else f"{max(found):.2g}"


def groups(lines: Iterable[Line]) -> list[Group]:
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line["corpus"], line["model"]), []).append(line)
    made = [Group(members) for members in found.values()]
    corpora, models = list(CORPORA.values()), list(MODELS.values())
    return sorted(made, key=lambda g: (_place(g.corpus, corpora), _place(g.model, models)))


def _place(name: str, known: list[str]) -> tuple[int, str]:
    """Known names in their order, others after them."""
    return (known.index(name) if name in known else len(known)), name


def table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, ["---"] * len(heads), *rows])


# ---- the tables


def removal(found: list[Group]) -> str:
    heads = ["corpus", "model", "seeds", "pairs", "words", "named go", "random words go", "random sentences go", "p",
             "marked words go", "as many random", "towards it", "random", "named alone", "random alone"]  # fmt: skip
    marked = "phrases", "beside_words", "comprehensiveness"
    words, sentences = ("sentences", "beside_words"), ("sentences", "beside_sentences")
    return table(heads, [
        [
            one.corpus, one.model, str(len(one.lines)), one.mean("pairs", form="{:.0f}"),
            one.mean("sentences", "words", form="{:.0f}"),
            one.mean(*words, "comprehensiveness", "named"), one.mean(*words, "comprehensiveness", "chance"),
            one.mean(*sentences, "comprehensiveness", "chance"), one.p(*words, "comprehensiveness"),
            one.mean(*marked, "named"), one.mean(*marked, "chance"),
            one.mean(*words, "signed_comprehensiveness", "named", form="{:+.3f}"),
            one.mean(*words, "signed_comprehensiveness", "chance", form="{:+.3f}"),
            one.mean(*words, "sufficiency", "named"), one.mean(*words, "sufficiency", "chance"),
        ]
        for one in found
    ])  # fmt: skip


def agreement(found: list[Group]) -> str:
    heads = ["corpus", "model", "seeds", "AUC of the capsules", "of the biases", "capsules minus biases, 95 %"]
    rows = []
    for one in found:
        intervals = one.all("agreement", "over_biases")
        if intervals:
            reach = "; ".join(f"{low:+.3f} to {high:+.3f}" for low, high in intervals)
            aucs = one.mean("agreement", "auc"), one.mean("agreement", "bias_auc")
            rows.append([one.corpus, one.model, str(len(one.lines)), *aucs, reach])
    return table(heads, rows)


def resemblance(found: list[Group]) -> str:
    heads = ["corpus", "model", "seeds", "named", "random of like length", "p", "shared with other seeds", "by chance",
             "texts' moves, rank correlation of seeds"]  # fmt: skip
    return table(heads, [
        [
            one.corpus, one.model, str(len(one.lines)),
            one.mean("resemblance", "like_length", "named", form="{:.4f}"),
            one.mean("resemblance", "like_length", "chance", form="{:.4f}"), one.p("resemblance", "like_length"),
            one.mean("stability", "overlap", "named", form="{:.2f}"),
            one.mean("stability", "overlap", "chance", form="{:.2f}"),
            one.mean("stability", "texts", form="{:.2f}"),
        ]
        for one in found
    ])  # fmt: skip


def planted(found: list[Group]) -> str:
    rows = [
        [one.model, str(len(one.lines)), one.mean("planted", "explained", form="{:.0%}"),
         ", ".join(f"{share:.0%}" for share in one.all("planted", "explained")),
         one.mean("planted", "random", form="{:.0%}")]
        for one in found if one.all("planted")
    ]  # fmt: skip
    return table(["model", "seeds", "cause shown", "each seed", "by random sentences"], rows)


def aspects(found: list[Group]) -> str:
    """Rank correlations over things with how low an aspect was scored, as it stands and beside the overall rating; the
    lines have them over pairs too."""
    heads = ["corpus", "model", "aspect", "things", "low", "capsules", "95 %", *OTHER_READINGS]
    heads += ["capsules over words", "capsules over lengths"]
    rows = []
    for one in found:
        measured = [aspect for line in one.all("aspects") for aspect in line if aspect["of"] == "items"]
        for kind in sorted({tuple(str(a[name]) for name in KIND) for a in measured}, key=lambda k: (k[0], k[2], k[1])):
            same = [a for a in measured if tuple(a[name] for name in KIND) == kind]
            _, aspect, low = kind
            figures = [_mean([a["correlation"][reading] for a in same]) for reading in ("capsules", *OTHER_READINGS)]
            over = [_above([a[base]["capsules"] for a in same]) for base in ("over_words", "over_lengths")]
            reach = _reach([a["interval"]["capsules"] for a in same])
            place = [one.corpus, one.model, aspect, str(same[0]["number"]), low]
            rows.append([*place, figures[0], reach, *figures[1:], *over])
    return table(heads, rows)


def signs(found: list[Group]) -> str:
    """What sentences shown as for and against a thing say, where it is known, and the stars of their reviews."""
    heads = ["corpus", "model", "pairs", "for", "against", "turned", "for that praise", "against that complain",
             "stars for", "stars against", "difference, 95 %", "by words alone, 95 %"]  # fmt: skip
    rows = []
    for one in found:
        if not one.all("signs"):
            continue
        counts = [one.mean("signs", name, form="{:,.0f}") for name in ("pairs", "for_it", "against_it", "turned")]
        known = [one.mean("signs", "known", name, form="{:.0%}") for name in ("praise", "complaint")]
        stars = [one.mean("signs", "stars", name, form="{:.2f}") for name in ("for_it", "against_it")]
        rows.append([one.corpus, one.model, *counts, *known, *stars,
                     _apart(one, "stars"), _apart(one, "stars_by_words")])  # fmt: skip
    return table(heads, rows)


def _apart(one: Group, name: str) -> str:
    reach = _reach(one.all("signs", name, "interval"))
    return f"{one.mean('signs', name, 'difference', form='{:+.2f}')} ({reach})" if reach else ""


def amounts(found: list[Group]) -> str:
    """How far the texts move ratings, in per cent of the scale, and how far parts are from summing to the rating."""
    heads = ["corpus", "model", "counted", "a quarter below", "half below", "three quarters below", "pairs below 2 %",
             "largest gap of the sum", "largest part of the scale's end"]  # fmt: skip
    rows = []
    for one in found:
        moves = one.all("texts_move", "quartiles")
        if moves:
            quartiles = [f"{statistics.mean(move[place] for move in moves):.1%}" for place in range(3)]
            little = one.mean("texts_move", "little", form="{:.0%}")
            gap, rest = one.mean("sums", "largest_gap", form="{:.1g}"), one.mean("sums", "largest_rest", form="{:.2f}")
            rows.append([one.corpus, one.model, one.all("texts_move", "counted")[0], *quartiles, little, gap, rest])
    return table(heads, rows)


def impressions(found: list[Group]) -> str:
    """Rank correlations over things of what is said of an aspect with its scores, both beside the whole impression."""
    heads = ["corpus", "aspect", "things", "found aspects", "95 %", "matching words", "share of words", "found as"]
    rows = []
    for one in found:
        for line in one.all("impressions")[:1]:
            for aspect in line["aspects"]:
                figures, reach = aspect["correlation"], _reach([aspect["interval"]["found"]])
                rows.append([one.corpus, aspect["aspect"], str(aspect["things"]), f"{figures['found']:+.2f}", reach,
                             *(f"{figures[name]:+.2f}" for name in ("matching", "share")),
                             "; ".join(aspect["found"])])  # fmt: skip
            mean, over = line["mean"], _reach([line["over"]["share"]])
            rows.append([one.corpus, "mean", "", f"{mean['found']:+.2f}", _reach([line["mean_interval"]["found"]]),
                         f"{mean['matching']:+.2f}", f"{mean['share']:+.2f}",
                         f"found minus share: {over}"])  # fmt: skip
    return table(heads, rows)


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.mean(known):+.2f}" if known else ""


def _reach(intervals: list[list[float] | None]) -> str:
    """From the lowest to the highest of all seeds."""
    known = [interval for interval in intervals if interval is not None]
    return f"{min(low for low, _ in known):+.2f} to {max(high for _, high in known):+.2f}" if known else ""


def _above(intervals: list[list[float] | None]) -> str:
    """On how many seeds the 95 % interval of the difference lies above 0, and below it."""
    known = [interval for interval in intervals if interval is not None]
    up, down = sum(low > 0 for low, _ in known), sum(high < 0 for _, high in known)
    return f"{up} of {len(known)}" + (f", below on {down}" if down else "")


TABLES: dict[str, Callable[[list[Group]], str]] = {
    "removal": removal,
    "agreement": agreement,
    "resemblance": resemblance,
    "planted": planted,
    "aspects": aspects,
    "signs": signs,
    "amounts": amounts,
    "impressions": impressions,
}


def read(path: Path) -> list[Group]:
    return groups(json.loads(line) for line in path.read_text().splitlines() if line.strip())


def tables_of(results: Path) -> dict[str, str]:
    found = read(results)
    return {name: make(found) for name, make in TABLES.items()}


if __name__ == "__main__":
    print_or_write(__doc__, tables_of)
