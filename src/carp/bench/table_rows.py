"""Which cells make a row of a table, what a row and a corpus are called, and where their figures come from."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from carp.bench.cells import Line
from carp.models import REGISTRY, model_class
from carp.reviews.text.vocabulary import TextSettings
from carp.training.loop import TrainingSettings

REVIEW_NEEDS = frozenset({"documents", "reviews", "target_review"})
Row = tuple[str, str]  # the system's label, and what it was given


def row_names(lines: Sequence[Line]) -> dict[str, str]:
    """What to call each cell's row, by cell: two rows that share a label are told apart by what they were given."""
    rows = {line["id"]: (str(line["model"]), _kind(line)) for line in lines}
    several = Counter(label for label, _ in dict.fromkeys(rows.values()))
    names: dict[Row, str] = {}
    for line in lines:
        row = rows[line["id"]]
        if row not in names:
            name = row[0] if several[row[0]] == 1 else f"{row[0]} ({_given(line)})"
            names[row] = _free(name, names.values())
    return {identity: names[row] for identity, row in rows.items()}


def _free(name: str, taken: Iterable[str]) -> str:
    known = set(taken)
    numbered = (f"{name} #{number}" for number in itertools.count(2))
    return name if name not in known else next(other for other in numbered if other not in known)


def _kind(line: Line) -> str:
    search = line.get("search") or {}
    searched = [search.get(name) for name in ("trials", "space", "splits")]
    return json.dumps([used_settings(line), *searched], sort_keys=True)


def _given(line: Line) -> str:
    words = [f"{name}={value}" for name, value in used_settings(line).items()]
    if line.get("search"):
        space = line["search"].get("space") or {}
        over = ", ".join(f"{name}={','.join(map(str, values))}" for name, values in space.items())
        words.append(f"search of {line['search'].get('trials')}" + (f" over {over}" if over else ""))
    return ", ".join(words) or "as it is"


def used_settings(line: Line) -> dict[str, Any]:
    """What a cell was given, without what its model never looks at: a grid's `epochs=3` is not of the biases."""
    given: Mapping[str, Any] = line.get("given") or {}
    name = line.get("name")
    if not given or name not in REGISTRY:
        return dict(given)
    kind = model_class(name)
    unused = set() if kind.learns else {field.name for field in dataclasses.fields(TrainingSettings)}
    if not kind.needs & REVIEW_NEEDS:
        unused |= {field.name for field in dataclasses.fields(TextSettings)} | {"target_reviews"}
    own = {field.name for field in dataclasses.fields(kind.Config)}
    return {key: value for key, value in given.items() if key in own or key not in unused}


def same_family(name: str, other: str) -> bool:
    """Whether two models of the registry are forms of one, as `carp` and `carp-ra` are."""
    if name in REGISTRY and other in REGISTRY:
        return REGISTRY[name].place == REGISTRY[other].place
    return name == other


def corpus_names(found: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A name for each fingerprint, from pairs of name and fingerprint: the last one given, and no name for two.

    >>> corpus_names([("shop", "aa1"), ("store", "aa1"), ("music", "bb1"), ("music", "bb2")])
    {'aa1': 'store', 'bb1': 'music (bb1)', 'bb2': 'music (bb2)'}
    """
    last = {fingerprint: name for name, fingerprint in found}
    several = Counter(last.values())
    short = _distinct_starts([fingerprint for fingerprint, name in last.items() if several[name] > 1])
    return {
        fingerprint: name if several[name] == 1 else f"{name} ({short[fingerprint]})"
        for fingerprint, name in last.items()
    }


def _distinct_starts(fingerprints: Sequence[str], least: int = 8) -> dict[str, str]:
    longest = max(map(len, fingerprints), default=least)
    length = next(
        (n for n in range(least, longest) if len({text[:n] for text in fingerprints}) == len(fingerprints)), longest
    )
    return {text: text[:length] for text in fingerprints}


def origin(lines: Sequence[Line]) -> str:
    """The commits and machines that cells were measured with, in one line; nothing where none is known."""
    commits, machines = (Counter(str(line.get(key) or "unknown") for line in lines) for key in ("commit", "machine"))
    if {*commits, *machines} <= {"unknown"}:
        return ""
    return f"Measured at commit {_counted(commits)} on {_counted(machines)}."


def _counted(found: Counter[str]) -> str:
    """
    >>> _counted(Counter(["H200", "H200", "EPYC, 2 cores"]))
    'H200 (2 cells) and EPYC, 2 cores (1 cell)'
    """
    if len(found) == 1:
        return next(iter(found))
    *first, last = (f"{name} ({count} cell{'s' * (count > 1)})" for name, count in found.most_common())
    return f"{', '.join(first)} and {last}"
