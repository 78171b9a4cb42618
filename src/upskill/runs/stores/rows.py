"""Records: what the store hands out (runs, batches, results) and how a result is written as a row."""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from upskill.plain import compact, fields_of
from upskill.runs.plan import Judgement, Result, Trial
from upskill.skills import SkillFile
from upskill.traces import Step, Trace, Usage


@dataclass(frozen=True, slots=True)
class Run:
    """A stored plan and how far it has come."""

    number: int
    id: str
    fingerprint: str
    skill: str
    created: str
    trials: int
    plan: dict[str, Any]
    passed: int = 0
    failed: int = 0
    errored: int = 0

    @property
    def finished(self) -> bool:
        return self.passed + self.failed == self.trials

    @property
    def models(self) -> list[str]:
        return [model["name"] for model in self.plan["models"]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that a provider has, or may have, to answer at leisure, and whose replies we do not have yet."""

    token: str  # our own name for it
    model: str
    url: str
    id: str  # the provider's name for it; empty until it is known that the provider has it
    submitted: str
    keys: tuple[str, ...]  # of the requests that nobody has collected the replies of


@dataclass(frozen=True, slots=True)
class Candidate:
    """A skill that was tried in a search for a better one, with the one that it was made from."""

    number: int
    search: str  # a hash of what was looked for: the task, the teacher, the student and the suite
    skill: str  # its name
    fingerprint: str
    parent: int | None
    created: str
    accepted: bool | None  # None: not decided, because it was not evaluated to the end
    note: str
    verdict: dict[str, Any]  # on train cases: a fit
    files: str  # all of its files, as `write_files` wrote them


def write_files(files: Iterable[SkillFile]) -> str:
    """The files of a skill as JSON."""
    rows: list[dict[str, Any]] = []
    for file in files:
        row: dict[str, Any] = {"path": file.path}
        try:
            row |= {"link": file.link} if file.link else {"text": file.data.decode()}
        except UnicodeDecodeError:
            row["base64"] = b64encode(file.data).decode()
        rows.append(row | ({"executable": True} if file.executable else {}))
    return as_json(rows)


def read_files(written: str) -> list[SkillFile]:
    return [
        SkillFile(
            row["path"],
            b64decode(row["base64"]) if "base64" in row else row.get("text", "").encode(),
            row.get("executable", False),
            row.get("link", ""),
        )
        for row in json.loads(written)
    ]


def now() -> str:
    return _moment(int(time.time()))


@lru_cache(maxsize=1)
def _moment(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


def row_of(run: int, result: Result) -> tuple[Any, ...]:
    trial, usage = result.trial, result.usage
    return (
        run,
        result.key,
        trial.model,
        trial.case,
        trial.arm,
        trial.seed,
        None if result.passed is None else int(result.passed),
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.cost_usd,
        result.seconds,
        sum(result.passed for result in result.judgements),
        len(result.judgements),
        result.judging.total_tokens,
        result.judging.cost_usd,
        now(),
        as_utf8(result.error),
        as_json(_detail(result)),
        None if result.activated is None else int(result.activated),
        result.trace.turns if result.trace else 0,
        len(result.trace.calls) if result.trace else 0,
        result.tool_errors,
        as_utf8(result.leak),
    )


def truth(kept: int | None) -> bool | None:
    """True, false or neither, from the number that SQLite keeps of it."""
    return None if kept is None else bool(kept)


def as_json(value: object) -> str:
    return as_utf8(compact(value))


def as_utf8(text: str) -> str:
    """Half of a surrogate pair, which models do say, as its escape: that can be kept, and JSON reads it back."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _detail(result: Result) -> dict[str, Any]:
    detail: dict[str, Any] = {
        "usage": result.usage,
        "judging": result.judging,
        "judgements": [[item.check, item.passed, item.reason] for item in result.judgements],
    }
    if result.trace is not None:
        detail["trace"] = {
            "stop": result.trace.stop,
            "model": result.trace.model,
            "turns": result.trace.turns,
            **({"agent": result.trace.agent} if result.trace.agent else {}),  # a program, with its version
            "steps": [_plain_step(step) for step in result.trace.steps],
        }
    return detail


def _plain_step(step: Step) -> dict[str, Any]:
    return {key: value for key, value in fields_of(step).items() if value not in ("", {}, None, "unknown")}


def read_result(row: tuple[Any, ...]) -> Result:
    model, case, arm, seed, key, passed, error, detail_text, activated, leak, seconds = row
    detail = json.loads(detail_text)
    usage = Usage(**detail["usage"])
    said = detail.get("trace")
    trace = None
    if said is not None:
        steps = tuple(Step(**step) for step in said["steps"])
        agent, turns = said.get("agent", ""), said.get("turns", 0)
        trace = Trace(steps, usage, said["stop"], said["model"], agent=agent, turns=turns)
    return Result(
        Trial(model, case, arm, seed),
        key,
        truth(passed),
        error,
        trace,
        tuple(Judgement(*item) for item in detail["judgements"]),
        usage,
        Usage(**detail["judging"]),
        seconds,
        activated=truth(activated),
        leak=leak,
    )
