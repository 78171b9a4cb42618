"""Scales: values onto pixels, with round ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Values onto pixels, linear or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(one) if self.log else one for one in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values on the scale."""
        if self.log:
            whole = range(math.floor(math.log10(self.low)) - 1, math.ceil(math.log10(self.high)) + 1)
            for steps in ((1, 2, 5), (1, 3), (1,)):
                found = [step * 10.0**power for power in whole for step in steps]
                found = [value for value in found if self.low <= value * 1.000001 and value <= self.high * 1.000001]
                if len(found) <= most + 1:
                    return found
            return found[:: math.ceil(len(found) / most)]
        step = nice_step(self.high - self.low, most)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def nice_step(span: float, most: int) -> float:
    """The smallest step of 1, 2, 2.5 or 5 times a power of ten that makes at most so many."""
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999999)
