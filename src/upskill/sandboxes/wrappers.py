"""The program around a command where there are no namespaces: `confine.py` on Linux, a few lines of shell elsewhere."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upskill.sandboxes import Limits


@dataclass(frozen=True, slots=True)
class WrappedCommand:
    """A command line, the descriptors passed to it, and descriptors that we hold until it ends."""

    argv: list[str]
    pass_fds: tuple[int, ...] = ()
    held_fds: tuple[int, ...] = ()


CONFINE = Path(__file__).with_name("confine.py")

# Nobody ever writes to descriptor {alive}: it is closed when we end, and then the whole group is killed.
SHELL = """
ulimit -c 0; ulimit -t {cpu}; ulimit -f {file_size}; ulimit -n {open_files}; ulimit -u {processes}
trap 'kill -KILL 0' TERM
(read -r _ <&{alive}; kill -KILL 0) </dev/null >/dev/null 2>&1 &
watcher=$!
"$@" {alive}<&- <&0 &
wait $!
code=$?
kill -KILL $watcher
exit $code
"""


def wrap_in_confine(
    argv: list[str],
    environment: dict[str, str],
    limits: Limits,
    folder: Path,
    *,
    user: int | None = None,
    landlock: dict[str, Any] | None = None,
    program: bytes = b"",
) -> WrappedCommand:
    """Run it under `confine.py`, with these rules of Landlock and this seccomp program, if any."""
    task = {
        "argv": argv,
        "environment": environment,
        "folder": str(folder),
        "user": user,
        "parent": os.getpid(),
        "landlock": landlock,
        "filter": program.hex(),
        "limits": {
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": int(limits.cpu) + 2,
            "RLIMIT_FSIZE": limits.file_size,
            "RLIMIT_NOFILE": limits.open_files,
            # Counted for the user as a whole, so what already runs is added.
            "RLIMIT_NPROC": limits.processes + (0 if user is not None else _threads_of(os.getuid())),
            # Counts memory that is only reserved, too; the memory in use is checked from outside.
            **(
                {}
                if limits.address_space is None
                else {"RLIMIT_AS": limits.address_space, "RLIMIT_DATA": limits.memory}
            ),
        },
    }
    # A memfd, because a pipe without a reader would not hold a large environment.
    descriptor = os.memfd_create("task")
    os.write(descriptor, json.dumps(task).encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return WrappedCommand([sys.executable, "-I", "-S", str(CONFINE), str(descriptor)], pass_fds=(descriptor,))


def wrap_in_shell(argv: list[str], limits: Limits) -> WrappedCommand:
    """Run it under a shell that sets limits and kills the group, where there is no /proc and no prctl."""
    theirs, ours = os.pipe()
    script = SHELL.format(
        alive=theirs,
        cpu=int(limits.cpu) + 2,
        file_size=max(1, limits.file_size // 1024),
        open_files=limits.open_files,
        processes=limits.processes + 512,  # of the user as a whole, so looser than elsewhere
    )
    return WrappedCommand(["/bin/bash", "-c", script, "limited", *argv], pass_fds=(theirs,), held_fds=(ours,))


def _threads_of(user: int) -> int:
    total = 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:  # noqa: PTH116
                    total += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208
    return total
