"""Processes beside the GPU, one trial at a time: started, spoken to, and ended with everything they started."""

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from upskill.errors import MissingTool
from upskill.sandboxes import printable

SERVER = (sys.executable, "-m", "upskill.checks.kernel.fork_server")
WATCHED = (sys.executable, "-m", "upskill.checks.kernel.watched")
DEVICES = ("/dev/nvidia[0-9]*", "/dev/dxg")
START_SECONDS = 600.0  # importing PyTorch, and compiling what the kernel is timed against
MOST_PRINTED = 8000  # bytes of what a process printed that are looked at
# What PyTorch and its compiler look at. Keys and tokens are none of their business.
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "XDG_CACHE_HOME")
KEPT_PREFIXES = ("CUDA_", "NVIDIA_", "TORCH", "TRITON_", "PYTORCH_")


class Silent(Exception):
    """It ended, or said nothing within its time; the message says how."""


class ForkServer:
    """The process that forks runners and referees (`fork_server`), started when the first one is wanted."""

    _running: ForkServer | None = None

    def __init__(self) -> None:
        self.argv = SERVER
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*SERVER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=environment(),
                cwd="/",
                start_new_session=True,
            )

    @classmethod
    def running(cls) -> ForkServer:
        found = cls._running
        if found is None or found.argv != SERVER or found._process.poll() is not None:
            if found is not None:
                found.stop()
            cls._running = found = cls()
            atexit.register(found.stop)
        return found

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, role: str, variables: dict[str, str], descriptors: Sequence[int]) -> None:
        request = json.dumps({"role": role, "environment": variables}).encode()
        socket.send_fds(self._control, [request], list(descriptors))

    def stop(self) -> None:
        self._control.close()  # which ends it
        self._process.wait()


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}


class GpuProcess:
    """A process that takes lines of JSON and answers with lines of JSON; `store` is a file that it shares."""

    def __init__(self, role: Literal["runner", "referee", "watched"], store: int, tool: Sequence[str] = ()) -> None:
        self._closing = ExitStack()
        folder = tempfile.mkdtemp(prefix="upskill-gpu-")  # for what it and its tools leave
        self._closing.callback(shutil.rmtree, folder, ignore_errors=True)
        self._printed = self._closing.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the process
        self._buffer, self._started, self._ended = b"", b"", False
        stdin, self._stdin = os.pipe()
        self._reader, channel = os.pipe()
        self._status, status = os.pipe()
        for mine in (self._stdin, self._reader, self._status):
            self._closing.callback(os.close, mine)
        os.set_blocking(self._reader, False)
        variables = environment() | {"TMPDIR": folder}
        variables.setdefault("TORCHINDUCTOR_CACHE_DIR", str(_cache() / "torchinductor"))
        variables.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of processes for one small function
        try:
            if role == "watched":
                self._run_watched(
                    [*tool, *WATCHED, str(channel), str(store)], variables, stdin, (channel, store), status
                )
            else:
                ForkServer.running().fork(role, variables, (stdin, self._printed.fileno(), channel, store, status))
        finally:
            for theirs in (stdin, channel, status):
                os.close(theirs)

    def _run_watched(
        self, argv: list[str], variables: dict[str, str], stdin: int, passed: Sequence[int], status: int
    ) -> None:
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=self._printed,
            stderr=self._printed,
            pass_fds=passed,
            env=variables,
            cwd="/",
            start_new_session=True,
        )
        os.write(status, b"%d\n" % process.pid)
        self._closing.callback(process.wait)

    def say(self, message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        with suppress(BrokenPipeError):  # it has ended, which `hear` tells
            while data:
                data = data[os.write(self._stdin, data) :]

    async def hear(self, seconds: float) -> dict[str, Any]:
        """What it says next; MissingTool where it says that it cannot work here."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while b"\n" not in self._buffer:
            ready = asyncio.Event()
            loop.add_reader(self._reader, ready.set)
            try:
                await asyncio.wait_for(ready.wait(), until - loop.time())
            except TimeoutError:
                raise Silent(f"it did not end within {seconds:g} s and was killed") from None
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
            raise MissingTool(f"the task of the kernel breaks here: {message['broken']}")
        return message

    async def end(self, seconds: float) -> None:
        """Wait for it to end by itself, so that whoever watches it can have its say."""
        with suppress(Silent):
            await self.hear(seconds)

    def _how_it_ended(self) -> str:
        words = self._read_status()
        code = int(words[1]) if len(words) > 1 else 0
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        said = self.printed()[-600:]
        return f"its process ended with {code}" + (f": {said}" if said else "")

    def _read_status(self, *, all_of_it: bool = True) -> list[bytes]:
        """The process, and the code that it ended with once it has."""
        while (all_of_it and not self._ended) or b"\n" not in self._started:
            data = os.read(self._status, 64)
            self._ended = not data
            self._started += data
            if not data:
                break
        return self._started.split()

    @property
    def pid(self) -> int:
        return int(self._read_status(all_of_it=False)[0])

    def printed(self) -> str:
        """What it, or a kernel in it, or whoever watches it printed."""
        self._printed.seek(0)
        return printable(self._printed.read(MOST_PRINTED).decode("utf-8", "replace")).strip()

    def close(self) -> None:
        """Kill it, with whatever it started, and wait until it is gone."""
        words = self._read_status(all_of_it=False) if not self._ended else []
        if len(words) == 1:
            with suppress(ProcessLookupError):
                os.killpg(int(words[0]), signal.SIGKILL)
            self._read_status()
        self._ended = True
        self._closing.close()


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "upskill"


def expect_gpu() -> None:
    """MissingTool on a machine where no kernel can be run."""
    if not any(next(Path("/").glob(pattern.lstrip("/")), None) for pattern in DEVICES):
        raise MissingTool(
            "there is no NVIDIA GPU on this machine (no /dev/nvidia0), and a kernel has to be run to know;"
            " `tiers: [compiles, resources]` needs none"
        )
    if SERVER[1] == "-m" and find_spec("torch") is None:
        raise MissingTool(f"PyTorch is not installed beside upskill; install it: {sys.executable} -m pip install torch")
