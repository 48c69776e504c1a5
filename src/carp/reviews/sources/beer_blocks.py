"""The format of the RateBeer and BeerAdvocate data: blocks of `key: value` lines, separated by blank lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.ledger import Check, Record, Rejection, Unusable, number_of
from carp.reviews.sources.line_reading import BLOCK_TOO_LONG, LINE_TOO_LONG, Line, LineBlock, line_fault, read_blocks
from carp.reviews.sources.recognition import BEER_LINE

RATEBEER = RatingScale(4, 20, clip=True, origin="RateBeer's overall score, lower ones counted as 4")
BEERADVOCATE = RatingScale(1, 5, clip=False, origin="BeerAdvocate's overall score")
BEER_KEYS = {
    b"review/profilename": "user",
    b"beer/beerid": "item",
    b"review/overall": "rating",
    b"review/text": "text",
    b"review/time": "time",
    b"beer/name": "title",
}
BEER_NAME = "beer/name"
OLDER_ENCODING = "cp1252"


def beer_scale(head: Sequence[bytes]) -> RatingScale:
    for line in head:
        match = BEER_LINE.match(line)
        if match and match[1].lower() == b"review/overall":
            score, _, out_of = match[2].decode("utf-8", "replace").partition("/")
            try:
                return RATEBEER if number_of(out_of or score) > 5 else BEERADVOCATE
            except Unusable:
                continue
    return RATEBEER


def beer_records(lines: Iterator[Line], out_of: float, check: Check) -> Iterator[Record]:
    for block in read_blocks(lines):
        start = block.lines[0][0]
        try:
            fields = _beer_fields(block)
            rating = _beer_rating(fields.get("rating"), out_of)
        except Unusable as fault:
            yield Rejection.of(check.file, start, str(fault), fault.value)
            continue
        who, what, text, time, title = map(fields.get, ("user", "item", "text", "time", "title"))
        yield check(start, who, what, rating, text, time, None, title)


def _beer_fields(block: LineBlock) -> dict[str, str]:
    """The fields that carp uses. All but the name of the beer must be UTF-8: names often have an older encoding."""
    if block.cut:
        raise Unusable(BLOCK_TOO_LONG)
    parts: dict[str, list[bytes]] = {}
    current: list[bytes] | None = None
    for _, line in block.lines:
        if line is None:
            raise Unusable(LINE_TOO_LONG)
        match = BEER_LINE.match(line)
        if match is None:
            if current is None:
                raise Unusable("line is not of the form key: value")
            current.append(line)
            continue
        role = BEER_KEYS.get(match[1].lower(), "")
        if role in parts and role:
            raise Unusable(f"{role} appears twice in the block")
        current = parts[role] = [match[2].strip()]
    parts.pop("", None)
    title = _beer_name(b" ".join(parts.pop("title", [])))
    for lines in parts.values():
        for line in lines:
            if fault := line_fault(line):
                raise Unusable(fault)
    return {role: b"\n".join(lines).decode() for role, lines in parts.items()} | {"title": title}


def _beer_name(name: bytes) -> str:
    return "" if b"\0" in name else name.decode() if not line_fault(name) else name.decode(OLDER_ENCODING, "replace")


def _beer_rating(value: str | None, out_of: float) -> float:
    if value is None:
        raise Unusable("rating is missing")
    score, slash, highest = value.partition("/")
    if slash and number_of(highest) != out_of:
        raise Unusable(f"rating is not out of {out_of:g}", value)
    return number_of(score)
