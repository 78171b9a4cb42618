"""Tiers 4 and 5 of the `kernel` check: recording, running, comparing and timing, with a CPU stand-in for the GPU."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import cpu_stand_in
from upskill.checks import Evidence, Finding, read_check
from upskill.checks.kernel import correct, gpu_process
from upskill.sandboxes import SANDBOXES, Sandbox, Setup
from upskill.traces import Step, Trace

FIXTURES = Path(__file__).parent / "fixtures"
HOSTILE = sorted((FIXTURES / "hostile_kernels").glob("*.cu"))
GOOD = (FIXTURES / "kernels" / "affine.cu").read_text(encoding="utf-8")


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    async with await SANDBOXES.load("bubblewrap")().open(Setup()) as opened:
        yield opened


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The runner and the referee on the CPU."""
    monkeypatch.setattr(gpu_process, "SERVER", (sys.executable, str(Path(cpu_stand_in.__file__))))
    monkeypatch.setattr(correct, "find_sanitizer", lambda: ())
    monkeypatch.setattr(gpu_process, "DEVICES", ("/dev/null",))
    monkeypatch.setattr(gpu_process, "KEPT_PREFIXES", (*gpu_process.KEPT_PREFIXES, "STAND_IN_"))


def beside(name: str) -> str:
    return (FIXTURES / "kernels" / name).read_text(encoding="utf-8")


async def look(tier: str, code: str, sandbox: Sandbox, **said: Any) -> Finding:
    evidence = Evidence(Trace((Step("assistant", f"Here it is:\n\n```cuda\n{code}```\n"),)), sandbox=sandbox)
    return await read_check({tier: {"task": "affine.py", **said}}, "suite.yaml", beside).check.run(evidence)


def on_cpu(code: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_KERNELS", str(cpu_stand_in.compile_for_cpu(code, place)))


@pytest.mark.usefixtures("stand_in")
async def test_a_right_kernel_is_right_and_as_fast_as_it_is(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu(GOOD, tmp_path, monkeypatch)
    assert await look("kernel_correct", GOOD, sandbox) == Finding(True, "right at 4 shapes (float32)")
    fast = await look("kernel_faster", GOOD, sandbox, at_least=1e-9, launches=10)
    assert fast.passed
    assert re.fullmatch(
        r"[\d.]+ µs: [\d.]+× the speed of PyTorch eager \[[\d.]+, [\d.]+\], [\d.]+× the speed of torch.compile"
        r" \[[\d.]+, [\d.]+\], \d+% of the bandwidth of a copy",
        fast.reason,
    )
    slow = await look("kernel_faster", GOOD, sandbox, at_least=1e9, launches=10, than=["eager"])
    assert not slow.passed
    assert slow.reason.endswith(", 1e+09 wanted")


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("file", HOSTILE, ids=lambda file: file.stem)
async def test_a_hostile_kernel_fails(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    code = file.read_text(encoding="utf-8")
    on_cpu(code, tmp_path, monkeypatch)
    tier = "kernel_faster" if file.stem in ("changes_the_clock", "skips_when_timed") else "kernel_correct"
    finding = await look(tier, code, sandbox, timeout=10.0)
    assert not finding.passed
    wanted = re.search(r"^// finding: (.*)", code, re.MULTILINE)
    assert wanted
    assert re.search(wanted[1], finding.reason), finding.reason
