"""Where checks look and work: the workspace of the room, and a folder there for each check.

Programs get a clean environment: the PATH of the room, in which no student ever worked, and an empty home.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from upskill.checks import Check, Evidence, Finding
from upskill.checks.texts import as_list_of_texts, not_empty
from upskill.errors import CheckError
from upskill.plain import short
from upskill.sandboxes import CommandResult, Limits, MiB, Sandbox, printable

MAX_FILE_BYTES = 4 * MiB  # that a check reads
MAX_EXCERPT = 400  # characters of a command's output in a reason

ENVIRONMENT: Mapping[str, str] = {
    **dict.fromkeys(("PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE"), "1"),
    **dict.fromkeys(("GIT_CONFIG_NOSYSTEM", "GIT_NO_REPLACE_OBJECTS"), "1"),
    **dict.fromkeys(("GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "PERL_USE_UNSAFE_INC"), "0"),
    **dict.fromkeys(("GIT_CONFIG_GLOBAL", "npm_config_globalconfig"), "/dev/null"),
    **dict.fromkeys(("GOWORK", "GOPROXY", "GOENV"), "off"),
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PYTEST_ADDOPTS": "-p no:cacheprovider --import-mode=append",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "CTEST_NO_TESTS_ACTION": "error",
    "npm_config_script_shell": "/bin/sh",
    "npm_config_offline": "true",
    "npm_config_update_notifier": "false",
    "GOTOOLCHAIN": "local",
    "CARGO_NET_OFFLINE": "true",
}

# Modules of the workspace are found, if only behind those that are installed.
_SITE = """
import os, sys
sys.path += [os.path.dirname(os.path.abspath(sys.argv[0])), {workspace!r}]
"""
_MAKE = """
umask 077; cd "$(mktemp -d)" && mkdir home python scratch && cat > python/sitecustomize.py &&
printf '%s\\n' "$PATH" "$PWD"
"""
_PUT = 'cat >"$1"'
_FIND = 'for name; do command -v -- "$name" && exit; done; exit 1'


def expect_inside(path: str) -> str:
    parts = PurePosixPath(path.replace("\\", "/")).parts
    outside = not parts or parts[0] == "/" or ".." in parts or re.match(r"^[A-Za-z]:|~", path)
    if outside or not path.strip() or "\0" in path:
        raise ValueError(
            f"{short(path)} is not a path inside the workspace; use a plain relative one"
        )
    return path


Path = Annotated[str, AfterValidator(expect_inside)]
_SEVERAL: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
}
Paths = Annotated[
    list[Path],
    BeforeValidator(as_list_of_texts),
    AfterValidator(not_empty),
    WithJsonSchema(_SEVERAL),
]


class SandboxCheck(Check):
    reads_answer: ClassVar[bool] = False

    @property
    def needs_sandbox(self) -> bool:
        return True


def sandbox_of(evidence: Evidence) -> Sandbox:
    if evidence.sandbox is None:
        raise CheckError("there is no sandbox to check", "Run the trial with one.")
    return evidence.sandbox


async def read_left(evidence: Evidence, path: str) -> str | Finding:
    """The text of a file, or the finding that it cannot be read."""
    try:
        data = await sandbox_of(evidence).read(path, MAX_FILE_BYTES)
    except OSError as error:
        return Finding(False, f"{path}: {in_words(error)}")
    return data.decode("utf-8", "replace")


class FileCheck(SandboxCheck):
    path: Path

    @property
    def paths(self) -> Sequence[str]:
        return [self.path]

    async def run(self, evidence: Evidence) -> Finding:
        content = await read_left(evidence, self.path)
        return content if isinstance(content, Finding) else await self.look_at(content)

    @abstractmethod
    async def look_at(self, content: str) -> Finding: ...


def in_words(error: OSError) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "does not exist"
    return error.strerror or str(error)


@dataclass(frozen=True, slots=True)
class CheckDir:
    """A folder in the room for one check."""

    sandbox: Sandbox
    root: str
    path: str  # the PATH of the sandbox
    files: str  # the folder with the check's own files
    in_own_workspace: bool  # the case does not say what the student delivers

    @property
    def scratch(self) -> str:
        return f"{self.root}/scratch"

    async def put(self, name: str, content: str) -> str:
        path = f"{self.root}/{name}"
        data = content.encode("utf-8", "replace")
        await self.sandbox.run(["/bin/sh", "-c", _PUT, "sh", path], stdin=data)
        return path

    async def find(self, names: Sequence[str], *, beside: Sequence[str] = ()) -> str:
        """The path of the first of these programs that is there, also in the folders `beside`; or nothing."""
        alone = with_only(PATH=":".join([self.path, *beside]))
        done = await self.sandbox.run([*alone, "/bin/sh", "-c", _FIND, "sh", *names])
        return done.output.strip() if done.code == 0 else ""

    async def run(
        self,
        argv: Sequence[str],
        seconds: float,
        *,
        stdin: str = "",
        environment: Mapping[str, str] | None = None,
        beside: Sequence[str] = (),
    ) -> CommandResult:
        variables = {
            **ENVIRONMENT,
            "PYTHONPATH": f"{self.root}/python",
            "PYTHONPYCACHEPREFIX": f"{self.root}/python",  # no bytecode of the student's
            "PATH": ":".join([self.path, *beside]),
            "HOME": f"{self.root}/home",
            "TMPDIR": self.scratch,
            "CHECK": self.files,
            **(environment or {}),
        }
        if self.in_own_workspace:  # where a file may have the name of a module of Python
            variables["PYTHONSAFEPATH"] = "1"
        # Compilers and runtimes reserve far more address space than they use.
        limits = Limits(wall=seconds, cpu=4 * seconds, memory=2048 * MiB, address_space=None)
        return await self.sandbox.run(
            [*with_only(**variables), *argv], limits, stdin=stdin.encode("utf-8", "replace")
        )


class ProgramCheck(SandboxCheck):
    async def run(self, evidence: Evidence) -> Finding:
        async with open_check_dir(evidence) as check_dir:
            return await self.run_in(check_dir, evidence)

    @abstractmethod
    async def run_in(self, check_dir: CheckDir, evidence: Evidence) -> Finding: ...


@asynccontextmanager
async def open_check_dir(evidence: Evidence) -> AsyncGenerator[CheckDir]:
    """A folder that is gone afterwards, with every process that was started there."""
    sandbox = sandbox_of(evidence)
    site = _SITE.format(workspace=sandbox.workspace)
    made = await sandbox.run(["/bin/sh", "-c", _MAKE], stdin=site.encode())
    if made.code:
        raise CheckError(f"the room has no writable folder: {output_excerpt(made)}")
    path, root = made.output.splitlines()
    check_dir = CheckDir(
        sandbox, root, path, evidence.check_files, in_own_workspace=evidence.in_own_workspace
    )
    try:
        yield check_dir
    finally:
        await sandbox.kill_processes()
        await sandbox.run(["rm", "-rf", "--", root])


def with_only(**variables: str) -> list[str]:
    """What stands before a program that is to have this environment and no other."""
    return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in variables.items())]


def output_excerpt(done: CommandResult) -> str:
    """How a command ended and the end of its output, where the point mostly is."""
    output = printable(
        "\n".join(text for text in (done.output.strip(), done.error.strip()) if text)
    )
    ended = f"it {done.killed_why}" if done.killed_why else f"exit code {done.code}"
    if not output:
        return ended
    return f"{ended}: {output if len(output) <= MAX_EXCERPT else '… ' + output[-MAX_EXCERPT:]}"
