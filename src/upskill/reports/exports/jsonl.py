"""`jsonl`: one JSON object for each trial, with its findings and every step."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any, BinaryIO

from upskill.reports.exports import FileExport, StoredRun
from upskill.reports.trial_rows import trial_row
from upskill.traces import Step

# It has no place in UTF-8, and many readers of JSON refuse its escape. So it becomes the text of one, as in Parquet.
HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")


def write(run: StoredRun, stream: BinaryIO) -> None:
    for result in run.results():
        row = trial_row(run.run, result)
        case = run.cases.get(result.trial.case)
        row["tags"] = list(case.tags) if case else []
        row["findings"] = json.loads(row["findings"])
        row["steps"] = [_step(step) for step in result.trace.steps] if result.trace else []
        if result.traceback:
            row["traceback"] = result.traceback
        line = json.dumps(row, ensure_ascii=False, allow_nan=False)
        stream.write(HALF_OF_A_PAIR.sub(lambda half: rf"\\u{ord(half[0]):04x}", line).encode() + b"\n")


def _step(step: Step) -> dict[str, Any]:
    return {name: value for name, value in asdict(step).items() if value not in ("", {}, None)}


EXPORT = FileExport(write, ".jsonl")
