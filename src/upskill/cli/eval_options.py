"""The options of `upskill eval` and `upskill benchmark`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from upskill.authoring.saving.provenance import FILE as META
from upskill.authoring.saving.provenance import making_cost
from upskill.cli.console import check_writable, note
from upskill.cli.options import CommandOptions
from upskill.cli.watch import Watched
from upskill.errors import UsageError
from upskill.models import CacheMode
from upskill.models.addresses import resolve
from upskill.options import MAX_REPEATS, option
from upskill.reports import REPORTS
from upskill.runs.planning.options import AgentOptions, CacheOptions, SamplingOptions, choose_students
from upskill.runs.planning.plan import Plan, PlanOptions, make_plan
from upskill.runs.running.evaluate import RunOptions
from upskill.runs.running.executors import Executor
from upskill.runs.stores import find_store
from upskill.skills import Skill, load_skills
from upskill.skills.agent_specs import REAL_AGENTS
from upskill.suites import Suite
from upskill.suites.suite import CaseFilter
from upskill.verdicts.outcome import Scope

if TYPE_CHECKING:
    from upskill.models.cassette import Cassette
    from upskill.verdicts.requirements import Requirement

STORED = "-"  # in place of the file of --replay: what is in the store
MOST_ROUNDS = 20  # of --until-decided, where --runs does not say


@dataclass(kw_only=True, eq=False, repr=False)
class EvalOptions(SamplingOptions, AgentOptions, CacheOptions, CommandOptions):
    """The options of eval and benchmark."""

    skill: str
    runs: int | None = option(
        "--runs",
        default=None,
        help="How many times each case is run (default 1).",
        metavar="N",
        minimum=1,
        maximum=MAX_REPEATS,
    )
    models: tuple[str, ...] = option(
        "-m", "--model", default=(), help="A student; repeatable. Default: local.", metavar="MODEL"
    )
    tests: str | None = option(
        "-t", "--tests", default=None, help="The suite (default: the one in the skill's folder).", metavar="FILE"
    )
    cases: tuple[str, ...] = option(
        "--case", default=(), help="Only this case, or those that fit a pattern ('build-*'); repeatable.", metavar="ID"
    )
    tags: tuple[str, ...] = option("--tag", default=(), help="Only cases with this tag; repeatable.", metavar="TAG")
    failed: bool = option(
        "--failed", default=False, help="Only cases that failed with the skill when they were last run."
    )
    limit: int | None = option(
        "--limit", default=None, help="Only the first N of the cases that are left.", metavar="N", minimum=1
    )
    watch: bool = option(
        "--watch",
        default=False,
        help="Go on: whenever the skill or its suite is saved, run what that changes. Ctrl-C ends.",
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
    gpu: bool = option(
        "--gpu",
        default=False,
        help="Show the NVIDIA GPU in the sandbox, as `gpu: true` of a case does; such trials take turns on it.",
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
    replay: str | None = option(
        "--replay",
        default=None,
        help="Answer from recorded replies only: no key, no call, no cost. They are in the store, or in FILE, which "
        "`upskill export RUN --replies FILE` wrote; with FILE, what is not given is as it was recorded.",
        metavar="[FILE]",
        bare=STORED,
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

    failing: set[str] | None = field(default=None, init=False)  # what --failed has found

    def __post_init__(self) -> None:
        self.as_json = self.as_json or "json" in self.reports

    @property
    def cache_mode(self) -> CacheMode:
        return "replay" if self.replay else super().cache_mode

    @cached_property
    def cassette(self) -> Cassette | None:
        """The file of replies to play."""
        if self.replay in (None, STORED):
            return None
        from upskill.models.cassette import Cassette  # noqa: PLC0415 - only where one is given

        return Cassette(str(self.replay))

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
        """Refuse what nobody could carry out, and what contradicts itself."""
        self.parse_requirements()
        self.open_executor()
        if self.resume and (self.fresh or not self.log_runs):
            raise UsageError(f"--resume and {'--fresh' if self.fresh else '--no-log-runs'} contradict each other")
        if self.base_url and not (self.models or self.settings.eval_model):
            raise UsageError(
                "--base-url names a server, and nothing says which of its models", "Name one with -m MODEL."
            )
        if self.no_baseline and self.until_decided:
            raise UsageError(
                "--no-baseline and --until-decided contradict each other", "Without a baseline nothing is decided."
            )
        self._check_part()
        self._check_watch()
        if self.batch:
            self._check_batch()
        self._check_reports()

    @property
    def part_flags(self) -> str:
        """The first of the flags given that choose cases."""
        given = {"--case": self.cases, "--tag": self.tags, "--failed": self.failed, "--limit": self.limit}
        return next((flag for flag, value in given.items() if value), "")

    def _check_part(self) -> None:
        given = {
            "--require": self.requirements,
            "--until-decided": self.until_decided,
            "--preregister": self.preregister,
            "--target": self.target is not None,
        }
        if self.part_flags and (flag := next((flag for flag, value in given.items() if value), "")):
            raise UsageError(
                f"{self.part_flags} and {flag} contradict each other: nothing is decided by a part of the suite",
                f"Leave {self.part_flags} out, or make these cases a suite of their own and name it with --tests.",
            )
        if self.part_flags and self.fresh:
            raise UsageError(
                f"{self.part_flags} and --fresh contradict each other: cases drawn again until they pass say nothing",
                f"Leave --fresh out; {self.part_flags} runs what an edit has changed. For other draws use --seed.",
            )

    def _check_watch(self) -> None:
        given = {
            "--json": self.as_json,
            "--fresh": self.fresh,
            "--no-cache": self.no_cache,
            "--resume": self.resume,
            "--batch": self.batch,
            "--preregister": self.preregister,
        }
        if self.watch and (flag := next((flag for flag, value in given.items() if value), "")):
            raise UsageError(f"--watch and {flag} contradict each other", f"Leave {flag} out.")

    @property
    def watched(self) -> Watched:
        """What a person edits, without what we write."""
        places = [self.skill, self.tests, self.against, *self.with_skills]
        ours = [self.runs_folder, *(file for _, file in self.report_files if file)]
        return Watched.of((place for place in places if place), ours)

    @property
    def test_writer(self) -> str:
        if self.cassette:  # whoever wrote the cases is not recorded
            return ""
        return self.test_gen_model or self.settings.test_gen_model or ""

    def choose_cases(self, skill: Skill, suite: Suite | None) -> Suite | None:
        """The suite, or the part of it that is asked for."""
        if not self.part_flags:
            return suite
        if suite is None:
            raise UsageError(f"{skill.name}: has no test cases to choose from", f"Leave {self.part_flags} out.")
        if self.failed and self.failing is None:  # once: with --watch these stay the same
            self.failing = self._failing_cases(skill, suite)
        return CaseFilter(ids=self.cases, tags=self.tags, failing=self.failing, limit=self.limit).choose(suite)

    def _failing_cases(self, skill: Skill, suite: Suite) -> set[str]:
        from upskill.runs.results.evaluation import failing_cases  # noqa: PLC0415 - numpy comes with it

        students = choose_students(self.models, self.settings, lambda _: None)
        models = [resolve(name, self.base_url).name for name in students]
        store, found = find_store(self.runs_dir or self.settings.store), None
        if store:
            with store:
                found = failing_cases(store, skill.name, suite, models)
        named = f"{skill.name} and {', '.join(models)}"
        if found is None:
            raise UsageError(f"--failed: no stored run of {named} has cases of this suite", "Leave --failed out once.")
        if not found:
            note(f"Every case of {named} passed when it was last run. Leave --failed out to run them all.")
            raise click.exceptions.Exit(0)
        return found

    def _check_reports(self) -> None:
        if text := next((text for text in self.reports if text.endswith("=")), ""):
            raise UsageError(f"--report {text}: names no file", f"For example --report {text}FILE.")
        for kind, file in self.report_files:
            if kind not in REPORTS.table:  # those of other packages may not be there, or not load
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
        from upskill.runs.running.batch import check_batchable  # noqa: PLC0415 - only for models on the wire

        if self.agent != "chat":
            raise UsageError("--batch: an agent that acts needs each answer before its next question", "Leave one out.")
        if self.open_executor().is_remote:
            raise UsageError(f"--batch and --executor {self.executor} contradict each other", "Leave one out.")
        given = {"--replay": self.replay, "--no-cache": self.no_cache, "--no-log-runs": not self.log_runs}
        if flag := next((flag for flag, is_given in given.items() if is_given), ""):
            raise UsageError(
                f"--batch and {flag} contradict each other", "What was submitted, and what came back, has to be kept."
            )
        check_batchable(
            resolve(name, self.base_url) for name in choose_students(self.models, self.settings, lambda _: None)
        )

    def make_plan(self, skill: Skill, suite: Suite | None) -> Plan:
        cassette = self.cassette
        runs = self.runs or (MOST_ROUNDS if self.until_decided else cassette.settings.runs if cassette else 1)
        given = self._plan_options(skill, runs)
        if cassette is None:
            return make_plan(skill, suite, choose_students(self.models, self.settings, self.tell), given)
        from upskill.runs.replay.replay import as_recorded, plan_from  # noqa: PLC0415 - only where a file is played

        students = [cassette.address(name) for name in self.models] or cassette.students
        plan = make_plan(skill, suite, students, as_recorded(given, cassette, suite or Suite.of(skill)))
        self.tell(f"Playing {cassette.size} from {cassette.path}: no model is asked.")
        return plan_from(plan, cassette)

    def _plan_options(self, skill: Skill, runs: int) -> PlanOptions:
        return PlanOptions(
            base_url=self.base_url,
            runs=runs,
            seed=self.seed,
            temperature=self.temperature,
            max_output_tokens=self.max_output_tokens,
            baseline=not self.no_baseline,
            judge=self.judge_model or ("" if self.cassette else self.settings.judge_model) or "",
            controls=self.controls,
            reference_skill=Skill.load(self.against) if self.against else None,
            agent=self.agent,
            distractors=load_skills(self.with_skills, beside=skill),
            bounds=self.bounds,
            sandbox=self.sandbox,
            gpu=self.gpu,
        )

    def parse_requirements(self) -> tuple[Requirement, ...]:
        if not self.requirements:
            return ()
        from upskill.verdicts.requirements import parse_requirement  # noqa: PLC0415 - arithmetic comes with it

        return tuple(parse_requirement(text) for text in self.requirements)

    def run_options(self, plan: Plan, executor: Executor) -> RunOptions:
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
            requirements=self.parse_requirements(),
        )
