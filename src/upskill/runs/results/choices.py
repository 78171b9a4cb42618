"""A Choice is one model in one arm: which ones are worth their price, and the cheapest that is good enough."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from upskill.verdicts.arms import Interval, by_arm, summarize_arm
from upskill.verdicts.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Choice:
    """What a task costs with one model in one arm, and how often it passes."""

    model: str
    arm: str
    trials: int
    pass_rate: float
    interval: Interval
    cost_per_task: float | None  # None: a price is missing
    cost_per_pass: float | None


def list_choices(
    outcomes: Iterable[Outcome], *, arms: Sequence[str] = ("baseline", "skill")
) -> tuple[Choice, ...]:
    """Cheapest first, those without a price last."""
    by_model: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.arm in arms:
            by_model.setdefault(outcome.model, []).append(outcome)
    choices: list[Choice] = []
    for model, rows in by_model.items():
        for arm in by_arm(rows).values():
            summary = summarize_arm(arm)
            if summary.pass_rate is not None:
                cost = None if summary.cost_usd is None else summary.cost_usd / summary.scored
                rate, interval = summary.pass_rate, summary.interval
                choices.append(
                    Choice(
                        model, arm.name, summary.scored, rate, interval, cost, summary.cost_per_pass
                    )
                )
    return tuple(sorted(choices, key=_cheapest_first))


def _cheapest_first(choice: Choice) -> tuple[float, float, str, str]:
    cost = math.inf if choice.cost_per_task is None else choice.cost_per_task
    return cost, -choice.pass_rate, choice.model, choice.arm


def pareto(choices: Iterable[Choice]) -> tuple[Choice, ...]:
    """Those with a price that no other beats on both cost per task and pass rate, cheapest first."""
    front: list[Choice] = []
    for choice in sorted(choices, key=_cheapest_first):
        if choice.cost_per_task is not None and (
            not front or choice.pass_rate > front[-1].pass_rate
        ):
            front.append(choice)
    return tuple(front)


def cheapest(choices: Iterable[Choice], target: float) -> Choice | None:
    able = [
        choice
        for choice in choices
        if choice.cost_per_task is not None and choice.pass_rate >= target
    ]
    return min(able, key=_cheapest_first, default=None)
