"""The `sqlite` store: one file in a folder, or memory.

One thread writes and commits in groups (`group_writer`), and each caller waits for the commit that has its own row.
Readers never wait for the writer (WAL).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from upskill.runs.stores import Run, Store
from upskill.runs.stores.database import run_is_taken
from upskill.runs.stores.file_lock import file_lock, is_locked
from upskill.runs.stores.sql import SqlStore
from upskill.runs.stores.sqlite_file import FILE, SqliteFile


def open_sqlite(place: str | None, *, create: bool) -> Store | None:
    """The store in a folder, in memory (None), or at a URL `sqlite://FOLDER`."""
    folder = None if place is None else Path(place.removeprefix("sqlite://"))
    if folder is not None and not create and not (folder / FILE).is_file():
        return None
    return SqliteStore(folder, may_be_read_only=not create)


class SqliteStore(SqlStore, SqliteFile):
    def __init__(self, folder: Path | None, *, may_be_read_only: bool = False) -> None:
        SqlStore.__init__(self)
        SqliteFile.__init__(self, folder, may_be_read_only=may_be_read_only)

    @contextmanager
    def claim(self, run: Run) -> Generator[None]:
        if self.path is None:
            yield
            return
        with file_lock(self.path.with_name(f".{run.number}.lock")) as ours:
            if not ours:
                raise run_is_taken(run)
            yield

    def is_claimed(self, run: Run) -> bool:
        return self.path is not None and is_locked(self.path.with_name(f".{run.number}.lock"))
