"""Builds a kernel file in a sandbox that holds the student's sources and nothing else of theirs."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, TypeVar

from pydantic import Field

from upskill.checks import Evidence, Finding
from upskill.checks.extract import find_code
from upskill.checks.workspace import MAX_FILE_BYTES, in_words, sandbox_of
from upskill.errors import MissingTool
from upskill.plain import digest
from upskill.sandboxes import SANDBOXES, Limits, MiB, Sandbox, SandboxBackend, Setup, printable
from upskill.sandboxes.gpu import Toolchain, find_toolchain

SOURCES = (".cu", ".cuh", ".h", ".hpp", ".hh", ".inc")  # what a kernel file may include from beside it
MAX_SOURCES = 64
MAX_MESSAGE = 1200  # characters of the compiler's
MAX_CODE_BYTES = 64 * MiB  # of code
MAX_KEPT = 128  # builds, launchers and failures that are remembered
OUT = "out"
EMPTY = "__global__ void empty() {}\n"

_NO_CODE = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)  # texts and comments of PTX
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s+)?[^,\[]*(?:\[(\d+)\])?")
_COMPILING = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")


Arch = Annotated[str, Field(pattern=r"^sm_[0-9]{2,3}[af]?$")]


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A `__global__` function, by its name in the cubin. Sizes are in bytes; `shared` is what it declares itself."""

    name: str
    parameters: tuple[int, ...]
    registers: int = 0
    spills: int = 0
    stack: int = 0
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Build:
    """What the compiler made of a file. `error` has its own words where it made nothing."""

    error: str = ""
    kernels: tuple[CompiledKernel, ...] = ()
    cubin: bytes = b""
    host_object: bytes = b""


T = TypeVar("T")
_built: dict[str, Build] = {}


async def read_sources(evidence: Evidence, file: str, entry: str) -> dict[str, str] | Finding:
    """The kernel file and what lies beside it; where the workspace has no such file, the code that the answer gives."""
    sandbox = sandbox_of(evidence)
    try:
        text = (await sandbox.read(file, MAX_FILE_BYTES)).decode("utf-8", "replace")
    except FileNotFoundError:
        code = find_code(evidence.answer, (entry, "__global__"))
        if code is None:
            return Finding(False, f"there is no {file}, and the answer has no code with a __global__ function")
        return {file: code.encode("utf-8", "replace").decode("utf-8")}  # half a character is no file
    except OSError as error:
        return Finding(False, f"{file}: {in_words(error)}")
    sources = {file: text}
    for left in await sandbox.list():
        if left.kind == "file" and left.path.endswith(SOURCES) and len(sources) < MAX_SOURCES:
            with suppress(OSError):
                sources.setdefault(left.path, (await sandbox.read(left.path, MiB)).decode("utf-8", "replace"))
    return sources


@asynccontextmanager
async def open_build_sandbox(evidence: Evidence, toolchain: Toolchain, seconds: float) -> AsyncGenerator[Sandbox]:
    """A sandbox of the trial's kind that can run the compiler and has nothing of the student's in it."""
    kind = sandbox_of(evidence).kind
    backend: SandboxBackend = SANDBOXES.load(kind)()
    limits = Limits(wall=seconds, cpu=4 * seconds, memory=4096 * MiB, address_space=None)
    mounts: Mapping[str, Path] = {str(path): path for path in toolchain.mounts}
    async with await backend.open(Setup(readonly_mounts=mounts, limits=limits)) as sandbox:
        yield sandbox


async def build(
    evidence: Evidence, sources: Mapping[str, str], file: str, arch: str, *, flags: tuple[str, ...] = (), seconds: float
) -> Build:
    """The same sources are compiled only once."""
    _ = sandbox_of(evidence).run  # not on paper
    toolchain = find_toolchain()
    key = digest([dict(sources), file, arch, flags, toolchain.nvcc, seconds])
    if key in _built:
        return _built[key]
    # Not `-arch=sm_90a`, which would compile for plain sm_90 as well.
    target = ["-gencode", f"arch=compute_{arch.removeprefix('sm_')},code={arch}"]

    async def compiled(sources: Mapping[str, str]) -> Build:
        async with open_build_sandbox(evidence, toolchain, seconds) as sandbox:
            return await _compile(sandbox, toolchain, sources, file, [*target, *flags])

    made = await compiled(sources)
    if "nvcc fatal" in made.error and (empty := await compiled({file: EMPTY})).error:  # nobody's answer is to blame
        raise MissingTool(f"nvcc cannot compile this here: {empty.error}")
    keep(_built, key, made)
    return made


def keep(cache: dict[str, T], key: str, value: T) -> None:
    cache[key] = value
    while len(cache) > MAX_KEPT:
        del cache[next(iter(cache))]


async def _compile(
    sandbox: Sandbox, toolchain: Toolchain, sources: Mapping[str, str], file: str, flags: list[str]
) -> Build:
    for path, text in sources.items():
        await sandbox.write(path, text)
    compiler = await sandbox.run(["/bin/sh", "-c", f"mkdir -p {OUT} && command -v g++"])
    if compiler.code:
        raise MissingTool("there is no g++ in the sandbox, which nvcc needs; install it for all users")
    stem = PurePosixPath(file).stem
    # A `main` of the student's own, and all that only it uses, is left out when the launcher is linked.
    host = ["-Dmain=main_of_the_student", "-Xcompiler", "-ffunction-sections"]
    done = await sandbox.run(
        [
            *(toolchain.nvcc, "-c", "-Xptxas", "-v", "--keep", "--keep-dir", OUT, *host, *flags),
            *("-I.", "-x", "cu", file, "-o", f"{OUT}/{stem}.o"),
        ]
    )
    messages = done.output + done.error
    if done.killed_why:
        return Build(f"the compiler {done.killed_why}")
    if done.code:
        return Build(_complaint(messages) or f"nvcc ended with {done.code} and said nothing")
    try:
        made = {kind: await sandbox.read(f"{OUT}/{stem}.{kind}", MAX_CODE_BYTES) for kind in ("ptx", "cubin", "o")}
    except OSError as error:
        return Build(f"what the compiler makes of it cannot be used: {in_words(error)}")
    kernels = read_kernels(made["ptx"].decode("utf-8", "replace"), messages)
    if not kernels:
        return Build("it has no __global__ function that is used, so nothing in it runs on a GPU")
    return Build("", kernels, made["cubin"], made["o"])


def _complaint(messages: str) -> str:
    """Errors first, as one error often brings a hundred warnings."""
    lines = [line for line in printable(messages).splitlines() if line.strip() and not line.startswith("ptxas info")]
    first = next((at for at, line in enumerate(lines) if re.search("error|fatal", line, re.IGNORECASE)), 0)
    text = "\n".join(lines[first:])
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 2] + " …"


def read_kernels(ptx: str, messages: str) -> tuple[CompiledKernel, ...]:
    """The kernels that were compiled. A name that only stands in a comment, or only in a message, is none."""
    used = _read_ptxas(messages)
    kernels: list[CompiledKernel] = []
    for name, declared in _ENTRY.findall(_NO_CODE.sub(" ", ptx)):
        if name in used:
            # The bytes of a parameter: `.u64`, or `.b8 name[24]`.
            parameters = _PARAMETER.findall(declared)
            sizes = tuple(int(re.sub(r"\D", "", kind) or 32) // 8 * int(count or 1) for kind, count in parameters)
            kernels.append(CompiledKernel(name, sizes, **used[name]))
    return tuple(kernels)


def _read_ptxas(messages: str) -> dict[str, dict[str, int]]:
    """Registers, spills, stack and shared memory by kernel, from `ptxas -v`; the highest value counts."""
    kernels: dict[str, dict[str, int]] = {}
    kernel: dict[str, int] = {}
    for line in messages.splitlines():
        counts: dict[str, int] = {}
        if name := _COMPILING.search(line):
            kernel = kernels.setdefault(name[1], {})
        elif spills := _SPILLS.search(line):
            counts = {"stack": int(spills[1]), "spills": int(spills[2]) + int(spills[3])}
        elif used := _USED.search(line):
            shared = _SHARED.search(line)
            counts = {"registers": int(used[1]), "shared": int(shared[1]) + int(shared[2] or 0) if shared else 0}
        for resource, count in counts.items():
            kernel[resource] = max(count, kernel.get(resource, 0))
    return kernels
