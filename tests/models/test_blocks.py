"""Where memory runs out the work goes on in smaller blocks, with the same answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from carp.kernels.gpu import self_check as check
from carp.models import predict
from carp.models.batch import Pairs
from carp.models.blocks import in_blocks

OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory"),
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"),
]
KINDS = pytest.mark.parametrize("problem", OUT_OF_MEMORY, ids=lambda problem: type(problem).__name__)


@KINDS
def test_out_of_memory_shrinks_the_block_and_goes_on(problem):
    done, refused = [], []

    def part(begin, end):
        if end - begin > 3:
            refused.append(end - begin)
            raise problem
        return list(range(begin, end))

    in_blocks(11, 10, part, lambda begin, found: done.extend(found))
    assert done == list(range(11))
    assert refused == [10, 5]


def test_the_first_block_that_fits_is_found_from_what_was_tried_not_from_what_was_allowed():
    refused = []

    def part(begin, end):
        if end - begin > 1:
            refused.append(end - begin)
            raise MemoryError

    in_blocks(4, 1 << 40, part, lambda begin, found: None)
    assert refused == [4, 2]


@KINDS
def test_out_of_memory_for_a_single_one_is_an_error(problem):
    def part(begin, end):
        raise problem

    with pytest.raises(type(problem)):
        in_blocks(4, 2, part, lambda begin, found: None)


def test_other_errors_are_not_taken_for_memory():
    asked = []

    def part(begin, end):
        asked.append(end - begin)
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        in_blocks(4, 4, part, lambda begin, found: None)
    assert asked == [4]


@pytest.fixture
def rated():
    data = check.made_up_data(users=6, items=5, pairs=20)
    model = check.small_model(data, dimension=6, filters=5, latent_size=4, viewpoints=2).eval()
    torch.manual_seed(0)
    sides = torch.randn(6, 2, 4), torch.randn(5, 2, 4)
    return model, *sides


def with_room_for(monkeypatch, model, most):
    """From now on at most so many pairs fit in memory; the sizes of the blocks that are asked for."""
    score, asked = model.score, []

    def limited(users, *rest):
        asked.append(len(users))
        if len(users) > most:
            raise RuntimeError("DefaultCPUAllocator: not enough memory")
        return score(users, *rest)

    monkeypatch.setattr(model, "score", limited)
    return asked


def test_pairs_are_scored_in_blocks_that_fit(rated, monkeypatch):
    model, users, items = rated
    monkeypatch.setattr("carp.kernels.dispatch.fast_score_pairs", lambda *given: None)
    cells = np.arange(30)
    pairs = Pairs(cells // 5, cells % 5, np.zeros(30, np.float32), np.full(30, -1))
    wanted = predict.score_pairs(model, users, items, pairs)
    asked = with_room_for(monkeypatch, model, 7)
    found = predict.score_pairs(model, users, items, pairs)
    torch.testing.assert_close(found, wanted)
    assert asked == [30, 15, 7, 7, 7, 7, 2]


def test_a_newcomer_is_rated_in_blocks_that_fit(rated, monkeypatch):
    model, users, items = rated
    numbers = torch.tensor([4, 0, 3, 3])
    side = users[2:3]
    with torch.no_grad():
        wanted = model.score(torch.full((4,), -1), numbers, side.expand(4, -1, -1), items[numbers]).rating
    asked = with_room_for(monkeypatch, model, 1)
    torch.testing.assert_close(predict.score_newcomer(model, side, items, numbers), wanted)
    assert asked == [4, 2, 1, 1, 1, 1]
    assert len(predict.score_newcomer(model, side, items, numbers[:0])) == 0
