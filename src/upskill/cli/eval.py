"""`upskill eval`: run a student with and without a skill and say what the skill did."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from upskill.cli.around import Decorator, json_option, quiet_option, student, surroundings
from upskill.cli.screen import Watch, note, show, show_json
from upskill.create import write_suite
from upskill.errors import UsageError
from upskill.estimate import Estimate, estimate
from upskill.evaluate import evaluate, make_plan
from upskill.executors.local import Local
from upskill.models import CacheMode, Models, open_model
from upskill.models.addresses import resolve
from upskill.models.ledger import Ceilings, Ledger
from upskill.reports import json as json_report
from upskill.reports import terminal
from upskill.settings import Settings
from upskill.skill import Skill
from upskill.store import Run, Store
from upskill.suite import Suite
from upskill.trial import Trial

_OPTIONS: list[Decorator] = [
    click.option("-t", "--tests", metavar="FILE", help="The suite (default: the one in the skill's folder)."),
    click.option(
        "-m", "--model", "models", multiple=True, metavar="MODEL", help="A student; repeatable. Default: local."
    ),
    click.option("--base-url", metavar="URL", help="An OpenAI-compatible server; MODEL is its name for the model."),
    click.option("--test-gen-model", metavar="MODEL", help="Writes the test cases when the skill has none."),
    click.option("--judge-model", metavar="MODEL", help="The model that grades cases with `judge` checks."),
    click.option("--no-baseline", is_flag=True, help="Skip the runs without the skill. Then there is no lift."),
    click.option("--seed", type=int, default=0, show_default=True, help="The first seed; run N uses seed + N - 1."),
    click.option("--temperature", type=click.FloatRange(0, 2), help="Default: 0 for one run, 0.7 for several."),
    click.option(
        "--max-output-tokens",
        type=click.IntRange(1),
        metavar="N",
        help="How long an answer may be. One that is cut there is scored as it is; without a limit of your own or of "
        "the suite's, one that is cut at 4096 is an error.",
    ),
    click.option(
        "--concurrency", type=click.IntRange(1), metavar="N", help="Calls at a time for each model (default 8)."
    ),
    click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="For one call."),
    click.option("--resume", is_flag=True, help="Go on with a stored run of this plan, or say that there is none."),
    click.option("--fresh", is_flag=True, help="Start over, even if the store has results of this very plan."),
    click.option("--max-cost", type=click.FloatRange(0), metavar="USD", help="Stop before this much is spent."),
    click.option("--max-tokens", type=click.IntRange(0), metavar="N", help="Stop at this many tokens."),
    click.option("--max-calls", type=click.IntRange(0), metavar="N", help="Stop at this many calls."),
    click.option("-y", "--yes", is_flag=True, help="Do not ask before spending more than the settings' confirm_above."),
    click.option("--no-cache", is_flag=True, help="Neither take nor keep stored replies."),
    click.option("--replay", is_flag=True, help="Answer from stored replies only: no key, no call, no cost."),
    click.option("--offline", is_flag=True, help="Download nothing."),
    click.option("--runs-dir", metavar="DIR", help="Where runs are kept (default ./runs)."),
    click.option("--log-runs/--no-log-runs", default=True, help="Keep the run in the store (default) or forget it."),
    click.option("-v", "--verbose", is_flag=True, help="Also show every case."),
    json_option,
    quiet_option,
]


def options(function: Any) -> Any:
    """Everything eval and benchmark have in common."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass
class Order:
    """What the person asked for."""

    skill: str
    tests: str | None = None
    models: tuple[str, ...] = ()
    runs: int = 1
    base_url: str | None = None
    test_gen_model: str | None = None
    judge_model: str | None = None
    no_baseline: bool = False
    seed: int = 0
    temperature: float | None = None
    max_output_tokens: int | None = None
    concurrency: int | None = None
    timeout: float | None = None
    resume: bool = False
    fresh: bool = False
    max_cost: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None
    yes: bool = False
    no_cache: bool = False
    replay: bool = False
    offline: bool = False
    runs_dir: str | None = None
    log_runs: bool = True
    verbose: bool = False
    as_json: bool = False
    quiet: bool = False
    settings: Settings = field(default_factory=Settings.load)


@click.command("eval")
@click.argument("skill", type=click.Path())
@click.option("--runs", type=click.IntRange(1), default=1, show_default=True, help="How often each case is run.")
@options
def command(**given: Any) -> None:
    """Run a student on a suite with and without SKILL and say what the skill did.

    Both arms get the same prompts, seeds and limits; only the skill differs. Results are kept as they arrive: after
    Ctrl-C or a crash the same command goes on where it stopped.

    \b
    upskill eval ./skills/my-skill                       the embedded model, no key needed
    upskill eval ./skills/my-skill -m haiku -m local     two students
    upskill eval ./skills/my-skill --runs 5 --json       repeats, machine-readable
    upskill eval ./skills/my-skill -m qwen3 --base-url http://localhost:8080/v1
    """
    carry_out(Order(**given))


def carry_out(order: Order) -> None:
    """Evaluate and print; exits with 3 when too many trials errored."""

    settings = order.settings
    quiet = order.quiet or order.as_json
    if order.resume and (order.fresh or not order.log_runs):
        raise UsageError(f"--resume and {'--fresh' if order.fresh else '--no-log-runs'} contradict each other")
    skill = Skill.load(order.skill)
    suite = Suite.load(order.tests) if order.tests else Suite.of(skill)
    writer = order.test_gen_model or settings.test_gen_model
    if suite is None and writer:
        skill, suite = _write_tests(skill, writer, order, quiet=quiet)
    plan = make_plan(
        skill,
        suite,
        student(order.models, settings, quiet=quiet),
        base_url=order.base_url or "",
        runs=order.runs,
        seed=order.seed,
        temperature=order.temperature,
        max_output_tokens=order.max_output_tokens,
        baseline=not order.no_baseline,
        judge=order.judge_model or settings.judge_model or "",
    )
    folder = Path(order.runs_dir or settings.runs_dir) if order.log_runs else None
    concurrency = order.concurrency or settings.concurrency
    around = surroundings(settings, quiet=quiet, offline=order.offline, timeout=order.timeout, connections=concurrency)
    watch = Watch(plan, quiet=quiet)
    ceilings = Ceilings(order.max_cost, order.max_tokens, order.max_calls)
    ledger = Ledger(ceilings)

    def begin(run: Run, missing: list[Trial]) -> None:
        done = len(plan) - len(missing)
        if order.resume and not done:
            raise UsageError("there is no stored run of this plan to go on with", "Leave --resume out to start one.")
        if done and not quiet:
            left = len(missing)
            going_on = f"running the other {left}" if left else "nothing is left to run; --fresh runs them again"
            note(f"Going on with run {run.id}: {done} of {len(plan)} trials are stored, {going_on}.")
        if not order.replay:
            _confirm(estimate(plan, missing, around.prices), order, quiet=quiet)
        watch.begin(done)

    with Store(folder) as store:
        models = Models(around, shelf=store, cache=_cache_mode(order), ledger=ledger)
        try:
            evaluation = asyncio.run(
                evaluate(
                    plan,
                    store=store,
                    models=models,
                    executor=Local(concurrency),
                    fresh=order.fresh,
                    begin=begin,
                    watch=watch,
                )
            )
        except KeyboardInterrupt:
            watch.end()
            if folder is not None:
                note("Interrupted. Every finished trial is stored; the same command goes on from there.")
            raise
        finally:
            watch.end()
        if models.hits and not quiet:
            note(f"{models.hits} of {models.hits + ledger.calls} calls were answered from stored replies, at no cost.")
        if evaluation.halted and not quiet:
            note(f"Stopped: {evaluation.halted}. The same command with a higher ceiling goes on from here.")
        if order.as_json:
            show_json(json_report.of_evaluation(evaluation))
        else:
            show(*terminal.of_evaluation(evaluation, verbose=order.verbose, results=store.results))
    if evaluation.too_many_errors:
        raise click.exceptions.Exit(3)


def _cache_mode(order: Order) -> CacheMode:
    if order.replay:
        return "replay"
    if order.no_cache:
        return "off"
    return "refresh" if order.fresh else "use"


def _confirm(expected: Estimate, order: Order, *, quiet: bool) -> None:
    """Say what the run will cost before the first paid call, and ask when it may be much and a person is there."""
    if order.max_cost is not None and expected.unknown:
        raise UsageError(
            f"--max-cost cannot be kept: nobody knows the price of {expected.unknown[0]}",
            "Give it in upskill.config.yaml under `prices:` (dollars per million tokens: input, output).",
        )
    high = expected.cost_usd[1]
    if not expected.calls or (high == 0 and not expected.unknown):
        return
    if not quiet:
        note(f"Estimate: {expected.words}.")
    at_most = high if order.max_cost is None else min(high, order.max_cost)
    if at_most > order.settings.confirm_above and not order.yes and sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm("Go ahead?", abort=True, err=True)


def _write_tests(skill: Skill, writer: str, order: Order, *, quiet: bool) -> tuple[Skill, Suite]:
    """Have a model write the suite, and keep it with the skill so that the next run has the same one."""

    around = surroundings(order.settings, quiet=quiet, offline=order.offline, timeout=order.timeout)

    async def write() -> Suite:
        model = await open_model(resolve(writer), around)
        try:
            return await write_suite(skill, model, tell=around.tell)
        finally:
            await model.close()

    if not quiet:
        note(f"Generating test cases with {writer}...")
    suite = asyncio.run(write())
    text = json.dumps(suite.plain(), indent=2, ensure_ascii=False) + "\n"
    assert skill.folder is not None
    place = skill.folder / "evals" / "suite.json"
    skill.with_file("evals/suite.json", text.encode()).save(skill.folder, overwrite=True)
    if not quiet:
        note(f"Wrote {len(suite.cases)} cases to {place}")
    return Skill.load(skill.folder), Suite.load(place)
