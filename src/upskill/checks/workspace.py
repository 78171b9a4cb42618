"""Where checks look and work: the workspace that an agent left, and a check's own folder in the same sandbox.

No link that the agent may have planted is followed. Programs get a clean environment: a PATH without folders that the
agent could write to, an empty home, and variables that switch off steering by files in the workspace.
"""

from __future__ import annotations

import errno
import os
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

# Settings that go before those of a repository. Nothing in one is run, and nothing it says hides a change.
GIT_SETTINGS = {
    **dict.fromkeys(("core.hooksPath", "core.attributesFile", "core.excludesFile"), "/dev/null"),
    **dict.fromkeys(
        ("core.fsmonitor", "core.untrackedCache", "core.editor", "core.sshCommand"), "false"
    ),
    **dict.fromkeys(("core.askPass", "gpg.program", "submodule.recurse"), "false"),
    **dict.fromkeys(("core.commitGraph", "core.multiPackIndex"), "false"),
    "credential.helper": "",
    "core.fileMode": "true",
    "core.pager": "cat",
    "protocol.allow": "never",
    "protocol.file.allow": "always",
    "safe.directory": "*",
    "status.showUntrackedFiles": "normal",
}
_EMPTY = (
    *(
        "NODE_OPTIONS",
        "NODE_PATH",
        "PERL5LIB",
        "PERL5OPT",
        "RUBYOPT",
        "RUBYLIB",
        "GOFLAGS",
        "RUSTFLAGS",
    ),
    *(
        "RUSTC_WRAPPER",
        "JAVA_TOOL_OPTIONS",
        "LUA_INIT",
        "BASH_ENV",
        "ENV",
        "LD_PRELOAD",
        "npm_config_node_options",
    ),
)
_ON = (
    *(
        "PYTHONSAFEPATH",
        "PYTHONNOUSERSITE",
        "PYTHONDONTWRITEBYTECODE",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_NO_REPLACE_OBJECTS",
    ),
)
ENVIRONMENT: Mapping[str, str] = {
    **dict.fromkeys(_EMPTY, ""),
    **dict.fromkeys(_ON, "1"),
    **dict.fromkeys(("GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "PERL_USE_UNSAFE_INC"), "0"),
    **dict.fromkeys(("GIT_CONFIG_GLOBAL", "npm_config_globalconfig"), "/dev/null"),
    **dict.fromkeys(("GOWORK", "GOPROXY", "GOENV"), "off"),
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PYTEST_ADDOPTS": "-p no:cacheprovider --import-mode=append",
    "GIT_CONFIG_COUNT": str(len(GIT_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(GIT_SETTINGS.values())},
    "CTEST_NO_TESTS_ACTION": "error",
    "npm_config_script_shell": "/bin/sh",
    "npm_config_offline": "true",
    "npm_config_update_notifier": "false",
    "GOTOOLCHAIN": "local",
    "CARGO_NET_OFFLINE": "true",
}

# An unforeseeable name, so that nothing can have been put there before, in a folder that may have been closed to all.
_MAKE = (
    'umask 077; chmod u+rwx "$TMPDIR" 2>/dev/null; '
    'made=$(mktemp -d) && cd "$made" && mkdir files home scratch && pwd'
)
_PUT = 'mkdir -p -- "${1%/*}" && cat >"$1"'
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

    async def run(self, evidence: Evidence) -> Finding:
        content = await read_left(evidence, self.path)
        return content if isinstance(content, Finding) else await self.look_at(content)

    @abstractmethod
    async def look_at(self, content: str) -> Finding: ...


def in_words(error: OSError) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "does not exist"
    return error.strerror or str(error)


class DiskFull(Exception):
    """The agent has left no room to work in."""


@dataclass(frozen=True, slots=True)
class CheckDir:
    """A folder in the sandbox of a trial that the agent has never seen."""

    sandbox: Sandbox
    root: str
    path: str  # the PATH of the sandbox

    @property
    def files(self) -> str:
        return f"{self.root}/files"

    @property
    def scratch(self) -> str:
        return f"{self.root}/scratch"

    async def put(self, name: str, content: str) -> str:
        path = f"{self.files}/{name}"
        _expect(
            await _run(
                self.sandbox,
                [*_with(PATH=self.path), "/bin/sh", "-c", _PUT, "sh", path],
                stdin=content,
            )
        )
        return path

    async def put_all(self, files: Mapping[str, str]) -> None:
        for name, content in files.items():
            await self.put(name, content)

    async def find(self, names: Sequence[str], *, beside: Sequence[str] = ()) -> str:
        """The path of the first of these programs that is there, also in the folders `beside`; or nothing."""
        alone = _with(PATH=":".join([self.path, *beside]))
        done = await self.sandbox.run([*alone, "/bin/sh", "-c", _FIND, "sh", *names])
        return done.output.strip() if done.code == 0 else ""

    async def run(
        self,
        argv: Sequence[str],
        seconds: float,
        *,
        stdin: str | bytes = "",
        environment: Mapping[str, str] | None = None,
        beside: Sequence[str] = (),
    ) -> CommandResult:
        variables = {
            **ENVIRONMENT,
            "PYTHONPATH": f"{self.root}/python",
            "PATH": ":".join([self.path, *beside]),
            "HOME": f"{self.root}/home",
            "TMPDIR": self.scratch,
            **(environment or {}),
        }
        # Compilers and runtimes reserve far more address space than they use.
        limits = Limits(wall=seconds, cpu=4 * seconds, memory=2048 * MiB, address_space=None)
        return await _run(self.sandbox, [*_with(**variables), *argv], limits, stdin=stdin)


class ProgramCheck(SandboxCheck):
    async def run(self, evidence: Evidence) -> Finding:
        try:
            async with open_check_dir(sandbox_of(evidence)) as check_dir:
                return await self.run_in(check_dir, evidence)
        except DiskFull:
            return Finding(False, "the student's files fill the disk, so the check has no room")

    @abstractmethod
    async def run_in(self, check_dir: CheckDir, evidence: Evidence) -> Finding: ...


@asynccontextmanager
async def open_check_dir(sandbox: Sandbox) -> AsyncGenerator[CheckDir]:
    """A folder that is gone afterwards, with every process that was started there."""
    done = await _run(
        sandbox, ["/bin/sh", "-c", 'printf "%s\\n%s\\n" "$PATH" "${TMPDIR:-/tmp}"']
    )  # runs no program
    path, temporary = done.output.splitlines()
    writable = (f"{sandbox.workspace}/", f"{sandbox.home}/", f"{temporary}/")
    folders = [folder for folder in path.split(":") if folder.startswith("/")]
    own = ":".join(folder for folder in folders if not f"{folder}/".startswith(writable))
    alone = _with(PATH=own, TMPDIR=temporary)
    root = _expect(await _run(sandbox, [*alone, "/bin/sh", "-c", _MAKE])).output.strip()
    try:
        yield CheckDir(sandbox, root, own)
    finally:
        await sandbox.kill_processes()
        await sandbox.run([*alone, "rm", "-rf", "--", root])


def _with(**variables: str) -> list[str]:
    """What stands before a program that is to have this environment and no other."""
    return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in variables.items())]


async def _run(
    sandbox: Sandbox, argv: list[str], limits: Limits | None = None, stdin: str | bytes = ""
) -> CommandResult:
    try:
        return await sandbox.run(
            argv,
            limits,
            stdin=stdin if isinstance(stdin, bytes) else stdin.encode("utf-8", "replace"),
        )
    except OSError as error:  # where it comes as a file
        if error.errno == errno.ENOSPC:
            raise DiskFull from error
        raise


def _expect(done: CommandResult) -> CommandResult:
    if os.strerror(errno.ENOSPC) in done.error or "in all" in done.killed_why:
        raise DiskFull
    if done.code:
        raise CheckError(f"the sandbox has no writable folder: {output_excerpt(done)}")
    return done


def output_excerpt(done: CommandResult) -> str:
    """How a command ended and the end of its output, where the point mostly is."""
    output = printable(
        "\n".join(text for text in (done.output.strip(), done.error.strip()) if text)
    )
    ended = f"it {done.killed_why}" if done.killed_why else f"exit code {done.code}"
    if not output:
        return ended
    return f"{ended}: {output if len(output) <= MAX_EXCERPT else '… ' + output[-MAX_EXCERPT:]}"
