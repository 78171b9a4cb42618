"""A check that a file compiles; each language is a row of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pydantic import Field, model_validator

from upskill.checks import Evidence, Finding
from upskill.checks.workspace import CheckDir, Path, ProgramCheck, output_excerpt, read_left
from upskill.errors import MissingTool, did_you_mean


@dataclass(frozen=True, slots=True)
class Language:
    """How a file is compiled and nothing more. `{out}` stands for a folder that is thrown away."""

    suffixes: tuple[str, ...]
    programs: tuple[str, ...]  # the first that is there
    arguments: tuple[str, ...]
    install: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    beside: tuple[str, ...] = ()  # where it is, when it is not on the PATH
    apart: bool = False  # started outside the workspace, where it would take a file for word of which compiler to be


# Python compiles without a cache file beside the source, Rust as a library, which needs no `main`; Go must not fetch.
LANGUAGES = {
    "c": Language((".c", ".h"), ("cc", "gcc", "clang"), ("-c", "-o", "{out}/it.o"), "gcc or clang"),
    "cpp": Language(
        (".cpp", ".cc", ".cxx", ".hpp", ".hh"),
        ("c++", "g++", "clang++"),
        ("-c", "-o", "{out}/it.o"),
        "g++ or clang++",
    ),
    "cuda": Language(
        (".cu", ".cuh"),
        ("nvcc",),
        ("-c", "-o", "{out}/it.o"),
        "the CUDA toolkit (nvcc)",
        beside=("/usr/local/cuda/bin",),
    ),
    "rust": Language(
        (".rs",),
        ("rustc",),
        (
            "--edition=2021",
            "--crate-name=it",
            "--crate-type=lib",
            "--emit=metadata",
            "-o",
            "{out}/it.rmeta",
        ),
        "Rust (rustc) for all users, e.g. from your system's packages; rustup in a home folder is not visible",
        {"RUSTUP_HOME": "/usr/local/rustup"},
        ("/usr/local/cargo/bin",),
        apart=True,  # rustup runs whatever a rust-toolchain.toml of the student names
    ),
    "go": Language(
        (".go",),
        ("go",),
        ("build", "-o", "{out}/it"),
        "Go",
        {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"},
        ("/usr/local/go/bin",),
    ),
    "python": Language(
        (".py",), ("python3",), ("-I", "-X", "pycache_prefix={out}", "-m", "py_compile"), "Python 3"
    ),
    "typescript": Language(
        (".ts", ".tsx"), ("tsc",), ("--noEmit",), "TypeScript (tsc), beside Node"
    ),
}


def _language_of(path: str) -> str:
    suffix = PurePosixPath(path).suffix.lower()
    return next((name for name, language in LANGUAGES.items() if suffix in language.suffixes), "")


class Compiles(ProgramCheck):
    """Passes when this file compiles; the language is known by the file's suffix, where it is not said. Nothing is
    linked and nothing is run."""

    file: Path
    language: str = ""
    flags: list[str] = Field(default_factory=list)
    timeout: float = Field(default=120.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _is_known(self) -> Compiles:
        if self.language and self.language not in LANGUAGES:
            hint = did_you_mean(self.language, LANGUAGES)
            raise ValueError(f"{self.language!r} is not a language this check can compile. {hint}")
        if not self.language and not _language_of(self.file):
            known = ", ".join(LANGUAGES)
            raise ValueError(
                f"cannot tell the language of {self.file!r} from its name; set `language`: {known}"
            )
        return self

    @property
    def paths(self) -> Sequence[str]:
        return [self.file]

    async def run(self, evidence: Evidence) -> Finding:
        content = await read_left(evidence, self.file)
        return content if isinstance(content, Finding) else await super().run(evidence)

    async def run_in(self, check_dir: CheckDir, evidence: Evidence) -> Finding:
        name = self.language or _language_of(self.file)
        language = LANGUAGES[name]
        program = await check_dir.find(language.programs, beside=language.beside)
        if not program:
            raise MissingTool(
                f"no compiler for {name} in the sandbox ({' or '.join(language.programs)}); install {language.install}"
            )
        arguments = [argument.format(out=check_dir.scratch) for argument in language.arguments]
        folder, start = ".", list[str]()
        if language.apart:
            folder = check_dir.sandbox.workspace
            start = ["/bin/sh", "-c", 'cd -- "$0" && exec "$@"', check_dir.scratch]
        done = await check_dir.run(
            [*start, program, *arguments, *self.flags, f"{folder}/{self.file}"],
            self.timeout,
            environment=language.environment,
            beside=language.beside,
        )
        if done.code == 0:
            return Finding(True, f"{self.file} compiles as {name}")
        return Finding(False, f"{self.file} does not compile as {name}: {output_excerpt(done)}")
