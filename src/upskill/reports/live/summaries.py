"""What the page of a run shows besides its trials: computed from every result, once for all pages, never in the way.

A small run takes milliseconds. A large one is computed in a process of its own, while the page shows how far it is and
what was reported before; what was found is kept in the store, so that the next look costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context

from upskill.errors import UpskillError
from upskill.reports.html.data import FORMAT, summary, to_json_bytes
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.stores import Run, Store, find_store

SMALL = 3_000  # results that are computed while the page waits
RECOMPUTE_FACTOR = 24  # a run in progress is computed again after so many times as long as it took, at least 1 s
MAX_KEPT = 100  # summaries in memory
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Summary:
    revision: int  # of the run, when it was read
    document: bytes
    again: float = 0.0  # not to be computed again before this time, while the run goes on


class Summaries:
    def __init__(self, store: Store, location: str) -> None:
        self._store, self._location = store, location
        self._known: dict[str, Summary] = {}
        self._tasks: dict[str, asyncio.Task[Summary]] = {}
        self._pool: ProcessPoolExecutor | None = None

    async def get(self, run: Run) -> Summary | None:
        """The latest that is known; None while it is computed for the first time, of a large run."""
        revision = await asyncio.to_thread(self._store.revision, run)
        known = self._known.get(run.id) or await asyncio.to_thread(self._stored, run)
        if known and known.revision == revision:
            return self._keep(run, known)
        small = run.passed + run.failed + run.errored <= SMALL
        if known and time.monotonic() < known.again and await asyncio.to_thread(self._store.is_claimed, run):
            return known  # whoever asked has to ask again
        if run.id not in self._tasks:
            task = asyncio.create_task(self._compute(run, revision, small=small))
            self._tasks[run.id] = task
            task.add_done_callback(lambda _: self._tasks.pop(run.id, None))
        task = self._tasks.get(run.id)
        return await asyncio.shield(task) if small and task else known

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        if self._pool:
            for process in list(self._pool._processes.values()):  # pyright: ignore[reportPrivateUsage]  # nobody waits
                process.terminate()
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _stored(self, run: Run) -> Summary | None:
        stored = self._store.summary(run)
        current = stored and stored[1].startswith(f'{{"format":{FORMAT},')
        return Summary(stored[0], stored[1].encode()) if stored and current else None

    def _keep(self, run: Run, summary: Summary) -> Summary:
        self._known.pop(run.id, None)
        self._known[run.id] = summary
        if len(self._known) > MAX_KEPT:
            del self._known[next(iter(self._known))]
        return summary

    async def _compute(self, run: Run, revision: int, *, small: bool) -> Summary:
        began = time.monotonic()
        if small:
            document = await asyncio.to_thread(summary_document, self._store, run.id)
        else:
            document = await self._compute_elsewhere(run)
        now = time.monotonic()
        computed = Summary(revision, document, now + max(1.0, RECOMPUTE_FACTOR * (now - began)))
        if not small and not await asyncio.to_thread(self._store.is_claimed, run):
            await asyncio.to_thread(self._store_summary, run, computed)  # before that, nobody but the run writes
        return self._keep(run, computed)

    async def _compute_elsewhere(self, run: Run) -> bytes:
        self._pool = self._pool or ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._pool, read_and_summarize, self._location, run.id
            )
        except BrokenProcessPool:  # it was killed, for want of memory perhaps
            self._pool = None
            raise

    def _store_summary(self, run: Run, summary: Summary) -> None:
        try:
            self._store.keep_summary(run, summary.revision, summary.document.decode())
        except UpskillError as error:  # on a medium that cannot be written it is computed again
            logger.info("the summary of %s is not kept: %s", run.id, error)


def summary_document(store: Store, run: str) -> bytes:
    return to_json_bytes(summary(evaluation_of(store, store.run(run))))


def read_and_summarize(location: str, run: str) -> bytes:
    """In a process of its own."""
    store = find_store(location)
    assert store is not None
    with store:
        return summary_document(store, run)
