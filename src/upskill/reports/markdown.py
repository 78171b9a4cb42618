from __future__ import annotations

import re
from collections.abc import Iterator

from upskill.plain import counted
from upskill.reports import ReportContext
from upskill.reports.numbers import INVALID
from upskill.reports.view import (
    ACTIVATION_CAVEAT,
    RunView,
    VerdictView,
    describe_bugs,
    describe_leaks,
    view_of,
)
from upskill.runs.results.evaluation import Evaluation
from upskill.sandboxes import printable

_SIGN = r"[\\`*_|<>\[\]]"  # means something in Markdown


def render(evaluation: Evaluation, _: ReportContext | None = None) -> str:
    return printable(
        "\n".join(_lines(evaluation)) + "\n"
    )  # a model's name may reverse the text after it


def _lines(evaluation: Evaluation) -> Iterator[str]:
    plan, view = evaluation.plan, view_of(evaluation)
    yield f"### upskill: `{plan.skill.name}`"
    yield ""
    if evaluation.bugs:
        heading, *messages, report = describe_bugs(evaluation, f"upskill show {evaluation.run.id}")
        yield from _caution(heading, *map(_escape, messages), report)
    if evaluation.leaked:
        yield from _caution(INVALID, *map(_escape, describe_leaks(evaluation.invalid)))
    for verdict in view.verdicts:
        yield f"{verdict.mark.emoji} {_prose(verdict.line)}"
        yield ""
    for line in (*view.caveats, *view.missing):
        yield f"> {_prose(line)}"
        yield ""
    yield " ".join(filter(None, [f"{view.suite}.", _escape(view.authors)]))
    yield ""
    yield f"| model | {view.arms['baseline']} | {view.arms['skill']} | tokens | cost |"
    yield "|---|---:|---:|---:|---:|"
    for verdict in view.verdicts:
        yield _row(verdict)
    yield ""
    if view.names:
        yield f"{_escape('; '.join(view.names))}."
        yield ""
    if not evaluation.leaked and any(verdict.activated for verdict in view.verdicts):
        yield from _activity(view)
    for verdict in view.verdicts:
        if verdict.causes:
            yield f"- **{_escape(verdict.model)}**: {_prose(' '.join(verdict.causes))}"
    if evaluation.rulings:
        yield ""
        yield "| requirement | model | met | measured |"
        yield "|---|---|---|---|"
        for model, ruling in evaluation.rulings:
            held = "yes" if ruling.held else "**no**"
            yield f"| `{ruling.requirement.text}` | {_escape(model)} | {held} | {_escape(ruling.reason)} |"
    for model, message, trials in evaluation.errors[:5]:
        yield ""
        yield f"> {counted(trials, 'trial')} of {_escape(model)} missing: {_escape(message)}"
    for note in view.notes:
        yield ""
        yield f"> {_prose(note)}"
    yield ""
    yield f"<sub>run `{evaluation.run.id}` · skill `{plan.skill.fingerprint}` · suite `{plan.suite.fingerprint}`</sub>"


def _caution(heading: str, *lines: str) -> Iterator[str]:
    yield "> [!CAUTION]"
    yield f"> **{heading}**"
    yield from (f"> - {line}" for line in lines)
    yield ""


def _activity(view: RunView) -> Iterator[str]:
    heads = [
        "model",
        "activated in",
        *(f"lift {part}" for part in ("offered", "activated", "not activated")),
    ]
    yield f"| {' | '.join(heads)} | turns | tool calls | tool errors |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for verdict in view.verdicts:
        if verdict.activated:
            lifts = verdict.lifts.values()
            cells = [
                verdict.activated,
                *lifts,
                verdict.turns,
                verdict.tool_calls,
                verdict.tool_errors,
            ]
            yield f"| {_escape(verdict.model)} | {' | '.join(cells)} |"
    yield ""
    yield ACTIVATION_CAVEAT
    yield ""


def _row(view: VerdictView) -> str:
    name = _escape(view.model)
    cells = [name, view.baseline_rate, view.skill_rate, view.tokens, view.cost]
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """Text that stays text in a table, whatever a model's name or a provider's error contains."""
    return re.sub(_SIGN, r"\\\g<0>", " ".join(text.split()))


def _prose(text: str) -> str:
    """A sentence of ours: what stands between backticks is code, the rest is escaped."""
    parts = re.split(r"(?<!`)(`[^`]+`)(?!`)", " ".join(text.split()))
    return "".join(
        part if place % 2 else re.sub(_SIGN, r"\\\g<0>", part) for place, part in enumerate(parts)
    )
