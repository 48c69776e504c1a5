"""What is compiled once is run only if it is whole and our own; and the C refuses what does not fit together."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from carp.errors import SlowerWarning
from carp.kernels.cpu import c_build, compiler
from carp.kernels.cpu.balances_c import NativeJudge
from carp.kernels.cpu.encode_all import encode_side
from carp.kernels.cpu.pair_scores import score_numbered
from carp.kernels.cpu.viewpoints_c import find_windows
from carp.kernels.cpu.word_convolution_c import take_rows
from carp.kernels.gpu.self_check import made_up_data, small_model
from carp.models.predict import predict_pairs
from carp.reviews.documents import Documents

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def built():
    """The library that the kernels' other tests run, compiled if none of them has needed it yet."""
    if c_build.find_compiler() is None:
        pytest.skip("there is no C compiler here")
    return compiler._compiled(c_build.find_compiler()).read_bytes()


@pytest.fixture
def cache(tmp_path, monkeypatch, built):
    """An empty cache; compiling takes no time and is counted."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CARP_NATIVE", raising=False)
    made = []

    def compile_at_once(command, flags, target, check=None):
        made.append(target)
        target.write_bytes(built)
        target.chmod(0o700)

    monkeypatch.setattr(c_build, "compile_library", compile_at_once)
    return made


def load():
    compiler.library.cache_clear()
    try:
        return compiler.library()
    finally:
        compiler.library.cache_clear()


def test_a_whole_library_is_compiled_once(cache):
    assert load() is not None
    assert load() is not None
    assert len(cache) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: b"rubbish" * 1000,
        lambda content: content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
        lambda content: content[:-1],
    ],
    ids=["cut in half", "empty", "rubbish", "one bit", "last byte"],
)
def test_a_damaged_library_is_compiled_again_and_not_run(cache, damage):
    assert load() is not None
    file = cache[0]
    file.write_bytes(damage(file.read_bytes()))
    assert load() is not None
    assert len(cache) == 2
    assert c_build.is_whole(file.read_bytes())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_in_the_place_of_the_library_keeps_nobody_waiting(cache, monkeypatch):
    assert load() is not None
    cache[0].unlink()
    os.mkfifo(cache[0])
    with pytest.raises(OSError, match="no plain file"):
        compiler._loaded(cache[0], own=True)
    fill = c_build.compile_library

    def compile_beside(command, flags, target, check=None):
        fill(command, flags, target.with_suffix(".new"), check)
        target.with_suffix(".new").replace(target)

    monkeypatch.setattr(c_build, "compile_library", compile_beside)
    assert load() is not None


def test_a_command_that_cannot_be_read_is_told_in_a_warning(cache, monkeypatch):
    monkeypatch.setenv("CC", 'gcc "x')
    with pytest.warns(SlowerWarning, match=r"\$CC is no command \(No closing quotation\)"):
        load()


WRITTEN = {"rubbish": "printf rubbish", "nothing": "true", "another library": "exec cc -shared -x c /dev/null"}


@pytest.mark.parametrize("does", WRITTEN.values(), ids=WRITTEN)
def test_what_a_compiler_wrote_is_kept_only_if_it_is_the_library(tmp_path, monkeypatch, built, does):
    """It ends as if all were well, whatever it wrote."""
    program = tmp_path / "cc"
    keeps = f'{does} -o "$2"' if does.startswith("exec") else f'{does} > "$2"'
    to_output = "while [ $1 != -o ]; do shift; done"
    program.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo 1 && exit 0\n{to_output}\n{keeps}\n")
    program.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", str(program))
    monkeypatch.delenv("CARP_NATIVE", raising=False)
    with pytest.warns(SlowerWarning, match="could not be compiled"):
        load()
    assert list((tmp_path / "cache" / "carp").iterdir()) == []


def test_a_library_that_others_may_write_to_is_compiled_again(cache):
    load()
    cache[0].chmod(0o722)
    assert load() is not None
    assert len(cache) == 2


def test_a_library_of_another_user_is_not_run(cache, monkeypatch):
    load()
    mine = os.getuid()
    folder = cache[0].parent.stat()
    real = os.fstat

    def of_another(handle):
        facts = list(real(handle))
        facts[4] = mine + 1
        return os.stat_result(facts)

    assert folder.st_uid == mine
    monkeypatch.setattr(os, "fstat", of_another)
    with pytest.warns(SlowerWarning, match="belongs to another user"):
        assert load() is None
    assert len(cache) == 2, "it was compiled again, and what came of it still seemed another's"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_cache_that_others_may_write_to_is_not_used(cache, tmp_path, mode):
    (tmp_path / "carp").mkdir()
    (tmp_path / "carp").chmod(mode)
    with pytest.warns(SlowerWarning, match="others may write to the cache folder"):
        assert load() is None
    assert cache == []


def test_a_cache_of_another_user_is_not_used(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: (tmp_path.stat().st_uid) + 1)
    with pytest.warns(SlowerWarning, match="belongs to another user"):
        assert load() is None
    assert cache == []


def test_who_has_no_home_folder_does_without_compiled_code(cache, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)

    def nobody(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.warns(SlowerWarning, match="no home folder for a cache: set [$]XDG_CACHE_HOME"):
        assert load() is None
    assert cache == []


def test_another_version_of_the_compiler_has_a_library_of_its_own(cache, monkeypatch):
    load()
    monkeypatch.setattr(c_build, "compiler_version", lambda command: "cc 99")
    load()
    assert len(set(cache)) == 2


def test_the_compiler_of_the_environment_is_taken(tmp_path, monkeypatch):
    own = tmp_path / "my cc"
    own.symlink_to(c_build.find_compiler() or "/bin/true")
    monkeypatch.setenv("CC", f"'{own}' -DOWN=1")
    assert c_build.find_compiler() == f"'{own}' -DOWN=1"
    monkeypatch.setenv("CC", "no-such-compiler")
    assert c_build.find_compiler() is None


def test_a_library_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """It is compiled beside its place, flushed, renamed, and the folder is flushed: in this order."""
    steps, sizes = [], []
    replace, fsync = Path.replace, os.fsync

    def compiled(command, **named):
        steps.append("compiled")
        made = Path(command[command.index("-o") + 1])
        made.write_bytes(b"code")
        made.chmod(0o777)  # as a compiler leaves it where nothing is masked
        return subprocess.CompletedProcess(command, 0)

    def flushed(handle):
        steps.append("flushed folder" if os.path.isdir(handle) else "flushed file")  # noqa: PTH112
        sizes.append(os.fstat(handle).st_size)
        fsync(handle)

    def renamed(path, target):
        steps.append("renamed")
        return replace(path, target)

    monkeypatch.setattr(subprocess, "run", compiled)
    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", renamed)
    target = tmp_path / "kernels.so"
    c_build.compile_library("cc", [], target)
    assert sizes[0] == target.stat().st_size, "something still waited in the process"
    assert stat.S_IMODE(target.stat().st_mode) == 0o700, "it would be compiled again each time"
    assert steps == ["compiled", "flushed file", "renamed", "flushed folder"]
    assert c_build.is_whole(target.read_bytes())
    assert [item.name for item in tmp_path.iterdir()] == ["kernels.so"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not say what is open")
def test_compiling_leaves_nothing_open(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    c_build.compile_library("cc", [], tmp_path / "kernels.so")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_compiler_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        c_build.compile_library("/bin/false", [], tmp_path / "kernels.so")
    assert list(tmp_path.iterdir()) == []


def test_what_killed_compilers_left_is_swept_and_what_is_new_is_not(cache):
    assert load() is not None
    old, new = (cache[0].with_name(f"unfinished-{name}.so") for name in "ab")
    for file in (old, new):
        file.write_bytes(b"")
    os.utime(old, (0, time.time() - 86_400))
    assert load() is not None
    assert sorted(cache[0].parent.iterdir()) == [cache[0], new]


# ---- what the C is given


@pytest.fixture(scope="module")
def native():
    found = compiler.library()
    if found is None:
        pytest.skip("there is no C here")
    return found


@pytest.fixture(scope="module")
def data():
    return made_up_data(users=12, items=9, pairs=60, review=12)


def test_too_little_memory_for_the_c_is_told_as_that(native):
    working = [getattr(native, name) for name in compiler.SIGNATURES if name not in compiler.COUNTING | compiler.SILENT]
    for function in working:
        assert function.errcheck(0, function, ()) == 0
        with pytest.raises(MemoryError):
            function.errcheck(compiler.NO_MEMORY, function, ())
        with pytest.raises(IndexError, match="do not fit together"):
            function.errcheck(1, function, ())


def spoiled(documents, name, place, value):
    column = getattr(documents, name).copy()
    column[place] = value
    return Documents(**{**documents.arrays(), name: column})


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("words", 0, -1),
        ("words", 5, 2**31 - 1),
        ("words", -1, 10**6),
        ("offsets", 1, 2**40),
        ("offsets", 2, -5),
        ("offsets", -1, 10**9),
    ],
)
def test_windows_of_words_or_documents_that_are_not_there_are_refused(native, data, name, place, value):
    documents = spoiled(data.user_documents, name, place, value)
    slot = np.zeros(data.sizes.words + 1, np.int32)
    places = np.zeros((len(documents.words), 3), np.int32)
    with pytest.raises(IndexError, match="carp_windows was given numbers that do not fit together"):
        find_windows(native, documents, range(len(documents)), slot, places)
    assert not places.any(), "nothing was written"


@pytest.mark.parametrize("number", [-1, 5, 2**62])
def test_rows_that_are_not_there_are_not_taken(native, number):
    table, out = torch.ones(5, 3), torch.zeros(1, native.filled_up(3))
    with pytest.raises(IndexError, match="carp_take"):
        take_rows(native, table, torch.tensor([number]), out)
    assert not out.any()


@pytest.mark.parametrize("number", [-1, 12, 2**40])
def test_pairs_of_nobody_are_not_scored(native, data, number):
    model = small_model(data).eval()
    size = model.config.viewpoints, model.config.latent_size
    sides = torch.randn(12, *size), torch.randn(9, *size)
    judge = NativeJudge.of(model, *sides)
    numbers = torch.tensor([0, number]), torch.tensor([0, 0])
    balance = torch.zeros(2)
    with pytest.raises(IndexError, match="carp_score"):
        judge.score(sides, numbers, 0, torch.arange(2), balance)
    with pytest.raises(IndexError, match="carp_score"):
        judge.score(sides, (torch.zeros(2, dtype=torch.int64),) * 2, 0, torch.tensor([0, 7]), balance)
    with pytest.raises(IndexError, match="not one of"):
        judge.gathered(numbers, (12, 9))
    assert not balance.any()


@pytest.mark.parametrize(
    ("column", "value"), [("edges", 10**9), ("pairs", 10**9), ("spans", -64), ("spans", 10**7), ("pair_edges", 10**6)]
)
def test_blocks_that_lead_elsewhere_are_not_read(native, data, column, value, monkeypatch):
    from dataclasses import replace

    from carp.kernels.cpu import encode_all

    cut = encode_all.cut

    def spoiled_blocks(*given):
        blocks = cut(*given)
        changed = getattr(blocks, column).copy()
        changed.reshape(-1)[-1] = value
        return replace(blocks, **{column: changed})

    class Few:
        def __init__(self, *given):
            inner = made(*given)
            self.__dict__.update(vars(inner))
            self.longest = min(inner.longest, 64)

        def room(self, reader):
            return 1 << 20

    made = encode_all.NativeDocuments
    monkeypatch.setattr(encode_all, "cut", spoiled_blocks)
    monkeypatch.setattr(encode_all, "NativeDocuments", Few)
    monkeypatch.setattr(encode_all, "BLOCKS", 1 << 20)
    model = small_model(data).eval()
    with pytest.raises(IndexError):
        encode_side(model.user_side, model.embedding.weight, data.user_documents)


@pytest.mark.parametrize("viewpoints", [150])
def test_many_viewpoints_need_no_large_stack(viewpoints):
    """In a thread whose stack is small, as threads' stacks are on some systems."""
    code = (
        "import threading, sys, torch\n"
        "torch.set_num_threads(1)\n"
        "from carp.kernels.cpu.cpu_trainer import CpuTrainer\n"
        "from carp.kernels.cpu.pair_scores import score_numbered\n"
        "from carp.kernels.gpu.self_check import made_up_data, small_model\n"
        "from carp.training.loop import Silent, TrainingSettings, make_optimizer\n"
        "data = made_up_data(users=3, items=3, pairs=4, review=3)\n"
        "model = small_model(data, viewpoints=int(sys.argv[1]), latent_size=2, filters=2, dimension=2)\n"
        "threading.stack_size(512 << 10)\n"
        "def work():\n"
        "    trainer = CpuTrainer(model.train(), data, 4, make_optimizer(model, TrainingSettings()))\n"
        "    loss = trainer.epoch(0, 1, Silent())\n"
        "    side = torch.ones(3, int(sys.argv[1]), 2)\n"
        "    print(loss, score_numbered(model.eval(), side, side, data.train.users, data.train.items).sum().item())\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    asked = [sys.executable, "-c", code, str(viewpoints)]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert all(np.isfinite(float(number)) for number in done.stdout.split())
    assert len(done.stdout.split()) == 2


def test_vectors_too_long_for_c_are_left_to_torch(data):
    model = small_model(data, latent_size=300, viewpoints=2).eval()
    sides = torch.randn(12, model.config.viewpoints, 300) / 50, torch.randn(9, model.config.viewpoints, 300) / 50
    assert NativeJudge.of(model, *sides) is None
    found = score_numbered(model, *sides, data.train.users, data.train.items)
    u, i = torch.from_numpy(data.train.users), torch.from_numpy(data.train.items)
    with torch.no_grad():
        wanted = model.score(u, i, sides[0][u], sides[1][i]).rating
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


# ---- what is no number

WEIGHTS = sorted(name for name, _ in small_model(made_up_data(users=3, items=3, pairs=4, review=3)).named_parameters())


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_give_no_ratings(native, data, name, value):
    """The kernels tell them on as the plain model does, instead of turning them into numbers."""
    model = small_model(data).eval()
    parameter = dict(model.named_parameters())[name]
    with torch.no_grad():
        parameter.fill_(value)
    ratings = predict_pairs(model, data, data.train, CPU)
    batch = data.batch(data.train, np.arange(len(data.train)))
    plain = model(batch).rating.detach().numpy()
    assert np.array_equal(np.isnan(ratings), np.isnan(plain))
    assert np.isnan(ratings).any() or value == float("inf"), "infinity may be rated, as the highest or the lowest"
