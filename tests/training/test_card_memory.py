"""A word table too large for a card is divided, and a model too large all the same is refused beforehand."""

from __future__ import annotations

import pytest
import torch

from carp.errors import UsageError
from carp.kernels.gpu.self_check import made_up_data, small_model
from carp.models import model_class
from carp.training import card_memory, table_division
from carp.training.card_memory import TooLargeForCard, check_room, place_for_answers
from carp.training.company import Company
from carp.training.table_division import TableDivision

CARD = torch.device("cuda", 0)


class Agreed:
    """Two processes that say the same."""

    rank, size, leads = 0, 2, True

    def all_agree(self, yes):
        return yes


AGREED = Agreed()


def test_a_table_that_does_not_fit_is_named_with_its_size(monkeypatch):
    model = small_model(made_up_data(words=5_000))
    needed = 4 * sum(one.numel() * 4 for one in model.parameters())
    monkeypatch.setattr(card_memory, "card_memory", lambda device: needed)
    check_room(model, CARD)
    with pytest.raises(
        TooLargeForCard, match=r"embedding\.weight, has 5,001 rows, all of them on every card"
    ) as caught:
        check_room(model, CARD, processes=2)
    assert "shared by 2 processes" in str(caught.value)
    assert "vocabulary_size" in caught.value.fix
    monkeypatch.setattr(card_memory, "card_memory", lambda device: needed - 1)
    with pytest.raises(TooLargeForCard):
        check_room(model, CARD)


def divided(model, word_table, company=AGREED, device=CARD):
    return bool(TableDivision.wanted(model, word_table, company, device).tables)


def test_a_table_that_needs_more_than_half_of_a_card_is_divided(monkeypatch):
    model = small_model(made_up_data(words=5_000))
    needed = 4 * 4 * model.embedding.weight.numel()
    monkeypatch.setattr(table_division, "processes_of_card", lambda: 1)
    monkeypatch.setattr(table_division, "card_memory", lambda device: 2 * needed)
    assert not divided(model, "auto")
    assert divided(model, "divided")
    monkeypatch.setattr(table_division, "card_memory", lambda device: 2 * needed - 1)
    assert divided(model, "auto")
    assert not divided(model, "whole")
    assert not divided(model, "auto", company=None)
    assert not divided(model, "auto", device=torch.device("cpu"))
    monkeypatch.setattr(table_division, "card_memory", lambda device: 4 * needed - 1)
    monkeypatch.setattr(table_division, "processes_of_card", lambda: 2)
    assert divided(model, "auto"), "each of two processes has half of the card"


def test_a_divided_table_needs_room_for_its_rows_alone(monkeypatch):
    model = small_model(made_up_data(words=5_000))
    whole = 4 * sum(one.numel() * 4 for one in model.parameters())
    table = 4 * 4 * model.embedding.weight.numel()
    monkeypatch.setattr(card_memory, "card_memory", lambda device: whole - table // 2)
    check_room(model, CARD, parts=2)
    monkeypatch.setattr(card_memory, "card_memory", lambda device: whole - table // 2 - 4)
    with pytest.raises(TooLargeForCard, match="has 5,001 rows, divided among 2 processes"):
        check_room(model, CARD, parts=2)


@pytest.mark.parametrize("company", [None, Company(0, 1)])
def test_one_process_cannot_divide_a_table(company):
    with pytest.raises(UsageError, match="among several processes, and there is one") as caught:
        divided(small_model(made_up_data()), "divided", company)
    assert "--processes 2" in caught.value.fix


def test_a_model_without_a_word_table_has_nothing_to_divide():
    kind = model_class("mf")
    with pytest.raises(UsageError, match="no word table"):
        divided(kind(kind.Config(), made_up_data().sizes), "divided")


def test_a_trained_model_answers_on_the_host_where_its_weights_are_too_large_for_the_card(monkeypatch):
    model = small_model(made_up_data())
    weights = sum(one.numel() * 4 for one in model.parameters())
    monkeypatch.setattr(card_memory, "card_memory", lambda device: weights)
    assert place_for_answers(model, CARD) == CARD
    monkeypatch.setattr(card_memory, "card_memory", lambda device: weights - 1)
    assert place_for_answers(model, CARD) == torch.device("cpu")


def test_only_cards_are_looked_at():
    check_room(small_model(made_up_data()), torch.device("cpu"))
