"""What to do about a verdict, in a sentence or two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from upskill.plain import counted

if TYPE_CHECKING:
    from upskill.verdicts.arms import ArmOutcomes
    from upskill.verdicts.verdict import Verdict

GOOD_PASS_RATE = 0.8  # below it, a skill that helps still needs work
LOW_ACTIVATION = 0.5  # opened in a smaller share of trials, a skill without effect may only need a better description
LOOK_UP = "look-up of its own facts"  # the reason of a verdict over cases that ask for the skill's own lines
ACTIVATION_CAVEAT = "Decide by the lift offered: which trials open the skill is not random."


def signed_points(share: float) -> str:
    """A share as signed percentage points: +55."""
    whole = round(100 * share)
    return f"{whole:+d}" if whole else "0"


def recommend(verdict: Verdict, failing_tags: Sequence[str] = (), *, baseline_is_skill: bool = False) -> str:
    """The recommendation for a decided verdict; `baseline_is_skill`: the baseline is an older skill."""
    iterate = f" Iterate: cases tagged {', '.join(failing_tags)} still fail." if failing_tags else ""
    lift = ""
    if verdict.lift is not None and verdict.interval is not None:
        low, high = map(signed_points, verdict.interval)
        lift = f"{signed_points(verdict.lift)} points ({low} to {high}) over {counted(verdict.pairs, 'pair')}"
    reject = "Keep the older one" if baseline_is_skill else "Do not use it with this model"
    if verdict.decision == "helps":
        rate = verdict.skill.pass_rate or 0.0
        more = iterate or (" Iterate: many cases still fail." if rate < 0.5 else "")
        use = "Use it in place of the older one" if baseline_is_skill else "Use it"
        return f"{use}: {lift}.{more if rate < GOOD_PASS_RATE else ''}"
    if verdict.decision == "saves":
        as_good = f"Use it: as good as {'the older one' if baseline_is_skill else 'without it'}"
        if verdict.token_savings is not None and verdict.reason.endswith("tokens lower beyond doubt"):
            return f"{as_good}, with {verdict.token_savings:.0%} fewer tokens."
        return f"{as_good}, and a passed task costs less."
    if verdict.decision == "hurts":
        return f"{reject}: {lift}."
    rarely_opened = _rarely_opened(verdict)
    if verdict.decision == "no effect":
        savings = verdict.token_savings
        extra = f" and it takes {-savings:.0%} more tokens" if savings is not None and savings < -0.005 else ""
        no_effect = f"{reject}: it changes nothing by more than {100 * verdict.margin:g} points{extra}."
        return f"{no_effect} {rarely_opened}" if rarely_opened else f"{no_effect}{iterate}"
    more = _recommend_evidence(verdict)
    return f"{rarely_opened} {more}" if rarely_opened and verdict.evidence_needed is not None else more


def as_look_up(verdict: Verdict) -> Verdict:
    """A verdict over cases that were made from the same facts as the skill: whatever the lift, it helps nobody yet."""
    if verdict.decision not in ("helps", "saves"):
        return verdict
    low, high = map(signed_points, verdict.interval or (0.0, 0.0))
    words = (
        f"Look-up of its own facts: {signed_points(verdict.lift or 0.0)} points ({low} to {high}) over "
        f"{counted(verdict.pairs, 'pair')}. The student finds what the skill says; whether that helps with a task is "
        "not shown. Give cases of your own with --tests."
    )
    return replace(verdict, decision="undecided", reason=LOOK_UP, recommendation=words)


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


def _recommend_evidence(verdict: Verdict) -> str:
    if verdict.reason == "isolation":
        return "Use none of these numbers: the arms were not isolated, so none of them means anything."
    if verdict.reason == "snapshots":
        return "Run again with --fresh: the arms were answered by different snapshots of the model."
    if verdict.reason == "errors":
        arm = max((verdict.baseline, verdict.skill), key=lambda arm: arm.errored / max(1, arm.scored + arm.errored))
        trials = counted(arm.scored + arm.errored, "trial")
        errored = f"{arm.errored} of {trials} {'with the skill' if arm is verdict.skill else 'of the baseline'} errored"
        return f"Repair the errors and run again: {errored}, too many to say anything."
    if verdict.reason == "unfinished":
        return "Finish the run first: over a tenth of the pairs have a trial that was not run in one of the arms."
    if verdict.missing is not None and verdict.missing.changes_decision:
        low, high = signed_points(verdict.missing.worst.low), signed_points(verdict.missing.best.high)
        return (
            "Repair the errors and run again: they could explain it. Had every errored trial gone against the skill or"
            f" every one for it, the lift could be anything from {low} to {high} points."
        )
    if verdict.reason == "no baseline" and not verdict.skill.scored:
        return "Go on with the run: no trial has been scored."
    if verdict.reason == "no baseline":
        return "Run the baseline too: without it there is no lift."
    needed = verdict.evidence_needed
    if verdict.reason == "no pairs" or needed is None:
        return "More evidence: no case was scored in both arms."
    more = counted(needed.cases, "more case")
    if needed.runs is not None:
        more = f"{counted(needed.runs, 'more run')} of each case, or {more}"
    return f"More evidence: about {counted(needed.pairs, 'further pair')} ({more}) would settle it."
