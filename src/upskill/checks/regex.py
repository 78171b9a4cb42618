"""Checks for a pattern that the answer, or a file, must or must not match somewhere."""

from __future__ import annotations

from upskill.checks import Check, Evidence, Finding
from upskill.checks.denial import is_asserted
from upskill.checks.patterns import Pattern, find
from upskill.checks.workspace import Path, SandboxCheck, read_left
from upskill.plain import quoted


class _Matching(Check):
    pattern: Pattern
    ignore_case: bool = False
    multiline: bool = True
    asserted: bool = False

    async def found(self, evidence: Evidence) -> str | None:
        accept = is_asserted if self.asserted else None
        return await find(
            self.pattern, evidence.answer, ignore_case=self.ignore_case, multiline=self.multiline, accept=accept
        )


class Regex(_Matching):
    """Passes when this regular expression is found in the answer. Case counts unless `ignore_case` is true; with
    `asserted` a match that the answer denies ("not X", "I cannot help with X") does not count."""

    async def run(self, evidence: Evidence) -> Finding:
        found = await self.found(evidence)
        if found is not None:
            return Finding(True, f"the answer matches {quoted(self.pattern)} with {quoted(found[:80])}")
        return Finding(False, f"the answer does not match {quoted(self.pattern)}")


class NotRegex(_Matching):
    """Passes when this regular expression is nowhere in the answer; with `asserted` it may match what is denied."""

    async def run(self, evidence: Evidence) -> Finding:
        found = await self.found(evidence)
        if found is not None:
            return Finding(
                False, f"the answer matches {quoted(self.pattern)} with {quoted(found[:80])}, which it must not"
            )
        return Finding(True, f"the answer does not match {quoted(self.pattern)}")


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
        found = await find(self.pattern, content, ignore_case=self.ignore_case, multiline=self.multiline)
        if found is not None:
            return Finding(True, f"{self.path} matches {quoted(self.pattern)} with {quoted(found[:80])}")
        return Finding(False, f"{self.path} does not match {quoted(self.pattern)}")
