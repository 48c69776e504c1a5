"""Whether a model fits a card: every process keeps all tables whole, so one that does not fit is refused beforehand."""

from __future__ import annotations

import torch

from carp.errors import CarpError
from carp.models.base import RatingModel

KEPT = 4  # weights, their gradients, the optimizer's running squares, and the weights of the best epoch


class TooLargeForCard(CarpError):
    """A model that training has no room for on a card."""


def check_room(model: RatingModel, device: torch.device, processes: int = 1) -> None:
    """Refuse a model that does not fit the card, before anything is computed.

    Args:
        model: Whose tables are made.
        device: Where it would be trained; only cards are looked at.
        processes: So many share the card.
    """
    if device.type != "cuda":
        return
    needed = KEPT * sum(one.numel() * one.element_size() for one in model.parameters())
    there = card_memory(device) // processes
    if needed <= there:
        return
    shared = f", shared by {processes} processes" if processes > 1 else ""
    name, largest = max(model.named_parameters(), key=lambda one: one[1].numel())
    what = (
        f"training needs {needed / 1e9:.1f} GB and the card has {there / 1e9:.1f} GB{shared}; the largest table, "
        f"{name}, has {len(largest):,} rows, and tables are not divided among cards"
    )
    fix = "choose fewer words (--set vocabulary_size=...) or a smaller dimension, or train with --device cpu"
    raise TooLargeForCard(what, where=str(device), fix=fix)


def card_memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)
