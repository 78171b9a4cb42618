"""What a store holds, whatever its kind: runs, looks, batches, candidates, and a result as a row of named columns."""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, cast

from upskill.models import RequestHash
from upskill.plain import compact
from upskill.record import record
from upskill.runs.planning.plan import Arm, Judgement, Result, Trial
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.skills import SkillFile
from upskill.traces import NO_USAGE, Step, Trace, Usage
from upskill.verdicts.outcome import Cause


@record
class Run:
    """A stored plan and how far it has come."""

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

    @property
    def finished(self) -> bool:
        return self.passed + self.failed == self.trials

    @property
    def models(self) -> list[str]:
        return [model.name for model in self.plan.models]


@record
class Tally:
    """How the trials of one model and arm ended."""

    model: str
    arm: str
    passed: int
    failed: int
    errored: int


@record
class Progress(Tally):
    """The same, with what has been spent on it: errored tries and the judge included."""

    tokens: int
    cost_usd: float | None  # None: some price is not known


FeedbackVerdict = Literal["right", "wrong", "odd", ""]  # empty: there is only a note


@record
class Review:
    """What a person says of the answer of one trial."""

    trial: Trial
    verdict: FeedbackVerdict
    note: str = ""
    created: str = ""


@record
class Page:
    """Which of many results to read: so many, after so many."""

    limit: int
    offset: int = 0


@record
class Batch:
    """Requests that were, or may have been, submitted to a provider's batch API and are not all collected."""

    token: str  # our own id
    model: str
    url: str
    id: str  # the provider's id; empty until the provider has confirmed it
    submitted: str
    keys: tuple[str, ...]  # of the requests whose replies nobody has collected


@record
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


@record(kw_only=True)
class Look:
    """What somebody was told of a skill, a suite and a model: one verdict of one report."""

    run: str  # the id of the run
    model: str
    skill: str  # its name
    skill_hash: str  # of what students see
    suite: str  # where it was read from
    suite_fingerprint: str
    cases: Mapping[str, str]  # the hash of each case, by its id
    runs: int
    seed: int
    margin: float
    scope: str  # of `--until-decided`; empty without it
    trials: int  # that were scored
    pairs: int = 0
    decision: str = ""
    verdict: Mapping[str, Any] = field(default_factory=dict[str, Any])  # as JSON has it
    version: str = ""  # of upskill, which computed it
    asked: str = ""  # when
    asked_by: str = ""  # the user's name on this machine
    number: int = 0  # in the order in which they were added; 0: not yet

    @property
    def identity(self) -> tuple[object, ...]:
        """Two looks with the same one showed the same results in the same way."""
        return self.run, self.model, self.margin, self.scope, self.trials


LOOK_COLUMNS = tuple(column.name for column in fields(Look) if column.name != "number")


@dataclass(slots=True)
class ResultRow:
    """A result as it is stored. The fields are the columns of the table `results`, under the same names."""

    run: int
    key: str
    model: str
    case_id: str
    arm: str
    seed: int
    passed: bool | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    seconds: float
    checks_passed: int
    checks: int
    judge_tokens: int
    judge_cost_usd: float | None
    finished: str
    error: str
    detail: str  # usage, judgements, the trace and a bug's traceback, as JSON
    activated: bool | None
    turns: int
    calls: int
    tool_errors: int
    leak: str
    bug: bool
    snapshot: str  # the name the provider answered under
    cause: str
    earlier_tokens: int
    earlier_cost_usd: float | None

    def to_result(self) -> Result:
        detail = json.loads(self.detail)
        usage = Usage(**detail["usage"])
        trace = None
        if (stored := detail.get("trace")) is not None:
            steps = tuple(Step(**step) for step in stored["steps"])
            optional = {name: stored[name] for name in ("agent", "turns", "stop_details") if name in stored}
            trace = Trace(steps, usage, stored["stop"], stored["model"], **optional)
        return Result(
            Trial(self.model, self.case_id, cast("Arm", self.arm), self.seed),
            self.key,
            optional_bool(self.passed),
            self.error,
            trace,
            tuple(Judgement(*item) for item in detail["judgements"]),
            usage,
            Usage(**detail["judging"]),
            self.seconds,
            activated=optional_bool(self.activated),
            leak=self.leak,
            traceback=detail.get("traceback", ""),
            cause=cast("Cause", self.cause),
            earlier=Usage(**detail["earlier"]) if "earlier" in detail else NO_USAGE,
            asked=tuple(RequestHash(*hashes) for hashes in detail.get("asked", ())),
        )


RESULT_COLUMNS = tuple(column.name for column in fields(ResultRow))


def result_values(run: int, result: Result) -> tuple[Any, ...]:
    """A result as it is stored: the values of RESULT_COLUMNS, in their order."""
    trial, usage, trace, judging, earlier = result.trial, result.usage, result.trace, result.judging, result.earlier
    checks_passed, checks = result.checks_passed
    calls = trace.calls if trace else ()
    return (
        run,
        result.key,
        trial.model,
        trial.case,
        trial.arm,
        trial.seed,
        result.passed,
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.cost_usd,
        result.seconds,
        checks_passed,
        checks,
        judging.total_tokens,
        judging.cost_usd,
        timestamp(),
        escape_surrogates(result.error),
        to_json(_detail(result)),
        result.activated,
        trace.turns if trace else 0,
        len(calls),
        sum(step.status == "error" for step in calls) if calls else 0,
        escape_surrogates(result.leak),
        result.bug,
        escape_surrogates(trace.model) if trace else "",
        result.cause,
        earlier.total_tokens,
        earlier.cost_usd,
    )


def _detail(result: Result) -> dict[str, Any]:
    detail: dict[str, Any] = {
        "usage": result.usage,
        "judging": result.judging,
        "judgements": [
            [item.check, item.passed, item.reason, *(() if item.decides else (False,))] for item in result.judgements
        ],
    }
    if result.asked:
        detail["asked"] = [one if one.role else one[:2] for one in result.asked]
    if result.earlier != NO_USAGE:
        detail["earlier"] = result.earlier
    if result.traceback:
        detail["traceback"] = result.traceback
    if result.trace is not None:
        detail["trace"] = {
            "stop": result.trace.stop,
            "model": result.trace.model,
            "turns": result.trace.turns,
            **({"agent": result.trace.agent} if result.trace.agent else {}),  # a program, with its version
            **({"stop_details": result.trace.stop_details} if result.trace.stop_details else {}),
            "steps": [_step_fields(step) for step in result.trace.steps],
        }
    return detail


_STEP_FIELDS = tuple(column.name for column in fields(Step))
_step_values = attrgetter(*_STEP_FIELDS)
_SAID = _step_values(Step("assistant"))[2:]


def _step_fields(step: Step) -> dict[str, Any]:
    """What is known of a step; empty fields would be most of what is stored."""
    values = _step_values(step)
    if values[2:] == _SAID and step.text:  # somebody said something, as in most steps
        return {"kind": step.kind, "text": step.text}
    named = zip(_STEP_FIELDS, values, strict=True)
    return {name: value for name, value in named if (value or value == 0) and value != "unknown"}


def files_to_json(files: Iterable[SkillFile]) -> str:
    """The files of a skill, as `Candidate.files` has them."""
    rows: list[dict[str, Any]] = []
    for file in files:
        row: dict[str, Any] = {"path": file.path}
        try:
            row |= {"link": file.link} if file.link else {"text": file.data.decode()}
        except UnicodeDecodeError:
            row["base64"] = b64encode(file.data).decode()
        rows.append(row | ({"executable": True} if file.executable else {}))
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
    """The time now, to the second, in ISO 8601."""
    return _iso_time(int(time.time()))


@lru_cache(maxsize=1)
def _iso_time(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


def optional_bool(value: int | None) -> bool | None:
    """A nullable truth value from a database without booleans."""
    return None if value is None else bool(value)


def to_json(value: object) -> str:
    return escape_surrogates(compact(value))


def escape_surrogates(text: str) -> str:
    """Half of a surrogate pair, which models do produce, as its escape: UTF-8 has no place for it, JSON does."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
