"""Where a finished skill is saved: a folder with the skill's name."""

from __future__ import annotations

import re
import shutil
import tempfile
import unicodedata
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from upskill.authoring.events import AuthoringEvents
from upskill.authoring.saving import versions
from upskill.authoring.saving.provenance import FILE, Provenance
from upskill.authoring.saving.versions import edited_by_hand, record_version
from upskill.errors import UpskillError, UsageError
from upskill.outputs import whole_file
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
    check_writable(folder, "Choose another --output.")


def check_writable(folder: Path, hint: str) -> None:
    near = next(parent for parent in folder.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryDirectory(dir=near, prefix=".upskill-"):
            pass
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror or error}", hint) from error


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
            check_writable(self.skills / "NAME", "Name another folder with --output, or skills_dir in the settings.")
        if not self.output and self.older is None:
            return ""
        folder = Path(self.output) if self.output else self.skills / (self.older.name if self.older else "")
        if self.output:
            check_output(folder, may_replace=self.force or self.is_ours(folder))
        if self.events.replace_edited is None and not self.force and self.is_ours(folder):
            versions.refuse_to_replace(folder)
        return folder.name

    def choose_folder(self, skill: Skill) -> Path:
        """For the finished skill."""
        first = self._first(skill)
        if self.force:
            return first
        folder = versions.choose_folder(first, skill, self.is_ours, self.events.replace_edited)
        if folder != first:
            self.events.message(f"{first} is left as it is.")
        return folder

    def choose_draft_folder(self, skill: Skill) -> Path:
        """For a draft: the same, or one beside it where that one holds more than a draft of ours."""
        first = self._first(skill)
        for number in count(1):
            place = first.with_name(f"{first.name}-{number}") if number > 1 else first
            if not place.exists() or (
                self.is_ours(place) and is_draft(place) and not edited_by_hand(Skill.load(place))
            ):
                return place
        raise AssertionError("not reached")

    def save(self, skill: Skill, folder: Path) -> tuple[Skill, Path | None]:
        """See `save_version`. What a model has written is not lost where it cannot be saved."""
        if (proven := versions.already_proven(skill, folder)) is not None:
            self.events.message(f"{folder} holds the same skill with its results, and is left as it is.")
            return proven, None
        try:
            return versions.save_version(skill, folder)
        except UsageError as error:
            raise UsageError(
                error.message,
                "Make room, or choose another --output: what the models answered is stored, and the same command goes"
                " on from there.",
            ) from error

    def remove_draft(self, draft: Path | None, finished: Path) -> None:
        """Remove the draft of a skill that is finished and lies elsewhere."""
        if draft is not None and draft.resolve() != finished.resolve() and is_draft(draft):
            shutil.rmtree(draft, ignore_errors=True)
            self.events.message(f"The draft in {draft} is removed: the skill is in {finished}.")

    def is_ours(self, folder: Path) -> bool:
        """Whether the folder holds the skill to be improved, or what the same task and teacher made before."""
        if self.older is not None and self.older.folder is not None and folder.resolve() == self.older.folder:
            return True
        try:
            found = Provenance.of(Skill.load(folder)).metadata
        except UpskillError:
            return False
        made = (found.get("generated_by"), found.get("source_task")), (found.get("improved_by"), found.get("request"))
        return self.author in made

    def _first(self, skill: Skill) -> Path:
        return Path(self.output) if self.output else self.skills / skill.name


def is_draft(folder: Path) -> bool:
    """Whether a folder holds a skill that was saved on the way, and never finished."""
    try:
        return versions.is_draft(Skill.load(folder))
    except UpskillError:
        return False


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
    """Write only the skill's SKILL.md into its folder, all of it or nothing; and that it was us, if it was before."""
    name = next(file.path for file in skill.files if file.path.lower() == "skill.md")
    target = (folder / name).resolve()
    recorded = not edited_by_hand(Skill.load(folder))
    with whole_file(target) as file:
        file.write(skill.read(name) or b"")
    if recorded:
        with whole_file((folder / FILE).resolve()) as file:
            file.write(record_version(Skill.load(folder)).read(FILE) or b"")
    return folder
