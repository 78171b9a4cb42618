"""The outcomes of one model by arm: summed up for each arm, and paired between two arms by case and seed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import compress
from operator import attrgetter
from typing import Any, TypeVar, cast

import numpy as np

from upskill.verdicts import statistics
from upskill.verdicts.outcome import CAUSES, Cause, Outcome
from upskill.verdicts.statistics import Estimate, rounded

T = TypeVar("T")
Interval = tuple[float, float]
Key = tuple[str, int]  # case, seed
SNAPSHOTS_BY_CHANCE = 0.01  # a p-value; at most this is not chance
MAX_ERROR_RATE = 0.10  # share of an arm's trials that may error before nothing can be decided
SUSPICIOUS = 0.05  # the p-value from which on error rates differ beyond chance
# The level at which a decision still has to hold when the redrawn trials of both arms count against it.
LEVEL_OF_BOTH_ARMS = 0.93


@dataclass(frozen=True, slots=True)
class ArmOutcomes:
    """The trials of one arm."""

    name: str
    trials: dict[Key, Outcome]

    @property
    def scored(self) -> list[Outcome]:
        return [trial for trial in self.trials.values() if trial.passed is not None]


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """Totals of one arm. All but `errored`, `bugs` and `redrawn` are over scored trials; cost is None where a price is
    missing."""

    arm: str
    passed: int
    failed: int
    errored: int
    bugs: int  # of the errored trials, those that a bug in upskill ended
    redrawn: int  # trials with a failed draw
    pass_rate: float | None
    interval: Interval  # Wilson's, on the effective number of trials
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    cost_per_pass: float | None  # None: unknown, or nothing passed
    seconds: float
    turns: float | None  # of the model, per trial; None: not known
    tool_calls: float | None  # per trial
    tool_errors: float | None  # share of the tool calls; None where there was none
    activated: (
        int | None
    )  # trials that activated the skill they were offered; None where none was offered
    # Trials without an answer that could pass, by what was wrong with it; and passed ones that are verbose.
    causes: Mapping[Cause, int]

    @property
    def scored(self) -> int:
        return self.passed + self.failed

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def disputed(self) -> int:
        return self.causes.get("disputed", 0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "failed": self.failed,
            "errored": self.errored,
            "redrawn": self.redrawn,
            "causes": {cause: self.causes[cause] for cause in CAUSES if cause in self.causes},
            "pass_rate": rounded(self.pass_rate),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": rounded(self.cost_usd, 8),
        }


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of scored trials of two arms, ordered by case and seed."""

    cases: list[str]  # of each pair
    units: list[str]  # of each pair, its case, or the first of the cases that ask nearly the same
    rounds: list[
        int
    ]  # of each pair, the index of its seed among all seeds of its case, errored ones included
    before: list[Outcome]
    after: list[Outcome]

    def __len__(self) -> int:
        return len(self.cases)

    def column(self, read: Callable[[Outcome], float], *, after: bool) -> statistics.Floats:
        return np.fromiter(
            map(read, self.after if after else self.before), dtype=np.float64, count=len(self)
        )

    @property
    def differences(self) -> statistics.Floats:
        return self.column(passed, after=True) - self.column(passed, after=False)

    def same_answers(self, *, after: bool) -> list[int]:
        """For each trial of an arm, the runs of its unit that are one draw with it: they got one and the same answer.

        A cache or a greedy student repeats itself. An answer that the other arm or another unit gives as well is one
        that many draws may share ("yes"), so its repeats are no copies unless most cases got one answer in every run.
        """
        places: dict[int, set[tuple[str, bool]]] = {}
        for arm, trials in ((False, self.before), (True, self.after)):
            for unit, trial in zip(self.units, trials, strict=True):
                places.setdefault(trial.answer, set()).add((unit, arm))
        trials = self.after if after else self.before
        by_case: dict[str, list[int]] = {}
        for case, trial in zip(self.cases, trials, strict=True):
            by_case.setdefault(case, []).append(trial.answer)
        alike = {
            case
            for case, answers in by_case.items()
            if len(answers) > 1 and len({*answers} - {0}) == 1
        }
        if 2 * len(alike) < len(by_case):
            alike = set[str]()
        keys = [(unit, trial.answer) for unit, trial in zip(self.units, trials, strict=True)]
        counts = Counter(keys)
        return [
            counts[key] if key[1] and (case in alike or len(places[key[1]]) == 1) else 1
            for case, key in zip(self.cases, keys, strict=True)
        ]

    @property
    def copies(self) -> set[str]:
        """Cases in which an arm repeats an answer."""
        arms = zip(
            self.cases, self.same_answers(after=False), self.same_answers(after=True), strict=True
        )
        return {case for case, before, after in arms if max(before, after) > 1}

    def draws(self, *, after: bool) -> statistics.Floats:
        """How much of an independent draw each trial is: a unit has n²/∑m² where answers are repeated m times."""
        groups = statistics.CaseGroups.of(self.units)
        same = np.array(self.same_answers(after=after), dtype=np.float64)
        return 1.0 / groups.means(same)[groups.codes] if len(self) else same

    @property
    def answered_by_different_models(self) -> bool:
        """Whether one arm was answered by another snapshot of the model than the other, and not by chance."""
        named = [
            (before.snapshot, after.snapshot, unit)
            for before, after, unit in zip(self.before, self.after, self.units, strict=True)
            if before.snapshot and after.snapshot
        ]
        if not any(before != after for before, after, _ in named):
            return False
        usual = Counter(name for *names, _ in named for name in names).most_common(1)[0][0]
        more = [(after == usual) - (before == usual) for before, after, _ in named]
        apart = {before for before, *_ in named}.isdisjoint(after for _, after, _ in named)
        return (
            apart
            or statistics.sign_flip_p_value(more, [unit for *_, unit in named])
            <= SNAPSHOTS_BY_CHANCE
        )

    def where(self, *, activated: bool) -> Pairs:
        chosen = [trial.activated is activated for trial in self.after]

        def pick(column: list[T]) -> list[T]:
            return list(compress(column, chosen))

        return Pairs(
            pick(self.cases),
            pick(self.units),
            pick(self.rounds),
            pick(self.before),
            pick(self.after),
        )


def by_arm(outcomes: Iterable[Outcome]) -> dict[str, ArmOutcomes]:
    arms: dict[str, ArmOutcomes] = {}
    for outcome in outcomes:
        trials = arms.setdefault(outcome.arm, ArmOutcomes(outcome.arm, {})).trials
        key = (outcome.case, outcome.seed)
        # A retried trial has two rows; the scored one counts.
        if (other := trials.get(key)) is not None:
            first, last = (other, outcome) if outcome.passed is not None else (outcome, other)
            outcome = replace(last, redraws=max(first.redraws, last.redraws))  # noqa: PLW2901
        trials[key] = outcome
    return arms


def pair_arms(
    before: ArmOutcomes, after: ArmOutcomes, twins: Mapping[str, str] | None = None
) -> Pairs:
    """`twins` names for a case the first of those that ask nearly the same."""
    pairs, twins = Pairs([], [], [], [], []), twins or {}
    case, index = None, 0
    for key in sorted(before.trials.keys() | after.trials.keys()):
        case, index = key[0], index + 1 if key[0] == case else 0
        first, second = before.trials.get(key), after.trials.get(key)
        if (
            first is not None
            and second is not None
            and first.passed is not None
            and second.passed is not None
        ):
            pairs.cases.append(case)
            pairs.units.append(twins.get(case, case))
            pairs.rounds.append(index)
            pairs.before.append(first)
            pairs.after.append(second)
    return pairs


def summarize_arm(
    arm: ArmOutcomes, level: float, twins: Mapping[str, str] | None = None
) -> ArmSummary:
    scored = sorted(arm.scored, key=attrgetter("case", "seed"))
    passes = sum(1 for trial in scored if trial.passed)
    costs = [trial.cost_usd for trial in scored]
    total_cost = math.nan if None in costs else math.fsum(cast("list[float]", costs))
    known_cost = None if math.isnan(total_cost) else total_cost
    calls = sum(trial.calls for trial in scored)
    offered = [trial for trial in scored if trial.activated is not None]
    return ArmSummary(
        arm=arm.name,
        passed=passes,
        failed=len(scored) - passes,
        errored=len(arm.trials) - len(scored),
        bugs=sum(trial.bug for trial in arm.trials.values()),
        redrawn=sum(trial.redraws > 0 for trial in arm.trials.values()),
        pass_rate=passes / len(scored) if scored else None,
        interval=share_interval([bool(trial.passed) for trial in scored], scored, level, twins),
        input_tokens=sum(trial.input_tokens for trial in scored),
        output_tokens=sum(trial.output_tokens for trial in scored),
        cached_tokens=sum(trial.cached_tokens for trial in scored),
        cost_usd=known_cost,
        cost_per_pass=known_cost / passes if known_cost is not None and passes else None,
        seconds=math.fsum(trial.seconds for trial in scored),
        turns=(sum(trial.turns for trial in scored) / len(scored) or None) if scored else None,
        tool_calls=calls / len(scored) if scored else None,
        tool_errors=sum(trial.tool_errors for trial in scored) / calls if calls else None,
        activated=sum(trial.activated is True for trial in offered) if offered else None,
        causes=Counter(trial.cause for trial in scored if trial.cause),
    )


def share_interval(
    values: list[bool], trials: list[Outcome], level: float, twins: Mapping[str, str] | None = None
) -> Interval:
    """Wilson's, on the effective number of trials: runs of one case resemble each other."""
    units = [(twins or {}).get(trial.case, trial.case) for trial in trials]
    effective = statistics.effective_trials(values, units) if trials else 0.0
    return statistics.wilson_interval(
        sum(values) / len(values) * effective if values else 0.0, effective, level=level
    )


# Missing trials errored, or were run in the other arm alone. They may not be missing at random: a skill that turns
# failures into errors would look better than it is. So a decision has to hold whatever they would have shown. The same
# goes for a redrawn trial: what it showed is not what it was asked for first. A disputed trial has failed or passed.


@dataclass(frozen=True, slots=True)
class Missing:
    """The lift at both extremes of what errored, redrawn and disputed trials might have shown."""

    worst: Estimate  # each missing trial with the skill failed, each missing one of the baseline passed
    best: Estimate  # the reverse
    p_value: float  # of "both arms error alike", flipping whole cases
    redraw_p_value: float  # of "both arms need as many further draws"
    changes_decision: bool  # at one of the extremes the decision would not hold

    @property
    def arms_differ(self) -> bool:
        return self.p_value <= SUSPICIOUS

    def to_dict(self) -> dict[str, Any]:
        return {
            "worst": self.worst.to_dict(),
            "best": self.best.to_dict(),
            "p_value": rounded(self.p_value),
            "redraw_p_value": rounded(self.redraw_p_value),
            "changes_decision": self.changes_decision,
        }


def fill_in(
    before: ArmOutcomes,
    after: ArmOutcomes,
    twins: Mapping[str, str] | None = None,
    *,
    against_skill: bool,
    both_arms: bool = True,
) -> Pairs:
    """All pairs of which either trial was run, with an extreme result for each that is missing, redrawn or disputed.

    Against the skill, a missing trial with it failed with the most tokens; one of the baseline passed with the fewest.
    Unless `both_arms`, redrawn trials are as they were in the arm that speaks against the decision: the baseline where
    the skill may have been helped.
    """
    scored = [*before.scored, *after.scored]
    longest = max(scored, key=total_tokens, default=None)
    shortest = min(scored, key=total_tokens, default=None)
    stand_ins = (shortest, longest) if against_skill else (longest, shortest)
    return pair_arms(
        _filled(
            before,
            after,
            stand_ins[0],
            passed=against_skill,
            redrawn=both_arms or not against_skill,
        ),
        _filled(
            after,
            before,
            stand_ins[1],
            passed=not against_skill,
            redrawn=both_arms or against_skill,
        ),
        twins,
    )


def p_value_of_difference(
    before: ArmOutcomes, after: ArmOutcomes, counts: Callable[[Outcome], bool]
) -> float:
    """The exact two-sided p-value of "as many trials of both arms do this", flipping the sign of whole cases."""
    keys = sorted(before.trials.keys() & after.trials.keys())
    more = [int(counts(after.trials[key])) - int(counts(before.trials[key])) for key in keys]
    return statistics.sign_flip_p_value(more, [case for case, _ in keys]) if keys else 1.0


def bounds_of_share(
    arm: ArmOutcomes, other: ArmOutcomes, level: float, twins: Mapping[str, str]
) -> Interval:
    """The interval of the pass rate, whatever missing and redrawn trials would have shown."""
    ends: list[Interval] = []
    for passes in (False, True):
        filled = _filled(
            arm, other, next(iter(arm.trials.values()), None), passed=passes, redrawn=True
        )
        trials = sorted(filled.trials.values(), key=attrgetter("case", "seed"))
        ends.append(share_interval([bool(trial.passed) for trial in trials], trials, level, twins))
    return ends[0][0], ends[1][1]


def _filled(
    arm: ArmOutcomes, other: ArmOutcomes, like: Outcome | None, *, passed: bool, redrawn: bool
) -> ArmOutcomes:
    def stand_in(trial: Outcome) -> Outcome:
        if like is None:
            return trial
        tokens = {"input_tokens": like.input_tokens, "output_tokens": like.output_tokens}
        return replace(
            trial, arm=arm.name, passed=passed, cost_usd=like.cost_usd, answer=0, **tokens
        )

    def is_missing(trial: Outcome) -> bool:
        return trial.passed is None or (redrawn and trial.redraws > 0)

    def settled(trial: Outcome) -> Outcome:
        return replace(trial, passed=passed) if trial.cause == "disputed" else trial

    known = {
        key: stand_in(trial) if is_missing(trial) else settled(trial)
        for key, trial in arm.trials.items()
    }
    never_run = {key: stand_in(trial) for key, trial in other.trials.items() if key not in known}
    return ArmOutcomes(arm.name, known | never_run)


# What a column of pairs can hold.

passed = attrgetter("passed")
input_tokens = attrgetter("input_tokens")
output_tokens = attrgetter("output_tokens")


def total_tokens(outcome: Outcome) -> float:
    return float(outcome.input_tokens + outcome.output_tokens)


def cost(outcome: Outcome) -> float:
    return math.nan if outcome.cost_usd is None else outcome.cost_usd
