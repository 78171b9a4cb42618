"""Adds a layer's output to the residual stream, and norms the sum for the next layer. Both are kept."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = """const __nv_bfloat16* x, const __nv_bfloat16* residual, const __nv_bfloat16* w,
__nv_bfloat16* total, __nv_bfloat16* y, int rows, int cols"""
SHAPES = [(1, 1), (1, 7), (3, 129), (5, 1000), (257, 768), (2, 33000)]
TIMED = (8192, 4096)
DTYPES = ["bfloat16"]
TOLERANCE = {"bfloat16": (4.3e-3, 1e-5)}  # relative, absolute: computed in fp32 and rounded once


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    rows, cols = shape
    device = generator.device
    return {
        "x": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.bfloat16),
        "residual": torch.randn(rows, cols, generator=generator, device=device, dtype=torch.bfloat16),
        "w": torch.randn(cols, generator=generator, device=device, dtype=torch.bfloat16),
        "rows": rows,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    rows, cols = shape
    return {"total": ((rows, cols), torch.bfloat16), "y": ((rows, cols), torch.bfloat16)}


def reference(x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, **sizes: int) -> dict[str, torch.Tensor]:
    return eager(x.double(), residual.double(), w.double())


def accept(outputs: dict[str, torch.Tensor], x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, **_: int) -> str:
    """The norm may be that of the total in fp32, or of the total as it is stored."""
    relative, absolute = TOLERANCE["bfloat16"]
    want = reference(x, residual, w)
    stored = functional.rms_norm(outputs["total"].double(), w.shape, w.double(), eps=1e-6)
    for name, allowed in {"total": [want["total"]], "y": [want["y"], stored]}.items():
        near = [outputs[name].double().isclose(right, rtol=relative, atol=absolute) for right in allowed]
        if count := int((~torch.stack(near).any(dim=0)).sum()):
            return (
                f"{name}: {count:,} of {outputs[name].numel():,} elements are wrong (± {absolute:g} and {relative:g})"
            )
    return ""


def eager(x: torch.Tensor, residual: torch.Tensor, w: torch.Tensor, **sizes: int) -> dict[str, torch.Tensor]:
    total = x + residual
    return {"total": total, "y": functional.rms_norm(total, w.shape, w, eps=1e-6)}


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    rows, cols = shape
    return 8 * rows * cols + 2 * cols
