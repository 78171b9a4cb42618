"""Checks for the whole answer, or its beginning."""

from __future__ import annotations

from upskill.checks import Check, Evidence, Finding, Text


class Equals(Check):
    """Passes when the answer, without the white space around it, is exactly this text."""

    text: Text
    ignore_case: bool = False

    async def run(self, evidence: Evidence) -> Finding:
        answer, text = evidence.answer.strip(), self.text.strip()
        same = answer.casefold() == text.casefold() if self.ignore_case else answer == text
        return Finding(same, f"the answer {'is' if same else 'is not'} {self.text!r}")


class StartsWith(Check):
    """Passes when the answer begins with this text, white space before it not counted."""

    text: Text
    ignore_case: bool = False

    async def run(self, evidence: Evidence) -> Finding:
        answer, text = evidence.answer.lstrip(), self.text.lstrip()
        if self.ignore_case:
            answer, text = answer.casefold(), text.casefold()
        starts = answer.startswith(text)
        return Finding(starts, f"the answer {'starts' if starts else 'does not start'} with {self.text!r}")
