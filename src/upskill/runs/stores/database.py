"""What the SQL of a store runs on: how a kind of database reads, writes and commits (`sqlite`, `postgres`).

Queries have `?` for values, and are written in the SQL that all kinds understand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, ClassVar, Protocol, TypeVar

from upskill.errors import StoreError
from upskill.runs.stores.group_writer import GroupWriter, Write, by_statement

T = TypeVar("T")
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
    def integrity_problems(self) -> list[str]:
        """What the database itself says is wrong with it, after a look at everything."""

    @abstractmethod
    def compact(self) -> None:
        """Give back the space of what was deleted, as far as that can be done while others use it."""

    @abstractmethod
    def close(self) -> None: ...

    def write(self, statement: str, values: tuple[Any, ...]) -> Awaitable[None]:
        """Done when it is committed, together with what others write."""
        return self._writer.write(statement, values)

    def write_later(self, statement: str, values: tuple[Any, ...]) -> None:
        """The same without waiting: it is committed with the next write that somebody waits for, at the latest."""
        self._writer.write_later(statement, values)

    def _commit(self, writes: list[Write]) -> None:
        """All of these or none. What is written twice, because nobody knows whether it was, is there once."""

        def write_all(db: Transaction) -> None:
            for statement, rows in by_statement(writes):
                db.executemany(statement, rows)

        self.transact(write_all)

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Do this in a transaction; again, when the connection was lost."""
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
    """A question mark for each value."""
    return ", ".join("?" * len(values))
