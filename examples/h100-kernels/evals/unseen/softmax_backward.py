"""The gradient of a softmax of each row, from what the softmax gave: part of the backward pass of attention."""

from __future__ import annotations

from typing import Any

import torch

SIGNATURE = "const half* y, const half* dy, half* dx, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["float16"]
TOLERANCE = {"float16": (5.5e-4, 1e-7)}  # relative, absolute: rounded once; an entry of a long row is small


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    x = torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float32)
    return {
        "y": x.softmax(dim=-1).to(torch.float16),
        "dy": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16),
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"dx": ((rows, cols), torch.float16)}


def reference(y: torch.Tensor, dy: torch.Tensor, **sizes: int) -> torch.Tensor:
    y, dy = y.double(), dy.double()
    return y * (dy - (y * dy).sum(dim=-1, keepdim=True))


def eager(y: torch.Tensor, dy: torch.Tensor, **sizes: int) -> torch.Tensor:
    """What PyTorch itself calls in a backward pass."""
    return torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 6 * rows * cols
