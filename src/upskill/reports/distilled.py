"""What `upskill distill` found: versions by tokens and pass rate, and what each block is worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from upskill.experiments.distill import Decision, Distilled
from upskill.plain import counted
from upskill.reports.report import (
    Cell,
    Column,
    Headline,
    Measure,
    NextCommand,
    Note,
    Report,
    Section,
    Table,
)
from upskill.verdicts.line import signed_points

FATES = {"harmful": "does better without", "dropped": "dropped"}
FRONT = (
    Column("Version"),
    Column("Model"),
    Column("Tokens", "count"),
    Column("Pass rate (95% interval)", "share"),
    Column("Change", "points"),
)
BLOCKS = (Column("What goes"), Column("Tokens", "count"), Column("Why"))
WORTH = (
    Column("Block"),
    Column("Tokens", "count"),
    Column("Model", spare=True),
    Column("Worth in points (95% interval)", "points"),
    Column("Cases", spare=True),
    Column(""),
)


def report_distilled(distilled: Distilled, difference: str) -> Report:
    is_shorter = distilled.decision == "distilled"
    data = _to_json(distilled)
    tables = [*_front_table(distilled), *_block_table(distilled)]
    worth = _worth_table(data["blocks"])
    if worth.rows:
        tables.append(worth)
    sections = (Section(title="Changes", text=difference, is_code=True),) if difference else ()
    return Report(
        title=f"What {distilled.whole.name} is made of",
        name=distilled.whole.name,
        data=data,
        headlines=(Headline(conclusion(distilled), "good" if is_shorter else "neutral"),),
        tables=tuple(tables),
        notes=tuple(_notes(distilled)),
        next=tuple(_next(distilled)),
        sections=sections,
    )


def report_worth(skill: str, created: str, blocks: list[dict[str, Any]]) -> Report:
    """Of blocks as `BlockWorth.to_dict` has them (`upskill show SKILL --worth`)."""
    return Report(
        title=f"What {skill} is made of",
        data={"skill": skill, "created": created, "blocks": blocks},
        tables=(_worth_table(blocks, is_detail=False),),
    )


def conclusion(distilled: Distilled) -> str:
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


def _front_table(distilled: Distilled) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    for point in distilled.front:
        rate, change = Measure.of(point.rate), Measure.of(point.change)
        rows.append((point.name, point.model, point.tokens, rate, change))
    if not rows:
        return
    note = ""
    if distilled.ablation.reference and any(point.change for point in distilled.front):
        note = "Change is against the skill without the lines that hurt."
    yield Table(columns=FRONT, rows=tuple(rows), note=note)


def _block_table(distilled: Distilled) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    for fate, why in FATES.items():
        blocks = [each.block for each in distilled.blocks if each.fate == fate]
        rows += ((block.title, block.tokens, why) for block in blocks)
    if rows:
        yield Table(columns=BLOCKS, rows=tuple(rows))


def _worth_table(blocks: Iterable[Mapping[str, Any]], *, is_detail: bool = True) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for block in blocks:
        text = block["path"] if block["kind"] == "file" else block["text"]
        fate = "hurts" if block["fate"] == "harmful" else block["fate"]
        if block["beside"]:
            fate += f", with {counted(block['beside'], 'other block')}"
        head: tuple[Cell, ...] = (text, block["tokens"])
        for each in block["worth"]:
            low, high = each["interval"]
            worth = Measure(each["value"] or 0.0, low, high)
            rows.append((*head, each["model"], worth, ", ".join(each["cases"]), fate))
            head = ("", "")  # the next row is about the same block
        if not block["worth"]:
            rows.append((*head, "", None, "", fate))
    return Table(columns=WORTH, rows=tuple(rows), is_detail=is_detail)


def _notes(distilled: Distilled) -> Iterator[Note]:
    if held_out := distilled.held_out:
        cases = counted(len(held_out.plan.suite.cases), "held-out case")
        for verdict in held_out.verdicts:
            if verdict.lift is None:
                continue
            change = f"{signed_points(verdict.lift)} points against the whole skill"
            if verdict.interval:
                low, high = map(signed_points, verdict.interval)
                change += f" (95% interval {low} to {high})"
            yield Note(f"{verdict.model} on {cases}, compared once: {change}.", "caveat")
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
    yield Note(f"It took {counted(distilled.engine.trials, 'trial')}.", "detail")


def _next(distilled: Distilled) -> Iterator[NextCommand]:
    if any(each.worth for each in distilled.blocks):
        skill = distilled.whole.folder or distilled.whole.name
        yield NextCommand(f"upskill show {skill} --worth", "See what each line is worth")


def _to_json(distilled: Distilled) -> dict[str, Any]:
    before, after = distilled.tokens
    held_out = distilled.held_out
    return {
        "skill": distilled.whole.name,
        "decision": distilled.decision,
        "conclusion": conclusion(distilled),
        "tokens": {"before": before, "after": after},
        "tolerance": distilled.ablation.tolerance,
        "front": [
            {
                "version": point.name,
                "model": point.model,
                "tokens": point.tokens,
                "pass_rate": point.rate.to_dict(),
                "change": point.change.to_dict() if point.change else None,
            }
            for point in distilled.front
        ],
        "blocks": [each.to_dict() for each in distilled.blocks],
        "held_out": held_out
        and {"run": held_out.run.id, "models": [each.to_dict() for each in held_out.verdicts]},
        "trials": distilled.engine.trials,
        "halted": distilled.halted or None,
        "body": distilled.skill.body,
    }
