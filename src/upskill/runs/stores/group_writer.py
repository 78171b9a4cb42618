"""Group commit: one thread commits together whatever has arrived since its last commit."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from upskill.errors import StoreError

_LARGEST_COMMIT = 1000  # rows


class GroupWriter:
    """Hands writes to `commit`, from one thread; what it raises is raised where they are waited for."""

    def __init__(self, commit: Callable[[list[Group]], None], location: str) -> None:
        self._commit = commit
        self._location = location
        self._queue: queue.SimpleQueue[Group | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # By event loop: what came in while it was at work. It is handed over at once, as waking a thread for each write
        # costs more than the write.
        self._gathered: dict[asyncio.AbstractEventLoop, Group] = {}

    def write(self, statement: str, values: tuple[Any, ...]) -> asyncio.Future[None]:
        """Done when it is committed."""
        group = self._add(statement, values)
        committed: asyncio.Future[None] = group.loop.create_future()
        group.committed.append(committed)
        return committed

    def write_later(self, statement: str, values: tuple[Any, ...]) -> None:
        """Nobody waits for it; it is committed with the next write that somebody waits for, at the latest."""
        self._add(statement, values)

    def _add(self, statement: str, values: tuple[Any, ...]) -> Group:
        loop = asyncio.get_running_loop()
        group = self._gathered.get(loop)
        if group is None:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="store", daemon=True)
                self._thread.start()
            group = self._gathered[loop] = Group(loop)
            loop.call_soon(self._hand_over, loop)
        rows = group.rows.get(statement)
        if rows is None:
            group.rows[statement] = [values]
        else:
            rows.append(values)
        return group

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        if group := self._gathered.pop(loop, None):
            self._queue.put(group)

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
            groups: list[Group] = []
            group = self._queue.get()
            count = 0
            while group is not None:
                groups.append(group)
                count += sum(map(len, group.rows.values()))
                if count >= _LARGEST_COMMIT or self._queue.empty():
                    break
                group = self._queue.get()
            if groups:
                _notify(groups, self._failure(groups))
            if group is None:
                return

    def _failure(self, groups: list[Group]) -> StoreError | None:
        try:
            self._commit(groups)
        except StoreError as error:
            return error
        except Exception as error:  # an error that ended this thread would leave everyone waiting for ever
            return StoreError(f"{self._location}: results cannot be saved: {type(error).__name__}: {error}")
        return None


@dataclass(slots=True, eq=False, repr=False)
class Group:
    """What was written in one turn of an event loop: the values for each statement, and who waits for them."""

    loop: asyncio.AbstractEventLoop
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict[str, list[tuple[Any, ...]]])
    committed: list[asyncio.Future[None]] = field(default_factory=list["asyncio.Future[None]"])


def by_statement(groups: list[Group]) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """The values for each statement. Deletes come last: they may be of a row that was added a moment ago without
    waiting for it."""
    for statement in sorted(dict.fromkeys(one for group in groups for one in group.rows), key=_is_delete):
        yield statement, [values for group in groups for values in group.rows.get(statement, ())]


def _is_delete(statement: str) -> bool:
    return statement.startswith("DELETE")


def _notify(groups: list[Group], failure: StoreError | None) -> None:
    """Wake every waiting task: one call into its event loop for all of them."""

    def wake(waiting: list[asyncio.Future[None]]) -> None:
        for committed in waiting:
            if committed.done():
                continue
            if failure:
                committed.set_exception(failure)
            else:
                committed.set_result(None)

    for loop in {group.loop for group in groups if group.committed}:
        try:
            loop.call_soon_threadsafe(wake, [one for group in groups if group.loop is loop for one in group.committed])
        except RuntimeError:  # the loop was closed by an interrupt; the rows are on disk all the same
            continue
