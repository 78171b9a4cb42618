"""An export is a stored run as files of another tool. `upskill export RUN --format KIND` writes them.

Kinds:

- `csv`: one row per trial; `junit`, `markdown`: the reports of these names; `svg`: pictures (`text_files`)
- `inspect`: logs of inspect_ai, one per model and arm
- `upskill-runs`: the tree of Hugging Face's upskill (`upskill_runs`)

A kind is an `Export` and one row of `EXPORTS`; from another package, an entry point in the group `upskill.exports`. It
streams trials: a run may have more than fit into memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from upskill.errors import UsageError
from upskill.outputs import check_ours, whole_file, whole_folder
from upskill.registry import Registry
from upskill.reports.redacted import RunRedactor
from upskill.runs.planning.plan import Result
from upskill.runs.results.shown import Unfinished, unfinished_models
from upskill.runs.stores import Run, Store

EXPORTS = Registry(
    "export format",
    "upskill.exports",
    {
        "csv": "upskill.reports.exports.text_files:CSV",
        "junit": "upskill.reports.exports.text_files:JUNIT",
        "markdown": "upskill.reports.exports.text_files:MARKDOWN",
        "svg": "upskill.reports.exports.text_files:PICTURE",
        "inspect": "upskill.reports.exports.inspect:EXPORT",
        "upskill-runs": "upskill.reports.exports.upskill_runs:EXPORT",
    },
)
MARKER = ".upskill-export"  # marks an exported folder, so that it may be replaced


@dataclass(frozen=True)
class StoredRun:
    store: Store
    run: Run
    redactor: RunRedactor | None = None

    def without_secrets(self) -> StoredRun:
        redactor = RunRedactor()
        return StoredRun(self.store, redactor.run(self.run), redactor)

    @cached_property
    def unfinished(self) -> Mapping[str, Unfinished]:
        return unfinished_models(self.store, self.run)

    def check_finished(self) -> None:
        """UsageError if sums by arm would reveal how the arms differ before all trials have run."""
        for model, so_far in self.unfinished.items():
            hint = "Run the same eval command to continue it. The csv format has the trials so far."
            raise UsageError(
                f"{self.run.id}: {model} is {so_far}, so there are no totals yet, with or without the skill",
                hint,
            )

    def results(self, model: str | None = None, arm: str | None = None) -> Iterator[Result]:
        results = self.store.results(self.run, model=model, arm=arm)
        return self.redactor.results(results) if self.redactor else results


@dataclass(frozen=True)
class Export:
    """Writes a run to a binary stream, or into a folder if it has no ending."""

    write: Callable[[StoredRun, Any], None]
    ending: str = ""
    has_answers: bool = True  # in full, and prompts

    def save(self, run: StoredRun, path: str | Path, *, force: bool = False) -> None:
        if self.ending:
            check_ours(path, force=force)
            place = whole_file(path, private=True)
        else:
            place = whole_folder(path, MARKER, force=force)
        with place as opened:
            self.write(run, opened)


def file_name(text: str, number: int = 0) -> str:
    """A safe file name for any text; `number` tells apart names that become equal."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-")[:60] or "unnamed"
    return f"{plain}-{number}" if number else plain
