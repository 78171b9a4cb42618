"""What processes use, and sandboxes of a folder on the host and one confined process per command.

The kernel's own limits are per process; these are sums over a tree of processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any, Self

from upskill.errors import SandboxError
from upskill.sandboxes import (
    ENVIRONMENT,
    SYSTEM_PATH,
    Capture,
    DiskUsage,
    Limits,
    PreparedCommand,
    Setup,
    format_size,
    hold_to_limits,
)
from upskill.sandboxes.files import Folder, FolderSandbox, folder_usage

CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | {
    "start_new_session": True
}
HAS_PROC = Path("/proc/self/stat").exists()


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
) -> WrappedCommand:
    task = {
        "argv": argv,
        "environment": environment,
        "folder": str(folder),
        "parent": os.getpid(),
        "limits": {
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": int(limits.cpu) + 2,
            "RLIMIT_FSIZE": limits.file_size,
            "RLIMIT_NOFILE": limits.open_files,
            # Counted for the user as a whole, so what already runs is added.
            "RLIMIT_NPROC": limits.processes + _threads_of(os.getuid()),
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
    return WrappedCommand(
        [sys.executable, "-I", "-S", str(CONFINE), str(descriptor)], pass_fds=(descriptor,)
    )


def wrap_in_shell(argv: list[str], limits: Limits) -> WrappedCommand:
    """Under a shell that sets limits and kills the group, where there is no /proc and no prctl."""
    theirs, ours = os.pipe()
    script = SHELL.format(
        alive=theirs,
        cpu=int(limits.cpu) + 2,
        file_size=max(1, limits.file_size // 1024),
        open_files=limits.open_files,
        processes=limits.processes + 512,  # of the user as a whole, so looser than elsewhere
    )
    return WrappedCommand(
        ["/bin/bash", "-c", script, "limited", *argv], pass_fds=(theirs,), held_fds=(ours,)
    )


def _threads_of(user: int) -> int:
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.stat().st_uid == user:
                total += len(list((folder / "task").iterdir()))
    return total


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    processes: int = 0
    memory: int = 0
    cpu: float = 0.0


def children(process: int) -> list[int]:
    processes: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):
                processes += map(int, _read(f"{thread}/children").split())
    return processes


def process_tree(root: int) -> Iterator[int]:
    waiting, seen = [root], {root}
    while waiting:
        process = waiting.pop()
        yield process
        fresh = [child for child in children(process) if child not in seen]
        seen.update(fresh)
        waiting += fresh


def usage_of(root: int) -> ProcessUsage:
    """`cpu` includes ended processes once their parent has collected them."""
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
    use = usage_of(root)
    if use.memory > limits.memory and (not HAS_PROC or _proportional_memory(root) > limits.memory):
        return f"used more than {format_size(limits.memory)} of memory"
    if use.cpu - cpu_before > limits.cpu:
        return f"used more than {limits.cpu:g} s of processor time"
    if use.processes > limits.processes + 8:  # for kernels that do not enforce it themselves
        return f"had more than {limits.processes} processes"
    return ""


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def _anonymous_memory(process: int) -> int:
    """Shared pages count for every process that has them."""
    total = 0
    for line in _read(f"/proc/{process}/status").splitlines():
        if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")):
            total += int(line.split()[1]) * 1024
    return total


def _proportional_memory(root: int) -> int:
    """With shared pages divided up: exact but slow."""
    total = 0
    for process in process_tree(root):
        with suppress(OSError, ValueError):
            parts = {
                line.split(":")[0]: line
                for line in _read(f"/proc/{process}/smaps_rollup").splitlines()[1:]
            }
            for name in ("Pss_Anon", "Pss_Shmem", "SwapPss"):
                total += int(parts[name].split()[1]) * 1024 if name in parts else 0
    return total


def _usage_from_ps(root: int) -> ProcessUsage:
    listed = subprocess.run(
        ["/bin/ps", "-axo", "pid=,ppid=,rss=,time="],
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    mine, grew = {root}, True
    while grew:
        more = {int(row[0]) for row in rows if int(row[1]) in mine} - mine
        mine |= more
        grew = bool(more)
    use = [row for row in rows if int(row[0]) in mine]
    return ProcessUsage(
        len(use), sum(int(row[2]) * 1024 for row in use), sum(_seconds(row[3]) for row in use)
    )


def _seconds(clock: str) -> float:
    total = 0.0
    for part in clock.replace("-", ":").split(":"):
        total = total * 60 + float(part)
    return total


# For things that take milliseconds, but on a busy machine have to wait their turn; without /proc some never end.
GRACE_SECONDS = 30.0 if HAS_PROC else 5.0


# Puts a command with its environment inside the program that confines it; the last argument is the folder that holds
# workspace, home and tmp.
Wrap = Callable[[list[str], dict[str, str], Limits, Path], WrappedCommand]


async def supervise(
    process: asyncio.subprocess.Process,
    command: PreparedCommand,
    capture: Capture,
    exceeded: Callable[[], str],
    end: Callable[[asyncio.subprocess.Process, asyncio.Future[int]], Awaitable[None]],
) -> tuple[int, str]:
    """Feed a process, capture its output and hold it to the limits until it has ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    pipes = [
        asyncio.ensure_future(capture.read_from("output", process.stdout)),
        asyncio.ensure_future(capture.read_from("error", process.stderr)),
        asyncio.ensure_future(_feed(process.stdin, command.stdin)),
    ]
    ended = asyncio.ensure_future(process.wait())
    try:
        broken_limit = await hold_to_limits(
            ended, command.limits.wall, capture, exceeded, lambda: end(process, ended)
        )
        await asyncio.wait(pipes, timeout=GRACE_SECONDS)
    finally:
        if not ended.done():
            await end(process, ended)
        for task in pipes:
            task.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)
    return process.returncode or 0, broken_limit


async def _feed(stdin: asyncio.StreamWriter | None, data: bytes) -> None:
    assert stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(data)
        await stdin.drain()
    stdin.close()


class ProcessSandbox(FolderSandbox):
    def __init__(self, kind: str, setup: Setup, wrap: Wrap) -> None:
        super().__init__(setup)
        self.kind = kind
        self.shell = (shutil.which("bash") or "/bin/sh", "-c")
        self._wrap = wrap
        self._polls = 0
        self._root = Path(tempfile.mkdtemp(prefix="upskill-sandbox-")).resolve()
        self.workspace = str(self._root / "workspace")
        self.home = str(self._root / "home")

    async def start(self) -> Self:
        try:
            for name in ("workspace", "home", "tmp"):
                (self._root / name).mkdir(mode=0o755)
            self._root.chmod(0o755)
            for folder in (self.workspace, self.home):
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._folders[folder] = Folder(descriptor, folder)
            await self._write_setup_files()
            if self._setup.proxy_port is not None:
                self.proxy_socket = socket()
                self.proxy_socket.bind(("127.0.0.1", self._setup.proxy_port))
                self.proxy_socket.listen(128)
        except BaseException:
            self._close()
            raise
        return self

    async def _execute(self, command: PreparedCommand, capture: Capture) -> tuple[int, str]:
        if not self._folders:
            raise SandboxError("the sandbox was stopped, so nothing can run in it")
        variables = {"PATH": SYSTEM_PATH, "HOME": self.home, "TMPDIR": str(self._root / "tmp")}
        variables |= {**ENVIRONMENT, **command.environment}
        before = folder_usage(self._root, self._setup.limits)
        wrapped = self._wrap(command.argv, variables, command.limits, self._root)
        try:
            process = await asyncio.create_subprocess_exec(
                *wrapped.argv,
                **PIPES,
                env=variables,
                cwd=self.workspace,
                pass_fds=wrapped.pass_fds,
            )
            exceeded = partial(self._exceeded_limit, process.pid, command.limits, before)
            return await supervise(process, command, capture, exceeded, self._end)
        except OSError as error:
            raise SandboxError(f"{wrapped.argv[0]} could not be started: {error}") from error
        finally:
            for descriptor in (*wrapped.pass_fds, *wrapped.held_fds):
                os.close(descriptor)

    def _exceeded_limit(self, process: int, limits: Limits, before: DiskUsage) -> str:
        self._polls += 1
        written = (
            folder_usage(self._root, self._setup.limits) if self._polls % 5 == 0 else DiskUsage()
        )
        return written.exceeded(self._setup.limits, before) or exceeded_limit(process, limits, 0.0)

    async def _end(self, process: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await asyncio.wait([ended], timeout=GRACE_SECONDS if HAS_PROC else 0.2)
        if not ended.done():
            for each in [*process_tree(process.pid)][::-1]:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(each, signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.wait([ended], timeout=GRACE_SECONDS)

    async def kill_processes(self) -> None:
        """Nothing to do: whatever a command leaves behind is ended with it."""

    async def stop(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        """No process of the student's is left to interfere."""
        self._close_folders()
        try:
            shutil.rmtree(self._root)
        except FileNotFoundError:
            return
        except (
            OSError,
            RecursionError,
        ):  # rights that the student took away, or folders too deep for Python
            unlock = "find {0} -type d ! -perm -700 -execdir chmod 700 {{}} ';'; rm -rf {0}"
            subprocess.run(
                ["/bin/sh", "-c", unlock.format(shlex.quote(str(self._root)))], check=False
            )
