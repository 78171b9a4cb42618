"""Tier 1: the code compiles to a cubin."""

from __future__ import annotations

from upskill.checks import Evidence, Finding
from upskill.checks.kernel.kernel_check import KernelCheck


class KernelCompiles(KernelCheck):
    """Passes when this CUDA file compiles to a cubin for this architecture. Where the workspace has no such file, the
    code is taken from the answer. nvcc comes from the PATH or from `upskill[cuda]`."""

    async def run(self, evidence: Evidence) -> Finding:
        made = await self.build(evidence)
        if isinstance(made, Finding):
            return made
        names = ", ".join(kernel.name for kernel in made.kernels[:3]) + (", …" if len(made.kernels) > 3 else "")
        return Finding(True, f"compiles to a cubin for {self.arch}: {names}")
