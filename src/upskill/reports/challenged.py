"""What `upskill challenge` found: counterexamples to a skill, or answers that the checks of a suite judge wrongly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from upskill.experiments.attacks import Attacked
from upskill.experiments.counterexamples import Challenged
from upskill.plain import counted, short
from upskill.reports.layout import Paragraph
from upskill.reports.numbers import percent
from upskill.sandboxes import printable


def conclusion(found: Challenged) -> str:
    count, tried = len(found.counterexamples), counted(len(found.proposals), "proposal")
    undecided = sum(each.status == "undecided" for each in found.proposals)
    more = f" {undecided} stayed undecided." if undecided else ""
    if not count:
        return f"None of {tried} is shown to mislead the student.{more}"
    return f"{count} of {tried} pass without the skill and fail with it.{more}"


def render(found: Challenged) -> Iterator[RenderableType]:
    yield Text("")
    yield Paragraph(conclusion(found), "bold")
    yield Text("")
    shown = [each for each in found.proposals if each.status != "harmless"]
    if shown:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("Case", "Model", "Without", "With", "Rounds", ""):
            table.add_column(name, justify="right" if name in ("Without", "With", "Rounds") else "left")
        for each in shown:
            for model, (without, with_it) in each.rates.items():
                name, student = escape(printable(each.case.id)), escape(printable(model))
                table.add_row(name, student, percent(without), percent(with_it), str(each.rounds), each.status)
        yield table
        yield Text("")
    for each in found.proposals:
        if each.status == "counterexample":
            yield Paragraph(f"{each.case.id}: {printable(short(each.case.prompt, 200))}", hanging=2)
            yield Paragraph(f"  right: {printable(short(each.case.reference, 200))}", hanging=2)
            if each.line:
                yield Paragraph(f"  the skill says: {printable(short(each.line, 200))}", hanging=2)
    if found.halted:
        yield Paragraph(f"Stopped early: {found.halted}. Run the same command with a higher ceiling to continue.")
    yield Paragraph(f"It took {counted(found.trials, 'trial')}.")


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
    fates, rounds = Counter(each.fate for each in attacked.attacks), counted(attacked.rounds, "round")
    if not attacked.attacks:
        return f"The attacker found no answer that the checks judge wrongly ({rounds})."
    found = f"The checks judged {counted(len(attacked.attacks), 'answer')} wrongly"
    fixed = f"{fates['fixed']} fixed in {counted(len(attacked.changed), 'case')}"
    clean, more = "The last round found nothing.", "The last round still found some: allow more --rounds."
    return f"{found}, {fixed} ({rounds}). {clean if attacked.is_clean else more}"


def render_attacks(attacked: Attacked) -> Iterator[RenderableType]:
    yield Text("")
    yield Paragraph(attack_conclusion(attacked), "bold")
    yield Text("")
    for each in attacked.attacks:
        what = "wrong, and passed" if each.kind == "wrong" else "right, and failed"
        state = {"fixed": "", "open": " (not fixed)", "disputed": " (disputed by who fixes the checks)"}[each.fate]
        yield Paragraph(f"{each.case}: {printable(short(each.answer, 120))} – {what}{state}", hanging=2)
    if attacked.refused:
        yield Paragraph(f"Not counted, because another reader disagreed: {counted(attacked.refused, 'answer')}")
    if attacked.skipped:
        yield Paragraph(
            f"Not attacked, because their checks run something or ask a judge: {', '.join(attacked.skipped)}"
        )


def attacks_to_json(attacked: Attacked) -> dict[str, Any]:
    return {
        "conclusion": attack_conclusion(attacked),
        "rounds": attacked.rounds,
        "clean": attacked.is_clean,
        "changed": attacked.changed,
        "attacks": [
            {"case": each.case, "kind": each.kind, "answer": each.answer, "fate": each.fate}
            for each in attacked.attacks
        ],
        "refused": attacked.refused,
        "skipped": attacked.skipped,
    }
