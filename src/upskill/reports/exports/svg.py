"""`svg`: pictures of a run. A file has the one that its name asks for, a folder has all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from upskill.errors import UsageError
from upskill.outputs import check_ours, whole_file, whole_folder
from upskill.plain import counted
from upskill.reports.exports import MARKER, FileExport, StoredRun
from upskill.reports.figures import document
from upskill.reports.svg import PICTURES, Draw, lift, picture_named
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.shown import is_cut_short
from upskill.runs.stores import Run


@dataclass(frozen=True)
class _Pictures(FileExport):
    def save(self, run: StoredRun, path: str | Path, *, force: bool = False) -> None:
        target = Path(path)
        if target.is_dir() or not target.suffix:
            with whole_folder(target, MARKER, force=force) as folder:
                for name, draw in PICTURES.items():
                    (folder / f"{name}.svg").write_text(_draw(run, draw), encoding="utf-8")
            return
        if target.suffix.lower() != ".svg":
            hint = "Use a file name that ends in .svg, or a folder."
            raise UsageError(f"{target}: not a supported picture format", hint)
        check_ours(target, force=force)
        with whole_file(target, private=True) as stream:
            stream.write(_draw(run, picture_named(target.stem)).encode())


def _write(run: StoredRun, stream: BinaryIO) -> None:
    stream.write(_draw(run, lift).encode())


EXPORT = _Pictures(_write, ".svg", has_answers=False)


def _draw(run: StoredRun, draw: Draw) -> str:
    figures = document(evaluation_of(run.store, run.run))
    return f"{draw(figures, notes=_left_out(run.run))}\n"


def _left_out(run: Run) -> Sequence[str]:
    """What a picture does not show, in a sentence."""
    scored = run.passed + run.failed
    trials = counted(run.trials, "trial")
    if is_cut_short(run):
        also = f", {run.errored:,} missing" if run.errored else ""
        again = "Run the same eval again to continue."
        return [f"Not finished: {scored:,} of {trials} scored{also}. {again}"]
    return [f"{run.errored:,} of {trials} are missing."] if run.errored else []
