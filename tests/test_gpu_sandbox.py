"""The GPU in a sandbox: only its devices are shown, trials take turns on it, and nobody gets out by way of it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from conftest import HELPFUL, Upskill, write_script, write_skill
from upskill.errors import SandboxError, UsageError
from upskill.sandboxes import SANDBOXES, Limits, Setup, container, gpu
from upskill.sandboxes.bubblewrap import namespace_arguments
from upskill.sandboxes.gpu import check_gpu, gpu_devices, gpu_turn
from upskill.suites import Suite

NAMES = (
    "nvidia0",
    "nvidia11",
    "nvidiactl",
    "nvidia-uvm",
    "nvidia-uvm-tools",
    "nvidia-modeset",
    "nvram",
    "sda",
    "kvm",
)


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of devices as on a machine with two GPUs."""
    for name in NAMES:
        (tmp_path / name).touch()
    monkeypatch.setattr(gpu, "gpu_devices", lambda: gpu_devices(tmp_path))
    monkeypatch.setattr("upskill.sandboxes.bubblewrap.gpu_devices", lambda: gpu_devices(tmp_path))
    return tmp_path


def test_the_devices_of_the_driver_are_found_and_no_others(tmp_path: Path) -> None:
    for name in NAMES[2:]:
        (tmp_path / name).touch()
    assert gpu_devices(tmp_path) == []  # a driver without a GPU
    for name in NAMES[:2]:
        (tmp_path / name).touch()
    assert [path.name for path in gpu_devices(tmp_path)] == list(NAMES[:5])


def test_bubblewrap_shows_the_devices_only_where_they_are_wanted(devices: Path) -> None:
    line = " ".join(namespace_arguments(Limits(), gpu=True))
    shown = [f"--dev-bind {devices / name} {devices / name}" for name in NAMES[:5]]
    assert line.count("--dev-bind") == len(shown)
    assert all(one in line for one in shown)
    assert line.index("--dev /dev") < line.index("--dev-bind")
    assert "--unshare-net" in line
    assert "--dev-bind" not in " ".join(namespace_arguments(Limits()))


def test_a_container_is_given_the_gpu_by_its_engine() -> None:
    setup = Setup(gpu=True)
    assert "--gpus all" in " ".join(container.run_arguments("it", setup, "/usr/bin/docker"))
    podman = " ".join(container.run_arguments("it", setup, "/usr/bin/podman"))
    assert "--device nvidia.com/gpu=all" in podman
    assert "--network none" in podman
    assert "gpu" not in " ".join(container.run_arguments("it", Setup(), "/usr/bin/docker"))


async def test_a_kind_that_cannot_show_a_gpu_refuses(
    devices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SandboxError, match="seatbelt cannot provide a GPU"):
        await SANDBOXES.load("seatbelt")().open(Setup(gpu=True))
    with pytest.raises(UsageError, match="the 'seatbelt' sandbox cannot provide a GPU"):
        check_gpu(SANDBOXES.load("seatbelt")())
    check_gpu(SANDBOXES.load("bubblewrap")())
    monkeypatch.setattr(gpu, "gpu_devices", list[Path])
    with pytest.raises(UsageError, match="this machine has none"):
        check_gpu(SANDBOXES.load("bubblewrap")())


def test_a_case_says_that_it_wants_a_gpu_and_that_is_part_of_it() -> None:
    case = {"id": "one", "prompt": "Say it.", "checks": [{"contains": "it"}]}
    plain, with_gpu = (Suite.parse({"cases": [one]}) for one in (case, case | {"gpu": True}))
    assert with_gpu.cases[0].gpu
    assert with_gpu.fingerprint != plain.fingerprint
    assert Suite.parse(with_gpu.to_dict()).fingerprint == with_gpu.fingerprint


def test_without_a_gpu_nothing_is_asked_where_one_is_wanted(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "gpu_devices", list[Path])
    write_skill(home / "skill")
    write_script(home / "student.yaml", HELPFUL)
    done = upskill(
        "eval", "skill", "-m", "scripted:student.yaml", "--agent", "tools", "--set", "gpu=true"
    )
    assert done.code == 2
    assert "this needs a GPU, and this machine has none (no /dev/nvidia0)" in done.err
    assert (
        upskill("eval", "skill", "-m", "scripted:student.yaml", "--set", "gpu=true").code == 0
    )  # a chat runs no commands
    done = upskill("doctor", "--gpu", "--", "true")
    assert done.code == 2
    assert "this machine has none" in done.err


def test_a_student_gets_the_gpu_in_its_sandbox_and_its_turn(
    upskill: Upskill, home: Path, devices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(devices))
    monkeypatch.setattr(tempfile, "tempdir", None)
    opened: list[tuple[bool, bool]] = []

    def note(limits: Limits, *, gpu: bool = False) -> list[str]:
        opened.append((gpu, gpu_is_held()))
        return namespace_arguments(limits)  # what lies in a folder of the test is no device

    monkeypatch.setattr("upskill.sandboxes.bubblewrap.namespace_arguments", note)
    case = {"prompt": "Say ahoy.", "checks": [{"contains": "ahoy"}, {"command": "true"}]}
    for given, wanted in (({}, False), ({"gpu": True}, True)):
        write_skill(home / "skill", suite={"cases": [case | {"id": str(wanted)} | given]})
        write_script(home / "student.yaml", HELPFUL)
        opened.clear()
        line = (
            "eval",
            "skill",
            "-m",
            "scripted:student.yaml",
            "--agent",
            "tools",
            "--sandbox",
            "bubblewrap",
        )
        assert upskill(*line).code == 0
        assert (wanted, wanted) in opened
        assert (True, False) not in opened


def gpu_is_held() -> bool:
    """Whether somebody has it: then it cannot be locked."""
    with (Path(tempfile.gettempdir()) / "upskill-gpu.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


WAITS = """
import asyncio, sys
from upskill.sandboxes.gpu import gpu_turn
async def main():
    async with gpu_turn():
        print("mine", flush=True)
        sys.stdin.readline()
asyncio.run(main())
"""


async def test_trials_take_turns_on_the_gpu_across_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    lock = tmp_path / "upskill-gpu.lock"
    lock.touch(mode=0o444)  # as another user's would be
    holds, most = 0, 0

    async def work() -> None:
        nonlocal holds, most
        async with gpu_turn(), gpu_turn():  # whoever has it may ask again
            holds += 1
            most = max(most, holds)
            await asyncio.sleep(0)
            holds -= 1

    await asyncio.gather(*(work() for _ in range(8)))
    assert most == 1
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "mine\n"
        waiting = asyncio.create_task(work())
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not waiting.done()
        other.stdin.write("\n")
        other.stdin.flush()
        await waiting


HOLDS = (
    "import fcntl, time; fcntl.flock(0, fcntl.LOCK_EX); print('mine', flush=True); time.sleep(600)"
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
async def test_another_user_cannot_hold_the_gpu_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("upskill.sandboxes.gpu.SAY_SECONDS", 0.0)
    monkeypatch.setattr("upskill.sandboxes.gpu.MAX_HELD_SECONDS", 0.2)
    (tmp_path / "upskill-gpu.lock").touch()
    with (
        (tmp_path / "upskill-gpu.lock").open() as lock,
        subprocess.Popen(
            ["/usr/bin/env", "python3", "-c", HOLDS],
            user="nobody",
            stdin=lock,
            stdout=subprocess.PIPE,
        ) as other,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == b"mine\n"
        async with gpu_turn():
            pass
        other.kill()
    assert f"waiting for the GPU, which process {other.pid} of nobody is using" in caplog.text
    assert "not waiting any longer" in caplog.text


@pytest.mark.parametrize("squatter", ["link", "fifo", "folder"])
async def test_what_somebody_put_in_place_of_the_lock_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squatter: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "precious").write_text("untouched")
    lock = tmp_path / "upskill-gpu.lock"
    {
        "link": lambda: lock.symlink_to("precious"),
        "fifo": lambda: os.mkfifo(lock),
        "folder": lock.mkdir,
    }[squatter]()
    async with gpu_turn():
        assert (tmp_path / "cache/upskill-gpu.lock").is_file()
    assert (tmp_path / "precious").read_text() == "untouched"


# On a machine with a GPU.

SEES = """
import ctypes
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
print("init", driver.cuInit(0), driver.cuDeviceGetCount(ctypes.byref(count)), count.value)
"""
ATTEMPTS = {
    "reach the network": 'exec 9<>"/dev/tcp/127.0.0.1/22"',
    "resolve a name": "getent hosts localhost.example",
    "write beside the driver's library": "touch /usr/lib/x /usr/lib64/x /usr/lib/x86_64-linux-gnu/x 2>/dev/null",
    "remove a device": "rm -f /dev/nvidia0 && ! [ -e /dev/nvidia0 ]",
    "make a device": "mknod /dev/nvidia9 c 195 9",
    "open a disk": "for f in /dev/sd* /dev/vd* /dev/nvme* /dev/mem /dev/kmsg; do [ -r $f ] && exit 0; done; exit 1",
    "load a module": "modprobe nvidia-drm",
    "see processes of the host": "[ $(ls -d /proc/[0-9]* | wc -l) -gt 20 ]",
    "see the host's home": "ls /root/.ssh /home/*/.ssh",
    "trace a process outside": "kill -0 -1 2>/dev/null && [ $(ps -e | wc -l) -gt 20 ]",
}


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="there is no NVIDIA GPU")
async def test_a_sandbox_with_a_gpu_sees_it_and_lets_nobody_out() -> None:
    backend = SANDBOXES.load("bubblewrap")()
    async with await backend.open(Setup(gpu=True)) as sandbox:
        seen = await sandbox.run(["python3", "-c", SEES])
        assert seen.output.strip() == "init 0 0 1", seen
        listed = (await sandbox.run("ls /dev | grep nvidia")).output.split()
        assert set(listed) <= {path.name for path in gpu_devices()}
        assert "nvidia0" in listed
        for name, attempt in ATTEMPTS.items():
            done = await sandbox.run(attempt)
            assert done.code != 0, f"a student can {name}: {done.output}"
    async with await backend.open(Setup()) as sandbox:
        hidden = await sandbox.run(["python3", "-c", SEES])
        assert "init 0" not in hidden.output, hidden
        assert (await sandbox.run("ls /dev | grep nvidia")).output == ""
