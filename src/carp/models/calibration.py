"""What errors on pairs that a prediction did not know say: how sure to be of whom, and how far to trust a number.

    σ²_ui = σ² v_u v_i     v_u = (Σ_{i of u} e²_ui / (σ² v_i) + p) / (n_u + p), v_i alike, in turns

e are errors of held-out ratings, p imagined pairs of the usual noise. The curve is a cubic from predictions to
ratings, fitted by least squares on held-out predictions: ratings crowd at an end of the scale, sums do not. It is
expected to be near the straight line of slope 1, and stays there where few predictions, or predictions that hardly
differ, tell nothing of it.

    r̂_ui = g_ui + a_u (g_ui − m_u)     a_u = Σ_i d_ui e_ui / (Σ_i d²_ui + σ²/t²), d_ui = g_ui − m_u

Some people use the whole scale and others a few steps of it. a_u is by how much a person's ratings lie farther apart
than what is predicted for them, around their mean m_u; t² is how much people are expected to differ in this.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from carp.models.layers import take_or
from carp.models.segments import Segments

IMAGINED_PAIRS = 10.0
WIDTHS_DIFFER = 0.04  # t²
CURVES_DIFFER = 0.7  # standard deviation of a curve's slope around 1, and of its bends around 0
ROUNDS = 5  # of noise by person and by thing, in turns
NORMAL_90 = 1.6449  # so many standard deviations each way hold nine tenths of a normal distribution


def noise_by_owner(errors: Tensor, by_user: Segments, by_item: Segments) -> tuple[Tensor, Tensor]:
    """v_u [users] and v_i [items], 1 where nothing is known; their products have a geometric mean near 1."""
    square = errors.square() / errors.square().mean().clamp_min(1e-12)
    user, item = square.new_ones(by_user.owners), square.new_ones(by_item.owners)
    for _ in range(ROUNDS):
        user = _shrunk(square / item[by_item.owner], by_user)
        item = _shrunk(square / user[by_user.owner], by_item)
    return user, item


def noise_of_some(
    errors: Tensor, by_user: Segments, by_item: Segments, known: tuple[Tensor, Tensor], some: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """v_u and v_i where those of some people and things are found again from the errors of all their pairs.

    The others keep what is known of them. σ² is such that the noise known so far is right on average of these pairs.
    """
    user, item = (noise.clone() for noise in known)
    square = errors.square()
    usual = square.sum() / (user[by_user.owner] * item[by_item.owner]).sum()
    square = square / usual.clamp_min(1e-12)
    for _ in range(ROUNDS):
        user[some[0]] = _shrunk(square / item[by_item.owner], by_user)[some[0]]
        item[some[1]] = _shrunk(square / user[by_user.owner], by_item)[some[1]]
    return user, item


def noise_without_own(errors: Tensor, by_user: Segments, by_item: Segments, user: Tensor, item: Tensor) -> Tensor:
    """v_u v_i of every pair as if its own error were not known [n]: else an interval knows what it is to hold."""
    square = errors.square() / errors.square().mean().clamp_min(1e-12)
    product = torch.ones_like(square)
    for by_owner, noise, other in ((by_user, user, item[by_item.owner]), (by_item, item, user[by_user.owner])):
        owner = by_owner.owner
        weight = torch.bincount(owner, minlength=len(noise)).to(square)[owner] + IMAGINED_PAIRS
        product = product * ((weight * noise[owner] - square / other) / (weight - 1)).clamp_min(0.1)
    return product


def _shrunk(square: Tensor, by_owner: Segments) -> Tensor:
    total, count = by_owner.sums(square), by_owner.sums(torch.ones_like(square))
    return (total + IMAGINED_PAIRS) / (count + IMAGINED_PAIRS)


class RatingCurve(nn.Module):
    """A cubic from a sum of parts to a rating, level beyond what was seen; at first, the sum itself."""

    coefficients: Tensor
    range: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("coefficients", torch.tensor([0.0, 1.0, 0.0, 0.0]))
        self.register_buffer("range", torch.tensor([float("-inf"), float("inf"), 0.0, 1.0]))  # lowest, highest, centre

    def forward(self, sums: Tensor) -> Tensor:
        lowest, highest, centre, spread = self.range
        x = (sums.clamp(lowest, highest) - centre) / spread
        c = self.coefficients
        rating: Tensor = c[0] + x * (c[1] + x * (c[2] + x * c[3]))
        return rating

    @torch.no_grad()
    def fit(self, sums: Tensor, ratings: Tensor, *, stiffness: float = 20.0) -> None:
        sums, ratings = sums.double(), ratings.double()
        centre, spread = sums.mean(), sums.std(unbiased=False)
        if not bool(spread > 1e-9):
            centre, spread = torch.zeros_like(centre), torch.ones_like(spread)
        x = (sums - centre) / spread
        powers = torch.stack([torch.ones_like(x), x, x.square(), x**3], 1)
        by_line = torch.stack([centre, spread, *torch.zeros_like(spread).repeat(2)])

        def solved(line: Tensor) -> Tensor:
            stiff = torch.stack([torch.full_like(line, 1e-9), line, *line.clamp_min(stiffness).repeat(2)])
            wanted = powers.T @ ratings + stiff * by_line
            found: Tensor = torch.linalg.solve((powers.T @ powers + torch.diag(stiff)).cpu(), wanted.cpu())
            return found.to(wanted)

        noise = (ratings - powers @ solved(torch.full_like(spread, 1e-9))).square().mean()
        found = solved((noise / (CURVES_DIFFER * spread).square()).clamp_min(1e-9))
        self.coefficients.copy_(found)
        self.range.copy_(torch.stack([sums.min(), sums.max(), centre, spread]))


class OwnWidth(nn.Module):
    """How widely each person rates, around the mean of what is predicted for them; at first, as predicted."""

    more: Tensor
    middle: Tensor

    def __init__(self, users: int) -> None:
        super().__init__()
        self.register_buffer("more", torch.zeros(users))  # a_u
        self.register_buffer("middle", torch.zeros(users))  # m_u

    def forward(self, predicted: Tensor, users: Tensor) -> Tensor:
        """Somebody unknown rates as predicted."""
        more, middle = take_or(self.more, users, 0.0), take_or(self.middle, users, 0.0)
        return predicted + more * (predicted - middle)

    @torch.no_grad()
    def fit(self, held_out: Tensor, ratings: Tensor, by_user: Segments, only: Tensor | None = None) -> Tensor:
        """From predictions of held-out pairs; gives them back as if each one's own rating had told nothing [n].

        With `only`, all other people keep their width.
        """
        held_out, ratings, owner = held_out.double(), ratings.double(), by_user.owner
        count = torch.bincount(owner, minlength=by_user.owners).clamp_min(1)
        middle = by_user.sums(held_out) / count
        away, error = held_out - middle[owner], ratings - held_out
        belief = error.square().mean() / WIDTHS_DIFFER
        agree, square = by_user.sums(away * error), by_user.sums(away.square())
        people = slice(None) if only is None else only
        self.more[people] = (agree / (square + belief).clamp_min(1e-12)).to(self.more)[people]
        self.middle[people] = middle.to(self.middle)[people]
        without_own = (agree[owner] - away * error) / (square[owner] - away.square() + belief).clamp_min(1e-12)
        return held_out + without_own * away


def interval_scale(errors: Tensor, deviations: Tensor) -> float:
    """What to multiply standard deviations with, that nine tenths of the errors lie within 1.645 of them.

    >>> errors = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0, -8.0, 9.0, -10.0, 11.0])
    >>> round(interval_scale(errors, torch.ones(11)) * NORMAL_90, 3)
    10.0
    """
    return float(torch.quantile(errors.abs() / deviations, 0.9)) / NORMAL_90
