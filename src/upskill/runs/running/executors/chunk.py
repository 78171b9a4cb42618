"""A Chunk is some trials of one model and arm that a Worker runs in one go.

It asks the store which of its trials are done, stores each result as it arrives, and returns in brief how they ended.
It ends early when there is news for the others: its lease is spent, the server is overloaded, the model fails.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from upskill.errors import CeilingReached, UpskillError, UsageError
from upskill.models import CacheMode, Failures, ModelContext, Models
from upskill.models.http.transport import Transport, acquire_transport
from upskill.models.ledger import Ceilings, Ledger
from upskill.models.throttling import forget_limiters, overload
from upskill.runs.planning.plan import Judgement, Plan, Result, Trial
from upskill.runs.running.executors.garbage import rare_collections
from upskill.runs.running.trial import run_trial
from upskill.runs.stores import Run, Store, find_store, is_url
from upskill.traces import Status, Step, Trace, Usage
from upskill.version import __version__

LOOK_EVERY = 0.05  # seconds
UNSAVED = 2  # times as many trials may be without a stored result as run at a time


@dataclass(frozen=True)
class Shared:
    """What all chunks of a run have in common. It holds keys and passwords, so nobody may print or log it."""

    plan: Plan
    run: Run
    context: ModelContext = field(repr=False)
    store: str | None = field(repr=False)  # None: results are returned whole, and stored elsewhere
    cache: CacheMode
    folder: str = field(default_factory=os.getcwd)  # relative names of files are meant from here
    host: str = field(default_factory=socket.gethostname)
    version: str = __version__


@dataclass(frozen=True)
class Chunk:
    trials: tuple[Trial, ...]
    width: int  # how many of them run at a time
    seconds: float  # after which no further trial is begun
    lease: Ceilings  # what it may spend
    previous: Mapping[Trial, Result] = field(default_factory=dict[Trial, Result])  # errored results of these trials
    failures: Mapping[str, int] = field(default_factory=dict[str, int])  # of models, in a row, as far as known


@dataclass
class Done:
    """How a chunk ended."""

    results: list[Result] = field(default_factory=list[Result])
    stored: bool = True  # they are; in brief where that was here
    left: tuple[Trial, ...] = ()  # not run
    seconds: float = 0.0
    calls: int = 0
    spent: dict[str, Usage] = field(default_factory=dict[str, Usage])
    hits: int = 0  # requests that stored replies answered
    failures: dict[str, Failures] = field(default_factory=dict[str, Failures])
    overload: float | None = None  # the server wants fewer calls, after so many seconds; None: it does not
    told: list[str] = field(default_factory=list[str])  # lines for the person
    error: UpskillError | None = None  # that ends the run


class Worker:
    """Runs chunks in this process, one after the other. The store and connections to servers stay open in between."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._runner = asyncio.Runner()
        self._store: Store | None = None
        self._transport: Transport | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, chunk: Chunk) -> Done:
        shared = self.shared
        try:
            _check_place(shared)
            if self._store is None and shared.store is not None:
                self._store = _open_store(shared, shared.store)
        except UpskillError as error:
            return Done(left=chunk.trials, error=error)
        with rare_collections():
            # Not `Runner.run`: it would write out the whole of what is returned, on the way to the handler of Ctrl-C.
            return self._runner.get_loop().run_until_complete(self._run(chunk))

    async def _run(self, chunk: Chunk) -> Done:
        if self._transport is None:
            self._transport = acquire_transport()
        forget_limiters()  # what a server asked for concerns all workers, so it has been told and is in the chunk
        return await _ChunkRun(self.shared, chunk, self._store).run()

    def close(self) -> None:
        if self._transport is not None:
            self._runner.get_loop().run_until_complete(self._transport.release())
        self._runner.close()
        if self._store is not None:
            self._store.close()


def _check_place(shared: Shared) -> None:
    here = socket.gethostname()
    if shared.version != __version__:
        raise UsageError(
            f"upskill is {shared.version} here and {__version__} on {here}", "Install one version on every node."
        )
    if Path(shared.folder).is_dir():
        os.chdir(shared.folder)


def _open_store(shared: Shared, place: str) -> Store:
    here = socket.gethostname()
    if not is_url(place) and here != shared.host:
        raise UsageError(
            f"{place} on {shared.host} cannot be written from {here}",
            "Keep the runs of a cluster in PostgreSQL: --store postgresql://…",
        )
    if (store := find_store(place)) is None:
        raise UsageError(f"the store is not there any more, seen from {here}")
    return store


class _ChunkRun:
    def __init__(self, shared: Shared, chunk: Chunk, store: Store | None) -> None:
        self.shared = shared
        self.chunk = chunk
        self.store = store
        self.waiting = deque(chunk.trials)
        self.done = Done(stored=store is not None)
        self.ended = False
        self.started = time.monotonic()
        self.look_at = 0.0
        self.places = asyncio.Semaphore(chunk.width)
        context = replace(shared.context, tell=self.done.told.append, connections=chunk.width, failures=chunk.failures)
        self.ledger = Ledger(chunk.lease)
        self.models = Models(context, replies=store, cache=shared.cache, ledger=self.ledger)

    async def run(self) -> Done:
        done = self.done
        try:
            self._take_what_is_stored()
            async with self.models:
                try:
                    async with asyncio.TaskGroup() as group:
                        for _ in range(UNSAVED * self.chunk.width):
                            group.create_task(self._work())
                finally:
                    done.failures = self.models.failures
        except* UpskillError as errors:
            done.error = _first(errors)
        done.left = tuple(self.waiting)
        done.seconds = time.monotonic() - self.started
        done.calls, done.spent, done.hits = self.ledger.calls, self.ledger.spent, self.models.hits
        done.overload = overload()
        return done

    def _take_what_is_stored(self) -> None:
        """A worker that died may have stored some of it."""
        if self.store is None:
            return
        keys = [self.shared.plan.key(trial) for trial in self.waiting]
        stored = [brief(result) for result in self.store.scored_under(self.shared.run, keys)]
        if stored:
            done = {result.trial for result in stored}
            self.waiting = deque(trial for trial in self.waiting if trial not in done)
            self.done.results += stored

    async def _work(self) -> None:
        while self.waiting and not self.ended:
            async with self.places:  # which is free for another trial while this one's result is stored
                if not self.waiting or self.ended:
                    return
                trial = self.waiting.popleft()
                try:
                    result = await run_trial(self.shared.plan, trial, self.models, self.chunk.previous.get(trial))
                except CeilingReached:
                    self.waiting.append(trial)
                    self.ended = True
                    return
                self.ended = self.ended or result.fatal or self._has_news(result)
            if self.store is not None:
                await self.store.add_result(self.shared.run, result)
            self.done.results.append(brief(result) if self.store is not None else result)

    def _has_news(self, result: Result) -> bool:
        """Whether to end early. What is asked of all servers is looked up now and then, not for every trial."""
        now = time.monotonic()
        if now < self.look_at and not result.error:
            return False
        self.look_at = now + LOOK_EVERY
        return now - self.started > self.chunk.seconds or overload() is not None or self._is_failing()

    def _is_failing(self) -> bool:
        return any(each.in_a_row > self.chunk.failures.get(name, 0) for name, each in self.models.failures.items())


def brief(result: Result) -> Result:
    """A result with what is counted and nothing of what was said. Equal parts are one object, which is sent once."""
    said = result.trace
    calls = tuple((step.tool, step.status) for step in said.calls) if said else ()
    trace = said and _trace(calls, said.model, said.turns, said.warnings)
    judgements = tuple(_judgement(each.check, each.passed, each.decides) for each in result.judgements)
    return replace(result, trace=trace, judgements=judgements, asked=())


@lru_cache(1000)
def _trace(calls: tuple[tuple[str, Status], ...], model: str, turns: int, warnings: tuple[str, ...]) -> Trace:
    steps = tuple(Step("tool", tool=tool, status=status) for tool, status in calls)
    return Trace(steps, model=model, turns=turns, warnings=warnings)


@lru_cache(1000)
def _judgement(check: str, passed: bool, decides: bool) -> Judgement:
    return Judgement(check, passed, "", decides)


def _first(errors: BaseExceptionGroup[UpskillError]) -> UpskillError:
    one = errors.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one
