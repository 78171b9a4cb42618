"""Simulate the statistics of a verdict, with fixed seeds, and write the tables of docs/simulations.md.

python bench/simulations.py            # all tables, about ten minutes on one core
python bench/simulations.py --quick    # the same tables from few simulations: does it still run?
python bench/simulations.py --write    # put them into docs/simulations.md
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from upskill.authoring.trigger.description import level_of_test
from upskill.models.draws import FAILURES
from upskill.verdicts.arms import LEVEL_OF_BOTH_ARMS, MAX_ERROR_RATE
from upskill.verdicts.compute import EARLY_ALPHA_SHARE, level_of_look
from upskill.verdicts.statistics import (
    Floats,
    Sequential,
    bets,
    chance_of_less,
    log_wealth,
    paired_lift,
    studentized_bounds,
    t_quantile,
    unseen_weight,
)
from upskill.verdicts.these_cases import GRID_ALLOWANCE, MAX_DRAWS, chance_of_score, score
from upskill.verdicts.trigger_metrics import QUANTITIES, min_queries

DOCS = Path(__file__).resolve().parent.parent / "docs" / "simulations.md"
BEGIN, END = "<!-- simulations: begin -->", "<!-- simulations: end -->"
SEED = 4

CASES, RUNS, RATES = (10, 20, 40), (1, 3, 5), (0.05, 0.25, 0.5, 0.75, 0.95)
BETWEEN = 1.5  # standard deviation of the difficulty of cases, in log-odds
EFFECT = 0.75  # standard deviation over cases of what the skill does, in log-odds

NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def logistic(odds: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-odds))


def centre(rate: float, spread: float) -> float:
    """The mean log-odds at which cases with this spread pass at this rate."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        mean = float((WEIGHTS * logistic(middle + spread * NODES)).sum())
        low, high = (middle, high) if mean < rate else (low, middle)
    return 0.5 * (low + high)


def chances(
    rng: np.random.Generator, shape: tuple[int, ...], rates: tuple[float, float]
) -> tuple[Floats, Floats]:
    """The pass rate of each case in each arm: cases differ in difficulty and in what the skill does for them."""
    difficulty = BETWEEN * rng.normal(size=shape)
    effect = EFFECT * rng.normal(size=shape)
    before = logistic(centre(rates[0], BETWEEN) + difficulty)
    after = logistic(centre(rates[1], math.hypot(BETWEEN, EFFECT)) + difficulty + effect)
    return before, after


def half_decided(
    rng: np.random.Generator, shape: tuple[int, ...], rates: tuple[float, float]
) -> tuple[Floats, Floats]:
    """A harder world: half of the cases always pass or never do, whatever the arm."""
    before, after = chances(rng, shape, rates)
    fixed = rng.random(shape) < 0.5
    value = (rng.random(shape) < 0.5).astype(np.float64)
    return np.where(fixed, value, before), np.where(fixed, value, after)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


# ---------------------------------------------------------------------------------------------------- coverage


def lift_excludes(
    means: Floats, runs: int, value: float, *, level: float = 0.95, resamples: int = 1_000
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether the interval of `paired_lift` lies above a value, and whether below it, for many data sets at once."""
    low, high = studentized_bounds(means, runs, level=level, resamples=resamples)
    support = np.arange(-runs, runs + 1) / runs
    counts = np.stack([(np.abs(means - at) < 1e-9).sum(axis=1) for at in support], axis=1).astype(
        np.float64
    )
    weight, tail = unseen_weight(means, runs), 0.5 * (1.0 - level)
    above = (low > value + 1e-12) & (chance_of_less(support, counts, weight, value) < tail)
    below = (high < value - 1e-12) & (
        chance_of_less(support, counts[:, ::-1], weight, -value) < tail
    )
    return above, below


def misses(means: Floats, runs: int, true: float) -> tuple[float, float]:
    """How often the interval lies above the true lift, and how often below it."""
    found = [
        lift_excludes(part, runs, true)
        for part in np.array_split(means, max(1, len(means) // 1000))
    ]
    above, below = (np.concatenate(side) for side in zip(*found, strict=True))
    return float(above.mean()), float(below.mean())


def coverage(sims: int) -> dict[tuple[int, int, float, float], tuple[float, float, float]]:
    """Of each cell: how often the interval holds the true lift, its mean width, and how many cases differ."""
    rng = np.random.default_rng((SEED, 1, 0))
    found: dict[tuple[int, int, float, float], tuple[float, float, float]] = {}
    for cases, runs, one, two in product(CASES, RUNS, RATES, RATES):
        before, after = chances(rng, (sims, cases), (one, two))
        means = (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs
        differ = float((np.abs(means) > 0).sum(axis=1).mean())
        some = [
            paired_lift(np.repeat(row, runs), np.repeat(np.arange(cases), runs))
            for row in means[:8]
        ]
        width = float(np.mean([lift.high - lift.low for lift in some]))
        found[cases, runs, one, two] = 1.0 - sum(misses(means, runs, two - one)), width, differ
    return found


def coverage_tables(sims: int) -> Iterator[str]:
    yield "### Does the 95 % interval hold the true lift 95 times in 100?"
    yield ""
    yield (
        f"{sims:,} simulated suites a cell; a cell is a baseline pass rate and a skill pass rate out of "
        f"{', '.join(f'{rate:g}' for rate in RATES)} (25 cells a row). Cases differ in difficulty "
        f"(standard deviation {BETWEEN} in log-odds) and in what the skill does for them ({EFFECT}). With so many "
        f"suites a cell is itself uncertain by ±{200 * math.sqrt(0.05 * 0.95 / sims):.1f} points."
    )
    yield ""
    found = coverage(sims)
    rows: list[Sequence[object]] = []
    for cases in CASES:
        for runs in RUNS:
            cells = {key: value for key, value in found.items() if key[:2] == (cases, runs)}
            covers = np.array([value[0] for value in cells.values()])
            worst = min(cells, key=lambda key: cells[key][0])
            inside = int(((covers >= 0.93) & (covers <= 0.97)).sum())
            rows.append(
                (
                    cases,
                    runs,
                    percent(float(covers.mean())),
                    f"{percent(covers.min())} ({worst[2]:g} → {worst[3]:g})",
                    percent(covers.max()),
                    f"{inside} of 25",
                    f"{np.mean([value[1] for value in cells.values()]):.2f}",
                )
            )
    head = (
        "cases",
        "runs",
        "mean coverage",
        "worst cell (rates)",
        "highest",
        "within 93–97 %",
        "mean width",
    )
    yield from table(head, rows)
    yield ""
    covers = np.array([value[0] for value in found.values()])
    worst = min(found, key=lambda key: found[key][0])
    sparse = [key for key, value in found.items() if value[0] > 0.97]
    rich = {key: value[0] for key, value in found.items() if value[2] >= 6}
    yield (
        f"Worst cell of {len(found)}: {percent(covers.min())} at {worst[0]} cases × {worst[1]} runs, "
        f"{worst[2]:g} → {worst[3]:g}. Below 93 %: {int((covers < 0.93).sum())} cells. "
        f"Above 97 %: {len(sparse)} cells, at most {percent(covers.max())}. "
        f"Where on average six cases or more differ between the arms ({len(rich)} cells): "
        f"{percent(min(rich.values()))} to {percent(max(rich.values()))}, "
        f"{sum(0.93 <= value <= 0.97 for value in rich.values())} within 93–97 %."
    )
    yield ""


# ---------------------------------------------------------------------------------------------------- harsher worlds

World = Callable[
    [np.random.Generator, tuple[int, int], int], tuple[Floats, float]
]  # case means and the true lift


def half_fixed(rates: tuple[float, float]) -> World:
    def draw(rng: np.random.Generator, shape: tuple[int, int], runs: int) -> tuple[Floats, float]:
        before, after = half_decided(rng, shape, rates)
        return (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs, 0.5 * (
            rates[1] - rates[0]
        )

    return draw


def fixed(rates: tuple[float, float]) -> World:
    """Each case always comes out the same in an arm, as at temperature 0; the arms often agree."""

    def draw(rng: np.random.Generator, shape: tuple[int, int], runs: int) -> tuple[Floats, float]:
        one, two = rng.random(shape), rng.random(shape)
        after = np.where(rng.random(shape) < 0.7, one, two) < rates[1]
        return after.astype(np.float64) - (one < rates[0]), rates[1] - rates[0]

    return draw


def all_or_nothing(rates: tuple[float, float]) -> World:
    """The skill mends some tasks for good and breaks others for good; the rest are left as they are."""

    def draw(rng: np.random.Generator, shape: tuple[int, int], runs: int) -> tuple[Floats, float]:
        fixed, broken = rates
        before = np.full(shape, 0.5)
        kind = rng.random(shape)
        after = np.where(kind < fixed, 1.0, np.where(kind < fixed + broken, 0.0, before))
        return (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs, 0.5 * (
            fixed - broken
        )

    return draw


def skewed(rates: tuple[float, float]) -> World:
    """The skill breaks a few tasks altogether and makes the rest a little better: on average, nothing is gained."""

    def draw(rng: np.random.Generator, shape: tuple[int, int], runs: int) -> tuple[Floats, float]:
        share, start = rates
        start = min(start, 1.0 - share)
        after = np.where(rng.random(shape) < share, 0.0, start / (1.0 - share))
        return (rng.binomial(runs, after) - rng.binomial(runs, np.full(shape, start))) / runs, 0.0

    return draw


def broken(rates: tuple[float, float]) -> World:
    """The worst for the bound: what breaks always passed, and the rest, which never did, gains as much."""

    def draw(rng: np.random.Generator, shape: tuple[int, int], runs: int) -> tuple[Floats, float]:
        share, _ = rates
        gained = rng.binomial(runs, share / (1.0 - share), shape) / runs
        return np.where(rng.random(shape) < share, -1.0, gained), 0.0

    return draw


def mirrored(world: World) -> World:
    def draw(rng: np.random.Generator, shape: tuple[int, int], runs: int) -> tuple[Floats, float]:
        means, true = world(rng, shape, runs)
        return -means, -true

    return draw


def duplicated(rates: tuple[float, float]) -> World:
    """Every case is there three times in other words; the copies count as one."""

    def draw(rng: np.random.Generator, shape: tuple[int, int], runs: int) -> tuple[Floats, float]:
        before, after = chances(rng, shape, rates)
        return (rng.binomial(3 * runs, after) - rng.binomial(3 * runs, before)) / (3 * runs), rates[
            1
        ] - rates[0]

    return draw


GRID = tuple(product(RATES, RATES))
WORLDS: tuple[
    tuple[str, Callable[[tuple[float, float]], World], tuple[tuple[float, float], ...]], ...
] = (
    ("half of the cases always pass or never do", half_fixed, GRID),
    ("fixed outcomes per case and arm", fixed, GRID),
    (
        "all or nothing: fixed or broken for good",
        all_or_nothing,
        tuple(product((0.05, 0.1, 0.3), (0.05, 0.1, 0.3))),
    ),
    (
        "skewed: a tenth is broken, the rest gains a little",
        skewed,
        tuple((0.1, rate) for rate in (0.9, 0.8, 0.6, 0.3)),
    ),
    (
        "skewed otherwise: 3, 5, 20 or 30 % broken",
        skewed,
        tuple(product((0.03, 0.05, 0.2, 0.3), (0.97, 0.9, 0.8, 0.6, 0.3))),
    ),
    (
        "built against it: what breaks always passed, the rest never did",
        broken,
        tuple((share, 0.0) for share in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)),
    ),
    (
        "duplicated: each case three times",
        duplicated,
        ((0.05, 0.25), (0.25, 0.25), (0.5, 0.5), (0.5, 0.75), (0.75, 0.95)),
    ),
)


def world_tables(sims: int) -> Iterator[str]:
    yield "### Does it hold in harsher worlds?"
    yield ""
    rng = np.random.default_rng((SEED, 5))
    rows: list[Sequence[object]] = []
    for name, world, cells in WORLDS:
        covers: list[float] = []
        sides: list[float] = []
        before: list[float] = []
        for cases, runs, rates in product(CASES, RUNS, cells):
            means, true = world(rates)(rng, (sims, cases), runs)
            runs_each = 3 * runs if world is duplicated else runs
            above, below = misses(means, runs_each, true)
            low, high = studentized_bounds(means, runs_each, resamples=2_000)
            covers.append(1.0 - above - below)
            sides += [above, below]
            before.append(float(max((low > true + 1e-12).mean(), (high < true - 1e-12).mean())))
        rows.append(
            (
                name,
                len(covers),
                percent(sum(covers) / len(covers)),
                percent(min(covers)),
                percent(max(sides)),
                percent(max(before)),
            )
        )
    head = (
        "world",
        "cells",
        "mean coverage",
        "worst cell",
        "worst side",
        "worst side by spread alone",
    )
    yield from table(head, rows)
    yield ""
    yield (
        f"{sims:,} suites a cell, {', '.join(map(str, CASES))} cases × {', '.join(map(str, RUNS))} runs, so a cell is "
        f"uncertain by ±{200 * math.sqrt(0.04 * 0.96 / sims):.1f} points. A side is how often the interval lies wholly "
        "above the true lift, or wholly below it: with a true lift of 0, that is a false `helps` or a false `hurts`. "
        "The last column is the studentized interval without the bound for cases not seen."
    )
    yield ""
    yield from price_table(sims, rng)


def price_table(sims: int, rng: np.random.Generator) -> Iterator[str]:
    rows: list[Sequence[object]] = []
    for cases, runs in product(CASES, RUNS):
        row: list[object] = [cases, runs]
        for lift in (0.2, 0.4):
            before, after = chances(rng, (sims, cases), (0.2, 0.2 + lift))
            means = (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs
            alone = (studentized_bounds(means, runs, resamples=2_000)[0] > 0).mean()
            row += [percent(alone, 0), percent(misses(means, runs, 0.0)[0], 0)]
        rows.append(row)
    yield "What it costs in power: how often the answer is `helps` where the baseline passes 20 % and the lift is real."
    yield ""
    head = (
        "cases",
        "runs",
        "lift 0.2, by spread alone",
        "lift 0.2, ours",
        "lift 0.4, by spread alone",
        "lift 0.4, ours",
    )
    yield from table(head, rows)
    yield ""


# ---------------------------------------------------------------------------------------------------- two scopes

FEW_CASES, REPEATS = (3, 5, 8, 12, 20, 30), (1, 3, 10, 100)
MIDDLE_CASES = (8, 10, 12, 15, 20)
SKEWS = (0.03, 0.05, 0.1, 0.15)  # of the cases are broken for good, and the rest gains as much
UNSEEN = 0.3 / 1.3  # the share of tasks that, broken for good, cancels 30 points on the others
Suite = tuple[Floats, Floats]  # how often each case passes without and with the skill


@cache
def critical_score(draws: int, lift: float, tail: float) -> float:
    """The lowest score that rules out this lift on exactly these cases."""
    low, high = 0.0, 60.0
    for _ in range(22):
        middle = 0.5 * (low + high)
        low, high = (
            (low, middle)
            if chance_of_score(middle, (draws, draws), lift) <= GRID_ALLOWANCE * tail
            else (middle, high)
        )
    return high


def rules_out(
    before: Floats, after: Floats, draws: int, lift: float, level: float = 0.95
) -> NDArray[np.bool_]:
    """Whether the interval on exactly these cases lies above this lift, for many totals of passes."""
    counted = min(draws, MAX_DRAWS)
    low, high = np.floor(after / draws * counted + 1e-9), np.ceil(before / draws * counted - 1e-9)
    tail = round(0.5 * (1.0 - level), 12)
    return score(high, low, (counted, counted), lift) >= critical_score(
        counted, round(lift, 12), tail
    )


@cache
def all_ruled_out(draws: int, lift: float) -> NDArray[np.bool_]:
    """For every number of passes without the skill, and with it."""
    passes = np.arange(draws + 1.0)
    before, after = np.meshgrid(passes, passes, indexing="ij")
    return rules_out(before, after, draws, lift)


def wrong_on_these_cases(before: Floats, after: Floats, runs: int) -> tuple[float, float]:
    """How often the interval on exactly these cases lies above their lift, and how often below: exactly."""
    draws = len(before) * runs
    counted = min(draws, MAX_DRAWS)
    lift = float((after - before).mean())

    def wrong(low: Floats, high: Floats, lift: float) -> float:
        chance: list[Floats] = []
        for rates, to_whole in ((low, np.ceil), (high, np.floor)):  # as `rules_out` rounds
            total = np.ones(1)
            for rate in np.repeat(rates, runs):
                total = np.convolve(total, [1.0 - rate, rate])
            whole = to_whole(np.round(np.arange(draws + 1.0) / draws * counted, 9)).astype(np.intp)
            chance.append(
                np.bincount(whole, weights=total, minlength=counted + 1).astype(np.float64)
            )
        return float((np.outer(*chance) * all_ruled_out(counted, round(lift, 12))).sum())

    return wrong(before, after, lift), wrong(after, before, -lift)


def suites_of(rng: np.random.Generator, cases: int) -> Iterator[tuple[str, Suite]]:
    """Suites whose own lift is 0, or close to it."""
    for rate in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.8, 0.95):
        alike = np.full(cases, rate)
        yield "alike", (alike, alike)
        before, _ = chances(rng, (cases,), (rate, rate))
        yield "of all difficulties", (before, before)
    ends = (rng.random(cases) < 0.5).astype(np.float64)
    yield "always or never", (ends, ends)
    for share, start in product(SKEWS, (0.3, 0.8)):
        breaks = max(1, round(share * cases))
        after = np.full(cases, min(1.0, start + start * breaks / max(1, cases - breaks)))
        after[:breaks] = 0.0
        yield "skewed", (np.full(cases, start), after)


def scope_tables(sims: int) -> Iterator[str]:
    yield "### Few cases: do both answers hold?"
    yield ""
    rows: list[Sequence[object]] = []
    for cases in FEW_CASES:
        rng = np.random.default_rng((SEED, 8, cases))
        called: dict[str, list[float]] = {"these": [], "tasks": []}
        covered: dict[str, list[float]] = {"these": [], "tasks": []}
        for runs in REPEATS:
            for _, (before, after) in suites_of(rng, cases):
                above, below = wrong_on_these_cases(before, after, runs)
                called["these"].append(above)
                covered["these"].append(1.0 - above - below)
            worlds = [skewed((share, start)) for share, start in product(SKEWS, (0.9, 0.6, 0.3))]
            worlds += [broken((share, 0.0)) for share in SKEWS] + [
                mirrored(broken((share, 0.0))) for share in SKEWS
            ]
            worlds += [fixed((rate, rate)) for rate in (0.2, 0.8)] + [
                half_fixed((rate, rate)) for rate in (0.05, 0.5)
            ]
            for world in worlds:
                means, true = world(rng, (sims, cases), runs)
                above, below = misses(means, runs, true)
                called["tasks"].append(above)
                covered["tasks"].append(1.0 - above - below)
        row: list[object] = [cases]
        for scope in ("these", "tasks"):
            row += [percent(max(called[scope])), percent(min(covered[scope])), len(called[scope])]
        rows.append(row)
    head = (
        "cases",
        *("false `helps` on these cases", "coverage", "cells"),
        *("… on tasks like these", "coverage", "cells"),
    )
    yield from table(head, rows)
    yield ""
    yield (
        f"The worst cell of each row: {', '.join(map(str, REPEATS))} repeats × suites whose cases are alike, of all "
        f"difficulties, always or never passed, or skewed ({', '.join(f'{share:.0%}' for share in SKEWS)} of the cases "
        "are broken for good and the rest gains as much; also where what breaks always passed and the rest never did, "
        "and its mirror image), all with a true lift of 0 or nearly. On these cases the figures are exact. On tasks "
        f"like these they come from {sims:,} suites a cell, so a cell is uncertain by "
        f"±{200 * math.sqrt(0.025 * 0.975 / sims):.1f} points, and the worst of many is high by luck too."
    )
    yield ""
    yield from few_cases_table(sims)


def paired_t(means: Floats) -> NDArray[np.bool_]:
    """Whether Student's t on case means says `helps`."""
    count = means.shape[1]
    error = means.std(axis=1, ddof=1) / math.sqrt(count)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(
            error > 0, means.mean(axis=1) / error, np.where(means.mean(axis=1) > 0, np.inf, 0.0)
        )
    return t > t_quantile(0.975, count - 1)


def mcnemar(won: NDArray[np.int64], lost: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the exact test over the pairs that differ says `helps`, as if pairs of one case were strangers."""
    most = int((won + lost).max())
    logs = np.cumsum(np.log(np.maximum(1.0, np.arange(most + 1))))  # of factorials
    needed = np.zeros(most + 1, dtype=np.int64)
    for n in range(most + 1):
        chance = np.exp(logs[n] - logs[: n + 1] - logs[n::-1] - n * math.log(2.0))
        needed[n] = n + 1 - int((np.cumsum(chance) <= 0.025).sum())  # both tails are alike
    return won >= needed[won + lost]


def few_cases_table(sims: int) -> Iterator[str]:
    """Power and false `helps` of both answers, of a paired t-test and of McNemar's test."""
    names = ("on these cases", "on tasks like these", "paired t", "McNemar")
    rows: list[Sequence[object]] = []
    for cases, runs in product(MIDDLE_CASES, (1, 3, 5, 10, 20, 100)):
        rng = np.random.default_rng((SEED, 10, cases, runs))

        def say_helps(
            before: Floats,
            after: Floats,
            cases: int = cases,
            runs: int = runs,
            rng: np.random.Generator = rng,
        ) -> list[float]:
            shape = (runs, *before.shape)
            one, two = rng.random(shape) < before, rng.random(shape) < after
            means = (two.mean(axis=0) - one.mean(axis=0)).astype(np.float64)
            passes = (
                one.sum(axis=(0, 2)).astype(np.float64),
                two.sum(axis=(0, 2)).astype(np.float64),
            )
            called = (
                rules_out(*passes, cases * runs, 0.0),
                lift_excludes(means, runs, 0.0, resamples=1_000)[0],
                paired_t(means),
                mcnemar((two & ~one).sum(axis=(0, 2)), (one & ~two).sum(axis=(0, 2))),
            )
            return [float(each.mean()) for each in called]

        shape = (sims // 2, cases)
        alike = say_helps(np.full(shape, 0.3), np.full(shape, 0.6))
        varied = say_helps(*chances(rng, shape, (0.3, 0.6)))
        false: list[list[float]] = []
        for share, start in product(
            SKEWS, (0.6, 0.9)
        ):  # the tasks gain nothing; those broken may not be in the suite
            breaks = rng.random(shape) < share
            false.append(
                say_helps(
                    np.full(shape, start), np.where(breaks, 0.0, min(1.0, start / (1.0 - share)))
                )
            )
        worst = [max(of_test) for of_test in zip(*false, strict=True)]
        suites = [np.full(cases, rate) for rate in (0.1, 0.5, 0.9)]
        worst[0] = max(
            wrong_on_these_cases(alike_suite, alike_suite, runs)[0] for alike_suite in suites
        )
        cells = zip(alike, varied, worst, strict=True)
        ceiling = min(1.0, 0.025 / (1.0 - UNSEEN) ** cases)
        found = (f"{percent(a, 0)} · {percent(v, 0)} / {percent(w)}" for a, v, w in cells)
        rows.append((f"{cases} × {runs}", *found, percent(ceiling, 0)))
    yield (
        "A true lift of 30 points (0.3 → 0.6): how often the answer is `helps` where cases are alike · where they "
        "differ / and the worst false `helps`, on these cases over suites without a lift (exact), for the others over "
        "the skewed worlds above. A paired t-test and McNemar's test find more, and are wrong more often than they say."
        " The last column is the most that any test of tasks like these can find if it is never wrong in more than"
        f" 2.5 %: a skill that breaks {UNSEEN:.0%} of all tasks and gains 30 points on the others does nothing, and to "
        "whom the cases show none that broke, it looks like one that gains 30 points everywhere. With many repeats all "
        "cases that are alike show just these 30 points, and below 15 cases no valid test can call that `helps`: what "
        "fewer repeats find there is luck."
    )
    yield ""
    yield from table(("cases × repeats", *names, "any valid test"), rows)
    yield ""


# ---------------------------------------------------------------------------------------------------- several models


def model_tables(sims: int) -> Iterator[str]:
    yield "### The best of eight models"
    yield ""
    rng = np.random.default_rng((SEED, 9))
    rows: list[Sequence[object]] = []
    for cases, runs, rate in product((8, 20), (1, 5), (0.2, 0.5, 0.8)):
        row: list[object] = [f"{cases} × {runs}", f"{rate:g}"]
        alone, together = best_of_eight(rng, sims, (cases, runs), rate)
        for scope in range(2):
            row.append(f"{percent(alone[scope])} → {percent(together[scope])}")
        rows.append(row)
    yield from table(
        ("cases × repeats", "pass rate", "on these cases", "on tasks like these"), rows
    )
    yield ""
    yield (
        f"{sims:,} tables a row of eight models for which the skill does nothing: how often some model is `helps` when "
        "each is decided alone → with Holm's procedure over the models."
    )
    yield ""


def best_of_eight(
    rng: np.random.Generator, sims: int, shape: tuple[int, int], rate: float, models: int = 8
) -> tuple[list[float], list[float]]:
    """How often some model is `helps` alone, and among all models: on these cases, and on tasks like these."""
    cases, runs = shape
    draws = cases * runs
    size = (sims * models, cases)
    same = chances(rng, size, (rate, rate))[0]
    on_these = [rng.binomial(runs, same).sum(axis=1).astype(np.float64) for _ in range(2)]
    before, after = chances(rng, size, (rate, rate))
    means = (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs

    def decide(level: float) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        one, two = on_these
        these = rules_out(one, two, draws, 0.0, level), rules_out(two, one, draws, 0.0, level)
        parts = np.array_split(means, max(1, len(means) // 1000))
        tasks = [lift_excludes(part, runs, 0.0, level=level, resamples=4_000) for part in parts]
        above, below = (np.concatenate(side) for side in zip(*tasks, strict=True))
        return [these, (above, below)]

    alone: list[float] = []
    together: list[float] = []
    steps = [decide(1.0 - 0.05 / count) for count in (1, models, models - 1)]
    for single, first, second in zip(*steps, strict=True):
        helps = [each[0].reshape(sims, models) for each in (single, first, second)]
        hurts = first[1].reshape(sims, models).any(axis=1)  # which leaves the others more
        alone.append(float(helps[0].any(axis=1).mean()))
        together.append(float((helps[1].any(axis=1) | (hurts & helps[2].any(axis=1))).mean()))
    return alone, together


# ---------------------------------------------------------------------------------------------------- errors


def error_tables(sims: int) -> Iterator[str]:
    yield "### What if the skill turns failures into errors?"
    yield ""
    rng = np.random.default_rng((SEED, 6))
    rows: list[Sequence[object]] = []
    for cases, runs, rate in product((20, 40), (3, 5), (0.5, 0.6, 0.7, 0.8)):
        row: list[object] = [f"{cases} × {runs}", f"{rate:g}"]
        for share in (0.1, 0.2, 0.5, 1.0):
            naive, ours = errors_by_arm(rng, sims, (cases, runs), rate, share)
            row.append(f"{percent(naive, 0)} → {percent(ours)}")
        rows.append(row)
    head = (
        "cases × runs",
        "pass rate",
        *(f"{share:.0%} of failures" for share in (0.1, 0.2, 0.5, 1.0)),
    )
    yield from table(head, rows)
    yield ""
    yield (
        f"{sims:,} suites a cell with a true lift of 0, where this share of the failures with the skill is errors. "
        "False `helps` when errored trials are left out and nothing is asked → with the rules above: at most a tenth "
        "of either arm may error, and the decision has to hold in the worst case."
    )
    yield ""


def errors_by_arm(
    rng: np.random.Generator, sims: int, shape: tuple[int, int], rate: float, share: float
) -> tuple[float, float]:
    """False `helps` without and with the rules about errors."""
    cases, runs = shape
    before, after = (
        np.repeat(chance[:, :, np.newaxis], runs, axis=2)
        for chance in chances(rng, (sims, cases), (rate, rate))
    )
    passed, passed_with = rng.random(before.shape) < before, rng.random(after.shape) < after
    errored = ~passed_with & (rng.random(after.shape) < share)
    pairs = (~errored).sum(axis=2)
    differences = np.where(errored, 0, passed_with.astype(np.float64) - passed)
    means = differences.sum(axis=2) / np.maximum(pairs, 1)
    naive = studentized_bounds(means, runs, resamples=1_000)[0] > 0
    worst = (
        passed_with.astype(np.float64) - passed
    )  # an errored trial counts as failed, which here it was
    few = errored.mean(axis=(1, 2)) <= MAX_ERROR_RATE
    ours = few & naive & lift_excludes(worst.mean(axis=2), runs, 0.0, resamples=1_000)[0]
    return float(naive.mean()), float(ours.mean())


# ---------------------------------------------------------------------------------------------------- failing servers

COMMANDS = 6  # the same one, as long as something errored
# What a server does to some samples, and the row of FAILURES that it belongs to.
SERVERS = {
    "500": "server error",
    "500 about a tool call": "server error",
    "408, 409 or 425": "server error",
    "429 without a header": "overload",
    "503 or 529": "overload",
    "400": "other status",
    "403 or 404": "other status",
    "dropped connection": "dropped connection",
    "half a body": "dropped connection",
    "silence": "timeout",
    "empty body": "unreadable body",
    "HTML page": "unreadable body",
    "half of the JSON": "unreadable body",
    "error in a 200": "error in a 200",
    "finish reason error": "no answer",
    "no choices": "no answer",
    "a command or batch that fails": "model",
}
# Of failures and passes with the skill, and of failures and passes of the baseline, how many the server fails.
FAILED_SHARES: dict[str, tuple[float, float, float, float]] = {
    "each failure with the skill": (1.0, 0.0, 0.0, 0.0),
    "half of them": (0.5, 0.0, 0.0, 0.0),
    "half of the baseline's passes": (0.0, 0.0, 0.0, 0.5),
    "a fifth of both": (0.2, 0.0, 0.0, 0.2),
}


def server_tables(sims: int) -> Iterator[str]:
    yield "### What if the server fails what the model got wrong?"
    yield ""
    rng = np.random.default_rng((SEED, 8))
    sims, shape, rates = sims // 5, (20, 3), (0.5, 0.5)
    rows: list[Sequence[object]] = []
    worst = 0.0
    for name, failure in SERVERS.items():
        found = [
            failing_server(rng, sims, shape, rates, shares, failure)
            for shares in FAILED_SHARES.values()
        ]
        worst = max(worst, *(ours for _, ours in found))
        rows.append((name, *(f"{percent(naive, 0)} → {percent(ours)}" for naive, ours in found)))
    yield from table(("the server answers with", *FAILED_SHARES), rows)
    yield ""
    yield (
        f"{sims:,} suites a cell of {shape[0]} cases × {shape[1]} runs with a true lift of 0. A call is retried as "
        f"upskill does, and the same command is run up to {COMMANDS} times; ever `helps` when what came in the end is "
        f"counted → with the rules about repeated calls. At most {percent(worst)}."
    )
    yield ""
    rows = []
    for (cases, runs), share in product(
        ((12, 5), (20, 3), (20, 5), (40, 3)), (0.01, 0.02, 0.05, 0.1)
    ):
        lift, shares = 0.3 if cases <= 20 else 0.2, (share, share, share, share)
        naive, ours = failing_server(
            rng, 2 * sims, (cases, runs), (0.4, 0.4 + lift), shares, "server error"
        )
        rows.append(
            (
                f"{cases} × {runs}",
                percent(lift, 0),
                percent(share, 0),
                percent(naive),
                percent(ours),
            )
        )
    yield "Where calls of both arms fail alike, whatever was answered, this is what the rules cost:"
    yield ""
    yield from table(
        ("cases × runs", "true lift", "calls that fail", "`helps` without the rules", "with them"),
        rows,
    )
    yield ""


def failing_server(
    rng: np.random.Generator,
    sims: int,
    shape: tuple[int, int],
    rates: tuple[float, float],
    shares: tuple[float, float, float, float],
    failure: str,
) -> tuple[float, float]:
    """How often `helps` is ever said, without the rules about repeated calls and with them."""
    cases, runs = shape
    before, after = (
        np.repeat(chance[:, :, np.newaxis], runs, axis=2)
        for chance in chances(rng, (sims, cases), rates)
    )
    tries = 1 + {"none": 0, "one": 1, "some": 4, "many": 8}[FAILURES[failure].retries]
    arms = [ServedArm(after, *shares[:2]), ServedArm(before, *shares[2:])]
    naive = ours = np.zeros(sims, bool)
    for _ in range(COMMANDS):
        for arm in arms:
            arm.draw(rng, tries)
        skill, baseline = arms
        few = (skill.open.mean(axis=(1, 2)) <= MAX_ERROR_RATE) & (
            baseline.open.mean(axis=(1, 2)) <= MAX_ERROR_RATE
        )
        seen = helps(few & ~ours, skill.filled(0.0) - baseline.filled(1.0), runs)
        one = helps(seen, skill.filled(0.0, redrawn=True) - baseline.filled(1.0), runs)
        worst = skill.filled(0.0, redrawn=True) - baseline.filled(1.0, redrawn=True)
        naive, ours = naive | seen, ours | helps(one, worst, runs, LEVEL_OF_BOTH_ARMS)
        if not skill.open.any() and not baseline.open.any():
            break
    return float(naive.mean()), float(ours.mean())


class ServedArm:
    """The trials of an arm behind a server that fails these shares of its failures and passes."""

    def __init__(self, chance: Floats, of_failures: float, of_passes: float) -> None:
        self.chance, self.of_failures, self.of_passes = chance, of_failures, of_passes
        self.passed = np.zeros(chance.shape, bool)
        self.redrawn = np.zeros(chance.shape, bool)
        self.open = np.ones(chance.shape, bool)  # errored, or not asked yet

    def draw(self, rng: np.random.Generator, tries: int) -> None:
        for _ in range(tries):
            passed = rng.random(self.chance.shape) < self.chance
            failed = rng.random(self.chance.shape) < np.where(
                passed, self.of_passes, self.of_failures
            )
            self.passed = np.where(self.open & ~failed, passed, self.passed)
            self.redrawn |= self.open & failed
            self.open &= failed

    def filled(self, value: float, *, redrawn: bool = False) -> Floats:
        return np.where(self.open | (self.redrawn & redrawn), value, self.passed.astype(np.float64))


def helps(
    chosen: NDArray[np.bool_], differences: Floats, runs: int, level: float = 0.95
) -> NDArray[np.bool_]:
    """Of these suites, those whose interval lies above 0."""
    found = chosen.copy()
    if chosen.any():
        means = differences[chosen].mean(axis=2)
        parts = np.array_split(means, max(1, len(means) // 500))
        above = [lift_excludes(part, runs, 0.0, level=level, resamples=1_000)[0] for part in parts]
        found[chosen] = np.concatenate(above)
    return found


# ---------------------------------------------------------------------------------------------------- looks


def look_tables(sims: int) -> Iterator[str]:
    yield "### And over five unplanned looks at a growing suite?"
    yield ""
    rng = np.random.default_rng((SEED, 7))
    rows: list[Sequence[object]] = []
    for rate, runs in product((0.2, 0.5, 0.8), (1, 3)):
        before, after = chances(rng, (sims, 50), (rate, rate))
        means = (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs
        suites = [means[:, :cases] for cases in (10, 20, 30, 40, 50)]
        rows.append((f"{rate:g}", runs, *map(percent, called(suites, runs))))
    yield from table(
        ("pass rate", "runs", "95 % at every look", "with the level of the look"), rows
    )
    yield ""
    yield (
        f"{sims:,} suites a row that grow from 10 to 50 cases, ten at a time, with a true lift of 0: how often `helps` "
        "is said at any of the five looks."
    )
    yield ""


def again_tables(sims: int) -> Iterator[str]:
    """Twenty looks at one skill, and seven versions of one: what it takes to find a `helps` that is not there."""
    yield "### And for someone who looks until it fits?"
    yield ""
    rng = np.random.default_rng((SEED, 8))
    rows: list[Sequence[object]] = []
    for rate, runs in ((0.2, 1), (0.5, 1), (0.8, 1), (0.5, 3)):
        before, after = chances(rng, (sims, 40), (rate, rate))
        means = (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs
        growing = [means[:, :cases] for cases in range(2, 41, 2)]
        at_the_end = lift_excludes(means, runs, 0.0, resamples=1_000)[0].mean()
        rows.append(
            (
                f"{rate:g}",
                runs,
                "20 during a run of 40 cases",
                percent(called(growing, runs)[0]),
                percent(at_the_end),
            )
        )
        before, after = before[:, :20], after[:, :20]
        fresh = [(rng.binomial(runs, after) - rng.binomial(runs, before)) / runs for _ in range(20)]
        rows.append(
            (
                f"{rate:g}",
                runs,
                "20 runs of 20 cases, other seeds",
                *map(percent, called(fresh, runs)),
            )
        )
        baseline, spread = (
            rng.binomial(runs, before),
            centre(rate, math.hypot(BETWEEN, EFFECT)) - centre(rate, BETWEEN),
        )
        odds = np.log(before / (1 - before)) + spread
        versions = [
            (rng.binomial(runs, logistic(odds + EFFECT * rng.normal(size=odds.shape))) - baseline)
            / runs
            for _ in range(7)
        ]
        rows.append(
            (f"{rate:g}", runs, "7 versions on 20 cases", *map(percent, called(versions, runs)))
        )
    yield from table(("pass rate", "runs", "looks", "95 % at each", "as counted"), rows)
    yield ""
    yield (
        f"{sims:,} times a row, with a true lift of 0: how often `helps` is said at any of the looks, each at 95 %, "
        "and as upskill does it. Nothing is shown during a run; the n-th look, of a rerun or of a version that shares "
        "the cases and the baseline, has the level of that look."
    )
    yield ""


def opposite(
    rng: np.random.Generator, shape: tuple[int, ...], rates: tuple[float, float]
) -> tuple[Floats, Floats]:
    """The best world for someone who chooses: the skill helps with half of the cases and hurts with the others."""
    gains = rng.random(shape) < 0.5
    low, high = min(0.1, rates[0]), max(0.9, rates[0])
    return np.where(gains, low, high), np.where(gains, high, low)


def dropped_tables(sims: int) -> Iterator[str]:
    """Cases that did not fit are dropped after a look, and what is left is run again with new draws."""
    yield "### And for someone who drops the cases that did not fit?"
    yield ""
    rng = np.random.default_rng((SEED, 9))
    rows: list[Sequence[object]] = []
    routes = (
        ("half, then another seed or `--fresh`", 1, 1, 1),
        ("half, then more repeats", 1, 3, 1),
        ("half, then `--until-decided` or `recheck`", 1, 12, 1),
        ("a quarter at a time, other seeds", 1, 1, 3),
    )
    for (world, draw), (name, first, again, steps) in product(
        (("usual", chances), ("opposite", opposite)), routes
    ):
        before, after = draw(rng, (sims, 24), (0.5, 0.5))
        seen = (rng.binomial(first, after) - rng.binomial(first, before)) / first
        alone, ours = np.zeros(sims, dtype=bool), np.zeros(sims, dtype=bool)
        kept, whole = 24, seen
        for step in range(steps):
            order = np.argsort(-seen[:, :kept] + 1e-6 * rng.random((sims, kept)), axis=1)
            order = np.concatenate([order, np.tile(np.arange(kept, 24), (sims, 1))], axis=1)
            before, after, seen = (
                np.take_along_axis(values, order, axis=1) for values in (before, after, seen)
            )
            kept -= 12 if steps == 1 else 6
            drawn = rng.binomial(1, after[:, :kept, None], (sims, kept, again)).astype(np.float64)
            drawn -= rng.binomial(1, before[:, :kept, None], (sims, kept, again))
            # Someone who may stop after every round is held to no more than the plain test at each of them.
            for rounds in range(1, again + 1) if again > 3 else (again,):
                means = drawn[:, :, :rounds].mean(axis=2)
                level = level_of_look(0.95, 2 + step)
                said = lift_excludes(means, rounds, 0.0, level=level)[0]
                alone |= said
                whole = np.concatenate([means, seen[:, kept:]], axis=1)
                if said.any():
                    ours[said] |= lift_excludes(whole[said], rounds, 0.0, level=level)[0]
            seen = whole
        rows.append((world, name, percent(float(alone.mean())), percent(float(ours.mean()))))
    yield from table(("skill", "of 24 cases, drop", "the others alone", "as counted"), rows)
    yield ""
    yield (
        f"{sims:,} times a row, with a true lift of 0: how often `helps` is said of what is left, and with the cases "
        "that were dropped, as they were last seen. The opposite skill helps with half of the tasks and hurts with the "
        "others."
    )
    yield ""


def called(looks: Sequence[Floats], runs: int) -> tuple[float, float]:
    """How often `helps` is said at any look: each at 95 %, and each at its own level."""
    naive, ours = np.zeros(len(looks[0]), dtype=bool), np.zeros(len(looks[0]), dtype=bool)
    for look, means in enumerate(looks, start=1):
        said = lift_excludes(means, runs, 0.0, resamples=1_000)[0]
        naive |= said
        if said.any():  # a higher level says it nowhere else
            level = level_of_look(0.95, look)
            ours[said] |= lift_excludes(means[said], runs, 0.0, level=level, resamples=4_000)[0]
    return float(naive.mean()), float(ours.mean())


# ---------------------------------------------------------------------------------------------------- peeking

LIMIT = math.log(2 / 0.05)  # of the wealth of either side at a level of 0.95


def wealth(values: Floats) -> Floats:
    """Log-wealth of every bet against no lift, betting up: shape of `values` less its last axis, then one per bet."""
    return np.stack([np.log1p(bet * values).sum(axis=-1) for bet in bets()], axis=-1)


def mixed(parts: Floats) -> Floats:
    top = parts.max(axis=-1, keepdims=True)
    return (top + np.log(np.exp(parts - top).mean(axis=-1, keepdims=True)))[..., 0]


def streams(differences: Floats) -> tuple[Floats, Floats]:
    """Log-wealth up and down after every pair of each stream (one row each)."""
    up, down = np.empty(differences.shape), np.empty(differences.shape)
    for start in range(0, len(differences), 100):
        part = differences[start : start + 100, :, np.newaxis]
        up[start : start + 100] = mixed(np.log1p(bets() * part).cumsum(axis=1))
        down[start : start + 100] = mixed(np.log1p(-bets() * part).cumsum(axis=1))
    return up, down


def z_test(differences: Floats, first: int) -> NDArray[np.bool_]:
    """Whether the plain z-test would call each stream at any look from `first` pairs on."""
    count: Floats = np.arange(1.0, differences.shape[1] + 1.0, dtype=np.float64)
    mean = differences.cumsum(axis=1) / count
    variance = (differences**2).cumsum(axis=1) / count - mean**2
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.abs(mean) / np.sqrt(variance / count)
    return ((score > 1.96) & (variance > 0))[:, first - 1 :]


def same_as_the_class(differences: Floats, up: Floats) -> None:
    """The short cuts above agree with `Sequential`."""
    running = Sequential("suite")
    for value in differences[0, :50]:
        running.update({"case": float(value)})
    expected = float(np.logaddexp(up[0, 49], streams(differences[:1])[1][0, 49])) - math.log(2)
    assert abs(log_wealth(running.looks[-1], running.highs[-1]) - expected) < 1e-9


def peeking_tables(sims: int) -> Iterator[str]:
    yield "### How often is a skill that does nothing called, when one looks all the time?"
    yield ""
    rng = np.random.default_rng((SEED, 2))
    rows: list[Sequence[object]] = []
    for rate in (0.1, 0.5, 0.9):
        before, after = chances(rng, (sims, 500), (rate, rate))
        values = (rng.random(before.shape) < after).astype(np.float64) - (
            rng.random(before.shape) < before
        )
        up, down = streams(values)
        same_as_the_class(values, up)
        ours = ((up >= LIMIT) | (down >= LIMIT)).any(axis=1).mean()
        calls = z_test(values, 10)
        rows.append(
            (
                f"500 new cases one by one, rate {rate:g}",
                "after every pair",
                percent(ours),
                percent(calls.any(axis=1).mean()),
                percent(calls[:, -1].mean()),
            )
        )
    for scope, cases, rounds in (
        ("cases", 20, 20),
        ("cases", 40, 20),
        ("suite", 20, 20),
        ("suite", 40, 20),
    ):
        ours, theirs, once = rounds_under_the_null(rng, sims, scope, cases, rounds)
        name = f"{cases} cases × up to {rounds} rounds, scope “{scope}”"
        rows.append((name, "after every round", percent(ours), percent(theirs), percent(once)))
    head = ("suite", "looks", "ours, ever", "z-test, ever", "z-test, once at the end")
    yield from table(head, rows)
    yield ""
    yield (
        f"{sims:,} streams a row, level 95 %, true lift exactly 0 with effects that differ from case to case: over the "
        "population in the first five rows, over the very cases of the suite in the last two. The z-test takes pairs "
        "for independent, as is commonly done; its first look is after 10 pairs."
    )
    yield ""


def rounds_under_the_null(
    rng: np.random.Generator, sims: int, scope: str, cases: int, rounds: int
) -> tuple[float, float, float]:
    before, after = chances(rng, (sims, cases), (0.5, 0.5))
    if scope == "suite":
        # Half of the cases are helped as much as the other half is hurt: the lift of this very suite is nil.
        half = cases // 2
        before[:, half:], after[:, half:] = after[:, :half].copy(), before[:, :half].copy()
    shape = (rounds, sims, cases)
    values = (rng.random(shape) < after).astype(np.float64) - (rng.random(shape) < before)
    called = np.zeros(sims, dtype=bool)
    if scope == "cases":
        sums = values.cumsum(axis=0)
        for look in range(rounds):
            means = sums[look] / (look + 1)
            called |= (mixed(wealth(means)) >= LIMIT) | (mixed(wealth(-means)) >= LIMIT)
    else:
        for sign in (1.0, -1.0):
            parts = np.stack([wealth(sign * values[look]) for look in range(rounds)]).cumsum(axis=0)
            called |= (mixed(parts) >= LIMIT).any(axis=0)
    flat = values.transpose(1, 0, 2).reshape(sims, rounds * cases)
    looks = z_test(flat, 1)[:, cases - 1 :: cases]
    return float(called.mean()), float(looks.any(axis=1).mean()), float(looks[:, -1].mean())


# ---------------------------------------------------------------------------------------------------- savings


def saving_tables(sims: int) -> Iterator[str]:
    yield "### How many trials does stopping early save?"
    yield ""
    rng = np.random.default_rng((SEED, 3))
    rows: list[Sequence[object]] = []
    planned: dict[float, int] = {}  # pairs of the fixed-n test for the smallest lift, by power
    for lift in (0.2, 0.4, 0.6):
        longest = {0.2: 500, 0.4: 160, 0.6: 80}[lift]
        before, after = chances(rng, (sims, longest), (0.2, 0.2 + lift))
        values = (rng.random(before.shape) < after).astype(np.float64) - (
            rng.random(before.shape) < before
        )
        up, _ = streams(values)
        stops = np.where((up >= LIMIT).any(axis=1), (up >= LIMIT).argmax(axis=1) + 1, longest + 1)
        for chance in (0.8, 0.9, 0.95, 0.99):
            cap = int(np.quantile(stops, chance, method="inverted_cdf"))
            used = float(np.minimum(stops, cap).mean())
            fixed = fixed_pairs(values, chance)
            planned.setdefault(chance, fixed)
            rows.append(
                (
                    f"{lift:g}",
                    percent(chance, 0),
                    2 * fixed,
                    f"{2 * used:.0f}",
                    2 * cap,
                    percent(1 - used / fixed, 0),
                    percent(1 - used / planned[chance], 0),
                )
            )
    head = (
        "true lift",
        "power",
        "fixed-n: trials",
        "ours: mean trials",
        "ours: at most",
        "saved",
        "saved, plan for 0.2",
    )
    yield from table(head, rows)
    yield ""
    yield (
        f"{sims:,} streams of fresh cases a lift (baseline 0.2), a look after every pair, level 95 %. The fixed-n test "
        "is a paired t-test that was told the true lift beforehand and took exactly the pairs it needs for the power "
        "in the second column, the most favourable opponent there is; a minus sign means that ours needs more. The "
        "last column is against the same test planned for a lift of 0.2, since nobody knows the true lift beforehand."
    )
    yield ""
    yield from plan_table(sims, rng)


def fixed_pairs(values: Floats, chance: float) -> int:
    """The fewest pairs with which a paired t-test finds the lift with this chance, by simulation."""
    count: Floats = np.arange(1.0, values.shape[1] + 1.0, dtype=np.float64)
    mean = values.cumsum(axis=1) / count
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = ((values**2).cumsum(axis=1) - count * mean**2) / (count - 1)
        score = mean / np.sqrt(variance / count)
        z = NormalDist().inv_cdf(0.975)
        critical = (
            z
            + (z**3 + z) / (4 * (count - 1))
            + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * (count - 1.0) ** 2)
        )
    found = ((score > critical) & (variance > 0)).mean(axis=0) >= chance
    found[:4] = False  # fewer pairs have no t-test worth the name
    # The smallest n from which on the power stays there: discrete data make it dip.
    below = np.flatnonzero(~found)
    return int(below[-1]) + 2 if below.size else 1


def plan_table(sims: int, rng: np.random.Generator) -> Iterator[str]:
    rows: list[Sequence[object]] = []
    early = math.log(2 / (EARLY_ALPHA_SHARE * 0.05))
    for cases in (10, 20, 40):
        for lift in (0.0, 0.2, 0.4, 0.6):
            before, after = chances(rng, (sims, cases), (0.2, 0.2 + lift))
            shape = (5, sims, cases)
            values = (rng.random(shape) < after).astype(np.float64) - (rng.random(shape) < before)
            sums = values.cumsum(axis=0)
            wealths = np.stack([mixed(wealth(sums[look] / (look + 1))) for look in range(5)])
            pairs = mixed(np.stack([wealth(values[look]) for look in range(5)]).cumsum(axis=0))
            last = lift_excludes(
                sums[4] / 5, 5, 0.0, level=1 - (1 - EARLY_ALPHA_SHARE) * 0.05, resamples=2_000
            )[0]
            planned = wealths >= early
            planned[4] |= last
            whole = lift_excludes(sums[4] / 5, 5, 0.0, resamples=2_000)[0]
            row: list[object] = [cases, f"{lift:g}", f"{10 * cases}: {percent(whole.mean(), 0)}"]
            for called in (planned, wealths >= LIMIT, pairs >= LIMIT):
                rounds = np.where(called.any(axis=0), called.argmax(axis=0) + 1, 5)
                row.append(
                    f"{2 * cases * rounds.mean():.0f}: {percent(called.any(axis=0).mean(), 0)}"
                )
            rows.append(row)
    yield "With a suite at hand, baseline 0.2, and up to 5 rounds of all its cases. A cell has the mean number of"
    yield "trials and how often the answer is `helps`; in the rows with a lift of 0 that answer is wrong."
    yield ""
    head = (
        "cases",
        "true lift",
        "fixed plan of 5 runs",
        "planned end, “cases”",
        "open end, “cases”",
        "open end, “suite”",
    )
    yield from table(head, rows)
    yield ""


# ---------------------------------------------------------------------------------------------------- keeping


def keeping_tables(sims: int) -> Iterator[str]:
    yield "### How often is a skill that does nothing kept?"
    yield ""
    rng = np.random.default_rng((SEED, 4))
    rows: list[Sequence[object]] = []
    for rate in (0.1, 0.3, 0.5, 0.7, 0.9):
        row: list[object] = [f"{rate:g}"]
        kept = np.zeros(sims, dtype=bool)
        for _ in range(2):
            kept |= null_means(rng, sims, 5, 1, rate).mean(axis=1) > 0.05
        row.append(percent(kept.mean()))
        for cases, runs in ((5, 1), (20, 1), (20, 3)):
            kept = np.zeros(sims, dtype=bool)
            for _ in range(2):
                kept |= lift_excludes(
                    null_means(rng, sims, cases, runs, rate), runs, 0.0, resamples=2_000
                )[0]
            row.append(percent(kept.mean()))
        kept = np.zeros(sims, dtype=bool)
        for _ in range(2):
            before, after = chances(rng, (sims, 20), (rate, rate))
            shape = (5, sims, 20)
            sums = (
                (rng.random(shape) < after).astype(np.float64) - (rng.random(shape) < before)
            ).cumsum(axis=0)
            for look in range(5):
                kept |= mixed(wealth(sums[look] / (look + 1))) >= LIMIT
        row.append(percent(kept.mean()))
        rows.append(row)
    head = (
        "pass rate",
        "lift > 0.05, 5 cases × 1, two attempts",
        "helps, 5 × 1, two attempts",
        "helps, 20 × 1, two attempts",
        "helps, 20 × 3, two attempts",
        "until decided, 20 × up to 5, two attempts",
    )
    yield from table(head, rows)
    yield ""
    yield (
        f"{sims:,} skills a row that change nothing on average. Two attempts mean that a skill is kept if either of "
        "two tries looks good: each may err upwards in 2.5 %, so 5 % is the ceiling for the two together."
    )
    yield ""


def null_means(rng: np.random.Generator, sims: int, cases: int, runs: int, rate: float) -> Floats:
    before, after = chances(rng, (sims, cases), (rate, rate))
    return (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs


# ---------------------------------------------------------------------------------------------------- all of it


# ---------------------------------------------------------------------------------------------------- judges


def judge_tables(sims: int) -> Iterator[str]:
    yield "### What if a judge breaks form in one arm?"
    yield ""
    rng = np.random.default_rng((SEED, 21))
    worlds = {
        "none of the baseline's passes gets a grade": ("baseline", True, 1.0, 0.0),
        "a tenth of the baseline's passes get none": ("baseline", True, 0.1, 0.0),
        "a tenth of the skill's failures get none": ("skill", False, 0.1, 0.0),
        "all of the skill's failures get none": ("skill", False, 1.0, 0.0),
        "the skill's failures are asked for again, and half then pass": ("skill", False, 1.0, 0.5),
        "a fifth of the baseline's passes, and half then fail": ("baseline", True, 0.2, 0.5),
    }
    rows: list[Sequence[object]] = []
    for name, world in worlds.items():
        row: list[object] = [name]
        for shape in ((10, 3), (20, 3), (20, 5)):
            naive, ours = judged_by_arm(rng, sims, shape, *world)
            row.append(f"{percent(naive, 0)} → {percent(ours)}")
        rows.append(row)
    yield from table(("world", "10 × 3", "20 × 3", "20 × 5"), rows)
    yield ""
    yield (
        f"{sims:,} suites a cell (cases × repeats), each answer right with a chance of 50 % in both arms. False "
        "`helps` if a reply that breaks form is a failure, or the second reply the grade → with our rules: no grade is "
        "an error, and a grade from a second reply counts against the claim."
    )
    yield ""


def judged_by_arm(
    rng: np.random.Generator,
    sims: int,
    shape: tuple[int, int],
    arm: str,
    broken: bool,
    share: float,
    changed: float,
) -> tuple[float, float]:
    """False `helps` where the judge breaks form on this share of an arm's passes or failures (`broken`).

    `changed` of them get the other grade when it is asked again; 0: it never gives one.
    """
    passed = {name: rng.random((sims, *shape)) < 0.5 for name in ("baseline", "skill")}
    breaks = (passed[arm] == broken) & (rng.random((sims, *shape)) < share)
    regraded = passed[arm] ^ (rng.random((sims, *shape)) < changed)

    def helps(told: NDArray[np.bool_], level: float = 0.95) -> NDArray[np.bool_]:
        arms = passed | {arm: np.where(breaks, told, passed[arm])}
        means = (arms["skill"].astype(np.float64) - arms["baseline"]).mean(axis=2)
        return lift_excludes(means, shape[1], 0.0, level=level, resamples=1_000)[0]

    worst = np.full(passed[arm].shape, arm == "baseline")
    if not changed:
        few = breaks.mean(axis=(1, 2)) <= MAX_ERROR_RATE
        return float(helps(np.zeros_like(worst)).mean()), float((few & helps(worst)).mean())
    believed = helps(regraded)
    ours = believed & helps(worst, LEVEL_OF_BOTH_ARMS) & (helps(worst) if arm == "skill" else True)
    return float(believed.mean()), float(ours.mean())


# ---------------------------------------------------------------------------------------------------- descriptions


def trigger_tables(sims: int) -> Iterator[str]:
    yield "### Do the intervals of `trigger` hold?"
    yield ""
    rng = np.random.default_rng((SEED, 22))
    rates = ((0.98, 0.02), (0.95, 0.2), (0.8, 0.05), (0.5, 0.5), (0.2, 0.02))
    rows: list[Sequence[object]] = []
    for queries, runs in product((5, 10, 20), (1, 3, 5)):
        worst: dict[str, float] = dict.fromkeys(QUANTITIES, 1.0)
        for (recall, wrong), spread in product(rates, (0.0, 1.0, 4.0, math.inf)):
            held = trigger_coverage(rng, sims, (queries, runs), (recall, wrong), spread)
            worst = {name: min(worst[name], held[name]) for name in worst}
        rows.append((queries, runs, *(percent(worst[name]) for name in QUANTITIES)))
    yield from table(("queries", "repeats", *QUANTITIES), rows)
    yield ""
    yield (
        f"Lowest coverage of a 95 % interval over 20 worlds, {sims:,} sets of queries each: five pairs of rates, and "
        "queries that all have the same rate, differ (two beta distributions), or always do the same."
    )
    yield ""
    yield "### Which descriptions does `trigger --improve --write` write?"
    yield ""
    rows = []
    for change in (0.0, -0.2, 0.2, 0.4):
        row: list[object] = [f"{100 * change:+.0f}"]
        for queries in (12, 20, 30, 60):
            written = [written_description(rng, queries, change) for _ in range(max(50, sims // 2))]
            row.append(
                " → ".join(
                    percent(float(np.mean(share)), 0) for share in zip(*written, strict=True)
                )
            )
        rows.append(row)
    yield from table(("points better", "12 queries", "20", "30", "60"), rows)
    yield ""
    yield (
        f"{max(50, sims // 2):,} searches a cell, five descriptions each, three repeats, queries that the old one gets "
        "right in 50 %. How many find one that is better on validation queries, which was once enough → write it."
    )
    yield ""


def trigger_coverage(
    rng: np.random.Generator,
    sims: int,
    shape: tuple[int, int],
    rates: tuple[float, float],
    spread: float,
) -> dict[str, float]:
    """Coverage of each quantity; each interval holds the truth if the truth is not ruled out."""
    count, runs = shape
    positives = (count + 1) // 2
    right, wrong = (
        rng.binomial(runs, query_rates(rng, (sims, size), rate, spread)) / runs
        for size, rate in ((positives, rates[0]), (count - positives, rates[1]))
    )
    hits, misses = positives * rates[0], (count - positives) * rates[1]
    precision, fired = hits / (hits + misses), (right.sum(axis=1) + wrong.sum(axis=1)) > 0
    of_precision = np.hstack([(1.0 - precision) * right, -precision * wrong]) + precision
    return {
        "recall": float(holds(right, rates[0]).mean()),
        "false_triggers": float(holds(wrong, rates[1]).mean()),
        "accuracy": float(
            holds(
                np.hstack([right, 1.0 - wrong]), (hits + count - positives - misses) / count
            ).mean()
        ),
        "precision": float(holds(of_precision[fired], precision).mean()) if fired.any() else 1.0,
    }


def query_rates(
    rng: np.random.Generator, shape: tuple[int, int], rate: float, spread: float
) -> Floats:
    """Chances of queries: all or nothing (0), the same for all (infinite), or from a beta distribution."""
    if spread == 0.0:
        return (rng.random(shape) < rate).astype(np.float64)
    return (
        np.full(shape, rate)
        if math.isinf(spread)
        else rng.beta(rate * spread, (1.0 - rate) * spread, shape)
    )


def holds(shares: Floats, mean: float) -> NDArray[np.bool_]:
    """Whether `mean_share` leaves a mean possible, for many sets of shares at once."""
    support = np.unique(np.round(shares, 9))
    counts = np.stack(
        [(np.abs(shares - value) < 1e-8).sum(axis=1) for value in support], axis=1
    ).astype(np.float64)
    ends = [
        chance_of_less(side * (2.0 * support - 1.0), counts, 1.0, side * (2.0 * mean - 1.0))
        for side in (1.0, -1.0)
    ]
    return (ends[0] >= 0.025) & (ends[1] >= 0.025)


def written_description(
    rng: np.random.Generator, queries: int, change: float, runs: int = 3
) -> tuple[bool, bool]:
    """Whether a search finds a description that is better on validation queries, and whether it is written."""
    test, validation = (queries + 1) // 2, (queries + 2) // 4
    old: Floats = query_rates(rng, (1, validation + test), 0.5, 1.0)[0]
    before: Floats = rng.binomial(runs, old) / runs
    best, best_after = float(before[:validation].mean()), None
    for _ in range(5):
        to = query_rates(rng, (1, validation + test), 0.5 + change, 1.0)[0]
        after = (
            rng.binomial(
                runs,
                np.where(rng.random(len(old)) < 0.5 + abs(change), to, old + change).clip(0, 1),
            )
            / runs
        )
        if float(after[:validation].mean()) > best:
            best, best_after = float(after[:validation].mean()), after
    level = level_of_test(1)
    if best_after is None or test < min_queries(level):
        return best_after is not None, False
    differences = np.repeat((best_after - before)[validation:], runs)
    return True, paired_lift(differences, np.repeat(np.arange(test), runs), level=level).low > 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few simulations: a smoke run")
    parser.add_argument(
        "--write", action="store_true", help="put the tables into docs/simulations.md"
    )
    options = parser.parse_args()
    many = 200 if options.quick else 4_000
    some = 200 if options.quick else 2_000
    began = time.perf_counter()
    parts = (
        coverage_tables(many // 2),
        world_tables(some // 2),
        scope_tables(some // 2),
        model_tables(some // 2),
        error_tables(some),
        server_tables(some),
        look_tables(some),
        again_tables(some // 4),
        dropped_tables(some // 2),
        peeking_tables(some),
        saving_tables(some // 2),
        keeping_tables(many),
        judge_tables(some),
        trigger_tables(some // 2),
    )
    lines: list[str] = []
    for part in parts:
        lines += part
        print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    if options.write:
        before, rest = DOCS.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        DOCS.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
