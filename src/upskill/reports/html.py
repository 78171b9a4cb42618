"""`html`: a report as one page that opens anywhere, without a network, and is read without scripts."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import quote

from markupsafe import Markup, escape

from upskill.reports.answers import describe_draw
from upskill.reports.numbers import format_cell
from upskill.reports.report import (
    MARKS,
    OUTCOMES,
    Cell,
    Column,
    Draw,
    Headline,
    Kind,
    Measure,
    Note,
    Report,
    Table,
)
from upskill.reports.svg import Scale, draw_axis, draw_interval, for_page
from upskill.reports.templates import asset, load_template
from upskill.reports.trial_rows import write_arguments
from upskill.sandboxes import printable
from upskill.verdicts.line import signed_points
from upskill.version import __version__

OPEN = 20  # cases of a group that fail
NOTES = 3  # besides caveats; more are folded


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a server adds to the page of a report."""

    address: str = ""  # of its index; empty: the page is a file
    run: str = ""  # whose answers can be reviewed
    follows: str = ""  # the revision that the page shows; it reloads with the next
    links: Mapping[str, str] = field(default_factory=dict[str, str])  # above the title

    def path(self, *parts: str) -> str:
        return self.address + "/".join(quote(part, safe="") for part in parts)

    @property
    def script(self) -> str:
        return asset("page.js") + (asset("live.js") if self.address else "")

    @property
    def policy(self) -> str:
        """Only our own script and style, and nothing is fetched from elsewhere."""
        script, style = _hash(self.script), _hash(asset("page.css"))
        policy = f"default-src 'none'; script-src {script}; style-src {style}; img-src data:;"
        fetched = "; connect-src 'self'" if self.address else ""
        return f"{policy} base-uri 'none'; form-action 'none'{fetched}"


def render(report: Report, served: Served = Served()) -> str:
    groups = list(report.groups())
    notes: dict[str, list[Note]] = {
        kind: [note for note in report.notes if note.kind == kind]
        for kind in ("alarm", "caveat", "note", "detail")
    }
    notes["more"] = notes["note"][NOTES:]
    del notes["note"][NOTES:]
    html = load_template("page.html.j2").render(
        sentence=write_text,
        cell=write_cell,
        columns_of=columns_of,
        arguments=write_arguments,
        describe_draw=describe_draw,
        draw_axis=draw_axis,
        draw_interval=draw_interval,
        draw_id=_draw_id,
        signed_points=signed_points,
        MARKS=MARKS,
        OUTCOMES=OUTCOMES,
        OPEN=OPEN,
        report=report,
        headlines=_headlines(report),
        tables=[table for table in report.tables if table.rows],
        notes=notes,
        groups=groups,
        is_one_case=sum(len(group.cases) for group in groups) == 1,
        pictures=[map(_as_address, pair) for pair in for_page(report)],
        script=Markup(served.script),  # noqa: S704 - ours
        style=Markup(asset("page.css")),  # noqa: S704 - ours
        served=served,
        version=__version__,
    )
    return html.lstrip()


def _draw_id(draw: Draw) -> str:
    """What a review is of."""
    trial = draw.result.trial
    seeds = [*map(str, draw.seeds)]  # longer than the numbers of JavaScript
    return json.dumps({"case": trial.case, "model": trial.model, "arm": trial.arm, "seeds": seeds})


def _headlines(report: Report) -> list[Headline]:
    """Without what the title or the table says."""
    cells = [cell for row in report.tables[0].rows for cell in row] if report.tables else []
    has_decisions = any(isinstance(cell, Headline) for cell in cells)
    return [
        each
        for each in report.headlines
        if each.text not in report.title and not (each.sign and has_decisions)
    ]


def columns_of(table: Table, is_result: bool) -> list[tuple[Column, str, Scale | None]]:
    """Each column with its class and, in the first table, the scale that all its intervals share."""
    columns: list[tuple[Column, str, Scale | None]] = []
    for number, column in enumerate(table.columns):
        cells = [row[number] for row in table.rows]
        measures = [cell for cell in cells if isinstance(cell, Measure)]
        if is_result and measures and column.kind == "points":
            columns.append((column, "measure", Scale.around(measures)))
        else:
            columns.append((column, "number" if column.is_number else "", None))
    return columns


def write_cell(cell: Cell, kind: Kind = "count") -> Markup:
    text = format_cell(cell, kind)
    return write_text(f"`{text}`" if kind == "code" and isinstance(cell, str) else text)


def write_text(text: str) -> Markup:
    """A sentence, with what stands between backticks as code."""
    parts = re.split(r"`([^`\n]+)`", printable(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def _as_address(svg: str) -> str:
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode('ascii')}"


def _hash(text: str) -> str:
    """Of an inline script or style, for a Content-Security-Policy."""
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
