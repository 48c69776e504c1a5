"""Whether a model fits a card, alone or with its word table divided among several; one that does not is refused."""

from __future__ import annotations

import torch
from torch import Tensor

from carp.errors import CarpError
from carp.models.base import RatingModel
from carp.models.divided_table import word_tables

KEPT = 4  # weights, their gradients, the optimizer's running squares, and the weights of the best epoch


class TooLargeForCard(CarpError):
    """A model that training has no room for on a card."""


def check_room(model: RatingModel, device: torch.device, processes: int = 1, parts: int = 1) -> None:
    """Refuse a model that does not fit the card, before anything is computed.

    Args:
        model: Whose tables are made.
        device: Where it would be trained; only cards are looked at.
        processes: So many share the card.
        parts: Among so many processes the word tables are divided.
    """
    if device.type != "cuda":
        return
    divided = word_tables(model) if parts > 1 else {}
    needed = KEPT * sum(_bytes(one) // (parts if name in divided else 1) for name, one in model.named_parameters())
    there = card_memory(device) // processes
    if needed <= there:
        return
    shared = f", shared by {processes} processes" if processes > 1 else ""
    name, largest = max(model.named_parameters(), key=lambda one: one[1].numel())
    alone = f"divided among {parts} processes" if name in divided else "all of them on every card"
    what = (
        f"training needs {needed / 1e9:.1f} GB and the card has {there / 1e9:.1f} GB{shared}; the largest table, "
        f"{name}, has {len(largest):,} rows, {alone}"
    )
    fix = (
        "choose fewer words (--set vocabulary_size=...) or a smaller dimension, divide a word table among more cards "
        "(--processes), or train with --device cpu"
    )
    raise TooLargeForCard(what, where=str(device), fix=fix)


def place_for_answers(model: RatingModel, device: torch.device) -> torch.device:
    """Where a trained model answers: on the host, if its weights alone are too large for the card."""
    if device.type != "cuda" or sum(map(_bytes, model.parameters())) <= card_memory(device):
        return device
    return torch.device("cpu")


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def card_memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)
