"""What errored trials may hide: the same comparison with each of them gone against the skill, and for it.

What is missing is not always missing at random. A skill that turns failures into errors would look better than it is,
so a decision has to hold whatever the errored trials would have shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from upskill.verdicts import statistics
from upskill.verdicts.arms import ArmOutcomes, Key, Pairs, pair_arms
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.statistics import Estimate

MAX_ERROR_RATE = 0.10  # share of an arm's trials that may error before nothing can be decided
SUSPICIOUS = 0.05  # the p-value from which on error rates differ beyond chance


@dataclass(frozen=True, slots=True)
class Missing:
    """The lift at both extremes of what the errored trials might have shown."""

    worst: Estimate  # each missing trial with the skill failed, each missing one of the baseline passed
    best: Estimate  # the reverse
    p_value: float  # of "both arms error alike", flipping whole cases
    changes_decision: bool  # at one of the extremes the decision would not hold

    @property
    def arms_differ(self) -> bool:
        return self.p_value <= SUSPICIOUS


def fill_in(
    before: ArmOutcomes, after: ArmOutcomes, twins: Mapping[str, str] | None = None, *, against_skill: bool
) -> Pairs:
    """All pairs that were tried in both arms, with an extreme result in place of every error.

    Against the skill, a missing trial with it failed and took as many tokens as the longest; one of the baseline
    passed with as few as the shortest.
    """
    scored = [*before.scored, *after.scored]
    longest = max(scored, key=_tokens, default=None)
    shortest = min(scored, key=_tokens, default=None)
    stand_ins = (shortest, longest) if against_skill else (longest, shortest)
    return pair_arms(
        _filled(before, stand_ins[0], passed=against_skill),
        _filled(after, stand_ins[1], passed=not against_skill),
        twins,
    )


def error_p_value(before: ArmOutcomes, after: ArmOutcomes) -> float:
    """The exact two-sided p-value of "both arms error alike", flipping the sign of whole cases."""
    keys = sorted(before.trials.keys() & after.trials.keys())
    more = [_errored(after, key) - _errored(before, key) for key in keys]
    return statistics.sign_flip_p_value(more, [case for case, _ in keys]) if keys else 1.0


def _filled(arm: ArmOutcomes, like: Outcome | None, *, passed: bool) -> ArmOutcomes:
    def known(trial: Outcome) -> Outcome:
        if trial.passed is not None or like is None:
            return trial
        return replace(
            trial,
            passed=passed,
            input_tokens=like.input_tokens,
            output_tokens=like.output_tokens,
            cost_usd=like.cost_usd,
        )

    return ArmOutcomes(arm.name, {key: known(trial) for key, trial in arm.trials.items()})


def _errored(arm: ArmOutcomes, key: Key) -> int:
    return arm.trials[key].passed is None


def _tokens(outcome: Outcome) -> int:
    return outcome.input_tokens + outcome.output_tokens
