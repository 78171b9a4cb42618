"""`csv`: one row for each trial, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from typing import BinaryIO

from upskill.reports.exports import FileExport, StoredRun
from upskill.reports.trial_rows import COLUMNS, trial_row

# What a spreadsheet takes for a formula, and would carry out.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def write(run: StoredRun, stream: BinaryIO) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for result in run.results():
        writer.writerow(_cell(value) for value in trial_row(run.run, result).values())
    text.flush()
    text.detach()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> str:
    """Text as every reader takes it: control characters as their escapes, and nothing that is a formula."""
    plain = _CONTROL.sub(lambda found: repr(found[0])[1:-1], value.replace("\r\n", "\n"))
    return f"'{plain}" if value.startswith(FORMULA) else plain


EXPORT = FileExport(write, ".csv")
