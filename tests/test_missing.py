"""What is missing is not random: beyond chance it counts against a claim, in whichever arm; alike it costs nothing."""

from __future__ import annotations

import numpy as np
import pytest

from test_verdict import alike, both, weigh
from upskill.verdicts.arms import by_arm, count_missing
from upskill.verdicts.compute import compute_verdict
from upskill.verdicts.interval import paired_lift
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import Verdict, VerdictOptions

# Eight of 36 cases won: enough by little.
WON = alike(8, "F", "P") | alike(28, "P", "P", "same")
LOST = {case: (after, before) for case, (before, after) in WON.items()}


def interval_of(*differences: float) -> tuple[float, float]:
    return paired_lift(differences, range(len(differences)), level=0.95).interval


def lost_calls(before: int, after: int) -> dict[str, tuple[str, str]]:
    """Cases that pass, and of which one arm has no answer."""
    return alike(before, "E", "P", "before") | alike(after, "P", "E", "after")


@pytest.mark.parametrize(
    ("before", "after", "excess"),
    [
        (0, 0, 0),
        (0, 2, 0),  # p = 2/4
        (0, 3, 3),  # p = 2/8
        (3, 0, 3),
        (1, 4, 0),  # p = 12/32
        (1, 5, 4),  # p = 14/64
        (4, 9, 0),  # p = 0.27
        (4, 10, 6),  # p = 0.18
        (9, 9, 0),
    ],
)
def test_an_arm_misses_more_where_chance_would_do_it_in_a_quarter_of_runs_or_less(
    before: int, after: int, excess: int
) -> None:
    rows = both(alike(80, "P", "P") | lost_calls(before, after))
    arms = by_arm(rows)
    found = count_missing(arms["baseline"], arms["skill"])
    assert (found.baseline, found.skill, found.excess) == (before, after, excess)
    assert compute_verdict(rows).to_dict()["missing"] == found.to_dict()


def test_missing_answers_of_the_skill_count_as_failures_against_helps() -> None:
    found = weigh(WON | lost_calls(0, 3))
    assert found.tasks is not None
    assert found.tasks.interval is not None
    complete, worst = interval_of(*[1] * 8, *[0] * 28), interval_of(*[1] * 8, *[0] * 28, *[-1] * 3)
    assert complete[0] > 0 > worst[0]
    assert found.tasks.interval == pytest.approx((worst[0], complete[1]), abs=1e-9)
    assert found.tasks.lift == pytest.approx(8 / 36), "of complete pairs"
    assert (found.decision, found.reason) == ("undecided", "not enough evidence")
    assert weigh(WON).decision == weigh(WON | lost_calls(0, 2)).decision == "helps"


def test_missing_answers_of_the_baseline_count_as_passes_against_helps() -> None:
    """Where the skill failed, they would have been lost; where it passed, they were no gain."""
    lost = alike(3, "E", "F", "before")
    found = weigh(WON | lost)
    assert found.tasks is not None
    assert found.tasks.interval is not None
    worst = interval_of(*[1] * 8, *[0] * 28, *[-1] * 3)
    assert found.tasks.interval[0] == pytest.approx(worst[0], abs=1e-9)
    assert found.decision == "undecided"
    no_gain = weigh(WON | lost_calls(3, 0))
    assert no_gain.interval is not None
    assert no_gain.interval[0] == pytest.approx(interval_of(*[1] * 8, *[0] * 31)[0], abs=1e-9)


@pytest.mark.parametrize("cases", [alike(3, "E", "P", "x"), alike(3, "F", "E", "x")])
def test_the_same_counts_against_hurts(cases: dict[str, tuple[str, str]]) -> None:
    found = weigh(LOST | cases)
    assert found.tasks is not None
    assert found.tasks.interval is not None
    best = interval_of(*[-1] * 8, *[0] * 28, *[1] * 3)
    assert found.tasks.interval[1] == pytest.approx(best[1], abs=1e-9)
    assert (found.decision, weigh(LOST).decision) == ("undecided", "hurts")


def test_only_as_many_are_set_as_one_arm_misses_in_excess_and_where_they_hurt_most() -> None:
    """Six of the skill's are missing and one of the baseline's: five are set, those first that the baseline passed."""
    missing = alike(3, "P", "E", "x") | alike(3, "F", "E", "y") | {"z": ("E", "P")}
    found = weigh(alike(40, "F", "P") | missing)
    assert found.missing.excess == 5
    assert found.tasks is not None
    assert found.tasks.interval is not None
    worst = interval_of(*[1] * 40, *[-1] * 3, *[0] * 2)
    assert found.tasks.interval[0] == pytest.approx(worst[0], abs=1e-9)


def test_failing_alike_costs_nothing_but_the_pairs() -> None:
    found = weigh(WON | lost_calls(3, 3))
    plain = weigh(WON)
    assert (found.lift, found.interval, found.decision) == (plain.lift, plain.interval, "helps")
    assert (found.pairs, found.missing.baseline, found.missing.skill) == (36, 3, 3)


@pytest.mark.parametrize(
    ("cases", "missing", "reason"),
    [
        (8, 2, None),  # a fifth, but two
        (8, 3, "errors"),
        (17, 3, None),  # 3 of 20 are 15 %
        (16, 3, "errors"),  # 3 of 19 are more
        (0, 2, "errors"),  # nothing is left
    ],
)
@pytest.mark.parametrize("arm", ["baseline", "skill"])
def test_over_fifteen_percent_of_an_arm_and_more_than_two_decide_nothing(
    arm: str, cases: int, missing: int, reason: str | None
) -> None:
    without = ("F", "E") if arm == "skill" else ("E", "P")
    found = weigh(alike(cases, "F", "P") | alike(missing, *without, "x"))
    assert (found.reason, found.decision) == (reason, "undecided" if reason else "helps")


def test_each_question_counts_what_is_missing_of_its_own_cases() -> None:
    """Missing are fresh cases alone: these cases, all of them, bear it."""
    cases = alike(60, "F", "P", "old") | alike(6, "F", "P", "new") | alike(4, "F", "E", "new-x")
    fresh = frozenset(case for case in cases if case.startswith("new"))
    found = weigh(cases, fresh=fresh)
    assert found.tasks is not None
    assert (found.tasks.decision, found.tasks.reason) == ("undecided", "errors")
    assert (found.about, found.decision) == ("these", "helps")


def test_no_effect_and_saves_have_to_survive_it_too() -> None:
    same = alike(12, "PPP", "PPP")
    assert weigh(same).decision == "no effect"
    few = {f"case-{number:02d}": ("PPP", "PPE") for number in range(4)}
    assert weigh(same | few).decision == "undecided"


def test_an_answer_that_is_missing_has_no_tokens_and_no_price() -> None:
    found = weigh(alike(19, "F", "P") | {"z": ("F", "E")})
    assert (found.decision, found.token_savings) == ("helps", 0)
    assert (found.skill.input_tokens, found.skill.missing, found.pairs) == (19 * 80, 1, 19)


def simulated(rng: np.random.Generator, arm: str, passed: bool) -> Verdict:
    """A useless skill, 40 cases of three draws; one arm loses a quarter of its passes or failures."""
    rates = rng.uniform(0.3, 0.7, size=40)
    rows = [
        Outcome(
            model="m",
            case=f"case-{case}",
            arm=name,
            seed=seed,
            passed=bool(rng.random() < rate),
            input_tokens=80,
            output_tokens=20,
            cost_usd=0.0,
        )
        for case, rate in enumerate(rates)
        for name in ("baseline", "skill")
        for seed in range(3)
    ]
    lost = [row.arm == arm and row.passed is passed and rng.random() < 0.25 for row in rows]
    for number, is_lost in enumerate(lost):
        if is_lost:
            row = rows[number]
            rows[number] = Outcome(row.model, row.case, row.arm, row.seed, None, 0, 0, None)
    return compute_verdict(rows, VerdictOptions(fresh=frozenset()))


@pytest.mark.parametrize(("arm", "passed"), [("skill", False), ("baseline", True)])
def test_a_server_that_fails_in_one_arm_never_makes_a_useless_skill_help(
    arm: str, passed: bool
) -> None:
    rng = np.random.default_rng(11)
    found = [simulated(rng, arm, passed) for _ in range(6)]
    assert sum(verdict.missing.excess > 0 for verdict in found) == 6
    assert np.mean([verdict.lift or 0.0 for verdict in found]) > 0.03, "complete pairs are biased"
    assert not any(verdict.decision == "helps" for verdict in found)
