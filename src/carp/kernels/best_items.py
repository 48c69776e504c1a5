"""The best items of the whole catalogue for many users: rated block by block, so that only the best are ever kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from carp.kernels.cpu import pair_scores
from carp.kernels.cpu.threads import workers
from carp.kernels.dispatch import give_way, gpu_kernels_wanted
from carp.models.base import RatingModel
from carp.models.blocks import in_blocks
from carp.models.carp import Carp

ITEMS = 65_536  # of a user that are rated before the best of them are picked
RATED = 16_384  # ratings made at once: in a small catalogue, those of several users together
LANES = 64  # ratings are padded to whole vectors: no user's last digits depend on who is rated beside them
PIECE = 16 * pair_scores.BLOCK  # items of a user that a thread takes: whole blocks and vectors, for the same digits
PAIRS = 4_000  # rated at once where a model has no fast path


@torch.no_grad()
def top_items(
    model: RatingModel,
    user_sides: Tensor,
    item_sides: Tensor,
    n: int,
    *,
    users: Sequence[int] | None = None,
    exclude: Tensor | None = None,
    block: int = ITEMS,
) -> tuple[Tensor, Tensor]:
    """Numbers [U, n] and ratings [U, n] of the n items each user would rate highest, best first.

    `users` are rows of `user_sides`, all of them if not given. `exclude` [E, 2] pairs a place in `users` with an item
    that does not count; where too few items are left, the rating is -∞. Memory holds one block of ratings for each
    thread; where even that is too much, the block is halved until it fits.
    """
    numbers = range(len(user_sides)) if users is None else users
    if gpu_kernels_wanted(user_sides.device):
        found = _on_gpu(model, user_sides, item_sides, numbers, n, exclude)
        if found is not None:
            return found
    left_out = _by_row(exclude)
    n = min(n, len(item_sides))
    best = torch.zeros(len(numbers), n, dtype=torch.int64, device=item_sides.device)
    ratings = item_sides.new_full((len(numbers), n), float("-inf"))

    def part(first: int, last: int) -> tuple[Tensor, Tensor]:
        if len(numbers) == 1 and _is_fast(model, item_sides):
            rate = _rated_together(model, user_sides, item_sides, numbers, first, last)
        else:
            rate = _rater(model, user_sides, item_sides, first, last)
        return _improved(rate, numbers, left_out, first, last, best, ratings)

    def keep(_: int, found: tuple[Tensor, Tensor]) -> None:
        nonlocal best, ratings
        best, ratings = found

    in_blocks(len(item_sides), block, part, keep)
    return best, ratings


def _by_row(exclude: Tensor | None) -> dict[int, Tensor]:
    """For each place among the users, the items that do not count."""
    if exclude is None or not len(exclude):
        return {}
    counts = exclude[:, 0].bincount()
    present = counts.nonzero().flatten()
    ends = counts[present].cumsum(0).tolist()
    items = exclude[exclude[:, 0].argsort(stable=True), 1].tensor_split(ends[:-1])
    return dict(zip(present.tolist(), items, strict=True))


def _on_gpu(
    model: RatingModel, user_sides: Tensor, item_sides: Tensor, users: Sequence[int], n: int, exclude: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    try:
        from carp.kernels.gpu.scorer import top_items_gpu

        numbers = torch.tensor(list(users), device=user_sides.device)
        return top_items_gpu(model, user_sides, item_sides, numbers, n, exclude=exclude)
    except Exception as problem:  # the plain path does not depend on what failed here
        give_way("ranking", problem)
        return None


def _improved(
    rate: Callable[[Sequence[int]], Tensor],
    users: Sequence[int],
    left_out: Mapping[int, Tensor],
    first: int,
    last: int,
    best: Tensor,
    ratings: Tensor,
) -> tuple[Tensor, Tensor]:
    """The best so far and of items first to last; the tensors given stay as they are, so that a try can be repeated."""
    there = torch.arange(first, last, device=best.device)
    best, ratings = best.clone(), ratings.clone()

    def improve(start: int) -> None:
        rows = slice(start, min(start + together, len(users)))
        rated = rate(users[rows])  # [rows, last - first]
        for row in left_out.keys() & set(range(rows.start, rows.stop)):
            here = left_out[row] - first
            rated[row - start, here[(here >= 0) & (here < last - first)]] = float("-inf")
        kept = torch.cat([ratings[rows], rated], 1).topk(best.shape[1])
        ratings[rows] = kept.values
        best[rows] = torch.cat([best[rows], there.expand(len(rated), -1)], 1).gather(1, kept.indices)

    together = max(1, RATED // (last - first))
    workers().run(improve, range(0, len(users), together))
    return best, ratings


def _is_fast(model: RatingModel, item_sides: Tensor) -> bool:
    return type(model) is Carp and item_sides.device.type == "cpu" and pair_scores.covers_scoring(model)


def _rated_together(
    model: RatingModel, user_sides: Tensor, item_sides: Tensor, users: Sequence[int], first: int, last: int
) -> Callable[[Sequence[int]], Tensor]:
    """The ratings of a single user, the items shared among all threads: there is no other user to keep them busy."""
    pieces: dict[int, Tensor] = {}

    def rate(start: int) -> None:
        pieces[start] = _rater(model, user_sides, item_sides, start, min(start + PIECE, last))(users)

    starts = range(first, last, PIECE)
    workers().run(rate, starts)
    rated = torch.cat([pieces[start] for start in starts], 1)
    return lambda _: rated


def _rater(
    model: RatingModel, user_sides: Tensor, item_sides: Tensor, first: int, last: int
) -> Callable[[Sequence[int]], Tensor]:
    """Ratings [users, last - first] of some users with items first to last."""
    items = torch.arange(first, last, device=item_sides.device)
    if isinstance(model, Carp) and _is_fast(model, item_sides):
        rater = pair_scores.UserRater(model, user_sides, item_sides[first:last])
        more = -len(items) % LANES
        places = torch.nn.functional.pad(items, (0, more), value=first)

        def rate_together(users: Sequence[int]) -> Tensor:
            numbers = torch.tensor(users).repeat_interleave(len(places))
            balance = torch.nn.functional.pad(rater.balance(users), (0, more))
            rated = model.combine(balance.flatten(), numbers, places.repeat(len(users)), None)
            return rated.view(len(users), -1)[:, : len(items)]

        return rate_together

    def rate(user: int) -> Tensor:
        parts = []
        for start in range(0, len(items), PAIRS):
            some = items[start : start + PAIRS]
            side = user_sides[user].expand(len(some), *user_sides.shape[1:])
            parts.append(model.score(torch.full_like(some, user), some, side, item_sides[some]).rating)
        return torch.cat(parts)

    return lambda users: torch.stack([rate(user) for user in users])
