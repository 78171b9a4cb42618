"""Trigger: run queries with a skill in an agent's catalog, and measure on which it activates."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from upskill.agents import AGENTS, Agent, Bounds
from upskill.agents.activation import activated, opened_skills
from upskill.authoring.trigger.metrics import (
    QUANTITIES,
    TriggerMetrics,
    compute_trigger_metrics,
)
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import (
    InvalidAnswer,
    StructuredRequest,
    ask,
    list_schema,
    text_schema,
)
from upskill.checks import Check, Evidence, Finding, SuiteCheck
from upskill.errors import UsageError
from upskill.models import Address, CacheMode, Model
from upskill.models.addresses import resolve
from upskill.models.keys import find_keys
from upskill.models.ledger import Ledger
from upskill.models.pool import Models
from upskill.options import option
from upskill.outputs import whole_file
from upskill.plain import as_list, object_schema
from upskill.runs.planning.estimate import (
    CostEstimate,
    check_prices,
    estimate,
    estimate_writing,
)
from upskill.runs.planning.options import MAX_REPEATS, MeasureOptions, choose_students, model_option
from upskill.runs.planning.plan import Plan, PlanOptions, Result, Trial, make_plan
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions, evaluate
from upskill.runs.running.events import Events
from upskill.runs.stores import Run, Store
from upskill.skills import Skill, load_skills
from upskill.skills.agent_specs import REAL_AGENTS
from upskill.suites import Case, Suite
from upskill.suites.queries import FIRES, PATHS_IN_SKILL, Queries, Query, starter_warning
from upskill.traces.redaction.redact import redact
from upskill.verdicts.requirements import Requirement, Ruling, check_number, parse_requirement

MAX_TURNS = 3  # of the model in one run: one that wants a skill opens it early
MAX_BODY = 6_000  # characters of the body that a model is shown
TRIGGER_PLAN = PlanOptions(agent="tools", runs=3, bounds=Bounds(MAX_TURNS))


def agent_option() -> Any:
    """For agents with a catalog."""
    what = f"How the student works: tools (built-in agent), or a real agent: {REAL_AGENTS}."
    return option("--agent", default="tools", help=what, metavar="AGENT", show_default=True)


@dataclass(kw_only=True)
class TriggerOptions(MeasureOptions):
    default_bounds: ClassVar[Bounds] = Bounds(MAX_TURNS)
    default_repeats: ClassVar[int] = 3

    skill: str  # its folder
    agent: str = agent_option()
    with_skills: tuple[str, ...] = option(
        "--with-skills",
        default=(),
        help="Other skills to put in the catalog: a skill, or a folder of skills; repeatable.",
        metavar="DIR",
    )
    repeats: int | None = option(
        "--repeats",
        default=None,
        help="How many times to run each query.",
        metavar="N",
        minimum=1,
        maximum=MAX_REPEATS,
        show_default="default_repeats",
    )
    replay: bool = option(
        "--replay",
        default=False,
        help="Answer from stored replies only: no key, no calls, no cost.",
    )
    queries: str | None = option(
        "--queries",
        default=None,
        help="The queries (default: evals/eval_queries.json in the skill's folder).",
        metavar="FILE",
    )
    test_writer: str | None = model_option(
        "--test-writer", help="Writes the queries when the skill has none."
    )
    count: int = option(
        "--count",
        default=20,
        help="How many queries to write: half should trigger, half are near misses.",
        metavar="N",
        minimum=6,
        maximum=100,
        show_default=True,
    )
    requirements: tuple[str, ...] = option(
        "--require",
        default=(),
        help='Exit with 1 unless this holds, e.g. "recall>=0.8", "precision>=0.9"; repeatable. Judged at the '
        'unfavorable end of the interval unless written as "point:recall>=0.8".',
        metavar="CONDITION",
    )
    teacher: str | None = model_option(
        "--teacher", help="Rewrites the description (default: settings)."
    )
    attempts: int = option(
        "--attempts",
        default=5,
        help="How many descriptions to try.",
        metavar="N",
        minimum=1,
        show_default=True,
    )
    write: bool = option(
        "--write",
        default=False,
        help="Update SKILL itself if the test queries show that the new description is better.",
    )
    output: str | None = option(
        "-o",
        "--output",
        default=None,
        help="Write the improved skill to this folder instead of updating SKILL.",
        metavar="DIR",
    )
    force: bool = option("--force", default=False, help="Replace the output folder if it exists.")

    @property
    def cache_mode(self) -> CacheMode:
        return "replay" if self.replay else super().cache_mode


@dataclass(frozen=True)
class TriggerResult:
    queries: Queries
    evaluation: Evaluation
    metrics: tuple[TriggerMetrics, ...]  # of each student
    rulings: tuple[tuple[str, Ruling], ...]  # a student, and how it met a requirement
    spent: Mapping[str, tuple[int, float | None]]  # tokens and dollars by role

    @property
    def has_failed(self) -> bool:
        """The numbers cannot be relied on, for another reason than a ceiling: too many errors, a leak, or a bug."""
        if self.evaluation.leaked or self.evaluation.stopped or self.evaluation.bugs:
            return True
        return not self.evaluation.halted and any(
            metrics.too_many_errors for metrics in self.metrics
        )


async def trigger(
    options: TriggerOptions,
    *,
    store: Store | None = None,
    models: Models | None = None,
    events: Events | None = None,
) -> TriggerResult:
    """Run each query of a skill and measure how well it triggers; queries are written first if there are none."""
    requirements = [parse_requirement(text, QUANTITIES) for text in options.requirements]
    session = TriggerSession(options, models, events or Events())
    if session.queries is not None:
        session.check_queries(session.queries)
    async with session.open(store):
        queries = await session.find_queries()
        evaluation = await session.evaluate(session.plan(session.skill, queries))
    students = evaluation.plan.models
    metrics = tuple(
        compute_trigger_metrics(student.name, queries, evaluation.outcomes) for student in students
    )
    rulings = tuple(
        (student.model, _rule(requirement, student, evaluation))
        for student in metrics
        for requirement in requirements
    )
    return TriggerResult(queries, evaluation, metrics, rulings, session.spent)


def _rule(requirement: Requirement, metrics: TriggerMetrics, evaluation: Evaluation) -> Ruling:
    if evaluation.halted:
        return Ruling(requirement, held=False, reason="the run was stopped before it was complete")
    estimate = metrics.estimate(requirement.quantity)
    return check_number(requirement, estimate)


class TriggerSession:
    """What measuring and improving share. Options are checked when it is made, before anything is paid for."""

    store: Store
    models: Models

    def __init__(
        self,
        options: TriggerOptions,
        models: Models | None,
        events: Events,
        teacher: Address | None = None,
    ) -> None:
        self.options = options
        self.events = events
        self.teacher = teacher
        self.given_models = models
        self.keys = models.context.keys if models else find_keys()
        self.skill = Skill.load(options.skill)
        # `--with-skills ./skills` may hold the skill under test too.
        self.distractors = load_skills(options.with_skills, beside=self.skill)
        names = choose_students(options.students, options.settings, events.message)
        self.students = tuple(resolve(name, options.base_url, self.keys) for name in names)
        self.queries = Queries.load(options.queries) if options.queries else Queries.of(self.skill)
        writer = (
            options.test_writer
            or options.settings.test_writer
            or (teacher.name if teacher else None)
        )
        if not self.queries and not writer:
            raise UsageError(
                f"{self.skill.folder}: no queries found",
                f"Pass a file with --queries, put one in the skill's folder as {PATHS_IN_SKILL[0]}, or let a model"
                " write them with --test-writer MODEL.",
            )
        self.writer = resolve(writer, keys=self.keys) if writer and not self.queries else None
        self.executor = options.open_executor()

    def check_queries(self, queries: Queries) -> None:
        """UsageError if these queries cannot be run; a message if they cannot tell everything."""
        self.plan(self.skill, queries)
        if not queries.should_trigger or not queries.should_not_trigger:
            lacking = "should trigger" if not queries.should_trigger else "should not trigger"
            self.events.message(f"No query {lacking}, so precision is unknown.")
        if warning := starter_warning(self.skill, queries):
            self.events.message(f"Warning: {warning}.")

    def plan(self, skill: Skill, queries: Queries) -> Plan:
        options = self.options
        return make_trigger_plan(
            skill,
            queries,
            [student.name for student in self.students],
            PlanOptions(
                base_url=options.base_url,
                runs=options.repeat_count,
                seed=options.seed,
                temperature=options.settings.temperature,
                max_output_tokens=options.settings.max_output_tokens,
                agent=options.agent,
                distractors=self.distractors,
                bounds=options.bounds,
                sandbox=options.sandbox,
                keys=self.keys,
            ),
        )

    @asynccontextmanager
    async def open(self, store: Store | None) -> AsyncGenerator[None]:
        options = self.options
        if not self.distractors:
            self.events.message(
                "Only this skill is in the catalog. It is activated less often among others: see --with-skills."
            )
        with nullcontext(store) if store else options.open_store() as self.store:
            self.models = self.given_models or Models(
                options.model_context(self.events),
                replies=self.store,
                cache=options.cache_mode,
                ledger=Ledger(options.ceilings),
            )
            if options.max_cost is not None and not options.replay:
                every = [*self.students, self.teacher, self.writer]
                check_prices(filter(None, every), self.models.context.prices)
            async with self.models:
                yield

    @property
    def spent(self) -> dict[str, tuple[int, float | None]]:
        by_role = self.models.ledger.spent if self.models.ledger else {}
        return {role: (usage.total_tokens, usage.cost_usd) for role, usage in by_role.items()}

    def announce(self, expected: CostEstimate) -> None:
        if not self.options.replay:
            self.events.estimate(expected)

    async def open_models(self) -> Model | None:
        """Open every student and the teacher, so that a missing key is found before anything is paid for."""
        for student in self.students:
            await self.models.get(student)
        return await self.models.get(self.teacher, "teacher") if self.teacher else None

    async def find_queries(self) -> Queries:
        if self.queries is not None:
            return self.queries
        assert self.writer is not None
        assert self.skill.folder is not None
        await self.open_models()
        writer = await self.models.get(self.writer, "test writer")
        material = sum(skill.tokens for skill in (self.skill, *self.distractors))
        count, prices = self.options.count, self.models.context.prices
        self.announce(
            estimate_writing(
                self.writer, prices, material=material, items=count, each=60, calls=(1, 3)
            )
        )
        self.events.message(f"Generating queries with {self.writer.name}...")
        queries = await write_queries(self.skill, writer, count=count, distractors=self.distractors)
        file = self.skill.folder / PATHS_IN_SKILL[0]
        with whole_file(file) as stream:
            stream.write(
                f"{json.dumps([query.to_dict() for query in queries.all], indent=2, ensure_ascii=False)}\n".encode()
            )
        self.skill, self.queries = Skill.load(self.skill.folder), Queries.load(file)
        self.events.message(f"Wrote {len(self.queries)} queries to {self.queries.source}")
        self.check_queries(self.queries)
        return self.queries

    async def evaluate(self, plan: Plan, announcement: str = "") -> Evaluation:
        """Run what is missing of a plan, after this announcement or, without one, after the estimate of its cost."""

        def started(plan: Plan, run: Run, missing: Collection[Trial]) -> None:
            if announcement:
                self.events.message(announcement)
            else:
                if done := len(plan) - len(missing):
                    verb = "Continuing run" if run.resumed else "New run"
                    self.events.message(f"{verb} {run.id}: {done} of {len(plan)} runs are stored.")
                self.announce(estimate(plan, missing, self.models.context.prices))
            self.events.started(plan, run, missing)

        return await evaluate(
            plan,
            store=self.store,
            models=self.models,
            options=RunOptions(
                executor=self.executor,
                redraw=self.options.redraw,
                purpose="trigger",
                partial=True,
            ),
            events=Events(started=started, result=self.events.result, message=self.events.message),
        )


class TriggerCheck(Check):
    """Passes if the skill was opened just where it should be; fails without one, or an empty answer could pass."""

    expected: bool
    reads_answer: ClassVar[bool] = False

    async def run(self, evidence: Evidence) -> Finding:
        if not evidence.skill:
            return Finding(False, "no skill was available")
        opened = activated(evidence.trace, evidence.skill, evidence.canary)
        remark = (
            "as expected"
            if opened is self.expected
            else f"but should{' not' if opened else ''} have been"
        )
        return Finding(
            opened is self.expected,
            f"{evidence.skill} was {'' if opened else 'not '}opened, {remark}",
        )


def suite_of(queries: Queries) -> Suite:
    cases = (
        Case(
            query.id,
            query.text,
            (SuiteCheck(FIRES, query.should_trigger, TriggerCheck(expected=query.should_trigger)),),
            tags=("should trigger" if query.should_trigger else "should not",),
            held_out=queries.parts[query.text] == "test",
        )
        for query in queries
    )
    return Suite(tuple(cases), queries.source)


def make_trigger_plan(
    skill: Skill,
    queries: Queries,
    models: Iterable[str] = ("local",),
    options: PlanOptions | None = None,
) -> Plan:
    """A plan that runs each query with the skill among others until it is opened; each is a case with one check."""
    options = options or TRIGGER_PLAN
    agent: type[Agent] = AGENTS.load(options.agent)
    if not agent.needs_sandbox:
        raise UsageError(
            f"the {options.agent!r} agent has no skill catalog, so it cannot activate a skill",
            "Choose an agent with a catalog, for example --agent tools.",
        )
    options = replace(options, baseline=False, bounds=replace(options.bounds, until_activated=True))
    return make_plan(skill, suite_of(queries), models, options)


def skills_opened(result: Result, skill: str, others: Iterable[str]) -> tuple[str, ...] | None:
    """Which of these an agent opened, in that order; None if the trial errored."""
    if result.passed is None or result.trace is None:
        return None
    opened = opened_skills(result.trace, (skill, *others))
    # It may have read the skill in another way, which the canary shows.
    return (*opened, skill) if result.activated and skill not in opened else opened


async def write_queries(
    skill: Skill, model: Model, *, count: int = 20, distractors: Sequence[Skill] = ()
) -> Queries:
    """Half should trigger the skill, half are near-misses."""
    half = max(2, (count + 1) // 2)
    items = list_schema(text_schema(600), half, half)
    request = StructuredRequest(
        "writing queries",
        read_prompt("write_queries", half=half),
        json.dumps(describe_skill(skill, distractors), ensure_ascii=False),
        object_schema({"should_trigger": items, "should_not_trigger": items}),
        max_output_tokens=2 * half * 150 + 1000,
        title="1-queries",
    )

    async def read(answer: dict[str, Any]) -> tuple[Queries, list[str]]:
        return _read_queries(answer, skill, half)

    return await ask(model, request, read)


def describe_skill(skill: Skill, distractors: Sequence[Skill]) -> dict[str, Any]:
    body = redact(skill.body)
    return {
        "name": skill.name,
        "description": skill.description,
        "body": body if len(body) <= MAX_BODY else f"{body[:MAX_BODY]} …",
        "beside": [{"name": other.name, "description": other.description} for other in distractors],
    }


def _read_queries(answer: dict[str, Any], skill: Skill, half: int) -> tuple[Queries, list[str]]:
    """Each query once, and what is wrong with others. InvalidAnswer where more than a fifth of a kind is missing."""
    usable: dict[str, Query] = {}
    wrong: list[str] = []
    for field, should in (("should_trigger", True), ("should_not_trigger", False)):
        for item in as_list(answer.get(field)) or []:
            text = " ".join(item.split()) if isinstance(item, str) else ""
            if not text:
                wrong.append(f"{field} has an empty request")
            elif text.casefold() in usable:
                wrong.append(f"{text[:60]!r} appears twice")
            elif "-" in skill.name and skill.name in text.lower():
                wrong.append(f"{text[:60]!r} names the skill")
            else:
                usable[text.casefold()] = Query(text, should)
    wrong = wrong[:8]
    counts: list[int] = []
    for field, should in (("should_trigger", True), ("should_not_trigger", False)):
        counts.append(sum(query.should_trigger is should for query in usable.values()))
        if counts[-1] < half:
            wrong.append(f"{field} has {counts[-1]} usable requests; {half} are needed")
    if min(counts) < max(2, half - (half - 1) // 5):
        raise InvalidAnswer("; ".join(wrong))
    return Queries(tuple(usable.values()), "generated"), wrong
