"""`upskill eval`: run a student with and without a skill and say what the skill did."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from upskill.cli.around import Decorator, json_option, quiet_option, student, surroundings
from upskill.cli.screen import Watch, note, show, show_json
from upskill.errors import UsageError
from upskill.settings import Settings

if TYPE_CHECKING:
    from upskill.skill import Skill
    from upskill.suite import Suite

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
    from upskill.evaluate import evaluate, make_plan  # noqa: PLC0415 - pydantic and friends, not for --help
    from upskill.executors.local import Local  # noqa: PLC0415
    from upskill.models import Models  # noqa: PLC0415
    from upskill.reports import json as json_report  # noqa: PLC0415
    from upskill.reports import terminal  # noqa: PLC0415
    from upskill.skill import Skill  # noqa: PLC0415
    from upskill.store import Run, Store  # noqa: PLC0415
    from upskill.suite import Suite  # noqa: PLC0415

    settings = order.settings
    quiet = order.quiet or order.as_json
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

    def begin(run: Run, done: int) -> None:
        if order.resume and not done:
            raise UsageError("there is no stored run of this plan to go on with", "Leave --resume out to start one.")
        if done and not quiet:
            left = len(plan) - done
            going_on = f"running the other {left}" if left else "nothing is left to run; --fresh runs them again"
            note(f"Going on with run {run.id}: {done} of {len(plan)} trials are stored, {going_on}.")
        watch.begin(done)

    with Store(folder) as store:
        try:
            evaluation = asyncio.run(
                evaluate(
                    plan,
                    store=store,
                    models=Models(around),
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
        if order.as_json:
            show_json(json_report.of_evaluation(evaluation))
        else:
            show(*terminal.of_evaluation(evaluation, verbose=order.verbose, results=store.results))
    if evaluation.too_many_errors:
        raise click.exceptions.Exit(3)


def _write_tests(skill: Skill, writer: str, order: Order, *, quiet: bool) -> tuple[Skill, Suite]:
    """Have a model write the suite, and keep it with the skill so that the next run has the same one."""
    from upskill.create import write_suite  # noqa: PLC0415
    from upskill.models import open_model  # noqa: PLC0415
    from upskill.models.addresses import resolve  # noqa: PLC0415
    from upskill.suite import Suite  # noqa: PLC0415

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
