"""Group commit: one thread writes to SQLite and commits together whatever has arrived since its last commit."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from dataclasses import dataclass
from typing import Any

from upskill.errors import StoreError
from upskill.runs.stores.tables import transaction

DISK_FULL_HINT = "Free some disk space, then run the same command again: it resumes from what was saved."
_LARGEST_COMMIT = 1000  # rows


class GroupWriter:
    """Executes statements on one connection; `lock` is held during each transaction."""

    def __init__(self, db: sqlite3.Connection, lock: threading.Lock, location: str) -> None:
        self._db = db
        self._lock = lock
        self._location = location
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def write(self, statement: str, values: tuple[Any, ...], *, wait: bool = True) -> None:
        """Returns when it is committed; at once with `wait=False`, and then it is committed with the next write."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="store", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        committed: asyncio.Future[None] | None = loop.create_future() if wait else None
        self._queue.put(_Write(statement, values, loop, committed))
        if committed is not None:
            await committed

    def close(self) -> None:
        """Write what is waiting, then stop."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            batch = [self._queue.get()]
            while len(batch) < _LARGEST_COMMIT:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            writes = [item for item in batch if item is not None]
            if writes:
                _notify(writes, self._commit(writes))
            if len(writes) < len(batch):
                return

    def _commit(self, writes: list[_Write]) -> StoreError | None:
        for attempt in range(5):
            try:
                with self._lock, transaction(self._db):
                    # Deletes come last: they may be of a row that was added a moment ago without waiting for it.
                    for statement in sorted({write.statement for write in writes}, key=_is_delete):
                        rows = [write.values for write in writes if write.statement is statement]
                        self._db.executemany(statement, rows)
                return None
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or attempt == 4:
                    return StoreError(f"{self._location}: results cannot be saved: {error}", DISK_FULL_HINT)
                time.sleep(0.2 * (attempt + 1))
            except Exception as error:  # an error that ended this thread would leave everyone waiting for ever
                return StoreError(f"{self._location}: results cannot be saved: {type(error).__name__}: {error}")
        return None


@dataclass(slots=True)
class _Write:
    statement: str
    values: tuple[Any, ...]
    loop: asyncio.AbstractEventLoop
    committed: asyncio.Future[None] | None  # None: nobody waits for it


def _is_delete(statement: str) -> bool:
    return statement.startswith("DELETE")


def _notify(writes: list[_Write], failure: StoreError | None) -> None:
    """Wake every waiting task: one call into its event loop for all of them."""

    def wake(group: list[_Write]) -> None:
        for write in group:
            if write.committed is None or write.committed.done():
                continue
            if failure:
                write.committed.set_exception(failure)
            else:
                write.committed.set_result(None)

    for loop in {write.loop for write in writes if write.committed is not None}:
        try:
            loop.call_soon_threadsafe(wake, [write for write in writes if write.loop is loop])
        except RuntimeError:  # the loop was closed by an interrupt; the rows are on disk all the same
            continue
