"""The sum of each row, in fp32. The rows are part of a wider matrix, so there is a gap between them."""

from __future__ import annotations

from typing import Any

import torch

SIGNATURE = "const half* x, float* y, int rows, int cols, int stride"
SHAPES = [(1, 1, 1), (1, 7, 9), (3, 129, 129), (5, 1000, 1001), (257, 768, 1536), (2, 33000, 33008)]
TIMED = (16384, 4096, 8192)
DTYPES = ["float16"]
TOLERANCE = {"float32": (1e-4, 2e-3)}  # relative, absolute: sums of both signs come close to zero


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols, stride = shape
    device = generator.device
    wide = torch.randn(rows, stride, generator=generator, device=device, dtype=torch.float16)
    return {"x": wide[:, :cols], "rows": rows, "cols": cols, "stride": stride}


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, _cols, _stride = shape
    return {"y": ((rows,), torch.float32)}


def reference(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double())


def eager(x: torch.Tensor, **sizes: int) -> torch.Tensor:
    return x.sum(dim=-1, dtype=torch.promote_types(x.dtype, torch.float32))


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols, _stride = shape
    return 2 * rows * cols + 4 * rows
