"""The cross-entropy loss of each token of a language model. Tokens with target -100, such as padding, have none."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = "const half* x, const int* target, float* loss, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (4096, 32000)
DTYPES = ["float16"]
TOLERANCE = {"float32": (1e-4, 1e-4)}  # relative, absolute: beside 300 an fp32 number has steps of 3e-5


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    x = torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16)
    target = torch.randint(0, cols, (rows,), generator=generator, device=device, dtype=torch.int32)
    x[0] += 300  # exp of it is infinite unless the largest is subtracted first
    if rows > 1:
        target[-1] = -100
    return {"x": x, "target": target, "rows": rows, "cols": cols}


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, _cols = shape
    return {"loss": ((rows,), torch.float32)}


def reference(x: torch.Tensor, target: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double(), target)


def eager(x: torch.Tensor, target: torch.Tensor, **sizes: int) -> torch.Tensor:
    return functional.cross_entropy(x, target.long(), ignore_index=-100, reduction="none")


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 2 * rows * cols + 8 * rows
