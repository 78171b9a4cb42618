"""Tier 3: the folder is a project of kernel-builder, as its format is now."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, ClassVar

from upskill.checks import Evidence, Finding
from upskill.checks.kernel.build import Arch
from upskill.checks.room import ALL
from upskill.checks.workspace import Path, SandboxCheck, read_left, sandbox_of
from upskill.errors import did_you_mean
from upskill.plain import as_list, as_mapping

EDITION = 5
MAX_PROBLEMS = 6
# The tables of build.toml: the keys that each must have, and the others that it may.
GENERAL = ("name", "version", "edition", "license", "backends")
GENERAL_MAY = (
    "upstream",
    "source",
    "cuda",
    "hub",
    "kernel-depends",
    "neuron",
    "python-depends",
    "tpu",
    "xpu",
)
FRAMEWORKS = ("torch", "torch-noarch", "tvm-ffi")
TORCH_MAY = ("include", "minver", "maxver", "pyext", "src", "stable-abi", "cxx-flags")
KERNEL = ("backend", "depends", "src")
KERNEL_MAY = {
    "cuda": ("cuda-capabilities", "cuda-flags", "cuda-minver", "cxx-flags", "include"),
    "rocm": ("rocm-archs", "hip-flags", "cxx-flags", "include"),
    "xpu": ("sycl-flags", "cxx-flags", "include"),
    "metal": ("cxx-flags", "include"),
    "cpu": ("cxx-flags", "include"),
}
BACKENDS = ("cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu")
# What their values are, as far as we look at them.
KINDS: dict[str, type] = {
    **dict.fromkeys(("name", "license", "backend"), str),
    **dict.fromkeys(("version", "edition"), int),
    **dict.fromkeys(
        ("src", "depends", "backends", "include", "pyext", "cuda-capabilities", "rocm-archs"), list
    ),
    **dict.fromkeys(("cuda-flags", "cxx-flags", "hip-flags", "sycl-flags"), list),
}
KIND_NAMES: dict[type, str] = {str: "a string", int: "a whole number", list: "a list of strings"}
# Keys of older editions, and what stands there now.
RENAMED = {
    "universal": "backends",
    "capabilities": "cuda-capabilities",
    "language": "backend",
    "pyroot": "nothing",
}
NO_CODE = re.compile(
    r'"(?:\\.|[^"\\\n])*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL
)  # texts and comments of C++
BINDING = re.compile(r"\bTORCH_LIBRARY\w*\s*\(|\bSTABLE_TORCH_LIBRARY\w*\s*\(")
CUDA_SOURCES = (".cu", ".cuh")


class KernelProject(SandboxCheck):
    """Passes when this folder is a project of kernel-builder: a build.toml of the current edition without unknown
    keys, sources that are there, a binding in torch-ext that registers something, the Python package of its name, and
    a kernel for CUDA whose capabilities have this architecture. Problems are named with their lines."""

    folder: Path | None = None
    arch: Arch = "sm_90a"
    revision: ClassVar[int] = (
        1  # a binding in a comment, and backends without cuda, had passed once
    )

    @property
    def paths(self) -> Sequence[str]:
        return [self.folder or ALL]

    async def run(self, evidence: Evidence) -> Finding:
        root = f"{PurePosixPath(self.folder)}/" if self.folder else ""
        text = await read_left(evidence, f"{root}build.toml")
        if isinstance(text, Finding):
            return text
        files = {
            entry.path.removeprefix(root): entry.size
            for entry in await sandbox_of(evidence).list()
            if entry.kind == "file" and entry.path.startswith(root)
        }
        try:
            text = text.removeprefix("\ufeff")
            toml = tomllib.loads(text)
        except (
            ValueError,
            RecursionError,
        ) as error:  # also a number of too many digits, and brackets without end
            return Finding(False, f"build.toml is not valid TOML: {error}")
        project = _Project(text, toml, frozenset(files))
        problems = [*project.problems(self.arch)]
        if not problems:
            for path in project.bindings:
                content = await read_left(evidence, f"{root}{path}")
                if not isinstance(content, Finding) and BINDING.search(NO_CODE.sub(" ", content)):
                    break
            else:
                problems.append(
                    "torch-ext: no source of [torch] registers anything with TORCH_LIBRARY"
                )
        if problems:
            more = (
                f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
            )
            return Finding(False, "; ".join(problems[:MAX_PROBLEMS]) + more)
        return Finding(True, f"a kernel-builder project, edition {EDITION}, for {self.arch}")


@dataclass(frozen=True, slots=True)
class _Project:
    text: str
    toml: Mapping[str, Any]
    files: frozenset[str]

    @property
    def bindings(self) -> list[str]:
        sources = [path.removeprefix("./") for path in _texts(_table(self.toml, "torch"), "src")]
        return [path for path in sources if path.endswith((".cpp", ".cc", ".cu"))]

    def problems(self, arch: str) -> Iterator[str]:
        general, torch, kernels = (
            _table(self.toml, name) for name in ("general", "torch", "kernel")
        )
        for name in self.toml:
            if name not in ("general", "kernel", *FRAMEWORKS):
                yield self._unknown(name, "", ["general", "kernel", *FRAMEWORKS])
        if "general" not in self.toml:
            yield "build.toml: has no [general]"
        else:
            yield from self._general(general)
        if "torch" not in self.toml:
            yield "build.toml: has no [torch], so nothing binds the kernel to PyTorch"
        else:
            yield from self._keys("torch", torch, (), TORCH_MAY)
            yield from self._sources("torch", torch)
            if not any(path.startswith("torch-ext/") for path in self.bindings):
                yield f"{self._at('torch', 'src')}: names no C++ file in torch-ext/"
        for name in kernels:
            yield from self._kernel(name, _table(kernels, name))
        yield from self._target(kernels, arch)
        name = general.get("name")
        if isinstance(name, str):
            package = f"torch-ext/{name.replace('-', '_')}/__init__.py"
            if package not in self.files:
                yield f"{package}: the kernel's Python package is missing"

    def _general(self, general: Mapping[str, Any]) -> Iterator[str]:
        yield from self._keys("general", general, GENERAL, GENERAL_MAY)
        edition = general.get("edition")
        if isinstance(edition, int) and edition != EDITION:
            yield f"{self._at('general', 'edition')}: edition {edition} is not the current one, {EDITION}"
        name = general.get("name")
        if isinstance(name, str) and not re.fullmatch(r"[a-z][a-z0-9-]*[a-z0-9]", name):
            yield f"{self._at('general', 'name')}: {name!r} is not a valid name; use a-z, digits and dashes"
        where, backends = self._at("general", "backends"), _texts(general, "backends")
        for backend in backends:
            if backend not in BACKENDS:
                yield f"{where}: {backend!r} is not a backend. {did_you_mean(backend, BACKENDS)}"
        if isinstance(general.get("backends"), list) and "cuda" not in backends:
            yield f"{where}: backends does not list 'cuda', so no CUDA kernel is built"

    def _kernel(self, name: str, kernel: Mapping[str, Any]) -> Iterator[str]:
        table = f"kernel.{name}"
        backend = kernel.get("backend")
        may = KERNEL_MAY.get(str(backend), KERNEL_MAY["cuda"])
        yield from self._keys(table, kernel, KERNEL, may)
        if isinstance(backend, str) and backend not in KERNEL_MAY:
            yield f"{self._at(table, 'backend')}: {backend!r} is not a backend. {did_you_mean(backend, KERNEL_MAY)}"
        yield from self._sources(table, kernel)
        if backend == "cuda" and not any(
            path.endswith(CUDA_SOURCES) for path in _texts(kernel, "src")
        ):
            yield f"{self._at(table, 'src')}: names no .cu file"

    def _target(self, kernels: Mapping[str, Any], arch: str) -> Iterator[str]:
        digits = arch.removeprefix("sm_").rstrip("af")
        capability = f"{digits[:-1]}.{digits[-1]}"
        for_cuda = {
            name: _table(kernels, name)
            for name in kernels
            if _table(kernels, name).get("backend") == "cuda"
        }
        if not for_cuda:
            yield 'build.toml: has no [kernel.NAME] with backend = "cuda"'
        for name, kernel in for_cuda.items():
            listed = _texts(kernel, "cuda-capabilities")  # without any, it is built for all
            if listed and not any(name.rstrip("af") == capability for name in listed):
                where = self._at(f"kernel.{name}", "cuda-capabilities")
                yield f"{where}: {', '.join(listed)} leave out {capability}, which is {arch}"

    def _keys(
        self, table: str, values: Mapping[str, Any], must: Sequence[str], may: Sequence[str]
    ) -> Iterator[str]:
        for key in must:
            if key not in values:
                yield f"{self._at(table)}: [{table}] has no {key}"
        for key, value in values.items():
            if key not in must and key not in may:
                yield self._unknown(key, table, [*must, *may])
            elif kind := KINDS.get(key):
                right = isinstance(value, kind) and not isinstance(value, bool)
                if not right or len(_texts(values, key)) != len(as_list(value) or ()):
                    yield f"{self._at(table, key)}: {key} must be {KIND_NAMES[kind]}, not {value!r:.60}"

    def _unknown(self, key: str, table: str, known: Sequence[str]) -> str:
        now = f"it is now {RENAMED[key]}" if key in RENAMED else did_you_mean(key, known)
        where = self._at(table, key) if table else self._at(key)
        return f"{where}: unknown key {key!r}" + (f"; {now}" if now else "")

    def _sources(self, table: str, values: Mapping[str, Any]) -> Iterator[str]:
        for path in _texts(values, "src"):
            if path.removeprefix("./") not in self.files:
                yield f"{self._at(table, 'src', path)}: {path} does not exist"

    def _at(self, table: str, key: str = "", value: str = "") -> str:
        """Where it stands: the line of the value, or else of the key, or else of the table."""
        inside, line_number = False, 0
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := re.fullmatch(r"\s*\[([^\[\],=]+)\]\s*(#.*)?", line):
                inside = re.sub(r"[\s\"']", "", header[1]) == table
                line_number = number if inside else line_number
            elif inside and key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
                line_number = number
            if inside and value and value in line:
                return f"build.toml:{number}"
        return f"build.toml:{line_number}" if line_number else "build.toml"


def _table(toml: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return as_mapping(toml.get(name)) or {}


def _texts(table: Mapping[str, Any], key: str) -> list[str]:
    return [text for text in as_list(table.get(key)) or [] if isinstance(text, str)]
