"""Simulate verdicts whose truth is known, with fixed seeds, and put the tables beside what they have to reach.

python bench/simulations.py            # all tables, about five minutes on two cores
python bench/simulations.py --quick    # the same tables from few simulations: does it still run?
python bench/simulations.py --write    # put them into docs/simulations.md
python bench/simulations.py --only power --only gate

For speed, many suites are decided at once by the functions that `paired_lift` consists of, with the same resamples. The
first section puts a sample of all worlds through `compute_verdicts` and `judge_edit` as well: not one may differ.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from pathlib import Path

# Before NumPy is loaded: its threads would fight for the cores that the sections already use.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from upskill.verdicts import LEVEL_OF_TASKS, LEVEL_OF_THESE, MAX_ROUNDS, TOLERANCE
from upskill.verdicts.arms import EXCESS_P_VALUE, MAX_MISSING_ALWAYS, MAX_MISSING_SHARE
from upskill.verdicts.compute import compute_verdicts
from upskill.verdicts.gate import (
    FLIP_P_VALUE,
    MIN_NET_LOSS,
    MIN_ROUNDS_TO_TURN,
    ROUNDS_BEFORE_PASS,
    judge_edit,
)
from upskill.verdicts.interval import (
    RESAMPLES,
    CaseGroups,
    Floats,
    chance_of_less,
    studentized_bounds,
    unseen_weight,
)
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import VerdictOptions

DOCS = Path(__file__).resolve().parent.parent / "docs" / "simulations.md"
BEGIN, END = "<!-- simulations: begin -->", "<!-- simulations: end -->"
SEED = 44
BETWEEN = 1.5  # standard deviation of the difficulty of cases, in log-odds
EFFECT = 0.75  # standard deviation over cases of what the skill does, in log-odds
SIZES, RUNS = (6, 8, 12, 20, 40), (1, 3, 5)
POWER_SIZES, LIFTS, BASELINES = (8, 12, 20, 40), (0.2, 0.4, 0.6), (0.05, 0.2, 0.5, 0.7)
CHUNK = 400  # suites whose bootstraps are in memory at once

Rng = np.random.Generator
Bools = NDArray[np.bool_]
Rates = tuple[Floats, Floats]  # of each case, in both arms
World = Callable[[Rng, tuple[int, ...]], Rates]  # its true lift is 0

NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


# What is reported
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """What is promised, what was measured, and the bound: at most, or at least, in percent."""

    what: str
    measured: float
    bound: float
    where: str = ""
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound


@dataclass
class Section:
    title: str
    lines: list[str] = field(default_factory=list[str])
    targets: list[Target] = field(default_factory=list[Target])

    def say(self, *lines: str) -> None:
        self.lines += [*lines, ""]

    def show(self, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        self.lines += [*table(head, rows), ""]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def slashed(shares: Iterable[float], digits: int = 0) -> str:
    return " / ".join(f"{100 * share:.{digits}f}" for share in shares)


def rng_of(*key: object) -> Rng:
    return np.random.default_rng([SEED, *(ord(letter) for letter in repr(key))])


# Worlds
# ------------------------------------------------------------------------------------------------


def logistic(odds: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-odds))


@cache
def centre(rate: float, spread: float) -> float:
    """The mean log-odds at which cases with this spread pass at this rate."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        mean = float((WEIGHTS * logistic(middle + spread * NODES)).sum())
        low, high = (middle, high) if mean < rate else (low, middle)
    return 0.5 * (low + high)


def chances(rng: Rng, shape: tuple[int, ...], rates: tuple[float, float]) -> Rates:
    """The pass rate of each case in each arm: cases differ in difficulty and in what the skill does for them."""
    difficulty = BETWEEN * rng.normal(size=shape)
    effect = EFFECT * rng.normal(size=shape)
    before = logistic(centre(rates[0], BETWEEN) + difficulty)
    after = logistic(centre(rates[1], math.hypot(BETWEEN, EFFECT)) + difficulty + effect)
    return before, after


def alike(rate: float) -> World:
    return lambda _, shape: (np.full(shape, rate), np.full(shape, rate))


def logit(rate: float) -> World:
    return lambda rng, shape: chances(rng, shape, (rate, rate))


def unmoved(rate: float) -> World:
    """Cases differ, and the skill does nothing for any of them."""

    def draw(rng: Rng, shape: tuple[int, ...]) -> Rates:
        before, _ = chances(rng, shape, (rate, rate))
        return before, before

    return draw


def half_decided(rate: float) -> World:
    """Half of the cases always pass or never do, whatever the arm."""

    def draw(rng: Rng, shape: tuple[int, ...]) -> Rates:
        before, after = chances(rng, shape, (rate, rate))
        is_decided, value = rng.random(shape) < 0.5, (rng.random(shape) < 0.5).astype(np.float64)
        return np.where(is_decided, value, before), np.where(is_decided, value, after)

    return draw


def coins(rate: float) -> World:
    """Each case is a coin that is thrown once in each arm."""

    def draw(rng: Rng, shape: tuple[int, ...]) -> Rates:
        before, after = (rng.random(shape) < rate for _ in range(2))
        return before.astype(np.float64), after.astype(np.float64)

    return draw


def skewed(share: float, start: float) -> World:
    """This share is broken for good, and the rest gains as much in all."""

    def draw(rng: Rng, shape: tuple[int, ...]) -> Rates:
        after = np.where(rng.random(shape) < share, 0.0, start / (1.0 - share))
        return np.full(shape, start), after

    return draw


def against(share: float) -> World:
    """Built against the interval: what breaks always passed, and the rest, which never did, gains as much in all."""

    def draw(rng: Rng, shape: tuple[int, ...]) -> Rates:
        breaks = rng.random(shape) < share
        return breaks.astype(np.float64), np.where(breaks, 0.0, share / (1.0 - share))

    return draw


def one_lost(rate: float) -> World:
    """One case of every suite is lost for good, and the others gain exactly as much: on these cases, the lift is 0."""

    def draw(_: Rng, shape: tuple[int, ...]) -> Rates:
        before, after = np.full(shape, rate), np.full(shape, rate + rate / (shape[1] - 1))
        after[:, 0] = 0.0
        return before, after

    return draw


GRADED: dict[str, World] = {
    **{f"alike at {rate:g}": alike(rate) for rate in (0.05, 0.2, 0.5, 0.8, 0.95)},
    **{f"logit at {rate:g}": logit(rate) for rate in (0.2, 0.5, 0.8)},
    "half decided": half_decided(0.5),
    **{f"coins at {rate:g}": coins(rate) for rate in (0.2, 0.5)},
}
BUILT: dict[str, World] = {
    **{f"skewed {share:.0%}": skewed(share, 0.5) for share in (0.05, 0.1, 0.2, 0.3)},
    "skewed 10% at 0.8": skewed(0.1, 0.8),
    **{f"against {share:.0%}": against(share) for share in (0.05, 0.1, 0.2)},
}
NULL = GRADED | BUILT
ANY_CLAIM = ("alike at 0.2", "alike at 0.5", "alike at 0.8", "logit at 0.5", "skewed 20%")
# Where the lift on these very cases is 0, whatever cases were drawn.
NULL_HERE: dict[str, World] = {
    **{f"alike at {rate:g}": alike(rate) for rate in (0.05, 0.2, 0.5, 0.8, 0.95)},
    **{f"differ around {rate:g}": unmoved(rate) for rate in (0.2, 0.5, 0.8)},
    "one lost at 0.5": one_lost(0.5),
}


def draw(rng: Rng, rates: Floats, runs: int) -> Bools:
    return rng.random((*rates.shape, runs)) < rates[..., np.newaxis]


# Many suites at once
# ------------------------------------------------------------------------------------------------


def lift_excludes(
    means: Floats,
    runs: float,
    value: float = 0.0,
    *,
    level: float = LEVEL_OF_TASKS,
    resamples: int = RESAMPLES,
) -> tuple[Bools, Bools]:
    """Whether the interval of `paired_lift` lies above a value, and whether below it. A row is a suite, a column a
    unit, and `runs` is the number of pairs behind each."""
    support, codes = np.unique(np.round(means, 9), return_inverse=True)
    index = codes.reshape(means.shape) + len(support) * np.arange(len(means))[:, np.newaxis]
    counts = np.bincount(index.ravel(), minlength=means.shape[0] * len(support))
    tally, first, back = np.unique(
        counts.reshape(len(means), -1), axis=0, return_index=True, return_inverse=True
    )
    rows, tally = means[first], tally.astype(np.float64)
    above, below = (
        _is_above(side * rows, side * support, tally, runs, side * value, level, resamples)
        for side in (1.0, -1.0)
    )
    return above[back.ravel()], below[back.ravel()]


def _is_above(
    rows: Floats,
    support: Floats,
    tally: Floats,
    runs: float,
    value: float,
    level: float,
    resamples: int,
) -> Bools:
    """The bootstrap takes long, so it is made only where the bound for cases not seen lies above."""
    tail = 0.5 * (1.0 - level)
    found = (rows.mean(axis=1) > value + 1e-12) & (
        chance_of_less(support, tally, unseen_weight(rows, runs), value) < tail
    )
    places = np.flatnonzero(found)
    for start in range(0, len(places), CHUNK):
        part = places[start : start + CHUNK]
        low, _ = studentized_bounds(rows[part], runs, level=level, resamples=resamples)
        found[part] = low > value + 1e-12
    return found


@dataclass(frozen=True)
class Answers:
    """To both questions, for many suites."""

    tasks: tuple[Bools, Bools]  # helps, hurts
    these: tuple[Bools, Bools]

    @property
    def helps(self) -> Bools:
        """In the heading."""
        return self.tasks[0] | (~self.tasks[1] & self.these[0])

    @property
    def hurts(self) -> Bools:
        return self.tasks[1] | (~self.tasks[0] & self.these[1])


def answers(
    before: Bools,
    after: Bools,
    *,
    level: float = LEVEL_OF_TASKS,
    level_of_these: float = LEVEL_OF_THESE,
) -> Answers:
    """From draws: suites, cases, rounds."""
    difference = after.astype(np.float64) - before
    runs = difference.shape[2]
    return Answers(
        lift_excludes(difference.mean(axis=2), runs, level=level),
        lift_excludes(difference.reshape(len(difference), -1), 1, level=level_of_these),
    )


def try_world(world: World, shape: tuple[int, int], runs: int, rng: Rng) -> tuple[Answers, Answers]:
    """What is said, and what of it is false: these very cases may gain in a world where tasks like them do not."""
    before, after = world(rng, shape)
    said = answers(draw(rng, before, runs), draw(rng, after, runs))
    true_here = (after - before).mean(axis=1)
    helps, hurts = said.these
    false = Answers(said.tasks, (helps & (true_here <= 1e-9), hurts & (true_here >= -1e-9)))
    return said, false


# The same through the program
# ------------------------------------------------------------------------------------------------


def outcomes_of(
    before: NDArray[np.generic],
    after: NDArray[np.generic],
    model: str = "student",
    groups: Sequence[str] | None = None,
) -> list[Outcome]:
    """Of one suite: cases, rounds. NaN is missing."""
    groups = groups or [""] * len(before)
    return [
        Outcome(
            model=model,
            case=f"case-{case:03}",
            arm=arm,
            seed=seed,
            passed=None if math.isnan(value) else bool(value),
            input_tokens=0,
            output_tokens=0,
            cost_usd=0.0,
            group=groups[int(case)],
        )
        for arm, values in (("baseline", before), ("skill", after))
        for (case, seed), value in np.ndenumerate(values.astype(np.float64))
    ]


def is_said(reading: object, what: str) -> bool:
    return getattr(reading, "decision", "") == what


def check_draws(sims: int) -> Iterator[bool]:
    """Whether both questions get the same answer, here and there."""
    for number, (name, world) in enumerate(NULL.items()):
        cases, runs = SIZES[number % 5], RUNS[number % 3]
        rng = rng_of("check", name)
        for lift in (0.0, 0.3, 0.5):
            rates = world(rng, (max(2, sims // 150), cases))
            before = draw(rng, rates[0], runs)
            after = draw(rng, np.clip(rates[1] + lift, 0.0, 1.0), runs)
            found = answers(before, after)
            heading = found.helps, found.hurts
            for suite in range(len(before)):
                (verdict,) = compute_verdicts(outcomes_of(before[suite], after[suite]))
                readings = (
                    (verdict.tasks, found.tasks),
                    (verdict.these, found.these),
                    (verdict, heading),
                )
                yield all(
                    is_said(reading, what) == bool(side[suite])
                    for reading, sides in readings
                    for what, side in zip(("helps", "hurts"), sides, strict=True)
                )


def check_missing(sims: int) -> Iterator[bool]:
    for name, (of_baseline, of_skill) in FAULTS.items():
        rng = rng_of("check", name)
        shape = (max(2, sims // 100), 20, 3)
        before = lose(rng, rng.random(shape) < 0.4, *of_baseline)
        after = lose(rng, rng.random(shape) < 0.65, *of_skill)
        for suite in zip(before, after, strict=True):
            (verdict,) = compute_verdicts(outcomes_of(*suite))
            found = is_said(verdict.tasks, "helps"), is_said(verdict.these, "helps")
            yield found == helps_with_missing(*suite, with_rule=True)


def check_topics(sims: int) -> Iterator[bool]:
    sizes = LAYOUTS["12 unequal"]
    groups = [f"topic-{topic}" for topic, size in enumerate(sizes) for _ in range(size)]
    belongs = np.arange(max(sizes)) < np.array(sizes)[:, np.newaxis]
    rng = rng_of("check topics")
    shape = (max(2, sims // 100), len(sizes), max(sizes))
    rates = chances(rng, shape, (0.3, 0.7))
    before, after = (draw(rng, rate, 3)[:, belongs] for rate in rates)
    means = np.stack(
        [
            (after.astype(np.float64) - before)[:, np.array(groups) == group].mean(axis=(1, 2))
            for group in dict.fromkeys(groups)
        ],
        axis=1,
    )
    helps, _ = lift_excludes(means, len(sizes) / sum(1.0 / (3 * size) for size in sizes))
    for suite in range(len(before)):
        rows = outcomes_of(before[suite], after[suite], groups=groups)
        (verdict,) = compute_verdicts(rows)
        yield is_said(verdict.tasks, "helps") == bool(helps[suite])


def check_models(sims: int) -> Iterator[bool]:
    rng = rng_of("check models")
    shape = (max(2, sims // 100), 20)
    lifts = (0.0, 0.25, 0.4)
    drawn = [
        [draw(rng, rate, 3) for rate in chances(rng, shape, (0.3, 0.3 + lift))] for lift in lifts
    ]
    levels = {
        sharing: [
            lift_excludes(
                (after.astype(np.float64) - before).mean(axis=2), 3, level=1 - 0.05 / sharing
            )
            for before, after in drawn
        ]
        for sharing in range(1, len(lifts) + 1)
    }
    helped = step_down(levels, len(lifts))
    for suite in range(shape[0]):
        rows = [
            row
            for model, (before, after) in enumerate(drawn)
            for row in outcomes_of(before[suite], after[suite], f"model-{model}")
        ]
        found = [is_said(verdict.tasks, "helps") for verdict in compute_verdicts(rows)]
        yield any(found) == bool(helped[suite])


def check_marks(sims: int) -> Iterator[bool]:
    for rate, facts in product((0.7, 0.97), (0, 5)):
        rng = rng_of("check gate", rate, facts)
        rates = edited(12, facts, rate)(rng, (max(2, sims // 300), 12))
        before, after = (draw(rng, each, MAX_ROUNDS) for each in rates)
        marks = mark_rounds(before, after)
        for suite, rounds in product(range(len(before)), range(1, MAX_ROUNDS + 1)):
            rows = outcomes_of(before[suite, :, :rounds], after[suite, :, :rounds])
            (verdict,) = compute_verdicts(rows, VerdictOptions(in_rounds=True))
            found = judge_edit(verdict, rows, rounds=rounds)
            mark = MARKS[int(marks.mark[suite, rounds - 1])]
            is_settled = bool(marks.is_settled[suite, rounds - 1])
            yield (found.mark, found.is_settled) == (mark, is_settled)


def check_program(sims: int) -> Section:
    """How many of the answers that are computed here differ from those of the program."""
    section = Section("The program says the same")
    for what, check in (
        ("verdicts", check_draws),
        ("verdicts with missing answers", check_missing),
        ("verdicts of topics", check_topics),
        ("tables of three models", check_models),
        ("marks of an edit", check_marks),
    ):
        same = [*check(sims)]
        name = f"{what} of the program that differ, of {len(same):,}"
        section.targets.append(Target(name, float(same.count(False)), 0.0))
    names = {each.name for each in dataclasses.fields(Outcome)}
    assert not names & {"answer", "text", "trace", "redraws"}
    section.say(
        "Verdicts are computed from passed, failed and missing. No text reaches them: answers that are all"
        " different, few wordings or one give the same verdict, draw for draw."
    )
    return section


# Nothing is gained
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Cell:
    share: float  # false, whichever way is more often
    cases: int
    runs: int
    world: str


def note_worst(worst: dict[tuple[str, int, int], Cell], what: str, cell: Cell) -> None:
    key = what, cell.cases, cell.runs
    worst[key] = max(worst.get(key, cell), cell)


def null_table(sims: int) -> Section:
    section = Section("A skill that does nothing: how often is a lift claimed?")
    worst: dict[tuple[str, int, int], Cell] = {}
    for cases, runs, (name, world) in product(SIZES, RUNS, NULL.items()):
        rng = rng_of("null", name, cases, runs)
        said, false = try_world(world, (sims, cases), runs, rng)
        kind = "built" if name in BUILT else "graded"
        sides = {
            f"{kind} tasks": false.tasks,
            f"{kind} these": false.these,
            f"{kind} either": (false.helps, false.hurts),
        }
        if name in ANY_CLAIM:
            sides["said"] = said.helps, said.hurts
        for what, side in sides.items():
            share = max(float(each.mean()) for each in side)
            note_worst(worst, what, Cell(share, cases, runs, name))
    columns = [
        *(
            f"{kind} {what}"
            for kind in ("graded", "built")
            for what in ("tasks", "these", "either")
        ),
        "said",
    ]
    rows = [
        (
            cases,
            *(slashed((worst[what, cases, runs].share for runs in RUNS), 1) for what in columns),
        )
        for cases in SIZES
    ]
    head = ("cases", "tasks", "these", "either", "built: tasks", "these", "either", "said at all")
    section.show(head, rows)
    section.say(
        "False `helps` or `hurts` in %, whichever is more often, at 1 / 3 / 5 draws a case; the worst of"
        f" {len(GRADED)} worlds, and of {len(BUILT)} built against the interval. {sims:,} suites a world and cell, so"
        f" a figure of 2.5 is uncertain by ±{200 * math.sqrt(0.025 * 0.975 / sims):.1f}, and the worst of many is high"
        " by luck too: for the table at the top, the three worst cells are simulated again with ten times as many."
        " A claim about these cases is false where these very cases gain nothing. The last column counts"
        f" it in any case, in {len(ANY_CLAIM)} worlds."
    )
    for kind, bound in (("graded", 2.7), ("built", 3.0)):
        cells = sorted(cell for (what, *_), cell in worst.items() if what == f"{kind} either")
        again = max(try_again(cell, 10 * sims) for cell in cells[-3:])
        where = f"{again.cases} × {again.runs}, {again.world}"
        what = "worlds built against it" if kind == "built" else "a skill that does nothing"
        section.targets.append(
            Target(f"{what}: false, either question", 100 * again.share, bound, where)
        )
    return section


def try_again(cell: Cell, sims: int) -> Cell:
    rng = rng_of("again", cell.world, cell.cases, cell.runs)
    _, false = try_world(NULL[cell.world], (sims, cell.cases), cell.runs, rng)
    share = max(float(each.mean()) for each in (false.helps, false.hurts))
    return dataclasses.replace(cell, share=share)


def these_table(sims: int) -> Section:
    section = Section("These very cases gain nothing: one look, and twelve rounds")
    rows: list[Sequence[object]] = []
    single: list[tuple[float, str]] = []
    for cases in SIZES:
        cells: list[float] = []
        for runs in RUNS:
            found = [
                (
                    max(
                        float(side.mean())
                        for side in try_world(
                            world, (sims, cases), runs, rng_of("these", name, cases, runs)
                        )[0].these
                    ),
                    f"{cases} × {runs}, {name}",
                )
                for name, world in NULL_HERE.items()
            ]
            single += found
            cells.append(max(found)[0])
        rows.append((cases, slashed(cells, 2)))
    section.show(("cases", "one look"), rows)
    section.targets.append(
        Target("these cases: false, one look", 100 * max(single)[0], 1.0, max(single)[1])
    )
    in_rounds: list[tuple[float, str]] = []
    rows = []
    for cases in (8, 12, 20, 40):
        cells = []
        for name in ("alike at 0.2", "alike at 0.5", "alike at 0.8", "differ around 0.5"):
            rng = rng_of("rounds", name, cases)
            before, after = NULL_HERE[name](rng, (sims, cases))
            drawn = draw(rng, before, MAX_ROUNDS), draw(rng, after, MAX_ROUNDS)
            ever = np.zeros((2, sims), dtype=bool)
            for rounds in range(1, MAX_ROUNDS + 1):
                found = answers(*(each[:, :, :rounds] for each in drawn), level=LEVEL_OF_THESE)
                ever |= np.stack([found.helps, found.hurts])
            share = float(ever.mean(axis=1).max())
            cells.append(share)
            in_rounds.append((share, f"{cases} cases, {name}"))
        rows.append((cases, *(percent(share) for share in cells)))
    section.show(("cases", "alike at 0.2", "at 0.5", "at 0.8", "differ around 0.5"), rows)
    section.say(
        f"First table: false in %, at 1 / 3 / 5 draws a case, the worst of {len(NULL_HERE)} worlds. Second: ever false"
        f" in twelve rounds, both questions at 99 % after each. {sims:,} suites a cell."
    )
    section.targets.append(
        Target("ever false in twelve rounds", 100 * max(in_rounds)[0], 3.5, max(in_rounds)[1])
    )
    return section


def versions_table(sims: int) -> Section:
    """Nine irrelevant edits after the first version; seen cases, so only these are asked about."""
    section = Section("Nine irrelevant edits: how often does any of ten versions `help`?")
    rows: list[Sequence[object]] = []
    found: dict[str, list[tuple[float, str]]] = {"alike": [], "differ": []}
    for cases, runs in product((8, 12, 20, 40), (1, 3)):
        cells: list[str] = []
        for name, world, jitter in (
            ("alike", alike(0.5), 0.0),
            ("alike", alike(0.2), 0.0),
            ("differ", unmoved(0.5), 0.0),
            ("jitter .75", unmoved(0.5), 0.75),
            ("jitter 1.5", unmoved(0.5), 1.5),
        ):
            rng = rng_of("versions", name, cases, runs, len(cells))
            rates, _ = world(rng, (sims, cases))
            first = answers(draw(rng, rates, runs), draw(rng, rates, runs)).helps
            later = np.zeros(sims, dtype=bool)
            wrong = np.zeros(sims, dtype=bool)
            for _ in range(9):
                moved = rates
                if jitter:
                    odds = np.log(rates / (1.0 - rates)) + jitter * rng.normal(size=rates.shape)
                    moved = logistic(odds)
                helps = answers(draw(rng, rates, runs), draw(rng, moved, runs)).these[0]
                later |= helps
                wrong |= helps & ((moved - rates).mean(axis=1) <= 0.0)
            share = float((first | later).mean())
            if jitter:
                cells.append(f"{percent(share)} ({percent(float(wrong.mean()))})")
            else:
                cells.append(percent(share))
                found[name].append((share, f"{cases} × {runs}"))
        rows.append((f"{cases} × {runs}", *cells))
    head = ("cases × draws", "alike at .5", "alike at .2", "differ", "jitter .75", "jitter 1.5")
    section.show(head, rows)
    section.say(
        f"{sims:,} suites a cell. With jitter, each wording moves the rate of each case by chance (standard deviation"
        " in log-odds), so some edits truly help on these cases; in brackets: said where the edit did not."
    )
    for kind, bound in (("differ", 5.0), ("alike", 7.5)):
        share, where = max(found[kind])
        what = "nine irrelevant edits, any `helps`, cases "
        section.targets.append(Target(what + kind, 100 * share, bound, where))
    rows, exact = [], list[tuple[float, str]]()
    for cases, rate in product((12, 20, 40), (0.2, 0.5)):
        cells = []
        for share in (0.05, 0.07, 0.3, 1.0):
            rng = rng_of("exact", cases, rate, share)
            base = rng.random((sims, cases, 1)) < rate
            answer, ever = rng.random((sims, cases, 1)) < rate, np.zeros(sims, dtype=bool)
            for _ in range(10):
                ever |= answers(base, answer).tasks[0]
                again = rng.random(answer.shape) < share
                answer = np.where(again, rng.random(answer.shape) < rate, answer)
            cells.append(percent(float(ever.mean())))
            if share <= 0.07:
                exact.append((float(ever.mean()), f"{cases} cases at {rate:g}, {share:g}"))
        rows.append((f"{cases} at {rate:g}", *cells))
    section.show(("exact student: cases", ".05 drawn anew", ".07", ".3", "1"), rows)
    section.say("An exact student, where each edit draws this share of its answers again.")
    target = Target(
        "exact student, ten versions, any `helps`, .05 to .07 drawn anew",
        100 * max(exact)[0],
        6.0,
        max(exact)[1],
    )
    section.targets.append(target)
    rows = []
    for cases, more in product((12, 20, 40), (1, 3)):
        rng = rng_of("redraw", cases, more)
        before, after = logit(0.5)(rng, (sims, cases))
        drawn = draw(rng, before, 10 * more), draw(rng, after, 10 * more)
        ever = np.zeros((2, sims), dtype=bool)
        for look in range(1, 11):
            found_now = answers(*(each[:, :, : look * more] for each in drawn))
            ever |= np.stack([found_now.tasks[0], found_now.helps])
        rows.append((f"{cases}, +{more}", *(percent(float(each.mean())) for each in ever)))
    section.show(("the same text drawn ten times more", "tasks", "either question"), rows)
    return section


# Topics
# ------------------------------------------------------------------------------------------------

LAYOUTS: Mapping[str, tuple[int, ...]] = {
    "6 × 5": (5,) * 6,
    "8 × 4": (4,) * 8,
    "10 × 3": (3,) * 10,
    "12 × 2": (2,) * 12,
    "20 × 2": (2,) * 20,
    "6 unequal": (10, 6, 3, 2, 1, 1),
    "8 unequal": (12, 6, 4, 2, 1, 1, 1, 1),
    "12 unequal": (10, 6, 4, 3, 2, 2, *(1,) * 6),
    "20 unequal": (10, 6, 4, 3, 2, 2, *(1,) * 14),
}


def topic_effect(spread: float) -> World:
    """What the skill does differs from topic to topic; difficulty from case to case."""

    def draw(rng: Rng, shape: tuple[int, ...]) -> Rates:
        topics, size = shape[:-1], shape
        difficulty = BETWEEN * rng.normal(size=size)
        effect = spread * rng.normal(size=topics)[..., np.newaxis]
        before = logistic(centre(0.5, BETWEEN) + difficulty)
        return before, logistic(centre(0.5, math.hypot(BETWEEN, spread)) + difficulty + effect)

    return draw


def by_topic(world: World) -> World:
    """All cases of a topic are alike."""

    def draw(rng: Rng, shape: tuple[int, ...]) -> Rates:
        before, after = world(rng, shape[:-1])
        return (
            np.broadcast_to(before[..., np.newaxis], shape),
            np.broadcast_to(after[..., np.newaxis], shape),
        )

    return draw


def all_or_nothing(rng: Rng, shape: tuple[int, ...]) -> Rates:
    kind = rng.random(shape)
    return np.full(shape, 0.5), np.where(kind < 0.2, 1.0, np.where(kind < 0.4, 0.0, 0.5))


TOPICS: Mapping[str, World] = {
    "effect differs, sd 1": topic_effect(1.0),
    "sd 2": topic_effect(2.0),
    "all or nothing": by_topic(all_or_nothing),
    "one in ten broken": by_topic(skewed(0.1, 0.5)),
    "one in five, built against": by_topic(against(0.2)),
}


def topic_means(
    rates: Rates, sizes: Sequence[int], runs: int, rng: Rng
) -> tuple[Floats, Floats, float]:
    """Suites of topics and cases: means by case, means by topic, and pairs a topic."""
    difference = draw(rng, rates[1], runs).astype(np.float64) - draw(rng, rates[0], runs)
    by_case = difference.mean(axis=3)
    belongs: Bools = np.less(np.arange(max(sizes)), np.array(sizes)[:, np.newaxis])
    topics: Floats = (by_case * belongs).sum(axis=2) / np.array(sizes)
    pairs = len(sizes) / sum(1.0 / (size * runs) for size in sizes)
    return by_case[:, belongs], topics, pairs


def topics_table(sims: int) -> Section:
    section = Section("Cases that come in topics")
    rows: list[Sequence[object]] = []
    found: list[tuple[float, str]] = []
    for name, world in TOPICS.items():
        cells: list[str] = []
        for layout, sizes in LAYOUTS.items():
            shares: list[tuple[float, float]] = []
            for runs in (1, 3):
                rng = rng_of("topics", name, layout, runs)
                rates = world(rng, (sims, len(sizes), max(sizes)))
                cases, topics, pairs = topic_means(rates, sizes, runs, rng)
                shares.append(
                    (
                        max(float(side.mean()) for side in lift_excludes(cases, runs)),
                        max(float(side.mean()) for side in lift_excludes(topics, pairs)),
                    )
                )
            alone, grouped = (max(each) for each in zip(*shares, strict=True))
            cells.append(f"{100 * alone:.0f} → {100 * grouped:.1f}")
            found.append((grouped, f"{layout}, {name}"))
        rows.append((name, *cells))
    section.show(("world", *LAYOUTS), rows)
    section.say(
        "False `helps` or `hurts` on tasks like these in %, the worst of 1 and 3 draws a case: cases as units →"
        f" declared groups as units. {sims:,} suites a cell."
    )
    section.targets.append(
        Target("declared groups: false", 100 * max(found)[0], 3.0, max(found)[1])
    )
    return section


# Missing
# ------------------------------------------------------------------------------------------------


def is_above(values: Floats, units: Sequence[object], level: float) -> bool:
    """Whether `paired_lift` has its lower end above 0."""
    groups = CaseGroups.of(units)
    if len(groups) < 2:
        return False
    means = groups.means(values)[np.newaxis, :]
    support, tally = np.unique(np.round(means, 9), return_counts=True)
    counts = tally.astype(np.float64)[np.newaxis, :]
    return bool(_is_above(means, support, counts, groups.runs, 0.0, level, RESAMPLES)[0])


def helps_with_missing(before: Floats, after: Floats, *, with_rule: bool) -> tuple[bool, bool]:
    """About tasks and about these, of one suite: cases, rounds, and NaN where a trial is missing. As `compute` does."""
    lost = [int(np.isnan(arm).sum()) for arm in (before, after)]
    most = max(MAX_MISSING_ALWAYS, MAX_MISSING_SHARE * before.size)
    if with_rule and max(lost) > most:
        return False, False
    is_pair = ~np.isnan(before) & ~np.isnan(after)
    case, round_ = np.nonzero(is_pair)
    difference: Floats = (after - before)[is_pair]
    extra = excess_of(*lost) if with_rule else 0
    if extra:
        skill_loses = lost[1] > lost[0]
        partner, gone = (before, after) if skill_loses else (after, before)
        rows, columns = np.nonzero(np.isnan(gone) & ~np.isnan(partner))
        worst = -partner[rows, columns] if skill_loses else partner[rows, columns] - 1.0
        order = np.argsort(worst, kind="stable")[:extra]
        full = (
            np.append(difference, worst[order]),
            np.append(case, rows[order]),
            np.append(round_, columns[order]),
        )
    else:
        full = (difference, case, round_)
    found: list[bool] = []
    for by_draw, level in ((False, LEVEL_OF_TASKS), (True, LEVEL_OF_THESE)):
        found.append(
            all(
                is_above(
                    values, [*zip(cases, rounds, strict=True)] if by_draw else list(cases), level
                )
                for values, cases, rounds in (
                    [(difference, case, round_), full] if extra else [full]
                )
            )
        )
    return found[0], found[1]


@cache
def excess_of(one: int, two: int) -> int:
    total, most = one + two, max(one, two)
    tail = sum(math.comb(total, count) for count in range(most, total + 1)) / 2**total
    return abs(one - two) if min(1.0, 2 * tail) <= EXCESS_P_VALUE else 0


def lose(rng: Rng, passed: Bools, share_of_passes: float, share_of_failures: float) -> Floats:
    chance = np.where(passed, share_of_passes, share_of_failures)
    return np.where(rng.random(passed.shape) < chance, np.nan, passed.astype(np.float64))


FAULTS: Mapping[str, tuple[tuple[float, float], tuple[float, float]]] = {
    # What is lost in the baseline, and with the skill: of passes, of failures.
    "12 % of the skill's failures": ((0.0, 0.0), (0.0, 0.12)),
    "25 % of the skill's failures": ((0.0, 0.0), (0.0, 0.25)),
    "12 % of the baseline's passes": ((0.12, 0.0), (0.0, 0.0)),
    "18 % of the baseline's passes": ((0.18, 0.0), (0.0, 0.0)),
    "12 % of the skill's trials": ((0.0, 0.0), (0.12, 0.12)),
}


def claims(before: Floats, after: Floats) -> tuple[bool, bool]:
    """Whether either question is answered with `helps`: without the rule, and with it, which only takes claims away."""
    is_said = any(helps_with_missing(before, after, with_rule=False))
    return is_said, is_said and any(helps_with_missing(before, after, with_rule=True))


@dataclass(frozen=True)
class Fault:
    """What one arm loses of suites whose skill does nothing."""

    name: str
    cases: int
    runs: int
    rate: float  # that both arms pass at

    def claimed(self, sims: int, *key: object) -> tuple[float, float]:
        """How often a lift is claimed, without the rule and with it."""
        of_baseline, of_skill = FAULTS[self.name]
        rng = rng_of("missing", self.name, self.cases, self.runs, self.rate, *key)
        shape = (sims, self.cases, self.runs)
        before = lose(rng, rng.random(shape) < self.rate, *of_baseline)
        after = lose(rng, rng.random(shape) < self.rate, *of_skill)
        shares = np.mean([claims(*suite) for suite in zip(before, after, strict=True)], axis=0)
        return float(shares[0]), float(shares[1])


def power_with_missing(cases: int, runs: int, lift: float, share: float, sims: int) -> list[Floats]:
    """Power on tasks and on these cases, without the rule and with it, where both arms lose this share."""
    rng = rng_of("alike", cases, runs)
    rates = chances(rng, (sims, cases), (0.2, 0.2 + lift))
    before, after = (lose(rng, draw(rng, rate, runs), share, share) for rate in rates)
    return [
        np.mean(
            [
                helps_with_missing(*suite, with_rule=with_rule)
                for suite in zip(before, after, strict=True)
            ],
            axis=0,
        )
        for with_rule in (False, True)
    ]


def missing_table(sims: int) -> Section:
    section = Section("Missing answers")
    shapes = ((12, 1), (20, 1), (12, 5), (20, 3), (40, 3))
    rows: list[Sequence[object]] = []
    found: list[tuple[float, Fault]] = []
    for name in FAULTS:
        cells: list[str] = []
        for cases, runs in shapes:
            worst = (0.0, 0.0)
            for rate in (0.3, 0.5, 0.7):
                fault = Fault(name, cases, runs, rate)
                without, with_rule = fault.claimed(sims)
                found.append((with_rule, fault))
                worst = max(worst, (with_rule, without))
            cells.append(f"{100 * worst[1]:.1f} → {100 * worst[0]:.1f}")
        rows.append((name, *cells))
    section.show(("lost in one arm", *(f"{cases} × {runs}" for cases, runs in shapes)), rows)
    section.say(
        f"False `helps` in %, either question, the worst of pass rates .3, .5, .7: no rule → with it. {sims:,} suites a"
        " cell; for the table at the top, the three worst cells are simulated again with five times as many. `hurts` is"
        " the mirror image. One or two answers that only one arm loses are no more than chance, so with 20 cases drawn"
        " once the rule does little. Counting two as well would lower the worst figure to 2.8 %, and cost another point"
        " of power where calls of both arms fail alike."
    )
    found.sort(key=lambda cell: cell[0])
    again = [(fault.claimed(5 * sims, "again")[1], fault) for _, fault in found[-3:]]
    share, fault = max(again, key=lambda cell: cell[0])
    where = f"{fault.cases} × {fault.runs} at {fault.rate:g}, {fault.name}"
    section.targets.append(Target("a server that fails in one arm: false", 100 * share, 2.7, where))
    rows, costs = [], list[tuple[float, str]]()
    for world in ((12, 5, 0.3), (20, 3, 0.3), (20, 5, 0.3), (40, 3, 0.2), (20, 1, 0.5)):
        cells = []
        for share in (0.0, 0.02, 0.05, 0.09):
            off, on = power_with_missing(*world, share, sims // 2)
            both = zip(off, on, strict=True)
            cells.append(" · ".join(f"{100 * one:.0f} → {100 * two:.0f}" for one, two in both))
            if share == 0.05:
                costs.append((float(off[0] - on[0]), f"{world[0]} × {world[1]}"))
        cases, runs, lift = world
        rows.append((f"{cases} × {runs}, +{100 * lift:.0f}", *cells))
    section.show(("calls of both arms that fail alike", "0 %", "2 %", "5 %", "9 %"), rows)
    section.say(
        f"Power in %, tasks · these: no rule → with it. {sims // 2:,} suites a cell, so a cost of 3 points is"
        " uncertain by ±1.5. With 20 cases drawn once, most of what the rule costs is that more than 15 % of an arm"
        " decide nothing: that happens by chance."
    )
    cost, where = max(costs)
    name = "5 % of all calls fail: points of power that the rule costs, tasks"
    section.targets.append(Target(name, 100 * cost, 3.0, where))
    return section


# Pass rates, tokens, several models
# ------------------------------------------------------------------------------------------------


def share_is_above(shares: Floats, value: float, level: float) -> Bools:
    """Whether the interval of `mean_share` lies above a value, for many suites."""
    values = np.round(2.0 * shares - 1.0, 9)
    support, codes = np.unique(values, return_inverse=True)
    index = codes.reshape(values.shape) + len(support) * np.arange(len(values))[:, np.newaxis]
    counts = np.bincount(index.ravel(), minlength=len(values) * len(support))
    tally = counts.reshape(len(values), -1).astype(np.float64)
    target = 2.0 * value - 1.0
    chance = chance_of_less(support, tally, 1.0, target)
    return (values.mean(axis=1) > target) & (chance < 0.5 * (1.0 - level))


def pass_rate_table(sims: int) -> Section:
    section = Section("A pass rate that just meets the requirement")
    rows: list[Sequence[object]] = []
    found: list[tuple[float, str]] = []
    for cases in (6, 12, 20, 40):
        cells: list[float] = []
        for runs in RUNS:
            worst = (0.0, 0.0)
            for rate, kind in product(
                (0.3, 0.5, 0.7, 0.8, 0.9, 0.95), ("alike", "differ", "coins")
            ):
                rng = rng_of("rate", cases, runs, rate, kind)
                shape = (sims, cases)
                if kind == "coins":
                    rates = (rng.random(shape) < rate).astype(np.float64)
                else:
                    rates = (
                        np.full(shape, rate)
                        if kind == "alike"
                        else chances(rng, shape, (rate, rate))[0]
                    )
                drawn = draw(rng, rates, runs).astype(np.float64)
                tasks = float(share_is_above(drawn.mean(axis=2), rate, LEVEL_OF_TASKS).mean())
                wrong = share_is_above(drawn.reshape(sims, -1), rate, LEVEL_OF_THESE)
                these = float((wrong & (rates.mean(axis=1) <= rate + 1e-9)).mean())
                worst = max(worst[0], tasks), max(worst[1], these)
                found.append((max(tasks, these), f"{cases} × {runs} at {rate:g}, {kind}"))
            cells += worst
        rows.append((cases, slashed(cells[::2], 1), slashed(cells[1::2], 1)))
    section.show(("cases", "tasks", "these"), rows)
    section.say(
        f"False in %, worst of 18 worlds, at 1 / 3 / 5 draws a case; {sims:,} suites a cell."
    )
    section.targets.append(Target("`pass_rate`: false", 100 * max(found)[0], 3.0, max(found)[1]))
    return section


def token_ratio(rng: Rng, shape: tuple[int, ...], kind: str) -> Floats:
    if kind.startswith("lognormal"):
        return np.exp(float(kind.split()[1]) * rng.normal(size=shape))
    if kind == "Pareto 1.3":
        return 1.0 + rng.pareto(1.3, size=shape)
    return rng.gamma(0.5, size=shape) + 0.05  # skewed


def saves_share(
    rng: Rng, shape: tuple[int, int, int], kind: str, saving: float, rate: float
) -> tuple[float, float]:
    """How often `saves` is said, and how often the loss is shown to be small."""
    size = np.exp(rng.normal(size=(*shape[:2], 1)))  # of the task
    before = size * token_ratio(rng, shape, kind)
    after = size * token_ratio(rng, shape, kind) * (1.0 - saving)
    shares = ((before - after) / (before + after)).reshape(shape[0], -1)
    passed = [rng.random(shape) < rate for _ in range(2)]
    difference = (passed[1].astype(np.float64) - passed[0]).reshape(shape[0], -1)
    kept, _ = lift_excludes(difference, 1, -TOLERANCE, level=LEVEL_OF_THESE)
    helps, hurts = lift_excludes(difference, 1, level=LEVEL_OF_THESE)
    units = range(shares.shape[1])
    saves = [
        is_close and is_above(row, units, LEVEL_OF_THESE)
        for row, is_close in zip(shares, kept & ~helps & ~hurts, strict=True)
    ]
    return float(np.mean(saves)), float(kept.mean())


def saves_table(sims: int) -> Section:
    section = Section("`saves` and `no effect`")
    rows: list[Sequence[object]] = []
    found: list[tuple[float, str]] = []
    shapes = ((12, 3), (12, 5), (20, 3), (40, 3))
    for kind in ("lognormal 0.5", "lognormal 1.5", "Pareto 1.3", "skewed"):
        cells: list[str] = []
        for cases, runs in shapes:
            share, _ = saves_share(
                rng_of("saves", kind, cases, runs), (sims, cases, runs), kind, 0.0, 1.0
            )
            found.append((share, f"{cases} × {runs}, {kind}"))
            cells.append(percent(share))
        rows.append((f"nothing is saved, {kind}", *cells))
    for noise, rate in product((0.2, 0.5), (1.0, 0.97)):
        cells = []
        for cases, runs in shapes:
            rng = rng_of("saves 30", noise, cases, runs)
            share, _ = saves_share(rng, (sims // 2, cases, runs), f"lognormal {noise}", 0.3, rate)
            cells.append(percent(share, 0))
        rows.append((f"30 % fewer tokens, noise {noise:g}, pass rate {rate:g}", *cells))
    for rate in (1.0, 0.97, 0.95):
        cells = []
        for cases, runs in shapes:
            rng = rng_of("no effect", rate, cases, runs)
            drawn = (
                draw(rng, np.full((sims, cases), rate), runs),
                draw(rng, np.full((sims, cases), rate), runs),
            )
            difference = (drawn[1].astype(np.float64) - drawn[0]).reshape(sims, -1)
            above, _ = lift_excludes(difference, 1, -TOLERANCE, level=LEVEL_OF_THESE)
            _, below = lift_excludes(difference, 1, TOLERANCE, level=LEVEL_OF_THESE)
            cells.append(percent(float((above & below).mean()), 0))
        rows.append((f"`no effect`, both arms at {rate:g}", *cells))
    section.show(("world", *(f"{cases} × {runs}" for cases, runs in shapes)), rows)
    section.say(
        "About these cases, with a tolerance of 20 points. `saves` is about the typical trial, not about the bill."
    )
    section.targets.append(Target("`saves`: false", 100 * max(found)[0], 1.5, max(found)[1]))
    return section


def holm_table(sims: int) -> Section:
    section = Section("Several models, none of which gains anything")
    rows: list[Sequence[object]] = []
    found: list[tuple[float, str]] = []
    of_tasks: list[tuple[float, str]] = []
    for kind, cases, runs in (
        ("sampling", 12, 5),
        ("sampling", 20, 1),
        ("sampling", 20, 3),
        ("sampling", 40, 3),
        ("exact", 20, 1),
        ("exact", 40, 1),
    ):
        rng = rng_of("holm", kind, cases, runs)
        rates, _ = chances(rng, (sims, cases), (0.5, 0.5))
        differences = [
            draw(rng, rates, runs).astype(np.float64) - draw(rng, rates, runs) for _ in range(8)
        ]
        means = [each.mean(axis=2) for each in differences]
        levels = {
            k: [lift_excludes(each, runs, level=1.0 - 0.05 / k) for each in means]
            for k in range(1, 9)
        }
        these = {
            k: [
                lift_excludes(each.reshape(sims, -1), 1, level=max(LEVEL_OF_THESE, 1.0 - 0.05 / k))
                for each in differences
            ]
            for k in range(1, 9)
        }
        cells: list[str] = []
        for models in (2, 4, 8):
            alone = np.any([levels[1][model][0] for model in range(models)], axis=0)
            helped = step_down(levels, models)
            of_tasks.append((float(helped.mean()), f"{models} models, {cases} × {runs}, {kind}"))
            if kind == "sampling":
                alone |= np.any([these[1][model][0] for model in range(models)], axis=0)
                helped |= step_down(these, models)
            share = float(helped.mean())
            found.append((share, f"{models} models, {cases} × {runs}, {kind}"))
            tasks = of_tasks[-1][0]
            cells.append(f"{100 * float(alone.mean()):.1f} → {100 * share:.1f} ({100 * tasks:.1f})")
        rows.append((f"{cases} × {runs}, {kind}", *cells))
    section.show(("cases × draws", "2 models", "4", "8"), rows)
    section.say(
        "Any false `helps` in %, either question: each model alone → with Holm's method (in brackets: on tasks like"
        f" these). {sims:,} suites a cell. About these cases, Holm's level counts where it is above 99 %."
    )
    for what, shares in (("tasks like these", of_tasks), ("either question", found)):
        share, where = max(shares)
        name = f"2, 4 or 8 models, {what}: any false"
        section.targets.append(Target(name, 100 * share, 2.7, where))
    return section


def step_down(levels: Mapping[int, Sequence[tuple[Bools, Bools]]], models: int) -> Bools:
    """Holm: who decides, either way, leaves more of the level to the others."""
    sims = len(levels[1][0][0])
    is_open = np.ones((models, sims), dtype=bool)
    helped = np.zeros(sims, dtype=bool)
    for _ in range(models):
        sharing = is_open.sum(axis=0)
        for model in range(models):
            for count in range(1, models + 1):
                here = is_open[model] & (sharing == count)
                helps, hurts = levels[count][model]
                helped |= here & helps
                is_open[model] &= ~(here & (helps | hurts))
    return helped


# Power
# ------------------------------------------------------------------------------------------------

# Of tasks like these, in %: 20, 40 and 60 points, mean over baselines; measured before the rules were written.
EXPECTED: Mapping[tuple[int, int], tuple[float, float, float]] = {
    (8, 1): (2, 19, 58),
    (8, 5): (2, 42, 96),
    (12, 1): (10, 52, 90),
    (12, 5): (17, 92, 100),
    (20, 1): (30, 86, 100),
    (20, 5): (68, 100, 100),
    (40, 1): (63, 99, 100),
    (40, 5): (99, 100, 100),
}


def power_table(sims: int) -> Section:
    section = Section("Power")
    rows: list[Sequence[object]] = []
    gaps: list[tuple[float, str]] = []
    for cases, runs in product(POWER_SIZES, RUNS):
        shares: dict[str, list[float]] = {"tasks": [], "these": [], "either": []}
        for lift in LIFTS:
            cells: dict[str, list[float]] = {name: [] for name in shares}
            for baseline in BASELINES:
                if baseline + lift > 0.95:
                    continue
                rng = rng_of("power", cases, runs, lift, baseline)
                rates = chances(rng, (sims, cases), (baseline, baseline + lift))
                found = answers(*(draw(rng, rate, runs) for rate in rates))
                for name, side in (
                    ("tasks", found.tasks[0]),
                    ("these", found.these[0]),
                    ("either", found.helps),
                ):
                    cells[name].append(float(side.mean()))
            for name, each in cells.items():
                shares[name].append(float(np.mean(each)))
        expected = EXPECTED.get((cases, runs))
        if expected:
            for lift, share, before in zip(LIFTS, shares["tasks"], expected, strict=True):
                where = f"{cases} × {runs}, +{100 * lift:.0f}: {100 * share:.0f} for {before:.0f}"
                gaps.append((before - 100 * share, where))
        rows.append((f"{cases} × {runs}", *map(slashed, shares.values())))
    section.show(("cases × draws", "tasks", "these", "either"), rows)
    section.say(
        f"`helps` in %, for a true lift of 20 / 40 / 60 points: cases differ, mean over baselines of"
        f" {', '.join(f'{each:g}' for each in BASELINES)} as far as there is room. {sims:,} suites a baseline."
    )
    section.targets.append(
        Target("power on tasks below that of the tables, points", max(gaps)[0], 3.0, max(gaps)[1])
    )
    return section


# The gate
# ------------------------------------------------------------------------------------------------

OPEN, PASS, WARN, BLOCK = range(4)
MARKS = ("open", "pass", "warn", "block")


@dataclass(frozen=True)
class Marks:
    """Of each suite after each round."""

    mark: NDArray[np.int_]
    is_settled: Bools

    @property
    def last(self) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
        """The mark at which each suite ends, and after how many rounds."""
        rounds = self.is_settled.argmax(axis=1)
        return self.mark[np.arange(len(rounds)), rounds], rounds + 1


def edited(cases: int, facts: int, rate: float, guess: float = 0.0) -> World:
    """An edit deletes so many facts, each of which one case needs."""

    def draw(_: Rng, shape: tuple[int, ...]) -> Rates:
        before, after = np.full(shape, rate), np.full(shape, rate)
        after[:, :facts] = guess
        return before, after

    assert facts <= cases
    return draw


def decided(flips: float) -> World:
    """Each case passes nearly always or nearly never; an edit turns a few at random."""

    def draw(rng: Rng, shape: tuple[int, ...]) -> Rates:
        before = np.where(rng.random(shape) < 0.7, 0.98, 0.02)
        flipped = rng.random(shape) < flips
        return before, np.where(flipped, 1.0 - before, before)

    return draw


def mark_rounds(before: Bools, after: Bools) -> Marks:
    """As `judge_edit` does after each round, of a student that samples."""
    marks: list[NDArray[np.int_]] = []
    settled: list[Bools] = []
    for rounds in range(1, MAX_ROUNDS + 1):
        base, edit = before[:, :, :rounds], after[:, :, :rounds]
        difference = (edit.astype(np.float64) - base).reshape(len(base), -1)
        _, hurts = lift_excludes(difference, 1, level=LEVEL_OF_THESE)
        keeps, _ = lift_excludes(difference, 1, -TOLERANCE, level=LEVEL_OF_THESE)
        turned: Bools = np.all(base, axis=-1) & ~np.any(edit, axis=-1)
        has_lost: Bools = np.any(turned, axis=-1)
        blocks = hurts & (-difference.mean(axis=1) >= 0.5 * TOLERANCE - 1e-9)
        warns = has_lost & (rounds >= MIN_ROUNDS_TO_TURN)
        passes = keeps & ~has_lost
        marks.append(np.select([blocks, passes, warns], [BLOCK, PASS, WARN], OPEN))
        waits = warns & (rounds >= ROUNDS_BEFORE_PASS) & keeps
        settled.append(blocks | passes | waits | (rounds == MAX_ROUNDS))
    return Marks(np.stack(marks, axis=1), np.stack(settled, axis=1))


def mark_exact(lost: NDArray[np.int_], gained: NDArray[np.int_], cases: int) -> NDArray[np.int_]:
    net = lost - gained
    chance = np.array(
        [
            sum(math.comb(one + two, count) for count in range(one, one + two + 1))
            / 2 ** (one + two)
            for one, two in zip(lost.tolist(), gained.tolist(), strict=True)
        ]
    )
    blocks = (net > TOLERANCE * cases) & (net >= MIN_NET_LOSS)
    blocks |= (chance <= FLIP_P_VALUE) & (net >= 0.5 * TOLERANCE * cases)
    return np.select([blocks, lost > 0], [BLOCK, WARN], PASS)


def gate_table(sims: int) -> Section:
    section = Section("`ci`: an edit against the base")
    rows: list[Sequence[object]] = []
    calls = {0.97: 72, 0.85: 120, 0.7: 240}
    for rate, facts in product((0.7, 0.85, 0.97), (0, 1, 3, 5)):
        rng = rng_of("gate", rate, facts)
        rates = edited(12, facts, rate)(rng, (sims, 12))
        drawn = [draw(rng, each, MAX_ROUNDS) for each in rates]
        mark, rounds = mark_rounds(*drawn).last
        limit = calls[rate] // 24
        in_time = float(((mark == BLOCK) & (rounds <= limit)).mean())
        what = (
            f"12 cases at {rate:g}, facts deleted: {facts}"
            if facts
            else f"12 cases at {rate:g}, harmless"
        )
        rows.append(
            (
                what,
                *(percent(float((mark == each).mean())) for each in (BLOCK, WARN, PASS, OPEN)),
                f"{24 * rounds.mean():.0f}",
            )
        )
        if facts == 5:
            target = Target(
                f"five facts deleted at {rate:g}: blocked with at most {calls[rate]} calls",
                100 * in_time,
                95.0,
                at_least=True,
            )
            section.targets.append(target)
        if not facts:
            for each, bound in ((BLOCK, 3.0), (WARN, 2.0)):
                what = (
                    f"harmless edit at {rate:g}: {'blocked' if each == BLOCK else 'warned about'}"
                )
                section.targets.append(Target(what, 100 * float((mark == each).mean()), bound))
    for cases in (12, 24, 40):
        rng = rng_of("decided", cases)
        rates = decided(0.03)(rng, (sims, cases))
        mark, rounds = mark_rounds(*(draw(rng, each, MAX_ROUNDS) for each in rates)).last
        rows.append(
            (
                f"{cases} cases at .98 / .02, 3 % turned",
                *(percent(float((mark == each).mean())) for each in (BLOCK, WARN, PASS, OPEN)),
                f"{2 * cases * rounds.mean():.0f}",
            )
        )
        if cases == 12:
            share = float((mark == BLOCK).mean())
            section.targets.append(
                Target("decided student, 3 % turned: blocked", 100 * share, 11.0)
            )
    exact: list[tuple[float, str]] = []
    for cases, flips in product((5, 12, 24, 48, 100), (0.025, 0.033)):
        rng = rng_of("exact gate", cases, flips)
        passes = rng.random((sims, cases)) < 0.7
        flipped = rng.random((sims, cases)) < flips
        mark = mark_exact((passes & flipped).sum(axis=1), (~passes & flipped).sum(axis=1), cases)
        exact.append(
            (float((mark == BLOCK).mean()), f"{cases} cases, {100 * flips:g} % of answers")
        )
        if flips == 0.033:
            rows.append(
                (
                    f"{cases} cases, exact student, 3.3 % flipped",
                    *(percent(float((mark == each).mean())) for each in (BLOCK, WARN, PASS, OPEN)),
                    f"{2 * cases}",
                )
            )
    section.show(("edit", "✖", "⚠", "✅", "❔", "calls"), rows)
    section.say(f"Up to twelve rounds, {sims:,} edits a row; calls of both arms.")
    share, where = max(exact)
    section.targets.append(Target("exact student, harmless edit: blocked", 100 * share, 5.0, where))
    return section


# By hand
# ------------------------------------------------------------------------------------------------

# Draws of the cases without and with the skill: P passed, F failed, and a space is missing.
EXAMPLES: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "10 cases, all pass in both arms": (["P"] * 10, ["P"] * 10),
    "10 cases, every one won": (["F"] * 10, ["P"] * 10),
    "5 cases, every one won": (["F"] * 5, ["P"] * 5),
    "5 cases × 3, every draw won": (["FFF"] * 5, ["PPP"] * 5),
    "1 case × 5, every draw won": (["FFFFF"], ["PPPPP"]),
    "12 cases, 2 → 11 passes": (["P"] * 2 + ["F"] * 10, ["P"] * 11 + ["F"]),
    "12 cases × 3, all pass in both arms": (["PPP"] * 12, ["PPP"] * 12),
    "12 cases × 3, two of three draws won in each": (["FFF"] * 12, ["PPF"] * 12),
    "10 cases, 7 won, the skill's arm misses 3": (["F"] * 10, ["P"] * 7 + [" "] * 3),
    "20 cases, 19 won, the skill's arm misses 1": (["F"] * 20, ["P"] * 19 + [" "]),
}
DRAWS: Mapping[str, float] = {"P": 1.0, "F": 0.0, " ": math.nan}


def examples_table(_: int) -> Section:
    section = Section("Worked examples")
    rows: list[Sequence[object]] = []
    for name, arms in EXAMPLES.items():
        before, after = (np.array([[DRAWS[draw] for draw in case] for case in arm]) for arm in arms)
        (verdict,) = compute_verdicts(outcomes_of(before, after))
        cells: list[str] = []
        for reading in (verdict.tasks, verdict.these):
            assert reading is not None
            assert reading.interval is not None
            low, high = (f"{each + 0.0:.3f}" for each in reading.interval)
            why = f" ({reading.reason})" if reading.reason else ""
            cells += [f"{low} to {high}", f"{reading.decision}{why}"]
        assert verdict.lift is not None
        rows.append((name, f"{verdict.lift:.3f}", *cells))
    head = ("example", "lift", "tasks like these, 95 %", "", "these cases, 99 %", "")
    section.show(head, rows)
    return section


# ------------------------------------------------------------------------------------------------

SECTIONS: Mapping[str, tuple[Callable[[int], Section], int]] = {
    "check": (check_program, 1_000),
    "null": (null_table, 3_000),
    "these": (these_table, 3_000),
    "versions": (versions_table, 2_000),
    "topics": (topics_table, 2_000),
    "missing": (missing_table, 1_000),
    "pass_rate": (pass_rate_table, 3_000),
    "saves": (saves_table, 2_000),
    "holm": (holm_table, 3_000),
    "power": (power_table, 1_000),
    "gate": (gate_table, 2_000),
    "examples": (examples_table, 1),
}


def run_section(name: str, *, quick: bool) -> tuple[Section, float]:
    start = time.perf_counter()
    make, sims = SECTIONS[name]
    return make(max(20, sims // 50) if quick else sims), time.perf_counter() - start


def targets_table(sections: Iterable[Section]) -> Iterator[str]:
    rows = [
        (
            target.what,
            f"{target.measured:.1f}",
            f"{'at least' if target.at_least else 'at most'} {target.bound:g}",
            target.where,
            "" if target.is_met else "**missed**",
        )
        for section in sections
        for target in section.targets
    ]
    yield from table(("what, in %", "measured", "promised", "worst at", ""), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few simulations")
    parser.add_argument(
        "--write", action="store_true", help="put the tables into docs/simulations.md"
    )
    parser.add_argument(
        "--only", action="append", choices=SECTIONS, help="this section; repeatable"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    names = arguments.only or list(SECTIONS)
    sections: list[Section] = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        results = pool.map(partial(run_section, quick=arguments.quick), names)
        for name, (section, seconds) in zip(names, results, strict=True):
            sections.append(section)
            print(f"{name}: {seconds:.0f} s", *targets_table([section]), sep="\n", file=sys.stderr)
    lines = ["### What is promised, and what was measured", "", *targets_table(sections), ""]
    for section in sections:
        lines += [f"### {section.title}", "", *section.lines]
    text = "\n".join(lines).rstrip() + "\n"
    if not arguments.write:
        print(text)
        return
    page = DOCS.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    DOCS.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
