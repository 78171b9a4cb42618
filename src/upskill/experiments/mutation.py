"""Mutation: would the suite notice if a rule of the skill were lost, or said the opposite?

Without a model: a rule is a block with something specific in it, such as a number, a flag or a name in code. If no case
shares any of that with it, no check could tell. With a student: all blocks are taken out at once, which must be
noticed, then halves of what was noticed, down to single blocks. Rules whose absence nobody notices, because the student
knows them or the skill says them twice, are turned into their opposites by mechanical edits, in groups too. Whatever a
case seems to notice is tested again on new draws, alone; these tests share one error level.
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
from upskill.experiments.engine import Engine, fit_rounds, open_engine, until_ceiling
from upskill.models.pool import Models
from upskill.plain import as_mapping
from upskill.runs.planning.plan import Plan, PlanOptions, make_plan
from upskill.runs.running.events import Events
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.skills.blocks import Block, blocks_of, edit_blocks, without_blocks
from upskill.suites import Case, Suite
from upskill.verdicts.interval import Estimate
from upskill.verdicts.outcome import Outcome

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
_ASCII_WORD = re.compile(
    _WORD.pattern, re.ASCII
)  # in prose: some languages write no spaces around a number
_FLAG = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*")
_NUMBER = re.compile(r"(?<![\w.,-])\d+")  # by itself, not in H100 or UTF-8
_PROHIBITION = re.compile(r"[*_]*\b(?:do not|don't|never)\b[*_]*\s+", re.I)
_SWITCH = re.compile(r"\b(?:on|off|true|false|yes|no)\b")
_SWITCHED = {"on": "off", "off": "on", "true": "false", "false": "true", "yes": "no", "no": "yes"}
_ESCAPES = re.compile(r"\\[A-Za-z]|\{\d*,?\d*\}")  # in a pattern: no text
PATTERNS = ("regex", "not_regex")
LIMITS = ("max_length", "min_length", "max_turns")  # say nothing about what is asked
Status = Literal["noticed", "unnoticed", "undecided", "not tried"]


@dataclass(frozen=True, slots=True)
class Rule:
    block: Block
    terms: frozenset[str]  # what is specific about it; empty: only a student can tell
    shared_by: tuple[str, ...]  # cases that share some of it
    opposite: str = (
        ""  # the block with other values, flags and names, or denied; empty: no edit does that
    )
    status: Status = "not tried"
    noticed_by: Literal["", "loss", "opposite"] = ""  # what was noticed
    cases: tuple[str, ...] = ()  # that notice it

    @property
    def is_untestable(self) -> bool:
        """No check could tell whether it is there."""
        return bool(self.terms) and not self.shared_by

    @property
    def counts(self) -> bool:
        """It looks like a rule: it has something specific or, once a student has tried it, is in a list or a table."""
        return bool(self.terms) or (
            self.status != "not tried" and self.block.kind in ("item", "row")
        )

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
    named = in_code.union(filter(_is_specific, _ASCII_WORD.findall(text)))
    return frozenset(word.casefold() for word in named if len(word) > 1 or word.isdigit())


def _is_specific(word: str) -> bool:
    has_mark = len(word) > 3 and any(mark in word for mark in "_./:@")
    return (
        has_mark
        or word[0] in "-0123456789"
        or any(each.isdigit() or each.isupper() for each in word[1:])
    )


def _text_of(case: Case) -> str:
    """What it asks, looks for and takes for right, without the names of fields."""
    checks = [named for named in case.checks if named.name not in LIMITS]
    configs = [
        _pattern(named.config) if named.name in PATTERNS else named.config for named in checks
    ]
    values = [
        value for config in configs for value in (as_mapping(config) or {"": config}).values()
    ]
    looked_for = [
        json.dumps(value, ensure_ascii=False) for value in values if not isinstance(value, bool)
    ]
    answers = [case.reference, case.expected_output, *map(str, case.right)]
    return "\n".join([case.prompt, *answers, *looked_for, *case.files.values()]).casefold()


def _pattern(config: Any) -> Any:
    if (fields := as_mapping(config)) is not None:
        return {key: _pattern(value) for key, value in fields.items()}
    return re.sub(r"\\(.)", r"\1", _ESCAPES.sub(" ", config)) if isinstance(config, str) else config


def _sharing(texts: Mapping[str, str], terms: Collection[str]) -> tuple[str, ...]:
    """The names of the texts that have any of these terms; those with most come first."""
    patterns = [re.compile(rf"(?<![\w-]){re.escape(term)}(?![\w-])", re.ASCII) for term in terms]
    shared = {
        name: sum(pattern.search(text) is not None for pattern in patterns)
        for name, text in texts.items()
    }
    return tuple(sorted((name for name in shared if shared[name]), key=lambda name: -shared[name]))


def _opposite(block: Block, others: Sequence[Block]) -> str:
    """With other values. What a rule is about stays, since without it the rule would only be gone: the first cell of a
    row, a name in code that the rule begins with, or the first of several."""
    marker = _MARKER.match(block.text) if block.kind == "item" else None
    start = (
        marker.end() if marker else max(0, block.text.find("|", 1)) if block.kind == "row" else 0
    )
    text = block.text[start:]
    if not _WORD.search(text) or text.startswith("<"):
        return ""
    flags = [flag for other in others for flag in _FLAG.findall(other.text)]
    names = [
        match[0] for other in others if other.kind != "code" for match in _CODE.finditer(other.text)
    ]
    spans = (
        list(dict.fromkeys(match[0] for match in _CODE.finditer(text)))
        if block.kind != "code"
        else []
    )
    is_subject_named = block.kind != "row" and text.lstrip("*_").startswith((*spans, "--"))
    if spans and block.kind != "row" and (len(spans) > 1 or is_subject_named):
        del spans[0]
    is_prose = block.kind in ("paragraph", "item")
    if is_prose and _PROHIBITION.search(text):
        changed = _PROHIBITION.sub("", text)
    else:
        changed = _NUMBER.sub(_larger, text)
        for span in spans:
            switched = _SWITCH.sub(lambda word: _SWITCHED[word[0]], span)
            other = (
                switched
                if switched != span
                else _change_flag(span, flags) or _other(names, text) or span
            )
            changed = changed.replace(span, other)
    if changed == text:
        changed = "" if is_subject_named else _change_flag(text, flags)
        changed = changed or _SWITCH.sub(lambda word: _SWITCHED[word[0]], text)
    if changed == text:  # of a name such as FE286, the last number
        changed = re.sub(r"\d+(?=\D*$)", _larger, text)
    if changed == text and block.kind == "row":
        rows = (
            other.text[max(0, other.text.find("|", 1)) :] for other in others if other.kind == "row"
        )
        changed = next((row for row in rows if row != text), text)
    if changed == text and is_prose:
        changed = f"Never do this: {text}"
    return f"{block.text[:start]}{changed}" if changed != text else ""


def _larger(number: re.Match[str]) -> str:
    return str(int(number[0][:15]) + max(1, int(number[0][:15]) // 2))


def _change_flag(text: str, flags: Iterable[str]) -> str:
    """One flag of the skill for another; empty if there are none."""
    flag = _other(flags, text)
    return _FLAG.sub(flag, text) if flag and _FLAG.search(text) else ""


def _other(pool: Iterable[str], text: str) -> str:
    return next((each for each in pool if each not in text), "")


@dataclass
class Mutation(Ablation):
    """Numbers up to that of the blocks take out a block; the same number beyond turns that block into its opposite."""

    rules: Sequence[Rule] = ()  # one for each block
    noticed: dict[int, tuple[str, ...]] = field(
        default_factory=dict[int, tuple[str, ...]]
    )  # by which cases
    open: set[int] = field(
        default_factory=set[int]
    )  # may be noticed, but neither that nor the opposite is shown
    tried: set[int] = field(default_factory=set[int])
    gutted: Tested | None = None  # what happened without any block
    gutted_noticed: bool = False

    async def search(self) -> None:
        blocks = range(len(self.rules))
        await self._run_whole()
        self.gutted = await self._test(frozenset(blocks), self.cases)
        lost = self.gutted.lost or await self._notice_gutting(self.cases)
        await self._find_noticed(blocks, lost)
        self.gutted_noticed = bool(self.noticed or await self._notice_gutting(sorted(lost)))
        self.tell(f"Blocks that a case misses: {len(self.noticed)} of {len(blocks)}")
        left = [
            block for block in blocks if block not in self.noticed and self.rules[block].opposite
        ]
        opposites = [len(blocks) + block for block in left if self.cases_for(len(blocks) + block)]
        await self._find_noticed(opposites, frozenset(self.cases))

    async def _notice_gutting(self, cases: Sequence[str]) -> frozenset[str]:
        noticing, _ = await self._test_again(frozenset(range(len(self.rules))), cases, LEVEL / 10)
        return frozenset(noticing)

    async def _find_noticed(self, numbers: Sequence[int], cases: frozenset[str]) -> None:
        """First on the cases that share most with a rule. What they don't notice is tried in groups, on all."""
        level = LEVEL / 5
        for number in numbers:
            if likely := [
                case for case in self.rules[number % len(self.rules)].shared_by if case in cases
            ]:
                await self._show(number, likely[:LIKELY], level / len(numbers))
        group, before = (
            tuple(number for number in numbers if number not in self.noticed),
            len(self.tests),
        )
        self.open.clear()
        if group and cases:
            await self._find_idle(group, tuple(case for case in self.cases if case in cases), [])
        alone = {
            next(iter(each.group)): each
            for each in self.tests[before:]
            if len(each.group) == 1 and each.lost
        }
        for number, tested in alone.items():
            await self._show(
                number, sorted(tested.lost & self.cases_for(number)), level / len(alone)
            )
        self.tried.update(numbers)

    async def _divide(
        self, group: tuple[int, ...], cases: tuple[str, ...], within: Tested, pending: list[Tested]
    ) -> None:
        """Both halves on all cases: one that misses a rule may miss another, too."""
        if len(group) > 1:
            for half in halves(group, self.sections):
                await self._find_idle(half, cases, pending)

    def cases_for(self, number: int) -> frozenset[str]:
        """The cases that can notice this change. An opposite may also spoil what another rule says."""
        rule = self.rules[number % len(self.rules)]
        return frozenset(rule.shared_by if rule.terms and number >= len(self.rules) else self.cases)

    async def _show(self, number: int, cases: Sequence[str], level: float) -> None:
        noticing, is_decided = await self._test_again(frozenset({number}), cases, level)
        if noticing:
            self.noticed[number] = noticing
        if is_decided:
            self.open.discard(number)
        else:
            self.open.add(number)

    async def _test_again(
        self, changed: Blocks, cases: Sequence[str], level: float
    ) -> tuple[tuple[str, ...], bool]:
        """Which of these cases fail more often with this change, on seeds that chose no case; whether that is clear."""
        is_exact = self.is_exact  # then no seed is better than another
        noticing, are_idle, rounds, limit = (), not cases, 0, 1 if is_exact else self.rounds
        while rounds < limit and not (noticing or are_idle):
            rounds = min(limit, rounds + 4)
            for each in (NOTHING, changed):
                await self.extend(each, cases, rounds, fresh=not is_exact)
            losses = {
                (case, model): self._losses(changed, model, case, fresh=not is_exact)
                for case in cases
                for model in self.models
            }
            if is_exact:
                noticed, are_idle = (
                    [case for (case, _), each in losses.items() if sum(each) > 0],
                    True,
                )
            else:
                needed = math.log(len(losses) / level)
                noticed = [
                    case for (case, _), each in losses.items() if log_wealth(each, 0.0) >= needed
                ]
                unlike = [log_wealth([-loss for loss in each], -HALF) for each in losses.values()]
                are_idle = all(each >= SHOWN_WORSE for each in unlike)
            noticing = tuple(dict.fromkeys(noticed))
        return noticing, bool(noticing) or are_idle

    def _losses(self, changed: Blocks, model: str, case: str, *, fresh: bool) -> list[float]:
        before, after = (self.outcomes.get((each, model, case), {}) for each in (NOTHING, changed))
        seeds = [
            seed
            for seed in before.keys() & after.keys()
            if (seed >= self.first_fresh_seed) == fresh
        ]
        pairs = [(before[seed].passed, after[seed].passed) for seed in seeds]
        return [
            float(first) - float(then)
            for first, then in pairs
            if first is not None and then is not None
        ]


@dataclass
class Score:
    skill: Skill
    suite: Suite
    rules: list[Rule]
    models: list[str] = field(default_factory=list[str])  # none: nothing was run
    gutted_noticed: bool | None = None
    idle_cases: list[str] = field(default_factory=list[str])  # pass without the skill, too
    failing_cases: list[str] = field(
        default_factory=list[str]
    )  # fail with the skill, so they can notice nothing
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
        noticed, missed = (
            sum(each.status == status for each in rules) for status in ("noticed", "unnoticed")
        )
        return Estimate(
            noticed / len(rules),
            noticed / len(rules),
            (len(rules) - missed) / len(rules),
            1.0 - LEVEL,
        )

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
    plan = make_plan(
        skill, suite, students, replace(options or PlanOptions(runs=2), baseline=False)
    )
    async with open_engine(store, models, events) as engine:
        return await Scoring(plan, engine).run()


@dataclass
class Scoring:
    """A plan with more than one repeat samples; with one, what is seen is the truth."""

    plan: Plan
    engine: Engine
    rounds: int = MAX_ROUNDS  # at most, for one rule

    def __post_init__(self) -> None:
        repeats = 1 if self.plan.runs == 1 else None
        self.plan, rounds = fit_rounds(self.plan, repeats, self.rounds)
        # A student that does not act never sees the files.
        self.rules = rules_of(self.plan.skill, self.plan.suite, files=self.plan.acts)
        if not self.rules:
            raise UsageError(
                f"{self.plan.skill.name}: there is nothing to take out: it has no text"
            )
        self.mutation = Mutation(
            sections=2 * [rule.block.section for rule in self.rules],
            cases=tuple(case.id for case in self.plan.suite.cases),
            measure=self._measure,
            rounds=rounds,
            seed=self.plan.seed,
            rules=self.rules,
            tell=self.engine.tell,
        )

    @property
    def expected_rounds(self) -> int:
        """About so many trials of each case, if most rules are noticed."""
        if self.mutation.is_exact:
            return 2
        return (
            REFERENCE_ROUNDS
            + FIRST_ROUNDS
            + math.ceil(MAX_ROUNDS * len(self.rules) / len(self.plan.suite.cases))
        )

    async def run(self) -> Score:
        mutation = self.mutation
        halted = await until_ceiling(mutation.search())
        gutted = mutation.gutted
        failing = [case for case in mutation.cases if gutted and mutation.fails(case)]
        noticing = {case for cases in mutation.noticed.values() for case in cases}
        return Score(
            skill=self.plan.skill,
            suite=self.plan.suite,
            rules=[self._judge(number) for number in range(len(self.rules))],
            models=mutation.models or [address.name for address in self.plan.models],
            gutted_noticed=mutation.gutted_noticed if gutted else None,
            idle_cases=[
                case
                for case in mutation.cases
                if gutted and case not in noticing.union(gutted.lost, failing)
            ],
            failing_cases=failing,
            trials=mutation.trials,
            halted=halted,
        )

    def _judge(self, number: int) -> Rule:
        rule, mutation, opposite = self.rules[number], self.mutation, number + len(self.rules)
        for change, how in ((number, "loss"), (opposite, "opposite")):
            if change in mutation.noticed:
                return replace(
                    rule, status="noticed", noticed_by=how, cases=mutation.noticed[change]
                )
        can_be_reversed = rule.opposite and mutation.cases_for(opposite)
        is_tried = number in mutation.tried and (opposite in mutation.tried or not can_be_reversed)
        is_open = not is_tried or not mutation.open.isdisjoint((number, opposite))
        return replace(rule, status="undecided" if is_open else "unnoticed")

    def version(self, changed: Blocks) -> Skill:
        rules = [
            (self.rules[number % len(self.rules)], number >= len(self.rules)) for number in changed
        ]
        return edit_blocks(
            self.plan.skill, {rule.block: rule.opposite if is_so else "" for rule, is_so in rules}
        )

    async def _measure(
        self, removed: Blocks, cases: Sequence[str], seeds: range
    ) -> Sequence[Outcome]:
        plan = replace(self.plan, skill=self.version(removed))
        return (await self.engine.run_part(plan, cases, seeds)).outcomes
