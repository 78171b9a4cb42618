"""A verdict in words: its conclusion, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from upskill.plain import counted
from upskill.suites.suite import Part
from upskill.verdicts.arms import ArmOutcomes
from upskill.verdicts.verdict import (
    CHOSEN,
    DISPUTED,
    ERRORS,
    ISOLATION,
    PART,
    SAME_ANSWERS,
    SEARCH,
    SNAPSHOTS,
    UNFINISHED,
    UNTESTED,
    USED,
    Decision,
    Verdict,
)

GOOD_PASS_RATE = 0.8  # below it, a skill that helps still needs work
_NOT_RUN = (ERRORS, ISOLATION, UNFINISHED)
UNREACHABLE = 100_000  # cases: nobody writes so many
LOW_ACTIVATION = (
    0.5  # activated less often, a skill without effect may only need a better description
)
NOT_ISOLATED = "The arms were not isolated, so this run's numbers mean nothing."
INVALID = f"INVALID: the{NOT_ISOLATED.removeprefix('The')}"


def signed_points(share: float) -> str:
    """A share as signed percentage points: +55. What rounds to 0 still says on which side of it it is."""
    if whole := round(100 * share):
        return f"{whole:+d}"
    return "0" if abs(share) < 0.00005 else "just above 0" if share > 0 else "just below 0"


def decision_in_words(
    decision: str, reason: str, replayed: str | None = "", on_these: str = ""
) -> str:
    """For tables and pictures: the decision, what prevents it, the one on these cases, and whether it is replayed."""
    if reason in (UNFINISHED, UNTESTED, SEARCH, USED):
        return f"{reason}{' (replayed)' if replayed else ''}"
    more = next(
        (
            f" ({word})"
            for word in ("errors", "disputed")
            if decision == "undecided" and word in reason
        ),
        "",
    )
    if decision == "undecided" and on_these not in ("", decision):
        more = f"; {on_these} on these cases"
    return f"{decision}{more}{' (replayed)' if replayed else ''}"


def lift_in_words(verdict: Verdict) -> str:
    """With its interval and the number of pairs; empty without a lift."""
    if verdict.lift is None or verdict.interval is None:
        return ""
    low, high = map(signed_points, verdict.interval)
    return f"{signed_points(verdict.lift)} points ({low} to {high}) over {counted(verdict.pairs, 'pair')}"


# What a decision says of the skill: compared with no skill, and with the reference skill.
_CLAIMS: dict[Decision, tuple[str, str]] = {
    "helps": ("{skill} helps {model}", "{skill} is better than the reference skill with {model}"),
    "hurts": ("{skill} hurts {model}", "{skill} is worse than the reference skill with {model}"),
    "saves": (
        "{model} passes as often as without it",
        "{model} passes as often as with the reference skill",
    ),
    "no effect": (
        "{skill} has no effect on {model}",
        "{skill} is no better or worse than the reference skill with {model}",
    ),
    "undecided": (
        "{skill} helps {model}",
        "{skill} is better than the reference skill with {model}",
    ),
}


def conclude(
    verdict: Verdict, skill: str = "it", model: str = "this model", *, has_reference: bool = False
) -> str:
    """`has_reference`: the skill is compared with a reference skill."""
    claim = _CLAIMS[verdict.decision][has_reference].format(skill=skill, model=model)
    if verdict.differs_on_these_cases:
        sentence = _conclude_on_these_cases(verdict, skill, model, has_reference=has_reference)
    elif verdict.decision == "undecided":
        sentence = _conclude_undecided(verdict, skill, model, claim)
    elif verdict.decision == "no effect":
        sentence = f"{claim}: any change is below {100 * verdict.margin:g} points."
    elif verdict.decision != "saves":
        sentence = f"{claim}: {lift_in_words(verdict)}."
    elif verdict.token_savings is not None and verdict.reason.endswith("tokens lower beyond doubt"):
        sentence = f"{skill} saves tokens: {claim}, with {verdict.token_savings:.0%} fewer tokens."
    else:
        sentence = f"{skill} saves money: {claim}, at a lower cost per pass."
    if verdict.replayed:
        return f"Replayed: {sentence}"
    return sentence[0].upper() + sentence[1:] if skill == "it" else sentence


def _conclude_on_these_cases(
    verdict: Verdict, skill: str, model: str, *, has_reference: bool
) -> str:
    """Both answers if they differ: on exactly these cases, and on tasks like these."""
    these = verdict.these_cases
    assert these is not None
    low, high = map(signed_points, these.lift.interval)
    claim = _CLAIMS[these.decision][has_reference].format(skill=skill, model=model)
    cases = "this case" if verdict.cases == 1 else f"these {verdict.cases} cases"
    if these.reason == SAME_ANSWERS:
        lift = f"{signed_points(these.lift.value)} points, exactly: {SAME_ANSWERS}"
        return f"{claim} on {cases} ({lift}); undecided on tasks like these."
    on_these = f"{claim} on {cases} ({signed_points(these.lift.value)}, {low} to {high})"
    if verdict.alone:
        return f"{on_these}; on tasks like these it {verdict.reason}."
    if verdict.decision != "undecided":
        return f"{on_these}; on tasks like these: {verdict.decision}."
    if verdict.cases == 1:
        return f"{on_these}; one case says nothing about other tasks."
    needed = verdict.evidence_needed
    enough = (
        f"; about {verdict.cases + needed.cases:,} in all would do"
        if needed and needed.cases < UNREACHABLE
        else ""
    )
    return f"{on_these}; too few cases to say more{enough}."


def _conclude_undecided(verdict: Verdict, skill: str, model: str, claim: str) -> str:
    lift = lift_in_words(verdict)
    if verdict.is_invalid:
        return INVALID
    if verdict.progress:
        done, trials = verdict.progress
        when = "after each full round" if verdict.anytime else "when all trials have run"
        return f"Unfinished: {done:,} of {counted(trials, 'trial')}. The verdict on {skill} comes {when}."
    if verdict.reason == UNTESTED:
        return f"Untested: {skill} and its cases both come from a model's memory, so {lift} says nothing about {model}."
    if verdict.alone:
        alone = _CLAIMS[verdict.alone][False].format(skill=skill, model=model)
        return f"{alone} when tested alone, but not after correcting for {verdict.models} models: {lift}."
    if verdict.reason == SEARCH:
        whole = "`upskill ci` or `upskill recheck`" if verdict.anytime else "a search"
        return f"Part of {whole}, which judges {skill} with {model} by other tests: {lift}."
    if verdict.reason == PART:
        return f"Part of the suite is not enough for a verdict on {skill} with {model}: {lift}."
    if verdict.reason == "no baseline":
        why = "the baseline was not run" if verdict.skill.scored else "no trial has been scored"
        return f"Unknown whether {claim}: {why}."
    why = {
        CHOSEN: CHOSEN,
        USED: USED,
        SNAPSHOTS: "the arms ran on different snapshots of the model",
        ERRORS: f"{_errored(verdict)}, too many for a verdict",
        UNFINISHED: "more than 10% of the pairs are missing a trial in one arm",
        "no pairs": "no case was scored in both arms",
    }.get(verdict.reason, lift)
    return f"Undecided whether {claim}: {why}."


def _errored(verdict: Verdict) -> str:
    arm = max(
        (verdict.baseline, verdict.skill),
        key=lambda arm: arm.errored / max(1, arm.scored + arm.errored),
    )
    trials = counted(arm.scored + arm.errored, "trial")
    return f"{arm.errored} of {trials} {'with the skill' if arm is verdict.skill else 'in the baseline'} errored"


def is_too_weak(verdict: Verdict) -> bool:
    """Whether a stronger student is the next step: this one gains nothing or is undecided, and fails often."""
    open_or_nothing = (
        verdict.decision in ("undecided", "no effect") and verdict.reason not in _NOT_RUN
    )
    return open_or_nothing and (verdict.skill.pass_rate or 0.0) < GOOD_PASS_RATE


def advise(
    verdict: Verdict, failing_tags: Sequence[str] = (), *, has_reference: bool = False
) -> str:
    """Empty if there is nothing to do."""
    failing = f"Cases tagged {', '.join(failing_tags)} still fail." if failing_tags else ""
    reject = "Keep the reference skill" if has_reference else "Do not use it with this model"
    if verdict.decision == "helps":
        rate = verdict.skill.pass_rate or 0.0
        return (
            (failing or ("Many cases still fail." if rate < 0.5 else ""))
            if rate < GOOD_PASS_RATE
            else ""
        )
    if verdict.decision == "saves":
        return ""
    if verdict.decision == "hurts":
        return f"{reject}."
    activation, rarely_activated = verdict.activation, ""
    if activation and activation.rate < LOW_ACTIVATION:
        times = f"{activation.activated} of {counted(activation.trials, 'trial')}"
        activated = f"the skill was activated in {times} (`upskill trigger SKILL --improve`)"
        rarely_activated = f"Improve its description: {activated}."
    if verdict.decision == "no effect":
        savings = verdict.token_savings
        costs = (
            f": it takes {-savings:.0%} more tokens"
            if savings is not None and savings < -0.005
            else ""
        )
        return " ".join(filter(None, (f"{reject}{costs}.", rarely_activated or failing)))
    if verdict.reason == UNTESTED:
        return "Generate it from a source (--from), or add your own cases with --tests."
    more = _advise_evidence(verdict)
    return (
        f"{rarely_activated} {more}"
        if rarely_activated and verdict.evidence_needed is not None
        else more
    )


def with_advice(
    verdict: Verdict, failing_tags: Sequence[str] = (), *, has_reference: bool = False
) -> Verdict:
    advice = advise(verdict, failing_tags, has_reference=has_reference)
    conclusion = conclude(verdict, has_reference=has_reference)
    return replace(verdict, advice=advice, recommendation=f"{conclusion} {advice}".rstrip())


def as_part(verdict: Verdict, part: Part, cases: int) -> Verdict:
    """Withhold the decision: hand-picked cases prove nothing about the skill."""
    why = (
        "cases that failed once tend to pass next time, edited or not (regression to the mean)"
        if part.by_outcome
        else "hand-picked cases say nothing about the rest"
    )
    advice = f"{cases} of {part.of} cases, chosen with {part.chosen}: {why}. Run all cases for a verdict."
    withheld = replace(verdict.withhold(PART), evidence_needed=None, advice=advice)
    return replace(withheld, recommendation=f"{conclude(withheld)} {advice}")


def failing_tags(
    skill: ArmOutcomes, tags: Mapping[str, Sequence[str]], limit: int = 3
) -> list[str]:
    """The tags whose cases pass less than half the time with the skill, worst first."""
    passed, tried = Counter[str](), Counter[str]()
    for trial in skill.scored:
        for tag in tags.get(trial.case, ()):
            tried[tag] += 1
            passed[tag] += bool(trial.passed)
    rates = sorted((passed[tag] / tried[tag], tag) for tag in tried)
    return [tag for rate, tag in rates if rate < 0.5][:limit]


def _advise_evidence(verdict: Verdict) -> str:
    if verdict.reason in (ISOLATION, SEARCH):
        return ""
    if verdict.reason == SNAPSHOTS:
        return "Run again with --fresh."
    if verdict.reason == CHOSEN:
        return (
            "Some cases or results from an earlier look were kept, others left out, edited or repeated. Counting all,"
            " it is undecided. Put the cases back and run with --fresh, or use new cases only."
        )
    if verdict.reason == USED:
        return "Add cases that the search has not used."
    if verdict.reason == ERRORS:
        return "Fix the errors and run again."
    if verdict.reason == UNFINISHED:
        return "Run the same command to continue." if verdict.progress else "Finish the run first."
    if verdict.missing is not None and verdict.missing.changes_decision:
        low, high = (
            signed_points(verdict.missing.worst.low),
            signed_points(verdict.missing.best.high),
        )
        # A trial that was drawn again stays so, however often the same command is run.
        again = "and run again with --fresh" if verdict.redrawn else "and run again"
        repair = f"Fix the errors {again}: they could explain it."
        if verdict.reason == DISPUTED:
            are = "is" if verdict.disputed == 1 else "are"
            repair = (
                f"{counted(verdict.disputed, 'trial')} {are} disputed, which could explain it. If files that were"
                " restored or removed are part of the work, list them in `keeps`."
            )
        return (
            f"{repair} Depending on the {verdict.unsure} trials,"
            f" the lift could be anywhere from {low} to {high} points."
        )
    if verdict.reason == "no baseline":
        return "Run the baseline too." if verdict.skill.scored else "Continue the run."
    needed = verdict.evidence_needed
    if verdict.reason == "no pairs" or needed is None:
        return "More evidence is needed."
    is_exact = verdict.these_cases is not None and verdict.these_cases.reason == SAME_ANSWERS
    if is_exact or (verdict.differs_on_these_cases and not verdict.alone and verdict.cases > 1):
        return ""  # the conclusion has said it
    more = counted(needed.cases, "more case")
    if needed.runs is not None and not verdict.repeats_itself:
        more = f"{counted(needed.runs, 'more run')} of each case, or {more},"
    return f"About {more} would settle it."
