"""Generate a tested, proven skill. Inputs are checked before the first paid call; drafts are saved at once."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from upskill.authoring.events import AuthoringEvents
from upskill.authoring.evidence.sessions import Sessions
from upskill.authoring.material.material import Material, Piece, Tools, gather, no_task
from upskill.authoring.options import GenerateOptions
from upskill.authoring.saving.output import Destination, named_after
from upskill.authoring.saving.provenance import (
    DRAFT,
    UNPROVEN,
    Provenance,
    SearchCost,
    add_suite,
    own_lines,
    shared_name,
)
from upskill.authoring.search.comparison import CONFIRMING_PAIRS, Attempt
from upskill.authoring.search.failures import stored_failures
from upskill.authoring.search.feedback import Feedback, read_feedback
from upskill.authoring.search.improve import add_stored_evidence, store_unproven
from upskill.authoring.search.refine import Refinement, RefineOptions, refine
from upskill.authoring.search.refiners import REFINERS, Failure, Refiner
from upskill.authoring.writing.grounding import mark_own_lines
from upskill.authoring.writing.skill_writer import Draft, write_skill
from upskill.authoring.writing.structured import forget_unusable_answers
from upskill.authoring.writing.suite_writer import write_suite
from upskill.authoring.writing.summarize import material_budget, summarize
from upskill.authoring.writing.teachers import check_start, choose_attempts, choose_teacher
from upskill.errors import UpskillError, UsageError
from upskill.models import Address
from upskill.models.addresses import resolve
from upskill.models.cache import track_usage
from upskill.models.embedded.capacity import next_student
from upskill.models.keys import find_keys
from upskill.models.ledger import Ledger
from upskill.models.pool import Models
from upskill.plain import counted, digest
from upskill.runs.planning.estimate import SearchSize, estimate_search
from upskill.runs.planning.options import choose_students
from upskill.runs.planning.plan import Plan, PlanOptions, make_plan
from upskill.runs.results.evaluation import Evaluation, is_too_weak
from upskill.runs.running.evaluate import check_suite_quality
from upskill.runs.stores import Store, find_store
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.suites.near_duplicates import describe_near_duplicates, group_near_duplicates
from upskill.traces import NO_USAGE, Trace, Usage
from upskill.traces.redaction.redact import describe_counts, redact

ONLY_A_SENTENCE = (
    "This skill comes ONLY FROM THE MODEL'S MEMORY: there is no source. Pass one with --from (a document, a trace)"
    " or -e."
)
ALSO_ITS_TESTS = (
    "Its tests would come from the same memory, so they could not show that either is right."
)
# To see whether a plan can be made.
_PLACEHOLDER = Skill.new("task", "A task.", "A task.")
_PLACEHOLDER_SUITE = Suite.parse(
    [{"id": "task", "prompt": "A task.", "checks": [{"contains": "done"}]}]
)


@dataclass(frozen=True)
class Generated:
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
    previous: Path | None = None  # where the version that it replaced is kept
    feedback: tuple[str, ...] = ()  # what became of each review, in words
    missing: tuple[str, ...] = ()  # what the teacher asked and nobody answered
    unchanged: bool = False  # the older skill, with new results at most

    def __repr__(self) -> str:
        return f"Generated({self.skill}, {str(self.folder)!r})"

    @property
    def fit(self) -> Evaluation | None:
        """On the train cases that also chose the skill; without a search, on all cases."""
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

    @property
    def grounding_notes(self) -> list[str]:
        own, lines = own_lines(self.skill)
        notes = [ONLY_A_SENTENCE] if not self.material.pieces and not self.material.skill else []
        if own and self.material.pieces:
            notes.append(
                f"{len(own)} of {counted(lines, 'line')} {'rests' if len(own) == 1 else 'rest'} on the teacher's word"
                " alone (`own` in --sources)."
            )
        return notes

    @property
    def student_notes(self) -> list[str]:
        evaluation = self.held_out or self.fit
        if evaluation is None or self.student is None or self.student.provider != "local":
            return []
        verdicts = [each.verdicts[0] for each in (self.fit, self.held_out) if each is not None]
        notes: list[str] = []
        if not any(arm.passed for verdict in verdicts for arm in (verdict.baseline, verdict.skill)):
            notes.append(
                "The student passed no case, so this says nothing about the skill. The student may be too small."
            )
        if is_too_weak(evaluation.verdicts[0]):
            notes.append(next_student(self.student.model, "--student"))
        return [*filter(None, notes)]


async def generate(
    options: GenerateOptions,
    *,
    store: Store | None = None,
    models: Models | None = None,
    events: AuthoringEvents | None = None,
) -> Generated:
    """Write a skill and its tests, improve it on train cases, measure it once on held-out cases, and save it."""
    tools = await check_start(options, models)
    return await Generation(options, models, events or AuthoringEvents(), tools, store).run(store)


def generate_now(
    options: GenerateOptions,
    *,
    store: Store | None = None,
    models: Models | None = None,
    events: AuthoringEvents | None = None,
) -> Generated:
    return asyncio.run(generate(options, store=store, models=models, events=events))


def _not_made(refinement: Refinement | None, folder: Path) -> str:
    unchanged = "The skill is unchanged."
    tried = (
        [attempt for attempt in refinement.attempts[1:] if attempt.evaluation] if refinement else []
    )
    if not tried:
        return f"The requested change was not made. {unchanged}"
    change, place = tried[-1], shlex.quote(str(folder))
    version = f"upskill versions {change.skill.name} {change.skill.visible_hash[:8]}"
    return (
        f"The requested change was not made: {change.decision} ({change.note}). {unchanged}"
        f" To make it anyway: {version} | patch -p1 -d {place}"
    )


class Generation:
    """One call of `generate`. Options are checked when it is made, before anything is opened or paid for."""

    def __init__(
        self,
        options: GenerateOptions,
        models: Models | None,
        events: AuthoringEvents,
        tools: Sequence[Tools] = (),
        store: Store | None = None,
    ) -> None:
        self.options = options
        self.models = models
        self.events = events
        self.tools = tools
        self.keys = models.context.keys if models else find_keys()
        self.teacher = choose_teacher(options, self.keys)
        self.feedback = Feedback()
        self.material = self.gather()
        older = self.material.skill
        self.suite = (
            Suite.load(options.tests) if options.tests else Suite.of(older) if older else None
        )
        self._read_feedback(store)
        self.requested = bool(older and (options.task.strip() or self.feedback.usable))
        # Somebody's own tests, given with the request, are what it is judged by.
        self.writes_cases = self.suite is None or (self.requested and not options.tests)
        writer = options.test_writer or (None if options.handoff else options.settings.test_writer)
        self.writer = resolve(writer, keys=self.keys) if writer else self.teacher
        self.student: Address | None = None
        if not options.no_eval:
            named = (options.student,) if options.student else ()
            (name,) = choose_students(named, options.settings, events.message, "--student")
            self.student = resolve(name, options.base_url, self.keys)
        self.attempts = choose_attempts(options, self.student, older, events.message)
        self.refiner: type[Refiner] = REFINERS.load(options.refiner)
        self.executor = options.open_executor()
        self.destination = Destination(
            options.output,
            Path(options.settings.skills_dir),
            older,
            (self.teacher.name, self.material.task),
            force=options.force,
            events=events,
        )
        self.name = self.destination.choose_name()
        self.recorded = NO_USAGE  # of a lesson: its replies may have been paid for long ago
        self.draft: Path | None = None  # the folder of what is written so far
        self.repeats = (
            False  # the same skill was finished before: nobody needs to hear of its draft
        )
        self.missing: tuple[str, ...] = ()
        if self.student is not None:
            self._plan(_PLACEHOLDER, self.suite or _PLACEHOLDER_SUITE)

    async def run(self, store: Store | None) -> Generated:
        with self._opened(store) as (opened, models):
            with track_usage() as used:
                async with models:
                    await self._prepare(models)
                    skill, suite, refinement = await self._make(models, opened)
            cost = self._cost(used.values(), refinement, opened)
        folder = self.destination.choose_folder(skill)
        provenance = self._provenance(skill, refinement).with_cost(cost)
        is_improved = self._is_improved(skill)
        skill = mark_own_lines(provenance.add_to(named_after(folder, skill)), self.material)
        # Cases for a change that was not made would only fail.
        skill = add_suite(skill, suite if is_improved or not self.suite else self.suite)
        skill = self._with_seen(skill, refinement) if refinement else skill
        skill, previous = self.destination.save(skill, folder)
        self.destination.remove_draft(self.draft, folder, quietly=self.repeats)
        if self.requested and not is_improved:
            self.events.message(_not_made(refinement, folder))
        if previous:
            self.events.message(f"The previous version is in {previous}.")
        ledger = models.ledger or Ledger()
        return Generated(
            skill=skill,
            folder=folder,
            suite=suite,
            material=self.material,
            teacher=self.teacher,
            student=self.student,
            refinement=refinement,
            cost=cost,
            spent=dict(ledger.spent),
            calls=ledger.calls,
            previous=previous,
            feedback=tuple(self.feedback.outcomes()),
            missing=self.missing,
            unchanged=self.material.skill is not None and not is_improved,
        )

    async def only_prepare(self, store: Store | None) -> None:
        with self._opened(store) as (_, models):
            async with models:
                await self._prepare(models)

    @contextmanager
    def _opened(self, store: Store | None) -> Generator[tuple[Store, Models]]:
        options = self.options
        with nullcontext(store) if store else options.open_store() as opened:
            ledger = Ledger(options.ceilings)
            yield (
                opened,
                self.models
                or Models(options.model_context(self.events), replies=opened, ledger=ledger),
            )

    def gather(self, *more: Trace) -> Material:
        options, tell = self.options, self.events.message
        sources = [*options.sources, *more]
        material = gather(
            options.task, examples=options.examples, tools=self.tools, sources=sources
        )
        for line in material.sources:
            tell(f"Read {line}.")
        if not material.task:
            goal = Sessions(material.traces).latest_goal()
            fix = ": fix what people found wrong with its answers" if options.feedback else ""
            goal = goal or (
                f"Improve the skill {material.skill.name}{fix}." if material.skill else ""
            )
            if not goal:
                raise no_task(material, options.sources)
            material = replace(material, task=" ".join(goal.split())[:2000])
        material = add_stored_evidence(material, material_budget(self.teacher) // 2)
        if material.redacted:
            tell(
                f"Before anything was sent or saved, upskill {describe_counts(material.redacted)}."
            )
        for left_out in material.left_out:
            tell(f"Left out: {left_out}.")
        return self.feedback.add_to(material)

    def _read_feedback(self, store: Store | None) -> None:
        options, older = self.options, self.material.skill
        if not options.feedback:
            return
        if older is None:
            raise UsageError(
                "--feedback needs the skill that it is about", "Pass its folder with --from."
            )
        found = nullcontext(store) if store else find_store(options.store_location)
        with found or nullcontext() as opened:
            self.feedback = read_feedback(opened, older, self.suite)
        self.material = self.feedback.add_to(self.material)
        for line in self.feedback.outcomes():
            self.events.message(f"Feedback on {line}.")

    def _keep_draft(self, skill: Skill, suite: Suite | None = None) -> None:
        """Save what is written so far, marked as unproven, so that nothing later can lose it."""
        draft, repeats = (
            self.draft or self.destination.choose_draft_folder(skill),
            self.destination.repeats(skill),
        )
        provenance = self._provenance(skill, None).with_state(DRAFT)
        skill = mark_own_lines(provenance.add_to(named_after(draft, skill)), self.material)
        self.destination.save(add_suite(skill, suite) if suite else skill, draft)
        if self.draft is None:
            self.draft, self.repeats = draft, repeats
            if not self.repeats:
                self.events.message(f"Saved the unproven draft to {self.draft}.")

    def _plan(self, skill: Skill, suite: Suite) -> Plan:
        assert self.student is not None
        return make_plan(
            skill,
            suite,
            (self.student.name,),
            PlanOptions(
                base_url=self.options.base_url,
                runs=self.options.repeat_count,
                judge=self.options.judge or self.options.settings.judge or "",
                agent=self.options.agent,
                bounds=self.options.eval_bounds,
                sandbox=self.options.sandbox,
                keys=self.keys,
            ),
        )

    async def _prepare(self, models: Models) -> None:
        await self._open_models(models)
        self._announce_cost(models)
        await self.learn(models)

    async def learn(self, models: Models) -> None:
        """Add to the material. The teacher of `teach` does its task here."""

    async def _make(self, models: Models, store: Store) -> tuple[Skill, Suite, Refinement | None]:
        drafts, suite, material = await self._write(models)
        repeated = describe_near_duplicates(group_near_duplicates(suite.cases))
        for warning in [*await check_suite_quality(suite, drafts[0]), *repeated]:
            self.events.message(f"Note: {warning}")
        if self.student is None:
            return await self._edit_unproven(drafts[0], suite, material, models, store), suite, None
        refinement = await self._refine(drafts, suite, material, models, store)
        return refinement.skill, suite, refinement

    async def _open_models(self, models: Models) -> None:
        """Open all that will be asked: a missing key is found before anything is paid for."""
        if self.student is not None:
            if self.student.provider == "local" and self.teacher.provider == "handoff":
                from upskill.models.embedded.local import find_weights  # noqa: PLC0415 - only for embedded models

                await find_weights(
                    self.student, models.context
                )  # loading them at each pause would take long
            else:
                await models.get(self.student)
            judge = self._plan(_PLACEHOLDER, self.suite).judge if self.suite else None
            if judge:
                await models.get(judge, "judge")
        await models.get(self.teacher, "teacher")
        if self.writes_cases:
            await models.get(self.writer, "test writer")

    def _announce_cost(self, models: Models) -> None:
        size = SearchSize(
            material=min(self.material.tokens, material_budget(self.teacher)),
            tokens=self.options.tokens,
            cases=(len(self.suite.cases) if self.suite else 0)
            + (self._case_count if self.writes_cases else 0),
            drafts=self.options.candidates,
            attempts=self.attempts,
            acts=self.options.student_acts,
            confirming=2 * CONFIRMING_PAIRS if self.attempts or self.options.candidates > 1 else 0,
        )
        expected = estimate_search(
            self.teacher, self.writer, self.student, models.context.prices, size
        )
        if self.options.max_cost is not None:
            expected.check_prices()
        if not (self.options.teacher or self.options.handoff or self.options.settings.teacher):
            self.events.message(
                f"No teacher given: using {self.teacher.name}, as ANTHROPIC_API_KEY is set."
                " Choose another with -m."
            )
        self.events.estimate(expected)

    async def _write(self, models: Models) -> tuple[list[Skill], Suite, Material]:
        budget, tell = material_budget(self.teacher), self.events.message
        teacher = await models.get(self.teacher, "teacher")
        async with forget_unusable_answers(models):
            material = await summarize(self.material, teacher, budget=budget, tell=tell)
        if not material.pieces and not material.skill:
            tell(f"{ONLY_A_SENTENCE} {ALSO_ITS_TESTS}" if self.writes_cases else ONLY_A_SENTENCE)
        # Notes on long material are made once, where the same model reads them.
        read = material if self.writer == self.teacher else self.material
        suite = await self._write_suite(
            models, read
        )  # before there is a skill that its writer could read
        drafts = [self.material.skill] if self.material.skill else []
        if not drafts:
            tell(f"Generating skill with {self.teacher.name}...")

            async def write(number: int) -> Draft:
                async with forget_unusable_answers(models):
                    return await write_skill(
                        material,
                        teacher,
                        self.options.tokens,
                        file_tokens=self.options.file_tokens,
                        opens_files=self.options.student_acts,
                        name=self.name or (drafts[0].name if drafts else ""),
                        seed=number or None,
                        budget=budget,
                        tell=tell,
                    )

            for number in range(self.options.candidates):
                draft = await write(number)
                if number == 0 and (answers := await self._ask_person(draft.missing, models)):
                    self.material = replace(self.material, pieces=(*self.material.pieces, *answers))
                    material = replace(material, pieces=(*material.pieces, *answers))
                    draft = await write(number)
                drafts.append(draft.skill)
                if number == 0:
                    self.missing = draft.missing
                    self._keep_draft(draft.skill, suite)
        return drafts, suite, material

    async def _ask_person(self, questions: Sequence[str], models: Models) -> list[Piece]:
        """The answers, as evidence. They are stored, so that nobody is asked twice."""
        answers: list[Piece] = []
        for number, question in enumerate(questions if self.events.ask else (), start=1):
            assert self.events.ask is not None
            key = digest(["question of a teacher", self.material.task, question])
            answer = models.replies.reply(key) if models.replies else None
            if answer is None and (answer := self.events.ask(question).strip()) and models.replies:
                await models.replies.add_reply(key, "person", answer, "person")
            if answer:
                answers.append(
                    Piece(f"a{number}", "answer", redact(f"{question}\n{answer}"), "a person")
                )
        return answers

    @property
    def _case_count(self) -> int:
        """For feedback alone, a few cases for each answer that somebody found fault with."""
        if self.suite and not self.options.task.strip():
            return min(self.options.cases, max(4, 2 * len(self.feedback.usable)))
        return self.options.cases

    async def _write_suite(self, models: Models, material: Material) -> Suite:
        older, tell = self.suite, self.events.message
        if older and not self.writes_cases:
            return older
        if self.material.skill and not older:
            name = self.material.skill.name
            tell(
                f"{name} has no tests of its own, so upskill cannot check that what worked before still works."
            )
        tell("Generating test cases for the request..." if older else "Generating test cases...")
        try:
            async with forget_unusable_answers(models):
                written = await write_suite(
                    material,
                    await models.get(self.writer, "test writer"),
                    count=self._case_count,
                    author=self.writer.name,
                    budget=material_budget(self.writer),
                    existing=older.cases if older else (),
                    acts=self.options.student_acts,
                    tell=tell,
                )
        except UpskillError as error:
            if older is None or type(error) is not UpskillError:
                raise
            tell(
                f"No new cases for the request, so only the existing ones are used: {error.message}."
            )
            return older
        return replace(older, cases=(*older.cases, *written.cases)) if older else written

    async def _open_refiner(self, material: Material, models: Models) -> Refiner:
        teacher = await models.get(self.teacher, "teacher")
        refiner = self.refiner(teacher, material, self.options.tokens)
        refiner.file_tokens = self.options.file_tokens
        return refiner

    async def _edit_unproven(
        self, skill: Skill, suite: Suite, material: Material, models: Models, store: Store
    ) -> Skill:
        """With --no-eval an older skill gets its edits without a gate."""
        if self.material.skill is None:
            store_unproven(store, self._search_id(suite), skill)
            return skill
        self.events.message(
            f"Improving {skill.name} with {self.teacher.name}, without testing the result (--no-eval)..."
        )
        student = resolve(self.options.settings.student or "local", keys=self.keys)
        refiner = await self._open_refiner(material, models)
        proposal = await refiner.propose(
            skill, self._known_failures(store, skill, student, suite), (), 1
        )
        if not proposal or not proposal.edits:
            return skill
        store_unproven(store, self._search_id(suite), skill, proposal, self.material.task)
        return proposal.skill

    def _search_id(self, suite: Suite) -> str:
        """Candidates are stored by this digest; a refiner is part of it where it is not the usual one."""
        options = self.options
        search = [
            self.material.task,
            self.teacher.name,
            self.student,
            suite.fingerprint,
            options.tokens,
            options.repeat_count,
        ]
        search += [] if options.refiner == "rewrite" else [options.refiner]
        return digest(search + ([options.agent] if options.student_acts else []))

    async def _refine(
        self, drafts: list[Skill], suite: Suite, material: Material, models: Models, store: Store
    ) -> Refinement:
        options, student = self.options, self.student
        assert student is not None

        def attempt_ended(attempt: Attempt) -> None:
            self.events.attempt_ended(attempt)
            if attempt.accepted and attempt.skill is not self.material.skill:
                used = attempt.evaluation.plan.suite.by_id if attempt.evaluation else ()
                self._keep_draft(self._with_used(attempt.skill, used), suite)

        return await refine(
            drafts,
            suite,
            self._plan,
            store=store,
            models=models,
            options=RefineOptions(
                refiner=await self._open_refiner(material, models) if self.attempts else None,
                attempts=self.attempts,
                target=options.target / 100,
                search=self._search_id(suite),
                known_failures=self._known_failures(store, drafts[0], student, suite)
                if self.material.skill
                else (),
                evidence={piece.id: piece.text for piece in self.material.pieces},
                older_cases=frozenset(self.suite.by_id if self.suite and self.writes_cases else ()),
                improves=self.material.skill is not None,
                requested=self.requested,
                executor=self.executor,
            ),
            events=replace(self.events, attempt_ended=attempt_ended),
        )

    def _known_failures(
        self, store: Store, skill: Skill, student: Address, suite: Suite
    ) -> list[Failure]:
        return [*self.feedback.failures, *stored_failures(store, skill, student, suite)]

    def _cost(
        self, used: Iterable[tuple[str, Usage]], refinement: Refinement | None, store: Store
    ) -> SearchCost:
        by_role = {"teacher": self.recorded, "test writer": NO_USAGE}
        for role, usage in used:
            if role in by_role:
                by_role[role] += usage
        writing = {
            role: (usage.total_tokens, usage.cost_usd)
            for role, usage in by_role.items()
            if usage != NO_USAGE
        }
        runs = [evaluation.run for evaluation in refinement.evaluations] if refinement else []
        older = self.material.skill
        search = digest(
            [self.material.task, self.teacher.name, older.visible_hash if older else ""]
        )
        return SearchCost(search, writing | store.spent(*runs))

    def _with_seen(self, skill: Skill, refinement: Refinement) -> Skill:
        """With the cases that chose its text, and those that measured it, in its record of seen cases."""
        if refinement.selected:
            skill = self._with_used(skill, refinement.cases_used)
        evaluation = refinement.held_out or refinement.fit
        measured = evaluation.plan.suite.by_id if evaluation else ()
        return skill.with_seen(measured, skill.text_hash)

    def _with_used(self, skill: Skill, cases: Iterable[str]) -> Skill:
        """With the cases of a search in its record: their results belong to the text before it."""
        older = self.material.skill
        return skill.with_seen(cases, older.text_hash if older else "")

    def _provenance(self, skill: Skill, refinement: Refinement | None) -> Provenance:
        provenance, is_improved = Provenance.of(skill), self._is_improved(skill)
        if self.material.skill is None:
            provenance = provenance.with_author(self.teacher.name, self.material.task)
        if is_improved:
            provenance = provenance.with_request(self.teacher.name, self.material.task)
        if is_improved or self.material.skill is None:
            provenance = provenance.with_source_files(self.material.files)
        # The pass rate on held-out cases where there are some, else the fit.
        evaluation = (refinement.held_out or refinement.fit) if refinement else None
        if refinement is None or evaluation is None:
            return provenance.with_state(UNPROVEN)
        verdict = evaluation.verdicts[0]
        result = {
            "test_pass_rate": verdict.skill.pass_rate,
            "baseline_pass_rate": verdict.baseline.pass_rate,
            "evaluated_on": shared_name(verdict.model),
            "evaluated_cases": refinement.evaluated_cases,
            "pairs": verdict.pairs,
            "decision": verdict.decision,
            "about": verdict.about,
        }
        return replace(provenance, metadata=dict(provenance.metadata) | result).with_state("")

    def _is_improved(self, skill: Skill) -> bool:
        older = self.material.skill
        return older is not None and older.visible_hash != skill.visible_hash
