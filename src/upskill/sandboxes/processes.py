"""A sandbox made of a folder on the host and one process per command: what the kinds without namespaces share.

Each kind wraps the command in a program that confines it. No process lives on between two commands.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from socket import socket
from typing import Protocol

from upskill.errors import SandboxError
from upskill.sandboxes import Limits, Setup, process_usage
from upskill.sandboxes.capture import Capture
from upskill.sandboxes.files import Folder, folder_size
from upskill.sandboxes.open_sandbox import FolderSandbox, PreparedCommand
from upskill.sandboxes.wrappers import WrappedCommand

# For things that take milliseconds, but on a busy machine have to wait their turn; without /proc some never end.
GRACE_SECONDS = 30.0 if process_usage.HAS_PROC else 5.0


class Wrap(Protocol):
    """Puts a command inside the program that confines it. `root` holds the folders workspace, home and tmp."""

    def __call__(self, argv: list[str], environment: dict[str, str], limits: Limits, root: Path) -> WrappedCommand: ...


class ProcessSandbox(FolderSandbox):
    def __init__(self, kind: str, setup: Setup, wrap: Wrap, *, user: int | None = None) -> None:
        super().__init__(setup)
        self.kind = kind
        self.shell = (shutil.which("bash") or "/bin/sh", "-c")
        self._wrap = wrap
        self._root = Path(tempfile.mkdtemp(prefix="upskill-sandbox-")).resolve()
        self.workspace = str(self._root / "workspace")
        self.home = str(self._root / "home")
        try:
            for name in ("workspace", "home", "tmp"):
                (self._root / name).mkdir(mode=0o755)
                if user is not None:
                    os.chown(self._root / name, user, user)
            self._root.chmod(0o755)
            for place in (self.workspace, self.home):
                descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._folders[place] = Folder(descriptor, place, user)
            self._write_setup_files()
            if setup.proxy_port is not None:
                self.proxy_socket = socket()
                self.proxy_socket.bind(("127.0.0.1", setup.proxy_port))
                self.proxy_socket.listen(128)
        except BaseException:
            self._close()
            raise

    async def _execute(self, command: PreparedCommand, capture: Capture) -> tuple[int, str]:
        if not self._folders:
            raise SandboxError("the sandbox was stopped, so nothing can be run in it")
        variables = {**self._variables(), **command.environment}
        wrapped = self._wrap(command.argv, variables, command.limits, self._root)
        try:
            process = await asyncio.create_subprocess_exec(
                *wrapped.argv,
                stdin=subprocess.PIPE if command.stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=variables,
                cwd=self.workspace,
                start_new_session=True,
                pass_fds=wrapped.pass_fds,
            )
            return await self._supervise(process, command, capture)
        except OSError as error:
            raise SandboxError(f"{wrapped.argv[0]} could not be started: {error}") from error
        finally:
            for descriptor in (*wrapped.pass_fds, *wrapped.held_fds):
                os.close(descriptor)

    def _variables(self) -> dict[str, str]:
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": self.home,
            "USER": "student",
            "LOGNAME": "student",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": str(self._root / "tmp"),
        }

    async def _supervise(
        self, process: asyncio.subprocess.Process, command: PreparedCommand, capture: Capture
    ) -> tuple[int, str]:
        """Feed it, capture its output and hold it to the limits until it has ended."""
        assert process.stdout is not None
        assert process.stderr is not None
        limits, began = command.limits, time.perf_counter()
        pipes = [
            asyncio.ensure_future(capture.read_from("output", process.stdout)),
            asyncio.ensure_future(capture.read_from("error", process.stderr)),
            asyncio.ensure_future(_feed(process, command.stdin)),
        ]
        ended = asyncio.ensure_future(process.wait())
        broken_limit, polls = "", 0
        try:
            while not ended.done():
                left = limits.wall - (time.perf_counter() - began)
                await asyncio.wait([ended], timeout=min(process_usage.POLL_SECONDS, max(0.0, left)))
                if ended.done():
                    break
                polls += 1
                if not broken_limit:
                    broken_limit = self._broken_limit(process.pid, limits, time.perf_counter() - began, capture, polls)
                if broken_limit:
                    await self._end(process, ended)
            await asyncio.wait(pipes, timeout=GRACE_SECONDS)
        finally:
            if not ended.done():
                await self._end(process, ended)
            for task in pipes:
                task.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)
        code = process.returncode or 0
        return 137 if broken_limit else code if code >= 0 else 128 - code, broken_limit

    def _broken_limit(self, process: int, limits: Limits, seconds: float, capture: Capture, polls: int) -> str:
        if seconds >= limits.wall:
            return f"ran longer than {limits.wall:g} s"
        if capture.full:
            return f"wrote more than {process_usage.format_size(capture.max_bytes)} of output"
        if polls % 5 == 0 and folder_size(self._root) > self._setup.limits.disk:
            return f"wrote more than {process_usage.format_size(self._setup.limits.disk)} in all"
        return process_usage.exceeded_limit(process, limits, 0.0)

    async def _end(self, process: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
        """Ask the program around the command to end everything, and then do it ourselves."""
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await asyncio.wait([ended], timeout=GRACE_SECONDS if process_usage.HAS_PROC else 0.2)
        if not ended.done():
            for each in [*process_usage.process_tree(process.pid)][::-1]:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(each, signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.wait([ended], timeout=GRACE_SECONDS)

    async def kill_processes(self) -> None:
        """Nothing to do: whatever a command leaves behind is ended with it."""

    async def stop(self) -> None:
        self._close()

    def _close(self) -> None:
        self._close_folders()
        _remove(self._root)


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    if process.stdin is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


def _remove(root: Path) -> None:
    """Remove a folder with everything in it, however deep, and whatever rights the student took away.

    No process of the student's is left to interfere.
    """
    with suppress(FileNotFoundError):
        try:
            shutil.rmtree(root)
        except (OSError, RecursionError):
            _flatten(root)
            root.rmdir()


def _flatten(root: Path) -> None:
    """Empty a folder. Folders within are moved up before they are emptied, so that no path gets too long."""
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        waiting, made = [""], 0
        while waiting:
            name = waiting.pop()
            folder = os.open(name or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            try:
                for entry in os.listdir(folder):  # noqa: PTH208 - of a descriptor
                    if not stat.S_ISDIR(os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode):
                        os.unlink(entry, dir_fd=folder)
                        continue
                    made += 1
                    os.chmod(entry, 0o700, dir_fd=folder)
                    os.rename(entry, f".upskill-{made}", src_dir_fd=folder, dst_dir_fd=top)
                    waiting.append(f".upskill-{made}")
            finally:
                os.close(folder)
            if name:
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
