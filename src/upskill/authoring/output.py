"""Where a finished skill is saved: a folder with the skill's name."""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Callable
from itertools import count
from pathlib import Path

from upskill.authoring.provenance import DRAFT, Provenance
from upskill.errors import UpskillError, UsageError
from upskill.skills import Skill
from upskill.skills.files import replace_file


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


def draft_folder(folder: Path, is_ours: Callable[[Path], bool]) -> Path:
    """Where a draft is saved: this folder, or one beside it where this one holds more than a draft of ours."""
    for number in count(1):
        place = folder.with_name(f"{folder.name}-{number}") if number > 1 else folder
        if not place.exists() or (is_ours(place) and is_draft(place)):
            return place
    raise AssertionError("not reached")


def is_draft(folder: Path) -> bool:
    """Whether a folder holds a skill that was saved on the way, and never finished."""
    try:
        return Provenance.of(Skill.load(folder)).metadata.get("state") == DRAFT
    except UpskillError:
        return False


def remove_draft(draft: Path | None, finished: Path) -> None:
    """Remove the draft of a skill that is finished and lies elsewhere."""
    if draft is not None and draft.resolve() != finished.resolve() and is_draft(draft):
        shutil.rmtree(draft, ignore_errors=True)


def named_after(folder: Path, skill: Skill) -> Skill:
    """The skill under the name of the folder that it is saved in."""
    return skill if skill.name == folder.name else skill.with_name(folder.name)


def write_file(path: Path, text: str) -> None:
    """Write a file of a skill; a folder that is missing is made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from error


def replace_manifest(skill: Skill, folder: Path) -> Path:
    """Write only the skill's SKILL.md into its folder, all of it or nothing."""
    name = next(file.path for file in skill.files if file.path.lower() == "skill.md")
    target = (folder / name).resolve()
    try:
        replace_file(target, skill.read(name) or b"")
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror or error}") from error
    return folder
