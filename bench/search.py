"""Simulate the search for a better skill, with fixed seeds: how often is a gain kept, and how often is there none?

python bench/search.py            # all tables, about a minute
python bench/search.py --quick    # few simulations
python bench/search.py --json     # the numbers alone, for the tests
python bench/search.py --write    # put the tables into docs/simulations.md

A search makes three attempts, as `generate` does: one run of each train case a candidate, a second look where one says
too little, and one confirmation on fresh seeds (`authoring/search/comparison.py` has the numbers).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulations import chances, lift_excludes, percent, table
from upskill.authoring.search import comparison
from upskill.authoring.search.comparison import Comparison
from upskill.verdicts.statistics import Floats

DOCS = Path(__file__).resolve().parent.parent / "docs" / "simulations.md"
BEGIN, END = "<!-- search: begin -->", "<!-- search: end -->"
SEED, ATTEMPTS = 12, 3
CASES = (12, 20, 30)

Counts = NDArray[np.int64]
Rates = Callable[[np.random.Generator, int, int], list[Floats]]  # of the first draft, and after each edit
Edit = Callable[[Floats], Floats]  # from the rates of the best so far to those of the candidate


def tails(most: int) -> Floats:
    """By number of pairs that differ and number of them that got better: the p-value of the sign test."""
    found = np.ones((most + 1, most + 2))
    for pairs in range(most + 1):
        chance = np.array([math.comb(pairs, count) / 2**pairs for count in range(pairs + 1)])
        found[pairs, : pairs + 1] = chance[::-1].cumsum()[::-1]
        found[pairs, pairs + 1 :] = 0.0
    return found


TAILS = tails(400)


# ---------------------------------------------------------------------------------------------------- worlds


def one_good_edit(path: list[Floats], rng: np.random.Generator) -> list[Floats]:
    """What each of three edits leads to, when one of them, nobody knows which, is the good one."""
    before, after = path
    place = rng.integers(0, ATTEMPTS, len(before))[:, np.newaxis]
    return [before, *(np.where(place <= number, after, before) for number in range(ATTEMPTS))]


def small_steps(path: list[Floats], rng: np.random.Generator) -> list[Floats]:
    """Each of three edits does a third of it."""
    before, after = path
    thirds: Counts = np.arange(before.shape[1], dtype=np.int64) % ATTEMPTS
    order = rng.permuted(np.tile(thirds, (len(before), 1)), axis=1)
    return [before, *(np.where(order <= number, after, before) for number in range(ATTEMPTS))]


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
        return [before, np.where(number < better, before + step, before - step * better / (cases - better))]

    return draw


def worse(rate: float, loss: float) -> Rates:
    return lambda rng, sims, cases: list(chances(rng, (sims, cases), (rate, rate - loss)))


def shuffled(rng: np.random.Generator, sims: int, cases: int, rate: float, share: float) -> tuple[Floats, list[Edit]]:
    """Every wording has its own answer to every case, right or wrong for good; an edit draws a share of them again."""

    def draw() -> Floats:
        return (rng.random((sims, cases)) < rate).astype(np.float64)

    def edit(current: Floats) -> Floats:
        return np.where(rng.random(current.shape) < share, draw(), current)

    return draw(), [edit] * ATTEMPTS


# ---------------------------------------------------------------------------------------------------- a search


@dataclass
class Found:
    confirmed: float  # share of searches
    kept: float  # share whose result is not the first draft: confirmed, or the best guess
    trials: float  # mean, without the run of no skill at all


def pairs(rng: np.random.Generator, after: Floats, before: Floats, rounds: int) -> Counts:
    """The change of every case in every round: 1, 0 or -1."""
    shape = (rounds, *before.shape)
    return (rng.random(shape) < after).astype(np.int64) - (rng.random(shape) < before)


def over_cases(sums: Counts) -> Floats:
    """The one-sided p-value of the sign-flip test over cases, for a row of sums each: by the Fourier transform."""
    size = 1 << int(2 * np.abs(sums).sum(axis=1).max(initial=1) + 1).bit_length()
    angles = 2 * np.pi * np.arange(size) / size
    found = np.empty(len(sums))
    for number, row in enumerate(sums):
        chances = np.fft.ifft(np.cos(np.outer(angles, row[row != 0])).prod(axis=1)).real
        total = int(row.sum())
        found[number] = chances[total : size // 2].sum() if total > 0 else 1.0
    return found


def steps(path: list[Floats]) -> list[Edit]:
    return [
        lambda current, before=before, after=after: np.clip(current + after - before, 0.0, 1.0)
        for before, after in pairwise(path)
    ]


def search(rng: np.random.Generator, first: Floats, edits: Sequence[Edit]) -> Found:
    current = first
    sims, cases = first.shape
    record = rng.random(first.shape) < first
    trials = np.full(sims, float(cases))
    any_kept = np.zeros(sims, dtype=bool)
    for edit in edits:
        edited = edit(current)
        drawn = rng.random(first.shape) < edited
        change = drawn.astype(np.int64) - record
        up, down = (change > 0).sum(axis=1), (change < 0).sum(axis=1)
        again = (up + down > 0) & (up <= down) & (TAILS[up + down, down] > comparison.HOPELESS)
        rounds = comparison.second_look_rounds(cases)
        more = pairs(rng, edited, current, rounds).sum(axis=(0, 2))
        kept = (up > down) | (again & (up - down + more > 0))
        trials += cases + np.where(again, 2 * cases * rounds, 0)
        any_kept |= kept
        current = np.where(kept[:, np.newaxis], edited, current)
        record = np.where(kept[:, np.newaxis], drawn, record)
    looks = comparison.confirming_rounds(cases)
    change = pairs(rng, current, first, looks[-1])
    running = any_kept.copy()
    guessed, confirmed = np.zeros(sims, dtype=bool), np.zeros(sims, dtype=bool)
    for rounds in looks:
        is_last = rounds == looks[-1]
        seen = change[:rounds]
        up, down = (seen > 0).sum(axis=(0, 2)), (seen < 0).sum(axis=(0, 2))
        here = running & (TAILS[up + down, up] <= (comparison.LAST_LOOK if is_last else comparison.FIRST_LOOK))
        shown = np.zeros(sims, dtype=bool)
        level = comparison.ALPHA / ATTEMPTS if is_last else comparison.WITHIN_REACH
        shown[here] = over_cases(seen.sum(axis=0)[here]) <= level
        hopeless = (up <= down) | (TAILS[up + down, down] <= comparison.SHOWN_WORSE)
        ends = running & (is_last | hopeless | (here & ~shown))
        guessed |= ends & here & ~shown
        confirmed |= ends & here & shown
        trials += np.where(ends, 2 * cases * rounds, 0)
        running &= ~ends
    return Found(
        float(confirmed.mean()),
        float((confirmed | guessed).mean()),
        float(trials.mean()),
    )


def same_as_the_product(rng: np.random.Generator) -> None:
    """The arithmetic above has to be that of `comparison`."""
    for _ in range(50):
        change = rng.integers(-1, 2, (12, 4))
        up, down = int((change > 0).sum()), int((change < 0).sum())
        labels = tuple(str(case) for case in range(12) for _ in range(4))
        found = Comparison((), (), 0, tuple(change.reshape(-1).astype(float)), labels)
        assert math.isclose(found.p_worse, TAILS[up + down, down])
        for level in (comparison.FIRST_LOOK, comparison.LAST_LOOK):
            assert found.is_better_here(level) == (up > down and TAILS[up + down, up] <= level)
        (p_value,) = over_cases(change.sum(axis=1)[np.newaxis, :])
        assert found.p_value is not None
        assert math.isclose(found.p_value, p_value) or min(found.p_value, p_value) >= 0.5


# ---------------------------------------------------------------------------------------------------- tables

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


def gains(sims: int) -> dict[str, dict[int, tuple[Found, Found]]]:
    """By world and number of cases: one good edit of three, and three small steps."""
    found: dict[str, dict[int, tuple[Found, Found]]] = {}
    for number, (name, world) in enumerate(GAINS):
        for cases in CASES:
            rng = np.random.default_rng((SEED, number, cases))
            paths = [edits(world(rng, sims, cases), rng) for edits in (one_good_edit, small_steps)]
            one, small = (search(rng, path[0], steps(path)) for path in paths)
            found.setdefault(name, {})[cases] = one, small
    return found


def nulls(sims: int) -> dict[str, dict[int, Found]]:
    found: dict[str, dict[int, Found]] = {}
    for number, (name, world) in enumerate(NULLS):
        for cases in CASES:
            rng = np.random.default_rng((SEED, 100 + number, cases))
            edits = [world(rng, sims, cases) for _ in range(ATTEMPTS)]
            path = [edits[0][0]]
            for before, after in edits:  # three edits, each of them no better
                path.append(path[-1] + after - before)
            found.setdefault(name, {})[cases] = search(rng, path[0], steps(path))
    for number, (name, rate, share) in enumerate(SHUFFLES):
        for cases in CASES:
            rng = np.random.default_rng((SEED, 150 + number, cases))
            found.setdefault(name, {})[cases] = search(rng, *shuffled(rng, sims, cases, rate, share))
    return found


OLDER: tuple[tuple[str, Rates], ...] = (
    ("nothing changes, facts, all pass", sharp(1.0, 0.0)),
    ("nothing changes, noisy, 90 % pass", equal(0.9)),
    ("nothing changes, noisy, 70 % pass", equal(0.7)),
    ("noisy, 90 % → 75 %", worse(0.9, 0.15)),
    ("noisy, 70 % → 55 %", worse(0.7, 0.15)),
    ("facts, every sixth is lost", lambda rng, sims, cases: sharp(1.0, 1 / 6)(rng, sims, cases)[::-1]),
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
            change = (rng.random(shape) < rates[0]).astype(np.float64) - (rng.random(shape) < rates[1])
            shown = np.zeros(sims, dtype=bool)
            for rounds, alpha in zip(looks, (comparison.FIRST_LOOK, comparison.LAST_LOOK), strict=True):
                seen = change[:, :rounds].reshape(sims, -1)  # of exactly these cases: pairs are the sample
                shown |= lift_excludes(seen, 1, -comparison.MARGIN, level=1 - 2 * alpha, resamples=2_000)[0]
            is_worse = (after - before).mean(axis=1) <= -comparison.MARGIN
            found.setdefault(name, {})[cases] = float(shown.mean()), float((shown & is_worse).mean())
    return found


def tables(sims: int) -> Iterator[str]:
    yield "### Are real gains kept, and confirmed?"
    yield ""
    rows: list[Sequence[object]] = []
    for name, by_cases in gains(sims).items():
        row: list[object] = [name]
        for one, small in by_cases.values():
            both = (f"{percent(found.kept, 0)} ({percent(found.confirmed, 0)})" for found in (one, small))
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
    yield from table(("three edits that are no better", *(f"{cases} train cases" for cases in CASES)), rows)
    yield ""
    yield (
        f"{sims:,} searches a cell: the share that ends with “confirmed” (in brackets: with another result than the "
        "first draft, confirmed or as a best guess), and the mean number of trials. Where edits help some tasks and "
        "harm as many others, or merely shuffle the answers, some of them are better in truth on a dozen cases: that "
        "makes a best guess, and the held-out cases say what it is worth elsewhere."
    )
    yield ""


def older_table(sims: int) -> Iterator[str]:
    yield "### Are older cases shown not worse?"
    yield ""
    rows = [
        [name, *(f"{percent(shown, 0)} ({percent(wrongly)})" for shown, wrongly in by_cases.values())]
        for name, by_cases in not_worse(sims).items()
    ]
    yield from table(("older cases after a requested change", *(f"{cases} train cases" for cases in CASES)), rows)
    yield ""
    yield (
        f"{sims:,} confirmations a cell: the share that shows the older cases not worse (in brackets: although they "
        "pass less often by 10 points or more)."
    )
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few simulations")
    parser.add_argument("--json", action="store_true", help="the numbers alone")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/simulations.md")
    options = parser.parse_args()
    sims = 1_000 if options.quick else 10_000
    same_as_the_product(np.random.default_rng(SEED))
    if options.json:
        kept = [one.kept for by_cases in gains(sims).values() for one, _ in by_cases.values()]
        wrongly = [found.confirmed for by_cases in nulls(sims).values() for found in by_cases.values()]
        harmed = [wrong for by_cases in not_worse(200).values() for _, wrong in by_cases.values()]
        print(json.dumps({"kept": kept, "wrongly": wrongly, "harmed": harmed}))
        return
    text = "\n".join([*tables(sims), *older_table(sims // 5)]).rstrip() + "\n"
    print(text)
    if options.write:
        before, rest = DOCS.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        DOCS.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
