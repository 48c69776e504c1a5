"""Folders and patterns in stores give what they would give on a disk."""

from __future__ import annotations

import io
from pathlib import Path

import fsspec
import polars
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from carp.errors import InputError, StorageError
from carp.reviews.corpora.preparation import prepare_corpus, workers_for
from carp.reviews.sources.formats import read_reviews
from carp.reviews.sources.item_files import read_items
from carp.reviews.sources.pair_files import read_pairs
from carp.reviews.sources.request import SourceRequest
from carp.reviews.sources.source_files import Reading, locate, opened
from carp.reviews.sources.store_files import find_in_store

CSV = b"user,item,rating,text\nann,lamp,5,Bright.\n"


@pytest.fixture
def store():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def filled(store, folder, **files):
    """The same files in a folder of the disk and in the store."""
    for name, content in files.items():
        store.pipe(f"/bucket/{name}", content)
        (folder / "bucket" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "bucket" / name).write_bytes(content)


def names(place):
    return [one.place.partition("bucket/")[2] for one in locate([place])]


def test_a_folder_at_an_address_has_the_files_that_it_has_on_a_disk(store, tmp_path):
    hidden = [".trash/c.csv", "_temporary/0/b.csv", "d/.part", "d/_SUCCESS", "d/_old/e.csv"]
    filled(store, tmp_path, **dict.fromkeys([*hidden, "a.csv", "d/a.csv", "d/e/f.csv"], CSV))
    assert names("memory://bucket") == names(str(tmp_path / "bucket")) == ["a.csv", "d/a.csv", "d/e/f.csv"]
    assert names("memory://bucket/") == names("memory://bucket")
    assert names("memory://bucket/**/*.csv") == ["a.csv", "d/a.csv", "d/e/f.csv"]
    assert names("memory://bucket/*") == ["a.csv", "d/a.csv", "d/e/f.csv"], "folders that match are read too"
    assert names("memory://bucket/**") == ["a.csv", "d/a.csv", "d/e/f.csv"], "and each file once"


def test_what_is_asked_for_by_its_name_is_read_though_it_is_hidden(store):
    for name in ("_in/.x.csv", "_in/a.csv", "logs/2014/_data/b.csv", "logs/2014/_other/c.csv"):
        store.pipe(f"/bucket/{name}", CSV)
    assert names("memory://bucket/_in/.x.csv") == ["_in/.x.csv"]
    assert names("memory://bucket/_in") == ["_in/a.csv"]
    assert names("memory://bucket/_in/*") == ["_in/a.csv"]
    assert names("memory://bucket/logs/*/_data/*.csv") == ["logs/2014/_data/b.csv"]
    with pytest.raises(InputError, match="there is no file"):
        locate(["memory://bucket/logs"])


def parquet(rows):
    table = io.BytesIO()
    polars.DataFrame(rows).write_parquet(table)
    return table.getvalue()


def data_set(store):
    """Reviews whose item and part of the split are said by folders alone, with leftovers of who wrote them."""
    for part, item, user in (("train", "lamp", "ann"), ("train", "desk", "bob"), ("test", "lamp", "eve")):
        content = parquet([{"user": user, "rating": 4, "text": f"{user} says so."}])
        store.pipe(f"/bucket/set/split={part}/item={item}/{user}.parquet", content)
    store.pipe("/bucket/set/_SUCCESS", b"")
    store.pipe("/bucket/set/_temporary/0/x.parquet", parquet([{"other": 1}]))
    return "memory://bucket/set"


@pytest.mark.parametrize("given", ["set", "set/", "se*"])
def test_a_parquet_data_set_at_an_address_is_one_table_with_the_columns_its_folders_name(store, tmp_path, given):
    address = data_set(store)
    reviews = read_reviews(f"memory://bucket/{given}")
    found = sorted(zip(reviews.users, reviews.items, reviews.splits, strict=True))
    assert [(user, item) for user, item, _ in found] == [("ann", "lamp"), ("bob", "desk"), ("eve", "lamp")]
    assert len({part for _, _, part in found}) == 2
    assert reviews.sources == [address]
    prepared = prepare_corpus([address], tmp_path / "corpus", SourceRequest(), min_reviews=1)
    assert prepared.facts["sources"] == [address]
    assert workers_for([address]) == 1
    assert len(read_pairs(address).pairs) == 3


def test_a_data_set_of_items_at_an_address_is_read(store):
    for kind in ("light", "seat"):
        store.pipe(f"/bucket/items/category={kind}/a.parquet", parquet([{"item": f"a {kind}", "title": kind}]))
    assert read_items("memory://bucket/items").ledger.accepted == 2


def test_copies_of_a_data_set_are_gone_when_the_next_is_read_unless_they_are_kept(store, tmp_path):
    data_set(store)
    store.pipe("/bucket/z.csv", CSV)
    left = []
    for keeps in (False, True):
        folder = tmp_path / str(keeps)
        folder.mkdir()
        how = Reading(folder, 1 << 30, keeps=keeps)
        for location in locate(["memory://bucket/set", "memory://bucket/z.csv"]):
            for file in opened(location, how):
                assert file.path.exists()
        left.append(len(list(folder.iterdir())))
    assert left == [0, 2]


def test_parquet_files_among_others_are_read_one_by_one(store):
    data_set(store)
    store.pipe("/bucket/set/a.csv", CSV)
    assert len(find_in_store("memory://bucket/set")) == 4
    assert len(find_in_store("memory://bucket/set/split=train/item=lamp/ann.parquet")) == 1


@pytest.mark.parametrize("read", [read_reviews, read_pairs])
def test_the_part_of_a_data_set_at_an_address_that_cannot_be_used_is_named(store, read):
    address = data_set(store)
    part = "/bucket/set/split=train/item=desk/bob.parquet"
    store.pipe(part, store.cat_file(part)[:-20])
    with pytest.raises(InputError, match="the table cannot be read") as refused:
        read(address)
    assert refused.value.where == f"memory:/{part}"
    assert not Path(str(refused.value.where)).exists()
    assert "copy-" not in str(refused.value)


def test_a_table_at_an_address_that_unpacks_to_too_much_is_refused(store):
    rows = [{"user": "ann", "rating": 4, "text": "again and again " * 1000}] * 2000
    store.pipe("/bucket/set/item=lamp/a.parquet", parquet(rows))
    with pytest.raises(InputError, match="memory://bucket/set: the table unpacks to more than 50 times its size"):
        read_reviews("memory://bucket/set")


def test_a_full_disk_is_not_taken_for_a_store_that_fails_nor_the_other_way_round(store, monkeypatch):
    store.pipe("/bucket/a.csv", CSV)
    opened_there, opened_here = MemoryFileSystem.open, Path.open

    def full(path, mode="r", *more):
        copies = "copy-" in path.name and "w" in mode
        return opened_here(Path("/dev/full"), "wb", 0) if copies else opened_here(path, mode)

    def cut_off(system, path, mode="rb", **more):
        found = opened_there(system, path, mode, **more)
        monkeypatch.setattr(found, "read", lambda *_: (_ for _ in ()).throw(OSError(28, "gone")), raising=False)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(StorageError, match="there is no space left on the disk"):
            read_reviews("memory://bucket/a.csv")
    monkeypatch.setattr(MemoryFileSystem, "open", cut_off)
    with pytest.raises(InputError, match=r"bucket/a\.csv: the address cannot be read \(OSError: .*gone"):
        read_reviews("memory://bucket/a.csv")
