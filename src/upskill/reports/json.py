"""`json`: a report's document. Its keys are stable; new ones may be added."""

from __future__ import annotations

import json

from upskill.reports.report import Report


def render(report: Report) -> str:
    return json.dumps(report.data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
