"""`kernel`: one block of a suite that stands for several tiers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from upskill.checks import CheckBlock
from upskill.checks.kernel.kernel_check import Arch
from upskill.checks.workspace import Path

Tier = Literal["compiles", "resources", "project", "correct", "faster"]


class KernelTiers(CheckBlock):
    """The tiers of a CUDA kernel, each a check of its own: `kernel_compiles`, `kernel_resources`, `kernel_correct`,
    `kernel_faster`, and `kernel_project` where it is named. `task` is a Python file beside the suite."""

    task: str = ""
    file: Path = "kernel.cu"
    tiers: list[Tier] = Field(default_factory=lambda: ["compiles", "resources", "correct", "faster"], min_length=1)
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
        if not self.task and (running := [tier for tier in self.tiers if tier in ("correct", "faster")]):
            raise ValueError(f"the tier {running[0]!r} needs a task, a Python file beside the suite")
        limits = {"resources": "resources", "project": "project", "than": "faster", "at_least": "faster"}
        for said, tier in limits.items():
            if said in self.model_fields_set and tier not in self.tiers:
                raise ValueError(f"{said} says what to check, and tiers leaves it out: name {tier!r} there too")
        if self.timeout and not {"correct", "faster"} & {*self.tiers}:
            raise ValueError(
                "timeout is for the tiers on a GPU, correct and faster; compile_timeout is for the compiler"
            )
        return self

    @property
    def parts(self) -> list[dict[str, Any]]:
        shared: dict[str, Any] = {"file": self.file, "arch": self.arch}
        shared |= {"flags": self.flags} if self.flags else {}
        shared |= {"compile_timeout": self.compile_timeout} if self.compile_timeout else {}
        run = {**shared, "task": self.task} | ({"timeout": self.timeout} if self.timeout else {})
        said: dict[Tier, dict[str, Any]] = {
            "compiles": shared,
            "resources": shared | self.resources,
            "project": {"arch": self.arch} | self.project,
            "correct": run,
            "faster": run | {"than": self.than, "at_least": self.at_least},
        }
        return [{f"kernel_{tier}": said[tier]} for tier in self.tiers]
