"""`heat_map`: every case with every model and arm. If there are many cases, those with the same results share a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

from upskill.plain import counted
from upskill.reports.pictures.svg import (
    DASHED,
    SMALL,
    Drawing,
    PictureOptions,
    clean,
    element,
    legend,
    swatch,
    text_width,
)
from upskill.verdicts.arms import by_arm
from upskill.verdicts.outcome import Outcome

MAX_ROWS = 60  # of a picture; more cases are folded
MAX_NAMED = 20  # cases of a row that its tooltip names
CELL, ROW = 44, 19  # px: the narrowest cell, and how high a row is
ARMS = {
    "baseline": "base",
    "baseline_repeat": "A/A",
    "placebo": "placebo",
    "skill": "skill",
}  # as columns call them
FOLDED = "A row with several cases groups those with the same or similar results."


Counts = tuple[int, int, int]  # passed, failed, errored
Cells = Mapping[tuple[str, str, str], Counts]  # by case, model and arm


def cells_of(outcomes: Iterable[Outcome]) -> Cells:
    """Counted by case, model and arm; a retried trial counts once."""
    by_model: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_model.setdefault(outcome.model, []).append(outcome)
    results: dict[tuple[str, str, str], list[bool | None]] = {}
    for model, rows in by_model.items():
        for arm in by_arm(rows).values():
            for (case, _), outcome in arm.trials.items():
                results.setdefault((case, model, arm.name), []).append(outcome.passed)
    return {
        key: (passed.count(True), passed.count(False), passed.count(None))
        for key, passed in results.items()
    }


@dataclass(frozen=True, slots=True)
class _Row:
    cases: tuple[str, ...]
    cells: tuple[Counts, ...]  # one a column

    @property
    def name(self) -> str:
        return self.cases[0] if len(self.cases) == 1 else counted(len(self.cases), "case")


def heat_map(
    document: Mapping[str, Any],
    cells: Cells,
    options: PictureOptions | None = None,
    *,
    cases: Sequence[str] = (),
) -> str:
    """`cases` are all cases, in order; one without a trial is shown as missing."""
    ids = list(dict.fromkeys([*cases, *(case for case, _, _ in cells)]))
    models = list(
        dict.fromkeys(
            [*(str(model["model"]) for model in document["models"]), *(m for _, m, _ in cells)]
        )
    )
    arms = [arm for arm in ARMS if any(name == arm for _, _, name in cells)] or [
        "baseline",
        "skill",
    ]
    drawing = Drawing(
        "heat-map", f"Cases of {document['skill']['name']}", options or PictureOptions()
    )
    drawing.heading(
        document,
        f"Share of trials that passed, in %: {counted(len(ids), 'case')}, {counted(len(models), 'model')}",
    )
    _Map(drawing, ids, models, arms, cells).draw()
    _legend(drawing, arms)
    for arm in arms:
        passed, failed, errored = _add(
            [counts for (_, _, name), counts in cells.items() if name == arm]
        )
        drawing.words.append(
            f"{ARMS[arm]}: {passed} of {passed + failed} trials passed, {errored} errored."
        )
    return drawing.svg()


def _add(cells: Sequence[Counts]) -> Counts:
    return (
        sum(cell[0] for cell in cells),
        sum(cell[1] for cell in cells),
        sum(cell[2] for cell in cells),
    )


def _fold(rows: list[_Row], most: int) -> list[_Row]:
    """At most so many rows: cases with the same results share one and, if needed, so do similar cases."""
    if len(rows) <= most:
        return rows
    alike: dict[tuple[Counts, ...], list[str]] = {}
    for row in rows:
        alike.setdefault(row.cells, []).extend(row.cases)
    folded = [_Row(tuple(ids), cells) for cells, ids in alike.items()]
    folded.sort(key=lambda row: (_rate(row), len(row.cases)))
    if len(folded) <= most:
        return folded
    ordered = sorted(rows, key=_rate)
    bounds = [round(index * len(ordered) / most) for index in range(most + 1)]
    return [_sum(ordered[start:end]) for start, end in pairwise(bounds) if end > start]


def _sum(rows: list[_Row]) -> _Row:
    columns = zip(*(row.cells for row in rows), strict=True)
    return _Row(tuple(case for row in rows for case in row.cases), tuple(map(_add, columns)))


def _rate(row: _Row) -> float:
    passed, failed, _ = _add(row.cells)
    return passed / (passed + failed) if passed + failed else -1.0


class _Map:
    def __init__(
        self, drawing: Drawing, cases: list[str], models: list[str], arms: list[str], cells: Cells
    ) -> None:
        self.drawing, self.cases, self.models, self.arms, self.cells = (
            drawing,
            cases,
            models,
            arms,
            cells,
        )
        names = max((text_width(clean(case[:60]), SMALL) for case in cases), default=0)
        self.left = min(max(names, text_width("2,000 cases", SMALL)) + 14, 0.32 * drawing.width)
        self.labels = drawing.label(cases, self.left - 10, SMALL) if len(cases) <= MAX_ROWS else {}
        room = drawing.width - self.left
        self.in_panel = min(max(1, int(room / (CELL * len(arms)))), max(1, len(models)))
        self.span = room / self.in_panel  # of one model
        self.heads = drawing.label(models, self.span - 6, bold=True)

    def draw(self) -> None:
        panels = [
            self.models[start : start + self.in_panel]
            for start in range(0, len(self.models), self.in_panel)
        ]
        most = max(8, MAX_ROWS // max(1, len(panels)))
        for panel in panels:
            columns = [(model, arm) for model in panel for arm in self.arms]
            rows = [
                _Row(
                    (case,), tuple(self.cells.get((case, *column), (0, 0, 0)) for column in columns)
                )
                for case in self.cases
            ]
            self._heads(panel)
            for row in _fold(rows, most):
                self._row(row)
            self.drawing.height += 14
        if len(self.cases) > most:
            self.drawing.text(
                0, self.drawing.height + 4, FOLDED, "muted", size=SMALL, room=self.drawing.width
            )
            self.drawing.height += 10

    def _heads(self, panel: list[str]) -> None:
        drawing, width = self.drawing, self.span / len(self.arms)
        for index, model in enumerate(panel):
            x = self.left + index * self.span
            drawing.text(
                x + self.span / 2,
                drawing.height + 13,
                self.heads[model],
                anchor="middle",
                bold=True,
            )
            for position, arm in enumerate(self.arms):
                middle = x + (position + 0.5) * width
                drawing.text(
                    middle, drawing.height + 29, ARMS[arm], "muted", size=SMALL, anchor="middle"
                )
        drawing.height += 36

    def _row(self, row: _Row) -> None:
        drawing, y, width = self.drawing, self.drawing.height, self.span / len(self.arms)
        own = Drawing(drawing.kind, drawing.title, drawing.options)
        if len(row.cases) > 1:
            own.add("title", "", escape(clean(", ".join(row.cases[:MAX_NAMED]))))
        own.text(0, y + 13, self.labels.get(row.name, row.name), size=SMALL, room=self.left - 10)
        for index, counts in enumerate(row.cells):
            model, position = divmod(index, len(self.arms))
            x = self.left + model * self.span + position * width
            kind, label = _look(counts)
            dashed = DASHED.get(kind, {})
            own.add("rect", kind, x=x + 1, y=y + 1, width=width - 2, height=ROW - 2, **dashed)
            own.text(
                x + width / 2,
                y + 13.5,
                label,
                "ink" if dashed else "heat-ink",
                size=SMALL,
                anchor="middle",
            )
        drawing.parts.append(element("g", "row", "".join(own.parts)))
        drawing.height += ROW


def _look(counts: Counts) -> tuple[str, str]:
    passed, failed, errored = counts
    scored = passed + failed
    if not scored:
        return ("heat-error", "err") if errored else ("heat-none", "–")
    rate = passed / scored
    step = 0 if not passed else 4 if not failed else 1 if rate < 0.4 else 2 if rate <= 0.6 else 3
    # Never round to 0 or 100 %.
    percentage = min(99, max(1, round(100 * rate))) if passed and failed else round(100 * rate)
    return f"heat-{step}", f"{percentage}{'!' if errored else ''}"


def _legend(drawing: Drawing, arms: list[str]) -> None:
    texts = {
        "baseline": f"base: {drawing.options.baseline}",
        "skill": "skill: this skill" if drawing.options.has_reference else "skill: with it",
        "placebo": "placebo: a text of the skill's length",
        "baseline_repeat": "A/A: the baseline repeated",
    }
    shades = ("0: always fails", "below 40", "40 to 60", "above 60", "100: always passes")
    entries = [(text, swatch(f"heat-{step}")) for step, text in enumerate(shades)]
    entries += [
        ("–: not run", swatch("heat-none")),
        ("err: errored (! some)", swatch("heat-error")),
    ]
    legend(drawing, entries)
    drawing.height += 16
    drawing.text(
        0,
        drawing.height,
        "; ".join(texts[arm] for arm in arms),
        "muted",
        size=SMALL,
        room=drawing.width,
    )
