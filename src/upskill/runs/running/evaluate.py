"""Evaluate: run the missing trials of a plan, store every result as it arrives, and compute the verdicts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, aclosing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upskill.agents import AGENTS, ExternalAgent
from upskill.errors import CeilingReached, RunFailed, UsageError
from upskill.models import Address
from upskill.models.ledger import Ceilings, Ledger
from upskill.models.pool import Models
from upskill.runs.planning.plan import Plan, Purpose, Result, Trial
from upskill.runs.planning.stored_plan import (
    Analysis,
    ProbeResult,
    StoredSkill,
    StoredSuite,
    other_suite,
)
from upskill.runs.running.events import Events
from upskill.runs.running.executors import Executor, Job, Session
from upskill.runs.running.executors.local import Local
from upskill.runs.running.past_draws import PastDraws, find_dropped_cases
from upskill.runs.running.probe import probe_for_cache
from upskill.runs.running.trial import run_trial
from upskill.runs.stores import Run, Store, open_store
from upskill.runs.stores.addresses import is_url
from upskill.skills import Skill
from upskill.skills.seen import load_seen
from upskill.suites import Suite
from upskill.suites.near_duplicates import describe_near_duplicates, group_near_duplicates
from upskill.suites.quality import UNTRIED, only_by_acting, probe_suite, summarize_weak, unwritten
from upskill.traces import NO_USAGE, Usage
from upskill.verdicts import TOLERANCE
from upskill.version import __version__

if TYPE_CHECKING:
    from upskill.runs.results.evaluation import Evaluation
    from upskill.sandboxes import SandboxChoice
    from upskill.verdicts.outcome import Outcome
    from upskill.verdicts.requirements import Requirement
    from upskill.verdicts.verdict import Verdict

logger = logging.getLogger(__name__)
MAX_NOTICED = 20  # warnings of traces that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a plan is run and judged; none of it is part of a trial's key."""

    executor: Executor | None = None  # None: this process
    redraw: bool = False  # as many rounds again as there are
    purpose: Purpose = "eval"
    # Round by round, until every verdict stands, for at most as many rounds as the plan has.
    until_decided: bool = False
    # Likewise, but somebody else decides: asked after each round whether a model needs no further one.
    is_settled: Callable[[Verdict, list[Outcome]], bool] | None = None
    tolerance: float = TOLERANCE  # a loss, or a lift, that does not matter
    # By case: the text of the skill that it was first shown with. None: what the record says.
    seen: Mapping[str, str] | None = None
    making_cost: float | None = None  # dollars that the skill cost to make
    making_source: str = ""  # who says so
    target: float | None = None  # the pass rate that would be good enough
    requirements: Sequence[Requirement] = ()  # of every verdict
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
    """Run the missing trials of a plan. What is stored counts; nobody is asked twice for the same draw.

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
        self.plan = replace(plan, purpose=options.purpose)
        self.store = store
        self.models = models
        self.options = options
        self.executor = options.executor or Local()
        self.events = events
        self.stopped: dict[str, str] = {}  # models that were given up, and why
        self.halted = ""  # the ceiling that was reached
        self.errored: dict[Trial, Result] = {}  # what an earlier command may not have asked
        self.noticed: dict[str, None] = {}  # what traces warn of, each once

    @property
    def in_rounds(self) -> bool:
        return self.options.until_decided or self.options.is_settled is not None

    async def evaluate(self) -> Evaluation:
        options, store = self.options, self.store
        self._check_replay()
        self.executor.check(self.plan, self.models)
        sandbox = await _choose_sandbox(self.plan, self.store)
        self.plan = replace(self.plan, sandbox=sandbox.name) if sandbox else self.plan
        self.plan = replace(self.plan, dropped=find_dropped_cases(self.plan, store))
        known = store.find_run(self.plan)
        warnings = await self._warnings(sandbox)
        async with self.models:
            past = PastDraws(self.plan, store, known)
            self.plan = past.extend_plan(redraw=options.redraw)
            self._check_redraw()
            settled = set(store.settled(known)) if known else set[Trial]()
            missing = [trial for trial in self.plan.trials() if trial not in settled]
            seen = options.seen
            if seen is None:
                seen = load_seen(self.plan.skill, self.plan.suite, store)
            reused = past.find(self.plan, missing, seen)
            if len(reused) < len(missing):  # else nobody is asked, and weights take seconds to load
                await self._open_models()
            run, resumed = store.start_run(self.plan, __version__)
            with store.claim(run):
                run = self._store_plan(
                    run,
                    suite=self._named_suite(run),
                    skill=replace(run.plan.skill, meta=StoredSkill.of(self.plan.skill).meta),
                    in_rounds=self.in_rounds or run.plan.in_rounds,
                    tolerance=options.tolerance,
                    seen={case: seen[case] for case in self.plan.suite.by_id if case in seen},
                    replay_source=self.plan.replay_source,  # a file of the same replies may have been packed again
                    sandbox=sandbox.record() if sandbox else None,
                    analysis=self._analysis(warnings),
                )
                store.copy_results(run, reused)
                run = self._note_start(run)
                missing = self._missing(run)
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
                run = await self._probe(run, {trial.model for trial in missing})
                if self.in_rounds:
                    run = await self._execute_in_rounds(run)
                else:
                    await self._execute(run, self._missing(run))
                analysis = self._analysis(warnings)
                run = store.annotate(run, analysis=analysis, spent_before=None)
        return self._judge(run)

    def _check_redraw(self) -> None:
        if self.options.redraw and self.plan.exact:
            exact = min(self.plan.exact)
            raise UsageError(
                f"--redraw: {exact} gives the same answer however often it is asked",
                "Drop --redraw. More cases tell more; more draws of the same cases do not.",
            )

    def _missing(self, run: Run) -> list[Trial]:
        settled = set(self.store.settled(run))
        self.errored = {result.trial: result for result in self.store.unsettled(run)}
        return [trial for trial in self.plan.trials() if trial not in settled]

    def _store_plan(self, run: Run, **settings: Any) -> Run:
        """Its rounds may have become more since it was stored, or fewer with a server that answers from a cache."""
        plan = self.plan
        return self.store.annotate(
            run,
            trials=len(plan),
            runs=plan.runs,
            rounds=plan.rounds,
            from_cache=tuple(sorted(plan.from_cache)),
            exact=tuple(sorted(plan.exact)),
            **settings,
        )

    async def _probe(self, run: Run, waiting: Collection[str]) -> Run:
        """Of the models that have trials left, once a command: a cache draws nothing anew."""
        if self.models.cache == "replay" or not self.executor.makes_live_calls:
            return run
        probes = dict(run.plan.probes)
        for address in self.plan.models:
            is_due = address.name in waiting and address.name not in probes
            if not is_due or not self.plan.draws[address.name].needs_probe:
                continue
            known = self.models.answers_from_cache.get(address.name)
            if known is None:
                try:
                    found = await probe_for_cache(await self.models.uncached(address))
                except CeilingReached as reached:
                    self.halted = reached.message
                    break
                self.models.answers_from_cache[address.name] = found.from_cache
                if found.from_cache:
                    self.events.message(
                        f"{address.name} answers from a cache: one draw a case is all there is."
                    )
            else:
                found = ProbeResult(from_cache=known)
            probes[address.name] = found
            if found.from_cache:
                from_cache = self.plan.from_cache | {address.name}
                self.plan = replace(self.plan, from_cache=from_cache)
        return self._store_plan(run, probes=probes)

    def _note_start(self, run: Run) -> Run:
        before = restore_spend(self.store, run, self.models.ledger)
        return self.store.annotate(run, spent_before=before)

    def _named_suite(self, run: Run) -> StoredSuite:
        """The stored suite, by the name of the skill's own if it has become that one: the cases are the same."""
        is_own = not other_suite(self.plan.suite.source, run.skill)
        return replace(run.plan.suite, source=self.plan.suite.source) if is_own else run.plan.suite

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

        return evaluation_of(self.store, run, self.plan)

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
            *describe_near_duplicates(group_near_duplicates(plan.suite.cases)),
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

    async def _run_here(self, trial: Trial) -> Result | None:
        try:
            return await run_trial(self.plan, trial, self.models, self.errored.get(trial))
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
            run_trial=self._run_here,
            persist=partial(self.store.add_result, run),
            settled=partial(self.store.settled_under, run),
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
        logger.debug(
            "%s: %s", result.trial, result.error or ("passed" if result.passed else "failed")
        )
        self.events.result(result)

    async def _execute_in_rounds(self, run: Run) -> Run:
        """One round after the other, until the verdict of each model stands. Only whole rounds are looked at."""
        waiting = list(self.plan.addresses)
        for seed in self.plan.seeds:
            missing = self._missing(run)
            trials = [each for each in missing if each.seed == seed and each.model in waiting]
            await self._execute(run, trials)
            decided = self._decided(run)
            waiting = [model for model in waiting if model not in decided]
            if self.halted or not waiting:
                break
        # What is decided stays decided: the rounds that were not needed are no part of the plan any more.
        last_seeds = self.store.last_seeds(run)
        rounds = {
            model: last_seeds[model] - self.plan.seed + 1
            for model in self.plan.addresses
            if model not in waiting and model in last_seeds
        }
        self.plan = replace(self.plan, rounds={**self.plan.rounds, **rounds})
        return self._store_plan(run)

    def _decided(self, run: Run) -> Collection[str]:
        """The models that need no further round."""
        from upskill.runs.results.evaluation import evaluation_of  # noqa: PLC0415 - arithmetic, only with rounds
        from upskill.verdicts.requirements import are_settled  # noqa: PLC0415
        from upskill.verdicts.verdict import Reason  # noqa: PLC0415

        evaluation = evaluation_of(self.store, run, self.plan)
        hopeless = (Reason.ISOLATION, Reason.NO_BASELINE, Reason.ERRORS)
        decided: set[str] = set(self.stopped)
        for verdict in evaluation.verdicts:
            if self.options.is_settled:
                rows = evaluation.outcomes_of(verdict.model)
                stands = self.options.is_settled(verdict, rows)
            else:
                stands = are_settled(self.options.requirements, verdict)
            if stands or verdict.these.reason in hopeless:
                decided.add(verdict.model)
        return decided


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


async def _choose_sandbox(plan: Plan, store: Store) -> SandboxChoice | None:
    """Tested before the first call; None if no trial needs a sandbox."""
    if not plan.acts and not any(case.needs_sandbox for case in plan.suite.cases):
        return None
    from upskill.sandboxes import PRIVATE, choose_sandbox  # noqa: PLC0415 - only where something acts

    for private in (plan.skill.folder, plan.suite.source, store.address):
        if private and not is_url(str(private)):
            PRIVATE.add(Path(private))
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
