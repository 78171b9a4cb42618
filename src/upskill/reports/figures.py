"""An evaluation as the fields of its JSON document, and a verdict as a row of CSV. Both are a promise: names stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from upskill.reports.json import named, pick
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

COLUMNS: tuple[str, ...] = (
    "run",
    "created",
    "skill",
    "model",
    "decision",
    "about",  # tasks like these, or these cases
    "lift",
    "low",
    "high",
    "level",
    "reason",  # of undecided
    "cases",
    "pairs",
    "other_decision",  # the answer to the other question; empty: there is none
    "other_lift",
    "other_low",
    "other_high",
    "baseline_pass_rate",
    "skill_pass_rate",
    "baseline_tokens",
    "skill_tokens",
    "token_savings",
    "cost_usd",
    "missing",
    "activated",
    "baseline_turns",
    "skill_turns",
    "baseline_calls",
    "skill_calls",
    "baseline_tool_errors",
    "skill_tool_errors",
    "bugs",
    "caveats",
)
# The same of each arm, by the name of its column.
OF_ARM = {
    "pass_rate": "pass_rate",
    "tokens": "total_tokens",
    "turns": "turns",
    "calls": "tool_calls",
    "tool_errors": "tool_errors",
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
    judge_errors: list[tuple[object, ...]] = []
    for model, by_arm in evaluation.judge_errors.items():
        judge_errors += ((model, arm, *counts) for arm, counts in by_arm.items())
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
        "judge": plan.judge
        and {
            "model": plan.judge.name,
            "errors": named(judge_errors, "model", "arm", "ungraded", "trials"),
        },
        "bugs": bugs([evaluation]),
        "choices": _choices(evaluation),
        "spent": {
            role: {"tokens": tokens, "cost_usd": rounded(cost, 8)}
            for role, (tokens, cost) in evaluation.spent.items()
        },
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


def requirements(rulings: Iterable[tuple[str, Ruling]]) -> list[dict[str, Any]]:
    return [
        {
            "model": model,
            "requirement": ruling.requirement.text,
            **pick(ruling, "held", "reason"),
        }
        for model, ruling in rulings
    ]


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
    tags: dict[str, list[str]] = {}
    authors: dict[str, list[str]] = {}
    for case in suite.cases:
        for tag in case.tags or [NOT_TAGGED]:
            tags.setdefault(tag, []).append(case.id)
        authors.setdefault(author_of(case, suite.source), []).append(case.id)
    return {"tag": list(_lifts(evaluation, tags)), "author": list(_lifts(evaluation, authors))}


def _lifts(evaluation: Evaluation, groups: Mapping[str, list[str]]) -> Iterator[dict[str, Any]]:
    if len(groups) < 2:
        return
    for name, ids in sorted(groups.items(), key=lambda group: -len(group[1]))[:MAX_GROUPS]:
        yield {"name": name, "cases": len(ids), "models": evaluation.split(set(ids))}


def verdict_row(run: Run, verdict: Verdict) -> dict[str, Any]:
    arms = (verdict.baseline, verdict.skill)
    costs = [arm.cost_usd for arm in arms]
    row: dict[str, Any] = {
        "run": run.id,
        "created": run.created,
        "skill": run.skill,
        "cost_usd": None if None in costs else sum(cost or 0.0 for cost in costs),
        "missing": sum(arm.missing for arm in arms),
        "activated": verdict.activation and verdict.activation.rate,
        "bugs": sum(arm.bugs for arm in arms),
        "caveats": " ".join(verdict.caveats),
    }
    for arm in arms:
        row |= {f"{arm.arm}_{name}": getattr(arm, field) for name, field in OF_ARM.items()}
    for prefix, reading in (("", verdict.heading), ("other_", verdict.other)):
        if reading is not None:
            low, high = reading.interval or (None, None)
            row |= {f"{prefix}decision": reading.decision, f"{prefix}lift": reading.lift}
            row |= {f"{prefix}low": low, f"{prefix}high": high}
    return {name: row.get(name, getattr(verdict, name, None)) for name in COLUMNS}
