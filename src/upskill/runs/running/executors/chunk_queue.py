"""Cuts what is to be run into chunks: trials of one model and arm that take some seconds together.

A lane is a server, or a model without one. So many trials of a lane run at a time over all workers, fewer while its
server is overloaded.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice

from upskill.models import Failures
from upskill.runs.planning.plan import Plan, Result, Trial
from upskill.runs.running.executors import Job
from upskill.runs.running.executors.chunk import UNSAVED, Chunk, Done
from upskill.runs.running.executors.leases import LeaseBook
from upskill.runs.running.left import of_group

CHUNK_SECONDS = 5.0
LARGEST_CHUNK = 2000  # trials
MOST_CRASHES = 10  # of workers that had a trial, most of them nothing else
FIRST_TRIALS = 4  # that each place in a first chunk runs, before anybody knows how long one takes

Group = tuple[str, str]  # model and arm


class Waiting:
    """Trials of one model and arm that nobody has begun: made when they are needed, but for those that came back."""

    def __init__(self, trials: Collection[Trial] = ()) -> None:
        self._rest, self._unmade = iter(trials), len(trials)
        self._first: deque[Trial] = deque()

    def __len__(self) -> int:
        return len(self._first) + self._unmade

    @property
    def first(self) -> Trial:
        if not self._first:
            self.put_back(self.take(1))
        return self._first[0]

    def take(self, count: int) -> tuple[Trial, ...]:
        known = [self._first.popleft() for _ in range(min(count, len(self._first)))]
        made = list(islice(self._rest, count - len(known)))
        self._unmade -= len(made)
        return (*known, *made)

    def put_back(self, trials: Sequence[Trial]) -> None:
        self._first.extendleft(reversed(trials))


@dataclass
class Lane:
    most: int  # trials at a time
    limit: float = 0.0  # the same, with regard to the server
    in_use: int = 0
    waiting: dict[Group, Waiting] = field(default_factory=dict[Group, Waiting])
    halved_at: float = 0.0
    paused_until: float = 0.0

    @property
    def free(self) -> int:
        return max(1, int(self.limit)) - self.in_use

    @property
    def left(self) -> int:
        return sum(map(len, self.waiting.values()))

    def next_group(self) -> Group:
        """The one with the most left, so that arms keep pace."""
        return max(self.waiting, key=lambda group: len(self.waiting[group]))


@dataclass(frozen=True)
class Cut:
    """A chunk that is with a worker."""

    chunk: Chunk
    lane: Lane
    group: Group
    at: float


class ChunkQueue:
    def __init__(self, job: Job, concurrency: int, leases: LeaseBook, *, one_at_a_time: bool) -> None:
        self.job = job
        self.leases = leases
        self.one_at_a_time = one_at_a_time
        self._lanes: dict[str, Lane] = {}
        self._of: dict[str, Lane] = {}  # by model
        self._rates: dict[Group, float] = {}  # trials per second that one place in a chunk runs
        self._failures: dict[str, int] = {}
        self._crashes: dict[Trial, int] = {}
        for model in job.plan.addresses:
            lane = self._lanes.setdefault(_lane_of(job.plan, model), Lane(concurrency, concurrency))
            self._of[model] = lane
            for arm in job.plan.arms:
                if trials := of_group(job.trials, [model], arm):
                    lane.waiting[model, arm] = Waiting(trials)

    @property
    def left(self) -> int:
        return sum(lane.left for lane in self._lanes.values())

    def clear(self) -> None:
        for lane in self._lanes.values():
            lane.waiting.clear()

    def stop(self, model: str) -> None:
        """Run no further trial of a model."""
        waiting = self._of[model].waiting
        for group in [group for group in waiting if group[0] == model]:
            del waiting[group]

    def cut(self, workers: int) -> Cut | None:
        """The next chunk for one of so many workers; None where it has to wait for another one to end."""
        now = time.monotonic()
        busy = [lane for lane in self._lanes.values() if lane.left]
        open_lanes = [lane for lane in busy if lane.free > 0 and lane.paused_until <= now]
        if not open_lanes:
            return None
        lane = max(open_lanes, key=lambda lane: (lane.free / lane.most, lane.left))
        group = lane.next_group()
        waiting = lane.waiting[group]
        share = max(1, workers // len(busy))
        width = 1 if self.one_at_a_time else max(1, min(lane.free, math.ceil(lane.limit / share)))
        size = self._size(group, width, math.ceil(lane.left / share))
        if (
            self._crashes and (crashes := self._crashes.get(waiting.first, 0)) > 2
        ):  # alone with its worker, a trial that kills it is found
            size = min(size, 8 if crashes == 3 else 1)
        width = min(width, size, len(waiting))
        lease = self.leases.grant(min(size, len(waiting)), workers)
        if lease is None:
            return None
        trials = waiting.take(size)
        if not waiting:
            del lane.waiting[group]
        previous = {trial: self.job.previous[trial] for trial in trials if trial in self.job.previous}
        lane.in_use += width
        chunk = Chunk(trials, width, CHUNK_SECONDS, lease, previous, dict(self._failures))
        return Cut(chunk, lane, group, now)

    def pause(self) -> float:
        """Seconds until a lane may go on that its server has paused."""
        now = time.monotonic()
        return min((lane.paused_until - now for lane in self._lanes.values() if lane.paused_until > now), default=0.0)

    def settle(self, cut: Cut, done: Done) -> None:
        lane, chunk, now = cut.lane, cut.chunk, time.monotonic()
        lane.in_use -= chunk.width
        ran = len(chunk.trials) - len(done.left)
        self.leases.settle(chunk.lease, done.calls, done.spent, ran)
        for trial in chunk.trials:
            self._crashes.pop(trial, None)
        self._put_back(cut, done.left)
        if ran and done.seconds:
            self._rates[cut.group] = ran / done.seconds / chunk.width
        if done.overload is None:
            lane.limit = min(lane.most, lane.limit + 1)
        else:
            lane.paused_until = max(lane.paused_until, now + done.overload)
            if cut.at >= lane.halved_at:  # only the first of those that ran into it together
                lane.halved_at, lane.limit = now, max(1.0, lane.limit / 2)
        for name, found in done.failures.items():
            self._add_failures(name, found, chunk.failures.get(name, 0))

    def lose(self, cut: Cut, stored: Sequence[Result] | None) -> Trial | None:
        """The worker died: what it has not stored is run again; None: that cannot be known.

        Returns a trial that is given up, since workers die of it.
        """
        chunk, done = cut.chunk, {result.trial for result in stored or ()}
        left = [trial for trial in chunk.trials if trial not in done]
        cut.lane.in_use -= chunk.width
        self.leases.lose(chunk.lease, stored or (), len(left) if stored is None else UNSAVED * chunk.width)
        for trial in left:
            self._crashes[trial] = self._crashes.get(trial, 0) + 1
        if len(chunk.trials) == 1 and left and self._crashes[left[0]] >= MOST_CRASHES:
            return left[0]
        self._put_back(cut, left)
        return None

    def _put_back(self, cut: Cut, trials: Sequence[Trial]) -> None:
        if trials:
            cut.lane.waiting.setdefault(cut.group, Waiting()).put_back(trials)

    def _size(self, group: Group, width: int, fair: int) -> int:
        rate = self._rates.get(group)
        wanted = FIRST_TRIALS * width if rate is None else int(rate * width * CHUNK_SECONDS)
        return max(1, min(LARGEST_CHUNK, max(width, wanted), max(width, fair)))

    def _add_failures(self, name: str, found: Failures, before: int) -> None:
        known = 0 if found.answered else self._failures.get(name, 0) - before
        self._failures[name] = max(0, known) + found.in_a_row


def _lane_of(plan: Plan, model: str) -> str:
    """Models at one server share a lane; so does everything that a judge has to keep up with."""
    address = plan.addresses[model]
    if plan.judge:
        return ""
    if address.provider not in ("openai", "anthropic"):
        return model
    return f"{address.provider} {address.endpoint} {address.base_url}"
