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
from upskill.plain import compact
from upskill.runs.planning.plan import USED_KEY, Arm, Plan, ReplaySource, read_metadata
from upskill.skills import Skill, SkillFile
from upskill.suites import Case, Suite, queries
from upskill.suites.suite import PATHS_IN_SKILL, Part
from upskill.verdicts.outcome import Scope

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
    meta: str = ""  # its skill_meta.json: where its lines come from

    @classmethod
    def of(cls, skill: Skill) -> StoredSkill:
        meta = skill.read("skill_meta.json") or b""
        if len(meta) > MAX_META:  # what a verdict depends on
            kept = {name: value for name, value in read_metadata(skill).items() if name == USED_KEY}
            meta = compact({"metadata": kept}).encode()
        return cls(
            name=skill.name,
            description=skill.description,
            fingerprint=skill.fingerprint,
            visible_hash=skill.visible_hash,
            tokens=skill.tokens,
            body=skill.body,
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
            hashes=(self.fingerprint, self.visible_hash),
        )


@dataclass(frozen=True, repr=False)
class _SkillWithHashes(Skill):
    hashes: tuple[str, str] = ("", "")

    @property
    def fingerprint(self) -> str:
        return self.hashes[0]

    @property
    def visible_hash(self) -> str:
        return self.hashes[1]


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
    tags: tuple[str, ...] = ()
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
    # Whether its verdict is for somebody to look at, and not for a search; None: by a version that did not say.
    reported: bool | None = None
    in_experiment: bool = (
        False  # which runs dozens of parts like this one and reports the result itself
    )


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
    reference_skill: str | None = None  # the fingerprint of the skill that the baseline arm had
    distractors: tuple[str, ...] = ()  # names
    bounds: Bounds = field(default_factory=Bounds)
    twins: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # cases that ask nearly the same as another
    replay: str = ""
    replay_of: tuple[str, str] | None = None
    replay_source: ReplaySource | None = None

    # How it is analyzed.
    scope: Scope | None = None
    margin: float = 0.05  # a lift within it counts as none
    drawn_anew: bool = False  # no trial of it came from another run or a stored reply
    sandbox: Mapping[str, Any] | None = None  # a SandboxChoice
    analysis: Analysis = field(default_factory=Analysis)
    spent_before: Mapping[str, Any] | None = (
        None  # calls, and tokens and dollars by role, before the command that runs
    )
    began: tuple[str, int] | None = (
        None  # when that command began, and how many results that were not instant it found
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
            reference_skill=plan.reference_skill.fingerprint if plan.reference_skill else None,
            distractors=tuple(skill.name for skill in plan.distractors),
            bounds=plan.bounds,
            twins=plan.twins,
            replay=plan.replay,
            replay_of=plan.replay_of,
            replay_source=plan.replay_source,
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
    def other_suite(self) -> str:
        """Where its suite was read from, if that is not the skill's own suite."""
        return other_suite(self.suite.source, self.skill.name)

    @property
    def replayed(self) -> str:
        """From which file of replies its answers come, in words; empty: models were asked."""
        return str(self.replay_source or "")

    def to_plan(self) -> Plan:
        """As far as the plan is stored: the skill's text and provenance, nothing of a reference skill."""
        plan = Plan(
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
        )
        vars(plan)["twins"] = dict(self.twins)  # as they were found then
        return plan


# What is not stored where it is empty.
_CASE_OPTIONS = tuple(
    vars(StoredCase(id="", prompt="")).keys() - {"id", "prompt", "checks", "held_out"}
)
_PLAN_OPTIONS = (
    "twins",
    "replay",
    "replay_of",
    "replay_source",
    "drawn_anew",
    "analysis",
    "spent_before",
    "began",
)


def _without_empty(stored: Mapping[str, Any], optional: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if value or name not in optional}


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)
