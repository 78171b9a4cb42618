"""The GPU in a sandbox: which devices and libraries of the NVIDIA driver it is shown, and whose turn it is.

Nothing else of the machine comes with them: no network, no other device, and the libraries are read-only.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path

from upskill.errors import UsageError
from upskill.sandboxes import SandboxBackend

DEVICES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
# Where the driver's libraries are when they are not below /usr, which every sandbox shows.
LIBRARIES = ("/opt/nvidia/lib64", "/run/opengl-driver/lib", "/run/nvidia/driver/usr/lib64")
ANY_GPU = ("/dev/nvidia[0-9]*", "/dev/dxg")  # also where Windows lends it
POLL_SECONDS = 0.05

_held: ContextVar[bool] = ContextVar("gpu turn", default=False)


def gpu_devices(folder: Path = Path("/dev")) -> list[Path]:
    """The devices of all NVIDIA GPUs; none where there is no GPU that can be used."""
    found = [path for pattern in DEVICES for path in sorted(folder.glob(pattern))]
    return found if any(path.name[6:].isdigit() for path in found) else []


def gpu_libraries() -> list[Path]:
    return [path for path in map(Path, LIBRARIES) if path.is_dir()]


def kernels_lack(devices: Sequence[str] = (), *, torch: bool = True) -> tuple[str, str] | None:
    """What keeps CUDA kernels from being run on this machine, and what mends it; None where nothing does."""
    if not any(next(Path("/").glob(pattern.lstrip("/")), None) for pattern in devices or ANY_GPU):
        return (
            "there is no NVIDIA GPU on this machine (no /dev/nvidia0)",
            "install its driver, or use a machine that has one",
        )
    if torch and find_spec("torch") is None:
        return "PyTorch is not installed beside upskill", f"{sys.executable} -m pip install torch"
    return None


def check_gpu(kind: SandboxBackend) -> None:
    """UsageError where a sandbox of this kind cannot show a GPU."""
    if not gpu_devices():
        raise UsageError(
            "a GPU is wanted, and there is none on this machine (no /dev/nvidia0)",
            "Install the NVIDIA driver, run it where there is one, or leave --gpu and `gpu: true` out.",
        )
    if not getattr(kind, "shows_gpu", False):
        raise UsageError(f"the sandbox {kind.name!r} cannot show a GPU", "Use --sandbox bubblewrap or container.")


@asynccontextmanager
async def gpu_turn() -> AsyncGenerator[None]:
    """Hold the GPU: others on this machine, in whatever process, wait for it. Whoever holds it may ask again."""
    if _held.get():
        yield
        return
    descriptor = _open_lock(Path(tempfile.gettempdir()) / "upskill-gpu.lock")
    token = _held.set(True)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(POLL_SECONDS)
        yield
    finally:
        _held.reset(token)
        os.close(descriptor)


def _open_lock(place: Path) -> int:
    """The file that users of this machine take turns by, whoever made it."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(PermissionError):
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | flags, 0o666)
        with suppress(PermissionError):
            os.fchmod(descriptor, 0o644)
        return descriptor
    # Another user's. In a folder like /tmp the kernel refuses to create what is there; to read is enough for a lock.
    return os.open(place, os.O_RDONLY | flags)
