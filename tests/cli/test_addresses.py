"""Commands at addresses: what a folder on the disk would be, and nothing half there that looks whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import fsspec
import pytest
import typer

from carp.cli import entry, places
from carp.cli.elsewhere import at_addresses
from carp.cli.places import Address, new_place
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.shop.made_up_shop import make_shop
from carp.scale import remote_deliveries, remote_exchanges, remote_folders
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
    before, put, done = there("/bucket/corpus"), remote_folders.put, []

    def failing(system, local, path):
        done.append(path)
        if len(done) > 3:
            raise OSError("the bucket is full")
        put(system, local, path)

    monkeypatch.setattr(remote_exchanges, "put", failing)
    assert carp(*words, "--overwrite") == 1
    assert "the address cannot be used (OSError: the bucket is full)" in capsys.readouterr().err
    assert there("/bucket/corpus") == before, "what was there is touched only when all of the new is there"


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
    monkeypatch.setattr(remote_deliveries, "bring_there", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
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

    given, left = new_place(place), None
    try:
        at_addresses(command)(out=given)
    except typer.Exit as end:
        left = end.exit_code
    far = isinstance(given, Address)
    assert left == (None if far and not code else code)
    assert there("/bucket") == ({"there.txt": b"done"} if far and not code else {})


def test_every_kind_of_input_may_lie_at_an_address(reviews, tmp_path, capsys):
    system = fsspec.filesystem("memory")

    def put(name, *lines):
        system.pipe_file(f"/bucket/{name}", "".join(f"{line}\n" for line in lines).encode())
        return f"{STORE}/{name}"

    quietly = ("--model", "mf", "--set", "epochs=1", "--device", "cpu", "--quiet")
    assert carp("prepare", reviews, "--out", f"{STORE}/corpus", "--min-reviews", "1") == 0
    corpus = Corpus.load(remote_folders.bring_here(f"{STORE}/corpus", tmp_path / "here"))
    ids = [(corpus.users[user], corpus.items[item]) for user, item in zip(corpus.user, corpus.item, strict=True)]
    parts = ["train"] * (len(ids) - 6) + ["valid"] * 3 + ["test"] * 3
    rows = [f"{user},{item},{part}" for (user, item), part in zip(ids, parts, strict=True)]
    split = put("split.csv", "user,item,split", *rows)
    assert carp("train", f"{STORE}/corpus", "--out", f"{STORE}/model", "--split", split, *quietly) == 0
    capsys.readouterr()
    model = f"{STORE}/model"
    assert carp("train", f"{STORE}/corpus", "--out", "again", "--from", model, "--split", split, *quietly) == 0
    assert json.loads((tmp_path / "again" / "model.json").read_text())["data"]["split"] == split
    user = ids[0][0]
    chosen = put("items.txt", "thing-001", "thing-002")
    capsys.readouterr()
    assert carp("recommend", model, "--all", "--among", chosen) == 0
    assert all({"thing-001", "thing-002"} & set(line.split(",")) for line in capsys.readouterr().out.splitlines()[1:])
    pairs = put("pairs.csv", "user,item", f"{user},thing-001")
    assert carp("predict", model, pairs) == 0
    assert carp("predict", model, put("empty.csv")) == 1
    assert "bucket/empty.csv: the file is empty" in capsys.readouterr().err
    fits = ["--seeds", "1", "--out", "results", "--device", "cpu"]
    assert carp("bench", f"{STORE}/corpus", "--models", "mean", *fits) == 0
    results = tmp_path / "results"
    system.put(str(results), "/bucket/results", recursive=True)
    capsys.readouterr()
    assert carp("report", f"{STORE}/results") == 0
    assert "mean" in capsys.readouterr().out
    assert carp("recommend", model, "-", "--reviews", put("texts.txt", "It is light.")) == 2
    assert "cannot rate for a newcomer" in capsys.readouterr().err
    assert carp("study", f"{STORE}/nothing", "--vary", "dropout=0.1,0.2") == 1
    assert f"{STORE}/nothing: there is no whole folder here" in capsys.readouterr().err


def test_an_error_about_a_copy_names_the_address(reviews, capsys):
    assert carp("prepare", reviews, "--out", f"{STORE}/corpus", "--min-reviews", "1") == 0
    fsspec.filesystem("memory").pipe_file("/bucket/corpus/tokens.npy", b"damaged")
    assert carp("train", f"{STORE}/corpus", "--out", "model", "--model", "bias") == 1
    assert f"{STORE}/corpus/tokens.npy: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["prepare", "needy://b/r.csv", "--out", "c"], ["predict", "needy://b/m", "--user", "a"]]
)
def test_a_store_whose_package_is_missing_is_told_with_the_command_that_installs_it(words, capsys):
    fsspec.register_implementation("needy", "needyfs.core.FileSystem", clobber=True)
    assert carp(*words, *(["--item", "b"] if words[0] == "predict" else [])) == 1
    told = capsys.readouterr().err
    assert "this kind of address needs the package needyfs. Fix: install it with: pip install needyfs." in told


@pytest.mark.parametrize("parser", [places.sealed_folder, places.any_place, places.text_or_file])
def test_copies_for_a_cluster_are_in_the_folder_that_the_command_begins_in(tmp_path, parser):
    fsspec.filesystem("memory").pipe_file(f"/bucket/model/{MANIFEST}", b"{}")
    address = f"{STORE}/model/{MANIFEST}" if parser is places.text_or_file else f"{STORE}/model"
    seen = {}

    def command(model, engine):
        assert Path(model).exists()
        seen[engine] = Path(model).absolute()

    for engine in ("ray", "here"):
        at_addresses(command)(model=parser(address), engine=engine)
    assert seen["ray"].is_relative_to(tmp_path)
    assert seen["ray"].relative_to(tmp_path).parts[0].startswith(".carp-in-")
    assert not seen["here"].is_relative_to(tmp_path)
    assert not list(tmp_path.glob(".carp-in-*"))


def test_replicas_of_a_service_get_copies_from_the_folder_that_the_command_begins_in(tmp_path, monkeypatch):
    from carp.serve import ray_replicas

    served = []
    fsspec.filesystem("memory").pipe_file(f"/bucket/model/{MANIFEST}", b"{}")
    monkeypatch.setattr(ray_replicas, "run_replicas", lambda options, *_: served.append(options))
    assert carp("serve", f"{STORE}/model", "--engine", "ray") == 0
    assert served[0].model.is_relative_to(tmp_path)
    assert served[0].copies.folder.is_relative_to(tmp_path), "where a newer model is fetched to"
    assert not list(tmp_path.glob(".carp-in-*"))
