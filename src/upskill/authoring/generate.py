"""Generate: from a task, examples, tools, documents, traces or an older skill to a skill that is tested and proven.

Everything that can be wrong is found before the first paid call. The folder is written at the very end, all of it or
nothing. Replies and results are stored as they arrive, so the same call continues after any interruption.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from upskill.authoring.events import AuthoringEvents
from upskill.authoring.extract import extract
from upskill.authoring.failures import stored_failures
from upskill.authoring.material import Material, gather
from upskill.authoring.options import GenerateOptions
from upskill.authoring.output import check_output, named_after
from upskill.authoring.provenance import Provenance, SearchCost, add_suite
from upskill.authoring.refine import Refinement, RefineOptions, refine
from upskill.authoring.refiners import REFINERS, Refiner, RefinerFactory
from upskill.authoring.skill_writer import write_skill
from upskill.authoring.structured import forget_unusable_answers
from upskill.authoring.suite_writer import write_suite
from upskill.authoring.summarize import material_budget, summarize
from upskill.errors import UpskillError, UsageError
from upskill.models import Address, Models
from upskill.models.addresses import resolve
from upskill.models.cache import track_usage
from upskill.models.keys import find_keys
from upskill.models.ledger import Ledger
from upskill.plain import digest
from upskill.runs.estimate import SearchSize, estimate_search
from upskill.runs.evaluate import check_suite_quality
from upskill.runs.evaluation import Evaluation
from upskill.runs.options import choose_students
from upskill.runs.plan import Plan, PlanOptions, make_plan
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.suites import OWN_FACTS, Suite
from upskill.traces import NO_USAGE, Trace, Usage
from upskill.traces.redact import describe_counts

EXTRACT = "extract"  # the teacher that compiles traces by rules, without a model
_PLACEHOLDER = Skill.new("task", "A task.", "A task.")  # to see whether a plan can be made


@dataclass(frozen=True)
class Generated:
    """A skill that was made and saved, with its tests and what is known about it."""

    skill: Skill
    folder: Path
    suite: Suite
    material: Material
    teacher: Address
    student: Address | None  # None: nothing was evaluated
    refinement: Refinement | None
    cost: SearchCost  # of making it, including earlier calls that were interrupted
    spent: Mapping[str, Usage]  # by this call, by role
    calls: int  # of models, by this call

    @property
    def fit(self) -> Evaluation | None:
        """On the train cases that also chose the skill."""
        return self.refinement.fit if self.refinement else None

    @property
    def held_out(self) -> Evaluation | None:
        """On cases that nothing before has seen: the number to believe."""
        return self.refinement.held_out if self.refinement else None

    @property
    def evaluations(self) -> list[Evaluation]:
        return self.refinement.evaluations if self.refinement else []

    @property
    def has_failed(self) -> bool:
        """The numbers cannot be relied on: too many errors on held-out cases, a leak, or a bug in upskill."""
        if any(evaluation.leaked or evaluation.bugs for evaluation in self.evaluations):
            return True
        return self.held_out is not None and self.held_out.too_many_errors


async def generate(
    options: GenerateOptions,
    *,
    store: Store | None = None,
    models: Models | None = None,
    events: AuthoringEvents | None = None,
) -> Generated:
    """Write a skill and its tests, improve it on train cases, measure it once on held-out cases, and save it."""
    return await Generation(options, models, events or AuthoringEvents()).run(store)


def generate_now(
    options: GenerateOptions,
    *,
    store: Store | None = None,
    models: Models | None = None,
    events: AuthoringEvents | None = None,
) -> Generated:
    """`generate` for code that is not asynchronous."""
    return asyncio.run(generate(options, store=store, models=models, events=events))


class Generation:
    """One call of `generate`. Options are checked when it is made, before anything is opened or paid for."""

    def __init__(self, options: GenerateOptions, models: Models | None, events: AuthoringEvents) -> None:
        self.options = options
        self.models = models
        self.events = events
        self.keys = models.context.keys if models else find_keys()
        self.material = self.gather()
        older = self.material.skill
        self.suite = Suite.load(options.tests) if options.tests else Suite.of(older) if older else None
        self.extracts = options.model == EXTRACT
        self.teacher = self._choose_teacher()
        writer = options.test_gen_model or (None if options.handoff else options.settings.test_gen_model)
        self.writer = resolve(writer, keys=self.keys) if writer else self.teacher
        self.student = None if options.no_eval else self._choose_student()
        self.attempts = 0 if self.extracts else options.max_attempts
        self.refiner: RefinerFactory = REFINERS.load(options.refiner)
        self.executor = options.open_executor()
        self.name = self._choose_name()
        self.recorded = NO_USAGE  # of a lesson: its replies may have been paid for long ago
        if self.suite is not None and self.student is not None:
            self._plan(_PLACEHOLDER, self.suite)

    async def run(self, store: Store | None) -> Generated:
        with self._opened(store) as (kept, models):
            with track_usage() as used:
                async with models:
                    await self._prepare(models)
                    skill, suite, refinement = await self._make(models, kept)
            cost = self._cost(used.values(), refinement, kept)
        folder = self._folder(skill)
        skill = named_after(folder, skill)
        skill = add_suite(self._provenance(skill, refinement).with_cost(cost).add_to(skill), suite)
        skill.save(folder, overwrite=True)
        ledger = models.ledger or Ledger()
        return Generated(
            skill,
            folder,
            suite,
            self.material,
            self.teacher,
            self.student,
            refinement,
            cost,
            dict(ledger.spent),
            ledger.calls,
        )

    async def only_prepare(self, store: Store | None) -> None:
        """Stop before anything is written."""
        with self._opened(store) as (_, models):
            async with models:
                await self._prepare(models)

    @contextmanager
    def _opened(self, store: Store | None) -> Generator[tuple[Store, Models]]:
        options = self.options
        with nullcontext(store) if store else options.open_store() as kept:
            yield (
                kept,
                self.models
                or Models(options.model_context(self.events), replies=kept, ledger=Ledger(options.ceilings)),
            )

    # What is given.

    def gather(self, *more: Trace) -> Material:
        """All that the skill is made from, with its secrets redacted."""
        options, tell = self.options, self.events.message
        material = gather(
            options.task, examples=options.examples, tools=options.tools, sources=[*options.sources, *more]
        )
        if not material.task:
            goal = next((trace.goal for trace in material.traces if trace.goal), "")
            goal = goal or (f"Improve the skill {material.skill.name}." if material.skill else "")
            if not goal:
                raise UsageError(
                    "there is no task", 'Say what the skill is for: upskill generate "…", or give a trace with --from.'
                )
            material = replace(material, task=" ".join(goal.split())[:2000])
        if material.redacted:
            tell(f"Before anything was sent or kept: {describe_counts(material.redacted)}.")
        for left_out in material.left_out:
            tell(f"Left out: {left_out}.")
        return material

    def _choose_teacher(self) -> Address:
        options = self.options
        if options.handoff:
            if options.model:
                raise UsageError("--handoff and --model contradict each other")
            return resolve(f"handoff:{options.handoff}")
        if self.extracts:
            if not self.material.traces:
                raise UsageError("-m extract compiles traces, and none was given", "Give one with --from.")
            return Address(EXTRACT, EXTRACT, "")
        name = options.model or options.settings.skill_generation_model
        if not name:
            name = "local"
            self.events.message(
                "No teacher was named, so it is `local`, the small embedded model: good enough to try the mechanics,"
                " not to write anything of use. Choose another with -m."
            )
        return resolve(name, keys=self.keys)

    def _choose_student(self) -> Address:
        options = self.options
        named = (options.eval_model,) if options.eval_model else ()
        (name,) = choose_students(named, options.settings, self.events.message, "--eval-model")
        return resolve(name, options.eval_base_url, self.keys)

    def _choose_name(self) -> str:
        """The skill's name where --output or the skill to be improved decides it; else empty."""
        if not self.options.output:
            return self.material.skill.name if self.material.skill else ""
        folder = Path(self.options.output)
        check_output(folder, may_replace=self.options.force or self._is_ours(folder))
        return folder.name

    def _folder(self, skill: Skill) -> Path:
        """Where the skill is saved: --output, or a folder of its name that holds nobody else's skill."""
        if self.options.output:
            return Path(self.options.output)
        skills, number = Path(self.options.settings.skills_dir), 1
        while (folder := skills / (f"{skill.name}-{number}" if number > 1 else skill.name)).exists():
            if self.options.force or self._is_ours(folder):
                break
            number += 1
        return folder

    def _is_ours(self, folder: Path) -> bool:
        """Whether the folder holds the skill to be improved, or what the same task and teacher made before."""
        older = self.material.skill
        if older is not None and older.folder is not None and folder.resolve() == older.folder:
            return True
        try:
            found = Provenance.of(Skill.load(folder)).metadata
        except UpskillError:
            return False
        return (found.get("generated_by"), found.get("source_task")) == (self.teacher.name, self.material.task)

    def _plan(self, skill: Skill, suite: Suite) -> Plan:
        assert self.student is not None
        return make_plan(
            skill,
            suite,
            (self.student.name,),
            PlanOptions(
                base_url=self.options.eval_base_url,
                runs=self.options.runs,
                judge=self.options.judge_model or self.options.settings.judge_model or "",
                keys=self.keys,
            ),
        )

    # How it is made.

    async def _prepare(self, models: Models) -> None:
        await self._open_models(models)
        self._announce_cost(models)
        await self.learn(models)

    async def learn(self, models: Models) -> None:
        """Add to the material. The teacher of `teach` does its task here."""

    async def _make(self, models: Models, store: Store) -> tuple[Skill, Suite, Refinement | None]:
        drafts, suite, material = await self._write(models)
        for warning in await check_suite_quality(suite, drafts[0]):
            self.events.message(f"Note: {warning}")
        if self.student is None:
            return await self._edit_unproven(drafts[0], suite, material, models, store), suite, None
        found = await self._refine(drafts, suite, material, models, store)
        return found.skill, suite, found

    async def _open_models(self, models: Models) -> None:
        """Open all that will be asked: a missing key is found before anything is paid for."""
        if self.student is not None:
            await models.get(self.student)
            judge = self._plan(_PLACEHOLDER, self.suite).judge if self.suite else None
            if judge:
                await models.get(judge, "judge")
        if not self.extracts:
            await models.get(self.teacher, "teacher")
            if self.suite is None:
                await models.get(self.writer, "test writer")

    def _announce_cost(self, models: Models) -> None:
        if self.extracts:
            return
        size = SearchSize(
            material=min(self.material.tokens, material_budget(self.teacher)),
            tokens=self.options.tokens,
            cases=len(self.suite.cases) if self.suite else self.options.cases,
            drafts=self.options.candidates,
            attempts=self.attempts,
        )
        expected = estimate_search(self.teacher, self.writer, self.student, models.context.prices, size)
        if self.options.max_cost is not None:
            expected.check_prices()
        self.events.estimate(expected)

    async def _write(self, models: Models) -> tuple[list[Skill], Suite, Material]:
        """The drafts, the suite, and the material as it fits into a prompt."""
        if self.extracts:
            return await self._extract()
        budget, tell = material_budget(self.teacher), self.events.message
        teacher = await models.get(self.teacher, "teacher")
        async with forget_unusable_answers(models):
            material = await summarize(self.material, teacher, budget=budget, tell=tell)
        drafts = [self.material.skill] if self.material.skill else []
        if not drafts:
            tell(f"Generating skill with {self.teacher.name}...")
            for number in range(self.options.candidates):
                async with forget_unusable_answers(models):
                    draft = await write_skill(
                        material,
                        teacher,
                        self.options.tokens,
                        name=self.name or (drafts[0].name if drafts else ""),
                        seed=number or None,
                        budget=budget,
                        tell=tell,
                    )
                drafts.append(draft)
        return drafts, self.suite or await self._write_suite(drafts[0], models), material

    async def _write_suite(self, skill: Skill, models: Models) -> Suite:
        self.events.message("Generating test cases...")
        writer = await models.get(self.writer, "test writer")
        try:
            async with forget_unusable_answers(models):
                return await write_suite(
                    skill,
                    writer,
                    count=self.options.cases,
                    material=self.material,
                    budget=material_budget(self.writer),
                    tell=self.events.message,
                )
        except UpskillError as error:
            if type(error) is not UpskillError:
                raise
            raise UpskillError(
                f"the skill was written, its test cases were not: {error.message}", f"{error.hint} Nothing was saved."
            ) from error

    async def _extract(self) -> tuple[list[Skill], Suite, Material]:
        self.events.message("Compiling the trace into a skill and its test cases, by rules alone...")
        found = await extract(self.material.traces, name=self.name, tokens=self.options.tokens)
        if found.left_out:
            self.events.message(
                f"Left out: {len(found.left_out)} facts that do not fit into {self.options.tokens} tokens."
            )
        provenance = Provenance().with_sources(found.sources, self.material.excerpts())
        return [provenance.add_to(found.skill)], self.suite or found.suite, self.material

    async def _open_refiner(self, skill: Skill, material: Material, models: Models) -> Refiner:
        teacher = await models.get(self.teacher, "teacher")
        return self.refiner(teacher, material, max(self.options.tokens, skill.tokens))

    async def _edit_unproven(
        self, skill: Skill, suite: Suite, material: Material, models: Models, store: Store
    ) -> Skill:
        """With --no-eval an older skill gets its edits without a gate, and a message says so."""
        if self.material.skill is None:
            return skill
        self.events.message(f"Improving {skill.name} with {self.teacher.name}, unproven: --no-eval runs nothing...")
        student = resolve(self.options.settings.eval_model or "local", keys=self.keys)
        refiner = await self._open_refiner(skill, material, models)
        proposal = await refiner.propose(skill, stored_failures(store, skill, student, suite), (), 1)
        return proposal.skill if proposal else skill

    async def _refine(
        self, drafts: list[Skill], suite: Suite, material: Material, models: Models, store: Store
    ) -> Refinement:
        options, student = self.options, self.student
        assert student is not None
        # Stored searches are found by this digest; a refiner is part of it where it is not the usual one.
        search = [material.task, self.teacher.name, student, suite.fingerprint, options.tokens, options.runs]
        search += [] if options.refiner == "rewrite" else [options.refiner]
        return await refine(
            drafts,
            suite,
            self._plan,
            store=store,
            models=models,
            options=RefineOptions(
                refiner=await self._open_refiner(drafts[0], material, models) if self.attempts else None,
                attempts=self.attempts,
                target=options.target / 100,
                search=digest(search),
                known_failures=stored_failures(store, drafts[0], student, suite) if self.material.skill else (),
                executor=self.executor,
            ),
            events=self.events,
        )

    # What is kept with it.

    def _cost(self, used: Iterable[tuple[str, Usage]], refinement: Refinement | None, store: Store) -> SearchCost:
        """What it cost by role: teacher and test writer by their replies, students and judge by the stored trials."""
        by_role = {"teacher": self.recorded, "test writer": NO_USAGE}
        for role, usage in used:
            if role in by_role:
                by_role[role] = by_role[role] + usage
        spent = {role: (usage.total_tokens, usage.cost_usd) for role, usage in by_role.items() if usage != NO_USAGE}
        runs = [evaluation.run for evaluation in refinement.evaluations] if refinement else []
        older = self.material.skill
        search = digest([self.material.task, self.teacher.name, older.visible_hash if older else ""])
        return SearchCost(search, spent | store.spent(*runs))

    def _provenance(self, skill: Skill, refinement: Refinement | None) -> Provenance:
        """Who made the skill, and its pass rate: on held-out cases where there are some, else the fit."""
        provenance = Provenance.of(skill).with_author(self.teacher.name, self.material.task)
        evaluation = (refinement.held_out or refinement.fit) if refinement else None
        if refinement is None or evaluation is None:
            return provenance
        verdict = evaluation.verdicts[0]
        own_facts = any(OWN_FACTS in case.tags for case in evaluation.plan.suite.cases)
        known = {
            "test_pass_rate": verdict.skill.pass_rate,
            "baseline_pass_rate": verdict.baseline.pass_rate,
            "evaluated_on": verdict.model,
            "evaluated_cases": OWN_FACTS if own_facts else "held-out" if refinement.held_out else "fit",
            "pairs": verdict.pairs,
            "decision": verdict.decision,
        }
        return replace(provenance, metadata=dict(provenance.metadata) | known)
