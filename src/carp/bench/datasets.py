"""The corpora of a grid: prepared folders, or slim copies without texts that travel to a GPU machine."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from carp.errors import DamagedError, UsageError
from carp.reviews.corpora.corpus import Corpus
from carp.reviews.corpora.item_texts import PREFIX, ItemTexts
from carp.reviews.corpora.string_column import StringColumn
from carp.storage import shown_path, write_bytes

SLIM = ".npz"
COLUMNS = ("user", "item", "rating", "token_offsets", "tokens")
MAY_LACK = ("split", "copy_group")


@dataclass(frozen=True)
class CorpusSource:
    """A corpus by its place; the fingerprint is that of the whole corpus, also where a slim copy is read."""

    path: str
    name: str
    fingerprint: str
    own_split: bool
    names: str = ""  # a mark of what the items are called, which the fingerprint leaves out; empty without names


def save_slim(corpus: Corpus, file: Path) -> None:
    """A copy without texts, ids and characters: all that training and testing need."""
    columns = {name: np.asarray(getattr(corpus, name)) for name in COLUMNS}
    columns |= {name: np.asarray(getattr(corpus, name)) for name in MAY_LACK if getattr(corpus, name) is not None}
    columns |= {"time": np.asarray(corpus.time)} if (np.asarray(corpus.time) >= 0).any() else {}
    if corpus.item_texts is not None:
        columns |= corpus.item_texts.without_texts().columns()
    about = {"fingerprint": corpus.fingerprint, "facts": corpus.facts, "sizes": [len(corpus.users), len(corpus.items)]}
    written = io.BytesIO()
    np.savez_compressed(
        written,
        allow_pickle=False,
        **columns,
        words=corpus.words.data,
        words_offsets=corpus.words.offsets,
        about=np.frombuffer(json.dumps(about).encode(), np.uint8),
    )
    write_bytes(file, written.getvalue())


def load_corpus(path: Path | str) -> Corpus:
    """A corpus from a folder of `carp prepare` or from a slim copy."""
    path = Path(path)
    if path.is_file() and path.suffix == SLIM:
        return _load_slim(path)
    if path.is_file():
        fix = f"run carp prepare {path} --out corpus, and give the folder"
        raise UsageError("this is a file, not a prepared corpus", where=str(path), fix=fix)
    return Corpus.load(path)


def _load_slim(path: Path) -> Corpus:
    try:
        with np.load(path, allow_pickle=False) as z:
            about = json.loads(z["about"].tobytes())
            users, items = (_nameless(int(size)) for size in about["sizes"])
            columns = {name: z[name] for name in COLUMNS}
            may_lack: dict[str, Any] = {name: z[name] if name in z.files else None for name in MAY_LACK}
            texts = {name: z[name] for name in z.files if name.startswith(PREFIX)}
            count, none = len(columns["user"]), np.zeros(0, np.int64)
            corpus = Corpus(
                users=users,
                items=items,
                texts=_nameless(count),
                words=StringColumn(z["words"], z["words_offsets"]),
                time=z["time"] if "time" in z.files else none,
                token_starts=none.astype(np.int32),
                token_lengths=none.astype(np.uint8),
                facts=about["facts"],
                item_texts=ItemTexts.from_columns(texts) if texts else None,
                **columns,
                **may_lack,
            )
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        fix = "make the slim copy again"
        raise DamagedError(f"the slim corpus cannot be read ({error})", where=str(path), fix=fix) from error
    corpus.__dict__["fingerprint"] = about["fingerprint"]
    return corpus


def _nameless(count: int) -> StringColumn:
    return StringColumn(np.zeros(0, np.uint8), np.zeros(count + 1, np.int64))


def _mark_of_names(corpus: Corpus) -> str:
    """The same for the same words of the same items, also in a slim copy."""
    names = corpus.item_names
    if not len(names.tokens):
        return ""
    return hashlib.sha256(np.asarray(names.offsets).tobytes() + np.asarray(names.tokens).tobytes()).hexdigest()[:16]


def find_sources(paths: list[Path]) -> list[CorpusSource]:
    """What each corpus is; the same one twice counts once, and one name for two is refused."""
    found: dict[str, CorpusSource] = {}
    for path in paths:
        corpus = load_corpus(path)
        name = shown_path(path.resolve().name.removesuffix(SLIM))
        source = CorpusSource(
            str(path.resolve()), name, corpus.fingerprint, corpus.split is not None, _mark_of_names(corpus)
        )
        if found.setdefault(name, source).fingerprint != source.fingerprint:
            raise UsageError(f"two different corpora are called {name!r}", where=str(path), fix="rename one of them")
    return list(found.values())
