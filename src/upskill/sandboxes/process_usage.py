"""What a tree of processes uses, seen from outside: number of processes, memory, processor time.

The kernel's own limits are per process; these are sums over the tree, from /proc on Linux and from `ps` elsewhere.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from upskill.sandboxes import Limits, format_size

CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
HAS_PROC = Path("/proc/self/stat").exists()


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    processes: int = 0
    memory: int = 0
    cpu: float = 0.0


def children(process: int) -> list[int]:
    """The processes whose parent is this one."""
    processes: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
            with suppress(OSError):
                processes += map(int, _read(f"/proc/{process}/task/{thread}/children").split())
    return processes


def process_tree(root: int) -> Iterator[int]:
    """A process and all its descendants."""
    waiting, seen = [root], {root}
    while waiting:
        process = waiting.pop()
        yield process
        fresh = [child for child in children(process) if child not in seen]
        seen.update(fresh)
        waiting += fresh


def usage_of(root: int) -> ProcessUsage:
    """What a process and its descendants use. `cpu` includes ended processes once their parent has collected them."""
    if not HAS_PROC:
        return _usage_from_ps(root)
    processes = memory = ticks = 0
    for process in process_tree(root):
        try:
            fields = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
            processes += int(fields[17])  # threads, as RLIMIT_NPROC counts
            memory += _anonymous_memory(process)
        except (OSError, IndexError, ValueError):  # ended meanwhile
            continue
    return ProcessUsage(processes, memory, ticks / CLOCK_TICKS)


def exceeded_limit(root: int, limits: Limits, cpu_before: float) -> str:
    """The limit that these processes exceed, in words; empty if none."""
    use = usage_of(root)
    if use.memory > limits.memory and (not HAS_PROC or _proportional_memory(root) > limits.memory):
        return f"used more than {format_size(limits.memory)} of memory"
    if use.cpu - cpu_before > limits.cpu:
        return f"used more than {limits.cpu:g} s of processor time"
    if use.processes > limits.processes + 8:  # for kernels that do not enforce it themselves
        return f"had more than {limits.processes} processes"
    return ""


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - some thousand times a second
        return file.read()


def _anonymous_memory(process: int) -> int:
    """Memory of a process that no file backs. Shared pages count for every process that has them."""
    total = 0
    for line in _read(f"/proc/{process}/status").splitlines():
        if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")):
            total += int(line.split()[1]) * 1024
    return total


def _proportional_memory(root: int) -> int:
    """The same with shared pages divided up: exact but slow, so only computed if the sum is too large."""
    total = 0
    for process in process_tree(root):
        with suppress(OSError, ValueError):
            parts = {line.split(":")[0]: line for line in _read(f"/proc/{process}/smaps_rollup").splitlines()[1:]}
            for name in ("Pss_Anon", "Pss_Shmem", "SwapPss"):
                total += int(parts[name].split()[1]) * 1024 if name in parts else 0
    return total


def _usage_from_ps(root: int) -> ProcessUsage:
    listed = subprocess.run(
        ["/bin/ps", "-axo", "pid=,ppid=,rss=,time="], capture_output=True, text=True, check=False, env={}
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    mine, grew = {root}, True
    while grew:
        more = {int(row[0]) for row in rows if int(row[1]) in mine} - mine
        mine |= more
        grew = bool(more)
    use = [row for row in rows if int(row[0]) in mine]
    return ProcessUsage(len(use), sum(int(row[2]) * 1024 for row in use), sum(_seconds(row[3]) for row in use))


def _seconds(clock: str) -> float:
    total = 0.0
    for part in clock.replace("-", ":").split(":"):
        total = total * 60 + float(part)
    return total
