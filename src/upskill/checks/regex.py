"""Checks for a pattern that the answer, or a file, must or must not match somewhere."""

from __future__ import annotations

from upskill.checks import Check, Evidence, Finding
from upskill.checks.texts import Pattern, find
from upskill.checks.workspace import Path, SandboxCheck, read_left
from upskill.plain import quoted


class Regex(Check):
    """Passes when this regular expression is found in the answer. Case counts unless `ignore_case` is true; with
    `asserted` a match that the answer denies ("not X", "I cannot help with X") does not count."""

    pattern: Pattern
    ignore_case: bool = False
    multiline: bool = True
    asserted: bool = False

    async def match(self, evidence: Evidence) -> str | None:
        options = {"ignore_case": self.ignore_case, "multiline": self.multiline, "asserted": self.asserted}
        return await find(self.pattern, evidence.answer, **options)

    async def run(self, evidence: Evidence) -> Finding:
        return _finding("the answer", self.pattern, await self.match(evidence))


class NotRegex(Regex):
    """Passes when this regular expression is nowhere in the answer; with `asserted` it may match what is denied."""

    async def run(self, evidence: Evidence) -> Finding:
        matches = _finding("the answer", self.pattern, await self.match(evidence))
        return Finding(not matches.passed, matches.reason + (", which it must not" if matches.passed else ""))


class FileMatches(SandboxCheck):
    """Passes when this regular expression is found in this file, as the agent left it."""

    path: Path
    pattern: Pattern
    ignore_case: bool = False
    multiline: bool = True

    async def run(self, evidence: Evidence) -> Finding:
        content = await read_left(evidence, self.path)
        if isinstance(content, Finding):
            return content
        match = await find(self.pattern, content, ignore_case=self.ignore_case, multiline=self.multiline)
        return _finding(self.path, self.pattern, match)


def _finding(where: str, pattern: str, match: str | None) -> Finding:
    if match is None:
        return Finding(False, f"{where} does not match {quoted(pattern)}")
    return Finding(True, f"{where} matches {quoted(pattern)} with {quoted(match[:80])}")
