"""`junit` and `markdown`: the reports of these names, of a stored run."""

from __future__ import annotations

from typing import BinaryIO

from upskill.reports import REPORTS, Report
from upskill.reports.exports import FileExport, StoredRun


def _write(kind: str, run: StoredRun, stream: BinaryIO) -> None:
    from upskill.reports import ReportContext  # noqa: PLC0415
    from upskill.runs.results.evaluation import evaluation_of  # noqa: PLC0415 - numpy comes with it

    report: Report = REPORTS.load(kind)
    text = report(evaluation_of(run.store, run.run), ReportContext(results=run.results))
    assert isinstance(text, str)
    stream.write(text.encode(errors="backslashreplace"))


def _junit(run: StoredRun, stream: BinaryIO) -> None:
    _write("junit", run, stream)


def _markdown(run: StoredRun, stream: BinaryIO) -> None:
    _write("markdown", run, stream)


JUNIT = FileExport(_junit, ".xml")
MARKDOWN = FileExport(_markdown, ".md")
