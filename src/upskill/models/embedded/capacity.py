"""What this machine can do: how many embedded servers it has room for, and how fast its models are."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from upskill.models.embedded.local_models import (
    DEFAULT_LOCAL_MODEL,
    LOCAL_MODELS,
    RUNTIME_MEMORY,
    LocalModel,
    find_local_model,
)
from upskill.models.embedded.weight_files import cache_folder

SHARE = 0.6  # of the memory that is free now
MIN_CONTEXT = 4_096  # tokens


@dataclass(frozen=True, slots=True)
class Capacity:
    servers: int
    context: int  # tokens


def capacity_for(weights: int, bytes_per_token: int, context: int, servers: int = 0) -> Capacity:
    """As many servers as there are cores, or as are asked for, as far as memory allows.

    The weights are in memory once. Where there is not enough for every server's whole context, contexts get shorter
    first, down to a quarter or 4,096 tokens; then there are fewer servers.
    """
    room = SHARE * available_memory() - weights
    for count in range(servers or usable_cores(), 1, -1):
        fits = int((room / count - RUNTIME_MEMORY) / bytes_per_token)
        if fits >= min(context, max(MIN_CONTEXT, context // 4)):
            return Capacity(count, _rounded(min(context, fits)))
    fits = int((room - RUNTIME_MEMORY) / bytes_per_token)
    return Capacity(1, _rounded(min(context, max(fits, MIN_CONTEXT))))


def _rounded(tokens: int) -> int:
    return tokens // 256 * 256 or tokens


def usable_cores() -> int:
    """The cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(cores, _cores_of_container(cores)))


def _cores_of_container(otherwise: int) -> int:
    """The CPU quota of a container, which counting cores does not show."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):  # no container, or "max"
        return otherwise


def available_memory() -> int:
    """Bytes that are free or can be freed at once; half of the memory where the system does not say."""
    return min(_free_in_system(), _free_in_container())


def _free_in_system() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2  # of which other programs have the rest


def _free_in_container() -> int:
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        lines = Path("/sys/fs/cgroup/memory.stat").read_text(encoding="ascii").splitlines()
        cached = next(int(line.split()[1]) for line in lines if line.startswith("file "))  # can be freed at once
        return max(0, limit - used + cached)
    except (OSError, ValueError, StopIteration):  # no container, or "max"
        return sys.maxsize


def larger_model(name: str) -> LocalModel | None:
    """The next larger embedded model that this machine has the memory for; None where there is none."""
    if (name or DEFAULT_LOCAL_MODEL) not in LOCAL_MODELS:
        return None
    room, enough = SHARE * available_memory(), 1.5 * find_local_model(name).parameters
    larger = [row for row in LOCAL_MODELS.values() if row.parameters >= enough and not row.only_compares]
    fits = [row for row in larger if row.memory(MIN_CONTEXT) <= room]
    return min(fits, key=lambda row: row.parameters, default=None)


@dataclass(frozen=True, slots=True)
class Speed:
    """Of a model on this machine at its best, in tokens per second."""

    read: float  # of a prompt
    write: float  # of an answer


def record_speed(file_name: str, read: float, write: float) -> None:
    """Keep the speed of the model in this file. A folder that cannot be written to keeps nothing."""
    if not all(math.isfinite(rate) and rate > 0 for rate in (read, write)):
        return
    best = measured_speed(file_name) or Speed(0, 0)  # a busy machine must not make a model look slow
    rates = _load_speeds() | {
        file_name: asdict(Speed(max(best.read, round(read, 1)), max(best.write, round(write, 1))))
    }
    path = _speed_file()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix="speed.", delete=False, encoding="utf-8") as new:
            json.dump(rates, new, indent=2)
        try:
            Path(new.name).replace(path)
        except OSError:
            Path(new.name).unlink()


def measured_speed(file_name: str) -> Speed | None:
    try:
        rates = _load_speeds()[file_name]
        return Speed(float(rates["read"]), float(rates["write"]))
    except (KeyError, TypeError, ValueError):
        return None


def _speed_file() -> Path:
    return cache_folder() / "speed.json"


def _load_speeds() -> dict[str, Any]:
    try:
        speeds: Any = json.loads(_speed_file().read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", speeds) if isinstance(speeds, dict) else {}
