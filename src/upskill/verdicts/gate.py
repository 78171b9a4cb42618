"""What `ci` says about an edit: whether it made these cases worse. And of a skill: whether it helps at all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from upskill.plain import counted
from upskill.verdicts import MAX_ROUNDS
from upskill.verdicts.arms import by_arm, chance_of_heads, pair_arms
from upskill.verdicts.line import describe_these, describe_verdict, lift_in_words
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.planning import MAX_CASES_TO_ADD
from upskill.verdicts.verdict import OBSTACLES, Reading, Verdict

Mark = Literal["block", "warn", "pass", "open"]
# The worst first.
MARKS: Mapping[Mark, str] = {"block": "✖", "warn": "⚠", "open": "❔", "pass": "✅"}
ROUNDS_BEFORE_PASS = 5  # while a case has turned from always passing to never
MIN_ROUNDS_TO_TURN = 3
MIN_NET_LOSS = 2  # cases of an exact student
FLIP_P_VALUE = 1 / 16  # of lost against gained answers: four and none, six and one


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The mark of one skill and model, with the cases behind it."""

    mark: Mark
    words: str
    lost: tuple[str, ...] = ()  # passed every draw of the base, and none of the edit
    gained: tuple[str, ...] = ()
    is_settled: bool = True  # more rounds would not change the mark


def worst_mark(marks: Iterable[Mark]) -> Mark | None:
    """None where there is none."""
    found = set(marks)
    return next((mark for mark in MARKS if mark in found), None)


def judge_edit(
    verdict: Verdict, outcomes: Iterable[Outcome], *, rounds: int, most: int = MAX_ROUNDS
) -> Assessment:
    """The edit (`skill`) against the base (`baseline`), after so many rounds of at most `most`."""
    if verdict.reason in OBSTACLES:
        return Assessment(mark="open", words=describe_verdict(verdict))
    lost, gained = turned_cases(outcomes)
    if verdict.exact:
        return _judge_exact(verdict, lost, gained)
    return _judge_draws(verdict, lost, gained, rounds=rounds, most=most)


def _judge_draws(
    verdict: Verdict,
    lost: tuple[str, ...],
    gained: tuple[str, ...],
    *,
    rounds: int,
    most: int,
) -> Assessment:
    these = verdict.these
    lift, interval = these.lift or 0.0, these.interval or (-1.0, 1.0)
    points = lift_in_words(these)
    loses_little = interval[0] >= -verdict.tolerance
    may_warn = bool(lost) and rounds >= MIN_ROUNDS_TO_TURN
    if interval[1] < 0 and -lift >= verdict.tolerance / 2:
        mark: Mark = "block"
        words = f"worse on these {counted(these.cases, 'case')}: {points}"
    elif loses_little and not lost:
        mark = "pass"
        words = f"loses no more than {100 * verdict.tolerance:g} points: {points}"
    elif may_warn:
        mark = "warn"
        words = f"{counted(len(lost), 'case')} passed every draw before and none now: {points}"
    else:
        mark = "open"
        words = f"not decided after {counted(rounds, 'round')}: {points}"
        if rounds >= most and (add := _cases_to_settle(these, verdict.tolerance)):
            words = f"{words}; about {counted(add, 'more case')} would do"
    waits_no_longer = loses_little and rounds >= ROUNDS_BEFORE_PASS
    is_decided = mark in ("block", "pass") or (mark == "warn" and waits_no_longer)
    return Assessment(
        mark=mark,
        words=words,
        lost=lost,
        gained=gained,
        is_settled=is_decided or rounds >= most,
    )


def _cases_to_settle(these: Reading, tolerance: float) -> int:
    """How many more cases like these would show that the edit loses less than the tolerance. 0: none, or too many."""
    if these.lift is None or these.interval is None or these.lift <= -tolerance:
        return 0
    too_wide = (these.lift - these.interval[0]) / (these.lift + tolerance)
    add = math.ceil(
        these.cases * (too_wide**2 - 1)
    )  # an interval narrows with the root of its draws
    return add if 0 < add <= MAX_CASES_TO_ADD else 0


def _judge_exact(verdict: Verdict, lost: tuple[str, ...], gained: tuple[str, ...]) -> Assessment:
    """Each answer is the fact; but single flips are chance, since any edit flips a few answers."""
    cases = verdict.these.cases
    net = len(lost) - len(gained)
    loss = net / cases
    changed = f"{counted(len(lost), 'case')} lost, {len(gained)} gained of {cases}"
    missing = verdict.missing.baseline + verdict.missing.skill
    is_beyond_tolerance = loss > verdict.tolerance and net >= MIN_NET_LOSS
    is_beyond_chance = chance_of_heads(len(lost), len(lost) + len(gained)) <= FLIP_P_VALUE
    if is_beyond_tolerance or (is_beyond_chance and loss >= verdict.tolerance / 2):
        return Assessment(mark="block", words=changed, lost=lost, gained=gained)
    if lost:
        return Assessment(mark="warn", words=changed, lost=lost, gained=gained)
    if missing:
        words = f"{changed}; {counted(missing, 'answer')} missing"
        return Assessment(mark="open", words=words, gained=gained)
    return Assessment(mark="pass", words=changed, gained=gained)


def turned_cases(outcomes: Iterable[Outcome]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Cases that passed every draw of the base and none of the edit, and the reverse."""
    arms = by_arm(outcomes)
    if not {"baseline", "skill"} <= arms.keys():
        return (), ()
    before: dict[str, set[bool]] = {}
    after: dict[str, set[bool]] = {}
    for pair in pair_arms(arms["baseline"], arms["skill"]):
        before.setdefault(pair.case, set()).add(pair.before.passed is True)
        after.setdefault(pair.case, set()).add(pair.after.passed is True)
    lost = [case for case in sorted(before) if before[case] == {True} and after[case] == {False}]
    gained = [case for case in sorted(before) if before[case] == {False} and after[case] == {True}]
    return tuple(lost), tuple(gained)


def judge_use(verdict: Verdict, outcomes: Iterable[Outcome]) -> Assessment:
    """A skill against none: a new one, or whether a changed one still helps."""
    has_obstacle = verdict.reason in OBSTACLES
    words = describe_verdict(verdict) if has_obstacle else describe_these(verdict)
    lost, gained = turned_cases(outcomes)
    mark: Mark = "open"
    if verdict.decision in ("helps", "saves"):
        mark = "pass"
    elif verdict.decision == "hurts":
        mark = "block"
    elif verdict.decision == "no effect" or (verdict.exact and not gained and not has_obstacle):
        mark = "warn"
    is_settled = verdict.decision != "undecided" or verdict.exact or has_obstacle
    return Assessment(mark=mark, words=words, lost=lost, gained=gained, is_settled=is_settled)
