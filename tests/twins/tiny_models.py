"""Models and documents small enough for a twin that goes through them number by number."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from carp.models.base import RatingModel, make_config
from carp.models.batch import Sizes

SIZES = Sizes(users=3, items=3, words=9)
Model = TypeVar("Model", bound=RatingModel)


def tiny(kind: type[Model], settings: dict[str, object], seed: int = 0) -> Model:
    """A model in float64 whose weights are all away from zero, so that no term can hide."""
    torch.manual_seed(seed)
    model = kind(make_config(kind, settings), SIZES).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name != "embedding.weight":
                parameter.copy_(torch.randn_like(parameter))
    return model


def document(*reviews: list[int], width: int = 9) -> tuple[Tensor, Tensor]:
    """Words and reviews [1, L] of a document given as lists of words."""
    words = [word for review in reviews for word in review]
    number = [place for place, review in enumerate(reviews) for _ in review]
    rest = width - len(words)
    return torch.tensor([[*words, *[0] * rest]]), torch.tensor([[*number, *[-1] * rest]])
