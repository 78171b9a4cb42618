"""Chunks: trials of one model that take some seconds together, and that a Worker runs in one go.

`ChunkQueue` leases each chunk its share of the ceilings, so that workers on many machines keep them without asking at
every call. A chunk ends early when there is news for the others: its lease is spent, the server is overloaded, the
model fails.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

import numpy as np

from upskill.errors import CeilingReached, UpskillError, UsageError
from upskill.models import CacheMode, Failures, ModelContext
from upskill.models.http.transport import Transport, acquire_transport
from upskill.models.ledger import Ceilings, Ledger
from upskill.models.pool import Models
from upskill.models.throttling import AdaptiveLimiter, forget_limiters, overload
from upskill.runs.planning.plan import Plan, Result, Trial
from upskill.runs.running.executors import Job
from upskill.runs.running.trial import run_trial
from upskill.runs.stores import Run, Store, find_store, is_url
from upskill.traces import NO_USAGE, Step, Trace, Usage
from upskill.verdicts.interval import Floats
from upskill.version import __version__

CHUNK_SECONDS = 5.0
MAX_CHUNK = 2000  # trials
MAX_CRASHES = 10  # of workers that had a trial, most of them nothing else
FIRST_TRIALS = 4  # that each slot of a first chunk runs, before anybody knows how long one takes
UNSAVED = 2  # times as many trials may be without a stored result as run at a time
UNCERTAINTY = 3  # trials may need this many times what they have needed so far

Group = str  # a model: its arms are drawn together


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
    lease: Ceilings  # what it may spend
    previous: Mapping[Trial, Result] = field(
        default_factory=dict[Trial, Result]
    )  # errored results of these trials
    failures: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  # of models, in a row, as far as known


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
    overload: float | None = (
        None  # the server wants fewer calls, after so many seconds; None: it does not
    )
    messages: list[str] = field(default_factory=list[str])  # for the person
    error: UpskillError | None = None  # that ends the run


class Worker:
    """Runs chunks in this process, one after the other. The store and connections to servers stay open in between."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._runner = asyncio.Runner()
        self._store: Store | None = None
        self._transport: Transport | None = None

    def run(self, chunk: Chunk) -> Done:
        try:
            self._store = self._store or _open_store(self.shared)
        except UpskillError as error:
            return Done(left=chunk.trials, error=error)
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


def _open_store(shared: Shared) -> Store | None:
    """UsageError where this machine cannot run a chunk."""
    here, location = socket.gethostname(), shared.store
    if shared.version != __version__:
        raise UsageError(
            f"upskill is {shared.version} here and {__version__} on {here}",
            "Install the same version on every node.",
        )
    if Path(shared.folder).is_dir():
        os.chdir(shared.folder)
    if location is None:
        return None
    if not is_url(location) and here != shared.host:
        raise UsageError(
            f"{here} cannot write to {location} on {shared.host}",
            "Keep a cluster's runs in PostgreSQL: --store postgresql://…",
        )
    if (store := find_store(location)) is None:
        raise UsageError(f"the store no longer exists (checked from {here})")
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
        self.slots = asyncio.Semaphore(chunk.width)
        context = replace(
            shared.context,
            tell=self.done.messages.append,
            connections=chunk.width,
            failures=chunk.failures,
        )
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
            done.error = next(each for each in errors.exceptions if isinstance(each, UpskillError))
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
        stored = [brief(result) for result in self.store.settled_under(self.shared.run, keys)]
        if stored:
            done = {result.trial for result in stored}
            self.waiting = deque(trial for trial in self.waiting if trial not in done)
            self.done.results += stored

    async def _work(self) -> None:
        plan, run = self.shared.plan, self.shared.run
        while self.waiting and not self.ended:
            async with (
                self.slots
            ):  # which is free for another trial while this one's result is stored
                if not self.waiting or self.ended:
                    return
                trial = self.waiting.popleft()
                try:
                    result = await run_trial(
                        plan, trial, self.models, self.chunk.previous.get(trial)
                    )
                except CeilingReached:
                    self.waiting.append(trial)
                    self.ended = True
                    return
                self.ended = self.ended or self._has_news(result)
            if self.store is not None:
                await self.store.add_result(run, result)
            self.done.results.append(brief(result) if self.store is not None else result)

    def _has_news(self, result: Result) -> bool:
        known = self.chunk.failures
        is_failing = any(
            each.in_a_row > known.get(name, 0) for name, each in self.models.failures.items()
        )
        is_late = time.monotonic() - self.started > CHUNK_SECONDS
        return result.fatal or is_late or is_failing or overload() is not None


def brief(result: Result) -> Result:
    trace = None
    if full := result.trace:
        steps = tuple(Step("tool", tool=step.tool, status=step.status) for step in full.calls)
        trace = Trace(steps, model=full.model, turns=full.turns, warnings=full.warnings)
    findings = tuple(replace(each, reason="") for each in result.findings)
    return replace(result, trace=trace, findings=findings, asked=())


# Cutting chunks.


@dataclass
class Lane:
    """A server, or a model without one: so many trials of it run at a time over all workers."""

    limiter: AdaptiveLimiter
    waiting: dict[Group, deque[Trial]] = field(default_factory=dict[Group, deque[Trial]])

    @property
    def left(self) -> int:
        return sum(map(len, self.waiting.values()))


@dataclass(frozen=True)
class Assignment:
    """A chunk that is with a worker."""

    chunk: Chunk
    lane: Lane
    group: Group
    since: float


class ChunkQueue:
    def __init__(self, job: Job, concurrency: int, ledger: Ledger, *, one_at_a_time: bool) -> None:
        self.job = job
        self.leases = LeaseBook(ledger)
        self.one_at_a_time = one_at_a_time
        self._rates: dict[Group, float] = {}  # trials per second that one slot of a chunk runs
        self._failures: dict[str, int] = {}
        self._crashes: dict[Trial, int] = {}
        names = {model: _lane_of(job.plan, model) for model in job.plan.addresses}
        self._lanes = {name: Lane(AdaptiveLimiter(concurrency)) for name in names.values()}
        for trial in job.trials:
            waiting = self._lanes[names[trial.model]].waiting
            waiting.setdefault(trial.model, deque()).append(trial)

    @property
    def left(self) -> int:
        return sum(lane.left for lane in self._lanes.values())

    def clear(self) -> None:
        for lane in self._lanes.values():
            lane.waiting.clear()

    def stop(self, model: str) -> None:
        for lane in self._lanes.values():
            lane.waiting = {
                group: trials for group, trials in lane.waiting.items() if group != model
            }

    def assign(self, workers: int) -> Assignment | None:
        """None where a worker has to wait for another chunk to end."""
        busy = [lane for lane in self._lanes.values() if lane.left]
        open_lanes = [lane for lane in busy if lane.limiter.free > 0 and not lane.limiter.pause]
        if not open_lanes:
            return None
        lane = max(
            open_lanes,
            key=lambda lane: (lane.limiter.free / lane.limiter.max_concurrency, lane.left),
        )
        limiter = lane.limiter
        # The one with the most left, so that models keep pace.
        group, waiting = max(lane.waiting.items(), key=lambda item: len(item[1]))
        share = max(1, workers // len(busy))
        width = (
            1 if self.one_at_a_time else max(1, min(limiter.free, math.ceil(limiter.limit / share)))
        )
        rate = self._rates.get(group)
        size = FIRST_TRIALS * width if rate is None else int(rate * width * CHUNK_SECONDS)
        size = max(
            1,
            min(
                MAX_CHUNK, max(width, size), max(width, math.ceil(lane.left / share)), len(waiting)
            ),
        )
        crashes = self._crashes.get(waiting[0], 0)
        if crashes > 2:  # alone with its worker, a trial that kills it is found
            size = min(size, 8 if crashes == 3 else 1)
        width = min(width, size)
        lease = self.leases.grant(size, workers)
        if lease is None:
            return None
        trials = tuple(waiting.popleft() for _ in range(size))
        if not waiting:
            del lane.waiting[group]
        previous = {
            trial: self.job.previous[trial] for trial in trials if trial in self.job.previous
        }
        limiter.in_flight += width
        chunk = Chunk(trials, width, lease, previous, dict(self._failures))
        return Assignment(chunk, lane, group, time.monotonic())

    def pause(self) -> float:
        """Seconds until a paused lane may go on."""
        return min(
            (pause for lane in self._lanes.values() if (pause := lane.limiter.pause)), default=0.0
        )

    def settle(self, assignment: Assignment, done: Done) -> None:
        limiter, chunk = assignment.lane.limiter, assignment.chunk
        limiter.in_flight -= chunk.width
        ran = len(chunk.trials) - len(done.left)
        self.leases.settle(chunk.lease, done.calls, done.spent, ran)
        for trial in chunk.trials:
            self._crashes.pop(trial, None)
        self._put_back(assignment, done.left)
        if ran and done.seconds:
            self._rates[assignment.group] = ran / done.seconds / chunk.width
        if done.overload is None:
            limiter.record_success(ran)
        else:
            limiter.record_overload(assignment.since, done.overload)
        for model, failures in done.failures.items():
            known = (
                0
                if failures.answered
                else self._failures.get(model, 0) - chunk.failures.get(model, 0)
            )
            self._failures[model] = max(0, known) + failures.in_a_row

    def requeue_lost(self, assignment: Assignment, stored: Sequence[Result] | None) -> Trial | None:
        """The worker died: run again what it has not stored (None: unknown). Returns a trial that is given up."""
        chunk, done = assignment.chunk, {result.trial for result in stored or ()}
        left = [trial for trial in chunk.trials if trial not in done]
        assignment.lane.limiter.in_flight -= chunk.width
        self.leases.settle_lost(
            chunk.lease, stored or (), len(left) if stored is None else UNSAVED * chunk.width
        )
        for trial in left:
            self._crashes[trial] = self._crashes.get(trial, 0) + 1
        if len(chunk.trials) == 1 and left and self._crashes[left[0]] >= MAX_CRASHES:
            return left[0]
        self._put_back(assignment, left)
        return None

    def _put_back(self, assignment: Assignment, trials: Sequence[Trial]) -> None:
        if trials:
            assignment.lane.waiting.setdefault(assignment.group, deque()).extendleft(
                reversed(trials)
            )


def _lane_of(plan: Plan, model: str) -> str:
    """Models at one server share a lane; so does everything that a judge has to keep up with."""
    address = plan.addresses[model]
    if plan.judge:
        return ""
    if address.provider not in ("openai", "anthropic"):
        return model
    return f"{address.provider} {address.endpoint} {address.base_url}"


# Sharing the ceilings.


class LeaseBook:
    """What workers may spend. Amounts are in dollars, tokens and calls, in this order."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._ceilings = np.array(
            [math.inf if most is None else most for most in astuple(ledger.ceilings)]
        )
        self._leases: list[Ceilings] = []
        self._lost = np.zeros(3)
        self._used = np.zeros(3)  # for the trials that are settled
        self._trials = 0

    def grant(self, trials: int, workers: int) -> Ceilings | None:
        """None while others hold all that is left; CeilingReached when that is how it stays."""
        self.ledger.check()
        total = self.ledger.total
        spent = [total.cost_usd or 0.0, total.total_tokens, self.ledger.calls]
        left = self._ceilings - spent - self._lost - sum(map(_amounts, self._leases), np.zeros(3))
        cost, tokens, calls = np.minimum(left / (2 * workers), self._expected(trials)).tolist()
        calls = min(float(left[2]), max(calls, 1.0))
        if cost > 0 and tokens > 0 and calls >= 1:  # an estimate of what was lost has fractions
            lease = Ceilings(
                None if math.isinf(cost) else cost,
                None if math.isinf(tokens) else math.ceil(tokens),
                None if math.isinf(calls) else math.floor(calls),
            )
            self._leases.append(lease)
            return lease
        if self._leases:
            return None
        raise CeilingReached("the limit was reached, counting what lost workers may have spent")

    def settle(self, lease: Ceilings, calls: int, spent: Mapping[str, Usage], trials: int) -> None:
        self._leases.remove(lease)
        self.ledger.calls += calls
        self._used[2] += calls
        for role, usage in spent.items():
            self.ledger.spent[role] = self.ledger.spent.get(role, NO_USAGE) + usage
            self._used[:2] += (usage.cost_usd or 0.0, usage.total_tokens)
        self._trials += trials

    def settle_lost(self, lease: Ceilings, stored: Sequence[Result], in_flight: int) -> None:
        """A worker died that had stored these results; nobody knows how far it was with the others."""
        calls = sum(max(1, len(result.asked)) for result in stored)
        student = sum((result.usage for result in stored), NO_USAGE)
        judge = sum((result.judging for result in stored), NO_USAGE)
        self.settle(
            lease, calls, {"student": student, "judge": judge} if stored else {}, len(stored)
        )
        total = student + judge
        unknown = _amounts(lease) - [total.cost_usd or 0.0, total.total_tokens, calls]
        self._lost += np.maximum(0.0, np.minimum(unknown, self._expected(in_flight)))

    def _expected(self, trials: int) -> Floats:
        per_trial = self._used / max(1, self._trials)
        return np.where(per_trial > 0, UNCERTAINTY * per_trial * trials, math.inf)


def _amounts(lease: Ceilings) -> Floats:
    return np.array([amount or 0.0 for amount in astuple(lease)])
