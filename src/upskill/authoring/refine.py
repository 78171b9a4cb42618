"""Refine: look for a better skill on train cases, keep only what a paired gate accepts, and say once what came of it.

The gate is a one-sided sign-flip test of a candidate against the best so far, case by case, on the same train cases
and seeds. A search makes at most K comparisons and each is held to ALPHA / K, so the chance that it ever replaces a
skill by one that is no better is at most ALPHA, however the candidates were chosen and however they depend on each
other (Bonferroni). The best so far is never lost. What the search reports about itself is a fit; the number to
believe is the one evaluation on held-out cases at the end, which no prompt and no decision before it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from upskill.authoring.refiners import MASK, Failure, Proposal, Refiner, RejectedEdits
from upskill.authoring.refiners.rewrite import Rewrite
from upskill.checks import Named
from upskill.errors import CeilingReached, UpskillError, UsageError
from upskill.models import Address, Models
from upskill.models.addresses import resolve
from upskill.plain import as_list, as_mapping, counted
from upskill.runs.evaluate import RunOptions, evaluate
from upskill.runs.evaluation import Evaluation
from upskill.runs.events import Events
from upskill.runs.executors import Executor
from upskill.runs.plan import Plan, Result, Trial
from upskill.runs.stores import Candidate, Run, RunStore, Store
from upskill.skills import Skill
from upskill.suites import Case, Suite
from upskill.verdicts import statistics
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.to_json import verdict_to_json
from upskill.verdicts.verdict import MAX_ERROR_RATE

ALPHA = 0.10  # the chance that a whole search accepts something that is no better
MAX_REJECTED_IN_A_ROW = 3  # candidates in a row that are rejected before the search ends
# These say what an answer had, or what is wrong with it, not what it should have had.
UNMASKED_CHECKS = ("not_contains", "not_regex", "tool_not_called", "max_turns", "extract", "compiles")

PlanFor = Callable[[Skill, Suite], Plan]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate against the best so far, over the pairs of train trials that both have a score for."""

    better: int  # cases
    worse: int
    same: int
    change: float  # in the pass rate
    p_value: float  # one-sided: of no better than before
    level: float
    errored: int = 0  # trials

    @property
    def accepted(self) -> bool | None:
        pairs = self.better + self.worse + self.same
        if not pairs or self.errored > MAX_ERROR_RATE * (pairs + self.errored):
            return None
        return self.change > 0 and self.p_value <= self.level

    @property
    def summary(self) -> str:
        said = f"{counted(self.better, 'case')} better, {self.worse} worse, {self.same} the same"
        if self.accepted is None:
            return f"{counted(self.errored, 'trial')} errored, too many to say anything"
        p_value = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.3f}"
        return f"{said} ({p_value}, at most {self.level:.3f} is accepted)"


@dataclass
class Attempt:
    """One candidate of a search: the skill, how it fared on train cases, and what the gate said."""

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
    """How a search went. `fit` is the best on train cases; `held_out` the best on cases that were never looked at."""

    skill: Skill
    attempts: list[Attempt]
    fit: Evaluation | None
    held_out: Evaluation | None
    ended: str  # why the search ended
    halted: str = ""  # the ceiling that ended it
    notes: list[str] = field(default_factory=list[str])


def compare(before: Iterable[Outcome], after: Iterable[Outcome], level: float) -> Comparison:
    """Pair the trials with the skill of two evaluations by case and seed, and test whether the second is better."""
    old, new = (
        {(row.case, row.seed): row.passed for row in rows if row.arm == "skill"} for rows in (list(before), list(after))
    )
    keys = sorted(key for key in old.keys() & new.keys() if old[key] is not None and new[key] is not None)
    errored = sum(passed is None for passed in [*old.values(), *new.values()])
    differences = [float(bool(new[key])) - float(bool(old[key])) for key in keys]
    by_case: dict[str, list[float]] = {}
    for (case, _), difference in zip(keys, differences, strict=True):
        by_case.setdefault(case, []).append(difference)
    means = [sum(values) / len(values) for values in by_case.values()]
    change = sum(means) / len(means) if means else 0.0
    # The flips are symmetric, so half of the two-sided chance lies on our side.
    p_value = statistics.sign_flip(differences, [case for case, _ in keys]) / 2 if change > 0 else 1.0
    better, worse = sum(mean > 0 for mean in means), sum(mean < 0 for mean in means)
    return Comparison(better, worse, len(means) - better - worse, change, p_value, level, errored)


def affordable_attempts(attempts: int, comparisons_before: int, cases: int, alpha: float = ALPHA) -> int:
    """So many attempts that the gate could still accept one: on few cases no test can be that sure."""
    while attempts and 0.5**cases > alpha / (attempts + comparisons_before):
        attempts -= 1
    return attempts


async def refine(
    drafts: Sequence[Skill],
    suite: Suite,
    plan_for: PlanFor,
    *,
    models: Models,
    store: Store,
    refiner: Refiner | None = None,
    attempts: int = 3,
    target: float = 1.0,
    alpha: float = ALPHA,
    search: str = "",
    failures: Sequence[Failure] = (),
    executor: Executor | None = None,
    begin: Callable[[int, Plan, list[Trial]], None] | None = None,
    watch: Callable[[Result], None] | None = None,
    done: Callable[[Attempt], None] | None = None,
    last: Callable[[Plan], None] | None = None,
) -> Refinement:
    """The best of the drafts, improved on train cases, then evaluated on held-out cases once.

    `plan_for` says how a skill is evaluated: with which student, how often. `failures` are known beforehand, from
    earlier runs of the first draft. Everything is stored as it happens; the same call goes on after any interruption.
    """
    hunt = _Search(suite, plan_for, models, store, executor, search, begin, watch, done)
    attempts = attempts if refiner and suite.train else 0
    fewer = affordable_attempts(attempts, len(drafts) - 1, len(suite.train), alpha)
    if fewer < attempts:
        hunt.notes.append(
            f"{len(suite.train)} train cases are too few for a gate over {attempts} attempts: making {fewer}."
        )
    level = alpha / max(1, fewer + len(drafts) - 1)
    async with models:
        try:
            if suite.train:
                await _look_for_better(hunt, drafts, refiner, fewer, level, target, failures)
            else:
                hunt.best = Attempt(1, drafts[0], None, None, "not evaluated: the suite has no train cases")
                hunt.ended = "the suite has no train cases"
        except CeilingReached as reached:
            hunt.halted = reached.message
        assert hunt.best is not None
        held_out: Evaluation | None = None
        if suite.held_out and not hunt.halted:
            plan = plan_for(hunt.best.skill, _subset(suite, suite.held_out))
            if last:
                last(plan)
            held_out = await hunt.evaluate(plan, 0)
            hunt.halted = held_out.halted
    ended = hunt.halted or hunt.ended
    return Refinement(hunt.best.skill, hunt.attempts, hunt.best.evaluation, held_out, ended, hunt.halted, hunt.notes)


@dataclass
class _Search:
    """A search under way."""

    suite: Suite
    plan_for: PlanFor
    models: Models
    store: Store
    executor: Executor | None
    search: str
    begin: Callable[[int, Plan, list[Trial]], None] | None
    watch: Callable[[Result], None] | None
    done: Callable[[Attempt], None] | None
    best: Attempt | None = None
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    notes: list[str] = field(default_factory=list[str])
    ended: str = ""
    halted: str = ""

    async def evaluate(self, plan: Plan, attempt: int) -> Evaluation:
        def started(plan: Plan, _run: Run, missing: list[Trial]) -> None:
            if self.begin:
                self.begin(attempt, plan, missing)

        return await evaluate(
            plan,
            store=self.store,
            models=self.models,
            options=RunOptions(executor=self.executor),
            events=Events(started=started, result=self.watch or (lambda _: None)),
        )

    async def try_draft(self, skill: Skill, level: float, proposal: Proposal | None = None) -> Attempt:
        """Evaluate a candidate on train cases and let the gate decide."""
        attempt = len(self.attempts) + 1
        if any(skill.visible_hash == one.skill.visible_hash for one in self.attempts):
            return self.keep(
                Attempt(attempt, skill, None, False, "the same as one that was tried before", None, proposal)
            )
        evaluation = await self.evaluate(self.plan_for(skill, _subset(self.suite, self.suite.train)), attempt)
        if self.best is None or self.best.evaluation is None:
            if evaluation.too_many_errors and not evaluation.halted:
                raise _evaluation_error(evaluation)
            accepted = None if evaluation.halted else True
            return self.keep(Attempt(attempt, skill, evaluation, accepted, "the first draft"))
        found = compare(self.best.evaluation.outcomes, evaluation.outcomes, level)
        accepted = None if evaluation.halted else found.accepted
        return self.keep(Attempt(attempt, skill, evaluation, accepted, found.summary, found, proposal))

    def keep(self, tried: Attempt) -> Attempt:
        verdict: dict[str, Any] = verdict_to_json(tried.evaluation.verdicts[0]) if tried.evaluation else {}
        if tried.evaluation:
            verdict["run"] = tried.evaluation.run.id
        if tried.proposal:
            verdict["proposal"] = tried.proposal.plain()
        parent = self.best.stored.number if self.best and self.best.stored else None
        if not any(tried.skill.visible_hash == one.skill.visible_hash for one in self.attempts):
            tried.stored = self.store.add_candidate(
                self.search, tried.skill, parent, tried.accepted, tried.note, verdict
            )
        self.attempts.append(tried)
        if tried.accepted or self.best is None:
            self.best = tried
        if self.done:
            self.done(tried)
        if tried.evaluation and tried.evaluation.halted:
            raise CeilingReached(tried.evaluation.halted)
        return tried

    @property
    def rate(self) -> float:
        """How many train trials the best passes."""
        assert self.best is not None
        assert self.best.evaluation is not None
        return self.best.evaluation.verdicts[0].skill.pass_rate or 0.0

    def failures(self) -> list[Failure]:
        assert self.best is not None
        assert self.best.evaluation is not None
        return failures_in_run(self.store, self.best.evaluation.run, self.suite.by_id)


async def _look_for_better(
    hunt: _Search,
    drafts: Sequence[Skill],
    refiner: Refiner | None,
    attempts: int,
    level: float,
    target: float,
    known: Sequence[Failure],
) -> None:
    for draft in drafts:
        await hunt.try_draft(draft, level)
    rejected: list[RejectedEdits] = []
    in_a_row = 0
    for attempt in range(1, attempts + 1):
        assert hunt.best is not None
        assert refiner is not None
        failures = [*hunt.failures(), *(known if attempt == 1 else ())]
        if hunt.rate >= target or not failures:
            break
        proposal = await refiner.propose(hunt.best.skill, failures, rejected, attempt)
        if proposal is None:
            tried = hunt.keep(
                Attempt(
                    len(hunt.attempts) + 1, hunt.best.skill, None, False, "no edit was proposed that can be applied"
                )
            )
        else:
            tried = await hunt.try_draft(proposal.skill, level, proposal)
        if tried.accepted:
            in_a_row = 0
            continue
        rejected.append(RejectedEdits(proposal.edits if proposal else (), tried.note))
        in_a_row += 1
        if in_a_row >= MAX_REJECTED_IN_A_ROW:
            hunt.ended = f"{MAX_REJECTED_IN_A_ROW} candidates in a row were rejected"
            return
    reached = "the target is reached" if hunt.rate >= target else "all attempts are used"
    hunt.ended = reached if attempts else "no attempts were to be made"


def _subset(suite: Suite, cases: tuple[Case, ...]) -> Suite:
    return Suite(cases, suite.source, suite.max_output_tokens)


def _evaluation_error(evaluation: Evaluation) -> UpskillError:
    model, message, trials = evaluation.errors[0]
    return UpskillError(
        f"the skill cannot be evaluated: {counted(trials, 'trial')} of {model} errored: {message}",
        "Repair this and give the same command again: what was finished is kept. --no-eval leaves evaluating out.",
    )


# What a reviser is told.


def failures_in_run(store: RunStore, run: Run, cases: Mapping[str, Case], model: str = "") -> list[Failure]:
    """The failures with the skill in a run, one for each case, with what the checks looked for masked."""
    found: dict[str, Failure] = {}
    for result in store.results(run):
        case = cases.get(result.trial.case)
        if result.trial.arm != "skill" or result.passed is not False or case is None or case.held_out:
            continue
        if not model or result.trial.model == model:
            found.setdefault(case.id, _failure(case, result))
    return list(found.values())


def stored_failures(store: RunStore, skill: Skill, student: Address, suite: Suite | None = None) -> list[Failure]:
    """What earlier runs of this very skill know: failures of this student on cases that are not held out.

    A case that is held out in the suite at hand is left out too, under whatever id it was run.
    """
    hidden = {case.prompt for case in suite.held_out} if suite else set[str]()
    known = {case.id for case in suite.train} if suite else set[str]()
    found: dict[str, Failure] = {}
    for run in store.runs():
        if run.plan["skill"].get("visible_hash") != skill.visible_hash or student.name not in run.models:
            continue
        try:
            cases = Suite.parse({"cases": run.plan["suite"]["cases"]}, run.id).by_id
        except UsageError:  # it has a check of a package that is not installed any more
            continue
        for failure in failures_in_run(store, run, cases, student.name):
            if failure.prompt not in hidden and failure.case not in known:
                found[failure.case] = failure
    return list(found.values())


def _failure(case: Case, result: Result) -> Failure:
    reasons: list[str] = []
    for named, judgement in zip(case.checks, result.judgements, strict=False):
        if not judgement.passed:
            reasons.append(f"{judgement.check}: {mask_expected(named, judgement.reason)}")
    files = "".join(f"{name}:\n{text}\n\n" for name, text in case.files.items())
    answer = result.trace.answer if result.trace else ""
    return Failure(case.id, files + case.prompt, answer, tuple(reasons), case.evidence)


def mask_expected(named: Named, reason: str) -> str:
    """What a check said, without the text that it looked for: facts are to be taught, not answers to tests."""
    if named.name in UNMASKED_CHECKS:
        return reason
    for text in sorted(set(_texts(named.written)), key=len, reverse=True):
        reason = reason.replace(repr(text), MASK)
        if len(text) >= 4:
            reason = reason.replace(text, MASK)
    return reason


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif (items := as_list(value)) is not None:
        for item in items:
            yield from _texts(item)
    elif (fields := as_mapping(value)) is not None:
        for item in fields.values():
            yield from _texts(item)


# As upstream's users call it.


async def refine_skill(
    skill: Skill,
    failures: Sequence[str | Failure],
    model: str | None = None,
    config: Any = None,
    *,
    models: Models | None = None,
    tokens: int = 800,
) -> Skill:
    """The skill with a few edits by the model named here or in the config; the same one where none can be applied.

    This is one proposal without a gate: `refine` says whether it is any better.
    """
    address = resolve(model or getattr(config, "skill_generation_model", None) or "local")
    told = [one if isinstance(one, Failure) else Failure("", one, "", ("failed",)) for one in failures]
    async with models or Models() as opened:
        teacher = await opened.get(address, "teacher")
        proposal = await Rewrite(teacher, None, max(tokens, skill.tokens)).propose(skill, told, (), 1)
    return proposal.skill if proposal else skill
