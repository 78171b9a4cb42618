"""Refine: search for a better skill on train cases, test the gain once, and measure it on held-out cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from upskill.authoring.events import AuthoringEvents
from upskill.authoring.search import comparison as comparing
from upskill.authoring.search.comparison import Attempt, Comparison, Confirmation, Decision, compare
from upskill.authoring.search.failures import failures_in_run
from upskill.authoring.search.loop import SearchLoop, evaluation_error
from upskill.authoring.search.refiners import Failure, Proposal, Refiner, TriedEdits, compose, merge
from upskill.errors import CeilingReached
from upskill.models.pool import Models
from upskill.plain import counted, digest_text
from upskill.runs.planning.plan import BOTH_ARMS, SAMPLED, Plan
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions, evaluate
from upskill.runs.running.executors import Executor
from upskill.runs.stores import Store, open_store
from upskill.skills import Skill
from upskill.suites import Case, Suite

MAX_REJECTED_IN_A_ROW = 3  # candidates; then the search ends
SIDE_BY_SIDE = 3  # proposals for the same skill, whose edits are then tried together
BATCH, CITED_BATCH = (
    8,
    3,
)  # failing cases that a proposal is tried on first; fewer if it cites what they rest on
ROUNDS_AGAIN = 2  # new draws for the cases that changed, where a candidate is not ahead
MIN_BROKEN, MAX_BROKEN, MAX_LEFT_OUT = (
    2,
    4,
    8,
)  # cases and edits, to find the edit that breaks the cases
FRESH_CASES_FROM = 48  # train cases; of so many, every second is kept for the confirmation
TRYING_SEED, CONFIRMING_SEED = 1_000, 500_000  # added to the seed of the plan

PlanFor = Callable[[Skill, Suite], Plan]


@dataclass(frozen=True, kw_only=True)
class RefineOptions:
    refiner: Refiner | None = None  # None: the drafts are compared, and nothing is changed
    attempts: int = 3
    target: float = 1.0  # the pass rate on train cases that is good enough
    search: str = ""  # id that candidates are stored under
    known_failures: Sequence[Failure] = ()  # of the first draft, from earlier runs
    evidence: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # the texts behind the cases, by id
    older_cases: frozenset[str] = (
        frozenset()
    )  # ids of cases that must not get worse; the others are to get better
    improves: bool = False  # the first draft is an older skill
    requested: bool = (
        False  # a change of it was asked for: it is made unless it is shown to be worse
    )
    executor: Executor | None = None  # None: this process


@dataclass
class Refinement:
    skill: Skill
    attempts: list[Attempt]
    fit: Evaluation | None
    held_out: Evaluation | None
    ended: str  # why the search ended
    halted: str = ""  # the ceiling that ended it
    confirmation: Confirmation | None = None  # None: nothing was kept, or a ceiling came first
    duels: Sequence[Evaluation] = ()  # two candidates against each other, on new draws
    held_out_gain: Evaluation | None = None  # against the first draft; None: that is the result
    selected: bool = (
        True  # False: there was one draft and no search, so `fit` is of all cases and chose nothing
    )

    def __repr__(self) -> str:
        return f"Refinement({self.skill}, {counted(len(self.attempts), 'attempt')})"

    @property
    def evaluated_cases(self) -> str:
        return "held-out" if self.held_out else "fit" if self.selected else "all"

    @property
    def cases_used(self) -> frozenset[str]:
        """The cases that chose the result."""
        compared = [*(attempt.evaluation for attempt in self.attempts), *self.duels]
        used: set[str] = set()
        for each in compared:
            if each:
                used.update(each.plan.suite.by_id)
        return frozenset(used)

    @property
    def evaluations(self) -> list[Evaluation]:
        attempts = [attempt.evaluation for attempt in self.attempts]
        last = (*self.duels, self.held_out, self.held_out_gain)
        return [evaluation for evaluation in (*attempts, *last) if evaluation]


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
    """The first draft, or one that is better on train cases; evaluated on held-out cases once.

    One draft without a search is evaluated on all cases, as none of them selects anything.
    """
    with nullcontext(store) if store else open_store(None) as opened:
        models = models or Models(replies=opened)
        search = Search(
            suite, plan_for, opened, models, options or RefineOptions(), events or AuthoringEvents()
        )
        return await search.run(drafts)


@dataclass
class Search(SearchLoop[Attempt]):
    max_rejected = MAX_REJECTED_IN_A_ROW

    suite: Suite
    plan_for: PlanFor
    store: Store
    models: Models
    options: RefineOptions
    events: AuthoringEvents
    duels: list[Evaluation] = field(default_factory=list[Evaluation])
    tried: list[TriedEdits] = field(default_factory=list[TriedEdits])
    front: list[Attempt] = field(
        default_factory=list[Attempt]
    )  # each fixed cases that no other of them did
    confirmation: Confirmation | None = None
    request: Attempt | None = (
        None  # of the proposals that make the requested change and are not worse, the best
    )
    selects: bool = True

    def __post_init__(self) -> None:
        older = self.options.older_cases
        self.older = tuple(case for case in self.suite.train if case.id in older)
        targets = tuple(case for case in self.suite.train if case.id not in older)
        if not targets or len(self.older) < comparing.MIN_NOT_WORSE:  # they count with the rest
            targets, self.older = self.suite.train, ()
        self.targets, self.fresh = (
            targets,
            (),
        )  # `fresh` are seen by the confirmation only: none, unless there are many
        if len(targets) >= FRESH_CASES_FROM:
            fresh = {
                case.id for case in sorted(targets, key=lambda case: digest_text(case.id))[::2]
            }
            self.targets = tuple(case for case in targets if case.id not in fresh)
            self.fresh = tuple(case for case in targets if case.id in fresh)
        self.target_ids = frozenset(case.id for case in self.targets)
        self.first_name: Decision = "older version" if self.options.improves else "first draft"
        self.variants = set[
            str
        ]()  # hashes of skills that were tried on train cases and are no attempts
        if refiner := self.options.refiner:
            refiner.cases, refiner.run = self.targets, self._run_for_refiner

    async def run(self, drafts: Sequence[Skill]) -> Refinement:
        suite = self.suite
        self.selects = len(drafts) > 1 or bool(self.options.refiner and self.options.attempts)
        if not self.selects:
            self.targets, self.older, self.fresh = suite.cases, (), ()
            self.target_ids = frozenset(suite.by_id)
        async with self.models:
            try:
                if self.targets:
                    await self.search(drafts, self.options.attempts if self.options.refiner else 0)
                    await self._try_front()
                    await self._confirm()
                    is_kept = self.best and self.best.decision in comparing.KEPT
                    if self.request and self.request is not self.best and not is_kept:
                        self.best = self.request
                        await self._confirm()
                else:
                    note = "not evaluated: the suite has no train cases"
                    self.attempts.append(Attempt(1, drafts[0], None, self.first_name, note))
                    self.ended = "the suite has no train cases"
            except CeilingReached as reached:
                self.halted = reached.message
            result = self._result()
            held_out = gain = None
            if suite.held_out and self.selects and not self.halted:
                plan = self.plan_for(result.skill, _subset(suite, suite.held_out))
                self.events.held_out_started(plan)
                held_out = await self.evaluate(plan, reported=True)
                self.halted = held_out.halted
                if result is not self.attempts[0] and not self.halted:
                    # The trials of the result are those of `held_out`.
                    gain = await self.evaluate(
                        replace(plan, arms=BOTH_ARMS, reference_skill=self.attempts[0].skill)
                    )
                    self.halted = gain.halted
        return Refinement(
            skill=result.skill,
            attempts=self.attempts,
            fit=result.evaluation,
            held_out=held_out,
            ended=self.halted or self.ended,
            halted=self.halted,
            confirmation=self.confirmation,
            duels=tuple(self.duels),
            held_out_gain=gain,
            selected=self.selects,
        )

    def _result(self) -> Attempt:
        first = self.attempts[0]
        if self.best is None or self.best is first:
            return first
        if self.confirmation and self.confirmation.decision in comparing.KEPT:
            return self.best
        if self.halted:
            self.events.message(
                f"Version {self.best.number} was not tested on new draws, so the {self.first_name}"
                " is saved. To continue, run the same command with a higher limit, e.g. --max-cost."
            )
        return first

    def reason_to_stop(self) -> str:
        assert self.best is not None
        if self._awaits_request:
            return ""  # whatever passes already
        if self.options.requested and not self._has_room:
            return "the requested change is made"
        if self._pass_rate >= self.options.target:
            return "the target is reached"
        failing, cases = len(self._failing(self.best)), len(self.fresh or self.targets)
        if failing < (needed := comparing.failures_needed(cases)):
            left = "1 train case fails" if failing == 1 else f"{failing} train cases fail"
            more = "more cases may show more (`upskill tests SKILL --add 10`)"
            return f"only {left}, and showing a gain takes at least {needed}; {more}"
        return ""

    async def propose_and_try(self, number: int) -> Attempt:
        assert self.best is not None
        assert self.options.refiner is not None
        assert self.best.evaluation is not None
        failures = [
            each for each in self.failures(self.best.evaluation) if each.case not in self._fixed
        ]
        failures += self.options.known_failures if number == 1 else ()
        passing = [case for case in self.targets if case.id not in self._failing(self.best)]
        shuffled = sorted(passing, key=lambda case: digest_text(f"{number} {case.id}"))
        self.options.refiner.passing = tuple(case.prompt for case in shuffled)
        proposal = await self.options.refiner.propose(
            self.best.skill, failures, tuple(self.tried), number
        )
        if proposal is not None and proposal.edits:
            is_alone = self.options.requested or not proposal.is_composed(self.best.skill)
            attempt = await self.try_skill(proposal.skill, proposal)
            fixes_all = attempt.decision == "set aside" and not self._failing(attempt)
            if is_alone or fixes_all or number % SIDE_BY_SIDE == 0 or not self._open:
                await self._try_front()
            return self.attempts[-1]
        note = (
            "no edit was proposed that can be applied"
            if proposal is None
            else "the teacher proposed no change"
        )
        self.ended = note if proposal else ""
        self.tried.append(TriedEdits((), note))
        return self.keep(
            Attempt(
                len(self.attempts) + 1, self.best.skill, None, "not tried", note, None, proposal
            )
        )

    async def try_skill(self, skill: Skill, proposal: Proposal | None = None) -> Attempt:
        """A proposal is tried on a few failing cases first; one that fixes none of them ends there."""
        attempt = Attempt(len(self.attempts) + 1, skill, None, "not tried", "", None, proposal)
        if self.was_tried(skill):
            attempt.note = "the same as one that was tried before"
            self._remember(attempt)
            return self.keep(attempt)
        if proposal is None or self.best is None or not self._open or self._awaits_request:
            return await self._try_on_all(attempt)
        cited = {name for edit in proposal.edits for name in edit.evidence}
        fixed, failing = self._fixed, self._failing(self.best)
        cases = [case for case in self.targets if case.id in failing]
        cases.sort(key=lambda case: (cited.isdisjoint(case.evidence), case.id in fixed))
        about = sum(not cited.isdisjoint(case.evidence) for case in cases)
        size = min(BATCH, max(CITED_BATCH, about)) if about else BATCH
        await self._compare_with_best(attempt, tuple(cases[:size]))
        self.front += [attempt] if attempt.decision == "set aside" else []
        return self.keep(attempt)

    async def _try_front(self) -> None:
        """Try what was set aside on all train cases, together, and then without the edits that break some of them."""
        front, self.front = self.front, []
        proposals = [attempt.proposal for attempt in front if attempt.proposal]
        if not proposals:
            return
        assert self.best is not None
        assert self.options.refiner is not None
        parent, attempt = self.best.skill, front[0]
        self.tried = [each for each in self.tried if not each.result.startswith("set aside")]
        if len(front) > 1:
            merged = merge(parent, proposals, self.options.refiner.max_tokens(parent))
            attempt = Attempt(
                len(self.attempts) + 1, merged.skill, None, "not tried", "", None, merged
            )
        await self._try_on_all(attempt)
        pruned = await self._without_harmful_edits(attempt, parent)
        if pruned and not self.was_tried(pruned.skill):
            await self._try_on_all(
                Attempt(len(self.attempts) + 1, pruned.skill, None, "not tried", "", None, pruned)
            )

    async def _without_harmful_edits(self, attempt: Attempt, parent: Skill) -> Proposal | None:
        """The proposal without the edits whose absence fixes most of what it breaks; None: there are none."""
        proposal, broken = (
            attempt.proposal,
            attempt.comparison.broken[:MAX_BROKEN] if attempt.comparison else (),
        )
        if not (
            proposal
            and len(broken) >= MIN_BROKEN
            and 1 < len(proposal.edits) <= MAX_LEFT_OUT
            and proposal.is_composed(parent)
        ):
            return None
        cases, gains = tuple(self.suite.by_id[case] for case in broken), list[int]()
        for left_out in proposal.edits:
            variant = compose(
                parent, [edit for edit in proposal.edits if edit is not left_out], attempt.skill
            )
            duel = await self._duel(variant, attempt.skill, cases, TRYING_SEED * attempt.number, 1)
            gains.append(compare(duel.outcomes, duel.outcomes, arm="baseline").gain)
            self.variants.add(variant.visible_hash)
        self._store(attempt, attempt.stored.parent if attempt.stored else None)  # with its variants
        most = max(1, *gains)
        harmless = tuple(
            edit for edit, gain in zip(proposal.edits, gains, strict=True) if gain < most
        )
        if not 0 < len(harmless) < len(proposal.edits):
            return None
        return Proposal(compose(parent, harmless, attempt.skill), harmless, proposal.note)

    async def _try_on_all(self, attempt: Attempt) -> Attempt:
        """Run it on all train cases, and keep it if it passes more of them than the best so far."""
        cases = (*self.older, *self.targets)
        if self.best and self.best.evaluation:
            attempt.comparison = change = await self._compare_with_best(attempt, cases)
            before = self.request.comparison if self.request else None
            is_better = before is None or change.gain > before.gain
            if (
                self._awaits_request
                and is_better
                and attempt.decision in ("kept provisionally", "not enough evidence")
            ):
                self.request = attempt
        else:
            evaluation = await self._run(attempt, cases)
            if evaluation.too_many_errors and not evaluation.halted:
                hint = " --no-eval skips the evaluation."
                raise evaluation_error("the skill cannot be evaluated", evaluation, hint=hint)
            attempt.decision = "not decided" if evaluation.halted else self.first_name
            attempt.note = f"the {self.first_name}"
        return self.keep(attempt)

    async def _compare_with_best(self, attempt: Attempt, cases: tuple[Case, ...]) -> Comparison:
        assert self.best is not None
        assert self.best.evaluation is not None
        before, evaluation = self.best.evaluation.outcomes, await self._run(attempt, cases)
        change = compare(before, evaluation.outcomes, self.target_ids)
        older = compare(before, evaluation.outcomes, {case.id for case in self.older})
        attempt.decision = "not decided" if evaluation.halted else self._screen(change, older)
        is_batch = len(cases) < len(self.older) + len(self.targets)
        if attempt.decision == "not enough evidence" and change.is_open and not is_batch:
            changed = tuple(self.suite.by_id[case] for case in (*change.fixed, *change.broken))
            seed = TRYING_SEED * attempt.number + 1  # the first is for leaving out edits
            duel = await self._duel(attempt.skill, self.best.skill, changed, seed, ROUNDS_AGAIN)
            change = change.plus(compare(duel.outcomes, duel.outcomes, arm="baseline"))
            attempt.decision = self._screen(change, older)
        if is_batch and attempt.decision == "kept provisionally":
            attempt.decision = "set aside"
        attempt.note = change.summary + (
            f"; older cases: {older.summary}" if older.differences else ""
        )
        self._remember(attempt, change, older)
        return change

    async def _run(self, attempt: Attempt, cases: tuple[Case, ...]) -> Evaluation:
        plan = self.plan_for(attempt.skill, _subset(self.suite, cases))
        self.events.attempt_started(attempt.number, plan)
        attempt.evaluation = await self.evaluate(plan, reported=not self.selects)
        self.halted = attempt.evaluation.halted
        return attempt.evaluation

    async def _run_for_refiner(self, skill: Skill, cases: Sequence[Case]) -> list[Failure | None]:
        self.variants.add(skill.visible_hash)
        evaluation = await self.evaluate(self.plan_for(skill, _subset(self.suite, tuple(cases))))
        if evaluation.halted:
            raise CeilingReached(evaluation.halted)
        passed = {row.case for row in evaluation.outcomes if row.arm == "skill" and row.passed}
        failures = {failure.case: failure for failure in self.failures(evaluation)}
        unscored = (Failure(case.id, case.prompt, "", ("there is no score",)) for case in cases)
        return [None if each.case in passed else failures.get(each.case, each) for each in unscored]

    def _remember(self, attempt: Attempt, *changes: Comparison) -> None:
        if attempt.proposal and attempt.proposal.edits:
            fixed, broken = (
                tuple(
                    self.suite.by_id[case].prompt
                    for change in changes
                    for case in getattr(change, name)
                )
                for name in ("fixed", "broken")
            )
            result = f"{attempt.decision}: {attempt.note}" if changes else attempt.note
            self.tried.append(TriedEdits(attempt.proposal.edits, result, fixed, broken))

    def failures(self, evaluation: Evaluation) -> list[Failure]:
        return failures_in_run(self.store, evaluation.run, self.suite.by_id, self.options.evidence)

    def _screen(self, change: Comparison, older: Comparison) -> Decision:
        if older.differences and older.p_worse <= comparing.HOPELESS:
            return "worse" if older.p_worse <= comparing.SHOWN_WORSE else "not enough evidence"
        if self.options.requested and not self._has_room and change.decidable:
            return "kept provisionally" if change.p_worse > comparing.HOPELESS else change.screened
        return change.screened

    async def _confirm(self) -> None:
        """Compare the last kept skill with the first draft, on new draws and, if there are any, fresh cases."""
        first, last = self.attempts[0], self.best
        if last is None or last is first:
            return
        targets, only_not_worse = (
            self.fresh or self.targets,
            self.options.requested and not self._has_room,
        )
        tried = self._tried
        fewest = min(len(targets), len(self.older) or len(targets))
        looks = comparing.confirming_rounds(fewest)
        first_level, last_level = comparing.levels_over_cases(tried)
        confirmation = None
        for rounds in looks:
            duel = await self._duel(
                last.skill, first.skill, (*self.older, *targets), CONFIRMING_SEED, rounds
            )
            is_exact = bool(duel.plan.exact)  # then the first round has shown all there is
            parts = (
                compare(
                    duel.outcomes,
                    duel.outcomes,
                    {case.id for case in cases},
                    arm="baseline",
                    worst=True,
                )
                for cases in (targets, self.older)
            )
            better, older = (replace(part, exact=is_exact) for part in parts)
            is_last = is_exact or rounds == looks[-1]
            here = comparing.LAST_LOOK if is_last else comparing.EARLIER_LOOK
            decide = partial(
                comparing.confirm,
                better,
                older if self.older else None,
                here,
                only_not_worse=only_not_worse,
            )
            confirmation = Confirmation(
                cases=better,
                decision=decide(last_level if is_last else first_level),
                rounds=1 if is_exact else rounds,
                trials=len(duel.plan),
                tried=tried,
                only_not_worse=only_not_worse,
                older_cases=older if self.older else None,
                before=self.first_name,
            )
            if is_exact or (confirmation.decision == "confirmed" and rounds == looks[0]):
                break
            if decide(comparing.WITHIN_REACH) not in ("confirmed", "not enough evidence"):
                break
            if better.gain <= 0 and not only_not_worse and rounds >= looks[-1] / 2:
                break
        self.confirmation = (
            confirmation  # not earlier: a limit may have stopped us between two looks
        )
        assert self.confirmation is not None
        if last is self.request and self.confirmation.decision in (
            "not enough evidence",
            "not decided",
        ):
            self.confirmation = replace(self.confirmation, decision="kept as requested")
        decision, summary = self.confirmation.decision, self.confirmation.summary
        for attempt in self.attempts:
            is_dropped = decision not in comparing.KEPT and attempt is not self.request
            if attempt is last or (is_dropped and attempt.decision == "kept provisionally"):
                attempt.decision, attempt.tested = decision, attempt is last
                attempt.note += f"; on new draws: {summary}"
                self._store(attempt, attempt.stored.parent if attempt.stored else None)

    @property
    def _tried(self) -> int:
        """Candidates besides the first draft, also those of earlier calls of the same search.

        Fresh cases have chosen nothing: there, those that an earlier call has tested on them, and this one.
        """
        first, last = (
            self.attempts[0].skill,
            self.best.skill if self.best else self.attempts[0].skill,
        )
        hashes = {last.visible_hash}
        if not self.fresh:
            hashes = self.variants | {attempt.skill.visible_hash for attempt in self.attempts}
        for each in self.store.candidates(first.name) if self.options.search else ():
            if each.search == self.options.search and (
                not self.fresh or each.verdict.get("tested")
            ):
                hashes |= {
                    each.fingerprint,
                    *(() if self.fresh else each.verdict.get("variants", ())),
                }
        return max(1, len(hashes - {first.visible_hash}))

    async def _duel(
        self, skill: Skill, against: Skill, cases: tuple[Case, ...], seed: int, rounds: int
    ) -> Evaluation:
        """Two skills on the same cases, on their own seeds; sampled, because a greedy repeat gives the same answer."""
        usual = self.plan_for(skill, _subset(self.suite, cases))
        plan = replace(
            usual,
            arms=BOTH_ARMS,
            reference_skill=against,
            seed=usual.seed + seed,
            runs=rounds,
            temperature=usual.temperature or SAMPLED,
        )
        self.events.duel_started(plan)
        evaluation = await self.evaluate(plan)
        self.duels.append(evaluation)
        if evaluation.halted:
            raise CeilingReached(evaluation.halted)
        return evaluation

    async def evaluate(self, plan: Plan, *, reported: bool = False) -> Evaluation:
        return await evaluate(
            plan,
            store=self.store,
            models=self.models,
            options=RunOptions(
                executor=self.options.executor,
                purpose="eval" if reported else "search",
                partial=True,
            ),
            events=self.events,
        )

    def store_attempt(self, attempt: Attempt) -> None:
        self._store(attempt, self.best.stored.number if self.best and self.best.stored else None)

    def report(self, attempt: Attempt) -> None:
        self.events.attempt_ended(attempt)

    def _store(self, attempt: Attempt, parent: int | None) -> None:
        verdict: dict[str, Any] = (
            attempt.evaluation.verdicts[0].to_dict() if attempt.evaluation else {}
        )
        verdict |= {
            "search_decision": attempt.decision,
            "tested": attempt.tested,
            "variants": sorted(self.variants),
        }
        if attempt.evaluation:
            verdict["run"] = attempt.evaluation.run.id
        if attempt.proposal:
            verdict["proposal"] = attempt.proposal.to_dict()
        attempt.stored = self.store.add_candidate(
            self.options.search, attempt.skill, parent, attempt.accepted, attempt.note, verdict
        )

    def _failing(self, attempt: Attempt) -> frozenset[str]:
        rows = attempt.evaluation.outcomes if attempt.evaluation else ()
        return (
            frozenset(row.case for row in rows if row.arm == "skill" and row.passed is False)
            & self.target_ids
        )

    @property
    def _fixed(self) -> set[str]:
        """Cases that something set aside has fixed."""
        rows = (
            row
            for attempt in self.front
            if attempt.evaluation
            for row in attempt.evaluation.outcomes
        )
        return {row.case for row in rows if row.arm == "skill" and row.passed}

    @property
    def _open(self) -> frozenset[str]:
        assert self.best is not None
        return self._failing(self.best) - self._fixed

    @property
    def _awaits_request(self) -> bool:
        return self.options.requested and self.best is self.attempts[0]

    @property
    def _has_room(self) -> bool:
        failing = len(self._failing(self.attempts[0]))
        return failing >= comparing.failures_needed(len(self.fresh or self.targets))

    @property
    def _pass_rate(self) -> float:
        assert self.best is not None
        assert self.best.evaluation is not None
        passed = [
            bool(row.passed)
            for row in self.best.evaluation.outcomes
            if row.arm == "skill" and row.case in self.target_ids and row.passed is not None
        ]
        return sum(passed) / len(passed) if passed else 0.0


def _subset(suite: Suite, cases: tuple[Case, ...]) -> Suite:
    return Suite(cases, suite.source, suite.max_output_tokens)
