# mypy: ignore-errors
"""Triton and its language, or a stand-in, so that the kernels' modules can be imported where Triton is missing."""

from __future__ import annotations

from types import SimpleNamespace

try:
    import triton
    import triton.language as tl
except ImportError:  # then no kernel is launched
    triton, tl = SimpleNamespace(jit=lambda function: function), None

__all__ = ["tl", "triton"]
