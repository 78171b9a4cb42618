"""`json`: an evaluation as one document. Its keys are stable; new ones may be added."""

from __future__ import annotations

from typing import Any

from upskill.evaluate import Evaluation
from upskill.verdict import ArmSummary, Verdict


def of_evaluation(evaluation: Evaluation) -> dict[str, Any]:
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
            | {"splits": {"fit": _split(fit[verdict.model]), "held_out": _split(held_out[verdict.model])}}
            for verdict in evaluation.verdicts
        ],
        "errors": [
            {"model": model, "message": message, "trials": trials} for model, message, trials in evaluation.errors
        ],
        "spent": {
            role: {"tokens": tokens, "cost_usd": _rounded(cost, 8)} for role, (tokens, cost) in evaluation.spent.items()
        },
        "halted": evaluation.halted,
        "stopped": [{"model": model, "message": message} for model, message in evaluation.stopped.items()],
        "warnings": evaluation.warnings,
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
    }


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


def _interval(verdict: Verdict) -> list[float | None] | None:
    return [_rounded(bound) for bound in verdict.interval] if verdict.interval else None


def _rounded(value: float | None, digits: int = 6) -> float | None:
    # Sums of the same numbers in another order differ in the last bits, and a resumed run adds in another order.
    return None if value is None else round(value, digits) + 0.0
