"""A check by a command that runs in the workspace after the agent has ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema, model_validator

from upskill.checks import Evidence, Finding, ReadText, Text
from upskill.checks.texts import Pattern, Texts, enumerate_texts, find, lacking
from upskill.checks.workspace import CheckDir, Path, ProgramCheck, output_excerpt
from upskill.errors import MissingTool, UsageError
from upskill.plain import as_list, quoted
from upskill.sandboxes import CommandResult

# As a suite writes them: texts by name, or the names of files beside it.
_TEXT: dict[str, Any] = {"type": "string"}
_FILES: dict[str, Any] = {
    "anyOf": [{"type": "object", "additionalProperties": _TEXT}, {"type": "array", "items": _TEXT}]
}
# What unittest and pytest end with if no test was run.
_ALL_SKIPPED = re.compile(
    r"^Ran (\d+) tests? in \S+\s+OK \(skipped=\1\)$|^=* ?\d+ skipped(?:, \d+ (?:warning|deselected)s?)* in \d",
    re.MULTILINE,
)


class Command(ProgramCheck):
    """Passes when this line of shell, run in the room after the agent ended, exits with this code (0 where none is
    said; null for any) and its output has these texts, none of those, and matches this pattern. `files` lie in
    `$CHECK`, which nothing can write to: a name with its text, or a list of files beside the suite. A program of
    `needs` that is missing makes the trial missing, and no failure."""

    revision: ClassVar[int] = 4  # it ran where the student had worked once

    line: Text = Field(alias="run")
    exit_code: int | None = 0
    contains: Texts | None = None
    not_contains: Texts | None = None
    regex: Pattern | None = None
    stdin: str = ""
    files: Annotated[dict[Path, str], WithJsonSchema(_FILES)] = Field(default_factory=dict)
    needs: list[Text] = Field(default_factory=list)
    timeout: float = Field(default=60.0, gt=0, le=3600)

    @classmethod
    def resolve(cls, config: dict[str, Any], read: ReadText) -> dict[str, Any]:
        names = as_list(config.get("files"))
        if names is None:
            return config
        if not all(isinstance(name, str) for name in names):
            raise UsageError("`files` must list files beside the suite, or map names to text")
        return {**config, "files": {name: read(name) for name in names}}

    @model_validator(mode="after")
    def _decides(self) -> Command:
        if self.exit_code is None and not (self.contains or self.not_contains or self.regex):
            raise ValueError("can never fail: any exit code and any output would pass")
        return self

    @property
    def own_files(self) -> Mapping[str, str]:
        return self.files

    @property
    def program(self) -> str:
        return "\n".join([self.line, *self.files.values()])

    async def run_in(self, check_dir: CheckDir, evidence: Evidence) -> Finding:
        for name in self.needs:
            if not await check_dir.find([name]):
                raise MissingTool(
                    f"the command needs {name!r}, which is not in the sandbox; install it for all users"
                )
        done = await check_dir.run(["bash", "-c", self.line], self.timeout, stdin=self.stdin)
        return await self._judge(done)

    async def _judge(self, done: CommandResult) -> Finding:
        excerpt = output_excerpt(done)
        if done.killed_why:
            return Finding(False, f"the command was killed: {excerpt}")
        if self.exit_code is not None and done.code != self.exit_code:
            return Finding(
                False, f"the command failed (expected exit code {self.exit_code}): {excerpt}"
            )
        output = done.output + done.error
        asks_to_skip = "skip" in f"{self.line} {self.contains} {self.regex}"
        if self.exit_code == 0 and not asks_to_skip and _ALL_SKIPPED.search(output):
            return Finding(False, f"every test was skipped: {excerpt}")
        if absent := lacking(self.contains or [], output, ignore_case=False):
            return Finding(False, f"the output lacks {enumerate_texts(absent)}: {excerpt}")
        if unwanted := [text for text in self.not_contains or [] if text in output]:
            return Finding(
                False,
                f"the output contains {enumerate_texts(unwanted)}, which it must not: {excerpt}",
            )
        if self.regex is not None and await find(self.regex, output) is None:
            return Finding(False, f"the output does not match {quoted(self.regex)}: {excerpt}")
        return Finding(True, f"the command did what it should: {excerpt}")
