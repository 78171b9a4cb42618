"""A Report shows the result of a run. Everything in it is computed from stored results.

Kinds, which `--report KIND=FILE` writes:

- `terminal`: the verdicts, a table, at most one note, and the next command
- `json`: one document with stable keys
- `csv`: one row per model
- `junit`: requirements and cases as tests, for CI systems
- `markdown`: a summary for a pull request
- `html`: one page that opens anywhere, with verdicts, pictures, cases and every answer (`upskill report`)

Shared parts, and what other commands print:

- `numbers`: formats percentages, points, prices and intervals
- `layout`: paragraphs and tables for any width
- `trial_rows`: a trial as one row
- `redacted`: a stored run without secrets
- `view`: every name, figure, mark and sentence of a verdict, for all of the above
- `exports`: a stored run as files of other tools (`upskill export`)
- `trials`: every trial of a stored run, and how often each check passes (`upskill show`)
- `comparison`: two stored runs, case by case (`upskill compare`)
- `generated`: a skill that was generated or taught
- `live`: stored runs as pages in a browser (`upskill view`)
- `pictures`: lift, pass rates and Pareto front as SVG
- `gate`: the result of `upskill ci`, as Markdown, JUnit and JSON
- `distilled`: the result of `upskill distill`, and what each block of a skill is worth
- `scored`: the result of `upskill tests --score`
- `matrix`: the result of `upskill matrix`
- `challenged`: the result of `upskill challenge`
- `proof`: a verified receipt as a badge and a skill card (`upskill verify`)
- `trigger`: how a skill triggers, and whether a better description was found

A kind is a file with a `Report` function and a row of `REPORTS`, or an entry point in the group `upskill.reports`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from upskill.registry import Registry

if TYPE_CHECKING:
    from rich.console import RenderableType

    from upskill.runs.planning.plan import Result
    from upskill.runs.results.evaluation import Evaluation

REPORTS = Registry(
    "report",
    "upskill.reports",
    {
        "terminal": "upskill.reports.terminal:render",
        "json": "upskill.reports.json:render",
        "csv": "upskill.reports.csv:render",
        "junit": "upskill.reports.junit:render",
        "markdown": "upskill.reports.markdown:render",
        "html": "upskill.reports.html.page:render",
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContext:
    results: Callable[[], Iterator[Result]] | None = None  # every trial, read from the store
    first_results: Callable[[int], Iterator[Result]] | None = (
        None  # only the first N seeds of each case
    )
    show_command: str = ""  # the command that shows every trial; empty: the run is not stored
    add_command: str = ""  # that appends cases, with {} for their number; empty: none can
    verbose: bool = False
    quiet: bool = False  # only the verdict and the table


class Report(Protocol):
    """A report function: returns text, or something that rich draws at the terminal's width."""

    def __call__(
        self, evaluation: Evaluation, context: ReportContext, /
    ) -> str | RenderableType: ...
