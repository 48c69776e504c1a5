"""A file that holds a key is read if nobody else may use it, and signs what its owner makes."""

from __future__ import annotations

import hashlib
import hmac
import os

import pytest

from carp.errors import UsageError
from carp.storage import is_signature, own_signature
from carp.storage.secret_files import read_secret


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "key").write_bytes(b"k" * 40)
    (tmp_path / "key").chmod(0o600)
    return tmp_path / "key"


def test_so_many_bytes_are_read_and_no_more(secret):
    assert read_secret(secret, 100) == b"k" * 40
    assert read_secret(secret, 7) == b"k" * 7


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601])
@pytest.mark.parametrize("of_a_group", [False, True])
def test_a_secret_of_this_user_is_for_nobody_else(secret, mode, of_a_group):
    secret.chmod(mode)
    with pytest.raises(UsageError, match="others may read this key") as caught:
        read_secret(secret, 100, of_a_group=of_a_group)
    assert caught.value.where == str(secret)
    assert caught.value.fix == f"chmod 600 {secret}"


def test_a_secret_of_another_user_may_be_for_its_group_where_that_is_allowed(secret, monkeypatch):
    """Those that run containers hand over keys so."""
    number = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: number)
    secret.chmod(0o640)
    assert read_secret(secret, 100, of_a_group=True) == b"k" * 40
    with pytest.raises(UsageError, match="others may read this key") as caught:
        read_secret(secret, 100)
    assert caught.value.fix == f"chmod 600 {secret}"
    secret.chmod(0o644)
    with pytest.raises(UsageError, match="others may read this key") as caught:
        read_secret(secret, 100, of_a_group=True)
    assert caught.value.fix == f"chmod 640 {secret}"


def test_bytes_are_signed_with_the_key_of_the_environment_alone(secret, monkeypatch):
    for unset in (None, ""):
        monkeypatch.delenv("CARP_KEY_FILE", raising=False)
        if unset is not None:
            monkeypatch.setenv("CARP_KEY_FILE", unset)
        assert own_signature(b"content") is None
    monkeypatch.setenv("CARP_KEY_FILE", str(secret))
    wanted = hmac.new(b"k" * 40, b"content", hashlib.sha256).hexdigest()
    assert own_signature(b"content") == wanted
    assert is_signature(wanted, wanted)
    for other in (wanted[:-1], wanted.upper(), "", None, 7, [wanted], wanted.encode()):
        assert not is_signature(other, wanted)
