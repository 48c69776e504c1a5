"""A model too large for a card is refused before anything is computed."""

from __future__ import annotations

import pytest
import torch

from carp.kernels.gpu.self_check import made_up_data, small_model
from carp.training import card_memory
from carp.training.card_memory import TooLargeForCard, check_room

CARD = torch.device("cuda", 0)


def test_a_table_that_does_not_fit_is_named_with_its_size(monkeypatch):
    model = small_model(made_up_data(words=5_000))
    needed = 4 * sum(one.numel() * 4 for one in model.parameters())
    monkeypatch.setattr(card_memory, "card_memory", lambda device: needed)
    check_room(model, CARD)
    with pytest.raises(
        TooLargeForCard, match=r"embedding\.weight, has 5,001 rows, and tables are not divided"
    ) as caught:
        check_room(model, CARD, processes=2)
    assert "shared by 2 processes" in str(caught.value)
    assert "vocabulary_size" in caught.value.fix
    monkeypatch.setattr(card_memory, "card_memory", lambda device: needed - 1)
    with pytest.raises(TooLargeForCard):
        check_room(model, CARD)


def test_only_cards_are_looked_at():
    check_room(small_model(made_up_data()), torch.device("cpu"))
