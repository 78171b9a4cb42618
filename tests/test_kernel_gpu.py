"""Tiers 4 and 5 of the `kernel` check on a real GPU: right kernels pass, hostile ones fail, nothing stays behind."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conftest import read_check
from upskill.checks import Evidence, Finding
from upskill.checks.kernel.tiers import find_sanitizer
from upskill.sandboxes import SANDBOXES, Sandbox, Setup
from upskill.traces import Step, Trace

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="there is no NVIDIA GPU"),
]
FIXTURES = Path(__file__).parent / "fixtures"
READS_BEHIND = "float after = x[n]; if (i < n) out[i] = 2.0f * x[i] + 1.0f + (after == 1.2345e30f ? 1.0f : 0.0f);"
HOSTILE = sorted((FIXTURES / "hostile_kernels").glob("*.cu"))


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with await SANDBOXES.load("bubblewrap")().open(Setup()) as opened:
        yield opened


def beside(name: str) -> str:
    return (FIXTURES / "kernels" / name).read_text(encoding="utf-8")


async def look(tier: str, code: str, sandbox: Sandbox, **said: Any) -> Finding:
    evidence = Evidence(Trace((Step("assistant", f"```cuda\n{code}```\n"),)), sandbox=sandbox)
    finding = await read_check({tier: said}, "suite.yaml", beside).check.run(evidence)
    print(tier, finding)
    return finding


async def test_right_kernels_pass_in_every_dtype_also_where_rows_lie_apart(sandbox: Sandbox) -> None:
    code = beside("rms.cu")
    right = await look("kernel_correct", code, sandbox, task="rms_on_gpu.py")
    assert right == Finding(True, "right at 12 shapes (float32, float16, bfloat16)")


async def test_a_kernel_is_timed_beside_pytorch(sandbox: Sandbox) -> None:
    code = beside("affine.cu")
    assert (await look("kernel_correct", code, sandbox, task="affine_on_gpu.py")).passed
    timed = await look("kernel_faster", code, sandbox, task="affine_on_gpu.py", at_least=0.2)
    assert timed.passed
    assert "× the speed of torch.compile [" in timed.reason


@pytest.mark.parametrize("file", HOSTILE, ids=lambda file: file.stem)
async def test_a_hostile_kernel_fails_and_the_gpu_goes_on(sandbox: Sandbox, file: Path) -> None:
    code = file.read_text(encoding="utf-8")
    tier = "kernel_faster" if file.stem in ("changes_the_clock", "skips_when_timed") else "kernel_correct"
    finding = await look(tier, code, sandbox, task="affine_on_gpu.py", timeout=6.0)
    assert not finding.passed
    wanted = re.search(r"^// finding: (.*)", code, re.MULTILINE)
    assert wanted
    assert re.search(wanted[1], finding.reason), finding.reason
    after = await look("kernel_correct", beside("affine.cu"), sandbox, task="affine_on_gpu.py", sanitize=False)
    assert after.passed


async def test_an_access_outside_that_changes_nothing_is_seen_by_the_sanitizer(sandbox: Sandbox) -> None:
    if not find_sanitizer():
        pytest.skip("compute-sanitizer is not installed")
    code = beside("affine.cu").replace("if (i < n) out[i] = 2.0f * x[i] + 1.0f;", READS_BEHIND)
    finding = await look("kernel_correct", code, sandbox, task="affine_on_gpu.py")
    assert not finding.passed
    assert "under compute-sanitizer: Invalid __global__ read" in finding.reason
    assert (await look("kernel_correct", code, sandbox, task="affine_on_gpu.py", sanitize=False)).passed


def memory_used() -> int:
    said = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(said.stdout.split()[0])


def left_behind() -> set[str]:
    """Processes of ours, and files where they could be left."""
    found = {f"file {path.name}" for path in Path(tempfile.gettempdir()).iterdir()}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "upskill.checks.kernel" in line or "compute-sanitizer" in line or "bwrap" in line:
                found.add(f"process {folder.name} {line[:80]}")
    return found


async def test_many_trials_leave_nothing_behind(sandbox: Sandbox) -> None:
    count = int(os.environ.get("UPSKILL_GPU_TRIALS", "200"))
    bad = (FIXTURES / "hostile_kernels" / "touches_an_illegal_address.cu").read_text(encoding="utf-8")
    await look("kernel_correct", beside("affine.cu"), sandbox, task="affine_on_gpu.py")
    memory, before, began = memory_used(), left_behind(), time.perf_counter()
    for number in range(count):
        code, sanitize = bad if number % 10 == 9 else beside("affine.cu"), number % 20 == 0
        finding = await look("kernel_correct", code, sandbox, task="affine_on_gpu.py", sanitize=sanitize)
        assert finding.passed is (number % 10 != 9)
        if number % 50 == 49:
            print(f"{number + 1} trials after {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{count} trials took {time.perf_counter() - began:.0f} s; memory {memory} -> {memory_used()} MiB")
    assert left_behind() - before == set()
    assert memory_used() <= memory + 8
