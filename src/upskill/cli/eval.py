"""`upskill eval`: run a student with and without a skill and say what the skill did."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from upskill.authoring.provenance import FILE as META
from upskill.authoring.provenance import making_cost, save_suite
from upskill.cli.console import RunProgress, check_writable, note, write_report
from upskill.cli.options import CommandOptions, click_options, confirm_cost
from upskill.errors import UsageError
from upskill.models import Models
from upskill.models.addresses import resolve
from upskill.models.keys import find_keys
from upskill.models.ledger import Ledger
from upskill.models.prices import BATCH_SHARE
from upskill.options import MOST_REPEATS, option
from upskill.plain import counted
from upskill.reports import REPORTS, Report, ReportContext
from upskill.runs.estimate import estimate, estimate_writing
from upskill.runs.evaluate import RunOptions, evaluate
from upskill.runs.evaluation import Evaluation
from upskill.runs.events import Events
from upskill.runs.executors import Executor
from upskill.runs.options import AgentOptions, CacheOptions, choose_students
from upskill.runs.plan import Plan, PlanOptions, Trial, make_plan
from upskill.runs.stores import Run, Store
from upskill.skills import Skill, load_skills
from upskill.skills.agent_specs import REAL_AGENTS
from upskill.suites import Suite
from upskill.suites.quality import only_by_acting
from upskill.verdicts.requirements import Requirement, parse_requirement
from upskill.verdicts.sequential import Scope

MOST_ROUNDS = 20  # of --until-decided, where --runs does not say
CASES = 12  # that are written where a skill has none
_STAND_IN = Suite.parse([{"prompt": "A task.", "checks": [{"contains": "done"}]}])  # to see whether a plan can be made


@dataclass(kw_only=True)
class EvalOptions(AgentOptions, CacheOptions, CommandOptions):
    """The options of eval and benchmark."""

    skill: str
    runs: int | None = option(
        "--runs",
        default=None,
        help="How many times each case is run (default 1).",
        metavar="N",
        minimum=1,
        maximum=MOST_REPEATS,
    )
    models: tuple[str, ...] = option(
        "-m", "--model", default=(), help="A student; repeatable. Default: local.", metavar="MODEL"
    )
    tests: str | None = option(
        "-t", "--tests", default=None, help="The suite (default: the one in the skill's folder).", metavar="FILE"
    )
    base_url: str = option(
        "--base-url",
        default="",
        help="An OpenAI-compatible server; MODEL is its name for the model.",
        metavar="URL",
    )
    test_gen_model: str | None = option(
        "--test-gen-model", default=None, help="Writes the test cases when the skill has none.", metavar="MODEL"
    )
    judge_model: str | None = option(
        "--judge-model", default=None, help="The model that grades cases with `judge` checks.", metavar="MODEL"
    )
    agent: str = option(
        "--agent",
        default="chat",
        help="How the student works: chat (the skill in the prompt, one answer), tools (the skill in a catalog, "
        f"commands and files in a sandbox), or a real agent: {REAL_AGENTS}.",
        metavar="AGENT",
        show_default=True,
    )
    with_skills: tuple[str, ...] = option(
        "--with-skills",
        default=(),
        help="Skills to offer beside the one under test, in every arm: a skill, or a folder of them; repeatable.",
        metavar="DIR",
    )
    no_baseline: bool = option(
        "--no-baseline", default=False, help="Skip the trials without the skill. Then there is no lift."
    )
    until_decided: bool = option(
        "--until-decided",
        default=False,
        help="Run round after round, each case once in each arm, until there is a decision, for at most --runs "
        "rounds (default 20). The test allows for looking after every round.",
    )
    scope: Scope = option(
        "--scope",
        default="cases",
        help="What --until-decided decides about: tasks like these cases, or exactly these cases.",
        show_default=True,
    )
    margin: float = option(
        "--margin",
        default=5.0,
        help="A lift of less than this counts as no effect.",
        metavar="POINTS",
        minimum=0,
        maximum=100,
        show_default=True,
    )
    preregister: str | None = option(
        "--preregister",
        default=None,
        help="Write the plan and the rule of decision to FILE before the first trial. Where FILE exists, run only what "
        "it says, as a planned look.",
        metavar="FILE",
    )
    controls: bool = option(
        "--controls", default=False, help="Also run a placebo of the same length, and the baseline a second time."
    )
    against: str | None = option(
        "--against", default=None, help="Compare with this older skill instead of with none.", metavar="SKILL"
    )
    target: float | None = option(
        "--target",
        default=None,
        help="Name the cheapest model and arm with this pass rate.",
        metavar="PERCENT",
        minimum=0,
        maximum=100,
    )
    making_cost: float | None = option(
        "--making-cost",
        default=None,
        help="What the skill cost to make, for break-even (default: what its skill_meta.json says).",
        metavar="USD",
        minimum=0,
    )
    requirements: tuple[str, ...] = option(
        "--require",
        default=(),
        help='Exit with 1 unless this holds, e.g. "lift>=0.1", "decision=helps", "tokens<=1.2x"; repeatable. '
        'Judged at the unfavourable end of the interval unless written as "point:lift>=0.1".',
        metavar="CONDITION",
    )
    reports: tuple[str, ...] = option(
        "--report",
        default=(),
        help=f"Write a report to a file, or to standard output in place of the usual one: {', '.join(REPORTS.table)}; "
        "repeatable.",
        metavar="KIND[=FILE]",
    )
    junit: str = option("--junit", default="", help="Write JUnit XML: --report junit=FILE.", metavar="FILE")
    markdown: str = option(
        "--markdown",
        default="",
        help="Write a summary for a pull request: --report markdown=FILE.",
        metavar="FILE",
    )
    strict_suite: bool = option(
        "--strict-suite", default=False, help="Refuse a suite with a case that a know-nothing answer passes."
    )
    seed: int = option(
        "--seed", default=0, help="The first seed; run N uses seed + N - 1.", metavar="N", show_default=True
    )
    temperature: float | None = option(
        "--temperature",
        default=None,
        help="Default: 0 for one run, 0.7 for several.",
        metavar="T",
        minimum=0,
        maximum=2,
    )
    max_output_tokens: int | None = option(
        "--max-output-tokens",
        default=None,
        help="How long an answer may be; one that is cut off there has failed. Without this limit or one in the suite "
        "it is 4096, and for embedded models what the case needs, at least 256.",
        metavar="N",
        minimum=1,
    )
    batch: bool = option(
        "--batch",
        default=False,
        help="Ask students through their provider's batch API: half the price, an answer within a day. The same "
        "command waits for a batch that was submitted before.",
    )
    resume: bool = option(
        "--resume", default=False, help="Go on with a stored run of this plan, or say that there is none."
    )
    verbose: int = option(
        "-v",
        "--verbose",
        default=0,
        help="Also show every case, and log as with every command; -vv logs more.",
        count=True,
    )

    def __post_init__(self) -> None:
        self.as_json = self.as_json or "json" in self.reports

    @property
    def report_files(self) -> list[tuple[str, str]]:
        """The kind of every report to write, and its file; one without a file goes to standard output."""
        given = [text.partition("=") for text in self.reports]
        found = [(kind, file) for kind, _, file in given]
        found += [("json", "")] if self.as_json else []
        found += [(kind, file) for kind, file in (("junit", self.junit), ("markdown", self.markdown)) if file]
        found = list(dict.fromkeys(found))
        return found if any(not file for _, file in found) else [("terminal", ""), *found]

    def check(self) -> None:
        """Refuse what contradicts itself."""
        if self.resume and (self.fresh or not self.log_runs):
            raise UsageError(f"--resume and {'--fresh' if self.fresh else '--no-log-runs'} contradict each other")
        if self.no_baseline and self.until_decided:
            raise UsageError(
                "--no-baseline and --until-decided contradict each other", "Without a baseline nothing is decided."
            )
        if self.batch:
            self._check_batch()
        self._check_reports()

    def _check_reports(self) -> None:
        if text := next((text for text in self.reports if text.endswith("=")), ""):
            raise UsageError(f"--report {text}: names no file", f"For example --report {text}FILE.")
        for kind, file in self.report_files:
            REPORTS.load(kind)
            if file:
                check_writable(file)
        printed = [kind for kind, file in self.report_files if not file]
        if len(printed) > 1:
            raise UsageError(
                f"{' and '.join(printed)} cannot both go to standard output",
                f"Give all but one a file: --report {printed[-1]}=FILE.",
            )

    def _check_batch(self) -> None:
        from upskill.runs.batch import check_batchable  # noqa: PLC0415 - aiohttp, only for models on the wire

        if self.agent != "chat":
            raise UsageError("--batch: an agent that acts needs each answer before its next question", "Leave one out.")
        given = {"--replay": self.replay, "--no-cache": self.no_cache, "--no-log-runs": not self.log_runs}
        if flag := next((flag for flag, is_given in given.items() if is_given), ""):
            raise UsageError(
                f"--batch and {flag} contradict each other", "What was submitted, and what came back, has to be kept."
            )
        check_batchable(
            resolve(name, self.base_url) for name in choose_students(self.models, self.settings, lambda _: None)
        )

    def make_plan(self, skill: Skill, suite: Suite | None) -> Plan:
        return make_plan(
            skill,
            suite,
            choose_students(self.models, self.settings, self.tell),
            PlanOptions(
                base_url=self.base_url,
                runs=self.runs or (MOST_ROUNDS if self.until_decided else 1),
                seed=self.seed,
                temperature=self.temperature,
                max_output_tokens=self.max_output_tokens,
                baseline=not self.no_baseline,
                judge=self.judge_model or self.settings.judge_model or "",
                controls=self.controls,
                reference_skill=Skill.load(self.against) if self.against else None,
                agent=self.agent,
                distractors=load_skills(self.with_skills),
                bounds=self.bounds,
                sandbox=self.sandbox,
            ),
        )

    def run_options(self, plan: Plan, executor: Executor, requirements: tuple[Requirement, ...]) -> RunOptions:
        cost, source = self.making_cost, "--making-cost"
        if cost is None:
            cost, source = making_cost(plan.skill, plan.reference_skill), META
        return RunOptions(
            executor=executor,
            fresh=self.fresh,
            resume=self.resume,
            until_decided=self.scope if self.until_decided else None,
            margin=self.margin / 100,
            preregister=Path(self.preregister) if self.preregister else None,
            making_cost=cost,
            making_source="" if cost is None else source,
            strict_suite=self.strict_suite,
            target=None if self.target is None else self.target / 100,
            requirements=requirements,
        )


@click.command("eval")
@click.argument("skill", type=click.Path())
@click_options(EvalOptions)
def command(**given: Any) -> None:
    """Run a student on a suite with and without SKILL, and compare the two.

    Both arms get the same prompts, seeds and limits; only the skill differs. Results are kept as they arrive: after
    Ctrl-C or a crash the same command continues where it stopped.

    \b
    upskill eval ./skills/my-skill                       the embedded model, no key needed
    upskill eval ./skills/my-skill -m haiku -m local     two students
    upskill eval ./skills/my-skill --runs 5 --json       repeats, machine-readable
    upskill eval ./skills/my-skill -m qwen3 --base-url http://localhost:8080/v1
    """
    run_eval(EvalOptions(**given))


def run_eval(options: EvalOptions) -> None:
    """Evaluate and print. Exits with 3 when the run has failed, with 1 when a requirement does not hold."""
    requirements = tuple(parse_requirement(text) for text in options.requirements)
    options.check()
    executor = options.open_executor()
    skill = Skill.load(options.skill)
    suite = Suite.load(options.tests) if options.tests else Suite.of(skill)
    writer = options.test_gen_model or options.settings.test_gen_model
    # Whatever is wrong with what was given is said before a store is made.
    plan = options.make_plan(skill, suite) if suite or not writer else None
    progress = RunProgress(quiet=options.silent)
    with options.open_store(skill.name) as store:
        context = options.model_context(Events(message=options.tell, reading=progress.reading))
        models = Models(context, replies=store, cache=options.cache_mode, ledger=Ledger(options.ceilings))
        if plan is None:
            plan = options.make_plan(*asyncio.run(_write_suite(skill, writer or "", models, options)))
        if options.batch:
            from upskill.runs.batch import BatchExecutor  # noqa: PLC0415 - aiohttp, only for models on the wire

            executor = BatchExecutor(executor, store, models, options.tell)
        run_options = options.run_options(plan, executor, requirements)
        evaluation = _evaluate(plan, store, models, options, run_options, progress)
        _report(evaluation, store, options)
    if evaluation.has_failed:
        raise click.exceptions.Exit(3)
    if not all(ruling.held for _, ruling in evaluation.rulings):
        raise click.exceptions.Exit(1)


async def _write_suite(skill: Skill, writer: str, models: Models, options: EvalOptions) -> tuple[Skill, Suite]:
    # What is wrong with the students is said before the writer is paid.
    stand_in = replace(options, quiet=True).make_plan(skill, _STAND_IN)
    address = resolve(writer, keys=find_keys())
    async with models:
        for student in stand_in.models:
            await models.get(student)
        model = await models.get(address, "test writer")
        if not options.replay:
            expected = estimate_writing(address, models.context.prices, material=skill.tokens, items=CASES)
            confirm_cost(options, expected)
        options.tell(f"Generating test cases with {writer}...")
        from upskill.authoring.suite_writer import write_suite  # noqa: PLC0415 - slow to import, and seldom needed

        written = await write_suite(skill, model, count=CASES, acts=stand_in.acts, tell=options.tell)
    skill, suite = save_suite(skill, written)
    options.tell(f"Wrote {counted(len(suite.cases), 'case')} to {suite.source}")
    return skill, suite


def _evaluate(
    plan: Plan, store: Store, models: Models, options: EvalOptions, run_options: RunOptions, progress: RunProgress
) -> Evaluation:
    if store.location is not None:
        progress.interrupted = "Interrupted. Every finished trial is stored; the same command continues from there."
        if options.batch:
            progress.interrupted += (
                "\nA batch that was submitted continues at the provider; the same command picks it up."
            )

    def started(plan: Plan, run: Run, missing: list[Trial]) -> None:
        _say_what_is_left(plan, run, missing, options)
        if missing and not options.quiet:
            _warn_of_sandbox(run)
            for hidden in plan.skill.hidden_text:
                note(f"Warning: {hidden}")
            if not plan.acts and (said := only_by_acting(plan.suite)):
                note(f"Warning: {said}")
        if not options.replay:
            _confirm_cost(plan, missing, models, options)
        progress.started(plan, run, missing)

    events = Events(started=started, result=progress.result, message=options.tell)
    with progress:
        evaluation = asyncio.run(evaluate(plan, store=store, models=models, options=run_options, events=events))
    ledger = models.ledger
    if ledger and (wrote := ledger.spent.get("test writer")) is not None:
        evaluation.spent["test writer"] = (wrote.total_tokens, wrote.cost_usd)
    if ledger and models.hits:
        were = f"{counted(models.hits + ledger.calls, 'call')} {'was' if models.hits == 1 else 'were'}"
        options.tell(f"{models.hits} of {were} answered from stored replies, at no cost.")
    return evaluation


def _say_what_is_left(plan: Plan, run: Run, missing: list[Trial], options: EvalOptions) -> None:
    done, left = len(plan) - len(missing), len(missing)
    if done:
        going_on = f"running the other {left:,}" if left else "nothing is left to run; --fresh runs them again"
        trials = f"{counted(len(plan), 'trial')} {'is' if done == 1 else 'are'} stored"
        options.tell(f"Continuing run {run.id}: {done:,} of {trials}, {going_on}.")


def _warn_of_sandbox(run: Run) -> None:
    """Warn of a sandbox that holds back less than it should, before anything is run in it."""
    if record := run.plan.get("sandbox"):
        from upskill.sandboxes import SandboxChoice  # noqa: PLC0415 - only where something acts

        if warning := SandboxChoice(**record).warning:
            note(f"Warning: {warning}")


def _confirm_cost(plan: Plan, missing: list[Trial], models: Models, options: EvalOptions) -> None:
    """Say what the run will cost before the first paid call, and ask when it may be much and a person is there."""
    expected = estimate(plan, missing, models.context.prices, student_share=BATCH_SHARE if options.batch else 1.0)
    fewer = f"{expected.words}; fewer where fewer rounds decide" if options.until_decided else ""
    confirm_cost(options, expected, fewer)


def _report(evaluation: Evaluation, store: Store, options: EvalOptions) -> None:
    if evaluation.leaked:  # said wherever standard output goes
        trials = counted(len(evaluation.invalid), "trial")
        note(f"INVALID: the arms were not isolated ({trials} saw or reached for a hidden skill). No number is valid.")
    show_command = f"upskill show {evaluation.run.id}{options.show_flags}" if store.location is not None else ""
    context = ReportContext(
        results=lambda: store.results(evaluation.run), show_command=show_command, verbose=bool(options.verbose)
    )
    for kind, file in options.report_files:
        report: Report = REPORTS.load(kind)
        write_report(report(evaluation, context), file)
    if options.as_json:
        return
    if evaluation.halted:
        note(f"Stopped: {evaluation.halted}. The same command with a higher ceiling continues from here.")
    for model, ruling in evaluation.rulings:
        if not ruling.held:
            note(f"Required {ruling.requirement.text!r} of {model}, but {ruling.reason}.")
