"""A Trial is one model x one case x one arm x one seed: the unit of work, and the only thing that costs money.

A Plan says which trials there are; a Result is what one came to. A stored Plan with its Results is a Run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, Literal

from upskill.agents import AGENTS, Agent, Bounds, Task
from upskill.agents.isolation import canary_of, plant_canary
from upskill.models import Address
from upskill.plain import canonical, digest, digest_text
from upskill.skills import Skill
from upskill.skills.placebo import placebo
from upskill.suites import Suite
from upskill.traces import NO_USAGE, Trace, Usage
from upskill.verdicts.outcome import Outcome

Arm = Literal["baseline", "skill", "placebo", "baseline_repeat"]
REPEAT_SEED_OFFSET = 1_000_003  # added to the seeds of the arm `again`
CONTROLS: tuple[Arm, ...] = ("placebo", "baseline_repeat")
BOTH_ARMS: tuple[Arm, ...] = ("baseline", "skill")
# Part of every trial's key: raise it when the same plan would be carried out differently than before.
GENERATION = 1
_ARM_IN_KEY = {"baseline_repeat": "again"}  # stored keys have this arm under its first name


@dataclass(frozen=True, slots=True)
class Trial:
    model: str
    case: str
    arm: Arm
    seed: int


@dataclass(frozen=True)
class Plan:
    """Everything that decides what is run: plain values that can be stored or carried to another machine."""

    skill: Skill
    suite: Suite
    models: tuple[Address, ...]
    arms: tuple[Arm, ...] = BOTH_ARMS
    runs: int = 1
    seed: int = 0
    agent: str = "chat"
    temperature: float | None = 0.0
    max_output_tokens: int = 4096
    limit_is_stated: bool = False  # someone chose that limit: an answer cut there is scored as it is
    judge: Address | None = None
    reference_skill: Skill | None = None  # an older skill that takes the place of no skill in the baseline arm
    distractors: tuple[Skill, ...] = ()  # distractors: skills on offer in every arm of an agent that acts
    bounds: Bounds = field(default_factory=Bounds)  # of an agent that acts
    sandbox: str = ""  # the kind of sandbox; empty: the first that proves itself

    def skill_of(self, arm: Arm) -> Skill | None:
        """What an arm is shown: the only thing in which two arms differ."""
        if arm == "skill":
            return self.skill
        return self._placebo if arm == "placebo" else self.reference_skill

    @cached_property
    def acts(self) -> bool:
        """Whether the agent runs commands."""
        agent: type[Agent] = AGENTS.load(self.agent)
        return agent.acts

    @cached_property
    def _placebo(self) -> Skill:
        return placebo(self.skill)

    @cached_property
    def addresses(self) -> dict[str, Address]:
        return {address.name: address for address in self.models}

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.runs)

    def __len__(self) -> int:
        return len(self.models) * len(self.arms) * self.runs * len(self.suite.cases)

    def trials(self) -> Iterator[Trial]:
        """Every trial, in the order in which they are run.

        The embedded model goes one arm after the other, so that the skill stays the prefix it has cached; elsewhere
        the arms of a case go together, so that a run that is cut short still has pairs.
        """
        for address in self.models:
            arms_in_turn: list[tuple[Arm, ...]] = [self.arms]
            if address.provider == "local":
                arms_in_turn = [(arm,) for arm in self.arms]
            for arms, seed, case in product(arms_in_turn, self.seeds, self.suite.cases):
                for arm in arms:
                    yield Trial(address.name, case.id, arm, seed)

    def key(self, trial: Trial) -> str:
        """A hash of all that defines a trial: equal keys mean that the result can be used again."""
        # The digest of the list of these parts, each of which is written once: a key is asked for often.
        place, case = self._places[trial.model], self._cases[trial.case]
        return digest_text(f"[{self._settings},{self._arms[trial.arm]},{place},{case},{trial.seed}]")

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the set of trials: two plans with the same one are the same run."""
        return digest(sorted(self.key(trial) for trial in self.trials()))

    @cached_property
    def _settings(self) -> str:
        settings: list[Any] = [
            GENERATION,
            self.agent,
            self.temperature,
            self.max_output_tokens,
            self.limit_is_stated,
            self.judge,
        ]
        if self.acts:
            settings += [[skill.visible_hash for skill in self.distractors], self.bounds]
        if self.sandbox == "none":  # what was done without walls is not to be taken for what was done within
            settings.append(self.sandbox)
        return canonical(settings)[1:-1]

    @cached_property
    def _arms(self) -> dict[str, str]:
        shown = {arm: self.skill_of(arm) for arm in self.arms}
        return {
            arm: canonical([_ARM_IN_KEY.get(arm, arm), skill.visible_hash if skill else ""])[1:-1]
            for arm, skill in shown.items()
        }

    @cached_property
    def _places(self) -> dict[str, str]:
        return {address.name: canonical(digest(address)) for address in self.models}

    @cached_property
    def _cases(self) -> dict[str, str]:
        return {case.id: canonical(f"{case.id} {case.fingerprint}") for case in self.suite.cases}

    def plain(self) -> dict[str, Any]:
        """What the store keeps of a plan: enough to show its trials when the skill's folder is gone."""
        return {
            "skill": {
                "name": self.skill.name,
                "description": self.skill.description,
                "fingerprint": self.skill.fingerprint,
                "visible_hash": self.skill.visible_hash,
                "tokens": self.skill.tokens,
                "body": self.skill.body,
            },
            "suite": {
                "source": self.suite.source,
                "fingerprint": self.suite.fingerprint,
                **self.suite.plain(),
            },
            "models": [asdict(address) for address in self.models],
            "arms": list(self.arms),
            "runs": self.runs,
            "seed": self.seed,
            "agent": self.agent,
            "temperature": self.temperature,
            "max_output_tokens": self.max_output_tokens,
            "limit_is_stated": self.limit_is_stated,
            "judge": asdict(self.judge) if self.judge else None,
            "reference_skill": self.reference_skill.fingerprint if self.reference_skill else None,
            "distractors": [skill.name for skill in self.distractors],
            "bounds": asdict(self.bounds),
        }


def task_of(plan: Plan, trial: Trial) -> Task:
    """What the agent of a trial is given."""
    case = plan.suite.by_id[trial.case]
    # The baseline run again must be another draw: with the same seed it would be the same answer.
    seed = trial.seed + REPEAT_SEED_OFFSET if trial.arm == "baseline_repeat" else trial.seed
    skill = plan.skill_of(trial.arm)
    if skill is not None and plan.acts:
        skill = plant_canary(skill, canary_of(plan.key(trial)))
    return Task(
        case.prompt,
        case.files,
        skill,
        seed,
        plan.temperature,
        plan.max_output_tokens,
        plan.distractors if plan.acts else (),
        plan.bounds,
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one check said, under the name the suite calls it by."""

    check: str
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a trial came to: passed, failed, or errored (`passed` is None and `error` says why)."""

    trial: Trial
    key: str
    passed: bool | None
    error: str = ""
    trace: Trace | None = None
    judgements: tuple[Judgement, ...] = ()
    usage: Usage = NO_USAGE
    judging: Usage = NO_USAGE  # what grading used, on top of the student
    seconds: float = 0.0
    fatal: bool = False  # the next trial of this model would error the same way; not stored
    activated: bool | None = None  # None: no skill was on offer that an agent could open
    leak: str = ""  # what shows that this trial saw a skill that was kept from it

    @property
    def tool_errors(self) -> int:
        return sum(step.status == "error" for step in self.trace.calls) if self.trace else 0

    @property
    def outcome(self) -> Outcome:
        return Outcome(
            self.trial.model,
            self.trial.case,
            self.trial.arm,
            self.trial.seed,
            self.passed,
            self.usage.input_tokens,
            self.usage.output_tokens,
            self.usage.cost_usd,
            self.usage.cached_tokens,
            self.seconds,
            sum(result.passed for result in self.judgements),
            len(self.judgements),
            self.activated,
            self.trace.turns if self.trace else 0,
            len(self.trace.calls) if self.trace else 0,
            self.tool_errors,
            bool(self.leak),
        )
