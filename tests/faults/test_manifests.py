"""What a manifest may say, and what may stand where it says that a file is."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import socket

import pytest

from carp.errors import DamagedError
from carp.storage import MANIFEST, opened_folder, seal, sealed_folders, write_bytes


def said(folder, files):
    """The manifest says something else of the files."""
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, "files": files}))


def refused(folder, reason):
    with pytest.raises(DamagedError, match=reason), opened_folder(folder, "thing"):
        pass


@pytest.mark.parametrize("content", ["[]", "3", "null", '"kind"', '{"files": []}', '{"kind": "thing"}'])
def test_a_manifest_of_another_shape_is_damaged(folder, content):
    (folder / MANIFEST).write_text(content)
    refused(folder, "the manifest is damaged")


def test_a_manifest_may_name_so_many_files_and_no_more(folder, monkeypatch):
    monkeypatch.setattr(sealed_folders, "MOST_FILES", 2)
    with opened_folder(folder, "thing") as opened:
        assert sorted(opened.names()) == ["a.txt", "deep/b.txt"]
    write_bytes(folder / "c.txt", b"content")
    seal(folder, "thing")
    refused(folder, "the manifest is damaged")


def test_a_name_has_two_hundred_characters_at_most(folder):
    write_bytes(folder / ("n" * 200), b"content")
    seal(folder, "thing")
    with opened_folder(folder, "thing") as opened:
        assert opened.read("n" * 200) == b"content"
    (folder / ("n" * 200)).rename(folder / ("n" * 201))
    seal(folder, "thing")
    refused(folder, "the manifest is damaged")


@pytest.mark.parametrize("name", ["{outside}", "../outside", "deep/../a.txt", "./a.txt", "deep//b.txt", "", "a\0.txt"])
def test_a_name_leads_nowhere_but_to_a_place_inside_and_is_written_in_one_way(folder, name):
    content = b"content"
    outside = folder.parent / "outside"
    write_bytes(outside, content)
    true = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    said(folder, {name.format(outside=outside): true})
    refused(folder, "the manifest is damaged")


def gone(folder):
    (folder / "deep" / "b.txt").unlink()


def a_file_for_a_folder(folder):
    shutil.rmtree(folder / "deep")
    write_bytes(folder / "deep", b"content")


def a_socket_for_a_folder(folder):
    """To open one is an error of its own, and to open a pipe would take for ever."""
    shutil.rmtree(folder / "deep")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(folder / "deep"))  # the name of a socket may not be long


def a_folder_for_a_file(folder):
    gone(folder)
    (folder / "deep" / "b.txt").mkdir()


def a_link_for_a_file(folder):
    gone(folder)
    (folder / "deep" / "b.txt").symlink_to(folder / "a.txt")


def a_link_for_a_folder(folder):
    (folder / "deep").rename(folder.parent / "elsewhere")
    (folder / "deep").symlink_to(folder.parent / "elsewhere")


INSTEAD = {
    gone: "a file of the folder is missing",
    a_file_for_a_folder: "a file of the folder is missing",
    a_socket_for_a_folder: "a file of the folder is missing",
    a_folder_for_a_file: r"a file of the folder cannot be read \(Is a directory\)",
    a_link_for_a_file: "a link stands where a file of the folder should be",
    a_link_for_a_folder: "a file of the folder is missing",
}


@pytest.mark.parametrize(("done", "reason"), INSTEAD.items(), ids=[done.__name__ for done in INSTEAD])
def test_what_stands_where_a_file_should_be_is_told(folder, done, reason):
    done(folder)
    refused(folder, reason)


def test_a_file_that_may_not_be_opened_is_not_called_missing(folder, monkeypatch):
    opened = sealed_folders._open_in

    def forbidden(handle, name):
        if name == "a.txt":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(handle, name)

    monkeypatch.setattr(sealed_folders, "_open_in", forbidden)
    refused(folder, r"a file of the folder cannot be read \(Permission denied\)")
