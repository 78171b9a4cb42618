"""Open sandboxes: what every kind does the same way around a command and around the files of its workspace."""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from socket import socket
from types import TracebackType
from typing import Self

from upskill.errors import SandboxError
from upskill.sandboxes import CommandResult, Entry, Limits, MiB, OnOutput, Setup, check_variable_name
from upskill.sandboxes.capture import Capture
from upskill.sandboxes.files import Folder

MAX_ARGUMENT_BYTES = 128 * 1024 - 1  # one argument of a program, as Linux has it
GPU_MEMORY, GPU_PROCESSES = 16 * 1024 * MiB, 1024  # at least, where there is a GPU
LOGGED_CHARACTERS = 200  # of a command

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedCommand:
    """A command as a sandbox starts it: `environment` has the variables of the sandbox and of this command."""

    argv: list[str]
    limits: Limits
    stdin: bytes
    environment: Mapping[str, str]


class OpenSandbox(ABC):
    """A sandbox that runs one command at a time. A kind knows how to start it and how to stop the sandbox."""

    kind: str
    shell: Sequence[str] = ("/bin/bash", "-c")  # what a line of shell is given to

    def __init__(self, setup: Setup) -> None:
        self.proxy_socket: socket | None = None
        self._setup = setup.validated()
        self._lock = asyncio.Lock()

    @abstractmethod
    async def _execute(self, command: PreparedCommand, capture: Capture) -> tuple[int, str]:
        """Run it to its end: the exit code, and which limit it broke, if any."""

    @abstractmethod
    async def stop(self) -> None: ...

    async def run(
        self,
        command: str | Sequence[str],
        limits: Limits | None = None,
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        limits = limits or self._setup.limits
        if self._setup.gpu:  # its libraries reserve far more than they use, and start many threads
            memory, processes = max(limits.memory, GPU_MEMORY), max(limits.processes, GPU_PROCESSES)
            limits = replace(limits, address_space=None, memory=memory, processes=processes)
        argv = _to_argv(command, self.shell)
        if problem := _problem_with(argv):
            return CommandResult(126, "", problem)
        variables = {**self._setup.environment, **(environment or {})}
        for name in variables:
            check_variable_name(name)
        async with self._lock:
            capture = Capture(limits.output, on_output)
            began = time.perf_counter()
            code, broken_limit = await self._execute(PreparedCommand(argv, limits, stdin, variables), capture)
            seconds = time.perf_counter() - began
        why = f" ({broken_limit})" if broken_limit else ""
        log.debug("%s: %s: exit code %d after %.2f s%s", self.kind, _Shortened(argv), code, seconds, why)
        timed_out = broken_limit.startswith("ran longer")
        return CommandResult(code, capture.text("output"), capture.text("error"), timed_out, broken_limit, seconds)

    async def __aenter__(self) -> Self:
        log.debug("%s: opened", self.kind)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class FolderSandbox(OpenSandbox):
    """A sandbox whose folders we hold open from outside, until it is stopped."""

    workspace: str
    home: str

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._folders: dict[str, Folder] = {}  # by their path inside

    async def read(self, path: str, max_bytes: int = 16 * MiB) -> bytes:
        return self._folder(path).read(path, max_bytes)

    async def write(self, path: str, content: str | bytes, *, executable: bool = False) -> None:
        self._folder(path).write(path, content, executable=executable)

    async def list(self, path: str = "", max_entries: int = 10_000) -> list[Entry]:
        return self._folder(path).list(path, max_entries)

    def _folder(self, path: str) -> Folder:
        if self.workspace not in self._folders:
            raise SandboxError("the sandbox was stopped, and its files with it")
        for place, folder in self._folders.items():
            if path.startswith(place + "/"):
                return folder
        return self._folders[self.workspace]

    def _write_setup_files(self) -> None:
        for place, files in ((self.workspace, self._setup.files), (self.home, self._setup.home_files)):
            for path, content in files.items():
                self._folders[place].write(path, content, executable=path in self._setup.runnable)

    def _close_folders(self) -> None:
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()
        if self.proxy_socket is not None:
            self.proxy_socket.close()


class _Shortened:
    """The beginning of a command, put into words only if the line is really logged."""

    def __init__(self, argv: list[str]) -> None:
        self._argv = argv

    def __str__(self) -> str:
        line = shlex.join(self._argv)
        return line if len(line) <= LOGGED_CHARACTERS else line[: LOGGED_CHARACTERS - 1] + "…"


def _to_argv(command: str | Sequence[str], shell: Sequence[str]) -> list[str]:
    """Text is a line for this shell. Lone surrogates, which no program can be given, become question marks."""
    words = [*shell, command] if isinstance(command, str) else list(command)
    return [word.encode("utf-8", "replace").decode() for word in words]


def _problem_with(argv: list[str]) -> str:
    """Why no program can be started with these arguments; empty if one can."""
    if not argv:
        return "there is no command"
    if any("\0" in word for word in argv):
        return "a command cannot hold a NUL byte"
    if any(len(word.encode()) > MAX_ARGUMENT_BYTES for word in argv):
        return f"a command cannot be longer than {MAX_ARGUMENT_BYTES:,} bytes; write it to a file and run that"
    return ""
