from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from upskill.authoring.evidence.commands import error_line, shell_command, step_failed
from upskill.authoring.generate import Generated
from upskill.authoring.lesson.lesson import Recording
from upskill.authoring.saving.output import is_proven
from upskill.authoring.saving.provenance import Provenance, own_lines
from upskill.authoring.search.comparison import Attempt, Confirmation
from upskill.authoring.search.refine import Refinement
from upskill.plain import counted
from upskill.reports import json as json_report
from upskill.reports.layout import indented
from upskill.reports.numbers import dollars, percent, points
from upskill.reports.terminal import bars, bug_panel
from upskill.reports.view import view_of
from upskill.runs.results.evaluation import Evaluation
from upskill.suites import Suite, count_authors, describe_authors
from upskill.traces import Step
from upskill.verdicts.line import describe_verdict, signed_points
from upskill.verdicts.verdict import Verdict

STEP_WIDTH = 110  # characters


def render(generated: Generated) -> list[RenderableType]:
    skill, refinement = generated.skill, generated.refinement
    heading = (
        f"\n[bold]{escape(skill.name)}[/bold]\n{escape(' '.join(skill.description.split()))}\n"
    )
    blocks: list[RenderableType] = [
        *(bug_panel(evaluation) for evaluation in generated.evaluations if evaluation.bugs),
        indented(Text.from_markup(heading)),
        Text(f"  SKILL.md              ~{skill.tokens:,} tokens\n"),
        *(Text(f"  {line}", style="yellow") for line in generated.grounding_notes),
    ]
    if generated.missing:
        questions = "".join(f"\n    - {question}" for question in generated.missing)
        blocks.append(
            Text(f"  Missing from the material (run again with --ask to answer):{questions}")
        )
    evaluation = generated.held_out or generated.fit
    if refinement and evaluation:
        count = counted(len(evaluation.plan.suite.cases), "case")
        cases = f"held-out, {count}" if generated.held_out else "none are held out"
        cases = cases if refinement.selected else f"all {count}"
        first = "older version" if generated.material.skill else "first draft"
        view = view_of(evaluation)
        blocks += [Text(f"  {view.verdicts[0].model} ({cases})"), bars(view.verdicts[0], view.arms)]
        blocks += [
            indented(Text(line))
            for line in (*_findings(refinement, first, generated.folder), *generated.student_notes)
        ]
        blocks += [
            indented(Text(f"Note: {warning}", style="dim")) for warning in evaluation.warnings
        ]
    if authors := describe_authors(case.metadata for case in generated.suite.cases):
        blocks.append(indented(Text(authors)))
    if generated.spent:
        making = {role: tokens for role, (tokens, _) in generated.cost.spent.items()}
        spent = [
            f"{role} {usage.total_tokens:,} tokens"
            + (
                f" ({all_in:,} with earlier calls)"
                if (all_in := making.get(role, 0)) > usage.total_tokens
                else ""
            )
            + (
                ", price unknown"
                if usage.cost_usd is None
                else f", {dollars(usage.cost_usd)}"
                if usage.cost_usd
                else ""
            )
            for role, usage in generated.spent.items()
        ]
        by_hand = [
            each.name
            for each in (generated.teacher, generated.student)
            if each and each.provider == "handoff"
        ]
        estimated = f" (those for {by_hand[0]} are estimated)" if by_hand else ""
        blocks.append(indented(Text(f"Spent: {' · '.join(spent)}{estimated}")))
    state = "" if evaluation else " (unproven: nothing was run)"
    if not evaluation and is_proven(skill):
        state = " (unchanged: nothing was run)"
    saved = f"Saved to {generated.folder}{state}"
    if generated.unchanged:
        saved = (
            f"The skill in {generated.folder} is the older one, unchanged, with its new results."
        )
    return [*blocks, Text(f"\n{saved}"), Text(_next_commands(generated))]


def _next_commands(generated: Generated) -> str:
    folder = shlex.quote(str(generated.folder))
    rows: list[tuple[str, str]] = []
    if generated.held_out:
        rows.append(("upskill show last:held-out", "prompts and answers for held-out cases"))
    if generated.fit and generated.refinement and not generated.refinement.selected:
        rows.append(("upskill show last", "prompts and answers"))
    elif generated.fit:
        rows.append(("upskill show last:train", "prompts and answers for train cases"))
    if not (generated.held_out or generated.fit):
        rows.append((f"upskill eval {folder} -m MODEL", "whether it helps"))
    if Provenance.of(generated.skill).sources:
        rows.append((f"upskill show {folder} --sources", "the evidence behind each line"))
    rows.append((f"upskill install {folder} --to claude-code", "use it"))
    width = max(len(typed) for typed, _ in rows)
    return "\n".join(["Next:", *(f"  {typed:<{width}}  {why}" for typed, why in rows)])


def _findings(refinement: Refinement, first: str, folder: Path) -> list[str]:
    add_command = f"upskill tests {shlex.quote(str(folder))} --add {{}}"
    fit = refinement.fit.verdicts if refinement.fit else []
    held_out = refinement.held_out.verdicts if refinement.held_out else []
    if refinement.selected:  # the search saw these cases, so they are about nothing else
        lines = [
            f"train cases: {_rates(verdict)}, {_interval(verdict)}{counted(verdict.pairs, 'pair')}"
            for verdict in fit
        ]
    else:
        lines = [f"all cases: {describe_verdict(verdict, add_command)}" for verdict in fit]
    lines += (f"held-out cases: {describe_verdict(verdict, add_command)}" for verdict in held_out)
    for verdict in held_out if refinement.selected else fit:
        lines += verdict.caveats
    if not refinement.selected:
        return [*lines, "No search was run, so no case influenced the skill and none is held out."]
    if refinement.held_out is None:
        lines.append(
            "No case is held out. The skill was chosen with these cases, so expect less elsewhere."
        )
    elif refinement.held_out.too_many_errors:
        errors = refinement.held_out.errors
        lines += [
            f"{counted(trials, 'trial')} of {model} missing: {message}"
            for model, message, trials in errors
        ]
    if refinement.confirmation:
        lines.append(confirmation_line(refinement.confirmation).strip())
    if refinement.held_out_gain:
        lines += [gain_line(verdict, first) for verdict in refinement.held_out_gain.verdicts]
    count = sum(attempt.decision != "not tried" for attempt in refinement.attempts[1:])
    versions = counted(count, "version") if count else "No version"
    verb = "were" if count > 1 else "was"
    return [
        *lines,
        f"{versions} besides the {first} {verb} tried; the search ended: {refinement.ended}.",
    ]


def _rates(verdict: Verdict) -> str:
    return f"{percent(verdict.baseline.pass_rate)} → {percent(verdict.skill.pass_rate)} ({points(verdict.lift)})"


def _interval(verdict: Verdict) -> str:
    bounds = " to ".join(map(signed_points, verdict.interval or ()))
    return f"{100 * verdict.level:g}% interval {bounds} points, " if bounds else ""


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


def gain_line(verdict: Verdict, first: str) -> str:
    """What the search gained on cases it could not see: its result against the first draft."""
    return (
        f"{first} → result on held-out cases: {_rates(verdict)}, {_interval(verdict)}"
        f"{counted(verdict.pairs, 'pair')}{'' if verdict.lift is None else GAINS.get(verdict.decision, '')}"
    )


GAINS: Mapping[str, str] = {
    "helps": ": the search improved the skill",
    "hurts": ": the search made the skill worse",
    "undecided": ": too little data to tell whether the search helped",
    "no effect": ": the search gained nothing",
}


def confirmation_line(result: Confirmation) -> str:
    before = result.before
    change = f"{'not worse' if result.only_not_worse else 'better'} than the {before} on these train cases"
    if result.decision == "confirmed":
        return f"  confirmed, {change}: {result.summary}"
    if result.decision == "best guess":
        return (
            f"  best guess, {change} but not confirmed: {result.summary}. Reason: {result.doubt}."
        )
    if result.decision == "kept as requested":
        return f"  {result.not_shown}; kept because you asked for it: {result.summary}"
    return f"  {result.decision} on these train cases, so the {before} is kept: {result.summary}"


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


def to_json(generated: Generated) -> dict[str, Any]:
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
        "fit": json_report.to_dict(generated.fit) if generated.fit else None,
        "held_out": json_report.to_dict(generated.held_out) if generated.held_out else None,
        "held_out_gain": _gain_to_json(refinement.held_out_gain if refinement else None),
        "spent": {
            role: {"tokens": usage.total_tokens, "cost_usd": usage.cost_usd}
            for role, usage in generated.spent.items()
        },
        "calls": generated.calls,
        "own_lines": len(own_lines(skill)[0]),
        "notes": [*generated.grounding_notes, *generated.student_notes],
        "bugs": json_report.bugs(generated.evaluations),
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
