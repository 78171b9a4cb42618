"""Where a finished skill is saved: a folder with the skill's name."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from upskill.errors import UsageError
from upskill.skills import Skill


def as_name(text: str) -> str:
    """The nearest valid name of a skill."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:64].strip("-")


def check_output(folder: Path, *, may_replace: bool) -> None:
    """UsageError when no skill can be saved in this folder. Call it before anything is paid for."""
    if folder.name != (better := as_name(folder.name)):
        raise UsageError(
            f"{folder}: a skill's folder is named like the skill, and {folder.name!r} cannot be a skill's name",
            f"Use lowercase letters, digits and dashes, for example {folder.parent / (better or 'skill')}.",
        )
    if folder.exists() and not may_replace:
        raise UsageError(f"{folder}: exists already", "Choose another --output, or replace it with --force.")


def named_after(folder: Path, skill: Skill) -> Skill:
    """The skill under the name of the folder that it is saved in."""
    return skill if skill.name == folder.name else skill.with_name(folder.name)
