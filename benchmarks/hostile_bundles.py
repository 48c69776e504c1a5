"""Saved models edited with intent, their sums made right again: each is refused in words or answers in numbers.

    python benchmarks/hostile_bundles.py --bundles 10000 --seed 0

Every bundle is loaded in a process that may die. It predicts, recommends, explains and is saved again. What ends by a
signal or in an exception that is no CarpError is reported with the number that makes the same bundle again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import carp
from carp.errors import CarpError
from carp.storage import MANIFEST, load_arrays, save_arrays, seal
from made_up_reviews import shop_reviews
from result_lines import tell_report

TINY = {"dimension": 8, "filters": 6, "latent_size": 4, "viewpoints": 2, "epochs": 1, "min_reviews": 1}
STRANGE = [0, 1, -1, 2, 7, 127, 128, -128, 255, 2**15, 2**31 - 1, -(2**31), 2**31, 2**40, 2**62, -(2**62)]
KINDS = ["int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64", "bool"]
SECONDS = 60  # that one bundle may take
Files = dict[str, bytes]


def make_bundle(folder: Path, model: str = "carp") -> None:
    """A small model of a made-up shop."""
    settings = TINY if model == "carp" else {"min_reviews": 1}
    carp.Recommender(model, device="cpu", **settings).fit(shop_reviews(), progress=False).save(folder)


# ---- edits


def changed_entries(array: np.ndarray, rng: random.Random) -> np.ndarray:
    edited = array.copy().reshape(-1)
    for _ in range(rng.choice([1, 1, 3, 20])):
        if len(edited):
            edited[rng.randrange(len(edited))] = _value(edited.dtype, rng)
    return edited.reshape(array.shape)


def _value(kind: np.dtype, rng: random.Random) -> Any:
    if kind.kind == "f":
        return np.array(rng.choice([np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-40, 0.0, 6.5, -3.0])).astype(kind)
    return np.array(rng.choice(STRANGE) if rng.random() < 0.7 else rng.randrange(-50, 500)).astype(kind)


def shortened(array: np.ndarray, rng: random.Random) -> np.ndarray:
    return array[: rng.randrange(len(array) + 1)] if array.ndim else array


def lengthened(array: np.ndarray, rng: random.Random) -> np.ndarray:
    return np.concatenate([array, array[-rng.randrange(1, 9) :]]) if array.ndim and len(array) else array


def of_another_kind(array: np.ndarray, rng: random.Random) -> np.ndarray:
    with np.errstate(all="ignore"):
        return array.astype(rng.choice(KINDS))


def of_another_shape(array: np.ndarray, rng: random.Random) -> np.ndarray:
    return rng.choice(
        [array.reshape(-1), array.reshape(1, -1), array[None], array.reshape(-1, 1), array.reshape(-1)[:0]]
    )


def shuffled(array: np.ndarray, rng: random.Random) -> np.ndarray:
    return np.random.default_rng(rng.randrange(2**32)).permutation(array) if array.ndim else array


def with_noise(array: np.ndarray, rng: random.Random) -> np.ndarray:
    noise = np.frombuffer(rng.randbytes(array.nbytes), np.uint8)
    return noise.view(array.dtype).reshape(array.shape) if array.dtype != bool and array.ndim else array


EDITS: list[Callable[[np.ndarray, random.Random], np.ndarray]] = [
    *[changed_entries] * 4,
    *(shortened, lengthened, of_another_kind, of_another_shape, shuffled, with_noise),
]


def edit_arrays(files: Files, folder: Path, rng: random.Random) -> None:
    name = rng.choice(sorted(name for name in files if name.endswith(".safetensors")))
    arrays = load_arrays(folder / name)
    for _ in range(rng.choice([1, 1, 2])):
        column = rng.choice(sorted(arrays))
        arrays[column] = rng.choice(EDITS)(arrays[column], rng)
    if rng.random() < 0.05:
        arrays.pop(rng.choice(sorted(arrays)))
    if rng.random() < 0.05:
        arrays[rng.choice(["extra", "user.words2", "\u0000", ""])] = np.zeros(3)
    save_arrays(folder / name, arrays)


def edit_texts(files: Files, folder: Path, rng: random.Random) -> None:
    """Other texts of the same lengths, so that words no longer stand where they stood."""
    arrays = load_arrays(folder / "records.safetensors")
    texts, offsets = arrays["texts_bytes"].copy(), arrays["texts_offsets"]
    filling = rng.choice([b"\n", b" ", b".", b"x", b". ", b"\n\n ! ", b"Good. ", "ä".encode(), b"\xe2\x80\x83"])
    first = rng.choice([0, rng.randrange(len(offsets) - 1)])
    last = rng.choice([len(offsets) - 1, min(first + rng.choice([1, 5, 50]), len(offsets) - 1)])
    for begin, end in zip(offsets[first:last].tolist(), offsets[first + 1 : last + 1].tolist(), strict=True):
        begin += rng.choice([0, 0, (end - begin) // 2])
        whole, rest = divmod(end - begin, len(filling))
        texts[begin:end] = np.frombuffer(filling * whole + b" " * rest, np.uint8)
    save_arrays(folder / "records.safetensors", {**arrays, "texts_bytes": texts})


def edit_json(files: Files, folder: Path, rng: random.Random) -> None:
    name = rng.choice(["model.json", "model.json", "tokeniser.json"])
    value = json.loads(files[name])
    _edit_value(value, rng)
    text = json.dumps(value)
    if rng.random() < 0.1:
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice(["NaN", "1e999", "\\ud800", "[" * 3000, "9" * 5000]) + text[place:]
    (folder / name).write_text(text)


def _edit_value(value: Any, rng: random.Random) -> None:
    """Change something, somewhere deep inside."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.9:
            value = value[key]
            continue
        break
    strange: list[Any] = [None, True, -1, 0, 2, 10**6, 10**30, 1e308, -0.5, "", "many", [], {}, [1], {"a": 1}, "\ud800"]
    if rng.random() < 0.2 and isinstance(value, dict):
        value.pop(key)
    else:
        value[key] = rng.choice(strange)


def edit_headers(files: Files, folder: Path, rng: random.Random) -> None:
    """Bytes of a safetensors header, its sums right."""
    name = rng.choice(sorted(name for name in files if name.endswith(".safetensors")))
    content = bytearray(files[name])
    end = 8 + int.from_bytes(content[:8], "little")
    for _ in range(rng.choice([1, 2, 5])):
        content[rng.randrange(end)] = rng.choice(b'0123456789"[]{},:FIU' if rng.random() < 0.8 else rng.randbytes(1))
    (folder / name).write_bytes(bytes(content))


def hostile(files: Files, folder: Path, seed: int) -> str:
    """Write the bundle that a number stands for; what was edited."""
    rng = random.Random(seed)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    edit = rng.choices([edit_arrays, edit_texts, edit_json, edit_headers], [6, 2, 2, 1])[0]
    edit(files, folder, rng)
    seal(folder, "model")
    return edit.__name__


# ---- what is asked of them


def use(folder: Path) -> str:
    """Load a model and ask everything of it: `refused` in words, or `answered`."""
    try:
        model = carp.load(folder, device="cpu")
    except CarpError:
        return "refused"
    known = model.fitted_corpus
    user, item = known.users[len(known.users) // 2], known.items[0]
    try:
        ratings = list(model.predict([(user, item), (known.users[0], known.items[-1 % len(known.items)]), ("?", "?")]))
        assert all(np.isfinite(ratings)), f"ratings that are none: {ratings}"
        model.recommend(user, 3)
        if model.model.explained_by:
            model.explain(user, item).as_dict()
            model.summary(user, item)
            model.profile(user=user), model.profile(item=item)
            model.aspects(pairs=3)
        model.similar(item, 2)
        model.predict_for(str(known.texts[0]) + " " + known.vocabulary.words[0], [item]) if model.model.separates else 0
        model.evaluate()
        model.save(folder.parent / "again", overwrite=True)
    except CarpError:
        return "answered in words"
    return "answered"


def _child(whole: Path, numbers: range) -> None:
    torch.set_num_threads(1)
    files = {file.name: file.read_bytes() for file in whole.iterdir() if file.name != MANIFEST}
    folder = whole.parent / "edited"
    folder.mkdir(exist_ok=True)
    for number in numbers:
        signal.alarm(SECONDS)
        hostile(files, folder, number)
        try:
            found = use(folder)
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            found = f"raised {type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error}"[:200]
        print(number, " ".join(found.split()), flush=True)


def run(numbers: range, model: str = "carp") -> dict[str, Any]:
    """Try the bundles of some numbers; how many ended how, and what must not be."""
    counts: Counter[str] = Counter()
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / "whole"
        make_bundle(whole, model)
        left = numbers
        while left:
            lines, code = _in_a_process(whole, left)
            for number, words in (line.split(" ", 1) for line in lines):
                counts[words.split(" at ")[0]] += 1
                faults += [f"{number}: {words}"] if words.startswith("raised") else []
            left = left[len(lines) :]
            if code < 0 and left:
                counts[f"signal {-code}"] += 1
                faults.append(f"{left[0]}: ended by signal {-code}")
                left = left[1:]
    return {"tried": len(numbers), "counts": dict(counts), "faults": faults}


def _in_a_process(whole: Path, numbers: range) -> tuple[list[str], int]:
    """What a process told of the bundles, and how it ended."""
    command = [sys.executable, "-W", "ignore", __file__, "--child", str(whole)]
    numbered = ["--seed", str(numbers.start), "--bundles", str(len(numbers))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([*command, *numbered], env=environment, capture_output=True, check=False)
    if done.returncode > 0:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    return done.stdout.decode(errors="replace").splitlines(), done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="carp")
    parser.add_argument("--child", type=Path, help="for its own use: the unedited bundle")
    given = parser.parse_args()
    numbers = range(given.seed, given.seed + given.bundles)
    if given.child:
        _child(given.child, numbers)
        return 0
    return tell_report(run(numbers, given.model))


if __name__ == "__main__":
    sys.exit(main())
