"""A word table whose rows are kept by processes is looked up like any other."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from carp.models.batch_share import BatchShare, sharing
from carp.models.divided_table import DividedTable, WordEmbedding, word_rows, word_tables

WORDS = torch.tensor([[3, 0, 1], [3, 3, 4]])


class Alone:
    """A company of one, who keeps all rows and sends them to itself by way of `exchange`."""

    rank, size = 0, 1

    def total(self, numbers):
        return numbers

    def union(self, numbers):
        return torch.unique(numbers)

    def exchange(self, rows, sent, received):
        assert list(sent) == list(received) == [len(rows)]
        return rows.clone()


@pytest.fixture
def tables():
    """An ordinary table, and one with the same rows that is divided."""
    whole = nn.Embedding(5, 2, padding_idx=0)
    divided = WordEmbedding(5, 2, padding_idx=0)
    divided.weight = DividedTable(whole.weight.detach().clone())
    divided.weight.others = Alone()
    return whole, divided


@pytest.fixture
def batch():
    sharing().share = BatchShare(0, 2, 2, 2.0)
    yield
    sharing().share = None


@pytest.mark.usefixtures("batch")
def test_calling_a_divided_table_has_the_rows_and_the_gradient_of_an_ordinary_one(tables):
    for table in tables:
        (table(WORDS) * torch.arange(12.0).view(2, 3, 2)).sum().backward()
    whole, divided = tables
    assert torch.equal(divided(WORDS), whole(WORDS))
    assert torch.equal(divided.weight.grad, whole.weight.grad)
    assert not divided.weight.grad[0].any(), "the padding learns nothing"


@pytest.mark.usefixtures("batch")
def test_the_rows_of_a_table_that_is_handed_on_have_the_gradient_of_ordinary_ones(tables):
    whole, divided = tables
    word_rows(divided.weight, WORDS).square().sum().backward()
    F.embedding(WORDS, whole.weight).square().sum().backward()
    assert torch.allclose(divided.weight.grad, whole.weight.grad)


def test_only_word_tables_are_divided(tables):
    both = nn.ModuleDict(dict(zip(("people", "words"), tables, strict=True)))
    assert list(word_tables(both)) == ["words.weight"]
