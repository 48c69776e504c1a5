"""Imports point one way, the core runs on a bare GPU machine, and `import carp` costs nothing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import polars
import pytest

from carp.reviews.corpora.corpus import build_corpus
from carp.reviews.sources.formats import read_reviews

SOURCE = Path(__file__).resolve().parents[2] / "src" / "carp"

# The rooms in the order of the design: each may import from itself and from those before it.
ROOMS = [
    "moved",
    "shown_addresses",
    "errors",
    "storage",
    "reviews.split_parts",
    "reviews.split_by_time",
    "reviews.rating_scale",
    "reviews.text",
    "reviews.sources",
    "reviews.corpora",
    "reviews.split",
    "reviews.corpora.dataset_statistics",
    "reviews.corpora.preparation",
    "reviews.documents",
    "reviews.readable",
    "reviews.shop",
    "reviews",
    "models",
    "kernels",
    "training",
    "evaluate",
    "explain",
    "answers",
    "ranking",
    "persist",
    "settings",
    "user_input",
    "recommender",
    "upkeep",
    "carp",  # the package itself: the public names
    "render",
    "bench",
    "scale",
    "serve",
    "cli",
    "__main__",
]
# An Explanation shows itself, and fitting shows a bar: both reach for the renderer only when asked to. What is saved
# names the version of carp that saved it.
LAZY = {("explain", "render"), ("recommender", "render"), ("models", "kernels"), ("reviews", "carp")}
BARE = {"torch", "numpy", "safetensors", "triton", "carp"}
ABSENT = ["msgspec", "polars", "pandas", "pyarrow", "zstandard", "typer", "rich", "scipy", "sklearn", "fastapi"]
CORE = ("models", "kernels", "training", "storage")


def room_of(module):
    """The room a module's full name belongs to: the longest that its name begins with."""
    inside = module.removeprefix("carp").removeprefix(".")
    fitting = [room for room in ROOMS if inside == room or inside.startswith(f"{room}.")]
    return max(fitting, key=len) if fitting else "carp" if not inside or "." not in inside else None


def module_of(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path):
    """Every import of a file: the module's full name, and whether it stands inside a function."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            assert node.module is not None
            names = [f"carp.{alias.name}" for alias in node.names] if node.module == "carp" else [node.module]
            yield from ((name, id(node) in inside) for name in names)


FILES = sorted(SOURCE.rglob("*.py"))


def test_every_room_has_its_place_in_the_order():
    tops = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in FILES} - {"__init__"}
    missing = tops - {room.split(".")[0] for room in ROOMS}
    assert not missing, f"give {', '.join(sorted(missing))} a place among ROOMS, where the design has it"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_imports_point_upwards(path):
    own = room_of(module_of(path))
    if own == "carp":
        pytest.skip("the public names come from everywhere, when they are first used")
    for name, lazy in imports_of(path):
        if name.split(".")[0] != "carp":
            continue
        other = room_of(name) or "carp"
        if lazy and (own.split(".")[0], other.split(".")[0]) in LAZY:
            continue
        assert ROOMS.index(other) <= ROOMS.index(own), f"{own} imports {name}"


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.relative_to(SOURCE).parts[0].removesuffix(".py") in CORE],
    ids=lambda path: path.name,
)
def test_the_core_imports_nothing_beyond_torch_numpy_and_safetensors(path):
    found = {name.split(".")[0] for name, _ in imports_of(path)}
    foreign = found - set(sys.stdlib_module_names) - BARE
    if path.name == "rblt.py":
        foreign -= {"sklearn"}  # its topics come from there
    assert not foreign


def fresh(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_core_runs_where_nothing_else_is_installed():
    """Also through what the core imports of the other rooms."""
    found = fresh(
        "import sys, json\n"
        f"sys.modules.update(dict.fromkeys({ABSENT!r}))\n"
        "import carp.storage, carp.training.loop, carp.models.carp, carp.models.predict, carp.models.bias\n"
        "import carp.kernels.dispatch\n"
        "print(json.dumps(sorted(name for name in sys.modules if name.startswith('carp.'))))\n"
    )
    assert "carp.training.loop" in found
    assert not [name for name in found if name.startswith(("carp.render", "carp.recommender", "carp.cli.entry"))]


def test_a_fitted_model_and_a_saved_corpus_need_torch_numpy_and_safetensors_alone(tmp_path):
    rows = [(f"u{place % 2}", f"i{place // 2}", 1 + place % 5, f"word {'a' * place}b") for place in range(6)]
    columns = map(list, zip(*rows, strict=True))
    frame = dict(zip(("user", "item", "rating", "text"), columns, strict=True))
    build_corpus(read_reviews(polars.DataFrame(frame)), min_reviews=1).save(tmp_path / "corpus")
    found = fresh(
        "import sys, json\n"
        f"sys.modules.update(dict.fromkeys({ABSENT!r}))\n"
        "import carp.training.fitted_corpus, carp.persist.bundle, carp.recommender\n"
        "from carp.reviews.corpora.corpus import Corpus\n"
        f"corpus = Corpus.load({str(tmp_path / 'corpus')!r})\n"
        "print(json.dumps([list(corpus.users), list(corpus.texts), corpus.rating.tolist()]))\n"
    )
    assert found == [["u0", "u1"], frame["text"], frame["rating"]]


def test_importing_carp_brings_no_room_of_it_until_a_name_is_used():
    found = fresh(
        "import sys, json\n"
        "before = set(sys.modules)\n"
        "import carp\n"
        "print(json.dumps({'brought': sorted(set(sys.modules) - before), 'names': dir(carp)}))\n"
    )
    assert {name.partition(".")[0] for name in found["brought"]} - set(sys.stdlib_module_names) == {"carp"}
    assert [name for name in found["brought"] if name.startswith("carp.")] == ["carp.moved"]
    assert {"Recommender", "load", "read_reviews", "make_shop"} <= set(found["names"])


def test_an_unknown_name_is_an_attribute_error():
    import carp

    with pytest.raises(AttributeError, match="no_such_name"):
        _ = carp.no_such_name
