"""Trigger: run queries through an agent that has the skill in its catalog, and look for a better description.

A query is a case of a suite with one check, so it is evaluated as any other: resumed, bounded, stored. A search for a
better description shows the teacher train queries only, chooses on validation queries, and runs test queries once, at
the end, with the description that was there and with the one that was chosen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from upskill.agents import AGENTS, Agent, Bounds
from upskill.agents.activation import activated
from upskill.agents.catalog import catalog
from upskill.authoring.prompts import read_prompt
from upskill.authoring.structured import InvalidAnswer, NoUsableAnswer, StructuredRequest, ask
from upskill.checks import Check, Evidence, Finding, Named
from upskill.errors import CeilingReached, UpskillError, UsageError
from upskill.models import Address, Model, Models
from upskill.models.addresses import resolve
from upskill.models.prices import Prices, price_of
from upskill.plain import as_list, object_schema
from upskill.runs.estimate import USUAL_ANSWER_TOKENS, Estimate
from upskill.runs.evaluate import RunOptions, evaluate
from upskill.runs.evaluation import Evaluation
from upskill.runs.events import Events
from upskill.runs.executors import Executor
from upskill.runs.plan import Plan, PlanOptions, Result, Trial, make_plan
from upskill.runs.stores import Run, Store
from upskill.skills import Skill, estimate_tokens
from upskill.suites import Case, Suite
from upskill.suites.queries import PARTS, Part, Queries, Query
from upskill.traces.redact import redact
from upskill.verdicts.firing import Firing, Rate, compare, compute_firing
from upskill.verdicts.statistics import Estimate as Measured

TURNS = 3  # of the model in one run: who wants a skill opens it early
LOCAL_OUTPUT = 64  # tokens of a turn of the embedded model: enough to open a skill, and it rambles on otherwise
LONGEST_DESCRIPTION = 1024
LONGEST_BODY = 6_000  # characters of the body that a teacher is shown
TOOL_TOKENS = 900  # what the tools and the words around the catalog take, roughly

Begin = Callable[[str, Plan, list[Trial]], None]


class Fires(Check):
    """Passes when the skill was opened where it should be, and left alone where it should not.

    In no table: a suite says `skill_activated`. Where no skill was on offer this one fails, so that a query on which
    nothing should happen is not taken for a case that proves nothing.
    """

    expected: bool
    reads_answer: ClassVar[bool] = False

    async def run(self, evidence: Evidence) -> Finding:
        if not evidence.skill:
            return Finding(False, "no skill was on offer")
        opened = activated(evidence.trace, evidence.skill, evidence.canary)
        said = "was opened" if opened else "was not opened"
        return Finding(opened is self.expected, f"{evidence.skill} {said}, and should{'' if self.expected else ' not'}")


def suite_of(queries: Queries) -> Suite:
    cases = (
        Case(
            query.id,
            query.text,
            (Named("fires", query.should_trigger, Fires(expected=query.should_trigger)),),
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
    *,
    base_url: str = "",
    runs: int = 3,
    seed: int = 0,
    temperature: float | None = None,
    max_output_tokens: int | None = None,
    agent: str = "tools",
    distractors: Sequence[Skill] = (),
    bounds: Bounds | None = None,
    sandbox: str = "",
    keys: Mapping[str, str] | None = None,
) -> Plan:
    """A plan that runs each query so often with the skill among others; UsageError for what cannot be carried out."""
    acting: type[Agent] = AGENTS.load(agent)
    if not acting.acts:
        raise UsageError(
            f"the agent {agent!r} has no catalog, so no skill can fire",
            "Name one that acts, for example --agent tools.",
        )
    names = tuple(models)
    embedded = any(resolve(name, base_url, keys).provider == "local" for name in names)
    given = bounds or Bounds(TURNS)
    return make_plan(
        skill,
        suite_of(queries),
        names,
        options=PlanOptions(
            base_url=base_url,
            runs=runs,
            seed=seed,
            temperature=temperature,
            max_output_tokens=max_output_tokens or (LOCAL_OUTPUT if embedded else None),
            baseline=False,
            agent=agent,
            distractors=distractors,
            bounds=Bounds(given.turns, given.tokens, given.seconds, until_activated=True),
            sandbox=sandbox,
            keys=keys,
        ),
    )


def firings(evaluation: Evaluation, queries: Queries) -> list[Firing]:
    """What a run of `make_trigger_plan` says, for each of its models."""
    return [compute_firing(address.name, queries, evaluation.outcomes) for address in evaluation.plan.models]


# What it costs.


def estimate_runs(plan: Plan, trials: Iterable[Trial], given: Prices | Mapping[str, Mapping[str, float]]) -> Estimate:
    """What these runs will use: at least one turn each with a short call, at most every turn with a full answer."""
    prices = {address.name: price_of(address, given) for address in plan.models}
    offered = (*plan.distractors, plan.skill)
    shown = TOOL_TOKENS + estimate_tokens(catalog(offered, "~/.agents/skills"))
    calls, low_tokens, high_tokens, low, high = 0, 0, 0, 0.0, 0.0
    for trial in trials:
        price = prices[trial.model]
        first = shown + estimate_tokens(plan.suite.by_id[trial.case].prompt)
        calls += plan.bounds.turns
        low_tokens += first + USUAL_ANSWER_TOKENS
        low += price.of(first, USUAL_ANSWER_TOKENS) or 0.0
        for turn in range(plan.bounds.turns):
            taken = first + turn * (plan.max_output_tokens + 500)
            high_tokens += taken + plan.max_output_tokens
            high += price.of(taken, plan.max_output_tokens) or 0.0
    unknown = tuple(name for name, price in prices.items() if price.of(1000, 1000) is None)
    return Estimate(calls, (low_tokens, high_tokens), (low, high), unknown)


# Queries.


async def write_queries(skill: Skill, model: Model, *, count: int = 20, distractors: Sequence[Skill] = ()) -> Queries:
    """Queries for a skill: half on which it should fire, half near-misses."""
    half = max(2, (count + 1) // 2)
    items = {"type": "array", "items": {"type": "string", "maxLength": 600}, "minItems": half, "maxItems": half}
    question = StructuredRequest(
        "writing queries",
        read_prompt("write_queries", half=half),
        json.dumps(_shown(skill, distractors), ensure_ascii=False),
        object_schema({"should_trigger": items, "should_not_trigger": items}),
        max_output_tokens=2 * half * 150 + 1000,
    )

    def read(said: dict[str, Any], last: bool) -> Queries:
        return _read_queries(said, skill, half, last=last)

    return await ask(model, question, read)


def _read_queries(said: dict[str, Any], skill: Skill, half: int, *, last: bool) -> Queries:
    """The queries, once each. What is wrong with some of them is told twice; after that those are left out."""
    kept: dict[str, Query] = {}
    wrong: list[str] = []
    for field_name, should in (("should_trigger", True), ("should_not_trigger", False)):
        for item in as_list(said.get(field_name)) or []:
            text = " ".join(item.split()) if isinstance(item, str) else ""
            if not text:
                wrong.append(f"{field_name} has an empty request")
            elif text.casefold() in kept:
                wrong.append(f"{text[:60]!r} is there twice")
            elif "-" in skill.name and skill.name in text.lower():
                wrong.append(f"{text[:60]!r} names the skill")
            else:
                kept[text.casefold()] = Query(text, should)
    least = max(2, half - half // 5) if last else half
    for should in (True, False):
        there = sum(query.should_trigger is should for query in kept.values())
        if there < least:
            name = "should_trigger" if should else "should_not_trigger"
            wrong.append(f"{name} has {there} requests that can be used, and should have {half}")
            if last:
                raise InvalidAnswer("; ".join(wrong))
    if wrong and not last:
        raise InvalidAnswer("; ".join(wrong[:8]))
    return Queries(tuple(kept.values()), "generated")


def _shown(skill: Skill, distractors: Sequence[Skill]) -> dict[str, Any]:
    body = redact(skill.body)
    return {
        "name": skill.name,
        "description": skill.description,
        "body": body if len(body) <= LONGEST_BODY else f"{body[:LONGEST_BODY]} …",
        "beside": [{"name": other.name, "description": other.description} for other in distractors],
    }


# A better description.


@dataclass
class Tried:
    """A description and how it fared on the queries that a search may look at."""

    attempt: int  # 0: the one that was there
    skill: Skill
    train: Firing | None = None  # None: it was not worth running
    validation: Firing | None = None
    accepted: bool | None = None
    note: str = ""
    run: str = ""
    stored: int | None = None  # its number in the store


@dataclass(frozen=True)
class Tested:
    """Both descriptions on the queries that nothing has seen before."""

    before: Firing
    after: Firing
    change: Measured | None  # in the share of runs that did what they should, paired by query and seed
    p_value: float | None
    evaluations: tuple[Evaluation, ...] = ()


@dataclass
class Improvement:
    skill: Skill  # the one that was chosen, which may be the one that was there
    tried: list[Tried]
    chosen: Tried
    tested: Tested | None  # None: no better one was found, or a ceiling was reached, and the test queries are unused
    ended: str
    halted: str = ""
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])

    @property
    def improved(self) -> bool:
        return self.chosen.attempt > 0


def check_parts(queries: Queries) -> None:
    """UsageError where the queries do not suffice to choose by and to report on."""
    for part in PARTS:
        here = queries.part(part)
        lacking = [
            word
            for word, found in (("should trigger", here.should_trigger), ("should not trigger", here.should_not))
            if not found
        ]
        if part == "train":
            lacking = [] if len(here) else ["should trigger or should not"]
        if lacking:
            raise UsageError(
                f"{queries.source}: none of the {part} queries {lacking[0]}",
                "Add queries of that kind: the words of a query decide its part, and ten of each kind usually suffice.",
            )


async def improve(
    skill: Skill,
    queries: Queries,
    plan_for: Callable[[Skill, Queries], Plan],
    teacher: Model,
    *,
    models: Models,
    store: Store,
    attempts: int = 5,
    search: str = "",
    fresh: bool = False,
    executor: Executor | None = None,
    begin: Begin | None = None,
    watch: Callable[[Result], None] | None = None,
    done: Callable[[Tried], None] | None = None,
) -> Improvement:
    """Look for a description on which the skill fires better.

    The teacher is told of train failures. A candidate replaces the best so far when its score on validation queries is
    higher (a tie keeps the older one): a choice by point estimates, whose winner looks better than it is. Therefore the
    test queries, which no prompt and no run has seen until then, are run once, for the description that was there and
    for the one that was chosen. Where none was, they stay unused.
    """
    check_parts(queries)
    hunt = _Hunt(queries, plan_for, models, store, executor, search, fresh, begin, watch, done)
    async with models:
        best = await hunt.try_out(Tried(0, skill, note="the description that was there"), None)
        if not hunt.halted and best.validation is not None and best.validation.too_many_errors:
            raise _troubled(hunt.evaluations[-1])
        ended = "all attempts are used"
        try:
            for attempt in range(1, attempts + 1):
                if hunt.halted:
                    break
                assert best.train is not None
                assert best.validation is not None
                failures = [rate for rate in best.train.rates if rate.correct is not None and rate.correct < 1.0]
                if best.validation.score == 1.0 or not failures:
                    ended = "nothing is left to gain" if best.validation.score == 1.0 else "no train query fails"
                    break
                tried = await _attempt(hunt, best, failures, teacher, attempt)
                if tried.accepted:
                    best = tried
        except CeilingReached as reached:
            hunt.halted = reached.message
        tested = None
        if best.attempt and not hunt.halted:
            tested = await hunt.test(skill, best.skill)
    return Improvement(
        best.skill, hunt.tried, best, tested, hunt.halted or ended, hunt.halted, evaluations=hunt.evaluations
    )


@dataclass
class _Hunt:
    """A search under way."""

    queries: Queries
    plan_for: Callable[[Skill, Queries], Plan]
    models: Models
    store: Store
    executor: Executor | None
    search: str
    fresh: bool
    begin: Begin | None
    watch: Callable[[Result], None] | None
    done: Callable[[Tried], None] | None
    tried: list[Tried] = field(default_factory=list[Tried])
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])
    halted: str = ""

    async def run(self, what: str, skill: Skill, queries: Queries) -> Evaluation:
        plan = self.plan_for(skill, queries)

        def started(plan: Plan, _run: Run, missing: list[Trial]) -> None:
            if self.begin:
                self.begin(what, plan, missing)

        evaluation = await evaluate(
            plan,
            store=self.store,
            models=self.models,
            options=RunOptions(executor=self.executor, fresh=self.fresh),
            events=Events(started=started, result=self.watch or (lambda _: None)),
        )
        self.evaluations.append(evaluation)
        if evaluation.stopped:
            raise _troubled(evaluation)
        self.halted = self.halted or evaluation.halted
        return evaluation

    def weigh(self, evaluation: Evaluation, *parts: Part) -> Firing:
        model = evaluation.plan.models[0].name
        return compute_firing(model, self.queries.part(*parts), evaluation.outcomes)

    async def try_out(self, tried: Tried, best: Tried | None) -> Tried:
        """Run a description on train and validation queries, and keep what came of it."""
        if any(tried.skill.description == one.skill.description for one in self.tried):
            tried.accepted, tried.note = False, "the same as one that was tried before"
            return self.keep(tried, best)
        what = f"attempt {tried.attempt}" if tried.attempt else "the description that is there"
        evaluation = await self.run(what, tried.skill, self.queries.part("train", "validation"))
        tried.run = evaluation.run.id
        tried.train, tried.validation = self.weigh(evaluation, "train"), self.weigh(evaluation, "validation")
        if not self.halted and best is not None:
            tried.accepted = _is_better(tried.validation, best.validation)
        return self.keep(tried, best)

    def keep(self, tried: Tried, best: Tried | None) -> Tried:
        score = tried.validation.score if tried.validation else None
        first = self.tried[0].validation if self.tried else tried.validation
        verdict = {
            "baseline": {"pass_rate": first.score if first else None},
            "skill": {"pass_rate": score},
            "run": tried.run,
            "description": tried.skill.description,
        }
        if tried.run:
            parent = best.stored if best else None
            accepted = True if best is None else tried.accepted
            note = f"description, on validation queries: {tried.note}"
            tried.stored = self.store.add_candidate(self.search, tried.skill, parent, accepted, note, verdict).number
        self.tried.append(tried)
        if self.done:
            self.done(tried)
        return tried

    async def test(self, before: Skill, after: Skill) -> Tested | None:
        """The third part, once, for both."""
        queries = self.queries.part("test")
        old = await self.run("the test queries, with the description that was there", before, queries)
        if self.halted:
            return None
        new = await self.run("the test queries, with the one that was chosen", after, queries)
        if self.halted:
            return None
        found = compare(old.outcomes, new.outcomes)
        change, p_value = found if found else (None, None)
        return Tested(self.weigh(old, "test"), self.weigh(new, "test"), change, p_value, (old, new))


async def _attempt(hunt: _Hunt, best: Tried, failures: Sequence[Rate], teacher: Model, attempt: int) -> Tried:
    plan = hunt.plan_for(best.skill, hunt.queries.part("train"))
    found = await _propose(best, failures, hunt.tried, plan.distractors, teacher, attempt)
    if found is None:
        note = "no description was proposed that can be used"
        return hunt.keep(Tried(attempt, best.skill, accepted=False, note=note), best)
    description, note = found
    return await hunt.try_out(Tried(attempt, best.skill.with_description(description), note=note), best)


def _is_better(new: Firing, old: Firing | None) -> bool | None:
    """Higher on validation queries; None where too much errored to say."""
    if new.too_many_errors or new.score is None or old is None or old.score is None:
        return None
    return new.score > old.score


async def _propose(
    best: Tried,
    failures: Sequence[Rate],
    tried: Sequence[Tried],
    distractors: Sequence[Skill],
    teacher: Model,
    attempt: int,
) -> tuple[str, str] | None:
    """Another description and a word on why, made from train failures; None where no answer can be used."""
    worst = sorted(failures, key=lambda rate: (rate.correct or 0.0, rate.query.text))
    before = [
        {"description": one.skill.description, "on_these_requests": _fared(one.train)}
        for one in tried
        if one.train is not None and one.skill.description != best.skill.description
    ]
    shown = _shown(best.skill, distractors) | {
        "should_have_opened_it": [_told(rate) for rate in worst if rate.query.should_trigger],
        "should_not_have_opened_it": [_told(rate) for rate in worst if not rate.query.should_trigger],
        "tried_before": before,
    }
    question = StructuredRequest(
        "rewriting the description",
        read_prompt("rewrite_description", longest=LONGEST_DESCRIPTION),
        json.dumps(shown, ensure_ascii=False),
        object_schema(
            {
                "note": {"type": "string", "maxLength": 300},
                "description": {"type": "string", "maxLength": LONGEST_DESCRIPTION},
            }
        ),
        max_output_tokens=1500,
        seed=attempt,
    )
    asked = [rate.query.text for rate in failures]

    def read(said: dict[str, Any], _last: bool) -> tuple[str, str]:
        return _read_description(said.get("description"), asked), " ".join(str(said.get("note", "")).split())

    try:
        return await ask(teacher, question, read)
    except NoUsableAnswer:
        return None


def _read_description(said: object, asked: Iterable[str]) -> str:
    text = " ".join(said.split()) if isinstance(said, str) else ""
    if not text:
        raise InvalidAnswer("the description is empty")
    if len(text) > LONGEST_DESCRIPTION:
        raise InvalidAnswer(f"the description has {len(text)} characters, and may have {LONGEST_DESCRIPTION}")
    if "<" in text or ">" in text:
        raise InvalidAnswer("the description has angle brackets in it")
    if re.match(r"(I|I'm|I'll|We|You|You're|Your|My)\b", text, re.IGNORECASE):
        raise InvalidAnswer("the description is not in the third person")
    for request in asked:
        if len(request) >= 20 and request.casefold().rstrip(".?! ") in text.casefold():
            raise InvalidAnswer(f"the description repeats a request word for word: {request[:60]!r}; say it in general")
    return text


def _told(rate: Rate) -> dict[str, Any]:
    return {"request": redact(rate.query.text), "opened": f"{rate.triggered} of {rate.scored} times"}


def _fared(train: Firing | None) -> str:
    recall, misfires = (train.recall, train.false_triggers) if train else (None, None)
    said = [f"opened on {recall.value:.0%} of those that need it"] if recall else []
    said += [f"on {misfires.value:.0%} of those that do not"] if misfires else []
    return ", ".join(said)


def _troubled(evaluation: Evaluation) -> UpskillError:
    model, message, trials = evaluation.errors[0] if evaluation.errors else ("the student", "nothing was scored", 0)
    return UpskillError(
        f"the description that is there cannot be measured: {trials} runs of {model} errored: {message}",
        "Repair this and give the same command again: what was finished is kept.",
    )


def estimate_improvement(
    plan_for: Callable[[Skill, Queries], Plan],
    skill: Skill,
    queries: Queries,
    teacher: Address,
    attempts: int,
    given: Prices | Mapping[str, Mapping[str, float]],
) -> Estimate:
    """The low end is a description that is good as it is, the high end every attempt with each answer mended twice."""
    seen = plan_for(skill, queries.part("train", "validation"))
    last = plan_for(skill, queries.part("test"))
    each, end = (estimate_runs(plan, plan.trials(), given) for plan in (seen, last))
    price = price_of(teacher, given)
    asked = estimate_tokens(skill.body[:LONGEST_BODY]) + 2000
    tokens, cost = asked + 400, price.of(asked, 400)
    calls = 3 * attempts
    unknown = (*each.unknown, *((teacher.name,) if cost is None else ()))
    return Estimate(
        (attempts + 1) * each.calls + 2 * end.calls + calls,
        (each.tokens[0], (attempts + 1) * each.tokens[1] + 2 * end.tokens[1] + calls * tokens),
        (each.cost_usd[0], (attempts + 1) * each.cost_usd[1] + 2 * end.cost_usd[1] + calls * (cost or 0.0)),
        tuple(dict.fromkeys(unknown)),
    )
