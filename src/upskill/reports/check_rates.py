"""How often each check of a run passes, by model and arm: where students fail, tier by tier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rich.table import Table

from upskill.reports.numbers import percent
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.verdicts.statistics import effective_trials, wilson_interval


@dataclass
class CheckRate:
    """One check of one model in one arm. Errored trials are not counted."""

    model: str
    check: str
    arm: str
    passed: list[bool] = field(default_factory=list[bool])
    cases: list[str] = field(default_factory=list[str])

    @property
    def rate(self) -> float:
        return sum(self.passed) / len(self.passed)

    @property
    def interval(self) -> tuple[float, float]:
        """Of 95 %, with runs of one case counted for what they are worth together."""
        effective = effective_trials(self.passed, self.cases)
        return wilson_interval(self.rate * effective, effective)

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        counts = {"passed": sum(self.passed), "trials": len(self.passed), "rate": self.rate, "low": low, "high": high}
        return {"model": self.model, "check": self.check, "arm": self.arm, **counts}

    def __str__(self) -> str:
        low, high = self.interval
        return f"{percent(self.rate)} [{percent(low)}, {percent(high)}] of {len(self.passed)}"


def check_rates(plan: StoredPlan, results: Iterable[Result]) -> list[CheckRate]:
    """Every check in the order of the suite. One that a trial never came to, for a cut-off answer, has failed."""
    checks = {case.id: list(dict.fromkeys(case.check_names)) for case in plan.suite.cases}
    order = list(dict.fromkeys(name for names in checks.values() for name in names))
    rates: dict[tuple[str, str, str], CheckRate] = {}
    for result in results:
        if result.passed is None:
            continue
        trial = result.trial
        for name in checks[trial.case]:
            rate = rates.setdefault((trial.model, name, trial.arm), CheckRate(trial.model, name, trial.arm))
            findings = [finding.passed for finding in result.judgements if finding.check == name]
            rate.passed.append(bool(findings) and all(findings))
            rate.cases.append(trial.case)
    arms: list[str] = list(plan.arms)
    return sorted(rates.values(), key=lambda rate: (rate.model, order.index(rate.check), arms.index(rate.arm)))


def render(rates: Iterable[CheckRate], baseline: str) -> Iterator[Table]:
    """A table for each model, with a column for each arm."""
    for model, group in groupby(rates, key=lambda rate: rate.model):
        rows = list(group)
        arms = list(dict.fromkeys(row.arm for row in rows))
        table = Table(title=model, title_justify="left", box=None, pad_edge=False)
        table.add_column("check")
        for arm in arms:
            table.add_column(baseline if arm == "baseline" else arm)
        for check in dict.fromkeys(row.check for row in rows):
            by_arm = {row.arm: str(row) for row in rows if row.check == check}
            table.add_row(check, *(by_arm.get(arm, "") for arm in arms))
        yield table
