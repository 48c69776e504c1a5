"""Saved models with damaged files: each is refused, or says exactly what the whole one says.

    python benchmarks/damaged_bundles.py --bundles 20000 --seed 0

The damage is that of disks and transfers: bits, cuts, files that are missing, swapped or longer. The manifest is
damaged like every other file, and nobody makes the sums right again; for that see hostile_bundles.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hostile_bundles
from carp.errors import CarpError
from carp.persist.bundle import read_bundle
from result_lines import tell_report

Files = dict[str, bytes]


def lay_out(folder: Path, files: Files) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def content_of(folder: Path) -> str:
    """Everything a bundle says, as one sum."""
    name, model, baseline, fitted, facts, log, guide, _ = read_bundle(folder)
    total = hashlib.sha256(json.dumps([name, facts, fitted.vocabulary.words], sort_keys=True).encode())
    for module in (model, baseline):
        for key, tensor in module.state_dict().items():
            total.update(key.encode() + tensor.numpy().tobytes())
    arrays = [fitted.user, fitted.item, fitted.rating, fitted.part]
    arrays += [] if guide is None else list(guide.columns().values())
    arrays += [column for docs in (fitted.user_documents, fitted.item_documents) for column in docs.arrays().values()]
    for strings in (fitted.users, fitted.items, fitted.texts):
        arrays += [strings.data, strings.offsets]
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    total.update(log)
    return total.hexdigest()


# ---- ways to damage a bundle: each takes the files and gives them back altered


def flip_bits(files: Files, rng: random.Random) -> Files:
    name = _filled(files, rng)
    content = bytearray(files[name])
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return {**files, name: bytes(content)}


def truncate(files: Files, rng: random.Random) -> Files:
    name = _filled(files, rng)
    return {**files, name: files[name][: rng.randrange(len(files[name]))]}


def cut_out(files: Files, rng: random.Random) -> Files:
    name = _filled(files, rng)
    start = rng.randrange(len(files[name]))
    return {**files, name: files[name][:start] + files[name][start + rng.randrange(1, 200) :]}


def append(files: Files, rng: random.Random) -> Files:
    name = rng.choice(sorted(files))
    return {**files, name: files[name] + rng.randbytes(rng.randrange(1, 20))}


def overwrite(files: Files, rng: random.Random) -> Files:
    name = _filled(files, rng)
    content, start = files[name], rng.randrange(len(files[name]))
    noise = rng.choice([bytes(16), rng.randbytes(16), b"9" * 16])
    return {**files, name: (content[:start] + noise + content[start + 16 :])[: len(content)]}


def delete(files: Files, rng: random.Random) -> Files:
    gone = rng.choice(sorted(files))
    return {name: content for name, content in files.items() if name != gone}


def swap(files: Files, rng: random.Random) -> Files:
    one, other = rng.sample(sorted(files), 2)
    return {**files, one: files[other], other: files[one]}


def drop_a_line(files: Files, rng: random.Random) -> Files:
    name = rng.choice(sorted(name for name in files if name.endswith("json") and files[name]))
    lines = files[name].splitlines(keepends=True)
    lines.pop(rng.randrange(len(lines)))
    return {**files, name: b"".join(lines)}


def _filled(files: Files, rng: random.Random) -> str:
    """A file that is not empty, as the log of a model without epochs is."""
    return rng.choice(sorted(name for name in files if files[name]))


DAMAGES: list[Callable[[Files, random.Random], Files]] = [
    *(flip_bits, truncate, cut_out, append),
    *(overwrite, delete, swap, drop_a_line),
]


def run(numbers: range, model: str = "carp") -> dict[str, Any]:
    """Try the damaged bundles of some numbers; how many ended how, and what must not be."""
    counts: Counter[str] = Counter()
    faults = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        hostile_bundles.make_bundle(folder, model)
        whole, expected = {file.name: file.read_bytes() for file in folder.iterdir()}, content_of(folder)
        for number in numbers:
            damage = DAMAGES[number % len(DAMAGES)]
            lay_out(folder, damage(whole, random.Random(number)))
            found = _told(folder, expected)
            counts[found if found in ("refused", "said the same") else "fault"] += 1
            faults += [] if found in ("refused", "said the same") else [f"{damage.__name__} {number}: {found}"]
    return {"tried": len(numbers), "counts": dict(counts), "faults": faults}


def _told(folder: Path, expected: str) -> str:
    try:
        found = content_of(folder)
    except CarpError as error:
        return "refused" if error.fix else f"refused without a remedy: {error}"
    except Exception as error:
        return f"raised {error!r}"[:200]
    return "said the same" if found == expected else "loaded with other content"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="carp")
    given = parser.parse_args()
    torch.set_num_threads(1)
    return tell_report(run(range(given.seed, given.seed + given.bundles), given.model))


if __name__ == "__main__":
    sys.exit(main())
