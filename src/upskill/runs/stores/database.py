"""What the SQL of a store runs on: how a kind of database reads, writes and commits.

`sqlite_file` and `postgres_server` are the two there are.

Queries have `?` for values, and say only what both understand.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, Self, TypeVar

from upskill.errors import StoreError, UsageError
from upskill.runs.stores import Run

P = ParamSpec("P")
T = TypeVar("T")


Tell = Callable[[str, float], None]  # what is done, and the share that is done of it


def tell_nobody(_: str, __: float) -> None: ...


class ConnectionLost(StoreError):
    """The connection to the database ended, and with it what was going on. Whoever can, does it again."""


class Transaction(Protocol):
    """All of it is written when the block ends, or nothing. No other transaction runs meanwhile."""

    def execute(self, query: str, values: Sequence[Any] = ..., /) -> Any: ...

    def executemany(self, query: str, rows: Sequence[Sequence[Any]], /) -> Any: ...


class Database(ABC):
    # What the two say in words of their own.
    ERRORED: ClassVar[str]  # the table of results, read by the index of those that errored
    EXACT: ClassVar[str]  # a column of fractions, to be added up

    @property
    @abstractmethod
    def location(self) -> str | None: ...

    @property
    @abstractmethod
    def place(self) -> str | None: ...

    @abstractmethod
    def _rows(self, query: str, *values: Any) -> list[Any]: ...

    @abstractmethod
    def _stream(self, query: str, *values: Any) -> Iterator[Any]:
        """Rows as they are needed, at a moment in time; writing meanwhile is fine."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Transaction]: ...

    @abstractmethod
    def _write(self, statement: str, values: tuple[Any, ...]) -> Awaitable[None]:
        """Done when it is committed, together with what others write."""

    @abstractmethod
    def _write_later(self, statement: str, values: tuple[Any, ...]) -> None:
        """The same without waiting: it is committed with the next write that somebody waits for, at the latest."""

    # What copying, checking and pruning need.

    def select(self, query: str, *values: Any) -> Iterator[Any]:
        return self._stream(query, *values)

    def count(self, table: str, where: str = "1 = 1", *values: Any) -> int:
        return self._rows(f"SELECT COUNT(*) FROM {table} WHERE {where}", *values)[0][0]  # noqa: S608

    def transaction(self) -> AbstractContextManager[Transaction]:
        return self._transaction()

    async def write(self, statement: str, values: tuple[Any, ...]) -> None:
        await self._write(statement, values)

    @abstractmethod
    def integrity(self) -> list[str]:
        """What the database itself says is wrong with it."""

    @abstractmethod
    def compact(self) -> None:
        """Give back the space of what was deleted, as far as that can be done while others use it."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def repeatable(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method that is called again when the connection is lost in the middle; done twice, it is as if done once."""

    @functools.wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        while True:
            try:
                return method(self, *args, **kwargs)
            except ConnectionLost:  # connecting again takes its time, and gives up in the end
                continue

    return call


def run_is_taken(run: Run) -> UsageError:
    return UsageError(
        f"another process is already working on the run {run.id}",
        "Wait for it and run the same command again, or start another run with --fresh.",
    )
