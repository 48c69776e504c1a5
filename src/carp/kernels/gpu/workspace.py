"""How a training step is divided into programs, and the memory its kernels pass to each other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from carp.kernels.gpu.device_corpus import GpuCorpus
from carp.kernels.gpu.kernel_arguments import JudgedPairs, ReadingTrace
from carp.kernels.gpu.parameter_layout import Packed

ROWS = 64  # viewpoints whose part of W_p's gradient a program adds up


@dataclass(frozen=True)
class Tuning:
    """How the kernels that read documents are divided: words at once, warps of a program, depth of loads, shares.

    With `beside`, the gradients of gates and of words are computed at the same time, since neither fills a GPU.
    """

    block: int = 64
    read_warps: int = 4
    read_stages: int = 3
    back_warps: int = 4
    back_stages: int = 1
    gate_warps: int = 4
    gate_stages: int = 1
    split: int = 52  # shares of a side's documents: with 10 viewpoints, four for each of an H200's processors
    beside: bool = True

    @staticmethod
    def of(packed: Packed) -> Tuning:
        """Wide features leave no room to load ahead, and need the registers of twice as many warps."""
        if packed.shapes.N <= 64:
            return Tuning()
        return Tuning(read_warps=8, read_stages=1, back_warps=8, gate_warps=8)


class Buffers:
    """What the kernels of a step leave for later ones."""

    def __init__(self, packed: Packed, corpus: GpuCorpus, batch: int, cut: Tuning, *, repeatable: bool) -> None:
        s, device = packed.shapes, packed.native.device
        documents, at_once = 2 * batch, max(64, cut.block)
        longest = math.ceil(corpus.longest / at_once) * at_once  # whole blocks

        def room(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device)

        columns = 2 * s.window * s.N
        self.longest = longest
        self.projected = room(s.rows, columns)
        self.projected_change = room(s.rows, columns)
        self.fixed = torch.zeros(s.rows if repeatable else 1, columns, dtype=torch.int64, device=device)
        self.table_change = room(s.rows, s.d)
        self.answers = room(2, s.M, s.N)
        self.trace = ReadingTrace(
            features=room(documents, longest, s.N),
            wide=room(documents, s.M, 3, s.N),  # weighted sum, Σ dscore g, mean
            narrow=room(documents, s.M, 2, s.K),  # rudiment and its gradient
            vectors=room(documents, s.M, 3, s.N),  # back, ask, spread: see word_vectors in triton_encode_back.py
            normal=room(documents, s.M, 2),  # highest score, 1 / sum of exponentials
            counts=room(documents),
            attention=room(documents, 2, s.M, longest),
        )
        self.sides = room(documents, s.M, s.K)
        self.side_changes = room(documents, s.M, s.K)
        self.shares = math.ceil(batch * s.M / ROWS)
        self.projection_parts = room(2, self.shares, s.K, s.N)
        self.bias_parts = room(2, batch * longest // cut.block, s.N)
        self.gate_parts = room(cut.split, 2 * s.M, s.N, s.N)
        self.answer_parts = room(cut.split, 2 * s.M, s.N)
        self.votes = room(batch, 2, s.U, s.K)
        self.judged = JudgedPairs(
            vote_gradients=room(batch, 2, s.U, s.K),
            vectors=room(batch, 4, 2, s.K),
            degrees=room(batch, 2),
            losses=room(batch),
            errors=room(batch),
            lengths=room(batch, 2),
        )
        self.state = torch.zeros(2, dtype=torch.int64, device=device)  # the step's number, the epoch's seed
        self.total = torch.zeros(1, dtype=torch.float64, device=device)
