"""Refine: search for a better skill on train cases, keep only what the gate accepts, and measure the best once.

The gate (`comparison.py`) compares each candidate with the best so far, which is never lost. What a search reports on
train cases is a fit; the number to believe is the one evaluation on held-out cases at the end, which no prompt and no
decision before it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from upskill.authoring.comparison import ALPHA, Comparison, affordable_attempts, compare
from upskill.authoring.events import AuthoringEvents
from upskill.authoring.failures import failures_in_run
from upskill.authoring.refiners import REFINERS, Failure, Proposal, Refiner, RejectedEdits
from upskill.errors import CeilingReached, UpskillError
from upskill.models import ModelContext, Models
from upskill.models.addresses import resolve
from upskill.plain import counted
from upskill.runs.evaluate import RunOptions, evaluate
from upskill.runs.evaluation import Evaluation
from upskill.runs.executors import Executor
from upskill.runs.plan import Plan
from upskill.runs.stores import Candidate, Store, open_store
from upskill.settings import Settings
from upskill.skills import Skill
from upskill.suites import Case, Suite
from upskill.verdicts.to_json import verdict_to_json

MAX_REJECTED_IN_A_ROW = 3  # candidates; then the search ends

PlanFor = Callable[[Skill, Suite], Plan]


@dataclass(frozen=True, kw_only=True)
class RefineOptions:
    """How far a search goes, and what it knows beforehand."""

    refiner: Refiner | None = None  # None: the drafts are compared, and nothing is changed
    attempts: int = 3
    target: float = 1.0  # the pass rate on train cases that is good enough
    alpha: float = ALPHA  # the chance that the search accepts something that is no better
    search: str = ""  # id that candidates are stored under
    known_failures: Sequence[Failure] = ()  # of the first draft, from earlier runs
    executor: Executor | None = None  # None: this process


@dataclass
class Attempt:
    """One candidate of a search: the skill, its result on train cases, and the decision of the gate."""

    number: int
    skill: Skill
    evaluation: Evaluation | None  # None: it was not worth evaluating
    accepted: bool | None
    note: str
    comparison: Comparison | None = None  # None: the first has nothing to be compared with
    proposal: Proposal | None = None
    stored: Candidate | None = None


@dataclass
class Refinement:
    """Result of a search. `fit` is the best on train cases, `held_out` the best on cases that were never looked at."""

    skill: Skill
    attempts: list[Attempt]
    fit: Evaluation | None
    held_out: Evaluation | None
    ended: str  # why the search ended
    halted: str = ""  # the ceiling that ended it

    @property
    def evaluations(self) -> list[Evaluation]:
        """Of every attempt, and of the held-out cases."""
        found = (*(attempt.evaluation for attempt in self.attempts), self.held_out)
        return [evaluation for evaluation in found if evaluation]


async def refine(
    drafts: Sequence[Skill],
    suite: Suite,
    plan_for: PlanFor,
    *,
    store: Store | None = None,
    models: Models | None = None,
    options: RefineOptions | None = None,
    events: AuthoringEvents | None = None,
) -> Refinement:
    """The best of the drafts, improved on train cases, then evaluated on held-out cases once.

    `plan_for` says how a skill is evaluated: with which student, how often. Everything is stored as it happens; the
    same call continues after any interruption.
    """
    with nullcontext(store) if store else open_store(None) as kept:
        models = models or Models(replies=kept)
        search = _Search(suite, plan_for, kept, models, options or RefineOptions(), events or AuthoringEvents())
        return await search.run(drafts)


@dataclass
class _Search:
    suite: Suite
    plan_for: PlanFor
    store: Store
    models: Models
    options: RefineOptions
    events: AuthoringEvents
    best: Attempt | None = None
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    ended: str = ""
    halted: str = ""

    async def run(self, drafts: Sequence[Skill]) -> Refinement:
        suite = self.suite
        async with self.models:
            try:
                if suite.train:
                    await self._search(drafts)
                else:
                    self.best = Attempt(1, drafts[0], None, None, "not evaluated: the suite has no train cases")
                    self.ended = "the suite has no train cases"
            except CeilingReached as reached:
                self.halted = reached.message
            assert self.best is not None
            held_out: Evaluation | None = None
            if suite.held_out and not self.halted:
                plan = self.plan_for(self.best.skill, _subset(suite, suite.held_out))
                self.events.held_out_started(plan)
                held_out = await self._evaluate(plan, reported=True)
                self.halted = held_out.halted
        best = self.best
        return Refinement(best.skill, self.attempts, best.evaluation, held_out, self.halted or self.ended, self.halted)

    async def _search(self, drafts: Sequence[Skill]) -> None:
        attempts = self._affordable(len(drafts))
        level = self.options.alpha / max(1, attempts + len(drafts) - 1)
        for draft in drafts:
            await self._try(draft, level)
        rejected: list[RejectedEdits] = []
        in_a_row = 0
        for number in range(1, attempts + 1):
            failures = [*self._failures(), *(self.options.known_failures if number == 1 else ())]
            if self._pass_rate >= self.options.target or not failures:
                break
            attempt, proposal = await self._propose(failures, rejected, number, level)
            if attempt.accepted:
                in_a_row = 0
                continue
            rejected.append(RejectedEdits(proposal.edits if proposal else (), attempt.note))
            in_a_row += 1
            if in_a_row >= MAX_REJECTED_IN_A_ROW:
                self.ended = f"{MAX_REJECTED_IN_A_ROW} candidates in a row were rejected"
                return
        reached = "the target is reached" if self._pass_rate >= self.options.target else "all attempts are used"
        self.ended = reached if attempts else "no attempts were to be made"

    def _affordable(self, drafts: int) -> int:
        attempts = self.options.attempts if self.options.refiner else 0
        cases = len(self.suite.train)
        affordable = affordable_attempts(attempts, drafts - 1, cases, self.options.alpha)
        if affordable < attempts:
            self.events.message(
                f"{cases} train cases are too few for a gate over {attempts} attempts: making {affordable}."
            )
        return affordable

    async def _propose(
        self, failures: Sequence[Failure], rejected: Sequence[RejectedEdits], number: int, level: float
    ) -> tuple[Attempt, Proposal | None]:
        assert self.best is not None
        assert self.options.refiner is not None
        proposal = await self.options.refiner.propose(self.best.skill, failures, rejected, number)
        if proposal is not None:
            return await self._try(proposal.skill, level, proposal), proposal
        note = "no edit was proposed that can be applied"
        return self._keep(Attempt(len(self.attempts) + 1, self.best.skill, None, False, note)), None

    async def _try(self, skill: Skill, level: float, proposal: Proposal | None = None) -> Attempt:
        """Evaluate a candidate on train cases and let the gate decide."""
        number = len(self.attempts) + 1
        if self._was_tried(skill):
            note = "the same as one that was tried before"
            return self._keep(Attempt(number, skill, None, False, note, None, proposal))
        plan = self.plan_for(skill, _subset(self.suite, self.suite.train))
        self.events.attempt_started(number, plan)
        evaluation = await self._evaluate(plan)
        if self.best is None or self.best.evaluation is None:
            if evaluation.too_many_errors and not evaluation.halted:
                raise _evaluation_error(evaluation)
            accepted = None if evaluation.halted else True
            return self._keep(Attempt(number, skill, evaluation, accepted, "the first draft"))
        found = compare(self.best.evaluation.outcomes, evaluation.outcomes, level)
        accepted = None if evaluation.halted else found.accepted
        return self._keep(Attempt(number, skill, evaluation, accepted, found.summary, found, proposal))

    async def _evaluate(self, plan: Plan, *, reported: bool = False) -> Evaluation:
        return await evaluate(
            plan,
            store=self.store,
            models=self.models,
            options=RunOptions(executor=self.options.executor, keep_look=reported),
            events=self.events,
        )

    def _was_tried(self, skill: Skill) -> bool:
        return any(skill.visible_hash == attempt.skill.visible_hash for attempt in self.attempts)

    def _keep(self, attempt: Attempt) -> Attempt:
        verdict: dict[str, Any] = verdict_to_json(attempt.evaluation.verdicts[0]) if attempt.evaluation else {}
        if attempt.evaluation:
            verdict["run"] = attempt.evaluation.run.id
        if attempt.proposal:
            verdict["proposal"] = attempt.proposal.plain()
        parent = self.best.stored.number if self.best and self.best.stored else None
        if not self._was_tried(attempt.skill):
            attempt.stored = self.store.add_candidate(
                self.options.search, attempt.skill, parent, attempt.accepted, attempt.note, verdict
            )
        self.attempts.append(attempt)
        if attempt.accepted or self.best is None:
            self.best = attempt
        self.events.attempt_ended(attempt)
        if attempt.evaluation and attempt.evaluation.halted:
            raise CeilingReached(attempt.evaluation.halted)
        return attempt

    @property
    def _pass_rate(self) -> float:
        """How many train trials the best passes."""
        assert self.best is not None
        assert self.best.evaluation is not None
        return self.best.evaluation.verdicts[0].skill.pass_rate or 0.0

    def _failures(self) -> list[Failure]:
        assert self.best is not None
        assert self.best.evaluation is not None
        return failures_in_run(self.store, self.best.evaluation.run, self.suite.by_id)


def _subset(suite: Suite, cases: tuple[Case, ...]) -> Suite:
    return Suite(cases, suite.source, suite.max_output_tokens)


def _evaluation_error(evaluation: Evaluation) -> UpskillError:
    if evaluation.bug_messages and not evaluation.errors:
        message, trials = evaluation.bug_messages[0]
        return UpskillError(
            f"the skill cannot be evaluated: a bug in upskill ended {counted(trials, 'trial')}: {message}",
            f"`upskill show {evaluation.run.id} --bugs` prints the tracebacks. Please report them.",
        )
    model, message, trials = evaluation.errors[0]
    return UpskillError(
        f"the skill cannot be evaluated: {counted(trials, 'trial')} of {model} errored: {message}",
        "Fix this and give the same command again: what was finished is kept. --no-eval skips the evaluation.",
    )


async def refine_skill(
    skill: Skill,
    failures: Sequence[str | Failure],
    model: str | None = None,
    config: Settings | None = None,
    *,
    models: Models | None = None,
    tokens: int = 800,
) -> Skill:
    """The skill with a few edits by the model named here or in the config; the same skill where none can be applied.

    This is upstream's signature: one proposal without a gate. `refine` shows whether it is any better.
    """
    settings = config or Settings.load()
    given = [one if isinstance(one, Failure) else Failure("", one, "", ("failed",)) for one in failures]
    async with models or Models(ModelContext.load(settings)) as opened:
        address = resolve(model or settings.skill_generation_model or "local", keys=opened.context.keys)
        teacher = await opened.get(address, "teacher")
        refiner: Refiner = REFINERS.load("rewrite")(teacher, None, max(tokens, skill.tokens))
        proposal = await refiner.propose(skill, given, (), 1)
    return proposal.skill if proposal else skill
