"""A skill that was generated or taught, and what its evaluation says (`upskill generate`, `upskill teach`)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from upskill.authoring.generate import (
    ONLY_A_SENTENCE,
    Generated,
    Made,
    Version,
    evaluated_cases,
    student_notes,
)
from upskill.authoring.lesson.lesson import Recording
from upskill.authoring.material.sessions import call_line, error_line, step_failed
from upskill.authoring.saving.output import is_proven
from upskill.authoring.saving.provenance import Provenance, own_lines
from upskill.plain import counted
from upskill.reports import figures
from upskill.reports.evaluated import find_alarms, report_evaluation
from upskill.reports.fields import pick
from upskill.reports.numbers import dollars, format_cell, points
from upskill.reports.report import Change, Headline, NextCommand, Note, Report
from upskill.suites import count_authors
from upskill.traces import Step
from upskill.verdicts.verdict import Verdict

STEP_WIDTH = 110  # characters
NONE_SHOWN = "No case influenced the skill, so all of them are fresh."
NOTHING_GRADED = "No answer was graded, so nothing is proven. Run the same command again."
ALL_SHOWN = "No case is fresh: the skill was chosen with these cases, so expect less elsewhere."


def report_generated(generated: Generated, lesson: Mapping[str, Any] | None = None) -> Report:
    """The report of the evaluation to believe, with what the rounds came to and where the skill is."""
    skill, made = generated.skill, generated.made
    evaluation = generated.held_out or generated.fit
    if evaluation:
        add_command = f"upskill tests {shlex.quote(str(generated.folder))} --add {{}}"
        report = report_evaluation(evaluation, add_command=add_command)
        cases = f"{evaluated_cases(made)} cases"
        prefix = f"{cases}, which chose the skill" if cases == "shown cases" else cases
        headlines = [replace(each, text=f"{prefix}: {each.text}") for each in report.headlines]
    else:
        title = f"{skill.name}: {' '.join(skill.description.split())}"
        report = Report(title=title, name=skill.name, data={})
        words = "unchanged" if is_proven(skill) else "unproven"
        headlines = [Headline(f"{words}: nothing was run", "open", "?")]
    return replace(
        report,
        data={**_to_json(generated), **(lesson or {})},
        headlines=headlines,
        notes=[*_notes(generated), *report.notes],
        saved=_saved(generated),
        next=[*_next(generated)],
    )


def _saved(generated: Generated) -> str:
    saved = f"Saved to {generated.folder}: about {generated.skill.tokens:,} tokens."
    if generated.unchanged:
        saved = f"The skill in {generated.folder} is the older one, unchanged."
    return f"{saved} Spent: {_spent(generated)}." if generated.spent else saved


def _spent(generated: Generated) -> str:
    making = {role: tokens for role, (tokens, _) in generated.cost.spent.items()}
    parts: list[str] = []
    for role, usage in generated.spent.items():
        part = f"{role} {usage.total_tokens:,} tokens"
        if making.get(role, 0) > usage.total_tokens:
            part += f" ({making[role]:,} with earlier calls)"
        if usage.cost_usd is None:
            part += ", price unknown"
        elif usage.cost_usd:
            part += f", {dollars(usage.cost_usd)}"
        parts.append(part)
    spent = " · ".join(parts)
    for address in (generated.teacher, generated.student):
        if address and address.provider == "handoff":
            return f"{spent} (those for {address.name} are estimated)"
    return spent


def _notes(generated: Generated) -> Iterator[Note]:
    made = generated.made
    reported = generated.held_out or generated.fit
    for each in made.evaluations:
        if each.bugs and each is not reported:
            yield from find_alarms(each, "")
    for line in _grounding_notes(generated):
        yield Note(line, "caveat")
    if made.missing:
        what = "Missing from the material (run again with --ask to answer):"
        yield Note(what, "caveat", tuple(made.missing))
    if reported and not reported.verdicts[0].skill.scored:
        yield Note(NOTHING_GRADED, "caveat")
    elif reported:
        yield from _notes_on_rounds(made)
    for line in student_notes(generated):
        yield Note(line, "caveat")


def _grounding_notes(generated: Generated) -> list[str]:
    material = generated.material
    if not material.pieces and not material.skill:
        return [ONLY_A_SENTENCE]
    own, lines = own_lines(generated.skill)
    if not own or not material.pieces:
        return []
    rest = "rests" if len(own) == 1 else "rest"
    word = "on the teacher's word alone (`own` in --sources)."
    return [f"{len(own)} of {counted(lines, 'line')} {rest} {word}"]


def _notes_on_rounds(made: Made) -> Iterator[Note]:
    evaluated = evaluated_cases(made)
    if evaluated in ("all", "shown"):
        yield Note(NONE_SHOWN if evaluated == "all" else ALL_SHOWN, "caveat")
    elif made.version.evaluation:
        rates = _rates(made.version.evaluation.verdicts[0])
        yield Note(f"shown cases, which chose the skill: {rates}", "caveat")
    for version in made.versions[1:]:
        yield Note(f"A revision {version.note}: {version.decision}.")
    if made.halted:
        yield Note(f"Stopped early: {made.halted}", "caveat")
    elif made.shown and made.ended:
        yield Note(f"No further revision: {made.ended}.")


def _next(generated: Generated) -> Iterator[NextCommand]:
    folder = shlex.quote(str(generated.folder))
    if generated.held_out:
        yield NextCommand("upskill show last", "Read every answer")
    elif not generated.fit:
        yield NextCommand(f"upskill eval {folder} -m MODEL", "See whether it helps")
    if Provenance.of(generated.skill).sources:
        yield NextCommand(f"upskill show {folder} --sources", "See the evidence behind each line")
    yield NextCommand(f"upskill install {folder} --to claude-code", "Use it")


def _rates(verdict: Verdict) -> str:
    before, after = verdict.baseline.pass_rate, verdict.skill.pass_rate
    if before is None:
        return f"{format_cell(after, 'share')} with it"
    return f"{format_cell(Change(before, after), 'share')} ({points(verdict.lift)})"


def step_line(number: int, step: Step) -> str:
    line = f"{number:>4}  {step.tool}: {call_line(step)}".rstrip()
    if not step_failed(step):
        return _shorten(line, STEP_WIDTH)
    error = error_line(step.output)
    failed = f"{_shorten(line, STEP_WIDTH // 2)} — failed{f': {error}' if error else ''}"
    return _shorten(failed, STEP_WIDTH)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# As JSON. The keys are stable; new ones may be added.
# ------------------------------------------------------------------------------------------------


def _to_json(generated: Generated) -> dict[str, Any]:
    made, suite, material = generated.made, generated.suite, generated.material
    authors = count_authors(case.metadata for case in suite.cases)
    reported = {"fit": generated.fit, "held_out": generated.held_out}
    return {
        "skill": pick(generated.skill, "name", "description", "tokens", "fingerprint"),
        **pick(generated, {"saved_to": "folder"}, "previous"),
        **pick(generated, {"teacher": "teacher.name", "student": "student.name"}),
        "suite": {"cases": len(suite.cases), "held_out": len(suite.held_out), "authors": authors},
        "attempts": [_version_to_json(version) for version in made.versions],
        **pick(made, "ended", "halted"),
        "evaluated_cases": evaluated_cases(made) if any(reported.values()) else None,
        **{name: each and figures.document(each) for name, each in reported.items()},
        "spent": {
            role: pick(usage, {"tokens": "total_tokens"}, "cost_usd")
            for role, usage in generated.spent.items()
        },
        "calls": generated.calls,
        "own_lines": len(own_lines(generated.skill)[0]),
        "notes": [*_grounding_notes(generated), *student_notes(generated)],
        "bugs": figures.bugs(made.evaluations),
        "making": generated.cost.to_dict(),
        "redacted": dict(material.redacted),
        **pick(material, "sources", "left_out"),
        **pick(generated, "feedback"),
        "missing": made.missing,
    }


def _version_to_json(version: Version) -> dict[str, Any]:
    verdict = "evaluation.verdicts.0"
    rates = {
        "baseline": f"{verdict}.baseline.pass_rate",
        "pass_rate": f"{verdict}.skill.pass_rate",
    }
    edits = version.proposal.edits if version.proposal else ()
    return {**pick(version, "decision", "note", rates), "edits": list(map(str, edits))}


def lesson_to_json(recording: Recording, agent: str) -> dict[str, Any]:
    trace = recording.trace
    return {
        "trace": str(recording.path) if recording.path else None,
        "agent": agent,
        "calls": len(trace.calls),
        "failed": sum(map(step_failed, trace.calls)),
        **pick(trace, "turns", "stop"),
        "check": recording.checked,
        **pick(trace.usage, {"tokens": "total_tokens"}, "cost_usd"),
    }
