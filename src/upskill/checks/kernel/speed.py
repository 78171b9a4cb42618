"""How fast a kernel is beside PyTorch: medians, and their ratios with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95
CALLED = {"eager": "PyTorch eager", "compile": "torch.compile"}


@dataclass(frozen=True, slots=True)
class Rival:
    """How many times as long as the kernel it takes; above 1 the kernel is faster."""

    name: str
    seconds: float
    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.2f}× the speed of {CALLED[self.name]} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class Speed:
    seconds: float  # median of the kernel
    rivals: tuple[Rival, ...]
    bandwidth: float | None = None  # share of what a large copy reaches

    def __str__(self) -> str:
        share = f", {self.bandwidth:.0%} of the bandwidth of a copy" if self.bandwidth is not None else ""
        return f"{self.seconds * 1e6:.1f} µs: {', '.join(map(str, self.rivals))}{share}"


def compare_speed(found: dict[str, Any]) -> Speed:
    """What the times of a runner come to."""
    times: dict[str, list[float]] = found["times"]
    kernel = float(np.median(times["kernel"]))
    rivals = tuple(_rival(name, times["kernel"], took) for name, took in times.items() if name != "kernel")
    moved = found.get("bytes")
    share = moved / kernel / found["copy_bandwidth"] if moved and found.get("copy_bandwidth") else None
    return Speed(kernel, rivals, share)


def _rival(name: str, kernel: Sequence[float], rival: Sequence[float]) -> Rival:
    random = np.random.default_rng(0)
    ours, theirs = np.asarray(kernel), np.asarray(rival)
    resampled = np.median(theirs[random.integers(0, len(theirs), (RESAMPLES, len(theirs)))], axis=1) / np.median(
        ours[random.integers(0, len(ours), (RESAMPLES, len(ours)))], axis=1
    )
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    median = float(np.median(theirs))
    return Rival(name, median, median / float(np.median(ours)), float(low), float(high))
