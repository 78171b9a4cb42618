"""Checks of the files that the agent left."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from upskill.checks import Evidence, Finding
from upskill.checks.texts import Pattern, Texts, describe_match, enumerate_texts, find, lacking
from upskill.checks.workspace import FileCheck, Paths, SandboxCheck, in_words, sandbox_of


class FileExists(SandboxCheck):
    """Passes when this file, or every one of these files, is there; a name that ends with a slash wants a folder."""

    path: Paths

    @property
    def paths(self) -> Sequence[str]:
        return self.path

    async def run(self, evidence: Evidence) -> Finding:
        for path in self.path:
            if problem := await _why_missing(evidence, path):
                return Finding(False, f"{path}: {problem}")
        return Finding(
            True, f"{', '.join(self.path)} {'exists' if len(self.path) == 1 else 'exist'}"
        )


async def _why_missing(evidence: Evidence, path: str) -> str:
    """Why a path does not count as there; empty when it does. A link does not: it may lead anywhere."""
    folder = path.endswith("/")
    try:
        await sandbox_of(evidence).read(path.rstrip("/"), 0)
    except IsADirectoryError:
        return "" if folder else "is a folder"
    except OSError as error:
        if error.errno != errno.EFBIG:  # it has something in it, more than we asked to read
            return in_words(error)
    return "is not a folder" if folder else ""


class FileContains(FileCheck):
    """Passes when this file, as the agent left it, has this text, or every one of these texts, in it."""

    text: Texts
    ignore_case: bool = False

    async def look_at(self, content: str) -> Finding:
        if absent := lacking(self.text, content, ignore_case=self.ignore_case):
            return Finding(False, f"{self.path} lacks {enumerate_texts(absent)}")
        return Finding(True, f"{self.path} has {enumerate_texts(self.text)}")


class FileMatches(FileCheck):
    """Passes when this regular expression is found in this file, as the agent left it."""

    pattern: Pattern
    ignore_case: bool = False
    multiline: bool = True

    async def look_at(self, content: str) -> Finding:
        match = await find(
            self.pattern, content, ignore_case=self.ignore_case, multiline=self.multiline
        )
        return describe_match(self.path, self.pattern, match)
