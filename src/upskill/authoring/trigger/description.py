"""Search for a better description: the teacher sees train queries, validation queries choose, test queries decide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from upskill.authoring.saving.output import check_output, named_after, replace_manifest
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
from upskill.plain import digest, object_schema
from upskill.runs.planning.estimate import CostEstimate, estimate, estimate_writing
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
    """What the search came to, filled in while it runs."""

    plan: Plan  # of the skill as it was, on all queries
    queries: Queries
    attempts: list[DescriptionAttempt] = field(default_factory=list[DescriptionAttempt])
    # None: nothing better was found, or a ceiling came first; its queries are unused.
    test: DescriptionComparison | None = None
    ended: str = ""  # why the search ended
    halted: str = ""  # the ceiling that ended it
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])
    # Tokens and dollars by role.
    spent: Mapping[str, tuple[int, float | None]] = field(
        default_factory=dict[str, tuple[int, float | None]]
    )
    saved_to: Path | None = None

    @property
    def best(self) -> DescriptionAttempt:
        """On validation queries. The first attempt is the description that was there."""
        better = (each for each in reversed(self.attempts) if each.accepted)
        return next(better, self.attempts[0])

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
        improvement = Improvement(session.plan(session.skill, queries), queries)
        await _Search(session, improvement, model, teacher.name).run()
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
class _Search:
    session: TriggerSession
    made: Improvement
    teacher: Model
    teacher_name: str

    async def run(self) -> None:
        made, skill = self.made, self.session.skill
        try:
            await self._try(skill, "the description that was there")
            made.ended = await self._search()
            if made.best.number:
                made.test = await self._test(skill, made.best.skill)
        except CeilingReached as reached:
            made.halted = made.ended = reached.message

    async def _search(self) -> str:
        """Propose and try; returns why no further description was tried."""
        made = self.made
        for number in range(1, self.session.options.attempts + 1):
            best = made.best
            failures = _failures(best)
            if best.validation and best.validation.score == 1.0:
                return "nothing is left to gain"
            if not failures:
                return "no train query fails"
            try:
                description, note = await self._propose(number, best, failures)
            except NoUsableAnswer:
                note = "no usable description was proposed"
                self._keep(DescriptionAttempt(number, best.skill, accepted=False, note=note))
            else:
                await self._try(best.skill.with_description(description), note)
        return "all attempts are used"

    async def _try(self, skill: Skill, note: str) -> None:
        made = self.made
        attempt = DescriptionAttempt(len(made.attempts), skill, note=note)
        if any(skill.visible_hash == each.skill.visible_hash for each in made.attempts):
            attempt.accepted, attempt.note = False, "the same as one that was tried before"
            self._keep(attempt)
            return
        what = f"attempt {attempt.number}" if attempt.number else "the current description"
        evaluation = await self._evaluate(what, skill, "train", "validation")
        attempt.run = evaluation.run.id
        attempt.train = self._metrics(evaluation, "train")
        after = attempt.validation = self._metrics(evaluation, "validation")
        if not evaluation.halted and after.too_many_errors and not made.attempts:
            raise _cannot_measure(evaluation)
        if not evaluation.halted and not after.too_many_errors and made.attempts:
            before = made.best.validation
            if before and before.score is not None and after.score is not None:
                attempt.accepted = after.score > before.score
        self._store(attempt)
        self._keep(attempt)
        if evaluation.halted:
            raise CeilingReached(evaluation.halted)

    def _keep(self, attempt: DescriptionAttempt) -> None:
        self.made.attempts.append(attempt)
        self.session.events.message(f"  {_summary(attempt)}")

    def _store(self, attempt: DescriptionAttempt) -> None:
        session, made = self.session, self.made
        first = (made.attempts or [attempt])[0].validation
        verdict = {
            "baseline": {"pass_rate": first.score if first else None},
            "skill": {"pass_rate": attempt.validation.score if attempt.validation else None},
            "run": attempt.run,
            "description": attempt.skill.description,
        }
        search = digest(
            ["description", session.skill.visible_hash, self.teacher_name, made.plan.fingerprint]
        )
        parent = made.best.candidate if made.attempts else None
        accepted = attempt.accepted if made.attempts else True
        note = f"description, on validation queries: {attempt.note}"
        stored = session.store.add_candidate(search, attempt.skill, parent, accepted, note, verdict)
        attempt.candidate = stored.number

    def _number_of_test(self, before: Skill, own: Run) -> int:
        """Which test of a description a run is, by the runs before it of other descriptions on these test queries."""
        ids = {query.id for query in self.made.queries.part("test")}
        return 1 + sum(
            run.number < own.number
            and run.plan.skill.description != before.description
            and all(case.held_out for case in run.plan.suite.cases)
            and any(case.id in ids for case in run.plan.suite.cases)
            for run in self.session.store.runs(before.name)
        )

    async def _test(self, before: Skill, after: Skill) -> DescriptionComparison:
        """Run the test queries once for each description."""
        what = "the test queries with the"
        old = await self._evaluate(f"{what} old description", before, "test")
        new = await self._evaluate(f"{what} new one", after, "test")
        for evaluation in (old, new):
            if evaluation.halted:
                raise CeilingReached(evaluation.halted)
        number = self._number_of_test(before, new.run)
        change = paired_change(old.outcomes, new.outcomes, level=level_of_test(number))
        return DescriptionComparison(
            self._metrics(old, "test"), self._metrics(new, "test"), change, number
        )

    async def _evaluate(self, what: str, skill: Skill, *parts: Part) -> Evaluation:
        queries = self.made.queries.part(*parts)
        plan = self.session.plan(skill, queries)
        evaluation = await self.session.evaluate(plan, f"Running {what}: {len(queries)} queries...")
        self.made.evaluations.append(evaluation)
        if evaluation.stopped:
            raise _cannot_measure(evaluation)
        return evaluation

    def _metrics(self, evaluation: Evaluation, part: Part) -> TriggerMetrics:
        return compute_trigger_metrics(
            evaluation.plan.models[0].name, self.made.queries.part(part), evaluation.outcomes
        )

    async def _propose(
        self, number: int, best: DescriptionAttempt, failures: list[QueryRate]
    ) -> tuple[str, str]:
        """Another description and a note on it, made from train failures."""
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
                for attempt in self.made.attempts
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

        async def read(answer: dict[str, Any]) -> tuple[tuple[str, str], list[str]]:
            note = " ".join(str(answer.get("note", "")).split())
            return (_read_description(answer.get("description"), queries), note), []

        return await ask(self.teacher, request, read, required=False)


def _failures(attempt: DescriptionAttempt) -> list[QueryRate]:
    rates = attempt.train.rates if attempt.train else ()
    return [rate for rate in rates if rate.accuracy is not None and rate.accuracy < 1.0]


def _cannot_measure(evaluation: Evaluation) -> UpskillError:
    return UpskillError(
        f"the current description cannot be measured: {evaluation.why_failed}",
        f"`upskill show {evaluation.run.id}` has more. Fix this, then run the same command again:"
        " finished trials are kept.",
    )


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
    search, test = (
        estimate(plan, plan.trials(), prices)
        for plan in (
            session.plan(skill, queries.part("train", "validation")),
            session.plan(skill, queries.part("test")),
        )
    )
    body = estimate_tokens(skill.body[:MAX_BODY])
    total = estimate_writing(
        teacher, prices, material=body, items=1, each=400, calls=(0, 3 * attempts)
    )
    for each in [search] * (attempts + 1) + [test] * 2:
        total += each
    return replace(
        total,
        tokens=(search.tokens[0], total.tokens[1]),
        cost_usd=(search.cost_usd[0], total.cost_usd[1]),
    )
