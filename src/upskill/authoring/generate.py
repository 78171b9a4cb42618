"""Generate a tested skill: two rounds of requests, and a third where it is needed.

1. `skill` and `tests`, out at once: neither writer sees the other's work. Half of the cases are kept fresh.
2. `answers` to the cases, by somebody who has not seen their checks. Meanwhile the student runs the shown cases.
3. `checks` of the cases that broke a rule or judged an answer wrongly, and a `revision` that reads all other failures.

A revision is kept unless it passes fewer of the shown cases. The fresh cases then decide, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upskill.authoring.events import AuthoringEvents
from upskill.authoring.inputs import Inputs, check, with_session
from upskill.authoring.material.material import Material, Piece, add_material
from upskill.authoring.options import GenerateOptions
from upskill.authoring.revising import Failure, Proposal, RevisionRequest, Tried
from upskill.authoring.revising.failures import failures_in_run
from upskill.authoring.revising.rewrite import propose_edits
from upskill.authoring.saving.output import named_after
from upskill.authoring.saving.provenance import (
    DRAFT,
    UNPROVEN,
    Provenance,
    SearchCost,
    add_suite,
    shared_name,
)
from upskill.authoring.writing.grounding import mark_own_lines
from upskill.authoring.writing.skill_writer import Draft, write_skill
from upskill.authoring.writing.structured import Tell, no_message, together
from upskill.authoring.writing.suite_writer import (
    TestWriter,
    WrittenCase,
    add_answers,
    as_suite,
    check_enough,
    fix_checks,
    write_cases,
)
from upskill.authoring.writing.summarize import material_budget, summarize
from upskill.errors import CeilingReached, UpskillError
from upskill.models import Address, Model
from upskill.models.cache import track_usage
from upskill.models.embedded.capacity import next_student
from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL, LOCAL_MODELS
from upskill.models.embedded.weight_files import weights_state
from upskill.models.ledger import Ledger
from upskill.models.pool import Models
from upskill.plain import counted, digest
from upskill.runs.planning.estimate import SearchSize, estimate_search
from upskill.runs.planning.plan import Arm
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.suites import Case, Suite
from upskill.traces import NO_USAGE, Trace, Usage
from upskill.traces.redaction.redact import redact

if TYPE_CHECKING:
    from upskill.runs.results.evaluation import Evaluation

ONLY_A_SENTENCE = (
    "This skill comes ONLY FROM THE MODEL'S MEMORY: there is no source. Pass one with --from (a document, a trace)"
    " or -e."
)
ALSO_ITS_TESTS = (
    "Its tests would come from the same memory, so they could not show that either is right."
)
FIRST_DRAFT, OLDER_VERSION, REQUESTED = "first draft", "older version", "requested change"
KEPT, NOT_KEPT = "kept", "not kept"


@dataclass(frozen=True, kw_only=True)
class Version:
    """A text of the skill, and what became of it."""

    skill: Skill
    decision: str  # FIRST_DRAFT, …, KEPT or NOT_KEPT
    note: str = ""
    evaluation: Evaluation | None = None  # on shown cases
    proposal: Proposal | None = None


@dataclass
class Made:
    """What the rounds came to, filled in while they run."""

    versions: list[Version] = field(default_factory=list[Version])
    suite: Suite = Suite(())  # noqa: RUF009 - frozen
    evaluations: list[Evaluation] = field(default_factory=list["Evaluation"])  # all of them
    held_out: Evaluation | None = None  # on fresh cases; on all, where none was shown
    shown: frozenset[str] = frozenset()  # ids of the cases that chose the text
    ended: str = ""  # why no further revision was tried
    halted: str = ""  # the ceiling that ended it
    missing: list[str] = field(default_factory=list[str])  # what the teacher asked for in vain

    @property
    def version(self) -> Version:
        """The best."""
        return next(each for each in reversed(self.versions) if each.decision != NOT_KEPT)


@dataclass(frozen=True)
class Generated:
    skill: Skill
    folder: Path
    suite: Suite
    material: Material
    teacher: Address
    student: Address | None  # None: nothing was evaluated
    made: Made
    cost: SearchCost  # of making it, including earlier calls that were interrupted
    spent: Mapping[str, Usage]  # by this call, by role
    calls: int  # of models, by this call
    previous: Path | None = None  # where the version that it replaced is kept
    feedback: tuple[str, ...] = ()  # what became of each review, in words
    unchanged: bool = False  # the older skill, with new results at most

    def __repr__(self) -> str:
        return f"Generated({self.skill}, {str(self.folder)!r})"

    @property
    def fit(self) -> Evaluation | None:
        """On the shown cases, which also chose the text."""
        return self.made.version.evaluation

    @property
    def held_out(self) -> Evaluation | None:
        """On the fresh cases: the number to believe. On all cases, where none was shown."""
        return self.made.held_out

    @property
    def has_failed(self) -> bool:
        """The numbers cannot be relied on: too many errors on fresh cases, a leak, or a bug in upskill."""
        if any(evaluation.leaked or evaluation.bugs for evaluation in self.made.evaluations):
            return True
        return self.held_out is not None and self.held_out.too_many_errors


async def generate(
    options: GenerateOptions,
    *,
    store: Store | None = None,
    models: Models | None = None,
    events: AuthoringEvents | None = None,
) -> Generated:
    """Write a skill and its tests, revise it on the shown cases, measure it once on the fresh ones, and save it."""
    inputs = await check(options, store=store, models=models, events=events)
    return await run(inputs, store=store, models=models, events=events)


def generate_now(
    options: GenerateOptions,
    *,
    store: Store | None = None,
    models: Models | None = None,
    events: AuthoringEvents | None = None,
) -> Generated:
    return asyncio.run(generate(options, store=store, models=models, events=events))


async def run(
    inputs: Inputs,
    *,
    store: Store | None = None,
    models: Models | None = None,
    events: AuthoringEvents | None = None,
    learn: Callable[[Models], Awaitable[Trace]] | None = None,
) -> Generated:
    """`learn` adds a session to the material: the teacher of `teach` does its task there."""
    events = events or AuthoringEvents()
    with open_work(inputs, store, models, events) as (opened, open_models):
        told = _once(events, inputs, opened)
        with track_usage() as used:
            async with open_models:
                await begin(inputs, open_models, told)
                recorded = NO_USAGE
                if learn:
                    trace = await learn(open_models)
                    inputs, recorded = with_session(inputs, trace), trace.usage
                    for note in inputs.notes:
                        told.message(note)
                work = await _open(inputs, opened, open_models, told)
                await _make(work)
        cost = _cost(work, recorded, used.values())
        return _save(work, cost, open_models.ledger or Ledger())


@contextmanager
def open_work(
    inputs: Inputs, store: Store | None, models: Models | None, events: AuthoringEvents
) -> Generator[tuple[Store, Models]]:
    options = inputs.options
    with nullcontext(store) if store else options.open_store() as opened:
        if models is None:
            ledger = Ledger(options.ceilings)
            models = Models(options.model_context(events), replies=opened, ledger=ledger)
        yield opened, models


def _once(events: AuthoringEvents, inputs: Inputs, store: Store) -> AuthoringEvents:
    """Where answers are awaited, the same command runs many times: each line is told once."""
    if inputs.teacher.provider != "handoff":
        return events
    search = digest([inputs.teacher.name, inputs.options.task, inputs.options.sources])
    told = {*store.notes(f"told:{search}:")}

    def tell(line: str) -> None:
        key = f"told:{search}:{digest(line)}"
        if key not in told:
            told.add(key)
            store.add_notes({key: "told"})
            events.message(line)

    return replace(events, message=tell)


async def begin(inputs: Inputs, models: Models, events: AuthoringEvents) -> None:
    """Open all that will be asked, and say what it may cost: a missing key is found before anything is paid for."""
    for note in inputs.notes:
        events.message(note)
    student = inputs.student
    if student and student.provider == "local" and inputs.teacher.provider == "handoff":
        row = LOCAL_MODELS.get(student.model or DEFAULT_LOCAL_MODEL)
        if row is None or weights_state(row) != "ready":
            from upskill.models.embedded.local import find_weights  # noqa: PLC0415 - slow to import

            await find_weights(student, models.context)  # which loads nothing
    elif student:
        await models.get(student)
    cases = len(inputs.own.cases) if inputs.own else 0
    if student and inputs.own:
        judge = inputs.plan(Skill.new("task", "A task.", "A task."), inputs.own).judge
        if judge:
            await models.get(judge, "judge")
    await models.get(inputs.teacher, "teacher")
    if inputs.writes_cases:
        await models.get(inputs.writer, "test writer")
        cases += inputs.case_count
    options = inputs.options
    size = SearchSize(
        material=min(inputs.material.tokens, material_budget(inputs.teacher)),
        tokens=options.tokens,
        cases=cases,
        attempts=inputs.attempts,
        acts=options.student_acts,
    )
    prices = models.context.prices
    expected = estimate_search(inputs.teacher, inputs.writer, student, prices, size)
    if options.max_cost is not None:
        expected.check_prices()
    if not (options.teacher or options.handoff or options.settings.teacher):
        events.message(
            f"No teacher given: using {inputs.teacher.name}, as ANTHROPIC_API_KEY is set."
            " Choose another with -m."
        )
    events.estimate(expected)


# The rounds
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Work:
    """What all rounds use."""

    inputs: Inputs
    store: Store
    models: Models
    teacher: Model
    writer: TestWriter
    events: AuthoringEvents
    material: Material  # notes on it, where it is long
    made: Made = field(default_factory=Made)

    def tell(self, line: str) -> None:
        self.events.message(line)


async def _open(inputs: Inputs, store: Store, models: Models, events: AuthoringEvents) -> Work:
    async def read(address: Address, model: Model) -> Material:
        limit = material_budget(address)
        return await summarize(inputs.material, model, budget=limit, tell=events.message)

    teacher = await models.get(inputs.teacher, "teacher")
    material = await read(inputs.teacher, teacher)
    if not material.pieces and not material.skill:
        also = f" {ALSO_ITS_TESTS}" if inputs.writes_cases else ""
        events.message(f"{ONLY_A_SENTENCE}{also}")
    test_writer, known = teacher, material
    if inputs.writes_cases:
        test_writer = await models.get(inputs.writer, "test writer")
        if inputs.writer != inputs.teacher:
            known = await read(inputs.writer, test_writer)
    writer = TestWriter(
        model=test_writer,
        material=known,
        author=inputs.writer.name,
        acts=inputs.options.student_acts,
        existing=inputs.own.cases if inputs.own else (),
    )
    return Work(
        inputs=inputs,
        store=store,
        models=models,
        teacher=teacher,
        writer=writer,
        events=events,
        material=material,
    )


async def _make(work: Work) -> None:
    inputs, made = work.inputs, work.made
    first, cases = await together(_first_text(work), _first_cases(work))
    made.versions.append(first)
    if inputs.writes_cases and not inputs.own:
        check_enough(cases, len(cases), inputs.case_count)
    _save_draft(work, first.skill, cases)
    answers = add_answers(work.writer, cases, tell=work.tell)
    answered, _ = await together(answers, _try_meanwhile(work, first, cases))
    made.suite = _suite_of(work, answered)
    try:
        if inputs.student:
            await _prove(work, first, answered)
        else:
            made.suite = _suite_of(work, await _fixed(work, answered), tell=work.tell)
            made.versions[0] = replace(first, decision=UNPROVEN)
    except CeilingReached as reached:
        made.halted = reached.message
    _store(work)


async def _first_text(work: Work) -> Version:
    inputs, older = work.inputs, work.material.skill
    if older and not inputs.requested:
        return Version(skill=older, decision=OLDER_VERSION)
    if older:
        failures = inputs.feedback.failures
        proposal = await propose_edits(_revision(work, older, failures, title="1-revision"))
        if proposal is None or not proposal.edits:
            return Version(skill=older, decision=OLDER_VERSION, note="no edit could be applied")
        return Version(skill=proposal.skill, decision=REQUESTED, proposal=proposal)
    work.tell(f"Generating skill with {inputs.teacher.name}...")
    draft = await _write_text(work, work.material)
    if answers := await _ask_person(work, draft.missing):
        material = replace(work.material, pieces=(*work.material.pieces, *answers))
        draft = await _write_text(work, material)
    work.made.missing += draft.missing
    return Version(skill=draft.skill, decision=FIRST_DRAFT)


async def _write_text(work: Work, material: Material) -> Draft:
    inputs, options = work.inputs, work.inputs.options
    return await write_skill(
        material,
        work.teacher,
        options.tokens,
        file_tokens=options.file_tokens,
        opens_files=options.student_acts,
        small_student=inputs.student is None or inputs.student.provider == "local",
        name=inputs.name,
        budget=material_budget(inputs.teacher),
        tell=work.tell,
    )


async def _ask_person(work: Work, questions: Sequence[str]) -> list[Piece]:
    """The answers, as evidence. They are stored, so that nobody is asked twice."""
    answers: list[Piece] = []
    replies, ask = work.models.replies, work.events.ask
    if ask is None:
        return []
    for number, question in enumerate(questions, start=1):
        key = digest(["question of a teacher", work.material.task, question])
        answer = replies.reply(key) if replies else None
        if answer is None:
            answer = ask(question).strip()
            if answer and replies:
                await replies.add_reply(key, "person", answer, "person")
        if answer:
            text = redact(f"{question}\n{answer}")
            answers.append(Piece(f"a{number}", "answer", text, "a person"))
    return answers


async def _first_cases(work: Work) -> list[WrittenCase]:
    inputs = work.inputs
    if not inputs.writes_cases:
        return []
    if inputs.older and not inputs.own:
        work.tell(
            f"{inputs.older.name} has no tests of its own, so upskill cannot check that what worked before still works."
        )
    what = "test cases for the request" if inputs.own else "test cases"
    work.tell(f"Generating {what}...")
    return await write_cases(work.writer, inputs.case_count, tell=work.tell)


async def _fixed(work: Work, cases: Sequence[WrittenCase]) -> list[WrittenCase]:
    broken = sum(each.sound is None for each in cases)
    if broken:
        work.tell(f"Sending back {counted(broken, 'case')} to be fixed.")
    return await fix_checks(work.writer, cases)


def _suite_of(work: Work, cases: Sequence[WrittenCase], tell: Tell | None = None) -> Suite:
    """The sound cases that were written, and those that were there. With `tell`, they have to be enough."""
    own, count = work.inputs.own, work.inputs.case_count
    if not work.inputs.writes_cases:
        return own or Suite(())
    try:
        new = as_suite(cases, count if tell else 0, 1 if own else 3, tell or no_message)
    except UpskillError as error:
        if tell and own is None:
            raise
        if tell:
            tell(f"No new cases are used: {error.message}.")
        return own or Suite(())
    return replace(own, cases=(*own.cases, *new.cases)) if own else new


def _shown(work: Work, suite: Suite, cases: Sequence[WrittenCase]) -> tuple[Case, ...]:
    """The cases that the student runs before the end: new ones, or a brought suite's that are not held out."""
    if not work.inputs.attempts:
        return ()
    new = {each.id for each in cases}
    return tuple(case for case in suite.train if case.id in new) or suite.train


async def _try_meanwhile(work: Work, first: Version, cases: Sequence[WrittenCase]) -> None:
    """What the student can do while answers are written: their results are stored, and read later."""
    inputs = work.inputs
    if inputs.student is None:
        return
    try:
        await _breaks_own_cases(work, first)
        suite = _suite_of(work, cases)
        if shown := _shown(work, suite, cases):
            name = inputs.student.name
            work.tell(f"Evaluating on {name}... ({counted(len(shown), 'shown case')})")
            await _evaluate(work, first.skill, shown)
        new = {each.id for each in cases}
        fresh = tuple(case for case in suite.held_out if case.id in new)
        if fresh and inputs.plan(first.skill, Suite(fresh)).exact:
            await _evaluate(work, first.skill, fresh, arms=("baseline",))
    except CeilingReached:
        return  # said where the results are read


async def _prove(work: Work, first: Version, cases: Sequence[WrittenCase]) -> None:
    """Revise the text on the shown cases, and measure it once on the fresh ones."""
    inputs, made = work.inputs, work.made
    if worse := await _breaks_own_cases(work, first):
        assert inputs.older is not None
        assert inputs.own is not None
        older = Version(skill=inputs.older, decision=OLDER_VERSION)
        made.versions = [older, replace(first, decision=NOT_KEPT, note=worse)]
        made.suite = inputs.own
        work.tell(f"✖ {REQUESTED}: {worse}. The older text is kept.")
        return
    shown = _shown(work, made.suite, cases)
    first = await _try_on(work, first, shown)
    if first.evaluation:
        if first.evaluation.too_many_errors:
            raise UpskillError(
                f"the skill cannot be evaluated: {first.evaluation.why_failed}",
                f"`upskill show {first.evaluation.run.id}` has more. Fix this, then run the same command again:"
                " finished trials are kept. --no-eval skips the evaluation.",
            )
        verdict = first.evaluation.verdicts[0]
        without, with_it = verdict.baseline, verdict.skill
        passed = f"{with_it.passed} of {with_it.scored}"
        work.tell(f"  {without.passed} of {without.scored} → {passed} answers pass")
    made.shown = frozenset(case.id for case in shown)
    fixed, proposal = await together(_fixed(work, cases), _propose(work, first, shown))
    made.suite = _suite_of(work, fixed, tell=work.tell)
    shown = _shown(work, made.suite, fixed)
    made.shown = frozenset(case.id for case in shown)
    made.versions = [await _try_on(work, first, shown)]
    made.ended = await _revise(work, proposal, shown)
    await _decide(work)


async def _breaks_own_cases(work: Work, version: Version) -> str:
    """Why a changed text is worse than the older one on the skill's own cases, in words; empty if it is not."""
    from upskill.verdicts.gate import judge_edit  # noqa: PLC0415 - slow to import

    own, older = work.inputs.own, work.inputs.older
    if own is None or older is None or version.skill.visible_hash == older.visible_hash:
        return ""
    evaluation = await _evaluate(work, version.skill, own.cases, reference=older)
    rounds = evaluation.plan.runs
    assessed = judge_edit(evaluation.verdicts[0], evaluation.outcomes, rounds=rounds, most=rounds)
    if assessed.mark == "block":
        return assessed.words
    work.tell(f"  the skill's own {counted(len(own.cases), 'case')}: {assessed.words}")
    return ""


async def _try_on(work: Work, version: Version, shown: tuple[Case, ...]) -> Version:
    if not shown:
        return version
    return replace(version, evaluation=await _evaluate(work, version.skill, shown))


async def _propose(
    work: Work,
    best: Version,
    shown: tuple[Case, ...],
    tried: Sequence[Tried] = (),
    attempt: int = 1,
) -> Proposal | None:
    """A proposal that reads all failures; None where there is nothing to fix, or no edit can be applied."""
    inputs = work.inputs
    failures = _failures(work, best)
    if not shown or not failures:
        return None
    work.tell(
        f"Revising the skill with {inputs.teacher.name}: {counted(len(failures), 'failure')}."
    )
    failing = {failure.case for failure in failures}
    asked = replace(
        _revision(work, best.skill, failures, title=f"{2 + attempt}-revision"),
        passing=[case.prompt for case in shown if case.id not in failing],
        cases=shown,
        run=partial(_run_for_refiner, work),
        tried=tried,
        attempt=attempt,
    )
    return await inputs.refiner(asked)


async def _revise(work: Work, proposal: Proposal | None, shown: tuple[Case, ...]) -> str:
    """Try one revision after the other on the shown cases; returns why no further one was tried."""
    made = work.made
    tried: list[Tried] = []
    for attempt in range(1, work.inputs.attempts + 1):
        best = made.version
        if attempt > 1:
            proposal = await _propose(work, best, shown, tried, attempt)
        if proposal is None:
            failures = bool(_failures(work, best))
            return "no edit could be applied" if failures else "every shown case passes"
        if not proposal.edits:
            return "the teacher would change nothing"
        version = Version(skill=proposal.skill, decision=NOT_KEPT, proposal=proposal)
        version = await _try_on(work, version, shown)
        passed, before = _passed(version), _passed(best)
        note = f"passes {sum(passed)} of {len(passed)}, {sum(before)} before"
        worse = await _breaks_own_cases(work, version)
        decision = KEPT if sum(passed) >= sum(before) and not worse else NOT_KEPT
        version = replace(version, decision=decision, note=f"{note}; {worse}" if worse else note)
        work.tell(f"  revision {attempt}: {version.note}: {decision}")
        tried.append(Tried(proposal.edits, version.note, tuple(_failures(work, version))))
        made.versions.append(version)
    return "all attempts are used" if work.inputs.attempts else "no revision was asked for"


def _passed(version: Version) -> list[bool]:
    """Of each draw with the skill, on shown cases."""
    rows = version.evaluation.outcomes if version.evaluation else ()
    return [row.passed is True for row in rows if row.arm == "skill"]


async def _decide(work: Work) -> None:
    """The fresh cases, once; all cases, where none was shown."""
    made, student = work.made, work.inputs.student
    assert student is not None
    cases, kind = made.suite.cases, "case"
    if made.shown:
        cases = tuple(case for case in made.suite.held_out if case.id not in made.shown)
        kind = "fresh case"
    if cases:
        work.tell(f"Evaluating on {student.name}... ({counted(len(cases), kind)}, once)")
        made.held_out = await _evaluate(work, made.version.skill, cases, reported=True)


# What the rounds use
# ------------------------------------------------------------------------------------------------


async def _evaluate(
    work: Work,
    skill: Skill,
    cases: tuple[Case, ...],
    *,
    reference: Skill | None = None,
    arms: tuple[Arm, ...] = (),
    reported: bool = False,
) -> Evaluation:
    """CeilingReached where a ceiling ends it."""
    from upskill.runs.running.evaluate import RunOptions, evaluate  # noqa: PLC0415 - slow to import

    inputs, known = work.inputs, work.made.evaluations
    whole = work.made.suite if reported else inputs.own or Suite((), "generated")
    plan = inputs.plan(skill, replace(whole, cases=cases), reference)
    plan = replace(plan, arms=arms) if arms else plan
    options = RunOptions(
        executor=inputs.executor, purpose="eval" if reported else "search", partial=True
    )
    evaluation = await evaluate(
        plan, store=work.store, models=work.models, options=options, events=work.events
    )
    if evaluation.run.id not in {each.run.id for each in known}:
        known.append(evaluation)
    if evaluation.halted and not reported:
        raise CeilingReached(evaluation.halted)
    return evaluation


async def _run_for_refiner(work: Work, skill: Skill, cases: Sequence[Case]) -> list[Failure | None]:
    evaluation = await _evaluate(work, skill, tuple(cases))
    passed = {row.case for row in evaluation.outcomes if row.arm == "skill" and row.passed}
    by_id = {case.id: case for case in cases}
    failures = {each.case: each for each in failures_in_run(work.store, evaluation.run, by_id)}
    unscored = [Failure(case.id, case.prompt, "", ("there is no score",)) for case in cases]
    return [None if each.case in passed else failures.get(each.case, each) for each in unscored]


def _failures(work: Work, version: Version) -> list[Failure]:
    evaluation = version.evaluation
    if evaluation is None:
        return []
    return failures_in_run(work.store, evaluation.run, evaluation.plan.suite.by_id)


def _revision(work: Work, skill: Skill, failures: Sequence[Failure], title: str) -> RevisionRequest:
    options = work.inputs.options
    return RevisionRequest(
        model=work.teacher,
        skill=skill,
        material=work.material,
        failures=failures,
        tokens=options.tokens,
        file_tokens=options.file_tokens if options.student_acts else 0,
        title=title,
    )


def _store(work: Work) -> None:
    """Every text that was tried, for `upskill versions`."""
    inputs, versions = work.inputs, work.made.versions
    search = digest(
        [inputs.material.task, inputs.teacher.name, inputs.student, inputs.options.agent]
    )
    parent: int | None = None
    older = inputs.older
    if older and versions[0].skill.visible_hash != older.visible_hash:
        versions = [Version(skill=older, decision=OLDER_VERSION), *versions]
    for version in versions:
        verdict: dict[str, Any] = {"search_decision": version.decision}
        if version.evaluation:
            verdict |= version.evaluation.verdicts[0].to_dict()
            verdict["run"] = version.evaluation.run.id
        if version.proposal:
            verdict["proposal"] = version.proposal.to_dict()
        accepted = version.decision != NOT_KEPT
        stored = work.store.add_candidate(
            search, version.skill, parent, accepted, version.note or version.decision, verdict
        )
        parent = stored.number if accepted else parent


# Saving
# ------------------------------------------------------------------------------------------------


def _save_draft(work: Work, skill: Skill, cases: Sequence[WrittenCase]) -> None:
    """What is written so far, marked as unproven, so that nothing later can lose it."""
    inputs = work.inputs
    folder = inputs.destination.draft_folder(skill)
    if inputs.older or folder is None:
        return
    suite = Suite(tuple(each.sound for each in cases if each.sound), "generated")
    skill = _with_record(work, named_after(folder, skill), DRAFT)
    inputs.destination.save(add_suite(skill, suite), folder)
    work.tell(f"Saved the unproven draft to {folder}.")


def _save(work: Work, cost: SearchCost, ledger: Ledger) -> Generated:
    inputs, made = work.inputs, work.made
    skill = made.version.skill
    folder = inputs.destination.choose_folder(skill)
    is_changed = inputs.older is None or inputs.older.visible_hash != skill.visible_hash
    skill = _with_record(work, named_after(folder, skill), UNPROVEN)
    skill = Provenance.of(skill).with_cost(cost).add_to(skill)
    # Cases for a change that was not made would only fail.
    suite = made.suite if is_changed or not inputs.own else inputs.own
    skill = _with_seen(work, add_suite(skill, suite))
    skill, previous = inputs.destination.save(skill, folder)
    if inputs.requested and not is_changed:
        why = next((each.note for each in made.versions if each.note), "no edit could be applied")
        work.tell(f"The requested change was not made: {why}. The skill is unchanged.")
    if previous:
        work.tell(f"The previous version is in {previous}.")
    return Generated(
        skill=skill,
        folder=folder,
        suite=suite,
        material=inputs.material,
        teacher=inputs.teacher,
        student=inputs.student,
        made=made,
        cost=cost,
        spent=dict(ledger.spent),
        calls=ledger.calls,
        previous=previous,
        feedback=tuple(inputs.feedback.outcomes()),
        unchanged=not is_changed,
    )


def _with_record(work: Work, skill: Skill, state: str) -> Skill:
    """The skill with who made it, from what, and how it did; `state` where nothing was measured."""
    inputs, made = work.inputs, work.made
    provenance = Provenance.of(skill)
    older, teacher, task = inputs.older, inputs.teacher.name, inputs.material.task
    if older is None:
        provenance = provenance.with_author(teacher, task)
    elif older.visible_hash != skill.visible_hash:
        provenance = provenance.with_request(teacher, task)
    evaluation = made.held_out or made.version.evaluation
    if evaluation and evaluation.verdicts[0].skill.scored:
        verdict = evaluation.verdicts[0]
        result = {
            "test_pass_rate": verdict.skill.pass_rate,
            "baseline_pass_rate": verdict.baseline.pass_rate,
            "evaluated_on": shared_name(verdict.model),
            "evaluated_cases": evaluated_cases(made),
            "pairs": verdict.pairs,
            "decision": verdict.decision,
            "about": verdict.about,
        }
        provenance = replace(provenance, metadata={**provenance.metadata, **result})
        state = ""
    skill = mark_own_lines(provenance.with_state(state).add_to(skill), inputs.material)
    return add_material(skill, inputs.material)


def evaluated_cases(made: Made) -> str:
    if not made.held_out:
        return "shown"
    if not made.shown:
        return "all"
    return "fresh" if made.held_out.fresh else "held-out"


def student_notes(generated: Generated) -> list[str]:
    from upskill.runs.results.evaluation import is_too_weak  # noqa: PLC0415 - slow to import

    evaluation, student = generated.held_out or generated.fit, generated.student
    if evaluation is None or student is None or student.provider != "local":
        return []
    verdict = evaluation.verdicts[0]
    notes: list[str] = []
    if not verdict.baseline.passed and not verdict.skill.passed:
        notes.append(
            "The student passed no case, so this says nothing about the skill. The student may be too small."
        )
    if is_too_weak(verdict) and (larger := next_student(student.model, "--student")):
        notes.append(larger)
    return notes


def _with_seen(work: Work, skill: Skill) -> Skill:
    """The shown cases chose the text, so their results belong to the one before; the fresh ones measured it."""
    made, older = work.made, work.inputs.older
    before = older.text_hash if older else ""
    for evaluation in made.evaluations:
        if evaluation.plan.reference_skill:
            skill = skill.with_seen(evaluation.plan.suite.by_id, before)
    if made.versions[0].evaluation:
        skill = skill.with_seen(made.shown, before)
    if made.held_out:
        skill = skill.with_seen(made.held_out.plan.suite.by_id, skill.text_hash)
    return skill


def _cost(work: Work, recorded: Usage, used: Iterable[tuple[str, Usage]]) -> SearchCost:
    """`recorded` is a lesson's, whose replies may have been paid for long ago."""
    inputs = work.inputs
    by_role = {"teacher": recorded, "test writer": NO_USAGE}
    for role, usage in used:
        if role in by_role:
            by_role[role] += usage
    writing = {
        role: (usage.total_tokens, usage.cost_usd)
        for role, usage in by_role.items()
        if usage != NO_USAGE
    }
    older = inputs.older.visible_hash if inputs.older else ""
    search = digest([inputs.material.task, inputs.teacher.name, older])
    runs = (evaluation.run for evaluation in work.made.evaluations)
    return SearchCost(search, writing | work.store.spent(*runs))
