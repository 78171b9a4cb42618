"""`markdown`: a summary that fits a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from upskill.plain import counted
from upskill.runs.evaluation import Evaluation
from upskill.verdicts.advice import ACTIVATION_CAVEAT, signed_points
from upskill.verdicts.arms import Interval
from upskill.verdicts.requirements import Ruling
from upskill.verdicts.verdict import Verdict

MARKS = {"helps": "🟢", "saves": "🟢", "hurts": "🔴", "no effect": "⚪", "undecided": "🟡"}


def of_evaluation(evaluation: Evaluation, rulings: Sequence[tuple[str, Ruling]] = ()) -> str:
    return "\n".join(_lines(evaluation, rulings)) + "\n"


def _lines(evaluation: Evaluation, rulings: Sequence[tuple[str, Ruling]]) -> Iterator[str]:
    plan = evaluation.plan
    yield f"### upskill: `{plan.skill.name}`"
    yield ""
    if evaluation.leaked:
        yield from _invalid(evaluation)
    runs = "one run each" if plan.runs == 1 else f"up to {plan.runs} runs each"
    yield f"{counted(len(plan.suite.cases), 'case')} ({len(plan.suite.held_out)} held out), {runs}."
    yield ""
    arms = "older skill | this skill" if plan.reference_skill else "baseline | with skill"
    yield f"| model | {arms} | lift | 95 % interval | tokens | decision |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    for verdict in evaluation.verdicts:
        yield _row(verdict)
    yield ""
    if not evaluation.leaked and any(verdict.activation for verdict in evaluation.verdicts):
        yield from _acted(evaluation.verdicts)
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
        yield f"> {counted(trials, 'trial')} of {_plain(model)} errored: {_plain(message)}"
    yield ""
    yield f"<sub>run `{evaluation.run.id}` · skill `{plan.skill.fingerprint}` · suite `{plan.suite.fingerprint}`</sub>"


def _invalid(evaluation: Evaluation, most: int = 3) -> Iterator[str]:
    yield "> [!CAUTION]"
    yield "> **INVALID: the arms were not isolated, so no number of this run means anything.**"
    for trial, reason in evaluation.invalid[:most]:
        where = f"{trial.case}, {trial.arm}, {trial.model}, seed {trial.seed}"
        yield f"> - {_plain(where)}: {_plain(reason)}"
    if len(evaluation.invalid) > most:
        yield f"> - … and {len(evaluation.invalid) - most} more"
    yield ""


def _acted(verdicts: list[Verdict]) -> Iterator[str]:
    """What agents that act did with the skill."""
    yield "| model | opened in | lift offered | lift opened | lift not opened | turns | tool calls | tool errors |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for verdict in verdicts:
        found = verdict.activation
        if found is None:
            continue
        opened = f"{found.opened}/{found.trials} ({100 * found.rate:.0f} %)"
        lifts = [
            _lift(verdict.lift, verdict.interval, verdict.pairs),
            *(_lift(part.lift, part.interval, part.pairs) for part in (found.activated, found.not_activated)),
        ]
        arms = (verdict.baseline, verdict.skill)
        did = [
            " → ".join("–" if number is None else f"{number:.1f}" for number in numbers)
            for numbers in ([arm.turns for arm in arms], [arm.tool_calls for arm in arms])
        ]
        failed = " → ".join("–" if arm.tool_errors is None else f"{100 * arm.tool_errors:.0f} %" for arm in arms)
        yield f"| {' | '.join([_plain(verdict.model), opened, *lifts, *did, failed])} |"
    yield ""
    yield ACTIVATION_CAVEAT
    yield ""


def _lift(lift: float | None, interval: Interval | None, pairs: int) -> str:
    if lift is None or interval is None:
        return "–"
    low, high = interval
    return f"{signed_points(lift)} ({signed_points(low)} to {signed_points(high)}, {counted(pairs, 'pair')})"


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
    if verdict.reason == "isolation":
        decision = "❌ INVALID"
    return f"| {_plain(verdict.model)} | {rates[0]} | {rates[1]} | {lift} | {interval} | {change} | {decision} |"


def _plain(text: str) -> str:
    """Text that stays text in a table, whatever a model's name or a provider's error holds."""
    flat = " ".join(text.split())
    for sign in "\\`*_|<>[]":
        flat = flat.replace(sign, f"\\{sign}")
    return flat
