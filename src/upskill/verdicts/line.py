"""A verdict in one line, and in the few words of a table."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from upskill.plain import counted
from upskill.verdicts.planning import MAX_CASES_TO_ADD
from upskill.verdicts.verdict import OBSTACLES, REASONS, Reading, Reason, Verdict

EASY = 0.5  # above this pass rate without the skill, a suite leaves little to gain
HARD_CASES = 12  # that are proposed then
SIGNS: Mapping[str, str] = {
    "helps": "✓",
    "saves": "✓",
    "hurts": "✗",
    "no effect": "–",
    "undecided": "?",
}


def signed_points(share: float) -> str:
    """A share as signed percentage points: +55. What rounds to 0 still says on which side of it it is."""
    if whole := round(100 * share):
        return f"{whole:+d}".replace("-", "\N{MINUS SIGN}")
    if abs(share) < 0.00005:
        return "0"
    return "just above 0" if share > 0 else "just below 0"


def lift_in_words(reading: Reading) -> str:
    """+45 points (+21 to +63); empty without a lift, or where the lift is no evidence."""
    if reading.lift is None or reading.interval is None or reading.reason in OBSTACLES:
        return ""
    low, high = map(signed_points, reading.interval)
    return f"{signed_points(reading.lift)} points ({low} to {high})"


def verdict_line(verdict: Verdict, add_command: str = "") -> str:
    """`add_command` appends cases, with {} for their number; without one, the line says what kind of case to add."""
    return f"{SIGNS[verdict.decision]} {describe_verdict(verdict, add_command)}"


def describe_verdict(verdict: Verdict, add_command: str = "") -> str:
    heading = verdict.heading
    if verdict.reason == Reason.ERRORS:
        return f"undecided ({Reason.ERRORS}): {_describe_missing(verdict)}"
    if verdict.reason == Reason.UNFINISHED and verdict.progress:
        done, trials = verdict.progress
        return f"undecided ({Reason.UNFINISHED}): {done:,} of {counted(trials, 'trial')}"
    is_invalid = verdict.reason == Reason.ISOLATION
    if verdict.reason is not None and (is_invalid or heading.lift is None):
        return f"undecided ({verdict.reason}): {REASONS[verdict.reason]}"
    if verdict.about == "tasks":
        claim = f"{heading.decision} on tasks like these: {lift_in_words(heading)}"
        return f"{claim}, {counted(heading.cases, 'case')}"
    return f"{describe_these(verdict)}; tasks like these: {_rest(verdict, add_command)}"


def describe_these(verdict: Verdict) -> str:
    """Of these cases alone."""
    reading = verdict.these
    on_cases = f"on {cases_in_words(reading)}: {lift_in_words(reading)}"
    if reading.decision == "no effect":
        return f"no effect of {100 * verdict.tolerance:g} points or more {on_cases}"
    if reading.decision == "saves":
        fewer = f"{verdict.token_savings or 0.0:.0%} fewer tokens"
        return f"saves tokens on {cases_in_words(reading)}: {fewer}, {lift_in_words(reading)}"
    if reading.decision == "undecided":
        return f"undecided {on_cases}, {reading.reason}"
    return f"{reading.decision} {on_cases}"


def cases_in_words(reading: Reading) -> str:
    """What a reading is about: tasks like these, or these 20 cases."""
    if reading.about == "tasks":
        return "tasks like these"
    return "this case" if reading.cases == 1 else f"these {reading.cases} cases"


def _rest(verdict: Verdict, add_command: str) -> str:
    """What is known about tasks like these, where these cases are in the heading."""
    tasks = verdict.tasks
    known = f"undecided from {counted(tasks.cases, 'fresh case')}" if tasks else "not measured"
    rate = verdict.baseline.pass_rate or 0.0
    if rate > EASY and verdict.decision in ("no effect", "undecided"):
        return f"{known}; {_describe_easy_cases(verdict, rate, add_command)}"
    add = (tasks or verdict.heading).add
    if add is None:
        return known
    if add > MAX_CASES_TO_ADD:
        return f"{known}, and more than {MAX_CASES_TO_ADD} more would be needed: not worth it"
    if add_command:
        return f"{known}, add about {add}: {add_command.replace('{}', str(add))}"
    return f"{known}, add about {add} cases that no version has seen"


def _describe_easy_cases(verdict: Verdict, rate: float, add_command: str) -> str:
    """How little a suite can show that the student hardly needs the skill for."""
    baseline = verdict.baseline
    passes = f"passes {baseline.passed} of {baseline.scored} without the skill"
    words = f"{passes}: these cases can show at most {signed_points(1 - rate)} points"
    if add_command:
        command = add_command.replace("{}", str(HARD_CASES))
        words = f"{words}; harder ones: {command} --hard {shlex.quote(verdict.model)}"
    return words


def _describe_missing(verdict: Verdict) -> str:
    arms = {"without": verdict.baseline, "with": verdict.skill}
    missing = [
        f"{arm.missing} of {counted(arm.missing + arm.scored, 'trial')} {name} the skill"
        for name, arm in arms.items()
        if arm.missing
    ]
    are = "is" if verdict.baseline.missing + verdict.skill.missing == 1 else "are"
    return f"{' and '.join(missing)} {are} missing" if missing else REASONS[Reason.ERRORS]


def decision_in_words(verdict: Mapping[str, Any]) -> str:
    """For tables and pictures, from a verdict's JSON form: the decision, and what it is about or what prevents it."""
    decision, reason = verdict["decision"], verdict["reason"]
    if decision != "undecided":
        return f"{decision} on these cases" if verdict["about"] == "these" else decision
    has_obstacle = reason in (*OBSTACLES, Reason.TOO_FEW_CASES)
    return f"undecided ({reason})" if has_obstacle else decision
