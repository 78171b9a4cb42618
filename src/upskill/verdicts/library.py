"""Decisions about many skills and models at once, of which few may be wrong.

Of a library of 200 skills without effect, ten would look helpful at a level of 95 % each. So the false-discovery rate
of all decisions together is controlled, by the e-BH procedure (Wang and Ramdas, 2022) on the wealth of sequential
tests. It is the simplest procedure that is valid here: an e-value may be read whenever one stops, even where the
results of other skills decide who gets the next round, and e-BH needs no independence. Benjamini and Hochberg's needs
both a fixed end and independence of its p-values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from upskill.verdicts import arms
from upskill.verdicts.arms import ArmOutcomes, Pairs, by_arm, fill_in, pair_arms
from upskill.verdicts.compute import replay_rounds
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import Decision

FALSE_DISCOVERY_RATE = 0.05
# At most so many claims are false at once: that a skill helps, that it saves, and that it hurts. Where "no effect" is
# false, one e-value bounds its own and that of the claim in the wrong direction.
WAYS_TO_ERR = 3
# What is said first where several hold.
CLAIMS: tuple[Decision, ...] = ("hurts", "helps", "saves", "no effect")


def log_e_values(
    outcomes: Iterable[Outcome],
    tolerance: float,
    twins: Mapping[str, str] | None = None,
    times: float = 1.0,
) -> dict[Decision, float]:
    """For each claim about exactly these cases, the logarithm of its e-value: how much speaks for it.

    Assumes complete rounds. What errored, was drawn again or is disputed counts against each claim. `times`: what it
    would be with so many times the rounds, all like those so far.
    """
    by_name = by_arm(outcomes)
    baseline, skill = (by_name.get(name, ArmOutcomes(name, {})) for name in ("baseline", "skill"))
    trials = [*baseline.trials.values(), *skill.trials.values()]
    if any(trial.passed is None or trial.redraws or trial.cause == "disputed" for trial in trials):
        possible = [
            fill_in(baseline, skill, twins, against_skill=against) for against in (True, False)
        ]
    else:
        possible = [pair_arms(baseline, skill, twins)]
    weighed = [_weigh(pairs, tolerance, times) for pairs in possible]
    return {claim: min(each[claim] for each in weighed) for claim in CLAIMS}


def _weigh(pairs: Pairs, tolerance: float, times: float) -> dict[Decision, float]:
    """A claim with two parts has the smaller of both e-values."""
    before, after = (pairs.column(arms.total_tokens, after=each) for each in (False, True))
    longer = [max(1.0, *each) for each in zip(before.tolist(), after.tolist(), strict=True)]
    lift = replay_rounds(pairs, pairs.differences, "suite")
    saving = replay_rounds(pairs, (before - after) / longer, "suite")
    not_worse = lift.log_e_value(-tolerance, above=True, times=times)
    return {
        "hurts": lift.log_e_value(0.0, above=False, times=times),
        "helps": lift.log_e_value(0.0, above=True, times=times),
        "saves": min(not_worse, saving.log_e_value(0.0, above=True, times=times)),
        "no effect": min(not_worse, lift.log_e_value(tolerance, above=False, times=times)),
    }


def needed_for(decisions: int, of: int) -> float:
    """The logarithm of the e-value that each of so many decisions needs, of so many that there could be."""
    return math.log(WAYS_TO_ERR * of / (FALSE_DISCOVERY_RATE * decisions))


def decide_all(evidence: Sequence[Mapping[Decision, float]]) -> list[Decision]:
    """A decision for each, from its logarithms of e-values: as many as can be made together."""
    strongest = sorted((max(each.values(), default=-math.inf) for each in evidence), reverse=True)
    counts = [
        count
        for count, value in enumerate(strongest, 1)
        if value >= needed_for(count, len(evidence))
    ]
    needed = needed_for(counts[-1], len(evidence)) if counts else math.inf
    first: list[Decision | None] = [
        next((claim for claim in CLAIMS if each.get(claim, -math.inf) >= needed), None)
        for each in evidence
    ]
    return [claim or "undecided" for claim in first]
