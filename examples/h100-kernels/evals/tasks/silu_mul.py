"""SiLU of a gate times another projection: the middle of a Llama feed-forward block."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = "const half* gate, const half* up, half* y, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["float16"]
TOLERANCE = {"float16": (5.5e-4, 1e-5)}  # relative, absolute: computed in fp32 and rounded once


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    return {
        "gate": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16),
        "up": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16),
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"y": ((rows, cols), torch.float16)}


def reference(gate: torch.Tensor, up: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(gate.double(), up.double())


def eager(gate: torch.Tensor, up: torch.Tensor, **sizes: int) -> torch.Tensor:
    return functional.silu(gate) * up


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 6 * rows * cols
