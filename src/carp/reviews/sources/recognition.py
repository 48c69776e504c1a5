"""The format of a file, recognised by its first records, and the roles of its columns."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from carp.errors import InputError, UsageError, nearest
from carp.reviews.sources.line_reading import head_lines
from carp.reviews.sources.ratings import read_rating
from carp.reviews.sources.unpacking import PARQUET, ZIP, check_file, first_bytes

FORMATS = ("amazon", "amazon2023", "yelp", "beer", "jsonl", "csv", "parquet", "xlsx")

REQUIRED = ("user", "item", "rating", "text")
ROLES = (*REQUIRED, "time", "split", "title")
USUAL_NAMES = {
    "user": "user userid reviewerid customer customerid reviewer author authorid username profilename",
    "item": "item itemid parentasin asin product productid business businessid sku beerid movieid hotelid",
    "rating": "rating stars overall score starrating",
    "text": "text review reviewtext comment reviewbody body content",
    "time": "time timestamp unixreviewtime date datetime reviewtime reviewdate",
    "split": "split",
    # Of the thing. A column `title` is often the heading of the review, so it has to be asked for.
    "title": "itemname itemtitle productname producttitle businessname beername hotelname movietitle booktitle name",
}
# Amazon's 2023 files name the product twice. All variants of a product share the parent_asin.
JSON_NAMES: dict[str, dict[str, str]] = {
    "amazon": {
        "user": "reviewerID",
        "item": "asin",
        "rating": "overall",
        "text": "reviewText",
        "time": "unixReviewTime",
    },
    "amazon2023": {
        "user": "user_id",
        "item": "parent_asin",
        "variant": "asin",
        "rating": "rating",
        "text": "text",
        "time": "timestamp",
    },
    "yelp": {"user": "user_id", "item": "business_id", "rating": "stars", "text": "text", "time": "date"},
}

PathLike = str | os.PathLike[str]

BEER_LINE = re.compile(rb"\s*((?:beer|review|user)/\w+)\s*:(.*)", re.DOTALL)


def _plain_name(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def guess_column(role: str, names: Sequence[str], usual_names: Mapping[str, str] = USUAL_NAMES) -> str | None:
    plain = {_plain_name(name): name for name in reversed(names)}
    return next((plain[usual] for usual in usual_names[role].split() if usual in plain), None)


def resolve_columns(names: Sequence[str], columns: Mapping[str, str] | None, where: str) -> dict[str, str]:
    """Which column has which role: as asked for, or by the usual names.

    >>> resolve_columns(["customer", "sku", "stars", "comment"], {"item": "sku"}, "reviews.csv")
    {'user': 'customer', 'item': 'sku', 'rating': 'stars', 'text': 'comment'}
    """
    listed = ", ".join(name[:40] for name in names[:30]) or "none"
    chosen: dict[str, str] = {}
    free = [name for name in names if name not in (columns or {}).values()]
    for role in ROLES:
        asked = (columns or {}).get(role)
        if asked is not None and asked not in names:
            raise InputError(
                f"there is no column {asked!r} for the {role}; the columns are {listed}",
                where=where,
                fix=f"name one of them with --column {role}=NAME",
            )
        name = asked or guess_column(role, named_once(free) if role == "title" else free)
        if name is not None:
            chosen[role] = name
    missing = [role for role in REQUIRED if role not in chosen]
    if missing and looks_like_data(names):
        raise InputError(
            f"the first line looks like a review and not like a header: {listed}",
            where=where,
            fix="write a line with the names of the columns above it, or number the columns, as in "
            "--column user=1 --column item=2 --column rating=3 --column text=4",
        )
    if missing:
        raise InputError(
            f"no column is recognised as {' or '.join(missing)}; the columns are {listed}",
            where=where,
            fix=f"say which one it is with {' '.join(f'--column {role}=NAME' for role in missing)}",
        )
    twice = [name for name in chosen.values() if names.count(name) > 1]
    if twice:
        raise InputError(f"the column {twice[0]!r} appears twice", where=where, fix="rename one of them")
    return chosen


def looks_like_data(names: Sequence[str]) -> bool:
    """Whether these are the values of a record rather than the names of columns.

    >>> looks_like_data(["ann", "lamp", "5", "Bright, and cheap."]), looks_like_data(["who", "what", "how", "words"])
    (True, False)
    """
    return len(names) >= len(REQUIRED) and any(
        read_rating(name) is not None or len(name.split()) > 5 or name.rstrip().endswith((".", "!")) for name in names
    )


def numbered_columns(names: Sequence[str], columns: Mapping[str, str] | None) -> bool:
    """Whether the columns are asked for by their numbers, because there is no header."""
    asked = [] if columns is None else list(columns.values())
    return bool(asked) and all(name.isdecimal() for name in asked) and not set(asked) & set(names)


def named_once(names: Sequence[str]) -> list[str]:
    """The names that occur once, in order."""
    times = Counter(names)
    return [name for name in names if times[name] == 1]


def check_columns(columns: Mapping[str, str] | None, format: str) -> None:
    if not columns:
        return
    for role in columns:
        if role not in ROLES:
            raise UsageError(f"there is no role {role!r} for a column", fix=nearest(role, ROLES))
    if len(set(columns.values())) < len(columns):
        raise UsageError("one column cannot play two roles", fix="name a different column for each role")
    if format in (*JSON_NAMES, "beer"):
        raise UsageError(
            f"the format {format} has its own names for columns", fix=f"leave out --format {format} or --column"
        )


def detect_format(path: PathLike) -> str:
    """The format of a file, recognised by its first records. The name of the file does not matter."""
    place = check_file(path)
    first = first_bytes(place)
    if first.startswith((PARQUET, ZIP)):
        return "parquet" if first.startswith(PARQUET) else "xlsx"
    return recognise(head_lines(place), str(place))


def recognise(head: Sequence[bytes], where: str) -> str:
    if not head:
        raise InputError(
            "the file has no content that can be used: its lines are blank, or longer than 4 MiB",
            where=where,
            fix="give a file with one review a line, or with an array of reviews",
        )
    refuse_strange(head[0], where)
    if head[0].lstrip().startswith((b"[", b"{")):
        return _recognise_json(head)
    fields = split_header(head[0])[1]
    recognised = sum(guess_column(role, fields) is not None for role in REQUIRED)
    if recognised >= 3:
        return "csv"
    for line in head:
        if keys := object_keys(line):
            return _recognise_object(keys)
    if any(BEER_LINE.match(line) for line in head):
        return "beer"
    if b"\0" not in head[0] and (len(fields) >= 4 or (recognised and len(fields) > 1)):
        return "csv"
    raise InputError(
        f"the format is not recognised; the file begins with {_shortened(head[0])}",
        where=where,
        fix=f"name it with --format; the formats are {', '.join(FORMATS)}",
    )


def _shortened(line: bytes) -> str:
    text = line[:200].decode("utf-8", "backslashreplace")
    return repr(text[:60] + ("…" if len(text) > 60 else ""))


def refuse_strange(first: bytes, where: str) -> None:
    if first[257:262] == b"ustar":
        raise InputError("this is a tar archive", where=where, fix="unpack it with tar -x and give the file inside")


def object_keys(line: bytes) -> list[str]:
    try:
        value = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return []
    return list(value) if isinstance(value, dict) else []


def keys_of(head: Sequence[bytes]) -> list[str]:
    """The names in all objects among the first lines, in order of appearance."""
    return list(dict.fromkeys(key for line in head for key in object_keys(line)))


def _recognise_json(head: Sequence[bytes]) -> str:
    for line in head:
        if keys := object_keys(line):
            return _recognise_object(keys)
    return "amazon" if b"'reviewerID'" in head[0] else "jsonl"


def _recognise_object(keys: Iterable[str]) -> str:
    names = set(keys)
    if {"reviewerID", "asin"} <= names:
        return "amazon"
    if {"user_id", "business_id", "stars"} <= names:
        return "yelp"
    if {"user_id", "rating"} <= names and names & {"parent_asin", "asin"}:
        return "amazon2023"
    return "jsonl"


def split_header(line: bytes, usual_names: Mapping[str, str] = USUAL_NAMES) -> tuple[str, list[str]]:
    """The delimiter that gives the most meaningful header, and the names in that header."""
    text = line.decode("utf-8", "replace")[:20_000]
    best: tuple[tuple[int, int], str, list[str]] = ((-1, -1), ",", [])
    for delimiter in (",", "\t", ";", "|"):
        try:
            fields = [field.strip() for field in next(csv.reader([text], delimiter=delimiter), [])]
        except csv.Error:
            continue
        merit = sum(guess_column(role, fields, usual_names) is not None for role in usual_names), len(fields)
        if merit > best[0]:
            best = (merit, delimiter, fields)
    return best[1], best[2]
