"""What missing trials may hide: the same comparison with each of them gone against the skill, and for it.

A trial is missing when it errored, and also when its case and seed were run in the other arm alone, as in a run that is
not finished: slow failures would vanish in the same way.

What is missing is not always missing at random. A skill that turns failures into errors would look better than it is,
so a decision has to hold whatever the errored trials would have shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from upskill.record import record
from upskill.verdicts import statistics
from upskill.verdicts.arms import ArmOutcomes, Key, Pairs, pair_arms
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.statistics import Estimate

MAX_ERROR_RATE = 0.10  # share of an arm's trials that may error before nothing can be decided
SUSPICIOUS = 0.05  # the p-value from which on error rates differ beyond chance


@record
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
    """All pairs of which either trial was run, with an extreme result in place of every one that is missing.

    Against the skill, a missing trial with it failed and took as many tokens as the longest; one of the baseline
    passed with as few as the shortest.
    """
    scored = [*before.scored, *after.scored]
    longest = max(scored, key=_tokens, default=None)
    shortest = min(scored, key=_tokens, default=None)
    stand_ins = (shortest, longest) if against_skill else (longest, shortest)
    return pair_arms(
        _filled(before, after, stand_ins[0], passed=against_skill),
        _filled(after, before, stand_ins[1], passed=not against_skill),
        twins,
    )


def count_unpaired(before: ArmOutcomes, after: ArmOutcomes) -> tuple[int, int]:
    """How many of the pairs have one trial that was never run, and how many pairs there are."""
    return len(before.trials.keys() ^ after.trials.keys()), len(before.trials.keys() | after.trials.keys())


def error_p_value(before: ArmOutcomes, after: ArmOutcomes) -> float:
    """The exact two-sided p-value of "both arms error alike", flipping the sign of whole cases."""
    keys = sorted(before.trials.keys() & after.trials.keys())
    more = [_errored(after, key) - _errored(before, key) for key in keys]
    return statistics.sign_flip_p_value(more, [case for case, _ in keys]) if keys else 1.0


def _filled(arm: ArmOutcomes, other: ArmOutcomes, like: Outcome | None, *, passed: bool) -> ArmOutcomes:
    def stand_in(trial: Outcome) -> Outcome:
        if like is None:
            return trial
        tokens = {"input_tokens": like.input_tokens, "output_tokens": like.output_tokens}
        return replace(trial, arm=arm.name, passed=passed, cost_usd=like.cost_usd, **tokens)

    known = {key: trial if trial.passed is not None else stand_in(trial) for key, trial in arm.trials.items()}
    never_run = {key: stand_in(trial) for key, trial in other.trials.items() if key not in known}
    return ArmOutcomes(arm.name, known | never_run)


def _errored(arm: ArmOutcomes, key: Key) -> int:
    return arm.trials[key].passed is None


def _tokens(outcome: Outcome) -> int:
    return outcome.input_tokens + outcome.output_tokens
