"""What `upskill recheck` found: a table as Markdown and as a page, with a line for each skill and model."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Sequence

from upskill.plain import counted, printable
from upskill.reports.gate import change_in_words, losing_cases, table_row
from upskill.reports.numbers import UNKNOWN
from upskill.reports.view import row_in_words
from upskill.runs.running.gate import EXACT
from upskill.runs.running.recheck import Recheck, Rechecked
from upskill.verdicts.library import FALSE_DISCOVERY_RATE

MARKS = {"keep": "✅", "retire": "➖", "repair": "❌", "undecided": "❔"}
SIGNS = {"keep": "✓", "retire": "=", "repair": "✗", "undecided": "?"}
HEAD = ("Result", "Skill", "Model", "Before", "Without → with", "Why")


def headline(library: Sequence[Rechecked]) -> str:
    counts = Counter(each.status for each in library if each.status != "no suite")
    return (
        ", ".join(f"{status} {counts[status]}" for status in MARKS if counts[status])
        or "no skill has test cases"
    )


def render_markdown(recheck: Recheck, library: Sequence[Rechecked]) -> str:
    lines = [f"### upskill recheck: {headline(library)}", ""]
    if rows := [_cells(each) for each in library if each.status != "no suite"]:
        lines += [table_row(HEAD), "|" + "---|" * len(HEAD), *map(table_row, rows), ""]
    return "\n".join([*lines, *_notes(recheck, library)]) + "\n"


def render_page(recheck: Recheck, library: Sequence[Rechecked]) -> str:
    from upskill.reports.html.page import document  # noqa: PLC0415 - its assets, only where a page is written

    def cells(each: Rechecked) -> Iterator[str]:
        for name, text in zip(HEAD, _cells(each), strict=True):
            plain = html.escape(printable(text.replace("`", "")))
            if name == "Result":  # few fonts have emoji
                plain = f"{SIGNS[each.status]} {each.status}"
            if name == "Skill" and each.evaluation:
                plain = f'<a href="{each.evaluation.run.id}.html">{plain}</a>'
            yield (
                f"<th>{plain}</th>" if name in HEAD[:2] else f'<td data-head="{name}">{plain}</td>'
            )

    head = "".join(f"<th>{name}</th>" for name in HEAD)
    rows = "".join(
        f"<tr>{''.join(cells(each))}</tr>" for each in library if each.status != "no suite"
    )
    notes = "".join(
        f"<p>{html.escape(printable(line.replace('`', '')))}</p>"
        for line in _notes(recheck, library)
    )
    table = f'<table id="verdicts" class="wrap stacks"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    title = f"upskill recheck: {headline(library)}"
    return document(
        title,
        f"<main class=alone><h1>{html.escape(title)}</h1><div class=scroll>{table}</div>{notes}</main>",
        "",
    )


def _cells(each: Rechecked) -> list[str]:
    return [
        f"{MARKS[each.status]} {each.status}",
        f"`{each.skill.name}`",
        each.model or UNKNOWN,
        old_in_words(each),
        change_in_words(each.verdict, is_exact=each.is_exact),
        reason_in_words(each),
    ]


def old_in_words(each: Rechecked) -> str:
    """What was known of this model, else what is known of others."""
    same = [row for row in each.old if row["model"] == each.model]
    return "; ".join(row_in_words(row, named=not same) for row in same or each.old) or UNKNOWN


def reason_in_words(each: Rechecked) -> str:
    verdict = each.verdict
    if each.reason or verdict is None or verdict.lift is None:
        return each.reason or "it was not run"
    exact = EXACT if each.is_exact and verdict.decision == "undecided" else ""
    if each.decision == "helps":
        return f"it helps{exact}"
    tokens = verdict.total_tokens.mean if verdict.total_tokens else 0.0
    if each.decision == "saves":
        return f"the model does about as well and uses {-tokens:,.0f} fewer tokens per task"
    if each.decision == "no effect":
        cost = f", and it costs {tokens:,.0f} tokens per task" if tokens > 0 else ""
        return f"the model does about as well without it{cost}{exact}"
    if each.decision == "hurts":
        return f"it hurts. Cases that pass without it and fail with it: {', '.join(losing_cases(each.outcomes))}{exact}"
    if not each.evidence:
        return verdict.recommendation
    if each.rounds_needed is None:
        return f"undecided after {counted(each.rounds, 'round')}; more rounds like these would not settle it. Add cases"
    more = max(1, each.rounds_needed - each.rounds)
    trials = counted(more * len(each.outcomes) // each.rounds, "trial")
    return f"undecided after {counted(each.rounds, 'round')}. About {more:,} more ({trials}) would settle it"


def _notes(recheck: Recheck, library: Sequence[Rechecked]) -> Iterator[str]:
    if recheck.halted:
        yield f"Not all rounds were run: {recheck.halted}."
    if any(each.decision != "undecided" for each in library):
        yield f"Expect at most {FALSE_DISCOVERY_RATE:.0%} of these decisions to be wrong."
    if without := [f"`{each.skill.name}`" for each in library if each.status == "no suite"]:
        yield f"Not run, because they have no test cases: {', '.join(without)}. `upskill tests SKILL` writes some."
