"""Shadowing: which skill takes the requests of another when all are installed?

First all skills are installed together, and each is asked for with its own requests. A skill whose requests all reach
it is done. For the others, what was opened instead usually names the skill that took them. If nothing was opened, the
other skills are installed half by half, and a half is split only if the skill is opened less than when it is alone.

All of that is a guess from few trials. Each pair that it accuses is tested on new draws: the skill alone against the
skill beside the other, with a test that may be looked at after every round, and Holm's correction over all of them.

Nothing here knows of models or files: `Shadowing` asks `measure` which skills were opened.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from upskill.experiments.ablation import (
    FRESH_SEEDS,
    MIN_ROOM,
    Pair,
    holm,
    lift,
    log_wealth,
    odds_of_loss,
)
from upskill.verdicts.interval import Estimate

FIRST_ROUNDS, SCREENING_ROUNDS = 3, 8  # of a request, at first and if it is in doubt
NOTICED = math.log(40)  # odds at which a request is taken to be lost, or not to be
MAX_ROUNDS = 24  # of the last test
TOLERANCE = 0.1  # of the requests that a skill seems to lose: it may lose so many by chance
TAKES = 0.1  # of all trials of a skill, or MOST of one request: then what was opened instead is a suspect
MOST = 0.5
ACCUSING = 0.01  # the chance that anyone is accused wrongly, over all pairs
CLEARED = math.log(20)

Names = frozenset[str]
ALONE: Names = frozenset()
Opened = tuple[str, ...] | None  # skills, in this order; None: the trial errored


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a skill, with some others installed."""

    query: str
    seed: int
    opened: Opened


# What is opened on these requests of a skill beside these others, with these seeds.
Measure = Callable[[str, Names, Sequence[str], range], Awaitable[Iterable[Asked]]]


@dataclass
class Conflict:
    """A skill that seems to lose requests beside others: one, or several if no part of them is seen to do it."""

    skill: str
    others: Names
    queries: tuple[str, ...]  # those that it seems to lose
    rounds: int = 0  # on new draws
    shown: bool = False
    cleared: bool = False  # it is shown to lose no more than the tolerance
    change: Estimate | None = (
        None  # of activation on these queries, beside the others against alone
    )


@dataclass
class Shadowing:
    skills: tuple[str, ...]
    queries: Mapping[str, tuple[str, ...]]  # ids of the requests of each skill that has some
    measure: Measure
    rounds: int = MAX_ROUNDS  # of the last test, at most; 1: the student answers greedily
    tolerance: float = TOLERANCE
    seed: int = 0
    tell: Callable[[str], None] = lambda _: None
    conflicts: list[Conflict] = field(default_factory=list[Conflict])
    trials: int = 0
    catalogs: set[Names] = field(default_factory=set[Names])
    explained: dict[str, set[str]] = field(
        default_factory=dict[str, set[str]]
    )  # queries that mostly go to one taker
    asked: dict[tuple[str, Names, str], dict[int, Opened]] = field(
        default_factory=dict[tuple[str, Names, str], dict[int, Opened]]
    )  # by skill, those beside it, and query, then by seed

    def beside(self, skill: str) -> Names:
        return frozenset(self.skills) - {skill}

    async def run(self) -> None:
        for skill, queries in self.queries.items():
            await self._extend(skill, self.beside(skill), queries, FIRST_ROUNDS)
        for skill in self.queries:
            await self._examine(skill)
        await self._confirm()
        for skill, queries in self.explained.items():  # by a taker that may need others beside it
            shown = {query for each in self.shown if each.skill == skill for query in each.queries}
            for group, lost in (
                await self._split(skill, self.beside(skill), queries - shown)
            ).items():
                self._accuse(skill, group, lost)
        await self._confirm()

    # ------------------------------------------------------------------------------------------ search

    async def _examine(self, skill: str) -> None:
        """Find out who seems to take its requests."""
        others = self.beside(skill)
        doubtful = tuple(
            query for query in self.queries[skill] if not all(self._own(skill, others, query))
        )
        for rounds in range(FIRST_ROUNDS + 1, SCREENING_ROUNDS + 1):
            doubtful = tuple(query for query in doubtful if self._odds_at_most(skill, query) > 0.0)
            unclear = [query for query in doubtful if self._odds_at_most(skill, query) < NOTICED]
            await self._extend(skill, others, unclear, rounds)
        got = {query: self._got(skill, query) for query in self.queries[skill]}
        trials = sum(counts.total() for counts in got.values())
        explained, takers = set[str](), set[str]()
        for other in sorted(others):
            taken = {query: counts[other] for query, counts in got.items() if counts[other]}
            of_one = {query for query, count in taken.items() if count >= MOST * got[query].total()}
            count, least = sum(taken.values()), 1 if self.is_greedy else 2
            if count >= least and (count >= TAKES * trials or of_one):
                self._accuse(skill, frozenset({other}), taken)
                explained |= of_one
                takers |= {other} if of_one else set()
        self.explained[skill] = explained
        if rest := others - takers:
            for group, lost in (await self._split(skill, rest, {*doubtful} - explained)).items():
                self._accuse(skill, group, lost)

    def _accuse(self, skill: str, others: Names, queries: Iterable[str]) -> None:
        known = next(
            (each for each in self.conflicts if (each.skill, each.others) == (skill, others)), None
        )
        if known and known.shown:
            return  # on other requests
        if known is None:
            self.conflicts.append(known := Conflict(skill, others, ()))
        wanted = {*known.queries, *queries}
        known.queries, known.cleared = (
            tuple(query for query in self.queries[skill] if query in wanted),
            False,
        )
        self.tell(f"{skill} seems to lose requests beside {', '.join(sorted(others))}")

    def _got(self, skill: str, query: str) -> Counter[str]:
        """How often, with all installed, the query went to the skill, to the one opened instead, or to none ("")."""
        opened = self._opened(skill, self.beside(skill), query)
        return Counter(skill if skill in each else each[0] if each else "" for each in opened)

    async def _split(self, skill: str, group: Names, queries: Iterable[str]) -> dict[Names, Names]:
        """The smallest groups beside which it loses some of these queries, each with those."""
        lost = await self._lost(skill, group, tuple(sorted(queries)))
        if not lost:
            return {}
        found: dict[Names, Names] = {}
        names = sorted(group)
        for half in (names[: len(names) // 2], names[len(names) // 2 :]) if len(names) > 1 else ():
            found |= await self._split(skill, frozenset(half), lost)
        rest = frozenset(lost).difference(*found.values())
        if rest and not any(
            len(each) == 1 for each in found
        ):  # beside a single one, the rest may have been luck
            found[group] = rest
        return found

    async def _lost(self, skill: str, others: Names, queries: tuple[str, ...]) -> tuple[str, ...]:
        """Ask until each query is noticed to lose what it has when the skill is alone, or not to."""
        waiting, rounds = queries, 1
        while waiting and rounds < SCREENING_ROUNDS:
            rounds += 1
            await self._extend(skill, ALONE, waiting, rounds + 2)
            await self._extend(skill, others, waiting, rounds)
            waiting = tuple(
                query for query in waiting if abs(self._odds(skill, others, query)) < NOTICED
            )
        return tuple(query for query in queries if self._odds(skill, others, query) > 0.0)

    def _odds(self, skill: str, others: Names, query: str) -> float:
        """The logarithm of how much better a loss of this query explains its trials than no change."""
        alone, beside = (self._own(skill, each, query) for each in (ALONE, others))
        if self.is_greedy:
            return math.inf if any(alone) and not any(beside) else -math.inf
        rate = (sum(alone) + 0.5) / (len(alone) + 1.0)
        return (
            odds_of_loss(rate, sum(beside), len(beside) - sum(beside))
            if rate >= MIN_ROOM
            else -math.inf
        )

    def _odds_at_most(self, skill: str, query: str) -> float:
        """The same with all installed, if it is always opened when it is alone."""
        own = self._own(skill, self.beside(skill), query)
        return odds_of_loss(1.0, sum(own), len(own) - sum(own))

    # ------------------------------------------------------------------------------------------ confirmation

    async def _confirm(self) -> None:
        waiting, rounds = self._open(), 0
        limit = 1 if self.is_greedy else self.rounds
        while waiting and rounds < limit:
            rounds = min(limit, rounds + max(2, rounds // 3))
            for conflict in waiting:
                for others in (ALONE, conflict.others):
                    await self._extend(conflict.skill, others, conflict.queries, rounds, fresh=True)
                conflict.rounds = rounds
            self._judge()
            waiting = self._open()

    def _open(self) -> list[Conflict]:
        return [each for each in self.conflicts if not each.shown and not each.cleared]

    def _judge(self) -> None:
        evidence: dict[int, float] = {}
        for number, conflict in enumerate(self.conflicts):
            pairs = self.pairs(conflict)
            conflict.change = lift(pairs, is_exact=self.is_greedy)
            losses = [before - after for _, before, after in pairs]
            if self.is_greedy:
                conflict.cleared = sum(losses) <= 0.0
                evidence[number] = -math.inf if conflict.cleared else math.inf
            else:
                conflict.cleared = (
                    log_wealth([-each for each in losses], -self.tolerance) >= CLEARED
                )
                evidence[number] = log_wealth(losses, self.tolerance)
        for number in holm(evidence, ACCUSING / 2):  # it is done twice
            self.conflicts[number].shown = True

    def pairs(self, conflict: Conflict) -> list[Pair]:
        """By query and seed: whether it was opened alone, and beside the others. Errors count against a loss."""
        found: list[Pair] = []
        for query in conflict.queries:
            alone, beside = (
                self.asked.get((conflict.skill, each, query), {})
                for each in (ALONE, conflict.others)
            )
            found += [
                (
                    query,
                    float(conflict.skill in (alone[seed] or ())),
                    float(opened is None or conflict.skill in opened),
                )
                for seed, opened in sorted(beside.items())
                if seed in alone and (self.is_greedy or seed >= self.seed + FRESH_SEEDS)
            ]
        return found

    # ------------------------------------------------------------------------------------------ trials

    @property
    def is_greedy(self) -> bool:
        """Then what is seen once is the truth about these requests."""
        return self.rounds == 1

    def _opened(self, skill: str, others: Names, query: str) -> list[tuple[str, ...]]:
        """What each trial of the search opened."""
        rows = self.asked.get((skill, others, query), {})
        return [
            each
            for seed, each in rows.items()
            if each is not None and seed < self.seed + FRESH_SEEDS
        ]

    def _own(self, skill: str, others: Names, query: str) -> list[bool]:
        return [skill in opened for opened in self._opened(skill, others, query)]

    async def _extend(
        self, skill: str, others: Names, queries: Sequence[str], rounds: int, *, fresh: bool = False
    ) -> None:
        """Ask what these queries lack of so many rounds."""
        first = self.seed + (FRESH_SEEDS if fresh and not self.is_greedy else 0)
        seeds = range(first, first + min(rounds, self.rounds))
        by_start: dict[int, list[str]] = {}
        for query in queries:
            rows = self.asked.setdefault((skill, others, query), {})
            start = next((seed for seed in seeds if seed not in rows), seeds.stop)
            by_start.setdefault(start, []).append(query)
        for start, names in by_start.items():
            if start < seeds.stop:
                self.catalogs.add(others | {skill})
                for row in await self.measure(skill, others, names, range(start, seeds.stop)):
                    self.trials += 1
                    self.asked[skill, others, row.query][row.seed] = row.opened

    # ------------------------------------------------------------------------------------------ results

    def alone(self, skill: str) -> float | None:
        """How often it was opened alone, on those of its queries that were in doubt."""
        by_query = [
            self.asked.get((skill, ALONE, query), {}).values() for query in self.queries[skill]
        ]
        scored = [
            opened for rows in by_query if (opened := [each for each in rows if each is not None])
        ]
        rates = [sum(skill in each for each in opened) / len(opened) for opened in scored]
        return sum(rates) / len(rates) if rates else None

    def shares(self, skill: str) -> dict[str, float]:
        """Of its requests with all installed: what went to itself, to others that were opened instead, and to none."""
        counted = [counts for query in self.queries[skill] if (counts := self._got(skill, query))]
        names = (
            dict.fromkeys([skill, *(name for counts in counted for name in counts)])
            if counted
            else ()
        )
        return {
            name: sum(counts[name] / counts.total() for counts in counted) / len(counted)
            for name in names
        }

    @property
    def shown(self) -> Iterator[Conflict]:
        return (each for each in self.conflicts if each.shown)
