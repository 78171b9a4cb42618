"""The reports of these names, pictures, and CSV with a row per trial."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from upskill.errors import UsageError
from upskill.outputs import whole_folder
from upskill.reports import REPORTS
from upskill.reports.exports import MARKER, Export, StoredRun
from upskill.reports.report import Report
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


def _report(run: StoredRun, show_command: str) -> Report:
    from upskill.reports.evaluated import report_evaluation  # noqa: PLC0415 - numpy
    from upskill.runs.results.evaluation import evaluation_of  # noqa: PLC0415 - numpy comes with it

    evaluation = evaluation_of(run.store, run.run)
    clean = iter
    if run.redactor:
        evaluation = run.redactor.evaluation(evaluation)
        clean = run.redactor.results
    return report_evaluation(evaluation, store=run.store, show_command=show_command, clean=clean)


def _write_report(kind: str, run: StoredRun, stream: BinaryIO) -> None:
    # A page has the commands in a section of their own.
    show_command = "" if kind == "html" else f"upskill show {run.run.id}"
    text = REPORTS.load(kind)(_report(run, show_command))
    stream.write(text.encode(errors="backslashreplace"))


class _Pictures(Export):
    """A file has the lift, unless its name says rates or tokens; a folder has all pictures."""

    def save(self, run: StoredRun, path: str | Path, *, force: bool = False) -> None:
        from upskill.reports.svg import PICTURES  # noqa: PLC0415 - only for pictures

        target = Path(path)
        if target.is_dir() or not target.suffix:
            with whole_folder(target, MARKER, force=force) as folder:
                for name in PICTURES:
                    with (folder / f"{name}.svg").open("wb") as stream:
                        _draw(name, run, stream)
        elif target.suffix.lower() == ".svg":
            asked = [name for name in PICTURES if name.rpartition("-")[2] in target.stem.lower()]
            write = partial(_draw, [*asked, "lift"][0])
            Export(write, self.ending).save(run, target, force=force)
        else:
            hint = "Use a file name that ends in .svg, or a folder."
            raise UsageError(f"{target}: not a supported picture format", hint)


def _draw(name: str, run: StoredRun, stream: BinaryIO) -> None:
    """With what belongs to the picture but cannot be drawn."""
    from upskill.reports.svg import PICTURES  # noqa: PLC0415 - only for pictures

    report = _report(run, "")
    assert isinstance(report.data, Mapping)
    picture = PICTURES[name](report.data)
    for note in report.notes:
        if note.kind != "detail":
            picture.paragraph(note.text)
    stream.write(f"{picture.svg()}\n".encode())


CSV = Export(_write_csv, ".csv")
JUNIT = Export(partial(_write_report, "junit"), ".xml")
MARKDOWN = Export(partial(_write_report, "markdown"), ".md", has_answers=False)
PAGE = Export(partial(_write_report, "html"), ".html")
PICTURE = _Pictures(partial(_draw, "lift"), ".svg", has_answers=False)
