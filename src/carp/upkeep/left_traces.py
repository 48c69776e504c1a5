"""Whether anything of a person is left in the files of a saved model: looked for byte by byte."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from carp.errors import InputError

CERTAIN = 8  # bytes: a shorter sequence may stand in numbers and other words by chance
NAMES = re.compile(rb'"[A-Za-z0-9_.]+":')  # of settings and tensors: carp gives them, whoever is in the model
STRINGS = "U8"  # the tensors that hold ids and texts


@dataclass
class TraceSearch:
    """What a search through all files of a folder saw."""

    files: int = 0
    bytes: int = 0
    sequences: int = 0
    by_others: int = 0  # times that others have written the same
    by_chance: int = 0  # times that one stands in names of settings and tensors, or a short one in numbers


def search_traces(folder: Path, sequences: Iterable[str], what: str) -> TraceSearch:
    """Look for byte sequences in all files of a folder; one that cannot be anybody else's is refused.

    Args:
        folder: A saved model, from which the person's records have been taken out.
        sequences: The person's id and texts.
        what: Whose they are, for the error.

    Returns:
        How much was looked through, and what was found that belongs to others.
    """
    wanted = sorted({one.encode() for one in sequences if one})
    search = TraceSearch(sequences=len(wanted))
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        search.files, search.bytes = search.files + 1, search.bytes + len(content)
        for one in wanted:
            for place in _places(content, one, as_json=file.suffix in (".json", ".jsonl")):
                _judge(search, file, content, place, one, what)
    return search


def _places(content: bytes, one: bytes, *, as_json: bool) -> Iterator[int]:
    forms = {one, json.dumps(one.decode(), ensure_ascii=False)[1:-1].encode()} if as_json else {one}
    for form in forms:
        place = content.find(form)
        while place >= 0:
            yield place
            place = content.find(form, place + 1)


def _judge(search: TraceSearch, file: Path, content: bytes, place: int, one: bytes, what: str) -> None:
    others = file.suffix == ".safetensors" and any(a <= place < b for a, b in _stretches_of_strings(content))
    if others or file.name == "tokeniser.json":
        search.by_others += 1  # records of the person are gone: these strings and words belong to others
    elif len(one) < CERTAIN or _names(file, content, place, len(one)):
        search.by_chance += 1
    else:
        fix = "train the model again without this person"
        raise InputError(f"something of {what} is still in {file.name}, at byte {place:,}", where=str(file), fix=fix)


def _names(file: Path, content: bytes, place: int, size: int) -> bool:
    """Whether what stands there is the name of a setting or of a tensor, or inside of one."""
    end = len(content) if file.suffix in (".json", ".jsonl") else _end_of_header(file, content)
    return any(name.start() < place <= name.end() - 2 - size for name in NAMES.finditer(content, 0, end))


def _end_of_header(file: Path, content: bytes) -> int:
    return 8 + int(struct.unpack_from("<Q", content)[0]) if file.suffix == ".safetensors" else 0


def _stretches_of_strings(content: bytes) -> Iterator[tuple[int, int]]:
    """Where a safetensors file holds strings."""
    size = struct.unpack_from("<Q", content)[0]
    for name, facts in json.loads(content[8 : 8 + size]).items():
        if name != "__metadata__" and facts["dtype"] == STRINGS:
            begin, end = facts["data_offsets"]
            yield 8 + size + begin, 8 + size + end
