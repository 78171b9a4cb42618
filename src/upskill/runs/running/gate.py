"""Gate: does an edit leave a skill as good as it was, and does the skill still help?

Each changed skill has up to three arms: no skill, the skill as it was, the skill as it is. Two plans share the trials
of the last: against the skill as it was, and against none. Both run in rounds on exactly these cases, with a test that
stays valid after every look, and stop as soon as they know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from upskill.errors import UpskillError, UsageError
from upskill.plain import counted
from upskill.runs.planning.plan import Plan
from upskill.runs.replay.receipt import verify
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions
from upskill.skills import RECEIPT, REPLIES, Skill
from upskill.skills.changes import SkillChange
from upskill.suites import Suite
from upskill.verdicts.requirements import Requirement, parse_requirement
from upskill.verdicts.verdict import ERRORS, ISOLATION, SNAPSHOTS, Verdict

ROUNDS = 12
TOLERANCE = 0.2  # a loss that an edit may have; what is worse is found long before it is known to be that small
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
        if change.kind in ("unchanged", "renamed"):
            reason = (
                f"renamed from {change.base_path}; nothing that students read has changed"
                if change.kind == "renamed"
                else ""
            )
            return [Checked(change, reason=reason)]
        try:
            suite = suite or Suite.of(change.head)
            if suite is None:
                return [Checked(change, status="not run", reason="no test cases")]
            not_worse = [parse_requirement(f"lift>=-{self.tolerance}")]
            against_base: dict[str, Verdict] = {}
            if change.skill_changed and change.base:
                against_base = await self._run(self.make_plan(change.head, suite, change.base), not_worse)
            against_none = await self._run(self.make_plan(change.head, suite, None), [parse_requirement("lift>0")])
        except UpskillError as error:
            return await self._replay(change, f"{error.message}. {error.hint}".strip())
        return [self._judge(change, model, against_base.get(model), none) for model, none in against_none.items()]

    async def _replay(self, change: SkillChange, why: str) -> list[Checked]:
        """Where no model can be asked: what the answers say that were recorded before this branch.

        A branch may not bring its own proof, and nobody has answered with a skill that it changed.
        """
        base, proofs = change.base, (RECEIPT, REPLIES)
        if base is None or any(base.read(path) is None for path in proofs):
            return [Checked(change, status="not run", reason=why)]
        is_own = any(base.read(path) != change.head.read(path) for path in proofs)
        verified = None if is_own or change.skill_changed else await verify(change.head)
        if not verified or not verified.verdicts:
            needed = "no recorded answers are of this version. Run `upskill ci` with an API key."
            return [
                Checked(change, status="not run", reason=f"{why} Without a model, nothing can be checked: {needed}")
            ]
        return [self._judge(change, verdict.model, None, verdict) for verdict in verified.verdicts]

    async def _run(self, plan: Plan, requirements: Sequence[Requirement]) -> dict[str, Verdict]:
        # One look for both: at what it does now, not at what it did before.
        keep_look = plan.reference_skill is None
        options = RunOptions(until_decided="suite", requirements=requirements, keep_look=keep_look)
        evaluation = await self.measure(plan, options)
        self.evaluations.append(evaluation)
        return {verdict.model: verdict for verdict in evaluation.verdicts}

    def _judge(self, change: SkillChange, model: str, base: Verdict | None, none: Verdict) -> Checked:
        status: Status = "ok"
        reason = ""
        broken = next((each for each in (base, none) if each and each.reason in (ERRORS, ISOLATION, SNAPSHOTS)), None)
        if broken:
            status, reason = "not run", broken.recommendation
        elif base and base.decision == "hurts":
            status, reason = "worse", "the edit makes it worse"
        elif none.decision == "hurts":
            status, reason = "hurts", "the model does better without it"
        elif none.decision == "no effect":
            status, reason = "useless", "the model does as well without it"
        elif base and base.interval and base.interval[0] < -self.tolerance:
            after = counted(base.pairs, "pair")
            status, reason = (
                "undecided",
                f"after {after} it is unclear whether the edit loses more than {100 * self.tolerance:.0f} points",
            )
        elif none.decision == "undecided":
            status, reason = "undecided", f"undecided after {counted(none.pairs, 'pair')} whether it helps"
        if removed := _removed_cases(change):
            reason = f"{reason or 'passes'}; {counted(removed, 'case')} of its suite removed"
        return Checked(change, model, status, reason, base, none)

    def blocks(self, checked: Checked) -> bool:
        return checked.status in BLOCKS or (self.strict and checked.status == "undecided")


def _removed_cases(change: SkillChange) -> int:
    try:
        before = Suite.of(change.base) if change.base else None
    except UsageError:  # the edit may be what repairs it
        return 0
    after = Suite.of(change.head)
    return len(before.by_id.keys() - after.by_id.keys()) if before and after else 0
