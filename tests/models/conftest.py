"""What the slow twins of models that read documents share."""

from __future__ import annotations

import pytest
import torch

from carp.models.base import make_config


def _document(*reviews, width=9):
    words = [word for review in reviews for word in review]
    number = [place for place, review in enumerate(reviews) for _ in review]
    rest = width - len(words)
    return torch.tensor([[*words, *[0] * rest]]), torch.tensor([[*number, *[-1] * rest]])


@pytest.fixture
def document():
    """Words and reviews [1, L] of a document given as lists of words."""
    return _document


def _every_weight_random(kind, settings, sizes, seed=0):
    torch.manual_seed(seed)
    model = kind(make_config(kind, settings), sizes).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name != "embedding.weight":
                parameter.copy_(torch.randn_like(parameter))
    return model


@pytest.fixture
def every_weight_random():
    """A model in double precision none of whose weights starts at zero."""
    return _every_weight_random
