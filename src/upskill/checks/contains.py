"""Checks for text that the answer, or a file, must or must not have in it."""

from __future__ import annotations

from upskill.checks import Check, Evidence, Finding
from upskill.checks.texts import Texts, enumerate_texts, lacking
from upskill.checks.workspace import Path, SandboxCheck, read_left


class _Search(Check):
    text: Texts
    ignore_case: bool = True
    asserted: bool = False

    def absent(self, evidence: Evidence) -> list[str]:
        return lacking(self.text, evidence.answer, ignore_case=self.ignore_case, asserted=self.asserted)

    def there(self, evidence: Evidence) -> list[str]:
        absent = self.absent(evidence)
        return [text for text in self.text if text not in absent]


class Contains(_Search):
    """Passes when the answer has this text, or every one of these texts, in it. With `asserted` a mention that the
    answer denies ("not X", "I cannot help with X") does not count."""

    async def run(self, evidence: Evidence) -> Finding:
        if absent := self.absent(evidence):
            return Finding(False, f"the answer lacks {enumerate_texts(absent)}")
        return Finding(True, f"the answer has {enumerate_texts(self.text)}")


class ContainsAny(_Search):
    """Passes when the answer has at least one of these texts in it; `asserted` as in `contains`."""

    async def run(self, evidence: Evidence) -> Finding:
        if there := self.there(evidence):
            return Finding(True, f"the answer has {enumerate_texts(there)}")
        return Finding(False, f"the answer has none of {enumerate_texts(self.text)}")


class NotContains(_Search):
    """Passes when the answer has none of these texts in it; with `asserted` it may name one to deny it ("A, not B").
    Says nothing about an empty answer."""

    async def run(self, evidence: Evidence) -> Finding:
        if there := self.there(evidence):
            return Finding(False, f"the answer has {enumerate_texts(there)}, which it must not")
        return Finding(True, f"the answer is free of {enumerate_texts(self.text)}")


class FileContains(SandboxCheck):
    """Passes when this file, as the agent left it, has this text, or every one of these texts, in it."""

    path: Path
    text: Texts
    ignore_case: bool = False

    async def run(self, evidence: Evidence) -> Finding:
        content = await read_left(evidence, self.path)
        if isinstance(content, Finding):
            return content
        if absent := lacking(self.text, content, ignore_case=self.ignore_case):
            return Finding(False, f"{self.path} lacks {enumerate_texts(absent)}")
        return Finding(True, f"{self.path} has {enumerate_texts(self.text)}")
