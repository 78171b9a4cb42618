"""Two runs side by side: which cases flipped, with both answers, and how the skills differ."""

from __future__ import annotations

from typing import Any, cast

from upskill.errors import UsageError
from upskill.reports.comparison import shown_answers, words
from upskill.reports.html.data import trial_to_page
from upskill.reports.live.skills import line_diff, skill_text
from upskill.runs.planning.plan import Arm
from upskill.runs.results.comparison import Comparison, Side, compare
from upskill.runs.stores import Run, Store
from upskill.verdicts.statistics import rounded

MOST_CASES = 20  # that are shown with their answers


def comparison_page(store: Store, before: Run, after: Run, models: tuple[str, str], arm: str) -> dict[str, Any]:
    """UsageError where a run has no such model."""
    first = models[0] or next((name for name in before.models if name in after.models), before.models[0])
    second = models[1] or (first if first in after.models else after.models[0])
    for run, model in ((before, first), (after, second)):
        if model not in run.models:
            raise UsageError(f"{run.id}: no model is called {model!r}")
    arm = arm or "skill"
    cases, others = (run.plan.suite.by_id.keys() for run in (before, after))
    if cases.isdisjoint(others):
        return _without_cases(Side(before, first, cast("Arm", arm)), Side(after, second, cast("Arm", arm)))
    found = compare(store, Side(before, first, cast("Arm", arm)), Side(after, second, cast("Arm", arm)))
    changed = [*found.changed("worse"), *found.changed("better")]
    prompts = {case.id: case.prompt for case in after.plan.suite.cases}
    return {
        "before": _side(found.before),
        "after": _side(found.after),
        "words": list(words(found)),
        "p_value": rounded(found.p_value),
        "diff": line_diff(skill_text(before), skill_text(after)) if not found.same_skill else [],
        "same_skill": found.same_skill,
        "changed": [
            {
                "id": case.id,
                "change": case.change,
                "before": case.before,
                "after": case.after,
                "prompt": prompts.get(case.id, ""),
                "answers": _answers(store, found, number),
            }
            for number, case in enumerate(changed)
        ],
        "same": [{"id": case.id, "before": case.before, "after": case.after} for case in found.changed("same")],
    }


def _without_cases(before: Side, after: Side) -> dict[str, Any]:
    """Two versions of a skill that were tried on different cases: only their texts can be compared."""
    texts = skill_text(before.run), skill_text(after.run)
    return {
        "before": _side(before),
        "after": _side(after),
        "words": ["The two runs have no case in common, so only what the skills say can be compared."],
        "p_value": None,
        "diff": line_diff(*texts),
        "same_skill": texts[0] == texts[1],
        "changed": [],
        "same": [],
    }


def _side(side: Side) -> dict[str, Any]:
    run = side.run
    return {
        "run": run.id,
        "skill": run.skill,
        "version": run.plan.skill.visible_hash[:8],
        "created": run.created,
        "model": side.model,
        "arm": side.arm,
        "models": run.models,
        "arms": list(run.plan.arms),
    }


def _answers(store: Store, found: Comparison, number: int) -> list[dict[str, Any]]:
    if number >= MOST_CASES:
        return []
    changed = [*found.changed("worse"), *found.changed("better")]
    return [trial_to_page(result) for result in shown_answers(store, found, changed[number])]
