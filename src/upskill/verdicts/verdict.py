"""A Verdict says what a skill did to one model: lift with its interval, tokens, cost, and a decision; arithmetic only.

Outcomes come in as plain rows and are paired by (case, seed). A pair counts when both of its trials were scored; an
errored trial is never a failure, never a pass and never saves a token. `docs/statistics.md` explains every number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from upskill.plain import counted
from upskill.verdicts import statistics
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.statistics import Estimate, EvidenceNeeded, Scope, Sequential

Decision = Literal["helps", "hurts", "saves", "no effect", "undecided"]
Interval = tuple[float, float]
StoppingPoint = Literal["open", "early", "last"]

MAX_ERRORS = 0.10  # share of the two arms' trials that may error before nothing can be said
LOOKING = 0.4  # share of the error that looks before a planned end may use; the last look has the rest
GOOD_ENOUGH = 0.8  # a pass rate below which a skill that helps still wants work
RARELY_OPENED = 0.5  # a share of trials below which a skill that does nothing may only want a better description
SELECTED = "Decide by the lift offered: which trials open the skill is not drawn by lot."


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """What one arm came to. Everything but `errored` is of scored trials; cost is None where a price is missing."""

    arm: str
    passed: int
    failed: int
    errored: int
    pass_rate: float | None
    interval: Interval  # Wilson's, on the effective number of trials
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None
    cost_per_pass: float | None  # None: unknown, or nothing passed
    seconds: float
    turns: float | None  # of the model, a trial; None: not known
    tool_calls: float | None  # a trial
    tool_errors: float | None  # share of the tool calls; None where there was none
    opened: int | None  # trials that opened the skill they were offered; None where none was on offer to open

    @property
    def scored(self) -> int:
        return self.passed + self.failed

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Change:
    """How a quantity changed from baseline to skill over the pairs: a pair's mean, and relative (0.2: a fifth more)."""

    mean: float
    mean_interval: Interval
    relative: float | None
    relative_interval: Interval | None


@dataclass(frozen=True, slots=True)
class Controls:
    """What the control arms say about a lift. Each is None where its arms were not run."""

    content: Estimate | None  # skill less placebo: what the words are worth
    length: Estimate | None  # placebo less baseline: what any text of that length is worth
    noise: Estimate | None  # baseline again less baseline: what nothing at all is worth


@dataclass(frozen=True, slots=True)
class Part:
    """The lift over some of the pairs."""

    pairs: int
    lift: float | None
    interval: Interval | None  # for one look, also where the verdict's own is valid under peeking


@dataclass(frozen=True, slots=True)
class Activation:
    """Whether an agent that was offered the skill opened it, and the lift where it did and where it did not.

    The arms are compared by what was offered: that is the verdict's own lift. The student decided which trials opened
    the skill, and no lot did, so the lift over those is of a selected group: it explains, and does not prove.
    """

    trials: int  # scored, with the skill on offer
    opened: int
    interval: Interval  # of the share that opened it: Wilson's, on the effective number of trials
    activated: Part
    not_activated: Part

    @property
    def rate(self) -> float:
        return self.opened / self.trials


@dataclass(frozen=True, slots=True)
class Verdict:
    """One model's decision card. Numbers that do not exist (no pairs, no price) are None."""

    model: str
    pairs: int
    cases: int
    baseline: ArmSummary
    skill: ArmSummary
    lift: float | None
    interval: Interval | None
    level: float
    margin: float
    p_value: float | None
    token_savings: float | None  # of total tokens over the pairs; positive means fewer with the skill
    input_tokens: Change | None
    output_tokens: Change | None
    total_tokens: Change | None
    cost: Change | None  # per pair; None where a price is missing
    cost_per_pass_ratio: Estimate | None  # skill over baseline; below 1 a pass got cheaper
    decision: Decision
    reason: str
    further: EvidenceNeeded | None
    recommendation: str
    break_even: float | None  # passed tasks after which making the skill has paid for itself
    controls: Controls | None
    anytime: Scope | None  # set when the interval is a confidence sequence, valid under peeking
    activation: Activation | None  # None: no skill was on offer that an agent could open

    @property
    def is_beneficial(self) -> bool:
        return self.decision in ("helps", "saves")

    @property
    def skill_lift(self) -> float | None:
        return self.lift

    @property
    def further_pairs(self) -> int | None:
        return self.further.pairs if self.further else None

    def as_json(self) -> dict[str, Any]:
        """Plain values that JSON can hold: an unbounded or undefined number is null."""
        plain: dict[str, Any] = _plain(asdict(self))
        plain["further_pairs"] = self.further_pairs
        plain["is_beneficial"] = self.is_beneficial
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# ---------------------------------------------------------------------------------------------------- pairing

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Arm:
    """The trials of one arm by (case, seed)."""

    name: str
    trials: dict[Key, Outcome]

    @property
    def scored(self) -> list[Outcome]:
        return [trial for trial in self.trials.values() if trial.passed is not None]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of scored trials in the order of case and seed."""

    labels: list[str]
    rounds: list[int]  # of each pair, its place among all seeds of its case, errored ones included
    before: list[Outcome]
    after: list[Outcome]

    def column(self, read: Callable[[Outcome], float], *, after: bool) -> statistics.Floats:
        return np.fromiter(map(read, self.after if after else self.before), dtype=np.float64, count=len(self.labels))

    @property
    def differences(self) -> statistics.Floats:
        return self.column(_passed, after=True) - self.column(_passed, after=False)

    def where(self, *, opened: bool) -> _Pairs:
        """Those whose trial with the skill opened it, or did not."""
        kept = [place for place, trial in enumerate(self.after) if trial.activated is opened]
        return _Pairs(
            [self.labels[place] for place in kept],
            [self.rounds[place] for place in kept],
            [self.before[place] for place in kept],
            [self.after[place] for place in kept],
        )


def _passed(outcome: Outcome) -> float:
    return float(bool(outcome.passed))


def _input(outcome: Outcome) -> float:
    return float(outcome.input_tokens)


def _output(outcome: Outcome) -> float:
    return float(outcome.output_tokens)


def _total(outcome: Outcome) -> float:
    return float(outcome.input_tokens + outcome.output_tokens)


def _cost(outcome: Outcome) -> float:
    return math.nan if outcome.cost_usd is None else outcome.cost_usd


def by_arm(outcomes: Iterable[Outcome]) -> dict[str, Arm]:
    arms: dict[str, Arm] = {}
    for outcome in outcomes:
        trials = arms.setdefault(outcome.arm, Arm(outcome.arm, {})).trials
        key = (outcome.case, outcome.seed)
        # A trial that was tried again has two rows; the scored one is the one that counts.
        if outcome.passed is not None or key not in trials:
            trials[key] = outcome
    return arms


def _pair(one: Arm, two: Arm) -> _Pairs:
    pairs = _Pairs([], [], [], [])
    case, place = None, 0
    for key in sorted(one.trials.keys() | two.trials.keys()):
        case, place = key[0], place + 1 if key[0] == case else 0
        before, after = one.trials.get(key), two.trials.get(key)
        if before is not None and after is not None and before.passed is not None and after.passed is not None:
            pairs.labels.append(case)
            pairs.rounds.append(place)
            pairs.before.append(before)
            pairs.after.append(after)
    return pairs


def summarise(arm: Arm, level: float) -> ArmSummary:
    scored = sorted(arm.scored, key=lambda trial: (trial.case, trial.seed))
    passed = sum(1 for trial in scored if trial.passed)
    rate = passed / len(scored) if scored else None
    cost = math.fsum(_cost(trial) for trial in scored)
    known = None if math.isnan(cost) else cost
    calls = sum(trial.calls for trial in scored)
    offered = [trial for trial in scored if trial.activated is not None]
    return ArmSummary(
        arm=arm.name,
        passed=passed,
        failed=len(scored) - passed,
        errored=len(arm.trials) - len(scored),
        pass_rate=rate,
        interval=_share([bool(trial.passed) for trial in scored], scored, level),
        input_tokens=sum(trial.input_tokens for trial in scored),
        output_tokens=sum(trial.output_tokens for trial in scored),
        cached_tokens=sum(trial.cached_tokens for trial in scored),
        cost_usd=known,
        cost_per_pass=known / passed if known is not None and passed else None,
        seconds=math.fsum(trial.seconds for trial in scored),
        turns=_mean([trial.turns for trial in scored]) or None,
        tool_calls=_mean([trial.calls for trial in scored]),
        tool_errors=sum(trial.tool_errors for trial in scored) / calls if calls else None,
        opened=sum(trial.activated is True for trial in offered) if offered else None,
    )


def _share(held: list[bool], trials: list[Outcome], level: float) -> Interval:
    """Wilson's interval of a share, on what the trials are worth together: runs of one case resemble each other."""
    worth = statistics.effective_trials(held, [trial.case for trial in trials]) if trials else 0.0
    return statistics.wilson(sum(held) / len(held) * worth if held else 0.0, worth, level=level)


def _mean(numbers: list[int]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


def _change(pairs: _Pairs, read: Callable[[Outcome], float], level: float) -> Change | None:
    before, after = pairs.column(read, after=False), pairs.column(read, after=True)
    if not pairs.labels or bool(np.isnan(before).any() or np.isnan(after).any()):
        return None
    mean = statistics.mean_change(before, after, pairs.labels, level=level)
    if not before.sum():
        return Change(mean.value, mean.interval, None, None)
    relative = statistics.relative_change(before, after, pairs.labels, level=level)
    return Change(mean.value, mean.interval, relative.value, relative.interval)


# ---------------------------------------------------------------------------------------------------- weighing


def compute_verdict(
    outcomes: Iterable[Outcome],
    *,
    baseline: str = "baseline",
    skill: str = "skill",
    level: float = 0.95,
    margin: float = 0.05,
    anytime: Scope | None = None,
    stopping_point: StoppingPoint = "open",
    making_cost: float | None = None,
    tags: Mapping[str, Sequence[str]] | None = None,
    against: bool = False,
    leaked: bool = False,
) -> Verdict:
    """Weigh the outcomes of one model: arm `skill` against arm `baseline`.

    `anytime` gives an interval that may be looked at after every round: over the tasks the cases stand for ("cases")
    or over these very cases ("suite"). A run without a planned end has `look="open"`. One that will stop after a number
    of rounds fixed beforehand looks "early" until then and "last" at the end: it gives away a little of the early looks
    to have nearly the power of a fixed plan at the end. `tags` (of each case) lets the recommendation name what fails.
    `against` says that the baseline is an older skill. One trial that saw a skill that was kept from it, here or
    (`leaked`) elsewhere in the run, leaves nothing to decide by.
    """
    rows = list(outcomes)
    models = sorted({row.model for row in rows})
    if len(models) > 1:
        raise ValueError(f"one verdict is about one model, these outcomes are of {', '.join(models)}")
    arms = by_arm(rows)
    one, two = arms.get(baseline, Arm(baseline, {})), arms.get(skill, Arm(skill, {}))
    pairs = _pair(one, two)
    first, second = summarise(one, level), summarise(two, level)
    differences = pairs.differences
    lift = interval = p_value = None
    if pairs.labels:
        estimate = statistics.paired_lift(differences, pairs.labels, level=level)
        lift, interval = estimate.value, estimate.interval
        p_value = statistics.sign_flip(differences, pairs.labels)
        if anytime is not None:
            running = _replay(pairs, differences, anytime)
            interval = _looked(
                running,
                lambda level: statistics.paired_lift(differences, pairs.labels, level=level),
                level,
                stopping_point,
            )
            p_value = _looked_p(running.p_value, p_value, stopping_point)
    total = _change(pairs, _total, level)
    verdict = Verdict(
        model=models[0] if models else "",
        pairs=len(pairs.labels),
        cases=len(set(pairs.labels)),
        baseline=first,
        skill=second,
        lift=lift,
        interval=interval,
        level=level,
        margin=margin,
        p_value=p_value,
        token_savings=-total.relative if total and total.relative is not None else None,
        input_tokens=_change(pairs, _input, level),
        output_tokens=_change(pairs, _output, level),
        total_tokens=total,
        cost=_change(pairs, _cost, level),
        cost_per_pass_ratio=_cost_ratio(pairs, level),
        decision="undecided",
        reason="",
        further=None,
        recommendation="",
        break_even=_break_even(first, second, making_cost),
        controls=_controls(arms, baseline, skill, level),
        anytime=anytime,
        activation=_activation(two, pairs, level),
    )
    leaked = leaked or any(row.leaked for row in rows)
    decision, reason = (
        ("undecided", "isolation") if leaked else _decide(verdict, _cheaper(pairs, verdict, stopping_point))
    )
    verdict = replace(verdict, decision=decision, reason=reason)
    if decision == "undecided" and pairs.labels and reason not in ("isolation", "errors"):
        more = statistics.evidence_needed(differences, pairs.labels, margin=margin, level=level, anytime=anytime)
        verdict = replace(verdict, further=more)
    return replace(verdict, recommendation=_recommend(verdict, _failing_tags(two, tags or {}), against))


def _activation(skill: Arm, pairs: _Pairs, level: float) -> Activation | None:
    offered = sorted(
        (trial for trial in skill.scored if trial.activated is not None), key=lambda trial: (trial.case, trial.seed)
    )
    if not offered:
        return None
    opened = [trial.activated is True for trial in offered]
    parts = (_part(pairs.where(opened=True), level), _part(pairs.where(opened=False), level))
    return Activation(len(offered), sum(opened), _share(opened, offered, level), *parts)


def _part(pairs: _Pairs, level: float) -> Part:
    if not pairs.labels:
        return Part(0, None, None)
    found = statistics.paired_lift(pairs.differences, pairs.labels, level=level)
    return Part(len(pairs.labels), found.value, found.interval)


def _replay(pairs: _Pairs, values: statistics.Floats, scope: Scope) -> Sequential:
    """Look after every round, as was or might have been done while the run was going on."""
    running = Sequential(scope)
    by_round: dict[int, dict[str, float]] = {}
    for label, place, value in zip(pairs.labels, pairs.rounds, values.tolist(), strict=True):
        by_round.setdefault(place, {})[label] = value
    for place in sorted(by_round):
        running.update(by_round[place])
    return running


def _looked(running: Sequential, fixed: Callable[[float], Estimate], level: float, look: StoppingPoint) -> Interval:
    """The interval at this look. Before a planned end the error is divided, so that all looks together keep to it."""
    if look == "open":
        return running.interval(level)
    low, high = running.interval(1.0 - LOOKING * (1.0 - level))
    if look == "last":
        end = fixed(1.0 - (1.0 - LOOKING) * (1.0 - level))
        low, high = max(low, min(end.low, high)), min(high, max(end.high, low))
    return low, high


def _looked_p(running: float, fixed: float, look: StoppingPoint) -> float:
    if look == "open":
        return running
    early = min(1.0, running / LOOKING)
    return early if look == "early" else min(early, fixed / (1.0 - LOOKING))


def _cost_ratio(pairs: _Pairs, level: float) -> Estimate | None:
    before, after = pairs.column(_cost, after=False), pairs.column(_cost, after=True)
    if not pairs.labels or math.isnan(before.sum() + after.sum()) or not (before.sum() and after.sum()):
        return None
    passed = pairs.column(_passed, after=False), pairs.column(_passed, after=True)
    ratio = statistics.cost_per_pass_ratio(before, passed[0], after, passed[1], pairs.labels, level=level)
    return None if math.isnan(ratio.value) else ratio


def _cheaper(pairs: _Pairs, verdict: Verdict, look: StoppingPoint) -> str:
    """What the skill saves beyond doubt: "tokens", "cost per pass", or nothing."""
    if not pairs.labels:
        return ""
    before, after = pairs.column(_total, after=False), pairs.column(_total, after=True)
    whole = before + after
    saved = np.divide(before - after, whole, out=np.zeros_like(whole), where=whole > 0)
    if verdict.anytime is not None:
        # The saving as a share of both arms' tokens lies in [-1, 1], so the same bets can be made on it.
        def fixed(level: float) -> Estimate:
            return statistics.paired_lift(saved, pairs.labels, level=level)

        return "tokens" if _looked(_replay(pairs, saved, verdict.anytime), fixed, verdict.level, look)[0] > 0 else ""
    # Intervals of few cases are too sure of themselves where cases hardly differ; the sign-flip test is not.
    if statistics.sign_flip(np.sign(saved), pairs.labels) <= 1.0 - verdict.level:
        relative = verdict.total_tokens.relative_interval if verdict.total_tokens else None
        if relative is not None and relative[1] < 0:
            return "tokens"
    ratio = verdict.cost_per_pass_ratio
    return "cost per pass" if ratio is not None and ratio.high < 1 and verdict.cases >= 6 else ""


def _decide(verdict: Verdict, cheaper: str) -> tuple[Decision, str]:
    trials = sum(arm.scored + arm.errored for arm in (verdict.baseline, verdict.skill))
    errored = verdict.baseline.errored + verdict.skill.errored
    if trials and errored > MAX_ERRORS * trials:
        return "undecided", "errors"
    if not verdict.baseline.scored + verdict.baseline.errored:
        return "undecided", "no baseline"
    if verdict.interval is None:
        return "undecided", "no pairs"
    low, high = verdict.interval
    if low > 0:
        return "helps", "the interval of the lift is above 0"
    if high < 0:
        return "hurts", "the interval of the lift is below 0"
    if low >= -verdict.margin and cheaper:
        return "saves", f"not worse by more than the margin, and {cheaper} lower beyond doubt"
    if -verdict.margin <= low and high <= verdict.margin:
        return "no effect", "the interval of the lift is within the margin"
    return (
        "undecided",
        "one case" if verdict.cases == 1 else "the interval of the lift holds both 0 and more than the margin",
    )


def _break_even(baseline: ArmSummary, skill: ArmSummary, making_cost: float | None) -> float | None:
    if making_cost is None or baseline.cost_per_pass is None or skill.cost_per_pass is None:
        return None
    saved = baseline.cost_per_pass - skill.cost_per_pass
    return making_cost / saved if saved > 0 else None


def _controls(arms: Mapping[str, Arm], baseline: str, skill: str, level: float) -> Controls | None:
    def less(one: str, two: str) -> Estimate | None:
        if one not in arms or two not in arms:
            return None
        pairs = _pair(arms[two], arms[one])
        return statistics.paired_lift(pairs.differences, pairs.labels, level=level) if pairs.labels else None

    if not {"placebo", "baseline_repeat"} & arms.keys():
        return None
    return Controls(less(skill, "placebo"), less("placebo", baseline), less("baseline_repeat", baseline))


# ---------------------------------------------------------------------------------------------------- words


def points(share: float) -> str:
    """A share as signed points: +55."""
    whole = round(100 * share)
    return f"{whole:+d}" if whole else "0"


def _failing_tags(skill: Arm, tags: Mapping[str, Sequence[str]], most: int = 3) -> list[str]:
    """The tags whose cases pass less than half of the time with the skill, worst first."""
    passed, tried = Counter[str](), Counter[str]()
    for trial in skill.scored:
        for tag in tags.get(trial.case, ()):
            tried[tag] += 1
            passed[tag] += bool(trial.passed)
    rates = sorted((passed[tag] / tried[tag], tag) for tag in tried)
    return [tag for rate, tag in rates if rate < 0.5][:most]


def _recommend(verdict: Verdict, failing: list[str], against: bool) -> str:
    iterate = f" Iterate: cases tagged {', '.join(failing)} still fail." if failing else ""
    lift = ""
    if verdict.lift is not None and verdict.interval is not None:
        low, high = verdict.interval
        over = counted(verdict.pairs, "pair")
        lift = f"{points(verdict.lift)} points ({points(low)} to {points(high)}) over {over}"
    leave = "Keep the older one" if against else "Do not use it with this model"
    if verdict.decision == "helps":
        rate = verdict.skill.pass_rate or 0.0
        more = iterate or (" Iterate: many cases still fail." if rate < 0.5 else "")
        use = "Use it in place of the older one" if against else "Use it"
        return f"{use}: {lift}.{more if rate < GOOD_ENOUGH else ''}"
    if verdict.decision == "saves":
        as_good = f"Use it: as good as {'the older one' if against else 'without it'}"
        if verdict.token_savings is not None and verdict.reason.endswith("tokens lower beyond doubt"):
            return f"{as_good}, with {verdict.token_savings:.0%} fewer tokens."
        return f"{as_good}, and a passed task costs less."
    if verdict.decision == "hurts":
        return f"{leave}: {lift}."
    unopened = _rarely_opened(verdict)
    if verdict.decision == "no effect":
        extra = verdict.token_savings
        cost = f" and it takes {-extra:.0%} more tokens" if extra is not None and extra < -0.005 else ""
        nothing = f"{leave}: it changes nothing by more than {100 * verdict.margin:g} points{cost}."
        return f"{nothing} {unopened}" if unopened else f"{nothing}{iterate}"
    more = _recommend_more(verdict)
    return f"{unopened} {more}" if unopened and verdict.further is not None else more


def _rarely_opened(verdict: Verdict) -> str:
    """What to do about a skill that had little chance to do anything."""
    found = verdict.activation
    if found is None or found.rate >= RARELY_OPENED:
        return ""
    opened = f"the skill was opened in {found.opened} of {counted(found.trials, 'trial')}"
    return f"Improve its description: {opened} (`upskill trigger SKILL --improve`)."


def _recommend_more(verdict: Verdict) -> str:
    if verdict.reason == "isolation":
        return "Use none of these numbers: the arms were not apart, so none of them means anything."
    if verdict.reason == "errors":
        errored = verdict.baseline.errored + verdict.skill.errored
        trials = counted(verdict.baseline.scored + verdict.skill.scored + errored, "trial")
        return f"Repair the errors and run again: {errored} of {trials} errored, too many to say anything."
    if verdict.reason == "no baseline":
        return "Run the baseline too: without it there is no lift."
    if verdict.reason == "no pairs" or verdict.further is None:
        return "More evidence: no case was scored in both arms."
    further = verdict.further
    more = counted(further.cases, "more case")
    if further.runs is not None:
        more = f"{counted(further.runs, 'more run')} of each case, or {more}"
    return f"More evidence: about {counted(further.pairs, 'further pair')} ({more}) would settle it."
