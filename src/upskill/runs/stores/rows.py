"""What a store contains: runs, results, reviews, batches and candidates, and the rows they are stored in."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal

from upskill.models import RequestHash
from upskill.plain import counted
from upskill.runs.planning.plan import CheckFinding, Purpose, Result, Trial
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.runs.stores.tables import to_json
from upskill.skills import SkillFile
from upskill.traces import Step, Trace, Usage

INSTANT = 0.1  # seconds: a trial that took less was answered from the store or a script


@dataclass(frozen=True, slots=True)
class Run:
    """A stored plan and its progress."""

    number: int
    id: str
    fingerprint: str
    skill: str
    created: str
    trials: int
    plan: StoredPlan
    passed: int = 0
    failed: int = 0
    errored: int = 0
    resumed: bool = False  # by the command that runs it; not stored

    def __repr__(self) -> str:
        return f"Run({self.id!r}, {counted(self.trials, 'trial')})"

    @property
    def finished(self) -> bool:
        return self.passed + self.failed + self.errored >= self.trials

    @property
    def purpose(self) -> Purpose:
        return self.plan.purpose

    @property
    def models(self) -> list[str]:
        return [model.name for model in self.plan.models]


@dataclass(frozen=True, slots=True)
class Progress:
    """How the trials of one model and arm ended, and what they cost: errored tries and the judge included."""

    model: str
    arm: str
    passed: int
    failed: int
    errored: int
    tokens: int
    cost_usd: float | None  # None: some price is not known


FeedbackVerdict = Literal["right", "wrong", "odd", ""]  # empty: there is only a note


@dataclass(frozen=True, slots=True)
class Review:
    """Feedback of a person on the answer of one trial."""

    trial: Trial
    verdict: FeedbackVerdict
    note: str = ""
    created: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Which of many results to read."""

    limit: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that were, or may have been, submitted to a provider's batch API and are not all collected."""

    token: str  # our own id
    model: str
    url: str
    id: str  # the provider's id; empty until the provider has confirmed it
    submitted: str
    keys: tuple[str, ...]  # of the requests whose replies nobody has collected


@dataclass(frozen=True, slots=True)
class Candidate:
    """A skill that was tried in a search for a better one."""

    number: int
    search: str  # a hash of the task, the teacher, the student and the suite
    skill: str  # its name
    fingerprint: str
    parent: int | None  # the number of the candidate it was made from
    created: str
    accepted: bool | None  # None: undecided, because its evaluation did not finish
    note: str
    verdict: dict[str, Any]  # on train cases: a fit
    files: str  # all of its files, as JSON


def result_to_row(run: int, result: Result) -> dict[str, Any]:
    trial, usage, trace = result.trial, result.usage, result.trace
    checks_passed, checks = result.checks_passed
    return {
        "run": run,
        "key": result.key,
        "model": trial.model,
        "case_id": trial.case,
        "arm": trial.arm,
        "seed": trial.seed,
        "passed": result.passed,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "cost_usd": usage.cost_usd,
        "seconds": result.seconds,
        "checks_passed": checks_passed,
        "checks": checks,
        "judge_tokens": result.judging.total_tokens,
        "judge_cost_usd": result.judging.cost_usd,
        "finished": timestamp(),
        "error": result.error,
        "detail": _detail(result),
        "activated": result.activated,
        "turns": trace.turns if trace else 0,
        "calls": len(trace.calls) if trace else 0,
        "tool_errors": result.tool_errors,
        "leak": result.leak,
        "bug": result.bug,
        "snapshot": trace.model if trace else "",
        "cause": result.cause,
        "final": result.is_final,
    }


def result_from_row(row: Mapping[str, Any]) -> Result:
    detail = row["detail"]
    usage = Usage(**detail["usage"])
    trace = None
    if (stored := detail.get("trace")) is not None:
        steps = tuple(Step(**step) for step in stored["steps"])
        optional = {
            name: stored[name] for name in ("agent", "turns", "stop_details") if name in stored
        }
        trace = Trace(steps, usage, stored["stop"], stored["model"], **optional)
    return Result(
        Trial(row["model"], row["case_id"], row["arm"], row["seed"]),
        key=row["key"],
        passed=row["passed"],
        error=row["error"],
        trace=trace,
        findings=tuple(CheckFinding(*item) for item in detail["judgements"]),
        usage=usage,
        judging=Usage(**detail["judging"]),
        seconds=row["seconds"],
        activated=row["activated"],
        leak=row["leak"],
        traceback=detail.get("traceback", ""),
        cause=row["cause"],
        asked=tuple(RequestHash(*hashes) for hashes in detail.get("asked", ())),
        is_final=row["final"],
    )


def _detail(result: Result) -> dict[str, Any]:
    detail: dict[str, Any] = {
        "usage": result.usage,
        "judging": result.judging,
        "judgements": [
            [item.check, item.passed, item.reason, *(() if item.decides else (False,))]
            for item in result.findings
        ],
    }
    if result.asked:
        detail["asked"] = [request if request.role else request[:2] for request in result.asked]
    if result.traceback:
        detail["traceback"] = result.traceback
    if result.trace is not None:
        detail["trace"] = {
            "stop": result.trace.stop,
            "model": result.trace.model,
            "turns": result.trace.turns,
            **(
                {"agent": result.trace.agent} if result.trace.agent else {}
            ),  # a program, with its version
            **({"stop_details": result.trace.stop_details} if result.trace.stop_details else {}),
            "steps": [_step_to_dict(step) for step in result.trace.steps],
        }
    return detail


_STEP_FIELDS = tuple(column.name for column in fields(Step))


def _step_to_dict(step: Step) -> dict[str, Any]:
    """What is known of a step; empty fields would be most of what is stored."""
    values = ((name, getattr(step, name)) for name in _STEP_FIELDS)
    return {name: value for name, value in values if (value or value == 0) and value != "unknown"}


def files_to_json(files: Iterable[SkillFile]) -> str:
    rows: list[dict[str, Any]] = []
    for file in files:
        row: dict[str, Any] = {
            "path": file.path,
            **({"executable": True} if file.executable else {}),
        }
        try:
            row |= {"link": file.link} if file.link else {"text": file.data.decode()}
        except UnicodeDecodeError:
            row["base64"] = b64encode(file.data).decode()
        rows.append(row)
    return to_json(rows)


def files_from_json(text: str) -> list[SkillFile]:
    return [
        SkillFile(
            row["path"],
            b64decode(row["base64"]) if "base64" in row else row.get("text", "").encode(),
            row.get("executable", False),
            row.get("link", ""),
        )
        for row in json.loads(text)
    ]


def timestamp() -> str:
    return datetime.now(UTC).replace(microsecond=0).isoformat()
