"""Malformed reviews in every format that is read: each is accepted, or rejected with its line and its reason.

    python benchmarks/damaged_records.py --records 100000 --seed 0

In files of text the bytes of records are damaged. In tables it is the values of their cells. The first record is good
and so are the last ones: damage must not end the reading before them.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import io
import json
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fuzz_targets
from carp.errors import CarpError
from carp.reviews.sources.formats import iterate_reviews, read_reviews
from carp.reviews.sources.ledger import Rejection, Review
from carp.reviews.sources.request import SourceRequest

ROW = {"user": "a", "item": "b", "rating": 4, "text": "fine"}
BLOCK = b"beer/beerId: 1\nreview/overall: 13/20\nreview/profileName: a\nreview/text: fine\n"
SPICE = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\r",
    b",",
    b":",
    b"/",
    b"null",
]
SPICE += [b"NaN", b"1e999", b"-1", b"99999999999999999999", b"\xef\xbb\xbf", b"'", b";", b"\t", b" ", b"\xe2\x80\xa8"]
STRANGE: list[Any] = [None, "", " ", "nan", "inf", "-1", "8/10", "x" * 1001, 10**9, -1, True, 2.5, 0]
STRANGE += ["a\u2028b", "<script>", "=1+1", datetime.date(2017, 1, 2), datetime.datetime(1, 1, 1), "\ufffd", "五"]
ANY_RATING = (-1e308, 1e308)
Made = tuple[bytes, int | None]  # a file, and how many records it has where that is known


@dataclass(frozen=True)
class Format:
    name: str  # as it is asked for
    make: Callable[[random.Random, int], Made]
    whole_end: bool = True  # whether damage before it cannot reach the last record


def damaged(record: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 4)):
        place, width = chance.randrange(len(record) + 1), chance.randrange(8)
        filling = chance.choice([chance.choice(SPICE), chance.randbytes(chance.randrange(6)), b""])
        record = record[:place] + filling + record[place + width :]
    return record


def spoiled(row: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A row with one or two values in it that nobody would write."""
    chosen = {chance.choice([*row]) for _ in range(chance.randint(1, 2))}
    return {name: chance.choice(STRANGE) if name in chosen else value for name, value in row.items()}


# ---- files


def in_lines(record: bytes, end: bytes = b"\n", head: bytes = b"") -> Callable[[random.Random, int], Made]:
    def make(chance: random.Random, count: int) -> Made:
        records = [record, *(damaged(record, chance) for _ in range(count)), record]
        content = head + end.join(records) + b"\n"
        lines = sum(bool(line.strip()) for line in content.split(b"\n")) if end == b"\n" and not head else None
        return content, lines

    return make


def in_array(chance: random.Random, count: int) -> Made:
    one = json.dumps(ROW).encode()
    return b"[\n" + b",\n".join([one, *(damaged(one, chance) for _ in range(count)), one]) + b"\n]\n", None


def packed(pack: Callable[[bytes], bytes], record: bytes) -> Callable[[random.Random, int], Made]:
    def make(chance: random.Random, count: int) -> Made:
        content, lines = in_lines(record)(chance, count)
        return pack(content), lines

    return make


def in_encoding(name: str) -> Callable[[random.Random, int], Made]:
    """Text whose characters all belong to the encoding, damaged as text."""
    record = ',"An ""é"" ï ö",4,'

    def make(chance: random.Random, count: int) -> Made:
        rows = ["user,text,rating,item"]
        for number in range(count + 2):
            spice = chance.choice(["", ",", '"', "é", "\t", ";;", "x,y"]) if 0 < number <= count else ""
            rows.append(f"ünal{number}{record.replace('ï', spice)}b{number}")
        return "\n".join([*rows, ""]).encode(name), None

    return make


def in_table(write: Callable[..., bytes]) -> Callable[[random.Random, int], Made]:
    def make(chance: random.Random, count: int) -> Made:
        rows = [ROW, *(spoiled(ROW, chance) for _ in range(count)), ROW]
        filled = [row for row in rows if any(value is not None for value in row.values())]
        return write(*filled), len(filled)

    return make


def parquet(*rows: dict[str, Any]) -> bytes:
    """A column has one kind of value, so each is text, and missing where it was."""
    import polars

    out = io.BytesIO()
    columns = {n: [None if row[n] is None else str(row[n]) for row in rows] for n in rows[0]}
    polars.DataFrame(columns).write_parquet(out)
    return out.getvalue()


def workbook(*rows: dict[str, Any]) -> bytes:
    """Excel holds 32,767 characters in a cell, and no date before 1900."""
    cells = [
        {n: v[:32_000] if isinstance(v, str) else str(v) if isinstance(v, datetime.date) else v for n, v in row.items()}
        for row in rows
    ]
    return fuzz_targets.workbook(*cells)


LINE = json.dumps(ROW).encode()
AMAZON, NEWER, YELP = (json.dumps(one).encode() for one in (fuzz_targets.AMAZON, fuzz_targets.NEWER, fuzz_targets.YELP))
CSV = b'a,b,4,"a ""fine"" one",2017-01-02'
FORMATS = {
    "jsonl": Format("jsonl", in_lines(LINE)),
    "amazon": Format("amazon", in_lines(AMAZON)),
    "amazon2023": Format("amazon2023", in_lines(NEWER)),
    "yelp": Format("yelp", in_lines(YELP)),
    "beer": Format("beer", in_lines(BLOCK, b"\n\n")),
    "csv": Format("csv", in_lines(CSV, b"\n", b"user,item,rating,text,time\n"), whole_end=False),
    "tsv": Format("csv", in_lines(b"a\tb\t4\tfine", b"\n", b"user\titem\trating\ttext\n"), whole_end=False),
    "array": Format("auto", in_array),
    "gzip": Format("jsonl", packed(lambda content: gzip.compress(content, mtime=0), LINE)),
    "zstd": Format("amazon", packed(fuzz_targets.zstd, AMAZON)),
    "zip": Format("yelp", packed(lambda content: fuzz_targets.zipped(reviews=content), YELP)),
    "cp1252": Format("auto", in_encoding("cp1252"), whole_end=False),
    "utf-16": Format("auto", in_encoding("utf-16"), whole_end=False),
    "parquet": Format("parquet", in_table(parquet)),
    "xlsx": Format("auto", in_table(workbook)),
}


def run(name: str, records: int, seed: int = 0) -> dict[str, Any]:
    """Damage so many records of a format; how many were accepted and rejected, and what does not add up."""
    content, known = FORMATS[name].make(random.Random(f"{seed} {name}"), records)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reviews"
        path.write_bytes(content)
        try:
            found = _read(path, FORMATS[name], known)
        except CarpError as refusal:
            found = {"accepted": 0, "rejected": 0, "wrong": [f"the whole file was refused: {refusal}"[:300]]}
        except Exception as error:
            found = {"accepted": 0, "rejected": 0, "wrong": [f"raised {error!r}"[:300]]}
    if found["rejected"] < records // 20:
        found["wrong"].append(f"only {found['rejected']} of {records} were rejected: the damage is too mild")
    counts = {f"{name}: {end}": found[end] for end in ("accepted", "rejected")}
    return {"tried": records, "counts": counts, "faults": [f"{name}, seed {seed}: {one}" for one in found["wrong"]]}


def _read(path: Path, format: Format, known: int | None) -> dict[str, Any]:
    seen = list(iterate_reviews(path, SourceRequest(format=format.name, rating_range=ANY_RATING)))
    reviews = read_reviews(path, format=format.name, rating_range=ANY_RATING)
    ledger = reviews.ledger
    rejected = [one for one in seen if isinstance(one, Rejection)]
    sums = {
        "accepted and rejected are not what was read": ledger.read == ledger.accepted + ledger.rejected == len(seen),
        "reviews were lost": ledger.accepted == len(reviews) == len(reviews.texts) == len(reviews.ratings),
        "records were lost": known is None or ledger.read == known,
        "a rejection has no line or no reason": all(one.line > 0 and one.reason for one in rejected),
        "the first record was rejected": isinstance(seen[0], Review),
        "the last record was not reached": not format.whole_end or isinstance(seen[-1], Review),
    }
    json.dumps([reviews.users, reviews.items, reviews.texts], ensure_ascii=False).encode()
    ledger.save(path.with_name("rejects.jsonl"))
    wrong = [what for what, holds in sums.items() if not holds]
    return {"accepted": ledger.accepted, "rejected": ledger.rejected, "wrong": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=15_000, help="of all formats together")
    parser.add_argument("--formats", nargs="+", choices=[*FORMATS], default=[*FORMATS])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    reports = [run(name, given.records // len(given.formats), given.seed) for name in given.formats]
    print(json.dumps(reports, indent=1))
    return 1 if any(report["faults"] for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
