"""Classifier-free guidance: what a diffusion model says without the prompt is moved towards what it says with it."""

from __future__ import annotations

from typing import Any

import torch

SIGNATURE = "const half* cond, const half* uncond, half* y, float scale, int rows, int cols"
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["float16"]
TOLERANCE = {"float16": (5.5e-4, 1e-5)}  # relative, absolute: computed in fp32 and rounded once


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    return {
        "cond": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16),
        "uncond": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.float16),
        "scale": 7.5,
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"y": ((rows, cols), torch.float16)}


def reference(cond: torch.Tensor, uncond: torch.Tensor, scale: float, **sizes: int) -> torch.Tensor:
    return eager(cond.double(), uncond.double(), scale)


def eager(cond: torch.Tensor, uncond: torch.Tensor, scale: float, **sizes: int) -> torch.Tensor:
    return uncond + scale * (cond - uncond)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 6 * rows * cols
