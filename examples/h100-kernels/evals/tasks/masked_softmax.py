"""Softmax of the entries of each row that a mask keeps. A row of which nothing is kept becomes zeros."""

from __future__ import annotations

from typing import Any

import torch

SIGNATURE = "const float* x, const unsigned char* mask, float* y, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["float32"]
TOLERANCE = {"float32": (1e-4, 1e-9)}  # relative, absolute


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    x = torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float32)
    mask = torch.rand(rows, cols, generator=generator, device=device) < 0.8
    mask[-1] = rows == 1  # nothing is kept of the last of several rows
    x[0] += 300  # exp of it is infinite unless the largest is subtracted first
    return {"x": x, "mask": mask, "rows": rows, "cols": cols}


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"y": ((rows, cols), torch.float32)}


def reference(x: torch.Tensor, mask: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double(), mask)


def eager(x: torch.Tensor, mask: torch.Tensor, **sizes: int) -> torch.Tensor:
    return x.masked_fill(~mask, float("-inf")).softmax(dim=-1).masked_fill(~mask, 0.0)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 9 * rows * cols
