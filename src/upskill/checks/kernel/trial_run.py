"""Runs a kernel on the GPU and compares its outputs with the reference.

A LaunchPlan is what a launcher does on the GPU: kernels with grids and arguments, fills and copies. The student's host
code never comes near a GPU: linked with `recorder.c` in place of the CUDA runtime, it runs in a sandbox, where it can
at most write a wrong plan. Another process, without that code, carries the plans out.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from upskill.checks import Evidence, Finding
from upskill.checks.kernel.build import Build, keep, open_build_sandbox
from upskill.checks.kernel.gpu_process import START_SECONDS, GpuProcess, Role, Silent
from upskill.checks.kernel.task import C_TYPES, Argument, Shape, TaskHeader
from upskill.checks.workspace import output_excerpt, sandbox_of
from upskill.errors import CheckError, MissingTool
from upskill.plain import digest
from upskill.sandboxes import Limits, MiB, Sandbox, printable
from upskill.sandboxes.gpu import find_toolchain, gpu_turn

SEEN = re.compile(
    r"========= (?!COMPUTE-SANITIZER|ERROR SUMMARY: 0 )(\S[^\n]*)"
)  # what compute-sanitizer objects to
RECORDER = Path(__file__).with_name("recorder.c")
STREAM = 0x5712EA3000  # stands for the stream that the launcher is given
MAX_STEPS = 256  # of one call
RECORD_SECONDS = 20.0

_UNDEFINED = re.compile(r"undefined reference to `([^'`]+)'")


class BadLauncher(Exception):
    """What the student's host code does cannot be carried out; the message is the reason."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What is to be run: shapes, how often each, what to time against, and a program to watch one small launch."""

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
        """The runner's findings, or why the kernel fails. One that was not correct is not run again for timing."""
        key = digest([self.build.cubin.hex(), self.build.host_object.hex(), self.source])
        if self.spec.than and key in _failed:
            return Finding(False, f"not timed, because it is not correct: {_failed[key]}")
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
                    how = (
                        f": {failure}; the GPU works again"
                        if isinstance(failure, Silent)
                        else f" {failure}"
                    )
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
                "watched": bool(self.spec.watched_by),
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

    async def _look(
        self, referee: GpuProcess, watched: GpuProcess | None, done: dict[str, Any]
    ) -> None:
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
        match = SEEN.search(watched.printed())
        if match or "failed" in answer:
            raise _Failed(
                f"under compute-sanitizer: {match[1].strip() if match else answer['failed']}"
            )


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
    message: dict[str, Any] = {"warm": ""}
    while "warm" in message:
        message = await _receive_trusted(process, "the GPU could not be used")
    return message


async def _receive_trusted(process: GpuProcess, otherwise: str) -> dict[str, Any]:
    """The message of a process that holds nothing of the student yet; MissingTool if it says nothing."""
    try:
        return await process.receive(START_SECONDS)
    except Silent as silent:
        raise MissingTool(f"{otherwise}: {silent}") from silent


class _Failed(Exception):
    """The kernel broke while it ran; the message says where and how."""


class _Wrong(Exception):
    """An output is not what it should be."""


async def probe(kind: str) -> None:
    """Check that the GPU still works after a kernel broke; if it does not, no answer is to blame."""
    with _processes(kind) as start:
        process = start("runner")
        process.say({"mode": "probe"})
        try:
            await process.receive(START_SECONDS)
        except Silent as silent:
            raise MissingTool(
                f"the GPU stopped responding after this kernel: {silent}; reset it or reboot"
            ) from silent


Step = list[
    Any
]  # ["launch", name, grid, block, shared, cooperative, cluster, arguments], ["memset", …], …
LaunchPlan = list[Step]  # plain values: it is sent to another process


async def record(
    evidence: Evidence, build: Build, header: TaskHeader, device: Mapping[str, Any]
) -> list[LaunchPlan]:
    """The plan of every call that a process beside the GPU wants to make; it says what the GPU is like."""
    toolchain = find_toolchain()
    async with open_build_sandbox(evidence, toolchain, 60.0) as sandbox:
        plans: list[LaunchPlan] = []
        for entry in dict.fromkeys(call["entry"] for call in device["calls"]):
            calls = [call["words"] for call in device["calls"] if call["entry"] == entry]
            await _link(sandbox, build, header, entry, toolchain.include)
            limits = Limits(
                wall=RECORD_SECONDS, cpu=RECORD_SECONDS, memory=1024 * MiB, output=32 * MiB
            )
            lines = "".join(_recorder_input(build, header, calls, device))
            done = await sandbox.run([f"./{entry}.recorder"], limits, stdin=lines.encode())
            ended = output_excerpt(
                replace(done, output="")
            )  # what it prints; the plan itself says nothing to a person
            plans += read_plans(done.output, build, len(calls), ended)
    return plans


async def _link(
    sandbox: Sandbox, build: Build, header: TaskHeader, entry: str, include: str
) -> None:
    await sandbox.write("kernel.o", build.host_object)
    await sandbox.write("recorder.c", RECORDER.read_bytes())
    await sandbox.write("call.c", call_in_c(entry, header.arguments))
    options = ("-O1", f"-I{include}", "-lstdc++", "-lm", "-Wl,--gc-sections")
    sources = ("recorder.c", "call.c", "kernel.o")
    done = await sandbox.run(["gcc", *sources, *options, "-o", f"{entry}.recorder"])
    if done.code:
        raise _not_linked(printable(done.error), header, entry)


def _not_linked(error: str, header: TaskHeader, entry: str) -> Exception:
    missing = [name for name in dict.fromkeys(_UNDEFINED.findall(error)) if name != entry]
    if missing:
        return BadLauncher(
            f"the launcher calls {', '.join(missing[:5])}, which is not available to a kernel"
        )
    if _UNDEFINED.search(error):
        return BadLauncher(
            f'there is no function extern "C" void {entry}({header.signature}, cudaStream_t stream)'
        )
    if "multiple definition" in error:
        twice = re.search(r"multiple definition of `([^'`]+)'", error)
        return BadLauncher(
            f"the file defines {twice[1] if twice else 'a function'}, which is CUDA's own"
        )
    return CheckError(f"the launcher could not be linked: {error[-400:]}")


def call_in_c(entry: str, arguments: Sequence[Argument]) -> str:
    """C code that calls the launcher with words as arguments of its own types."""
    types = [C_TYPES[argument.kind] for argument in arguments]
    values = [
        f"as_{argument.kind}(w[{number}])"
        if argument.kind in ("float", "double")
        else f"({kind})w[{number}]"
        for number, (argument, kind) in enumerate(zip(arguments, types, strict=True))
    ]
    return f"""#include <stdint.h>
#include <string.h>
extern void {entry}({", ".join([*types, "void *"])});
static inline float as_float(uint64_t w) {{ float f; memcpy(&f, &w, 4); return f; }}
static inline double as_double(uint64_t w) {{ double f; memcpy(&f, &w, 8); return f; }}
void upskill_call(const uint64_t *w) {{ {entry}({", ".join([*values, f"(void *)w[{len(types)}]"])}); }}
"""


def _recorder_input(
    build: Build, header: TaskHeader, calls: Sequence[Sequence[int]], device: Mapping[str, Any]
) -> Iterator[str]:
    for which, value in device["attributes"].items():
        yield f"D {which} {value}\n"
    yield f"M {device['scratch']:x} {header.scratch}\n"
    for kernel in build.kernels:
        sizes = " ".join(
            map(str, (kernel.registers, kernel.shared, len(kernel.parameters), *kernel.parameters))
        )
        yield f"K {kernel.name} {sizes}\n"
    for call in calls:
        yield "C " + " ".join(f"{word:x}" for word in (*call, STREAM)) + "\n"


def read_plans(output: str, build: Build, count: int, ended: str) -> list[LaunchPlan]:
    """The plans that the recorder wrote. Nothing of it is trusted: the student's code shared its process."""
    sizes = {kernel.name: kernel.parameters for kernel in build.kernels}
    plans: list[LaunchPlan] = []
    plan: LaunchPlan | None = None
    for line in output.splitlines():
        if line == "call":
            plan = []
        elif line == "end" and plan is not None:
            if all(step[0] == "attribute" for step in plan):
                raise BadLauncher(f"the launcher launches nothing in call {len(plans) + 1}")
            plans.append(plan)
            plan = None
        elif plan is not None and len(plan) < MAX_STEPS:
            try:
                plan.append(_read_step(line.split(" "), sizes))
            except (ValueError, IndexError, KeyError):
                raise BadLauncher("the launcher left no readable plan") from None
        else:
            raise BadLauncher(f"the launcher takes more than {MAX_STEPS} steps in one call")
    if len(plans) != count:
        raise BadLauncher(
            f"the launcher did not return from call {min(len(plans) + 1, count)}: {ended}"
        )
    return plans


def _read_step(fields: list[str], sizes: Mapping[str, tuple[int, ...]]) -> Step:
    kind, *values = fields
    if kind == "attribute" and values[0] in sizes:
        return ["attribute", values[0], int(values[1]), int(values[2])]
    if kind in ("memset", "memcpy"):
        _expect_stream(values[3])
        if int(values[2]) < 0:
            raise ValueError(values[2])
        return [
            kind,
            int(values[0], 16),
            int(values[1], 10 if kind == "memset" else 16),
            int(values[2]),
        ]
    if kind != "launch":
        raise ValueError(kind)
    _expect_stream(values[8])
    grid, block, cluster = ([int(word) for word in values[at : at + 3]] for at in (1, 4, 10))
    arguments = [bytes.fromhex(word) for word in values[13:]]
    if tuple(map(len, arguments)) != sizes[values[0]]:
        raise ValueError(values[0])
    hex_arguments = [argument.hex() for argument in arguments]
    return [
        "launch",
        values[0],
        grid,
        block,
        int(values[7]),
        int(values[9]),
        cluster,
        hex_arguments,
    ]


def _expect_stream(word: str) -> None:
    if int(word, 16) != STREAM:
        which = "the default stream" if int(word, 16) in (0, 1, 2) else "a stream of its own"
        raise BadLauncher(f"the launcher works on {which}, not on the stream it was given")
