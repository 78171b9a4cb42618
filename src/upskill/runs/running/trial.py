"""Runs one trial: asks the student, inspects its workspace, and has every check of the case look at its work.

What the student delivers is graded in a room of its own (`upskill.suites.grading`), after its sandbox is gone.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from upskill.agents import AGENTS, Agent, ExternalAgent, Student, Task
from upskill.agents.activation import HiddenSkill, activated, find_leak
from upskill.checks import Evidence
from upskill.checks.room import Delivery
from upskill.errors import (
    CeilingReached,
    JudgeError,
    ModelError,
    SandboxError,
    StoreError,
    TrialError,
    UsageError,
    wrap_trial_errors,
)
from upskill.models import Model, Reply, Request, RequestHash
from upskill.models.cache import NotRecorded, track_requests
from upskill.models.failures import stays_missing
from upskill.models.pool import Models
from upskill.runs.planning.plan import CheckFinding, Plan, Result, Trial, task_of
from upskill.sandboxes import printable
from upskill.suites import Case
from upskill.suites.grading import OpenSandbox, collect_delivery, grade
from upskill.traces import NO_USAGE, Trace, Usage
from upskill.verdicts.outcome import Cause

if TYPE_CHECKING:
    from upskill.sandboxes import Sandbox, Setup

REASONS: dict[Cause, str] = {
    "length": "the answer was cut off after {limit:,} tokens{checks}; give it more room with --set max_output_tokens=N",
    "repetition": "the answer was cut off because it kept repeating itself",
    "context": "it did not fit into the model's context",
    "refusal": "the model or its provider refused",
    "empty": "the answer is empty",
}
LOOK_SECONDS = 0.25
MAX_LOST = 1.0  # seconds of a trial in which upskill was busy with others
MAX_NAMED = 5  # files that were left and not delivered
BOUNDS = (
    "turns",
    "tokens",
    "seconds",
    "activated",
)  # what ends an agent's work, which is then judged as it is


async def run_trial(
    plan: Plan, trial: Trial, models: Models, previous: Result | None = None
) -> Result:
    """Run one trial. Whatever goes wrong around the student makes it missing, never failed.

    What a student does instead of answering is its failure. `previous` is the result of an earlier try that cannot have
    reached the student, or whose answer waits for a program that a check needs. An exception that is not ours is a bug
    in upskill.
    """
    started = time.perf_counter()
    attempt = _Progress(previous)
    error: TrialError | None = None
    passed: bool | None = None
    with track_requests() as requests, watchdog.watching():
        lost_before = watchdog.lost
        try:
            passed = await _run_and_check(plan, trial, models, attempt)
            lost = watchdog.lost - lost_before
            if not passed and attempt.trace and attempt.trace.stop == "seconds" and lost > MAX_LOST:
                passed = None
                error = TrialError(f"out of time, but upskill itself was busy for {lost:.1f} s")
        except (StoreError, UsageError, CeilingReached):
            raise
        except TrialError as raised:
            error = raised
            if isinstance(raised, NotRecorded) and models.cassette:
                from upskill.runs.replay.replay import explain_missing  # noqa: PLC0415 - only where a file of replies is played

                error = ModelError(
                    explain_missing(models.cassette, plan, trial), failure="not asked"
                )
        except Exception as raised:
            error = TrialError(f"{type(raised).__name__}: {raised}")
            error.traceback = traceback.format_exc()
    trace, judge = attempt.trace, attempt.judge
    judging = judge.usage if judge else NO_USAGE
    asked_before: list[RequestHash] = []
    if previous:
        asked_before = [
            request for request in previous.asked if attempt.regraded and not request.role
        ]
        judging = judging + previous.judging
    cause = attempt.cause
    if error:
        cause = "judge" if trace and _is_by_judge(error) else ""
    return Result(
        trial,
        key=plan.key(trial),
        passed=passed,
        error=str(error) if error else "",
        trace=trace,
        findings=tuple(attempt.findings),
        usage=trace.usage if trace else (error.usage if error else None) or NO_USAGE,
        judging=judging,
        seconds=round(time.perf_counter() - started, 4),
        fatal=isinstance(error, ModelError) and error.fatal,
        activated=attempt.activated,
        leak=attempt.leak,
        traceback=error.traceback if error else "",
        cause=cause,
        asked=(*asked_before, *requests, *attempt.judged_with),
        is_final=error is None or _is_final(plan, trial, attempt, error),
    )


def _is_final(plan: Plan, trial: Trial, attempt: _Progress, error: TrialError) -> bool:
    """Whether the trial is missing for good. An exact student gives the same answer when it is asked again."""
    if plan.is_exact(trial.model) and not (attempt.trace and _is_by_judge(error)):
        return False
    answered = attempt.calls.answered or attempt.trace is not None
    return stays_missing(error, asked=attempt.calls.asked, answered=answered)


class Watchdog:
    """Counts the seconds in which the event loop served no trial at all."""

    def __init__(self) -> None:
        self.lost = 0.0
        self._trials = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watching(self) -> Generator[None]:
        self._trials += 1
        if self._timer is None:
            self._wait()
        try:
            yield
        finally:
            self._trials -= 1
            if not self._trials and self._timer:
                self._timer.cancel()
                self._timer = None

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + LOOK_SECONDS
        self._timer = loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        late = asyncio.get_running_loop().time() - due
        self.lost += late if late > LOOK_SECONDS else 0.0
        self._wait()


watchdog = Watchdog()


@dataclass(slots=True, eq=False, repr=False)
class _Calls:
    """The student's model, and whether it was asked and has answered in this attempt."""

    model: Model | None = None
    asked: bool = False
    answered: bool = False

    async def reply(self, request: Request) -> Reply:
        assert self.model is not None
        self.asked = True
        reply = await self.model.reply(request)
        self.answered = True
        return reply


@dataclass(slots=True, eq=False, repr=False)
class _Progress:
    """How far a trial has come."""

    previous: Result | None = None
    regraded: bool = False  # the answer is that of the previous try
    calls: _Calls = field(default_factory=_Calls)  # of the student
    trace: Trace | None = None
    judge: _Judge | None = None
    findings: list[CheckFinding] = field(default_factory=list[CheckFinding])
    activated: bool | None = None
    leak: str = ""
    cause: Cause | Literal[""] = ""
    judged_with: list[RequestHash] = field(
        default_factory=list[RequestHash]
    )  # what the judge was asked


async def _run_and_check(plan: Plan, trial: Trial, models: Models, attempt: _Progress) -> bool:
    case = plan.suite.by_id[trial.case]
    agent: Agent = AGENTS.load(plan.agent)()
    attempt.judge = _Judge(await models.get(plan.judge, "judge")) if plan.judge else None
    task = task_of(plan, trial)
    open_sandbox = partial(_open_sandbox, plan, case)
    delivery: Delivery | None = None
    async with open_sandbox(agent.setup(task)) if agent.needs_sandbox else nullcontext() as sandbox:
        with wrap_trial_errors(ModelError, f"asking {trial.model}"):
            address = plan.addresses[trial.model]
            context = models.context
            attempt.calls.model = await models.get(address)
            student = Student(
                address,
                attempt.calls,
                sandbox,
                context.keys,
                models.ledger,
                context.prices,
            )
            # What an agent that acts left is gone with its sandbox, so it has to act again.
            stored = (
                attempt.previous.trace if attempt.previous and not agent.needs_sandbox else None
            )
            attempt.regraded = stored is not None
            if isinstance(
                agent, ExternalAgent
            ):  # which asks a model of its own, and says how far it came
                attempt.calls.asked = True
            attempt.trace = trace = stored or await agent.run(task, student)
            attempt.cause = _cause_of(trace, task)
        own = plan.canary(trial) if task.skill and agent.needs_sandbox else ""
        if sandbox is not None:
            with wrap_trial_errors(SandboxError, "inspecting the workspace"):
                await sandbox.kill_processes()
                attempt.activated = activated(trace, task.skill.name, own) if task.skill else None
                hidden = None
                if task.skill is None:
                    hidden = HiddenSkill(plan.skill, sandbox.home, case.text)
                attempt.leak = await find_leak(trace, own, lambda: plan.canaries, hidden, sandbox)
                delivery = await collect_delivery(sandbox, case)
    evidence = case.evidence_of(
        trace,
        ask=attempt.judge.ask if attempt.judge else None,
        skill=task.skill.name if task.skill and agent.needs_sandbox else "",
        canary=own,
        skill_body=task.skill.body if task.skill else "",
    )
    if attempt.cause:  # no check can change that, and nobody is paid to grade it
        checks = ""
        if attempt.cause == "length":
            checks = await _check_so_far(case, evidence, open_sandbox, delivery)
        reason = REASONS[attempt.cause].format(limit=task.max_output_tokens, checks=checks)
        if attempt.cause == "length" and isinstance(agent, ExternalAgent):
            reason = f"the answer was cut off at the agent's own limit{checks}"
        details = f": {trace.stop_details}" if trace.stop_details else ""
        attempt.findings.append(CheckFinding("complete", passed=False, reason=f"{reason}{details}"))
        return False
    if delivery is not None and delivery.problem:
        attempt.findings.append(CheckFinding("outputs", passed=False, reason=delivery.problem))
        return False
    if delivery is not None and delivery.left_out and case.outputs is not None:
        attempt.findings.append(_describe_left_out(delivery))
    with track_requests() if attempt.judge else nullcontext([]) as attempt.judged_with:
        async for named, finding in grade(case, evidence, open_sandbox, delivery):
            decides = named.check.decides and finding.decides
            attempt.findings.append(
                CheckFinding(named.name, finding.passed, finding.reason, decides)
            )
            if finding.broke:
                attempt.cause = "unreadable"
            elif not finding.decides and not attempt.cause:
                attempt.cause = "verbose"
    passed = all(result.passed for result in attempt.findings if result.decides)
    if attempt.cause == "verbose" and not passed:
        attempt.cause = ""
    return passed


def _describe_left_out(delivery: Delivery) -> CheckFinding:
    named = ", ".join(map(printable, delivery.left_out[:MAX_NAMED]))
    more = (
        f" and {len(delivery.left_out) - MAX_NAMED} more" if delivery.left_out[MAX_NAMED:] else ""
    )
    return CheckFinding("outputs", True, f"left and not delivered: {named}{more}", decides=False)


async def _check_so_far(
    case: Case, evidence: Evidence, open_sandbox: OpenSandbox, delivery: Delivery | None
) -> str:
    """What the checks say about an answer that was cut off: did it lack knowledge or room?"""
    tried = [named for named in case.checks if named.check.decides and not named.check.needs_judge]
    passed = 0
    with suppress(TrialError):  # no more than a remark
        async for _, finding in grade(case, evidence, open_sandbox, delivery, tried):
            passed += finding.passed or not finding.decides
    return f" (checks: {passed} of {len(tried)} pass so far)" if tried else ""


def _cause_of(trace: Trace, task: Task) -> Cause | Literal[""]:
    """Why there is no answer that could pass. None is needed where only the opening of a skill is watched."""
    if task.bounds.until_activated:
        return ""
    if trace.stop in ("length", "repetition", "context", "refusal"):
        return trace.stop
    return "" if trace.answer.strip() or trace.calls or trace.stop in BOUNDS else "empty"


@asynccontextmanager
async def _open_sandbox(plan: Plan, case: Case, setup: Setup) -> AsyncGenerator[Sandbox]:
    from upskill.sandboxes import SANDBOXES, SandboxBackend, choose_sandbox  # noqa: PLC0415 - only where something acts
    from upskill.sandboxes.gpu import open_in_turn  # noqa: PLC0415

    # `evaluate` has tried it out; a trial that is run by itself has that still to do.
    kind: SandboxBackend = (
        SANDBOXES.load(plan.sandbox)() if plan.sandbox else (await choose_sandbox()).backend
    )
    async with open_in_turn(kind, replace(setup, gpu=case.gpu)) as sandbox:
        yield sandbox


class _Judge:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.usage: Usage = NO_USAGE

    async def ask(self, request: Request) -> Reply:
        try:
            reply = await self.model.reply(request)
        except ModelError as error:
            self.usage = self.usage + (error.usage or NO_USAGE)
            raise
        self.usage = self.usage + reply.usage
        return reply


def _is_by_judge(error: TrialError) -> bool:
    """Of an error in a check. A judge may break down on the answers of one arm only."""
    return isinstance(error, JudgeError | ModelError)
