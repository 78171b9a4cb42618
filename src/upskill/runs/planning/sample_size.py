"""How many cases and runs it takes to see a lift, what that costs, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from upskill.models import Address
from upskill.models.embedded.capacity import usable_cores
from upskill.runs.planning.estimate import CostEstimate, KnownPrices, estimate
from upskill.runs.planning.plan import Plan
from upskill.runs.stores import Store
from upskill.suites import Suite
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.planning import POWER, VarianceComponents, cases_needed, power

RUNS = (1, 3, 5, 10)
# Seconds for a trial where no stored run tells: a guess, and shown as one. An agent that acts makes several calls.
REMOTE_TRIAL = (2.0, 20.0)
EMBEDDED_TRIAL = (
    1.0,
    15.0,
)  # on a slow core, from a few words of a small model to a long answer of a larger one

Range = tuple[float, float]  # from, to


@dataclass(frozen=True, kw_only=True)
class LiftToDetect:
    lift: float = 0.1
    chance: float = POWER  # of seeing it, if it is there
    baseline: float = 0.2  # the pass rate without the skill, where no stored run tells


@dataclass(frozen=True)
class SampleSize:
    """One way to see the lift: so many runs of so many cases."""

    runs: int
    cases: int
    trials: int
    cost_usd: Range | None  # None: the price is not known, or there is no suite to estimate it from
    seconds: Range
    chance_with_suite: float | None  # with the cases of the suite at hand; None: there is none


@dataclass(frozen=True)
class SampleSizes:
    """Every way to see the lift with one model, and the assumptions behind it."""

    model: str
    variance: VarianceComponents
    is_measured: bool  # by a stored run; otherwise the variance is assumed
    cases: int | None  # of the suite at hand; None: there is none
    unused: int | None  # of these, those that no search has used; near-duplicates count once
    concurrency: int  # trials at a time
    seconds_per_trial: Range
    is_timed: bool  # by a stored run; otherwise the time is a guess
    sizes: tuple[SampleSize, ...]


def sample_sizes(
    plan: Plan, target: LiftToDetect, store: Store | None, prices: KnownPrices, concurrency: int
) -> Iterator[SampleSizes]:
    """From each model's latest stored run of the skill, or from assumptions."""
    for address in plan.models:
        outcomes = (
            _latest_outcomes(store, plan.skill.name, address.name, plan.suite) if store else []
        )
        outcomes = [outcome for outcome in outcomes if outcome.case not in plan.used_cases]
        model_plan = replace(plan, models=(address,))
        unused = {plan.twins.get(case, case) for case in plan.suite.by_id.keys() - plan.used_cases}
        suite = (
            estimate(model_plan, model_plan.trials(), prices),
            len(plan.suite.cases),
            len(unused),
        )
        yield _sizes(address, target, outcomes, concurrency, suite, plan.twins)


def sample_sizes_without_suite(
    models: Sequence[Address],
    target: LiftToDetect,
    store: Store | None,
    skill: str,
    concurrency: int,
) -> Iterator[SampleSizes]:
    for address in models:
        outcomes = _latest_outcomes(store, skill, address.name) if store and skill else []
        yield _sizes(address, target, outcomes, concurrency, None, {})


def _latest_outcomes(
    store: Store, skill: str, model: str, suite: Suite | None = None
) -> list[Outcome]:
    """Of the run that shares most cases with the suite, and the latest of these. Its baseline was no skill at all."""
    prompts = {case.prompt for case in suite.cases} if suite else set[str]()
    runs = [
        run
        for run in store.runs(skill, newest_first=True)
        if model in run.models and not run.plan.reference_skill
    ]
    shared = {run.id: len(prompts & {case.prompt for case in run.plan.suite.cases}) for run in runs}
    for run in sorted(runs, key=lambda run: -shared[run.id]):
        if suite and not shared[run.id]:
            break
        of_model = [outcome for outcome in store.outcomes(run) if outcome.model == model]
        if {"baseline", "skill"} <= {outcome.arm for outcome in of_model}:
            return of_model
    return []


def _sizes(
    address: Address,
    target: LiftToDetect,
    outcomes: Sequence[Outcome],
    concurrency: int,
    suite: tuple[CostEstimate, int, int] | None,
    twins: Mapping[str, str],
) -> SampleSizes:
    """`suite` is what one round of its cases costs, how many there are, and how many can show a gain."""
    differences, cases = _differences(outcomes, twins)
    is_measured = len(set(cases)) > 1
    if is_measured:
        variance = VarianceComponents.measured(differences, cases)
    else:
        variance = VarianceComponents.assumed(target.baseline, target.lift)
    seconds = EMBEDDED_TRIAL if address.provider == "local" else REMOTE_TRIAL
    if outcomes:
        mean = sum(outcome.seconds for outcome in outcomes) / len(outcomes)
        seconds = mean, mean
    lanes = usable_cores() if address.provider == "local" else concurrency
    sizes: list[SampleSize] = []
    for runs in RUNS:
        needed = cases_needed(target.lift, runs, variance, chance=target.chance)
        if needed is None:
            continue
        trials = 2 * needed * runs
        least, most = (each * math.ceil(trials / lanes) for each in seconds)
        cost, chance = None, None
        if suite:
            one_round, at_hand, unused = suite
            low, high = (each * needed * runs / at_hand for each in one_round.cost_usd)
            cost = None if one_round.unknown else (low, high)
            chance = power(target.lift, unused, runs, variance)
        sizes.append(SampleSize(runs, needed, trials, cost, (least, most), chance))
    at_hand, unused = suite[1:] if suite else (None, None)
    times = lanes, seconds, bool(outcomes)
    return SampleSizes(address.name, variance, is_measured, at_hand, unused, *times, tuple(sizes))


def _differences(
    outcomes: Sequence[Outcome], twins: Mapping[str, str]
) -> tuple[list[float], list[str]]:
    scored = [outcome for outcome in outcomes if outcome.passed is not None]
    before = {
        (outcome.case, outcome.seed): bool(outcome.passed)
        for outcome in scored
        if outcome.arm == "baseline"
    }
    pairs = [
        (
            float(bool(outcome.passed)) - float(before[outcome.case, outcome.seed]),
            twins.get(outcome.case, outcome.case),
        )
        for outcome in scored
        if outcome.arm == "skill" and (outcome.case, outcome.seed) in before
    ]
    return [difference for difference, _ in pairs], [case for _, case in pairs]
