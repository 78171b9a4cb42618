"""Dropout by a mask that was drawn before, with p = 0.1, added to the residual stream."""

from __future__ import annotations

from typing import Any

import torch

SIGNATURE = "const half* x, const half* residual, const unsigned char* mask, half* y, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["float16"]
TOLERANCE = {"float16": (5.5e-4, 1e-5)}  # relative, absolute: computed in fp32 and rounded once


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    return {
        "x": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16),
        "residual": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16),
        "mask": torch.rand(rows, cols, generator=generator, device=device) < 0.8,
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"y": ((rows, cols), torch.float16)}


def reference(x: torch.Tensor, residual: torch.Tensor, mask: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double(), residual.double(), mask)


def eager(x: torch.Tensor, residual: torch.Tensor, mask: torch.Tensor, **sizes: int) -> torch.Tensor:
    return residual + x * mask * (1 / 0.9)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 7 * rows * cols
