"""How generate and teach carry out a wish: gather, write, test, refine, save all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import click

from upskill.authoring.create import material_budget, summarize, write_skill, write_suite
from upskill.authoring.extract import extract
from upskill.authoring.material import Material, gather
from upskill.authoring.output import check_output, named_after
from upskill.authoring.provenance import Provenance, SearchCost, add_suite
from upskill.authoring.refine import Refinement, refine, stored_failures
from upskill.authoring.refiners.rewrite import Rewrite
from upskill.authoring.structured import NoUsableAnswer
from upskill.cli.console import note
from upskill.cli.made import Made, Progress, report, with_result
from upskill.cli.options import choose_students, confirm_cost, model_context
from upskill.cli.wish import GenerateOptions
from upskill.errors import UpskillError, UsageError
from upskill.models import Address, ModelContext, Models
from upskill.models.addresses import resolve
from upskill.models.cache import track_keys, track_usage
from upskill.models.keys import find_keys
from upskill.models.ledger import Ledger
from upskill.plain import digest
from upskill.runs.estimate import SearchSize, estimate_search
from upskill.runs.evaluate import check_suite_quality
from upskill.runs.executors.local import Local
from upskill.runs.plan import Plan, PlanOptions, make_plan
from upskill.runs.stores import Store, open_store
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.traces import NO_USAGE, Trace, Usage
from upskill.traces.redact import describe_counts

EXTRACT = "extract"
_STAND_IN = Skill.new("task", "A task.", "A task.")  # for a plan that is only made to see whether it can be


class Lesson(Protocol):
    """Something that happens first and leaves a trace, which the skill is then made from."""

    def describe(self) -> str:
        """What it may cost, which no estimate knows."""
        ...

    async def learn(self, wish: GenerateOptions, teacher: Address, models: Models) -> Trace: ...

    def told(self) -> Mapping[str, Any]:
        """What is known of it afterwards, as plain data."""
        ...

    def usage(self) -> Usage:
        """What it used, whoever paid for it."""
        ...


def run_generate(wish: GenerateOptions, lesson: Lesson | None = None) -> None:
    """Make the skill, save it, and print what is known of it. Exits with 3 when it could not be evaluated."""
    maker = _Maker(wish, _material(wish), lesson)
    with open_store(wish.store_place) as store:
        try:
            made = asyncio.run(maker.make(store))
        except KeyboardInterrupt:
            if store.location is not None:
                note("Interrupted. No skill was written; the same command goes on from what is stored.")
            raise
        place = maker.place_for(made.skill)
        skill = add_suite(with_result(replace(made, skill=named_after(place, made.skill))), made.suite)
        skill.save(place, overwrite=True)
        report(replace(made, skill=skill), wish, place)
    held_out = made.refinement.held_out if made.refinement else None
    if held_out is not None and held_out.too_many_errors:
        raise click.exceptions.Exit(3)


def _material(wish: GenerateOptions, *more: Trace) -> Material:
    material = gather(wish.task, examples=wish.examples, tools=wish.tools, sources=[*wish.sources, *more])
    if not material.task:
        goal = next((trace.goal for trace in material.traces if trace.goal), "")
        goal = goal or (f"Improve the skill {material.skill.name}." if material.skill else "")
        if not goal:
            raise UsageError(
                "there is no task", 'Say what the skill is for: upskill generate "…", or give a trace with --from.'
            )
        material = replace(material, task=" ".join(goal.split())[:2000])
    if material.redacted:
        wish.tell(f"Before anything was sent or kept: {describe_counts(material.redacted)}.")
    for left_out in material.left_out:
        wish.tell(f"Left out: {left_out}.")
    return material


class _Maker:
    """Carries out one wish: everything is looked up and checked when it is made, before anything is paid for."""

    def __init__(self, wish: GenerateOptions, material: Material, lesson: Lesson | None = None) -> None:
        self.wish = wish
        self.material = material
        self.lesson = lesson
        settings, keys = wish.settings, find_keys()
        self.suite = Suite.load(wish.tests) if wish.tests else Suite.of(material.skill) if material.skill else None
        self.extracts = wish.model == EXTRACT
        self.teacher = self._teacher(keys)
        writer = wish.test_gen_model or (None if wish.handoff else settings.test_gen_model)
        self.writer = resolve(writer, keys=keys) if writer else self.teacher
        self.student: Address | None = None
        if not wish.no_eval:
            named = (wish.eval_model,) if wish.eval_model else ()
            known = choose_students(named, settings, quiet=wish.silent, option="--eval-model")
            self.student = resolve(known[0], wish.eval_base_url or "", keys=keys)
        self.attempts = 0 if self.extracts else settings.max_refine_attempts if wish.attempts is None else wish.attempts
        self.name = self._name()
        self.context: ModelContext = model_context(
            settings,
            quiet=wish.silent,
            offline=wish.offline,
            timeout=wish.timeout,
            connections=wish.concurrency or settings.concurrency,
        )
        self.ledger = Ledger(wish.ceilings)
        if self.suite is not None and self.student is not None:
            self.plan(_STAND_IN, self.suite)

    def _teacher(self, keys: dict[str, str]) -> Address:
        wish = self.wish
        if wish.handoff:
            if wish.model:
                raise UsageError("--handoff and --model contradict each other")
            return resolve(f"handoff:{wish.handoff}")
        if self.extracts:
            if not self.material.traces:
                raise UsageError("-m extract compiles traces, and none was given", "Give one with --from.")
            return Address(EXTRACT, EXTRACT, "")
        name = wish.model or wish.settings.skill_generation_model
        if not name:
            name = "local"
            wish.tell(
                "No teacher was named, so it is `local`, the small embedded model: good enough to try the mechanics,"
                " not to write anything of use. Choose another with -m."
            )
        return resolve(name, keys=keys)

    def _name(self) -> str:
        """The skill's name where --output or the skill to be improved decides it."""
        output, older = self.wish.output, self.material.skill
        if not output:
            return older.name if older else ""
        folder = Path(output)
        check_output(folder, may_replace=self.wish.force or self._is_ours(folder))
        return folder.name

    def _is_ours(self, folder: Path) -> bool:
        """What an earlier run of the same wish wrote, and the skill to be improved itself, may be replaced."""
        older = self.material.skill
        if older is not None and older.folder is not None and folder.resolve() == older.folder:
            return True
        try:
            written = Provenance.of(Skill.load(folder)).metadata
        except UpskillError:
            return False
        mine = (self.teacher.name, self.material.task)
        return (written.get("generated_by"), written.get("source_task")) == mine

    def place_for(self, skill: Skill) -> Path:
        """Where it goes: --output, or a folder of its name in which nobody else's skill is."""
        if self.wish.output:
            return Path(self.wish.output)
        folder, number = Path(self.wish.settings.skills_dir), 1
        while (place := folder / (f"{skill.name}-{number}" if number > 1 else skill.name)).exists():
            if self.wish.force or self._is_ours(place):
                break
            number += 1
        return place

    def plan(self, skill: Skill, suite: Suite) -> Plan:
        assert self.student is not None
        limit = None
        if self.student.provider == "local":  # it would go on to the end of its context
            lengths = [named.written for case in suite.cases for named in case.checks if named.name == "max_length"]
            if len(lengths) >= len(suite.cases) and all(isinstance(length, int) for length in lengths):
                limit = max(lengths) // 2 + 16
        return make_plan(
            skill,
            suite,
            (self.student.name,),
            options=PlanOptions(
                base_url=self.wish.eval_base_url or "",
                runs=self.wish.runs,
                max_output_tokens=None if suite.max_output_tokens else limit,
                judge=self.wish.judge_model or self.wish.settings.judge_model or "",
                keys=find_keys(),
            ),
        )

    async def make(self, store: Store) -> Made:
        models = Models(self.context, replies=store, ledger=self.ledger)
        with track_usage() as noted:
            skill, suite, found = await self._search(models, store)
        told = self.lesson.told() if self.lesson else dict[str, Any]()
        making = self._making(noted.values(), found, store)
        return Made(skill, suite, self.material, self.teacher, self.student, self.ledger, making, found, told)

    async def _search(self, models: Models, store: Store) -> tuple[Skill, Suite, Refinement | None]:
        wish = self.wish
        async with models:
            await self._open(models)
            self._say_what_it_costs()
            if self.lesson:
                trace = await self.lesson.learn(wish, self.teacher, models)
                self.material = _material(wish, trace)
            drafts, suite, material = await self._write(models)
            for warning in await check_suite_quality(suite, drafts[0]):
                wish.tell(f"Note: {warning}")
            if self.student is None:
                return await self._edited_unseen(drafts[0], models, store, material, suite), suite, None
            found = await self._refine(drafts, suite, material, models, store)
            return found.skill, suite, found

    def _making(self, noted: Iterable[tuple[str, Usage]], found: Refinement | None, store: Store) -> SearchCost:
        """What it cost by role: teacher and test writer by their replies, students and judge by the stored trials."""
        written = {"teacher": self.lesson.usage() if self.lesson else NO_USAGE, "test writer": NO_USAGE}
        for role, usage in noted:
            if role in written:
                written[role] = written[role] + usage
        tried = [one.evaluation for one in found.attempts] if found else []
        runs = [evaluation.run for evaluation in (*tried, found.held_out if found else None) if evaluation]
        spent = {role: (usage.total_tokens, usage.cost_usd) for role, usage in written.items() if usage != NO_USAGE}
        older = self.material.skill
        search = digest([self.material.task, self.teacher.name, older.visible_hash if older else ""])
        return SearchCost(search, spent | store.spent(*runs))

    async def _open(self, models: Models) -> None:
        """All that will be asked: a missing key is found before anything is paid for."""
        if self.student is not None:
            await models.get(self.student)
            judge = self.plan(_STAND_IN, self.suite).judge if self.suite else None
            if judge:
                await models.get(judge, "judge")
        if not self.extracts:
            await models.get(self.teacher, "teacher")
            if self.suite is None:
                await models.get(self.writer, "test writer")

    async def _write(self, models: Models) -> tuple[list[Skill], Suite, Material]:
        """The drafts, the suite, and the material as it fits into a prompt."""
        wish, older = self.wish, self.material.skill
        if self.extracts:
            return await self._extract()
        teacher = await models.get(self.teacher, "teacher")
        room = material_budget(self.teacher)
        async with _forgetting(models):
            material = await summarize(self.material, teacher, budget=room, tell=wish.tell)
        drafts: list[Skill] = []
        if older is not None:
            drafts.append(older)
        else:
            wish.tell(f"Generating skill with {self.teacher.name}...")
            for number in range(wish.candidates):
                async with _forgetting(models):
                    draft = await write_skill(
                        material,
                        teacher,
                        wish.tokens,
                        name=self.name or (drafts[0].name if drafts else ""),
                        seed=number or None,
                        budget=room,
                        tell=wish.tell,
                    )
                drafts.append(draft)
        suite = self.suite
        if suite is None:
            wish.tell("Generating test cases...")
            writer = await models.get(self.writer, "test writer")
            try:
                async with _forgetting(models):
                    suite = await write_suite(
                        drafts[0],
                        writer,
                        count=wish.cases,
                        material=self.material,
                        budget=material_budget(self.writer),
                        tell=wish.tell,
                    )
            except UpskillError as error:
                if type(error) is not UpskillError:
                    raise
                raise UpskillError(
                    f"the skill was written, its test cases were not: {error.message}",
                    f"{error.hint} Nothing was saved.",
                ) from error
        return drafts, suite, material

    async def _extract(self) -> tuple[list[Skill], Suite, Material]:
        wish = self.wish
        wish.tell("Compiling the trace into a skill and its test cases, by rules alone...")
        found = await extract(self.material.traces, name=self.name, tokens=wish.tokens)
        if found.left_out:
            wish.tell(f"Left out: {len(found.left_out)} facts that do not fit into {wish.tokens} tokens.")
        meta = Provenance().with_sources(found.sources, self.material.excerpts())
        return [meta.add_to(found.skill)], self.suite or found.suite, self.material

    async def _edited_unseen(
        self, skill: Skill, models: Models, store: Store, material: Material, suite: Suite
    ) -> Skill:
        """With --no-eval an older skill gets its edits without a gate, which is said."""
        if self.material.skill is None:
            return skill
        wish = self.wish
        wish.tell(f"Improving {skill.name} with {self.teacher.name}, unproven: --no-eval runs nothing...")
        teacher = await models.get(self.teacher, "teacher")
        known = resolve(choose_students((), wish.settings, quiet=True)[0])
        failures = stored_failures(store, skill, known, suite)
        proposal = await Rewrite(teacher, material, max(wish.tokens, skill.tokens)).propose(skill, failures, (), 1)
        return proposal.skill if proposal else skill

    async def _refine(
        self, drafts: list[Skill], suite: Suite, material: Material, models: Models, store: Store
    ) -> Refinement:
        wish, student = self.wish, self.student
        assert student is not None
        refiner = None
        if self.attempts:
            teacher = await models.get(self.teacher, "teacher")
            refiner = Rewrite(teacher, material, max(wish.tokens, drafts[0].tokens))
        known = stored_failures(store, drafts[0], student, suite) if self.material.skill else []
        progress = Progress(wish)
        try:
            found = await refine(
                drafts,
                suite,
                self.plan,
                models=models,
                store=store,
                refiner=refiner,
                attempts=self.attempts,
                target=wish.target / 100,
                search=digest([material.task, self.teacher.name, student, suite.fingerprint, wish.tokens, wish.runs]),
                failures=known,
                executor=Local(wish.concurrency or wish.settings.concurrency),
                begin=progress.begin,
                watch=progress.watch,
                done=progress.done,
                last=progress.last,
            )
        finally:
            progress.end()
        for line in found.notes:
            wish.tell(line)
        return found

    def _say_what_it_costs(self) -> None:
        wish = self.wish
        if self.extracts:
            return
        expected = estimate_search(
            self.teacher,
            self.writer,
            self.student,
            self.context.prices,
            SearchSize(
                material=min(self.material.tokens, material_budget(self.teacher)),
                tokens=wish.tokens,
                cases=len(self.suite.cases) if self.suite else wish.cases,
                drafts=wish.candidates,
                attempts=self.attempts,
            ),
        )
        on_top = f", and on top of it {self.lesson.describe()}" if self.lesson else ""
        confirm_cost(wish, expected, f"up to {expected.words}{on_top}")


@asynccontextmanager
async def _forgetting(models: Models) -> AsyncGenerator[None]:
    """When no answer could be used, forget those answers: the same command would only get them again.

    A ceiling, a lost connection or an interruption is no such thing: what was paid for until then is kept.
    """
    with track_keys() as asked:
        try:
            yield
        except UpskillError as error:
            if type(error) in (UpskillError, NoUsableAnswer):
                await models.forget(asked)
            raise
