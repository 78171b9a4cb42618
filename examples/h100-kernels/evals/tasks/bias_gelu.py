"""Adds a bias to each row, then GELU in its tanh form: what follows the first projection of a GPT-2 block."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = "const half* x, const half* bias, half* y, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["float16"]
TOLERANCE = {"float16": (5.5e-4, 1e-5)}  # relative, absolute: computed in fp32 and rounded once


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    return {
        "x": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16),
        "bias": torch.randn(cols, generator=generator, device=device, dtype=torch.float16),
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"y": ((rows, cols), torch.float16)}


def reference(x: torch.Tensor, bias: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double(), bias.double())


def eager(x: torch.Tensor, bias: torch.Tensor, **sizes: int) -> torch.Tensor:
    return functional.gelu(x + bias, approximate="tanh")


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 4 * rows * cols + 2 * cols
