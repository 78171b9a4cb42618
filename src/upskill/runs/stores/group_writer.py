"""Group commit: one thread commits together whatever has arrived since its last commit."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from upskill.errors import StoreError

_LARGEST_COMMIT = 1000  # rows


class GroupWriter:
    """Hands writes to `commit`, from one thread; what it raises is raised where they are waited for."""

    def __init__(self, commit: Callable[[list[Write]], None], location: str) -> None:
        self._commit = commit
        self._location = location
        self._queue: queue.SimpleQueue[list[Write] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # By event loop: what came in while it was at work. It is handed over at once, as waking a thread for each write
        # costs more than the write.
        self._gathered: dict[asyncio.AbstractEventLoop, list[Write]] = {}

    async def write(self, statement: str, values: tuple[Any, ...], *, wait: bool = True) -> None:
        """Returns when it is committed; at once with `wait=False`, and then it is committed with the next write."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="store", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        committed: asyncio.Future[None] | None = loop.create_future() if wait else None
        gathered = self._gathered.get(loop)
        if gathered is None:
            gathered = self._gathered[loop] = []
            loop.call_soon(self._hand_over, loop)
        gathered.append(Write(statement, values, loop, committed))
        if committed is not None:
            await committed

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        if gathered := self._gathered.pop(loop, None):
            self._queue.put(gathered)

    def close(self) -> None:
        """Write what is waiting, then stop."""
        if self._thread is not None:
            for loop in list(self._gathered):  # one that was interrupted hands over nothing any more
                self._hand_over(loop)
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            writes: list[Write] = []
            some = self._queue.get()
            while some is not None:
                writes += some
                if len(writes) >= _LARGEST_COMMIT or self._queue.empty():
                    break
                some = self._queue.get()
            if writes:
                _notify(writes, self._failure(writes))
            if some is None:
                return

    def _failure(self, writes: list[Write]) -> StoreError | None:
        try:
            self._commit(writes)
        except StoreError as error:
            return error
        except Exception as error:  # an error that ended this thread would leave everyone waiting for ever
            return StoreError(f"{self._location}: results cannot be saved: {type(error).__name__}: {error}")
        return None


@dataclass(slots=True)
class Write:
    """A statement with its values, and who waits for it to be committed."""

    statement: str
    values: tuple[Any, ...]
    loop: asyncio.AbstractEventLoop
    committed: asyncio.Future[None] | None  # None: nobody waits for it


def by_statement(writes: list[Write]) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """The values for each statement. Deletes come last: they may be of a row that was added a moment ago without
    waiting for it."""
    for statement in sorted({write.statement for write in writes}, key=_is_delete):
        yield statement, [write.values for write in writes if write.statement is statement]


def _is_delete(statement: str) -> bool:
    return statement.startswith("DELETE")


def _notify(writes: list[Write], failure: StoreError | None) -> None:
    """Wake every waiting task: one call into its event loop for all of them."""

    def wake(group: list[Write]) -> None:
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
