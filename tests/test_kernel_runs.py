"""Tiers 4 and 5 of the `kernel` check: recording, running, comparing and timing, with a CPU stand-in for the GPU."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cpu_stand_in
import run_to_be_killed
from conftest import read_check
from upskill.checks import Evidence, Finding
from upskill.checks.kernel import gpu_process, runner, tiers
from upskill.checks.kernel.tiers import compare_speed, speed_finding
from upskill.errors import MissingTool
from upskill.sandboxes import SANDBOXES, Sandbox, Setup
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.suites.quality import probe_suite, summarize_weak
from upskill.traces import Step, Trace

FIXTURES = Path(__file__).parent / "fixtures"
# One for each way of being found out; on a GPU all of them are run (`test_kernel_gpu`).
HOSTILE = (
    *(
        "calls_cublas",
        "changes_the_clock",
        "changes_the_input",
        "crashes_on_the_host",
        "forges_a_plan",
    ),
    *(
        "launches_on_another_stream",
        "leaves_a_kernel_running",
        "reads_the_checkers_files",
        "skips_when_timed",
    ),
    *("writes_a_part", "writes_into_the_guard"),
)
GOOD = (FIXTURES / "kernels" / "affine.cu").read_text(encoding="utf-8")


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with await SANDBOXES.load("bubblewrap")().open(Setup()) as opened:
        yield opened


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The runner and the referee on the CPU."""
    monkeypatch.setattr(gpu_process, "SERVER", (sys.executable, str(Path(cpu_stand_in.__file__))))
    monkeypatch.setattr(tiers, "find_sanitizer", lambda: ())
    monkeypatch.setattr(gpu_process, "DEVICES", ("/dev/null",))
    tmp_path.chmod(0o755)  # a sandbox is another user's where we are root
    monkeypatch.setattr(
        gpu_process, "SHOWN", (str(Path(cpu_stand_in.__file__).parent), str(tmp_path))
    )
    monkeypatch.setattr(gpu_process, "KEPT_PREFIXES", (*gpu_process.KEPT_PREFIXES, "STAND_IN_"))


def beside(name: str) -> str:
    return (FIXTURES / "kernels" / name).read_text(encoding="utf-8")


async def look(tier: str, code: str, sandbox: Sandbox, **said: Any) -> Finding:
    said = said if tier == "kernel_compiles" else {"task": "affine.py", **said}
    evidence = Evidence(
        Trace((Step("assistant", f"Here it is:\n\n```cuda\n{code}```\n"),)), sandbox=sandbox
    )
    return await read_check({tier: said}, "suite.yaml", beside).check.run(evidence)


def on_cpu(code: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_KERNELS", str(cpu_stand_in.compile_for_cpu(code, place)))


@pytest.mark.usefixtures("stand_in")
async def test_a_right_kernel_is_right_and_as_fast_as_it_is(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu(GOOD, tmp_path, monkeypatch)
    assert await look("kernel_correct", GOOD, sandbox) == Finding(
        True, "right at 4 shapes (float32)"
    )
    fast = await look("kernel_faster", GOOD, sandbox, at_least=1e-9, launches=10)
    assert fast.passed
    assert re.fullmatch(
        r"[\d.]+ µs: [\d.]+× the speed of PyTorch eager \[[\d.]+, [\d.]+\], [\d.]+× the speed of torch.compile"
        r" \[[\d.]+, [\d.]+\], \d+% of the bandwidth of a copy",
        fast.reason,
    )
    slow = await look("kernel_faster", GOOD, sandbox, at_least=1e9, launches=10, than=["eager"])
    assert not slow.passed
    assert slow.reason.endswith(", 1e+09 required")


@pytest.mark.usefixtures("stand_in")
async def test_a_few_cases_show_whether_the_recited_skill_passes_on_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu(GOOD, tmp_path, monkeypatch)
    checks = [{"kernel_correct": {"task": "affine.py"}}]
    cases = [
        {"id": f"case-{number}", "prompt": f"Write kernel {number}.", "checks": checks}
        for number in range(7)
    ]
    suite = Suite.parse({"cases": cases}, read_file=lambda path: beside(path).encode())
    weak = await probe_suite(
        suite, Skill.new("affine", "Writes kernels.", f"Copy this:\n\n```cuda\n{GOOD}```\n")
    )
    assert {leak.case: leak.probe for leak in weak} == {
        case["id"]: "skill" if number in (0, 2, 4) else "sampled"
        for number, case in enumerate(cases)
    }
    note = summarize_weak(leak for leak in weak if leak.probe == "sampled")
    why = "answers that know nothing were not tried, because each takes a run on the GPU"
    assert note == [f"4 cases ('case-1', 'case-3', 'case-5', …): {why}; 3 other cases were tried"]


@pytest.mark.usefixtures("stand_in")
async def test_hostile_kernels_fail(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = {
        name: (FIXTURES / "hostile_kernels" / f"{name}.cu").read_text(encoding="utf-8")
        for name in HOSTILE
    }
    gate = asyncio.Semaphore(os.cpu_count() or 1)

    async def prepare(name: str) -> Path:
        """Build both halves ahead, side by side: compiling is what takes time."""
        async with gate:
            await look("kernel_compiles", codes[name], sandbox)
            (tmp_path / name).mkdir()
            return await asyncio.to_thread(
                cpu_stand_in.compile_for_cpu, codes[name], tmp_path / name
            )

    for name, library in zip(codes, await asyncio.gather(*map(prepare, codes)), strict=True):
        monkeypatch.setenv("STAND_IN_KERNELS", str(library))
        tier = (
            "kernel_faster"
            if name in ("changes_the_clock", "skips_when_timed")
            else "kernel_correct"
        )
        finding = await look(
            tier, codes[name], sandbox, timeout=1.0 if name == "leaves_a_kernel_running" else 600.0
        )
        wanted = re.search(r"^// finding: (.*)", codes[name], re.MULTILINE)
        assert wanted
        assert not finding.passed, name
        assert re.search(wanted[1], finding.reason), f"{name}: {finding.reason}"
    monkeypatch.setattr(gpu_process, "SERVER", ("never", "started"))
    again = await look("kernel_faster", codes["writes_a_part"], sandbox)
    assert not again.passed
    assert again.reason.startswith(
        "not timed, because it is not correct: the kernel is wrong at 300 float32"
    )


@pytest.mark.usefixtures("stand_in")
async def test_nothing_is_timed_while_the_referee_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu(GOOD, tmp_path, monkeypatch)
    log = tmp_path / "log"
    async with await SANDBOXES.load("none")().open(Setup()) as sandbox:
        assert (await look("kernel_correct", GOOD, sandbox)).passed
        monkeypatch.setenv("STAND_IN_LOG", str(log))
        assert (await look("kernel_faster", GOOD, sandbox, at_least=1e-9)).passed
    assert log.read_text(encoding="utf-8").split() == ["made"] * 2 + ["timed"] * 3 * 23


@pytest.mark.usefixtures("stand_in")
async def test_of_large_outputs_parts_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skips = (FIXTURES / "hostile_kernels" / "skips_when_timed.cu").read_text(encoding="utf-8")
    skips = skips.replace("launches > 16", "launches > 10")  # fewer launches are timed, too
    # The last run at a shape is compared as a whole: this one leaves out an element that no part may have.
    leaves = GOOD.replace("if (i < n)", "if (i < n && i != 500)")
    assert leaves != GOOD
    monkeypatch.setenv("STAND_IN_PARTS", "yes")
    codes = {"good": GOOD, "skips": skips, "leaves": leaves}
    findings: dict[str, Finding] = {}
    async with await SANDBOXES.load("none")().open(Setup()) as sandbox:
        for name, code in codes.items():
            (tmp_path / name).mkdir()
            on_cpu(code, tmp_path / name, monkeypatch)
            findings[f"{name} correct"] = await look("kernel_correct", code, sandbox)
            findings[f"{name} faster"] = await look(
                "kernel_faster", code, sandbox, at_least=1e-9, than=["eager"]
            )
    assert findings["good correct"] == Finding(True, "right at 4 shapes (float32)")
    assert findings["good faster"].passed
    assert re.search(
        "at timed launch 12: out: 64 of 64 elements are wrong", findings["skips faster"].reason
    )
    assert "element 500 is nan" in findings["leaves correct"].reason


@pytest.mark.usefixtures("stand_in")
async def test_a_kernel_that_is_wrong_at_a_small_shape_is_not_run_at_the_timed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = GOOD.replace("2.0f *", "3.0f *")
    assert wrong != GOOD
    processes: list[int] = []
    async with await SANDBOXES.load("none")().open(Setup()) as sandbox:
        for name, code in {"right": GOOD, "wrong": wrong}.items():
            (tmp_path / name).mkdir()
            on_cpu(code, tmp_path / name, monkeypatch)
            monkeypatch.setenv("STAND_IN_LOG", str(tmp_path / f"{name}.log"))
            assert (await look("kernel_correct", code, sandbox)).passed is (name == "right")
            processes.append(
                (tmp_path / f"{name}.log").read_text(encoding="utf-8").split().count("made")
            )
    assert processes == [4, 2]


@pytest.mark.usefixtures("stand_in")
async def test_a_gpu_without_free_memory_is_not_the_kernels_failure(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu(GOOD, tmp_path, monkeypatch)
    monkeypatch.setenv("STAND_IN_FULL", "yes")
    with pytest.raises(
        MissingTool, match="the GPU has too little free memory: tried to allocate 16 GiB"
    ):
        await look("kernel_correct", GOOD, sandbox)


def test_parts_of_an_output_have_its_ends_and_are_found_again() -> None:
    parts = runner.choose_parts(2**28, 4, seed=7)
    assert parts is not None
    assert parts == runner.choose_parts(2**28, 4, seed=7) != runner.choose_parts(2**28, 4, seed=8)
    assert (len(parts), min(parts)[0], max(parts)[1]) == (64, 0, 2**28)
    assert {last - first for first, last in parts} == {2**18}
    assert runner.choose_parts(2**24, 4, seed=7) is None  # they would be all of it


def test_outputs_are_handed_over_whole() -> None:
    data = np.random.default_rng(3).integers(0, 256, 100_005, dtype=np.uint8)
    with os.fdopen(os.memfd_create("outputs"), "rb") as file:
        runner.write_store(file.fileno(), data.data, 6)
        back = np.zeros_like(data)
        runner.read_store(file.fileno(), 6, back.data)
        assert np.array_equal(back, data)
        with pytest.raises(EOFError):
            runner.read_store(file.fileno(), 7, back.data)


# What a launcher may do, and what the machinery finds.

BUSY = """#include <cuda_runtime.h>
__global__ void affine(const float* x, const float* offset, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i] + 1.0f + offset[i];
}
extern "C" void launch(const float* x, float* out, int n, cudaStream_t stream) {
  float *zeros, *copy;
  cudaDeviceProp device;
  int blocks = 0, best = 0;
  cudaGetDeviceProperties(&device, 0);
  cudaOccupancyMaxPotentialBlockSize(&blocks, &best, affine);
  cudaFuncSetAttribute(affine, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
  if (device.multiProcessorCount != 132 || best < 32 || cudaGetLastError() != cudaSuccess) return;
  if (cudaMallocAsync(&zeros, 1ull << 40, stream) != cudaErrorMemoryAllocation) return;
  if (cudaGetLastError() == cudaSuccess) return;
  if (cudaMallocAsync(&zeros, n * sizeof(float), stream) || cudaMallocAsync(&copy, n * sizeof(float), stream)) return;
  cudaMemsetAsync(zeros, 0, n * sizeof(float), stream);
  cudaMemcpyAsync(copy, zeros, n * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  cudaLaunchConfig_t config = {};
  config.gridDim = (n + 63) / 64, config.blockDim = 64, config.stream = stream;
  cudaLaunchKernelEx(&config, affine, x, (const float*)copy, out, n);
  cudaFreeAsync(zeros, stream);
  cudaFreeAsync(copy, stream);
  cudaDeviceSynchronize();
}
int main() {
  float* x;
  cudaMallocManaged(&x, 4);
  cudaEvent_t event;
  cudaEventCreate(&event);
}
"""
MOODY = """#include <cuda_runtime.h>
__device__ int mood;
__global__ void affine(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i] + 1.0f + 1e-7f * mood;
  if (i == n - 1) mood++;
}
extern "C" void launch(const float* x, float* out, int n, cudaStream_t stream) {
  affine<<<(n + 63) / 64, 64, 0, stream>>>(x, out, n);
}
"""
DEADLY = """#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
__global__ void affine(const float* x, float* out, int n) {
#ifndef __CUDACC__
  fclose(fopen(getenv("STAND_IN_GONE"), "w"));
#endif
  *(float*)16 = 1.0f;
}
extern "C" void launch(const float* x, float* out, int n, cudaStream_t stream) {
  affine<<<1, 1, 0, stream>>>(x, out, n);
}
"""


@pytest.mark.usefixtures("stand_in")
async def test_a_launcher_may_ask_and_use_memory_and_have_a_main_of_its_own(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu(BUSY, tmp_path, monkeypatch)
    finding = await look("kernel_correct", BUSY, sandbox)
    assert finding.passed, finding.reason


@pytest.mark.usefixtures("stand_in")
async def test_runs_on_one_input_have_to_agree_bit_for_bit_unless_the_task_says_otherwise(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu(MOODY, tmp_path, monkeypatch)
    finding = await look("kernel_correct", MOODY, sandbox)
    assert not finding.passed
    assert re.search(
        r"at \d+ float32: a second run on the same input gives different bits", finding.reason
    )
    loose = beside("affine.py") + "EXACT = False\n"
    assert (await look("kernel_correct", MOODY, sandbox, source=loose)).passed


@pytest.mark.usefixtures("stand_in")
async def test_a_gpu_that_is_gone_afterwards_is_an_error_and_so_is_a_broken_task(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_GONE", "/tmp/gone")  # in the sandbox of the stand-in
    on_cpu(DEADLY, tmp_path, monkeypatch)
    with pytest.raises(MissingTool, match="the stand-in is told to be no GPU"):
        await look("kernel_correct", DEADLY, sandbox)
    gpu_process.ForkServer.running("bubblewrap").stop()
    on_cpu(GOOD, tmp_path, monkeypatch)
    broken = beside("affine.py").replace("return 2 * np", "return 2 / 0 * np")
    with pytest.raises(MissingTool, match="the kernel's task file fails here: ZeroDivisionError"):
        await look("kernel_correct", GOOD, sandbox, source=broken)
    monkeypatch.setattr(
        gpu_process, "SERVER", (sys.executable, "-c", "raise SystemExit('no room for Python')")
    )
    with pytest.raises(
        MissingTool, match=r"the GPU could not be used: .*no room for Python|has ended"
    ):
        await look("kernel_correct", GOOD, sandbox)
    monkeypatch.undo()


@pytest.mark.usefixtures("stand_in")
async def test_processes_and_files_are_gone_after_a_trial(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    code = (FIXTURES / "hostile_kernels" / "leaves_a_kernel_running.cu").read_text(encoding="utf-8")
    on_cpu(code, tmp_path, monkeypatch)
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    assert not (await look("kernel_correct", code, sandbox, timeout=1.0)).passed
    assert (
        len(list(Path("/proc/self/fd").iterdir())) <= open_before + 2
    )  # the fork server's socket and log
    assert [path.name for path in (tmp_path / "temporary").iterdir()] == ["upskill-gpu.lock"]
    server = gpu_process.ForkServer.running("bubblewrap")
    left = [one for one in descendants(str(server.pid)) if is_running(one)]
    assert len(left) <= 1  # bubblewrap's process 1: the server itself
    server.stop()
    assert not Path(f"/proc/{server.pid}").exists()


REACHES_OUT = """
import pathlib, socket
assert not pathlib.Path({secret!r}).exists(), "the task sees files of the host"
try:
    socket.create_connection(("127.0.0.1", {port}), 5).close()
    raise AssertionError("the task reaches the network")
except OSError:
    pass
"""


@pytest.mark.usefixtures("stand_in")
async def test_what_comes_with_a_suite_runs_in_a_sandbox_too(
    sandbox: Sandbox,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_cpu(GOOD, tmp_path, monkeypatch)
    secret = tmp_path_factory.mktemp("host") / "secret"
    secret.touch()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        source = beside("affine.py").replace("from __future__ import annotations", "", 1)
        source += REACHES_OUT.format(secret=str(secret), port=listening.getsockname()[1])
        assert (await look("kernel_correct", GOOD, sandbox, source=source)).passed
        async with await SANDBOXES.load("none")().open(Setup()) as open_to_all:
            with pytest.raises(MissingTool, match="the task sees files of the host"):
                await look("kernel_correct", GOOD, open_to_all, source=source)
    with pytest.raises(
        MissingTool, match="the 'container' sandbox cannot isolate a suite's own code"
    ):
        gpu_process.ForkServer.running("container")


@pytest.mark.parametrize("kind", ["none", "bubblewrap"])
def test_nothing_goes_on_when_upskill_is_killed(kind: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    os.mkfifo(tmp_path / "held")
    (tmp_path / "held").chmod(0o666)
    line = [
        sys.executable,
        run_to_be_killed.__file__,
        kind,
        str(FIXTURES / "kernels" / "affine.py"),
    ]
    with ExitStack() as closing:
        held = closing.enter_context(
            os.fdopen(os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK), "rb", 0)
        )
        (tmp_path / "temporary").mkdir()
        variables = {"STAND_IN_HELD": str(tmp_path / "held"), "TMPDIR": str(tmp_path / "temporary")}
        started = subprocess.Popen(line, env=os.environ | variables)
        closing.callback(started.wait)
        closing.callback(started.kill)
        said = b""
        while set(said.decode().splitlines()) < run_to_be_killed.LINES:
            assert select.select([held], [], [], HANGS)[0], f"only these are running: {said!r}"
            more = held.read()
            assert more, f"it ended, with only these running: {said!r}"
            said += more
        for process in descendants(str(started.pid)):  # for a product that leaves them running
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(int(process))
                closing.callback(os.close, descriptor)
                closing.callback(end, descriptor)
        started.kill()
        # It ends for us when the last process that holds it is gone.
        assert select.select([held], [], [], HANGS)[0], "something goes on"
        assert held.read() == b""
        assert not list((tmp_path / "temporary").glob("upskill-gpu-*"))


async def test_the_end_of_a_watched_process_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    says = "import os, sys; os.write(int(sys.argv[1]), b'{}\\n')"
    monkeypatch.setattr(gpu_process, "WATCHED", (sys.executable, "-c", says))
    store = os.memfd_create("outputs")
    watched = gpu_process.GpuProcess("watched", store, "none", ("/usr/bin/env",))
    assert await watched.receive(HANGS) == {}
    with pytest.raises(gpu_process.Silent, match="its process exited with 0"):
        await watched.receive(HANGS)
    watched.close()
    os.close(store)


HANGS = 300.0  # seconds after which a test has failed; nothing takes as long


def end(process: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL)


def descendants(process: str) -> list[str]:
    parents: dict[str, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[folder.name] = (
                (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
            )
    found = [one for one, parent in parents.items() if parent == process]
    return found + [below for one in found for below in descendants(one)]


def is_running(process: str) -> bool:
    with suppress(OSError):
        return (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            != "Z"
        )
    return False


def test_the_functions_of_a_task_can_be_imported_and_read_as_compilers_do() -> None:
    task = runner.Task(beside("affine.py"))
    assert getattr(sys.modules[task.eager.__module__], task.eager.__name__) is task.eager
    assert inspect.getsource(task.reference).startswith("def reference(x: Any, n: int)")


@pytest.mark.parametrize(
    ("got", "want", "wrong"),
    [
        ([1.0, 2.0], [1.0, 2.0], ""),
        ([1.0009, 2.0], [1.0, 2.0], ""),
        ([1.1, 2.0], [1.0, 2.0], "1 of 2 elements are wrong; element 0 is 1.1 and should be 1"),
        ([np.nan, 2.0], [1.0, 2.0], "1 of 2 elements are wrong, 1 of them NaN; element 0 is nan"),
        ([np.inf, 2.0], [1.0, 2.0], "1 of 2 elements are wrong; element 0 is inf"),
        ([1.0, np.inf], [1.0, np.inf], ""),
        ([1.0, -np.inf], [1.0, np.inf], "1 of 2 elements are wrong"),
        ([1.0, 1e30], [1.0, np.inf], "1 of 2 elements are wrong"),
        ([np.nan, 2.0], [np.nan, 2.0], ""),
        ([0.0, 2.0], [np.nan, 2.0], "1 of 2 elements are wrong; element 0 is 0 and should be nan"),
        ([1.0], [1.0, 2.0], "the reference has the shape (2,), not (1,)"),
    ],
)
def test_an_output_is_right_within_its_tolerance_and_nan_only_where_the_reference_has_it(
    got: list[float], want: list[float], wrong: str
) -> None:
    with np.errstate(invalid="ignore"):  # PyTorch does not warn of ∞ − ∞ either
        found = runner.compare(
            cpu_stand_in.CpuStandIn(), np.array(got), np.array(want), (1e-3, 1e-4)
        )
    assert found.startswith(wrong)
    assert bool(found) is bool(wrong)


def test_speed_is_a_ratio_of_medians_with_an_interval() -> None:
    random = np.random.default_rng(1)
    times = {
        "kernel": [1e-5] * 20,
        "eager": [2e-5] * 20,
        "compile": list(random.normal(1e-5, 2e-6, 20)),
    }
    finding = speed_finding(
        {"times": times, "bytes": 30_000_000, "copy_bandwidth": 4e12}, at_least=1.5
    )
    assert not finding.passed
    assert finding.reason.startswith("10.0 µs: 2.00× the speed of PyTorch eager [2.00, 2.00], ")
    assert finding.reason.endswith(", 75% of the bandwidth of a copy, 1.5 required")
    ratio, low, high = compare_speed(times["kernel"], times["compile"])
    assert low < ratio < high
    assert ratio == pytest.approx(np.median(times["compile"]) / 1e-5)


def test_an_interval_of_speed_holds_the_true_ratio_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        _, low, high = compare_speed(
            random.gamma(20, 1e-6, 30).tolist(), (1.5 * random.gamma(20, 1e-6, 30)).tolist()
        )
        held += low <= 1.5 <= high
    assert 176 <= held <= 200
