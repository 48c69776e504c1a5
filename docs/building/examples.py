"""Runs what the pages show, and compares or renews what they say came out.

A page is a session in a folder of its own. Fenced blocks are read in order:

- ``console``: lines after ``$`` are commands, the lines below them what they print;
- any block with ``title="file"`` is written to that file;
- ``pycon``: a Python session.

Everything else is only shown. A page whose front matter says ``after: tutorial.md`` goes on where that page ended.
In what is printed, a line ``...`` stands for anything, decimal fractions may differ a little (other processors add in
another order), and seconds and request ids are not compared. A trained network magnifies such differences until it
names other sentences: below a comment ``<!-- roughly -->`` most lines must say the same, whatever their numbers, names
and quotations.

    python docs/building/examples.py            check all pages
    python docs/building/examples.py --write    put what was printed into the pages
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asking import ask, client_of
from comparing import REST, difference, exact_difference, plain, rough_difference

DOCS = Path(__file__).resolve().parents[1]
COLUMNS = "88"
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.M | re.S)
AFTER = re.compile(r"\A---\n.*?^after: *(?P<page>\S+)$.*?^---$", re.M | re.S)
TITLE = re.compile(r'title="([^"]+)"')
MEASURED = ("results.md", "tables.md", "speed.md", "faithfulness.md")  # their commands run for hours, elsewhere
ROUGHLY = "<!-- roughly -->"
EXACT = ("tutorial.md",)  # what it shows comes out on any machine, to every digit


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the line it begins on."""

    info: str
    body: str
    line: int
    roughly: bool

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info.strip() else ""

    @property
    def title(self) -> str | None:
        found = TITLE.search(self.info)
        return found[1] if found else None


@dataclass
class Session:
    """What a page's examples leave behind for those below them."""

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    service: Any = None


@dataclass(frozen=True)
class Difference:
    page: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.what}"


def blocks_of(text: str) -> list[Block]:
    found = []
    for fence in FENCE.finditer(text):
        before = text[: fence.start()]
        roughly = before.rstrip().endswith(ROUGHLY)
        found.append(Block(fence["info"], textwrap.dedent(fence["body"]), before.count("\n") + 1, roughly))
    return found


def commands_of(body: str) -> list[tuple[str, str]]:
    r"""The commands of a console block, each with what is said to be printed.

    >>> commands_of("$ echo a\\\n  b\nout\n$ true\n")
    [('echo a\\\n  b', 'out\n'), ('true', '')]
    """
    found: list[tuple[str, str]] = []
    lines = body.splitlines()
    place = 0
    while place < len(lines):
        if lines[place].startswith("$ "):
            command = [lines[place][2:]]
            while command[-1].endswith("\\"):
                place += 1
                command.append(lines[place])
            found.append(("\n".join(command), ""))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]}{lines[place]}\n")
        else:
            raise ValueError(f"output before the first command: {lines[place]}")
        place += 1
    return found


# ---- running


def run_page(page: str, session: Session, done: Callable[[Block, int, str, str], None]) -> None:
    """Run a page's examples, telling each output: of which block, at which line, shown and printed."""
    with _unchanged_registry(session.folder):
        for block in blocks_of((DOCS / page).read_text("utf-8")):
            run_block(block, session, done)


def run_block(block: Block, session: Session, done: Callable[[Block, int, str, str], None]) -> None:
    if block.title is not None:
        path = session.folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.body, "utf-8")
    elif block.language == "console":
        for command, shown in commands_of(block.body):
            line = block.line + 1 + block.body[: block.body.index(command)].count("\n")
            done(block, line, shown, run_command(command, session))
    elif block.language == "pycon":
        for example in doctest.DocTestParser().get_examples(block.body):
            with _inside(session.folder):
                printed = _evaluate(example.source, session.names)
            done(block, block.line + 1 + example.lineno, example.want, printed)


@contextlib.contextmanager
def _unchanged_registry(folder: Path) -> Iterator[None]:
    """Models that a page registers, and modules that it writes, are gone when it ends."""
    from carp.models import REGISTRY

    known = dict(REGISTRY)
    try:
        yield
    finally:
        REGISTRY.clear()
        REGISTRY.update(known)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


def run_command(command: str, session: Session) -> str:
    command = command.replace("\\\n", " ")
    words = shlex.split(command, comments=True)
    plain = not re.search(r"[|<>;&$*]", re.sub(r"'[^']*'|\"[^\"]*\"", "", command))
    if words[0] == "curl":
        session.service = session.service or client_of(session.folder / "model")
        return ask(command, session.service)
    with _inside(session.folder):
        if words[0] == "carp" and plain:
            return _carp(words[1:])
        if words[0] == "python" and plain and words[1:2] == ["-m"]:
            return _captured(lambda: _as_script(words[2:], lambda: runpy.run_module(words[2], run_name="__main__")))
        if words[0] == "python" and plain and not words[1].startswith("-"):
            return _captured(lambda: _as_script(words[1:], lambda: runpy.run_path(words[1], run_name="__main__")))
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        return done.stdout


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """As in a terminal of a certain width in this folder, with the environment activated."""
    path, surroundings = list(sys.path), dict(os.environ)
    os.environ["COLUMNS"] = COLUMNS
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    sys.path.insert(0, str(folder))
    try:
        with contextlib.chdir(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(surroundings)


def _carp(arguments: Sequence[str]) -> str:
    from carp.cli.entry import main

    return _captured(lambda: main(arguments))


def _as_script(words: Sequence[str], run: Callable[[], Any]) -> None:
    before = sys.argv
    sys.argv = list(words)
    try:
        with contextlib.suppress(SystemExit):
            run()
    finally:
        sys.argv = before


def _captured(work: Callable[[], Any]) -> str:
    """What is written to standard output and standard error, as a terminal would show it."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, "utf-8", write_through=True)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        work()
    stream.flush()
    return written.getvalue().decode()


def _evaluate(source: str, names: dict[str, Any]) -> str:
    def work() -> None:
        try:
            exec(compile(source, "<page>", "single"), names)
        except Exception as error:  # shown as a prompt would, without the way there
            print(f"{type(error).__name__}: {error}")

    return _captured(work)


# ---- all pages


def pages_with_examples() -> list[str]:
    """Pages that show something that can be run, those that others go on from first."""
    found = [
        page.relative_to(DOCS).as_posix()
        for page in sorted(DOCS.rglob("*.md"))
        if any(b.title or b.language in ("console", "pycon") for b in blocks_of(page.read_text("utf-8")))
        and page.name not in MEASURED
    ]
    return sorted(found, key=lambda page: before(page) is not None)


def before(page: str) -> str | None:
    found = AFTER.match((DOCS / page).read_text("utf-8"))
    return found["page"] if found else None


def differences(page: str, session: Session) -> list[Difference]:
    found = []

    def done(block: Block, line: int, shown: str, printed: str) -> None:
        compare = exact_difference if page in EXACT else rough_difference if block.roughly else difference
        what = compare(shown, printed)
        if what is not None:
            found.append(Difference(page, line, what))

    run_page(page, session, done)
    return found


def renew(page: str, session: Session) -> list[Difference]:
    """Put what was printed into the page; shortened outputs are left to a person where more than numbers changed."""
    path, left, changes = DOCS / page, [], []

    def done(block: Block, line: int, shown: str, printed: str) -> None:
        compare = exact_difference if page in EXACT else rough_difference if block.roughly else difference
        if compare(shown, printed) is None:
            return
        if REST.search(shown):
            left.append(Difference(page, line, f"shortened, and more than a little changed; printed:\n{printed}"))
        else:
            changes.append((line, shown, f"{plain(printed)}\n" if printed.strip() else ""))

    run_page(page, session, done)
    lines = path.read_text("utf-8").splitlines(True)
    for line, shown, printed in sorted(changes, reverse=True):
        first = line
        while lines[first - 1].rstrip("\n").endswith("\\") or lines[first].startswith("... "):
            first += 1
        lines[first : first + len(shown.splitlines())] = printed.splitlines(True)
    path.write_text("".join(lines), "utf-8")
    return left


def main(arguments: Sequence[str]) -> int:
    import torch

    torch.set_num_threads(1)
    write, only = "--write" in arguments, [word for word in arguments if not word.startswith("-")]
    work = renew if write else differences
    ended: dict[str, Path] = {}
    found: list[Difference] = []
    with tempfile.TemporaryDirectory() as place:
        for page in pages_with_examples():
            first = before(page)
            if only and page not in only and page not in map(before, only):
                continue
            folder = Path(place) / page.replace("/", "-")
            if first is None:
                folder.mkdir()
            else:
                shutil.copytree(ended[first], folder)
            found += work(page, Session(folder))
            ended[page] = folder
    for one in found:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
