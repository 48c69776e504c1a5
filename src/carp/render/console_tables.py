"""What commands read, print and write besides explanations: tables, JSON, files of pairs, the next command."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carp.errors import InputError
from carp.render.wording import neutral

if TYPE_CHECKING:
    from carp.answers import Predictions, Recommendation
    from carp.reviews.sources.ledger import Ledger
    from carp.reviews.sources.pair_files import PairFile

MAX_NEWCOMER_BYTES = 10_000_000
PAIR = ("user", "item")
ADDED = ("rating", "low", "high", "note")
RANKED = ("user", "rank", "item", "predicted", "average")
TITLE = "title"  # the last column, where it is asked for


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Columns side by side, the first `left` of them aligned to the left and the others to the right.

    >>> print(table(["model", "MSE"], [["carp", "0.8521"], ["bias", "10.9000"]]))
    model       MSE
    carp     0.8521
    bias    10.9000
    """
    from rich.cells import cell_len

    lines = [[neutral(cell).replace("\n", " ") for cell in row] for row in ([headings] if any(headings) else [])]
    lines += [[neutral(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]

    def padded(cell: str, place: int) -> str:
        space = " " * (widths[place] - cell_len(cell))
        return cell + space if place < left else space + cell

    return "\n".join("   ".join(padded(cell, place) for place, cell in enumerate(line)).rstrip() for line in lines)


def facts_table(facts: Sequence[tuple[str, str]]) -> str:
    """Facts below one another, each beside its name.

    >>> print(facts_table([("split", "80:20, seed 0"), ("test pairs", "480")]))
    split        80:20, seed 0
    test pairs   480
    """
    return table([], [list(fact) for fact in facts], left=2)


def json_document(value: Any) -> str:
    """One JSON document in ASCII, so that no terminal, pipe or encoding can damage it; NaN is refused."""
    return json.dumps(value, indent=2, allow_nan=False)


def command(name: str, *words: str | Path, options: Sequence[str | Path] = ()) -> str:
    """A carp command, ready to be pasted into the shell that runs this one; ids may begin with a dash.

    >>> command("explain", "my model", "-u1", "i7", options=["--units", "1"]).endswith(
    ...     "explain --units 1 -- 'my model' -u1 i7")
    True
    """
    script = Path(sys.argv[0])
    if shutil.which("carp"):
        program = ["carp"]
    else:
        program = [str(script)] if script.name == "carp" else [sys.executable, "-m", "carp"]
    plain, given = [str(word) for word in words], [str(word) for word in options]
    dashed = any(word.startswith("-") for word in plain)
    return shlex.join([*program, name, *([*given, "--", *plain] if dashed else [*plain, *given])])


def corpus_text(
    facts: dict[str, Any],
    statistics: dict[str, float],
    ledger: Ledger,
    folder: Path,
    size: int,
    items: Ledger | None = None,
) -> str:
    """What was read, rejected and dropped, how ratings were mapped, and the paper's table of what is left."""
    from carp.reviews.corpora.dataset_statistics import statistics_table
    from carp.reviews.text.languages import language_names
    from carp.storage import readable_size

    dropped = facts["dropped"]
    lost = (
        f"{dropped['wordless']:,} without a word, {dropped['duplicates']:,} repeated, {dropped['copies']:,} copied by "
        f"one person, {dropped['k_core']:,} of users or items with fewer than {facts['min_reviews']} reviews"
    )
    known = [("format", facts["format"]), ("columns", columns_text(facts["columns"]))]
    found = ", ".join(dict.fromkeys(facts["encodings"].values()))
    known += [("encoding", f"{found}; if letters look wrong, say another with --encoding")] if found else []
    known += [("language", language_names(facts["languages"])), ("rating rule", facts["scale"]), ("dropped", lost)]
    known += [("copies", told)] if (told := copies_text(facts["copies"])) else []
    rules = facts_table([*known, *([("titles", titles_text(facts["titles"]))] if "titles" in facts else [])])
    listed = [_listed_in(folder / "rejects.jsonl", ledger)] if ledger.rejected else []
    listed += [_listed_in(folder / "rejects-items.jsonl", items)] if items and items.rejected else []
    rejects = f"; rejected records are listed in {' and '.join(listed)}" if listed else ""
    end = f"The corpus is in {folder}, {readable_size(size)}{rejects}."
    about_items = [items_text(facts["items"], items, int(statistics["items"]))] if items else []
    return "\n\n".join([ledger.summary(), rules, *about_items, statistics_table(statistics), end])


def _listed_in(file: Path, ledger: Ledger) -> str:
    """The file that lists rejected records, and how many of them if it does not list all."""
    listed = len(ledger.rejections)
    return str(file) if listed == ledger.rejected else f"{file} (the first {listed:,} of {ledger.rejected:,})"


def columns_text(columns: dict[str, str]) -> str:
    """Which column plays which role.

    >>> columns_text({"user": "customer", "rating": "rating"})
    'user is customer, rating'
    """
    return ", ".join(f"{role} is {name}" if role != name else role for role, name in columns.items())


def copies_text(found: dict[str, Any]) -> str:
    """What was found of copied texts among the reviews that stay, and what becomes of them; empty if nothing was.

    >>> copies_text({"rule": "drop", "exact": 1, "near": 2, "groups": 2})
    '1 exact and 2 near ones stay; a split never divides the copies of a text'
    """
    if not found["groups"]:
        return ""
    divided = "may divide" if found["rule"] == "keep" else "never divides"
    return f"{found['exact']:,} exact and {found['near']:,} near ones stay; a split {divided} the copies of a text"


def items_text(found: dict[str, Any], ledger: Ledger, items: int) -> str:
    """What was read about the items, and for how many of them there is what."""
    columns = columns_text(found["columns"])
    known = ", ".join(f"{found[name]:,} {name}" for name in ("titles", "categories", "descriptions", "pictures"))
    facts = [
        ("columns", columns),
        ("described", f"{found['described']:,} of {items:,} items; {known}"),
        ("not used", f"{found['without_reviews']:,} without reviews, {found['repeated']:,} repeated"),
    ]
    facts += [("left out", f"{count:,} × {reason}") for reason, count in found["left_out"].items()]
    if found["same_title"]:
        facts.append(
            ("same title", f"{found['same_title']:,} items share theirs with another; their ids tell them apart")
        )
    return f"items: {ledger.summary()}\n{facts_table(facts)}"


def titles_text(found: dict[str, Any]) -> str:
    """Where the titles of things come from, and how far the reviews agree on them.

    >>> titles_text({"column": "name", "taken": True, "items": 2, "reviews": 3})
    'from the column name of the reviews; 3 reviews of 2 items say another title than the first, which counts'
    """
    others = f"{found['reviews']:,} reviews of {found['items']:,} items say another title than the first"
    if not found["taken"]:
        return (
            f"none; the column {found['column']} does not name the items, because {others}. "
            f"If it does, say so with --column title={found['column']}"
        )
    return f"from the column {found['column']} of the reviews" + (f"; {others}, which counts" * bool(found["reviews"]))


def evaluation_text(found: dict[str, Any]) -> str:
    """Test errors beside those of the references, and what the difference means in words."""
    order = dict.fromkeys([found["model"], "bias", "mean"])
    step = own_step(found["rating_range"], found["levels"])
    scaled = {"mse": step * step, "rmse": step, "mae": step}
    rows = [[name, *(f"{found['rows'][name][error] * by:.4f}" for error, by in scaled.items())] for name in order]
    parts = [table(["model", "MSE", "RMSE", "MAE"], rows), ""]
    if found["model"] not in ("bias", "mean"):
        parts += [_verdict(found, step * step), ""]
    facts = [("test pairs", f"{found['test_pairs']:,}"), ("split", str(found["split"]))]
    facts.append(("scale", "ratings from {:g} to {:g}".format(*found["rating_range"])))
    if found.get("sentiment_auc") is not None:
        auc = f"{found['sentiment_auc']:.3f} (how well the two capsules tell liked from disliked things; 0.5 is chance)"
        facts.append(("sentiment AUC", auc))
    return "\n".join([*parts, facts_table(facts)])


def own_step(rating_range: Sequence[float], levels: int) -> float:
    """What one star of the model is on the scale of the data: errors of stars times this are errors of ratings.

    >>> own_step((0, 100), 5), own_step((1, 5), 5)
    (25.0, 1.0)
    """
    low, high = rating_range
    return (high - low) / (levels - 1)


def _verdict(found: dict[str, Any], squared_step: float) -> str:
    name, (low, high) = found["model"], (squared_step * end for end in found["mse_minus_bias_interval"])
    if high < 0:
        judged = f"{name} is better than the biases"
    elif low > 0:
        judged = f"{name} is worse than the biases"
    else:
        judged = f"{name} and the biases cannot be told apart on these pairs"
    ratio = found["ratio_to_bias"]
    share = "" if ratio is None else f"The MSE of {name} is {ratio:.3f} times that of the biases. "
    return (
        f"{share}The difference lies between {low:+.4f} and {high:+.4f} with 95 % confidence\n"
        f"(paired bootstrap over the test pairs): {judged}."
    )


def predictions_csv(file: PairFile, found: Predictions, titles: Sequence[str | None] | None = None) -> str:
    """The pairs with their rating, interval and note, then the columns that came with them.

    Lines end in a newline alone. With `titles`, the title of each item stands before those columns.
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    added = [*ADDED, *([TITLE] if titles is not None else [])]
    writer.writerow(
        [*PAIR, *added, *(f"given_{name}" if name in (*PAIR, *added) else name for name in file.extra_names)]
    )
    named = [()] * len(file.pairs) if titles is None else [(title or "",) for title in titles]
    numbers = zip(found, *found.intervals(), strict=True)
    for pair, three, note, name, extra in zip(file.pairs, numbers, found.notes, named, file.extras, strict=True):
        writer.writerow([*pair, *("" if n is None else f"{n:.6f}" for n in three), note or "", *name, *extra])
    return written.getvalue()


def recommendations_csv(
    everybody: Iterable[tuple[str, Sequence[Recommendation]]], *, titles: bool = False
) -> Iterator[str]:
    """What each person is recommended, one piece of the file a person; an unknown average is left empty."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([*RANKED, TITLE] if titles else RANKED)
    for user, found in everybody:
        for rank, one in enumerate(found, 1):
            average = "" if one.item_mean is None else f"{one.item_mean:.6f}"
            writer.writerow(
                [user, rank, one.item, f"{one.rating:.6f}", average, *([one.title or ""] if titles else [])]
            )
        yield written.getvalue()
        written.seek(0)
        written.truncate()


def read_newcomer(file: str) -> list[str]:
    """A newcomer's reviews, separated by blank lines, from a file or, for `-`, from standard input."""
    where = "standard input" if file == "-" else file
    if file == "-":
        text = _decoded(sys.stdin.buffer.read(MAX_NEWCOMER_BYTES + 1), where)
    else:
        text = _utf8(Path(file), most=MAX_NEWCOMER_BYTES + 1)
    if len(text.encode()) > MAX_NEWCOMER_BYTES:
        raise InputError("this is more than 10 MB of reviews", where=where, fix="give the reviews of one person")
    reviews = [part.strip() for part in re.split(r"\n[ \t\r]*\n", text) if part.strip()]
    if not reviews:
        raise InputError("there are no words in it", where=where, fix="write a few sentences about things you know")
    return reviews


def _utf8(path: Path, most: int = -1) -> str:
    try:
        with path.open("rb") as file:
            return _decoded(file.read(most), str(path))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError("there is no such file", where=str(path), fix="check the path") from None
    except OSError as error:
        fix = "give a file that can be read"
        raise InputError(f"cannot be read ({error.strerror})", where=str(path), fix=fix) from None


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError("the text is not UTF-8", where=f"{where}, line {line}", fix="save it as UTF-8") from None
