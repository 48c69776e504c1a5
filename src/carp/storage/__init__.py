"""Writing so that nothing is ever half there, and reading so that damage is never silent.

Bytes, JSON and arrays come in. Files go out that are whole or not there, and folders with a manifest of sha256 sums,
which is checked by the same opening that everything is read by. No pickle, no code in files.
"""

from carp.storage.array_files import arrays_of, load_arrays, save_arrays
from carp.storage.block_sums import BytesCheckedOnUse, in_threads
from carp.storage.checked_folders import check_folder, check_signed, kind_of, sign_folder
from carp.storage.folder_locks import holding, holding_if_free, holding_in_turn, real_place
from carp.storage.leftovers import bring_back, sweep
from carp.storage.mount_points import refuse_mount_point
from carp.storage.new_folders import new_folder, refuse_existing, seal, sole_writer
from carp.storage.sealed_folders import (
    FORMAT_VERSION,
    MANIFEST,
    SealedFolder,
    opened_folder,
)
from carp.storage.signatures import KEY_FILE, OTHER_KEY, SIGNATURE, is_signature, own_signature
from carp.storage.written_files import (
    append_json_line,
    disk_errors,
    folder_size,
    json_of,
    new_file,
    read_json,
    readable_size,
    sha256,
    shown_path,
    sync_folder,
    write_bytes,
    write_json,
)

__all__ = [
    "FORMAT_VERSION",
    "KEY_FILE",
    "MANIFEST",
    "OTHER_KEY",
    "SIGNATURE",
    "BytesCheckedOnUse",
    "SealedFolder",
    "append_json_line",
    "arrays_of",
    "bring_back",
    "check_folder",
    "check_signed",
    "disk_errors",
    "folder_size",
    "holding",
    "holding_if_free",
    "holding_in_turn",
    "in_threads",
    "is_signature",
    "json_of",
    "kind_of",
    "load_arrays",
    "new_file",
    "new_folder",
    "opened_folder",
    "own_signature",
    "read_json",
    "readable_size",
    "real_place",
    "refuse_existing",
    "refuse_mount_point",
    "save_arrays",
    "seal",
    "sha256",
    "shown_path",
    "sign_folder",
    "sole_writer",
    "sweep",
    "sync_folder",
    "write_bytes",
    "write_json",
]
