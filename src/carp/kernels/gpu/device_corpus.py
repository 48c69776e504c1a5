"""Documents and training pairs, copied to the device once: a step finds its batch there by its own number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from carp.kernels.gpu.availability import NoFastPath
from carp.models.batch import TrainingData
from carp.models.carp import Carp


@dataclass(frozen=True)
class GpuCorpus:
    """The users' documents and then the items', end to end; pairs name their two documents by number."""

    words: Tensor  # [T]
    reviews: Tensor  # [T]
    offsets: Tensor  # [users + items + 1]
    owners: Tensor  # [2, pairs] the documents of each pair
    records: Tensor  # [pairs] the record each pair's documents are read without, -1 for none
    ratings: Tensor  # [pairs]
    base: Tensor  # [pairs] added to the balance before the sigmoid
    pairs: int
    users: int
    longest: int

    @staticmethod
    def of(data: TrainingData, model: Carp, device: torch.device) -> GpuCorpus:
        both = (data.user_documents, data.item_documents)
        for documents in both:
            if len(documents.words) and int(documents.words.min()) < 1:
                raise NoFastPath("a document holds words without a number")
        ends = data.user_documents.offsets[-1]
        offsets = np.concatenate([data.user_documents.offsets, data.item_documents.offsets[1:] + ends])
        users = len(data.user_documents)
        train = data.train
        leave_out = train.records if data.target_reviews == "leave out" else np.full(len(train), -1)
        owners = np.stack([train.users, train.items + users]).astype(np.int32)

        def there(array: np.ndarray, kind: type) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array, dtype=kind)).to(device)

        return GpuCorpus(
            words=there(np.concatenate([documents.words for documents in both]), np.int32),
            reviews=there(np.concatenate([documents.review for documents in both]), np.int32),
            offsets=there(offsets, np.int64),
            owners=there(owners, np.int32),
            records=there(leave_out, np.int32),
            ratings=there(train.ratings, np.float32),
            base=_baseline(model, data, device),
            pairs=len(train),
            users=users,
            longest=max(1, int(max(documents.lengths().max(initial=0) for documents in both))),
        )


@torch.no_grad()
def _baseline(model: Carp, data: TrainingData, device: torch.device) -> Tensor:
    """What `Carp.combine` adds to the balance: the logit of the leave-one-out biases' rating, fixed in training."""
    if model.config.biases != "leave-one-out":
        return torch.zeros(len(data.train), device=device)
    users, items = (torch.from_numpy(array).to(device) for array in (data.train.users, data.train.items))
    ratings = torch.from_numpy(data.train.ratings).to(device)
    share = (model.biases(users, items, ratings) - 1) / (model.sizes.levels - 1)
    return torch.logit(share.clamp(0.01, 0.99)).float().contiguous()
