"""Counterexamples: requests within a skill's scope where following it leads astray.

A challenger proposes cases. Each passes the gate of all cases. Then the student answers each one with and without the
skill, round after round. A proposal counts only if the student passes without the skill and fails with it so often that
chance is ruled out for all proposals together (Holm's method over e-values, so it may be looked at after every round).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from upskill.authoring.material.material import Material
from upskill.authoring.saving.provenance import shared_name
from upskill.authoring.writing.suite_writer import write_suite
from upskill.errors import UpskillError, UsageError
from upskill.experiments.ablation import FRESH_SEEDS, holm, log_wealth
from upskill.experiments.engine import Engine, Tell, fit_rounds, open_engine, until_ceiling
from upskill.models.pool import Models
from upskill.runs.planning.plan import BOTH_ARMS, Plan, PlanOptions, make_plan
from upskill.runs.running.events import Events
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.suites import Case, Suite
from upskill.verdicts.outcome import Outcome

LEVEL = 0.05  # the chance that anything is called a counterexample that is none
PROPOSALS = 20
FIRST_ROUNDS, MORE_ROUNDS, MAX_ROUNDS = 2, 3, 40
PATIENCE, MIN_EFFECT = (
    8,
    0.25,
)  # after so many rounds, a proposal with less of an effect is given up
DOUBT = 1.0  # over the square root of the rounds: two standard errors of a pass rate
FROM = "from"  # in the metadata of a case: how it came to be

Status = Literal["counterexample", "harmless", "undecided"]
Measure = Callable[
    [Sequence[str], range], Awaitable[Iterable[Outcome]]
]  # with and without the skill
Key = tuple[str, str]  # model and case


@dataclass
class Challenge:
    """The sequential test of all proposals; no I/O."""

    cases: tuple[str, ...]
    measure: Measure
    seed: int = 0
    most: int = MAX_ROUNDS
    level: float = LEVEL
    tell: Tell = lambda _: None
    rounds: dict[str, int] = field(default_factory=dict[str, int])
    trials: int = 0
    outcomes: dict[Key, list[Outcome]] = field(default_factory=dict[Key, list[Outcome]])

    async def run(self) -> None:
        waiting, rounds = list(self.cases), 0
        while waiting and rounds < self.most:
            more = min(MORE_ROUNDS if rounds else FIRST_ROUNDS, max(1, self.most - rounds))
            first = self.seed + FRESH_SEEDS + rounds
            for row in await self.measure(waiting, range(first, first + more)):
                self.outcomes.setdefault((row.model, row.case), []).append(row)
                self.trials += 1
            rounds += more
            self.rounds |= dict.fromkeys(waiting, rounds)
            shown = {case for _, case in self.shown}
            waiting = [case for case in waiting if case not in shown and self._is_open(case)]
            self.tell(
                f"{len(shown)} of {len(self.cases)} proposals mislead; still open: {len(waiting)}"
            )

    @property
    def shown(self) -> set[Key]:
        """Which proposals mislead which student."""
        return {*holm({key: self._evidence(key) for key in self.outcomes}, self.level)}

    def status(self, case: str) -> Status:
        if any(name == case for _, name in self.shown):
            return "counterexample"
        return "undecided" if case not in self.rounds or self._is_open(case) else "harmless"

    def rates(self, key: Key) -> tuple[float, float]:
        """How often it passes without the skill, and with it."""
        pairs = self._pairs(key)
        count = max(1, len(pairs))
        return sum(without for without, _ in pairs) / count, sum(
            with_it for _, with_it in pairs
        ) / count

    def _pairs(self, key: Key) -> list[tuple[float, float]]:
        arms: dict[str, dict[int, float]] = {arm: {} for arm in BOTH_ARMS}
        for row in self.outcomes.get(key, ()):
            if row.passed is not None:
                arms[row.arm][row.seed] = float(row.passed)
        without, with_it = arms["baseline"], arms["skill"]
        return [(without[seed], with_it[seed]) for seed in sorted(without.keys() & with_it.keys())]

    def _evidence(self, key: Key) -> float:
        """The logarithm of an e-value. If the student answers greedily, what is seen is the truth."""
        without, with_it = self.rates(key)
        if not without >= 0.5 > with_it:
            return -math.inf
        return (
            math.inf
            if self.most == 1
            else log_wealth([before - after for before, after in self._pairs(key)], 0.0)
        )

    def _is_open(self, case: str) -> bool:
        """Whether more rounds may show that it misleads anybody."""
        return any(self._may_mislead(key) for key in self.outcomes if key[1] == case)

    def _may_mislead(self, key: Key) -> bool:
        (without, with_it), rounds = self.rates(key), self.rounds[key[1]]
        # What it hardly ever passes without the skill never counts, whatever the skill does.
        passes = without >= 0.5 - DOUBT / math.sqrt(rounds)
        may_yet = rounds < PATIENCE or (passes and without - with_it >= MIN_EFFECT)
        return self.most > 1 and may_yet


@dataclass(frozen=True, slots=True)
class Proposal:
    case: Case
    status: Status
    rates: Mapping[
        str, tuple[float, float]
    ]  # by student: how often it passes without the skill, and with it
    rounds: int

    def to_dict(self) -> dict[str, Any]:
        rates = {
            model: {"without": without, "with": with_it}
            for model, (without, with_it) in self.rates.items()
        }
        return {
            **self.case.to_dict(),
            "status": self.status,
            "pass_rates": rates,
            "rounds": self.rounds,
        }


@dataclass
class Challenged:
    skill: Skill
    proposals: list[Proposal]
    trials: int = 0
    halted: str = ""

    @property
    def counterexamples(self) -> list[Case]:
        """As train cases of a suite, with a note where they are from."""
        cases: list[Case] = []
        for each in self.proposals:
            rates = [
                f"{model} passes {without:.0%} without the skill and {with_it:.0%} with it"
                for model, (without, with_it) in each.rates.items()
            ]
            metadata = {**each.case.metadata, FROM: f"upskill challenge: {'; '.join(rates)}"}
            if each.status == "counterexample":
                cases.append(replace(each.case, held_out=False, metadata=metadata))
        return cases


@dataclass(frozen=True, kw_only=True)
class ChallengeSettings:
    challenger: str = ""  # a model that proposes cases
    count: int = PROPOSALS
    material: Material | None = None  # what the challenger reads beside the skill
    proposals: Sequence[Case] = ()  # in place of a challenger's
    repeats: int = MAX_ROUNDS  # of a proposal, at most; 1: greedy, and what is seen is the truth

    def __post_init__(self) -> None:
        if not self.challenger and not self.proposals:
            raise UsageError(
                "no challenger was chosen, so nothing was run",
                "Choose a model with --challenger, or --challenger handoff:DIR to propose cases yourself.",
            )


async def challenge(
    skill: Skill,
    suite: Suite | None = None,
    students: Sequence[str] = ("local",),
    *,
    settings: ChallengeSettings,
    options: PlanOptions | None = None,
    store: Store | None = None,
    models: Models | None = None,
    events: Events | None = None,
) -> Challenged:
    """Cases that the students pass without the skill and fail with it, among those given or those that a challenger
    proposes."""
    options = options or PlanOptions(runs=2)
    plan = make_plan(skill, suite, students, replace(options, baseline=True))
    async with open_engine(store, models, events) as engine:
        return await try_proposals(await propose(plan, settings, engine), engine, settings.repeats)


async def propose(plan: Plan, settings: ChallengeSettings, engine: Engine) -> Plan:
    """The plan with proposals as its cases, and about as many repeats as they take."""
    cases: Sequence[Case] = settings.proposals
    if not cases:
        written = await write_suite(
            replace(settings.material or Material(""), skill=plan.skill),
            await engine.open_model(settings.challenger, "test writer"),
            count=settings.count,
            author=shared_name(settings.challenger),
            existing=plan.suite.cases,
            acts=plan.acts,
            challenges=True,
            tell=engine.tell,
        )
        if not written.cases:
            raise UpskillError(
                "no proposal passed the gate", "Choose another model with --challenger."
            )
        cases = [replace(case, held_out=False) for case in written.cases]
    suite = Suite(tuple(cases), "proposals", plan.suite.max_output_tokens)
    return replace(plan, suite=suite, arms=BOTH_ARMS, runs=(PATIENCE + MAX_ROUNDS) // 4)


async def try_proposals(plan: Plan, engine: Engine, most: int | None = None) -> Challenged:
    """`plan` has the proposals as its cases."""
    plan, rounds = fit_rounds(plan, most, MAX_ROUNDS)

    async def measure(cases: Sequence[str], seeds: range) -> Sequence[Outcome]:
        return (await engine.run_part(plan, cases, seeds)).outcomes

    proposals = plan.suite.cases
    trying = Challenge(
        tuple(case.id for case in proposals),
        measure,
        plan.seed,
        rounds,
        tell=engine.tell,
    )
    halted = await until_ceiling(trying.run())
    models = list(dict.fromkeys(model for model, _ in trying.outcomes))
    tried: list[Proposal] = []
    for case in proposals:
        rates = {model: trying.rates((model, case.id)) for model in models}
        tried.append(Proposal(case, trying.status(case.id), rates, trying.rounds.get(case.id, 0)))
    return Challenged(plan.skill, tried, trying.trials, halted)
