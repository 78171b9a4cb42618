"""What `upskill distill` found: versions by tokens and pass rate, and what each block is worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from upskill.experiments.distill import Decision, Distilled
from upskill.plain import counted
from upskill.reports.json import pick, to_plain
from upskill.reports.numbers import format_cell
from upskill.reports.report import (
    Cell,
    Headline,
    Measure,
    NextCommand,
    Note,
    Report,
    Section,
    Table,
    note_effort,
)

FATES = {"harmful": "does better without", "dropped": "dropped"}


def report_distilled(distilled: Distilled, difference: str) -> Report:
    conclusion = _conclude(distilled)
    data = _to_json(distilled, conclusion)
    note = ""
    if distilled.ablation.reference and any(point.change for point in distilled.front):
        note = "Change is against the skill without the lines that hurt."
    skill = distilled.whole.folder or distilled.whole.name
    command = NextCommand(f"upskill show {skill} --worth", "See what each line is worth")
    return Report(
        title=f"What {distilled.whole.name} is made of",
        name=distilled.whole.name,
        data=data,
        headlines=[
            Headline(conclusion, "good" if distilled.decision == "distilled" else "neutral")
        ],
        tables=[
            Table.of(_front(distilled), note=note),
            Table.of(_blocks(distilled)),
            Table.of(_worth(data["blocks"]), is_detail=True),
        ],
        notes=[*_notes(distilled), *note_effort("", distilled.engine.trials)],
        next=[command] if any(each.worth for each in distilled.blocks) else (),
        sections=[Section(title="Changes", text=difference)] if difference else (),
    )


def report_worth(skill: str, created: str, blocks: list[dict[str, Any]]) -> Report:
    """Of blocks as `BlockWorth.to_dict` has them (`upskill show SKILL --worth`)."""
    return Report(
        title=f"What {skill} is made of",
        data={"skill": skill, "created": created, "blocks": blocks},
        tables=[Table.of(_worth(blocks))],
    )


def _conclude(distilled: Distilled) -> str:
    before, after = distilled.tokens
    ablation = distilled.ablation
    shorter = f"{before:,} → {after:,} tokens ({after / max(1, before):.0%})"
    tolerance = f"{100 * ablation.tolerance:g} points"
    fresh = ablation.fresh_rounds(distilled.within or ablation.dropped)
    rounds = counted(fresh, "fresh repeat")
    conclusions: dict[Decision, str] = {
        "distilled": f"{shorter}. It is not worse by more than {tolerance} on the train cases ({rounds}).",
        "best guess": f"{shorter} seems to be as good, but {rounds} do not show that it loses at most {tolerance}."
        " Allow more --repeats or a larger --tolerance.",
        "worse on held-out cases": f"{shorter}. The shorter version is as good on the train cases, but worse on the"
        " held-out cases, which need other lines. Use --all-cases to keep those lines.",
        "over the tolerance": f"{shorter}. Within that budget, it may lose more than {tolerance} (see Change).",
        "not decided": f"Not decided: {distilled.halted}. Run the same command with a higher ceiling to continue.",
        "unchanged": "Nothing can go: the train cases need every block, or it is not clear which they don't"
        f" ({before:,} tokens).",
    }
    if distilled.decision == "unchanged" and ablation.has_nothing_to_lose:
        return "Nothing was dropped: hardly any train case passes with the skill, so no line can be seen to matter."
    if distilled.decision == "distilled" and not after:
        return f"The train cases need no line of it: without any, they lose at most {tolerance} ({rounds})."
    return conclusions[distilled.decision]


def _front(distilled: Distilled) -> Iterator[Mapping[str, Cell]]:
    for point in distilled.front:
        yield {
            "Version": point.name,
            "Model": point.model,
            "Tokens": point.tokens,
            "Pass rate (95% interval)": Measure.of(point.rate),
            "Change": Measure.of(point.change),
        }


def _blocks(distilled: Distilled) -> Iterator[Mapping[str, Cell]]:
    for each in distilled.blocks:
        if each.fate in FATES:
            block = each.block
            yield {"What goes": block.title, "Tokens": block.tokens, "Why": FATES[each.fate]}


# Of a block that was not tried.
NOT_MEASURED: Mapping[str, Any] = {"model": "", "value": None, "interval": (), "cases": ()}


def _worth(blocks: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Cell]]:
    for block in blocks:
        fate = "hurts" if block["fate"] == "harmful" else block["fate"]
        if block["beside"]:
            fate += f", with {counted(block['beside'], 'other block')}"
        for each in block["worth"] or [NOT_MEASURED]:
            yield {
                "Block": block["path"] if block["kind"] == "file" else block["text"],
                "Tokens": block["tokens"],
                "Student": each["model"],
                "Worth in points (95% interval)": Measure(each["value"], *each["interval"]),
                "Needed by": ", ".join(each["cases"]),
                "": fate,
            }


def _notes(distilled: Distilled) -> Iterator[Note]:
    if held_out := distilled.held_out:
        cases = counted(len(held_out.plan.suite.cases), "held-out case")
        for verdict in held_out.verdicts:
            if verdict.lift is None:
                continue
            change = format_cell(
                Measure(verdict.lift, *(verdict.interval or (None, None))), "points"
            )
            words = f"{verdict.model} on {cases}, compared once with the whole skill"
            yield Note(f"{words}: {change} points.", "caveat")
    ablation = distilled.ablation
    failing = [case for case in ablation.cases if ablation.fails(case)]
    if failing and not distilled.halted:
        names = ", ".join(failing)
        why = "Fail with the whole skill, so lines that only they need can go"
        yield Note(f"{why}: {names}", "caveat")
    fates = {each.fate for each in distilled.blocks}
    if ablation.accepted and not distilled.within and "dropped" in fates:
        why = "No train case was seen to need what was dropped."
        yield Note(f"{why} If some of it matters to you, add a case that needs it.", "caveat")


def _to_json(distilled: Distilled, conclusion: str) -> dict[str, Any]:
    before, after = distilled.tokens
    held_out = distilled.held_out
    front = [
        {
            "version": point.name,
            **pick(point, "model", "tokens"),
            "pass_rate": point.rate.to_dict(),
            "change": to_plain(point.change),
        }
        for point in distilled.front
    ]
    return {
        "skill": distilled.whole.name,
        "decision": distilled.decision,
        "conclusion": conclusion,
        "tokens": {"before": before, "after": after},
        "tolerance": distilled.ablation.tolerance,
        "front": front,
        "blocks": to_plain(distilled.blocks),
        "held_out": held_out and {"run": held_out.run.id, "models": to_plain(held_out.verdicts)},
        "trials": distilled.engine.trials,
        "halted": distilled.halted or None,
        "body": distilled.skill.body,
    }
