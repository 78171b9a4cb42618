"""`svg`: pictures of a run. A file has the one that its name asks for, a folder has all of `PICTURES`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from upskill.errors import UsageError
from upskill.outputs import check_ours, whole_file, whole_folder
from upskill.plain import counted
from upskill.reports import REPORTS, Report, ReportContext
from upskill.reports.exports import MARKER, FileExport, StoredRun
from upskill.reports.pictures import PictureOptions, lift_forest, pareto, pass_rates
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.stores import Run

PICTURES = ("lift", "pass-rates", "tokens")


@dataclass(frozen=True)
class _Pictures(FileExport):
    def save(self, run: StoredRun, path: str | Path, *, force: bool = False) -> None:
        target = Path(path)
        if target.is_dir() or not target.suffix:
            with whole_folder(target, MARKER, force=force) as folder:
                for name, svg in zip(PICTURES, _draw(run, PICTURES), strict=True):
                    (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
            return
        if target.suffix.lower() != ".svg":
            hint = "Use a file name that ends in .svg, or a folder."
            raise UsageError(f"{target}: not a supported picture format", hint)
        check_ours(target, force=force)
        with whole_file(target, private=True) as stream:
            for svg in _draw(run, [target.stem]):
                stream.write(svg.encode())


def _write(run: StoredRun, stream: BinaryIO) -> None:
    for svg in _draw(run, ["lift"]):
        stream.write(svg.encode())


EXPORT = _Pictures(_write, ".svg", has_answers=False)


def _draw(run: StoredRun, names: Sequence[str]) -> Iterator[str]:
    to_json: Report = REPORTS.load("json")
    document = json.loads(str(to_json(evaluation_of(run.store, run.run), ReportContext())))
    labels = run.run.plan.labels
    options = PictureOptions(
        baseline=labels["baseline"], skill=labels["skill"], notes=_left_out(run.run)
    )
    for name in names:
        if "rates" in name.lower():
            svg = pass_rates(document, options)
        elif "tokens" in name.lower():
            svg = pareto(document, options, by="tokens")
        elif "cost" in name.lower():
            svg = pareto(document, options, by="cost")
        else:
            svg = lift_forest(document, options)
        yield f"{svg}\n"


def _left_out(run: Run) -> list[str]:
    """What a picture does not show, in a sentence."""
    scored, trials = run.passed + run.failed, counted(run.trials, "trial")
    if scored + run.errored < run.trials:
        also = f", {run.errored:,} missing" if run.errored else ""
        return [
            f"Not finished: {scored:,} of {trials} scored{also}. Run the same eval again to continue."
        ]
    if run.errored:
        return [f"{run.errored:,} of {trials} are missing."]
    return []
