"""Evaluate: carry out a Plan, keep every Result as it arrives, and weigh what came out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from upskill.agents import AGENTS, Agent, Bounds, ExternalAgent, Student, Task
from upskill.agents.activation import activated
from upskill.agents.isolation import canary_of, find_leak
from upskill.checks import Evidence, Finding
from upskill.checks.workspace import read_left
from upskill.errors import (
    CeilingReached,
    CheckError,
    ModelError,
    SandboxError,
    TrialError,
    UsageError,
    wrap_trial_errors,
)
from upskill.models import Address, Model, Models, Reply, Request
from upskill.models.addresses import resolve
from upskill.models.cache import track_keys
from upskill.models.embedded.local_models import caveat
from upskill.runs.evaluation import Evaluation, verdict_so_far
from upskill.runs.executors import Executor
from upskill.runs.executors.local import Local
from upskill.runs.plan import BOTH_ARMS, CONTROLS, Judgement, Plan, Result, Trial, task_of
from upskill.runs.stores.rows import Run
from upskill.runs.stores.sqlite import Store
from upskill.skills import Skill
from upskill.suites import Case, Suite
from upskill.suites.quality import near_duplicates, only_by_acting, probe_suite, summarise, unwritten
from upskill.traces import NO_USAGE, Trace, Usage
from upskill.verdicts.statistics import Scope
from upskill.version import __version__

if TYPE_CHECKING:
    from upskill.sandboxes import Sandbox, SandboxChoice

DEFAULT_OUTPUT_TOKENS = 4096
LOWEST_SEED, HIGHEST_SEED = -(2**63), 2**63 - 1  # what servers take and the store can keep


def make_plan(
    skill: Skill,
    suite: Suite | None = None,
    models: Iterable[str] = ("local",),
    *,
    base_url: str = "",
    runs: int = 1,
    seed: int = 0,
    temperature: float | None = None,
    max_output_tokens: int | None = None,
    baseline: bool = True,
    agent: str = "chat",
    judge: str = "",
    controls: bool = False,
    reference_skill: Skill | None = None,
    distractors: Sequence[Skill] = (),
    bounds: Bounds | None = None,
    sandbox: str = "",
    keys: Mapping[str, str] | None = None,
) -> Plan:
    """A plan from what a person says; UsageError for anything that could not be carried out.

    Without a temperature, one run is greedy (0), and several runs or controls are sampled (0.7): a greedy answer
    repeated would only be the same answer again. A suite may state how long answers can be; what is said here goes
    first.
    """
    suite = suite or Suite.of(skill)
    if suite is None:
        raise UsageError(
            f"{skill.folder or skill.name}: has no test cases",
            "Give a suite with --tests FILE, put one into the skill's folder as evals/suite.yaml, or have one written"
            " with --test-gen-model MODEL.",
        )
    addresses = tuple(dict.fromkeys(resolve(name, base_url, keys) for name in models))
    if not addresses:
        raise UsageError("no model was given", "For example -m local.")
    if not baseline and (controls or reference_skill):
        raise UsageError(
            f"without a baseline, {'controls have' if controls else 'an older skill has'} nothing to stand beside",
            "Leave --no-baseline out.",
        )
    if runs < 1:
        raise UsageError("runs must be at least 1")
    if not LOWEST_SEED <= seed <= HIGHEST_SEED - runs:
        raise UsageError(f"{seed} cannot be a seed", "A seed is a whole number of at most 63 bits.")
    acting: type[Agent] = AGENTS.load(agent)
    if not acting.acts and distractors:
        raise UsageError(
            f"the agent {agent!r} has no catalog that other skills could stand in",
            "Name one that acts, for example --agent tools.",
        )
    if isinstance(particular := acting(), ExternalAgent):
        for address in addresses:
            particular.check(address, keys or {})
    _check_names(skill, distractors)
    judged = [case.id for case in suite.cases if any(named.check.needs_judge for named in case.checks)]
    if judged and not judge:
        cases = f"{len(judged)} cases ({judged[0]!r} is the first) need" if judged[1:] else f"case {judged[0]!r} needs"
        raise UsageError(
            f"{suite.source}: {cases} a model to grade by",
            "Name one with --judge-model, for example --judge-model sonnet.",
        )
    limit = max_output_tokens or suite.max_output_tokens
    return Plan(
        skill,
        suite,
        addresses,
        arms=(*(BOTH_ARMS if baseline else ("skill",)), *(CONTROLS if controls else ())),
        runs=runs,
        seed=seed,
        agent=agent,
        temperature=temperature if temperature is not None else (0.0 if runs == 1 and not controls else 0.7),
        max_output_tokens=limit or DEFAULT_OUTPUT_TOKENS,
        limit_is_stated=limit is not None,
        judge=resolve(judge, keys=keys) if judge and judged else None,
        reference_skill=reference_skill,
        distractors=tuple(distractors),
        bounds=bounds or Bounds(),
        sandbox=sandbox,
    )


def _check_names(skill: Skill, distractors: Sequence[Skill]) -> None:
    names = [skill.name, *(other.name for other in distractors)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            f"{twice[0]!r} is the name of two skills on offer", "A skill is opened by its name; leave one of them out."
        )


async def evaluate(
    plan: Plan,
    *,
    store: Store | None = None,
    models: Models | None = None,
    executor: Executor | None = None,
    fresh: bool = False,
    until_decided: Scope | None = None,
    margin: float = 0.05,
    making_cost: float | None = None,
    strict_suite: bool = False,
    begin: Callable[[Run, list[Trial]], None] | None = None,
    watch: Callable[[Result], None] | None = None,
) -> Evaluation:
    """Run what is missing of a plan.

    Results that the store has of the same plan are used again, errored ones are tried again; `fresh` starts over.
    With `until_decided` the seeds of the plan are rounds, and a model gets no further round once its verdict stands,
    by a test that may be looked at after every one of them.
    Every model is opened before the first call, so a missing key or missing weights cost nothing. `begin` is told
    the run and what is missing of it before the first call, `watch` every result after it was stored.
    """
    if store is None:
        with Store(None) as own:
            return await evaluate(
                plan,
                store=own,
                models=models,
                executor=executor,
                fresh=fresh,
                until_decided=until_decided,
                margin=margin,
                making_cost=making_cost,
                strict_suite=strict_suite,
                begin=begin,
                watch=watch,
            )
    models = models if models is not None else Models()
    executor = executor or Local()
    _check_replay(plan, models)
    chosen = await _choose_sandbox(plan)
    plan = replace(plan, sandbox=chosen.name) if chosen else plan
    stopped: dict[str, str] = {}
    halted = ""
    warnings = [
        *plan.skill.warnings,
        *plan.suite.warnings,
        *await check_suite_quality(plan.suite, plan.skill, strict=strict_suite, sandbox=plan.sandbox),
        *(f"{address.name}: {said}" for address in plan.models if (said := _caveat(address))),
        *([chosen.warning] if chosen and chosen.warning else []),
        *([] if plan.acts else [said for said in (only_by_acting(plan.suite), unwritten(plan.suite)) if said]),
    ]
    async with models:
        for address in plan.models:
            await models.get(address)
        if plan.judge:
            await models.get(plan.judge, "judge")
        run, found = store.start_run(plan, __version__, fresh=fresh)
        run = store.note(run, scope=until_decided, margin=margin, sandbox=chosen.record() if chosen else None)
        with store.claim(run):
            done = store.done(run)
            missing = [trial for trial in plan.trials() if plan.key(trial) not in done]
            if begin:
                with _forget_on_refusal(store, None if found else run):
                    begin(run, missing)

            async def run_here(plan: Plan, trial: Trial) -> Result | None:
                nonlocal halted
                try:
                    return await run_trial(plan, trial, models)
                except CeilingReached as reached:
                    halted = reached.message
                    return None

            async def keep(result: Result) -> None:
                await store.add(run, result)

            async def carry(trials: list[Trial]) -> None:
                # Closed here, not whenever it is collected: no trial may go on after its model was closed.
                async with aclosing(executor.execute(plan, trials, run_here, keep)) as results:
                    async for result in results:
                        if result.fatal:
                            stopped.setdefault(result.trial.model, result.error)
                        if watch:
                            watch(result)

            def settled(model: str) -> bool:
                outcomes = store.outcomes(run)
                rows = [outcome for outcome in outcomes if outcome.model == model]
                leaked = any(outcome.leaked for outcome in outcomes)
                verdict = verdict_so_far(plan, rows, until_decided, margin, leaked=leaked)
                # No further round would change that.
                hopeless = verdict.reason in ("isolation", "errors", "no baseline")
                return bool(halted) or model in stopped or hopeless or verdict.decision != "undecided"

            if until_decided is None:
                await carry(missing)
            else:
                await _carry_in_rounds(plan, missing, carry, settled)
    return Evaluation(
        plan,
        store.run(run.id),
        store.outcomes(run),
        store.errors(run),
        store.spent(run),
        stopped=stopped,
        margin=margin,
        making_cost=making_cost,
        scope=until_decided,
        halted=halted,
        warnings=list(dict.fromkeys(warnings)),
        invalid=store.leaks(run),
    )


def _check_replay(plan: Plan, models: Models) -> None:
    if models.cache == "replay" and isinstance(AGENTS.load(plan.agent)(), ExternalAgent):
        raise UsageError(
            f"nothing that {plan.agent} asks its model is kept, so it cannot be replayed", "Leave --replay out."
        )


async def _choose_sandbox(plan: Plan) -> SandboxChoice | None:
    """The sandbox for the trials of a plan, tried out before the first call; None when no trial needs one."""
    if not plan.acts and not any(named.check.needs_sandbox for case in plan.suite.cases for named in case.checks):
        return None
    from upskill.sandboxes import choose  # noqa: PLC0415 - only where something acts

    return await choose(plan.sandbox or None)


@contextmanager
def _forget_on_refusal(store: Store, new_run: Run | None) -> Generator[None]:
    """A run that is refused before its first call is not kept."""
    try:
        yield
    except BaseException:
        if new_run:
            store.delete(new_run)
        raise


def _caveat(address: Address) -> str:
    return caveat(address.model) if address.provider == "local" else ""


async def _carry_in_rounds(
    plan: Plan,
    missing: list[Trial],
    carry: Callable[[list[Trial]], Awaitable[None]],
    settled: Callable[[str], bool],
) -> None:
    """One seed after the other, over all cases and arms, until each model is settled on its own."""
    going_on = list(plan.addresses)
    for seed in plan.seeds:
        due = [trial for trial in missing if trial.seed == seed and trial.model in going_on]
        if due:
            await carry(due)
        going_on = [model for model in going_on if not settled(model)]
        if not going_on:
            return


async def check_suite_quality(suite: Suite, skill: Skill, *, strict: bool = False, sandbox: str = "") -> list[str]:
    """Try a suite with answers that know nothing: UsageError when an empty one passes, else what to warn of."""
    leaks = await probe_suite(suite, skill, sandbox)
    fatal = [leak for leak in leaks if leak.probe == "empty" or (strict and leak.probe != "untried")]
    if fatal:
        more = f" (and {len(fatal) - 1} more like this)" if len(fatal) > 1 else ""
        raise UsageError(f"{suite.source}: {fatal[0]}{more}", "Nothing was run: such a case proves nothing.")
    return [*summarise(leaks), *_twins(suite)]


def _twins(suite: Suite) -> list[str]:
    pairs = near_duplicates(suite.cases)
    if not pairs:
        return []
    named = ", ".join(f"{one!r} and {two!r}" for one, two in pairs[:3]) + (", …" if len(pairs) > 3 else "")
    return [f"{named} ask nearly the same and count as two; keep one of them"]


async def run_trial(plan: Plan, trial: Trial, models: Models) -> Result:
    """Carry out one trial. Whatever goes wrong belongs to this trial: it is errored, never failed."""
    started = time.perf_counter()
    attempt = _Attempt()
    error: TrialError | None = None
    with track_keys() as asked:
        try:
            passed = await _attempt(plan, trial, models, attempt)
        except TrialError as raised:
            passed, error = None, raised
            await models.forget(asked)  # or the next attempt would get the same replies
    trace, judge = attempt.trace, attempt.judge
    return Result(
        trial,
        plan.key(trial),
        passed,
        str(error) if error else "",
        trace,
        tuple(attempt.judgements),
        trace.usage if trace else _paid(error),
        judge.usage if judge else NO_USAGE,
        round(time.perf_counter() - started, 4),
        isinstance(error, ModelError) and error.fatal,
        attempt.activated,
        attempt.leak,
    )


def _paid(error: TrialError | None) -> Usage:
    """What a trial without an answer has cost all the same."""
    return (error.usage if error else None) or NO_USAGE


@dataclass
class _Attempt:
    """How far a trial has come."""

    trace: Trace | None = None
    judge: _Judge | None = None
    judgements: list[Judgement] = field(default_factory=list[Judgement])
    activated: bool | None = None
    leak: str = ""


async def _attempt(plan: Plan, trial: Trial, models: Models, attempt: _Attempt) -> bool:
    case = plan.suite.by_id[trial.case]
    agent: Agent = AGENTS.load(plan.agent)()
    attempt.judge = _Judge(await models.get(plan.judge, "judge")) if plan.judge else None
    task = task_of(plan, trial)
    async with _ground(plan, case, agent, task) as sandbox:
        with wrap_trial_errors(ModelError, f"asking {trial.model}"):
            address = plan.addresses[trial.model]
            around = models.context
            student = Student(address, await models.get(address), sandbox, around.keys, models.ledger, around.prices)
            attempt.trace = trace = await agent.run(task, student)
            if trace.stop == "length" and not plan.limit_is_stated:
                raise ModelError(
                    f"the answer was cut off after {plan.max_output_tokens} tokens (stop reason: length)",
                    "Give it more room with --max-output-tokens.",
                )
        own = canary_of(plan.key(trial)) if task.skill and agent.acts else ""
        with wrap_trial_errors(SandboxError, "looking at what was left behind"):
            if sandbox is not None:
                await sandbox.clear()
            if agent.acts:
                attempt.activated = activated(trace, task.skill.name, own) if task.skill else None
                hidden = plan.skill.name if task.skill is None else ""
                attempt.leak = await find_leak(trace, own, hidden, sandbox)
        ask = attempt.judge.ask if attempt.judge else None
        offered = task.skill.name if task.skill and agent.acts else ""
        evidence = Evidence(trace, case.prompt, ask, sandbox, offered, own, case.reference)
        if agent.acts and case.output_file:
            with wrap_trial_errors(SandboxError, f"reading {case.output_file}"):
                evidence = await _with_output(evidence, case.output_file)
        for named in case.checks:
            with wrap_trial_errors(CheckError, f"checking {named.name} of {case.id}"):
                finding = await named.check.run(evidence)
            read = named.check.reads_answer and evidence.output is not None
            reason = f"{case.output_file} as the answer: {finding.reason}" if read else finding.reason
            attempt.judgements.append(Judgement(named.name, finding.passed, reason))
    return all(result.passed for result in attempt.judgements)


async def _with_output(evidence: Evidence, path: str) -> Evidence:
    """The file in place of the answer; where an agent only said what it should have written, that is looked at."""
    left = await read_left(evidence, path)
    return evidence if isinstance(left, Finding) else replace(evidence, output=left)


@asynccontextmanager
async def _ground(plan: Plan, case: Case, agent: Agent, task: Task) -> AsyncGenerator[Sandbox | None]:
    """The sandbox of one trial, open as long as its checks look; None where neither agent nor checks need one."""
    if not agent.acts and not any(named.check.needs_sandbox for named in case.checks):
        yield None
        return
    from upskill.sandboxes import SANDBOXES, SandboxBackend, choose  # noqa: PLC0415 - only where something acts

    # `evaluate` has tried it out; a trial that is run by itself has that still to do.
    kind: SandboxBackend = SANDBOXES.load(plan.sandbox)() if plan.sandbox else (await choose()).kind
    with wrap_trial_errors(SandboxError, f"opening a sandbox ({kind.name})"):
        sandbox = await kind.open(agent.setup(task))
    async with sandbox:
        yield sandbox


class _Judge:
    """The model that grades, counting what it uses."""

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


def evaluate_now(plan: Plan, *, store: Store | None = None) -> Evaluation:
    """`evaluate` for code that is not asynchronous."""
    return asyncio.run(evaluate(plan, store=store))


class Preferences(Protocol):
    """Which student to take where none is named: what `Config` has."""

    @property
    def eval_model(self) -> str | None: ...


async def evaluate_skill(
    skill: Skill,
    tests: Suite | Sequence[Case] | None = None,
    model: str | None = None,
    config: Preferences | None = None,
    *,
    runs: int = 1,
    store: Store | None = None,
    models: Models | None = None,
) -> Evaluation:
    """As upstream's users call it: one student, with `skill_lift`, `token_savings`, `is_beneficial` and `failures`."""
    suite = Suite(tuple(tests), "given") if tests is not None and not isinstance(tests, Suite) else tests
    plan = make_plan(skill, suite, (model or (config.eval_model if config else None) or "local",), runs=runs)
    with nullcontext(store) if store else Store(None) as kept:
        evaluation = await evaluate(plan, store=kept, models=models)
        for result in kept.results(evaluation.run):
            case = plan.suite.by_id[result.trial.case]
            if result.trial.arm == "skill" and result.passed is False and not case.held_out:
                answer = result.trace.answer if result.trace else ""
                evaluation.failures.append(f"Asked: {case.prompt} Answered: {answer}")
    return evaluation


def get_failure_descriptions(evaluation: Evaluation) -> list[str]:
    """What a student got wrong on train cases: what was asked and what it said, never what was looked for."""
    return evaluation.failures
