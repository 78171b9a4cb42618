"""What `upskill challenge` found: counterexamples to a skill, or answers that the checks of a suite judge wrongly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from upskill.authoring.writing.suite_writer import CHALLENGES
from upskill.experiments.attacks import Attacked
from upskill.experiments.counterexamples import Challenged
from upskill.plain import counted, short
from upskill.reports.layout import plain_table, render_result
from upskill.reports.numbers import percent
from upskill.sandboxes import printable

FATES = {"fixed": "", "open": " (not fixed)"}


def conclusion(found: Challenged) -> str:
    count, tried = len(found.counterexamples), counted(len(found.proposals), "proposal")
    undecided = sum(each.status == "undecided" for each in found.proposals)
    more = f" {undecided} stayed undecided." if undecided else ""
    if not count:
        return f"None of {tried} is shown to mislead the student.{more}"
    verbs = ("passes", "fails") if count == 1 else ("pass", "fail")
    return f"{count} of {tried} {verbs[0]} without the skill and {verbs[1]} with it.{more}"


def render(found: Challenged) -> Iterator[RenderableType]:
    table = plain_table(
        *("Case", "Model", "Without", "With", "Rounds", ""), right=("Without", "With", "Rounds")
    )
    for each in found.proposals:
        for model, rates in each.rates.items() if each.status != "harmless" else ():
            names = (escape(printable(name)) for name in (each.case.id, model))
            table.add_row(*names, *map(percent, rates), str(each.rounds), each.status)
    return render_result(conclusion(found), _lines(found), table if table.rows else None)


def _lines(found: Challenged) -> Iterator[str]:
    for each in found.proposals:
        if each.status == "counterexample":
            yield f"{each.case.id}: {short(each.case.prompt, 200)}"
            if each.case.reference:
                yield f"  right: {short(each.case.reference, 200)}"
            if line := each.case.metadata.get(CHALLENGES):
                yield f"  the skill says: {short(str(line), 200)}"
    if found.halted:
        yield f"Stopped early: {found.halted}. Run the same command with a higher ceiling to continue."
    yield f"It took {counted(found.trials, 'trial')}."


def to_json(found: Challenged) -> dict[str, Any]:
    return {
        "skill": found.skill.name,
        "conclusion": conclusion(found),
        "counterexamples": [case.id for case in found.counterexamples],
        "proposals": [each.to_dict() for each in found.proposals],
        "trials": found.trials,
        "halted": found.halted,
    }


def attack_conclusion(attacked: Attacked) -> str:
    fates, rounds = (
        Counter(each.fate for each in attacked.attacks),
        counted(attacked.rounds, "round"),
    )
    if attacked.halted and not attacked.attacks:
        return f"Stopped early: {attacked.halted}. Run the same command again to continue."
    if not attacked.attacks:
        return f"The attacker found no answer that the checks judge wrongly ({rounds})."
    found = f"The checks judged {counted(len(attacked.attacks), 'answer')} wrongly"
    fixed = (
        f"{fates['fixed']} fixed in {counted(len(attacked.changed), 'case')}"
        if attacked.changed
        else "none fixed"
    )
    end = (
        "The last round found nothing."
        if attacked.is_clean
        else "Some may be left: allow more --rounds."
    )
    if left := len(attacked.attacks) - fates["fixed"]:
        end = f"{counted(left, 'answer')} could not be fixed." if attacked.changed else ""
    if attacked.halted:
        end = f"Stopped early: {attacked.halted}. Run the same command again to continue."
    return f"{found}, {fixed} ({rounds}). {end}".rstrip()


def render_attacks(attacked: Attacked) -> Iterator[RenderableType]:
    return render_result(attack_conclusion(attacked), _attack_lines(attacked))


def _attack_lines(attacked: Attacked) -> Iterator[str]:
    for each in attacked.attacks:
        what = "wrong, and passed" if each.kind == "wrong" else "right, and failed"
        yield f"{each.case}: {short(each.answer, 120)} – {what}{FATES[each.fate]}"
    if attacked.refused:
        yield f"Not counted, because another reader disagreed: {counted(attacked.refused, 'answer')}"
    if attacked.skipped:
        yield f"Not attacked, because their checks run something or ask a judge: {', '.join(attacked.skipped)}"


def attacks_to_json(attacked: Attacked) -> dict[str, Any]:
    return {
        "conclusion": attack_conclusion(attacked),
        "rounds": attacked.rounds,
        "clean": attacked.is_clean,
        "halted": attacked.halted or None,
        "changed": attacked.changed,
        "attacks": [asdict(each) for each in attacked.attacks],
        "refused": attacked.refused,
        "skipped": attacked.skipped,
    }
