"""Softmax of each row."""

from __future__ import annotations

from typing import Any

import torch

SIGNATURE = "const half* x, half* y, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["float16"]
TOLERANCE = {"float16": (5.5e-4, 1e-7)}  # relative, absolute: rounded once; an entry of a long row is small


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    x = torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16)
    x[0] += 300  # exp of it is infinite unless the largest is subtracted first
    return {"x": x, "rows": rows, "cols": cols}


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"y": ((rows, cols), torch.float16)}


def reference(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double())


def eager(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    return x.softmax(dim=-1)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 4 * rows * cols
