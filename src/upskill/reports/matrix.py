"""What `upskill matrix` found: whose requests each skill gets, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from upskill.experiments.matrix import Matrix
from upskill.experiments.shadowing import Conflict
from upskill.plain import counted
from upskill.reports.json import to_plain
from upskill.reports.numbers import format_cell
from upskill.reports.report import Cell, Headline, Measure, Note, Report, Table, Tone

MIN_SHARE = 0.05  # of a skill's requests: what the table names
SELDOM = 0.5  # of its requests: a skill opened less when it is alone needs another description


def report_matrix(matrices: Sequence[Matrix]) -> Report:
    headlines: list[Headline] = []
    tables: list[Table] = []
    notes: list[Note] = []
    for matrix in matrices:
        student = f"{matrix.student}: " if len(matrices) > 1 else ""
        headlines += _headlines(matrix, student)
        pairs = counted(len(matrix.requests) * (len(matrix.skills) - 1), "pair")
        tried = counted(len(matrix.shadowing.catalogs), "set")
        trials = counted(matrix.shadowing.trials, "trial")
        note = f"It took {trials} with {tried} of installed skills. {pairs} in all."
        tables.append(Table.of(_rows(matrix), matrix.student if student else "", note=note))
        notes += (Note(f"{student}{line}", "caveat") for line in _caveats(matrix))
    notes += (Note(line, "caveat") for line in matrices[0].notes)
    return Report(
        title="Who gets whose requests",
        name="matrix",
        data={"students": to_plain(matrices)},
        headlines=headlines,
        tables=tables,
        notes=notes,
    )


def _headlines(matrix: Matrix, student: str) -> Iterator[Headline]:
    tone: Tone = "neutral" if matrix.halted else "bad" if matrix.conflicts else "good"
    yield Headline(student + conclusion(matrix), tone)
    for line in dict.fromkeys(describe(matrix, each) for each in matrix.conflicts):
        yield Headline(student + line, "bad")


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
    of = counted(len(matrix.requests[conflict.skill]), "request")
    requests = f"{len(conflict.queries)} of its {of}"
    others = ", ".join(sorted(conflict.others)) if len(conflict.others) < 4 else "the other skills"
    change = ""
    if conflict.change:
        lost = format_cell(Measure.of(conflict.change), "points")
        change = f": {lost} points of activation"
    advice = matrix.advice(conflict).words
    return f"{conflict.skill} loses {requests} beside {others}{change}. {advice}"


def _caveats(matrix: Matrix) -> Iterator[str]:
    for each in matrix.shadowing.conflicts:
        if each.shown or matrix.halted:
            continue
        test = "found no loss" if each.cleared else "did not confirm it"
        others = ", ".join(sorted(each.others))
        yield f"{each.skill} seemed to lose requests beside {others}, but the test {test}."
    alone = {name: matrix.shadowing.alone(name) for name in matrix.requests}
    seldom = [name for name, rate in alone.items() if rate is not None and rate < SELDOM]
    if seldom:
        names = ", ".join(seldom)
        yield f"Seldom activated even alone on the requests in doubt: {names}. `upskill trigger --improve` may help."
    if matrix.catalog and (cut := matrix.cut):
        yield f"The catalog of {matrix.catalog} cuts or leaves out: {', '.join(cut)}."


def _rows(matrix: Matrix) -> Iterator[Mapping[str, Cell]]:
    accused = {(each.skill, *each.others) for each in matrix.conflicts}
    for name, queries in matrix.requests.items():
        shares = matrix.shadowing.shares(name)
        instead = {
            other or "nothing": share
            for other, share in sorted(shares.items(), key=lambda each: -each[1])
            if other != name and (share >= MIN_SHARE or (name, other) in accused)
        }
        for other, share in (instead or {"": None}).items():
            yield {
                "Whose requests": name,
                "Requests": len(queries),
                "Reach it": shares.get(name),
                "Alone": matrix.shadowing.alone(name),
                "Opened instead": other,
                "Share": share,
            }
