"""A folder that is named through a link is the folder behind it: there it is locked, changed and swept."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars
import pytest

import carp
from carp.cli.entry import main
from carp.errors import StorageError, UsageError
from carp.storage import (
    check_folder,
    check_signed,
    holding,
    leftovers,
    new_folder,
    refuse_existing,
    sole_writer,
    sweep,
    write_bytes,
)
from carp.upkeep import forgetting
from carp.upkeep.forgetting import forget_person
from carp.upkeep.updating import update_model

NEW = polars.DataFrame(
    {"user": ["zacharias-quine"], "item": ["thing-001"], "rating": [4.0], "text": ["A zyxtremely loud quarble."]}
)


@pytest.fixture
def link(folder: Path) -> Path:
    """A link to the sealed folder, in another folder."""
    return linked(folder.parent / "deployed" / "current", folder)


def linked(link: Path, folder: Path) -> Path:
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(folder)
    return link


def replaced(path, content):
    with new_folder(path, "thing", overwrite=True) as partial:
        write_bytes(partial / "a.txt", content)
        return partial


def names(folder):
    return sorted(one.name for one in folder.iterdir())


# ---- folders


def test_whoever_writes_through_a_link_keeps_out_those_who_name_the_folder_itself(folder, link):
    def second(path):
        with sole_writer(path):
            pass

    for held, asked in ((folder, link), (link, folder)):
        with sole_writer(held) as place, ThreadPoolExecutor(1) as other:
            assert place == folder
            with pytest.raises(UsageError, match="another process is writing here") as caught:
                other.submit(second, asked).result()
            assert caught.value.where == str(asked), "the place is called what the user called it"
            with pytest.raises(UsageError, match="another process is writing here") as caught:
                other.submit(replaced, asked, b"theirs").result()
            assert caught.value.where == str(asked)


def test_what_is_written_through_a_link_replaces_the_folder_behind_it(folder, link):
    partial = replaced(link, b"new")
    assert partial.parent == folder.parent, "filled beside the folder, which may be on another disk than the link"
    assert (folder / "a.txt").read_bytes() == b"new"
    assert link.readlink() == folder
    assert names(link.parent) == ["current"]
    assert names(folder.parent) == ["deployed", "thing"]
    check_folder(link, "thing")


def test_a_link_that_leads_through_other_links_is_one_place_too(folder, link):
    """A link to a link, and a folder on the way that is one."""
    way = linked(folder.parent / "way", link.parent)
    second = linked(link.parent / "second", Path("current"))
    replaced(way / "second", b"new")
    assert (folder / "a.txt").read_bytes() == b"new"
    assert second.readlink() == Path("current")


def test_a_place_without_links_is_called_what_it_was_called(folder, monkeypatch):
    """Else every message about a folder would name the whole way there."""
    monkeypatch.chdir(folder.parent)
    with sole_writer(Path("thing")) as place, ThreadPoolExecutor(1) as other:
        assert place == Path("thing")
        with pytest.raises(UsageError, match="another process is writing here") as caught:
            other.submit(holding(Path("thing")).__enter__).result()
    assert caught.value.where == "thing"
    with pytest.raises(UsageError, match="this already exists") as caught:
        refuse_existing(Path("thing"), overwrite=False)
    assert caught.value.where == "thing"


def test_what_is_behind_a_link_is_not_replaced_unasked(folder, link):
    with pytest.raises(UsageError, match="this already exists") as caught, new_folder(link, "thing"):
        pass
    assert caught.value.where == str(link)
    (folder / "manifest.json").unlink()
    with pytest.raises(UsageError, match="was not made by carp") as caught:
        replaced(link, b"new")
    assert caught.value.where == str(link)


def test_what_a_link_leads_to_is_made_where_it_is_missing(tmp_path):
    link = linked(tmp_path / "current", Path("models") / "model-v1")
    with sole_writer(link) as place:
        assert place == tmp_path / "models" / "model-v1"
    replaced(link, b"new")
    check_folder(tmp_path / "models" / "model-v1", "thing")
    assert link.is_symlink()


def test_a_refusal_of_the_disk_names_the_link_and_not_what_is_on_its_way(link):
    with pytest.raises(StorageError) as caught, new_folder(link, "thing", overwrite=True) as partial:
        raise StorageError("there is no space left on the disk", where=str(partial / "a.txt"))
    assert caught.value.where == str(link)


def test_a_folder_set_aside_comes_back_to_whoever_reads_through_a_link(folder, link):
    folder.rename(folder.with_name(f".thing.{'0' * 16}.replaced"))
    check_folder(link, "thing")
    assert names(folder.parent) == ["deployed", "thing"]


@pytest.mark.parametrize("kind", ["partial", "replaced"])
def test_a_link_that_was_set_aside_is_swept_and_what_it_leads_to_is_not(folder, kind):
    """Versions before this one exchanged the link in place of the folder."""
    replaced(folder.with_name("new"), b"old")
    linked(folder.with_name(f".new.{'0' * 16}.{kind}"), folder)
    replaced(folder.with_name("new"), b"new")
    assert names(folder.parent) == ["new", "thing"]
    assert (folder / "a.txt").read_bytes() == b"content"


def test_a_link_that_was_set_aside_comes_back_before_anything_is_written_through_it(folder):
    linked(folder.with_name(f".new.{'0' * 16}.replaced"), folder)
    replaced(folder.with_name("new"), b"new")
    assert names(folder.parent) == ["new", "thing"]
    assert folder.with_name("new").readlink() == folder
    assert (folder / "a.txt").read_bytes() == b"new"


def test_a_link_that_leads_nowhere_any_longer_is_swept_too(folder):
    left = linked(folder.with_name(f".thing.{'0' * 16}.partial"), folder.with_name("gone"))
    sweep(folder.parent, "thing")
    assert not left.is_symlink()


def test_a_link_that_may_not_be_removed_stops_nobody(folder, monkeypatch):
    left = linked(folder.with_name(f".thing.{'0' * 16}.partial"), folder)

    def refused(path, missing_ok=False):
        raise PermissionError(1, "not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(leftovers.Path, "unlink", refused)
        sweep(folder.parent, "thing")
    assert left.is_symlink()


# ---- models and corpora


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A file of reviews, the corpus of it, and a key."""
    folder = tmp_path_factory.mktemp("shop")
    carp.make_shop(people=20, things=8, reviews_per_person=6, seed=1).frame().write_csv(folder / "reviews.csv")
    assert main(["prepare", str(folder / "reviews.csv"), "--out", str(folder / "corpus"), "--min-reviews", "1"]) == 0
    (folder / "key").write_bytes(b"k" * 32)
    (folder / "key").chmod(0o600)
    return folder


def trained(shop, out, *more):
    return main(["train", str(shop / "corpus"), "--model", "bias", "--out", str(out), "--quiet", *more])


@pytest.fixture
def deployed(shop, tmp_path):
    """A link as many deploy a model: `current` leads to one of several."""
    assert trained(shop, tmp_path / "model-v1") == 0
    return linked(tmp_path / "current", Path("model-v1"))


def bytes_in(folder):
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_who_is_forgotten_through_a_link_is_gone_from_every_folder(deployed):
    update_model(deployed, NEW, device="cpu")
    assert b"zacharias-quine" in bytes_in(deployed.parent / "model-v1")
    forget_person(deployed, "zacharias-quine", device="cpu")
    assert b"zacharias-quine" not in bytes_in(deployed.parent)
    assert names(deployed.parent) == ["current", "model-v1"]
    assert deployed.readlink() == Path("model-v1")


def test_a_link_that_is_switched_meanwhile_lets_no_other_model_be_replaced(deployed, shop, monkeypatch):
    assert trained(shop, deployed.parent / "model-v2") == 0
    second = bytes_in(deployed.parent / "model-v2")
    update_model(deployed, NEW, device="cpu")
    load = forgetting.load

    def then_switched(folder, **options):
        found = load(folder, **options)
        deployed.unlink()
        deployed.symlink_to("model-v2")
        return found

    monkeypatch.setattr(forgetting, "load", then_switched)
    forget_person(deployed, "zacharias-quine", device="cpu")
    assert bytes_in(deployed.parent / "model-v2") == second
    assert b"zacharias-quine" not in bytes_in(deployed.parent)


def test_training_through_a_link_replaces_the_model_behind_it(deployed, shop):
    before = bytes_in(deployed.parent / "model-v1")
    assert trained(shop, deployed) == 2
    assert bytes_in(deployed.parent / "model-v1") == before
    assert trained(shop, deployed, "--overwrite", "--seed", "7") == 0
    assert bytes_in(deployed.parent / "model-v1") != before
    assert names(deployed.parent) == ["current", "model-v1"]
    assert deployed.is_symlink()


def test_who_trains_through_a_link_is_told_by_its_name_that_somebody_writes_there(deployed, shop, capsys):
    with ThreadPoolExecutor(1) as other, sole_writer(deployed.parent / "model-v1"):
        assert other.submit(trained, shop, deployed, "--overwrite").result() == 2
    assert f"{deployed}: another process is writing here" in re.sub(r"\s+", " ", capsys.readouterr().err)


def test_checkpoints_may_lie_behind_a_link(deployed, shop):
    """Say on a larger disk. They go with the end of the training, and the next one finds its way there again."""
    place = linked(deployed.with_name("model-v1.training"), Path("scratch"))
    few = ["--overwrite", "--model", "mf", "--set", "epochs=1"]
    for _ in range(2):
        assert main(["train", str(shop / "corpus"), "--out", str(deployed), "--quiet", *few]) == 0
        assert names(deployed.parent) == ["current", "model-v1", "model-v1.training"]
    assert place.is_symlink()


def test_preparing_through_a_link_replaces_the_corpus_behind_it(shop, tmp_path):
    link = linked(tmp_path / "corpus", tmp_path / "data" / "corpus-v1")
    command = ["prepare", str(shop / "reviews.csv"), "--out", str(link), "--min-reviews", "1"]
    assert main(command) == 0
    check_folder(tmp_path / "data" / "corpus-v1", "corpus")
    assert main(command) == 2
    assert main([*command, "--overwrite"]) == 0
    assert names(tmp_path) == ["corpus", "data"]
    assert names(tmp_path / "data") == ["corpus-v1"]
    assert link.is_symlink()


def test_a_corpus_that_cannot_be_made_leaves_no_folders_behind_a_link(tmp_path):
    link = linked(tmp_path / "corpus", tmp_path / "data" / "corpora" / "v1")
    (tmp_path / "reviews.csv").write_text("user,item,rating,text\nann,tea,five stars,Good\n")
    assert main(["prepare", str(tmp_path / "reviews.csv"), "--out", str(link)]) == 1
    assert names(tmp_path) == ["corpus", "reviews.csv"]


def test_the_folder_behind_a_link_is_signed(deployed, shop, capsys):
    key = shop / "key"
    assert main(["sign", str(deployed), "--key-file", str(key)]) == 0
    assert f"{deployed}: signed" in re.sub(r"\s+", " ", capsys.readouterr().err)
    check_signed(deployed.parent / "model-v1", "model", key)
    assert names(deployed.parent) == ["current", "model-v1"]


def test_aspects_are_named_in_the_model_behind_a_link_which_nobody_changes_meanwhile(deployed, monkeypatch):
    read, written = [], []

    class Named:
        def rename_aspects(self, names):
            with ThreadPoolExecutor(1) as other, pytest.raises(UsageError, match="another process is writing here"):
                other.submit(replaced, deployed, b"theirs").result()

        def save(self, folder, *, overwrite):
            written.append(folder)

        def aspects(self, pairs):
            return "aspects"

    monkeypatch.setattr(carp, "load", lambda folder: read.append(folder) or Named())
    assert main(["aspects", str(deployed), "--rename", "straps=Straps"]) == 0
    assert read == written == [deployed.parent / "model-v1"]
