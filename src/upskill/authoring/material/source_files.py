"""Source files: where the documents and traces lie that a skill was made from, so that an improvement reads them again.

`skill_meta.json` keeps only the beginnings of the pieces that lines cite. A file that is still what it was gives all of
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upskill.plain import dict_or_empty, list_or_empty

FIELD = "source_files"  # in the metadata of skill_meta.json


@dataclass(frozen=True, slots=True)
class SourceFile:
    kind: str  # "doc" or "trace"
    path: str  # as it was given, with ~ for the home folder
    digest: str

    @property
    def name(self) -> str:
        return Path(self.path).name

    def plain(self) -> dict[str, str]:
        return {"kind": self.kind, "path": self.path, "digest": self.digest}

    def places(self, skill_folder: Path | None) -> Iterator[Path]:
        """Where it may lie: below this folder, or one that the skill lies in."""
        path = Path(self.path).expanduser()
        yield path
        if not path.is_absolute() and skill_folder is not None:
            yield from (parent / path for parent in skill_folder.absolute().parents)

    def find(self, skill_folder: Path | None) -> Path | None:
        """The file, if it is still what it was."""
        return next((place for place in self.places(skill_folder) if _digest(place) == self.digest), None)


def source_file(kind: str, path: str | Path) -> SourceFile | None:
    """The file at this path; None where there is none that could be read again.

    Nor is one kept whose path names the home folder, as those of some agents' sessions do: skills are shared.
    """
    digest, home = _digest(Path(path)), str(Path.home())
    shown = str(path)
    shown = f"~{shown.removeprefix(home)}" if shown.startswith(f"{home}/") else shown
    is_private = any(name in shown for name in (home, home.replace("/", "-"))) and len(home) > 1
    return SourceFile(kind, shown, digest) if digest and not is_private else None


def read_source_files(metadata: Mapping[str, Any]) -> list[SourceFile]:
    """The files that the metadata of a skill names."""
    rows = [dict_or_empty(row) for row in list_or_empty(metadata.get(FIELD))]
    files = [SourceFile(*(str(row.get(name, "")) for name in ("kind", "path", "digest"))) for row in rows]
    return [file for file in files if file.kind in ("doc", "trace") and file.path and file.digest]


def add_source_files(metadata: Mapping[str, Any], files: Iterable[SourceFile]) -> dict[str, Any]:
    """The metadata of a skill with these files among the others; of one path, the latest counts."""
    found = {file.path: file.plain() for file in (*read_source_files(metadata), *files)}
    return {**metadata, FIELD: list(found.values())} if found else dict(metadata)


def _digest(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except (OSError, ValueError):
        return ""
