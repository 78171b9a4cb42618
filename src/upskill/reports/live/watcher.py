"""One watcher for all open pages: it asks the store whether anything has changed, and tells every page what did.

Asking is one row of a small table, a few times a second and only while a page is open. What has changed is written as
JSON once, however many pages there are.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from upskill.errors import UpskillError
from upskill.reports.live.pages import run_row
from upskill.runs.stores import Run, Store

INTERVAL = 0.3  # seconds between two questions
CLAIMS_INTERVAL = 2.0  # seconds between two looks at who is still working: a process that dies tells nobody
WINDOW = 60.0  # seconds of progress that the time left is judged by
MAX_RUNS = 50  # that one message tells of
logger = logging.getLogger(__name__)


class Watcher:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._news: dict[str, tuple[int, bytes]] = {}  # by run: the message in which it was last told
        self._message = 0
        self._changed = asyncio.Condition()
        self._pages = 0
        self._task: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self._problem = ""
        self._seen = 0
        self._rates: dict[str, Rate] = {}
        self._running: set[str] = set()

    async def messages(self) -> AsyncGenerator[bytes]:
        """What has changed, from now on; an empty message where nothing did for a while."""
        self._pages += 1
        try:
            if self._task is None:
                self._begun.clear()
                self._task = asyncio.create_task(self._watch())
            await self._begun.wait()
            heard = self._message
            yield b"[]"
            while True:
                try:
                    async with asyncio.timeout(15), self._changed:
                        while self._message == heard:
                            await self._changed.wait()
                except TimeoutError:
                    yield b""
                    continue
                news = [row for number, row in self._news.values() if number > heard]
                heard = self._message
                yield b"[" + b",".join(news) + b"]"
        finally:
            self._pages -= 1
            if not self._pages and self._task:
                self._task.cancel()
                self._task = None

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        claims_asked = 0.0
        while True:
            try:
                if not self._begun.is_set():
                    await asyncio.to_thread(self._begin)
                    self._begun.set()
                now = time.monotonic()
                ask_claims = now - claims_asked >= CLAIMS_INTERVAL
                claims_asked = now if ask_claims else claims_asked
                if rows := await asyncio.to_thread(self._look, ask_claims):
                    async with self._changed:
                        self._message += 1
                        for row in rows:
                            self._news[row["id"]] = (self._message, json.dumps(row).encode())
                        self._changed.notify_all()
                self._problem = ""
            except UpskillError as error:  # the store is busy or gone: the next look may work
                if self._problem != str(error):
                    logger.warning("the live page cannot read the store: %s", error)
                self._problem = str(error)
            await asyncio.sleep(INTERVAL)

    def _begin(self) -> None:
        self._seen = self._store.revision()
        # Those that are in progress already may end without another result.
        self._running = {run.id for run in self._store.latest_runs(MAX_RUNS) if self._store.is_claimed(run)}

    def _look(self, ask_claims: bool) -> list[dict[str, Any]]:
        """The runs that have changed, as the list of runs has them."""
        revision = self._store.revision()
        names = self._store.changed_runs(self._seen) if revision != self._seen else []
        gone = revision != self._seen and not names
        self._seen = revision
        changed = dict.fromkeys(names[-MAX_RUNS:])
        if ask_claims:
            changed |= dict.fromkeys(name for name in self._running if not self._is_claimed(name))
        rows = [row for name in changed if (row := self._row(name))]
        return [*rows, {"id": ""}] if gone else rows  # a run was deleted: there is nothing to be said of it

    def _is_claimed(self, name: str) -> bool:
        with suppress(UpskillError):
            return self._store.is_claimed(self._store.run(name))
        return False

    def _row(self, name: str) -> dict[str, Any] | None:
        try:
            run = self._store.run(name)
        except UpskillError:  # deleted meanwhile
            self._running.discard(name)
            return None
        row = run_row(self._store, run)
        (self._running.add if row["state"] == "running" else self._running.discard)(name)
        return row | {"seconds_left": self.seconds_left(run) if row["state"] == "running" else None}

    def seconds_left(self, run: Run) -> float | None:
        """How long a run will take at the pace of the last minute; None until some of it has been seen."""
        rate = self._rates.setdefault(run.id, Rate())
        return rate.add(time.monotonic(), run.passed + run.failed + run.errored, run.trials)


class Rate:
    """How fast trials are coming in."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, now: float, done: int, total: int) -> float | None:
        while self._seen and (now - self._seen[0][0] > WINDOW or done < self._seen[0][1]):
            self._seen.popleft()
        self._seen.append((now, done))
        since, before = self._seen[0]
        return (total - done) * (now - since) / (done - before) if done > before and now > since else None
