"""Group commit: one thread commits together whatever has arrived since its last commit."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from upskill.errors import StoreError

MAX_COMMIT = 1000  # rows


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    statement: str
    values: tuple[Any, ...]
    loop: asyncio.AbstractEventLoop
    committed: asyncio.Future[None] | None  # None: nobody waits for it


class GroupWriter:
    """Hands writes to `commit`, from one thread; what it raises is raised where they are waited for."""

    def __init__(self, commit: Callable[[list[Write]], None], location: str) -> None:
        self._commit = commit
        self._location = location
        self._queue: queue.SimpleQueue[Write | None] = queue.SimpleQueue()  # None: stop
        self._thread: threading.Thread | None = None

    def write(self, statement: str, values: tuple[Any, ...]) -> asyncio.Future[None]:
        """Done when it is committed."""
        loop = asyncio.get_running_loop()
        committed: asyncio.Future[None] = loop.create_future()
        self._put(Write(statement, values, loop, committed))
        return committed

    def write_later(self, statement: str, values: tuple[Any, ...]) -> None:
        """Nobody waits for it; it is committed with the next write that somebody waits for, at the latest."""
        self._put(Write(statement, values, asyncio.get_running_loop(), None))

    def _put(self, write: Write) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="store", daemon=True)
            self._thread.start()
        self._queue.put(write)

    def close(self) -> None:
        """Write what is waiting, then stop."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        write = self._queue.get()
        while write:
            writes: list[Write] = []
            while write:
                writes.append(write)
                if len(writes) == MAX_COMMIT or self._queue.empty():
                    break
                write = self._queue.get()
            _notify(writes, self._try_commit(writes))
            write = write and self._queue.get()

    def _try_commit(self, writes: list[Write]) -> StoreError | None:
        try:
            self._commit(writes)
        except StoreError as error:
            return error
        except Exception as error:  # an error that ended this thread would leave everyone waiting for ever
            return StoreError(f"{self._location}: results cannot be saved: {type(error).__name__}: {error}")
        return None


def by_statement(writes: Sequence[Write]) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """The values for each statement. Deletes come last: they may be of a row that was added a moment ago without
    waiting for it."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for write in writes:
        rows.setdefault(write.statement, []).append(write.values)
    yield from sorted(rows.items(), key=lambda item: item[0].startswith("DELETE"))


def _notify(writes: Sequence[Write], failure: StoreError | None) -> None:
    """Wake every waiting task: one call into its event loop for all of them."""

    def wake(waiting: list[asyncio.Future[None]]) -> None:
        for committed in waiting:
            if committed.done():
                continue
            if failure:
                committed.set_exception(failure)
            else:
                committed.set_result(None)

    waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for write in writes:
        if write.committed:
            waiting.setdefault(write.loop, []).append(write.committed)
    for loop, futures in waiting.items():
        try:
            loop.call_soon_threadsafe(wake, futures)
        except RuntimeError:  # the loop was closed by an interrupt; the rows are on disk all the same
            continue
