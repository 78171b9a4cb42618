"""A kernel on the GPU, from its build to what came of it: recorded, run, and held against the reference."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from upskill.checks import Evidence, Finding
from upskill.checks.kernel.build import Build, keep
from upskill.checks.kernel.gpu_process import START_SECONDS, GpuProcess, Role, Silent
from upskill.checks.kernel.plans import BadLauncher, record
from upskill.checks.kernel.task import Shape, TaskHeader
from upskill.checks.workspace import sandbox_of
from upskill.errors import MissingTool
from upskill.plain import digest
from upskill.sandboxes.gpu import gpu_turn

SEEN = re.compile(r"========= (?!COMPUTE-SANITIZER|ERROR SUMMARY: 0 )(\S[^\n]*)")  # what compute-sanitizer objects to


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What is to be run: shapes, how often each, and what to time against; nothing there for a check of outputs.

    `watched_by` is a program that one small launch is run under as well.
    """

    shapes: Sequence[Shape]
    repeat: int = 3
    warmup: int = 0
    than: Sequence[str] = ()
    seconds: float = 60.0
    watched_by: Sequence[str] = ()


_failed: dict[str, str] = {}  # why kernels were not correct, so that nobody times them


@dataclass(frozen=True, slots=True)
class GpuRun:
    """One kernel of one trial, with the GPU to itself."""

    evidence: Evidence
    build: Build
    source: str  # of the task
    header: TaskHeader
    arch: str
    spec: RunSpec

    async def run(self) -> dict[str, Any] | Finding:
        """What the runner found, once the referee has looked at every output; or why the kernel fails.

        A kernel that was not correct is not run again to be timed.
        """
        key = digest([self.build.cubin.hex(), self.build.host_object.hex(), self.source])
        if self.spec.than and key in _failed:
            return Finding(False, f"not timed, as it is not correct: {_failed[key]}")
        measured = await self._run()
        if isinstance(measured, Finding) and not self.spec.than:
            keep(_failed, key, measured.reason)
        return measured

    async def _run(self) -> dict[str, Any] | Finding:
        kind = sandbox_of(self.evidence).kind
        with _processes(kind, self.spec.watched_by) as start:
            runner, referee = start("runner"), start("referee")
            async with gpu_turn():
                watched = start("watched") if self.spec.watched_by else None
                try:
                    answer = await self._launch(runner, referee)
                    if "failed" in answer:
                        raise _Failed(answer["failed"])
                    runner.close()
                    await self._look(referee, watched, answer["done"])
                except BadLauncher as failure:
                    return Finding(False, f"the kernel fails: {failure}")
                except (Silent, _Failed) as failure:
                    runner.close()
                    await probe(kind)
                    how = f": {failure}; the GPU works again" if isinstance(failure, Silent) else f" {failure}"
                    return Finding(False, f"the kernel fails{how}")
                except _Wrong as wrong:
                    return Finding(False, f"the kernel is wrong {wrong}")
        return answer["done"]

    async def _launch(self, runner: GpuProcess, referee: GpuProcess) -> dict[str, Any]:
        runner.say(
            {
                "task": self.source,
                "mode": "time" if self.spec.than else "check",
                "arch": self.arch,
                "seed": secrets.randbits(128),
                "cubin": self.build.cubin.hex(),
                "shapes": self.spec.shapes,
                "repeat": self.spec.repeat,
                "warmup": self.spec.warmup,
                "than": self.spec.than,
            }
        )
        if not self.spec.than:  # nothing is timed, so it may make its context at once
            referee.say({"warm": True})
        calls = await _expect_calls(runner)
        if self.spec.than:  # meanwhile, so that it has its context before the first launch is timed
            referee.say({"warm": True})
        plans = await record(self.evidence, self.build, self.header, calls)
        await _receive_trusted(referee, "the GPU could not be used")
        runner.say({"plans": plans})
        return await runner.receive(self.spec.seconds)

    async def _look(self, referee: GpuProcess, watched: GpuProcess | None, done: dict[str, Any]) -> None:
        """Compare all outputs; where a tool watches a launch as well, at the same time. Nothing is timed any more."""
        watching = asyncio.create_task(self._watch(watched, done["watched"])) if watched else None
        try:
            referee.say({"task": self.source, "runs": done["runs"], "timed": bool(self.spec.than)})
            judged = await _receive_trusted(referee, "the reference could not be computed")
            if judged["done"]["wrong"]:
                raise _Wrong(judged["done"]["wrong"])
            if watching:
                await watching
        finally:
            if watching:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, watched: GpuProcess, call: dict[str, Any]) -> None:
        watched.say({**call, "cubin": self.build.cubin.hex(), "scratch": self.header.scratch})
        calls = await _expect_calls(watched)
        watched.say({"plans": await record(self.evidence, self.build, self.header, calls)})
        answer = await watched.receive(4 * self.spec.seconds)
        await watched.end(START_SECONDS)
        seen = SEEN.search(watched.printed())
        if seen or "failed" in answer:
            raise _Failed(f"under compute-sanitizer: {seen[1].strip() if seen else answer['failed']}")


@contextmanager
def _processes(kind: str, tool: Sequence[str] = ()) -> Generator[Callable[[Role], GpuProcess]]:
    """Starts processes that share a file without a name; all of them end with the block."""
    with ExitStack() as closing:
        store = os.memfd_create("outputs")
        closing.callback(os.close, store)

        def start(role: Role) -> GpuProcess:
            process = GpuProcess(role, store, kind, tool)
            closing.callback(process.close)
            return process

        yield start


async def _expect_calls(process: GpuProcess) -> dict[str, Any]:
    """The calls of the launcher that a process wants to make."""
    message: dict[str, Any] = {"warm": ""}
    while "warm" in message:
        message = await _receive_trusted(process, "the GPU could not be used")
    return message


async def _receive_trusted(process: GpuProcess, otherwise: str) -> dict[str, Any]:
    """What a process says in which nothing of the student has been yet; MissingTool where it says nothing."""
    try:
        return await process.receive(START_SECONDS)
    except Silent as silent:
        raise MissingTool(f"{otherwise}: {silent}") from silent


class _Failed(Exception):
    """The kernel broke while it ran; the message says where and how."""


class _Wrong(Exception):
    """An output is not what it should be."""


async def probe(kind: str) -> None:
    """See that the GPU still works after a kernel broke; where it does not, that is nobody's answer."""
    with _processes(kind) as start:
        process = start("runner")
        process.say({"mode": "probe"})
        try:
            await process.receive(START_SECONDS)
        except Silent as silent:
            raise MissingTool(
                f"the GPU no longer answers after this kernel: {silent}; reset it or start the machine again"
            ) from silent
