"""The prior covariance of ratings of pairs, as products with vectors: seven terms, none of them written out.

    k(ui, u'i') = s₁ [u = u'] + s₂ [i = i']                      biases
                + s₃ x_u · x_u' + s₄ x_i · x_i'                  weights of words, of a person's and of a thing's text
                + s₅ [u = u'] z_i · z_i'                         what this person thinks of things that read alike
                + s₆ [i = i'] z_u · z_u'                         what people who write alike think of this thing
                + s₇ (z_u · z_u') (z_i · z_i')                   what people who write alike think of such things
                + [ui = u'i'] σ²_ui                              noise

x is a TF-IDF row, z the same text in a few directions at length 1. A product with a vector costs time and memory
linear in the reviews. `solve` is conjugate gradients on many right sides at once, and `learn_strengths` climbs the
marginal likelihood: at its top, for every term, αᵀ K α = tr(Σ⁻¹ K), where Σ α = y. The trace is estimated with a few
random vectors of signs, always the same ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from carp.models.covariance_solving import Covariance
from carp.models.segments import Segments
from carp.models.tfidf import Entries, Features

TERMS = 7
NAMES = ("person", "thing", "person's words", "thing's words", "by person", "by thing", "by both", "noise")
START = (0.06, 0.02, 0.05, 0.08, 0.05, 0.02, 0.06, 0.66)  # shares of the ratings' variance, the noise last
COLUMNS_AT_ONCE = 8  # of a product on a GPU, where every entry is written out for each of them
NEGLIGIBLE = 1e-5  # of the ratings' variance: a term as weak as this is left out of products


class SparseProduct:
    """A sparse matrix, ready to be multiplied with a few columns; the same bits each time, on a GPU too."""

    def __init__(self, row: Tensor, column: Tensor, value: Tensor, shape: tuple[int, int]) -> None:
        """From entries, row after row."""
        self.value, self.column = value, column
        self.matrix: Tensor | None = None
        if value.is_cuda:
            self.rows = Segments.of(row, shape[0])
        else:
            begins = torch.searchsorted(row, torch.arange(shape[0] + 1))
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # that CSR is new in torch
                self.matrix = torch.sparse_csr_tensor(begins, column, value, shape, check_invariants=False)

    def times(self, weights: Tensor) -> Tensor:
        """The matrix times weights [columns, c]."""
        if self.matrix is not None:
            product: Tensor = self.matrix @ weights
            return product
        few = torch.split(weights, COLUMNS_AT_ONCE, dim=1)
        return torch.cat([self.rows.sums(self.value.unsqueeze(1) * some[self.column]) for some in few], 1)


class TextRows:
    """TF-IDF rows of one side, a row a pair, each without the pair's own review; after them the owner's name."""

    def __init__(self, features: Features, like: Tensor, names: Entries | None = None) -> None:
        """On the device and in the precision of `like`."""
        self.names: SparseProduct | None = None
        self.names_turned: SparseProduct | None = None
        if names is not None:
            self.names, self.names_turned = _products(names, like)
        self.columns = features.whole.shape[1] + (0 if names is None else names.shape[1])
        self.whole, self.whole_turned = _products(features.whole, like)
        self.difference, self.difference_turned = _products(features.difference, like)
        self.terms = features.whole.shape[1]
        self.owner = features.owner.to(like.device)
        self.by_owner = Segments.of(self.owner, features.whole.shape[0])
        self.scale = features.scale.to(like).unsqueeze(1)

    def times(self, weights: Tensor) -> Tensor:
        """Rows times weights [columns, c]."""
        of_words = weights[: self.terms]
        rows: Tensor = self.scale * (self.whole.times(of_words)[self.owner] + self.difference.times(of_words))
        if self.names is None:
            return rows
        return rows + self.names.times(weights[self.terms :])[self.owner]

    def transposed_times(self, vectors: Tensor) -> Tensor:
        """The rows turned, times vectors [pairs, c]."""
        scaled = self.scale * vectors
        turned = self.whole_turned.times(self.by_owner.sums(scaled)) + self.difference_turned.times(scaled)
        if self.names_turned is None:
            return turned
        return torch.cat([turned, self.names_turned.times(self.by_owner.sums(vectors))])

    def directions(self, wanted: int, rounds: int = 3) -> Tensor:
        """The first singular directions of the rows [columns, wanted], zero where there are fewer than wanted."""
        size = min(wanted + 8, len(self.owner), self.columns)
        basis = torch.randn(self.columns, size, generator=torch.Generator().manual_seed(0)).to(self.scale)
        for _ in range(rounds):
            basis = orthonormal(self.transposed_times(self.times(basis)))
        values, vectors = principal_axes(self.times(basis).double())
        kept = values.flip(0)[:wanted] > 1e-7 * max(float(values[-1]), 1e-300)
        found = (basis @ vectors.flip(1).to(basis))[:, :wanted] * kept
        found = found * found.gather(0, found.abs().argmax(0, keepdim=True)).sign()  # a sign that does not wander
        return torch.nn.functional.pad(found, (0, wanted - found.shape[1]))


def orthonormal(columns: Tensor) -> Tensor:
    """Columns [m, c] of length 1 and at right angles, that span what these do."""
    if columns.is_cuda:
        return at_right_angles(at_right_angles(columns))  # again, for what rounding has left
    found: Tensor = torch.linalg.qr(columns)[0]
    return found


def at_right_angles(columns: Tensor) -> Tensor:
    """The same by small matrices alone, since a card's QR was seen to read memory that nobody had written while
    several processes shared it; columns of 0 where these span less.

    >>> at_right_angles(torch.tensor([[2.0, 2.0], [0.0, 0.0]])).abs()
    tensor([[0., 1.],
            [0., 0.]])
    """
    wide = columns.double()
    values, vectors = principal_axes(wide)
    spanned = values > 1e-10 * values[-1]
    turned = wide @ (vectors * torch.where(spanned, values, 1.0).rsqrt() * spanned)
    return turned.to(columns)


def principal_axes(image: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, the largest last, and eigenvectors of imageᵀ image; found on the processor, since a card's solver
    was seen to give up."""
    values, vectors = torch.linalg.eigh((image.T @ image).cpu())
    return values.to(image.device), vectors.to(image.device)


def _products(entries: Entries, like: Tensor) -> tuple[SparseProduct, SparseProduct]:
    """The matrix, and the matrix turned."""
    row, column = entries.row.to(like.device), entries.column.to(like.device)
    value, (high, wide) = entries.value.to(like), entries.shape
    order = torch.argsort(column, stable=True)
    turned = SparseProduct(column[order], row[order], value[order], (wide, high))
    return SparseProduct(row, column, value, (high, wide)), turned


def from_centre(rows: Tensor, centre: Tensor) -> Tensor:
    """Rows less a centre; a row of nothing stays one."""
    return rows - centre * (rows != 0).any(-1, keepdim=True)


def at_length_one(rows: Tensor) -> Tensor:
    """Rows divided by their lengths; a row of nothing stays one.

    >>> at_length_one(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    length = rows.square().sum(-1, keepdim=True).sqrt()
    return torch.where(length > 1e-9, rows / length.clamp_min(1e-9), 0.0)


@dataclass(frozen=True)
class ProcessWeights:
    """The model in weight space: what a solution of the dual problem says of every person, thing and word."""

    user: Tensor  # [users]
    item: Tensor  # [items]
    user_words: Tensor  # [columns of the rows]
    item_words: Tensor  # [columns of the rows]
    of_user: Tensor  # [users, k] on the directions of things
    of_item: Tensor  # [items, k] on the directions of people
    meetings: Tensor  # [k, k] directions of people by directions of things


@dataclass(frozen=True)
class PairCovariance(Covariance):
    by_user: Segments  # of the n pairs
    by_item: Segments
    user_rows: TextRows
    item_rows: TextRows
    user_directions: Tensor  # z_u [n, k]
    item_directions: Tensor  # z_i [n, k]

    @property
    def users(self) -> Tensor:
        """The user of each pair [n]."""
        return self.by_user.owner

    @property
    def items(self) -> Tensor:
        """The item of each pair [n]."""
        return self.by_item.owner

    def times(self, vectors: Tensor, strengths: Tensor, noise: Tensor) -> Tensor:
        """Σ times vectors [n, c]; strengths [8], the last of them of the noise [n]."""
        total = strengths[TERMS] * noise.unsqueeze(1) * vectors
        for term in range(TERMS):
            if strengths[term] > 0:
                total = total + strengths[term] * self.term_times(term, vectors)
        return total

    def term_times(self, term: int, vectors: Tensor) -> Tensor:
        """One term, at strength 1, times vectors [n, c]."""
        zu, zi = self.user_directions, self.item_directions
        if term == 0:
            return self.by_user.sums(vectors)[self.users]
        if term == 1:
            return self.by_item.sums(vectors)[self.items]
        if term in (2, 3):
            rows = self.user_rows if term == 2 else self.item_rows
            return rows.times(rows.transposed_times(vectors))
        if term == 4:
            return _each(vectors, lambda v: (self.by_user.sums(zi * v)[self.users] * zi).sum(1))
        if term == 5:
            return _each(vectors, lambda v: (self.by_item.sums(zu * v)[self.items] * zu).sum(1))
        return _each(vectors, lambda v: ((zu @ (zu.T @ (zi * v))) * zi).sum(1))

    def weights(self, solution: Tensor, strengths: Tensor) -> ProcessWeights:
        """From the solution α [n] of Σ α = y."""
        alpha, s = solution.unsqueeze(1), strengths
        return ProcessWeights(
            user=s[0] * self.by_user.sums(alpha).squeeze(1),
            item=s[1] * self.by_item.sums(alpha).squeeze(1),
            user_words=s[2] * self.user_rows.transposed_times(alpha).squeeze(1),
            item_words=s[3] * self.item_rows.transposed_times(alpha).squeeze(1),
            of_user=s[4] * self.by_user.sums(self.item_directions * alpha),
            of_item=s[5] * self.by_item.sums(self.user_directions * alpha),
            meetings=s[6] * (self.user_directions.T @ (self.item_directions * alpha)),
        )

    def preconditioner(self, strengths: Tensor, noise: Tensor, width: int = 32) -> Callable[[Tensor], Tensor]:
        """An easy inverse that is near Σ⁻¹: the noise, and the first directions of both sides."""
        zu, zi = self.user_directions[:, :width], self.item_directions[:, :width]
        user_share, item_share = zu.mean(0).square().sum(), zi.mean(0).square().sum()
        of_users = (strengths[2] / 2 + strengths[6] * item_share).sqrt() * zu
        of_items = (strengths[3] / 2 + strengths[6] * user_share).sqrt() * zi
        low = torch.cat([of_users, of_items], 1)
        local = (strengths[TERMS] * noise + strengths[0] + strengths[1] + strengths[4] + strengths[5]).unsqueeze(1)
        small = torch.eye(low.shape[1], dtype=low.dtype, device=low.device) + low.T @ (low / local)
        factor = torch.linalg.cholesky(small.cpu()).to(small.device)  # small: see at_right_angles

        def unmix(vectors: Tensor) -> Tensor:
            scaled = vectors / local
            return scaled - low @ torch.cholesky_solve(low.T @ scaled, factor) / local

        return unmix

    def learn_strengths(
        self, target: Tensor, start: Tensor, noise: Tensor, *, rounds: int, probes: int
    ) -> tuple[Tensor, Tensor]:
        """Strengths [8] near the top of the marginal likelihood of the target [n], and the solution α [n] there.

        At the top αᵀKα and tr(Σ⁻¹K) are equal for every term. Each round multiplies all strengths by yᵀα / n, which is
        where their common size belongs, and each by a power of how far its own ratio is from that: a power that grows
        while the ratio stays on one side of 1, and shrinks when it has jumped over.
        """
        pairs = len(target)
        signs = torch.randint(0, 2, (pairs, probes), generator=torch.Generator().manual_seed(1)).to(target) * 2 - 1
        right = torch.cat([target.unsqueeze(1), signs], 1)
        weak = NEGLIGIBLE * float(target.square().mean())
        strengths, solved = start.clone(), torch.zeros_like(right)
        pace, before = torch.full((TERMS + 1,), 3.0), torch.zeros(TERMS + 1)
        for _ in range(rounds):
            solved = self.solve(right, strengths, noise, solved, tolerance=1e-2, most=60)
            size = max(float(target @ solved[:, 0]) / pairs, 1e-12)
            pull = (self._ratios(solved, signs, strengths, noise) / size).log()
            pace = (pace * torch.where(pull * before < 0, 0.4, 1.3)).clamp(0.5, 6.0)
            before = pull
            strengths = strengths * (size * (pull * pace).clamp(-1.5, 1.5).exp()).to(strengths)
            strengths[:TERMS] = torch.where(strengths[:TERMS] < weak, 0.0, strengths[:TERMS])
        return strengths, solved[:, 0]

    def _ratios(self, solved: Tensor, signs: Tensor, strengths: Tensor, noise: Tensor) -> Tensor:
        """αᵀKα / tr(Σ⁻¹K) of every term and of the noise [8]; 1 for terms that are left out."""
        mixed = torch.cat([solved[:, :1], signs], 1)
        ratios = torch.ones(TERMS + 1)
        for term in range(TERMS + 1):
            if strengths[term] > 0:
                image = self.term_times(term, mixed) if term < TERMS else noise.unsqueeze(1) * mixed
                agreement = solved * image
                trace = float(agreement[:, 1:].sum()) / signs.shape[1]
                ratios[term] = max(float(agreement[:, 0].sum()), 1e-12) / max(trace, 1e-12)
        return ratios


def _each(vectors: Tensor, column: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.stack([column(vectors[:, c : c + 1]) for c in range(vectors.shape[1])], 1)
