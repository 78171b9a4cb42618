from __future__ import annotations

from typing import Any, BinaryIO

import pyarrow  # noqa: ICN001 - it has its usual name below
from pyarrow.parquet import ParquetWriter

from upskill.reports.exports import FileExport, StoredRun, clean
from upskill.reports.trial_rows import COLUMNS, trial_row

pa: Any = pyarrow  # which says nothing of its types
ROWS_AT_ONCE, LETTERS_AT_ONCE = 1000, 1_000_000
_TYPES: dict[str, Any] = {
    "text": pa.string(),
    "whole": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
SCHEMA = pa.schema(
    [(name, _TYPES[kind]) for name, kind in COLUMNS.items()], metadata={"creator": "upskill"}
)


def write(run: StoredRun, stream: BinaryIO) -> None:
    rows: list[dict[str, Any]] = []
    letters = 0
    with ParquetWriter(stream, SCHEMA, compression="zstd") as writer:
        for result in run.results():
            rows.append(clean(trial_row(run.run, result, run.used_cases)))
            letters += sum(len(rows[-1][name]) for name in ("prompt", "answer", "findings"))
            if len(rows) == ROWS_AT_ONCE or letters > LETTERS_AT_ONCE:
                writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
                rows, letters = [], 0
        writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))


EXPORT = FileExport(write, ".parquet", is_text=False)
