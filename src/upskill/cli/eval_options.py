from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import click

from upskill.authoring.saving.provenance import FILE as META
from upskill.authoring.saving.provenance import making_cost
from upskill.cli.console import check_writable, note
from upskill.cli.options import CommandOptions, first_given
from upskill.cli.watch import Watched
from upskill.errors import UsageError
from upskill.models import CacheMode
from upskill.models.addresses import resolve
from upskill.options import option
from upskill.reports import REPORTS
from upskill.runs.planning.options import MeasureOptions, choose_students, model_option
from upskill.runs.planning.plan import Plan, PlanOptions, make_plan
from upskill.runs.running.evaluate import RunOptions
from upskill.runs.running.executors import Executor
from upskill.runs.stores import find_store
from upskill.skills import Skill, load_skills
from upskill.suites import Suite
from upskill.suites.suite import CaseFilter
from upskill.verdicts import MAX_ROUNDS

if TYPE_CHECKING:
    from upskill.models.cassette import Cassette
    from upskill.verdicts.requirements import Requirement

STORED = "-"  # in place of the file of --replay: what is in the store


@dataclass(kw_only=True)
class EvalOptions(MeasureOptions, CommandOptions):
    skill: str
    tests: str | None = option(
        "-t",
        "--tests",
        default=None,
        help="The suite (default: the one in the skill's folder).",
        metavar="FILE",
    )
    cases: tuple[str, ...] = option(
        "--case",
        default=(),
        help="Only this case, or cases that match a pattern ('build-*'); repeatable.",
        metavar="ID",
    )
    tags: tuple[str, ...] = option(
        "--tag", default=(), help="Only cases with this tag; repeatable.", metavar="TAG"
    )
    failed: bool = option(
        "--failed", default=False, help="Only cases that failed with the skill last time."
    )
    limit: int | None = option(
        "--limit",
        default=None,
        help="Only the first N of the chosen cases.",
        metavar="N",
        minimum=1,
    )
    watch: bool = option(
        "--watch",
        default=False,
        help="Keep running: when you save the skill or its suite, rerun what changed. Ctrl-C stops.",
    )
    test_writer: str | None = model_option(
        "--test-writer", help="Writes the test cases when the skill has none."
    )
    judge: str | None = model_option(
        "--judge", help="The model that grades cases with `judge` checks."
    )
    no_baseline: bool = option(
        "--no-baseline",
        default=False,
        help="Skip the trials without the skill. No lift is measured.",
    )
    until_decided: bool = option(
        "--until-decided",
        default=False,
        help=f"Run round after round, each case once with and once without the skill, until there is a decision, "
        f"for at most --repeats rounds ({MAX_ROUNDS} unless you set it). Both questions are then asked at 99 %.",
    )
    plan_only: bool = option(
        "--plan",
        default=False,
        help="Run nothing: show the calls, the cost and what the suite can decide.",
    )
    controls: bool = option(
        "--controls",
        default=False,
        help="Also run a placebo of the same length, and the baseline a second time.",
    )
    against: str | None = option(
        "--against",
        default=None,
        help="Compare with this reference skill instead of no skill.",
        metavar="SKILL",
    )
    requirements: tuple[str, ...] = option(
        "--require",
        default=(),
        help='Exit with 1 unless this holds, e.g. "lift>=0.1", "decision=helps", "tokens<=1.2x"; repeatable. '
        'Judged at the unfavorable end of the interval unless written as "point:lift>=0.1"; "tasks:" or "these:" '
        "before it chooses the question.",
        metavar="CONDITION",
    )
    reports: tuple[str, ...] = option(
        "--report",
        default=(),
        help=f"Write a report ({', '.join(REPORTS.table)}) to FILE. Without FILE, print it instead of the usual "
        "output. Repeatable.",
        metavar="KIND[=FILE]",
    )
    tolerance: float | None = option(
        "--tolerance",
        default=None,
        help="Points of the pass rate that do not matter (default 20).",
        metavar="POINTS",
        minimum=0.1,
        maximum=100,
        hidden=True,
    )
    receipt: bool = option(
        "--receipt",
        default=False,
        help="Save the proof in the skill's folder: evals/receipt.json and the answers. `upskill verify` checks it.",
    )
    batch: bool = option(
        "--batch",
        default=False,
        help="Use the provider's batch API for students: half the price, answers within a day. Run the same command "
        "again to collect the results.",
    )
    replay: str | None = option(
        "--replay",
        default=None,
        help="Answer from recorded replies only: no key, no calls, no cost. Replies come from the store, or from FILE, "
        "written by `upskill export RUN --replies FILE`; with FILE, other options keep their recorded values.",
        metavar="[FILE]",
        bare=STORED,
    )
    verbose: int = option(
        "-v",
        "--verbose",
        default=0,
        help="Also show every case, and log; -vv logs more.",
        count=True,
    )

    failing: set[str] | None = field(default=None, init=False)  # the cases that --failed means

    def __post_init__(self) -> None:
        super().__post_init__()
        self.as_json = self.as_json or "json" in self.reports

    @property
    def tolerated_share(self) -> float:
        return super().tolerated_share if self.tolerance is None else self.tolerance / 100

    @property
    def cache_mode(self) -> CacheMode:
        return "replay" if self.replay else super().cache_mode

    @cached_property
    def cassette(self) -> Cassette | None:
        if self.replay in (None, STORED):
            return None
        from upskill.models.cassette import Cassette  # noqa: PLC0415 - only where one is given

        cassette = Cassette(str(self.replay))
        click.get_current_context().call_on_close(cassette.close)
        return cassette

    @property
    def report_files(self) -> list[tuple[str, str]]:
        files = [(kind, file) for kind, _, file in (text.partition("=") for text in self.reports)]
        files += [("json", "")] if self.as_json else []
        files = list(dict.fromkeys(files))
        return files if any(not file for _, file in files) else [("terminal", ""), *files]

    def check(self) -> None:
        self.parse_requirements()
        self.open_executor()
        if self.base_url and not (self.students or self.settings.student):
            raise UsageError(
                "--base-url needs the name of a model on that server", "Choose one with -m MODEL."
            )
        if self.until_decided and (self.repeats or 0) > MAX_ROUNDS:
            raise UsageError(
                f"--until-decided runs at most {MAX_ROUNDS} rounds",
                f"Drop --repeats, or use --repeats {MAX_ROUNDS}.",
            )
        if self.no_baseline and self.until_decided:
            hint = "Nothing can be decided without a baseline."
            raise UsageError("--no-baseline and --until-decided cannot be used together", hint)
        if self.part_flag:
            self._check_part()
        if self.watch:
            self._check_watch()
        if self.batch:
            self._check_batch()
        self._check_reports()

    @property
    def part_flag(self) -> str:
        flags = {
            "--case": self.cases,
            "--tag": self.tags,
            "--failed": self.failed,
            "--limit": self.limit,
        }
        return first_given(flags)

    def _check_part(self) -> None:
        part = self.part_flag
        deciding = {
            "--require": self.requirements,
            "--until-decided": self.until_decided,
            "target_pass_rate": self.settings.target_pass_rate is not None,
        }
        if flag := first_given(deciding):
            raise UsageError(
                f"{part} and {flag} cannot be used together: a decision needs the whole suite",
                f"Drop {part}.",
            )

    def _check_watch(self) -> None:
        others = {
            "--json": self.as_json,
            "--redraw": self.redraw,
            "cache=false": not self.settings.cache,
            "--plan": self.plan_only,
            "--batch": self.batch,
        }
        if flag := first_given(others):
            raise UsageError(f"--watch and {flag} cannot be used together", f"Drop {flag}.")

    @property
    def watched(self) -> Watched:
        paths = [self.skill, self.tests, self.against, *self.with_skills]
        ours = [self.runs_folder, *(file for _, file in self.report_files if file)]
        return Watched(filter(None, paths), ours)

    @property
    def case_writer(self) -> str:
        """The model that writes test cases; a recording does not name it."""
        return "" if self.cassette else self.test_writer or self.settings.test_writer or ""

    def choose_cases(self, skill: Skill, suite: Suite | None) -> Suite | None:
        if not self.part_flag:
            return suite
        if suite is None:
            raise UsageError(
                f"{skill.name}: no test cases to choose from", f"Drop {self.part_flag}."
            )
        if self.failed and self.failing is None:  # once: with --watch these stay the same
            self.failing = self._failing_cases(skill, suite)
        return CaseFilter(
            ids=self.cases, tags=self.tags, failing=self.failing, limit=self.limit
        ).choose(suite)

    def _failing_cases(self, skill: Skill, suite: Suite) -> set[str]:
        from upskill.runs.results.evaluation import failing_cases  # noqa: PLC0415 - numpy comes with it

        students = choose_students(self.students, self.settings, lambda _: None)
        models = [resolve(name, self.base_url).name for name in students]
        with find_store(self.store_location) or nullcontext() as store:
            failing = failing_cases(store, skill.name, suite, models) if store else None
        named = f"{skill.name} on {', '.join(models)}"
        if failing is None:
            raise UsageError(
                f"--failed: no stored run of {named} includes cases from this suite",
                "Run it once without --failed first.",
            )
        if not failing:
            note(f"Every case passed last time for {named}. Drop --failed to run them all.")
            raise click.exceptions.Exit(0)
        return failing

    def _check_reports(self) -> None:
        if text := next((text for text in self.reports if text.endswith("=")), ""):
            raise UsageError(
                f"--report {text}: no file was named", f"For example --report {text}FILE."
            )
        for kind, file in self.report_files:
            if kind not in REPORTS.table:  # one from another package may be missing or fail to load
                REPORTS.load(kind)
            if file:
                try:
                    check_writable(file)
                except UsageError as error:
                    error.hint = error.hint.replace(
                        "or overwrite this one with --force", "or delete this one"
                    )
                    raise
        printed = [kind for kind, file in self.report_files if not file]
        if len(printed) > 1:
            hint = f"Write all but one to a file: --report {printed[-1]}=FILE."
            raise UsageError(f"{' and '.join(printed)} cannot both go to standard output", hint)

    def _check_batch(self) -> None:
        from upskill.runs.running.batch import check_batchable  # noqa: PLC0415 - only for models on the wire

        if self.agent != "chat":
            raise UsageError(
                "--batch: an agent with tools needs each answer before its next request",
                "Drop one of them.",
            )
        if self.open_executor().is_remote:
            raise UsageError(
                f"--batch and --executor {self.executor} cannot be used together",
                "Drop one of them.",
            )
        others = {
            "--replay": self.replay,
            "cache=false": not self.settings.cache,
            "log_runs=false": not self.keeps_runs,
        }
        if flag := first_given(others):
            hint = "A batch and its answers have to be stored."
            raise UsageError(f"--batch and {flag} cannot be used together", hint)
        students = choose_students(self.students, self.settings, lambda _: None)
        check_batchable(resolve(name, self.base_url) for name in students)

    def make_plan(self, skill: Skill, suite: Suite | None) -> Plan:
        cassette = self.cassette
        repeats = self.repeats or (MAX_ROUNDS if self.until_decided else self.settings.repeats)
        if cassette and not self.repeats:
            repeats = cassette.settings.runs
        options = self._plan_options(skill, repeats)
        if cassette is None:
            return make_plan(
                skill, suite, choose_students(self.students, self.settings, self.tell), options
            )
        from upskill.runs.replay.replay import as_recorded, plan_from  # noqa: PLC0415 - only when a file is replayed

        students = [cassette.address(name) for name in self.students] or cassette.students
        plan = make_plan(
            skill, suite, students, as_recorded(options, cassette, suite or Suite.of(skill))
        )
        self.tell(f"Replaying {cassette.size} from {cassette.path}: no model is called.")
        return plan_from(plan, cassette)

    def _plan_options(self, skill: Skill, repeats: int | None) -> PlanOptions:
        settings = self.settings
        return PlanOptions(
            base_url=self.base_url,
            runs=repeats,
            seed=self.seed,
            temperature=settings.temperature,
            max_output_tokens=settings.max_output_tokens,
            baseline=not self.no_baseline,
            judge=self.judge or ("" if self.cassette else settings.judge) or "",
            controls=self.controls,
            reference_skill=Skill.load(self.against) if self.against else None,
            agent=self.agent,
            distractors=load_skills(self.with_skills, beside=skill),
            bounds=self.bounds,
            sandbox=self.sandbox,
            gpu=settings.gpu,
            mcp_hosts=settings.mcp_hosts,
        )

    def parse_requirements(self) -> tuple[Requirement, ...]:
        if not self.requirements:
            return ()
        from upskill.verdicts.requirements import parse_requirement  # noqa: PLC0415 - arithmetic comes with it

        return tuple(parse_requirement(text) for text in self.requirements)

    def run_options(self, plan: Plan, executor: Executor) -> RunOptions:
        settings = self.settings
        cost, source = settings.making_cost, "making_cost"
        if cost is None:
            cost, source = making_cost(plan.skill, plan.reference_skill), META
        return RunOptions(
            executor=executor,
            redraw=self.redraw,
            partial=True,
            until_decided=self.until_decided,
            tolerance=self.tolerated_share,
            making_cost=cost,
            making_source="" if cost is None else source,
            strict_suite=settings.strict_suite,
            target=None if settings.target_pass_rate is None else settings.target_pass_rate / 100,
            requirements=self.parse_requirements(),
        )
