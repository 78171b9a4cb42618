"""Which cases failed with the skill when they were last run."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from upskill.runs.stores import Run, RunStore
from upskill.suites import Suite

MOST_RUNS = 50  # that are looked through, latest first


def failing_cases(store: RunStore, skill: str, suite: Suite, models: Collection[str]) -> set[str] | None:
    """The cases of a suite that a model failed with this skill in the latest run that has them; an error is no pass.

    A later run of a part replaces what an earlier one says of its cases. None: no stored run has any of them.
    """
    latest: dict[str, bool] = {}
    runs = (run for run in store.runs(skill, newest_first=True) if _is_of(run, suite) and {*models} & {*run.models})
    for run in islice(runs, MOST_RUNS):
        found: dict[str, bool] = {}
        for outcome in store.outcomes(run):
            if outcome.arm == "skill" and outcome.model in models and outcome.case in suite.by_id:
                found[outcome.case] = found.get(outcome.case, False) or outcome.passed is not True
        latest = found | latest
        if latest.keys() == suite.by_id.keys():
            break
    return {case for case, failed in latest.items() if failed} if latest else None


def _is_of(run: Run, suite: Suite) -> bool:
    """It was read from the same file, or asks the same under the same id."""
    known = run.plan["suite"]
    asked = {case["id"]: case["prompt"] for case in known["cases"]}
    return known["source"] == suite.source or any(asked.get(case.id) == case.prompt for case in suite.cases)
