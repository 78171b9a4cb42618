"""skills-lock.json of `npx skills`: where each skill of a project came from, and a hash of what it was.

Its format and hash are those of version 1 in `skills` 1.5 on npm.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upskill.outputs import whole_file
from upskill.plain import dict_or_empty, read_json
from upskill.skills.agent_specs import AGENT_SPECS

LOCK = "skills-lock.json"
# The order of ASCII in JavaScript's localeCompare; upper case comes after lower case where all else is equal.
_LETTERS = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz"
_ORDER = {letter: place for place, letter in enumerate(_LETTERS)}
_SKIPPED = {".git", "node_modules"}
_FOLDERS = sorted({spec.project_skills for spec in AGENT_SPECS.values() if spec.project_skills})


@dataclass(frozen=True, slots=True)
class Locked:
    """An installed skill that the lock of its project names."""

    folder: Path
    project: Path
    entry: dict[str, Any]

    @property
    def source(self) -> str:
        return str(self.entry.get("source", ""))

    @property
    def copies(self) -> list[Path]:
        """The folders of this skill for each agent of the project."""
        folders = (self.project / folder / self.folder.name for folder in _FOLDERS)
        return sorted({folder.resolve() for folder in folders if folder.is_dir()})

    @property
    def is_unchanged(self) -> bool | None:
        """None if its hash cannot be computed here."""
        actual = folder_hash(self.folder)
        return actual == self.entry.get("computedHash") if actual else None


def find_locked(folder: str | Path) -> Locked | None:
    """What the lock says of the skill in this folder; None if it is not where agents of a project look, or unlocked."""
    at = Path(folder).resolve()
    for inner in _FOLDERS:
        depth = len(Path(inner).parts)
        project = at.parents[depth] if len(at.parents) > depth else at
        if project / inner == at.parent:
            entry = dict_or_empty(
                dict_or_empty(read_json(project / LOCK).get("skills")).get(at.name)
            )
            return Locked(at, project, entry) if entry else None
    return None


def lock_note(folder: str | Path) -> str:
    """What to tell whoever changed this folder; empty if no lock names it, or if it is as locked."""
    locked = find_locked(folder)
    if locked is None or locked.is_unchanged is not False:
        return ""
    return f"{folder} differs from {LOCK}, so `npx skills` may replace it with the one from {locked.source}."


def update_lock(locked: Locked, source: Path) -> bool:
    """Record that the skill now comes from this folder. False if it cannot: another copy of it is different."""
    hashes = {folder_hash(folder) for folder in locked.copies}
    if len(hashes) != 1 or None in hashes or not source.is_dir():
        return False
    inside = source.resolve().is_relative_to(locked.project)
    named = (
        f"./{source.resolve().relative_to(locked.project).as_posix()}"
        if inside
        else str(source.resolve())
    )
    entry = {"source": named, "sourceType": "local", "computedHash": hashes.pop()}
    lock = read_json(locked.project / LOCK)
    lock["skills"] = dict(
        sorted((dict_or_empty(lock.get("skills")) | {locked.folder.name: entry}).items())
    )
    with whole_file(locked.project / LOCK) as file:
        file.write((json.dumps(lock, indent=2, ensure_ascii=False) + "\n").encode())
    return True


def folder_hash(folder: str | Path) -> str | None:
    """`computedHash` of a lock. None if a name is not ASCII: how those are sorted depends on the locale of Node."""
    root = Path(folder)
    files: list[str] = []
    for here, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        paths = (Path(here) / name for name in names)
        files += [
            path.relative_to(root).as_posix()
            for path in paths
            if path.is_file() and not path.is_symlink()
        ]
    if not all(letter.lower() in _ORDER for name in files for letter in name):
        return None
    total = hashlib.sha256()
    for name in sorted(
        files, key=lambda name: ([_ORDER[letter.lower()] for letter in name], name.swapcase())
    ):
        total.update(name.encode() + (root / name).read_bytes())
    return total.hexdigest()
