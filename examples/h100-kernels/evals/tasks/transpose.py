"""A matrix transposed."""

from __future__ import annotations

from typing import Any

import torch

SIGNATURE = "const half* x, half* y, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (129, 3), (65, 1000), (256, 768), (33000, 2)]
TIMED = (8192, 8192)
DTYPES = ["float16"]
TOLERANCE = {"float16": (0, 0)}  # relative, absolute


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    return {
        "x": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16),
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"y": ((cols, rows), torch.float16)}


def reference(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double())


def eager(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    return x.t().contiguous()


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 2 * rows * cols + 2 * cols * rows
