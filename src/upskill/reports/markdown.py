"""`markdown`: a summary that fits a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from upskill.evaluation import Evaluation
from upskill.requirements import Ruling
from upskill.verdict import Verdict

MARKS = {"helps": "🟢", "saves": "🟢", "hurts": "🔴", "no effect": "⚪", "undecided": "🟡"}


def of_evaluation(evaluation: Evaluation, rulings: Sequence[tuple[str, Ruling]] = ()) -> str:
    return "\n".join(_lines(evaluation, rulings)) + "\n"


def _lines(evaluation: Evaluation, rulings: Sequence[tuple[str, Ruling]]) -> Iterator[str]:
    plan = evaluation.plan
    yield f"### upskill: `{plan.skill.name}`"
    yield ""
    runs = "one run each" if plan.runs == 1 else f"up to {plan.runs} runs each"
    yield f"{len(plan.suite.cases)} cases ({len(plan.suite.held_out)} held out), {runs}."
    yield ""
    yield "| model | baseline | with skill | lift | 95 % interval | tokens | decision |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    for verdict in evaluation.verdicts:
        yield _row(verdict)
    yield ""
    for verdict in evaluation.verdicts:
        yield f"- **{_plain(verdict.model)}**: {_plain(verdict.recommendation)}"
    if rulings:
        yield ""
        yield "| requirement | model | held | measured |"
        yield "|---|---|---|---|"
        for model, ruling in rulings:
            held = "yes" if ruling.held else "**no**"
            yield f"| `{ruling.requirement.text}` | {_plain(model)} | {held} | {_plain(ruling.reason)} |"
    for model, message, trials in evaluation.errors[:5]:
        yield ""
        yield f"> {trials} trials of {_plain(model)} errored: {_plain(message)}"
    yield ""
    yield f"<sub>run `{evaluation.run.id}` · skill `{plan.skill.fingerprint}` · suite `{plan.suite.fingerprint}`</sub>"


def _row(verdict: Verdict) -> str:
    interval = "–"
    if verdict.interval is not None:
        interval = " to ".join(f"{100 * bound:+.0f}" for bound in verdict.interval)
    tokens = verdict.total_tokens
    change = "–" if tokens is None or tokens.relative is None else f"{100 * tokens.relative:+.0f} %"
    lift = "–" if verdict.lift is None else f"{100 * verdict.lift:+.0f}"
    rates = [
        "–" if arm.pass_rate is None else f"{100 * arm.pass_rate:.0f} % ({arm.passed}/{arm.scored})"
        for arm in (verdict.baseline, verdict.skill)
    ]
    decision = f"{MARKS[verdict.decision]} {verdict.decision}"
    return f"| {_plain(verdict.model)} | {rates[0]} | {rates[1]} | {lift} | {interval} | {change} | {decision} |"


def _plain(text: str) -> str:
    """Text that stays text in a table, whatever a model's name or a provider's error holds."""
    flat = " ".join(text.split())
    for sign in "\\`*_|<>[]":
        flat = flat.replace(sign, f"\\{sign}")
    return flat
