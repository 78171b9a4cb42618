"""An evaluation as the fields of its JSON document, and a verdict as a row of CSV. Both are a promise: names stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from upskill.reports.fields import named, pick
from upskill.reports.trial_rows import author_of
from upskill.runs.results.choices import Choice, cheapest, list_choices, pareto
from upskill.runs.results.diagnosis import diagnose
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.reviews import count_marks
from upskill.runs.stores import Run
from upskill.suites import count_authors
from upskill.verdicts.interval import rounded, rounded_interval
from upskill.verdicts.requirements import Ruling
from upskill.verdicts.verdict import Verdict

# Of CSV.
COLUMNS: Mapping[str, str] = {
    "run": "run.id",
    "created": "run.created",
    "skill": "run.skill",
    "model": "verdict.model",
    "decision": "verdict.decision",
    "about": "verdict.about",  # tasks like these, or these cases
    "lift": "verdict.lift",
    "low": "verdict.interval.0",
    "high": "verdict.interval.1",
    "level": "verdict.level",
    "reason": "verdict.reason",  # of undecided
    "cases": "verdict.cases",
    "pairs": "verdict.pairs",
    "other_decision": "verdict.other.decision",  # the answer to the other question; empty: there is none
    "other_lift": "verdict.other.lift",
    "other_low": "verdict.other.interval.0",
    "other_high": "verdict.other.interval.1",
    "baseline_pass_rate": "verdict.baseline.pass_rate",
    "skill_pass_rate": "verdict.skill.pass_rate",
    "baseline_tokens": "verdict.baseline.total_tokens",
    "skill_tokens": "verdict.skill.total_tokens",
    "token_savings": "verdict.token_savings",
    "cost_usd": "cost",
    "missing": "missing",
    "activated": "verdict.activation.rate",
    "baseline_turns": "verdict.baseline.turns",
    "skill_turns": "verdict.skill.turns",
    "baseline_calls": "verdict.baseline.tool_calls",
    "skill_calls": "verdict.skill.tool_calls",
    "baseline_tool_errors": "verdict.baseline.tool_errors",
    "skill_tool_errors": "verdict.skill.tool_errors",
    "bugs": "bugs",
    "caveats": "caveats",
}

MAX_GROUPS = 40  # groups per kind: those with most cases
NOT_TAGGED = "(no tag)"


def document(evaluation: Evaluation) -> dict[str, Any]:
    plan, stored = evaluation.plan, evaluation.run.plan
    models: list[dict[str, Any]] = []
    for verdict in evaluation.verdicts:
        diagnosis: dict[str, list[str]] = {}
        for each in diagnose(evaluation.outcomes_of(verdict.model)):
            for problem in each.problems:
                diagnosis.setdefault(problem, []).append(each.case)
        models.append(verdict.to_dict() | {"diagnosis": diagnosis})
    judge: dict[str, Any] | None = None
    if plan.judge:
        judge = {"model": plan.judge.name, "errors": []}
        for model, by_arm in evaluation.judge_errors.items():
            rows = ((model, arm, *counts) for arm, counts in by_arm.items())
            judge["errors"] += named(rows, "model", "arm", "ungraded", "trials")
    document = {
        "run": evaluation.run.id,
        "skill": pick(stored.skill, "name", "fingerprint", "tokens"),
        "suite": {
            "cases": len(plan.suite.cases),
            "fresh": len(evaluation.fresh),
            "fingerprint": stored.suite.fingerprint,
            "part": plan.suite.part and asdict(plan.suite.part),
            "authors": count_authors(case.metadata for case in plan.suite.cases),
        },
        "models": models,
        "groups": _lifts_by_group(evaluation),
        "requirements": requirements(evaluation.rulings),
        "errors": errors([evaluation]),
        "judge": judge,
        "bugs": bugs([evaluation]),
        "choices": _choices(evaluation),
        "spent": spent(evaluation.spent),
        "making": {
            "cost_usd": rounded(stored.analysis.making_cost, 8),
            "source": stored.analysis.making_source,
        },
        **pick(evaluation, "snapshots", "halted"),
        "stopped": named(evaluation.stopped.items(), "model", "message"),
        "warnings": [*evaluation.warnings, *evaluation.caveats],
        "invalid": [{**asdict(trial), "reason": reason} for trial, reason in evaluation.invalid],
    }
    if evaluation.reviews:
        document["feedback"] = {"marks": count_marks(evaluation.reviews)}
    return document


def spent(by_role: Mapping[str, tuple[int, float | None]]) -> dict[str, Any]:
    return {
        role: {"tokens": tokens, "cost_usd": rounded(cost, 8)}
        for role, (tokens, cost) in by_role.items()
    }


def requirements(rulings: Iterable[tuple[str, Ruling]]) -> list[dict[str, Any]]:
    text = {"requirement": "requirement.text"}
    return [{"model": model, **pick(ruling, text, "held", "reason")} for model, ruling in rulings]


def errors(evaluations: Iterable[Evaluation]) -> list[dict[str, Any]]:
    rows = [row for each in evaluations for row in each.errors]
    return named(rows, "model", "message", "trials")


def bugs(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    messages = [row for each in evaluations for row in each.bug_messages]
    return {
        "trials": sum(evaluation.bug_count for evaluation in evaluations),
        "messages": named(messages, "message", "trials"),
    }


def _choices(evaluation: Evaluation) -> dict[str, Any]:
    # Where a skill leaked, numbers cannot guide a choice.
    choices = () if evaluation.leaked else list_choices(evaluation.outcomes)
    target = evaluation.run.plan.analysis.target
    best = cheapest(choices, target) if target is not None else None
    return {
        "pareto": [_choice_to_json(choice) for choice in pareto(choices)],
        "target": target,
        "cheapest": best and _choice_to_json(best),
    }


def _choice_to_json(choice: Choice) -> dict[str, Any]:
    return {
        **pick(choice, "model", "arm"),
        "pass_rate": rounded(choice.pass_rate),
        "interval": rounded_interval(choice.interval),
        "cost_per_task": rounded(choice.cost_per_task, 8),
    }


def _lifts_by_group(evaluation: Evaluation) -> dict[str, list[dict[str, Any]]]:
    """Case count and lift of each model, by tag and author; a group with every case is left out."""
    suite = evaluation.run.plan.suite
    groups: dict[str, dict[str, list[str]]] = {"tag": {}, "author": {}}
    for case in suite.cases:
        for tag in case.tags or [NOT_TAGGED]:
            groups["tag"].setdefault(tag, []).append(case.id)
        groups["author"].setdefault(author_of(case, suite.source), []).append(case.id)
    lifts: dict[str, list[dict[str, Any]]] = {"tag": [], "author": []}
    for kind, by_name in groups.items():
        largest = sorted(by_name.items(), key=lambda group: -len(group[1]))[:MAX_GROUPS]
        for name, ids in largest if len(largest) > 1 else ():
            models = evaluation.split(set(ids))
            lifts[kind].append({"name": name, "cases": len(ids), "models": models})
    return lifts


def verdict_row(run: Run, verdict: Verdict) -> dict[str, Any]:
    arms = (verdict.baseline, verdict.skill)
    costs = [arm.cost_usd for arm in arms]
    found = {
        "run": run,
        "verdict": verdict,
        "cost": None if None in costs else sum(cost or 0.0 for cost in costs),
        "missing": sum(arm.missing for arm in arms),
        "bugs": sum(arm.bugs for arm in arms),
        "caveats": " ".join(verdict.caveats),
    }
    return pick(found, COLUMNS)
