"""Functions with the names and signatures of upstream's library; the verbs of upskill do more."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Literal

from upskill.authoring.material.material import read_material
from upskill.authoring.revising import Failure, RevisionRequest
from upskill.authoring.revising.rewrite import propose_edits
from upskill.authoring.saving.provenance import Provenance
from upskill.authoring.writing.skill_writer import write_skill
from upskill.authoring.writing.suite_writer import write_suite
from upskill.authoring.writing.summarize import material_budget
from upskill.authoring.writing.teachers import HANDOFF_MODEL, NoTeacher
from upskill.models import Address, Model, ModelContext
from upskill.models.addresses import resolve
from upskill.models.pool import Models
from upskill.runs.planning.plan import PlanOptions, make_plan
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import evaluate
from upskill.runs.stores import Store, open_store
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.suites import Case, Suite


async def generate_skill(
    task: str,
    examples: Sequence[str] = (),
    model: str | None = None,
    config: Settings | None = None,
    *,
    models: Models | None = None,
    tokens: int = 1_500,
) -> Skill:
    settings = config or Settings.load()
    material = read_material(task, examples=examples)
    async with _open_model(model or settings.teacher, settings, models) as (address, teacher):
        skill, _ = await write_skill(material, teacher, tokens, budget=material_budget(address))
    return Provenance.of(skill).with_author(address.name, material.task).add_to(skill)


async def generate_tests(
    task: str,
    model: str | None = None,
    config: Settings | None = None,
    *,
    skill: Skill | None = None,
    models: Models | None = None,
    count: int = 12,
) -> Suite:
    settings = config or Settings.load()
    name = model or settings.test_writer or settings.teacher
    async with _open_model(name, settings, models, "test writer") as (address, writer):
        material, budget = replace(read_material(task), skill=skill), material_budget(address)
        return await write_suite(material, writer, count=count, author=address.name, budget=budget)


async def evaluate_skill(
    skill: Skill,
    tests: Suite | Sequence[Case] | None = None,
    model: str | None = None,
    config: Settings | None = None,
    *,
    runs: int = 1,
    store: Store | None = None,
    models: Models | None = None,
) -> Evaluation:
    suite = (
        Suite(tuple(tests), "given")
        if tests is not None and not isinstance(tests, Suite)
        else tests
    )
    settings = config or Settings.load()
    plan = make_plan(skill, suite, (model or settings.student or "local",), PlanOptions(runs=runs))
    with nullcontext(store) if store else open_store(None) as opened:
        evaluation = await evaluate(plan, store=opened, models=models)
        for result in opened.results(evaluation.run):
            case = plan.suite.by_id[result.trial.case]
            if result.trial.arm == "skill" and result.passed is False and not case.held_out:
                answer = result.trace.answer if result.trace else ""
                evaluation.failures.append(f"Asked: {case.prompt} Answered: {answer}")
    return evaluation


async def refine_skill(
    skill: Skill,
    failures: Sequence[str | Failure],
    model: str | None = None,
    config: Settings | None = None,
    *,
    models: Models | None = None,
    tokens: int = 1_500,
) -> Skill:
    """The skill with a few edits, or unchanged if none can be applied; `evaluate_skill` shows whether it is better."""
    settings = config or Settings.load()
    described = [
        failure if isinstance(failure, Failure) else Failure("", failure, "", ("failed",))
        for failure in failures
    ]
    async with _open_model(model or settings.teacher, settings, models) as (_, teacher):
        asked = RevisionRequest(
            model=teacher, skill=skill, failures=described, tokens=max(tokens, skill.tokens)
        )
        proposal = await propose_edits(asked)
    return proposal.skill if proposal else skill


@asynccontextmanager
async def _open_model(
    name: str | None,
    settings: Settings,
    models: Models | None,
    role: Literal["teacher", "test writer"] = "teacher",
) -> AsyncGenerator[tuple[Address, Model]]:
    async with models or Models(ModelContext.load(settings)) as opened:
        if not name:
            raise NoTeacher(opened.context.keys, [HANDOFF_MODEL], role=role)
        address = resolve(name, keys=opened.context.keys)
        yield address, await opened.get(address, role)
