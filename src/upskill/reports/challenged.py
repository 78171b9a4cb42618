"""What `upskill challenge` found: counterexamples to a skill."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import shorten
from typing import Any

from upskill.authoring.writing.suite_writer import CHALLENGES
from upskill.experiments.counterexamples import Challenged
from upskill.plain import counted
from upskill.reports.report import Cell, Column, Headline, Note, Report, Table

COLUMNS = (
    Column("Case", "code"),
    Column("Model"),
    Column("Without", "share"),
    Column("With", "share"),
    Column("Rounds", "count", spare=True),
    Column("Result"),
)
MAX_TEXT = 200  # characters of a prompt


def report_challenge(found: Challenged) -> Report:
    return Report(
        title=f"Where {found.skill.name} misleads",
        name=found.skill.name,
        data=_to_json(found),
        headlines=(Headline(conclusion(found), "bad" if found.counterexamples else "neutral"),),
        tables=tuple(_tables(found)),
        notes=tuple(_notes(found)),
    )


def conclusion(found: Challenged) -> str:
    count, tried = len(found.counterexamples), counted(len(found.proposals), "proposal")
    undecided = sum(each.status == "undecided" for each in found.proposals)
    more = f" {undecided} stayed undecided." if undecided else ""
    if not count:
        return f"None of {tried} is shown to mislead the student.{more}"
    verbs = ("passes", "fails") if count == 1 else ("pass", "fail")
    return f"{count} of {tried} {verbs[0]} without the skill and {verbs[1]} with it.{more}"


def _tables(found: Challenged) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    for each in found.proposals:
        if each.status == "harmless":
            continue
        for model, (without, with_skill) in each.rates.items():
            rows.append((each.case.id, model, without, with_skill, each.rounds, each.status))
    if rows:
        yield Table(columns=COLUMNS, rows=tuple(rows))


def _notes(found: Challenged) -> Iterator[Note]:
    if found.halted:
        words = f"Stopped early: {found.halted}. Run the same command with a higher ceiling to continue."
        yield Note(words, kind="caveat")
    for each in found.proposals:
        if each.status != "counterexample":
            continue
        lines: list[str] = []
        if each.case.reference:
            lines.append(f"right: {shorten(each.case.reference, MAX_TEXT, placeholder='…')}")
        if line := each.case.metadata.get(CHALLENGES):
            lines.append(f"the skill says: {shorten(str(line), MAX_TEXT, placeholder='…')}")
        text = f"{each.case.id}: {shorten(each.case.prompt, MAX_TEXT, placeholder='…')}"
        yield Note(text, kind="caveat", lines=tuple(lines))
    yield Note(f"It took {counted(found.trials, 'trial')}.", kind="detail")


def _to_json(found: Challenged) -> dict[str, Any]:
    return {
        "skill": found.skill.name,
        "conclusion": conclusion(found),
        "counterexamples": [case.id for case in found.counterexamples],
        "proposals": [each.to_dict() for each in found.proposals],
        "trials": found.trials,
        "halted": found.halted,
    }
