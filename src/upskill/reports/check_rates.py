"""How often each check passes, by model and arm (`upskill show RUN --checks`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from upskill.reports.report import Cell, Measure, Note, Report, Table
from upskill.runs.planning.plan import Result
from upskill.runs.results.shown import Unfinished
from upskill.runs.stores import Run
from upskill.verdicts.interval import mean_share, rounded, rounded_interval


def report_check_rates(
    run: Run, results: Iterable[Result], unfinished: Mapping[str, Unfinished]
) -> Report:
    """Every check in the order of the suite. One that never ran because the answer was cut off has failed."""
    checks = {case.id: list(dict.fromkeys(case.check_names)) for case in run.plan.suite.cases}
    # By model, check and arm: how often it passed in each case. Missing trials are not counted.
    passes: dict[tuple[str, str, str], dict[str, list[bool]]] = {}
    for result in results:
        trial = result.trial
        if result.passed is None or trial.model in unfinished:
            continue
        for name in checks[trial.case]:
            findings = [finding.passed for finding in result.findings if finding.check == name]
            by_case = passes.setdefault((trial.model, name, trial.arm), {})
            by_case.setdefault(trial.case, []).append(bool(findings) and all(findings))
    order = list(dict.fromkeys(name for names in checks.values() for name in names))
    arms: list[str] = list(run.plan.arms)
    rows: list[Mapping[str, Cell]] = []
    data: list[dict[str, Any]] = []
    for key in sorted(passes, key=lambda key: (key[0], order.index(key[1]), arms.index(key[2]))):
        model, check, arm = key
        by_case = passes[key].values()
        rate = mean_share([sum(each) / len(each) for each in by_case])
        label = run.plan.labels[arm]
        rows.append({"Check": check, "Model": model, "Arm": label, "Passes": Measure.of(rate)})
        data.append(
            {
                "model": model,
                "check": check,
                "arm": arm,
                "passed": sum(map(sum, by_case)),
                "trials": sum(map(len, by_case)),
                "rate": rounded(rate.value),
                "interval": rounded_interval(rate.interval),
            }
        )
    title = f"How often each check of {run.skill} passes"
    if not rows and not unfinished:
        title = f"No trial in {run.id} was graded, so no check passed or failed."
    when = "Its check pass rates are shown once all trials have run."
    return Report(
        title=title,
        name=run.skill,
        data={
            "run": run.id,
            "checks": data,
            "unfinished": {model: asdict(each) for model, each in unfinished.items()},
        },
        tables=[Table.of(rows)],
        notes=[
            Note(f"{run.id}: {model} is {so_far}. {when}", "caveat")
            for model, so_far in unfinished.items()
        ],
    )
