"""`--watch`: waits until a file of a skill or its suite is saved."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from upskill.skills.files import IGNORED_NAMES
from upskill.skills.seen import METADATA

POLL = 0.5  # seconds between checks; an editor may write a file in several steps, so a change has to last for one

Seen = dict[Path, tuple[int, int, int]]  # when each was changed, its size, and which file it is


class Watched:
    """Files, and all files below folders, except what we write: runs, reports and the record of seen cases."""

    def __init__(self, paths: Iterable[str | Path], ours: Iterable[str | Path]) -> None:
        absolute = (Path(path).absolute() for path in paths)
        folders = (path.parent if path.name.lower() == "skill.md" else path for path in absolute)
        self.paths, self.ours = (
            tuple(dict.fromkeys(folders)),
            {Path(path).absolute() for path in ours},
        )

    def look(self) -> Seen:
        seen: Seen = {}
        for path in self._files():
            with suppress(OSError):  # deleted a moment ago
                state = path.stat()
                seen[path] = state.st_mtime_ns, state.st_size, state.st_ino
        return seen

    def wait(self, seen: Seen) -> Seen:
        """The new state, once it differs from `seen` and has stopped changing."""
        before = self.look()
        while True:
            time.sleep(POLL)
            now = self.look()
            if now == before != seen:
                return now
            before = now

    def name(self, path: Path) -> str:
        folder = next(
            (each for each in self.paths if path.is_relative_to(each) and path != each), None
        )
        return path.relative_to(folder).as_posix() if folder else path.name

    def _files(self) -> Iterator[Path]:
        for path in self.paths:
            if not path.is_dir():
                yield path
            for folder, folders, files in os.walk(path):
                here = Path(folder)
                for names in (folders, files):
                    names[:] = [
                        name
                        for name in names
                        if name not in (*IGNORED_NAMES, METADATA) and here / name not in self.ours
                    ]
                yield from (here / name for name in files)


def changed(before: Seen, after: Seen) -> list[Path]:
    return sorted(path for path in {**before, **after} if before.get(path) != after.get(path))
