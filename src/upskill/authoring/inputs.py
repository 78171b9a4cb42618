"""What one call of `generate` works with: everything is read and checked before the first paid call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from upskill.authoring.events import AuthoringEvents
from upskill.authoring.material.material import (
    Material,
    Tools,
    no_task,
    read_material,
    with_stored,
)
from upskill.authoring.material.sessions import latest_goal
from upskill.authoring.options import GenerateOptions
from upskill.authoring.revising import REFINERS, Refiner
from upskill.authoring.revising.feedback import Feedback, read_feedback
from upskill.authoring.saving.output import Destination
from upskill.authoring.writing.teachers import check_start, choose_teacher
from upskill.errors import UsageError
from upskill.models import Address
from upskill.models.addresses import resolve
from upskill.models.keys import find_keys
from upskill.models.pool import Models
from upskill.runs.planning.options import choose_students
from upskill.runs.planning.plan import Plan, PlanOptions, make_plan
from upskill.runs.running.executors import Executor
from upskill.runs.stores import Store, find_store
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.traces import Trace
from upskill.traces.redaction.redact import describe_counts

MAX_TASK = 2000  # characters
# To see whether a plan can be made.
_ANY_SKILL = Skill.new("task", "A task.", "A task.")
_ANY_SUITE = Suite.parse([{"id": "task", "prompt": "A task.", "checks": [{"contains": "done"}]}])


@dataclass(frozen=True, kw_only=True)
class Inputs:
    options: GenerateOptions
    keys: Mapping[str, str]
    tools: Sequence[Tools]
    material: Material
    feedback: Feedback
    own: Suite | None  # brought with --tests, or the older skill's
    requested: bool  # a change of the older skill
    teacher: Address
    writer: Address  # of tests
    student: Address | None  # None: nothing is evaluated
    attempts: int
    refiner: Refiner
    executor: Executor
    destination: Destination
    name: str  # of the skill; empty: the teacher chooses one
    notes: Sequence[str] = ()  # for the person, once the work begins

    @property
    def older(self) -> Skill | None:
        return self.material.skill

    @property
    def writes_cases(self) -> bool:
        """Somebody's own tests, given with a request, are what it is judged by."""
        return self.own is None or (self.requested and not self.options.tests)

    @property
    def case_count(self) -> int:
        """For feedback alone, a few cases for each answer that somebody found fault with."""
        if self.own and not self.options.task.strip():
            return min(self.options.cases, max(4, 2 * len(self.feedback.usable)))
        return self.options.cases

    def plan(self, skill: Skill, suite: Suite, reference: Skill | None = None) -> Plan:
        assert self.student is not None
        options = self.options
        plan_options = PlanOptions(
            base_url=options.base_url,
            runs=options.repeat_count,
            judge=options.judge or options.settings.judge or "",
            agent=options.agent,
            bounds=options.eval_bounds,
            sandbox=options.sandbox,
            keys=self.keys,
            reference_skill=reference,
        )
        return make_plan(skill, suite, (self.student.name,), plan_options)


async def check(
    options: GenerateOptions,
    *,
    store: Store | None = None,
    models: Models | None = None,
    events: AuthoringEvents | None = None,
) -> Inputs:
    """UsageError where anything cannot be used."""
    events = events or AuthoringEvents()
    tools = await check_start(options, models)
    keys = models.context.keys if models else find_keys()
    teacher = choose_teacher(options, keys)
    notes: list[str] = []
    material = _read(options, tools, (), notes)
    older = material.skill
    own = Suite.load(options.tests) if options.tests else Suite.of(older) if older else None
    feedback = _read_feedback(options, older, own, store, notes)
    material = feedback.add_to(material)
    writer = options.test_writer or (None if options.handoff else options.settings.test_writer)
    student: Address | None = None
    if not options.no_eval:
        named = (options.student,) if options.student else ()
        (name,) = choose_students(named, options.settings, notes.append, "--student")
        student = resolve(name, options.base_url, keys)
    destination = Destination(
        options.output,
        Path(options.settings.skills_dir),
        older,
        (teacher.name, material.task),
        force=options.force,
        events=events,
    )
    attempts = (
        options.settings.max_refine_attempts if options.attempts is None else options.attempts
    )
    inputs = Inputs(
        options=options,
        keys=keys,
        tools=tools,
        material=material,
        feedback=feedback,
        own=own,
        requested=bool(older and (options.task.strip() or feedback.usable)),
        teacher=teacher,
        writer=resolve(writer, keys=keys) if writer else teacher,
        student=student,
        attempts=attempts,
        refiner=REFINERS.load(options.refiner),
        executor=options.open_executor(),
        destination=destination,
        name=destination.choose_name(),
        notes=notes,
    )
    if student is not None:
        inputs.plan(_ANY_SKILL, own or _ANY_SUITE)
    return inputs


def with_session(inputs: Inputs, trace: Trace) -> Inputs:
    """With a session that was recorded meanwhile, and notes on that alone."""
    notes: list[str] = []
    material = _read(inputs.options, inputs.tools, (trace,), notes)
    return replace(inputs, material=inputs.feedback.add_to(material), notes=notes)


def _read(
    options: GenerateOptions, tools: Sequence[Tools], more: Sequence[Trace], notes: list[str]
) -> Material:
    sources = [*options.sources, *more]
    material = read_material(options.task, examples=options.examples, tools=tools, sources=sources)
    notes += [f"Read {line}." for line in material.sources]
    if not material.task:
        goal = latest_goal(material.traces)
        if not goal and material.skill:
            fix = ": fix what people found wrong with its answers" if options.feedback else ""
            goal = f"Improve the skill {material.skill.name}{fix}."
        if not goal:
            raise no_task(material, options.sources)
        material = replace(material, task=" ".join(goal.split())[:MAX_TASK])
    material = with_stored(material)
    if material.redacted:
        found = describe_counts(material.redacted)
        notes.append(f"Before anything was sent or saved, upskill {found}.")
    notes += [f"Left out: {left_out}." for left_out in material.left_out]
    return material


def _read_feedback(
    options: GenerateOptions,
    older: Skill | None,
    own: Suite | None,
    store: Store | None,
    notes: list[str],
) -> Feedback:
    if not options.feedback:
        return Feedback()
    if older is None:
        raise UsageError(
            "--feedback needs the skill that it is about", "Pass its folder with --from."
        )
    found = nullcontext(store) if store else find_store(options.store_location)
    with found or nullcontext() as opened:
        feedback = read_feedback(opened, older, own)
    notes += [f"Feedback on {line}." for line in feedback.outcomes()]
    return feedback
