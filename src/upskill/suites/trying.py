"""Holds the checks of one case against an answer, or against what a script leaves: on paper, or in a sandbox."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn, cast

from upskill.checks import Evidence, SuiteCheck
from upskill.errors import CheckError, SandboxError, UsageError, wrap_trial_errors
from upskill.suites.suite import Case
from upskill.traces import Step, Trace

if TYPE_CHECKING:
    from upskill.sandboxes import Sandbox, SandboxBackend

SCRIPT_SECONDS = 60.0


class NoSandbox(Exception):
    """Something has to be run, and there is nowhere to run it."""


class Ground:
    """Where checks run what they have to run; found once, when first needed."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._found: SandboxBackend | NoSandbox | None = None
        self._lock = asyncio.Lock()

    async def open(self, files: Mapping[str, str]) -> Sandbox:
        from upskill.sandboxes import Setup, choose_sandbox  # noqa: PLC0415 - only where something is run

        async with self._lock:
            if self._found is None:
                try:
                    self._found = (await choose_sandbox(self.name or None)).backend
                except UsageError as error:
                    self._found = NoSandbox(error.message)
        if isinstance(self._found, NoSandbox):
            raise self._found
        with wrap_trial_errors(SandboxError, f"opening a sandbox ({self._found.name})"):
            return await self._found.open(Setup(files=files))


@dataclass
class Trying:
    """The checks of one case, held against answers of which nothing came but themselves."""

    case: Case
    ground: Ground
    skill: str = ""  # what the skill says, which an answer may recite
    known: dict[str, str | None] = field(default_factory=dict[str, "str | None"])  # by what the checks look at

    async def failure(self, answer: str, checks: Iterable[SuiteCheck] | None = None) -> str | None:
        """Why this answer fails; None when it passes."""
        chosen = list(self.case.checks if checks is None else checks)
        # What needs no sandbox first: most of what knows nothing fails there, and a check changes nothing for another
        # but through files.
        cheap = [named for named in chosen if not named.check.needs_sandbox]
        failed = await self._first(cheap, answer, None)
        rest = [named for named in chosen if named.check.needs_sandbox]
        if failed is not None or not rest:
            return failed
        # Checks that do not look at the answer find the same for every one, and a command may take its time.
        key = answer if any(named.check.reads_answer for named in rest) else ""
        if checks is not None:
            return await self._on_site(rest, answer)
        if key not in self.known:
            self.known[key] = await self._on_site(rest, answer)
        return self.known[key]

    async def failure_of_script(self, script: str) -> str | None:
        """Why the checks fail on what a shell script leaves, with what it prints as the answer; None when they pass."""
        from upskill.sandboxes import Limits  # noqa: PLC0415 - only where something is run

        async with await self.ground.open(self.case.files) as sandbox:
            done = await sandbox.run(script, Limits(wall=SCRIPT_SECONDS, cpu=SCRIPT_SECONDS))
            await sandbox.kill_processes()
            # No tool was called, so nothing can be said about that.
            checks = [named for named in self.case.checks if named.check.needs_sandbox or named.check.reads_answer]
            failed = await self._first(checks, done.output.strip(), sandbox)
        if failed is not None and done.code:
            said = f": {error}" if (error := done.error.strip()[-200:]) else ""
            return f"{failed}; the script ended with exit code {done.code}{said}"
        return failed

    async def broken(self) -> str:
        """How a `python` check breaks both on the reference and where nothing was done; empty when none does."""
        for number, named in enumerate(self.case.checks):
            if named.name == "python":
                before = [one for one in self.case.checks[:number] if one.check.needs_sandbox]
                errors = [await self._error(named, before, answer) for answer in {self.case.reference, ""}]
                if all(errors):
                    return errors[0]
        return ""

    async def _error(self, last: SuiteCheck, before: list[SuiteCheck], answer: str) -> str:
        async with await self.ground.open(self.case.files) as sandbox:
            with suppress(CheckError):
                await self._first(before, answer, sandbox)  # it may leave files for the last one
            try:
                await last.check.run(self._evidence(answer, sandbox))
            except CheckError as error:
                return error.message
        return ""

    def _evidence(self, answer: str, sandbox: Sandbox | None) -> Evidence:
        case = self.case
        return Evidence(
            Trace((Step("assistant", answer),)),
            case.prompt,
            sandbox=sandbox,
            reference=case.reference,
            files=case.files,
            case=case.words,
            asked_for=case.asked_for,
            skill_body=self.skill,
        )

    async def _on_site(self, checks: list[SuiteCheck], answer: str) -> str | None:
        try:
            # On paper first, as a workspace of a few texts is all that most checks of files need.
            return await self._first(checks, answer, cast("Sandbox", _Paper(self.case.files)))
        except _NeedsToRun:
            pass
        async with AsyncExitStack() as stack:
            sandbox = await stack.enter_async_context(await self.ground.open(self.case.files))
            return await self._first(checks, answer, sandbox)

    async def _first(self, checks: list[SuiteCheck], answer: str, sandbox: Sandbox | None) -> str | None:
        evidence = self._evidence(answer, sandbox)
        for named in checks:
            try:
                with wrap_trial_errors(CheckError, f"checking {named.name}"):
                    finding = await named.check.run(evidence)
            except CheckError as error:
                return error.message  # what breaks does not pass
            if not finding.passed and finding.decides and named.check.decides:
                return finding.reason
        return None


class _NeedsToRun(BaseException):
    """Not an Exception, so that no check takes it for a failure of its own."""


class _Paper:
    """The workspace of a sandbox in which nothing was ever run, and nothing can be."""

    kind = "paper"
    workspace = "/workspace"
    home = "/home"
    proxy_socket = None

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = {_parts(path): text.encode("utf-8", "surrogateescape") for path, text in files.items()}

    async def read(self, path: str, most: int = 16 * 2**20) -> bytes:
        parts = _parts(path)
        if parts not in self._files:
            if any(other[: len(parts)] == parts for other in self._files):
                raise IsADirectoryError(errno.EISDIR, "is a folder", path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if len(self._files[parts]) > most:
            raise OSError(errno.EFBIG, f"has more than {most:,} bytes", path)
        return self._files[parts]

    async def write(self, path: str, content: str | bytes, *, executable: bool = False) -> None:
        self._files[_parts(path)] = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content

    def __getattr__(self, name: str) -> NoReturn:
        raise _NeedsToRun(name)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))
