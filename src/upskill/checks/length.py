"""Checks for how long the answer is, in characters."""

from __future__ import annotations

from pydantic import Field

from upskill.checks import Check, Evidence, Finding


class MinLength(Check):
    """Passes when the answer has at least this many characters, white space around it not counted."""

    characters: int = Field(ge=1)

    async def run(self, evidence: Evidence) -> Finding:
        length = len(evidence.answer.strip())
        return Finding(
            length >= self.characters, f"the answer has {length} characters, at least {self.characters} wanted"
        )


class MaxLength(Check):
    """Passes when the answer has at most this many characters: catches a skill recited in full."""

    characters: int = Field(ge=1)

    async def run(self, evidence: Evidence) -> Finding:
        length = len(evidence.answer.strip())
        return Finding(
            length <= self.characters, f"the answer has {length} characters, at most {self.characters} wanted"
        )
