"""`markdown`: a summary that fits a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from upskill.plain import counted
from upskill.reports import ReportContext
from upskill.reports.numbers import (
    UNKNOWN,
    decimal,
    interval_in_points,
    lift_in_points,
    pass_rate,
    percent,
)
from upskill.reports.sentences import (
    ACTIVATION_CAVEAT,
    MOST_BUGS,
    REPORT_BUG,
    bug_heading,
    causes,
    looks,
    uneven_errors,
)
from upskill.runs.results.evaluation import Evaluation
from upskill.sandboxes import printable
from upskill.verdicts.advice import signed_points
from upskill.verdicts.verdict import LOOK_UP, Verdict

MARKS = {"helps": "🟢", "saves": "🟢", "hurts": "🔴", "no effect": "⚪", "undecided": "🟡"}


def render(evaluation: Evaluation, _: ReportContext | None = None) -> str:
    return printable("\n".join(_lines(evaluation)) + "\n")  # a model's name may turn what follows it around


def _lines(evaluation: Evaluation) -> Iterator[str]:
    plan = evaluation.plan
    yield f"### upskill: `{plan.skill.name}`"
    yield ""
    if evaluation.bugs:
        yield from _bugs(evaluation)
    if evaluation.leaked:
        yield from _invalid(evaluation)
    runs = "one run each" if plan.runs == 1 else f"up to {plan.runs} runs each"
    yield f"{counted(len(plan.suite.cases), 'case')} ({len(plan.suite.held_out)} held out), {runs}."
    yield ""
    arms = "older skill | this skill" if plan.reference_skill else "baseline | with skill"
    yield f"| model | {arms} | lift | 95% interval | tokens | decision |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    for verdict in evaluation.verdicts:
        yield _row(verdict)
    yield ""
    if not evaluation.leaked and any(verdict.activation for verdict in evaluation.verdicts):
        yield from _activity(evaluation.verdicts)
    for line in (*uneven_errors(evaluation), *looks(evaluation)):
        yield f"> {_escape(line)}"
        yield ""
    for verdict in evaluation.verdicts:
        said = (*causes(verdict, evaluation), verdict.recommendation)
        yield f"- **{_escape(verdict.model)}**: {_escape(' '.join(said))}"
    if evaluation.rulings:
        yield ""
        yield "| requirement | model | held | measured |"
        yield "|---|---|---|---|"
        for model, ruling in evaluation.rulings:
            held = "yes" if ruling.held else "**no**"
            yield f"| `{ruling.requirement.text}` | {_escape(model)} | {held} | {_escape(ruling.reason)} |"
    for model, message, trials in evaluation.errors[:5]:
        yield ""
        yield f"> {counted(trials, 'trial')} of {_escape(model)} errored: {_escape(message)}"
    for warning in evaluation.warnings:
        yield ""
        yield f"> Note: {_escape(warning)}"
    yield ""
    yield f"<sub>run `{evaluation.run.id}` · skill `{plan.skill.fingerprint}` · suite `{plan.suite.fingerprint}`</sub>"


def _bugs(evaluation: Evaluation) -> Iterator[str]:
    yield "> [!CAUTION]"
    yield f"> **{bug_heading(evaluation.bug_count)}**"
    for message, trials in evaluation.bug_messages[:MOST_BUGS]:
        yield f"> - {_escape(message)} ({counted(trials, 'trial')})"
    yield f"> - `upskill show {evaluation.run.id} --bugs` prints the tracebacks. {REPORT_BUG}"
    yield ""


def _invalid(evaluation: Evaluation, most: int = 3) -> Iterator[str]:
    yield "> [!CAUTION]"
    yield "> **INVALID: the arms were not isolated, so no number of this run means anything.**"
    for trial, reason in evaluation.invalid[:most]:
        where = f"{trial.case}, {trial.arm}, {trial.model}, seed {trial.seed}"
        yield f"> - {_escape(where)}: {_escape(reason)}"
    if len(evaluation.invalid) > most:
        yield f"> - … and {len(evaluation.invalid) - most} more"
    yield ""


def _activity(verdicts: list[Verdict]) -> Iterator[str]:
    """What agents that act did with the skill."""
    yield "| model | opened in | lift offered | lift opened | lift not opened | turns | tool calls | tool errors |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for verdict in verdicts:
        found, arms = verdict.activation, (verdict.baseline, verdict.skill)
        if found is None:
            continue
        cells = [
            _escape(verdict.model),
            f"{found.activated}/{found.trials} ({percent(found.rate)})",
            lift_in_points(verdict.lift, verdict.interval, verdict.pairs),
            *(
                lift_in_points(part.lift, part.interval, part.pairs)
                for part in (found.where_activated, found.where_not_activated)
            ),
            " → ".join(decimal(arm.turns) for arm in arms),
            " → ".join(decimal(arm.tool_calls) for arm in arms),
            " → ".join(percent(arm.tool_errors) for arm in arms),
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield ACTIVATION_CAVEAT
    yield ""


def _row(verdict: Verdict) -> str:
    cells = [
        _escape(verdict.model),
        pass_rate(verdict.baseline),
        pass_rate(verdict.skill),
        UNKNOWN if verdict.lift is None else signed_points(verdict.lift),
        interval_in_points(verdict.interval),
        percent(verdict.total_tokens.relative if verdict.total_tokens else None, signed=True),
        "❌ INVALID" if verdict.reason == "isolation" else f"{MARKS[verdict.decision]} {_decision(verdict)}",
    ]
    return f"| {' | '.join(cells)} |"


def _decision(verdict: Verdict) -> str:
    return LOOK_UP if verdict.reason == LOOK_UP else verdict.decision


def _escape(text: str) -> str:
    """Text that stays text in a table, whatever a model's name or a provider's error holds."""
    flat = " ".join(text.split())
    for sign in "\\`*_|<>[]":
        flat = flat.replace(sign, f"\\{sign}")
    return flat
