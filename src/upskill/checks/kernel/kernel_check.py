"""What the tiers share: the file, the architecture, and the code they look at."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from upskill.checks import Evidence, Finding, ReadText, Text
from upskill.checks.kernel.build import Build, build, read_sources
from upskill.checks.kernel.gpu_process import expect_gpu
from upskill.checks.kernel.task import TaskHeader, read_task
from upskill.checks.workspace import Path, SandboxCheck
from upskill.sandboxes.nvcc import find_toolchain


def _is_arch(text: str) -> str:
    digits = text.removeprefix("sm_").rstrip("af")
    if not text.startswith("sm_") or not digits.isdigit() or len(digits) not in (2, 3):
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
    revision: ClassVar[int] = 1  # tiers could look at different blocks of an answer once

    @property
    def entry(self) -> str:
        """What the code has beside a kernel: its launcher, whose name only a task knows."""
        return 'extern "C"'

    def expect_tools(self) -> None:
        find_toolchain()

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
        return {**said, "source": read(said["task"])}

    @field_validator("source")
    @classmethod
    def _is_task(cls, source: str) -> str:
        read_task(source)
        return source

    def expect_tools(self) -> None:
        super().expect_tools()
        expect_gpu()

    @property
    def header(self) -> TaskHeader:
        return read_task(self.source)

    @property
    def entry(self) -> str:
        return self.header.entry(self.header.dtypes[0])
