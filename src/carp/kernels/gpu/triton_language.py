# mypy: ignore-errors
"""Triton and its language for the kernels, or a stand-in, so that they can be read where Triton is not installed."""

from __future__ import annotations

from types import SimpleNamespace

try:
    import triton
    import triton.language as tl
except ImportError:  # no kernel is called then
    triton, tl = SimpleNamespace(jit=lambda function: function), None

__all__ = ["tl", "triton"]
