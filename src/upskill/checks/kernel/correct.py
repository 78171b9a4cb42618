"""Tier 4: the kernel is right, on a GPU."""

from __future__ import annotations

import os
import shutil

from pydantic import Field

from upskill.checks import Evidence, Finding
from upskill.checks.kernel.gpu_process import expect_gpu
from upskill.checks.kernel.kernel_check import TaskCheck
from upskill.checks.kernel.trial_run import GpuRun, Wanted


class KernelCorrect(TaskCheck):
    """Passes when the kernel of this CUDA file computes what the task says (a Python file beside the suite), on a GPU:
    at all its shapes and dtypes, on inputs drawn after the answer is fixed, within its tolerance, twice the same,
    writing nothing but its outputs, also under compute-sanitizer where that is installed. A crash, a hang or a wrong
    launch is its failure."""

    timeout: float = Field(default=60.0, gt=0, le=3600)
    sanitize: bool = True

    async def run(self, evidence: Evidence) -> Finding:
        expect_gpu()
        made = await self.build(evidence)
        if isinstance(made, Finding):
            return made
        header = self.header
        shapes = [*header.shapes, *([header.timed] if header.timed and header.timed not in header.shapes else [])]
        wanted = Wanted(shapes, seconds=self.timeout, watched_by=find_sanitizer() if self.sanitize else ())
        found = await GpuRun(evidence, made, self.source, header, self.arch, wanted).run()
        if isinstance(found, Finding):
            return found
        cases = len(shapes) * len(header.dtypes)
        return Finding(True, f"right at {cases} shape{'s' if cases != 1 else ''} ({', '.join(header.dtypes)})")


def find_sanitizer() -> tuple[str, ...]:
    """compute-sanitizer with its memory checker; nothing where it is not installed."""
    found = shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
    return (found, "--tool", "memcheck", "--report-api-errors", "no", "--print-limit", "1") if found else ()
