"""A Report is the result of a verb as one document, computed from stored results. `report` is what it holds.

A builder of each verb makes it, a renderer of each medium writes it. Builders: `evaluated` (`eval`, `report`, `view`),
`shown` (`show`), `gate` (`ci`), `generated` (`generate`, `teach`), `trigger`, `comparison` (`compare`), `runs` (`runs`,
`list`, `versions`), `experiments` (`distill`, `tests --score`, `matrix`, `challenge`), `proof` (`verify`).

Media, which `--report KIND=FILE` writes:

- `terminal`: the verdicts, a table, at most one note, and the next command
- `json`: one document with stable keys
- `csv`: one row per model
- `junit`: requirements and cases as tests, for CI systems
- `markdown`: a summary for a pull request
- `html`: one page that opens anywhere, with verdicts, cases and every answer (`upskill report`)

Beside them:

- `cases`: cases with their answers, worst first; `answers` prints them on a terminal (`upskill show`)
- `numbers`: formats percentages, points, prices and intervals
- `layout`: paragraphs and tables for any width; `templates`: those of pages and summaries
- `fields`: fields of records by their paths; `figures`: an evaluation as JSON and CSV
- `triggered`: what a trigger test says; `trial_rows`: a trial as one row
- `redacted`: a stored run without secrets
- `exports`: a stored run as files of other tools (`upskill export`)
- `live`: stored runs as pages in a browser (`upskill view`)
- `svg`: pictures

A medium is a file with a `Renderer` and a row of `REPORTS`, or an entry point in the group `upskill.reports`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from upskill.registry import Registry

if TYPE_CHECKING:
    from rich.console import RenderableType

    from upskill.reports.report import Report

REPORTS = Registry(
    "report",
    "upskill.reports",
    {
        "terminal": "upskill.reports.terminal:render",
        "json": "upskill.reports.json:render",
        "csv": "upskill.reports.csv:render",
        "junit": "upskill.reports.junit:render",
        "markdown": "upskill.reports.markdown:render",
        "html": "upskill.reports.html:render",
    },
)


class Renderer(Protocol):
    """Returns text, or something that rich draws at the terminal's width."""

    def __call__(self, report: Report, /) -> str | RenderableType: ...
