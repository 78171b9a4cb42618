"""A Report shows what a run came to. Everything in it is computed from stored results.

Kinds: `terminal` (bars and tables), `json`, `junit`, `markdown`, `csv`.
"""

from __future__ import annotations

from upskill.registry import Registry

REPORTS = Registry(
    "report",
    "upskill.reports",
    {
        "terminal": "upskill.reports.terminal:of_evaluation",
        "json": "upskill.reports.json:of_evaluation",
        "junit": "upskill.reports.junit:of_evaluation",
        "markdown": "upskill.reports.markdown:of_evaluation",
        "csv": "upskill.reports.csv:of_runs",
    },
)
