"""`upskill show`: every trial of a run, with its prompt, its answer and what the checks found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from upskill.cli.around import json_option, open_stored
from upskill.cli.screen import show, show_json
from upskill.errors import UsageError, did_you_mean
from upskill.meta import Meta
from upskill.records import Run
from upskill.settings import Settings
from upskill.skill import Skill
from upskill.trial import Result

WORDS = {True: "passed", False: "failed", None: "errored"}
COLOURS = {True: "green", False: "red", None: "yellow"}


@click.command("show")
@click.argument("run")
@click.option("--case", metavar="ID", help="Only this case, both arms side by side.")
@click.option("-m", "--model", metavar="MODEL", help="Only this model.")
@click.option("--failed", is_flag=True, help="Only trials that failed or errored.")
@click.option("--sources", is_flag=True, help="RUN is a skill's folder: show which evidence stands behind each line.")
@click.option("--runs-dir", metavar="DIR", help="Where runs are kept (default ./runs).")
@json_option
def command(
    run: str,
    case: str | None,
    model: str | None,
    failed: bool,
    sources: bool,
    runs_dir: str | None,
    as_json: bool,
) -> None:
    """Show RUN: every trial with its prompt, answer and findings. RUN is an id, its beginning, or `last`.

    With --sources it is a skill's folder, and every line of the skill is shown with what it came from.
    """
    if sources:
        _show_sources(Skill.load(run), as_json=as_json)
        return
    with open_stored(runs_dir or Settings.load().runs_dir) as store:
        found = store.run(run)
        cases = {item["id"]: item for item in found.plan["suite"]["cases"]}
        if case is not None and case not in cases:
            raise UsageError(f"{found.id}: no case is called {case!r}", did_you_mean(case, cases))
        if model is not None and model not in found.models:
            raise UsageError(f"{found.id}: no model is called {model!r}", did_you_mean(model, found.models))
        results = (result for result in store.results(found, case, model) if not (failed and result.passed))
        if as_json:
            show_json({"run": found.id, "plan": found.plan, "trials": [_plain(result) for result in results]})
            return
        show(*_heading(found))
        for case_id, group in groupby(results, key=lambda result: result.trial.case):
            show(*_case(cases[case_id], list(group), side_by_side=case is not None))


def _show_sources(skill: Skill, *, as_json: bool) -> None:
    meta = Meta.of(skill)
    if not meta.sources:
        raise UsageError(
            f"{skill.folder}: nothing is known of where its lines come from", "`upskill generate` writes that down."
        )
    lines = [(line, meta.sources.get(line.strip(), ())) for line in skill.body.splitlines()]
    if as_json:
        rows = [{"line": line, "evidence": list(ids)} for line, ids in lines if line.strip()]
        show_json({"skill": skill.name, "lines": rows, "evidence": {k: dict(v) for k, v in meta.evidence.items()}})
        return
    shown = [Text.assemble(line, ("  [" + ", ".join(ids) + "]", "cyan") if ids else "") for line, ids in lines]
    show(*shown, Text(""))
    for name, row in meta.evidence.items():
        origin = f" ({row['from']})" if row.get("from") else ""
        show(
            Text.assemble(
                (f"{name}", "cyan"), f" {row.get('kind', '')}{origin}: {' '.join(row.get('text', '').split())}"
            )
        )


def _heading(run: Run) -> Iterator[RenderableType]:
    yield Text(f"run {run.id}, started {run.created}", style="bold")
    counts = f"{run.passed} passed, {run.failed} failed, {run.errored} errored"
    yield Text(f"skill {run.skill} · {', '.join(run.models)} · {run.trials} trials: {counts}\n")


def _case(case: dict[str, Any], results: list[Result], *, side_by_side: bool) -> Iterator[RenderableType]:
    held_out = "held-out" if case["held_out"] else "fit"
    yield Text.from_markup(f"[bold]{escape(case['id'])}[/bold]  [dim]{held_out}[/dim]")
    yield Padding(Text(case["prompt"].strip()), (0, 0, 0, 2))
    for name, text in case.get("files", {}).items():
        yield Padding(Text(f"{name}:\n{text}", style="dim"), (0, 0, 0, 2))
    if not side_by_side:
        for result in results:
            yield Padding(_trial(result), (0, 0, 0, 2))
        yield Text("")
        return
    for (_, _), pair in groupby(results, key=lambda result: (result.trial.model, result.trial.seed)):
        grid = Table.grid(expand=True, padding=(0, 1))
        found = list(pair)
        for _ in found:
            grid.add_column(ratio=1)
        grid.add_row(*(Panel(_trial(result), border_style=COLOURS[result.passed]) for result in found))
        yield grid
    yield Text("")


def _trial(result: Result) -> RenderableType:
    trial = result.trial
    colour = COLOURS[result.passed]
    usage = result.usage
    cost = "" if usage.cost_usd is None else f" · ${usage.cost_usd:.5f}"
    parts: list[RenderableType] = [
        Text.from_markup(
            f"[{colour}]{WORDS[result.passed]}[/{colour}]  {trial.arm} · {escape(trial.model)} · seed {trial.seed}"
            f" · {usage.input_tokens}+{usage.output_tokens} tokens · {result.seconds:.1f} s{cost}"
        )
    ]
    if result.trace:
        parts.append(Padding(Text(result.trace.answer or "(an empty answer)"), (0, 0, 0, 2)))
    for judgement in result.judgements:
        mark = "✓" if judgement.passed else "✗"
        parts.append(Text(f"  {mark} {judgement.check}: {judgement.reason}", style="dim"))
    if result.error:
        parts.append(Text(f"  {result.error}", style="yellow"))
    return Group(*parts)


def _plain(result: Result) -> dict[str, Any]:
    plain = asdict(result)
    trial = plain.pop("trial")
    plain.pop("fatal")
    return {**trial, "outcome": WORDS[result.passed], "answer": result.trace.answer if result.trace else None, **plain}
