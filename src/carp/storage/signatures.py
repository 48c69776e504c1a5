"""Signatures of sealed folders: who has the key can tell whether somebody with the key sealed this very folder.

A manifest finds damage, but whoever can write the folder can write the manifest too. The signature is an HMAC-SHA256
of the manifest, whose sums cover all other files.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from typing import Any

from carp.errors import DamagedError, StorageError, UsageError
from carp.storage.secret_files import read_secret
from carp.storage.written_files import json_of, write_json

MANIFEST = "manifest.json"
SIGNATURE = "signature.json"
KEY_FILE = "CARP_KEY_FILE"
LEAST_KEY, MOST_KEY = 32, 4096  # bytes
ALGORITHM = "hmac-sha256"
OTHER_KEY = "it was not signed with this key, or was altered afterwards"


def read_key(path: Path) -> bytes:
    """The key in a file that nobody else may read."""
    try:
        key = read_secret(path, MOST_KEY + 1)
    except OSError as error:
        fix = "make one with: head -c 32 /dev/urandom > key; chmod 600 key"
        raise StorageError(f"the key cannot be read ({error.strerror or error})", where=str(path), fix=fix) from error
    if not LEAST_KEY <= len(key) <= MOST_KEY:
        what = f"a key has {LEAST_KEY} to {MOST_KEY} bytes, and this file another number"
        raise UsageError(what, where=str(path), fix="make one with: head -c 32 /dev/urandom > key")
    return key


def write_signature(folder: Path, manifest: bytes, key_file: Path) -> None:
    """Sign a sealed folder by the content of its manifest."""
    write_json(folder / SIGNATURE, {"algorithm": ALGORITHM, "signature": _signature(manifest, read_key(key_file))})


def check_signature(manifest: bytes, signature: bytes | None, key_file: Path, where: Path) -> None:
    """Refuse a manifest that was not signed with this key."""
    if signature is None:
        fix = f"have it signed by whoever made it: carp sign {where} --key-file FILE"
        raise DamagedError("it is not signed, and a key was given to check it with", where=str(where), fix=fix)
    found: Any = json_of(signature, where / SIGNATURE)
    given = found.get("signature") if isinstance(found, dict) and found.get("algorithm") == ALGORITHM else None
    wanted = _signature(manifest, read_key(key_file))
    if not is_signature(given, wanted):
        raise DamagedError(OTHER_KEY, where=str(where), fix="get it from its maker again, or check the key file")


def own_signature(content: bytes) -> str | None:
    """The signature of some bytes with the key that $CARP_KEY_FILE names; None where it names none."""
    key_file = os.environ.get(KEY_FILE)
    return _signature(content, read_key(Path(key_file))) if key_file else None


def is_signature(given: Any, wanted: str) -> bool:
    """Whether a signature that was found somewhere is the right one; how long it takes says nothing of it."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), wanted.encode())


def _signature(manifest: bytes, key: bytes) -> str:
    return hmac.new(key, manifest, hashlib.sha256).hexdigest()
