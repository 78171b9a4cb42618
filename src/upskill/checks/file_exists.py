"""A check that the agent left files, or folders, where they were wanted."""

from __future__ import annotations

import errno

from upskill.checks import Evidence, Finding
from upskill.checks.workspace import Paths, SandboxCheck, in_words, sandbox_of


class FileExists(SandboxCheck):
    """Passes when this file, or every one of these files, is there; a name that ends with a slash wants a folder."""

    path: Paths

    async def run(self, evidence: Evidence) -> Finding:
        for path in self.path:
            if wrong := await _missing(evidence, path):
                return Finding(False, f"{path}: {wrong}")
        return Finding(True, f"{', '.join(self.path)} {'is' if len(self.path) == 1 else 'are'} there")


async def _missing(evidence: Evidence, path: str) -> str:
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
