"""The workspace that an agent left, as checks look at it: nothing is followed that the agent may have planted there."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from upskill.checks import Check, Evidence, Finding
from upskill.checks.texts import as_texts
from upskill.errors import CheckError

if TYPE_CHECKING:
    from upskill.sandboxes import Sandbox

LARGEST = 4 * 2**20  # bytes of a file that a check reads


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path or re.match(r"^[A-Za-z]:|~", path):
        raise ValueError(f"{path!r} is not a path inside the workspace; use a plain relative one")
    return path


def _at_least_one(paths: list[str]) -> list[str]:
    if not paths:
        raise ValueError("is an empty list, which decides nothing")
    return paths


Path = Annotated[str, AfterValidator(_inside)]
_SEVERAL: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
Paths = Annotated[list[Path], BeforeValidator(as_texts), AfterValidator(_at_least_one), WithJsonSchema(_SEVERAL)]


class SandboxCheck(Check):
    """A check that is made where the agent was: in the sandbox of the trial."""

    reads_answer: ClassVar[bool] = False

    @property
    def needs_sandbox(self) -> bool:
        return True


def sandbox_of(evidence: Evidence) -> Sandbox:
    if evidence.sandbox is None:
        raise CheckError("there is no sandbox to look at", "Run the trial with one.")
    return evidence.sandbox


async def read_left(evidence: Evidence, path: str) -> str | Finding:
    """The text of a file that the agent left, or the finding that there is none to be read."""
    try:
        data = await sandbox_of(evidence).read(path, LARGEST)
    except OSError as error:
        return Finding(False, f"{path}: {in_words(error)}")
    return data.decode("utf-8", "replace")


def in_words(error: OSError) -> str:
    """What is wrong with a file, whatever the kind of sandbox."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "is not there"
    return error.strerror or str(error)
