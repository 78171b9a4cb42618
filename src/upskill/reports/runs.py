"""The stored runs (`upskill runs`): one skill run by run, or the latest result of each skill and model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from upskill.plain import counted
from upskill.reports.json import pick
from upskill.reports.report import (
    Cell,
    Change,
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
SHARES = ("recall", "accuracy")
INVALID = Headline("INVALID", "bad", "✗")


@dataclass(frozen=True)
class Row:
    """What a run says about a model."""

    run: Run
    verdict: Document  # as in JSON
    is_running: bool = False

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


def latest_rows(rows: Iterable[Row], visible_hash: str = "") -> list[Row]:
    """Of rows, oldest first, the one that gives each skill and model its verdict, on this version if there is one."""

    def rank(row: Row) -> tuple[bool, bool, bool]:
        is_own, is_whole = rank_of(row.run, row.verdict["decision"])
        return is_own, row.run.plan.skill.visible_hash == visible_hash, is_whole

    # The last one counts.
    ranked = {(row.run.skill, row.verdict["model"]): row for row in sorted(rows, key=rank)}
    return [*ranked.values()]


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
        tables=tables,
        notes=[Note(more)] if older else (),
        next=[next_command] if rows else (),
    )


def run_tables(rows: Iterable[Row], metric: Metric = "success") -> list[Table]:
    """A line for each run and model."""
    named: list[tuple[Mapping[str, Cell], Row]] = []
    for row in rows:
        when = row.run.created[:16].replace("T", " ")
        named.append(({"Run": row.run.id, "When": when, "Model": row.verdict["model"]}, row))
    return _tables(named, metric)


def latest_tables(rows: Iterable[Row], metric: Metric = "success") -> list[Table]:
    """A line for each skill and model, with the row that gives its verdict."""
    named = [
        ({"Skill": row.run.skill, "Model": row.verdict["model"]}, row) for row in latest_rows(rows)
    ]
    return _tables(sorted(named, key=lambda each: tuple(each[0].values())), metric)


def _tables(named: Iterable[tuple[Mapping[str, Cell], Row]], metric: Metric) -> list[Table]:
    """Results, then trigger tests."""
    results: list[Mapping[str, Cell]] = []
    tests: list[Mapping[str, Cell]] = []
    for names, row in named:
        if row.is_trigger_test:
            found = row.verdict["trigger"]
            recall, accuracy = (found[name] and found[name]["value"] for name in SHARES)
            tests.append({**names, "Recall": recall, "Accuracy": accuracy, "Covers": row.limits})
        else:
            results.append({**names, "Result": _result(row), **_numbers(row, metric)})
    return [Table.of(results), Table.of(tests, "Trigger tests")]


def _result(row: Row) -> Headline:
    if row.verdict["reason"] == Reason.ISOLATION:
        return INVALID
    if not row.is_unfinished:
        return Headline.of_decision(row.verdict, row.limits)
    so_far = row.verdict["unfinished"]
    state = "running" if row.is_running else "unfinished"
    words = f"{state}: {so_far['trials']:,} of {counted(so_far['of'], 'trial')}"
    return Headline("; ".join(filter(None, [words, row.limits])), "open")


def _numbers(row: Row, metric: Metric) -> Mapping[str, Cell]:
    verdict = row.verdict
    is_hidden = verdict["reason"] == Reason.ISOLATION or row.is_unfinished
    rates: list[Rate] = []
    tokens: list[float | None] = []
    for arm in (verdict["baseline"], verdict["skill"]):
        scored = arm["passed"] + arm["failed"]
        used = arm["input_tokens"] + arm["output_tokens"]
        rates.append(Rate(arm["passed"], scored, arm["pass_rate"]))
        tokens.append(used / scored if scored else None)
    if metric == "tokens":
        return {"Tokens per task": None if is_hidden else Change(*tokens)}
    if is_hidden:
        return {"Pass rates": None, "Lift": None}
    return {"Pass rates": Change(*rates), "Lift": verdict["lift"]}


def _to_json(row: Row) -> dict[str, object]:
    run = row.run
    return {
        "run": run.id,
        **pick(run, "created", "skill"),
        "model": row.verdict["model"],
        "purpose": run.purpose,
        "other_suite": run.plan.other_suite,
        **pick(run, "trials", "finished"),
        "verdict": row.verdict,
    }
