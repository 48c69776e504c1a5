"""What a project others can join keeps in order: one version, one place for addresses, workflows that can run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

import carp

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MADE = re.compile(r"\bmake (?:--directory \S+ )?([a-z-]+)")


def targets():
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def test_the_version_stands_in_one_place_and_has_its_entry_in_the_changelog():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/carp/__init__.py"
    releases = re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert releases[0] == carp.__version__
    assert "0.1.0" in releases
    assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text())


def test_addresses_of_the_project_are_placeholders_in_one_place():
    addresses = PROJECT["project"]["urls"].values()
    assert all(address.startswith("https://example.invalid/PLACEHOLDER/") for address in addresses)
    pages = [ROOT / "README.md", ROOT / "CITATION.cff", ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*.md")]
    assert not [page for page in pages if "example.invalid" in page.read_text()]


def test_the_paper_is_cited_by_name_and_number():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["type"] == "software"
    [paper] = cited["references"]
    assert paper["doi"] == "10.1145/3331184.3331216"
    authors = [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]]
    assert authors == ["Chenliang Li", "Cong Quan", "Li Peng", "Yunwei Qi", "Yuming Deng", "Libing Wu"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_are_whole_and_every_target_they_make_is_there(file):
    found = yaml.safe_load(file.read_text())
    steps = [step for job in found["jobs"].values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands
    assert all(re.fullmatch(r"[\w./-]+@v\d[\d.]*", step["uses"]) for step in steps if "uses" in step)
    made = {target for command in commands for target in MADE.findall(command)}
    assert made
    assert made <= targets()


def test_tests_run_on_both_systems_that_are_declared():
    [test] = [yaml.safe_load(file.read_text()) for file in WORKFLOWS if file.name == "test.yml"]
    systems = test["jobs"]["test"]["strategy"]["matrix"]["os"]
    assert [system.partition("-")[0] for system in systems] == ["ubuntu", "macos"]
    declared = [line for line in PROJECT["project"]["classifiers"] if line.startswith("Operating System")]
    assert declared == ["Operating System :: POSIX :: Linux", "Operating System :: MacOS"]


def test_windows_is_refused_in_words_that_name_the_way_round():
    script = "import sys; sys.platform = 'win32'; import carp"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: carp runs on Linux and macOS" in done.stderr
    assert "wsl --install" in done.stderr


def test_the_source_archive_holds_everything_that_the_repository_does():
    """The archive's tests read the pages, the results, the Makefile and the workflows."""
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    packed = {name.removeprefix("/") for name in included} | {"pyproject.toml"}  # which is always packed
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split()]
    unpacked = [*ignored, ".git", "PKG-INFO"]
    here = {path.name for path in ROOT.iterdir() if not any(fnmatch(path.name, name) for name in unpacked)}
    assert here == packed


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md"])
def test_places_and_commands_that_the_pages_name_are_there(page):
    text = (ROOT / page).read_text()
    places = re.findall(r"`((?:src|tests|docs|benchmarks|results|\.github)/[^`*]*)`", text)
    places += re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert not [place for place in places if "NAME" not in place and not (ROOT / place).exists()]
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) <= targets()


def test_no_test_measures_how_long_something_takes():
    """A busy machine would fail it; `make speed` measures."""
    clocks = re.compile(r"\b(?:perf_counter|process_time|thread_time|timeit)\b")
    tests = [file for file in (ROOT / "tests").rglob("*.py") if file != Path(__file__)]
    assert not [file for file in tests if clocks.search(file.read_text())]
