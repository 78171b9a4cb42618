"""A Forecast says, before the first call, what a suite can decide about a skill and one model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from upskill.runs.planning.plan import Plan
from upskill.runs.stores import Run, Store
from upskill.skills.seen import fresh_cases
from upskill.verdicts import LEVEL_OF_TASKS, LEVEL_OF_THESE
from upskill.verdicts.planning import Chances, best_pass_rate, chance_to_show

LIFTS = (0.2, 0.4, 0.6)
USUAL_BASELINE = 0.2  # where no stored run tells


@dataclass(frozen=True, slots=True)
class Forecast:
    model: str
    draws: int
    is_exact: bool
    cases: int
    units: int  # fresh cases, and groups of them, that count for tasks like these
    baseline: float
    is_measured: bool  # the baseline, by a stored run
    chances: Mapping[float, Chances]  # of `helps`, by the true lift
    best_pass_rate: Mapping[str, float]  # that can be shown, by what it is about

    def to_dict(self) -> dict[str, Any]:
        chances = {
            f"{lift:g}": {
                "tasks": round(each.tasks, 2),
                "these": round(each.these, 2),
                "either": round(each.either, 2),
            }
            for lift, each in self.chances.items()
        }
        return {
            "model": self.model,
            "draws": self.draws,
            "exact": self.is_exact,
            "cases": self.cases,
            "fresh": self.units,
            "baseline": round(self.baseline, 2),
            "baseline_source": "stored run" if self.is_measured else "assumption",
            "chances": chances,
            "best_pass_rate": {
                about: round(rate, 2) for about, rate in self.best_pass_rate.items()
            },
        }


def make_forecasts(plan: Plan, seen: Mapping[str, str], store: Store | None) -> Iterator[Forecast]:
    fresh = fresh_cases(seen, plan.skill.text_hash, plan.suite.by_id)
    groups = {case.group or case.id for case in plan.suite.cases if case.id in fresh}
    cases = len(plan.suite.cases)
    for model in plan.addresses:
        measured = _measured_baseline(store, plan.skill.name, model) if store else None
        baseline = USUAL_BASELINE if measured is None else measured
        is_exact = plan.is_exact(model)
        draws = plan.rounds_of(model)
        # Several models share the error.
        level = 1.0 - (1.0 - LEVEL_OF_TASKS) / len(plan.addresses)
        chances: dict[float, Chances] = {}
        for lift in LIFTS:
            on_all = chance_to_show(
                lift, cases, draws, baseline=baseline, exact=is_exact, level=level
            )
            on_fresh = chance_to_show(
                lift, len(groups), draws, baseline=baseline, exact=is_exact, level=level
            )
            either = max(on_all.these, on_fresh.tasks)
            if len(groups) == cases:
                either = on_all.either
            chances[lift] = Chances(tasks=on_fresh.tasks, these=on_all.these, either=either)
        level_of_these = level if is_exact else max(level, LEVEL_OF_THESE)
        best = {"these": best_pass_rate(cases * draws, level_of_these)}
        if groups:
            best["tasks"] = best_pass_rate(len(groups), level)
        yield Forecast(
            model=model,
            draws=draws,
            is_exact=is_exact,
            cases=cases,
            units=len(groups),
            baseline=baseline,
            is_measured=measured is not None,
            chances=chances,
            best_pass_rate=best,
        )


def _measured_baseline(store: Store, skill: str, model: str) -> float | None:
    """The pass rate without the skill in its newest run that has one."""
    for run in store.runs(skill, newest_first=True, listed=True):
        rate = _baseline_of(run, model)
        if rate is not None:
            return rate
    return None


def _baseline_of(run: Run, model: str) -> float | None:
    if run.plan.reference_skill:
        return None
    for verdict in run.plan.analysis.kept.verdicts:
        if verdict["model"] == model:
            return verdict["baseline"]["pass_rate"]
    return None
