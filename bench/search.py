"""Simulate the search for a better skill, with fixed seeds: what does it find, and how often is there nothing to find?

python bench/search.py            # all tables, half an hour
python bench/search.py --quick    # few simulations
python bench/search.py --json     # the numbers alone, for the tests
python bench/search.py --write    # put the tables into docs/simulations.md

The searches are those of `generate` (`Search` in authoring/search/refine.py) with trials that are drawn, not run: a
student passes a case with a chance that depends on the lines of the skill. The column of GEPA needs the `gepa` package.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import mean
from typing import Any, cast

import numpy as np

from simulations import chances, lift_excludes, percent, table
from upskill import AuthoringEvents, Outcome, RefineOptions, Skill, Suite
from upskill.authoring.search import comparison
from upskill.authoring.search.comparison import Attempt, compare
from upskill.authoring.search.refine import CONFIRMING_SEED, Refinement, Search
from upskill.authoring.search.refiners import (
    Edit,
    Failure,
    Proposal,
    Refiner,
    TriedEdits,
    apply_all,
)
from upskill.authoring.search.refiners.gepa import Gepa
from upskill.checks import read_checks
from upskill.runs.planning.plan import BOTH_ARMS, Plan
from upskill.runs.results.evaluation import Evaluation
from upskill.suites import Case
from upskill.verdicts.compute import compute_verdict
from upskill.verdicts.interval import Floats

DOCS = Path(__file__).resolve().parent.parent / "docs" / "simulations.md"
BEGIN, END = "<!-- search: begin -->", "<!-- search: end -->"
SEED, ATTEMPTS = 12, 3
CASES = (12, 20, 30)
TEACHER_CALL = 10  # trials that cost as much
BUDGET = 200  # trials and calls of the teacher, of a search at equal calls; its confirmation comes on top
TRAIN, TASKS, FACTS = 20, 240, 12

Lines = tuple[str, ...]
Rate = Callable[[Lines, int], float]  # by the lines of a skill and the number of a task
Propose = Callable[
    [random.Random, Lines, Sequence[int], Lines], Sequence[str]
]  # from tasks that fail, and lines tried


# ---------------------------------------------------------------------------------------------------- one search


@dataclass(frozen=True)
class World:
    """How often a student passes with the lines of a skill, and which lines a teacher proposes to add."""

    seed: str
    first: Lines
    train: Sequence[int]  # numbers of tasks
    rate: Rate
    propose: Propose
    held_out: Sequence[int] = ()


@dataclass(frozen=True)
class SimSkill:
    """What a search needs of a Skill, without its files."""

    body: str

    def with_body(self, body: str) -> SimSkill:
        return SimSkill(body)

    def with_file(self, *_: object) -> SimSkill:
        return self

    def read(self, _: str) -> None:
        return None

    @property
    def visible_hash(self) -> str:
        return self.body

    @property
    def tokens(self) -> int:
        return 0

    @property
    def lines(self) -> Lines:
        return tuple(self.body.splitlines())


@dataclass(frozen=True)
class SimPlan:
    skill: SimSkill
    suite: Suite
    arms: Sequence[str] = ("skill",)
    reference_skill: SimSkill | None = None
    seed: int = 0
    runs: int = 1
    temperature: float = 1.0
    exact: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.arms) * len(self.suite.cases) * self.runs


@dataclass
class SimEvaluation:
    plan: SimPlan
    outcomes: list[Outcome]
    halted: str = ""
    too_many_errors: bool = False


@dataclass
class Student:
    """Draws trials, each of them once."""

    world: World
    passed: dict[tuple[Lines, str, int], bool] = field(
        default_factory=dict[tuple[Lines, str, int], bool]
    )
    teacher_calls: int = 0

    @property
    def calls(self) -> int:
        """Of the search, without its confirmation."""
        trials = sum(seed < CONFIRMING_SEED for _, _, seed in self.passed)
        return trials + TEACHER_CALL * self.teacher_calls

    def outcomes(self, plan: SimPlan) -> list[Outcome]:
        rows: list[Outcome] = []
        for arm in plan.arms:
            skill = plan.skill if arm == "skill" else plan.reference_skill or SimSkill("")
            for case in plan.suite.cases:
                chance = self.world.rate(skill.lines, int(case.id))
                for number in range(plan.runs):
                    key = skill.lines, case.id, plan.seed + number
                    if key not in self.passed:
                        self.passed[key] = (
                            random.Random(f"{self.world.seed} {key}").random() < chance
                        )
                    rows.append(
                        Outcome(
                            "student",
                            case.id,
                            arm,
                            number,
                            self.passed[key],
                            0,
                            0,
                            0.0,
                        )
                    )
        return rows


class Teacher(Refiner):
    def __init__(self, student: Student) -> None:
        self.student = student
        self.random = random.Random(student.world.seed)

    async def propose(
        self, skill: Skill, failures: Sequence[Failure], tried: Sequence[TriedEdits], attempt: int
    ) -> Proposal | None:
        lines = tuple(skill.body.splitlines())
        known = tuple(edit.text for each in tried for edit in each.edits)
        new = self.ask(lines, [int(failure.case) for failure in failures], known)
        edits = tuple(Edit("insert", len(lines), line, tuple(line.split()[1:2])) for line in new)
        return Proposal(apply_all(skill, edits), edits)

    def ask(self, lines: Lines, failing: Sequence[int], tried: Lines = ()) -> Sequence[str]:
        self.student.teacher_calls += 1
        return self.student.world.propose(self.random, lines, failing, tried)


class SimGepa(Gepa):
    """The engine of GEPA; its teacher reads the tasks that failed from GEPA's prompt."""

    def __init__(self, student: Student) -> None:
        self.teacher = Teacher(student)

    def is_done(self, state: Any) -> bool:
        return self.teacher.student.calls + TEACHER_CALL + 3 > BUDGET or state.i > BUDGET

    async def reflect(self, prompt: str) -> str:
        _, body, _, examples, *_ = prompt.split("```")
        lines = tuple(body.strip().splitlines())
        failing = [
            int(number)
            for number in re.findall(r"task (\d+)\s(?:(?!task).)*?wrong", examples, re.DOTALL)
        ]
        return "```\n" + "\n".join((*lines, *self.teacher.ask(lines, failing))) + "\n```"


@dataclass
class SimSearch(Search):
    max_rejected = None

    student: Student = field(kw_only=True)
    budget: int = 0  # 0: any

    async def evaluate(self, plan: Plan, *, reported: bool = False) -> Evaluation:
        simulated = cast("SimPlan", plan)
        simulated = replace(simulated, arms=BOTH_ARMS) if reported else simulated
        return cast("Evaluation", SimEvaluation(simulated, self.student.outcomes(simulated)))

    def failures(self, evaluation: Evaluation) -> list[Failure]:
        failed = dict.fromkeys(row.case for row in evaluation.outcomes if not row.passed)
        return [Failure(case, f"task {case}", "no", ("wrong",)) for case in failed]

    def _store(self, attempt: Attempt, parent: int | None) -> None:
        """Nothing is stored."""

    def reason_to_stop(self) -> str:
        is_spent = (
            self.budget and self.student.calls + TEACHER_CALL + len(self.targets) > self.budget
        )
        return "the calls are spent" if is_spent else super().reason_to_stop()


def suite_of(world: World) -> Suite:
    checks = tuple(read_checks({"contains": "x"}, "simulated"))
    cases = [
        Case(
            str(task),
            f"task {task}",
            checks,
            evidence=(str(task % FACTS),),
            held_out=task in world.held_out,
        )
        for task in (*world.train, *world.held_out)
    ]
    return Suite(tuple(cases), "simulated")


async def search(
    student: Student,
    refiner: Refiner | None = None,
    *,
    kind: type[SimSearch] = SimSearch,
    attempts: int = ATTEMPTS,
    budget: int = 0,
) -> Refinement:
    simulated = kind(
        suite=suite_of(student.world),
        plan_for=cast("Any", SimPlan),
        store=cast("Any", None),
        models=cast("Any", AsyncExitStack()),
        options=RefineOptions(refiner=refiner or Teacher(student), attempts=attempts),
        events=AuthoringEvents(),
        student=student,
        budget=budget,
    )
    return await simulated.run([cast("Skill", SimSkill("\n".join(student.world.first)))])


# ---------------------------------------------------------------------------------------------------- equal calls


class SearchBefore(SimSearch):
    """Every proposal on all cases at once, and one that is not ahead again on about 48 trials."""

    async def propose_and_try(self, number: int) -> Attempt:
        assert self.best is not None
        assert self.best.evaluation is not None
        assert self.options.refiner is not None
        failures = self.failures(self.best.evaluation)
        proposal = await self.options.refiner.propose(
            self.best.skill, failures, tuple(self.tried), number
        )
        assert proposal is not None
        attempt = Attempt(
            len(self.attempts) + 1, proposal.skill, None, "not tried", "", None, proposal
        )
        evaluation = await self._run(attempt, self.targets)
        change = compare(self.best.evaluation.outcomes, evaluation.outcomes)
        attempt.decision = change.screened
        self._remember(attempt, change)
        if (
            (change.fixed or change.broken)
            and change.gain <= 0
            and change.p_worse > comparison.HOPELESS
        ):
            rounds = math.ceil(24 / len(self.targets))
            duel = await self._duel(
                proposal.skill, self.best.skill, self.targets, 1_000 * number, rounds
            )
            if change.gain + compare(duel.outcomes, duel.outcomes, arm="baseline").gain > 0:
                attempt.decision = "kept provisionally"
        return self.keep(attempt)


def unit(*key: object) -> random.Random:
    return random.Random(repr(key))


def facts_world(teacher: Callable[[random.Random, list[int]], Sequence[str]], seed: str) -> World:
    """A task needs one of twelve facts, which a line cites; the first draft has four. A line may harm other tasks."""
    rng = random.Random(seed)
    low, high = ([rng.betavariate(*shape) for _ in range(TASKS)] for shape in ((1, 12), (12, 1)))
    first = tuple(f"fact {fact}" for fact in rng.sample(range(FACTS), 4))

    def rate(lines: Lines, task: int) -> float:
        parts = [line.split() for line in lines]  # kind, fact, its own number, share that it harms
        knows = any(part[1] == str(task % FACTS) for part in parts if part[0] == "fact")
        harms = sum(
            unit(seed, part[2], task).random() < float(part[3]) for part in parts if len(part) > 3
        )
        return (high[task] if knows else low[task]) * 0.2**harms

    def propose(
        rng: random.Random, lines: Lines, failing: Sequence[int], tried: Lines
    ) -> Sequence[str]:
        known, before = (
            {line.split()[1] for line in some if line.startswith("fact")} for some in (lines, tried)
        )
        lacking = sorted({task % FACTS for task in failing if str(task % FACTS) not in known})
        rng.shuffle(lacking)
        return teacher(rng, sorted(lacking, key=lambda fact: str(fact) in before))

    return World(seed, first, rng.sample(range(TASKS), TRAIN), rate, propose)


def useless(rng: random.Random, lacking: list[int]) -> str:
    return f"useless {next(iter(lacking), '-')} {rng.random()}"


def one_fact(rng: random.Random, lacking: list[int]) -> Sequence[str]:
    return [f"fact {fact}" for fact in lacking[:1]] or [useless(rng, lacking)]


def bundle(rng: random.Random, lacking: list[int]) -> Sequence[str]:
    harm = [f"harm {next(iter(lacking), '-')} {rng.random()} 0.15"] if rng.random() < 0.8 else []
    return [*(f"fact {fact}" for fact in lacking[:2]), *harm] or [useless(rng, lacking)]


def mostly_useless(rng: random.Random, lacking: list[int]) -> Sequence[str]:
    return one_fact(rng, lacking) if rng.random() < 0.25 else [useless(rng, lacking)]


def give_and_take_facts(rng: random.Random, lacking: list[int]) -> Sequence[str]:
    harm = rng.choice((0.0, 0.05, 0.1, 0.2, 0.3))
    return [f"fact {fact} {rng.random()} {harm}" for fact in lacking[:1]] or [useless(rng, lacking)]


def small_gains_world(seed: str) -> World:
    """Tasks of any difficulty; a line changes all of them a little, more often for the better."""
    rng = random.Random(seed)
    base = [rng.betavariate(2, 3) for _ in range(TASKS)]

    def rate(lines: Lines, task: int) -> float:
        effects = (
            unit(seed, line).gauss(0.25, 0.35) + unit(seed, line, task).gauss(0, 0.5)
            for line in lines[1:]
        )
        return 1 / (1 + math.exp(-math.log(base[task] / (1 - base[task])) - sum(effects)))

    def propose(
        rng: random.Random, lines: Lines, failing: Sequence[int], tried: Lines
    ) -> Sequence[str]:
        return [f"line {rng.random()}"]

    return World(seed, ("first",), rng.sample(range(TASKS), TRAIN), rate, propose)


TEACHERS: dict[str, Callable[[str], World]] = {
    "one fact at a time": lambda seed: facts_world(one_fact, seed),
    "two facts, mostly with a harmful line": lambda seed: facts_world(bundle, seed),
    "three of four lines do nothing": lambda seed: facts_world(mostly_useless, seed),
    "a fact that breaks other tasks": lambda seed: facts_world(give_and_take_facts, seed),
    "small gains, noisy student": small_gains_world,
}


@dataclass
class EqualCalls:
    first: float  # mean pass rate over all tasks
    found: dict[str, list[float]]  # by search: that of its result, in each simulation
    calls: dict[str, float]  # mean


def equal_calls(sims: int) -> dict[str, EqualCalls]:
    found: dict[str, EqualCalls] = {}
    searches: dict[str, Callable[[Student], Any]] = {
        "before": lambda student: search(
            student, kind=SearchBefore, attempts=BUDGET, budget=BUDGET
        ),
        "now": lambda student: search(student, attempts=BUDGET, budget=BUDGET),
    }
    if find_spec("gepa"):
        searches["GEPA"] = lambda student: search(student, SimGepa(student), attempts=1)
    for name, make in TEACHERS.items():
        row = EqualCalls(0.0, {}, {})
        for kind, run in searches.items():
            students = [
                Student(make(f"equal calls {SEED} {name} {number}")) for number in range(sims)
            ]
            row.found[kind] = [
                mean(
                    student.world.rate(SimSkill(result.skill.body).lines, task)
                    for task in range(TASKS)
                )
                for student in students
                for result in [asyncio.run(run(student))]
            ]
            row.calls[kind] = mean(student.calls for student in students)
            row.first = mean(
                student.world.rate(student.world.first, t)
                for student in students
                for t in range(TASKS)
            )
        found[name] = row
    return found


# ---------------------------------------------------------------------------------------------------- three attempts


Rates = Callable[
    [np.random.Generator, int, int], list[Floats]
]  # of the cases, before an edit and after it


def noisy(rate: float, gain: float) -> Rates:
    """Cases of any difficulty; what the edit does differs from case to case."""
    return lambda rng, sims, cases: list(chances(rng, (sims, cases), (rate, rate + gain)))


def sharp(rate: float, gain: float) -> Rates:
    """Facts that are in the skill or not: a case passes nearly always or nearly never, and the edit turns some."""

    def draw(rng: np.random.Generator, sims: int, cases: int) -> list[Floats]:
        turned = np.floor(gain * cases + rng.random(sims))[:, np.newaxis]
        number = rng.permuted(np.tile(np.arange(cases), (sims, 1)), axis=1)
        before = np.where(number < np.maximum(turned, round((1 - rate) * cases)), 0.03, 0.97)
        return [before, np.where(number < turned, 0.95, before)]

    return draw


def equal(rate: float) -> Rates:
    def draw(rng: np.random.Generator, sims: int, cases: int) -> list[Floats]:
        before, _ = chances(rng, (sims, cases), (rate, rate))
        return [before, before]

    return draw


def give_and_take(rate: float, share: float) -> Rates:
    """A share of the cases gets better and the rest worse, by as much in all: no better on these cases."""

    def draw(rng: np.random.Generator, sims: int, cases: int) -> list[Floats]:
        better = max(1, round(share * cases))
        number = rng.permuted(np.tile(np.arange(cases), (sims, 1)), axis=1)
        step = min(1.0 - rate, rate * (cases - better) / better)
        before = np.full((sims, cases), rate)
        return [
            before,
            np.where(number < better, before + step, before - step * better / (cases - better)),
        ]

    return draw


def worse(rate: float, loss: float) -> Rates:
    return lambda rng, sims, cases: list(chances(rng, (sims, cases), (rate, rate - loss)))


def world_of(rate: Callable[[Lines], Floats], cases: int, seed: str) -> World:
    """Three attempts propose the lines 1, 2 and 3."""
    known: dict[Lines, Floats] = {}
    numbers = count(1)

    def rate_of(lines: Lines, task: int) -> float:
        if lines not in known:
            known[lines] = np.clip(rate(lines), 0.0, 1.0)
        return float(known[lines][task])

    def propose(
        _rng: random.Random, _lines: Lines, _failing: Sequence[int], _tried: Lines
    ) -> Sequence[str]:
        return [str(next(numbers))]

    return World(seed, ("0",), range(cases), rate_of, propose)


def one_good_edit(rates: Rates, rng: np.random.Generator, cases: int) -> Callable[[Lines], Floats]:
    before, after = (row[0] for row in rates(rng, 1, cases))
    good = str(rng.integers(1, ATTEMPTS + 1))
    return lambda lines: after if good in lines else before


def small_steps(rates: Rates, rng: np.random.Generator, cases: int) -> Callable[[Lines], Floats]:
    """Each of three edits does a third of it."""
    before, after = (row[0] for row in rates(rng, 1, cases))
    edit = [str(number % ATTEMPTS + 1) for number in rng.permutation(cases)]
    return lambda lines: np.array(
        [(after if edit[case] in lines else before)[case] for case in range(cases)]
    )


def no_better(rates: Rates, rng: np.random.Generator, cases: int) -> Callable[[Lines], Floats]:
    steps = [rates(rng, 1, cases) for _ in range(ATTEMPTS)]
    change = [np.zeros(cases), *(after[0] - before[0] for before, after in steps)]
    return lambda lines: (
        steps[0][0][0] + sum((change[int(line)] for line in lines), np.zeros(cases))
    )


def shuffle(rate: float, share: float, seed: str, cases: int) -> Callable[[Lines], Floats]:
    """Every wording has its own answer to every case, right or wrong for good; an edit draws a share of them again."""

    def rates(lines: Lines) -> Floats:
        passes = np.zeros(cases)
        for number in range(1, len(lines) + 1):
            rng = unit(seed, lines[:number])
            for case in range(cases):
                if number == 1 or rng.random() < share:
                    passes[case] = rng.random() < rate
        return passes

    return rates


@dataclass
class Found:
    confirmed: float  # share of searches
    kept: float  # share whose result is not the first draft: confirmed, or the best guess
    trials: float  # mean


def search_all(worlds: Sequence[World]) -> Found:
    students = [Student(world) for world in worlds]
    results = [asyncio.run(search(student)) for student in students]
    decisions = [result.confirmation.decision if result.confirmation else "" for result in results]
    return Found(
        mean(decision == "confirmed" for decision in decisions),
        mean(decision in ("confirmed", "best guess") for decision in decisions),
        mean(len(student.passed) for student in students),
    )


GAINS: tuple[tuple[str, Rates], ...] = (
    ("noisy, 20 % → 40 %", noisy(0.2, 0.2)),
    ("noisy, 40 % → 60 %", noisy(0.4, 0.2)),
    ("noisy, 60 % → 80 %", noisy(0.6, 0.2)),
    ("facts, 50 % → 70 %", sharp(0.5, 0.2)),
    ("facts, 75 % → 95 %", sharp(0.75, 0.2)),
)
NULLS: tuple[tuple[str, Rates], ...] = (
    ("nothing changes, 20 % pass", equal(0.2)),
    ("nothing changes, 50 % pass", equal(0.5)),
    ("nothing changes, 80 % pass", equal(0.8)),
    ("a few cases much better, many a little worse", give_and_take(0.3, 0.1)),
    ("half of the cases better, half worse", give_and_take(0.5, 0.5)),
    ("many cases a little better, a few much worse", give_and_take(0.7, 0.9)),
    ("5 points worse", worse(0.5, 0.05)),
    ("noisy, but no better over all tasks", noisy(0.5, 0.0)),
)


SHUFFLES: tuple[tuple[str, float, float], ...] = (
    ("wording shuffles all answers, 30 % pass", 0.3, 1.0),
    ("wording shuffles all answers, 50 % pass", 0.5, 1.0),
    ("wording shuffles all answers, 70 % pass", 0.7, 1.0),
    ("wording shuffles half of the answers, 50 % pass", 0.5, 0.5),
    ("wording shuffles a quarter of the answers, 50 % pass", 0.5, 0.25),
)


def gains(sims: int, sizes: Sequence[int] = CASES) -> dict[str, dict[int, tuple[Found, Found]]]:
    """By world and number of cases: one good edit of three, and three small steps."""
    found: dict[str, dict[int, tuple[Found, Found]]] = {}
    for number, (name, rates) in enumerate(GAINS):
        for cases in sizes:
            rng = np.random.default_rng((SEED, number, cases))
            one, small = (
                search_all(
                    [
                        world_of(kind(rates, rng, cases), cases, f"{name} {sim}")
                        for sim in range(sims)
                    ]
                )
                for kind in (one_good_edit, small_steps)
            )
            found.setdefault(name, {})[cases] = one, small
    return found


def nulls(sims: int, sizes: Sequence[int] = CASES) -> dict[str, dict[int, Found]]:
    found: dict[str, dict[int, Found]] = {}
    for cases in sizes:
        for number, (name, rates) in enumerate(NULLS):
            rng = np.random.default_rng((SEED, 100 + number, cases))
            worlds = [
                world_of(no_better(rates, rng, cases), cases, f"{name} {sim}")
                for sim in range(sims)
            ]
            found.setdefault(name, {})[cases] = search_all(worlds)
        for name, rate, share in SHUFFLES:
            seeds = [f"{name} {sim}" for sim in range(sims)]
            worlds = [world_of(shuffle(rate, share, seed, cases), cases, seed) for seed in seeds]
            found.setdefault(name, {})[cases] = search_all(worlds)
    return found


def null_world(sims: int, train: int, held_out: int) -> tuple[float, float]:
    """Nothing that a skill says matters: how often the verdict of `generate` is `helps`, and something is kept."""
    helps = kept = 0
    for sim in range(sims):
        rng = random.Random(f"null {train} {sim}")
        rates = [
            rng.betavariate(*rng.choice(((1, 4), (2, 2), (4, 1)))) for _ in range(train + held_out)
        ]

        def rate(_: Lines, task: int, rates: Sequence[float] = rates) -> float:
            return rates[task]

        def propose(
            rng: random.Random, _lines: Lines, _failing: Sequence[int], _tried: Lines
        ) -> Sequence[str]:
            return [f"line {rng.random()}" for _ in range(rng.randint(1, 4))]

        world = World(
            f"null {train} {sim}",
            ("first",),
            range(train),
            rate,
            propose,
            range(train, train + held_out),
        )
        found = asyncio.run(search(Student(world)))
        assert found.held_out is not None
        helps += compute_verdict(found.held_out.outcomes).decision == "helps"
        kept += found.skill.body != "first"
    return helps / sims, kept / sims


OLDER: tuple[tuple[str, Rates], ...] = (
    ("nothing changes, facts, all pass", sharp(1.0, 0.0)),
    ("nothing changes, noisy, 90 % pass", equal(0.9)),
    ("nothing changes, noisy, 70 % pass", equal(0.7)),
    ("noisy, 90 % → 75 %", worse(0.9, 0.15)),
    ("noisy, 70 % → 55 %", worse(0.7, 0.15)),
    (
        "facts, every sixth is lost",
        lambda rng, sims, cases: sharp(1.0, 1 / 6)(rng, sims, cases)[::-1],
    ),
)


def not_worse(sims: int) -> dict[str, dict[int, tuple[float, float]]]:
    """By world and number of older cases: how often they are shown not worse, and how often although they are."""
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for number, (name, world) in enumerate(OLDER):
        for cases in CASES:
            rng = np.random.default_rng((SEED, 200 + number, cases))
            before, after = world(rng, sims, cases)
            looks = comparison.confirming_rounds(cases)
            shape = (sims, looks[-1], cases)
            rates = [rates[:, np.newaxis, :] for rates in (after, before)]
            change = (rng.random(shape) < rates[0]).astype(np.float64) - (
                rng.random(shape) < rates[1]
            )
            shown = np.zeros(sims, dtype=bool)
            for rounds in looks:
                alpha = comparison.LAST_LOOK if rounds == looks[-1] else comparison.EARLIER_LOOK
                seen = change[:, :rounds].reshape(
                    sims, -1
                )  # of exactly these cases: pairs are the sample
                shown |= lift_excludes(
                    seen, 1, -comparison.MARGIN, level=1 - 2 * alpha, resamples=2_000
                )[0]
            is_worse = (after - before).mean(axis=1) <= -comparison.MARGIN
            found.setdefault(name, {})[cases] = (
                float(shown.mean()),
                float((shown & is_worse).mean()),
            )
    return found


def tables(sims: int) -> Iterator[str]:
    yield "### What does it find at equal calls?"
    yield ""
    rows: list[Sequence[object]] = []
    found = equal_calls(sims // 2)
    for name, equal in found.items():
        now = np.array(equal.found["now"])
        cells = [percent(equal.first, 0)]
        for kind, rates in equal.found.items():
            ahead: Floats = now - np.array(rates)
            less = f"{100 * ahead.mean():+.1f} ± {100 * ahead.std() / math.sqrt(len(ahead)):.1f}; "
            cells.append(
                f"{percent(mean(rates))} ({less if kind != 'now' else ''}{equal.calls[kind]:.0f})"
            )
        rows.append([name, *cells])
    kinds = [*next(iter(found.values())).found]
    yield from table(("what the teacher proposes", "first draft", *kinds), rows)
    yield ""
    yield (
        f"{sims // 2:,} searches a cell on {TRAIN} train cases: mean pass rate of the result over all {TASKS} tasks "
        f"(in brackets: how many points the search of now is ahead, with its standard error, and the calls, of which "
        f"a search has about {BUDGET}; a call of the teacher counts as {TEACHER_CALL} trials). The confirmation comes "
        "on top and is the same for all. Before: every proposal on all cases, and one that was not ahead again on 48 "
        "trials. GEPA is the package of that name, with the same teacher."
    )
    yield ""
    yield "### Are real gains kept, and confirmed?"
    yield ""
    rows = []
    for name, by_cases in gains(sims).items():
        row: list[object] = [name]
        for one, small in by_cases.values():
            both = (
                f"{percent(found.kept, 0)} ({percent(found.confirmed, 0)})"
                for found in (one, small)
            )
            row.append(f"{' / '.join(both)}, {one.trials:.0f}")
        rows.append(row)
    yield from table(("gain of 20 points", *(f"{cases} train cases" for cases in CASES)), rows)
    yield ""
    yield (
        f"{sims:,} searches of three attempts a cell: kept as the result, as a best guess at least (in brackets: "
        "confirmed), when one edit of the three brings all of it / when each brings a third; and the mean number of "
        "trials in the first of these."
    )
    yield ""
    yield "### How often is a skill confirmed that is no better?"
    yield ""
    rows = []
    for name, by_cases in nulls(sims).items():
        row = [name]
        for found in by_cases.values():
            row.append(f"{percent(found.confirmed)} ({percent(found.kept, 0)}), {found.trials:.0f}")
        rows.append(row)
    yield from table(
        ("three edits that are no better", *(f"{cases} train cases" for cases in CASES)), rows
    )
    yield ""
    yield (
        f"{sims:,} searches a cell: the share that ends with “confirmed” (in brackets: with another result than the "
        "first draft, confirmed or as a best guess), and the mean number of trials. Where edits help some tasks and "
        "harm as many others, or merely shuffle the answers, some of them are better in truth on a dozen cases: that "
        "makes a best guess, and the held-out cases say what it is worth elsewhere."
    )
    yield ""


def null_table(sims: int) -> Iterator[str]:
    yield "### How often does `generate` call a skill useful that says nothing?"
    yield ""
    sizes = ((12, 8), (24, 16))
    rows = [
        (f"{train} train, {held_out} held out", percent(helps), percent(kept))
        for train, held_out in sizes
        for helps, kept in [null_world(sims, train, held_out)]
    ]
    yield from table(("cases", "`helps`", "the search kept something"), rows)
    yield ""
    yield (
        f"{sims:,} times a row: the student passes each case with a chance of its own, whatever the skill says. Three "
        "attempts of one to four lines each, and the verdict on the held-out cases. At most 2.5 %."
    )
    yield ""


def older_table(sims: int) -> Iterator[str]:
    yield "### Are older cases shown not worse?"
    yield ""
    rows = [
        [
            name,
            *(f"{percent(shown, 0)} ({percent(wrongly)})" for shown, wrongly in by_cases.values()),
        ]
        for name, by_cases in not_worse(sims).items()
    ]
    yield from table(
        ("older cases after a requested change", *(f"{cases} train cases" for cases in CASES)), rows
    )
    yield ""
    yield (
        f"{sims:,} confirmations a cell: the share that shows the older cases not worse (in brackets: although they "
        "pass less often by 10 points or more)."
    )
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few simulations")
    parser.add_argument("--json", action="store_true", help="the numbers alone")
    parser.add_argument(
        "--write", action="store_true", help="put the tables into docs/simulations.md"
    )
    options = parser.parse_args()
    sims = 20 if options.quick else 200
    if options.json:
        kept = [one.kept for by_cases in gains(sims, [20]).values() for one, _ in by_cases.values()]
        wrongly = [
            found.confirmed
            for by_cases in nulls(sims, [12]).values()
            for found in by_cases.values()
        ]
        harmed = [wrong for by_cases in not_worse(200).values() for _, wrong in by_cases.values()]
        equal = {
            name: {kind: mean(rates) for kind, rates in row.found.items()}
            for name, row in equal_calls(sims // 2).items()
        }
        null = null_world(2 * sims, 12, 8)[0]
        print(
            json.dumps(
                {
                    "kept": kept,
                    "wrongly": wrongly,
                    "harmed": harmed,
                    "equal_calls": equal,
                    "null": null,
                }
            )
        )
        return
    text = "\n".join([*tables(sims), *null_table(200), *older_table(5 * sims)]).rstrip() + "\n"
    print(text)
    if options.write:
        before, rest = DOCS.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        DOCS.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
