from __future__ import annotations

import csv
import io
import re
from functools import partial
from typing import BinaryIO

from upskill.reports import REPORTS, Renderer
from upskill.reports.exports import FileExport, StoredRun
from upskill.reports.trial_rows import COLUMNS, trial_row

# What a spreadsheet would run as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def _write_csv(run: StoredRun, stream: BinaryIO) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for result in run.results():
        writer.writerow(map(_cell, trial_row(run.run, result).values()))
    text.flush()
    text.detach()


def _cell(value: object) -> object:
    """Escape control characters and formulas."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    plain = _CONTROL.sub(lambda control: repr(control[0])[1:-1], value.replace("\r\n", "\n"))
    return f"'{plain}" if value.startswith(FORMULA) else plain


def _write_report(kind: str, run: StoredRun, stream: BinaryIO) -> None:
    from upskill.reports.evaluated import report_evaluation  # noqa: PLC0415 - numpy
    from upskill.runs.results.evaluation import evaluation_of  # noqa: PLC0415 - numpy comes with it

    evaluation = evaluation_of(run.store, run.run)
    # A page has the commands in a section of their own.
    show_command = "" if kind == "html" else f"upskill show {run.run.id}"
    clean = iter
    if run.redactor:
        evaluation = run.redactor.evaluation(evaluation)
        clean = run.redactor.results
    report = report_evaluation(evaluation, store=run.store, show_command=show_command, clean=clean)
    render: Renderer = REPORTS.load(kind)
    text = render(report)
    assert isinstance(text, str)
    stream.write(text.encode(errors="backslashreplace"))


CSV = FileExport(_write_csv, ".csv")
JUNIT = FileExport(partial(_write_report, "junit"), ".xml")
MARKDOWN = FileExport(partial(_write_report, "markdown"), ".md", has_answers=False)
PAGE = FileExport(partial(_write_report, "html"), ".html")
