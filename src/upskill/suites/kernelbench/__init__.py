"""Turns KernelBench problems (PyTorch modules with `get_inputs`) into a suite of kernel tasks.

Problems are programs, so they run in a sandbox: `probe.txt` finds what each takes and gives, and small sizes at which
it runs. Each becomes a task file: its header, the problem as it is, and `task.txt`, which runs the problem's module as
the reference.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from upskill.checks.kernel.gpu_process import python_folders
from upskill.errors import MissingTool, UsageError
from upskill.inputs import read_input
from upskill.plain import as_list, as_mapping, load_json
from upskill.sandboxes import Limits, MiB, Setup, Stream, choose_sandbox

PREFIX = "kernelbench:"
C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int64": "long long",
    "int32": "int",
    "bool": "bool",
}
TOLERANCE = 1e-4  # relative and absolute, as KernelBench has it for float32
MAX_TOKENS = 1000  # of an answer
MIN_RUNS = 2  # small sizes that a problem has to run at
TIERS = ["compiles", "correct", "faster"]
PROBE_LIMITS = Limits(wall=3600, cpu=3600, memory=4096 * MiB, address_space=None)
PROMPT = """\
Write a CUDA kernel for an H100 that computes what this PyTorch module computes.

```python
{problem}
```

Answer with one complete CUDA C++ file in one code block, without explanation. It defines exactly this launcher:

extern "C" void launch({signature}, cudaStream_t stream)

{tensors} All tensors are contiguous and row-major, in device memory, aligned to 256 bytes. {sizes} Compute in fp32. \
Launch on the given stream and return without waiting. Use no library.
"""


@dataclass(slots=True)
class Problems:
    """What was made of a folder of problems."""

    suite: str
    tasks: dict[str, str] = field(default_factory=dict[str, str])  # text by file name
    left_out: dict[str, str] = field(default_factory=dict[str, str])  # why, by file name


def import_problems(
    folder: Path, on_problem: Callable[[str], None] = lambda name: None
) -> Problems:
    paths = sorted(
        folder.glob("*.py"),
        key=lambda path: (int((re.match(r"\d+", path.name) or [0])[0]), path.name),
    )
    sources = {path.name: read_input(path).decode("utf-8", "replace") for path in paths}
    sources = {
        name: text
        for name, text in sources.items()
        if "get_init_inputs" in text and "class Model" in text
    }
    if not sources:
        raise UsageError(
            f"{folder}: no KernelBench problems",
            "Pass a folder that has files with `class Model` and `get_inputs`, such as KernelBench/level1.",
        )
    if find_spec("torch") is None:
        raise MissingTool(
            "KernelBench problems are PyTorch modules, and PyTorch is not installed",
            "pip install torch",
        )
    probes = asyncio.run(_probe(sources, on_problem))
    return assemble(sources, probes)


async def _probe(
    sources: Mapping[str, str], on_problem: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """What each problem takes and gives, found by running it in a sandbox."""
    backend = (await choose_sandbox()).backend
    own = {f"{name}.py": _text(name) for name in ("probe", "task")}
    mounts = {str(path): path for path in python_folders()}
    found: dict[str, dict[str, Any]] = {}
    names = iter([*sources][1:])

    def report(stream: Stream, data: bytes) -> None:
        for _ in range(data.count(b"\n") if stream == "output" else 0):
            on_problem(next(names, ""))

    setup = Setup(
        files=own | dict(sources),
        readonly_mounts=mounts,
        environment={"OMP_NUM_THREADS": "1"},
        limits=PROBE_LIMITS,
    )
    async with await backend.open(setup) as sandbox:
        while waiting := [name for name in sources if name not in found]:
            on_problem(waiting[0])
            done = await sandbox.run(
                [sys.executable, "probe.py", "task.py", *waiting], on_output=report
            )
            for line in done.output.splitlines():
                row = as_mapping(load_json(line)) or {}
                found[str(row["path"])] = row
            if done.code and (
                ended := [name for name in waiting if name not in found]
            ):  # it ended the process
                lines = done.error.strip().splitlines()
                found[ended[0]] = {
                    "why": done.killed_why or (lines[-1] if lines else f"exit code {done.code}")
                }
    return found


def assemble(sources: Mapping[str, str], probes: Mapping[str, dict[str, Any]]) -> Problems:
    cases: list[dict[str, Any]] = []
    problems = Problems("")
    for name, source in sources.items():
        found = probes[name]
        runs = [
            dict(run)
            for item in as_list(found.get("runs")) or ()
            if (run := as_mapping(item)) is not None
        ]
        try:
            if len(runs) < MIN_RUNS:
                raise ValueError(str(found.get("why") or "it does not run at any small size"))
            sizes = {str(key): int(value) for key, value in found["sizes"].items()}
            task = _Task(
                name, source.strip(), sizes, [str(each) for each in found["arguments"]], runs
            )
            problems.tasks[f"tasks/{name}"] = task.text
        except (ValueError, KeyError, TypeError) as error:
            problems.left_out[name] = str(error)
            continue
        number, _, title = name.removesuffix(".py").partition("_")
        words = "-".join(re.findall(r"[a-z0-9]+", title.lower()))
        cases.append(
            {
                "id": f"{int(number):03}-{words}" if number.isdecimal() else words,
                "prompt": task.prompt,
                "checks": [
                    {"kernel": {"task": f"tasks/{name}", "tiers": TIERS, "than": ["eager"]}}
                ],
            }
        )
    if not cases:
        raise UsageError(
            f"none of the {len(sources)} problems can be imported: {next(iter(problems.left_out.values()))}"
        )
    problems.suite = yaml.safe_dump(
        {"max_output_tokens": MAX_TOKENS, "cases": cases},
        sort_keys=False,
        allow_unicode=True,
        width=120,
    )
    return problems


@dataclass(frozen=True, slots=True)
class _Task:
    name: str
    problem: str
    sizes: dict[str, int]
    arguments: list[str]
    runs: list[dict[str, Any]]

    @property
    def tensors(self) -> dict[str, tuple[list[list[int]], str]]:
        """The sizes at every run, and the type, of each input, parameter and output."""
        first: dict[str, Any] = self.runs[0]["seen"]
        return {
            name: ([run["seen"][name][0] for run in self.runs], str(described[1]))
            for name, value in first.items()
            if (described := as_list(value))
        }

    @property
    def signature(self) -> str:
        parts: list[str] = []
        for name, value in self.runs[0]["seen"].items():
            if isinstance(value, list):
                kind = C_TYPES.get(self.tensors[name][1])
                if kind is None:
                    raise ValueError(f"{name} is of type {self.tensors[name][1]}")
                parts.append(f"{kind}* {name}" if name == "out" else f"const {kind}* {name}")
            else:
                parts.append(f"{'float' if isinstance(value, float) else 'int'} {name}")
        return ", ".join([*parts, *(f"int {name}" for name in self.sizes)])

    @property
    def prompt(self) -> str:
        names = ", ".join(self.sizes)
        sizes = f"{names} can be any positive numbers that the module takes; the file has those that are timed."
        return PROMPT.format(
            problem=self.problem,
            signature=self.signature,
            tensors=" ".join(self._describe()),
            sizes=sizes,
        )

    def _describe(self) -> Iterator[str]:
        for name, (shapes, kind) in self.tensors.items():
            dims = [
                self._dimension([shape[axis] for shape in shapes]) for axis in range(len(shapes[0]))
            ]
            if not dims:
                yield f"{name} is one {kind}."
            elif "" in dims:
                yield f"{name} is a {kind} tensor in the shape that the module returns."
            else:
                yield f"{name} is a {kind} tensor of ({', '.join(dims)})."

    def _dimension(self, lengths: list[int]) -> str:
        """What this dimension is called: a size that it equals at every run, or a number; empty if it is neither."""
        shapes = [dict(zip(self.sizes, run["shape"], strict=True)) for run in self.runs]
        names = (
            name
            for name in self.sizes
            if all(shape[name] == length for shape, length in zip(shapes, lengths, strict=True))
        )
        return next(names, str(lengths[0]) if len(set(lengths)) == 1 else "")

    @property
    def text(self) -> str:
        header = {
            "SIGNATURE": self.signature,
            "SHAPES": [tuple(run["shape"]) for run in self.runs],
            "TIMED": tuple(self.sizes.values()),
            "DTYPES": ["float32"],
            "TOLERANCE": {"float32": (TOLERANCE, TOLERANCE)},
            "EXACT": False,
            "SIZES": list(self.sizes),
            "ARGUMENTS": self.arguments,
            "RESULTS": ["out"],
            "PROBLEM": self.problem,
        }
        lines = "\n".join(f"{name} = {value!r}" for name, value in header.items())
        return f'"""KernelBench, {self.name}."""\n\n{lines}\n\n{_text("task")}'


def _text(name: str) -> str:
    return files(__name__).joinpath(f"{name}.txt").read_text(encoding="utf-8")
