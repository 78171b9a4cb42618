"""A CheckDir is where a check works in the sandbox of a trial: a folder of its own that the agent has never seen.

What is run there has a clean environment: the sandbox's own PATH without any folder that the agent could write to, and
an empty home folder, so that nothing the agent left behind stands in for a program or speaks to one at its start.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from upskill.checks import Finding
from upskill.checks.guard import ENVIRONMENT
from upskill.errors import CheckError
from upskill.sandboxes import CommandResult, Limits, MiB, Sandbox, printable

# An unforeseeable name, so that nothing can have been put there before, in a folder that may have been closed to all.
_MAKE = (
    'umask 077; chmod u+rwx "$TMPDIR" 2>/dev/null; made=$(mktemp -d) && cd "$made" && mkdir files home scratch && pwd'
)
_PUT = 'mkdir -p -- "${1%/*}" && cat >"$1"'
_FIND = 'for name; do command -v -- "$name" && exit; done; exit 1'
MOST_TOLD = 400  # characters of what a command said, in a reason


class Full(Exception):
    """The agent has left no room to work in."""

    @property
    def finding(self) -> Finding:
        return Finding(False, "what was left fills the disk, so the check had no room")


@dataclass(frozen=True, slots=True)
class CheckDir:
    sandbox: Sandbox
    root: str
    path: str  # the PATH of the sandbox

    @property
    def files(self) -> str:
        """Where the files of the check lie."""
        return f"{self.root}/files"

    @property
    def scratch(self) -> str:
        return f"{self.root}/scratch"

    async def put(self, name: str, content: str) -> str:
        """Put a file there; returns its path."""
        where = f"{self.files}/{name}"
        _expect(await _run(self.sandbox, [*_with(PATH=self.path), "/bin/sh", "-c", _PUT, "sh", where], stdin=content))
        return where

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
        stdin: str = "",
        environment: Mapping[str, str] | None = None,
        beside: Sequence[str] = (),
    ) -> CommandResult:
        """Run a program in the workspace, under the limits of a check."""
        variables = {
            **ENVIRONMENT,
            "PYTHONPATH": f"{self.root}/python",
            "PYTHONPYCACHEPREFIX": f"{self.root}/pycache",
            "PATH": ":".join([self.path, *beside]),
            "HOME": f"{self.root}/home",
            "TMPDIR": self.scratch,
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **(environment or {}),
        }
        # Compilers and runtimes reserve far more address space than they use.
        limits = Limits(wall=seconds, cpu=4 * seconds, memory=2048 * MiB, address_space=None)
        return await _run(self.sandbox, [*_with(**variables), *argv], limits, stdin=stdin)


@asynccontextmanager
async def open_check_dir(sandbox: Sandbox) -> AsyncGenerator[CheckDir]:
    """A place that is gone afterwards, with every process that was started there."""
    said = await _run(sandbox, ["/bin/sh", "-c", 'printf "%s\\n%s\\n" "$PATH" "${TMPDIR:-/tmp}"'])  # runs no program
    path, temporary = said.output.splitlines()
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


async def _run(sandbox: Sandbox, argv: list[str], limits: Limits | None = None, stdin: str = "") -> CommandResult:
    try:
        return await sandbox.run(argv, limits, stdin=stdin.encode("utf-8", "replace"))
    except OSError as error:  # where it comes as a file
        if error.errno == errno.ENOSPC:
            raise Full from error
        raise


def _expect(done: CommandResult) -> CommandResult:
    if os.strerror(errno.ENOSPC) in done.error or "in all" in done.killed_why:
        raise Full
    if done.code:
        raise CheckError(f"the sandbox has no place to work in: {told(done)}")
    return done


def told(done: CommandResult) -> str:
    """What a command said, for a reason: the end of it, where the point mostly is."""
    said = printable("\n".join(text for text in (done.output.strip(), done.error.strip()) if text))
    ended = f"it {done.killed_why}" if done.killed_why else f"exit code {done.code}"
    if not said:
        return ended
    return f"{ended}: {said if len(said) <= MOST_TOLD else '… ' + said[-MOST_TOLD:]}"
