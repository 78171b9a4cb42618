"""A skill that was generated or taught, and what its evaluation says (`upskill generate`, `upskill teach`)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from upskill.authoring.evidence.commands import error_line, shell_command, step_failed
from upskill.authoring.generate import Generated
from upskill.authoring.lesson.lesson import Recording
from upskill.authoring.saving.output import is_proven
from upskill.authoring.saving.provenance import Provenance, own_lines
from upskill.authoring.search.comparison import Attempt, Confirmation
from upskill.authoring.search.refine import Refinement
from upskill.plain import counted
from upskill.reports import figures
from upskill.reports.evaluated import ReportContext, report_evaluation
from upskill.reports.numbers import dollars, percent, points
from upskill.reports.remarks import bug_note
from upskill.reports.report import Headline, NextCommand, Note, Report
from upskill.runs.results.evaluation import Evaluation
from upskill.suites import Suite, count_authors
from upskill.traces import Step
from upskill.verdicts.verdict import Verdict

STEP_WIDTH = 110  # characters
GAINS: Mapping[str, str] = {
    "helps": "the search improved the skill",
    "hurts": "the search made the skill worse",
    "undecided": "too little data to tell whether the search helped",
    "no effect": "the search gained nothing",
}
NOT_SELECTED = "No search was run, so no case influenced the skill and none is held out."
ALL_SELECTED = (
    "No case is held out. The skill was chosen with these cases, so expect less elsewhere."
)


def report_generated(generated: Generated) -> Report:
    """The report of the evaluation to believe, with what the search found and where the skill is."""
    skill, evaluation = generated.skill, generated.held_out or generated.fit
    title = f"{skill.name}: {' '.join(skill.description.split())}"
    words = "unchanged" if is_proven(skill) else "unproven"
    headlines = (Headline(f"{words}: nothing was run", "open", "?"),)
    report = Report(title=title, name=skill.name, data={}, headlines=headlines)
    if generated.refinement and evaluation:
        add_command = f"upskill tests {shlex.quote(str(generated.folder))} --add {{}}"
        report = report_evaluation(evaluation, ReportContext(add_command=add_command))
        headlines = tuple(_headlines(generated, generated.refinement, report))
    return replace(
        report,
        data=_to_json(generated),
        headlines=headlines,
        notes=(*_notes(generated, evaluation), *report.notes),
        saved=_saved(generated),
        next=tuple(_next(generated)),
    )


def report_taught(generated: Generated, recording: Recording, agent: str) -> Report:
    report = report_generated(generated)
    lesson = {"lesson": lesson_to_json(recording, agent)}
    return replace(report, data=_to_json(generated) | lesson)


def _headlines(generated: Generated, refinement: Refinement, report: Report) -> Iterator[Headline]:
    of = "held-out cases" if generated.held_out else "all cases"
    if refinement.selected and not generated.held_out:
        of = "train cases, which chose the skill"
    for headline in report.headlines:
        yield replace(headline, text=f"{of}: {headline.text}")
    if refinement.confirmation:
        is_confirmed = refinement.confirmation.decision == "confirmed"
        line = confirmation_line(refinement.confirmation)
        yield Headline(line, "good" if is_confirmed else "open")


def _saved(generated: Generated) -> str:
    saved = f"Saved to {generated.folder}: about {generated.skill.tokens:,} tokens."
    if generated.unchanged:
        saved = (
            f"The skill in {generated.folder} is the older one, unchanged, with its new results."
        )
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


def _notes(generated: Generated, reported: Evaluation | None) -> Iterator[Note]:
    for each in generated.evaluations:
        if each.bugs and each is not reported:
            yield bug_note(each, "")
    for line in generated.grounding_notes:
        yield Note(line, "caveat")
    if generated.missing:
        what = "Missing from the material (run again with --ask to answer):"
        yield Note(what, "caveat", generated.missing)
    refinement = generated.refinement
    if refinement:
        first = "older version" if generated.material.skill else "first draft"
        yield from _notes_on_search(refinement, first)
    for line in generated.student_notes:
        yield Note(line, "caveat")


def _notes_on_search(refinement: Refinement, first: str) -> Iterator[Note]:
    if not refinement.selected:
        yield Note(NOT_SELECTED, "caveat")
        return
    if refinement.held_out is None:
        yield Note(ALL_SELECTED, "caveat")
    elif refinement.fit:
        rates = _rates(refinement.fit.verdicts[0])
        yield Note(f"train cases, which chose the skill: {rates}", "caveat")
    if refinement.held_out_gain:
        verdict = refinement.held_out_gain.verdicts[0]
        gain = f"{first} → result on held-out cases: {_rates(verdict)}"
        if verdict.lift is not None and verdict.decision in GAINS:
            gain += f": {GAINS[verdict.decision]}"
        yield Note(gain, "caveat")
    tried = sum(attempt.decision != "not tried" for attempt in refinement.attempts[1:])
    versions = f"Versions tried besides the {first}: {tried}"
    yield Note(f"{versions}; the search ended: {refinement.ended}.")


def _next(generated: Generated) -> Iterator[NextCommand]:
    folder = shlex.quote(str(generated.folder))
    if generated.held_out:
        reason = "Read the answers to held-out cases"
        yield NextCommand("upskill show last:held-out", reason)
    if generated.fit and generated.refinement and not generated.refinement.selected:
        yield NextCommand("upskill show last", "Read every answer")
    elif generated.fit:
        yield NextCommand("upskill show last:train", "Read the answers to train cases")
    if not (generated.held_out or generated.fit):
        yield NextCommand(f"upskill eval {folder} -m MODEL", "See whether it helps")
    if Provenance.of(generated.skill).sources:
        yield NextCommand(f"upskill show {folder} --sources", "See the evidence behind each line")
    yield NextCommand(f"upskill install {folder} --to claude-code", "Use it")


# What a search says.
# ------------------------------------------------------------------------------------------------


def _rates(verdict: Verdict) -> str:
    before, after = percent(verdict.baseline.pass_rate), percent(verdict.skill.pass_rate)
    return f"{before} → {after} ({points(verdict.lift)})"


def attempt_line(attempt: Attempt) -> str:
    if attempt.evaluation is None:
        return f"  (version {attempt.number}) {attempt.decision}: {attempt.note}"
    verdict = attempt.evaluation.verdicts[0]
    if attempt.comparison is None:
        decision = f", {verdict.decision}" if verdict.is_beneficial else ""
    else:
        decision = f" {attempt.decision}: {attempt.note}"
    kind = "case" if attempt.evaluation.plan.suite.held_out else "train case"
    return f"  {_rates(verdict)}{decision}  [{counted(verdict.cases, kind)}]"


def confirmation_line(result: Confirmation) -> str:
    before = result.before
    change = f"{'not worse' if result.only_not_worse else 'better'} than the {before} on these train cases"
    if result.decision == "confirmed":
        return f"confirmed, {change}: {result.summary}"
    if result.decision == "best guess":
        return f"best guess, {change} but not confirmed: {result.summary}. Reason: {result.doubt}."
    if result.decision == "kept as requested":
        return f"{result.not_shown}; kept because you asked for it: {result.summary}"
    return f"{result.decision} on these train cases, so the {before} is kept: {result.summary}"


def step_line(number: int, step: Step) -> str:
    named = (
        str(step.arguments[name])
        for name in ("path", "file_path", "name")
        if name in step.arguments
    )
    line = f"{number:>4}  {step.tool}: {' '.join((shell_command(step) or next(named, '')).split())}".rstrip()
    if not step_failed(step):
        return _shorten(line, STEP_WIDTH)
    error = error_line(step.output)
    return _shorten(
        f"{_shorten(line, STEP_WIDTH // 2)} — failed{f': {error}' if error else ''}", STEP_WIDTH
    )


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# As JSON. The keys are stable; new ones may be added.
# ------------------------------------------------------------------------------------------------


def _to_json(generated: Generated) -> dict[str, Any]:
    skill, refinement, suite = generated.skill, generated.refinement, generated.suite
    return {
        "skill": {
            name: getattr(skill, name) for name in ("name", "description", "tokens", "fingerprint")
        },
        "saved_to": str(generated.folder),
        "previous": str(generated.previous) if generated.previous else None,
        "teacher": generated.teacher.name,
        "student": generated.student.name if generated.student else None,
        "suite": _suite_to_json(suite),
        "attempts": [_attempt_to_json(attempt) for attempt in refinement.attempts]
        if refinement
        else [],
        "confirmation": _confirmation_to_json(refinement.confirmation if refinement else None),
        "ended": refinement.ended if refinement else "",
        "halted": refinement.halted if refinement else "",
        "evaluated_cases": refinement.evaluated_cases if refinement else None,
        "fit": figures.document(generated.fit) if generated.fit else None,
        "held_out": figures.document(generated.held_out) if generated.held_out else None,
        "held_out_gain": _gain_to_json(refinement.held_out_gain if refinement else None),
        "spent": {
            role: {"tokens": usage.total_tokens, "cost_usd": usage.cost_usd}
            for role, usage in generated.spent.items()
        },
        "calls": generated.calls,
        "own_lines": len(own_lines(skill)[0]),
        "notes": [*generated.grounding_notes, *generated.student_notes],
        "bugs": figures.bugs(generated.evaluations),
        "making": generated.cost.to_dict(),
        "redacted": dict(generated.material.redacted),
        "sources": list(generated.material.sources),
        "left_out": list(generated.material.left_out),
        "feedback": list(generated.feedback),
        "missing": list(generated.missing),
    }


def _suite_to_json(suite: Suite) -> dict[str, Any]:
    authors = count_authors(case.metadata for case in suite.cases)
    return {"cases": len(suite.cases), "held_out": len(suite.held_out), "authors": authors}


def _attempt_to_json(attempt: Attempt) -> dict[str, Any]:
    verdict = attempt.evaluation.verdicts[0] if attempt.evaluation else None
    return {
        "attempt": attempt.number,
        "accepted": attempt.accepted,
        "decision": attempt.decision,
        "note": attempt.note,
        "baseline": verdict.baseline.pass_rate if verdict else None,
        "pass_rate": verdict.skill.pass_rate if verdict else None,
        "fixed": list(attempt.comparison.fixed) if attempt.comparison else [],
        "broken": list(attempt.comparison.broken) if attempt.comparison else [],
        "edits": [str(edit) for edit in attempt.proposal.edits] if attempt.proposal else [],
    }


def _gain_to_json(gain: Evaluation | None) -> dict[str, Any] | None:
    """The result against the first draft, on held-out cases."""
    if gain is None:
        return None
    verdict = gain.verdicts[0].to_dict()
    rates = {
        "first_draft": verdict["baseline"]["pass_rate"],
        "result": verdict["skill"]["pass_rate"],
    }
    names = ("pairs", "lift", "interval", "level", "decision", "about", "reason")
    return rates | {name: verdict[name] for name in names}


def _confirmation_to_json(confirmation: Confirmation | None) -> dict[str, Any] | None:
    if confirmation is None:
        return None
    older = confirmation.older_cases
    return {
        "decision": confirmation.decision,
        "summary": confirmation.summary,
        "only_not_worse": confirmation.only_not_worse,
        "fixed": list(confirmation.cases.fixed),
        "broken": list(confirmation.cases.broken),
        "older_cases_broken": list(older.broken) if older else [],
        "p_value": confirmation.cases.p_value,  # over cases; null if the student always gives the same answer
        "needed_p_value": confirmation.level,
        "candidates": confirmation.tried,
        "about": "these train cases",
        "train_cases": len({*confirmation.cases.cases}),
        "why_not": {
            "best guess": confirmation.doubt,
            "kept as requested": confirmation.not_shown,
        }.get(confirmation.decision, ""),
        "seeds": confirmation.rounds,
        "trials": confirmation.trials,
    }


def lesson_to_json(recording: Recording, agent: str) -> dict[str, Any]:
    trace = recording.trace
    return {
        "trace": str(recording.path) if recording.path else None,
        "agent": agent,
        "calls": len(trace.calls),
        "failed": sum(map(step_failed, trace.calls)),
        "turns": trace.turns,
        "stop": trace.stop,
        "check": recording.checked,
        "tokens": trace.usage.total_tokens,
        "cost_usd": trace.usage.cost_usd,
    }
