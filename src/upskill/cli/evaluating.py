"""How eval and benchmark carry out an order: plan, say what it costs, run, report, and the exit code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace

import click

from upskill.authoring.create import write_suite
from upskill.authoring.provenance import FILE as META
from upskill.authoring.provenance import making_cost
from upskill.cli.console import TrialProgress, check_writable, note, show, show_json, write_file
from upskill.cli.options import choose_students, confirm_cost, model_context
from upskill.cli.order import EvalOptions
from upskill.errors import UsageError
from upskill.models import CacheMode, ModelContext, Models
from upskill.models.addresses import resolve
from upskill.models.keys import find_keys
from upskill.models.ledger import Ledger
from upskill.models.prices import BATCH_SHARE
from upskill.plain import counted
from upskill.reports import json as json_report
from upskill.reports import junit, markdown, terminal
from upskill.runs.estimate import estimate, estimate_writing
from upskill.runs.evaluate import RunOptions, evaluate
from upskill.runs.evaluation import Evaluation
from upskill.runs.events import Events
from upskill.runs.executors import Executor
from upskill.runs.executors.local import Local
from upskill.runs.plan import Plan, PlanOptions, Trial, make_plan
from upskill.runs.stores import Run, Store, open_store
from upskill.skills import Skill, find_skills
from upskill.suites import Suite
from upskill.suites.quality import only_by_acting
from upskill.verdicts.requirements import Requirement, Ruling, check_requirement, parse_requirement
from upskill.verdicts.verdict import Verdict

MOST_ROUNDS = 20  # of --until-decided, where --runs does not say
CASES = 12  # that are written where a skill has none
_STAND_IN = Suite.parse([{"prompt": "A task.", "checks": [{"contains": "done"}]}])  # to see whether a plan can be made

Rulings = list[tuple[str, Ruling]]


def run_eval(order: EvalOptions) -> None:
    """Evaluate and print. Exits with 3 when the arms were not isolated or too many trials errored, with 1 when a
    requirement does not hold."""
    requirements = [parse_requirement(text) for text in order.requirements]
    if order.resume and (order.fresh or not order.log_runs):
        raise UsageError(f"--resume and {'--fresh' if order.fresh else '--no-log-runs'} contradict each other")
    if order.no_baseline and order.until_decided:
        raise UsageError(
            "--no-baseline and --until-decided contradict each other", "Without a baseline nothing is decided."
        )
    if order.batch:
        _check_batch(order)
    for file in (order.junit, order.markdown):
        if file:
            check_writable(file)
    ledger = Ledger(order.ceilings)
    skill = Skill.load(order.skill)
    suite = Suite.load(order.tests) if order.tests else Suite.of(skill)
    writer = order.test_gen_model or order.settings.test_gen_model
    # Whatever is wrong with what was given is said before a store is made.
    plan = _plan(skill, suite, order) if suite or not writer else None
    with open_store(order.store_place) as store:
        if plan is None:
            models = Models(_context(order), replies=store, cache=_cache_mode(order), ledger=ledger)
            plan = _plan(*_write_tests(skill, writer or "", models, order), order)
        if order.resume and store.find_run(plan) is None:
            raise UsageError("there is no stored run of this plan to go on with", "Leave --resume out to start one.")
        evaluation = _run(plan, store, ledger, order)
        rulings = [
            (verdict.model, _rule(requirement, verdict, evaluation))
            for verdict in evaluation.verdicts
            for requirement in requirements
        ]
        _report(evaluation, rulings, store, order)
    if evaluation.leaked or evaluation.too_many_errors:
        raise click.exceptions.Exit(3)
    if not all(ruling.held for _, ruling in rulings):
        raise click.exceptions.Exit(1)


def _rule(requirement: Requirement, verdict: Verdict, evaluation: Evaluation) -> Ruling:
    if evaluation.halted:  # what was run is whatever came first, not the suite
        return Ruling(requirement, held=False, reason="the run was stopped before its end")
    return check_requirement(requirement, verdict)


def _check_batch(order: EvalOptions) -> None:
    from upskill.runs.batch import check_batchable  # noqa: PLC0415 - aiohttp, only for models on the wire

    if order.agent != "chat":
        raise UsageError("--batch: an agent that acts needs each answer before its next question", "Leave one out.")
    against = {"--replay": order.replay, "--no-cache": order.no_cache, "--no-log-runs": not order.log_runs}
    if option := next((option for option, given in against.items() if given), ""):
        raise UsageError(
            f"--batch and {option} contradict each other", "What was submitted, and what came back, has to be kept."
        )
    check_batchable(
        resolve(name, order.base_url or "") for name in choose_students(order.models, order.settings, quiet=True)
    )


def _executor(store: Store, models: Models, order: EvalOptions) -> Executor:
    local = Local(order.concurrency or order.settings.concurrency)
    if not order.batch:
        return local
    from upskill.runs.batch import BatchExecutor  # noqa: PLC0415

    return BatchExecutor(local, store, models, models.context.tell)


def _plan(skill: Skill, suite: Suite | None, order: EvalOptions) -> Plan:
    settings = order.settings
    return make_plan(
        skill,
        suite,
        choose_students(order.models, settings, quiet=order.silent),
        options=PlanOptions(
            base_url=order.base_url or "",
            runs=order.runs or (MOST_ROUNDS if order.until_decided else 1),
            seed=order.seed,
            temperature=order.temperature,
            max_output_tokens=order.max_output_tokens,
            baseline=not order.no_baseline,
            judge=order.judge_model or settings.judge_model or "",
            controls=order.controls,
            reference_skill=Skill.load(order.against) if order.against else None,
            agent=order.agent,
            distractors=load_distractors(order.with_skills),
            bounds=order.bounds,
            sandbox=order.sandbox,
            keys=find_keys(),
        ),
    )


def load_distractors(places: Iterable[str]) -> list[Skill]:
    """The skills at these places; each is a skill, or a folder of skills."""
    skills: list[Skill] = []
    for place in places:
        found = [Skill.load(folder) for folder in find_skills(place)]
        if not found:
            raise UsageError(f"{place}: has no skill in it", "A skill is a folder with a SKILL.md in it.")
        skills += found
    return skills


def _context(order: EvalOptions) -> ModelContext:
    return model_context(
        order.settings,
        quiet=order.silent,
        offline=order.offline,
        timeout=order.timeout,
        connections=order.concurrency or order.settings.concurrency,
    )


def _run(plan: Plan, store: Store, ledger: Ledger, order: EvalOptions) -> Evaluation:
    context = _context(order)
    watch = TrialProgress(plan, quiet=order.silent)
    models = Models(context, replies=store, cache=_cache_mode(order), ledger=ledger)

    def started(plan: Plan, run: Run, missing: list[Trial]) -> None:
        _say_what_is_left(plan, run, missing, order)
        if missing and not order.quiet:
            _say_where(run)
            if not plan.acts and (said := only_by_acting(plan.suite)):
                note(f"Warning: {said}")
        if not order.replay:
            _say_what_it_costs(plan, missing, context, order)
        watch.begin(len(plan) - len(missing))

    try:
        evaluation = asyncio.run(
            evaluate(
                plan,
                store=store,
                models=models,
                options=RunOptions(
                    executor=_executor(store, models, order),
                    fresh=order.fresh,
                    until_decided=order.scope if order.until_decided else None,
                    margin=order.margin / 100,
                    making_cost=making_cost(plan.skill, plan.reference_skill)
                    if order.making_cost is None
                    else order.making_cost,
                    strict_suite=order.strict_suite,
                ),
                events=Events(started=started, result=watch),
            )
        )
    except KeyboardInterrupt:
        watch.end()
        if store.location is not None:
            note("Interrupted. Every finished trial is stored; the same command goes on from there.")
        if order.batch:
            note("A batch that was submitted goes on at the provider; the same command picks it up.")
        raise
    finally:
        watch.end()
    if (wrote := ledger.spent.get("test writer")) is not None:
        evaluation.spent["test writer"] = (wrote.total_tokens, wrote.cost_usd)
    if evaluation.making_cost is not None:
        evaluation.making_source = META if order.making_cost is None else "--making-cost"
    evaluation.target = None if order.target is None else order.target / 100
    if models.hits and not order.silent:
        were = f"{counted(models.hits + ledger.calls, 'call')} {'was' if models.hits == 1 else 'were'}"
        note(f"{models.hits} of {were} answered from stored replies, at no cost.")
    return evaluation


def _cache_mode(order: EvalOptions) -> CacheMode:
    if order.replay:
        return "replay"
    if order.no_cache:
        return "off"
    return "refresh" if order.fresh else "use"


def _say_what_is_left(plan: Plan, run: Run, missing: list[Trial], order: EvalOptions) -> None:
    done, left = len(plan) - len(missing), len(missing)
    if done and not order.silent:
        going_on = f"running the other {left}" if left else "nothing is left to run; --fresh runs them again"
        trials = f"{counted(len(plan), 'trial')} {'is' if done == 1 else 'are'} stored"
        note(f"Going on with run {run.id}: {done} of {trials}, {going_on}.")


def _say_where(run: Run) -> None:
    """Warn of a sandbox that holds back less than it should, before anything is run in it."""
    if record := run.plan.get("sandbox"):
        from upskill.sandboxes import SandboxChoice  # noqa: PLC0415 - only where something acts

        if warning := SandboxChoice(**record).warning:
            note(f"Warning: {warning}")


def _say_what_it_costs(plan: Plan, missing: list[Trial], context: ModelContext, order: EvalOptions) -> None:
    """Say what the run will cost before the first paid call, and ask when it may be much and a person is there."""
    expected = estimate(plan, missing, context.prices, student_share=BATCH_SHARE if order.batch else 1.0)
    confirm_cost(order, expected, f"{expected.words}; fewer where fewer rounds decide" if order.until_decided else "")


def _report(evaluation: Evaluation, rulings: Rulings, store: Store, order: EvalOptions) -> None:
    _show(evaluation, rulings, store, order)
    if order.junit:
        write_file(order.junit, junit.of_evaluation(evaluation, rulings))
    if order.markdown:
        write_file(order.markdown, markdown.of_evaluation(evaluation, rulings))


def _show(evaluation: Evaluation, rulings: Rulings, store: Store, order: EvalOptions) -> None:
    if evaluation.leaked:  # said wherever standard output goes
        trials = counted(len(evaluation.invalid), "trial")
        note(f"INVALID: the arms were not isolated ({trials} saw or reached for a hidden skill). No number is valid.")
    if order.as_json:
        show_json(json_report.of_evaluation(evaluation, rulings))
        return
    shown = terminal.of_evaluation(
        evaluation,
        verbose=order.verbose,
        results=store.results,
        stored=store.location is not None,
        found_with=order.found_with,
    )
    show(*shown)
    if evaluation.halted:
        note(f"Stopped: {evaluation.halted}. The same command with a higher ceiling goes on from here.")
    for model, ruling in rulings:
        if not ruling.held:
            note(f"Required {ruling.requirement.text!r} of {model}, but {ruling.reason}.")


def _write_tests(skill: Skill, writer: str, models: Models, order: EvalOptions) -> tuple[Skill, Suite]:
    """Have a model write the suite, and keep it with the skill so that the next run has the same one."""

    # What is wrong with the students is said before the writer is paid.
    students = _plan(skill, _STAND_IN, replace(order, quiet=True)).models
    address = resolve(writer, keys=find_keys())

    async def write() -> Suite:
        async with models:
            for each in students:
                await models.get(each)
            model = await models.get(address, "test writer")
            if not order.replay:
                confirm_cost(
                    order, estimate_writing(address, models.context.prices, material=skill.tokens, items=CASES)
                )
            order.tell(f"Generating test cases with {writer}...")
            return await write_suite(skill, model, count=CASES, tell=models.context.tell)

    suite = asyncio.run(write())
    text = json.dumps(suite.plain(), indent=2, ensure_ascii=False) + "\n"
    assert skill.folder is not None
    place = skill.folder / "evals" / "suite.json"
    write_file(str(place), text)
    order.tell(f"Wrote {counted(len(suite.cases), 'case')} to {place}")
    return Skill.load(skill.folder), Suite.load(place)
