"""How fast models are on this machine, at their best: a JSON file in the cache folder."""

from __future__ import annotations

import json
import math
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from upskill.models.embedded.weight_files import cache_folder


@dataclass(frozen=True, slots=True)
class Speed:
    """In tokens per second."""

    read: float  # of a prompt
    write: float  # of an answer


def record_speed(file_name: str, read: float, write: float) -> None:
    """Keep the speed of the model in this file. A folder that cannot be written to keeps nothing."""
    if not all(math.isfinite(rate) and rate > 0 for rate in (read, write)):
        return
    best = measured_speed(file_name) or Speed(0, 0)  # a busy machine must not make a model look slow
    rates = _load() | {file_name: asdict(Speed(max(best.read, round(read, 1)), max(best.write, round(write, 1))))}
    place = _place()
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, prefix="speed.", delete=False, encoding="utf-8") as new:
            json.dump(rates, new, indent=2)
        try:
            Path(new.name).replace(place)
        except OSError:
            Path(new.name).unlink()


def measured_speed(file_name: str) -> Speed | None:
    try:
        rates = _load()[file_name]
        return Speed(float(rates["read"]), float(rates["write"]))
    except (KeyError, TypeError, ValueError):
        return None


def _place() -> Path:
    return cache_folder() / "speed.json"


def _load() -> dict[str, Any]:
    try:
        found: Any = json.loads(_place().read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
