"""From files to a corpus folder on all cores, in memory that does not grow with the texts.

The same corpus, to the last byte, as `read_reviews`, `build_corpus` and `save` would give one after another. Phase
one reads and checks the records (`columns`), phase two cuts the texts that stay into words (`cutting`); between
the two only a few numbers a review are held.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carp.errors import CarpError, InputError
from carp.reviews.corpora.cleaning import facts_of, kept_records, refuse_single, sources_of
from carp.reviews.corpora.corpus import Corpus, fingerprint_of_files, save_column
from carp.reviews.corpora.dataset_statistics import dataset_statistics
from carp.reviews.corpora.record_columns import NO_SPLIT, Columns, Names, Spilled, Waiting
from carp.reviews.corpora.string_column import StringColumn
from carp.reviews.corpora.word_columns import CutTask, Packer, cut_texts
from carp.reviews.corpora.worker_pool import WorkerPool, usable_cores
from carp.reviews.rating_scale import RatingScale
from carp.reviews.sources.formats import readings
from carp.reviews.sources.ledger import Ledger
from carp.reviews.sources.recognition import PathLike
from carp.reviews.sources.request import SourceRequest
from carp.reviews.sources.unpacking import check_file, packed_share
from carp.reviews.split_parts import OnProgress
from carp.reviews.text.tokens import number_by_appearance
from carp.storage import disk_errors, new_folder, write_json

SMALL = 32 << 20  # bytes, unpacked, that one process has read before others have started


class Prepared(NamedTuple):
    """What is told of a corpus that was just made."""

    facts: dict[str, Any]
    statistics: dict[str, float]
    ledger: Ledger
    fingerprint: str


def prepare_corpus(
    files: Sequence[PathLike],
    out: Path | str,
    asked: SourceRequest,
    *,
    min_reviews: int = 5,
    levels: int = 5,
    overwrite: bool = False,
    workers: int | None = None,
    reading: OnProgress | None = None,
    cutting: OnProgress | None = None,
) -> Prepared:
    """Read reviews, clean them, and keep them as a corpus; `workers` are as many as there are cores unless given."""
    out = Path(out)
    size = workers if workers is not None else workers_for(files)
    with _no_new_parents(out), new_folder(out, "corpus", overwrite=overwrite) as partial, disk_errors(out):
        waiting = partial / "waiting"
        waiting.mkdir()
        with WorkerPool(size) as pool:
            spilled = Spilled(waiting)
            for source in readings(list(files), asked, reading):
                spilled.take(source, pool)
            columns, scale = spilled.finish(), spilled.account.scale()
            user, item = columns.user.number.astype(np.int64), columns.item.number.astype(np.int64)
            kept, dropped = kept_records(spilled.account, user, item, min_reviews)
            packer = _cut(spilled.waiting, kept, partial, pool, cutting)
        shutil.rmtree(waiting)
        dropped["wordless"] = int((~packer.worded()).sum())
        kept = kept[packer.worded()]
        described = scale.describe(columns.rating[kept], levels)
        facts = facts_of(spilled.account, described, dropped)
        facts |= {"levels": levels, "min_reviews": min_reviews, "scale_range": [scale.low, scale.high]}
        _save_records(partial, spilled, columns, kept, scale, levels)
        _save_words(partial, packer)
        statistics = _statistics(partial, facts, packer, sources_of(spilled.account))
        fingerprint = fingerprint_of_files(partial)
        write_json(partial / "corpus.json", {"fingerprint": fingerprint, "facts": facts})
        spilled.account.ledger.save(partial / "rejects.jsonl")
    return Prepared(facts, statistics, spilled.account.ledger, fingerprint)


def workers_for(files: Sequence[PathLike]) -> int:
    """As many as there are cores, and none where the files are read before others have started."""
    size = 0.0
    for file in files:
        with contextlib.suppress(InputError):  # refused in its turn, when it is to be read
            place = check_file(file)
            size += place.stat().st_size / packed_share(place)
    return usable_cores() if size > SMALL else 1


@contextlib.contextmanager
def _no_new_parents(out: Path) -> Iterator[None]:
    """Where nothing comes of it, not even the folders on the way to the corpus stay."""
    missing = [parent for parent in out.absolute().parents if not parent.exists()]
    try:
        yield
    except BaseException:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


def _cut(
    waiting: Sequence[Waiting], kept: NDArray[np.int64], folder: Path, pool: WorkerPool, progress: OnProgress | None
) -> Packer:
    """Cut the kept texts into words, in the order of the reviews."""
    edges = np.searchsorted(kept, [*(chunk.first for chunk in waiting), np.iinfo(np.int64).max])
    chunks = [
        CutTask(chunk.texts, chunk.sizes, kept[edges[place] : edges[place + 1]] - chunk.first)
        for place, chunk in enumerate(waiting)
        if edges[place] < edges[place + 1]
    ]
    done = 0
    with Packer(folder) as packer:
        for chunk, cut in zip(chunks, pool.map(cut_texts, chunks), strict=True):
            packer.add(cut)
            chunk.texts.unlink()
            done += len(chunk.kept)
            if progress is not None:
                progress(done, len(kept))
    return packer


def _save_records(
    folder: Path, spilled: Spilled, columns: Columns, kept: NDArray[np.int64], scale: RatingScale, levels: int
) -> None:
    user, users = _of_kept(columns.user, kept)
    item, items = _of_kept(columns.item, kept)
    refuse_single(spilled.account, users, items)
    _save_strings(folder, "users", users)
    _save_strings(folder, "items", items)
    save_column(folder / "user.npy", user)
    save_column(folder / "item.npy", item)
    save_column(folder / "rating.npy", scale.to_stars(columns.rating[kept], levels).astype(np.float32))
    save_column(folder / "time.npy", columns.time[kept])
    if columns.split[0] != NO_SPLIT:
        save_column(folder / "split.npy", columns.split[kept])


def _of_kept(column: Names, kept: NDArray[np.int64]) -> tuple[NDArray[np.int32], list[str]]:
    distinct, number = number_by_appearance(column.number[kept], len(column.names))
    return number, [column.names[place] for place in distinct.tolist()]


def _save_words(folder: Path, packer: Packer) -> None:
    _save_strings(folder, "words", packer.words)
    save_column(folder / "texts_offsets.npy", packer.text_offsets())
    save_column(folder / "token_offsets.npy", packer.token_offsets())


def _save_strings(folder: Path, name: str, strings: list[str]) -> None:
    column = StringColumn.from_strings(strings)
    save_column(folder / f"{name}.npy", column.data)
    save_column(folder / f"{name}_offsets.npy", column.offsets)


def _statistics(folder: Path, facts: dict[str, Any], packer: Packer, where: str) -> dict[str, float]:
    """A corpus without a word for the model is refused here."""
    corpus = Corpus.open_columns(folder, [file.name for file in folder.iterdir()], facts)
    try:
        return dataset_statistics(corpus, packer.counts())
    except CarpError as error:
        error.where = error.where or where
        raise
