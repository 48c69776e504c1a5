"""What the service keeps so that no answer waits for what was known before."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from carp.explain.kept_readings import LastUsed
from carp.reviews.documents import Documents
from carp.reviews.readable import ReadableDocument
from carp.reviews.split_parts import TRAIN
from carp.training.fitted_corpus import FittedCorpus

DOCUMENTS_KEPT = 6_000  # up to 40 kilobytes each
LEFT_OUT_KEPT = 100  # of those without one review, which are seldom asked for twice


@dataclass(frozen=True, eq=False)
class RememberingCorpus(FittedCorpus):
    """A fitted corpus that keeps the documents it has made readable, without the word lists that led to them."""

    kept: LastUsed[ReadableDocument] = field(default_factory=lambda: LastUsed(DOCUMENTS_KEPT))
    kept_without: LastUsed[ReadableDocument] = field(default_factory=lambda: LastUsed(LEFT_OUT_KEPT))

    @classmethod
    def of(cls, fitted: FittedCorpus) -> RememberingCorpus:
        return cls(**{f.name: getattr(fitted, f.name) for f in fields(FittedCorpus)})

    def readable(self, documents: Documents, owner: int, leave_out: int = -1) -> ReadableDocument:
        if leave_out >= 0 and self.part[leave_out] != TRAIN:
            leave_out = -1  # what is held out stands in no document

        def made() -> ReadableDocument:
            document = FittedCorpus.readable(self, documents, owner, leave_out)
            return replace(document, sources={number: replace(one) for number, one in document.sources.items()})

        kept = self.kept if leave_out < 0 else self.kept_without
        return kept.get((documents is self.user_documents, owner, leave_out), made)
