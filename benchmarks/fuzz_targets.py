"""What is fuzzed: for each kind of file a few good ones, and what is done with any bytes in their place.

A target takes bytes. It may refuse them by a CarpError and nothing else; and what it reads must add up.
"""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import carp
from carp.errors import CarpError
from carp.persist.bundle_checks import check_facts
from carp.reviews.corpora.column_checks import ColumnFault
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.item_files import read_items
from carp.reviews.sources.pair_files import read_pairs
from carp.storage import MANIFEST, opened_folder, save_arrays, seal
from made_up_reviews import write_shop

ROW = {"user": "ann", "item": "b-1", "rating": 4, "text": 'It is "fine", they said.', "time": "2017-01-02"}
AMAZON = {"reviewerID": "ann", "asin": "b", "overall": 5.0, "reviewText": "It works.", "unixReviewTime": 1}
NEWER = {"user_id": "ann", "parent_asin": "b", "rating": 5, "text": "It works.", "timestamp": 1000}
YELP = {"user_id": "ann", "business_id": "b", "stars": 5, "text": "It works.", "date": "2017-01-02 03:04:05"}
ITEM = {
    "asin": "b-1",
    "title": "Strings",
    "categories": [["Music"]],
    "description": "Light.",
    "imUrl": "http://a/b.jpg",
}
PAIR = {"user": "ann", "item": 7, "more": "x"}
BEER = "beer/name: Ale\nbeer/beerId: 1\nreview/overall: 13/20\nreview/profileName: ann\nreview/text: fine\n"
FOLDER = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
MOST_UNPACKED = 1 << 20  # enough for what is tried here


@dataclass(frozen=True)
class Target:
    seeds: Callable[[], list[bytes]]
    use: Callable[[bytes], None]


@cache
def workplace() -> Path:
    """A folder of this process, in memory where there is one."""
    return Path(tempfile.mkdtemp(prefix="carp-fuzz-", dir=FOLDER))


def in_file(name: str, content: bytes) -> Path:
    path = workplace() / name
    path.write_bytes(content)
    return path


# ---- reviews, things and pairs


def reading(format: str) -> Callable[[bytes], None]:
    def use(content: bytes) -> None:
        path = in_file("reviews", content)
        reviews = read_reviews(path, format=format, rating_range=(-1e308, 1e308), max_bytes=MOST_UNPACKED)
        ledger = reviews.ledger
        assert ledger.read == ledger.accepted + ledger.rejected, "records were lost"
        assert ledger.accepted == len(reviews) == len(reviews.texts) == len(reviews.ratings), "reviews were lost"
        json.dumps([reviews.users, reviews.items, reviews.texts], ensure_ascii=False).encode()

    return use


def read_things(content: bytes) -> None:
    ledger = read_items(in_file("items", content), max_bytes=MOST_UNPACKED).ledger
    assert ledger.read == ledger.accepted + ledger.rejected, "records were lost"


def read_questions(content: bytes) -> None:
    found = read_pairs(in_file("pairs", content))
    assert len(found.pairs) == len(found.extras) or not found.extra_names, "rows were lost"


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def table(*rows: dict[str, Any], mark: str = ",") -> bytes:
    import csv

    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=mark)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def parquet(*rows: dict[str, Any]) -> bytes:
    import polars

    out = io.BytesIO()
    polars.DataFrame([*rows]).write_parquet(out)
    return out.getvalue()


def workbook(*rows: dict[str, Any]) -> bytes:
    import openpyxl

    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in ([*rows[0]], *([*one.values()] for one in rows)):
        book.active.append(row)
    book.save(out)
    return out.getvalue()


def zipped(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def zstd(content: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(content)


def some_reviews() -> list[bytes]:
    return [lines(ROW, ROW), lines(AMAZON), lines(NEWER), lines(YELP), table(ROW, ROW), BEER.encode()]


# ---- folders of carp


@cache
def made(kind: str) -> Path:
    """A small sealed folder; the file in question is replaced in it again and again."""
    folder = workplace() / kind
    if kind == "corpus":
        write_shop(workplace() / "shop.jsonl")
        carp.build_corpus(carp.read_reviews(workplace() / "shop.jsonl"), min_reviews=1).save(folder)
    else:
        folder.mkdir()
        (folder / "file").write_bytes(b"content")
        seal(folder, kind)
    return folder


def use_manifest(content: bytes) -> None:
    folder = made("thing")
    (folder / MANIFEST).write_bytes(content)
    with opened_folder(folder, "thing") as opened:
        opened.check_all()
        assert opened.read("file") == b"content" if "file" in opened else True


def manifests() -> list[bytes]:
    folder = made("thing")
    seal(folder, "thing")
    return [(folder / MANIFEST).read_bytes(), b'{"kind": "thing", "version": 1, "files": {}}']


def use_json(content: bytes) -> None:
    folder = made("thing")
    (folder / "file").write_bytes(content)
    seal(folder, "thing")
    with opened_folder(folder, "thing") as opened:
        facts = opened.json("file")
    if isinstance(facts, dict):
        _about_facts(facts)


def _about_facts(facts: dict[str, Any]) -> None:
    """As in a bundle, whose reader turns what these raise into an error of its own."""
    try:
        check_facts(facts)
    except (ColumnFault, KeyError, TypeError, AttributeError, ValueError):
        return


def facts() -> list[bytes]:
    whole = {"seed": 0, "split_seed": 0, "max_words": 9, "levels": 5, "model": "carp", "degree_scale": [1.0, 2.0]}
    whole |= {"fit": {}, "text": {}, "training": {"epochs": 1}, "config": {"viewpoints": 2}, "margin": 0.5}
    whole |= {"scale": {"low": 1, "high": 5}, "data": {"corpus": {}, "split": "train", "fingerprint": "a"}}
    return [json.dumps(whole).encode(), b"{}", b"[1, 2.5, null, true]"]


def use_tensors(content: bytes) -> None:
    folder = made("thing")
    (folder / "file").write_bytes(content)
    seal(folder, "thing")
    with opened_folder(folder, "thing") as opened:
        for array in opened.arrays("file").values():
            array.sum() if array.dtype.kind in "fiu" else array.tobytes()


def tensors() -> list[bytes]:
    path = workplace() / "tensors"
    found = []
    two: dict[str, np.ndarray] = {"b": np.zeros((2, 3), np.float32), "c": np.ones(1, np.int8)}
    some: list[dict[str, np.ndarray]] = [{"a": np.arange(6, dtype=np.int32)}, two]
    for arrays in some:
        save_arrays(path, arrays)
        found.append(path.read_bytes())
    return found


def use_column(content: bytes) -> None:
    folder = made("corpus")
    before = (folder / "user.npy").read_bytes()
    try:
        (folder / "user.npy").write_bytes(content)
        seal(folder, "corpus")
        for mmap in (True, False):
            carp.Corpus.load(folder, mmap=mmap)
    finally:
        (folder / "user.npy").write_bytes(before)


def columns() -> list[bytes]:
    return [(made("corpus") / name).read_bytes() for name in ("user.npy", "rating.npy")]


TARGETS: dict[str, Target] = {
    "manifest": Target(manifests, use_manifest),
    "json": Target(facts, use_json),
    "safetensors": Target(tensors, use_tensors),
    "columns": Target(columns, use_column),
    "any": Target(some_reviews, reading("auto")),
    "jsonl": Target(lambda: [lines(ROW, ROW), lines(AMAZON)], reading("jsonl")),
    "amazon": Target(lambda: [lines(AMAZON, AMAZON)], reading("amazon")),
    "amazon2023": Target(lambda: [lines(NEWER, NEWER)], reading("amazon2023")),
    "yelp": Target(lambda: [lines(YELP, YELP)], reading("yelp")),
    "array": Target(lambda: [json.dumps([ROW, ROW], indent=1).encode(), json.dumps([ROW]).encode()], reading("auto")),
    "csv": Target(lambda: [table(ROW, ROW), table(ROW, mark="\t"), table(ROW, mark=";")], reading("csv")),
    "encodings": Target(lambda: [table(ROW).decode().encode(name) for name in ("utf-16", "cp1252")], reading("auto")),
    "beer": Target(lambda: [f"{BEER}\n{BEER}".encode()], reading("beer")),
    "parquet": Target(lambda: [parquet(ROW, ROW), parquet(AMAZON)], reading("parquet")),
    "xlsx": Target(lambda: [workbook(ROW, ROW)], reading("xlsx")),
    "zip": Target(lambda: [zipped(a=lines(ROW), b=lines(ROW)), zipped(a=table(ROW))], reading("auto")),
    "gzip": Target(lambda: [gzip.compress(one, mtime=0) for one in some_reviews()[:2]], reading("auto")),
    "zstd": Target(lambda: [zstd(one) for one in some_reviews()[:2]], reading("auto")),
    "items": Target(lambda: [lines(ITEM), repr(ITEM).encode() + b"\n", table(ITEM)], read_things),
    "pairs": Target(
        lambda: [table({"user": "a", "item": "b", "more": 1}), lines({"user": 1, "item": 2})], read_questions
    ),
}


def try_one(target: Target, content: bytes) -> str:
    """`read` or `refused`; anything else is raised."""
    try:
        target.use(content)
    except CarpError as refusal:
        if not refusal.fix:
            raise AssertionError(f"refused without a remedy: {refusal}") from refusal
        return "refused"
    return "read"
