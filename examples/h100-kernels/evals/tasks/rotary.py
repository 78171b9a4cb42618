"""Rotary position embedding of queries or keys, in the form with two halves, as in Llama."""

from __future__ import annotations

from typing import Any

import torch

SIGNATURE = (
    "const __nv_bfloat16* x, const float* cos, const float* sin, __nv_bfloat16* y, int tokens, int heads, int dim"
)
SHAPES = [(1, 1, 2), (3, 1, 6), (7, 5, 66), (33, 3, 80), (257, 8, 64), (2, 24, 256)]
TIMED = (8192, 32, 128)
DTYPES = ["bfloat16"]
TOLERANCE = {"bfloat16": (4.3e-3, 1e-5)}  # relative, absolute: computed in fp32 and rounded once


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    tokens, heads, dim = shape
    device = generator.device
    return {
        "x": torch.randn(tokens, heads, dim, generator=generator, device=device, dtype=torch.bfloat16),
        "cos": torch.randn(tokens, dim // 2, generator=generator, device=device, dtype=torch.float32),
        "sin": torch.randn(tokens, dim // 2, generator=generator, device=device, dtype=torch.float32),
        "tokens": tokens,
        "heads": heads,
        "dim": dim,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    tokens, heads, dim = shape
    return {"y": ((tokens, heads, dim), torch.bfloat16)}


def reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(x.double(), cos.double(), sin.double())


def eager(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, **sizes: int) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    tokens, heads, dim = shape
    return 4 * tokens * heads * dim + 8 * tokens * (dim // 2)
