"""The file of a `sqlite` store: opening, reading and writing it. `SqliteStore` and its parts share one such file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from upskill.errors import StoreError, UsageError
from upskill.runs.stores.sqlite_writer import DISK_FULL_HINT, GroupWriter
from upskill.runs.stores.tables import LOCK_SECONDS, migrate, switch_to_wal, transaction

FILE = "upskill.db"
ROWS_AT_ONCE = 64


class SqliteFile:
    def __init__(self, folder: Path | None) -> None:
        self.path = folder / FILE if folder is not None else None
        try:
            if self.path:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._connect()
            # Readers have a connection of their own, so that looking something up never waits for a commit.
            self._reader = self._connect() if self.path else self._db
        except (sqlite3.Error, OSError) as error:
            raise UsageError(
                f"{self.path}: cannot be used as a store: {error}", "Choose another folder with --runs-dir."
            ) from error
        self._lock = threading.Lock()  # held while writing
        self._read_lock = threading.Lock() if self.path else self._lock
        self._writer = GroupWriter(self._db, self._lock, str(self.path))

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path or ":memory:", timeout=LOCK_SECONDS, check_same_thread=False, isolation_level=None
        )
        try:
            switch_to_wal(db)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            # Keys are random, so every result touches other pages: in long runs most of the work would be moving them.
            db.execute("PRAGMA cache_size = -16000")  # KiB
            db.execute("PRAGMA wal_autocheckpoint = 4000")  # pages
            migrate(db, str(self.path))
        except BaseException:
            db.close()
            raise
        return db

    @property
    def location(self) -> str | None:
        return str(self.path) if self.path else None

    def close(self) -> None:
        """Write what is waiting, then close. What was acknowledged is safe without this."""
        self._writer.close()
        self._reader.close()
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        try:
            with self._lock, transaction(self._db):
                yield self._db
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot be written: {error}", DISK_FULL_HINT) from error

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._reading(), self._read_lock:
            return self._reader.execute(query, values).fetchall()

    def _stream(self, query: str, *values: Any) -> Iterator[Any]:
        """Rows as they are needed.

        A file is read through a connection of its own: an unfinished query on a shared one would show everyone else
        the past. In memory there is only one connection, whose lock is released between reads.
        """
        with self._reading():
            db, lock = (self._connect(), threading.Lock()) if self.path else (self._db, self._lock)
            try:
                with lock:
                    cursor = db.execute(query, values)
                    rows = cursor.fetchmany(ROWS_AT_ONCE)
                while rows:
                    yield from rows
                    with lock:
                        rows = cursor.fetchmany(ROWS_AT_ONCE)
            finally:
                if self.path:
                    db.close()

    @contextmanager
    def _reading(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.path}: {error}", "The file may be damaged; move it elsewhere to start over."
            ) from error
