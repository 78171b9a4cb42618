"""A Sandbox has the commands and files of one trial. Nothing reaches out, and nothing outlives it.

Commands have no network, no home folder and no environment of the host, a read-only system and a private /tmp.

Kinds (`SandboxBackend`):

    bubblewrap    Linux, with namespaces (`supervisor.sh`: its process 1)
    container     docker or podman, if an engine answers; experimental
    seatbelt      macOS; experimental
    none          no protection at all: never chosen, only typed

What the kinds share: `files` (a workspace from outside), `processes` (what they use; a process per command, for kinds
without namespaces), `confine` (the program around a command of `none`), `seccomp` (the filter of system calls), `gpu`
(its devices, turns, and the CUDA compiler).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from socket import create_server, socket
from typing import Any, Literal, Self

from upskill.errors import SandboxError, UpskillError, UsageError
from upskill.registry import Registry

SANDBOXES = Registry(
    "sandbox",
    "upskill.sandboxes",
    {
        "bubblewrap": "upskill.sandboxes.bubblewrap:Bubblewrap",
        "container": "upskill.sandboxes.container:Container",
        "seatbelt": "upskill.sandboxes.seatbelt:Seatbelt",
        "none": "upskill.sandboxes.none:NoSandbox",
    },
)
# Probed in this order. Kinds from other packages come after these, and `none` is never chosen.
PREFERENCE = ("bubblewrap", "container", "seatbelt")

POLL_SECONDS = 0.05
PROBE_SECONDS = 120.0  # far more than it takes: a busy machine must not end up with a weaker kind

MiB = 2**20
MAX_ARGUMENT_BYTES = 128 * 1024 - 1  # one argument of a program, as Linux has it
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {
    "USER": "student",
    "LOGNAME": "student",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "GIT_CONFIG_NOSYSTEM": "1",  # git fails where it may not read the machine's settings
}
GPU_MEMORY, GPU_PROCESSES = 16 * 1024 * MiB, 1024  # at least, where there is a GPU
# The skill, the suite and the store of a run: no student sees them, wherever they lie.
PRIVATE: set[Path] = set()
log = logging.getLogger(__name__)
Stream = Literal["output", "error"]
OnOutput = Callable[[Stream, bytes], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What all processes of one command may use, in bytes and seconds.

    `file_size`, `disk` and `files` (and folders) are fixed at opening.
    """

    wall: float = 120.0
    cpu: float = 120.0
    memory: int = 1024 * MiB
    processes: int = 256
    file_size: int = 256 * MiB
    disk: int = 512 * MiB
    files: int = 100_000
    output: int = 1 * MiB
    open_files: int = 1024
    # Of each process. None is for runtimes that reserve far more than they use: then memory is only checked as a sum.
    address_space: int | None = 4096 * MiB


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. `killed_why` is the limit that it broke ("ran longer than 5 s"), or empty."""

    code: int
    output: str
    error: str
    timed_out: bool = False
    killed_why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in the workspace, by its path there. A link is a link, wherever it leads."""

    path: str
    kind: Literal["file", "folder", "link", "other"]
    size: int = 0
    executable: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a sandbox is opened with. Files are named by relative path; those in `runnable` are executable.

    `readonly_mounts` are host folders or files that can be read at the given absolute path. `proxy_port` is a port on
    the sandbox's own loopback: the one way out, served by whoever listens on `Sandbox.proxy_socket`.
    """

    files: Mapping[str, str | bytes] = field(default_factory=dict[str, str | bytes])
    home_files: Mapping[str, str | bytes] = field(default_factory=dict[str, str | bytes])
    runnable: frozenset[str] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    readonly_mounts: Mapping[str, Path] = field(default_factory=dict[str, Path])
    limits: Limits = field(default_factory=Limits)
    proxy_port: int | None = None
    gpu: bool = False


def private_paths() -> list[Path]:
    """With the project: the current folder, unless that holds the system's programs, too."""
    paths = {path.resolve() for path in (Path.cwd(), *PRIVATE) if path.exists()}
    return sorted(path for path in paths if not Path("/usr/bin").is_relative_to(path))


def unused_port() -> int:
    """For `proxy_port`: some sandboxes share our loopback."""
    with create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@dataclass(frozen=True, slots=True)
class DiskUsage:
    bytes: int = 0
    files: int = 0

    def exceeded(self, limits: Limits, before: DiskUsage | None = None) -> str:
        """What was there before a command does not count: it may make room again."""
        if self.files > max(limits.files, before.files if before else 0):
            return f"made more than {limits.files:,} files in all"
        if self.bytes > max(limits.disk, before.bytes if before else 0):
            return f"wrote more than {format_size(limits.disk)} in all"
        return ""


def format_size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:g} {unit}"
        count /= 1024
    return f"{count:g} GiB"


class Capture:
    """The output of a command: two streams under one limit."""

    def __init__(self, max_bytes: int, on_output: OnOutput | None = None) -> None:
        self.max_bytes = max_bytes
        self.remaining = max_bytes
        self.broken_limit = ""
        self._on_output = on_output
        self._captured: dict[Stream, bytearray] = {"output": bytearray(), "error": bytearray()}

    def add(self, stream: Stream, data: bytes) -> None:
        if len(data) > self.remaining:
            self.broken_limit = f"wrote more than {format_size(self.max_bytes)} of output"
            data = data[: self.remaining]
        self.remaining -= len(data)
        self._captured[stream] += data
        if data and self._on_output is not None:
            self._on_output(stream, data)

    async def read_from(self, stream: Stream, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            self.add(stream, data)

    def text(self, stream: Stream) -> str:
        return self._captured[stream].decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class PreparedCommand:
    """A command as a sandbox starts it."""

    argv: list[str]
    limits: Limits
    stdin: bytes
    environment: Mapping[str, str]


class Sandbox(ABC):
    """An open sandbox. Files are named by their path in the workspace, relative or absolute.

    An OSError is the student's doing, such as a path that leads out; with a SandboxError the sandbox broke down.
    """

    kind: str
    workspace: str
    home: str
    shell: Sequence[str] = ("/bin/bash", "-c")  # runs a line of shell

    def __init__(self, setup: Setup) -> None:
        self.proxy_socket: socket | None = None  # on the sandbox's loopback
        self._setup = setup
        self._lock = asyncio.Lock()
        for target in setup.readonly_mounts:
            if not target.startswith("/") or ".." in target.split("/"):
                raise SandboxError(f"{target!r} is not an absolute path to mount something at")

    async def run(
        self,
        command: str | Sequence[str],
        limits: Limits | None = None,
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run a command in the workspace: text is a line of shell, a sequence is a program and its arguments.

        One command runs at a time. A background process may live on until `kill_processes` or `stop`.
        """
        limits = limits or self._setup.limits
        if self._setup.gpu:  # its libraries reserve far more than they use, and start many threads
            memory, processes = max(limits.memory, GPU_MEMORY), max(limits.processes, GPU_PROCESSES)
            limits = replace(limits, address_space=None, memory=memory, processes=processes)
        arguments = [*self.shell, command] if isinstance(command, str) else command
        argv = [
            word.encode("utf-8", "replace").decode() for word in arguments
        ]  # nothing takes lone surrogates
        if problem := _problem_with(argv):
            return CommandResult(126, "", problem)
        variables = {**self._setup.environment, **(environment or {})}
        for name in variables:
            if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
                raise SandboxError(f"{name!r} is not a valid name for an environment variable")
        async with self._lock:
            capture = Capture(limits.output, on_output)
            began = time.perf_counter()
            code, broken_limit = await self._execute(
                PreparedCommand(argv, limits, stdin, variables), capture
            )
            seconds = time.perf_counter() - began
        if broken_limit := broken_limit or capture.broken_limit:
            code = 137
        code = code if code >= 0 else 128 - code  # ended by a signal
        why = f" ({broken_limit})" if broken_limit else ""
        log.debug(
            "%s: %.200s: exit code %d after %.2f s%s",
            self.kind,
            shlex.join(argv),
            code,
            seconds,
            why,
        )
        return CommandResult(
            code=code,
            output=capture.text("output"),
            error=capture.text("error"),
            timed_out=broken_limit.startswith("ran longer"),
            killed_why=broken_limit,
            seconds=seconds,
        )

    @abstractmethod
    async def _execute(self, command: PreparedCommand, capture: Capture) -> tuple[int, str]:
        """Run it to its end: the exit code, and which limit it broke, if any."""

    @abstractmethod
    async def read(self, path: str, max_bytes: int = 16 * MiB) -> bytes: ...

    @abstractmethod
    async def write(self, path: str, content: str | bytes, *, executable: bool = False) -> None:
        """Create or replace a file, with the folders it needs."""

    @abstractmethod
    async def list(self, path: str = "", max_entries: int = 10_000) -> Sequence[Entry]:
        """Everything in a folder and its subfolders, sorted by path."""

    @abstractmethod
    async def kill_processes(self) -> None:
        """End what commands left behind, so that none can tamper with what follows."""

    @abstractmethod
    async def stop(self) -> None: ...

    async def __aenter__(self) -> Self:
        log.debug("%s: opened", self.kind)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def _problem_with(argv: Sequence[str]) -> str:
    if not argv:
        return "there is no command"
    if any("\0" in word for word in argv):
        return "a command cannot contain a NUL byte"
    if any(len(word.encode()) > MAX_ARGUMENT_BYTES for word in argv):
        return f"a command cannot be longer than {MAX_ARGUMENT_BYTES:,} bytes; write it to a file and run that"
    return ""


async def hold_to_limits(
    ended: asyncio.Future[int],
    wall: float,
    capture: Capture,
    exceeded: Callable[[], str],
    end: Callable[[], Awaitable[None]],
) -> str:
    """Wait for the end of a command; where it breaks a limit, `end` it and return which."""
    loop, broken_limit = asyncio.get_running_loop(), ""
    deadline = loop.time() + wall
    while not ended.done():
        began = time.perf_counter()
        await asyncio.wait([ended], timeout=min(POLL_SECONDS, max(0.0, deadline - loop.time())))
        if ended.done():
            break
        # What keeps the loop from looking takes nothing from the command.
        deadline += max(0.0, time.perf_counter() - began - 2 * POLL_SECONDS)
        if loop.time() >= deadline:
            broken_limit = broken_limit or f"ran longer than {wall:g} s"
        broken_limit = broken_limit or capture.broken_limit or exceeded()
        if broken_limit:
            await end()
    return broken_limit


class SandboxBackend(ABC):
    """A kind of sandbox, by its name in `SANDBOXES`; constructed without arguments."""

    name: str
    isolated: bool = True  # False for a kind that protects nothing
    reduced: str = ""  # what a kind does not protect
    experimental: bool = False  # it has only been run against a stand-in
    shows_gpu: bool = False
    fix: str = ""  # how to make it work

    @abstractmethod
    async def version(self) -> str:
        """The program that would be used, with its version. A SandboxError says why there is none."""

    @abstractmethod
    async def open(self, setup: Setup) -> Sandbox: ...


@dataclass(frozen=True, slots=True)
class SandboxChoice:
    """The kind of sandbox for a run, and what probing it showed."""

    name: str
    version: str
    seconds: float
    passed: tuple[str, ...]  # the properties that hold
    reduced: str = ""
    isolated: bool = True
    # The kinds before it, and why they were not chosen.
    refused: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def backend(self) -> SandboxBackend:
        return SANDBOXES.load(self.name)()

    @property
    def label(self) -> str:
        """The program behind it, with what a person should know about it."""
        marks = {"experimental": self.backend.experimental, "reduced": bool(self.reduced)}
        return " ".join(
            [
                self.version or self.name,
                *(f"({word})" for word, applies in marks.items() if applies),
            ]
        )

    @property
    def warning(self) -> str:
        if not self.isolated:
            return (
                "--sandbox none: commands can read, change and send anything you can. "
                "Use it only where that does not matter."
            )
        return (
            f"the {self.name!r} sandbox offers less protection: {self.reduced}"
            if self.reduced
            else ""
        )

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "passed": list(self.passed), "refused": dict(self.refused)}


# What every kind has to provide, each as a shell test.
PROPERTIES = {
    "system is read-only": "! touch /usr/.upskill /etc/.upskill 2>/dev/null",
    "home is hidden": (
        "! { while read -r file; do read -rn1 _ <$file && break; done <<<$UPSKILL_HOST_FILES; } 2>/dev/null"
    ),
    "workspace can be written": "echo x > .upskill && rm .upskill",
    "no network": '! (exec 9<>"/dev/tcp/127.0.0.1/$UPSKILL_HOST_PORT") 2>/dev/null',
    # Another process may have the same id in here, but not the same id and start time.
    "processes are hidden": (
        '! { kill -0 "$UPSKILL_HOST_PID" && read -r seen <"/proc/$UPSKILL_HOST_PID/stat" '
        '&& [[ $seen == *" $UPSKILL_HOST_BORN "* ]]; } 2>/dev/null'
    ),
    "environment is clean": '[ -z "$(compgen -e | grep -Fxf .upskill-names)" ]',
}
# Variables that a sandbox sets for itself, so their names may also be those of variables of the host.
OWN_VARIABLES = {
    *ENVIRONMENT,
    "PATH",
    "HOME",
    "SHELL",
    "TMPDIR",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "HOSTNAME",
}


async def probe(kind: SandboxBackend) -> tuple[str, ...]:
    """Test from inside; returns the properties that hold."""
    home = Path.home()
    foreign = "\n".join(sorted(set(os.environ) - OWN_VARIABLES)) or "UPSKILL"
    script = "".join(f"if {test}; then echo '{name}'; fi\n" for name, test in PROPERTIES.items())
    limits = Limits(wall=PROBE_SECONDS, memory=256 * MiB, processes=32, file_size=MiB, disk=8 * MiB)
    with (
        tempfile.TemporaryDirectory(
            prefix=".upskill-", dir=home if os.access(home, os.W_OK) else None
        ) as planted,
        create_server(("127.0.0.1", 0)) as listener,
    ):
        secret = Path(planted) / "secret"
        secret.write_text("secret\n", encoding="utf-8")
        environment = {
            "UPSKILL_HOST_FILES": "\n".join(map(str, [secret, *_private_files()])),
            "UPSKILL_HOST_PORT": str(listener.getsockname()[1]),
            "UPSKILL_HOST_PID": str(os.getpid()),
            "UPSKILL_HOST_BORN": _start_time(),
        }
        setup = Setup(limits=limits, files={".upskill-names": foreign})
        async with await kind.open(setup) as sandbox:
            done = await sandbox.run(["bash", "-c", script], environment=environment)
    if done.killed_why:
        raise SandboxError(f"the self-test was killed: it {done.killed_why}")
    held = tuple(line for line in done.output.splitlines() if line in PROPERTIES)
    if done.code and not held:
        raise SandboxError(
            f"a test command exited with code {done.code}: {done.error.strip() or done.killed_why}"
        )
    return held


def _private_files() -> Iterator[Path]:
    """What is private, or a file in it where it is a folder."""
    for path in private_paths():
        if path.is_file():
            yield path
        else:
            yield from islice((each for each in path.iterdir() if each.is_file()), 1)


def _start_time() -> str:
    """When this process was started; without /proc a space, which matches anything."""
    with suppress(OSError):
        return (
            Path("/proc/self/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[19]
        )
    return " "


async def choose_sandbox(name: str | None = None) -> SandboxChoice:
    if name is not None:
        return await _verify(name, SANDBOXES.load(name)())
    refused: dict[str, str] = {}
    fixes: list[str] = []
    for each in (
        *PREFERENCE,
        *(other for other in SANDBOXES.names() if other not in SANDBOXES.table),
    ):
        try:
            kind: SandboxBackend = SANDBOXES.load(each)()
            chosen = await _verify(each, kind)
        except UpskillError as error:
            refused[each] = error.message
            fixes.append(f"  {error.message}\n    {error.hint}".rstrip())
            continue
        return replace(chosen, refused=refused)
    raise UsageError(
        "no sandbox works here, and a student with tools needs one",
        "Why each kind does not work, and how to fix it:\n"
        + "\n".join(fixes)
        + "\n  To run without any protection, pass --sandbox none.",
    )


async def _verify(name: str, kind: SandboxBackend) -> SandboxChoice:
    began = time.perf_counter()
    try:
        version = await kind.version()
        if not kind.isolated:
            return SandboxChoice(name, version, 0.0, (), isolated=False)
        held = await probe(kind)
    except (UpskillError, OSError, ValueError) as error:
        raise UsageError(f"{name}: {str(error) or type(error).__name__}", kind.fix) from error
    missing = [each for each in PROPERTIES if each not in held and each not in kind.reduced]
    if missing:
        raise UsageError(
            f"{name}: starts, but fails this self-test: {', '.join(missing)}", kind.fix
        )
    return SandboxChoice(
        name, version, round(time.perf_counter() - began, 4), held, reduced=kind.reduced
    )


# First and last of the characters that are shown as escapes, in a terminal and on a page: they move the cursor, turn
# the direction of what follows, or cannot be seen.
CONTROL_RANGES = (
    *(
        (0x00, 0x08),
        (0x0B, 0x1F),
        (0x7F, 0x9F),
        (0x061C, 0x061C),
        (0x200E, 0x200F),
        (0x2028, 0x202E),
    ),
    *((0x2066, 0x2069), (0xD800, 0xDFFF), (0xFFFE, 0xFFFF), (0xE0000, 0xE007F)),
)
_CONTROLS = re.compile(
    f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in CONTROL_RANGES)}]"
)


def printable(text: str) -> str:
    """Text that cannot move the cursor or control the terminal."""
    return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text.replace("\r\n", "\n"))
