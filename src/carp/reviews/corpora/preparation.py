"""From files to a corpus folder, on all cores and in memory that does not grow with the texts.

The result is the same, to the last byte, as that of `read_reviews`, `build_corpus` and `save`. The builder is the same
too; here the texts and the largest columns are kept on disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from carp.errors import CarpError, InputError
from carp.reviews.corpora.cleaning import CorpusRules, DaysKept, sources_of
from carp.reviews.corpora.copied_texts import DROP, check_copy_rule
from carp.reviews.corpora.corpus import Corpus, assemble, clean
from carp.reviews.corpora.dataset_statistics import dataset_statistics
from carp.reviews.corpora.described_items import describe_items
from carp.reviews.corpora.record_reading import RecordReader
from carp.reviews.corpora.vocabulary_choice import WordCounts
from carp.reviews.corpora.word_columns import WordColumns
from carp.reviews.corpora.worker_pool import TaskPool, WorkerPool
from carp.reviews.corpora.worker_processes import usable_cores
from carp.reviews.sources.databases import SqlQuery
from carp.reviews.sources.formats import open_sources
from carp.reviews.sources.gathering import SourcesRead
from carp.reviews.sources.item_files import gather_items, open_items
from carp.reviews.sources.ledger import Ledger
from carp.reviews.sources.recognition import PathLike
from carp.reviews.sources.request import OpenSource, SourceRequest
from carp.reviews.sources.source_files import locate
from carp.reviews.sources.unpacking import PACKED_SHARE, packed_share
from carp.reviews.split_parts import OnProgress
from carp.storage import disk_errors, new_folder, real_place

SMALL = 32 << 20  # unpacked bytes; one process reads this much before others have even started


class Prepared(NamedTuple):
    """What there is to say about a corpus that was just made."""

    facts: dict[str, Any]
    statistics: dict[str, float]
    ledger: Ledger
    fingerprint: str
    items: Ledger | None = None  # of the records about items, if there were any


def prepare_corpus(
    files: Sequence[PathLike] | SqlQuery,
    out: Path | str,
    asked: SourceRequest,
    *,
    min_reviews: int = 5,
    levels: int = 5,
    copies: str = DROP,
    core_first: bool = False,
    plain_words: bool = False,
    days: DaysKept | None = None,
    items: Sequence[PathLike] = (),
    item_columns: Mapping[str, str] | None = None,
    overwrite: bool = False,
    workers: int | None = None,
    pool: TaskPool | None = None,
    reading: OnProgress | None = None,
    cutting: OnProgress | None = None,
    reading_items: OnProgress | None = None,
) -> Prepared:
    """Read reviews, clean them and save them as a corpus. By default there are as many workers as cores.

    Reviews that are not of `days` are left out. `items` are files about the items of the reviews, and `item_columns`
    says which of their columns is what. A `pool` does the work instead of the workers; whoever works for it must see
    the folder of the corpus.
    """
    check_copy_rule(copies)
    out, rules = Path(out), CorpusRules(min_reviews, levels, copies, core_first, plain_words, days)
    size = workers if workers is not None else workers_for(files)
    about_items = open_items(
        list(items), item_columns, progress=reading_items
    )  # before hours of reading reviews, not after
    with _no_new_parents(out), new_folder(out, "corpus", overwrite=overwrite) as partial, disk_errors(out):
        sources = open_sources(files if isinstance(files, SqlQuery) else list(files), asked, reading)
        corpus, counts, origin = _build(partial, sources, rules, pool or WorkerPool(size, partial), cutting)
        statistics = _statistics(corpus, counts, sources_of(origin))
        found = gather_items(about_items, corpus.items.index())
        if about_items:
            corpus = describe_items(corpus, found)
            found.ledger.save(partial / "rejects-items.jsonl")
        corpus.write_files(partial, origin.ledger)
    return Prepared(corpus.facts, statistics, origin.ledger, corpus.fingerprint, found.ledger if about_items else None)


def _build(
    folder: Path, sources: Iterable[OpenSource], rules: CorpusRules, workers: TaskPool, progress: OnProgress | None
) -> tuple[Corpus, WordCounts, SourcesRead]:
    """The corpus of some sources. Its largest columns are files in the folder."""
    with WordColumns(folder) as words, TemporaryDirectory(dir=folder) as texts:
        with workers as pool:
            reader = RecordReader(Path(texts))
            for source in sources:
                reader.read(source, pool)
            origin, records = reader.sources_read, reader.records()
            scale = origin.scale()
            cleaned = clean(origin, records, reader.texts, words, rules, each=pool.map, progress=progress)
        return assemble(origin, scale, records, cleaned, rules), words.counts(), origin


def workers_for(files: Sequence[PathLike] | SqlQuery) -> int:
    """How many processes to use: one for small files, otherwise one for each core."""
    size = 0.0
    for file in () if isinstance(files, SqlQuery) else files:
        with contextlib.suppress(InputError):  # the error is raised later, when this file is read
            for location in locate([file]):
                local = not location.dataset and location.size and location.stored is None
                size += location.size / (packed_share(location.place) if local else PACKED_SHARE)
    return usable_cores() if size > SMALL else 1


@contextlib.contextmanager
def _no_new_parents(out: Path) -> Iterator[None]:
    """If anything fails, also remove the parent folders that were created for the corpus."""
    missing = [parent for parent in real_place(out).absolute().parents if not parent.exists()]
    try:
        yield
    except BaseException:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


def _statistics(corpus: Corpus, counts: WordCounts, where: str) -> dict[str, float]:
    """Raises an InputError if the corpus has no word a model could use."""
    try:
        return dataset_statistics(corpus, counts)
    except CarpError as error:
        error.where = error.where or where
        raise
