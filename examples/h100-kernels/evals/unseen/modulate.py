"""Scales and shifts the tokens of each image by vectors that come from its time step, as in a diffusion transformer."""

from __future__ import annotations

from typing import Any

import torch

SIGNATURE = """const __nv_bfloat16* x, const __nv_bfloat16* scale, const __nv_bfloat16* shift,
__nv_bfloat16* y, int batch, int tokens, int channels"""
SHAPES = [(1, 1, 1), (1, 3, 7), (3, 5, 129), (2, 9, 1000), (3, 85, 768), (2, 1, 33000)]
TIMED = (8, 4096, 1152)
DTYPES = ["bfloat16"]
TOLERANCE = {"bfloat16": (4.3e-3, 1e-5)}  # relative, absolute: computed in fp32 and rounded once


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    batch, tokens, channels = shape
    device = generator.device
    return {
        "x": torch.randn(batch, tokens, channels, generator=generator, device=device, dtype=torch.bfloat16),
        "scale": torch.randn(batch, channels, generator=generator, device=device, dtype=torch.bfloat16),
        "shift": torch.randn(batch, channels, generator=generator, device=device, dtype=torch.bfloat16),
        "batch": batch,
        "tokens": tokens,
        "channels": channels,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    batch, tokens, channels = shape
    return {"y": ((batch, tokens, channels), torch.bfloat16)}


def reference(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double(), scale.double(), shift.double())


def eager(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, **sizes: int) -> torch.Tensor:
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    batch, tokens, channels = shape
    return 4 * batch * tokens * channels + 4 * batch * channels
