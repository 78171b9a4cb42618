"""What `upskill matrix` found: whose requests each skill gets, and what to do about it."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from upskill.experiments.matrix import Matrix
from upskill.experiments.shadowing import Conflict
from upskill.plain import counted
from upskill.reports.layout import plain_table, render_result
from upskill.reports.numbers import percent, whole_points
from upskill.reports.pictures.shadow_map import shadow_map
from upskill.reports.pictures.svg import PictureOptions
from upskill.sandboxes import printable

MIN_SHARE = 0.05  # of a skill's requests: what the table names
SELDOM = (
    0.5  # of its requests: a skill that is opened less when it is alone needs another description
)


def conclusion(matrix: Matrix) -> str:
    if matrix.halted:
        return f"Not finished: {matrix.halted}. Run the same command with a higher ceiling to continue."
    losing = {each.skill for each in matrix.conflicts}
    if not losing:
        return "No skill is shown to take another's requests."
    verb = "loses" if len(losing) == 1 else "lose"
    return f"{len(losing)} of {counted(len(matrix.requests), 'skill')} {verb} requests when all are installed."


def describe(matrix: Matrix, conflict: Conflict) -> str:
    """A conflict in a sentence or two, with the advice."""
    requests = (
        f"{len(conflict.queries)} of its {counted(len(matrix.requests[conflict.skill]), 'request')}"
    )
    others = ", ".join(sorted(conflict.others)) if len(conflict.others) < 4 else "the other skills"
    change = ""
    if conflict.change:
        low, high = map(whole_points, conflict.change.interval)
        interval = (
            f", 95% interval {low} to {high}" if conflict.change.low < conflict.change.high else ""
        )
        change = f" ({whole_points(conflict.change.value)} points of activation on these{interval})"
    return f"{conflict.skill} loses {requests} beside {others}{change}. {matrix.advice(conflict).words}"


def lines(matrix: Matrix, matrices: Sequence[Matrix]) -> Iterator[str]:
    yield from dict.fromkeys(describe(matrix, each) for each in matrix.conflicts)
    for each in matrix.shadowing.conflicts:
        if not each.shown and not matrix.halted:
            why = (
                "but the test found no loss" if each.cleared else "but the test did not confirm it"
            )
            yield f"{each.skill} seemed to lose requests beside {', '.join(sorted(each.others))}, {why}."
    alone = {name: matrix.shadowing.alone(name) for name in matrix.requests}
    seldom = [name for name, rate in alone.items() if rate is not None and rate < SELDOM]
    if seldom:
        names = ", ".join(seldom)
        yield f"Seldom activated even alone on the requests in doubt: {names}. `upskill trigger --improve` may help."
    if matrix.catalog and (cut := matrix.cut):
        yield f"The catalog of {matrix.catalog} cuts or leaves out: {', '.join(cut)}."
    yield from matrix.notes if matrix is matrices[0] else ()
    pairs = len(matrix.requests) * (len(matrix.skills) - 1)
    tried = counted(len(matrix.shadowing.catalogs), "set")
    trials = counted(matrix.shadowing.trials, "trial")
    yield f"It took {trials} with {tried} of installed skills. {counted(pairs, 'pair')} in all."


def render(matrices: Sequence[Matrix]) -> Iterator[RenderableType]:
    for matrix in matrices:
        student = f"{matrix.student}: " if len(matrices) > 1 else ""
        yield from render_result(
            student + conclusion(matrix), lines(matrix, matrices), _table(matrix)
        )


def _table(matrix: Matrix) -> Table:
    figures = ("Requests", "Reach it", "Alone")
    table = plain_table("Whose requests", *figures, "Opened instead", right=figures)
    accused = {(each.skill, *each.others) for each in matrix.conflicts}
    for name, queries in matrix.requests.items():
        shares, alone = matrix.shadowing.shares(name), matrix.shadowing.alone(name)
        taken = [
            f"[red]{escape(other)} {percent(share)}[/red]"
            if (name, other) in accused
            else f"{other or 'nothing'} {percent(share)}"
            for other, share in sorted(shares.items(), key=lambda each: -each[1])
            if other != name and (share >= MIN_SHARE or (name, other) in accused)
        ]
        reached = ["–" if share is None else percent(share) for share in (shares.get(name), alone)]
        table.add_row(escape(printable(name)), str(len(queries)), *reached, ", ".join(taken))
    return table


def render_page(matrices: Sequence[Matrix]) -> str:
    from upskill.reports.html.page import document  # noqa: PLC0415 - its assets, only where a page is written

    parts = ["<h1>Who gets whose requests</h1>"]
    for matrix in matrices:
        parts.append(
            f"<h2>{html.escape(matrix.student)}</h2><p>{html.escape(conclusion(matrix))}</p>"
        )
        parts.append(shadow_map(matrix.to_dict(), PictureOptions(heading=False, style=False)))
        parts += [
            f"<p>{html.escape(printable(line).replace('`', ''))}</p>"
            for line in lines(matrix, matrices)
        ]
    return document("Who gets whose requests", f"<main class=alone>{''.join(parts)}</main>", "")
