"""Scales each row to length 1, as is done with the embeddings of CLIP before they are compared."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = "const __nv_bfloat16* x, __nv_bfloat16* y, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["bfloat16"]
TOLERANCE = {"bfloat16": (4.3e-3, 1e-6)}  # relative, absolute: rounded once; an entry of a long row is small


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    x = torch.randn(rows, cols, generator=generator, device=generator.device, dtype=torch.bfloat16)
    if rows > 2:
        x[1] = 0
    return {"x": x, "rows": rows, "cols": cols}


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"y": ((rows, cols), torch.bfloat16)}


def reference(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double())


def eager(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    return functional.normalize(x, dim=-1, eps=1e-12)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 4 * rows * cols
