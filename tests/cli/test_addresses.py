"""Commands at addresses: what a folder on the disk would be, and nothing half there that looks whole."""

from __future__ import annotations

import json
import shutil

import fsspec
import pytest
import typer

from carp.cli import entry
from carp.cli.elsewhere import at_addresses
from carp.cli.options import Address, place_of
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.shop.made_up_shop import make_shop
from carp.scale import remote_folders
from carp.storage import MANIFEST

STORE = "memory://bucket"


@pytest.fixture(autouse=True)
def empty_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    assert not list(tmp_path.glob(".carp-out-*")), "nothing is left on this machine"


@pytest.fixture
def reviews(tmp_path):
    records = make_shop(people=12, things=8, reviews_per_person=6, seed=1).records()
    (tmp_path / "reviews.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return "reviews.jsonl"


def carp(*words):
    return entry.main(list(map(str, words)))


def there(place):
    system = fsspec.filesystem("memory")
    return {name.rsplit("/", 1)[-1]: system.cat_file(name) for name in system.find(place)}


def test_every_stage_writes_to_an_address_what_it_writes_to_a_folder(reviews, tmp_path, capsys, single_thread):
    for here, corpus, model in ((True, "corpus", "model"), (False, f"{STORE}/corpus", f"{STORE}/model")):
        assert carp("prepare", reviews, "--out", corpus, "--min-reviews", "1") == 0
        assert f"The corpus is in {corpus}," in capsys.readouterr().out
        assert carp("train", corpus, "--out", model, "--model", "bias", "--device", "cpu", "--json") == 0
        assert json.loads(capsys.readouterr().out)["out"] == model
        lists, pairs = (f"{'' if here else STORE + '/'}{name}.csv" for name in ("lists", "pairs"))
        assert carp("recommend", model, "--all", "-n", "2", "--out", lists) == 0
        assert carp("predict", model, reviews, "--out", pairs) == 0
    for name in ("corpus", "model"):
        assert there(f"/bucket/{name}").keys() == {file.name for file in (tmp_path / name).iterdir()}
    assert there("/bucket/corpus") == {file.name: file.read_bytes() for file in (tmp_path / "corpus").iterdir()}
    for name in ("lists.csv", "pairs.csv"):
        assert there(f"/bucket/{name}")[name] == (tmp_path / name).read_bytes()


def test_addresses_of_this_machine_are_folders(reviews, tmp_path):
    assert carp("prepare", reviews, "--out", f"file://{tmp_path}/deep/corpus", "--min-reviews", "1") == 0
    assert len(Corpus.load(tmp_path / "deep" / "corpus")) == 73


def test_what_is_there_is_replaced_only_if_asked_for(reviews, capsys):
    words = ["prepare", reviews, "--out", f"{STORE}/corpus", "--min-reviews", "1"]
    assert carp(*words) == 0
    before = there("/bucket/corpus")
    assert carp(*words) == 2
    assert f"{STORE}/corpus: this already exists" in capsys.readouterr().err
    assert carp(*words[:-1], "2", "--overwrite") == 0
    assert there("/bucket/corpus") != before


def test_a_store_that_fails_midway_leaves_nothing_that_looks_whole(reviews, capsys, monkeypatch):
    words = ["prepare", reviews, "--out", f"{STORE}/corpus", "--min-reviews", "1"]
    assert carp(*words) == 0
    put, done = remote_folders._put, []

    def failing(system, local, path):
        done.append(path)
        if len(done) > 3:
            raise OSError("the bucket is full")
        put(system, local, path)

    monkeypatch.setattr(remote_folders, "_put", failing)
    assert carp(*words, "--overwrite") == 1
    assert "the address cannot be used (OSError: the bucket is full)" in capsys.readouterr().err
    assert MANIFEST not in there("/bucket/corpus")
    assert carp("train", f"{STORE}/corpus", "--out", "model", "--model", "bias") == 1
    assert "its manifest is missing" in capsys.readouterr().err


class Refusing(fsspec.AbstractFileSystem):  # type: ignore[misc]
    protocol = "refusing"

    def exists(self, path, **more):
        raise PermissionError("Unable to locate credentials" if "secret" in path else "NoSuchBucket: no such bucket")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("refusing://secret/corpus", "PermissionError: Unable to locate credentials"),
        ("refusing://gone/corpus", "NoSuchBucket"),
        ("nowhere://bucket/corpus", "the address cannot be used"),
    ],
)
def test_a_missing_bucket_or_missing_credentials_are_told_before_the_work(reviews, capsys, address, said):
    fsspec.register_implementation("refusing", Refusing, clobber=True)
    assert carp("prepare", "no-such-file.jsonl", "--out", address) == 1
    told = capsys.readouterr().err
    assert said in told
    assert "no-such-file" not in told


def test_a_training_that_was_stopped_goes_on_though_its_place_is_an_address(reviews, tmp_path, monkeypatch, capsys):
    assert carp("prepare", reviews, "--out", "corpus", "--min-reviews", "1") == 0
    small = ["dimension=6", "filters=5", "latent_size=4", "viewpoints=2", "epochs=2"]
    words = ["train", "corpus", "--out", f"{STORE}/model", "--model", "carp", "--device", "cpu", "--quiet"]
    words += [part for one in small for part in ("--set", one)]
    monkeypatch.setattr(remote_folders, "bring_there", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    from carp.recommender import Recommender

    with monkeypatch.context() as stopping:
        stopping.setattr(Recommender, "save", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert carp(*words) == 1
    left = list(tmp_path.glob(".carp-out-*/model.training"))
    assert len(left) == 1
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert carp(*words, "--resume") == 0
    assert MANIFEST in there("/bucket/model")
    shutil.rmtree(left[0].parent, ignore_errors=True)


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("place", ["there.txt", f"{STORE}/there.txt"])
def test_a_command_that_ends_with_an_exit_code_ends_with_it_and_delivers_only_what_is_well(tmp_path, place, code):
    def command(out):
        out.write_text("done")
        raise typer.Exit(code)

    given, left = place_of(place), None
    try:
        at_addresses(command)(out=given)
    except typer.Exit as end:
        left = end.exit_code
    far = isinstance(given, Address)
    assert left == (None if far and not code else code)
    assert there("/bucket") == ({"there.txt": b"done"} if far and not code else {})
