"""The mean squared error of each row: the loss of each image when a diffusion model learns to foretell the noise."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = "const float* prediction, const float* target, float* loss, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["float32"]
TOLERANCE = {"float32": (1e-4, 1e-6)}  # relative, absolute


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    return {
        "prediction": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float32),
        "target": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float32),
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, _cols = shape
    return {"loss": ((rows,), torch.float32)}


def reference(prediction: torch.Tensor, target: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(prediction.double(), target.double())


def eager(prediction: torch.Tensor, target: torch.Tensor, **sizes: int) -> torch.Tensor:
    return functional.mse_loss(prediction, target, reduction="none").mean(dim=-1)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 8 * rows * cols + 4 * rows
