"""Attacks on checks: wrong answers that pass, and right ones that fail.

An attacker sees the prompt and the checks of each case. What it finds is tried on the checks, and somebody who does not
see them says whether each answer is what the attacker calls it. The checks are then fixed, so that these answers and
all that were known before are judged rightly, and the attacker tries again, until a round finds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from upskill.authoring.writing.fresh_answers import (
    AnsweredCase,
    CasesRequest,
    ask_about_cases,
    fix,
    name_answers,
)
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.structured import (
    NoUsableAnswer,
    forget_unusable_answers,
    list_schema,
    read_ids,
    text_schema,
)
from upskill.authoring.writing.suite_writer import (
    CHECK_KINDS,
    MAX_FIXES,
    as_suite_case,
    as_written,
    check_schema,
    describe_skill,
    explain_problems,
)
from upskill.errors import CeilingReached, UsageError
from upskill.models import Model
from upskill.models.pool import Models
from upskill.plain import counted, list_or_empty
from upskill.skills import Skill
from upskill.suites import Case, Suite
from upskill.suites.quality import CaseProbe, SandboxOpener, probe_case

ROUNDS = 12  # at most: it ends with the first round that finds nothing
ANSWERS = 3  # wrong ones, and right ones, for a case and round
OWN_PROBES = ("right", "wrong", "reference")

Kind = Literal["wrong", "right"]
KINDS: tuple[Kind, ...] = ("wrong", "right")


@dataclass(frozen=True, slots=True)
class Attack:
    case: str
    kind: Kind  # what the answer is; the checks said the opposite
    answer: str
    fate: Literal["fixed", "open"] = "open"


@dataclass
class Attacked:
    suite: Suite  # with the fixed checks, and what was found among the right and wrong answers
    attacks: list[Attack] = field(default_factory=list[Attack])
    rounds: int = 0
    is_clean: bool = False  # the last round found nothing, and all that was found is fixed
    halted: str = ""  # why it ended before that
    skipped: list[str] = field(
        default_factory=list[str]
    )  # cases whose checks no test writer could write
    refused: int = 0  # answers that were not what the attacker called them

    @property
    def changed(self) -> list[str]:
        return list(dict.fromkeys(each.case for each in self.attacks if each.fate == "fixed"))


async def attack_checks(
    suite: Suite,
    attacker: Model,
    *,
    skill: Skill | None = None,
    judge: Model | None = None,
    rounds: int = ROUNDS,
    tell: Callable[[str], None] = lambda _: None,
    models: Models | None = None,
) -> Attacked:
    """`judge` says which answers are right, without seeing the checks; by default the attacker, in another call.
    `models` forget replies that cannot be used, so that they are asked for again."""
    return await _Attacking(suite, attacker, judge or attacker, skill, tell, models).run(rounds)


@dataclass
class _Attacking:
    suite: Suite
    attacker: Model
    judge: Model
    skill: Skill | None
    tell: Callable[[str], None]
    models: Models | None
    opener: SandboxOpener = field(default_factory=SandboxOpener)

    def __post_init__(self) -> None:
        self._about = json.dumps(
            describe_skill(self.skill) if self.skill else {}, ensure_ascii=False
        )
        self.cases = {case.id: case for case in self.suite.cases if _is_attackable(case)}
        self.result = Attacked(
            self.suite, skipped=[case.id for case in self.suite.cases if case.id not in self.cases]
        )

    async def run(self, rounds: int) -> Attacked:
        result = self.result
        try:
            for number in range(1, rounds + 1 if self.cases else 1):
                result.rounds = number
                async with forget_unusable_answers(self.models) if self.models else nullcontext():
                    if not await self._run_round():
                        break
        except (CeilingReached, NoUsableAnswer) as error:
            if not result.attacks and isinstance(error, NoUsableAnswer):
                raise
            result.halted = error.message
        result.is_clean &= all(each.fate == "fixed" for each in result.attacks)
        cases = tuple(self.cases.get(case.id, case) for case in self.suite.cases)
        result.suite = replace(self.suite, cases=cases, source="generated")
        return result

    async def _run_round(self) -> bool:
        """Whether another may find or fix more."""
        result = self.result
        attacks = await self._confirm(await self._attack())
        self.tell(
            f"Round {result.rounds}: {counted(len(attacks), 'answer')} that the checks judge wrongly"
        )
        result.is_clean = not attacks
        still_open = [each for each in result.attacks if each.fate == "open"]  # another fix may do
        fixed = await self._fix([*attacks, *still_open])
        result.attacks = [each for each in result.attacks if each not in still_open] + fixed
        return bool(attacks) or sum(each.fate == "open" for each in fixed) < len(still_open)

    async def _attack(self) -> list[Attack]:
        """Answers that the checks judge otherwise than the attacker."""
        lines = [
            {
                "id": case.id,
                "prompt": case.prompt,
                "reference": case.reference,
                "checks": _written(case),
                "tried": self._known(case),
            }
            for case in self.cases.values()
        ]
        system = read_prompt(
            "attack_checks", count=ANSWERS, kinds=read_prompt("check_kinds").strip()
        )
        shape = ("attacks", dict.fromkeys(KINDS, list_schema(text_schema(2000), ANSWERS)))
        request = CasesRequest("attacking checks", system, f"{self._about}\n\n", shape)
        found: list[Attack] = []
        for name, item in (await ask_about_cases(self.attacker, request, lines)).items():
            for kind in KINDS:
                answers = [str(each) for each in list_or_empty(item.get(kind)) if str(each).strip()]
                found += [
                    Attack(name, kind, answer)
                    for answer in dict.fromkeys(answers)
                    if answer not in (self.cases[name].reference, *self._known(self.cases[name]))
                    and await self._is_misjudged(self.cases[name], kind, answer)
                ]
        return found

    def _known(self, case: Case) -> list[str]:
        tried = [each.answer for each in self.result.attacks if each.case == case.id]
        return [*_texts(case.right), *_texts(case.wrong), *tried]

    async def _is_misjudged(self, case: Case, kind: Kind, answer: str) -> bool:
        # An answer may be too long and right otherwise: that is what the limit is for.
        checks = [named for named in case.checks if kind == "wrong" or named.name != "max_length"]
        probe = CaseProbe(case, self.opener, self.skill.body if self.skill else "")
        return (await probe.failure(answer, checks) is None) == (kind == "wrong")

    async def _confirm(self, attacks: Sequence[Attack]) -> list[Attack]:
        """Those that are what the attacker calls them, in the eyes of somebody who does not see the checks."""
        named: dict[str, dict[str, Attack]] = {}
        for each in sorted(
            attacks, key=lambda each: each.answer
        ):  # an order that does not tell what they are called
            of_case = named.setdefault(each.case, {})
            of_case[f"a{len(of_case) + 1}"] = each
        lines = [
            {
                "id": name,
                "question": self.cases[name].prompt,
                "reference": self.cases[name].reference,
                "answers": {key: each.answer for key, each in answers.items()},
            }
            for name, answers in named.items()
        ]
        shape = ("judged", dict.fromkeys(KINDS, list_schema(text_schema(4), 2 * ANSWERS)))
        request = CasesRequest(
            "judging answers",
            read_prompt("judge_answers"),
            f"{self._about}\n\n",
            shape,
            needs_all=True,
        )
        confirmed: list[Attack] = []
        for case, item in (await ask_about_cases(self.judge, request, lines)).items():
            said = {kind: {*read_ids(item.get(kind))} for kind in KINDS}
            is_clear = said["wrong"] ^ said["right"]
            confirmed += [
                each for key, each in named[case].items() if key in is_clear & said[each.kind]
            ]
        self.result.refused += len(attacks) - len(confirmed)
        return confirmed

    async def _fix(self, attacks: Sequence[Attack]) -> list[Attack]:
        sent_back = {
            case: await self._answered(case, attacks)
            for case in dict.fromkeys(each.case for each in attacks)
        }
        fixed: dict[str, AnsweredCase] = {}
        for _ in range(MAX_FIXES):
            if not sent_back:
                break
            kinds = read_prompt("check_kinds").strip()
            changed = await fix(
                self.attacker, sent_back, self._about, kinds, check_schema(CHECK_KINDS)
            )
            # Nothing can be disputed: the case calls these answers right or wrong, or another reader did.
            kept = {
                name: replace(each, answers=sent_back[name].answers)
                for name, each in changed.items()
            }
            tried = {name: await self._try(each, self.cases[name]) for name, each in kept.items()}
            fixed |= {name: each for name, each in tried.items() if each.case and not each.problems}
            sent_back = {
                name: each for name, each in (sent_back | tried).items() if name not in fixed
            }
        self.cases |= {name: each.case for name, each in fixed.items() if each.case}
        return [replace(each, fate="fixed" if each.case in fixed else "open") for each in attacks]

    async def _answered(self, name: str, attacks: Iterable[Attack]) -> AnsweredCase:
        case = self.cases[name]
        known = {"right": _texts(case.right), "wrong": _texts(case.wrong)}
        for each in attacks:
            if each.case == name and each.answer not in known[each.kind]:
                known[each.kind].append(each.answer)
        fields = {
            "id": name,
            "prompt": case.prompt,
            "reference": case.reference,
            "checks": _written(case),
        }
        return await self._try(AnsweredCase(fields, name_answers(known)), case)

    async def _try(self, answered: AnsweredCase, before: Case) -> AnsweredCase:
        """With what its checks still judge wrongly, and what got worse. Limits on the length stay."""
        try:
            (parsed,) = Suite.parse(
                [as_suite_case(answered.fields, self.skill)], "a fixed case"
            ).cases
        except UsageError as error:
            return replace(answered, case=None, problems={"checks": error.message})
        limits = tuple(named for named in before.checks if named.name == "max_length")
        checks = (*(named for named in parsed.checks if named.name != "max_length"), *limits)
        right, wrong = (tuple(answered.named(letter)) for letter in "rw")
        case = replace(before, checks=checks, right=right, wrong=wrong)
        known = {weak.probe for weak in await probe_case(before, self.skill, self.opener)}
        weak = await probe_case(case, self.skill, self.opener)
        problems = [each for each in weak if each.probe in OWN_PROBES or each.probe not in known]
        return replace(answered, case=case, problems=explain_problems(answered, problems))


def _is_attackable(case: Case) -> bool:
    """A test writer could have written its checks, and they look at the answer alone."""
    answers_are_texts = all(isinstance(answer, str) for answer in (*case.right, *case.wrong))
    return (
        answers_are_texts
        and bool(_written(case))
        and all(as_written(named) for named in case.checks)
    )


def _written(case: Case) -> list[dict[str, Any]]:
    return [
        written
        for named in case.checks
        if named.name != "max_length" and (written := as_written(named))
    ]


def _texts(answers: Iterable[object]) -> list[str]:
    return [answer for answer in answers if isinstance(answer, str)]
