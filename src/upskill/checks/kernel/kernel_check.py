"""What the tiers share: the file, the architecture, and the code they look at."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from upskill.checks import Evidence, Finding, ReadText, Text
from upskill.checks.kernel.build import Build, build, read_sources
from upskill.checks.kernel.gpu_process import expect_gpu
from upskill.checks.kernel.task import TaskHeader, read_task
from upskill.checks.workspace import Path, SandboxCheck
from upskill.sandboxes.nvcc import expect_architecture, find_toolchain


def _is_arch(text: str) -> str:
    if not re.fullmatch(r"sm_[0-9]{2,3}[af]?", text):
        raise ValueError(f"{text!r} is not an architecture; write it like sm_90a")
    return text


Arch = Annotated[str, AfterValidator(_is_arch)]


class KernelCheck(SandboxCheck):
    """A check of a CUDA file that was left, or that the answer has."""

    file: Path = "kernel.cu"
    arch: Arch = "sm_90a"
    flags: list[str] = Field(default_factory=list)
    compile_timeout: float = Field(default=120.0, gt=0, le=3600)
    reads_answer: ClassVar[bool] = True
    revision: ClassVar[int] = 2  # tiers could look at different blocks of an answer once; a fence closes behind code

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
        made = await build(evidence, sources, self.file, self.arch, flags=flags, seconds=self.compile_timeout)
        return Finding(False, f"does not compile for {self.arch}: {made.error}") if made.error else made


class TaskCheck(KernelCheck):
    """A check that runs the kernel. `source` is the text of the task, read with the suite."""

    task: Text
    source: SkipJsonSchema[Text]

    @classmethod
    def resolve(cls, said: dict[str, Any], read: ReadText) -> dict[str, Any]:
        if "source" in said or not isinstance(said.get("task"), str):
            return said
        return {**said, "source": read(said["task"]).removeprefix("\ufeff")}

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
