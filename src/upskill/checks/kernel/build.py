"""Builds a kernel file in a sandbox that holds the student's sources and nothing else of theirs."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, TypeVar

from pydantic import Field

from upskill.checks import Evidence, Finding
from upskill.checks.kernel.cubin import CompiledKernel, read_cubin
from upskill.checks.texts import blocks
from upskill.checks.workspace import MAX_FILE_BYTES, in_words, sandbox_of
from upskill.errors import MissingTool
from upskill.plain import digest
from upskill.sandboxes import SANDBOXES, Limits, MiB, Sandbox, SandboxBackend, Setup, printable
from upskill.sandboxes.gpu import Toolchain, find_toolchain

SOURCES = (
    ".cu",
    ".cuh",
    ".h",
    ".hpp",
    ".hh",
    ".inc",
)  # what a kernel file may include from beside it
MAX_SOURCES = 64
MAX_MESSAGE = 1200  # characters of the compiler's
MAX_CODE_BYTES = 64 * MiB  # of code
MAX_KEPT = 128  # builds, launchers and failures that are remembered
OUT = "out"
EMPTY = "__global__ void empty() {}\n"

_SPILLS = re.compile(
    r"Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
# Languages of what stands beside code: how it is called or built, and what came of it.
BESIDE_CODE = (
    *(
        "bash",
        "cmake",
        "console",
        "json",
        "log",
        "make",
        "makefile",
        "markdown",
        "md",
        "output",
        "plaintext",
        "py",
    ),
    *("python", "sh", "shell", "text", "toml", "txt", "yaml", "yml", "zsh"),
)


Arch = Annotated[str, Field(pattern=r"^sm_[0-9]{2,3}[af]?$")]


@dataclass(frozen=True, slots=True)
class Build:
    """What the compiler made of a file. `error` has its own words where it made nothing."""

    error: str = ""
    kernels: tuple[CompiledKernel, ...] = ()
    cubin: bytes = b""
    host_object: bytes = b""


T = TypeVar("T")
_built: dict[str, Build] = {}


def find_code(answer: str, marks: Sequence[str]) -> str | None:
    """The code of an answer that should have all of these marks, as words of their own: the last fenced block that has,
    or the blocks that have them together; the whole answer where nothing is fenced. None where no mark is found at all.
    A block in the language of a call or a log counts only where no other has a mark."""
    fenced = [*blocks(answer)] or [("", answer)]
    marked = [(language, code) for language, code in fenced if _marks_of(code, marks)]
    codes = [code for language, code in marked if language not in BESIDE_CODE] or [
        code for _, code in marked
    ]
    if not codes:
        return None
    if complete := [code for code in codes if _marks_of(code, marks) == {*marks}]:
        return complete[-1]
    joined = "\n".join(codes)
    return joined if _marks_of(joined, marks) == {*marks} else codes[-1]


def _marks_of(text: str, marks: Sequence[str]) -> set[str]:
    """`launch` is no mark of `__launch_bounds__`."""
    return {mark for mark in marks if re.search(rf"(?<!\w){re.escape(mark)}(?!\w)", text)}


async def read_sources(evidence: Evidence, file: str, entry: str) -> dict[str, str] | Finding:
    """The kernel file and what lies beside it; where the workspace has no such file, the code that the answer gives."""
    sandbox = sandbox_of(evidence)
    try:
        text = (await sandbox.read(file, MAX_FILE_BYTES)).decode("utf-8", "replace")
    except FileNotFoundError:
        code = find_code(evidence.answer, (entry, "__global__"))
        if code is None:
            return Finding(
                False, f"there is no {file}, and the answer has no code with a __global__ function"
            )
        return {
            file: code.encode("utf-8", "replace").decode("utf-8")
        }  # half a character is no file
    except OSError as error:
        return Finding(False, f"{file}: {in_words(error)}")
    sources = {file: text}
    for left in await sandbox.list():
        if left.kind == "file" and left.path.endswith(SOURCES) and len(sources) < MAX_SOURCES:
            with suppress(OSError):
                sources.setdefault(
                    left.path, (await sandbox.read(left.path, MiB)).decode("utf-8", "replace")
                )
    return sources


@asynccontextmanager
async def open_build_sandbox(
    evidence: Evidence, toolchain: Toolchain, seconds: float
) -> AsyncGenerator[Sandbox]:
    """A sandbox of the trial's kind that can run the compiler and has nothing of the student's in it."""
    kind = sandbox_of(evidence).kind
    backend: SandboxBackend = SANDBOXES.load(kind)()
    limits = Limits(wall=seconds, cpu=4 * seconds, memory=4096 * MiB, address_space=None)
    mounts: Mapping[str, Path] = {str(path): path for path in toolchain.mounts}
    async with await backend.open(Setup(readonly_mounts=mounts, limits=limits)) as sandbox:
        yield sandbox


async def build(
    evidence: Evidence,
    sources: Mapping[str, str],
    file: str,
    arch: str,
    *,
    flags: tuple[str, ...] = (),
    seconds: float,
) -> Build:
    """The same sources are compiled only once."""
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
    if (
        "nvcc fatal" in made.error and (empty := await compiled({file: EMPTY})).error
    ):  # nobody's answer is to blame
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
        raise MissingTool("nvcc needs g++, and the sandbox has none; install it for all users")
    stem = PurePosixPath(file).stem
    options = (
        "-Xptxas",
        "-v",
        "--keep",
        "--keep-dir",
        OUT,
        "-Xcompiler",
        "-ffunction-sections",
        *flags,
    )
    done = await sandbox.run(
        [toolchain.nvcc, "-c", *options, "-I.", "-x", "cu", file, "-o", f"{OUT}/{stem}.o"]
    )
    messages = done.output + done.error
    if done.killed_why:
        return Build(f"the compiler {done.killed_why}")
    if done.code:
        return Build(_complaint(messages) or f"nvcc exited with {done.code} and printed nothing")
    # A `main` of the student's own is renamed after compiling, so the code cannot tell that it is being checked. It is
    # left out, with all that only it uses, when the launcher is linked.
    await sandbox.run(["objcopy", "--redefine-sym", "main=main_of_the_student", f"{OUT}/{stem}.o"])
    try:
        cubin, host = [
            await sandbox.read(f"{OUT}/{stem}.{kind}", MAX_CODE_BYTES) for kind in ("cubin", "o")
        ]
        kernels = add_spills(read_cubin(cubin), messages)
    except (OSError, ValueError) as error:
        reason = in_words(error) if isinstance(error, OSError) else error
        return Build(f"the compiled result cannot be used: {reason}")
    if not kernels:
        return Build("it uses no __global__ function, so nothing in it runs on a GPU")
    return Build("", kernels, cubin, host)


def _complaint(messages: str) -> str:
    """Errors first, as one error often brings a hundred warnings."""
    lines = [
        line
        for line in printable(messages).splitlines()
        if line.strip() and not line.startswith("ptxas info")
    ]
    first = next(
        (at for at, line in enumerate(lines) if re.search("error|fatal", line, re.IGNORECASE)), 0
    )
    text = "\n".join(lines[first:])
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 2] + " …"


def add_spills(kernels: Sequence[CompiledKernel], messages: str) -> tuple[CompiledKernel, ...]:
    """The kernels with their spills, from what `ptxas -v` says. ValueError where it disagrees with the cubin.

    Messages can hold the student's words, so the highest value counts, and a function that a kernel calls spills in it.
    """
    frames: dict[str, int] = {}
    spills: dict[str, int] = {}
    for name, stack, stores, loads in _SPILLS.findall(messages):
        frames[name] = max(int(stack), frames.get(name, 0))
        spills[name] = max(int(stores) + int(loads), spills.get(name, 0))
    names = {kernel.name for kernel in kernels}
    called = max((count for name, count in spills.items() if name not in names), default=0)
    for kernel in kernels:
        if frames.get(kernel.name) != kernel.stack:
            said = f"{frames[kernel.name]} bytes" if kernel.name in frames else "nothing"
            raise ValueError(
                f"the cubin has {kernel.stack} bytes of stack for {kernel.name}, but ptxas reports {said}"
            )
    return tuple(replace(kernel, spills=max(spills[kernel.name], called)) for kernel in kernels)
