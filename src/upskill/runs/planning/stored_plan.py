"""A StoredPlan is what a store keeps of a plan: enough to show and judge a run when the skill's folder is gone."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import PurePath
from typing import Any, TypeVar

from pydantic import TypeAdapter

from upskill.agents import Bounds
from upskill.errors import UsageError
from upskill.models import Address
from upskill.runs.planning.draws import DrawRules
from upskill.runs.planning.plan import Arm, Plan, Purpose, ReplaySource
from upskill.skills import Skill, SkillFile
from upskill.skills.seen import add_seen, read_seen
from upskill.suites import Case, Suite, queries
from upskill.suites.suite import PATHS_IN_SKILL, Part
from upskill.verdicts import TOLERANCE

T = TypeVar("T")
NOT_FILES = (
    "",
    "suite",
    "generated",
    "given",
    "proposals",
)  # sources of suites that were not read from a file
MAX_META = 1_000_000  # bytes of a skill's provenance that are stored with a run


@dataclass(frozen=True, kw_only=True)
class StoredSkill:
    name: str
    description: str = ""
    fingerprint: str = ""
    visible_hash: str = ""
    tokens: int = 0
    body: str = ""
    text_hash: str = ""  # of what students read, without white space
    meta: str = ""  # its skill_meta.json: where its lines come from

    @classmethod
    def of(cls, skill: Skill) -> StoredSkill:
        meta = skill.read("skill_meta.json") or b""
        if len(meta) > MAX_META:  # what a verdict depends on
            meta = add_seen(b"", read_seen(meta))
        return cls(
            name=skill.name,
            description=skill.description,
            fingerprint=skill.fingerprint,
            visible_hash=skill.visible_hash,
            tokens=skill.tokens,
            body=skill.body,
            text_hash=skill.text_hash,
            meta=meta.decode("utf-8", "replace"),
        )

    def to_skill(self) -> Skill:
        """Its text and provenance; its hashes are those of the files that it had."""
        files = (SkillFile("skill_meta.json", self.meta.encode("utf-8")),) if self.meta else ()
        return _SkillWithHashes(
            self.name,
            self.description,
            self.body,
            {},
            files,
            hashes=(self.fingerprint, self.visible_hash, self.text_hash),
        )


@dataclass(frozen=True, repr=False)
class _SkillWithHashes(Skill):
    hashes: tuple[str, str, str] = ("", "", "")

    @property
    def fingerprint(self) -> str:
        return self.hashes[0]

    @property
    def visible_hash(self) -> str:
        return self.hashes[1]

    @property
    def text_hash(self) -> str:
        return self.hashes[2]


def other_suite(source: str, skill: str) -> str:
    """The path of a suite, unless it is the own suite of the skill with this name, or no file.

    For another file in the skill's folder, the path in that folder.
    """
    path = next(
        (path for path in (*PATHS_IN_SKILL, *queries.PATHS_IN_SKILL) if source.endswith(path)), ""
    )
    is_own = path and PurePath(source.removesuffix(path)).name in ("", "..", skill)
    if is_own or source in NOT_FILES:
        return ""
    return re.sub(rf"^(.*/)?{re.escape(skill)}/", "", PurePath(source).as_posix())


@dataclass(frozen=True, kw_only=True)
class StoredCase:
    """A case as a suite file has it: its checks need not be installed here."""

    id: str
    prompt: str
    checks: tuple[Mapping[str, Any], ...] = ()  # the config of each by its name
    held_out: bool = False
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    tests: Mapping[str, str] = field(default_factory=dict[str, str])
    outputs: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    group: str = ""
    reference: str = ""
    expected_output: str = ""
    evidence: tuple[str, ...] = ()
    output_file: str = ""
    right: tuple[str | Mapping[str, str], ...] = ()
    wrong: tuple[str | Mapping[str, str], ...] = ()
    max_output_tokens: int | None = None
    max_words: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    gpu: bool = False

    @property
    def check_names(self) -> tuple[str, ...]:
        return tuple(next(iter(check), "") for check in self.checks)


@dataclass(frozen=True, kw_only=True)
class StoredSuite:
    source: str = ""
    fingerprint: str = ""
    cases: tuple[StoredCase, ...] = ()
    max_output_tokens: int | None = None
    part: Part | None = None  # which cases of it were chosen; None: all of them

    @classmethod
    def of(cls, suite: Suite) -> StoredSuite:
        names = ("source", "fingerprint", "max_output_tokens", "part")
        stored = {name: getattr(suite, name) for name in names}
        return _adapter(cls).validate_python(
            stored | {"cases": [case.to_dict() for case in suite.cases]}
        )

    def to_dict(self) -> dict[str, Any]:
        stored = _adapter(StoredSuite).dump_python(self, mode="json")
        stored["cases"] = [_without_empty(case, _CASE_OPTIONS) for case in stored["cases"]]
        return _without_empty(stored, ("max_output_tokens", "part"))

    @cached_property
    def by_id(self) -> dict[str, StoredCase]:
        return {case.id: case for case in self.cases}

    def to_suite(self) -> Suite:
        """Without checks where one of them is not installed here."""
        stored = {
            name: value
            for name, value in self.to_dict().items()
            if name in ("cases", "max_output_tokens")
        }
        try:
            suite = Suite.parse(stored, self.source)
        except UsageError:
            cases = (
                Case(case.id, case.prompt, (), tags=case.tags, held_out=case.held_out)
                for case in self.cases
            )
            suite = Suite(tuple(cases), self.source)
        return replace(suite, part=self.part)


@dataclass(frozen=True, kw_only=True)
class KeptVerdicts:
    """As reports have shown them, for lists; computed anew where upskill or the trials are others."""

    version: str = ""
    trials: int = 0  # that were graded
    verdicts: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What reports of a run show besides its results."""

    making_cost: float | None = None  # dollars that the skill cost to make
    making_source: str = ""  # who says so
    target: float | None = None  # the pass rate that would be good enough
    requirements: tuple[str, ...] = ()
    halted: str = ""  # the ceiling that ended the run before its end
    stopped: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # models that were given up, and why
    warnings: tuple[str, ...] = ()
    kept: KeptVerdicts = field(default_factory=KeptVerdicts)


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What the probe for a cache found of one model, and what it cost."""

    from_cache: bool
    tokens: int = 0
    cost_usd: float | None = 0.0


@dataclass(frozen=True, kw_only=True)
class StoredPlan:
    skill: StoredSkill
    suite: StoredSuite
    models: tuple[Address, ...]
    arms: tuple[Arm, ...]
    runs: int = 1
    seed: int = 0
    agent: str = "chat"
    temperature: float | None = None
    max_output_tokens: int = 4096
    limit_is_stated: bool = False
    judge: Address | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])  # what people read for arms
    reference_skill: str | None = None  # the fingerprint of the skill that the baseline arm had
    distractors: tuple[str, ...] = ()  # names
    bounds: Bounds = field(default_factory=Bounds)
    replay: str = ""
    replay_of: tuple[str, str] | None = None
    replay_source: ReplaySource | None = None
    purpose: Purpose = "eval"
    rounds: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  # of models that have other numbers of rounds
    from_cache: tuple[str, ...] = ()  # models whose servers answer from a cache
    dropped: tuple[str, ...] = ()  # cases of earlier runs that had some of these
    shuffle: int = 0  # the seed of the order in which the trials of a round ran
    salt: str = ""
    setup: str = ""  # of the plan: runs with the same one have draws of the same kind
    exact: tuple[str, ...] = ()  # students that give the same answer however often they are asked

    # How it is analyzed.
    in_rounds: bool = False  # looked at after each round
    tolerance: float = TOLERANCE
    seen: Mapping[str, str] = field(default_factory=dict[str, str])  # case: text first shown with
    probes: Mapping[str, ProbeResult] = field(default_factory=dict[str, ProbeResult])  # by model
    sandbox: Mapping[str, Any] | None = None  # a SandboxChoice
    analysis: Analysis = field(default_factory=Analysis)
    spent_before: Mapping[str, Any] | None = (
        None  # calls, and tokens and dollars by role, before the command that runs
    )

    @classmethod
    def of(cls, plan: Plan) -> StoredPlan:
        return cls(
            skill=StoredSkill.of(plan.skill),
            suite=StoredSuite.of(plan.suite),
            models=plan.models,
            arms=plan.arms,
            runs=plan.runs,
            seed=plan.seed,
            agent=plan.agent,
            temperature=plan.temperature,
            max_output_tokens=plan.max_output_tokens,
            limit_is_stated=plan.limit_is_stated,
            judge=plan.judge,
            labels=plan.labels,
            reference_skill=plan.reference_skill.fingerprint if plan.reference_skill else None,
            distractors=tuple(skill.name for skill in plan.distractors),
            bounds=plan.bounds,
            replay=plan.replay,
            replay_of=plan.replay_of,
            replay_source=plan.replay_source,
            purpose=plan.purpose,
            rounds=plan.rounds,
            from_cache=tuple(sorted(plan.from_cache)),
            dropped=plan.dropped,
            shuffle=plan.shuffle,
            salt=plan.salt,
            setup=plan.setup,
            exact=tuple(sorted(plan.exact)),
        )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> StoredPlan:
        return _adapter(cls).validate_python(
            {name: value for name, value in stored.items() if value is not None}
        )

    def to_dict(self) -> dict[str, Any]:
        stored = _adapter(StoredPlan).dump_python(self, mode="json", exclude={"suite"})
        stored["skill"] = _without_empty(stored["skill"], ("meta",))
        stored["suite"] = self.suite.to_dict()
        stored["analysis"] = stored["analysis"] if self.analysis != Analysis() else None
        return _without_empty(stored, _PLAN_OPTIONS)

    @property
    def part(self) -> str:
        """The flags that chose a part of the suite, which gives no verdict; empty for the whole suite."""
        return self.suite.part.chosen if self.suite.part else ""

    def rounds_of(self, model: str) -> int:
        return 1 if model in self.exact else self.rounds.get(model, self.runs)

    def trials_of(self, model: str) -> int:
        return self.rounds_of(model) * len(self.arms) * len(self.suite.cases)

    def describe_draws(self, model: str) -> str:
        """For the line of a model: "3 draws a case at temperature 0.7"."""
        address = next(each for each in self.models if each.name == model)
        rules = DrawRules(address, self.agent, self.temperature, model in self.from_cache)
        return rules.describe(self.rounds_of(model))

    @property
    def other_suite(self) -> str:
        """Where its suite was read from, if that is not the skill's own suite."""
        return other_suite(self.suite.source, self.skill.name)

    @property
    def fresh(self) -> frozenset[str]:
        """Cases no result of which had been shown with another text, or with none."""
        if self.purpose == "gate":  # `ci` asks about these cases alone
            return frozenset()
        text = self.skill.text_hash
        return frozenset(case for case in self.suite.by_id if self.seen.get(case, text) == text)

    @property
    def replayed(self) -> str:
        """From which file of replies its answers come, in words; empty: models were asked."""
        return str(self.replay_source or "")

    def to_plan(self) -> Plan:
        """As far as the plan is stored: the skill's text and provenance, nothing of a reference skill."""
        return Plan(
            self.skill.to_skill(),
            self.suite.to_suite(),
            self.models,
            arms=self.arms,
            runs=self.runs,
            seed=self.seed,
            agent=self.agent,
            temperature=self.temperature,
            max_output_tokens=self.max_output_tokens,
            limit_is_stated=self.limit_is_stated,
            judge=self.judge,
            reference_skill=Skill("", "", "", {}, ()) if self.reference_skill else None,
            bounds=self.bounds,
            purpose=self.purpose,
            rounds=self.rounds,
            from_cache=frozenset(self.from_cache),
            dropped=self.dropped,
            shuffle=self.shuffle,
        )


# What is not stored where it is empty.
_CASE_OPTIONS = tuple(
    vars(StoredCase(id="", prompt="")).keys() - {"id", "prompt", "checks", "held_out"}
)
_PLAN_OPTIONS = (
    "replay",
    "replay_of",
    "replay_source",
    "rounds",
    "from_cache",
    "exact",
    "in_rounds",
    "seen",
    "probes",
    "analysis",
    "spent_before",
)


def _without_empty(stored: Mapping[str, Any], optional: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if value or name not in optional}


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)
