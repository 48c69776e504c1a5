"""Sums of the blocks of large files: what is refused by them, and what is summed once."""

from __future__ import annotations

import gc
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from carp.errors import DamagedError
from carp.storage import MANIFEST, block_sums, new_folder, opened_folder, save_arrays

FILE = "arrays.safetensors"
BLOCK = 1024


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A folder with a file of several blocks, small as they are."""
    monkeypatch.setattr(block_sums, "LARGE", 1)
    monkeypatch.setattr(block_sums, "LEAST_BLOCK", BLOCK)
    with new_folder(tmp_path / "thing", "thing") as partial:
        texts = np.frombuffer(b"word " * 2000, np.uint8)
        pages = np.zeros((4, BLOCK), np.uint8)
        save_arrays(partial / FILE, {"numbers": np.arange(1000), "pages": pages, "texts": texts})
    return tmp_path / "thing"


@pytest.fixture
def blocks_summed(monkeypatch):
    """The numbers of the blocks, as often as they are summed."""
    summed, check = [], block_sums.CheckedBlocks._check_block
    monkeypatch.setattr(
        block_sums.CheckedBlocks, "_check_block", lambda self, number: summed.append(number) or check(self, number)
    )
    return summed


@pytest.mark.parametrize("size", [1, BLOCK, 2 * BLOCK, 2 * BLOCK + 1])
def test_a_large_file_has_a_sum_of_each_block_however_it_is_read(tmp_path, monkeypatch, size):
    monkeypatch.setattr(block_sums, "LARGE", size)
    monkeypatch.setattr(block_sums, "LEAST_BLOCK", BLOCK)
    monkeypatch.setattr(block_sums, "BYTES_AT_ONCE", 300)
    content = bytes(number % 251 for number in range(size))
    (tmp_path / "file").write_bytes(content)
    sums = [hashlib.sha256(content[at : at + BLOCK]).hexdigest() for at in range(0, size, BLOCK)]
    blocks = {"bytes": BLOCK, "sha256": "".join(sums)}
    expected = {"bytes": size, "sha256": hashlib.sha256(content).hexdigest(), "blocks": blocks}
    assert block_sums.facts_of(tmp_path / "file") == expected
    monkeypatch.setattr(block_sums, "LARGE", size + 1)
    expected.pop("blocks")
    assert block_sums.facts_of(tmp_path / "file") == expected


def test_blocks_grow_where_there_would_be_too_many():
    most = block_sums.LEAST_BLOCK * block_sums.MOST_BLOCKS
    assert block_sums.block_size(most) == block_sums.LEAST_BLOCK
    assert block_sums.block_size(most + 1) == 2 * block_sums.LEAST_BLOCK


def test_there_are_as_many_threads_as_cores_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 9)
    assert block_sums._cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert block_sums._cores() == 9
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert block_sums._cores() == 1


def damage(folder, place):
    with (folder / FILE).open("r+b") as file:
        file.seek(place, os.SEEK_END if place < 0 else os.SEEK_SET)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("place", [0, 7, 8, 30])
def test_a_damaged_header_is_told_as_damage_before_anybody_reads_it(large, place):
    damage(large, place)
    with opened_folder(large, "thing") as opened, pytest.raises(DamagedError, match="differs from what was saved"):
        opened.arrays_but(FILE, "texts")


def test_a_file_without_the_array_that_may_wait_is_checked_as_a_whole(large):
    damage(large, -1)
    with opened_folder(large, "thing") as opened:
        opened.arrays_but(FILE, "texts")  # the damage is in what waits
    with opened_folder(large, "thing") as opened, pytest.raises(DamagedError, match="differs from what was saved"):
        opened.arrays_but(FILE, "nothing of this name")


@pytest.mark.parametrize("name", ["numbers", "pages"])
def test_what_is_no_row_of_bytes_may_not_wait(large, name):
    with opened_folder(large, "thing") as opened:
        arrays, left = opened.arrays_but(FILE, name)
    assert left is None
    assert name in arrays


def test_large_files_without_sums_of_blocks_are_checked_together(large, monkeypatch):
    manifest = json.loads((large / MANIFEST).read_text())
    del manifest["files"][FILE]["blocks"]
    (large / MANIFEST).write_text(json.dumps(manifest))
    damage(large, -1)
    with opened_folder(large, "thing") as opened, pytest.raises(DamagedError, match="differs from what was saved"):
        opened.check_large()
    monkeypatch.setattr(block_sums, "LARGE", 1 << 30)
    with opened_folder(large, "thing") as opened:
        opened.check_large()  # none is large: this one is checked when it is read


def test_fewer_sums_than_blocks_are_no_manifest(large):
    manifest = json.loads((large / MANIFEST).read_text())
    blocks = manifest["files"][FILE]["blocks"]
    blocks["sha256"] = blocks["sha256"][: -block_sums.DIGITS]
    (large / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DamagedError, match="the manifest is damaged"), opened_folder(large, "thing"):
        pass


def test_what_was_checked_is_mapped_without_being_summed_again(large, blocks_summed):
    with opened_folder(large, "thing") as opened:
        opened.check_all()
        summed = len(blocks_summed)
        np.testing.assert_array_equal(opened.arrays(FILE, mmap=True)["numbers"], np.arange(1000))
    assert len(blocks_summed) == summed > 2


@pytest.mark.parametrize(("mmap", "smaller", "mapped"), [(True, 0, True), (True, 1, False), (False, 0, False)])
def test_arrays_are_mapped_where_they_are_large_and_may_be(large, monkeypatch, mmap, smaller, mapped):
    monkeypatch.setattr(block_sums, "LARGE", (large / FILE).stat().st_size + smaller)
    with opened_folder(large, "thing") as opened:
        assert isinstance(opened.arrays(FILE, mmap=mmap)["numbers"], np.memmap) == mapped


SUMS = {"bytes": block_sums.LEAST_BLOCK, "sha256": "0" * 2 * block_sums.DIGITS}
UNTRUE = {
    "a list": [1, 2],
    "no block": {"sha256": SUMS["sha256"]},
    "half a block": {**SUMS, "bytes": float(block_sums.LEAST_BLOCK)},
    "a block that is too small": {**SUMS, "bytes": block_sums.LEAST_BLOCK // 2, "sha256": "0" * 4 * block_sums.DIGITS},
    "three times a block": {**SUMS, "bytes": 3 * block_sums.LEAST_BLOCK, "sha256": "0" * block_sums.DIGITS},
    "numbers for sums": {**SUMS, "sha256": [0] * 2 * block_sums.DIGITS},
    "a sum too many": {**SUMS, "sha256": "0" * 3 * block_sums.DIGITS},
}


@pytest.mark.parametrize("blocks", UNTRUE.values(), ids=UNTRUE)
def test_what_are_no_sums_of_blocks_is_refused(blocks):
    facts = {"bytes": 2 * block_sums.LEAST_BLOCK}
    assert block_sums.BlockSums.of(facts) is None
    assert block_sums.BlockSums.of({**facts, "blocks": SUMS}) == (block_sums.LEAST_BLOCK, ("0" * 64, "0" * 64))
    with pytest.raises(ValueError, match="sums"):
        block_sums.BlockSums.of({**facts, "blocks": blocks})


def test_where_nothing_is_asked_for_nothing_is_summed(large, blocks_summed):
    with opened_folder(large, "thing") as opened:
        _, texts = opened.arrays_but(FILE, "texts")
        summed = len(blocks_summed)
        assert texts.between(5 * BLOCK, 5 * BLOCK).tobytes() == b""
    assert len(blocks_summed) == summed


def test_a_file_that_was_cut_off_after_it_was_opened_differs(large):
    with opened_folder(large, "thing") as opened:
        _, texts = opened.arrays_but(FILE, "texts")
        os.truncate(large / FILE, (large / FILE).stat().st_size - 5000)
        with pytest.raises(DamagedError, match="differs from what was saved"):
            texts.whole()


def test_a_block_is_summed_once(large, blocks_summed):
    with opened_folder(large, "thing") as opened:
        _, texts = opened.arrays_but(FILE, "texts")
        for _ in range(2):
            assert texts.whole().tobytes() == b"word " * 2000
            assert texts.between(5, 9).tobytes() == b"word"
        opened.check_all()
    assert len(blocks_summed) == len(set(blocks_summed)) > 2


def test_a_file_that_was_checked_is_not_checked_again_with_the_folder(large, blocks_summed):
    with opened_folder(large, "thing") as opened:
        opened.arrays(FILE, mmap=True)
        once = len(blocks_summed)
        opened.check_all()
    assert len(blocks_summed) == once > 2


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list the files a process has open")
def test_the_file_is_closed_when_nobody_can_ask_for_its_bytes(large):
    gc.collect()
    before = open_files()
    with opened_folder(large, "thing") as opened:
        arrays, texts = opened.arrays_but(FILE, "texts")
    assert texts.between(0, 4).tobytes() == b"word"
    del arrays, texts, opened
    gc.collect()
    assert open_files() == before
