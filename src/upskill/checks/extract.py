"""A check that puts code from the answer into a file, for the checks that follow."""

from __future__ import annotations

from typing import ClassVar, Literal

from upskill.checks import Evidence, Finding
from upskill.checks.texts import Texts, blocks
from upskill.checks.workspace import Path, SandboxCheck, in_words, sandbox_of
from upskill.plain import counted


class Extract(SandboxCheck):
    """Passes when the answer has a fenced code block, in this language or one of these where it is said, and puts the
    last one, or the first, into a file of the workspace."""

    to: Path
    language: Texts | None = None
    which: Literal["last", "first"] = "last"
    reads_answer: ClassVar[bool] = True
    revision: ClassVar[int] = 2  # a fence in a list was none once, nor one that closes behind code

    async def run(self, evidence: Evidence) -> Finding:
        languages = {language.casefold() for language in self.language or ()}
        codes = [
            code
            for language, code in blocks(evidence.answer)
            if not languages or language in languages
        ]
        if not codes:
            kind = f" in {' or '.join(self.language)}" if self.language else ""
            return Finding(False, f"the answer has no fenced code block{kind}")
        code = codes[-1] if self.which == "last" else codes[0]
        try:
            await sandbox_of(evidence).write(self.to, code.encode("utf-8", "replace"))
        except OSError as error:
            return Finding(False, f"{self.to}: {in_words(error)}")
        return Finding(
            True, f"copied {counted(len(code.splitlines()), 'line')} from the answer to {self.to}"
        )
