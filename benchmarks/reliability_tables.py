"""The tables of docs/explanation/reliability.md, made of results/torture.jsonl and results/torture-serve.jsonl.

python benchmarks/reliability_tables.py results                          prints them
python benchmarks/reliability_tables.py results --write PAGE             writes them into the page
python benchmarks/reliability_tables.py results --take LINES ...         takes lines over that were made elsewhere
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torture
from result_lines import put_line
from tables_in_pages import Tables, page_with

FILES, SERVICE = "torture.jsonl", "torture-serve.jsonl"
FULL = {"examples_an_operation": 1000, "strings": 200, "seconds": 600, "abandoned": 3000, "stops": 50, "swaps": 50}
Line = dict[str, Any]


def _health(found: Line) -> str:
    took = f"health took {found['health_longest_ms']:g} ms at most"
    late = found.get("woken_late_ms")  # older lines do not know
    return took if late is None else f"{took}, where a process that only sleeps woke up to {late:g} ms late"


def _clients(found: Line) -> str:
    asked = f"{found['clients']} clients for {found['seconds']} s, {found['explain'] + found['predict']:,} requests"
    took = f"explain p99 {found['explain_p99_ms']:g} ms, predict p99 {found['predict_p99_ms']:g} ms"
    return f"{asked}, {found['errors']} errors, {took}, memory {found['drift']:+.1%}, {_health(found)}"


def _overload(found: Line) -> str:
    sent = f"{found['sent_a_second']:,} explanations asked for a second where {found['able_a_second']:,} can be given"
    answers = ", ".join(f"{count:,} × {status}" for status, count in sorted(found["statuses"].items()))
    return f"{sent}: {answers}; recovered after {found['recovered_s']:g} s; {_health(found)}"


def _schema(found: Line) -> str:
    asked = f"{found['examples_an_operation']:,} examples an operation, {found['generated']:,} in all"
    return f"{asked}; {found['findings'] or 'no'} findings"


SAID: dict[str, tuple[str, Callable[[Line], str]]] = {
    "schema": ("Generated requests find nothing that the description does not say", _schema),
    "traversal": (
        "No path leads out of a folder",
        lambda f: f"{f['strings']} strings at {f['places']} places, {len(f['leaked'])} leaked",
    ),
    "clients": ("64 clients for ten minutes: p99 of 150 and 75 ms, no error, memory within 5 %", _clients),
    "overload": ("Four times as much as it can do: 503, and all as before within 5 s", _overload),
    "abandoned": (
        "3,000 requests abandoned: health below 100 ms throughout",
        lambda f: f"{f['abandoned']:,} abandoned, {f['never_computed']:,} never computed; {_health(f)}",
    ),
    "stops": (
        "50 stops under 64 clients lose no request",
        lambda f: f"{f['stops']} stops, {f['answered']:,} requests answered, {f['lost']} lost",
    ),
    "swaps": (
        "50 changes of the model under 64 clients: no error, no answer of two models",
        lambda f: f"{f['swaps']} changes, {f['answers']:,} answers, {f['errors']} errors, {f['mixed']} mixed",
    ),
    "headers": (
        "A header of 300 MB costs less than 20 MB",
        lambda f: f"refused after {f['taken_before_the_end_mb']:g} MB, {f['memory_mb_more']:g} MB more; {_health(f)}",
    ),
    "slow": (
        "120 clients that send a byte a second are closed within 15 s, and the log says so",
        lambda f: f"{f['closed']} closed, the last after {f['longest_s']:g} s, {f['told_in_the_log']} told in the log",
    ),
    "start": (
        "Ready within 7.8 s",
        lambda f: f"{f['starts']} starts, {f['median_s']:g} s in the median, {f['longest_s']:g} s at most",
    ),
}


def files_table(lines: list[Line]) -> str:
    """What was done to files, training and compiled code."""
    rows = []
    for line in lines:
        faults = f"{len(line['faults'])}" if line["faults"] else "none"
        tried = f"{line['tried']:,}" + ("" if line["tried"] >= line["wanted"] else f" of {line['wanted']:,}")
        rows.append([line["about"], tried, faults, _yes(line["reached"]), f"`{line['command']}`"])
    return _table(["tried", "how often", "faults", "reached", "command"], rows)


def service_table(lines: list[Line]) -> str:
    """What was done to the running service, each part with what was wanted of it."""
    rows = []
    for line in lines:
        wanted, told = SAID[line["part"]]
        machine = f"{line['cores']} cores, load {line['load_average']:g}"
        if "of_cores" in line:
            machine = f"{line['cores']} of {line['of_cores']} cores, for itself"
        reached = _yes(line["reached"])
        if line["reached"] and not _whole(line["part"], line["figures"]):
            reached = "as far as run"
        model = f"`{line['model']}`" if "model" in line else "not kept"
        rows.append(
            [wanted, model, told(line["figures"]), machine, reached, f"`{line['part']}`", f"`{line['commit']}`"]
        )
    return _table(["wanted", "model", "measured", "machine", "reached", "part", "commit"], rows)


def not_run(files: list[Line], served: list[Line]) -> str:
    """What was not run at its full number, in a sentence."""
    whole = {line["part"] for line in files if line["tried"] >= line["wanted"] and not line["unfinished_pieces"]}
    whole |= {line["part"] for line in served if _whole(line["part"], line["figures"])}
    left = [name for name in (*torture.PARTS, *SAID) if name not in whole]
    if not left:
        return "Every part was run at its full number."
    parts = ", ".join(f"`{name}`" for name in left)
    return f"**Not yet run at full numbers:** {parts}. Of these there are only the small tests."


def _whole(part: str, figures: Line) -> bool:
    """Whether it was tried at the full number."""
    counted = {"schema": "examples_an_operation", "traversal": "strings", "clients": "seconds"}.get(part, part)
    return bool(figures.get(counted, 0) >= FULL.get(counted, 0))


def _yes(reached: bool) -> str:
    return "yes" if reached else "**no**"


def _table(headings: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [headings, ["---"] * len(headings), *rows])


def _read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def tables_of(results: Path) -> Tables:
    files = _read(results / FILES)
    served = sorted(_read(results / SERVICE), key=lambda line: ([*SAID].index(line["part"]), line.get("model", "")))
    return {"not-run": not_run(files, served), "files": files_table(files), "service": service_table(served)}


def take(results: Path, lines: list[Line]) -> None:
    """Put lines that were made elsewhere in the place of those that are kept."""
    for line in lines:
        put_line(results / (SERVICE if "figures" in line else FILES), line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--take", type=Path, nargs="+", default=[])
    given = parser.parse_args()
    for path in given.take:
        take(given.results, _read(path))
    tables = tables_of(given.results)
    if given.write:
        given.write.write_text(page_with(given.write.read_text("utf-8"), tables), encoding="utf-8")
    elif not given.take:
        print("\n\n".join(tables.values()))


if __name__ == "__main__":
    main()
