"""Tier 2: what the kernel takes of the multiprocessor."""

from __future__ import annotations

from pydantic import Field

from upskill.checks import Evidence, Finding
from upskill.checks.kernel.kernel_check import KernelCheck

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
        limits = {name: limit for name in UNITS if (limit := getattr(self, name)) is not None} or {"spills": 0}
        used = {name: max(getattr(kernel, name) for kernel in made.kernels) for name in UNITS}
        for kernel in made.kernels:
            for name, limit in limits.items():
                if (found := getattr(kernel, name)) > limit:
                    return Finding(False, f"{kernel.name} has {found} {UNITS[name]}, and may have {limit}")
        return Finding(True, ", ".join(f"{count} {UNITS[name]}" for name, count in used.items()))
