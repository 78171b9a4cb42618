"""The tiers of a CUDA kernel, each a check, and `kernel`, a line that stands for several of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from upskill.checks import CheckBlock, Evidence, Finding, ReadText, Text
from upskill.checks.kernel.build import Arch, Build, build, read_sources
from upskill.checks.kernel.gpu_process import expect_gpu
from upskill.checks.kernel.task import TaskHeader, read_task
from upskill.checks.kernel.trial_run import GpuRun, RunSpec
from upskill.checks.workspace import Path, SandboxCheck
from upskill.sandboxes.gpu import expect_architecture, find_toolchain

WARMUP = 3  # launches before those that are timed


class KernelCheck(SandboxCheck):
    """A check of a CUDA file that was left, or that the answer has."""

    file: Path = "kernel.cu"
    arch: Arch = "sm_90a"
    flags: list[str] = Field(default_factory=list)
    compile_timeout: float = Field(default=120.0, gt=0, le=3600)
    reads_answer: ClassVar[bool] = True
    revision: ClassVar[int] = (
        2  # tiers could look at different blocks of an answer once; a fence closes behind code
    )

    @property
    def paths(self) -> Sequence[str]:
        return [self.file]

    @property
    def entry(self) -> str:
        """What the code has beside a kernel: its launcher, whose name only a task knows."""
        return 'extern "C"'

    def expect_tools(self) -> None:
        expect_architecture(find_toolchain().nvcc, self.arch)

    async def build(self, evidence: Evidence) -> Build | Finding:
        """What the compiler makes of the code; a finding where there is none, or it does not compile."""
        sources = await read_sources(evidence, self.file, self.entry)
        if isinstance(sources, Finding):
            return sources
        flags = tuple(self.flags)
        made = await build(
            evidence, sources, self.file, self.arch, flags=flags, seconds=self.compile_timeout
        )
        return (
            Finding(False, f"does not compile for {self.arch}: {made.error}")
            if made.error
            else made
        )


class TaskCheck(KernelCheck):
    """A check that runs the kernel. `source` is the text of the task, read with the suite."""

    task: Text
    source: SkipJsonSchema[Text]
    needs_gpu: ClassVar[bool] = True

    @classmethod
    def resolve(cls, config: dict[str, Any], read: ReadText) -> dict[str, Any]:
        if "source" in config or not isinstance(config.get("task"), str):
            return config
        return {**config, "source": read(config["task"]).removeprefix("\ufeff")}

    @model_validator(mode="after")
    def _is_task(self) -> Self:
        try:
            read_task(self.source)
        except ValueError as error:
            raise ValueError(f"{self.task}: {error}") from error
        return self

    def expect_tools(self) -> None:
        super().expect_tools()
        expect_gpu()

    @property
    def header(self) -> TaskHeader:
        return read_task(self.source)

    @property
    def entry(self) -> str:
        return self.header.entry(self.header.dtypes[0])

    async def run_on_gpu(self, evidence: Evidence, spec: RunSpec) -> dict[str, Any] | Finding:
        """What the runner measured; a finding where the kernel fails."""
        expect_gpu()
        build = await self.build(evidence)
        if isinstance(build, Finding):
            return build
        run = GpuRun(
            evidence=evidence,
            build=build,
            source=self.source,
            header=self.header,
            arch=self.arch,
            spec=spec,
        )
        return await run.run()


class KernelCompiles(KernelCheck):
    """Passes when this CUDA file compiles to a cubin for this architecture. Where the workspace has no such file, the
    code is taken from the answer. nvcc comes from the PATH or from `upskill[cuda]`."""

    async def run(self, evidence: Evidence) -> Finding:
        made = await self.build(evidence)
        if isinstance(made, Finding):
            return made
        names = ", ".join(kernel.name for kernel in made.kernels[:3]) + (
            ", …" if len(made.kernels) > 3 else ""
        )
        return Finding(True, f"compiles for {self.arch}: {names}")


UNITS = {
    "registers": "registers",
    "spills": "bytes of spills",
    "shared": "bytes of shared memory",
    "stack": "bytes of stack",
}


class KernelResources(KernelCheck):
    """Passes when every kernel of this CUDA file stays within these limits, by what ptxas reports: registers of a
    thread, bytes spilled, bytes of shared memory that it declares, bytes of stack. Without any, it may not spill."""

    registers: int | None = Field(default=None, ge=1, le=255)
    spills: int | None = Field(default=None, ge=0)
    shared: int | None = Field(default=None, ge=0)
    stack: int | None = Field(default=None, ge=0)

    async def run(self, evidence: Evidence) -> Finding:
        made = await self.build(evidence)
        if isinstance(made, Finding):
            return made
        limits = {name: limit for name in UNITS if (limit := getattr(self, name)) is not None} or {
            "spills": 0
        }
        used = {name: max(getattr(kernel, name) for kernel in made.kernels) for name in UNITS}
        for kernel in made.kernels:
            for name, limit in limits.items():
                if (used_count := getattr(kernel, name)) > limit:
                    return Finding(
                        False,
                        f"{kernel.name} has {used_count} {UNITS[name]}, and at most {limit} are allowed",
                    )
        return Finding(True, ", ".join(f"{count} {UNITS[name]}" for name, count in used.items()))


class KernelCorrect(TaskCheck):
    """Passes when the kernel of this CUDA file computes what the task says (a Python file beside the suite), on a GPU:
    at all its shapes and dtypes, on inputs drawn after the answer is fixed, within its tolerance, twice the same,
    writing nothing but its outputs, also under compute-sanitizer where that is installed. A crash, a hang or a wrong
    launch is its failure."""

    timeout: float = Field(default=60.0, gt=0, le=3600)
    sanitize: bool = True

    async def run(self, evidence: Evidence) -> Finding:
        header = self.header
        timed = [header.timed] if header.timed and header.timed not in header.shapes else []
        sanitizer = find_sanitizer() if self.sanitize else ()
        for shapes in filter(
            None, (header.shapes, timed)
        ):  # most wrong kernels never get to the large shape
            measured = await self.run_on_gpu(
                evidence, RunSpec(shapes, seconds=self.timeout, watched_by=sanitizer)
            )
            if isinstance(measured, Finding):
                return measured
            sanitizer = ()
        cases = len([*header.shapes, *timed]) * len(header.dtypes)
        return Finding(
            True, f"right at {cases} shape{'s' if cases != 1 else ''} ({', '.join(header.dtypes)})"
        )


def find_sanitizer() -> tuple[str, ...]:
    program = shutil.which(
        "compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin"
    )
    return (
        (program, "--tool", "memcheck", "--report-api-errors", "no", "--print-limit", "1")
        if program
        else ()
    )


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
            raise ValueError("`than` is empty; name eager, compile or both")
        if self.header.timed is None:
            raise ValueError(f"{self.task} has no TIMED (the shape to time)")
        return self

    async def run(self, evidence: Evidence) -> Finding:
        timed = self.header.timed
        assert timed is not None
        repeat = self.launches + WARMUP
        spec = RunSpec([timed], repeat=repeat, warmup=WARMUP, than=self.than, seconds=self.timeout)
        measured = await self.run_on_gpu(evidence, spec)
        return measured if isinstance(measured, Finding) else speed_finding(measured, self.at_least)


RESAMPLES = 2000
LEVEL = 0.95
RIVALS = {"eager": "PyTorch eager", "compile": "torch.compile"}


def compare_speed(kernel: Sequence[float], rival: Sequence[float]) -> tuple[float, float, float]:
    """How many times as long the rival takes, by medians, with an interval; above 1 the kernel is faster."""
    random = np.random.default_rng(0)
    ours, theirs = np.asarray(kernel), np.asarray(rival)
    resampled = np.median(
        theirs[random.integers(0, len(theirs), (RESAMPLES, len(theirs)))], axis=1
    ) / np.median(ours[random.integers(0, len(ours), (RESAMPLES, len(ours)))], axis=1)
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(np.median(theirs) / np.median(ours)), float(low), float(high)


def speed_finding(measured: dict[str, Any], at_least: float) -> Finding:
    kernel, *others = measured["times"].items()
    ratios = {name: compare_speed(kernel[1], times) for name, times in others}
    parts = [
        f"{ratio:.2f}× the speed of {RIVALS[name]} [{low:.2f}, {high:.2f}]"
        for name, (ratio, low, high) in ratios.items()
    ]
    seconds = float(np.median(kernel[1]))
    if measured.get("bytes") and measured.get("copy_bandwidth"):
        share = measured["bytes"] / seconds / measured["copy_bandwidth"]
        parts.append(f"{share:.0%} of the bandwidth of a copy")
    slower = any(ratio < at_least for ratio, _, _ in ratios.values())
    if slower:
        parts.append(f"{at_least:g} required")
    return Finding(not slower, f"{seconds * 1e6:.1f} µs: {', '.join(parts)}")


Tier = Literal["compiles", "resources", "project", "correct", "faster"]


class KernelTiers(CheckBlock):
    """The tiers of a CUDA kernel, each a check of its own: `kernel_compiles`, `kernel_resources`, `kernel_correct`,
    `kernel_faster`, and `kernel_project` where it is named. `task` is a Python file beside the suite."""

    task: str = ""
    file: Path = "kernel.cu"
    tiers: list[Tier] = Field(
        default_factory=lambda: ["compiles", "resources", "correct", "faster"], min_length=1
    )
    arch: Arch = "sm_90a"
    flags: list[str] = Field(default_factory=list)
    resources: dict[str, int] = Field(default_factory=dict)
    project: dict[str, Any] = Field(default_factory=dict)
    than: list[Literal["eager", "compile"]] = Field(default_factory=lambda: ["eager", "compile"])
    at_least: float = Field(default=1.0, gt=0)
    timeout: float | None = Field(default=None, gt=0, le=3600)
    compile_timeout: float | None = Field(default=None, gt=0, le=3600)

    @model_validator(mode="after")
    def _decides(self) -> KernelTiers:
        if again := [tier for tier in self.tiers if self.tiers.count(tier) > 1]:
            raise ValueError(f"tiers names {again[0]!r} twice")
        if not self.task and (
            running := [tier for tier in self.tiers if tier in ("correct", "faster")]
        ):
            raise ValueError(
                f"the {running[0]!r} tier needs a task, a Python file beside the suite"
            )
        limits = {
            "resources": "resources",
            "project": "project",
            "than": "faster",
            "at_least": "faster",
        }
        for option, tier in limits.items():
            if option in self.model_fields_set and tier not in self.tiers:
                raise ValueError(f"{option} is set, but tiers does not list {tier!r}; add it there")
        if self.timeout and not {"correct", "faster"} & {*self.tiers}:
            raise ValueError(
                "timeout applies to the GPU tiers (correct, faster); compile_timeout applies to the compiler"
            )
        return self

    @property
    def parts(self) -> list[dict[str, Any]]:
        shared: dict[str, Any] = {"file": self.file, "arch": self.arch}
        shared |= {"flags": self.flags} if self.flags else {}
        shared |= {"compile_timeout": self.compile_timeout} if self.compile_timeout else {}
        run = {**shared, "task": self.task} | ({"timeout": self.timeout} if self.timeout else {})
        configs: dict[Tier, dict[str, Any]] = {
            "compiles": shared,
            "resources": shared | self.resources,
            "project": {"arch": self.arch} | self.project,
            "correct": run,
            "faster": run | {"than": self.than, "at_least": self.at_least},
        }
        return [{f"kernel_{tier}": configs[tier]} for tier in self.tiers]
