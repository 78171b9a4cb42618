"""`html`: a report as one page that opens anywhere, without a network, and is read without scripts."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from markupsafe import Markup, escape

from upskill.reports.numbers import format_cell
from upskill.reports.report import (
    MARKS,
    OUTCOMES,
    Cell,
    Column,
    Headline,
    Kind,
    Measure,
    Note,
    Report,
    Table,
)
from upskill.reports.svg import Scale, for_page
from upskill.reports.templates import asset, load_template
from upskill.reports.trial_rows import write_arguments
from upskill.sandboxes import printable
from upskill.version import __version__

OPEN = 20  # cases of a group that fail
NOTES = 3  # besides caveats; more are folded


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a server adds to the page of a report."""

    script: str = ""
    policy: str = ""  # what else the page may do
    links: Sequence[tuple[str, str]] = ()  # above the title: words and address
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])  # of what cells name
    cases: str = ""  # where a case is shown without limits, before its id
    # For its script; `run` takes reviews.
    data: Mapping[str, str] = field(default_factory=dict[str, str])


def render(report: Report, surroundings: Surroundings | None = None) -> str:
    surroundings = surroundings or Surroundings()
    groups = list(report.groups())
    notes: dict[str, list[Note]] = {"alarm": [], "caveat": [], "note": [], "detail": []}
    for note in report.notes:
        notes[note.kind].append(note)
    names = {
        "sentence": write_text,
        "cell": write_cell,
        "columns_of": columns_of,
        "arguments": write_arguments,
        "MARKS": MARKS,
        "OUTCOMES": OUTCOMES,
        "OPEN": OPEN,
        "NOTES": NOTES,
    }
    html = load_template("page.html.j2", names).render(
        report=report,
        headlines=_headlines(report),
        tables=[table for table in report.tables if table.rows],
        notes=notes,
        groups=groups,
        is_one_case=sum(len(group.cases) for group in groups) == 1,
        pictures=[map(_as_address, pair) for pair in for_page(report)],
        script=Markup(_script(surroundings)),  # noqa: S704 - ours
        style=Markup(asset("page.css")),  # noqa: S704 - ours
        policy=policy_of(surroundings),
        surroundings=surroundings,
        version=__version__,
    )
    return html.lstrip()


def policy_of(surroundings: Surroundings) -> str:
    """Only our own script and style, and nothing is fetched."""
    return (
        f"default-src 'none'; script-src {_hash(_script(surroundings))}; style-src {_hash(asset('page.css'))};"
        f" img-src data:; base-uri 'none'; form-action 'none'{surroundings.policy}"
    )


def _script(surroundings: Surroundings) -> str:
    return asset("page.js") + surroundings.script


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
            columns.append((column, "measure", Scale.around(measures, 2, 98)))
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
