"""From outcomes to verdicts. `docs/statistics.md` explains every number."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from upskill.verdicts import LEVEL_OF_TASKS, LEVEL_OF_THESE
from upskill.verdicts.arms import (
    ArmOutcomes,
    Pair,
    by_arm,
    case_group,
    count_missing,
    fill_excess,
    mean_pass_rate,
    pair_arms,
    pass_rate,
    summarize_arm,
    total_tokens,
)
from upskill.verdicts.interval import Estimate, paired_lift, rounded, rounded_interval
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.planning import best_lift, cases_to_add
from upskill.verdicts.verdict import (
    OBSTACLES,
    About,
    Activation,
    Change,
    Controls,
    Decision,
    Reading,
    Reason,
    Verdict,
    VerdictOptions,
)


def compute_verdicts(
    outcomes: Iterable[Outcome], options: VerdictOptions | None = None, models: Iterable[str] = ()
) -> list[Verdict]:
    """A verdict for each model, in the order of `models` or else by name."""
    options = options or VerdictOptions()
    rows: dict[str, list[Outcome]] = {model: [] for model in models}
    for outcome in sorted(outcomes, key=lambda row: (row.model, row.case, row.seed)):
        rows.setdefault(outcome.model, []).append(outcome)
    weighings = {model: _Weighing.of(model, own, options) for model, own in rows.items()}
    these = _read_together(weighings, "these", options)
    tasks = _read_together(weighings, "tasks", options)
    return [
        _verdict(weighing, these[model], tasks.get(model), options)
        for model, weighing in weighings.items()
    ]


def compute_verdict(
    outcomes: Iterable[Outcome], options: VerdictOptions | None = None, model: str = ""
) -> Verdict:
    rows = list(outcomes)
    found = sorted({row.model for row in rows}) or [model]
    if len(found) > 1:
        raise ValueError(f"one model at a time, but these outcomes come from {', '.join(found)}")
    return compute_verdicts(rows, options, found)[0]


def compute_splits(
    outcomes: Iterable[Outcome], options: VerdictOptions, levels: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """Of some of the cases, for each model and its level: no more than what a table by tag shows."""
    rows = list(outcomes)
    splits: dict[str, dict[str, Any]] = {}
    for model, level in levels.items():
        weighing = _Weighing.of(model, [row for row in rows if row.model == model], options)
        lift = weighing.weigh_lift("these", level)
        splits[model] = {
            "pairs": len(weighing.pairs),
            "baseline": rounded(mean_pass_rate(weighing.baseline.scored)),
            "skill": rounded(mean_pass_rate(weighing.skill.scored)),
            "lift": lift and rounded(lift.value),
            "interval": lift and rounded_interval(lift.interval),
        }
    return splits


def _read_together(
    weighings: Mapping[str, _Weighing], about: About, options: VerdictOptions
) -> dict[str, Reading]:
    """The readings of all models. They share the error as Holm does: who decides leaves more to the others."""
    readings: dict[str, Reading] = {}
    sharing: list[_Weighing] = []
    for model, weighing in weighings.items():
        if about == "tasks" and not weighing.fresh:
            continue
        if weighing.can_decide:
            sharing.append(weighing)
        else:
            readings[model] = weighing.read(about, weighing.level(about, options), options)
    while sharing:
        shared = 1.0 - (1.0 - LEVEL_OF_TASKS) / len(sharing)
        open_ones: list[_Weighing] = []
        for weighing in sharing:
            level = max(shared, weighing.level(about, options))
            reading = weighing.read(about, level, options)
            readings[weighing.model] = reading
            if reading.decision not in ("helps", "hurts"):
                open_ones.append(weighing)
        if len(open_ones) == len(sharing):
            break
        sharing = open_ones
    return readings


@dataclass(frozen=True, slots=True)
class _Weighing:
    """One model's outcomes, ready to be read in two ways."""

    model: str
    by_name: Mapping[str, ArmOutcomes]
    baseline: ArmOutcomes
    skill: ArmOutcomes
    pairs: list[Pair]
    fresh: frozenset[str]
    is_exact: bool
    obstacle: Reason | None

    @classmethod
    def of(cls, model: str, rows: Sequence[Outcome], options: VerdictOptions) -> _Weighing:
        by_name = by_arm(rows)
        baseline = by_name.get("baseline", ArmOutcomes("baseline", {}))
        skill = by_name.get("skill", ArmOutcomes("skill", {}))
        obstacle = None
        if options.isolation_broken or any(row.leaked for row in rows):
            obstacle = Reason.ISOLATION
        elif not options.has_baseline or not (baseline.trials or model in options.unfinished):
            obstacle = Reason.NO_BASELINE
        elif model in options.unfinished:
            obstacle = Reason.UNFINISHED
        cases = {row.case for row in rows}
        return cls(
            model=model,
            by_name=by_name,
            baseline=baseline,
            skill=skill,
            pairs=pair_arms(baseline, skill),
            fresh=frozenset(cases if options.fresh is None else cases & options.fresh),
            is_exact=model in options.exact,
            obstacle=obstacle,
        )

    @property
    def can_decide(self) -> bool:
        return self.obstacle is None and bool(self.pairs)

    def level(self, about: About, options: VerdictOptions) -> float:
        if not self.is_exact and (options.in_rounds or about == "these"):
            return LEVEL_OF_THESE
        return LEVEL_OF_TASKS

    def unit(self, about: About, trial: Outcome) -> Hashable:
        """What counts as independent: a group of cases, a case, or a draw."""
        if about == "tasks":
            return case_group(trial)
        return trial.case if self.is_exact else (trial.case, trial.seed)

    def units(self, about: About, pairs: Sequence[Pair]) -> list[Hashable]:
        return [self.unit(about, pair.after) for pair in pairs]

    def read(self, about: About, level: float, options: VerdictOptions) -> Reading:
        baseline, skill, pairs = self.select(about)
        reason = self.obstacle
        if reason is None and (baseline.misses_too_many or skill.misses_too_many or not pairs):
            reason = Reason.ERRORS
        lift = self.weigh_lift(about, level)
        decision: Decision = "undecided"
        units = self.units(about, pairs)
        if reason is None and lift is not None:
            decision = self._decide(about, lift, pairs, options.tolerance)
            if decision == "undecided":
                few = best_lift(len(set(units)), level) <= 0
                reason = Reason.TOO_FEW_CASES if few else Reason.NOT_ENOUGH_EVIDENCE
        return Reading(
            about=about,
            decision=decision,
            reason=reason,
            lift=lift.value if lift else None,
            interval=lift.interval if lift else None,
            level=level,
            cases=len({pair.case for pair in pairs}),
            units=len(set(units)),
            pass_rate=pass_rate(
                skill.scored, level=level, unit=lambda trial: self.unit(about, trial)
            ),
        )

    def select(self, about: About) -> tuple[ArmOutcomes, ArmOutcomes, list[Pair]]:
        """What the answer to this question rests on."""
        if about == "these":
            return self.baseline, self.skill, self.pairs
        pairs = [pair for pair in self.pairs if pair.case in self.fresh]
        return self.baseline.of_cases(self.fresh), self.skill.of_cases(self.fresh), pairs

    def weigh_lift(self, about: About, level: float) -> Estimate | None:
        """The lift of complete pairs. What one arm misses in excess counts against each claim."""
        baseline, skill, pairs = self.select(about)
        if not pairs:
            return None
        lift = self._interval(about, pairs, level)
        missing = count_missing(baseline, skill)
        if not missing.excess:
            return lift
        worst = pairs + fill_excess(baseline, skill, missing, against_skill=True)
        best = pairs + fill_excess(baseline, skill, missing, against_skill=False)
        low = min(lift.low, self._interval(about, worst, level).low)
        high = max(lift.high, self._interval(about, best, level).high)
        return replace(lift, low=low, high=high)

    def _interval(self, about: About, pairs: Sequence[Pair], level: float) -> Estimate:
        differences = [pair.difference for pair in pairs]
        return paired_lift(differences, self.units(about, pairs), level=level)

    def _decide(
        self, about: About, lift: Estimate, pairs: Sequence[Pair], tolerance: float
    ) -> Decision:
        if lift.low > 0:
            return "helps"
        if lift.high < 0:
            return "hurts"
        if about == "tasks" or lift.low < -tolerance:
            return "undecided"
        savings = [pair.saving for pair in pairs]
        if paired_lift(savings, self.units(about, pairs), level=lift.level).low > 0:
            return "saves"
        return "no effect" if lift.high <= tolerance else "undecided"


def _verdict(
    weighing: _Weighing, these: Reading, tasks: Reading | None, options: VerdictOptions
) -> Verdict:
    heading, other = these, tasks
    if tasks is not None and tasks.decision != "undecided":
        heading, other = tasks, these
    elif these.reason not in OBSTACLES:
        add = _cases_to_add(weighing, these, tasks)
        if tasks is None:
            heading = replace(these, add=add)
        else:
            other = replace(tasks, add=add)
    baseline, skill = summarize_arm(weighing.baseline), summarize_arm(weighing.skill)
    pairs = weighing.pairs
    costs = baseline.cost_per_pass, skill.cost_per_pass
    saved = costs[0] - costs[1] if costs[0] is not None and costs[1] is not None else 0.0
    break_even = None
    if options.making_cost is not None and saved > 0:
        break_even = options.making_cost / saved
    return Verdict(
        model=weighing.model,
        heading=heading,
        other=other,
        tolerance=options.tolerance,
        exact=weighing.is_exact,
        pairs=len(pairs),
        baseline=baseline,
        skill=skill,
        input_tokens=_change(pairs, lambda trial: trial.input_tokens),
        output_tokens=_change(pairs, lambda trial: trial.output_tokens),
        total_tokens=_change(pairs, total_tokens),
        cost=_change(pairs, lambda trial: trial.cost_usd),
        break_even=break_even,
        controls=_controls(weighing),
        activation=_activation(weighing),
        missing=count_missing(weighing.baseline, weighing.skill),
        caveats=options.caveats,
        progress=options.unfinished.get(weighing.model),
    )


def _cases_to_add(weighing: _Weighing, these: Reading, tasks: Reading | None) -> int | None:
    """Fresh cases that probably show half the lift of all cases."""
    if these.lift is None or these.lift <= 0 or these.decision == "no effect":
        return None
    draws = len(weighing.pairs) / max(1, these.cases)
    rate = sum(pair.before.passed is True for pair in weighing.pairs) / len(weighing.pairs)
    return cases_to_add(these.lift / 2, tasks.units if tasks else 0, round(draws) or 1, rate)


def _change(pairs: Sequence[Pair], read: Callable[[Outcome], float | None]) -> Change | None:
    before = [read(pair.before) for pair in pairs]
    after = [read(pair.after) for pair in pairs]
    if not pairs or None in before or None in after:
        return None
    return Change(sum(filter(None, before)), sum(filter(None, after)))


def _activation(weighing: _Weighing) -> Activation | None:
    offered = [trial for trial in weighing.skill.scored if trial.activated is not None]
    share = pass_rate(offered, read=lambda trial: trial.activated is True)
    if share is None:
        return None
    split = [
        [pair.difference for pair in weighing.pairs if pair.after.activated is activated]
        for activated in (True, False)
    ]
    lifts = [sum(differences) / len(differences) if differences else None for differences in split]
    return Activation(
        trials=len(offered),
        activated=sum(trial.activated is True for trial in offered),
        interval=share.interval,
        pairs=(len(split[0]), len(split[1])),
        lifts=(lifts[0], lifts[1]),
    )


def _controls(weighing: _Weighing) -> Controls | None:
    by_name = weighing.by_name

    def lift(after: str, before: str) -> Estimate | None:
        if after not in by_name or before not in by_name:
            return None
        pairs = pair_arms(by_name[before], by_name[after])
        if not pairs:
            return None
        units = weighing.units("these", pairs)
        differences = [pair.difference for pair in pairs]
        return paired_lift(differences, units, level=LEVEL_OF_THESE)

    if not {"placebo", "baseline_repeat"} & by_name.keys():
        return None
    return Controls(
        content=lift("skill", "placebo"),
        length=lift("placebo", "baseline"),
        noise=lift("baseline_repeat", "baseline"),
    )
