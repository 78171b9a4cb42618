"""The plan of a trigger run: each query is a case with one check, run with the skill in the agent's catalog.

Queries are therefore evaluated like any other suite: resumed, bounded and stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

from upskill.agents import AGENTS, Agent, Bounds
from upskill.agents.activation import activated
from upskill.agents.toolbox import catalog_prompt
from upskill.checks import Check, Evidence, Finding, SuiteCheck
from upskill.errors import UsageError
from upskill.models.prices import Prices, price_for
from upskill.runs.planning.estimate import USUAL_ANSWER_TOKENS, CostEstimate
from upskill.runs.planning.plan import Plan, PlanOptions, Trial, make_plan
from upskill.skills import Skill, estimate_tokens
from upskill.suites import Case, Suite
from upskill.suites.queries import Queries
from upskill.verdicts.firing import FIRES

MAX_TURNS = 3  # of the model in one run: one that wants a skill opens it early
PROMPT_TOKENS = 900  # what the tools and the text around the catalog take, roughly
TOOL_RESULT_TOKENS = 500


class TriggerCheck(Check):
    """Passes when the skill was opened where it should be, and left alone where it should not.

    It is in no table: a suite says `skill_activated`. Without a skill on offer it fails, so that a query on which
    nothing should happen is not reported as a case that an empty answer passes.
    """

    expected: bool
    reads_answer: ClassVar[bool] = False

    async def run(self, evidence: Evidence) -> Finding:
        if not evidence.skill:
            return Finding(False, "no skill was on offer")
        opened = activated(evidence.trace, evidence.skill, evidence.canary)
        reason = f"{evidence.skill} was {'' if opened else 'not '}opened, and should{'' if self.expected else ' not'}"
        return Finding(opened is self.expected, reason)


def suite_of(queries: Queries) -> Suite:
    cases = (
        Case(
            query.id,
            query.text,
            (SuiteCheck(FIRES, query.should_trigger, TriggerCheck(expected=query.should_trigger)),),
            tags=("should trigger" if query.should_trigger else "should not",),
            held_out=queries.parts[query.text] == "test",
        )
        for query in queries
    )
    return Suite(tuple(cases), queries.source)


def make_trigger_plan(
    skill: Skill, queries: Queries, models: Iterable[str] = ("local",), options: PlanOptions | None = None
) -> Plan:
    """A plan that runs each query with the skill among others, until it is opened; UsageError where that is impossible.

    By default each query is run three times with the agent `tools`, for at most MAX_TURNS turns.
    """
    options = options or PlanOptions(agent="tools", runs=3, bounds=Bounds(MAX_TURNS))
    agent: type[Agent] = AGENTS.load(options.agent)
    if not agent.needs_sandbox:
        raise UsageError(
            f"the agent {options.agent!r} has no catalog, so no skill can fire",
            "Name one that acts, for example --agent tools.",
        )
    options = replace(options, baseline=False, bounds=replace(options.bounds, until_activated=True))
    return make_plan(skill, suite_of(queries), models, options)


def estimate_runs(
    plan: Plan, trials: Iterable[Trial], given: Prices | Mapping[str, Mapping[str, float]]
) -> CostEstimate:
    """What these runs will use: at least one turn each with a short call, at most every turn with a full answer."""
    prices = {address.name: price_for(address, given) for address in plan.models}
    offered = (*plan.distractors, plan.skill)
    shown = PROMPT_TOKENS + estimate_tokens(catalog_prompt(offered, "~/.agents/skills"))
    calls, low_tokens, high_tokens, low, high = 0, 0, 0, 0.0, 0.0
    for trial in trials:
        price = prices[trial.model]
        first = shown + estimate_tokens(plan.suite.by_id[trial.case].prompt)
        calls += plan.bounds.turns
        low_tokens += first + USUAL_ANSWER_TOKENS
        low += price.cost(first, USUAL_ANSWER_TOKENS) or 0.0
        limit = plan.output_limit(trial)
        for turn in range(plan.bounds.turns):
            prompt = first + turn * (limit + TOOL_RESULT_TOKENS)
            high_tokens += prompt + limit
            high += price.cost(prompt, limit) or 0.0
    unknown = tuple(name for name, price in prices.items() if not price.is_known)
    return CostEstimate(calls, (low_tokens, high_tokens), (low, high), unknown)
