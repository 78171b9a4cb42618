"""The `sqlite` store: one file in a folder, or memory. Readers never wait for the writer (WAL)."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from upskill.errors import StoreError, UsageError
from upskill.outputs import make_private_folder, open_private
from upskill.runs.stores.database import ROWS_AT_ONCE, Database, Transaction
from upskill.runs.stores.tables import (
    PROGRESS,
    TABLES,
    VERSION,
    create_sqlite_table,
    describe_other_version,
    sqlite_indexes,
    sqlite_triggers,
)

FILE = "upskill.db"
LOCK_SECONDS = 120.0  # to wait for another process that holds the file
CLAIM_ATTEMPTS = 3
MAX_CHECKED = 200_000_000  # bytes; of a larger file, damage is noticed where it is read
DISK_FULL_HINT = (
    "Free some disk space, then run the same command again: it resumes from what was saved."
)


def open_sqlite(address: str | None, *, create: bool) -> Database | None:
    """The store in a folder, in memory (None), or at a URL `sqlite://FOLDER`."""
    folder = None if address is None else Path(address.removeprefix("sqlite://"))
    if folder is not None and not create and not (folder / FILE).is_file():
        return None
    return SqliteDatabase(folder, may_be_read_only=not create)


class SqliteDatabase(Database):
    errored_results = "results INDEXED BY results_errored"

    def __init__(self, folder: Path | None, *, may_be_read_only: bool = False) -> None:
        self.path = folder / FILE if folder is not None else None
        # Whether everyone who reads has a connection of their own; there is only one to what is in memory.
        self._is_file = folder is not None
        try:
            if self.path and not may_be_read_only:
                make_private_folder(self.path.parent)
                if not self.path.exists():  # SQLite gives the files beside it the same rights
                    open_private(self.path, "ab").close()
            self._db = self._open(may_be_read_only=may_be_read_only)
            with _close_on_error(self._db):
                # Readers have a connection of their own, so that looking something up never waits for a commit.
                self._reader = self._connect() if self._is_file else self._db
        except (sqlite3.Error, OSError) as error:
            if "malformed" in str(error):
                raise _damaged(self.path, str(error)) from error
            message = f"{self.path}: cannot be used as a store: {error}"
            if self.path and isinstance(error, FileExistsError | NotADirectoryError):
                files = (each for each in self.path.parents if each.is_file())
                message = f"{next(files, self.path.parent)}: not a folder"
            raise UsageError(message, "Choose another folder with --store.") from error
        self._absolute_path = (
            self.path.absolute() if self.path else None
        )  # the working directory may become another
        self._file_identity = _file_identity(self._absolute_path) if self._is_file else None
        self._lock = threading.Lock()  # held while writing
        self._read_lock = threading.Lock() if self._is_file else self._lock
        super().__init__(
            str(self.path) if self.path else None,
            str(self.path.parent.resolve()) if self.path else None,
        )

    # Connections.

    def _open(self, *, may_be_read_only: bool) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.OperationalError as error:
            is_read_only = any(
                phrase in str(error) for phrase in ("readonly", "unable to open", "read-only")
            )
            if not may_be_read_only or not is_read_only:
                raise
        # With the log that a writer left beside it, SQLite can read it as it is; without one, as a file that stays so.
        assert self.path is not None
        log = self.path.with_name(f"{FILE}-wal")
        has_no_log = not log.exists() or not log.stat().st_size
        uri = f"{self.path.resolve().as_uri()}?mode=ro{'&immutable=1' if has_no_log else ''}"
        copy = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        with _close_on_error(copy):
            with closing(sqlite3.connect(uri, uri=True)) as db:
                db.backup(copy)
            _create_tables(copy, str(self.path))
            copy.execute("PRAGMA query_only = ON")
        self._is_file = False
        return copy

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path or ":memory:",
            timeout=LOCK_SECONDS,
            check_same_thread=False,
            isolation_level=None,
        )
        with _close_on_error(db):
            _switch_to_wal(db)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            # Keys are random, so every result touches other pages: in long runs most of the work would be moving them.
            db.execute("PRAGMA cache_size = -16000")  # KiB
            db.execute("PRAGMA wal_autocheckpoint = 4000")  # pages
            _create_tables(db, str(self.path))
        return db

    def close(self) -> None:
        self._writer.close()
        with self._read_lock:  # closing what another thread is reading can crash the process
            self._reader.close()
        with self._lock:
            self._db.close()

    # Damage.

    def check_damage(self) -> None:
        is_small = self._absolute_path is None or self._absolute_path.stat().st_size <= MAX_CHECKED
        if not is_small:
            return
        result = self.rows("PRAGMA quick_check(1)")[0][0]
        if result != "ok":
            raise _damaged(self.path, result)

    def compact(self) -> None:
        with suppress(sqlite3.OperationalError), self._lock:  # somebody else is reading or writing
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # Reading.

    def rows(self, query: str, *values: Any) -> list[Any]:
        with self._reading(), self._read_lock:
            return self._reader.execute(query, values).fetchall()

    def stream(self, query: str, *values: Any) -> Iterator[Any]:
        """A file gets its own connection: an unfinished query on a shared one would show everyone else the past."""
        with self._reading():
            db, lock = (
                (self._connect(), threading.Lock()) if self._is_file else (self._db, self._lock)
            )
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
        if (
            self._file_identity is not None
            and _file_identity(self._absolute_path) != self._file_identity
        ):
            raise StoreError(
                f"{self.path}: the store was deleted, moved or replaced",
                "This happened while it was open. Put it back, or start again.",
            )
        try:
            yield
        except sqlite3.Error as error:
            raise _damaged(self.path, str(error)) from error

    # Writing.

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        try:
            with self._lock, _transaction(self._db):
                yield self._db
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot be written: {error}", DISK_FULL_HINT) from error

    # Claims: a lock file for each run, which the system releases when its process ends, however it ends.

    @contextmanager
    def claim(self, run: int) -> Generator[bool]:
        attempts = 0
        while path := self._lock_file(run):
            with open_private(path) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    attempts += 1
                    if (
                        attempts < CLAIM_ATTEMPTS
                    ):  # somebody may be in `is_claimed`, and that takes no time
                        time.sleep(0.02)
                        continue
                    yield False
                    return
                except OSError:  # a file system without locks: everyone gets it
                    path.unlink(missing_ok=True)
                    break
                # The previous holder may have removed the file after we opened it and before we locked it.
                opened = os.fstat(file.fileno())
                if _file_identity(path) != (opened.st_dev, opened.st_ino):
                    continue
                try:
                    yield True
                finally:
                    path.unlink(missing_ok=True)
                return
        yield True

    def is_claimed(self, run: int) -> bool:
        if (path := self._lock_file(run)) is None:
            return False
        try:
            with path.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no such file, or no locks
            return False
        return False

    def _lock_file(self, run: int) -> Path | None:
        return self.path.with_name(f".{run}.lock") if self.path else None


# Tables.


def _create_tables(db: sqlite3.Connection, location: str) -> None:
    """In a new file, wholly or not at all."""
    if _has_tables(db, location):
        return
    with _transaction(db):
        if _has_tables(db, location):  # another process may have created them in the meantime
            return
        for table in (*TABLES, PROGRESS):
            db.execute(create_sqlite_table(table))
        db.execute("INSERT INTO revisions VALUES (0, 0)")
        for statement in (*sqlite_triggers(), *sqlite_indexes()):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")


def _has_tables(db: sqlite3.Connection, location: str) -> bool:
    """False for a new file; UsageError for a store of another version."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, VERSION):
        raise UsageError(
            describe_other_version(location, version),
            "Move the file elsewhere to start a new store there. Or pass another --store.",
        )
    return version == VERSION


@contextmanager
def _transaction(db: sqlite3.Connection) -> Generator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def _close_on_error(db: sqlite3.Connection) -> Generator[None]:
    try:
        yield
    except BaseException:
        db.close()
        raise


def _switch_to_wal(db: sqlite3.Connection) -> None:
    # SQLite does not wait for its own lock here, so processes that open a new store at once have to ask again.
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


# The file.


def _file_identity(path: Path | None) -> tuple[int, int] | None:
    """What tells a file from another under the same name; None where there is none."""
    try:
        status = path.stat() if path else None
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status else None


def _damaged(path: Path | None, message: str) -> StoreError:
    return StoreError(
        f"{path}: {message}", "The file may be damaged; move it elsewhere to start over."
    )
