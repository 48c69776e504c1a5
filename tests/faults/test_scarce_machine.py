"""A full disk and missing memory are told as such, and not as damage of what was being read."""

from __future__ import annotations

import errno
import io
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import fsspec
import polars
import pytest
from openpyxl.reader.excel import ExcelReader

import carp
import fuzz_targets
from carp.errors import CarpError, InputError, StorageError
from carp.persist import bundle
from carp.render.parquet_blocks import write_parquet
from carp.reviews.sources import frames
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.source_files import Reading
from carp.reviews.sources.unpacking import check_file
from carp.serve import ray_replicas
from made_up_reviews import shop_reviews

CSV = b"user,item,rating,text\na,b,4,fine\n"
FULL = Path("/dev/full")
NO_MEMORY = [
    MemoryError("std::bad_alloc"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
]


def raising(error):
    def fails(*_, **__):
        raise error

    return fails


def archive_at(path):
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("r.csv", CSV)
    return str(path)


@pytest.fixture
def stored():
    store = fsspec.filesystem("memory")
    store.pipe("/scarce/r.csv", CSV)
    yield "memory://scarce/r.csv"
    store.rm("/scarce", recursive=True)


# ---- the disk


@pytest.fixture
def full_disk(tmp_path, monkeypatch):
    """Copies go where nothing can be written."""
    if not FULL.exists():
        pytest.skip("this system has no device that is always full")
    copy = tmp_path / "copy"
    copy.symlink_to(FULL)
    monkeypatch.setattr(Reading, "copy", lambda how: copy)


@pytest.mark.parametrize("kind", ["zip", "standard input", "address"])
def test_a_copy_that_finds_no_room_is_told_as_a_full_disk(tmp_path, monkeypatch, full_disk, stored, kind):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CSV)))
    place = {"zip": archive_at(tmp_path / "r.zip"), "standard input": "-", "address": stored}[kind]
    with pytest.raises(StorageError, match=r"no space left on the disk.*free some space"):
        read_reviews(place)


def test_what_cannot_be_read_is_not_told_as_a_fault_of_the_disk_that_copies_go_to(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile.ZipExtFile, "read", raising(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(InputError, match=r"zip archive cannot be read.*Input/output error"):
        read_reviews(archive_at(tmp_path / "r.zip"))


def test_a_parquet_file_that_finds_no_room_is_told_as_a_full_disk_and_leaves_nothing(tmp_path):
    if not FULL.exists():
        pytest.skip("this system has no device that is always full")
    out = tmp_path / "best.parquet"
    out.symlink_to(FULL)
    with out.open("wb") as file, pytest.raises(StorageError, match=r"no space left on the disk.*free some space"):
        write_parquet(iter([{"user": "a"}]), {"user": "String"}, file)
    assert list(tmp_path.iterdir()) == [out]


# ---- memory


@pytest.mark.parametrize("error", NO_MEMORY, ids=repr)
def test_missing_memory_is_not_taken_for_a_damaged_source(tmp_path, monkeypatch, stored, error):
    table, sheet = tmp_path / "r.parquet", tmp_path / "r.xlsx"
    polars.DataFrame([fuzz_targets.ROW]).write_parquet(table)
    sheet.write_bytes(fuzz_targets.workbook(fuzz_targets.ROW))
    archive = archive_at(tmp_path / "r.zip")
    monkeypatch.setattr(zipfile.ZipExtFile, "read", raising(error))
    monkeypatch.setattr(ExcelReader, "read", raising(error))
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "_open", raising(error))
    monkeypatch.setattr(frames, "row_bytes", raising(error))
    for place in (archive, sheet, stored):
        with pytest.raises(MemoryError):
            read_reviews(str(place))
    # Of the errors of tables, only those are caught that polars has for it.
    with pytest.raises(type(error) if isinstance(error, RuntimeError) else MemoryError):
        read_reviews(str(table))


def test_missing_memory_is_not_taken_for_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    (tmp_path / "r.csv").write_bytes(CSV)
    monkeypatch.setattr(Path, "stat", raising(OSError(errno.ENOMEM, "Cannot allocate memory")))
    with pytest.raises(MemoryError):
        check_file(tmp_path / "r.csv")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("scarce") / "model"
    carp.Recommender("bias", min_reviews=1).fit(shop_reviews(), progress=False).save(place)
    return place


@pytest.mark.parametrize("error", NO_MEMORY, ids=repr)
def test_missing_memory_is_not_taken_for_a_damaged_model(model, monkeypatch, error):
    monkeypatch.setattr(bundle, "_model", raising(error))
    with pytest.raises(MemoryError):
        carp.load(model)
    monkeypatch.setattr(bundle, "_model", raising(RuntimeError("size mismatch")))
    with pytest.raises(CarpError, match="do not fit together"):
        carp.load(model)


@pytest.mark.parametrize(
    ("error", "words"), [(MemoryError(), "too little memory"), (InputError("it is damaged"), "it is damaged")]
)
def test_replicas_go_on_with_the_model_of_before_where_there_is_no_memory_for_another(monkeypatch, error, words):
    monkeypatch.setattr(ray_replicas, "_deploy", raising(error))
    said: list[str] = []
    ray_replicas._deploy_again(SimpleNamespace(copies=None, place="model"), said.append)
    assert "the one of before goes on" in said[0]
    assert words in said[0]
