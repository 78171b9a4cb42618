"""Tier 5: the kernel is at least as fast as PyTorch, on a GPU."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from upskill.checks import Evidence, Finding
from upskill.checks.kernel.gpu_process import expect_gpu
from upskill.checks.kernel.kernel_check import TaskCheck
from upskill.checks.kernel.speed import compare_speed
from upskill.checks.kernel.trial_run import GpuRun, Wanted


class KernelFaster(TaskCheck):
    """Passes when the kernel of this CUDA file takes at most the time that PyTorch takes at the task's TIMED shape,
    eager and compiled, each over `at_least`: medians of launches that take turns, by CUDA events, with the L2 cache
    flushed. Every timed launch has an input of its own, and every output of one has to be right."""

    than: list[Literal["eager", "compile"]] = Field(default_factory=lambda: ["eager", "compile"])
    at_least: float = Field(default=1.0, gt=0)
    launches: int = Field(default=20, ge=10, le=1000)
    timeout: float = Field(default=120.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _decides(self) -> KernelFaster:
        if not self.than:
            raise ValueError("than is empty: name eager, compile or both")
        if self.header.timed is None:
            raise ValueError(f"{self.task} has no TIMED, the shape to be timed")
        return self

    async def run(self, evidence: Evidence) -> Finding:
        expect_gpu()
        made = await self.build(evidence)
        if isinstance(made, Finding):
            return made
        header = self.header
        assert header.timed is not None
        wanted = Wanted([header.timed], self.launches + WARMUP, WARMUP, tuple(self.than), self.timeout)
        found = await GpuRun(evidence, made, self.source, header, self.arch, wanted).run()
        if isinstance(found, Finding):
            return found
        speed = compare_speed(found)
        slower = [one for one in speed.rivals if one.ratio < self.at_least]
        wants = f", {self.at_least:g} wanted" if slower else ""
        return Finding(not slower, f"{speed}{wants}")


WARMUP = 3
