"""The outcomes of one model by arm: summed up for each arm, and paired between two arms by case and draw."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from upskill.verdicts.interval import Estimate, mean_share, rounded
from upskill.verdicts.outcome import CAUSES, Cause, Outcome

Interval = tuple[float, float]
Key = tuple[str, int]  # case, seed of the draw
MAX_MISSING_SHARE = 0.15  # of an arm's trials; with more, nothing is decided
MAX_MISSING_ALWAYS = 2  # so many may be missing, whatever their share
EXCESS_P_VALUE = 0.25  # from here down, one arm misses more than the other by more than chance


@dataclass(frozen=True, slots=True)
class ArmOutcomes:
    """The trials of one arm."""

    name: str
    trials: dict[Key, Outcome]

    @property
    def scored(self) -> list[Outcome]:
        """In order of case and draw, so that sums do not depend on the order of the rows."""
        keys = sorted(key for key, trial in self.trials.items() if trial.passed is not None)
        return [self.trials[key] for key in keys]

    @property
    def missing(self) -> int:
        return sum(trial.passed is None for trial in self.trials.values())

    @property
    def misses_too_many(self) -> bool:
        allowed = max(MAX_MISSING_ALWAYS, MAX_MISSING_SHARE * len(self.trials))
        return self.missing > allowed or (bool(self.trials) and self.missing == len(self.trials))

    def of_cases(self, cases: Collection[str]) -> ArmOutcomes:
        trials = {key: trial for key, trial in self.trials.items() if key[0] in cases}
        return ArmOutcomes(self.name, trials)


def by_arm(outcomes: Iterable[Outcome]) -> dict[str, ArmOutcomes]:
    arms: dict[str, ArmOutcomes] = {}
    for outcome in outcomes:
        arm = arms.setdefault(outcome.arm, ArmOutcomes(outcome.arm, {}))
        arm.trials[outcome.case, outcome.seed] = outcome
    return arms


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """Totals of one arm. All but `missing` and `bugs` are over graded trials; cost is None where a price is missing."""

    arm: str
    passed: int
    failed: int
    missing: int
    bugs: int  # of the missing trials, those that a bug in upskill ended
    pass_rate: float | None  # mean over groups
    interval: Interval  # of the pass rate on tasks like these, at 95 %
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    cost_per_pass: float | None  # None: unknown, or nothing passed
    seconds: float
    turns: float | None  # of the model, per trial; None: not known
    tool_calls: float | None  # per trial
    tool_errors: float | None  # share of the tool calls; None where there was none
    activated: int | None  # trials that activated the skill they were offered; None: none offered
    # Trials without an answer that could pass, by what was wrong with it; and passed ones that are verbose.
    causes: Mapping[Cause, int]

    @property
    def scored(self) -> int:
        return self.passed + self.failed

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def to_dict(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "failed": self.failed,
            "missing": self.missing,
            "causes": {cause: self.causes[cause] for cause in CAUSES if cause in self.causes},
            "pass_rate": rounded(self.pass_rate),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": rounded(self.cost_usd, 8),
        }


def summarize_arm(arm: ArmOutcomes) -> ArmSummary:
    scored = arm.scored
    count = len(scored)
    passes = sum(trial.passed is True for trial in scored)
    costs = [trial.cost_usd for trial in scored if trial.cost_usd is not None]
    cost = math.fsum(costs) if len(costs) == count else None
    calls = sum(trial.calls for trial in scored)
    offered = [trial for trial in scored if trial.activated is not None]
    rate = pass_rate(scored)
    return ArmSummary(
        arm=arm.name,
        passed=passes,
        failed=count - passes,
        missing=arm.missing,
        bugs=sum(trial.bug for trial in arm.trials.values()),
        pass_rate=rate.value if rate else None,
        interval=rate.interval if rate else (0.0, 1.0),
        input_tokens=sum(trial.input_tokens for trial in scored),
        output_tokens=sum(trial.output_tokens for trial in scored),
        cached_tokens=sum(trial.cached_tokens for trial in scored),
        cost_usd=cost,
        cost_per_pass=cost / passes if cost is not None and passes else None,
        seconds=math.fsum(trial.seconds for trial in scored),
        turns=(sum(trial.turns for trial in scored) / count or None) if count else None,
        tool_calls=calls / count if count else None,
        tool_errors=sum(trial.tool_errors for trial in scored) / calls if calls else None,
        activated=sum(trial.activated is True for trial in offered) if offered else None,
        causes=Counter(trial.cause for trial in scored if trial.cause),
    )


def case_group(trial: Outcome) -> Hashable:
    """What counts as independent for tasks like these."""
    return trial.group or trial.case


def pass_rate(
    scored: Iterable[Outcome],
    *,
    level: float = 0.95,
    unit: Callable[[Outcome], Hashable] = case_group,
    read: Callable[[Outcome], bool] = lambda trial: trial.passed is True,
) -> Estimate | None:
    """Mean share of trials that pass, or do what `read` says, every unit weighing the same; None without trials."""
    shares = _shares((unit(trial), read(trial)) for trial in scored)
    return mean_share(shares, level=level) if shares else None


def mean_pass_rate(scored: Iterable[Outcome]) -> float | None:
    """Without its interval, which takes time."""
    shares = _shares((case_group(trial), trial.passed is True) for trial in scored)
    return fmean(shares) if shares else None


def _shares(trials: Iterable[tuple[Hashable, bool]]) -> list[float]:
    """Of each unit."""
    values: dict[Hashable, list[bool]] = {}
    for unit, passed in trials:
        values.setdefault(unit, []).append(passed)
    return [fmean(each) for each in values.values()]


# Pairs, and what is missing
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pair:
    """One case and draw, graded in both arms."""

    before: Outcome
    after: Outcome

    @property
    def case(self) -> str:
        return self.after.case

    @property
    def difference(self) -> float:
        return float(self.after.passed is True) - float(self.before.passed is True)

    @property
    def saving(self) -> float:
        """Of tokens, as a share of both arms' in [-1, 1]: a trial of any length counts the same."""
        before, after = total_tokens(self.before), total_tokens(self.after)
        return (before - after) / (before + after) if before + after else 0.0


def pair_arms(before: ArmOutcomes, after: ArmOutcomes) -> list[Pair]:
    keys = sorted(before.trials.keys() & after.trials.keys())
    pairs = [Pair(before.trials[key], after.trials[key]) for key in keys]
    return [
        pair for pair in pairs if pair.before.passed is not None and pair.after.passed is not None
    ]


@dataclass(frozen=True, slots=True)
class Missing:
    """How many trials of each arm are missing, and by how many one arm misses more than chance would make it."""

    baseline: int
    skill: int
    excess: int

    def to_dict(self) -> dict[str, Any]:
        return {"baseline": self.baseline, "skill": self.skill, "excess": self.excess}


def count_missing(before: ArmOutcomes, after: ArmOutcomes) -> Missing:
    counts = before.missing, after.missing
    excess = abs(counts[0] - counts[1])
    if 2.0 * chance_of_heads(max(counts), sum(counts)) > EXCESS_P_VALUE:
        excess = 0
    return Missing(*counts, excess)


def chance_of_heads(least: int, throws: int) -> float:
    """The chance that a fair coin shows at least so many heads."""
    ways = sum(math.comb(throws, heads) for heads in range(least, throws + 1))
    return ways / 2**throws


def fill_excess(
    before: ArmOutcomes, after: ArmOutcomes, missing: Missing, *, against_skill: bool
) -> list[Pair]:
    """Pairs of as many missing trials as one arm misses in excess, set where they hurt the claim most."""
    fewer, more = (before, after) if missing.skill > missing.baseline else (after, before)
    passes = not against_skill if more is after else against_skill
    filled: list[Pair] = []
    for key, trial in sorted(more.trials.items()):
        partner = fewer.trials.get(key)
        if trial.passed is None and partner is not None and partner.passed is not None:
            guess = replace(trial, passed=passes)
            filled.append(Pair(partner, guess) if more is after else Pair(guess, partner))
    filled.sort(key=lambda pair: pair.difference, reverse=not against_skill)
    return filled[: missing.excess]


def total_tokens(outcome: Outcome) -> int:
    return outcome.input_tokens + outcome.output_tokens
