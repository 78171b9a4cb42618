"""The stored runs (`upskill runs`): one skill run by run, or the latest result of each skill and model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from upskill.plain import counted
from upskill.reports.evaluated import trigger_metrics
from upskill.reports.report import (
    TONES,
    Cell,
    Change,
    Column,
    Headline,
    NextCommand,
    Note,
    Rate,
    Report,
    Table,
)
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.shown import limits_of, rank_of, reported_verdicts
from upskill.runs.stores import Run, Store
from upskill.verdicts.line import SIGNS, decision_in_words
from upskill.verdicts.verdict import Reason

Metric = Literal["success", "tokens"]
Document = Mapping[str, Any]  # a verdict as in JSON
Row = tuple[Run, Document]
INVALID = Headline("INVALID", "bad", "✗")
COVERS = Column("Of")


def read_rows(store: Store, runs: Iterable[Run], models: Sequence[str] = ()) -> list[Row]:
    """A row for each run and model: the verdict as it was reported, or anew where it would differ today."""
    return [
        (run, verdict)
        for run in runs
        for verdict in _verdicts(store, run)
        if not models or verdict["model"] in models
    ]


def _verdicts(store: Store, run: Run) -> list[Document]:
    is_trigger_test = run.purpose == "trigger"  # whose recall no verdict holds
    if not is_trigger_test and (reported := reported_verdicts(store, run)) is not None:
        return reported
    evaluation = evaluation_of(store, run)
    triggered = {
        metrics.model: {"trigger": metrics.to_dict()} for metrics in trigger_metrics(evaluation)
    }
    return [verdict.to_dict() | triggered.get(verdict.model, {}) for verdict in evaluation.verdicts]


def report_runs(rows: Sequence[Row], *, metric: Metric = "success", older: int = 0) -> Report:
    """`older`: how many more runs there are."""
    skills = {run.skill for run, _ in rows}
    several = len(skills) > 1
    shown = sorted(_latest(rows), key=_name_of) if several else rows
    tests = [row for row in shown if _is_trigger_test(row)]
    results = [row for row in shown if not _is_trigger_test(row)]
    tables: list[Table] = []
    if results:
        tables.append(_result_table(results, metric, several=several))
    if tests:
        tables.append(_trigger_table(tests, several=several))
    notes: list[Note] = []
    if older:
        notes.append(
            Note(f"{counted(older, 'older run')} not shown. Use --all to show everything.")
        )
    next_command = NextCommand("upskill show RUN", "Read the answers of a run")
    if several:
        next_command = NextCommand("upskill runs -s SKILL", "See each run of a skill, with its id")
    return Report(
        title="Latest results" if several else f"Runs of {', '.join(skills)}",
        name="runs",
        data=[_to_json(run, verdict) for run, verdict in rows],
        tables=tuple(tables),
        notes=tuple(notes),
        next=(next_command,) if rows else (),
    )


def _latest(rows: Sequence[Row]) -> list[Row]:
    """The row of each skill and model that gives its verdict."""
    by_rank = sorted(rows, key=lambda row: rank_of(row[0], row[1]["decision"]))
    return list({_name_of(row): row for row in by_rank}.values())  # the last one counts


def _name_of(row: Row) -> tuple[str, str]:
    run, verdict = row
    return run.skill, verdict["model"]


def _is_trigger_test(row: Row) -> bool:
    """Its accuracy is no pass rate. What has not finished says so instead."""
    _, verdict = row
    return bool(verdict.get("trigger")) and not verdict.get("unfinished")


def _result_table(rows: Sequence[Row], metric: Metric, *, several: bool) -> Table:
    of_metric = [Column("Passes", "share", spare=True), Column("Lift", "points")]
    if metric == "tokens":
        of_metric = [Column("Tokens per task", "count")]
    columns = (*_name_columns(several=several), Column("Result"), *of_metric)
    cells: list[tuple[Cell, ...]] = []
    for run, verdict in rows:
        names = _names(run, verdict, several=several)
        numbers = _numbers(verdict, metric)
        cells.append((*names, _result(run, verdict), *numbers))
    return Table(columns=columns, rows=tuple(cells))


def _trigger_table(rows: Sequence[Row], *, several: bool) -> Table:
    quantities = (Column("Recall", "share"), Column("Accuracy", "share"))
    columns = (*_name_columns(several=several), *quantities, COVERS)
    cells: list[tuple[Cell, ...]] = []
    for run, verdict in rows:
        metrics = verdict["trigger"]
        shares = [
            metrics[name]["value"] if metrics[name] else None for name in ("recall", "accuracy")
        ]
        names = _names(run, verdict, several=several)
        cells.append((*names, *shares, _covers(run, verdict)))
    return Table(title="Trigger tests", columns=columns, rows=tuple(cells))


def _name_columns(*, several: bool) -> tuple[Column, ...]:
    if several:
        return Column("Skill"), Column("Model")
    return Column("Run", "code"), Column("When", spare=True), Column("Model")


def _names(run: Run, verdict: Document, *, several: bool) -> tuple[str, ...]:
    if several:
        return run.skill, verdict["model"]
    return run.id, run.created[:16].replace("T", " "), verdict["model"]


def _result(run: Run, verdict: Document) -> Headline:
    if verdict["reason"] == Reason.ISOLATION:
        return INVALID
    if so_far := verdict.get("unfinished"):
        words = f"unfinished: {so_far['trials']:,} of {counted(so_far['of'], 'trial')}"
        words = "; ".join(filter(None, [words, _covers(run, verdict)]))
        return Headline(words, "open")
    decision = verdict["decision"]
    words = "; ".join(filter(None, [decision_in_words(verdict), _covers(run, verdict)]))
    return Headline(words, TONES[decision], SIGNS[decision])


def _numbers(verdict: Document, metric: Metric) -> tuple[Cell, ...]:
    is_hidden = verdict["reason"] == Reason.ISOLATION or verdict.get("unfinished")
    before, after = verdict["baseline"], verdict["skill"]
    if metric == "tokens":
        return (None if is_hidden else Change(_tokens(before), _tokens(after)),)
    if is_hidden:
        return None, None
    return Change(_rate(before), _rate(after)), verdict["lift"]


def _rate(arm: Document) -> Rate | None:
    scored = arm["passed"] + arm["failed"]
    return Rate(arm["passed"], scored, arm["pass_rate"]) if scored else None


def _tokens(arm: Document) -> float | None:
    scored = arm["passed"] + arm["failed"]
    return (arm["input_tokens"] + arm["output_tokens"]) / scored if scored else None


def _covers(run: Run, verdict: Document) -> str:
    """What the verdict is of, unless that is the skill's whole suite with and without the skill."""
    return ", ".join(filter(None, _limits(run, verdict)))


def _limits(run: Run, verdict: Document) -> Iterator[str]:
    if suite := run.plan.other_suite:
        yield f"on {suite}"
    if not verdict.get("unfinished"):
        yield limits_of(run, verdict["decision"])
    if part := run.plan.suite.part:
        yield part.chosen


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
