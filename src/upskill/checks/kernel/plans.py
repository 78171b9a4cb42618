"""A LaunchPlan is what a launcher does on the GPU: kernels with their grids and arguments, fills and copies.

The student's host code never comes near a GPU. It is linked with `recorder.c` in place of the CUDA runtime, run in a
sandbox, and called with the pointers and sizes of every call that will be made; all it can do is to write down a wrong
plan. Another process, with none of its code inside, carries the plans out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from upskill.checks import Evidence
from upskill.checks.kernel.build import Build, keep, open_build_sandbox
from upskill.checks.kernel.task import C_TYPES, Argument, TaskHeader
from upskill.checks.workspace import output_excerpt
from upskill.errors import CheckError
from upskill.plain import digest
from upskill.sandboxes import Limits, MiB, Sandbox, printable
from upskill.sandboxes.gpu import find_toolchain

RECORDER = Path(__file__).with_name("recorder.c")
STREAM = 0x5712EA3000  # stands for the stream that the launcher is given
MAX_STEPS = 256  # of one call
RECORD_SECONDS = 20.0

_linked: dict[str, bytes] = {}  # launchers
_UNDEFINED = re.compile(r"undefined reference to `([^'`]+)'")


class BadLauncher(Exception):
    """What the student's host code does cannot be carried out; the message is the reason."""


Step = list[Any]  # ["launch", name, grid, block, shared, cooperative, cluster, arguments], ["memset", …], …
LaunchPlan = list[Step]  # plain values: it is sent to another process


async def record(evidence: Evidence, build: Build, header: TaskHeader, device: Mapping[str, Any]) -> list[LaunchPlan]:
    """The plan of every call that a process beside the GPU wants to make; it says what the GPU is like."""
    toolchain = find_toolchain()
    async with open_build_sandbox(evidence, toolchain, 60.0) as sandbox:
        plans: list[LaunchPlan] = []
        for entry in dict.fromkeys(call["entry"] for call in device["calls"]):
            calls = [call["words"] for call in device["calls"] if call["entry"] == entry]
            linked = await _link(sandbox, build, header, entry, toolchain.include)
            await sandbox.write(f"{entry}.recorder", linked, executable=True)
            limits = Limits(wall=RECORD_SECONDS, cpu=RECORD_SECONDS, memory=1024 * MiB, output=32 * MiB)
            lines = "".join(_recorder_input(build, header, calls, device))
            done = await sandbox.run([f"./{entry}.recorder"], limits, stdin=lines.encode())
            ended = output_excerpt(replace(done, output=""))  # what it prints; the plan itself says nothing to a person
            plans += read_plans(done.output, build, len(calls), ended)
    return plans


async def _link(sandbox: Sandbox, build: Build, header: TaskHeader, entry: str, include: str) -> bytes:
    """The program that has a launcher recorded. The same one is linked once, though each tier that runs wants it."""
    called = call_in_c(entry, header.arguments)
    key = digest([build.host_object.hex(), called])
    if key not in _linked:
        await sandbox.write("kernel.o", build.host_object)
        await sandbox.write("recorder.c", RECORDER.read_bytes())
        await sandbox.write("call.c", called)
        done = await sandbox.run(
            [
                *("gcc", "-O1", f"-I{include}", "recorder.c", "call.c", "kernel.o", "-lstdc++", "-lm"),
                *("-Wl,--gc-sections", "-o", f"{entry}.linked"),
            ]
        )
        if done.code:
            raise _not_linked(printable(done.error), header, entry)
        keep(_linked, key, await sandbox.read(f"{entry}.linked", 64 * MiB))
    return _linked[key]


def _not_linked(error: str, header: TaskHeader, entry: str) -> Exception:
    missing = [name for name in dict.fromkeys(_UNDEFINED.findall(error)) if name != entry]
    if missing:
        return BadLauncher(f"the launcher calls {', '.join(missing[:5])}, which is not available to a kernel")
    if _UNDEFINED.search(error):
        return BadLauncher(f'there is no function extern "C" void {entry}({header.signature}, cudaStream_t stream)')
    if "multiple definition" in error:
        twice = re.search(r"multiple definition of `([^'`]+)'", error)
        return BadLauncher(f"the file defines {twice[1] if twice else 'a function'}, which belongs to CUDA")
    return CheckError(f"the launcher could not be linked: {error[-400:]}")


def call_in_c(entry: str, arguments: Sequence[Argument]) -> str:
    """C that calls the launcher with words as arguments of its own types."""
    types = [C_TYPES[argument.kind] for argument in arguments]
    values = [
        f"as_{argument.kind}(w[{number}])" if argument.kind in ("float", "double") else f"({kind})w[{number}]"
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
        sizes = " ".join(map(str, (kernel.registers, kernel.shared, len(kernel.parameters), *kernel.parameters)))
        yield f"K {kernel.name} {sizes}\n"
    for words in calls:
        yield "C " + " ".join(f"{word:x}" for word in (*words, STREAM)) + "\n"


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
                raise BadLauncher("the launcher left no plan that can be read") from None
        else:
            raise BadLauncher(f"the launcher does more than {MAX_STEPS} things in one call")
    if len(plans) != count:
        raise BadLauncher(f"the launcher did not return from call {min(len(plans) + 1, count)}: {ended}")
    return plans


def _read_step(fields: list[str], sizes: Mapping[str, tuple[int, ...]]) -> Step:
    kind, *values = fields
    if kind == "attribute" and values[0] in sizes:
        return ["attribute", values[0], int(values[1]), int(values[2])]
    if kind in ("memset", "memcpy"):
        _expect_stream(values[3])
        if int(values[2]) < 0:
            raise ValueError(values[2])
        return [kind, int(values[0], 16), int(values[1], 10 if kind == "memset" else 16), int(values[2])]
    if kind != "launch":
        raise ValueError(kind)
    _expect_stream(values[8])
    grid, block, cluster = ([int(word) for word in values[at : at + 3]] for at in (1, 4, 10))
    arguments = [bytes.fromhex(word) for word in values[13:]]
    if tuple(map(len, arguments)) != sizes[values[0]]:
        raise ValueError(values[0])
    words = [argument.hex() for argument in arguments]
    return ["launch", values[0], grid, block, int(values[7]), int(values[9]), cluster, words]


def _expect_stream(word: str) -> None:
    if int(word, 16) != STREAM:
        which = "the default stream" if int(word, 16) in (0, 1, 2) else "a stream of its own"
        raise BadLauncher(f"the launcher works on {which}, and not on the stream that it was given")
