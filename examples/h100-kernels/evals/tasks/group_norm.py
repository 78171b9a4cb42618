"""Group norm of a batch of images, as in the U-Net of Stable Diffusion."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = "const half* x, const half* w, const half* b, half* y, int batch, int channels, int pixels, int groups"
SHAPES = [(1, 1, 2, 1), (1, 6, 7, 3), (3, 32, 33, 32), (2, 64, 256, 32), (5, 320, 64, 32), (1, 64, 16384, 4)]
TIMED = (32, 320, 4096, 32)
DTYPES = ["float16"]
TOLERANCE = {"float16": (5.5e-4, 1e-5)}  # relative, absolute: computed in fp32 and rounded once


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    batch, channels, pixels, groups = shape
    device = generator.device
    return {
        "x": torch.randn(batch, channels, pixels, generator=generator, device=device, dtype=torch.float16),
        "w": torch.randn(channels, generator=generator, device=device, dtype=torch.float16),
        "b": torch.randn(channels, generator=generator, device=device, dtype=torch.float16),
        "batch": batch,
        "channels": channels,
        "pixels": pixels,
        "groups": groups,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    batch, channels, pixels, _groups = shape
    return {"y": ((batch, channels, pixels), torch.float16)}


def reference(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, groups: int, **sizes: int) -> torch.Tensor:
    return eager(x.double(), w.double(), b.double(), groups)


def eager(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, groups: int, **sizes: int) -> torch.Tensor:
    return functional.group_norm(x, groups, w, b, eps=1e-5)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    batch, channels, pixels, _groups = shape
    return 4 * batch * channels * pixels + 4 * channels
