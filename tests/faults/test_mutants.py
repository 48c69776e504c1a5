"""The mutants of `make torture`: which there are, and in which order tests are tried on them."""

from __future__ import annotations

import ast

import pytest

import mutants
from mutant_verdicts import Learned

SOURCE = """
def outer(value):
    check(value)
    if value < 0:
        raise ValueError("below 0")
    if value > 9:
        value = 9
    def inner():
        done(value)
    return inner
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    (tmp_path / "made.py").write_text(SOURCE)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    return list(mutants.mutants_of("made.py"))


def test_calls_and_checks_that_raise_are_left_out_each_once(made):
    assert sorted((one.line, one.last, one.what) for one in made) == [
        (3, 3, "check(value)"),
        (4, 5, "if value < 0:"),
        (9, 9, "done(value)"),
    ]


def test_a_mutant_is_the_source_without_one_statement(made):
    for mutant in made:
        broken = mutant.applied_to(SOURCE)
        ast.parse(broken)
        assert broken.count("pass") == 1
        assert mutant.what not in broken


TURNED = """
def outer(value, other):
    if value < 0 and other:
        raise ValueError("below 0")
    flags = os.O_RDWR | os.O_NOFOLLOW
    nought = os.O_RDONLY | os.O_NOFOLLOW
    chosen = [one for one in other if 0 <= one < 9]
    return flags if chosen else None
"""


def test_conditions_are_turned_and_their_parts_dropped_each_once(tmp_path, monkeypatch):
    (tmp_path / "turned.py").write_text(TURNED)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    broken = [mutant.applied_to(TURNED) for mutant in mutants.mutants_of("turned.py", ["conditions"])]
    changed = [
        " ".join(new.strip() for old, new in zip(TURNED.splitlines(), one.splitlines(), strict=True) if old != new)
        for one in broken
    ]
    assert sorted(changed) == sorted(
        [
            "if True:",  # if False is the statement left out
            "if (other):",
            "if (value < 0):",
            "if value <= 0 and other:",
            "flags = os.O_RDWR",
            "flags = os.O_NOFOLLOW",
            "nought = os.O_RDONLY",  # which is 0, so that nothing changes without it
            "chosen = [one for one in other if True]",
            "chosen = [one for one in other if False]",
            "chosen = [one for one in other if 0 < one < 9]",
            "chosen = [one for one in other if 0 <= one <= 9]",
            "chosen = [one for one in other if 0 <= one]",
            "chosen = [one for one in other if one < 9]",
            "return flags if True else None",
            "return flags if False else None",
        ]
    )
    for one in broken:
        ast.parse(one)


def test_columns_of_a_mutant_count_bytes(tmp_path, monkeypatch):
    source = 'def f(a):\n    return "é" if a else "è"\n'
    (tmp_path / "made.py").write_text(source, "utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    first = next(iter(mutants.mutants_of("made.py", ["conditions"])))
    assert first.applied_to(source) == 'def f(a):\n    return "é" if True else "è"\n'


def test_every_mutant_of_the_rooms_is_python():
    for mutant, _ in mutants.chosen(["storage", "checkpoints"], kinds=[*mutants.KINDS]):
        ast.parse(mutant.applied_to((mutants.ROOT / mutant.file).read_text("utf-8")))


def learned(**tests):
    """Tests by the lines they reach; a name that begins with slow has a costly fixture in its file."""
    reached: dict[str, list[str]] = {}
    for name, lines in tests.items():
        for line in lines:
            reached.setdefault(str(line), []).append(f"{name}.py::test")
    seconds = {f"{n}.py::test": {"setup": 20.0 if n.startswith("slow") else 0.0, "call": 0.1} for n in tests}
    return Learned(None, seconds, {"made.py": reached})


def test_tests_that_are_refused_at_a_statement_come_before_those_that_pass_by_it():
    known = learned(passes=[3, 4, 6, 7], slow_refused=[3, 4, 5], elsewhere=[20], stops=[3])
    assert known.reaching("made.py", 4, 5) == ["slow_refused.py::test", "passes.py::test"]
    assert known.reaching("made.py", 3, 3) == ["stops.py::test", "slow_refused.py::test", "passes.py::test"]


def test_of_tests_that_are_alike_the_quicker_file_comes_first():
    known = learned(slow=[3], quick=[3])
    assert known.reaching("made.py", 3, 3) == ["quick.py::test", "slow.py::test"]


def test_every_room_names_files_and_tests_that_there_are():
    for room in mutants.ROOMS.values():
        assert all((mutants.ROOT / name).exists() for name in (*room.broken, *room.noticed_by))
