"""`svg`: pictures of a run. A file has the one that its name asks for, a folder has all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from upskill.errors import UsageError
from upskill.outputs import check_ours, whole_file, whole_folder
from upskill.plain import counted
from upskill.reports.exports import MARKER, FileExport, StoredRun
from upskill.reports.figures import document
from upskill.reports.numbers import INVALID
from upskill.reports.svg import PICTURES
from upskill.runs.results.evaluation import Evaluation, evaluation_of
from upskill.runs.results.shown import is_cut_short


@dataclass(frozen=True)
class _Pictures(FileExport):
    def save(self, run: StoredRun, path: str | Path, *, force: bool = False) -> None:
        target = Path(path)
        if target.is_dir() or not target.suffix:
            with whole_folder(target, MARKER, force=force) as folder:
                for name in PICTURES:
                    (folder / f"{name}.svg").write_text(_draw(run, name), encoding="utf-8")
            return
        if target.suffix.lower() != ".svg":
            hint = "Use a file name that ends in .svg, or a folder."
            raise UsageError(f"{target}: not a supported picture format", hint)
        check_ours(target, force=force)
        with whole_file(target, private=True) as stream:
            stream.write(_draw(run, target.stem).encode())


def _write(run: StoredRun, stream: BinaryIO) -> None:
    stream.write(_draw(run).encode())


EXPORT = _Pictures(_write, ".svg", has_answers=False)


def _draw(run: StoredRun, name: str = "") -> str:
    """The picture that a name asks for: the lift, unless it says rates or tokens."""
    drawn = "lift"
    if "rates" in name.lower():
        drawn = "pass-rates"
    elif "tokens" in name.lower():
        drawn = "tokens"
    evaluation = evaluation_of(run.store, run.run)
    picture = PICTURES[drawn](document(evaluation))
    for line in dict.fromkeys(_caveats(evaluation)):
        picture.paragraph(line)
    return f"{picture.svg()}\n"


def _caveats(evaluation: Evaluation) -> Iterator[str]:
    """What belongs to the picture but cannot be drawn."""
    run = evaluation.run
    missing = f"{run.errored:,} of {counted(run.trials, 'trial')} are missing."
    if is_cut_short(run):
        scored = f"{run.passed + run.failed:,} of {counted(run.trials, 'trial')} scored"
        yield f"Not finished: {scored}. Run the same eval again to continue."
    if run.errored:
        yield missing
    if evaluation.leaked:
        yield INVALID
    for verdict in evaluation.verdicts:
        yield from verdict.caveats
