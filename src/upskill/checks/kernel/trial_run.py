"""A kernel on the GPU, from its file to what came of it: built, recorded, run, and held against the reference."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from upskill.checks import Evidence, Finding
from upskill.checks.kernel import gpu_process
from upskill.checks.kernel.build import Build
from upskill.checks.kernel.gpu_process import START_SECONDS, GpuProcess, Silent, gpu_turn
from upskill.checks.kernel.plans import BadLauncher, Call, record
from upskill.checks.kernel.runner import GUARD
from upskill.checks.kernel.task import Shape, TaskHeader
from upskill.errors import MissingTool

REFEREE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be run: shapes, how often each, and what to time against; nothing there for a check of outputs."""

    shapes: Sequence[Shape]
    repeat: int = 3
    warmup: int = 0
    than: Sequence[str] = ()
    seconds: float = 60.0
    watched_by: Sequence[str] = ()  # a program that the runner is run by

    @property
    def mode(self) -> str:
        return "time" if self.than else "check"


async def run_on_gpu(
    evidence: Evidence, build: Build, source: str, header: TaskHeader, arch: str, wanted: Wanted
) -> dict[str, Any] | Finding:
    """What the runner found, once the referee has looked at every output; or why the kernel fails."""
    store = os.memfd_create("outputs")
    runner = GpuProcess([*wanted.watched_by, *gpu_process.RUNNER], store)
    referee = GpuProcess(gpu_process.REFEREE, store)
    try:
        async with gpu_turn():
            request = {
                "task": source,
                "mode": wanted.mode,
                "arch": arch,
                "seed": secrets.randbits(48),
                "cubin": build.cubin.hex(),
                "shapes": wanted.shapes,
                "repeat": wanted.repeat,
                "warmup": wanted.warmup,
                "than": wanted.than,
                "guard": 0 if wanted.watched_by else GUARD,
            }
            try:
                found = await _run(evidence, build, header, runner, request, wanted.seconds)
            except (BadLauncher, Silent) as failure:
                if isinstance(failure, Silent):
                    await _probe(runner)
                return Finding(False, f"the kernel fails: {failure}")
            said = runner.said()
            if "failed" in found:
                await _probe(runner)
                return Finding(False, f"the kernel fails {found['failed']}" + _watched(said))
            runner.close()
            referee.say({"task": source, "runs": found["done"]["runs"], "timed": wanted.mode == "time"})
            try:
                judged = await referee.hear(REFEREE_SECONDS)
            except Silent as silent:
                raise MissingTool(f"the reference could not be computed: {silent}; {referee.said()}") from silent
            if judged["done"]["wrong"]:
                return Finding(False, f"the kernel is wrong {judged['done']['wrong']}")
            return found["done"]
    finally:
        runner.close()
        referee.close()
        os.close(store)


def _watched(said: str) -> str:
    """What a tool that watches every access has seen, where one did."""
    seen = re.search(r"========= (Invalid [^\n]*)", said)
    return f" ({seen[1]})" if seen else ""


async def _run(
    evidence: Evidence, build: Build, header: TaskHeader, runner: GpuProcess, request: dict[str, Any], seconds: float
) -> dict[str, Any]:
    runner.say(request)
    try:
        message = await runner.hear(START_SECONDS)
        while "warm" in message:
            message = await runner.hear(START_SECONDS)
    except Silent as silent:  # nothing of the student has been there yet
        raise MissingTool(f"the GPU could not be used: {silent}") from silent
    calls = [Call(call["entry"], call["words"]) for call in message["calls"]]
    runner.say({"plans": await record(evidence, build, header, calls, message)})
    return await runner.hear(seconds)


async def _probe(runner: GpuProcess) -> None:
    """End the runner, and see that the GPU still works; where it does not, that is nobody's answer."""
    runner.close()
    store = os.memfd_create("nothing")
    probe = GpuProcess(gpu_process.RUNNER, store)
    try:
        probe.say({"mode": "probe"})
        await probe.hear(START_SECONDS)
    except Silent as silent:
        raise MissingTool(f"the GPU no longer answers after this kernel: {silent}; reset it or start again") from silent
    finally:
        probe.close()
        os.close(store)
