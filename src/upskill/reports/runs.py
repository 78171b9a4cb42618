"""The stored runs (`upskill runs`): one skill run by run, or the latest result of each skill and model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from upskill.plain import counted
from upskill.reports.report import (
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
from upskill.reports.triggered import trigger_metrics
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.shown import limits_of, rank_of, reported_verdicts
from upskill.runs.stores import Run, Store
from upskill.verdicts.verdict import Reason

Metric = Literal["success", "tokens"]
Document = Mapping[str, Any]
INVALID = Headline("INVALID", "bad", "✗")


@dataclass(frozen=True)
class Row:
    """What a run says about a model."""

    run: Run
    verdict: Document  # as in JSON
    is_running: bool = False

    @property
    def names(self) -> tuple[str, str]:
        return self.run.skill, self.verdict["model"]

    @property
    def is_unfinished(self) -> bool:
        return bool(self.verdict.get("unfinished"))

    @property
    def is_trigger_test(self) -> bool:
        """Its accuracy is no pass rate. What has not finished says so instead."""
        return bool(self.verdict.get("trigger")) and not self.is_unfinished

    @property
    def limits(self) -> str:
        """What the verdict is of, unless that is the skill's whole suite with and without the skill."""
        plan = self.run.plan
        limits = [f"on {plan.other_suite}" if plan.other_suite else ""]
        if not self.is_unfinished:
            limits.append(limits_of(self.run, self.verdict["decision"]))
        if plan.suite.part:
            limits.append(plan.suite.part.chosen)
        return ", ".join(filter(None, limits))


def read_rows(store: Store, runs: Iterable[Run], models: Sequence[str] = ()) -> list[Row]:
    """A row for each run and model: the verdict as it was reported, or anew where it would differ today."""
    return [
        Row(run, verdict, bool(verdict.get("unfinished")) and store.is_claimed(run))
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
    skills = {row.run.skill for row in rows}
    title = f"Runs of {', '.join(skills)}"
    tables = run_tables(rows, metric)
    next_command = NextCommand("upskill show RUN", "Read the answers of a run")
    if len(skills) > 1:
        title = "Latest results"
        tables = latest_tables(rows, metric)
        next_command = NextCommand("upskill runs -s SKILL", "See each run of a skill, with its id")
    more = f"{counted(older, 'older run')} not shown. Use --all to show everything."
    return Report(
        title=title,
        name="runs",
        data=[_to_json(row) for row in rows],
        tables=tuple(tables),
        notes=(Note(more),) if older else (),
        next=(next_command,) if rows else (),
    )


def run_tables(rows: Iterable[Row], metric: Metric = "success") -> Iterator[Table]:
    """A line for each run and model."""
    columns = Column("Run", "code"), Column("When", spare=True), Column("Model")
    names = [
        ((row.run.id, row.run.created[:16].replace("T", " "), row.verdict["model"]), row)
        for row in rows
    ]
    return _tables(columns, names, metric)


def latest_tables(rows: Iterable[Row], metric: Metric = "success") -> Iterator[Table]:
    """A line for each skill and model, with the row that gives its verdict."""
    by_rank = sorted(rows, key=lambda row: rank_of(row.run, row.verdict["decision"]))
    latest = {row.names: row for row in by_rank}  # the last one counts
    return _tables((Column("Skill"), Column("Model")), sorted(latest.items()), metric)


def _tables(
    columns: tuple[Column, ...],
    named: Sequence[tuple[tuple[str, ...], Row]],
    metric: Metric,
) -> Iterator[Table]:
    """Results, then trigger tests."""
    results: list[tuple[Cell, ...]] = []
    tests: list[tuple[Cell, ...]] = []
    for names, row in named:
        if row.is_trigger_test:
            tests.append((*names, *_trigger_shares(row), row.limits))
        else:
            results.append((*names, _result(row), *_numbers(row, metric)))
    of_metric = [Column("Passes", "share", spare=True), Column("Lift", "points")]
    if metric == "tokens":
        of_metric = [Column("Tokens per task", "count")]
    if results:
        yield Table(columns=(*columns, Column("Result"), *of_metric), rows=tuple(results))
    if tests:
        shares = Column("Recall", "share"), Column("Accuracy", "share"), Column("Covers")
        yield Table(title="Trigger tests", columns=(*columns, *shares), rows=tuple(tests))


def _trigger_shares(row: Row) -> Iterator[Cell]:
    for name in ("recall", "accuracy"):
        metric = row.verdict["trigger"][name]
        yield metric and metric["value"]


def _result(row: Row) -> Headline:
    if row.verdict["reason"] == Reason.ISOLATION:
        return INVALID
    if not row.is_unfinished:
        return Headline.of_decision(row.verdict, row.limits)
    so_far = row.verdict["unfinished"]
    state = "running" if row.is_running else "unfinished"
    words = f"{state}: {so_far['trials']:,} of {counted(so_far['of'], 'trial')}"
    return Headline("; ".join(filter(None, [words, row.limits])), "open")


def _numbers(row: Row, metric: Metric) -> tuple[Cell, ...]:
    verdict = row.verdict
    is_hidden = verdict["reason"] == Reason.ISOLATION or row.is_unfinished
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


def _to_json(row: Row) -> dict[str, object]:
    run = row.run
    return {
        "run": run.id,
        "created": run.created,
        "skill": run.skill,
        "model": row.verdict["model"],
        "purpose": run.purpose,
        "other_suite": run.plan.other_suite,
        "trials": run.trials,
        "finished": run.finished,
        "verdict": row.verdict,
    }
