"""The C kernels under the address and undefined-behaviour sanitizers, with shapes and hostile columns drawn by chance.

    python benchmarks/sanitized_kernels.py --rounds 2000 --seed 0

The C is compiled anew with the sanitizers. Each round draws a model and documents, encodes, scores and learns with
them; then it spoils a column and asks again, past the checks of Python: the C refuses it, or does with it what it may.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from carp.kernels.cpu import c_build
from result_lines import tell_report

FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1", "-fPIC", "-shared"]
STRANGE = [0, -1, 1, 10**6, 2**31 - 1, -(2**31), 2**40, -(2**40)]


def run(rounds: int, seed: int = 0) -> dict[str, Any]:
    """Try some rounds; what the sanitizers said."""
    compiler = shutil.which("gcc")
    if compiler is None:
        return {"tried": 0, "faults": ["there is no gcc here, and nothing was tried"]}
    before = " ".join(_runtime(compiler, name) for name in ("libasan.so", "libstdc++.so.6"))
    with tempfile.TemporaryDirectory() as place:
        library = Path(place) / "kernels.so"
        sources = map(str, sorted(c_build.HERE.glob("*.c")))
        native = c_build.FOR_THIS_PROCESSOR
        subprocess.run([compiler, *FLAGS, *native, *sources, "-o", str(library), "-lm"], check=True)
        environment = {
            **os.environ,
            "LD_PRELOAD": before,
            "ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0:detect_odr_violation=0",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [sys.executable, "-W", "ignore", __file__, "--library", str(library)]
        command += ["--rounds", str(rounds), "--seed", str(seed)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    counts = json.loads(lines[-1]) if done.returncode == 0 else {}
    faults = [f"after {len(lines)} rounds: ended by {done.returncode}", done.stderr[:3000]] if done.returncode else []
    return {"tried": rounds, "counts": counts, "faults": faults}


def _runtime(compiler: str, name: str) -> str:
    """Where a library of the compiler lies; the second one knows the exceptions that the first looks for."""
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def _child(library: Path, rounds: int, seed: int) -> None:
    import numpy as np
    import torch

    from carp.kernels.cpu import compiler
    from carp.kernels.cpu.cpu_trainer import CpuTrainer
    from carp.kernels.cpu.encode_all import encode_side
    from carp.kernels.cpu.pair_scores import score_numbered
    from carp.kernels.gpu.self_check import made_up_data, small_model
    from carp.reviews.documents import Documents
    from carp.training.loop import Silent, TrainingSettings, make_optimizer

    torch.set_num_threads(1)
    with_sanitizers = compiler.KernelLibrary(library)
    compiler.library = lambda: with_sanitizers  # type: ignore[assignment]
    counts = {"rounds": 0, "refused": 0, "read": 0}
    for number in range(seed, seed + rounds):
        rng = random.Random(number)
        people, things = rng.randrange(3, 20), rng.randrange(3, 15)
        pairs = rng.randrange(4, min(60, people * things))
        data = made_up_data(users=people, items=things, pairs=pairs, review=rng.randrange(1, 60))
        sizes = {name: rng.randrange(1, 20) for name in ("dimension", "filters", "latent_size")}
        model = small_model(data, viewpoints=rng.randrange(1, 6), window=rng.choice([1, 3, 5]), **sizes)
        if number % 4 == 0:
            CpuTrainer(model.train(), data, rng.randrange(1, 40), make_optimizer(model, TrainingSettings())).epoch(
                0, 1, Silent()
            )
        model.eval()
        sides = [encode_side(side, model.embedding.weight, documents) for side, documents in
                 ((model.user_side, data.user_documents), (model.item_side, data.item_documents))]  # fmt: skip
        score_numbered(model, sides[0], sides[1], data.train.users, data.train.items)
        arrays = {name: column.copy() for name, column in data.user_documents.arrays().items()}
        column = arrays[rng.choice([name for name in ("words", "offsets", "review") if len(arrays[name])])]
        for _ in range(rng.choice([1, 2, 9])):
            value = rng.choice(STRANGE) if rng.random() < 0.7 else rng.randrange(-40, 400)
            column[rng.randrange(len(column))] = np.array(value).astype(column.dtype)
        try:
            encode_side(model.user_side, model.embedding.weight, Documents(**arrays))
            counts["read"] += 1
        except Exception:  # of Python, which is not asked here
            counts["refused"] += 1
        counts["rounds"] += 1
        print(number, flush=True)
    print(json.dumps(counts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--library", type=Path, help="for its own use: in the process with the sanitizers")
    given = parser.parse_args()
    if given.library:
        _child(given.library, given.rounds, given.seed)
        return 0
    return tell_report(run(given.rounds, given.seed))


if __name__ == "__main__":
    sys.exit(main())
