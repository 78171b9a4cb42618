"""Adds a layer's output to the residual stream, and norms the sum for the next layer. Both are kept."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = """const __nv_bfloat16* x, const __nv_bfloat16* residual, const __nv_bfloat16* w,
__nv_bfloat16* total, __nv_bfloat16* y, int rows, int cols"""
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["bfloat16"]
TOLERANCE = {"bfloat16": (1.6e-2, 4e-3)}  # relative, absolute


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    return {
        "x": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.bfloat16),
        "residual": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.bfloat16),
        "w": torch.randn(cols, generator=generator, device=device, dtype=torch.bfloat16),
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"total": ((rows, cols), torch.bfloat16), "y": ((rows, cols), torch.bfloat16)}


def reference(x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, **sizes: int) -> dict[str, torch.Tensor]:
    return eager(x.double(), residual.double(), w.double())


def eager(x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, **sizes: int) -> dict[str, torch.Tensor]:
    total = x + residual
    return {"total": total, "y": functional.rms_norm(total, w.shape, w, eps=1e-6)}


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 8 * rows * cols + 2 * cols
