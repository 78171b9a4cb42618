"""Gate: does an edit leave a skill as good as it was, and does the skill still help?

Each changed skill has up to three arms: no skill, the skill as it was, the skill as it is. Two plans share the trials
of the last: against the skill as it was, and against none. Both run in rounds on exactly these cases, with a test that
stays valid after every look, and stop as soon as they know.

The first runs the cases of the base as they were: a case that head fails can't be edited away, and new cases can't
outweigh it. On exactly these cases nothing is left to chance with a student that always answers the same, so there what
was seen decides both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from upskill.errors import UpskillError, UsageError
from upskill.plain import counted
from upskill.runs.planning.plan import Plan
from upskill.runs.replay.receipt import verify
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions
from upskill.skills import RECEIPT, REPLIES, Skill
from upskill.skills.changes import SkillChange
from upskill.suites import Case, Suite
from upskill.verdicts.outcome import never_varies
from upskill.verdicts.requirements import Requirement, parse_requirement
from upskill.verdicts.verdict import ERRORS, ISOLATION, SAME_ANSWERS, SNAPSHOTS, Verdict

ROUNDS = 12
TOLERANCE = 0.2  # a loss that an edit may have; what is worse is found long before it is known to be that small
EXACT = f". {SAME_ANSWERS[0].upper()}{SAME_ANSWERS[1:]}, so this result is exact for these cases"
Status = Literal["ok", "worse", "hurts", "useless", "undecided", "not run"]
BLOCKS: tuple[Status, ...] = ("worse", "hurts", "useless", "not run")
Measure = Callable[[Plan, RunOptions], Awaitable[Evaluation]]


@dataclass(frozen=True)
class Checked:
    """What is known of one skill on one model."""

    change: SkillChange
    model: str = ""
    status: Status = "ok"
    reason: str = ""
    against_base: Verdict | None = None
    against_none: Verdict | None = None
    base_is_exact: bool = (
        False  # the student never varies, so nothing on these cases is left to chance
    )
    none_is_exact: bool = False


@dataclass
class Gate:
    """`make_plan` plans a skill with this suite against another skill or none; `measure` runs a plan."""

    make_plan: Callable[[Skill, Suite, Skill | None], Plan]
    measure: Measure
    tolerance: float = TOLERANCE
    strict: bool = False  # what stays undecided blocks, too
    evaluations: list[Evaluation] = field(default_factory=list[Evaluation])

    async def check(self, change: SkillChange, suite: Suite | None = None) -> list[Checked]:
        """`suite`: None for that of the skill itself."""
        head = change.head
        if head is None:
            return [
                Checked(change, status="not run" if change.problem else "ok", reason=change.problem)
            ]
        if change.kind in ("unchanged", "renamed"):
            return [Checked(change)]
        try:
            suite = suite or Suite.of(head)
            if suite is None:
                return [Checked(change, status="not run", reason="no test cases")]
            kept, dropped = _cases_before(change, suite)
            against_base: dict[str, Verdict] = {}
            exact: set[str] = set()
            if change.skill_changed and change.base:
                before = replace(suite, cases=(*kept, *dropped))
                not_worse = [parse_requirement(f"lift>=-{self.tolerance}")]
                evaluation = await self._run(self.make_plan(head, before, change.base), not_worse)
                against_base = {verdict.model: verdict for verdict in evaluation.verdicts}
                exact = {
                    model for model in against_base if never_varies(evaluation.outcomes_of(model))
                }
            evaluation = await self._run(
                self.make_plan(head, suite, None), [parse_requirement("lift>0")]
            )
        except UpskillError as error:
            return await self._replay(change, head, f"{error.message}. {error.hint}".strip())
        return [
            self._judge(
                change,
                against_base.get(none.model),
                none,
                len(dropped),
                base_is_exact=none.model in exact,
                none_is_exact=never_varies(evaluation.outcomes_of(none.model)),
            )
            for none in evaluation.verdicts
        ]

    async def _replay(self, change: SkillChange, head: Skill, why: str) -> list[Checked]:
        """Where no model can be asked: what the answers say that were recorded before this branch.

        A branch may not bring its own proof, and nobody has answered with a skill that it changed.
        """
        base, proofs = change.base, (RECEIPT, REPLIES)
        if base is None or any(base.read(path) is None for path in proofs):
            return [Checked(change, status="not run", reason=why)]
        is_own = any(base.read(path) != head.read(path) for path in proofs)
        verified = None if is_own or change.skill_changed else await verify(head)
        if not verified or not verified.verdicts:
            needed = (
                "there are no recorded answers for this version. Run `upskill ci` with an API key."
            )
            return [
                Checked(
                    change,
                    status="not run",
                    reason=f"{why} Without a model, nothing can be checked: {needed}",
                )
            ]
        suite = Suite.of(head)
        dropped = len(_cases_before(change, suite)[1]) if suite else 0
        return [self._judge(change, None, verdict, dropped) for verdict in verified.verdicts]

    async def _run(self, plan: Plan, stop_when: Sequence[Requirement]) -> Evaluation:
        # One look for both: at what it does now, not at what it did before.
        keep_look = plan.reference_skill is None
        options = RunOptions(until_decided="suite", stop_when=stop_when, keep_look=keep_look)
        evaluation = await self.measure(plan, options)
        self.evaluations.append(evaluation)
        return evaluation

    def _judge(
        self,
        change: SkillChange,
        base: Verdict | None,
        none: Verdict,
        dropped: int,
        *,
        base_is_exact: bool = False,
        none_is_exact: bool = False,
    ) -> Checked:
        loss = -base.lift if base and base.lift is not None else 0.0
        decision = none.decision_if_exact if none_is_exact else none.decision
        exact = EXACT if decision != none.decision else ""
        status: Status = "ok"
        reason = ""
        broken = next(
            (
                each
                for each in (base, none)
                if each and each.reason in (ERRORS, ISOLATION, SNAPSHOTS)
            ),
            None,
        )
        if broken:
            status, reason = "not run", broken.recommendation
        elif base and base.decision == "hurts":
            status, reason = "worse", "the edit makes it worse"
        elif base_is_exact and loss > self.tolerance:
            status, reason = "worse", f"the edit makes it worse{EXACT}"
        elif decision == "hurts":
            status, reason = "hurts", f"the model does better without it{exact}"
        elif decision == "no effect":
            status, reason = "useless", f"the model does as well without it{exact}"
        elif base and base.interval and base.interval[0] < -self.tolerance and not base_is_exact:
            after = counted(base.pairs, "pair")
            status, reason = (
                "undecided",
                f"after {after} it is unclear whether the edit loses more than {in_points(self.tolerance)}",
            )
        elif decision == "undecided":
            status, reason = (
                "undecided",
                f"after {counted(none.pairs, 'pair')} it is unclear whether it helps",
            )
        elif base_is_exact and loss <= 0:
            reason = f"{'better than' if loss < 0 else 'as good as'} before on these cases"
        elif base_is_exact:
            reason = f"loses {in_points(loss)} on these cases; up to {in_points(self.tolerance)} are allowed"
        if dropped:
            also = "; they count in before → now" if base else ""
            reason = f"{reason or 'passes'}; removes or changes {counted(dropped, 'case')} in its suite{also}"
        return Checked(change, none.model, status, reason, base, none, base_is_exact, none_is_exact)

    def blocks(self, checked: Checked) -> bool:
        return checked.status in BLOCKS or (self.strict and checked.status == "undecided")


def in_points(share: float) -> str:
    return counted(round(100 * share), "point")


def _cases_before(change: SkillChange, suite: Suite) -> tuple[list[Case], list[Case]]:
    """The cases of the base: those that its successor still has, and those that it lacks or has with other checks.

    Where the base has none, those of its successor are all there is.
    """
    try:
        before = Suite.of(change.base) if change.base else None
    except UsageError:  # the edit may be what repairs it
        before = None
    if before is None:
        return list(suite.cases), []
    now = {case.fingerprint for case in suite.cases}
    dropped = [case for case in before.cases if case.fingerprint not in now]
    renamed = [
        replace(case, id=f"{case.id} (before)") if case.id in suite.by_id else case
        for case in dropped
    ]
    return [case for case in before.cases if case.fingerprint in now], renamed
