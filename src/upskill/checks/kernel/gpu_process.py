"""Processes beside the GPU, one trial at a time: started, spoken to, and ended with everything they started."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from upskill.errors import MissingTool
from upskill.sandboxes import printable

RUNNER = (sys.executable, "-m", "upskill.checks.kernel.runner")
REFEREE = (sys.executable, "-m", "upskill.checks.kernel.referee")
START_SECONDS = 600.0  # importing PyTorch, and compiling what the kernel is timed against
DEVICES = ("/dev/nvidia[0-9]*", "/dev/dxg")
# What PyTorch and its compiler look at. Keys and tokens are none of their business.
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "XDG_CACHE_HOME")
KEPT_PREFIXES = ("CUDA_", "NVIDIA_", "TORCH", "TRITON_", "PYTORCH_", "COV_")


class Silent(Exception):
    """It ended, or said nothing within its time; the message says how."""


class GpuProcess:
    """A process that takes a line of JSON and answers with lines of JSON."""

    def __init__(self, argv: Sequence[str], store: int) -> None:
        reader, writer = os.pipe()
        environment = {
            name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)
        }
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = subprocess.Popen(
                [*argv, str(writer), str(store)],
                stdin=subprocess.PIPE,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=(writer, store),
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(writer)
        self._reader, self._buffer = reader, b""
        os.set_blocking(reader, False)

    def say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which `hear` tells
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

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
                raise Silent(self._ended())
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if "missing" in message:
            raise MissingTool(message["missing"])
        if "broken" in message:
            raise MissingTool(f"the task of the kernel breaks here: {message['broken']}")
        return message

    def _ended(self) -> str:
        code = self._process.wait()
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        said = self.said()
        return f"its process ended with {code}" + (f": {said}" if said else "")

    def said(self) -> str:
        """The end of what it, or a kernel in it, printed."""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 600))
        return printable(self._errors.read().decode("utf-8", "replace")).strip()

    def close(self) -> None:
        if self._errors.closed:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        os.close(self._reader)
        self._errors.close()


def expect_gpu() -> None:
    """MissingTool on a machine where no kernel can be run."""
    if not any(next(Path("/").glob(pattern.lstrip("/")), None) for pattern in DEVICES):
        raise MissingTool(
            "there is no NVIDIA GPU on this machine (no /dev/nvidia0), and a kernel has to be run to know;"
            " `tiers: [compiles, resources]` needs none"
        )
    from importlib.util import find_spec  # noqa: PLC0415

    if RUNNER[1] == "-m" and find_spec("torch") is None:
        raise MissingTool(f"PyTorch is not installed beside upskill; install it: {sys.executable} -m pip install torch")


@asynccontextmanager
async def gpu_turn() -> AsyncGenerator[None]:
    """Hold the GPU for one trial: whoever else wants it on this machine, in whatever process, waits."""
    place = Path(tempfile.gettempdir()) / "upskill-gpu.lock"
    descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with suppress(PermissionError):
            os.fchmod(descriptor, 0o666)  # other users of this machine take turns as well
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.05)
        yield
    finally:
        os.close(descriptor)
