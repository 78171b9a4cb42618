"""Runs one trial: asks the student, inspects its workspace, and runs every check of the case.

A student must not be able to choose an error. So a check that breaks is run again on the reference answer and on an
untouched workspace: if it works there, the student broke it and the trial has failed; otherwise the trial is errored.
A judge that gives no grade is always an error: verdicts count it against whatever is claimed.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from upskill.agents import AGENTS, Agent, ExternalAgent, Student, Task
from upskill.agents.activation import HiddenSkill, activated, find_leak
from upskill.checks import Evidence, Finding
from upskill.checks.workspace import read_left
from upskill.errors import (
    CeilingReached,
    CheckError,
    JudgeError,
    MissingTool,
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
from upskill.suites import Case
from upskill.traces import NO_USAGE, Step, Trace, Usage
from upskill.verdicts.outcome import Cause

if TYPE_CHECKING:
    from upskill.sandboxes import Sandbox

logger = logging.getLogger(__name__)
REASONS: dict[Cause, str] = {
    "length": "the answer was cut off after {limit:,} tokens{checks}; give it more room with --set max_output_tokens=N",
    "repetition": "the answer was cut off because it kept repeating itself",
    "context": "it did not fit into the model's context",
    "refusal": "the model or its provider refused",
    "empty": "the answer is empty",
}
BOUNDS = (
    "turns",
    "tokens",
    "seconds",
    "activated",
)  # what ends an agent's work, which is then judged as it is


_NO_SANDBOX = nullcontext()
# Folders that are empty without what is removed go too, and the home folder is as new in every arm.
_TIDY_UP = """
temporary=$2; cd "$1" || exit; shift 2
[ -z "$temporary" ] || find "${TMPDIR:-/tmp}" -mindepth 1 -delete 2>/dev/null
for pattern; do
  find . -path "$pattern" -prune 2>/dev/null | while IFS= read -r path; do
    chmod -R u+rwX "$path" "${path%/*}" 2>/dev/null; rm -rf -- "$path"; rmdir -p -- "${path%/*}" 2>/dev/null
  done
done
find . -depth -type d -name "*skills" -empty -exec rmdir -p -- {} ";" 2>/dev/null
touch .
"""


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
    with track_requests() as requests:
        try:
            passed = await _run_and_check(plan, trial, models, attempt)
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
    async with _open_sandbox(plan, case, agent, task) as sandbox:
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
        with wrap_trial_errors(SandboxError, "inspecting the workspace"):
            if sandbox is not None:
                await sandbox.kill_processes()
            if agent.needs_sandbox:
                attempt.activated = activated(trace, task.skill.name, own) if task.skill else None
                home = sandbox.home if sandbox else "/"
                hidden = HiddenSkill(plan.skill, home, case.text) if task.skill is None else None
                attempt.leak = await find_leak(trace, own, lambda: plan.canaries, hidden, sandbox)
                await _tidy_up(sandbox, plan, task)
        ask = attempt.judge.ask if attempt.judge else None
        offered = task.skill.name if task.skill and agent.needs_sandbox else ""
        body = task.skill.body if task.skill else ""
        evidence = case.evidence_of(
            trace, ask=ask, sandbox=sandbox, skill=offered, canary=own, skill_body=body
        )
        if attempt.cause:  # no check can change that, and nobody is paid to grade it
            checks = await _check_so_far(case, evidence) if attempt.cause == "length" else ""
            reason = REASONS[attempt.cause].format(limit=task.max_output_tokens, checks=checks)
            if attempt.cause == "length" and isinstance(agent, ExternalAgent):
                reason = f"the answer was cut off at the agent's own limit{checks}"
            details = f": {trace.stop_details}" if trace.stop_details else ""
            attempt.findings.append(
                CheckFinding("complete", passed=False, reason=f"{reason}{details}")
            )
            return False
        if agent.needs_sandbox and case.output_file:
            with wrap_trial_errors(SandboxError, f"reading {case.output_file}"):
                # Where an agent only said what it should have written, that is looked at.
                left = await read_left(evidence, case.output_file)
                evidence = evidence if isinstance(left, Finding) else replace(evidence, output=left)
        untouched = partial(_open_untouched, plan, case, agent, task)
        grading = Grading(case, untouched, attempt.findings)
        if attempt.judge:
            with track_requests() as attempt.judged_with:
                await grading.grade(evidence)
        else:
            await grading.grade(evidence)
    passed = all(result.passed for result in attempt.findings if result.decides)
    attempt.cause = grading.cause
    return passed


async def _check_so_far(case: Case, evidence: Evidence) -> str:
    """What the checks say about an answer that was cut off: did it lack knowledge or room?"""
    tried = [
        named.check for named in case.checks if named.check.decides and not named.check.needs_judge
    ]
    passed = 0
    for check in tried:
        with suppress(Exception):  # half an answer may break anything
            finding = await check.run(evidence)
            passed += finding.passed or not finding.decides
    return f" (checks: {passed} of {len(tried)} pass so far)" if tried else ""


def _cause_of(trace: Trace, task: Task) -> Cause | Literal[""]:
    """Why there is no answer that could pass. None is needed where only the opening of a skill is watched."""
    if task.bounds.until_activated:
        return ""
    if trace.stop in ("length", "repetition", "context", "refusal"):
        return trace.stop
    return "" if trace.answer.strip() or trace.calls or trace.stop in BOUNDS else "empty"


def _open_sandbox(
    plan: Plan, case: Case, agent: Agent, task: Task
) -> AbstractAsyncContextManager[Sandbox] | nullcontext[None]:
    """The sandbox of one trial, open as long as its checks look; None where neither agent nor checks need one."""
    needed = agent.needs_sandbox or case.needs_sandbox
    return _sandbox_of(plan, case, agent, task) if needed else _NO_SANDBOX


@asynccontextmanager
async def _sandbox_of(plan: Plan, case: Case, agent: Agent, task: Task) -> AsyncGenerator[Sandbox]:
    from upskill.sandboxes import SANDBOXES, SandboxBackend, choose_sandbox  # noqa: PLC0415 - only where something acts
    from upskill.sandboxes.gpu import gpu_turn  # noqa: PLC0415

    # `evaluate` has tried it out; a trial that is run by itself has that still to do.
    kind: SandboxBackend = (
        SANDBOXES.load(plan.sandbox)() if plan.sandbox else (await choose_sandbox()).backend
    )
    async with gpu_turn() if case.gpu else nullcontext():
        with wrap_trial_errors(SandboxError, f"opening a sandbox ({kind.name})"):
            sandbox = await kind.open(replace(agent.setup(task), gpu=case.gpu))
        async with sandbox:
            yield sandbox


@asynccontextmanager
async def _open_untouched(
    plan: Plan, case: Case, agent: Agent, task: Task
) -> AsyncGenerator[Sandbox | None]:
    async with _open_sandbox(plan, case, agent, task) as sandbox:
        await _tidy_up(sandbox, plan, task)
        yield sandbox


async def _tidy_up(sandbox: Sandbox | None, plan: Plan, task: Task) -> None:
    """Remove skills, what the agent keeps for itself and temporary files: checks find the same home in every arm.

    A check may use a name in /tmp that only it should know. What the prompt asks for stays.
    """
    if sandbox is not None:
        temporary = "" if "/tmp" in task.prompt else "remove"  # noqa: S108 - inside
        names = {plan.skill.name, *(skill.name for skill in task.offered_skills)}
        own = [path for path in sandbox.own_home if path.partition("/")[0] not in task.prompt]
        patterns = [*(f"*skills/{name}" for name in sorted(names)), *(f"./{path}" for path in own)]
        await sandbox.run(["/bin/sh", "-c", _TIDY_UP, "sh", sandbox.home, temporary, *patterns])


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


@dataclass(slots=True, eq=False, repr=False)
class Grading:
    """The checks of one case. `open_untouched` opens a sandbox as the student found its own."""

    case: Case
    open_untouched: Callable[[], AbstractAsyncContextManager[Sandbox | None]]
    findings: list[CheckFinding]
    broken: bool = field(default=False, init=False)  # a check broke on what the student left
    verbose: bool = field(default=False, init=False)  # the answer is longer than wanted
    disputed: set[bool] = field(default_factory=set[bool], init=False)  # whether each failure is

    async def grade(self, evidence: Evidence) -> None:
        """TrialError if a check breaks and the student is not to blame."""
        for number, named in enumerate(self.case.checks):
            finding = await self._look(number, evidence)
            read = named.check.reads_answer and evidence.output is not None
            reason = (
                f"{self.case.output_file} as the answer: {finding.reason}"
                if read
                else finding.reason
            )
            decides = named.check.decides and finding.decides
            self.findings.append(CheckFinding(named.name, finding.passed, reason, decides))
            self.verbose = self.verbose or not finding.decides
            if decides and not finding.passed:
                self.disputed.add(finding.disputed)

    @property
    def cause(self) -> Cause | Literal[""]:
        if self.broken:
            return "unreadable"
        if self.disputed:
            return "disputed" if all(self.disputed) else ""
        return "verbose" if self.verbose else ""

    async def _look(self, number: int, evidence: Evidence) -> Finding:
        named = self.case.checks[number]
        doing = f"checking {named.name} of {self.case.id}"
        try:
            with wrap_trial_errors(CheckError, doing):
                return await named.check.run(evidence)
        except MissingTool as error:  # whatever the case: reports count such errors together
            error.message = f"checking {named.name}{error.message.removeprefix(doing)}"
            raise
        except TrialError as error:
            if _came_from_outside(error) or not await self._runs_without_student(number, evidence):
                raise
            logger.info("%s%s", error.message, f"\n{error.traceback}" if error.traceback else "")
            self.broken = True
            return Finding(
                False,
                f"the student's files broke the check, which works without them: {error.message}",
            )

    async def _runs_without_student(self, number: int, evidence: Evidence) -> bool:
        *before, last = self.case.checks[: number + 1]
        for answer in dict.fromkeys([self.case.reference, ""]):
            async with self.open_untouched() as sandbox:
                trace = Trace((Step("assistant", answer),))
                untouched = replace(evidence, trace=trace, sandbox=sandbox, output=None)
                with suppress(Exception):
                    for named in before:
                        if (
                            named.check.needs_sandbox and not named.check.needs_judge
                        ):  # it may leave files for the last
                            with suppress(Exception):
                                await named.check.run(untouched)
                    await last.check.run(untouched)
                    return True
        return False


def _came_from_outside(error: TrialError) -> bool:
    """Whether it is no failure of the student's."""
    return isinstance(error, MissingTool) or _is_by_judge(error)


def _is_by_judge(error: TrialError) -> bool:
    """Of an error in a check. A judge may break down on the answers of one arm only."""
    return isinstance(error, JudgeError | ModelError)
