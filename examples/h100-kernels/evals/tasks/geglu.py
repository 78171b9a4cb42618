"""GEGLU with the tanh form of GELU: one projection is split, and its second half gates the first."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = "const __nv_bfloat16* x, __nv_bfloat16* y, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["bfloat16"]
TOLERANCE = {"bfloat16": (4.3e-3, 1e-5)}  # relative, absolute: computed in fp32 and rounded once


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    return {
        "x": torch.randn(rows, 2 * cols, generator=generator, device=device, dtype=torch.bfloat16),
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"y": ((rows, cols), torch.bfloat16)}


def reference(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double())


def eager(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    value, gate = x.chunk(2, dim=-1)
    return value * functional.gelu(gate, approximate="tanh")


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 2 * rows * (2 * cols) + 2 * rows * cols
