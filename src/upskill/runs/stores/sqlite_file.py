"""The file of a `sqlite` store: opening, reading and writing it. `SqliteStore` and its parts share one such file."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Awaitable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from upskill.errors import StoreError, UsageError
from upskill.runs.stores.database import Database, Transaction
from upskill.runs.stores.group_writer import Group, GroupWriter, by_statement
from upskill.runs.stores.sqlite_tables import LOCK_SECONDS, is_current, migrate, switch_to_wal, transaction

FILE = "upskill.db"
ROWS_AT_ONCE = 64
DISK_FULL_HINT = "Free some disk space, then run the same command again: it resumes from what was saved."
LARGEST_CHECKED = 1_000_000_000  # bytes; of a larger file, damage is noticed where it is read
CHECKED = ".checked"  # beside the file: how it looked when it was last found whole


class SqliteFile(Database):
    ERRORED = "results INDEXED BY results_errored"
    EXACT = "{}"

    def __init__(self, folder: Path | None, *, may_be_read_only: bool = False) -> None:
        self.path = folder / FILE if folder is not None else None
        self._read_only: str = ""  # the URI by which a file is read that cannot be written
        self._copy: sqlite3.Connection | None = None  # of such a file that an older version wrote
        try:
            if self.path and not may_be_read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._open(may_be_read_only=may_be_read_only)
            # Readers have a connection of their own, so that looking something up never waits for a commit.
            self._reader = self._connect() if self._is_file else self._db
        except (sqlite3.Error, OSError) as error:
            if "malformed" in str(error):
                raise damaged(self.path, str(error)) from error
            words = f"{self.path}: cannot be used as a store: {error}"
            if self.path and isinstance(error, FileExistsError | NotADirectoryError):
                files = (each for each in self.path.parents if each.is_file())
                words = f"{next(files, self.path.parent)}: is not a folder"
            raise UsageError(words, "Choose another folder with --store.") from error
        self._whole_path = self.path.absolute() if self.path else None  # the working directory may become another
        self._file = _identity(self._whole_path) if self._is_file else None
        self._lock = threading.Lock()  # held while writing
        self._read_lock = threading.Lock() if self._is_file else self._lock
        self._writer = GroupWriter(self._commit, str(self.path))
        self._damage = ""
        self._check: threading.Thread | None = None
        self._checked_state = ""  # how the file looked when a check of it began that found it whole
        small = self._is_file and self.path and self.path.stat().st_size <= LARGEST_CHECKED
        if small and not self._is_as_checked():
            self._check = threading.Thread(target=self._look_for_damage, name="store check", daemon=True)
            self._check.start()

    @property
    def _is_file(self) -> bool:
        """Whether everyone who reads has a connection of their own; there is only one to what is in memory."""
        return self.path is not None and self._copy is None

    def _open(self, *, may_be_read_only: bool) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.OperationalError as error:
            if not may_be_read_only or not _cannot_be_written(error):
                raise
        # With the files that a writer left beside it, SQLite can read it as it is; without them, as one that stays so.
        assert self.path is not None
        left = self.path.with_name(f"{FILE}-wal")
        whole = not left.exists() or not left.stat().st_size
        self._read_only = f"{self.path.resolve().as_uri()}?mode=ro{'&immutable=1' if whole else ''}"
        db = self._connect()
        if is_current(db):
            return db
        self._copy = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        with closing(db):
            db.backup(self._copy)
        migrate(self._copy, str(self.path))
        return self._copy

    def check_damage(self) -> None:
        """Wait for the check of the whole file that began when it was opened; StoreError if it is damaged."""
        if self._check:
            self._check.join()
            self._check = None
        if self._damage:
            raise damaged(self.path, self._damage)

    def integrity(self) -> list[str]:
        with self._reading(), self._read_lock:
            found = [row[0] for row in self._reader.execute("PRAGMA integrity_check(20)")]
        return [] if found == ["ok"] else found

    def compact(self) -> None:
        with suppress(sqlite3.OperationalError), self._lock:  # somebody else is reading or writing
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _is_as_checked(self) -> bool:
        assert self.path is not None
        note = self.path.with_name(CHECKED)
        try:
            state, latest = _state(self.path)
            # In one tick of the file system's clock a file may change twice and look the same.
            return note.read_text(encoding="utf-8") == state and latest < note.stat().st_mtime_ns
        except (OSError, UnicodeDecodeError):
            return False

    def _remember_check(self) -> None:
        """What was found whole and is as it was need not be read again."""
        if not self._checked_state or self.path is None:
            return
        with suppress(OSError):  # a medium that cannot be written, a folder that is gone: then it is checked again
            if _state(self.path)[0] == self._checked_state:
                self.path.with_name(CHECKED).write_text(self._checked_state, encoding="utf-8")

    def _look_for_damage(self) -> None:
        assert self.path is not None
        try:
            state = _state(self.path)[0]
            with closing(self._connect()) as db:
                found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            self._damage = "" if found == "ok" else str(found)
            self._checked_state = state if found == "ok" else ""
        except OSError:
            return
        except sqlite3.DatabaseError as error:
            self._damage = "" if isinstance(error, sqlite3.OperationalError) else str(error)

    def _connect(self) -> sqlite3.Connection:
        place = self._read_only or self.path or ":memory:"
        db = sqlite3.connect(
            place, timeout=LOCK_SECONDS, check_same_thread=False, isolation_level=None, uri=bool(self._read_only)
        )
        if self._read_only:
            return db
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

    @property
    def place(self) -> str | None:
        return str(self.path.parent.resolve()) if self.path else None

    def close(self) -> None:
        """Write what is waiting, then close. What was acknowledged is safe without this."""
        self._writer.close()
        if self._check:
            self._check.join()
        self._reader.close()
        self._db.close()
        self._remember_check()

    def __exit__(self, *raised: object) -> None:
        self.close()
        if not any(raised) or isinstance(raised[1], UsageError):  # which may have come of it
            self.check_damage()

    @contextmanager
    def _transaction(self) -> Generator[Transaction]:
        try:
            with self._lock, transaction(self._db):
                yield self._db
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot be written: {error}", DISK_FULL_HINT) from error

    def _write(self, statement: str, values: tuple[Any, ...]) -> Awaitable[None]:
        return self._writer.write(statement, values)

    def _write_later(self, statement: str, values: tuple[Any, ...]) -> None:
        self._writer.write_later(statement, values)

    def _commit(self, groups: list[Group]) -> None:
        for attempt in range(5):
            try:
                with self._lock, transaction(self._db):
                    for statement, rows in by_statement(groups):
                        self._db.executemany(statement, rows)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or attempt == 4:
                    raise StoreError(f"{self.path}: results cannot be saved: {error}", DISK_FULL_HINT) from error
                time.sleep(0.2 * (attempt + 1))
            else:
                return

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._reading(), self._read_lock:
            return self._reader.execute(query, values).fetchall()

    def _stream(self, query: str, *values: Any) -> Iterator[Any]:
        """Rows as they are needed.

        A file is read through a connection of its own: an unfinished query on a shared one would show everyone else
        the past. In memory there is only one connection, whose lock is released between reads.
        """
        with self._reading():
            db, lock = (self._connect(), threading.Lock()) if self._is_file else (self._db, self._lock)
            try:
                with lock:
                    cursor = db.execute(query, values)
                    rows = cursor.fetchmany(ROWS_AT_ONCE)
                while rows:
                    yield from rows
                    with lock:
                        rows = cursor.fetchmany(ROWS_AT_ONCE)
            finally:
                if self._is_file:
                    db.close()

    @contextmanager
    def _reading(self) -> Generator[None]:
        if self._file is not None and _identity(self._whole_path) != self._file:
            raise StoreError(
                f"{self.path}: is gone, or another file has taken its place",
                "It was deleted or moved while it was open. Put it back, or start again.",
            )
        try:
            yield
        except sqlite3.Error as error:
            raise damaged(self.path, str(error)) from error


def _identity(path: Path | None) -> tuple[int, int] | None:
    """What tells a file from another under the same name; None where there is none."""
    try:
        found = path.stat() if path else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found else None


def _state(path: Path) -> tuple[str, int]:
    """The sizes and times of a database and of a log beside it that is not empty, and the latest of the times."""
    files = (path, path.with_name(f"{path.name}-wal"))
    found = [state for state in (file.stat() for file in files if file.exists()) if state.st_size]
    state = "\n".join(f"{file.st_size} {file.st_mtime_ns} {file.st_ctime_ns}" for file in found)
    return state, max((file.st_mtime_ns for file in found), default=0)


def damaged(path: Path | None, words: str) -> StoreError:
    return StoreError(f"{path}: {words}", "The file may be damaged; move it elsewhere to start over.")


def _cannot_be_written(error: sqlite3.OperationalError) -> bool:
    return any(words in str(error) for words in ("readonly", "unable to open", "read-only"))
