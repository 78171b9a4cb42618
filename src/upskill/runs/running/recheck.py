"""Recheck: which skills of a library are worth their tokens with these models?

Each skill is run with and without it, round after round on exactly these cases. Every skill gets a few rounds first.
Then the next round goes wherever a decision is nearest, until everything is decided or the ceiling is reached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from upskill.errors import Paused, UpskillError
from upskill.runs.planning.plan import Plan
from upskill.runs.results.evaluation import Evaluation, as_drawn, evaluation_of, verdict_so_far
from upskill.runs.results.looks import Looks, looks_of, make_look
from upskill.runs.running.evaluate import RunOptions
from upskill.runs.running.gate import Measure
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.verdicts.library import decide_all, log_e_values, needed_for
from upskill.verdicts.outcome import Outcome, never_varies
from upskill.verdicts.planning import MAX_RUNS, smallest
from upskill.verdicts.verdict import (
    CHOSEN,
    ERRORS,
    ISOLATION,
    SNAPSHOTS,
    UNTESTED,
    USED,
    Decision,
    Verdict,
)

FIRST_ROUNDS, ROUNDS = 2, 12
# After a third of the rounds, a skill gets no further one if even so many times all rounds would decide nothing, were
# they like those so far.
PATIENCE = 4
TOLERANCE = (
    0.15  # with a lift nearer to zero than this, a model does about as well without the skill
)
Status = Literal["keep", "retire", "repair", "undecided", "no suite"]
STATUSES: dict[Decision, Status] = {
    "helps": "keep",
    "saves": "keep",
    "no effect": "retire",
    "hurts": "repair",
}
# Reasons that no further round would remove.
CANNOT_TELL = (ERRORS, ISOLATION, SNAPSHOTS, CHOSEN, USED, UNTESTED)


@dataclass
class Rechecked:
    """What is known of one skill with one model. Without a plan it was not run."""

    skill: Skill
    plan: Plan | None = None
    reason: str = ""  # why it was not run, or not to its end
    old: Sequence[Mapping[str, Any]] = ()  # earlier verdicts
    decision: Decision = "undecided"
    rounds: int = 0
    outcomes: Sequence[Outcome] = ()  # of these rounds
    evidence: Mapping[Decision, float] = field(default_factory=dict[Decision, float])
    verdict: Verdict | None = None
    evaluation: Evaluation | None = None
    looks: Looks | None = None
    rounds_needed: int | None = (
        None  # for a decision, if all are like those so far; None: no number would do
    )
    is_open: bool = True  # a further round may tell more
    is_exact: bool = False  # the student never varies, so nothing is left to chance

    @property
    def model(self) -> str:
        return self.plan.models[0].name if self.plan else ""

    @property
    def status(self) -> Status:
        return STATUSES.get(self.decision, "undecided") if self.plan or self.reason else "no suite"

    def trials_left(self, needed: float) -> float:
        """Until there is as much evidence as needed, at the pace so far."""
        strongest = max(self.evidence.values(), default=0.0)
        return (needed / strongest - 1.0) * len(self.outcomes) if strongest > 0 else math.inf


@dataclass
class Recheck:
    """`measure` runs a plan. Every plan has one model; one ledger keeps the ceiling of all."""

    store: Store
    measure: Measure
    tolerance: float = TOLERANCE
    tell: Callable[[str], None] = lambda _: None
    halted: str = ""  # the ceiling that was reached

    async def run(self, library: Sequence[Rechecked]) -> None:
        planned = [each for each in library if each.plan]
        for each in planned:
            if not self.halted:
                self.tell(f"{each.skill.name}, {each.model}")
                await self._advance(each, FIRST_ROUNDS)
        self._decide(planned)
        self.tell("Running more rounds for the skills closest to a decision")
        while not self.halted:
            waiting = [each for each in planned if each.is_open and each.decision == "undecided"]
            if not waiting:
                break
            needed = needed_for(len(planned) - len(waiting) + 1, len(planned))
            nearest = min(waiting, key=lambda each: (each.trials_left(needed), each.rounds))
            await self._advance(nearest, nearest.rounds + 1)
            self._decide(planned)
        decided = sum(each.decision != "undecided" for each in planned)
        for each in planned:
            self._report(each, needed_for(min(decided + 1, len(planned)), len(planned)))

    async def _advance(self, each: Rechecked, rounds: int) -> None:
        assert each.plan
        try:
            options = RunOptions(until_decided="suite", rounds=rounds, keep_look=False)
            evaluation = await self.measure(each.plan, options)
        except Paused:
            raise
        except UpskillError as error:
            each.reason, each.is_open = f"{error.message}. {error.hint}".strip(), False
            return
        before, plan, run = each.rounds, each.plan, evaluation.run
        each.evaluation, self.halted = evaluation, evaluation.halted
        each.rounds, each.outcomes = _complete_rounds(plan, evaluation.outcomes)
        if each.looks is None:
            look = make_look(plan, run, each.outcomes, each.model)
            each.looks = looks_of(self.store, run, look)
        verdict = verdict_so_far(
            run.plan,
            list(each.outcomes),
            leaked=evaluation.leaked,
            looks=each.looks,
            used_cases=plan.used_cases,
        )
        each.verdict = replace(verdict, model=each.model)
        each.is_exact = never_varies(each.outcomes)
        each.evidence = self._evidence(each, each.rounds)
        is_hopeful = max(
            self._evidence(each, PATIENCE * plan.runs).values(), default=0.0
        ) >= needed_for(1, of=1)
        can_go_on = (
            bool(each.evidence)
            and not verdict.repeats_itself
            and (is_hopeful or 3 * each.rounds < plan.runs)
        )
        each.is_open = can_go_on and before < each.rounds < plan.runs

    def _evidence(self, each: Rechecked, rounds: int) -> dict[Decision, float]:
        """Logarithms of e-values; with more rounds than there are, what they would be if all were like those so far."""
        if not each.rounds or each.verdict is None or each.plan is None or each.evaluation is None:
            return {}
        if each.verdict.reason in CANNOT_TELL:
            return {}
        if each.is_exact:
            return {each.verdict.decision_if_exact: math.inf}
        # As in `level_of_look`: a look that nobody had planned has less to say.
        less = math.log(max(1, each.verdict.look * (each.verdict.look - 1)))
        weigh = partial(
            log_e_values,
            tolerance=self.tolerance,
            twins=each.plan.twins,
            times=rounds / each.rounds,
        )
        drawn = as_drawn(each.evaluation.run.plan, each.outcomes)
        values = weigh(drawn)
        if (
            used := each.plan.used_cases
        ):  # all cases can show that it hurts, the others what is good about it
            unused = [row for row in drawn if row.case not in used]
            hurts: dict[Decision, float] = {"hurts": values["hurts"]}
            values = weigh(unused) | hurts if unused else hurts
        return {claim: value - less for claim, value in values.items()}

    def _decide(self, planned: Sequence[Rechecked]) -> None:
        for each, decision in zip(
            planned, decide_all([each.evidence for each in planned]), strict=True
        ):
            each.decision = decision

    def _report(self, each: Rechecked, needed: float) -> None:
        """What was run is a look that somebody takes now."""
        if (
            each.decision == "undecided"
            and each.evidence
            and each.verdict
            and not each.verdict.repeats_itself
        ):
            each.rounds_needed = smallest(
                lambda rounds: max(self._evidence(each, rounds).values()) >= needed, MAX_RUNS
            )
        if not each.rounds:
            each.reason = (
                each.reason
                or (each.evaluation.why_failed if each.evaluation else "")
                or self.halted
            )
        if each.evaluation is None:
            return
        run = each.evaluation.run
        run = self.store.annotate(run, analysis=replace(run.plan.analysis, reported=True))
        each.evaluation = evaluation_of(self.store, run, each.plan)


def _complete_rounds(plan: Plan, outcomes: Sequence[Outcome]) -> tuple[int, list[Outcome]]:
    """How many rounds there are, and their outcomes: the test knows no round in part."""
    trials = len(plan.suite.cases) * len(plan.arms)
    done = [
        len({(row.case, row.arm) for row in outcomes if row.seed == seed}) for seed in plan.seeds
    ]
    rounds = next((number for number, count in enumerate(done) if count < trials), plan.runs)
    return rounds, [row for row in outcomes if row.seed in plan.seeds[:rounds]]
