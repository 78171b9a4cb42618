"""Search for a better description: the teacher sees train queries, validation queries choose, test queries decide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from upskill.authoring.saving.output import check_output, named_after, replace_manifest
from upskill.authoring.trigger.loop import SearchLoop, evaluation_error
from upskill.authoring.trigger.metrics import (
    PairedChange,
    QueryRate,
    TriggerMetrics,
    compute_trigger_metrics,
    min_queries,
    paired_change,
)
from upskill.authoring.trigger.trigger import (
    MAX_BODY,
    TriggerOptions,
    TriggerSession,
    describe_skill,
    estimate_runs,
)
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import (
    InvalidAnswer,
    NoUsableAnswer,
    StructuredRequest,
    ask,
    text_schema,
)
from upskill.errors import CeilingReached, UpskillError, UsageError
from upskill.models import Address, Model
from upskill.models.addresses import resolve
from upskill.models.keys import find_keys
from upskill.models.pool import Models
from upskill.models.prices import price_for
from upskill.plain import digest, object_schema
from upskill.runs.planning.estimate import CostEstimate
from upskill.runs.planning.plan import Plan
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.events import Events
from upskill.runs.stores import Run, Store
from upskill.skills import Skill, estimate_tokens
from upskill.suites.queries import Part, Queries
from upskill.traces.redaction.redact import redact

MAX_DESCRIPTION = 1024  # characters
# The chance that a description that is no better is called better: by the first test on the same queries, and by all
# later ones together.
FIRST_TEST, LATER_TESTS = 0.04, 0.01


@dataclass
class DescriptionAttempt:
    number: int  # 0: the description that was there
    skill: Skill
    train: TriggerMetrics | None = None  # None: it was not worth running
    validation: TriggerMetrics | None = None
    accepted: bool | None = None  # None: undecided, or nothing to compare with
    note: str = ""
    run: str = ""
    candidate: int | None = None  # its number in the store


@dataclass(frozen=True)
class DescriptionComparison:
    before: TriggerMetrics
    after: TriggerMetrics
    change: PairedChange | None  # in the share of runs that did what they should
    number: int  # which test of a description on these queries it is; the interval allows for those before


@dataclass
class Improvement:
    plan: Plan  # of the skill as it was, on all queries
    queries: Queries
    attempts: list[DescriptionAttempt]  # the first is the description that was there
    best: DescriptionAttempt  # on validation queries
    test: (
        DescriptionComparison | None
    )  # None: nothing better was found, or a ceiling came first; they are unused
    ended: str  # why the search ended
    halted: str = ""  # the ceiling that ended it
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])
    # Tokens and dollars by role.
    spent: Mapping[str, tuple[int, float | None]] = field(
        default_factory=dict[str, tuple[int, float | None]]
    )
    saved_to: Path | None = None

    @property
    def skill(self) -> Skill:
        return (self.best if self.improved else self.attempts[0]).skill

    @property
    def improved(self) -> bool:
        """The test queries show that the chosen description is better."""
        change = self.test.change if self.test and not self.halted and not self.has_failed else None
        return change is not None and change.is_better

    @property
    def has_failed(self) -> bool:
        """The numbers cannot be relied on: too many errors in the test, a leak, or a bug."""
        if any(evaluation.leaked or evaluation.bugs for evaluation in self.evaluations):
            return True
        return self.test is not None and (
            self.test.before.too_many_errors or self.test.after.too_many_errors
        )


async def improve_description(
    options: TriggerOptions,
    *,
    store: Store | None = None,
    models: Models | None = None,
    events: Events | None = None,
) -> Improvement:
    """Validation queries pick the winner, which flatters it, so only what test queries show to be better is written."""
    if options.requirements:
        raise UsageError(
            "--require and --improve cannot be used together",
            "Check the requirement in a second run.",
        )
    if options.write and options.output:
        raise UsageError("--write and --output cannot be used together")
    if len(options.students) > 1:
        raise UsageError("--improve takes one student at a time", "Pass -m only once.")
    if options.output:
        check_output(Path(options.output), may_replace=options.force)
    name = options.teacher or options.settings.teacher
    if not name:
        raise UsageError("--improve needs a teacher", "Choose a model with --teacher.")
    teacher = resolve(name, keys=models.context.keys if models else find_keys())
    session = TriggerSession(options, models, events or Events(), teacher)
    if session.queries is not None:
        check_parts(session.queries)
        session.check_queries(session.queries)
    elif options.count < 2 * (needed := min_queries(level_of_test(1))):
        raise UsageError(
            f"{options.count} queries are too few for a test", f"Use --count {2 * needed} or more."
        )
    async with session.open(store):
        model = await session.open_models()
        assert model is not None
        queries = await session.find_queries()
        check_parts(queries)
        session.announce(estimate_improvement(session, queries, teacher))
        improvement = await _Search(session, queries, model, teacher.name).run()
    improvement.spent = session.spent
    if improvement.improved:
        if options.output:
            folder = Path(options.output)
            improvement.saved_to = named_after(folder, improvement.skill).save(
                folder, overwrite=options.force
            )
        elif options.write and session.skill.folder:
            improvement.saved_to = replace_manifest(improvement.skill, session.skill.folder)
    return improvement


def check_parts(queries: Queries) -> None:
    """UsageError if there are too few queries to choose by, or for a test of a description to show anything."""
    tests, needed = len(queries.part("test")), min_queries(level_of_test(1))
    for kind, what in (
        (queries.should_trigger, "should_trigger: true"),
        (queries.should_not_trigger, "should_trigger: false"),
    ):
        if len(kind) < 2:
            count = "only one query is" if kind else "no query is"
            raise UsageError(
                f"{queries.source}: {count} marked {what}",
                f"A description is chosen and tested on both kinds: write at least {needed} of each.",
            )
    if tests < needed:
        raise UsageError(
            f"{queries.source}: {tests} test queries are too few to show that any description is better",
            f"At least {needed} are needed, and the test uses half of the queries: write at least {needed} of each"
            " kind, preferably 15. If there are none, --test-writer MODEL --count N writes them.",
        )


def level_of_test(number: int) -> float:
    """Of the interval that has to be above 0."""
    return 1.0 - 2.0 * (FIRST_TEST if number == 1 else LATER_TESTS / (number * (number - 1)))


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
        return Improvement(
            plan=plan,
            queries=self.queries,
            attempts=self.attempts,
            best=self.best,
            test=await self._test(skill, self.best.skill)
            if self.best.number and not self.halted
            else None,
            ended=self.halted or self.ended,
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
        return [
            rate
            for rate in attempt.train.rates
            if rate.accuracy is not None and rate.accuracy < 1.0
        ]

    async def propose_and_try(self, number: int) -> DescriptionAttempt:
        best = self.best
        assert best is not None
        proposal = await self._propose(number, best)
        if proposal is None:
            note = "no usable description was proposed"
            return self.keep(DescriptionAttempt(number, best.skill, accepted=False, note=note))
        description, note = proposal
        return await self.try_skill(best.skill.with_description(description), note)

    async def try_skill(
        self, skill: Skill, note: str = "the description that was there"
    ) -> DescriptionAttempt:
        attempt = DescriptionAttempt(len(self.attempts), skill, note=note)
        if self.was_tried(skill):
            attempt.accepted, attempt.note = False, "the same as one that was tried before"
            return self.keep(attempt)
        what = f"attempt {attempt.number}" if attempt.number else "the current description"
        evaluation = await self._evaluate(what, attempt.skill, "train", "validation")
        attempt.run = evaluation.run.id
        attempt.train, attempt.validation = (
            self._metrics(evaluation, part) for part in ("train", "validation")
        )
        if self.best is None and not self.halted and attempt.validation.too_many_errors:
            raise self._cannot_measure(evaluation)
        if self.best is not None and not self.halted and not attempt.validation.too_many_errors:
            before, after = self.best.validation, attempt.validation
            if before is not None and before.score is not None and after.score is not None:
                attempt.accepted = after.score > before.score
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
        stored = self.session.store.add_candidate(
            self.id, attempt.skill, parent, accepted, note, verdict
        )
        attempt.candidate = stored.number

    def report(self, attempt: DescriptionAttempt) -> None:
        self.session.events.message(f"  {_summary(attempt)}")

    def _number_of_test(self, before: Skill, own: Run) -> int:
        """Which test of a description a run is, by the runs before it of other descriptions on these test queries."""
        ids = {query.id for query in self.queries.part("test")}
        return 1 + sum(
            run.number < own.number
            and run.plan.skill.description != before.description
            and all(case.held_out for case in run.plan.suite.cases)
            and any(case.id in ids for case in run.plan.suite.cases)
            for run in self.session.store.runs(before.name)
        )

    async def _test(self, before: Skill, after: Skill) -> DescriptionComparison | None:
        """Run the test queries once for each description; None if a ceiling stops that."""
        old = await self._evaluate("the test queries with the old description", before, "test")
        if self.halted:
            return None
        new = await self._evaluate("the test queries with the new one", after, "test")
        if self.halted:
            return None
        number = self._number_of_test(before, new.run)
        change = paired_change(old.outcomes, new.outcomes, level=level_of_test(number))
        return DescriptionComparison(
            self._metrics(old, "test"), self._metrics(new, "test"), change, number
        )

    async def _evaluate(self, what: str, skill: Skill, *parts: Part) -> Evaluation:
        queries = self.queries.part(*parts)
        plan = self.session.plan(skill, queries)
        evaluation = await self.session.evaluate(plan, f"Running {what}: {len(queries)} queries...")
        self.evaluations.append(evaluation)
        if evaluation.stopped:
            raise self._cannot_measure(evaluation)
        self.halted = self.halted or evaluation.halted
        return evaluation

    def _metrics(self, evaluation: Evaluation, part: Part) -> TriggerMetrics:
        return compute_trigger_metrics(
            evaluation.plan.models[0].name, self.queries.part(part), evaluation.outcomes
        )

    def _cannot_measure(self, evaluation: Evaluation) -> UpskillError:
        return evaluation_error(
            "the current description cannot be measured", evaluation, trial="run"
        )

    async def _propose(self, number: int, best: DescriptionAttempt) -> tuple[str, str] | None:
        """Another description and a note on it, made from train failures; None where no answer can be used."""
        failures = self._failures(best)
        requests: dict[bool, list[dict[str, str]]] = {True: [], False: []}
        for rate in sorted(failures, key=lambda rate: (rate.accuracy or 0.0, rate.query.text)):
            row = {
                "request": redact(rate.query.text),
                "opened": f"{rate.triggered} of {rate.scored} times",
            }
            requests[rate.query.should_trigger].append(row)
        material = describe_skill(best.skill, self.session.distractors) | {
            "should_have_opened_it": requests[True],
            "should_not_have_opened_it": requests[False],
            "tried_before": [
                {
                    "description": attempt.skill.description,
                    "on_these_requests": _describe_metrics(attempt.train),
                }
                for attempt in self.attempts
                if attempt.train is not None and attempt.skill.description != best.skill.description
            ],
        }
        request = StructuredRequest(
            "rewriting the description",
            read_prompt("rewrite_description", longest=MAX_DESCRIPTION),
            json.dumps(material, ensure_ascii=False),
            object_schema({"note": text_schema(300), "description": text_schema(MAX_DESCRIPTION)}),
            max_output_tokens=1500,
            title=f"{number}-description",
            seed=number,
        )
        queries = [rate.query.text for rate in failures]

        def read(answer: dict[str, Any], _last: bool) -> tuple[str, str]:
            return _read_description(answer.get("description"), queries), " ".join(
                str(answer.get("note", "")).split()
            )

        try:
            return await ask(self.teacher, request, read)
        except NoUsableAnswer:
            return None


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


def _read_description(answer: object, queries: Iterable[str]) -> str:
    text = " ".join(answer.split()) if isinstance(answer, str) else ""
    if not text:
        raise InvalidAnswer("the description is empty")
    if len(text) > MAX_DESCRIPTION:
        raise InvalidAnswer(
            f"the description has {len(text)} characters; at most {MAX_DESCRIPTION} are allowed"
        )
    if "<" in text or ">" in text:
        raise InvalidAnswer("the description contains angle brackets")
    if re.match(r"(I|I'm|I'll|We|You|You're|Your|My)\b", text, re.IGNORECASE):
        raise InvalidAnswer("the description is not in the third person")
    for query in queries:
        if len(query) >= 20 and query.casefold().rstrip(".?! ") in text.casefold():
            raise InvalidAnswer(
                f"the description repeats a request word for word: {query[:60]!r}; say it in general"
            )
    return text


def _describe_metrics(metrics: TriggerMetrics) -> str:
    shares = (
        [f"opened on {metrics.recall.value:.0%} of those that need it"] if metrics.recall else []
    )
    shares += (
        [f"on {metrics.false_triggers.value:.0%} of those that do not"]
        if metrics.false_triggers
        else []
    )
    return ", ".join(shares)


def estimate_improvement(
    session: TriggerSession, queries: Queries, teacher: Address
) -> CostEstimate:
    """From a description that is already good, to every attempt with each answer asked for twice more."""
    skill, attempts, prices = session.skill, session.options.attempts, session.models.context.prices
    plans = [
        session.plan(skill, part)
        for part in (queries.part("train", "validation"), queries.part("test"))
    ]
    search, test = (estimate_runs(plan, plan.trials(), prices) for plan in plans)
    prompt = estimate_tokens(skill.body[:MAX_BODY]) + 2000
    cost = price_for(teacher, prices).cost(prompt, 400)
    calls = 3 * attempts
    unknown = (*search.unknown, *((teacher.name,) if cost is None else ()))
    return CostEstimate(
        (attempts + 1) * search.calls + 2 * test.calls + calls,
        (
            search.tokens[0],
            (attempts + 1) * search.tokens[1] + 2 * test.tokens[1] + calls * (prompt + 400),
        ),
        (
            search.cost_usd[0],
            (attempts + 1) * search.cost_usd[1] + 2 * test.cost_usd[1] + calls * (cost or 0.0),
        ),
        tuple(dict.fromkeys(unknown)),
    )
