"""Made is what came of a wish: how it is told while it is made, kept with the skill, and shown at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from upskill.authoring.create import signed
from upskill.authoring.material import Material
from upskill.authoring.provenance import Provenance, SearchCost
from upskill.authoring.refine import Attempt, Refinement
from upskill.cli.console import TrialProgress, show, show_json
from upskill.cli.wish import GenerateOptions
from upskill.models import Address
from upskill.models.ledger import Ledger
from upskill.reports import json as json_report
from upskill.reports.terminal import bars, percent
from upskill.runs.evaluation import Evaluation
from upskill.runs.plan import Plan, Trial
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.verdicts.advice import signed_points
from upskill.verdicts.verdict import Verdict


@dataclass(frozen=True)
class Made:
    """A skill with its suite, and who made it of what."""

    skill: Skill
    suite: Suite
    material: Material
    teacher: Address
    student: Address | None
    ledger: Ledger
    making: SearchCost  # what it cost, by this process and by those that were interrupted before it
    refinement: Refinement | None = None
    lesson: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of teach: what is told of the recording


class Progress:
    """Says what is being evaluated, and how each attempt went."""

    def __init__(self, wish: GenerateOptions) -> None:
        self.wish = wish
        self.watching: TrialProgress | None = None

    def begin(self, attempt: int, plan: Plan, missing: list[Trial]) -> None:
        if attempt:
            self.wish.tell(f"Evaluating on {plan.models[0].name}... (attempt {attempt})")
        self.watching = TrialProgress(plan, quiet=self.wish.silent)
        self.watching.begin(len(plan) - len(missing))

    def watch(self, result: Any) -> None:
        if self.watching:
            self.watching(result)

    def last(self, plan: Plan) -> None:
        self.wish.tell(f"Evaluating on {plan.models[0].name}... ({len(plan.suite.cases)} held-out cases, once)")

    def done(self, tried: Attempt) -> None:
        self.end()
        if tried.evaluation is None:
            self.wish.tell(f"  (attempt {tried.number}) not kept: {tried.note}")
            return
        verdict = tried.evaluation.verdicts[0]
        said = f"  {rates(verdict)}"
        if tried.comparison is None:
            said += " OK" if verdict.is_beneficial else ""
        else:
            said += f" OK: {tried.note}" if tried.accepted else f" not kept: {tried.note}"
        self.wish.tell(f"{said}  [fit, {verdict.cases} train cases]")

    def end(self) -> None:
        if self.watching:
            self.watching.end()
            self.watching = None


def rates(verdict: Verdict) -> str:
    lift = percent(verdict.lift, signed=True)
    return f"{percent(verdict.baseline.pass_rate)} -> {percent(verdict.skill.pass_rate)} ({lift})"


def with_result(made: Made) -> Skill:
    """What is known of it, in its skill_meta.json: the held-out pass rate where there is one, and which it is."""
    skill = signed(made.skill, made.teacher.name, made.material.task)
    meta = Provenance.of(skill)
    metadata = dict(meta.metadata)
    found = made.refinement
    evaluation, split = (
        (found.held_out, "held-out") if found and found.held_out else (found.fit if found else None, "fit")
    )
    if evaluation is not None:
        verdict = evaluation.verdicts[0]
        metadata |= {
            "test_pass_rate": verdict.skill.pass_rate,
            "baseline_pass_rate": verdict.baseline.pass_rate,
            "evaluated_on": verdict.model,
            "evaluated_cases": split,
            "pairs": verdict.pairs,
            "decision": verdict.decision,
        }
    return replace(meta, metadata=metadata).with_cost(made.making).add_to(skill)


# What is shown.


def report(made: Made, wish: GenerateOptions, place: Path) -> None:
    if wish.as_json:
        show_json(_plain(made, place))
        return
    skill, found = made.skill, made.refinement
    head = f"\n[bold]{escape(skill.name)}[/bold]\n{escape(' '.join(skill.description.split()))}\n"
    shown: list[RenderableType] = [
        Padding(Text.from_markup(head), (0, 0, 0, 2)),
        Text(f"  SKILL.md              ~{skill.tokens:,} tokens\n"),
    ]
    evaluation = (found.held_out or found.fit) if found else None
    if found and evaluation:
        word = f"held-out, {len(evaluation.plan.suite.cases)} cases" if found.held_out else "fit only"
        verdict = evaluation.verdicts[0]
        shown += [Text(f"  {verdict.model} ({word})"), bars(verdict)]
        shown += [Text(f"  {line}") for line in _lines(found)]
        shown += [Text(f"  Note: {said}", style="dim") for said in evaluation.warnings]
    if spent := _spent(made.ledger):
        shown.append(Text(f"  Spent: {spent}"))
    shown.append(Text(f"\nSaved to {place}"))
    show(*shown)


def _lines(found: Refinement) -> list[str]:
    lines = [
        f"{word}: {rates(verdict)}, {_interval(verdict)}{verdict.pairs} pairs, {verdict.decision}"
        for word, evaluation in (("fit", found.fit), ("held-out", found.held_out))
        if evaluation is not None
        for verdict in evaluation.verdicts
    ]
    if found.held_out is None:
        lines.append("Nothing is held out: these cases were also used to choose the skill, so expect less elsewhere.")
    elif found.held_out.too_many_errors:
        lines += [f"{trials} trials of {model} errored: {message}" for model, message, trials in found.held_out.errors]
    tried = "1 candidate was" if len(found.attempts) == 1 else f"{len(found.attempts)} candidates were"
    lines.append(f"{tried} tried; the search ended: {found.ended}.")
    return lines


def _interval(verdict: Verdict) -> str:
    if verdict.interval is None:
        return ""
    low, high = verdict.interval
    return f"95% interval {signed_points(low)} to {signed_points(high)} points, "


def _spent(ledger: Ledger) -> str:
    parts = [
        f"{role} {usage.total_tokens:,} tokens"
        + (", price unknown" if usage.cost_usd is None else f", ${usage.cost_usd:.4f}" if usage.cost_usd else "")
        for role, usage in ledger.spent.items()
    ]
    return " · ".join(parts)


def _plain(made: Made, place: Path) -> dict[str, Any]:
    found, skill = made.refinement, made.skill
    return {
        "skill": {
            "name": skill.name,
            "description": skill.description,
            "tokens": skill.tokens,
            "fingerprint": skill.fingerprint,
        },
        "saved_to": str(place),
        "teacher": made.teacher.name,
        "student": made.student.name if made.student else None,
        "suite": {"cases": len(made.suite.cases), "held_out": len(made.suite.held_out)},
        "attempts": [_tried(one) for one in found.attempts] if found else [],
        "ended": found.ended if found else "",
        "halted": found.halted if found else "",
        "fit": _evaluation(found.fit) if found else None,
        "held_out": _evaluation(found.held_out) if found else None,
        "spent": {
            role: {"tokens": usage.total_tokens, "cost_usd": usage.cost_usd}
            for role, usage in made.ledger.spent.items()
        },
        "calls": made.ledger.calls,
        "making": made.making.plain(),
        "redacted": dict(made.material.redacted),
        "left_out": list(made.material.left_out),
        **({"lesson": dict(made.lesson)} if made.lesson else {}),
    }


def _tried(one: Attempt) -> dict[str, Any]:
    verdict = one.evaluation.verdicts[0] if one.evaluation else None
    return {
        "attempt": one.number,
        "accepted": one.accepted,
        "note": one.note,
        "baseline": verdict.baseline.pass_rate if verdict else None,
        "pass_rate": verdict.skill.pass_rate if verdict else None,
        "p_value": one.comparison.p_value if one.comparison else None,
        "level": one.comparison.level if one.comparison else None,
        "edits": [str(edit) for edit in one.proposal.edits] if one.proposal else [],
    }


def _evaluation(evaluation: Evaluation | None) -> dict[str, Any] | None:
    return json_report.plain(evaluation) if evaluation else None
