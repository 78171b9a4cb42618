"""`json`: an evaluation as one document. Its keys are stable; new ones may be added."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from upskill.runs.evaluation import Evaluation
from upskill.verdicts.choices import Choice, cheapest, choices, pareto
from upskill.verdicts.diagnosis import diagnose
from upskill.verdicts.requirements import Ruling
from upskill.verdicts.statistics import Estimate
from upskill.verdicts.verdict import ArmSummary, Change, Part, Verdict


def of_evaluation(evaluation: Evaluation, rulings: Sequence[tuple[str, Ruling]] = ()) -> dict[str, Any]:
    plan = evaluation.plan
    fit, held_out = evaluation.part(held_out=False), evaluation.part(held_out=True)
    return {
        "run": evaluation.run.id,
        "skill": {"name": plan.skill.name, "fingerprint": plan.skill.fingerprint, "tokens": plan.skill.tokens},
        "suite": {
            "cases": len(plan.suite.cases),
            "held_out": len(plan.suite.held_out),
            "fingerprint": plan.suite.fingerprint,
        },
        "models": [
            _model(verdict)
            | {"diagnosis": _diagnosis(evaluation, verdict.model)}
            | {"splits": {"fit": _split(fit[verdict.model]), "held_out": _split(held_out[verdict.model])}}
            for verdict in evaluation.verdicts
        ],
        "requirements": [
            {"model": model, "requirement": ruling.requirement.text, "held": ruling.held, "reason": ruling.reason}
            for model, ruling in rulings
        ],
        "errors": [
            {"model": model, "message": message, "trials": trials} for model, message, trials in evaluation.errors
        ],
        "choices": _choices(evaluation),
        "spent": {
            role: {"tokens": tokens, "cost_usd": _rounded(cost, 8)} for role, (tokens, cost) in evaluation.spent.items()
        },
        "making": {"cost_usd": _rounded(evaluation.making_cost, 8), "source": evaluation.making_source},
        "halted": evaluation.halted,
        "stopped": [{"model": model, "message": message} for model, message in evaluation.stopped.items()],
        "warnings": evaluation.warnings,
        "invalid": [
            {"model": trial.model, "case": trial.case, "arm": trial.arm, "seed": trial.seed, "reason": reason}
            for trial, reason in evaluation.invalid
        ],
    }


def _model(verdict: Verdict) -> dict[str, Any]:
    return {
        "model": verdict.model,
        "pairs": verdict.pairs,
        "baseline": _arm(verdict.baseline),
        "skill": _arm(verdict.skill),
        "lift": _rounded(verdict.lift),
        "interval": _interval(verdict),
        "level": verdict.level,
        "p_value": _rounded(verdict.p_value),
        "token_savings": _rounded(verdict.token_savings),
        "decision": verdict.decision,
        "reason": verdict.reason,
        "further_pairs": verdict.further_pairs,
        "recommendation": verdict.recommendation,
        "tokens": {
            "input": _change(verdict.input_tokens),
            "output": _change(verdict.output_tokens),
            "total": _change(verdict.total_tokens),
        },
        "cost_per_pass": {
            "baseline": _rounded(verdict.baseline.cost_per_pass, 8),
            "skill": _rounded(verdict.skill.cost_per_pass, 8),
            "ratio": _estimate(verdict.cost_per_pass_ratio),
        },
        "break_even": _rounded(verdict.break_even, 2),
        "controls": None
        if verdict.controls is None
        else {
            "content": _estimate(verdict.controls.content),
            "length": _estimate(verdict.controls.length),
            "noise": _estimate(verdict.controls.noise),
        },
        "anytime": verdict.anytime,
        "activation": _activation(verdict),
        "turns": _both(verdict, lambda arm: arm.turns),
        "tool_calls": _both(verdict, lambda arm: arm.tool_calls),
        "tool_errors": _both(verdict, lambda arm: arm.tool_errors),
    }


def _activation(verdict: Verdict) -> dict[str, Any] | None:
    found = verdict.activation
    if found is None:
        return None
    offered = Part(verdict.pairs, verdict.lift, verdict.interval)
    return {
        "trials": found.trials,
        "activated": found.opened,
        "rate": _rounded(found.rate),
        "interval": [_rounded(bound) for bound in found.interval],
        "lift": {
            "offered": _part(offered),
            "activated": _part(found.activated),
            "not_activated": _part(found.not_activated),
        },
    }


def _part(part: Part) -> dict[str, Any]:
    interval = [_rounded(bound) for bound in part.interval] if part.interval else None
    return {"pairs": part.pairs, "lift": _rounded(part.lift), "interval": interval}


def _both(verdict: Verdict, read: Callable[[ArmSummary], float | None]) -> dict[str, Any]:
    return {"baseline": _rounded(read(verdict.baseline)), "skill": _rounded(read(verdict.skill))}


def _arm(arm: ArmSummary) -> dict[str, Any]:
    return {
        "passed": arm.passed,
        "failed": arm.failed,
        "errored": arm.errored,
        "pass_rate": _rounded(arm.pass_rate),
        "input_tokens": arm.input_tokens,
        "output_tokens": arm.output_tokens,
        "cost_usd": _rounded(arm.cost_usd, 8),
    }


def _split(verdict: Verdict) -> dict[str, Any]:
    return {
        "pairs": verdict.pairs,
        "baseline": _rounded(verdict.baseline.pass_rate),
        "skill": _rounded(verdict.skill.pass_rate),
        "lift": _rounded(verdict.lift),
        "interval": _interval(verdict),
    }


def _change(change: Change | None) -> dict[str, Any] | None:
    if change is None:
        return None
    relative = change.relative_interval
    return {
        "mean": _rounded(change.mean),
        "mean_interval": [_rounded(bound) for bound in change.mean_interval],
        "relative": _rounded(change.relative),
        "relative_interval": None if relative is None else [_rounded(bound) for bound in relative],
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {"value": _rounded(estimate.value), "interval": [_rounded(bound) for bound in estimate.interval]}


def _diagnosis(evaluation: Evaluation, model: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for case in diagnose(evaluation.rows_of(model)):
        for kind in case.kinds:
            found.setdefault(kind, []).append(case.case)
    return found


def _choices(evaluation: Evaluation) -> dict[str, Any]:
    found = () if evaluation.leaked else choices(evaluation.outcomes)  # nothing can be chosen by such numbers

    def plain(choice: Choice) -> dict[str, Any]:
        return {
            "model": choice.model,
            "arm": choice.arm,
            "pass_rate": _rounded(choice.pass_rate),
            "interval": [_rounded(bound) for bound in choice.interval],
            "cost_per_task": _rounded(choice.cost_per_task, 8),
        }

    best = cheapest(found, evaluation.target) if evaluation.target is not None else None
    return {
        "pareto": [plain(choice) for choice in pareto(found)],
        "target": evaluation.target,
        "cheapest": plain(best) if best else None,
    }


def _interval(verdict: Verdict) -> list[float | None] | None:
    return [_rounded(bound) for bound in verdict.interval] if verdict.interval else None


def _rounded(value: float | None, digits: int = 6) -> float | None:
    if value is not None and not math.isfinite(value):  # an interval without an end; JSON has no infinity
        return None
    # Sums of the same numbers in another order differ in the last bits, and a resumed run adds in another order.
    return None if value is None else round(value, digits) + 0.0
