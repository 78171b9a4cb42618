"""How many embedded servers this machine has room for, and how fast they are."""

from __future__ import annotations

import json
import math
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from upskill.errors import UsageError
from upskill.models.embedded.local_models import (
    DEFAULT_LOCAL_MODEL,
    LOCAL_MODELS,
    RUNTIME_MEMORY,
    LocalModel,
    find_local_model,
)
from upskill.models.embedded.weight_files import cache_folder
from upskill.outputs import whole_file
from upskill.plain import read_json

SHARE = 0.6  # of the memory that is free now
MIN_CONTEXT = 4_096  # tokens


@dataclass(frozen=True, slots=True)
class Capacity:
    servers: int
    context: int  # tokens


def capacity_for(weights: int, bytes_per_token: int, context: int, servers: int = 0) -> Capacity:
    """As many servers as there are cores, or as are asked for; where memory is short, contexts shrink first."""
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
    """The cores that this process may use, as far as the CPU quota of a container goes."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no container, or "max"
        quota, period = _read_words("/sys/fs/cgroup/cpu.max")[:2]
        cores = min(cores, int(quota) // int(period))
    return max(1, cores)


def available_memory() -> int:
    """Bytes that are free or can be freed at once."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2  # a guess
    with suppress(OSError, ValueError):
        fields = _read_words("/proc/meminfo")
        free = int(fields[fields.index("MemAvailable:") + 1]) << 10
    with suppress(OSError, ValueError):  # no container, or "max"
        limit, used = (
            int(_read_words(f"/sys/fs/cgroup/memory.{name}")[0]) for name in ("max", "current")
        )
        fields = _read_words("/sys/fs/cgroup/memory.stat")
        cached = int(fields[fields.index("file") + 1])  # can be freed at once
        free = min(free, max(0, limit - used + cached))
    return free


def _read_words(path: str) -> list[str]:
    return Path(path).read_text(encoding="ascii").split()


def larger_model(name: str) -> LocalModel | None:
    """The next larger embedded model that fits into memory, if any."""
    if (name or DEFAULT_LOCAL_MODEL) not in LOCAL_MODELS:
        return None
    room, enough = SHARE * available_memory(), 1.5 * find_local_model(name).parameters
    larger = [row for row in LOCAL_MODELS.values() if row.parameters >= enough]
    fits = [row for row in larger if row.memory(MIN_CONTEXT) <= room]
    return min(fits, key=lambda row: row.parameters, default=None)


def next_student(name: str, flag: str = "-m") -> str:
    """The next larger embedded model as a suggestion; empty where none fits."""
    larger = larger_model(name)
    if larger is None:
        return ""
    slower = round(larger.parameters / find_local_model(name).parameters)
    facts = f"{larger.size / 1e9:.1f} GB, about {slower} times slower"
    record = f"; {larger.record}" if larger.record else ""
    return f"Try a larger student: {flag} local:{larger.name} ({facts}){record}."


@dataclass(frozen=True, slots=True)
class Speed:
    """Of a model on this machine at its best, in tokens per second."""

    read: float  # of a prompt
    write: float  # of an answer


def record_speed(file_name: str, read: float, write: float) -> None:
    if not all(math.isfinite(rate) and rate > 0 for rate in (read, write)):
        return
    best = measured_speed(file_name) or Speed(0, 0)  # not that of a busy machine
    speed = Speed(max(best.read, round(read, 1)), max(best.write, round(write, 1)))
    speeds = read_json(_speed_file()) | {file_name: asdict(speed)}
    with suppress(UsageError), whole_file(_speed_file()) as file:
        file.write(json.dumps(speeds, indent=2).encode())


def measured_speed(file_name: str) -> Speed | None:
    try:
        rates = read_json(_speed_file())[file_name]
        return Speed(float(rates["read"]), float(rates["write"]))
    except (KeyError, TypeError, ValueError):
        return None


def _speed_file() -> Path:
    return cache_folder() / "speed.json"
