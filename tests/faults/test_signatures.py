"""A signed folder is refused if anybody without the key changed it, and an unsigned one where a key is asked for."""

from __future__ import annotations

import json

import pytest

from carp.cli.entry import main
from carp.errors import DamagedError, StorageError, UsageError
from carp.storage import (
    MANIFEST,
    SIGNATURE,
    SealedFolder,
    check_folder,
    check_signed,
    new_folder,
    new_folders,
    seal,
    sign_folder,
    signatures,
    write_bytes,
)


@pytest.fixture
def key(tmp_path):
    return key_in(tmp_path / "key", b"k" * 32)


def key_in(path, content, mode=0o600):
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_signed_folder_passes_with_its_key_alone(folder, key, tmp_path):
    assert main(["sign", str(folder), "--key-file", str(key)]) == 0
    check_signed(folder, "thing", key)
    assert main(["sign", str(folder), "--key-file", str(key), "--check"]) == 0
    with pytest.raises(DamagedError, match="not signed with this key"):
        check_signed(folder, "thing", key_in(tmp_path / "other", b"o" * 32))


def test_a_manifest_that_takes_the_place_of_the_checked_one_is_not_signed(folder, key, monkeypatch):
    """Somebody writes another manifest after all files were checked, and before the signature is written."""
    other = json.loads((folder / MANIFEST).read_text())
    other["files"]["a.txt"]["sha256"] = "0" * 64
    checked = SealedFolder.check_all

    def then_replaced(opened):
        checked(opened)
        (folder / MANIFEST).write_text(json.dumps(other))

    monkeypatch.setattr(SealedFolder, "check_all", then_replaced)
    before = (folder / MANIFEST).read_bytes()
    sign_folder(folder, "thing", key)
    monkeypatch.undo()
    with pytest.raises(DamagedError, match="not signed with this key"):
        check_signed(folder, "thing", key)
    (folder / MANIFEST).write_bytes(before)
    check_signed(folder, "thing", key)


def test_the_key_of_the_environment_signs_what_was_sealed(folder, key, monkeypatch):
    """Whatever stands in its place as soon as it is written."""
    monkeypatch.setenv("CARP_KEY_FILE", str(key))
    written = new_folders.write_bytes

    def then_replaced(path, content):
        written(path, content)
        path.write_bytes(content.replace(b"a.txt", b"b.txt"))

    monkeypatch.setattr(new_folders, "write_bytes", then_replaced)
    seal(folder, "thing")
    with pytest.raises(DamagedError, match="not signed with this key"):
        check_signed(folder, "thing", key)


@pytest.mark.parametrize("manifest", [None, "[]", "{}", '{"kind": 3}'])
def test_only_what_carp_made_can_be_signed(tmp_path, key, manifest, capsys):
    (tmp_path / "other").mkdir()
    if manifest is not None:
        (tmp_path / "other" / MANIFEST).write_text(manifest)
    assert main(["sign", str(tmp_path / "other"), "--key-file", str(key)]) == 1
    assert "this is neither a model nor a corpus" in capsys.readouterr().err
    assert not (tmp_path / "other" / SIGNATURE).exists()


def test_a_signed_folder_whose_file_was_altered_does_not_pass(folder, key):
    """The manifest and its signature are as they were, and so is the length of the file."""
    main(["sign", str(folder), "--key-file", str(key)])
    (folder / "a.txt").write_bytes(b"CONTENT")
    with pytest.raises(DamagedError, match="differs from what was saved"):
        check_signed(folder, "thing", key)


def test_whoever_seals_a_folder_again_without_the_key_is_found_out(folder, key):
    """Every sum is right again, which a manifest alone cannot tell."""
    main(["sign", str(folder), "--key-file", str(key)])
    signature = (folder / SIGNATURE).read_bytes()
    (folder / "a.txt").write_bytes(b"altered")
    seal(folder, "thing")
    check_folder(folder, "thing")
    with pytest.raises(DamagedError, match="it is not signed"):
        check_signed(folder, "thing", key)
    (folder / SIGNATURE).write_bytes(signature)
    with pytest.raises(DamagedError, match="not signed with this key"):
        check_signed(folder, "thing", key)
    assert main(["sign", str(folder), "--key-file", str(key), "--check"]) == 1


@pytest.mark.parametrize(
    "found", [[], {}, {"algorithm": "none", "signature": ""}, {"algorithm": "hmac-sha256"}, "x", 3]
)
def test_a_signature_that_is_none_is_refused(folder, key, found):
    (folder / SIGNATURE).write_text(json.dumps(found))
    with pytest.raises(DamagedError):
        check_signed(folder, "thing", key)


def test_a_signature_by_another_rule_is_none_even_if_it_is_right(folder, key):
    sign_folder(folder, "thing", key)
    found = json.loads((folder / SIGNATURE).read_text())
    (folder / SIGNATURE).write_text(json.dumps({**found, "algorithm": "hmac-md5"}))
    with pytest.raises(DamagedError, match="not signed with this key"):
        check_signed(folder, "thing", key)


def test_with_a_key_in_the_environment_nothing_unsigned_is_read_and_what_is_made_is_signed(
    folder, key, tmp_path, monkeypatch
):
    monkeypatch.setenv("CARP_KEY_FILE", str(key))
    with pytest.raises(DamagedError, match="it is not signed"):
        check_folder(folder, "thing")
    sign_folder(folder, "thing", key)
    check_folder(folder, "thing")
    with new_folder(tmp_path / "new", "thing") as partial:
        write_bytes(partial / "a.txt", b"content")
    check_folder(tmp_path / "new", "thing")
    assert SIGNATURE not in json.loads((tmp_path / "new" / MANIFEST).read_bytes())["files"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(folder, tmp_path, mode):
    assert sign(folder, tmp_path)
    with pytest.raises(UsageError, match="others may read this key"):
        check_signed(folder, "thing", key_in(tmp_path / "open", b"k" * 32, mode))


def sign(folder, tmp_path):
    return main(["sign", str(folder), "--key-file", str(key_in(tmp_path / "mine", b"k" * 32))]) == 0


@pytest.mark.parametrize("content", [b"", b"k" * 31, b"k" * 5000])
def test_a_key_that_is_too_short_or_no_key_is_refused(folder, tmp_path, content):
    assert sign(folder, tmp_path)
    with pytest.raises(UsageError, match="a key has"):
        check_signed(folder, "thing", key_in(tmp_path / "bad", content))
    with pytest.raises(StorageError, match=r"the key cannot be read \(No such file or directory\)"):
        check_signed(folder, "thing", tmp_path / "none")


@pytest.mark.parametrize("length", [32, 4096])
def test_a_key_may_have_as_many_bytes_as_the_message_says(folder, tmp_path, length):
    allowed = key_in(tmp_path / "allowed", b"k" * length)
    sign_folder(folder, "thing", allowed)
    check_signed(folder, "thing", allowed)


def test_a_key_that_cannot_be_read_for_a_reason_without_a_number_is_told(folder, key, monkeypatch):
    def broken(path, most):
        raise OSError("the stick was pulled out")

    sign_folder(folder, "thing", key)
    monkeypatch.setattr(signatures, "read_secret", broken)
    with pytest.raises(StorageError, match=r"the key cannot be read \(the stick was pulled out\)"):
        check_signed(folder, "thing", key)


def test_what_is_damaged_is_not_signed(folder, key):
    (folder / "a.txt").write_bytes(b"altered")
    assert main(["sign", str(folder), "--key-file", str(key)]) == 1
    assert not (folder / SIGNATURE).exists()
    assert main(["sign", str(folder.parent), "--key-file", str(key)]) == 1
