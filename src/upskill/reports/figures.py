"""An evaluation as the fields of its JSON document, and a verdict as a row of CSV. Both are a promise: names stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

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
OF_VERDICT = (
    "model",
    "decision",
    "about",
    "lift",
    "level",
    "reason",
    "cases",
    "pairs",
    "token_savings",
)

MAX_GROUPS = 40  # groups per kind: those with most cases
NOT_TAGGED = "(no tag)"


def document(evaluation: Evaluation) -> dict[str, Any]:
    plan, stored = evaluation.plan, evaluation.run.plan
    return {
        "run": evaluation.run.id,
        "skill": {key: getattr(stored.skill, key) for key in ("name", "fingerprint", "tokens")},
        "suite": {
            "cases": len(plan.suite.cases),
            "fresh": len(evaluation.fresh),
            "fingerprint": stored.suite.fingerprint,
            "part": asdict(plan.suite.part) if plan.suite.part else None,
            "authors": count_authors(case.metadata for case in plan.suite.cases),
        },
        "models": [
            verdict.to_dict() | {"diagnosis": _diagnosis(evaluation, verdict.model)}
            for verdict in evaluation.verdicts
        ],
        "groups": _lifts_by_group(evaluation),
        "requirements": requirements(evaluation.rulings),
        "errors": errors([evaluation]),
        "judge": plan.judge
        and {
            "model": plan.judge.name,
            "errors": [
                {"model": model, "arm": arm, "ungraded": ungraded, "trials": trials}
                for model, by_arm in evaluation.judge_errors.items()
                for arm, (ungraded, trials) in by_arm.items()
            ],
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
        "snapshots": evaluation.snapshots,
        "halted": evaluation.halted,
        "stopped": [
            {"model": model, "message": message} for model, message in evaluation.stopped.items()
        ],
        "warnings": [*evaluation.warnings, *evaluation.caveats],
        "invalid": [{**asdict(trial), "reason": reason} for trial, reason in evaluation.invalid],
    } | ({"feedback": {"marks": count_marks(evaluation.reviews)}} if evaluation.reviews else {})


def requirements(rulings: Iterable[tuple[str, Ruling]]) -> list[dict[str, Any]]:
    return [
        {
            "model": model,
            "requirement": ruling.requirement.text,
            "held": ruling.held,
            "reason": ruling.reason,
        }
        for model, ruling in rulings
    ]


def errors(evaluations: Iterable[Evaluation]) -> list[dict[str, Any]]:
    return [
        {"model": model, "message": message, "trials": trials}
        for evaluation in evaluations
        for model, message, trials in evaluation.errors
    ]


def bugs(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    return {
        "trials": sum(evaluation.bug_count for evaluation in evaluations),
        "messages": [
            {"message": message, "trials": trials}
            for evaluation in evaluations
            for message, trials in evaluation.bug_messages
        ],
    }


def _diagnosis(evaluation: Evaluation, model: str) -> dict[str, list[str]]:
    cases: dict[str, list[str]] = {}
    for diagnosis in diagnose(evaluation.outcomes_of(model)):
        for kind in diagnosis.problems:
            cases.setdefault(kind, []).append(diagnosis.case)
    return cases


def _choices(evaluation: Evaluation) -> dict[str, Any]:
    choices = (
        () if evaluation.leaked else list_choices(evaluation.outcomes)
    )  # such numbers cannot guide a choice

    def to_dict(choice: Choice) -> dict[str, Any]:
        return {
            "model": choice.model,
            "arm": choice.arm,
            "pass_rate": rounded(choice.pass_rate),
            "interval": rounded_interval(choice.interval),
            "cost_per_task": rounded(choice.cost_per_task, 8),
        }

    target = evaluation.run.plan.analysis.target
    best = cheapest(choices, target) if target is not None else None
    return {
        "pareto": [to_dict(choice) for choice in pareto(choices)],
        "target": target,
        "cheapest": to_dict(best) if best else None,
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
    low, high = verdict.interval or (None, None)
    row: dict[str, Any] = {"run": run.id, "created": run.created, "skill": run.skill}
    row |= {name: getattr(verdict, name) for name in OF_VERDICT}
    row |= {
        "low": low,
        "high": high,
        "cost_usd": None if None in costs else sum(cost or 0.0 for cost in costs),
        "missing": sum(arm.missing for arm in arms),
        "activated": verdict.activation.rate if verdict.activation else None,
        "bugs": sum(arm.bugs for arm in arms),
        "caveats": " ".join(verdict.caveats),
    }
    for arm in arms:
        row |= {
            f"{arm.arm}_pass_rate": arm.pass_rate,
            f"{arm.arm}_tokens": arm.total_tokens,
            f"{arm.arm}_turns": arm.turns,
            f"{arm.arm}_calls": arm.tool_calls,
            f"{arm.arm}_tool_errors": arm.tool_errors,
        }
    if verdict.other:
        low, high = verdict.other.interval or (None, None)
        row |= {"other_decision": verdict.other.decision, "other_lift": verdict.other.lift}
        row |= {"other_low": low, "other_high": high}
    return {name: row.get(name) for name in COLUMNS}
