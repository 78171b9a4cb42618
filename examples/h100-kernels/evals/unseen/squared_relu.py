"""The square of ReLU, as between the two projections of a feed-forward block of Primer or Nemotron."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = "const half* x, half* y, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["float16"]
TOLERANCE = {"float16": (5.5e-4, 1e-7)}  # relative, absolute: the square of a small number is smaller


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    return {
        "x": torch.randn(rows, cols, generator=generator, device=generator.device, dtype=torch.float16),
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"y": ((rows, cols), torch.float16)}


def reference(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double())


def eager(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    return functional.relu(x).square()


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 4 * rows * cols
