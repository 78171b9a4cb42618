"""Versions of a skill: whether a person has edited what we wrote, and the version that a new one replaces.

`skill_meta.json` records a hash of what a student can see when a skill is saved. A folder whose hash is another, or
that has no record, was written by a person: it is replaced only by someone who says so. What is replaced is copied to
`.previous/NAME/VERSION-HASH` beside it; a search also stores it as its first candidate (`upskill history`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from upskill.authoring.saving.provenance import DRAFT, FILE, Provenance
from upskill.errors import UpskillError, UsageError
from upskill.skills import HIDDEN_FROM_STUDENTS, Skill
from upskill.skills.files import PREVIOUS

RECORD = "visible_hash"  # in the metadata of skill_meta.json


def record_version(skill: Skill) -> Skill:
    """The skill with the hash of what a student can see in its `skill_meta.json`."""
    provenance = Provenance.of(skill)
    return replace(provenance, metadata=dict(provenance.metadata) | {RECORD: skill.visible_hash}).add_to(skill)


def edited_by_hand(skill: Skill) -> bool:
    """Whether it is not, or not any more, what upskill wrote."""
    try:
        return Provenance.of(skill).metadata.get(RECORD) != skill.visible_hash
    except UsageError:  # a skill_meta.json that cannot be read was not written by us
        return True


def refuse_to_replace(folder: Path) -> None:
    """UsageError when a skill that was edited by hand would be replaced and nobody can be asked."""
    if (skill := _load(folder)) is not None and edited_by_hand(skill):
        raise UsageError(
            f"{folder}: was written or edited by hand, and would be replaced",
            f"Say --force to replace it (this version is kept in {folder.parent / PREVIOUS / folder.name}), or save the"
            " new one elsewhere with --output.",
        )


def choose_folder(
    first: Path, skill: Skill, may_replace: Callable[[Path], bool], ask: Callable[[Path, str], bool] | None
) -> Path:
    """Where a finished skill is saved: here, or in a folder beside it if something here is to stay."""
    for number in count(1):
        folder = first.with_name(f"{first.name}-{number}") if number > 1 else first
        if not folder.exists():
            return folder
        if may_replace(folder):
            before = _load(folder)
            if before is None or not edited_by_hand(before) or before.visible_hash == skill.visible_hash:
                return folder
            if ask is not None and ask(folder, changes(before, skill)):
                return folder
    raise AssertionError("not reached")


def save_version(skill: Skill, folder: Path) -> tuple[Skill, Path | None]:
    """Save a skill, with a record of it; returns it and where the version is kept that it replaced, if it did."""
    before, previous = _load(folder), None
    is_new = before is None or before.visible_hash != skill.visible_hash
    if before is not None and not is_draft(before) and (is_new or (is_proven(before) and not is_proven(skill))):
        place = folder.parent / PREVIOUS / folder.name / f"{_version_of(before)}-{before.visible_hash[:8]}"
        previous = before.save(place, overwrite=True)
    if before is None or is_new or not edited_by_hand(before):
        skill = record_version(skill)
    skill.save(folder, overwrite=True)
    return skill, previous


def already_proven(skill: Skill, folder: Path) -> Skill | None:
    """The version in this folder if it was evaluated, and this one is the same without a result."""
    before = _load(folder)
    if before is None or not is_proven(before) or edited_by_hand(before) or is_proven(skill):
        return None
    files, kept = ({file.path: file.data for file in one.files if file.path != FILE} for one in (skill, before))
    return before if files == kept else None


def is_proven(skill: Skill) -> bool:
    """Whether it is recorded how it did in an evaluation."""
    try:
        metadata = Provenance.of(skill).metadata
    except UsageError:
        return False
    return metadata.get("test_pass_rate") is not None and not metadata.get("state")


def is_draft(skill: Skill) -> bool:
    """Whether it was saved on the way, and never finished."""
    try:
        return Provenance.of(skill).metadata.get("state") == DRAFT
    except UsageError:
        return False


def as_improved(provenance: Provenance, model: str, request: str) -> Provenance:
    """The provenance of the next version of a skill: by whom, when, and what was asked for."""
    version = str(provenance.metadata.get("version", ""))
    numbers = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)?", version)
    metadata = {
        "version": f"{numbers[1]}.{int(numbers[2]) + 1}.0" if numbers else version,
        "previous_version": version,
        "improved_by": model,
        "improved_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "request": request,
    }
    return replace(provenance, metadata=dict(provenance.metadata) | metadata)


def _version_of(skill: Skill) -> str:
    """For the name of a folder."""
    try:
        version = str(Provenance.of(skill).metadata.get("version", ""))
    except UsageError:
        version = ""
    return re.sub(r"[^\w.]+", "-", version).strip(".-")[:40] or "unversioned"


def changes(before: Skill, after: Skill) -> str:
    """What a student would see changed, as a unified diff."""

    def lines() -> Iterator[str]:
        texts = [
            {
                file.path: file.data.decode("utf-8", "replace").splitlines()
                for file in skill.files
                if not file.path.startswith(HIDDEN_FROM_STUDENTS)
            }
            for skill in (before, after)
        ]
        for path in sorted(texts[0].keys() | texts[1].keys()):
            both = texts[0].get(path, []), texts[1].get(path, [])
            yield from difflib.unified_diff(*both, f"now/{path}", f"new/{path}", lineterm="")

    return "\n".join(lines())


def _load(folder: Path) -> Skill | None:
    try:
        return Skill.load(folder)
    except UpskillError:
        return None
