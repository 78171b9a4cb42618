from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from upskill.cli.commands.completion import complete_runs
from upskill.cli.commands.runs import command as runs_command
from upskill.cli.console import check_writable, note, show_document, write_file
from upskill.cli.help import Command
from upskill.cli.options import click_options, open_run, store_option
from upskill.errors import UsageError, did_you_mean
from upskill.options import option
from upskill.plain import counted
from upskill.reports import pictures
from upskill.reports.json import to_dict
from upskill.reports.pictures import PictureOptions, Unit
from upskill.runs.results.evaluation import Evaluation, evaluation_of
from upskill.runs.stores import Run

# kind -> words in a file name that select it
KINDS = {
    "forest": ("forest", "lift"),
    "bars": ("bars", "rates", "pass"),
    "pareto": ("pareto", "cost", "tokens"),
    "heat-map": ("heat", "cases", "matrix"),
}


@dataclass(kw_only=True)
class _Options:
    run: str | None
    store: str | None
    kinds: tuple[str, ...]
    output: str | None = option(
        *("-o", "--output"),
        default=None,
        help="A file that ends in .svg or .png, or a folder; - prints SVG (default: RUN-KIND.svg).",
        metavar="FILE",
    )
    models: tuple[str, ...] = option(
        "-m", "--student", default=(), help="Only this student; repeatable.", metavar="MODEL"
    )
    by: Literal["cost", "tokens"] | None = option(
        "--by",
        default=None,
        help="The x axis of pareto (default: cost if anything was paid, else tokens).",
    )
    theme: Literal["auto", "light", "dark"] = option(
        "--theme",
        default="auto",
        help="auto follows the reader's system; in a PNG it is light.",
        show_default=True,
    )
    force: bool = option(
        "--force", default=False, help="Overwrite a file that upskill did not write."
    )
    width: int = option(
        "--width",
        default=720,
        help="How wide to draw it.",
        metavar="PX",
        minimum=320,
        maximum=4000,
        show_default=True,
    )

    def kinds_for(self, run: Run) -> list[str]:
        if "all" in self.kinds:
            return list(KINDS)
        if self.kinds:
            return list(dict.fromkeys(self.kinds))
        name = Path(self.output or "").stem.lower()
        named = [kind for kind, parts in KINDS.items() if any(part in name for part in parts)]
        return named[:1] or ["forest" if "baseline" in run.plan.arms else "bars"]

    def files(self, run: Run, kinds: Sequence[str]) -> list[str]:
        if self.output == "-":
            if len(kinds) > 1:
                raise UsageError(
                    f"{len(kinds)} pictures cannot all go to standard output",
                    "Choose a folder with -o.",
                )
            return ["-"]
        path = Path(self.output or ".")
        if path.is_dir() or (path.suffix == "" and len(kinds) > 1):
            files = [str(path / f"{run.id}-{kind}.svg") for kind in kinds]
        elif path.suffix.lower() not in (".svg", ".png"):
            hint = "Use a file name that ends in .svg or .png."
            raise UsageError(f"{path}: not a supported picture format", hint)
        else:
            files = [
                str(path.with_stem(f"{path.stem}-{kind}") if len(kinds) > 1 else path)
                for kind in kinds
            ]
        for file in files:
            check_writable(file, force=self.force)
        return files


@click.command("plot", cls=Command)
@click.argument("run", required=False, shell_complete=complete_runs)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice([*KINDS, "all"]),
    multiple=True,
    help="What to draw; repeatable (default: from the file's name, else forest).",
)
@click_options(_Options)
@store_option
@click.pass_context
def command(context: click.Context, **values: Any) -> None:
    """Draw RUN: lift with its interval (forest), pass rates (bars), tokens or cost against pass rate (pareto), every
    case (heat-map).

    RUN is an id, a prefix of one, `last`, or `last~1` for the one before it.

    \b
    upskill plot last -o lift.svg                     the lift of each model
    upskill plot last -o heat-map.png                 every case, as PNG
    upskill plot last --kind all -o pictures          all four, in a folder
    """
    options = _Options(**values)
    if not (options.run or options.output or options.kinds):  # like upstream's `plot`
        context.invoke(runs_command, store=options.store, models=options.models)
    else:
        _draw(options)


def _draw(options: _Options) -> None:
    with open_run(options.store, options.run or "last") as (store, run):
        for model in options.models:
            if model not in run.models:
                raise UsageError(
                    f"{run.id}: no model named {model!r}", did_you_mean(model, run.models)
                )
        kinds = options.kinds_for(run)
        files = options.files(run, kinds)
        evaluation = evaluation_of(store, run)
    document = to_dict(evaluation)
    if options.models:
        document["models"] = [
            model for model in document["models"] if model["model"] in options.models
        ]
    scored, errored, trials = run.passed + run.failed, run.errored, counted(run.trials, "trial")
    missing: list[str] = []  # what a picture leaves out
    if scored + errored < run.trials:
        also = f", {errored:,} errored" if errored else ""
        missing = [
            f"Not finished: {scored:,} of {trials} scored{also}. Run the same eval again to continue."
        ]
    elif errored:
        missing = [f"{errored:,} of {trials} errored and are not counted."]
    for line in missing:
        note(line)
    for kind, file in zip(kinds, files, strict=True):
        png = file.lower().endswith(".png")
        look = PictureOptions(
            width=options.width,
            theme="light" if png and options.theme == "auto" else options.theme,
            has_reference=bool(run.plan.reference_skill),
            notes=missing,
        )
        svg = _picture(kind, document, evaluation, look, options.by)
        if file == "-":
            show_document(f"{svg}\n")
        elif png:
            from upskill.reports.pictures.png import to_png  # noqa: PLC0415 - an extra

            write_file(file, to_png(svg))
        else:
            write_file(file, f"{svg}\n")
        if file != "-":
            note(f"Wrote {file}")


def _picture(
    kind: str,
    document: Mapping[str, Any],
    evaluation: Evaluation,
    options: PictureOptions,
    by: Unit | None,
) -> str:
    if kind == "heat-map":
        models = {model["model"] for model in document["models"]}
        cells = pictures.cells_of(
            outcome for outcome in evaluation.outcomes if outcome.model in models
        )
        return pictures.heat_map(document, cells, options, cases=list(evaluation.plan.suite.by_id))
    if kind == "pareto":
        return pictures.pareto(document, options, by=by)
    return (
        pictures.lift_forest(document, options)
        if kind == "forest"
        else pictures.pass_rates(document, options)
    )
