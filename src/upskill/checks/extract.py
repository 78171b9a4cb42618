"""A check that puts code from the answer into a file, for the checks that follow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from upskill.checks import Evidence, Finding
from upskill.checks.texts import Texts, blocks
from upskill.checks.workspace import Path, SandboxCheck, in_words, sandbox_of
from upskill.plain import counted

# Languages of what stands beside code: how it is called or built, and what came of it.
BESIDE_CODE = (
    *(
        "bash",
        "cmake",
        "console",
        "json",
        "log",
        "make",
        "makefile",
        "markdown",
        "md",
        "output",
        "plaintext",
        "py",
    ),
    *("python", "sh", "shell", "text", "toml", "txt", "yaml", "yml", "zsh"),
)


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


def find_code(answer: str, marks: Sequence[str]) -> str | None:
    """The code of an answer that should have all of these marks, as words of their own: the last fenced block that has,
    or the blocks that have them together; the whole answer where nothing is fenced. None where no mark is found at all.
    A block in the language of a call or a log counts only where no other has a mark."""
    fenced = [*blocks(answer)] or [("", answer)]
    marked = [(language, code) for language, code in fenced if _marks_of(code, marks)]
    codes = [code for language, code in marked if language not in BESIDE_CODE] or [
        code for _, code in marked
    ]
    if not codes:
        return None
    if complete := [code for code in codes if _marks_of(code, marks) == {*marks}]:
        return complete[-1]
    joined = "\n".join(codes)
    return joined if _marks_of(joined, marks) == {*marks} else codes[-1]


def _marks_of(text: str, marks: Sequence[str]) -> set[str]:
    """`launch` is no mark of `__launch_bounds__`."""
    return {mark for mark in marks if re.search(rf"(?<!\w){re.escape(mark)}(?!\w)", text)}
