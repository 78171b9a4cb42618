"""What `upskill distill` found: versions by tokens and pass rate, and what each block is worth."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from upskill.experiments.distill import Decision, Distilled, Point
from upskill.plain import counted
from upskill.reports.layout import plain_table, render_result
from upskill.reports.numbers import percent, whole_points
from upskill.reports.pictures.front import front
from upskill.reports.pictures.svg import PictureOptions
from upskill.sandboxes import printable

MAX_NAMED = 12  # blocks of a kind
DARK_FROM = 0.15  # points of pass rate, as a share: what is worth more is darker
WORTH = "Worth in points (95% interval)"
COLORS = {"harmful": "red", "dropped": "dim", "kept": "green", "not tried": "dim"}


def conclusion(distilled: Distilled) -> str:
    before, after = distilled.tokens
    shorter = f"{before:,} → {after:,} tokens ({after / max(1, before):.0%})"
    tolerance = f"{100 * distilled.ablation.tolerance:g} points"
    rounds = counted(
        distilled.ablation.fresh_rounds(distilled.within or distilled.ablation.dropped),
        "fresh repeat",
    )
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
    if distilled.decision == "unchanged" and distilled.ablation.has_nothing_to_lose:
        return "Nothing was dropped: hardly any train case passes with the skill, so no line can be seen to matter."
    if distilled.decision == "distilled" and not after:
        return f"The train cases need no line of it: without any, they lose at most {tolerance} ({rounds})."
    return conclusions[distilled.decision]


def render(distilled: Distilled, difference: str) -> Iterator[RenderableType]:
    style = "bold green" if distilled.decision == "distilled" else "bold"
    yield from render_result(
        conclusion(distilled), _lines(distilled), _front_table(distilled.front), style
    )
    if difference:
        yield Text("")
        yield Syntax(
            printable(difference),
            "diff",
            theme="ansi_dark",
            background_color="default",
            word_wrap=True,
        )


def _lines(distilled: Distilled) -> Iterator[str]:
    for fate, what in (("harmful", "It does better without"), ("dropped", "Dropped")):
        blocks = [each.block for each in distilled.blocks if each.fate == fate]
        for block in blocks[:MAX_NAMED]:
            yield f"{what}: {block.title} ({counted(block.tokens, 'token')})"
        if len(blocks) > MAX_NAMED:
            yield f"… and {len(blocks) - MAX_NAMED} more."
    if held_out := distilled.held_out:
        for verdict in held_out.verdicts:
            if verdict.lift is not None:
                interval = (
                    f" (95% interval {_interval(verdict.interval)})" if verdict.interval else ""
                )
                cases = counted(len(held_out.plan.suite.cases), "held-out case")
                change = f"{whole_points(verdict.lift)} points against the whole skill{interval}"
                yield f"{verdict.model} on {cases}, compared once: {change}."
    failing = [case for case in distilled.ablation.cases if distilled.ablation.fails(case)]
    if failing and not distilled.halted:
        more = ", …" if len(failing) > MAX_NAMED else ""
        yield f"Fail with the whole skill, so lines that only they need can go: {', '.join(failing[:MAX_NAMED])}{more}"
    if (
        distilled.ablation.accepted
        and not distilled.within
        and "dropped" in {each.fate for each in distilled.blocks}
    ):
        yield "No train case was seen to need what was dropped. If some of it matters to you, add a case that needs it."
    if distilled.ablation.reference and any(point.change for point in distilled.front):
        yield "Change is against the skill without the lines that hurt."
    trials = counted(distilled.engine.trials, "trial")
    where = f" Line by line: upskill show {distilled.whole.folder or distilled.whole.name} --worth"
    yield f"It took {trials}.{where if any(each.worth for each in distilled.blocks) else ''}"


def _front_table(front: Sequence[Point]) -> Table | None:
    table = plain_table(
        "Version", "Model", "Tokens", "Pass rate (95% interval)", "Change", right=["Tokens"]
    )
    for point in front:
        rate, change = point.rate, point.change
        shown = f"{percent(rate.value)} ({percent(rate.low)} to {percent(rate.high)})"
        moved = f"{whole_points(change.value)} ({_interval(change.interval)})" if change else ""
        table.add_row(point.name, escape(printable(point.model)), f"{point.tokens:,}", shown, moved)
    return table if front else None


def _interval(interval: Iterable[float]) -> str:
    return " to ".join(map(whole_points, interval))


def to_json(distilled: Distilled) -> dict[str, Any]:
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


def worth_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Of blocks as `BlockWorth.to_dict` has them."""
    table = plain_table("Block", "Tokens", WORTH, "", right=["Tokens"])
    for row in rows:
        text, worth, fate = _cells(row)
        color = COLORS[row["fate"]]
        table.add_row(
            escape(text),
            f"{row['tokens']:,}",
            escape("\n".join(worth) or "–"),
            f"[{color}]{fate}[/{color}]",
        )
    return table


def _cells(row: Mapping[str, Any]) -> tuple[str, list[str], str]:
    """The text of a block, what it is worth to each student, and what became of it."""
    together = f", with {counted(row['beside'], 'other block')}" if row["beside"] else ""
    worth: list[str] = []
    for each in row["worth"]:
        model = f"{each['model']}: " if len(row["worth"]) > 1 else ""
        points = f"{whole_points(each['value'] or 0.0)} ({_interval(each['interval'])})"
        worth.append(", ".join([f"{model}{points}{together}", *each["cases"]]))
    text = row["path"] if row["kind"] == "file" else row["text"]
    return printable(text), worth, "hurts" if row["fate"] == "harmful" else row["fate"]


def render_page(distilled: Distilled) -> str:
    """The text of the skill with a strip beside each block: the greener, the more it is worth; purple hurts."""
    from upskill.reports.html.page import document  # noqa: PLC0415 - its assets, only where a page is written

    title, found = f"What {distilled.whole.name} is made of", to_json(distilled)
    picture = front(found, PictureOptions(heading=False, style=False)) if found["front"] else ""
    strip = "".join(map(_strip, found["blocks"]))
    head = f"<tr><th></th><th>Block</th><th>Tokens</th><th>{WORTH}</th></tr>"
    body = f"<h1>{html.escape(title)}</h1><p>{html.escape(conclusion(distilled))}</p>{picture}"
    table = f"<table class=wrap><thead>{head}</thead><tbody>{strip}</tbody></table>"
    return document(title, f"<main class=alone>{body}{table}</main>", "")


def _strip(row: Mapping[str, Any]) -> str:
    text, worth, fate = _cells(row)
    most = max((each["value"] or 0.0 for each in row["worth"]), default=0.0)
    shade = 0 if fate == "hurts" else 2 if fate != "kept" else 4 if most >= DARK_FROM else 3
    tag = "pre" if row["kind"] == "code" else "span"
    text = f"<{tag}>{html.escape(text)}</{tag}>"
    mark = {"dropped": "s", "hurts": "del"}.get(fate)
    text = f"<{mark}>{text}</{mark}>" if mark else text
    swatch = f'<svg width="14" height="28" role="img"><rect width="14" height="28" class="up-heat-{shade}"/></svg>'
    lines = "<br>".join(map(html.escape, [fate, *worth]))
    return f"<tr><td>{swatch}</td><td>{text}</td><td>{row['tokens']:,}</td><td>{lines}</td></tr>"
