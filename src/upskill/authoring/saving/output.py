"""Saves a finished skill. What it replaces is kept in `.previous`; a skill that a person edited needs consent."""

from __future__ import annotations

import difflib
import re
import tempfile
import unicodedata
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from upskill.authoring.events import AuthoringEvents
from upskill.authoring.saving.provenance import DRAFT, FILE, Provenance, shared_name
from upskill.errors import UpskillError, UsageError
from upskill.outputs import whole_file
from upskill.skills import HIDDEN_FROM_STUDENTS, Skill
from upskill.skills.files import PREVIOUS

RECORD = "visible_hash"  # in the metadata of skill_meta.json


def as_name(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:64].strip("-")


def check_output(folder: Path, *, may_replace: bool) -> None:
    """UsageError if no skill can be saved in this folder. Call it before anything is paid for."""
    if folder.name != (better := as_name(folder.name)):
        raise UsageError(
            f"{folder}: the last part becomes the skill's name, but {folder.name!r} is not a valid name",
            f"Use lowercase letters, digits and dashes, for example {folder.parent / (better or 'skill')}.",
        )
    if folder.exists() and not may_replace:
        raise UsageError(
            f"{folder}: already exists", "Choose another --output, or replace it with --force."
        )
    check_writable(folder, "Choose another --output.")


def check_writable(folder: Path, hint: str) -> None:
    near = next(parent for parent in folder.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryDirectory(dir=near, prefix=".upskill-"):
            pass
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}", hint) from error


@dataclass(frozen=True)
class Destination:
    """Where one call saves its skill: a folder that is free, or that holds what the same call may replace."""

    output: str | None  # the folder that was asked for
    skills: Path  # where skills are kept otherwise
    older: Skill | None  # to be improved
    author: tuple[str, str]  # the teacher and the task
    force: bool = False
    events: AuthoringEvents = field(default_factory=AuthoringEvents)

    def choose_name(self) -> str:
        """The skill's name where --output or the skill to be improved decides it; UsageError if it cannot be saved."""
        if not self.output:
            check_writable(
                self.skills / "NAME",
                "Choose another folder with --output, or skills_dir in the settings.",
            )
        if not self.output and self.older is None:
            return ""
        folder = self._folder(self.older)
        if self.output:
            check_output(folder, may_replace=self.force or self.is_ours(folder))
        before = _load(folder)
        nobody_to_ask = self.events.replace_edited is None and not self.force
        if nobody_to_ask and before and self.is_ours(folder) and edited_by_hand(before):
            raise UsageError(
                f"{folder}: written or edited by hand",
                f"Use --force to replace it (this version is kept in {folder.parent / PREVIOUS / folder.name}), or save"
                " the new one elsewhere with --output.",
            )
        return folder.name

    def choose_folder(self, skill: Skill) -> Path:
        """For the finished skill: where it belongs, or a folder beside it if something there is to stay."""
        first = folder = self._folder(skill)
        number = 1
        while not self.force and folder.exists() and not self._may_replace(folder, skill):
            number += 1
            folder = first.with_name(f"{first.name}-{number}")
        if folder != first:
            self.events.message(f"{first} is unchanged.")
        return folder

    def draft_folder(self, skill: Skill) -> Path | None:
        """For a draft: where the skill belongs, if nothing but a draft of ours is there."""
        folder = self._folder(skill)
        before = _load(folder)
        is_our_draft = before and _is_draft(before) and not edited_by_hand(before)
        if folder.exists() and not (is_our_draft and self.is_ours(folder)):
            return None
        return folder

    def save(self, skill: Skill, folder: Path) -> tuple[Skill, Path | None]:
        """Returns the saved skill, and where the version it replaced is kept, if there was one."""
        before, previous = _load(folder), None
        is_new = before is None or before.visible_hash != skill.visible_hash
        loses_proof = before is not None and is_proven(before) and not is_proven(skill)
        if (
            before
            and loses_proof
            and not edited_by_hand(before)
            and _content(before) == _content(skill)
        ):
            self.events.message(
                f"{folder} already contains this skill with its results. It is unchanged."
            )
            return before, None
        try:
            if before and not _is_draft(before) and (is_new or loses_proof):
                version = re.sub(r"[^\w.]+", "-", str(_metadata(before).get("version", ""))).strip(
                    ".-"
                )[:40]
                name = f"{version or 'unversioned'}-{before.visible_hash[:8]}"
                previous = before.save(
                    folder.parent / PREVIOUS / folder.name / name, overwrite=True
                )
            if before is None or is_new or not edited_by_hand(before):
                skill = record_version(skill)
            skill.save(folder, overwrite=True)
        except UsageError as error:
            raise UsageError(
                error.message,
                "Free some space or choose another --output, then run the same command again: the models' answers are"
                " stored, so it continues from there.",
            ) from error
        return skill, previous

    def is_ours(self, folder: Path) -> bool:
        """Whether the folder holds the skill to be improved, or what the same task and teacher made before."""
        before, older = _load(folder), self.older
        if older and older.folder and folder.resolve() == older.folder:
            return True
        is_same = older and before and before.visible_hash == older.visible_hash
        if before and is_same and not edited_by_hand(before):
            return True
        made = _metadata(before)
        teacher, task = self.author
        generated = (made.get("generated_by"), made.get("source_task"))
        improved = (made.get("improved_by"), made.get("request"))
        return (shared_name(teacher), task) in (generated, improved)

    def _folder(self, skill: Skill | None) -> Path:
        return Path(self.output) if self.output else self.skills / (skill.name if skill else "")

    def _may_replace(self, folder: Path, skill: Skill) -> bool:
        before = _load(folder)
        if not self.is_ours(folder):
            return False
        if not before or not edited_by_hand(before) or before.visible_hash == skill.visible_hash:
            return True
        ask = self.events.replace_edited
        return ask is not None and ask(folder, changes(before, skill))


def named_after(folder: Path, skill: Skill) -> Skill:
    return skill if skill.name == folder.name else skill.with_name(folder.name)


def replace_manifest(skill: Skill, folder: Path) -> Path:
    """Write only SKILL.md, all or nothing; if the folder was ours before, record that it still is."""
    name = next(file.path for file in skill.files if file.path.lower() == "skill.md")
    target = (folder / name).resolve()
    recorded = not edited_by_hand(Skill.load(folder))
    with whole_file(target) as file:
        file.write(skill.read(name) or b"")
    if recorded:
        record = record_version(Skill.load(folder)).read(FILE) or b""
        with whole_file((folder / FILE).resolve()) as file:
            file.write(record)
    return folder


def record_version(skill: Skill) -> Skill:
    provenance = Provenance.of(skill)
    return replace(
        provenance, metadata=dict(provenance.metadata) | {RECORD: skill.visible_hash}
    ).add_to(skill)


def edited_by_hand(skill: Skill) -> bool:
    try:
        provenance = Provenance.of(skill)
    except UsageError:  # then we did not write it
        return True
    if RECORD in provenance.metadata:
        return provenance.metadata[RECORD] != skill.visible_hash
    # Hugging Face's upskill keeps no record of what it wrote.
    is_upstreams = "generated_by" in provenance.metadata or provenance.tests
    return not is_upstreams


def is_proven(skill: Skill) -> bool:
    metadata = _metadata(skill)
    return metadata.get("test_pass_rate") is not None and not metadata.get("state")


def changes(before: Skill, after: Skill) -> str:
    old, new = _content(before), _content(after)
    lines: list[str] = []
    for path in sorted(old.keys() | new.keys()):
        if not path.startswith(HIDDEN_FROM_STUDENTS):
            now, then = (
                each.get(path, b"").decode("utf-8", "replace").splitlines() for each in (old, new)
            )
            lines += difflib.unified_diff(now, then, f"now/{path}", f"new/{path}", lineterm="")
    return "\n".join(lines)


def _content(skill: Skill) -> dict[str, bytes]:
    return {file.path: file.data for file in skill.files if file.path != FILE}


def _is_draft(skill: Skill) -> bool:
    return _metadata(skill).get("state") == DRAFT


def _metadata(skill: Skill | None) -> dict[str, Any]:
    """Empty if skill_meta.json cannot be read: then we did not write it."""
    try:
        return dict(Provenance.of(skill).metadata) if skill else {}
    except UsageError:
        return {}


def _load(folder: Path) -> Skill | None:
    try:
        return Skill.load(folder)
    except UpskillError:
        return None
