"""Commands that change a model change the one at the address: whole, nobody else's, and told only when it is so."""

from __future__ import annotations

import json
import shutil

import fsspec
import pytest

import carp as package
from carp.cli import entry
from carp.scale import remote_changes, remote_exchanges, remote_folders
from carp.storage import MANIFEST, SIGNATURE

SOMEBODY = "person-001"


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path, monkeypatch, saved):
    """A store of fsspec's with the model in it, and an update to give it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.csv").write_text("user,item,rating,text\nann,thing-001,5,It is light and it lasts.\n")
    system = fsspec.filesystem(request.param)
    root = "/bucket" if request.param == "memory" else f"{tmp_path}/bucket"
    system.makedirs(root)
    system.put(str(saved), f"{root}/model", recursive=True)
    yield Store(request.param, system, root)
    if request.param == "memory":
        system.store.clear()
        system.pseudo_dirs[:] = [""]


class Store:
    def __init__(self, kind, system, root):
        self.system, self.root = system, root
        self.model = f"{kind}://{root.lstrip('/') if kind == 'memory' else root}/model"

    def there(self):
        """The content of every file, also of those that readers do not take."""
        found = self.system.find(f"{self.root}/model", withdirs=False)
        return {name.split("/model/", 1)[1]: self.system.cat_file(name) for name in found}

    def fetched(self, folder):
        return package.load(remote_folders.bring_here(self.model, folder))


def carp(*words):
    return entry.main(list(map(str, words)))


def test_an_update_is_there_where_the_model_is(store, tmp_path, capsys):
    assert carp("update", store.model, "new.csv") == 0
    said = capsys.readouterr()
    assert "came in" in said.out
    assert f"{store.model}: updated" in said.err
    assert "ann" in store.fetched(tmp_path / "again").fitted_corpus.users.index()
    assert not [name for name in store.there() if name.startswith(".")]


def test_who_is_forgotten_is_forgotten_where_the_model_is(store, tmp_path, capsys):
    assert any(SOMEBODY.encode() in content for content in store.there().values())
    left = f"{store.root}/model/.0123456789abcdef.coming/records.safetensors"  # by a writer that was killed
    store.system.makedirs(left.rsplit("/", 1)[0], exist_ok=True)
    store.system.pipe_file(left, SOMEBODY.encode())
    assert carp("forget", store.model, "--user", SOMEBODY) == 0
    assert "nothing of theirs is left" in capsys.readouterr().out
    assert not any(SOMEBODY.encode() in content for content in store.there().values())
    assert SOMEBODY not in store.fetched(tmp_path / "again").fitted_corpus.users.index()


def test_a_signature_is_there_where_the_model_is(store, tmp_path, capsys):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    before = store.there()
    assert carp("sign", store.model, "--key-file", key) == 0
    assert f"{store.model}: signed" in capsys.readouterr().err
    assert carp("sign", store.model, "--key-file", key, "--check") == 0
    after = store.there()
    assert after.pop(SIGNATURE)
    assert after == before


def test_what_only_reads_changes_nothing_there(store, monkeypatch):
    monkeypatch.setattr(remote_exchanges, "put", None)
    before = store.there()
    assert carp("update", store.model, "new.csv") == 1, "whoever writes is seen to write"
    assert carp("predict", store.model, "--user", SOMEBODY, "--item", "thing-001") == 0
    assert store.there() == before


def test_a_model_that_somebody_else_changed_meanwhile_is_not_replaced(store, capsys, monkeypatch):
    from carp.upkeep import updating

    update = updating.update_model

    def slow(*given, **more):
        report = update(*given, **more)
        store.system.pipe_file(f"{store.root}/model/{MANIFEST}", b"{}")
        return report

    monkeypatch.setattr(updating, "update_model", slow)
    theirs = {**store.there(), MANIFEST: b"{}"}
    assert carp("update", store.model, "new.csv") == 1
    said = capsys.readouterr()
    assert f"{store.model}: somebody else has changed it since it was fetched; nothing was changed" in said.err
    assert said.out == ""
    assert store.there() == theirs


@pytest.mark.parametrize("when", ["coming", "arriving"])
def test_a_delivery_that_fails_leaves_the_model_and_says_so(store, capsys, monkeypatch, when):
    before, put, done = store.there(), remote_folders.put, []

    def failing(system, local, path):
        done.append(path)
        if len(done) > 2:
            raise OSError("the bucket is full")
        put(system, local, path)

    copy = store.system.cp_file

    def failing_copy(one, other, **more):
        if ".coming/" not in str(one):
            return copy(one, other)
        done.append(other)
        if len(done) > 2:
            raise OSError("the bucket is full")
        return copy(one, other)

    if when == "coming":
        monkeypatch.setattr(remote_exchanges, "put", failing)
    else:
        monkeypatch.setattr(store.system, "cp_file", failing_copy)
    assert carp("forget", store.model, "--user", SOMEBODY, "--json") == 1
    said = capsys.readouterr()
    assert "the bucket is full); nothing was changed. Fix:" in said.err
    assert said.out == "", "nobody is told that it was done"
    assert store.there() == before


def test_where_even_undoing_fails_the_changed_model_is_kept_and_named(store, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def silent(*_):
        raise OSError("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(remote_changes, "put", silent)
        copy = store.system.cp_file
        broken.setattr(
            store.system, "cp_file", lambda one, other: copy(one, other) if ".coming/" not in one else silent()
        )
        assert carp("update", store.model, "new.csv") == 1
    told = capsys.readouterr().err
    assert "it is not whole there any more" in told
    kept = next(tmp_path.glob("carp-kept-*/model"))
    assert f"copy the files of {kept} there" in told
    assert "ann" in package.load(kept).fitted_corpus.users.index()
    assert MANIFEST not in store.there()
    assert carp("predict", store.model, "--user", SOMEBODY, "--item", "thing-001") == 1
    assert "its manifest is missing" in capsys.readouterr().err
    assert carp("update", store.model, "new.csv") == 0, "it finishes what is there"
    assert "ann" in store.fetched(tmp_path / "again").fitted_corpus.users.index()


def test_who_reads_while_a_model_is_replaced_gets_the_old_one_the_new_one_or_none(store, tmp_path, monkeypatch):
    """Every single step of a writer is followed by a reader."""
    old, seen, reading = store.there(), [], []

    def read(path):
        if reading or not str(path).startswith(store.root):  # some stores copy to this machine by the same function
            return
        reading.append(path)
        place = tmp_path / f"read-{len(seen)}"
        try:
            remote_folders.bring_here(store.model, place)
        except package.CarpError as error:
            seen.append(error.what)
        else:
            package.load(place)
            seen.append({file.name: file.read_bytes() for file in place.iterdir()})
        reading.clear()

    for name in ("put_file", "cp_file", "rm_file"):
        step = getattr(store.system, name)
        monkeypatch.setattr(
            store.system, name, lambda *given, step=step, **more: (step(*given, **more), read(given[-1]))
        )
    assert carp("update", store.model, "new.csv") == 0
    new = store.there()
    assert old in seen
    assert new in seen
    assert any("there is no whole folder here: its manifest is missing" in one for one in seen if isinstance(one, str))
    assert all(one in (old, new) or isinstance(one, str) for one in seen)


def test_a_folder_that_is_replaced_while_it_is_fetched_is_fetched_again(store, tmp_path, monkeypatch, saved):
    other = shutil.copytree(saved, tmp_path / "other")
    from carp.upkeep.updating import update_model

    update_model(other, "new.csv", device="cpu")
    get, begun = store.system.get_file, []

    def replaced(path, to, **more):
        begun.append(path)
        if len(begun) == 3:
            store.system.put(str(other), f"{store.root}", recursive=True)
            for file in other.iterdir():
                store.system.put_file(str(file), f"{store.root}/model/{file.name}")
        get(path, to, **more)

    before = store.system.cat_file(f"{store.root}/model/{MANIFEST}")
    monkeypatch.setattr(store.system, "get_file", replaced)
    place = remote_folders.bring_here(store.model, tmp_path / "fetched")
    assert remote_folders.manifest_of(place) == (other / MANIFEST).read_bytes() != before
    assert "ann" in package.load(place).fitted_corpus.users.index()


def test_a_file_address_is_the_folder_itself(saved, tmp_path, capsys):
    model = shutil.copytree(saved, tmp_path / "model")
    (tmp_path / "new.csv").write_text("user,item,rating,text\nann,thing-001,5,It is light and it lasts.\n")
    assert carp("update", f"file://{model}", f"file://{tmp_path}/new.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["reviews"] == 1
    assert "ann" in package.load(model).fitted_corpus.users.index()
    assert carp("forget", f"file://{model}", "--user", "ann") == 0
    assert "ann" not in package.load(model).fitted_corpus.users.index()
