from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from upskill.authoring.saving.provenance import save_suite
from upskill.cli.console import (
    as_text,
    note,
    show,
    show_document,
    show_json,
    show_report,
    write_file,
)
from upskill.cli.eval_options import EvalOptions
from upskill.cli.help import Command
from upskill.cli.options import click_options, confirm_cost
from upskill.cli.progress import RunProgress
from upskill.cli.watch import Seen, changed
from upskill.errors import Paused, UpskillError, UsageError
from upskill.models.addresses import resolve
from upskill.models.keys import find_keys
from upskill.models.ledger import Ledger
from upskill.models.pool import Models
from upskill.models.prices import BATCH_SHARE
from upskill.plain import counted, listed
from upskill.reports import REPORTS, Renderer
from upskill.runs.planning.estimate import CostEstimate, estimate, estimate_writing
from upskill.runs.planning.plan import Plan, Trial
from upskill.runs.running.evaluate import RunOptions, evaluate
from upskill.runs.running.events import Events
from upskill.runs.stores import Run, Store, find_store
from upskill.sandboxes import SandboxChoice
from upskill.skills import RECEIPT, REPLIES, Skill
from upskill.skills.seen import load_seen
from upskill.suites import Suite
from upskill.suites.quality import only_by_acting
from upskill.verdicts import LEVEL_OF_TASKS, LEVEL_OF_THESE

if TYPE_CHECKING:
    from upskill.runs.results.evaluation import Evaluation
    from upskill.verdicts.requirements import Requirement

WATCHING = "Watching the skill and its suite. Save a file to rerun what it changes; Ctrl-C stops."
CASES = 12  # written when a skill has none


@click.command("eval", cls=Command)
@click.argument("skill", type=click.Path())
@click_options(EvalOptions)
def command(**values: Any) -> None:
    """Run a student on a suite with and without SKILL, and compare the two.

    Both arms get the same prompts and limits; only the skill differs. Each case is drawn three times, or once where
    the student always gives the same answer. Results are stored as they arrive: after Ctrl-C or a crash, run the same
    command again to continue.

    \b
    upskill eval ./skills/my-skill                    the embedded model, no key
    upskill eval ./skills/my-skill -m haiku -m local  two students
    upskill eval ./skills/my-skill --plan             what it costs and can show
    upskill eval ./skills/my-skill --repeats 5 --json repeats, machine-readable
    upskill eval ./skills/my-skill -m qwen3 --base-url http://localhost:8080/v1
    """
    run_eval(EvalOptions(**values))


def run_eval(options: EvalOptions) -> None:
    """Exit with 3 if the run failed, with 1 if a requirement does not hold."""
    options.check()
    seen = options.watched.look() if options.watch else {}
    # Bad input is reported before a store is created.
    loaded = load(options)
    if options.plan_only:
        _show_plan(options, *loaded)
        return
    with options.open_store() as store:
        ledger = Ledger(options.ceilings)
        try:
            evaluation = _evaluate_loaded(options, loaded, store, ledger)
        except Paused as pause:
            if options.as_json:
                show_json({"waiting_for": list(pause.files)})
            raise
        if options.watch:
            _keep_evaluating(options, evaluation, store, ledger, seen)
            return
    if evaluation.has_failed:
        raise click.exceptions.Exit(3)
    if not all(ruling.held for _, ruling in evaluation.rulings):
        raise click.exceptions.Exit(1)


def load(options: EvalOptions) -> tuple[Skill, Plan | None]:
    """The skill and the plan; no plan if the suite has yet to be written."""
    skill = Skill.load(options.skill)
    suite = options.choose_cases(
        skill, Suite.load(options.tests) if options.tests else Suite.of(skill)
    )
    return skill, options.make_plan(skill, suite) if suite or not options.case_writer else None


def _show_plan(options: EvalOptions, skill: Skill, plan: Plan | None) -> None:
    """What a run would take, and what it could decide. Nothing is written."""
    from upskill.cli.forecast import report_forecast  # noqa: PLC0415 - numpy, only for --plan
    from upskill.runs.planning.forecast import make_forecasts  # noqa: PLC0415

    if plan is None:
        raise UsageError(
            f"{skill.name}: no test cases yet, so there is nothing to plan",
            f"Write some: upskill tests {options.skill}",
        )
    prices = options.model_context().prices
    costs = (
        estimate(plan, plan.trials(), prices),
        estimate(plan, replace(plan, runs=1).trials(), prices),
    )
    with find_store(options.store_location) or nullcontext() as store:
        forecasts = list(make_forecasts(plan, load_seen(skill, plan.suite, store), store))
    show_report(report_forecast(plan, forecasts, costs), as_json=options.as_json)


def prove(options: EvalOptions) -> None:
    """Run the suite and write the receipt, without a report."""
    loaded = load(options)
    with options.open_store() as store:
        _write_receipt(_measure(options, loaded, store, Ledger(options.ceilings)), store, options)


def _write_receipt(evaluation: Evaluation, store: Store, options: EvalOptions) -> None:
    from upskill.runs.replay.receipt import write_receipt  # noqa: PLC0415 - only where one is asked for

    receipt = write_receipt(evaluation, store)
    folder = os.path.relpath(receipt.parent.parent)
    wrote = " and ".join(f"{folder}/{file}" for file in (RECEIPT, REPLIES))
    options.tell(
        f"Wrote {wrote}; commit both. `upskill verify {folder}` checks them without a model."
    )


def _evaluate_loaded(
    options: EvalOptions, loaded: tuple[Skill, Plan | None], store: Store, ledger: Ledger
) -> Evaluation:
    evaluation = _measure(options, loaded, store, ledger)
    _report(evaluation, store, options)
    if options.receipt:
        _write_receipt(evaluation, store, options)
    return evaluation


def _measure(
    options: EvalOptions, loaded: tuple[Skill, Plan | None], store: Store, ledger: Ledger
) -> Evaluation:
    executor, (skill, plan) = options.open_executor(), loaded
    progress = RunProgress(quiet=options.silent)
    context = options.model_context(Events(message=options.tell, reading=progress.reading))
    models = Models(
        context, replies=store, cache=options.cache_mode, ledger=ledger, cassette=options.cassette
    )
    if plan is None:
        plan = options.make_plan(
            *asyncio.run(_write_suite(skill, options.case_writer, models, options))
        )
    if options.batch:
        from upskill.runs.running.batch import BatchExecutor  # noqa: PLC0415 - only for models on the wire

        executor = BatchExecutor(executor, store, models, options.tell)
    run_options = options.run_options(plan, executor)
    return _evaluate(plan, store, models, options, run_options, progress)


def _keep_evaluating(
    options: EvalOptions, last: Evaluation, store: Store, ledger: Ledger, seen: Seen
) -> None:
    from upskill.reports.comparison import summarize  # noqa: PLC0415 - rich, only where something is compared
    from upskill.runs.results.comparison import Side, compare  # noqa: PLC0415

    watched = options.watched
    while True:
        try:
            note(WATCHING)
            now = watched.wait(seen)
        except KeyboardInterrupt:
            note("")
            return
        files, seen = changed(seen, now), now
        try:
            loaded = load(options)
            # The plan that was run also says which sandbox was chosen.
            if (
                loaded[1]
                and loaded[1].fingerprint == replace(last.plan, sandbox=options.sandbox).fingerprint
            ):
                continue
            note(
                f"{', '.join(map(watched.name, files[:3]))}{', …' if len(files) > 3 else ''} changed."
            )
            before, last = last, _evaluate_loaded(options, loaded, store, ledger)
        except UpskillError as error:  # for example a half-edited file
            note("\n  ".join(filter(None, (f"upskill: {error.message}", error.hint))))
            continue
        if before.plan.suite.by_id.keys() & last.plan.suite.by_id.keys():
            unfinished = {*before.unfinished, *last.unfinished}
            for model in (name for name in last.plan.addresses if name not in unfinished):
                comparison = compare(
                    store, Side(before.run, model, "skill"), Side(last.run, model, "skill")
                )
                click.echo(f"Since the previous save, {model}: {summarize(comparison)}.")


async def _write_suite(
    skill: Skill, writer: str, models: Models, options: EvalOptions
) -> tuple[Skill, Suite]:
    # Problems with the students are reported before the writer is paid.
    suite = Suite.parse([{"prompt": "A task.", "checks": [{"contains": "done"}]}])
    stand_in = replace(options, quiet=True).make_plan(skill, suite)
    address = resolve(writer, keys=find_keys())
    async with models:
        for student in stand_in.models:
            await models.get(student)
        model = await models.get(address, "test writer")
        if not options.replay:
            expected = estimate_writing(
                address, models.context.prices, material=skill.tokens, items=CASES
            )
            confirm_cost(options, expected)
        options.tell(f"Generating test cases with {writer}...")
        from upskill.authoring.writing.suite_writer import write_suite  # noqa: PLC0415 - slow to import, and seldom needed

        written = await write_suite(
            skill, model, count=CASES, author=address.name, acts=stand_in.acts, tell=options.tell
        )
    skill, suite = save_suite(skill, written)
    options.tell(f"Wrote {counted(len(suite.cases), 'case')} to {suite.source}")
    return skill, suite


def _evaluate(
    plan: Plan,
    store: Store,
    models: Models,
    options: EvalOptions,
    run_options: RunOptions,
    progress: RunProgress,
) -> Evaluation:
    if store.location is not None:
        without = " without --redraw" if options.redraw else ""
        stored = "interrupted. Every finished trial is stored."
        progress.interrupted = f"{stored} Run the same command again{without} to continue."
        if options.batch:
            batch = "A submitted batch continues at the provider; that command also collects its answers."
            progress.interrupted += f"\n{batch}"

    from upskill.runs.results.shown import mark_shown  # noqa: PLC0415 - numpy

    begun: list[Run] = []

    def started(plan: Plan, run: Run, missing: Collection[Trial]) -> None:
        begun.append(run)
        exact = [model for model in plan.addresses if plan.is_exact(model)]
        if exact and (options.repeats or 1) > 1:
            options.tell(f"Always the same answer, so drawn once a case: {listed(exact)}.")
        _say_what_is_left(plan, run, missing, options)
        if missing and not options.quiet:
            # Warn about a weak sandbox before anything runs in it.
            sandbox = SandboxChoice(**run.plan.sandbox).warning if run.plan.sandbox else ""
            acting = "" if plan.acts else only_by_acting(plan.suite)
            for warning in filter(None, (sandbox, *plan.skill.hidden_text, acting)):
                note(f"Warning: {warning}")
        for reason in _unreachable(plan, run, run_options.requirements):
            note(f"Warning: {reason}")
        if not options.replay:  # the cost is shown before the first paid call
            share = BATCH_SHARE if options.batch else 1.0
            expected = estimate(plan, missing, models.context.prices, student_share=share)
            fewer = (
                f"{expected.words}; less if fewer rounds are enough"
                if options.until_decided
                else ""
            )
            confirm_cost(
                options, expected, fewer or _at_one_repeat(plan, missing, expected, models)
            )
        progress.started(plan, run, missing)

    events = Events(started=started, result=progress.result, message=options.tell)
    called = models.ledger.calls if models.ledger else 0
    try:
        with progress:
            evaluation = asyncio.run(
                evaluate(plan, store=store, models=models, options=run_options, events=events)
            )
    finally:  # also of an interrupted run, results were shown
        caveats = [mark_shown(store, run) for run in begun]
    evaluation.caveats += filter(None, caveats)
    ledger = models.ledger
    if ledger and (wrote := ledger.spent.get("test writer")) is not None:
        evaluation.spent["test writer"] = (wrote.total_tokens, wrote.cost_usd)
    if ledger and models.hits:
        calls = models.hits + ledger.calls - called
        were = f"{counted(calls, 'call')} {'was' if models.hits == 1 else 'were'}"
        share = "All" if models.hits == calls else f"{models.hits:,}"
        options.tell(
            f"{share} of the {were} answered with replies stored by earlier runs, at no cost."
        )
    return evaluation


def _unreachable(plan: Plan, run: Run, requirements: Sequence[Requirement]) -> Iterator[str]:
    """What no result of this run could meet, said before it costs anything."""
    if not requirements:
        return
    from upskill.verdicts.requirements import describe_unreachable  # noqa: PLC0415 - numpy

    groups = {case.group or case.id for case in plan.suite.cases if case.id in run.plan.fresh}
    for model in plan.addresses:
        exact = plan.is_exact(model)
        draws = len(plan.suite.cases) * plan.rounds_of(model)
        units = {"these": (draws, LEVEL_OF_TASKS if exact else LEVEL_OF_THESE)}
        if groups:
            units["tasks"] = (len(groups), LEVEL_OF_TASKS)
        for requirement in requirements:
            if why := describe_unreachable(requirement, units):
                yield f"{model} cannot meet {requirement.text!r}: {why}."


def _at_one_repeat(
    plan: Plan, missing: Collection[Trial], expected: CostEstimate, models: Models
) -> str:
    """The estimate, and beside it the price of one draw a case."""
    once = [trial for trial in missing if trial.seed == plan.seed]
    if not expected.cost_usd[1] or len(once) == len(missing):
        return ""
    low, high = estimate(plan, once, models.context.prices).cost_usd
    return f"{expected.words}; with --repeats 1: ${low:.2f} to ${high:.2f}"


def _say_what_is_left(
    plan: Plan, run: Run, missing: Collection[Trial], options: EvalOptions
) -> None:
    done, left = len(plan) - len(missing), len(missing)
    if done:
        going_on = (
            f"running the remaining {left:,}"
            if left
            else "nothing left to run; --redraw adds further draws"
        )
        trials = f"{counted(len(plan), 'trial')} {'is' if done == 1 else 'are'} stored"
        started = (
            "Continuing run" if run.resumed else "New run"
        )  # which reuses results of earlier runs
        options.tell(f"{started} {run.id}: {done:,} of {trials}, {going_on}.")


def _report(evaluation: Evaluation, store: Store, options: EvalOptions) -> None:
    # Imported late: reports need numpy.
    from upskill.authoring.writing.teachers import add_command  # noqa: PLC0415
    from upskill.reports.evaluated import bug_heading, report_evaluation  # noqa: PLC0415
    from upskill.verdicts.verdict import REASONS, Reason  # noqa: PLC0415

    if evaluation.leaked:  # also shown if standard output is redirected
        trials = counted(len(evaluation.invalid), "trial")
        note(
            f"INVALID: {REASONS[Reason.ISOLATION]}. In {trials} the student saw or tried to open a skill"
            " that should have been hidden."
        )
    show_command = ""
    if store.location is not None:
        show_command = f"upskill show {evaluation.run.id}{options.show_flags}"
    report = report_evaluation(
        evaluation,
        store=store,
        show_command=show_command,
        add_command=add_command(options.skill, options.settings, find_keys()),
    )
    for kind, file in options.report_files:
        if kind == "terminal" and not file:
            show_report(report, quiet=options.quiet)
            continue
        render: Renderer = REPORTS.load(kind)
        text = render(report)
        if file:
            write_file(file, text if isinstance(text, str) else as_text(text))
            options.tell(f"Wrote {file}")
        elif isinstance(text, str):
            show_document(text)
        else:
            show(text)
    if options.as_json:
        return
    if options.quiet and evaluation.bugs:
        note(bug_heading(evaluation.bug_count))
    for model, ruling in evaluation.rulings:
        if ruling.held:
            options.tell(f"✓ {model} meets {ruling.requirement.text!r}: {ruling.reason}.")
