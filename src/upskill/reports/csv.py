"""`csv`: a report's rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from upskill.reports.report import Report


def render(report: Report) -> str:
    return write_rows(report.rows, list(report.rows[0]) if report.rows else ())


def write_rows(rows: Iterable[Mapping[str, Any]], columns: Collection[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
