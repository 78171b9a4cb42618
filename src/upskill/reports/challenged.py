"""What `upskill challenge` found: counterexamples to a skill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from upskill.authoring.writing.suite_writer import CHALLENGES
from upskill.experiments.counterexamples import Challenged
from upskill.plain import counted, short
from upskill.reports.layout import plain_table, render_result
from upskill.reports.numbers import percent
from upskill.sandboxes import printable


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
