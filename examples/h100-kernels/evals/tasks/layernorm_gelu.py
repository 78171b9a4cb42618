"""LayerNorm of each row, then GELU (the exact one, with erf), without a trip to memory in between."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = (
    "const __nv_bfloat16* x, const __nv_bfloat16* w, const __nv_bfloat16* b, __nv_bfloat16* y, int rows, int cols"
)
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["bfloat16"]
TOLERANCE = {"bfloat16": (4.3e-3, 1e-5)}  # relative, absolute: computed in fp32 and rounded once


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    return {
        "x": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.bfloat16),
        "w": torch.randn(cols, generator=generator, device=device, dtype=torch.bfloat16),
        "b": torch.randn(cols, generator=generator, device=device, dtype=torch.bfloat16),
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"y": ((rows, cols), torch.bfloat16)}


def reference(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double(), w.double(), b.double())


def eager(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, **sizes: int) -> torch.Tensor:
    return functional.gelu(functional.layer_norm(x, w.shape, w, b, eps=1e-5))


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 4 * rows * cols + 4 * cols
