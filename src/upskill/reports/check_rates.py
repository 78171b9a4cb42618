"""How often each check passes, by model and arm (`upskill show RUN --checks`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from upskill.reports.report import Column, Measure, Note, Report, Table
from upskill.runs.planning.plan import Result
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.runs.results.shown import Unfinished
from upskill.runs.stores import Run
from upskill.verdicts.interval import Estimate, mean_share, rounded, rounded_interval


@dataclass
class CheckRate:
    """How often one check passed in one arm. Missing trials are not counted."""

    model: str
    check: str
    arm: str
    by_case: dict[str, list[bool]] = field(default_factory=dict[str, list[bool]])

    @cached_property
    def rate(self) -> Estimate:
        """Mean over cases, at 95 %."""
        return mean_share([sum(each) / len(each) for each in self.by_case.values()])

    def to_dict(self) -> dict[str, Any]:
        passed = [each for of_case in self.by_case.values() for each in of_case]
        return {
            "model": self.model,
            "check": self.check,
            "arm": self.arm,
            "passed": sum(passed),
            "trials": len(passed),
            "rate": rounded(self.rate.value),
            "interval": rounded_interval(self.rate.interval),
        }


def compute_check_rates(plan: StoredPlan, results: Iterable[Result]) -> list[CheckRate]:
    """Every check in the order of the suite. One that never ran because the answer was cut off has failed."""
    checks = {case.id: list(dict.fromkeys(case.check_names)) for case in plan.suite.cases}
    order = list(dict.fromkeys(name for names in checks.values() for name in names))
    arms: list[str] = list(plan.arms)
    rates: dict[tuple[str, str, str], CheckRate] = {}
    for result in results:
        trial = result.trial
        for name in checks[trial.case] if result.passed is not None else ():
            key = (trial.model, name, trial.arm)
            findings = [finding.passed for finding in result.findings if finding.check == name]
            passed = bool(findings) and all(findings)
            rate = rates.setdefault(key, CheckRate(*key))
            rate.by_case.setdefault(trial.case, []).append(passed)
    return sorted(
        rates.values(), key=lambda rate: (rate.model, order.index(rate.check), arms.index(rate.arm))
    )


def report_check_rates(
    run: Run, results: Iterable[Result], unfinished: Mapping[str, Unfinished]
) -> Report:
    shown = (each for each in results if each.trial.model not in unfinished)
    rates = compute_check_rates(run.plan, shown)
    columns = (Column("Check"), Column("Model"), Column("Arm"), Column("Passes", "share"))
    rows = tuple(
        (rate.check, rate.model, run.plan.labels[rate.arm], Measure.of(rate.rate)) for rate in rates
    )
    notes: list[Note] = []
    for model, so_far in unfinished.items():
        when = "Its check pass rates are shown once all trials have run."
        notes.append(Note(f"{run.id}: {model} is {so_far}. {when}", "caveat"))
    title = f"How often each check of {run.skill} passes"
    if not rates and not unfinished:
        title = f"No trial in {run.id} was graded, so no check passed or failed."
    return Report(
        title=title,
        name=run.skill,
        data={
            "run": run.id,
            "checks": [rate.to_dict() for rate in rates],
            "unfinished": {model: asdict(each) for model, each in unfinished.items()},
        },
        tables=(Table(columns=columns, rows=rows),),
        notes=tuple(notes),
    )
