"""No file can bring code along, and everything that is installed is locked by its hash."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

import audit
import supply_chain

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "carp"
FILES = sorted([*SOURCE.rglob("*.py"), ROOT / "hatch_build.py"])
MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "os.system", "os.popen", "yaml.load", "pd.read_pickle"}
# Calls and results between a process and the workers it started itself, in a folder that only its user can enter.
MAY_PICKLE = {"reviews/corpora/worker_processes.py"}


def name_of(node):
    """`os.system` of the node that stands for it."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{name_of(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def dangers(source, *, may_pickle=False):
    """What could run something that a file or a user brought along."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            from_module = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names = {name.split(".")[0] for name in [*from_module, *(alias.name for alias in node.names)]}
            if names & MODULES and not may_pickle:
                yield f"line {node.lineno}: imports {names & MODULES}"
        elif isinstance(node, ast.Call):
            yield from call_dangers(node)


def call_dangers(node):
    name = name_of(node.func)
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    if name in CALLS:
        yield f"line {node.lineno}: calls {name}"
    shell = given.get("shell")
    if shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
        yield f"line {node.lineno}: a shell"
    if name in ("np.load", "numpy.load"):
        allowed = given.get("allow_pickle")
        if not (isinstance(allowed, ast.Constant) and allowed.value is False):
            yield f"line {node.lineno}: {name} may unpickle"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_in_the_source_runs_what_a_file_brings_along(path):
    may = path.is_relative_to(SOURCE) and path.relative_to(SOURCE).as_posix() in MAY_PICKLE
    assert list(dangers(path.read_text("utf-8"), may_pickle=may)) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "eval('1')",
        "exec('x = 1')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess\nsubprocess.run('ls', shell=asked)",
        "import os\nos.system('ls')",
        "import numpy as np\nnp.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
    ],
)
def test_each_danger_is_seen_where_it_is(code):
    assert list(dangers(code))


def test_models_are_switched_to_evaluation_without_being_taken_for_a_danger():
    assert list(dangers("model.eval()\nre.compile('x')")) == []


# ---- what is installed


def locked():
    found = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text()):
        if not entry.startswith("#"):
            name, version = entry.split(" ")[0].strip().split("==")
            found[name] = version, re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
    return found


def test_everything_that_is_pinned_is_locked_with_hashes():
    wanted = {line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()} - {""}
    exact = dict(line.split("==") for line in wanted if re.fullmatch(r"[\w.-]+==[\w.]+", line))
    assert len(exact) > 50
    lock = locked()
    assert {name: version for name, (version, _) in lock.items() if name in exact} == exact
    assert not [name for name, (_, hashes) in lock.items() if not hashes]


def test_everything_that_carp_and_its_tests_need_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][name] for name in ("bench", "docs", "serve", "stores", "dev")]
    wanted = [one for group in [project["dependencies"], *extras] for one in group if not one.startswith("carp-rec")]
    pinned = {supply_chain.plain_name(name) for name in supply_chain.pinned((ROOT / "constraints.txt").read_text())}
    assert supply_chain.needed(wanted) - pinned == set()


def test_the_bill_of_materials_names_what_is_locked():
    bill = json.loads((ROOT / "results" / "sbom.cdx.json").read_bytes())
    assert bill["bomFormat"] == "CycloneDX"
    assert {part["name"]: part["version"] for part in bill["components"]} == {n: v for n, (v, _) in locked().items()}
    for part in bill["components"]:
        assert [one["content"] for one in part["hashes"]] == locked()[part["name"]][1]


def test_a_lock_is_made_of_names_versions_and_hashes():
    release = {"name": "thing", "version": "1.0", "licence": "MIT", "files": {"b": "1" * 64, "a": "0" * 64}}
    text = supply_chain.lock_of([release])
    assert text.endswith(f"thing==1.0 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}\n")
    assert supply_chain.pinned("# of\nalpha==1.2  # why\n\nbeta==3\n") == {"alpha": "1.2", "beta": "3"}


def test_a_release_that_could_not_be_looked_up_is_not_taken_for_a_safe_one():
    fault = {"id": "PYSEC-1", "fix_versions": ["2"]}
    skipped = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (1)"}
    known = [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "version": "1", "vulns": [fault]}]
    found = audit.summary({"dependencies": [*known, skipped]})
    assert (found["releases"], found["looked_up"]) == (3, 2)
    assert found["vulnerabilities"] == [{"name": "b", "version": "1", "id": "PYSEC-1", "fixed_in": ["2"]}]
    assert found["skipped"] == {"Dependency not found on PyPI and could not be audited": 1}


def test_the_recorded_audit_is_of_what_is_locked():
    recorded = json.loads((ROOT / "results" / "audit.json").read_bytes())
    assert recorded["releases"] == len(locked())
    assert recorded["looked_up"] + sum(recorded["skipped"].values()) == recorded["releases"]
    assert recorded["vulnerabilities"] == []


def test_every_promise_names_a_test_that_is_there():
    """A heading of SECURITY.md without a test beside its promises would be words alone."""
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    named = set(re.findall(r"`(tests/[\w/.]+)`", text))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    sections = re.split(r"\n## ", text)[1:]
    assert [one.splitlines()[0] for one in sections if "`tests/" not in one] == []
