"""Simulate the statistics of a verdict, with fixed seeds, and write the tables of docs/simulations.md.

python bench/simulations.py            # all tables, about five minutes on two cores
python bench/simulations.py --quick    # the same tables from few simulations: does it still run?
python bench/simulations.py --write    # put them into docs/simulations.md
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from upskill.verdicts.arms import MAX_ERROR_RATE
from upskill.verdicts.compute import EARLY_ALPHA_SHARE, level_of_look
from upskill.verdicts.statistics import (
    Floats,
    Sequential,
    bets,
    lift_excludes,
    log_wealth,
    paired_lift,
    studentized_bounds,
)

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


def chances(rng: np.random.Generator, shape: tuple[int, ...], rates: tuple[float, float]) -> tuple[Floats, Floats]:
    """The pass rate of each case in each arm: cases differ in difficulty and in what the skill does for them."""
    difficulty = BETWEEN * rng.normal(size=shape)
    effect = EFFECT * rng.normal(size=shape)
    before = logistic(centre(rates[0], BETWEEN) + difficulty)
    after = logistic(centre(rates[1], math.hypot(BETWEEN, EFFECT)) + difficulty + effect)
    return before, after


def half_decided(rng: np.random.Generator, shape: tuple[int, ...], rates: tuple[float, float]) -> tuple[Floats, Floats]:
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


def misses(means: Floats, runs: int, true: float) -> tuple[float, float]:
    """How often the interval lies above the true lift, and how often below it."""
    found = [
        lift_excludes(part, runs, true, resamples=2_000) for part in np.array_split(means, max(1, len(means) // 1000))
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
        some = [paired_lift(np.repeat(row, runs), np.repeat(np.arange(cases), runs)) for row in means[:8]]
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
    head = ("cases", "runs", "mean coverage", "worst cell (rates)", "highest", "within 93–97 %", "mean width")
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

World = Callable[[np.random.Generator, tuple[int, int], int], tuple[Floats, float]]  # case means and the true lift


def half_fixed(rates: tuple[float, float]) -> World:
    def draw(rng: np.random.Generator, shape: tuple[int, int], runs: int) -> tuple[Floats, float]:
        before, after = half_decided(rng, shape, rates)
        return (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs, 0.5 * (rates[1] - rates[0])

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
        mended, broken = rates
        before = np.full(shape, 0.5)
        kind = rng.random(shape)
        after = np.where(kind < mended, 1.0, np.where(kind < mended + broken, 0.0, before))
        return (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs, 0.5 * (mended - broken)

    return draw


def skewed(rates: tuple[float, float]) -> World:
    """The skill breaks a few tasks altogether and makes the rest a little better: on average, nothing is gained."""

    def draw(rng: np.random.Generator, shape: tuple[int, int], runs: int) -> tuple[Floats, float]:
        share, start = rates
        start = min(start, 1.0 - share)
        after = np.where(rng.random(shape) < share, 0.0, start / (1.0 - share))
        return (rng.binomial(runs, after) - rng.binomial(runs, np.full(shape, start))) / runs, 0.0

    return draw


def duplicated(rates: tuple[float, float]) -> World:
    """Every case is there three times in other words; the copies count as one."""

    def draw(rng: np.random.Generator, shape: tuple[int, int], runs: int) -> tuple[Floats, float]:
        before, after = chances(rng, shape, rates)
        return (rng.binomial(3 * runs, after) - rng.binomial(3 * runs, before)) / (3 * runs), rates[1] - rates[0]

    return draw


GRID = tuple(product(RATES, RATES))
WORLDS: tuple[tuple[str, Callable[[tuple[float, float]], World], tuple[tuple[float, float], ...]], ...] = (
    ("half of the cases always pass or never do", half_fixed, GRID),
    ("fixed outcomes per case and arm", fixed, GRID),
    ("all or nothing: mended or broken for good", all_or_nothing, tuple(product((0.05, 0.1, 0.3), (0.05, 0.1, 0.3)))),
    ("skewed: a tenth is broken, the rest gains a little", skewed, tuple((0.1, rate) for rate in (0.9, 0.8, 0.6, 0.3))),
    (
        "skewed otherwise: 3, 5, 20 or 30 % broken",
        skewed,
        tuple(product((0.03, 0.05, 0.2, 0.3), (0.97, 0.9, 0.8, 0.6, 0.3))),
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
    head = ("world", "cells", "mean coverage", "worst cell", "worst side", "worst side by spread alone")
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
    head = ("cases × runs", "pass rate", *(f"{share:.0%} of failures" for share in (0.1, 0.2, 0.5, 1.0)))
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
        np.repeat(chance[:, :, np.newaxis], runs, axis=2) for chance in chances(rng, (sims, cases), (rate, rate))
    )
    passed, passed_with = rng.random(before.shape) < before, rng.random(after.shape) < after
    errored = ~passed_with & (rng.random(after.shape) < share)
    pairs = (~errored).sum(axis=2)
    differences = np.where(errored, 0, passed_with.astype(np.float64) - passed)
    means = differences.sum(axis=2) / np.maximum(pairs, 1)
    naive = studentized_bounds(means, runs, resamples=1_000)[0] > 0
    worst = passed_with.astype(np.float64) - passed  # an errored trial counts as failed, which here it was
    few = errored.mean(axis=(1, 2)) <= MAX_ERROR_RATE
    ours = few & naive & lift_excludes(worst.mean(axis=2), runs, 0.0, resamples=1_000)[0]
    return float(naive.mean()), float(ours.mean())


# ---------------------------------------------------------------------------------------------------- looks


def look_tables(sims: int) -> Iterator[str]:
    yield "### And over five unplanned looks at a growing suite?"
    yield ""
    rng = np.random.default_rng((SEED, 7))
    rows: list[Sequence[object]] = []
    for rate, runs in product((0.2, 0.5, 0.8), (1, 3)):
        before, after = chances(rng, (sims, 50), (rate, rate))
        means = (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs
        naive, ours = np.zeros(sims, dtype=bool), np.zeros(sims, dtype=bool)
        for look, cases in enumerate((10, 20, 30, 40, 50), start=1):
            naive |= lift_excludes(means[:, :cases], runs, 0.0, resamples=1_000)[0]
            level = level_of_look(0.95, look)
            ours |= lift_excludes(means[:, :cases], runs, 0.0, level=level, resamples=4_000)[0]
        rows.append((f"{rate:g}", runs, percent(naive.mean()), percent(ours.mean())))
    yield from table(("pass rate", "runs", "95 % at every look", "with the level of the look"), rows)
    yield ""
    yield (
        f"{sims:,} suites a row that grow from 10 to 50 cases, ten at a time, with a true lift of 0: how often `helps` "
        "is said at any of the five looks."
    )
    yield ""


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
    assert abs(log_wealth(*running.looks[-1]) - expected) < 1e-9


def peeking_tables(sims: int) -> Iterator[str]:
    yield "### How often is a skill that does nothing called, when one looks all the time?"
    yield ""
    rng = np.random.default_rng((SEED, 2))
    rows: list[Sequence[object]] = []
    for rate in (0.1, 0.5, 0.9):
        before, after = chances(rng, (sims, 500), (rate, rate))
        values = (rng.random(before.shape) < after).astype(np.float64) - (rng.random(before.shape) < before)
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
    for scope, cases, rounds in (("cases", 20, 20), ("cases", 40, 20), ("suite", 20, 20), ("suite", 40, 20)):
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
        values = (rng.random(before.shape) < after).astype(np.float64) - (rng.random(before.shape) < before)
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
        critical = z + (z**3 + z) / (4 * (count - 1)) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * (count - 1.0) ** 2)
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
            last = lift_excludes(sums[4] / 5, 5, 0.0, level=1 - (1 - EARLY_ALPHA_SHARE) * 0.05, resamples=2_000)[0]
            planned = wealths >= early
            planned[4] |= last
            whole = lift_excludes(sums[4] / 5, 5, 0.0, resamples=2_000)[0]
            row: list[object] = [cases, f"{lift:g}", f"{10 * cases}: {percent(whole.mean(), 0)}"]
            for called in (planned, wealths >= LIMIT, pairs >= LIMIT):
                rounds = np.where(called.any(axis=0), called.argmax(axis=0) + 1, 5)
                row.append(f"{2 * cases * rounds.mean():.0f}: {percent(called.any(axis=0).mean(), 0)}")
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
                kept |= lift_excludes(null_means(rng, sims, cases, runs, rate), runs, 0.0, resamples=2_000)[0]
            row.append(percent(kept.mean()))
        kept = np.zeros(sims, dtype=bool)
        for _ in range(2):
            before, after = chances(rng, (sims, 20), (rate, rate))
            shape = (5, sims, 20)
            sums = ((rng.random(shape) < after).astype(np.float64) - (rng.random(shape) < before)).cumsum(axis=0)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few simulations: a smoke run")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/simulations.md")
    options = parser.parse_args()
    many = 200 if options.quick else 4_000
    some = 200 if options.quick else 2_000
    began = time.perf_counter()
    parts = (
        coverage_tables(many),
        world_tables(some),
        error_tables(some),
        look_tables(some),
        peeking_tables(some),
        saving_tables(some),
        keeping_tables(many),
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
