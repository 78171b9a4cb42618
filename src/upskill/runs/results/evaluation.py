"""An Evaluation is a run with all that can be computed from what it has stored: what reports show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from upskill.agents import AGENTS, ExternalAgent
from upskill.runs.planning.plan import BOTH_ARMS, Plan, Trial
from upskill.runs.planning.preregistration import Registration
from upskill.runs.results.feedback import PeopleAgreement
from upskill.runs.results.looks import Looks
from upskill.runs.stores import Run
from upskill.suites import OWN_FACTS
from upskill.suites.part import Part
from upskill.verdicts.advice import as_look_up, as_part
from upskill.verdicts.outcome import Outcome, Scope
from upskill.verdicts.requirements import Requirement, Ruling, check_requirement
from upskill.verdicts.verdict import NO_EVIDENCE_NEEDED, StoppingPoint, Verdict, VerdictOptions, compute_verdict


@dataclass
class Evaluation:
    """A run and all that can be computed from what it has stored."""

    plan: Plan
    run: Run
    outcomes: list[Outcome]
    errors: list[tuple[str, str, int]]  # model, message, how many trials
    spent: dict[str, tuple[int, float | None]]  # tokens and dollars by role; None: a price is not known
    stopped: dict[str, str] = field(default_factory=dict[str, str])  # models that were given up, and why
    margin: float = 0.05  # a lift within it counts as none
    making_cost: float | None = None  # dollars that the skill cost to make
    making_source: str = ""  # who says so
    target: float | None = None  # the pass rate that would be good enough
    requirements: Sequence[Requirement] = ()  # of every verdict
    scope: Scope | None = None  # the test under which one may look after every round, and stop
    looks: dict[str, Looks] = field(default_factory=dict[str, Looks])  # by model: the looks before this one
    registration: Registration | None = None  # the plan that was written down beforehand, and that the run follows
    # The names that each model's provider answered under, and how many trials each answered.
    snapshots: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    halted: str = ""  # the ceiling that ended the run before its end
    warnings: list[str] = field(default_factory=list[str])
    # What shows that the arms were not isolated: then no number of the run means anything.
    invalid: list[tuple[Trial, str]] = field(default_factory=list[tuple[Trial, str]])
    # The trials that a bug in upskill ended, each with its error and its traceback.
    bugs: list[tuple[Trial, str, str]] = field(default_factory=list[tuple[Trial, str, str]])
    people: PeopleAgreement | None = None  # what people said of its answers, and how well its checks agree
    failures: list[str] = field(default_factory=list[str])  # on train cases, in words; only where they were asked for

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """One verdict per model, in the order of the plan."""
        return [
            replace(self._verdict(self.outcomes_of(address.name), self.making_cost), model=address.name)
            for address in self.plan.models
        ]

    def _verdict(
        self, rows: list[Outcome], making_cost: float | None = None, cases: Iterable[str] | None = None
    ) -> Verdict:
        # A wall that did not stand for one model stood for none.
        looks = self.looks.get(rows[0].model) if rows else None
        return verdict_so_far(
            self.plan, rows, self.scope, self.margin, making_cost, leaked=self.leaked, looks=looks, cases=cases
        )

    @cached_property
    def rulings(self) -> list[tuple[str, Ruling]]:
        """Whether each model's verdict meets each requirement. A run that was cut short meets none."""
        return [
            (verdict.model, self._rule(requirement, verdict))
            for verdict in self.verdicts
            for requirement in self.requirements
        ]

    def _rule(self, requirement: Requirement, verdict: Verdict) -> Ruling:
        if self.halted:  # what was run is whatever came first, not the suite
            return Ruling(requirement, held=False, reason="the run was stopped before its end")
        return check_requirement(requirement, verdict)

    # As upstream's users read a result: of the only model, or of the first.

    @property
    def skill_lift(self) -> float | None:
        return self.verdicts[0].lift

    @property
    def token_savings(self) -> float | None:
        return self.verdicts[0].token_savings

    @property
    def is_beneficial(self) -> bool:
        return self.verdicts[0].is_beneficial

    def outcomes_of(self, model: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.model == model]

    def by_split(self, *, held_out: bool) -> dict[str, Verdict]:
        """The verdict of each model over the held-out cases alone, or over the others."""
        return self.by_cases({case.id for case in self.plan.suite.cases if case.held_out is held_out})

    def by_cases(self, ids: Collection[str]) -> dict[str, Verdict]:
        """The verdict of each model over these cases alone."""
        rows = [outcome for outcome in self.outcomes if outcome.case in ids]
        return {
            address.name: self._verdict([row for row in rows if row.model == address.name], cases=ids)
            for address in self.plan.models
        }

    def cut_at(self, model: str) -> list[int]:
        """The lowest and highest limit at which answers of a model were cut off; those of programs are unknown."""
        if isinstance(AGENTS.load(self.plan.agent)(), ExternalAgent):
            return []
        cut = [outcome.case for outcome in self.outcomes_of(model) if outcome.cause == "length"]
        limits = [self.plan.output_limit(Trial(model, case, "skill", self.plan.seed)) for case in cut]
        return sorted({min(limits), max(limits)}) if limits else []

    @property
    def leaked(self) -> bool:
        """Some trial saw a skill that was kept from it."""
        return bool(self.invalid) or any(outcome.leaked for outcome in self.outcomes)

    @property
    def too_many_errors(self) -> bool:
        """Some model has no number that could be shown: it was given up, or over a tenth of its trials errored."""
        return bool(self.stopped) or any(verdict.reason == "errors" for verdict in self.verdicts)

    @property
    def bug_count(self) -> int:
        return sum(outcome.bug for outcome in self.outcomes)

    @property
    def bug_messages(self) -> list[tuple[str, int]]:
        """The last lines of the tracebacks, most frequent first, and how many trials each ended."""
        return Counter(traceback.strip().rpartition("\n")[2] for _, _, traceback in self.bugs).most_common()

    @property
    def has_failed(self) -> bool:
        """The command ends with exit code 3: the arms were not isolated, too many trials errored, or upskill has a
        bug."""
        return self.leaked or self.too_many_errors or bool(self.bugs)


def verdict_so_far(
    plan: Plan,
    rows: list[Outcome],
    scope: Scope | None,
    margin: float,
    making_cost: float | None = None,
    *,
    leaked: bool = False,
    looks: Looks | None = None,
    cases: Iterable[str] | None = None,
) -> Verdict:
    """The verdict over one model's outcomes, at whatever point of the plan they have come to.

    `cases` are the ones that the outcomes were picked from; None: all.
    """
    verdict = compute_verdict(
        rows,
        VerdictOptions(
            margin=margin,
            anytime=scope,
            stopping_point=stopping_point_of(rows, scope, plan.runs, plan.suite.by_id if cases is None else cases),
            making_cost=making_cost,
            tags={case.id: [tag for tag in case.tags if tag != OWN_FACTS] for case in plan.suite.cases},
            twins=plan.twins,
            baseline_is_skill=plan.reference_skill is not None,
            isolation_broken=leaked,
            earlier_looks=len(looks.earlier) if looks else 0,
        ),
    )
    own_facts = any(OWN_FACTS in case.tags for case in plan.suite.cases)
    return _withhold(verdict, plan.suite.part, len(plan.suite.cases), own_facts=own_facts)


def _withhold(verdict: Verdict, part: Part | None, cases: int, *, own_facts: bool) -> Verdict:
    """The verdict without a decision that these cases cannot bear, however large the lift."""
    if part and verdict.lift is not None and verdict.reason not in NO_EVIDENCE_NEEDED:
        return as_part(verdict, part, cases)
    return as_look_up(verdict) if own_facts else verdict


def stopping_point_of(rows: Iterable[Outcome], scope: Scope | None, runs: int, cases: Iterable[str]) -> StoppingPoint:
    """Where in its plan a run is looked at: a number of rounds that was fixed beforehand is of use to the test.

    The last look is taken once: when every round has a score of each of these cases in both arms. While a trial is
    missing or errored, the same command may still add to what is seen.
    """
    if scope != "cases":
        return "open"
    scored = {(row.seed, row.case, row.arm) for row in rows if row.passed is not None and row.arm in BOTH_ARMS}
    return "last" if len(scored) == runs * len(set(cases)) * len(BOTH_ARMS) else "early"


def verdicts_of_run(run: Run, rows: list[Outcome], looks: Mapping[str, Looks] | None = None) -> list[Verdict]:
    """The verdicts of a stored run, under the scope and the margin that it was carried out with."""
    looks = looks or {}
    cases = [case["id"] for case in run.plan["suite"]["cases"]]
    scope: Scope | None = run.plan.get("scope")
    by_model: dict[str, list[Outcome]] = {}
    for row in rows:
        by_model.setdefault(row.model, []).append(row)
    verdicts = [
        compute_verdict(
            found,
            VerdictOptions(
                margin=run.plan.get("margin", 0.05),
                anytime=scope,
                stopping_point=stopping_point_of(found, scope, run.plan["runs"], cases),
                twins=run.plan.get("twins", {}),
                baseline_is_skill=bool(run.plan.get("reference_skill")),
                isolation_broken=any(row.leaked for row in rows),
                earlier_looks=len(looks[model].earlier) if model in looks else 0,
            ),
        )
        for model, found in by_model.items()
    ]
    own_facts = any(OWN_FACTS in case.get("tags", ()) for case in run.plan["suite"]["cases"])
    stored = run.plan["suite"].get("part")
    part = Part(**stored) if stored else None
    return [_withhold(verdict, part, len(cases), own_facts=own_facts) for verdict in verdicts]
