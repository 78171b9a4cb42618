"""Mutation: would the suite notice if a rule of the skill were lost, or said the opposite?

Without a model: a rule is a block with something specific in it, such as a number, a flag or a name in code. If no case
shares any of that with it, no check could tell. With a student: all blocks are taken out at once, which must be
noticed, then halves of what was noticed, down to single blocks. Rules whose absence nobody notices, because the student
knows them or the skill says them twice, are turned into their opposites by mechanical edits, in groups too. Whatever a
case seems to notice is tested again on fresh seeds, alone; these tests share one error level.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from upskill.authoring.material.material import Material
from upskill.errors import UsageError
from upskill.experiments.ablation import (
    FIRST_ROUNDS,
    NOTHING,
    REFERENCE_ROUNDS,
    SHOWN_WORSE,
    Ablation,
    Blocks,
    Tested,
    halves,
    log_wealth,
)
from upskill.experiments.engine import Engine, open_engine, until_ceiling
from upskill.models.pool import Models
from upskill.runs.planning.plan import Plan, PlanOptions, make_plan
from upskill.runs.running.events import Events
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.skills.blocks import Block, blocks_of, edit_blocks, without_blocks
from upskill.suites import Case, Suite
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.statistics import Estimate

LEVEL = 0.05  # the chance that any rule is called noticed that is not
MAX_ROUNDS = 40  # for one rule
MAX_COVERED = 40  # rules that a test writer is asked about at once
COVER = "Write a case for each rule in the body: one that a student fails if the rule is missing or says otherwise."
MAX_NEARBY = 200  # blocks that a wrong value is taken from
LIKELY = 3  # cases that share most with a rule
HALF = 0.5  # a case that loses less of its pass rate is taken not to notice
COMMON = 2  # rules: what more of them name is specific to none, if they name anything rarer

_MARKER = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+")
_CODE = re.compile(r"`+([^`\n]+)`+")
_WORD = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*|\w(?:[\w./:@+-]*\w)?")
_FLAG = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*")
_NEGATION = re.compile(r"\b(?:do not|don't|never|not)\s+", re.I)
_ESCAPES = re.compile(r"\\[A-Za-z]|\{\d*,?\d*\}")  # in a pattern: no text
PATTERNS = ("regex", "not_regex")
Status = Literal["noticed", "unnoticed", "undecided", "not tried"]


@dataclass(frozen=True, slots=True)
class Rule:
    block: Block
    terms: frozenset[str]  # what is specific about it; empty: only a student can tell
    shared_by: tuple[str, ...]  # cases that share some of it
    opposite: str = ""  # the block with other values, flags and names, or denied; empty: no edit does that
    status: Status = "not tried"
    noticed_by: Literal["", "loss", "opposite"] = ""  # what was noticed
    cases: tuple[str, ...] = ()  # that notice it

    @property
    def is_untestable(self) -> bool:
        """No check could tell whether it is there."""
        return bool(self.terms) and not self.shared_by

    @property
    def counts(self) -> bool:
        """It says something that can be checked."""
        return bool(self.terms) or self.status == "noticed"

    def to_dict(self) -> dict[str, Any]:
        return self.block.to_dict() | {
            "specific": sorted(self.terms),
            "shared_by": list(self.shared_by),
            "untestable": self.is_untestable,
            "status": self.status,
            "noticed_by": self.noticed_by,
            "cases": list(self.cases),
            "counts": self.counts,
        }


def rules_of(skill: Skill, suite: Suite, *, files: bool = True) -> list[Rule]:
    blocks = [block for block in blocks_of(skill) if files or block.kind != "file"]
    terms = {block: _terms(block) for block in blocks}
    count = Counter(term for each in terms.values() for term in each)
    texts = {case.id: _text_of(case) for case in suite.cases}
    rules: list[Rule] = []
    for at, block in enumerate(blocks, start=1):
        most = max(COMMON, min((count[term] for term in terms[block]), default=0))
        own = frozenset(term for term in terms[block] if count[term] <= most)
        # What comes next is of the same kind, so it is a mistake that somebody could make.
        opposite = _opposite(block, [*blocks[at:], *blocks[: at - 1]][:MAX_NEARBY])
        rules.append(Rule(block, own, _sharing(texts, own), opposite))
    return rules


def _terms(block: Block) -> frozenset[str]:
    """Numbers, flags, and names of code."""
    text = _MARKER.sub("", block.text, count=1)
    code = text.split("\n")[1:] if block.kind == "code" else _CODE.findall(text)
    in_code = {word for part in code for word in _WORD.findall(part)}
    named = {word for word in _WORD.findall(text) if word in in_code or _is_specific(word)}
    return frozenset(word.casefold() for word in named if len(word) > 1 or word.isdigit())


def _is_specific(word: str) -> bool:
    has_mark = len(word) > 3 and any(mark in word for mark in "_./:@")
    return has_mark or word[0] in "-0123456789" or any(each.isdigit() or each.isupper() for each in word[1:])


def _text_of(case: Case) -> str:
    """What it asks, looks for and takes for right. A limit on the length says nothing."""
    checks = [_pattern(named.config) if named.name in PATTERNS else named.config for named in case.checks]
    said = [check for named, check in zip(case.checks, checks, strict=True) if named.name != "max_length"]
    answers = [case.reference, case.expected_output, *map(str, case.right)]
    return "\n".join([case.prompt, *answers, json.dumps(said, ensure_ascii=False), *case.files.values()]).casefold()


def _pattern(config: Any) -> Any:
    if isinstance(config, Mapping):
        return {key: _pattern(value) for key, value in config.items()}  # type: ignore[reportUnknownVariableType]
    return re.sub(r"\\(.)", r"\1", _ESCAPES.sub(" ", config)) if isinstance(config, str) else config


def _sharing(texts: Mapping[str, str], terms: Collection[str]) -> tuple[str, ...]:
    """The names of the texts that have any of these terms; those with most come first."""
    patterns = [re.compile(rf"(?<![\w-]){re.escape(term)}(?![\w-])") for term in terms]
    shared = {name: sum(pattern.search(text) is not None for pattern in patterns) for name, text in texts.items()}
    return tuple(sorted((name for name in shared if shared[name]), key=lambda name: -shared[name]))


def _opposite(block: Block, others: Sequence[Block]) -> str:
    """With other values. The first of several names in code is what the rule is about: without it, the rule would only
    be gone."""
    marker = _MARKER.match(block.text) if block.kind == "item" else None
    start = marker.end() if marker else 0
    text = block.text[start:]
    flags = [flag for other in others for flag in _FLAG.findall(other.text)]
    names = [match[0] for other in others if other.kind != "code" for match in _CODE.finditer(other.text)]
    spans = list(dict.fromkeys(match[0] for match in _CODE.finditer(text))) if block.kind != "code" else []
    changed = text
    for span in spans[1:] or spans:
        changed = changed.replace(span, _change_values(span, flags) or _other(names, text) or span)
    if changed == text:
        changed = _change_values(text, flags) or text
    if changed == text and block.kind in ("paragraph", "item"):
        changed = _NEGATION.sub("", text) if _NEGATION.search(text) else f"Never do this: {text}"
    return f"{block.text[:start]}{changed}" if changed != text else ""


def _change_values(text: str, flags: Iterable[str]) -> str:
    """Other numbers, and one flag of the skill for another; empty if there are none."""
    changed = re.sub(r"\d+", lambda number: str(int(number[0][:15]) + max(1, int(number[0][:15]) // 2)), text)
    if flag := _other(flags, text):
        changed = _FLAG.sub(flag, changed)
    return changed if changed != text else ""


def _other(pool: Iterable[str], text: str) -> str:
    return next((each for each in pool if each not in text), "")


@dataclass
class Mutation(Ablation):
    """Numbers up to that of the blocks take out a block; the same number beyond turns that block into its opposite."""

    rules: Sequence[Rule] = ()  # one for each block
    noticed: dict[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])  # by which cases
    open: set[int] = field(default_factory=set[int])  # may be noticed, but neither that nor the opposite is shown
    tried: set[int] = field(default_factory=set[int])
    gutted: Tested | None = None  # what happened without any block

    async def search(self) -> None:
        blocks = range(len(self.rules))
        await self._run_whole()
        self.gutted = await self._test(frozenset(blocks), self.cases)
        await self._find_noticed(blocks, self.gutted.lost)
        self.tell(f"{len(self.noticed)} of {len(blocks)} blocks are missed when they are gone")
        left = [block for block in blocks if block not in self.noticed and self.rules[block].opposite]
        await self._find_noticed([len(blocks) + block for block in left], frozenset(self.cases))

    async def _find_noticed(self, numbers: Sequence[int], cases: frozenset[str]) -> None:
        """First on the cases that share most with a rule. What they don't notice is tried in groups, on all."""
        level = LEVEL / 4
        for number in numbers:
            if likely := [case for case in self.rules[number % len(self.rules)].shared_by if case in cases]:
                await self._show(number, likely[:LIKELY], level / len(numbers))
        group, before = tuple(number for number in numbers if number not in self.noticed), len(self.tests)
        self.open.clear()
        if group and cases:
            await self._find_idle(group, tuple(case for case in self.cases if case in cases), [])
        alone = {next(iter(each.group)): each for each in self.tests[before:] if len(each.group) == 1 and each.lost}
        for number, tested in alone.items():
            await self._show(number, sorted(tested.lost), level / len(alone))
        self.tried.update(numbers)

    async def _divide(
        self, group: tuple[int, ...], cases: tuple[str, ...], within: Tested, pending: list[Tested]
    ) -> None:
        """Both halves on all cases: one that misses a rule may miss another, too."""
        if len(group) > 1:
            for half in halves(group, self.sections):
                await self._find_idle(half, cases, pending)

    async def _show(self, number: int, cases: Sequence[str], level: float) -> None:
        """Whether any of these cases fails more often with this one change, on seeds that chose no case."""
        is_exact = self.repeats_itself  # then no seed is better than another
        changed, rounds, limit = frozenset({number}), 0, 1 if is_exact else self.rounds
        needed = math.log(len(self.models) * len(cases) / level)
        self.open.add(number)
        while rounds < limit and number in self.open:
            rounds = min(limit, rounds + 4)
            for each in (NOTHING, changed):
                await self.extend(each, cases, rounds, fresh=not is_exact)
            losses = {
                (case, model): self._losses(changed, model, case, fresh=not is_exact)
                for case in cases
                for model in self.models
            }
            if is_exact:
                noticing, are_idle = [case for (case, _), each in losses.items() if sum(each) > 0], True
            else:
                noticing = [case for (case, _), each in losses.items() if log_wealth(each, 0.0) >= needed]
                unlike = [log_wealth([-loss for loss in each], -HALF) for each in losses.values()]
                are_idle = all(each >= SHOWN_WORSE for each in unlike)
            if noticing:
                self.noticed[number] = tuple(dict.fromkeys(noticing))
            if noticing or are_idle:
                self.open.discard(number)

    def _losses(self, changed: Blocks, model: str, case: str, *, fresh: bool) -> list[float]:
        before, after = (self.outcomes.get((each, model, case), {}) for each in (NOTHING, changed))
        seeds = [seed for seed in before.keys() & after.keys() if (seed >= self.first_fresh_seed) == fresh]
        pairs = [(before[seed].passed, after[seed].passed) for seed in seeds]
        return [float(first) - float(then) for first, then in pairs if first is not None and then is not None]


@dataclass
class Score:
    skill: Skill
    suite: Suite
    rules: list[Rule]
    models: list[str] = field(default_factory=list[str])  # none: nothing was run
    gutted_noticed: bool | None = None
    idle_cases: list[str] = field(default_factory=list[str])  # pass without the skill, too
    failing_cases: list[str] = field(default_factory=list[str])  # fail with the skill, so they can notice nothing
    trials: int = 0
    halted: str = ""

    @property
    def counted_rules(self) -> list[Rule]:
        return [each for each in self.rules if each.counts]

    @property
    def share(self) -> Estimate | None:
        """Of the rules whose loss or opposite is noticed; up to those that may be."""
        rules = self.counted_rules
        if not self.models or not rules:
            return None
        noticed, missed = (sum(each.status == status for each in rules) for status in ("noticed", "unnoticed"))
        return Estimate(noticed / len(rules), noticed / len(rules), (len(rules) - missed) / len(rules), 1.0 - LEVEL)

    @property
    def uncovered(self) -> list[Rule]:
        """What a test writer should write cases for."""
        if not self.models:
            return [rule for rule in self.rules if rule.is_untestable]
        return [rule for rule in self.counted_rules if rule.status == "unnoticed"]

    @property
    def uncovered_material(self) -> Material:
        """For a test writer: these rules, and nothing else of the skill."""
        others = {rule.block for rule in self.rules} - {rule.block for rule in self.uncovered}
        return Material(COVER, skill=without_blocks(self.skill, others))


async def score(
    skill: Skill,
    suite: Suite | None = None,
    students: Sequence[str] = (),
    *,
    options: PlanOptions | None = None,
    store: Store | None = None,
    models: Models | None = None,
    events: Events | None = None,
) -> Score:
    """Whether the suite would notice if a rule of the skill were lost or wrong; without students, whether it could."""
    suite = suite or Suite.required(skill)
    if not students:
        return Score(skill, suite, rules_of(skill, suite))
    plan = make_plan(skill, suite, students, replace(options or PlanOptions(runs=2), baseline=False))
    async with open_engine(store, models, events) as engine:
        return await Scoring(plan, engine).run()


@dataclass
class Scoring:
    """A plan with more than one repeat samples; with one, what is seen is the truth."""

    plan: Plan
    engine: Engine
    rounds: int = MAX_ROUNDS  # at most, for one rule

    def __post_init__(self) -> None:
        # A student that does not act never sees the files.
        self.rules = rules_of(self.plan.skill, self.plan.suite, files=self.plan.acts)
        if not self.rules:
            raise UsageError(f"{self.plan.skill.name}: there is nothing to take out: it has no text")
        self.mutation = Mutation(
            sections=2 * [rule.block.section for rule in self.rules],
            cases=tuple(case.id for case in self.plan.suite.cases),
            measure=self._measure,
            rounds=1 if self.plan.runs == 1 else self.rounds,
            seed=self.plan.seed,
            rules=self.rules,
            tell=self.engine.tell,
        )

    @property
    def expected_rounds(self) -> int:
        """About so many trials of each case, if most rules are noticed."""
        if self.plan.runs == 1:
            return 2
        return REFERENCE_ROUNDS + FIRST_ROUNDS + math.ceil(MAX_ROUNDS * len(self.rules) / len(self.plan.suite.cases))

    async def run(self) -> Score:
        mutation = self.mutation
        halted = await until_ceiling(mutation.search())
        gutted = mutation.gutted
        failing = [case for case in mutation.cases if gutted and mutation.fails(case)]
        return Score(
            skill=self.plan.skill,
            suite=self.plan.suite,
            rules=[self._judge(number) for number in range(len(self.rules))],
            models=mutation.models or [address.name for address in self.plan.models],
            gutted_noticed=bool(gutted.lost) if gutted else None,
            idle_cases=[case for case in mutation.cases if gutted and case not in {*gutted.lost, *failing}],
            failing_cases=failing,
            trials=mutation.trials,
            halted=halted,
        )

    def _judge(self, number: int) -> Rule:
        rule, mutation, opposite = self.rules[number], self.mutation, number + len(self.rules)
        for change, how in ((number, "loss"), (opposite, "opposite")):
            if change in mutation.noticed:
                return replace(rule, status="noticed", noticed_by=how, cases=mutation.noticed[change])
        is_tried = number in mutation.tried and (opposite in mutation.tried or not rule.opposite)
        is_open = not is_tried or not mutation.open.isdisjoint((number, opposite))
        return replace(rule, status="undecided" if is_open else "unnoticed")

    def version(self, changed: Blocks) -> Skill:
        rules = [(self.rules[number % len(self.rules)], number >= len(self.rules)) for number in changed]
        return edit_blocks(self.plan.skill, {rule.block: rule.opposite if is_so else "" for rule, is_so in rules})

    async def _measure(self, removed: Blocks, cases: Sequence[str], seeds: range) -> Sequence[Outcome]:
        plan = replace(self.plan, skill=self.version(removed))
        return (await self.engine.run_part(plan, cases, seeds)).outcomes
