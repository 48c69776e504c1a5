"""Fuzzing guided by coverage: inputs that reach new branches of the code are kept and changed further.

    python benchmarks/fuzzing.py --target csv --runs 20000 --seed 0
    python benchmarks/fuzzing.py --target csv --input crash.bin

The engine is Google's atheris, which is libFuzzer for Python: `pip install atheris`. It sees the branches of carp's own
Python; libraries in C and Rust are called, and not looked into. A target that raises anything but a CarpError, takes
more than 20 s or 2 GB for one input, or ends by a signal is reported with the input that does it.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from result_lines import tell_report

LOOKED_INTO = ["carp.reviews.sources", "carp.storage", "carp.persist", "carp.reviews.corpora"]
SECONDS, MEGABYTES = 20, 2048  # for one input
PROGRESS = re.compile(r"^#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", re.M)


def run(target: str, runs: int, seed: int = 0) -> dict[str, Any]:
    """Try so many inputs; what was reached, and the input that must not be."""
    if importlib.util.find_spec("atheris") is None:
        return {"tried": 0, "counts": {}, "faults": ["atheris is not installed, and nothing was tried"]}
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-W", "ignore", __file__, "--target", target, "--corpus", f"{place}/"]
        command += ["--runs", str(runs), "--seed", str(seed)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
        found = [file.read_bytes() for file in Path(place).glob("*-*") if file.name.split("-")[0] in BAD]
    reached = PROGRESS.findall(done.stderr)
    tried, branches, _, kept = map(int, reached[-1]) if reached else (0, 0, 0, 0)
    counts = {f"{target}: branches": branches, f"{target}: inputs kept": kept}
    return {"tried": tried, "counts": counts, "faults": faults_of(target, done, found)}


BAD = ("crash", "timeout", "oom", "slow")


def faults_of(target: str, done: subprocess.CompletedProcess[str], found: list[bytes]) -> list[str]:
    """What a process that was fuzzed must not have done, with the inputs that it left behind."""
    if not done.returncode:
        return []
    said = (done.stdout + done.stderr).partition("Uncaught Python exception")[2] or done.stderr[-2000:]
    shown = [base64.b64encode(one).decode() for one in found]
    return [f"{target}: ended with {done.returncode}, input {shown}: {said.strip()[:2000]}"]


def _child(name: str, corpus: str, runs: int, seed: int) -> None:
    import atheris

    with atheris.instrument_imports(include=LOOKED_INTO):
        import fuzz_targets
    target = fuzz_targets.TARGETS[name]
    seeds = Path(corpus) / "seeds"
    seeds.mkdir()
    for number, content in enumerate(target.seeds()):
        (seeds / str(number)).write_bytes(content)
    options = [f"-runs={runs}", f"-seed={seed + 1}", "-max_len=8192", f"-artifact_prefix={corpus}"]
    options += [f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}", "-print_final_stats=1", "-len_control=0"]
    atheris.Setup([sys.argv[0], *options, str(seeds)], lambda data: _try(fuzz_targets, target, data))
    atheris.Fuzz()


def _try(targets: Any, target: Any, data: bytes) -> None:
    targets.try_one(target, data)


def changed(content: bytes, rng: random.Random) -> bytes:
    """The bytes with a few changes by chance, for a try without the engine."""
    for _ in range(rng.randint(1, 4)):
        place, width = rng.randrange(len(content) + 1), rng.choice([0, 1, 1, 2, 8])
        filling = rng.choice([b"", rng.randbytes(1), rng.randbytes(4), content[place - 9 : place], b"\xff\xff\xff\x7f"])
        content = content[:place] + filling + content[place + width :]
    return content


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--input", type=Path, help="try this file alone")
    parser.add_argument("--corpus", help="for its own use: the folder of the process that is fuzzed")
    given = parser.parse_args()
    if given.corpus:
        _child(given.target, given.corpus, given.runs, given.seed)
        return 0
    if given.input:
        import fuzz_targets

        print(fuzz_targets.try_one(fuzz_targets.TARGETS[given.target], given.input.read_bytes()))
        return 0
    return tell_report(run(given.target, given.runs, given.seed))


if __name__ == "__main__":
    sys.exit(main())
