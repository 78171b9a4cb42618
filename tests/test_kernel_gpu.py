"""Tiers 4 and 5 of the `kernel` check on a real GPU: right kernels pass, and hostile ones fail."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
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


async def test_right_kernels_pass_in_every_dtype_also_where_rows_lie_apart(
    sandbox: Sandbox,
) -> None:
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
    tier = (
        "kernel_faster"
        if file.stem in ("changes_the_clock", "skips_when_timed")
        else "kernel_correct"
    )
    finding = await look(tier, code, sandbox, task="affine_on_gpu.py", timeout=6.0)
    assert not finding.passed
    wanted = re.search(r"^// finding: (.*)", code, re.MULTILINE)
    assert wanted
    assert re.search(wanted[1], finding.reason), finding.reason
    after = await look(
        "kernel_correct", beside("affine.cu"), sandbox, task="affine_on_gpu.py", sanitize=False
    )
    assert after.passed


async def test_an_access_outside_that_changes_nothing_is_seen_by_the_sanitizer(
    sandbox: Sandbox,
) -> None:
    if not find_sanitizer():
        pytest.skip("compute-sanitizer is not installed")
    code = beside("affine.cu").replace("if (i < n) out[i] = 2.0f * x[i] + 1.0f;", READS_BEHIND)
    finding = await look("kernel_correct", code, sandbox, task="affine_on_gpu.py")
    assert not finding.passed
    assert "under compute-sanitizer: Invalid __global__ read" in finding.reason
    assert (
        await look("kernel_correct", code, sandbox, task="affine_on_gpu.py", sanitize=False)
    ).passed
