"""Gate: did an edit make these cases worse, and does the skill help at all?

Each question about a skill is a plan of its own, whose rounds end as soon as its mark is settled (`verdicts.gate`):

- the edit against its base, on the cases and checks of the base: a case that the edit fails cannot be edited away, and
  new cases cannot outweigh it
- the skill against none, on the cases that it has now: for a new skill, and for one whose base may have helped more
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from upskill.errors import UpskillError, UsageError
from upskill.runs.planning.plan import Plan
from upskill.runs.replay.receipt import verify
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions
from upskill.skills import RECEIPT, REPLIES, Skill
from upskill.skills.changes import SkillChange
from upskill.suites import Suite
from upskill.verdicts import MAX_ROUNDS
from upskill.verdicts.gate import Assessment, Mark, judge_edit, judge_use, worst_mark
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import Reason, Verdict

# Nothing was measured, and a broken server or wall must not let an edit pass.
NOT_MEASURED = (Reason.ISOLATION, Reason.ERRORS)
Measure = Callable[[Plan, RunOptions], Awaitable[Evaluation]]
Judge = Callable[[Verdict, Sequence[Outcome]], Assessment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """To one question about a skill and a model."""

    verdict: Verdict
    assessment: Assessment
    evaluation: Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What is known of one skill and one model. Without an answer and a problem, there was nothing to check."""

    change: SkillChange
    model: str = ""
    problem: str = ""  # why it could not be run
    edit: Answer | None = None  # against the base
    use: Answer | None = None  # against no skill
    dropped: int = 0  # cases of the base that the suite lacks now, or has otherwise
    is_recorded: bool = False  # from recorded answers: no model was asked

    @property
    def answers(self) -> list[Answer]:
        return [answer for answer in (self.edit, self.use) if answer is not None]

    @property
    def mark(self) -> Mark | None:
        """The worse of its answers'; None: there was nothing to check."""
        if self.problem:
            return "block"
        return worst_mark(answer.assessment.mark for answer in self.answers)


@dataclass
class Gate:
    """`make_plan` plans a skill with a suite against another skill or none; `measure` runs a plan."""

    make_plan: Callable[[Skill, Suite, Skill | None], Plan]
    measure: Measure
    rounds: int = MAX_ROUNDS  # at most
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])

    async def check(self, change: SkillChange) -> list[Checked]:
        """A row for each model."""
        head = change.head
        if head is None or change.kind in ("unchanged", "renamed"):
            return [Checked(change=change, problem=change.problem)]
        try:
            suite = Suite.of(head)
            if suite is None:
                return [Checked(change=change, problem="no test cases")]
            return await self._ask(change, head, suite)
        except UpskillError as error:
            return await self._grade_recorded(
                change, head, f"{error.message}. {error.hint}".strip()
            )

    async def _ask(self, change: SkillChange, head: Skill, suite: Suite) -> list[Checked]:
        uses = await self._answer(self.make_plan(head, suite, None), judge_use)
        # Against the base comes last, so that `last` is what usually blocks.
        edits: dict[str, Answer] = {}
        if change.skill_changed and change.base:
            before = _suite_before(change) or suite
            plan = self.make_plan(head, replace(before, source=suite.source), change.base)
            edits = await self._answer(plan, self._judge_edit)
        dropped = _count_dropped(change, suite)
        return [
            Checked(change=change, model=model, edit=edits.get(model), use=use, dropped=dropped)
            for model, use in uses.items()
        ]

    async def _answer(self, plan: Plan, judge: Judge) -> dict[str, Answer]:
        """By model."""
        options = RunOptions(
            purpose="gate", is_settled=lambda verdict, rows: judge(verdict, rows).is_settled
        )
        evaluation = await self.measure(plan, options)
        self.evaluations.append(evaluation)
        return {
            verdict.model: Answer(
                verdict=verdict,
                assessment=_assess(verdict, evaluation.outcomes_of(verdict.model), judge),
                evaluation=evaluation,
            )
            for verdict in evaluation.verdicts
        }

    def _judge_edit(self, verdict: Verdict, outcomes: Sequence[Outcome]) -> Assessment:
        rounds = len({outcome.seed for outcome in outcomes})
        return judge_edit(verdict, outcomes, rounds=rounds, most=self.rounds)

    async def _grade_recorded(self, change: SkillChange, head: Skill, why: str) -> list[Checked]:
        """Where no model can be asked: what the answers say that were recorded before this branch.

        A branch may not bring its own proof, and nobody has answered with a skill that it changed.
        """
        base, proofs = change.base, (RECEIPT, REPLIES)
        if base is None or any(base.read(path) is None for path in proofs):
            return [Checked(change=change, problem=why)]
        is_own = any(base.read(path) != head.read(path) for path in proofs)
        verified = None if is_own or change.skill_changed else await verify(head)
        if verified is None or verified.evaluation is None:
            problem = (
                f"{why} Without a model, nothing can be checked: there are no recorded answers for"
                " this version. Run `upskill ci` with an API key."
            )
            return [Checked(change=change, problem=problem)]
        evaluation, suite = verified.evaluation, Suite.of(head)
        return [
            Checked(
                change=change,
                model=verdict.model,
                use=Answer(
                    verdict=verdict,
                    assessment=_assess(verdict, evaluation.outcomes_of(verdict.model), judge_use),
                    evaluation=evaluation,
                ),
                dropped=_count_dropped(change, suite) if suite else 0,
                is_recorded=True,
            )
            for verdict in evaluation.verdicts
        ]


def _assess(verdict: Verdict, outcomes: Sequence[Outcome], judge: Judge) -> Assessment:
    assessment = judge(verdict, outcomes)
    if verdict.reason in NOT_MEASURED:
        return replace(assessment, mark="block")
    return assessment


def _suite_before(change: SkillChange) -> Suite | None:
    """The base's; None where it has none, or a broken one, which the edit may repair."""
    try:
        return Suite.of(change.base) if change.base else None
    except UsageError:
        return None


def _count_dropped(change: SkillChange, suite: Suite) -> int:
    before = _suite_before(change)
    now = {case.fingerprint for case in suite.cases}
    return sum(case.fingerprint not in now for case in before.cases) if before else 0
