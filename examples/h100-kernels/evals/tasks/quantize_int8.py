"""Quantises each row to int8 with a scale of its own, as is done with activations before an int8 product."""

from __future__ import annotations

from typing import Any

import torch

SIGNATURE = "const half* x, signed char* q, float* scale, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["float16"]
TOLERANCE = {"int8": (0, 1), "float32": (1e-5, 0)}  # relative, absolute: a value between two steps may go either way


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    x = torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16)
    if rows > 2:
        x[1] = 0
    return {"x": x, "rows": rows, "cols": cols}


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"q": ((rows, cols), torch.int8), "scale": ((rows,), torch.float32)}


def reference(x: torch.Tensor, **sizes: int) -> dict[str, torch.Tensor]:
    return eager(x.double())


def eager(x: torch.Tensor, **sizes: int) -> dict[str, torch.Tensor]:
    largest = x.abs().amax(dim=-1).to(torch.promote_types(x.dtype, torch.float32))
    scale = torch.where(largest > 0, largest / 127, 1.0)
    return {"q": (x / scale[:, None]).round().to(torch.int8), "scale": scale}


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 3 * rows * cols + 4 * rows
