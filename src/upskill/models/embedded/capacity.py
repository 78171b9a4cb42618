"""How many embedded servers this machine has room for, and how long a context each of them gets."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from upskill.models.embedded.local_models import (
    DEFAULT_LOCAL_MODEL,
    LOCAL_MODELS,
    RUNTIME_MEMORY,
    LocalModel,
    find_local_model,
)
from upskill.record import record

SHARE = 0.6  # of the memory that is free now
MIN_CONTEXT = 4_096  # tokens


@record
class Capacity:
    servers: int
    context: int  # tokens


def capacity_for(weights: int, bytes_per_token: int, context: int, servers: int = 0) -> Capacity:
    """As many servers as there are cores, or as are asked for, as far as memory allows.

    The weights are in memory once. Where there is not enough for every server's whole context, contexts get shorter
    first, down to a quarter or 4,096 tokens; then there are fewer servers.
    """
    wanted = servers or usable_cores()
    room = SHARE * available_memory() - weights
    for fewer in range(wanted, 1, -1):
        fits = int((room / fewer - RUNTIME_MEMORY) / bytes_per_token)
        if fits >= min(context, max(MIN_CONTEXT, context // 4)):
            return Capacity(fewer, _rounded(min(context, fits)))
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
    """Bytes that are free or can be freed at once; a guess of 8 GiB where the system does not say."""
    return min(_free_in_system(), _free_in_container())


def _free_in_system() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2  # of which other programs have the rest
    except (AttributeError, OSError, ValueError):  # Windows
        return 8 << 30


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
