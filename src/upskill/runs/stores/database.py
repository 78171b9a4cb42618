"""What a store's SQL runs on: how a kind of database reads, writes and commits (`sqlite`, `postgres`).

Queries use `?` for values, and only SQL that all kinds understand.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Protocol, TypeVar

from upskill.errors import StoreError

T = TypeVar("T")
MAX_COMMIT = 1000  # rows
ROWS_AT_ONCE = 100  # that are read, where there may be many


class ConnectionLost(StoreError):
    """The connection ended in the middle of a transaction, which can be repeated."""


class Transaction(Protocol):
    """All of it is written when the block ends, or nothing. No other transaction runs meanwhile."""

    def execute(self, query: str, values: Sequence[Any] = ..., /) -> Any: ...

    def executemany(self, query: str, rows: Sequence[Sequence[Any]], /) -> Any: ...


class Database(ABC):
    errored_results: ClassVar[str]  # the table of results, read by the index of those that errored

    def __init__(self, location: str | None, address: str | None) -> None:
        self.location = location  # to be shown, without a password; None for memory
        # What opens the same database in another process; may hold a password. None for memory.
        self.address = address
        self._writer = GroupWriter(self._commit, f"{location}")

    @abstractmethod
    def rows(self, query: str, *values: Any) -> list[Any]: ...

    @abstractmethod
    def stream(self, query: str, *values: Any) -> Iterator[Any]:
        """Rows as they are needed, as they were at one moment; writing meanwhile is fine."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """May raise ConnectionLost: see `transact`."""

    @abstractmethod
    def claim(self, run: int) -> AbstractContextManager[bool]:
        """Whether the run with this number is ours until the end of the block; False: another process has it."""

    @abstractmethod
    def is_claimed(self, run: int) -> bool: ...

    def check_damage(self) -> None:  # noqa: B027 - most look after that themselves
        """StoreError when the database is damaged, as far as a quick look tells."""

    @abstractmethod
    def compact(self) -> None:
        """Give back the space of what was deleted, as far as that can be done while others use it."""

    @abstractmethod
    def close(self) -> None: ...

    def write(self, statement: str, values: tuple[Any, ...]) -> Awaitable[None]:
        """Done when it is committed, together with what others write."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer.put(Write(statement, values, committed.get_loop(), committed))
        return committed

    def write_later(self, statement: str, values: tuple[Any, ...]) -> None:
        """The same without waiting: it is committed with the next write that somebody waits for, at the latest."""
        self._writer.put(Write(statement, values, asyncio.get_running_loop(), None))

    def _commit(self, writes: list[Write]) -> None:
        """All of these or none. What is written twice, because nobody knows whether it was, is there once."""

        rows: dict[str, list[tuple[Any, ...]]] = {}
        for write in writes:
            rows.setdefault(write.statement, []).append(write.values)

        def write_all(db: Transaction) -> None:
            # Deletes come last: they may be of a row that was added a moment ago without waiting for it.
            for statement in sorted(rows, key=lambda statement: statement.startswith("DELETE")):
                db.executemany(statement, rows[statement])

        self.transact(write_all)

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Repeats the work when the connection was lost."""
        while True:
            try:
                with self.transaction() as db:
                    return work(db)
            except ConnectionLost:  # connecting again takes its time, and gives up in the end
                continue

    def execute(self, statement: str, *values: Any) -> None:
        self.transact(lambda db: db.execute(statement, values))

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self.transact(lambda db: db.executemany(statement, rows))


def chunks(values: Iterable[T], size: int = 500) -> Iterator[list[T]]:
    left = iter(values)
    while some := list(islice(left, size)):
        yield some


def marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


# Group commit: one thread commits together whatever has arrived since its last commit.


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

    def put(self, write: Write) -> None:
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
        except (
            Exception
        ) as error:  # an error that ended this thread would leave everyone waiting for ever
            return StoreError(
                f"{self._location}: results cannot be saved: {type(error).__name__}: {error}"
            )
        return None


def _notify(writes: Sequence[Write], failure: StoreError | None) -> None:
    """One call into an event loop wakes all of its waiting tasks."""

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
        except (
            RuntimeError
        ):  # the loop was closed by an interrupt; the rows are on disk all the same
            continue
