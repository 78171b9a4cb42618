"""The rows of an embedding table that belong to the tokens of a text."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

SIGNATURE = "const int* ids, const half* table, half* y, int tokens, int vocab, int cols"
SHAPES = [(1, 1, 1), (1, 5, 7), (3, 2, 129), (9, 300, 1000), (257, 1001, 768), (2, 3, 33000)]
TIMED = (32768, 50257, 1024)
DTYPES = ["float16"]
TOLERANCE = {"float16": (0, 0)}  # relative, absolute


def inputs(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    tokens, vocab, cols = shape
    device = generator.device
    return {
        "ids": torch.randint(0, vocab, (tokens,), generator=generator, device=device, dtype=torch.int32),
        "table": torch.randn(vocab, cols, generator=generator, device=device, dtype=torch.float16),
        "tokens": tokens,
        "vocab": vocab,
        "cols": cols,
    }


def outputs(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    tokens, _vocab, cols = shape
    return {"y": ((tokens, cols), torch.float16)}


def reference(ids: torch.Tensor, table: torch.Tensor, **sizes: int) -> torch.Tensor:
    return eager(ids, table).double()


def eager(ids: torch.Tensor, table: torch.Tensor, **sizes: int) -> torch.Tensor:
    return functional.embedding(ids, table)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    tokens, vocab, cols = shape
    read = round(vocab * (1 - (1 - 1 / vocab) ** tokens))  # rows of the table; one that is looked up again counts once
    return 2 * (read + tokens) * cols + 4 * tokens
