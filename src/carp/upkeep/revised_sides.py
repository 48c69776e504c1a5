"""The sides of people and things after a revision: those of documents that stayed are carried over, not read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from carp.models.predict import Sides, encode_documents
from carp.models.side_room import room_for_sides
from carp.reviews.documents import Documents
from carp.training.fitted_model import FittedModel
from carp.upkeep.revised_corpus import Places, RevisedCorpus

Few = tuple[Places, Places]  # numbers of people and of things


def reads_alike(fitted: FittedModel) -> bool:
    """Whether a document is read to the same bits whatever documents are read beside it: by CARP's C kernels too."""
    from carp.kernels.dispatch import native_kernels

    if fitted.model.reads_alone and fitted.device.type == "cpu":
        return True
    return native_kernels(fitted.model, fitted.device) in ("compiled", "packaged")


def has_sides(fitted: FittedModel) -> bool:
    """Whether all documents have been read already."""
    return "sides" in vars(fitted)


def sides_of_few(fitted: FittedModel, few: Few) -> Sides:
    """The sides of these people and things alone: the rows of all others are empty."""
    model, corpus, device = fitted.model, fitted.corpus, fitted.device
    return (
        _in_their_rows(model.encode_users, corpus.user_documents, few[0], device),
        _in_their_rows(model.encode_items, corpus.item_documents, few[1], device),
    )


def _in_their_rows(encode: Any, documents: Documents, few: Places, device: torch.device) -> Tensor:
    read = encode_documents(encode, documents.some(few), device)
    sides = room_for_sides(read, len(documents), *read.shape[1:])
    sides[torch.from_numpy(few).to(device)] = read
    return sides


def carried_sides(known: Sides, after: FittedModel, revision: RevisedCorpus, few: Few | None = None) -> Sides:
    """The sides of all after a revision, or of a few; those of before, and touched documents are read.

    Right only where weights stayed as they were and documents are read alike in any company.
    """
    old, model, corpus = revision.old, after.model, after.corpus
    users, items = few or (np.arange(len(old.users)), np.arange(len(old.items)))
    return (
        _carried(known[0], model.encode_users, corpus.user_documents, old.users, revision.users, users, after.device),
        _carried(known[1], model.encode_items, corpus.item_documents, old.items, revision.items, items, after.device),
    )


def _carried(
    known: Tensor, encode: Any, documents: Documents, old: Places, touched: Places, few: Places, device: torch.device
) -> Tensor:
    sides = room_for_sides(known, len(documents), *known.shape[1:])
    stays, again = np.setdiff1d(few[old[few] >= 0], touched), np.intersect1d(few, touched)
    sides[torch.from_numpy(stays).to(device)] = known[torch.from_numpy(old[stays]).to(device)]
    if len(again):
        sides[torch.from_numpy(again).to(device)] = encode_documents(encode, documents.some(again), device)
    return sides
