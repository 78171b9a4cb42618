"""What `upskill challenge` found: counterexamples to a skill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import shorten

from upskill.authoring.writing.suite_writer import CHALLENGES
from upskill.experiments.counterexamples import Challenged
from upskill.plain import counted
from upskill.reports.json import pick
from upskill.reports.report import Cell, Headline, Note, Report, Table, note_effort

MAX_TEXT = 200  # characters of a prompt


def report_challenge(found: Challenged) -> Report:
    conclusion = _conclude(found)
    return Report(
        title=f"Where {found.skill.name} misleads",
        name=found.skill.name,
        data={
            "skill": found.skill.name,
            "conclusion": conclusion,
            "counterexamples": [case.id for case in found.counterexamples],
            **pick(found, "proposals", "trials", "halted"),
        },
        headlines=[Headline(conclusion, "bad" if found.counterexamples else "neutral")],
        tables=[Table.of(_rows(found))],
        notes=[*_notes(found), *note_effort(found.halted, found.trials)],
    )


def _conclude(found: Challenged) -> str:
    count, tried = len(found.counterexamples), counted(len(found.proposals), "proposal")
    undecided = sum(each.status == "undecided" for each in found.proposals)
    more = f" Undecided: {undecided}." if undecided else ""
    if not count:
        return f"None of {tried} is shown to mislead the student.{more}"
    verbs = ("passes", "fails") if count == 1 else ("pass", "fail")
    return f"{count} of {tried} {verbs[0]} without the skill and {verbs[1]} with it.{more}"


def _rows(found: Challenged) -> Iterator[Mapping[str, Cell]]:
    for each in found.proposals:
        if each.status == "harmless":
            continue
        for model, (without, with_skill) in each.rates.items():
            yield {
                "Case": each.case.id,
                "Model": model,
                "Without": without,
                "With": with_skill,
                "Rounds": each.rounds,
                "Result": each.status,
            }


def _notes(found: Challenged) -> Iterator[Note]:
    for case in found.counterexamples:
        texts = {
            case.id: case.prompt,
            "right": case.reference,
            "the skill says": str(case.metadata.get(CHALLENGES) or ""),
        }
        first, *others = [
            f"{name}: {shorten(text, MAX_TEXT, placeholder='…')}"
            for name, text in texts.items()
            if text
        ]
        yield Note(first, "caveat", others)
