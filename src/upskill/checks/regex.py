"""Checks for a pattern that the answer must, or must not, match somewhere."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

from pydantic import field_validator

from upskill.checks import Check, Evidence, Finding


@lru_cache(maxsize=10_000)
def _compile(pattern: str, flags: int) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `[[` might mean something else one day; it does not today
        return re.compile(pattern, flags)


class _Pattern(Check):
    pattern: str
    ignore_case: bool = False
    multiline: bool = True

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        if not pattern:
            raise ValueError("is empty, which decides nothing")
        try:
            _compile(pattern, 0)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        return pattern

    def search(self, evidence: Evidence) -> re.Match[str] | None:
        flags = (re.IGNORECASE if self.ignore_case else 0) | (re.MULTILINE if self.multiline else 0)
        return _compile(self.pattern, flags).search(evidence.trace.answer)


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
