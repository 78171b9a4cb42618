"""The GPU in a sandbox: which devices and libraries of the NVIDIA driver it is shown, and whose turn it is."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from upskill.errors import MissingTool, SandboxError, UsageError, wrap_trial_errors
from upskill.installation import add_extra
from upskill.sandboxes import Sandbox, SandboxBackend, Setup

DEVICES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
# Where the driver's libraries are when they are not below /usr, which every sandbox shows.
LIBRARIES = ("/opt/nvidia/lib64", "/run/opengl-driver/lib", "/run/nvidia/driver/usr/lib64")
ANY_GPU = ("/dev/nvidia[0-9]*", "/dev/dxg")  # also where Windows lends it
POLL_SECONDS = 0.05
SAY_SECONDS = 10.0  # of waiting, before it is said for whom
MAX_HELD_SECONDS = 3600.0  # by one process of another user; longer than any trial may take
logger = logging.getLogger(__name__)

_held: ContextVar[bool] = ContextVar("gpu turn", default=False)


def gpu_devices(folder: Path = Path("/dev")) -> list[Path]:
    devices = [path for pattern in DEVICES for path in sorted(folder.glob(pattern))]
    return devices if any(path.name[6:].isdigit() for path in devices) else []


def gpu_libraries() -> list[Path]:
    return [path for path in map(Path, LIBRARIES) if path.is_dir()]


def kernels_lack(devices: Sequence[str] = (), *, torch: bool = True) -> tuple[str, str] | None:
    """What keeps CUDA kernels from running here, and the fix; None where nothing does."""
    if not any(next(Path("/").glob(pattern.lstrip("/")), None) for pattern in devices or ANY_GPU):
        return (
            "there is no NVIDIA GPU on this machine (no /dev/nvidia0)",
            "install its driver, or use a machine that has one",
        )
    if torch and find_spec("torch") is None:
        return (
            "PyTorch is not installed in upskill's environment",
            f"{sys.executable} -m pip install torch",
        )
    return None


def check_gpu(kind: SandboxBackend) -> None:
    """UsageError where a sandbox of this kind cannot provide a GPU."""
    if not gpu_devices():
        raise UsageError(
            "this needs a GPU, and this machine has none (no /dev/nvidia0)",
            "Install the NVIDIA driver, run it on a machine with a GPU, or remove `gpu: true`.",
        )
    if not kind.shows_gpu:
        raise UsageError(
            f"the {kind.name!r} sandbox cannot provide a GPU",
            "Use --sandbox bubblewrap or container.",
        )


@asynccontextmanager
async def gpu_turn() -> AsyncGenerator[None]:
    """Hold the GPU: others on this machine, in whatever process, wait for it. Whoever holds it may ask again."""
    if _held.get():
        yield
        return
    descriptor = _open_lock()
    token = _held.set(True)
    try:
        if descriptor is not None:
            await _lock(descriptor)
        yield
    finally:
        _held.reset(token)
        if descriptor is not None:
            os.close(descriptor)


@asynccontextmanager
async def open_in_turn(kind: SandboxBackend, setup: Setup) -> AsyncGenerator[Sandbox]:
    """A sandbox; one with a GPU has it for itself."""
    async with gpu_turn() if setup.gpu else nullcontext():
        with wrap_trial_errors(SandboxError, f"opening a sandbox ({kind.name})"):
            sandbox = await kind.open(setup)
        async with sandbox:
            yield sandbox


async def _lock(descriptor: int) -> None:
    """Wait for one's turn, and say for whom. Another user's process that never lets go is not waited for."""
    started = since = time.monotonic()
    last = None
    say_at = started + SAY_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            await asyncio.sleep(POLL_SECONDS)
        now = time.monotonic()
        if now < say_at:
            continue
        holder = _holder(descriptor)
        if holder != last:
            last, since = holder, now
        if holder.user != os.getuid() and now - since >= MAX_HELD_SECONDS:
            logger.warning("%s holds the GPU and never released it: not waiting any longer", holder)
            return
        if say_at == started + SAY_SECONDS:
            logger.warning("waiting for the GPU, which %s is using", holder)
        say_at = now + SAY_SECONDS


@dataclass(frozen=True, slots=True)
class _Holder:
    process: str = ""
    user: int | None = None  # None: of a process that cannot be seen

    def __str__(self) -> str:
        if self.user is None:
            return "a process that cannot be seen"
        try:
            name = pwd.getpwuid(self.user).pw_name
        except KeyError:
            name = str(self.user)
        return f"process {self.process} of {name}"


def _holder(descriptor: int) -> _Holder:
    """Who has locked this file, as far as the system says."""
    inode = os.fstat(descriptor).st_ino
    with suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
                return _Holder(fields[4], Path("/proc", fields[4]).stat().st_uid)
    return _Holder()


def _open_lock() -> int | None:
    """The file that users of this machine take turns by, whoever made it; one's own where that is no such file.

    Anybody may put something else there: a link, a FIFO, a file that nobody can read.
    """
    shared = Path(tempfile.gettempdir()) / "upskill-gpu.lock"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - never raises
    for path in (shared, cache / "upskill-gpu.lock"):
        # In a folder like /tmp the kernel refuses to create what is there; to read is enough for a lock.
        for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
            with suppress(OSError):
                descriptor = os.open(
                    path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666
                )
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    with suppress(PermissionError):
                        os.fchmod(descriptor, 0o644)
                    return descriptor
                os.close(descriptor)
        logger.warning("%s: cannot be locked, so other users of the GPU are not waited for", path)
    return None


SEEN_IN_A_SANDBOX = (
    "/usr/",
    "/bin/",
    "/lib/",
    "/lib64/",
)  # every kind shows these; anything else is mounted


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A CUDA compiler, its headers, and the folders that a sandbox has to be shown for it."""

    nvcc: str
    include: str
    mounts: tuple[Path, ...] = ()


def find_toolchain() -> Toolchain:
    for nvcc in _candidates():
        if nvcc.is_file():
            root = _root(nvcc)
            is_visible = f"{nvcc}".startswith(SEEN_IN_A_SANDBOX) and f"{root}".startswith(
                SEEN_IN_A_SANDBOX
            )
            return Toolchain(str(nvcc), str(root / "include"), () if is_visible else (root,))
    raise MissingTool(
        "there is no CUDA compiler (nvcc): install the CUDA toolkit for all users, or, without root (330 MB):"
        f" {add_extra('cuda')}"
    )


def expect_architecture(nvcc: str, arch: str) -> None:
    """MissingTool where this nvcc says that it does not compile for it."""
    known = _architectures(nvcc)
    if known and arch.rstrip("af") not in known:
        raise MissingTool(
            f"{nvcc} cannot compile for {arch}; it supports {', '.join(known)}. Set `arch` to one of these, or install"
            " a newer CUDA toolkit"
        )


@cache
def _architectures(nvcc: str) -> tuple[str, ...]:
    """Without the letter of a variant; nothing where nvcc does not say."""
    try:
        listing = subprocess.run(
            [nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True, timeout=60
        ).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ()
    listed = {line.strip().rstrip("af") for line in listing.splitlines() if line.startswith("sm_")}
    return tuple(sorted(listed, key=lambda name: (len(name), name)))


def _candidates() -> Iterator[Path]:
    if on_path := shutil.which("nvcc"):
        yield Path(on_path)
    yield Path("/usr/local/cuda/bin/nvcc")
    yield from packaged()


def packaged() -> Iterator[Path]:
    """Where the packages of PyPI put it, the newest first."""
    package = find_spec("nvidia")
    for folder in package.submodule_search_locations or () if package else ():
        yield from sorted(Path(folder).glob("cu*/bin/nvcc"), reverse=True)


def _root(nvcc: Path) -> Path:
    """The folder of the toolkit; what is on the PATH may be a link, or a script that starts the compiler."""
    for candidate in (nvcc.resolve(), nvcc, Path("/usr/local/cuda/bin/nvcc").resolve()):
        root = candidate.parent.parent
        if (root / "include" / "cuda_runtime_api.h").is_file():
            return root
    return nvcc.resolve().parent.parent
