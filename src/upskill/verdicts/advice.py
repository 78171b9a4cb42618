"""A verdict in words: what it comes to, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from upskill.plain import counted

if TYPE_CHECKING:
    from upskill.suites.part import Part
    from upskill.verdicts.arms import ArmOutcomes
    from upskill.verdicts.verdict import Verdict

GOOD_PASS_RATE = 0.8  # below it, a skill that helps still needs work
LOW_ACTIVATION = 0.5  # opened in a smaller share of trials, a skill without effect may only need a better description
LOOK_UP = "look-up of its own facts"  # the reason of a verdict over cases that ask for the skill's own lines
PART = "part of the suite"  # the reason of a verdict over cases that somebody chose
ACTIVATION_CAVEAT = "Decide by the lift offered: which trials open the skill is not random."


def signed_points(share: float) -> str:
    """A share as signed percentage points: +55."""
    whole = round(100 * share)
    return f"{whole:+d}" if whole else "0"


def decision_in_words(decision: str, reason: str) -> str:
    """A decision as tables and pictures have it, which say where errors are why there is none."""
    return f"{decision} (errors)" if decision == "undecided" and "error" in reason else decision


def lift_in_words(verdict: Verdict) -> str:
    """The lift with its interval and the number of pairs behind it; empty where there is none."""
    if verdict.lift is None or verdict.interval is None:
        return ""
    low, high = map(signed_points, verdict.interval)
    return f"{signed_points(verdict.lift)} points ({low} to {high}) over {counted(verdict.pairs, 'pair')}"


def conclude(verdict: Verdict, skill: str = "it", model: str = "this model", *, baseline_is_skill: bool = False) -> str:
    """What a verdict comes to, in one sentence; `baseline_is_skill`: the baseline is an older skill."""
    lift = lift_in_words(verdict)
    older = " than the older skill" if baseline_is_skill else ""
    if verdict.decision == "undecided":
        said = _conclude_undecided(verdict, skill, model, "is better" + older if older else "helps")
    elif verdict.decision == "helps":
        said = f"{skill} is better{older} with {model}: {lift}." if older else f"{skill} helps {model}: {lift}."
    elif verdict.decision == "hurts":
        said = f"{skill} is worse{older} with {model}: {lift}." if older else f"{skill} hurts {model}: {lift}."
    elif verdict.decision == "saves":
        as_often = f"passes as often as {'with the older skill' if older else 'without it'}"
        if verdict.token_savings is not None and verdict.reason.endswith("tokens lower beyond doubt"):
            said = f"{skill} saves tokens: {model} {as_often}, with {verdict.token_savings:.0%} fewer tokens."
        else:
            said = f"{skill} saves money: {model} {as_often}, and a passed task costs less."
    else:
        compared = "makes no difference to the older skill with" if older else "has no effect on"
        said = f"{skill} {compared} {model}: it changes nothing by more than {100 * verdict.margin:g} points."
    return said[0].upper() + said[1:] if skill == "it" else said


def _conclude_undecided(verdict: Verdict, skill: str, model: str, helps: str) -> str:
    reason, lift, with_ = verdict.reason, lift_in_words(verdict), "" if helps == "helps" else " with"
    if reason == "isolation":
        return "INVALID: the arms were not isolated, so no number of this run means anything."
    if reason == LOOK_UP:
        return f"Look-up of its own facts: {lift}."
    if reason == PART:
        return f"A part of the suite decides nothing about {skill} with {model}: {lift}."
    if reason == "no baseline":
        why = "the baseline was not run" if verdict.skill.scored else "no trial has been scored"
        return f"Whether {skill} {helps}{with_} {model} is not known: {why}."
    why = {
        "snapshots": "the arms were answered by different snapshots of the model",
        "errors": f"{_errored(verdict)}, too many to say anything",
        "unfinished": "over a tenth of the pairs have a trial that was not run in one of the arms",
        "no pairs": "no case was scored in both arms",
    }.get(reason, lift)
    return f"Undecided whether {skill} {helps}{with_} {model}: {why}."


def _errored(verdict: Verdict) -> str:
    """How many trials errored in the arm that has more of them."""
    arm = max((verdict.baseline, verdict.skill), key=lambda arm: arm.errored / max(1, arm.scored + arm.errored))
    trials = counted(arm.scored + arm.errored, "trial")
    return f"{arm.errored} of {trials} {'with the skill' if arm is verdict.skill else 'of the baseline'} errored"


def advise(verdict: Verdict, failing_tags: Sequence[str] = (), *, baseline_is_skill: bool = False) -> str:
    """What to do about it, in a sentence or two; empty where there is nothing to do."""
    failing = f"Cases tagged {', '.join(failing_tags)} still fail." if failing_tags else ""
    reject = "Keep the older one" if baseline_is_skill else "Do not use it with this model"
    if verdict.decision == "helps":
        rate = verdict.skill.pass_rate or 0.0
        return (failing or ("Many cases still fail." if rate < 0.5 else "")) if rate < GOOD_PASS_RATE else ""
    if verdict.decision == "saves":
        return ""
    if verdict.decision == "hurts":
        return f"{reject}."
    rarely_opened = _rarely_opened(verdict)
    if verdict.decision == "no effect":
        savings = verdict.token_savings
        costs = f": it takes {-savings:.0%} more tokens" if savings is not None and savings < -0.005 else ""
        return " ".join(filter(None, (f"{reject}{costs}.", rarely_opened or failing)))
    if verdict.reason == LOOK_UP:
        return (
            "The student finds what the skill says; whether that helps with a task is not shown. Give cases of your "
            "own with --tests."
        )
    more = _advise_evidence(verdict)
    return f"{rarely_opened} {more}" if rarely_opened and verdict.evidence_needed is not None else more


def with_advice(verdict: Verdict, failing_tags: Sequence[str] = (), *, baseline_is_skill: bool = False) -> Verdict:
    """A verdict whose decision and reason are known, with what it comes to and what to do in words."""
    advice = advise(verdict, failing_tags, baseline_is_skill=baseline_is_skill)
    said = conclude(verdict, baseline_is_skill=baseline_is_skill)
    return replace(verdict, advice=advice, recommendation=f"{said} {advice}".rstrip())


def as_look_up(verdict: Verdict) -> Verdict:
    """A verdict over cases that were made from the same facts as the skill: whatever the lift, it helps nobody yet."""
    if verdict.decision not in ("helps", "saves"):
        return verdict
    return with_advice(replace(verdict, decision="undecided", reason=LOOK_UP))


def as_part(verdict: Verdict, part: Part, cases: int) -> Verdict:
    """A verdict over cases that somebody chose from more: it has numbers, and decides nothing about the skill."""
    why = (
        "what failed once passes more often the next time, whatever was edited (regression to the mean)"
        if part.by_outcome
        else "a part that somebody chose says nothing about the rest"
    )
    advice = f"{cases} of {part.of} cases, chosen with {part.chosen}: {why}. Run them all for a verdict."
    found = replace(verdict, decision="undecided", reason=PART, evidence_needed=None, advice=advice)
    return replace(found, recommendation=f"{conclude(found)} {advice}")


def failing_tags(skill: ArmOutcomes, tags: Mapping[str, Sequence[str]], limit: int = 3) -> list[str]:
    """The tags whose cases pass less than half of the time with the skill, worst first."""
    passed, tried = Counter[str](), Counter[str]()
    for trial in skill.scored:
        for tag in tags.get(trial.case, ()):
            tried[tag] += 1
            passed[tag] += bool(trial.passed)
    rates = sorted((passed[tag] / tried[tag], tag) for tag in tried)
    return [tag for rate, tag in rates if rate < 0.5][:limit]


def _rarely_opened(verdict: Verdict) -> str:
    activation = verdict.activation
    if activation is None or activation.rate >= LOW_ACTIVATION:
        return ""
    opened = f"the skill was opened in {activation.opened} of {counted(activation.trials, 'trial')}"
    return f"Improve its description: {opened} (`upskill trigger SKILL --improve`)."


def _advise_evidence(verdict: Verdict) -> str:
    if verdict.reason == "isolation":
        return ""
    if verdict.reason == "snapshots":
        return "Run again with --fresh."
    if verdict.reason == "errors":
        return "Repair the errors and run again."
    if verdict.reason == "unfinished":
        return "Finish the run first."
    if verdict.missing is not None and verdict.missing.changes_decision:
        low, high = signed_points(verdict.missing.worst.low), signed_points(verdict.missing.best.high)
        return (
            "Repair the errors and run again: they could explain it. Had every errored trial gone against the skill or"
            f" every one for it, the lift could be anything from {low} to {high} points."
        )
    if verdict.reason == "no baseline":
        return "Run the baseline too." if verdict.skill.scored else "Go on with the run."
    needed = verdict.evidence_needed
    if verdict.reason == "no pairs" or needed is None:
        return "More evidence is needed."
    more = counted(needed.cases, "more case")
    if needed.runs is not None:
        more = f"{counted(needed.runs, 'more run')} of each case, or {more}"
    return f"About {counted(needed.pairs, 'further pair')} would settle it: {more}."
