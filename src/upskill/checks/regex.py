"""Checks for a pattern that the answer must, or must not, match somewhere."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from upskill.checks import Check, Evidence, Finding


class _Pattern(Check):
    pattern: str = Field(min_length=1)
    ignore_case: bool = False
    multiline: bool = True

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        return pattern

    def search(self, evidence: Evidence) -> re.Match[str] | None:
        flags = (re.IGNORECASE if self.ignore_case else 0) | (re.MULTILINE if self.multiline else 0)
        return re.search(self.pattern, evidence.trace.answer, flags)


class Regex(_Pattern):
    """Passes when this regular expression is found in the answer."""

    async def look(self, evidence: Evidence) -> Finding:
        found = self.search(evidence)
        if found:
            return Finding(True, f"the answer matches {self.pattern!r} with {found[0][:80]!r}")
        return Finding(False, f"the answer does not match {self.pattern!r}")


class NotRegex(_Pattern):
    """Passes when this regular expression is nowhere in the answer."""

    async def look(self, evidence: Evidence) -> Finding:
        found = self.search(evidence)
        if found:
            return Finding(False, f"the answer matches {self.pattern!r} with {found[0][:80]!r}, which it must not")
        return Finding(True, f"the answer does not match {self.pattern!r}")
