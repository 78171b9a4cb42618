"""Search for a description on which a skill fires better.

The teacher sees train queries only, validation queries choose, and test queries are run once, at the end, with the
description that was there and with the one that was chosen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from upskill.authoring.saving.output import check_output, named_after, replace_manifest
from upskill.authoring.search.loop import SearchLoop
from upskill.authoring.trigger.plan import estimate_runs
from upskill.authoring.trigger.queries import MAX_BODY, describe_skill
from upskill.authoring.trigger.trigger import TriggerOptions, TriggerSession
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import InvalidAnswer, NoUsableAnswer, StructuredRequest, ask
from upskill.errors import CeilingReached, UpskillError, UsageError
from upskill.models import Address, Model
from upskill.models.addresses import resolve
from upskill.models.keys import find_keys
from upskill.models.pool import Models
from upskill.models.prices import Prices, price_for
from upskill.plain import counted, digest, object_schema
from upskill.runs.planning.estimate import CostEstimate
from upskill.runs.planning.plan import Plan
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.events import Events
from upskill.runs.stores import Store
from upskill.skills import Skill, estimate_tokens
from upskill.suites.queries import PARTS, Part, Queries
from upskill.traces.redaction.redact import redact
from upskill.verdicts.firing import FiringMetrics, QueryRate, compute_firing_metrics, paired_change
from upskill.verdicts.statistics import Estimate

MAX_DESCRIPTION = 1024  # characters


@dataclass
class DescriptionAttempt:
    """A description and its metrics on the queries that the search may look at."""

    number: int  # 0: the description that was there
    skill: Skill
    train: FiringMetrics | None = None  # None: it was not worth running
    validation: FiringMetrics | None = None
    accepted: bool | None = None  # None: undecided, or nothing to compare with
    note: str = ""
    run: str = ""
    candidate: int | None = None  # its number in the store


@dataclass(frozen=True)
class DescriptionComparison:
    """Both descriptions on the queries that nothing has seen before."""

    before: FiringMetrics
    after: FiringMetrics
    change: Estimate | None  # in the share of runs that did what they should, paired by query and seed
    p_value: float | None


@dataclass
class Improvement:
    """Result of a search for a better description."""

    plan: Plan  # of the skill as it was, on all queries
    queries: Queries
    attempts: list[DescriptionAttempt]  # the first is the description that was there
    best: DescriptionAttempt
    test: (
        DescriptionComparison | None
    )  # None: nothing better was found, or a ceiling was reached; the test queries are unused
    ended: str  # why the search ended
    halted: str = ""  # the ceiling that ended it
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])
    # Tokens and dollars by role.
    spent: Mapping[str, tuple[int, float | None]] = field(default_factory=dict[str, tuple[int, float | None]])
    saved_to: Path | None = None

    @property
    def skill(self) -> Skill:
        """The skill with the best description, which may be the one that was there."""
        return self.best.skill

    @property
    def improved(self) -> bool:
        return self.best.number > 0

    @property
    def has_failed(self) -> bool:
        """The numbers cannot be relied on: too many errors in the test, a leak, or a bug."""
        if any(evaluation.leaked or evaluation.bugs for evaluation in self.evaluations):
            return True
        return self.test is not None and (self.test.before.too_many_errors or self.test.after.too_many_errors)


async def improve_description(
    options: TriggerOptions, *, store: Store | None = None, models: Models | None = None, events: Events | None = None
) -> Improvement:
    """Search for a better description, and save it where `write` or `output` ask for it.

    The teacher is shown train failures. A candidate replaces the best so far when its score on validation queries is
    higher (a tie keeps the older one): a choice by point estimates, whose winner looks better than it is. Therefore the
    test queries, which no prompt and no run has seen until then, are run once, for the description that was there and
    for the one that was chosen. Where nothing better was found, they stay unused.
    """
    _check_options(options)
    teacher = _choose_teacher(options, models.context.keys if models else find_keys())
    session = TriggerSession(options, models, events or Events(), teacher)
    if session.queries is not None:
        check_parts(session.queries)
        session.check_queries(session.queries)
    async with session.open(store):
        model = await session.open_models()
        assert model is not None
        queries = await session.find_queries()
        check_parts(queries)
        prices = session.models.context.prices
        expected = estimate_improvement(session.plan, session.skill, queries, teacher, options.attempts, prices)
        session.announce(expected)
        found = await _Search(session, queries, model, teacher.name).run()
    found.spent = session.spent
    if found.improved and not found.halted:
        found.saved_to = _save(found.skill, session.skill.folder, options)
    return found


def _check_options(options: TriggerOptions) -> None:
    if options.requirements:
        raise UsageError("--require and --improve contradict each other", "Check the requirement in a second run.")
    if options.write and options.output:
        raise UsageError("--write and --output contradict each other")
    if len(options.students) > 1:
        raise UsageError("a description is improved for one student at a time", "Give one -m.")
    if options.output:
        check_output(Path(options.output), may_replace=options.force)


def _choose_teacher(options: TriggerOptions, keys: Mapping[str, str]) -> Address:
    name = options.teacher or options.settings.teacher
    if not name:
        raise UsageError("no teacher is named to rewrite the description", "Name a model with --teacher.")
    return resolve(name, keys=keys)


def _save(skill: Skill, folder: Path | None, options: TriggerOptions) -> Path | None:
    if options.output:
        place = Path(options.output)
        return named_after(place, skill).save(place, overwrite=options.force)
    return replace_manifest(skill, folder) if options.write and folder else None


def check_parts(queries: Queries) -> None:
    """UsageError where the queries do not suffice to choose by and to report on."""
    for part in PARTS:
        here = queries.part(part)
        kinds = (("should trigger", here.should_trigger), ("should not trigger", here.should_not_trigger))
        lacking = [kind for kind, found in kinds if not found]
        if part == "train":
            lacking = [] if len(here) else ["should trigger or should not"]
        if lacking:
            raise UsageError(
                f"{queries.source}: none of the {part} queries {lacking[0]}",
                "Add queries of that kind: the words of a query decide its part, and ten of each kind usually suffice.",
            )


@dataclass
class _Search(SearchLoop[DescriptionAttempt]):
    session: TriggerSession
    queries: Queries
    teacher: Model
    teacher_name: str
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])
    id: str = ""  # under which candidates are stored

    async def run(self) -> Improvement:
        session, skill = self.session, self.session.skill
        plan = session.plan(skill, self.queries)
        self.id = digest(["description", skill.visible_hash, self.teacher_name, plan.fingerprint])
        try:
            await self.search([skill], session.options.attempts)
        except CeilingReached as reached:
            self.halted = reached.message
        assert self.best is not None
        best = self.best
        test = await self._test(skill, best.skill) if best.number and not self.halted else None
        ended = self.halted or self.ended
        return Improvement(
            plan=plan,
            queries=self.queries,
            attempts=self.attempts,
            best=best,
            test=test,
            ended=ended,
            halted=self.halted,
            evaluations=self.evaluations,
        )

    def reason_to_stop(self) -> str:
        assert self.best is not None
        assert self.best.validation is not None
        if self.best.validation.score == 1.0:
            return "nothing is left to gain"
        return "" if self._failures(self.best) else "no train query fails"

    def _failures(self, attempt: DescriptionAttempt) -> list[QueryRate]:
        assert attempt.train is not None
        return [rate for rate in attempt.train.rates if rate.accuracy is not None and rate.accuracy < 1.0]

    async def propose_and_try(self, number: int) -> DescriptionAttempt:
        best = self.best
        assert best is not None
        proposal = await _propose(
            teacher=self.teacher,
            number=number,
            best=best,
            failures=self._failures(best),
            attempts=self.attempts,
            distractors=self.session.distractors,
        )
        if proposal is None:
            note = "no description was proposed that can be used"
            return self.keep(DescriptionAttempt(number, best.skill, accepted=False, note=note))
        description, note = proposal
        return await self._try(DescriptionAttempt(number, best.skill.with_description(description), note=note))

    async def try_draft(self, draft: Skill) -> DescriptionAttempt:
        return await self._try(DescriptionAttempt(0, draft, note="the description that was there"))

    async def _try(self, attempt: DescriptionAttempt) -> DescriptionAttempt:
        """Run a description on train and validation queries."""
        if self.was_tried(attempt.skill):
            attempt.accepted, attempt.note = False, "the same as one that was tried before"
            return self.keep(attempt)
        what = f"attempt {attempt.number}" if attempt.number else "the current description"
        evaluation = await self._evaluate(what, attempt.skill, "train", "validation")
        attempt.run = evaluation.run.id
        attempt.train, attempt.validation = (self._metrics(evaluation, part) for part in ("train", "validation"))
        if self.best is None and not self.halted and attempt.validation.too_many_errors:
            raise _measuring_error(evaluation)
        if self.best is not None and not self.halted:
            attempt.accepted = _is_better(attempt.validation, self.best.validation)
        return self.keep(attempt)

    def store_attempt(self, attempt: DescriptionAttempt) -> None:
        first = (self.attempts or [attempt])[0].validation
        verdict = {
            "baseline": {"pass_rate": first.score if first else None},
            "skill": {"pass_rate": attempt.validation.score if attempt.validation else None},
            "run": attempt.run,
            "description": attempt.skill.description,
        }
        parent = self.best.candidate if self.best else None
        accepted = True if self.best is None else attempt.accepted
        note = f"description, on validation queries: {attempt.note}"
        stored = self.session.store.add_candidate(self.id, attempt.skill, parent, accepted, note, verdict)
        attempt.candidate = stored.number

    def report(self, attempt: DescriptionAttempt) -> None:
        self.session.events.message(f"  {_summary(attempt)}")

    async def _test(self, before: Skill, after: Skill) -> DescriptionComparison | None:
        """Run the test queries, once for each description; None where a ceiling ends that."""
        old = await self._evaluate("the test queries with the old description", before, "test")
        if self.halted:
            return None
        new = await self._evaluate("the test queries with the new one", after, "test")
        if self.halted:
            return None
        change, p_value = paired_change(old.outcomes, new.outcomes) or (None, None)
        return DescriptionComparison(self._metrics(old, "test"), self._metrics(new, "test"), change, p_value)

    async def _evaluate(self, what: str, skill: Skill, *parts: Part) -> Evaluation:
        queries = self.queries.part(*parts)
        plan = self.session.plan(skill, queries)
        evaluation = await self.session.evaluate(plan, f"Running {what}: {len(queries)} queries...")
        self.evaluations.append(evaluation)
        if evaluation.stopped:
            raise _measuring_error(evaluation)
        self.halted = self.halted or evaluation.halted
        return evaluation

    def _metrics(self, evaluation: Evaluation, part: Part) -> FiringMetrics:
        return compute_firing_metrics(evaluation.plan.models[0].name, self.queries.part(part), evaluation.outcomes)


def _is_better(new: FiringMetrics, old: FiringMetrics | None) -> bool | None:
    """Whether the score is higher; None where too much errored to say."""
    if new.too_many_errors or new.score is None or old is None or old.score is None:
        return None
    return new.score > old.score


def _summary(attempt: DescriptionAttempt) -> str:
    if attempt.train is None or attempt.validation is None:
        return f"not kept: {attempt.note}"
    scores = [
        f"{part} –" if metrics.score is None else f"{part} {round(100 * metrics.score)}%"
        for part, metrics in (("train", attempt.train), ("validation", attempt.validation))
    ]
    if not attempt.number:
        return ", ".join(scores)
    decision = {True: "kept", False: "not kept", None: "not decided"}[attempt.accepted]
    return f"{', '.join(scores)}: {decision}" + (f" ({attempt.note})" if attempt.note else "")


def _measuring_error(evaluation: Evaluation) -> UpskillError:
    cannot = "the current description cannot be measured"
    if evaluation.bug_messages and not evaluation.errors:
        message, runs = evaluation.bug_messages[0]
        hint = f"`upskill show {evaluation.run.id} --bugs` prints the tracebacks. Please report them."
        return UpskillError(f"{cannot}: a bug in upskill ended {counted(runs, 'run')}: {message}", hint)
    model, message, runs = evaluation.errors[0] if evaluation.errors else ("the student", "nothing was scored", 0)
    return UpskillError(
        f"{cannot}: {counted(runs, 'run')} of {model} errored: {message}",
        "Fix this and give the same command again: what was finished is kept.",
    )


# What the teacher is asked.


async def _propose(
    teacher: Model,
    number: int,
    best: DescriptionAttempt,
    failures: Sequence[QueryRate],
    attempts: Sequence[DescriptionAttempt],
    distractors: Sequence[Skill],
) -> tuple[str, str] | None:
    """Another description and a note on it, made from train failures; None where no answer can be used."""
    worst = sorted(failures, key=lambda rate: (rate.accuracy or 0.0, rate.query.text))
    tried = [
        {"description": attempt.skill.description, "on_these_requests": _describe_metrics(attempt.train)}
        for attempt in attempts
        if attempt.train is not None and attempt.skill.description != best.skill.description
    ]
    shown = describe_skill(best.skill, distractors) | {
        "should_have_opened_it": [_describe_rate(rate) for rate in worst if rate.query.should_trigger],
        "should_not_have_opened_it": [_describe_rate(rate) for rate in worst if not rate.query.should_trigger],
        "tried_before": tried,
    }
    request = StructuredRequest(
        "rewriting the description",
        read_prompt("rewrite_description", longest=MAX_DESCRIPTION),
        json.dumps(shown, ensure_ascii=False),
        object_schema(
            {
                "note": {"type": "string", "maxLength": 300},
                "description": {"type": "string", "maxLength": MAX_DESCRIPTION},
            }
        ),
        max_output_tokens=1500,
        seed=number,
    )
    queries = [rate.query.text for rate in failures]

    def read(answer: dict[str, Any], _last: bool) -> tuple[str, str]:
        return _read_description(answer.get("description"), queries), " ".join(str(answer.get("note", "")).split())

    try:
        return await ask(teacher, request, read)
    except NoUsableAnswer:
        return None


def _read_description(answer: object, queries: Iterable[str]) -> str:
    text = " ".join(answer.split()) if isinstance(answer, str) else ""
    if not text:
        raise InvalidAnswer("the description is empty")
    if len(text) > MAX_DESCRIPTION:
        raise InvalidAnswer(f"the description has {len(text)} characters, and may have {MAX_DESCRIPTION}")
    if "<" in text or ">" in text:
        raise InvalidAnswer("the description has angle brackets in it")
    if re.match(r"(I|I'm|I'll|We|You|You're|Your|My)\b", text, re.IGNORECASE):
        raise InvalidAnswer("the description is not in the third person")
    for query in queries:
        if len(query) >= 20 and query.casefold().rstrip(".?! ") in text.casefold():
            raise InvalidAnswer(f"the description repeats a request word for word: {query[:60]!r}; say it in general")
    return text


def _describe_rate(rate: QueryRate) -> dict[str, Any]:
    return {"request": redact(rate.query.text), "opened": f"{rate.triggered} of {rate.scored} times"}


def _describe_metrics(metrics: FiringMetrics) -> str:
    said = [f"opened on {metrics.recall.value:.0%} of those that need it"] if metrics.recall else []
    said += [f"on {metrics.false_triggers.value:.0%} of those that do not"] if metrics.false_triggers else []
    return ", ".join(said)


def estimate_improvement(
    plan_for: Callable[[Skill, Queries], Plan],
    skill: Skill,
    queries: Queries,
    teacher: Address,
    attempts: int,
    given: Prices | Mapping[str, Mapping[str, float]],
) -> CostEstimate:
    """The low end is a description that is good as it is, the high end every attempt with each answer asked for twice
    more."""
    seen = plan_for(skill, queries.part("train", "validation"))
    last = plan_for(skill, queries.part("test"))
    each, end = (estimate_runs(plan, plan.trials(), given) for plan in (seen, last))
    price = price_for(teacher, given)
    asked = estimate_tokens(skill.body[:MAX_BODY]) + 2000
    tokens, cost = asked + 400, price.cost(asked, 400)
    calls = 3 * attempts
    unknown = (*each.unknown, *((teacher.name,) if cost is None else ()))
    return CostEstimate(
        (attempts + 1) * each.calls + 2 * end.calls + calls,
        (each.tokens[0], (attempts + 1) * each.tokens[1] + 2 * end.tokens[1] + calls * tokens),
        (each.cost_usd[0], (attempts + 1) * each.cost_usd[1] + 2 * end.cost_usd[1] + calls * (cost or 0.0)),
        tuple(dict.fromkeys(unknown)),
    )
