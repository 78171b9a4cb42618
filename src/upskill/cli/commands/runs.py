from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import click
from rich.console import RenderableType
from rich.text import Text

from upskill.cli.console import check_writable, note, show, show_document, show_json, write_file
from upskill.cli.help import Command
from upskill.cli.options import (
    find_project_store,
    force_option,
    json_option,
    say_nothing_yet,
    store_option,
)
from upskill.errors import UsageError
from upskill.plain import counted
from upskill.reports.csv import render_rows
from upskill.reports.layout import FittedTable
from upskill.reports.numbers import INVALID, before_after, percent, points
from upskill.reports.terminal import bar
from upskill.reports.view import trigger_metrics
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.shown import is_cut_short, limits_of, part_of, rank_of, reported_verdicts
from upskill.runs.stores import Run, Store
from upskill.verdicts.line import decision_in_words
from upskill.verdicts.verdict import Reason

Metric = Literal["success", "tokens"]
Document = Mapping[str, Any]  # a verdict as in JSON
MAX_RUNS = 50  # that are shown at a time


@click.command("runs", cls=Command)
@store_option
@click.option(
    "-s", "--skill", "skills", multiple=True, metavar="NAME", help="Only this skill; repeatable."
)
@click.option(
    "-m",
    "--student",
    "models",
    multiple=True,
    metavar="MODEL",
    help="Only this student; repeatable.",
)
@click.option(
    "--metric",
    type=click.Choice(["success", "tokens"]),
    default="success",
    show_default=True,
    help="What to show.",
)
@click.option(
    "--csv",
    "csv_file",
    metavar="PATH",
    help="Write a CSV file with a row per run and model (- prints it).",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help=f"All runs, not only the latest {MAX_RUNS}, with the parts of searches.",
)
@force_option
@json_option
def command(
    store: str | None,
    skills: tuple[str, ...],
    models: tuple[str, ...],
    metric: Metric,
    csv_file: str | None,
    every: bool,
    force: bool,
    as_json: bool,
) -> None:
    """List the stored runs, latest last.

    One skill: bars of every run. Several skills: a table of skills and models, with the latest run of each on the
    skill's own suite. A run on another suite is listed with that suite.
    """
    opened = find_project_store(store)
    if opened is None:
        if as_json:
            show_json([])
        elif csv_file:
            raise UsageError("no stored run to write", "`upskill eval SKILL` creates one.")
        else:
            say_nothing_yet(
                "no run is stored here",
                "`upskill eval SKILL` creates one; `upskill init` starts a skill.",
            )
        return
    with opened:
        is_short = not (as_json or csv_file or every)
        runs = (
            run
            for run in opened.runs(newest_first=True, listed=is_short)
            if not skills or run.skill in skills
        )
        if csv_file:
            _write_csv(opened, runs, models, csv_file, force=force)
            return
        listed = list(islice(runs, MAX_RUNS) if is_short else runs)[::-1]
        older = sum(1 for _ in runs)
        rows = [
            (run, verdict)
            for run in listed
            for verdict in _verdict_documents(opened, run)
            if not models or verdict["model"] in models
        ]
    if older:
        note(f"{counted(older, 'older run')} not shown. Use --all to show everything.")
    if as_json:
        show_json([_to_json(run, verdict) for run, verdict in rows])
    elif not rows:
        which = "matches" if skills or models else "has a result yet"
        note(f"No stored run {which}. `upskill eval SKILL` starts or continues one.")
    elif len({run.skill for run, _ in rows}) > 1:
        show(_matrix(rows, metric))
        note("`upskill runs -s SKILL` shows each run of a skill, with its id.")
    else:
        show(*_bars(rows, metric))


def _verdict_documents(store: Store, run: Run) -> list[Document]:
    """As reported; recomputed only if nothing is stored or the result would differ today."""
    is_trigger_test = run.purpose == "trigger"  # whose recall no verdict holds
    if not is_trigger_test and (reported := reported_verdicts(store, run)) is not None:
        return reported
    evaluation = evaluation_of(store, run)
    triggered = {
        metrics.model: {"trigger": metrics.to_dict()} for metrics in trigger_metrics(evaluation)
    }
    return [verdict.to_dict() | triggered.get(verdict.model, {}) for verdict in evaluation.verdicts]


def _write_csv(
    store: Store, runs: Iterable[Run], models: Sequence[str], file: str, *, force: bool
) -> None:
    every = (
        (run, verdict) for run in list(runs)[::-1] for verdict in evaluation_of(store, run).verdicts
    )
    rows = [(run, verdict) for run, verdict in every if not models or verdict.model in models]
    if file == "-":
        show_document(render_rows(rows))
        return
    check_writable(file, force=force)
    write_file(file, render_rows(rows))
    note(f"Wrote {counted(len(rows), 'row')} to {file}")


def _to_json(run: Run, verdict: Document) -> dict[str, object]:
    return {
        "run": run.id,
        "created": run.created,
        "skill": run.skill,
        "model": verdict["model"],
        "other_suite": run.plan.other_suite,
        "trials": run.trials,
        "finished": run.finished,
        "verdict": verdict,
    }


def _tokens(arm: Document) -> float:
    scored = arm["passed"] + arm["failed"]
    return (arm["input_tokens"] + arm["output_tokens"]) / scored if scored else 0.0


def _arms(verdict: Document) -> tuple[Document, Document]:
    return verdict["baseline"], verdict["skill"]


def _bars(rows: list[tuple[Run, Document]], metric: Metric) -> list[Text]:
    most = max((_tokens(arm) for _, verdict in rows for arm in _arms(verdict)), default=0) or 1
    lines: list[Text] = []
    for run, verdict in rows:
        limits = "".join(f"  ({limit})" for limit in _limits(run, verdict))
        head = (run.id, "bold"), f"  {verdict['model']}  ", (run.created, "dim"), limits
        lines.append(Text.assemble(*head))
        if triggered := _triggered(verdict):
            lines.append(Text(f"  {triggered}\n"))
            continue
        of_arm = run.plan.labels
        names = (of_arm["baseline"], of_arm["skill"])
        width = 1 + max(map(len, names))
        for name, arm in zip(names, _arms(verdict), strict=True):
            if not arm["passed"] + arm["failed"]:
                continue
            if metric == "success":
                lines.append(
                    Text(f"  {name:<{width}}{bar(arm['pass_rate'])} {percent(arm['pass_rate']):>5}")
                )
            else:
                mean = _tokens(arm)
                lines.append(
                    Text(f"  {name:<{width}}{bar(mean / most)} {mean:>8,.0f} tokens per task")
                )
        if verdict["reason"] == Reason.ISOLATION:
            lines.append(Text(f"  {INVALID}\n", style="bold red"))
            continue
        if verdict["reason"] == Reason.UNFINISHED:  # the line above says so
            lines.append(Text(""))
            continue
        lift = f"lift {points(verdict['lift'])}, " if verdict["lift"] is not None else ""
        lines.append(Text(f"  {lift}{decision_in_words(verdict)}\n"))
    return lines


def _limits(run: Run, verdict: Document) -> Iterator[str]:
    if so_far := verdict.get("unfinished"):
        yield f"unfinished: {so_far['trials']:,} of {counted(so_far['of'], 'trial')}"
    elif is_cut_short(run):
        yield f"{run.passed + run.failed + run.errored:,} of {counted(run.trials, 'trial')}"
    if suite := run.plan.other_suite:
        yield f"on {suite}"
    if part := run.plan.suite.part:
        yield f"{len(run.plan.suite.cases)} of {part.of} cases, {part.chosen}"
    yield from filter(None, (run.plan.replayed, part_of(run)))


def _matrix(rows: list[tuple[Run, Document]], metric: Metric) -> RenderableType:
    """Skills by models, or a line per pair if there are too many models."""
    by_rank = sorted(
        rows, key=lambda row: rank_of(row[0], row[1]["decision"])
    )  # the last one counts
    latest = {(run.skill, verdict["model"]): (run, verdict) for run, verdict in by_rank}
    skills, models = (sorted(set(names)) for names in zip(*latest, strict=True))
    cells = {pair: _cell(run, verdict, metric) for pair, (run, verdict) in latest.items()}
    matrix = [
        {"Skill": Text(skill)} | {model: cells.get((skill, model), Text("–")) for model in models}
        for skill in skills
    ]
    title = "Pass rate" if metric == "success" else "Tokens per task"
    pairs = [
        {"Model": Text(model), "Skill": Text(skill), title: cells[skill, model]}
        for skill in skills
        for model in models
        if (skill, model) in cells
    ]
    narrow = FittedTable(pairs, left=["Model", "Skill", title], indent=0)
    return FittedTable(matrix, left=["Skill", *models], indent=0, narrow=narrow)


def _cell(run: Run, verdict: Document, metric: Metric) -> Text:
    if verdict["reason"] == Reason.ISOLATION:
        return Text("INVALID", style="bold red")
    if so_far := verdict.get("unfinished"):
        return Text(f"unfinished: {so_far['trials']:,} of {counted(so_far['of'], 'trial')}")
    if triggered := _triggered(verdict):
        return Text(triggered)
    suite = f"on {suite}" if (suite := run.plan.other_suite) else ""
    limits = "".join(
        f", {limit}" for limit in (suite, limits_of(run, verdict["decision"])) if limit
    )
    if metric == "tokens":
        return Text(" → ".join(f"{_tokens(arm):,.0f}" for arm in _arms(verdict)) + limits)
    rates = before_after(*(percent(arm["pass_rate"]) for arm in _arms(verdict)))
    if verdict["lift"] is None:
        return Text(f"{rates}{limits}")
    return Text(f"{rates} ({points(verdict['lift'])}), {decision_in_words(verdict)}{limits}")


def _triggered(verdict: Document) -> str:
    """The result of a trigger test, whose accuracy is no pass rate; empty for any other run, or an unfinished one."""
    if verdict.get("unfinished") or not (metrics := verdict.get("trigger")):
        return ""
    shares = [
        f"{name} {percent(metrics[name]['value'])}"
        for name in ("recall", "accuracy")
        if metrics[name]
    ]
    return f"trigger test: {', '.join(shares) or 'nothing was scored'}"
