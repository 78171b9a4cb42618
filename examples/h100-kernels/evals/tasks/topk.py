"""The k largest entries of each row in falling order, and where they are: a router that chooses experts."""

from __future__ import annotations

from typing import Any

import torch

SIGNATURE = "const float* x, float* values, int* indices, int rows, int cols, int k"
SHAPES = [(1, 1, 1), (1, 7, 7), (3, 129, 5), (5, 1000, 8), (257, 64, 2), (2, 33000, 16)]
TIMED = (65536, 256, 8)
DTYPES = ["float32"]
TOLERANCE = {"float32": (0, 0), "int32": (0, 0)}  # relative, absolute


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols, k = shape
    device = generator.device
    x = torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float32)
    x[0] = x[0].round()  # equal entries: the first of them comes first
    return {"x": x, "rows": rows, "cols": cols, "k": k}


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, _cols, k = shape
    return {"values": ((rows, k), torch.float32), "indices": ((rows, k), torch.int32)}


def reference(x: torch.Tensor, k: int, **sizes: int) -> dict[str, torch.Tensor]:
    values, indices = x.sort(dim=-1, descending=True, stable=True)
    return {"values": values[:, :k].contiguous(), "indices": indices[:, :k].to(torch.int32)}


def eager(x: torch.Tensor, k: int, **sizes: int) -> dict[str, torch.Tensor]:
    """`topk` promises no order of equal entries, but it is the faster way."""
    values, indices = x.topk(k, dim=-1)
    return {"values": values, "indices": indices.to(torch.int32)}


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols, k = shape
    return 4 * rows * cols + 8 * rows * k
