"""`--watch`: waits until a file of a skill or of its suite is saved."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from upskill.skills.files import IGNORED_NAMES

POLL = 0.5  # seconds between looks; an editor may write a file in several steps, so a change has to last for one

Seen = dict[Path, tuple[int, int, int]]  # when each was changed, its size, and which file it is


@dataclass(frozen=True, slots=True)
class Watched:
    """Files, and all files below folders, but for what is ours."""

    places: tuple[Path, ...]
    ours: frozenset[Path]  # where we write: the folder of the runs, reports

    @classmethod
    def of(cls, places: Iterable[str | Path], ours: Iterable[str | Path]) -> Watched:
        found = (Path(place).absolute() for place in places)
        folders = (place.parent if place.name.lower() == "skill.md" else place for place in found)
        return cls(tuple(dict.fromkeys(folders)), frozenset(Path(place).absolute() for place in ours))

    def look(self) -> Seen:
        seen: Seen = {}
        for path in self._files():
            try:
                state = path.stat()
            except OSError:  # it was there a moment ago
                continue
            seen[path] = state.st_mtime_ns, state.st_size, state.st_ino
        return seen

    def wait(self, seen: Seen) -> Seen:
        """What is there once something differs from what was seen, and stays as it is."""
        before = self.look()
        while True:
            time.sleep(POLL)
            now = self.look()
            if now == before != seen:
                return now
            before = now

    def name(self, path: Path) -> str:
        """A file as a person calls it."""
        folder = next((place for place in self.places if path.is_relative_to(place) and path != place), None)
        return path.relative_to(folder).as_posix() if folder else path.name

    def _files(self) -> Iterator[Path]:
        for place in self.places:
            if not place.is_dir():
                yield place
            for folder, folders, files in os.walk(place):
                here = Path(folder)
                folders[:] = [name for name in folders if name not in IGNORED_NAMES and here / name not in self.ours]
                yield from (here / name for name in files if name not in IGNORED_NAMES and here / name not in self.ours)


def changed(before: Seen, after: Seen) -> list[Path]:
    """The files that were written, added or removed."""
    return sorted(path for path in {**before, **after} if before.get(path) != after.get(path))
