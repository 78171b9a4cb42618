"""Processes beside the GPU, for one trial at a time."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Literal

from upskill.errors import MissingTool
from upskill.sandboxes import printable
from upskill.sandboxes.bubblewrap import HOME, start_program
from upskill.sandboxes.gpu import ANY_GPU, kernels_lack

SERVER = (sys.executable, "-m", "upskill.checks.kernel.fork_server")
WATCHED = (sys.executable, "-m", "upskill.checks.kernel.watched")
# Removes the tool's folder and kills its group when the pipe `lifeline` has lost its other end, whatever hangs on the
# GPU. It keeps nothing else open, so that the end of the tool is the end of what the tool was given.
KEEPER = (
    *(sys.executable, "-I", "-S", "-c"),
    """import os, signal, sys
lifeline, last = int(sys.argv[1]), int(sys.argv[2])
if os.fork() == 0:
    os.dup2(lifeline, 0)
    os.closerange(1, last + 1)
    os.read(0, 1)
    import shutil
    shutil.rmtree(os.environ["TMPDIR"], True)
    os.killpg(0, signal.SIGKILL)
os.execvp(sys.argv[3], sys.argv[3:])
""",
)
DEVICES = ANY_GPU
START_SECONDS = 600.0  # importing PyTorch, and compiling what the kernel is timed against
MAX_PRINTED = 8000  # bytes of what a process printed that are looked at
# What PyTorch and its compiler look at. Keys and tokens are none of their business.
KEPT = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "XDG_CACHE_HOME",
)
KEPT_PREFIXES = ("CUDA_", "NVIDIA_", "TORCH", "TRITON_", "PYTORCH_")
# In a sandbox these are its own.
INSIDE = {
    "HOME": HOME,
    "USER": "student",
    "LOGNAME": "student",
    "XDG_CACHE_HOME": f"{HOME}/.cache",
    "TORCHINDUCTOR_CACHE_DIR": f"{HOME}/torchinductor",
    "TRITON_CACHE_DIR": f"{HOME}/triton",
}
SHOWN: tuple[str, ...] = ()  # further folders that a sandboxed server is shown


Role = Literal["runner", "referee", "watched"]


class Silent(Exception):
    """It ended, or said nothing within its time; the message says how."""


class ForkServer:
    """The process that forks runners and referees (`fork_server`), started when the first one is wanted."""

    _running: ForkServer | None = None

    def __init__(self, kind: str) -> None:
        self.made_for = (SERVER, SHOWN, kind)
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv, passed = [*SERVER, str(theirs.fileno())], (theirs.fileno(),)
            if kind == "bubblewrap":
                self._process = start_program(
                    argv,
                    printed=self._printed,
                    descriptors=passed,
                    environment=environment(kind),
                    mounts=python_folders(),
                    gpu=True,
                )
            else:
                self._process = _start(
                    argv, subprocess.DEVNULL, self._printed, passed, environment(kind)
                )

    @classmethod
    def running(cls, kind: str) -> ForkServer:
        """The server for trials whose sandbox is of this kind; MissingTool for one that cannot hold it."""
        if kind not in ("bubblewrap", "none"):
            raise MissingTool(
                f"the {kind!r} sandbox cannot isolate a suite's own code on a GPU; install bubblewrap, or,"
                " if you trust the suite, use --sandbox none"
            )
        server = cls._running
        if (
            server is None
            or server.made_for != (SERVER, SHOWN, kind)
            or server._process.poll() is not None
        ):
            if server is not None:
                server.stop()
            cls._running = server = cls(kind)
            atexit.register(server.stop)
        return server

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, role: str, variables: dict[str, str], descriptors: Sequence[int]) -> None:
        request = json.dumps({"role": role, "environment": variables}).encode()
        try:
            socket.send_fds(self._control, [request], list(descriptors))
        except OSError as error:
            raise MissingTool(f"the process that starts the runners has exited: {error}") from error

    def printed(self) -> str:
        return _read_printed(self._printed)[-600:]

    def stop(self) -> None:
        self._control.close()  # which ends it
        self._process.wait()
        self._printed.close()


def _start(
    argv: list[str],
    stdin: int,
    printed: IO[bytes],
    passed: Sequence[int],
    variables: dict[str, str],
) -> subprocess.Popen[bytes]:
    """A process in a session of its own, which gets these descriptors and variables and no others."""
    return subprocess.Popen(
        argv,
        stdin=stdin,
        stdout=printed,
        stderr=printed,
        pass_fds=passed,
        env=variables,
        cwd="/",
        start_new_session=True,
    )


def _read_printed(file: IO[bytes]) -> str:
    file.seek(0)
    return printable(file.read(MAX_PRINTED).decode("utf-8", "replace")).strip()


def environment(kind: str) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or name.startswith(KEPT_PREFIXES)
    }
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    outside = {"TORCHINDUCTOR_CACHE_DIR": str(cache / "upskill" / "torchinductor")} | inherited
    folders = INSIDE if kind == "bubblewrap" else outside
    # No pool of processes to compile one small function, and no GPU taken by a look at how many there are.
    return (
        inherited
        | folders
        | {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    )


def python_folders() -> list[Path]:
    """What Python and PyTorch are read from, as far as a sandbox does not show it anyway."""
    named = [sys.prefix, sys.base_prefix, *os.environ.get("PYTHONPATH", "").split(":"), *SHOWN]
    named += [
        str(Path(__file__).parents[3]),
        *(path for path in sys.path if path.endswith("-packages")),
    ]
    folders = sorted({Path(name).absolute() for name in named if name})
    existing = [
        path
        for path in folders
        if path.is_dir() and path not in (Path("/"), Path.home(), Path("/usr"))
    ]
    return [
        path
        for path in existing
        if not path.is_relative_to("/usr")
        and not any(path != other and path.is_relative_to(other) for other in existing)
    ]


class GpuProcess:
    """Speaks JSON lines. `store` is a file it shares, `kind` the trial's sandbox. A watched one holds no suite."""

    def __init__(self, role: Role, store: int, kind: str, tool: Sequence[str] = ()) -> None:
        self._closing = ExitStack()
        self._printed = self._closing.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the process
        self._buffer, self._watched, self._server = b"", None, None
        stdin, self._stdin = os.pipe()
        self._reader, channel = os.pipe()
        self._status, status = os.pipe()
        lifeline, self._lifeline = os.pipe()
        for mine in (self._stdin, self._reader, self._status):
            self._closing.callback(os.close, mine)
        os.set_blocking(self._reader, False)
        try:
            if role == "watched":
                passed = (channel, store, lifeline)
                argv = [
                    *KEEPER,
                    str(lifeline),
                    str(max(passed)),
                    *tool,
                    *WATCHED,
                    str(channel),
                    str(store),
                ]
                folder = tempfile.mkdtemp(prefix="upskill-gpu-")  # for what the tool leaves
                self._closing.callback(shutil.rmtree, folder, ignore_errors=True)
                variables = environment("none") | {"TMPDIR": folder}
                self._watched = _start(argv, stdin, self._printed, passed, variables)
            else:
                descriptors = (stdin, self._printed.fileno(), channel, store, status, lifeline)
                self._server = ForkServer.running(kind)
                self._server.fork(role, environment(kind), descriptors)
        except BaseException:
            os.close(self._lifeline)
            self._closing.close()
            raise
        finally:
            for theirs in (stdin, channel, status, lifeline):
                os.close(theirs)

    def say(self, message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        with suppress(BrokenPipeError):  # it has ended, which `receive` tells
            while data:
                data = data[os.write(self._stdin, data) :]

    async def receive(self, seconds: float) -> dict[str, Any]:
        """The next message; MissingTool if the process says that it cannot work here."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while b"\n" not in self._buffer:
            ready = asyncio.Event()
            loop.add_reader(self._reader, ready.set)
            try:
                async with asyncio.timeout_at(until):
                    await ready.wait()
            except TimeoutError:
                raise Silent(f"it ran longer than {seconds:g} s and was killed") from None
            finally:
                loop.remove_reader(self._reader)
            data = os.read(self._reader, 2**20)
            if not data:
                raise Silent(self._how_it_ended())
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if "missing" in message:
            raise MissingTool(message["missing"])
        if "broken" in message:
            raise MissingTool(f"the kernel's task file fails here: {message['broken']}")
        return message

    async def end(self, seconds: float) -> None:
        """Wait until it ends by itself, so that a watching tool can report."""
        with suppress(Silent):
            await self.receive(seconds)

    def _how_it_ended(self) -> str:
        code = self._wait()
        if code < 0:
            return f"its process was killed by {signal.Signals(-code).name}"
        printed = self.printed()[-600:] or (self._server.printed() if self._server else "")
        return f"its process exited with {code}" + (f": {printed}" if printed else "")

    def _wait(self) -> int:
        if self._watched is not None:
            return self._watched.wait()
        status = b""
        while data := os.read(self._status, 64):
            status += data
        return int(status) if status.strip() else 0

    def printed(self) -> str:
        return _read_printed(self._printed)

    def close(self) -> None:
        """Kill it and all that it started, and wait until it is gone."""
        if self._lifeline < 0:
            return
        os.close(self._lifeline)  # which its keeper sees
        self._lifeline = -1
        self._wait()
        self._closing.close()


def expect_gpu() -> None:
    """MissingTool on a machine where no kernel can be run."""
    if lack := kernels_lack(DEVICES, torch=SERVER[1] == "-m"):
        what, fix = lack
        raise MissingTool(f"{what}: {fix}; `tiers: [compiles, resources]` works without it")
