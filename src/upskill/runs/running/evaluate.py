"""Evaluate: run the missing trials of a plan, store every result as it arrives, and compute the verdicts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, aclosing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from upskill.agents import AGENTS, ExternalAgent
from upskill.errors import CeilingReached, RunFailed, UsageError
from upskill.models import Address
from upskill.models.ledger import Ceilings, Ledger
from upskill.models.pool import Models
from upskill.runs.planning.plan import Arm, Plan, Result, Trial
from upskill.runs.planning.stored_plan import Analysis, StoredSkill, StoredSuite, other_suite
from upskill.runs.running.events import Events
from upskill.runs.running.executors import Executor, Job, Session
from upskill.runs.running.executors.local import Local
from upskill.runs.running.trial import run_trial
from upskill.runs.stores import Run, Store, open_store
from upskill.runs.stores.rows import timestamp
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.suites.near_duplicates import describe_near_duplicates
from upskill.suites.quality import UNTRIED, only_by_acting, probe_suite, summarize_weak, unwritten
from upskill.traces import NO_USAGE, Usage
from upskill.verdicts.outcome import Outcome, Scope
from upskill.version import __version__

if TYPE_CHECKING:
    from upskill.runs.results.evaluation import Evaluation
    from upskill.sandboxes import SandboxChoice
    from upskill.verdicts.requirements import Requirement
    from upskill.verdicts.verdict import Verdict

logger = logging.getLogger(__name__)
MAX_NOTICED = 20  # warnings of traces that are shown
MAX_REUSED = 20_000  # trials of a plan that are looked up in earlier runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a plan is run and judged; none of it is part of a trial's key."""

    executor: Executor | None = None  # None: this process
    fresh: bool = False  # start over instead of using the stored results of the same plan
    resume: bool = False  # only go on: UsageError unless the store has a run of the same plan
    # The seeds are rounds, by a test that allows looking. A model gets no further round once its verdict stands; where
    # something is required of it, once that holds, or can no longer hold.
    until_decided: Scope | None = None
    rounds: int | None = (
        None  # of these, run this many whatever is decided; somebody else decides who gets further ones
    )
    margin: float = 0.05  # a lift within it counts as none
    making_cost: float | None = None  # dollars that the skill cost to make
    making_source: str = ""  # who says so
    target: float | None = None  # the pass rate that would be good enough
    requirements: Sequence[Requirement] = ()  # of every verdict
    stop_when: Sequence[
        Requirement
    ] = ()  # rounds end once these hold or cannot; nothing is reported of them
    keep_look: bool = True  # the verdict is reported: store that somebody looked
    in_experiment: bool = False  # a part of one: lists of runs leave it out
    partial: bool = (
        False  # return an Evaluation even of a run that has failed, in place of raising RunFailed
    )
    strict_suite: bool = False  # a case that knowing nothing passes is an error, not a warning


async def evaluate(
    plan: Plan,
    *,
    store: Store | None = None,
    models: Models | None = None,
    options: RunOptions | None = None,
    events: Events | None = None,
) -> Evaluation:
    """Run the missing trials of a plan. Stored results are reused, errored trials run again.

    Whatever is missing (a key, weights, a check's tool) is reported before the first call, so it costs nothing.
    RunFailed where `upskill eval` would end with exit code 3, unless the options say `partial`.
    """
    options = options or RunOptions()
    with nullcontext(store) if store else open_store(None) as run_store:
        evaluation = await _Run(
            plan, run_store, models or Models(), options, events or Events()
        ).evaluate()
    if not options.partial and evaluation.has_failed:
        raise RunFailed(f"{evaluation.run.id}: {evaluation.why_failed}", evaluation)
    return evaluation


class _Run:
    def __init__(
        self, plan: Plan, store: Store, models: Models, options: RunOptions, events: Events
    ) -> None:
        self.plan = plan
        self.store = store
        self.models = models
        self.options = options
        self.executor = options.executor or Local()
        self.events = events
        self.stopped: dict[str, str] = {}  # models that were given up, and why
        self.halted = ""  # the ceiling that was reached
        self.errored: dict[
            Trial, Result
        ] = {}  # the results of an earlier call that are tried again
        self.noticed: dict[str, None] = {}  # what traces warn of, each once
        self.outcomes: dict[
            Trial, Outcome
        ] = {}  # with rounds, after each of which they are weighed

    async def evaluate(self) -> Evaluation:
        options, store = self.options, self.store
        self._check_replay()
        self.executor.check(self.plan, self.models)
        sandbox = await _choose_sandbox(self.plan)
        self.plan = replace(self.plan, sandbox=sandbox.name) if sandbox else self.plan
        known = store.find_run(self.plan)
        if options.resume and known is None:
            raise UsageError("this plan has no stored run to resume", "Drop --resume to start one.")
        warnings = await self._warnings(sandbox)
        async with self.models:
            reused: dict[
                str, int
            ] = {}  # by key: runs with results that a new one can use, as replies are used again
            if (
                not known
                and not options.fresh
                and self.models.cache == "use"
                and len(self.plan) <= MAX_REUSED
            ):
                reused = store.find_results(
                    self.plan.skill.name, map(self.plan.key, self.plan.trials())
                )
            is_stored = (known and known.finished and not options.fresh) or len(reused) == len(
                self.plan
            )
            if not is_stored:  # else nobody is asked, and weights take seconds to load
                await self._open_models()
            run, resumed = store.start_run(self.plan, __version__, fresh=options.fresh)
            with store.claim(run):
                run = store.annotate(
                    run,
                    suite=self._named_suite(run),
                    skill=replace(run.plan.skill, meta=StoredSkill.of(self.plan.skill).meta),
                    scope=options.until_decided,
                    margin=options.margin,
                    drawn_anew=self._draws_anew
                    if not resumed
                    else run.plan.drawn_anew and self._stays_anew(run),
                    replay_source=self.plan.replay_source,  # a file of the same replies may have been packed again
                    sandbox=sandbox.record() if sandbox else None,
                    analysis=self._analysis(warnings),
                )
                if reused and options.until_decided is None:
                    store.copy_results(run, reused)
                run = self._note_start(run)
                self.errored = {result.trial: result for result in store.errored(run)}
                scored = set(store.scored(run))
                missing = [trial for trial in self.plan.trials() if trial not in scored]
                logger.info(
                    "run %s: %d of %d trials left to run", run.id, len(missing), len(self.plan)
                )
                with ExitStack() as on_refusal:
                    if not resumed:  # a run that is refused before its first call is not kept
                        on_refusal.callback(store.delete_run, run)
                    if missing:
                        store.database.check_damage()
                        self.executor.open(self.plan, store.address)
                    self.events.started(self.plan, replace(run, resumed=resumed), missing)
                    on_refusal.pop_all()
                if options.until_decided is None:
                    await self._execute(run, missing)
                else:
                    await self._execute_in_rounds(run, missing, reused)
                analysis = self._analysis(warnings)
                run = store.annotate(run, analysis=analysis, spent_before=None, began=None)
        return self._judge(run)

    def _note_start(self, run: Run) -> Run:
        before = restore_spend(self.store, run, self.models.ledger)
        is_complete = run.passed + run.failed == run.trials
        began = None if is_complete else (timestamp(), self.store.count_timed(run))
        return self.store.annotate(run, spent_before=before, began=began)

    @property
    def _draws_anew(self) -> bool:
        return self.models.cache in ("off", "refresh") or (
            self.options.fresh and self.models.cache != "replay"
        )

    def _named_suite(self, run: Run) -> StoredSuite:
        """The stored suite, by the name of the skill's own if it has become that one: the cases are the same."""
        is_own = not other_suite(self.plan.suite.source, run.skill)
        return replace(run.plan.suite, source=self.plan.suite.source) if is_own else run.plan.suite

    def _stays_anew(self, run: Run) -> bool:
        """Trials of it that were not run yet would be taken from stored replies."""
        return self._draws_anew or run.passed + run.failed + run.errored == run.trials

    def _check_replay(self) -> None:
        if self.models.cache == "replay" and isinstance(
            AGENTS.load(self.plan.agent)(), ExternalAgent
        ):
            raise UsageError(
                f"{self.plan.agent}'s requests to its model are not stored, so it cannot be replayed",
                "Drop --replay.",
            )
        cassette = self.models.cassette if self.models.replies is not None else None
        if self.plan.replay != (
            cassette.digest if cassette else ""
        ):  # it would not say where its answers come from
            raise UsageError(
                "the plan and its models use different replies files",
                "Make the plan with `plan_from(plan, cassette)`, and pass that cassette and a store to `Models`.",
            )

    def _judge(self, run: Run) -> Evaluation:
        from upskill.runs.results.evaluation import evaluation_of  # noqa: PLC0415 - numpy, only when trials are done

        return evaluation_of(self.store, run, self.plan, reported=self.options.keep_look)

    def _analysis(self, warnings: list[str]) -> Analysis:
        options = self.options
        return Analysis(
            making_cost=options.making_cost,
            making_source=options.making_source,
            target=options.target,
            requirements=tuple(requirement.text for requirement in options.requirements),
            halted=self.halted,
            stopped=dict(self.stopped),
            warnings=(*warnings, *islice(self.noticed, MAX_NOTICED)),
            reported=options.keep_look,
            in_experiment=options.in_experiment,
        )

    async def _warnings(self, sandbox: SandboxChoice | None) -> list[str]:
        plan = self.plan
        quality = await check_suite_quality(
            plan.suite, plan.skill, strict=self.options.strict_suite, sandbox=plan.sandbox
        )
        not_acting = () if plan.acts else (only_by_acting(plan.suite), unwritten(plan.suite))
        return [
            *plan.skill.warnings,
            *plan.suite.warnings,
            *quality,
            *describe_near_duplicates(plan.twins),
            *(
                f"{address.name}: {caveat}"
                for address in plan.models
                if (caveat := _caveat(address))
            ),
            *([sandbox.warning] if sandbox and sandbox.warning else []),
            *(self.models.cassette.warnings if self.models.cassette else ()),
            *filter(None, not_acting),
        ]

    async def _open_models(self) -> None:
        for address in self.plan.models:
            await self.models.get(address)
        if self.plan.judge:
            await self.models.get(self.plan.judge, "judge")

    async def _run_here(self, run: Run, trial: Trial) -> Result | None:
        try:
            return await run_trial(
                self.plan, trial, self.models, self.errored.get(trial), run.number
            )
        except CeilingReached as reached:
            self.halted = reached.message
            return None

    async def _execute(self, run: Run, trials: Sequence[Trial]) -> None:
        if not trials:
            return
        previous = {trial: self.errored[trial] for trial in trials if trial in self.errored}
        job = Job(self.plan, trials, self.models.context.portable(), previous)
        session = Session(
            run=run,
            store=self.store.address,
            models=self.models,
            run_trial=partial(self._run_here, run),
            persist=lambda result: self.store.add_result(
                run, result, self.plan.draw_key(result.trial)
            ),
            scored=partial(self.store.scored_under, run),
        )
        # Closed here, not whenever it is collected: no trial may run on after its model was closed.
        async with aclosing(self.executor.execute(job, session)) as results:
            try:
                async for result in results:
                    self._note(result)
            except CeilingReached as reached:
                self.halted = reached.message

    def _note(self, result: Result) -> None:
        if result.fatal:
            self.stopped.setdefault(result.trial.model, result.error)
        if result.trace and result.trace.warnings:
            self.noticed |= dict.fromkeys(result.trace.warnings)
        if self.options.until_decided is not None:
            self.outcomes[result.trial] = result.outcome
        logger.debug(
            "%s: %s", result.trial, result.error or ("passed" if result.passed else "failed")
        )
        self.events.result(result)

    async def _execute_in_rounds(
        self, run: Run, missing: Sequence[Trial], reused: Mapping[str, int]
    ) -> None:
        """One seed after the other, until the verdict of each model stands. Results of other runs come by rounds, too:
        no round may be there in part."""
        self.outcomes = self._stored_outcomes(run)
        undecided = list(self.plan.addresses)
        for seed in self.plan.seeds[: self.options.rounds]:
            trials = [trial for trial in missing if trial.seed == seed and trial.model in undecided]
            keys = {self.plan.key(trial): trial for trial in trials}
            if known := {key: reused[key] for key in keys if key in reused}:
                self.store.copy_results(run, known)
                self.outcomes |= self._stored_outcomes(run)
                trials = [trial for key, trial in keys.items() if key not in known]
            await self._execute(run, trials)
            settled = self._settled(run)
            undecided = [model for model in undecided if model not in settled]
            if not undecided:
                return

    def _stored_outcomes(self, run: Run) -> dict[Trial, Outcome]:
        return {
            Trial(outcome.model, outcome.case, cast("Arm", outcome.arm), outcome.seed): outcome
            for outcome in self.store.outcomes(run)
        }

    def _settled(self, run: Run) -> set[str]:
        """The models whose verdict stands, among all of them, or that only repeat themselves."""
        if self.options.rounds is not None:
            return {model for model in self.plan.addresses if self.halted or model in self.stopped}
        from upskill.runs.results.evaluation import verdict_so_far  # noqa: PLC0415 - arithmetic, only with rounds
        from upskill.runs.results.looks import looks_of, make_look  # noqa: PLC0415
        from upskill.verdicts.requirements import are_settled  # noqa: PLC0415
        from upskill.verdicts.several_models import decide_together  # noqa: PLC0415

        rows = {
            model: [row for row in self.outcomes.values() if row.model == model]
            for model in self.plan.addresses
        }
        used_cases = self.plan.used_cases if self.options.keep_look else frozenset[str]()
        scored = {
            model: {row.case for row in rows[model] if row.passed is not None} for model in rows
        }
        leaked = any(outcome.leaked for outcome in self.outcomes.values())
        # As the store has them now: another process may have looked meanwhile.
        looks = {
            model: looks_of(self.store, run, make_look(self.plan, run, rows[model], model))
            for model in rows
            if self.options.keep_look
        }

        def weigh(model: str, models: int = 1) -> Verdict:
            verdict = verdict_so_far(
                run.plan,
                rows[model],
                leaked=leaked,
                looks=looks.get(model),
                used_cases=used_cases,
                models=models,
            )
            return replace(verdict, model=model)

        return {
            verdict.model
            for verdict in decide_together(rows, weigh)
            if self.halted
            or verdict.model in self.stopped
            or verdict.reason in ("isolation", "snapshots", "errors", "no baseline")
            or are_settled((*self.options.requirements, *self.options.stop_when), verdict)
            or (
                verdict.anytime == "suite"
                and verdict.these_cases
                and verdict.these_cases.copies >= len(scored[verdict.model] & verdict.case_ids)
            )
        }


def restore_spend(store: Store, run: Run, ledger: Ledger | None) -> dict[str, Any] | None:
    """Give the ledger what a killed command had spent, so that the one that resumes its run shares its ceilings.

    While a command runs under a ceiling, its run has a note of what had been spent before. Returns the note to keep.
    """
    if ledger is None or ledger.ceilings == Ceilings():
        return None
    calls = store.count_calls(run)
    spent = {
        role: Usage(tokens, cost_usd=cost) for role, (tokens, cost) in store.spent(run).items()
    }
    if note := run.plan.spent_before:
        ledger.calls += max(0, calls - note["calls"])
        for role, usage in spent.items():
            tokens, cost = note["spent"].get(role, (0, 0.0))
            since = usage - Usage(tokens, cost_usd=cost)
            ledger.spent[role] = ledger.spent.get(role, NO_USAGE) + since
        return dict(note)
    return {
        "calls": calls,
        "spent": {role: [usage.total_tokens, usage.cost_usd] for role, usage in spent.items()},
    }


async def _choose_sandbox(plan: Plan) -> SandboxChoice | None:
    """Tested before the first call; None if no trial needs a sandbox."""
    if not plan.acts and not any(case.needs_sandbox for case in plan.suite.cases):
        return None
    from upskill.sandboxes import choose_sandbox  # noqa: PLC0415 - only where something acts

    chosen = await choose_sandbox(plan.sandbox or None)
    if any(case.gpu and (plan.acts or case.needs_sandbox) for case in plan.suite.cases):
        from upskill.sandboxes.gpu import check_gpu  # noqa: PLC0415

        check_gpu(chosen.backend)
    return chosen


def _caveat(address: Address) -> str:
    if address.provider == "handoff":
        return "tokens are estimated from the length of the text, and the cost is unknown"
    if address.provider != "local":
        return ""
    from upskill.models.embedded.local_models import caveat_for  # noqa: PLC0415 - a table, only for embedded models

    return caveat_for(address.model)


async def check_suite_quality(
    suite: Suite, skill: Skill, *, strict: bool = False, sandbox: str = ""
) -> list[str]:
    """UsageError when an empty answer passes, else warnings."""
    leaks = await probe_suite(suite, skill, sandbox)
    fatal = [
        leak for leak in leaks if leak.probe == "empty" or (strict and leak.probe not in UNTRIED)
    ]
    if fatal:
        more = f" (and {len(fatal) - 1} more like this)" if len(fatal) > 1 else ""
        raise UsageError(
            f"{suite.source}: {fatal[0]}{more}", "Nothing was run: a case like this proves nothing."
        )
    return summarize_weak(leaks)


def evaluate_now(
    plan: Plan,
    *,
    store: Store | None = None,
    models: Models | None = None,
    options: RunOptions | None = None,
    events: Events | None = None,
) -> Evaluation:
    return asyncio.run(evaluate(plan, store=store, models=models, options=options, events=events))
