"""The interval agrees with references, with examples worked by hand, and with what it promises."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from simulations import lift_excludes, share_is_above
from upskill.verdicts.interval import (
    Estimate,
    mean_share,
    paired_lift,
    studentized_bounds,
    t_quantile,
    unseen_bound,
)

stats: Any = scipy_stats  # has no types of its own that strict checking could follow

SUITES = st.lists(
    st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=4), min_size=1, max_size=14
)


def flat(suite: list[list[int]]) -> tuple[list[int], list[str]]:
    """Differences and case labels of a suite given as one list of differences a case."""
    values = [value for case in suite for value in case]
    labels = [f"case-{number:02d}" for number, case in enumerate(suite) for _ in case]
    return values, labels


def lift(suite: list[list[int]], level: float = 0.95) -> Estimate:
    return paired_lift(*flat(suite), level=level)


# Quantiles
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 10, 39, 299, 300, 301, 2000])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.9, 0.975, 0.9995])
def test_quantiles_of_t_are_those_of_scipy(freedom: int, p: float) -> None:
    expected = float(stats.t.ppf(p, freedom))
    assert t_quantile(p, freedom) == pytest.approx(expected, rel=1e-7, abs=1e-12)


# Lift
# ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(SUITES)
def test_a_lift_lies_in_its_interval_and_both_lie_within_one(suite: list[list[int]]) -> None:
    found = lift(suite)
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert found.value == pytest.approx(np.mean([np.mean(case) for case in suite]))


@settings(deadline=None, max_examples=60)
@given(SUITES)
def test_swapping_the_arms_turns_the_lift_and_its_interval_around(suite: list[list[int]]) -> None:
    there, back = lift(suite), lift([[-value for value in case] for case in suite])
    assert (back.value, back.low, back.high) == pytest.approx(
        (-there.value, -there.high, -there.low), abs=1e-9
    )


@settings(deadline=None, max_examples=40)
@given(SUITES, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(suite: list[list[int]], random: Any) -> None:
    values, labels = flat(suite)
    rows = list(zip(values, labels, strict=True))
    random.shuffle(rows)
    mixed, names = [value for value, _ in rows], [label for _, label in rows]
    found, expected = paired_lift(mixed, names), lift(suite)
    assert (found.value, found.low, found.high) == pytest.approx(
        (expected.value, expected.low, expected.high), abs=1e-12
    )


@settings(deadline=None, max_examples=40)
@given(SUITES)
def test_more_confidence_means_a_wider_interval(suite: list[list[int]]) -> None:
    narrow, middle, wide = (lift(suite, level) for level in (0.8, 0.95, 0.99))
    assert wide.low <= middle.low + 1e-12
    assert middle.low <= narrow.low + 1e-12
    assert narrow.high <= middle.high + 1e-12
    assert middle.high <= wide.high + 1e-12


@settings(deadline=None, max_examples=30)
@given(SUITES.filter(lambda suite: len(suite) >= 4))
def test_the_same_result_on_four_times_as_many_cases_is_surer(suite: list[list[int]]) -> None:
    assert lift(suite * 4).high - lift(suite * 4).low <= lift(suite).high - lift(suite).low + 1e-9


def test_repeating_a_case_does_not_make_it_more_cases() -> None:
    once = lift([[1], [0], [1], [0], [1], [0], [1], [1]])
    often = lift([[1] * 50, [0] * 50, [1] * 50, [0] * 50, [1] * 50, [0] * 50, [1] * 50, [1] * 50])
    assert often.high - often.low > 0.7 * (once.high - once.low)


def test_a_case_weighs_the_same_however_often_it_was_run() -> None:
    assert lift([[1, 1, 1, 1], [0]]).value == 0.5


# Worked by hand with the formula of docs/simulations.md: all cases alike, so Student's t with a case added either way.
@pytest.mark.parametrize(
    ("suite", "value", "low", "high"),
    [
        ([[0]] * 10, 0.0, -2.2621572 * math.sqrt(2 / 12 / 12), 2.2621572 * math.sqrt(2 / 12 / 12)),
        ([[-1]] * 6, -1.0, -1.0, -6 / 8 + 2.5705818 * math.sqrt((1 - (6 / 8) ** 2) / 8)),
        ([[1]] * 5, 1.0, 5 / 7 - 2.7764451 * math.sqrt((1 - (5 / 7) ** 2) / 7), 1.0),
        ([[0, 0, 0]] * 4, 0.0, -3.1824463 * math.sqrt(2 / 6 / 6), 3.1824463 * math.sqrt(2 / 6 / 6)),
        ([[1, 1, 1, 1, 1]], 1.0, -1.0, 1.0),
        ([[1]], 1.0, -1.0, 1.0),
    ],
)
def test_data_without_variation_gets_the_documented_interval(
    suite: list[list[int]], value: float, low: float, high: float
) -> None:
    found = lift(suite)
    assert (found.value, found.low, found.high) == pytest.approx((value, low, high), abs=1e-6)


# Two values, so the weights are Beta's: ten wins and seven tenths of a loss nobody saw, or zeros and that loss.
@pytest.mark.parametrize(
    ("suite", "low", "high"),
    [
        ([[1]] * 10, 2 * stats.beta.ppf(0.025, 10, 0.7) - 1, 1.0),
        ([[0]] * 60, -stats.beta.ppf(0.975, 0.7, 60), stats.beta.ppf(0.975, 0.7, 60)),
        ([[1] * 40] * 12, 2 * stats.beta.ppf(0.025, 12, 40 / 43) - 1, 1.0),
    ],
)
def test_cases_that_all_agree_still_leave_room_for_one_not_seen(
    suite: list[list[int]], low: float, high: float
) -> None:
    found = lift(suite)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)


def test_cases_with_many_different_means_are_bounded_like_those_with_few() -> None:
    means = np.random.default_rng(3).uniform(-0.2, 0.8, size=600)
    few = np.round(means, 1)
    assert unseen_bound(means, 0.5, 0.025) == pytest.approx(unseen_bound(few, 0.5, 0.025), abs=0.01)


def test_nothing_at_all_is_bounded_by_what_is_possible() -> None:
    found = paired_lift([], [])
    assert math.isnan(found.value)
    assert found.interval == (-1, 1)


def test_thousands_of_cases_are_weighed_by_students_t() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-1, 2, size=3000)
    found = paired_lift(values, np.arange(3000))
    expected = stats.t.interval(0.95, 2999, loc=values.mean(), scale=stats.sem(values))
    assert found.interval == pytest.approx(expected, abs=2e-3)


def test_many_varied_cases_give_nearly_the_interval_of_scipys_bootstrap() -> None:
    rng = np.random.default_rng(3)
    means = np.rint(np.clip(rng.normal(0.3, 0.4, size=150), -1, 1) * 5) / 5
    low, high = studentized_bounds(means[np.newaxis, :], 5)
    reference = stats.bootstrap(
        (means,), np.mean, method="BCa", n_resamples=5000, rng=np.random.default_rng(0)
    )
    expected = reference.confidence_interval
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=0.01)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    rates = rng.beta(1, 2, size=(1000, 20)), rng.beta(2, 1, size=(1000, 20))
    means = (rng.binomial(3, rates[1]) - rng.binomial(3, rates[0])) / 3
    low, high = studentized_bounds(means, 3, resamples=1000)
    assert 0.925 < np.mean((low <= 1 / 3) & (high >= 1 / 3)) < 0.975


def test_a_draw_as_the_unit_takes_the_same_interval_as_that_many_cases() -> None:
    """These cases and tasks like these are one function: only the unit differs."""
    values = [1, 1, 0, 1, 0, 0, 1, -1, 1, 1, 0, 1]
    draws = [(f"case-{number // 3}", number % 3) for number in range(12)]
    assert paired_lift(values, draws) == paired_lift(values, range(12))
    by_case = paired_lift(values, [case for case, _ in draws])
    assert by_case.value == pytest.approx(0.5)
    assert by_case.low < 0 < paired_lift(values, draws).low


@pytest.mark.parametrize(("units", "runs", "level"), [(12, 1, 0.95), (20, 3, 0.95), (36, 1, 0.99)])
def test_the_simulations_decide_many_suites_as_the_interval_decides_each(
    units: int, runs: int, level: float
) -> None:
    rng = np.random.default_rng(units)
    rates = rng.random((30, units)), rng.random((30, units)) * 0.6
    means = (rng.binomial(runs, rates[0]) - rng.binomial(runs, rates[1])) / runs
    for value in (0.0, -0.2):
        above, below = lift_excludes(means, runs, value, level=level)
        for row, is_above, is_below in zip(means, above, below, strict=True):
            found = paired_lift(
                np.repeat(row, runs), np.repeat(np.arange(units), runs), level=level
            )
            assert (found.low > value, found.high < value) == (is_above, is_below)


# One arm
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passed", "cases"), [(0, 1), (0, 10), (3, 10), (10, 10), (37, 40), (1, 3)]
)
@pytest.mark.parametrize("level", [0.95, 0.99])
def test_a_pass_rate_of_yes_and_no_is_clopper_and_pearsons(
    passed: int, cases: int, level: float
) -> None:
    found = mean_share([1.0] * passed + [0.0] * (cases - passed), level=level)
    expected = stats.binomtest(passed, cases).proportion_ci(level, method="exact")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_what_a_suite_can_show_at_best() -> None:
    """docs: 6, 12, 20 and 40 fresh cases that all pass, whatever the repeats."""
    best = [mean_share([1.0] * cases).low for cases in (6, 12, 20, 40)]
    assert best == pytest.approx([0.54, 0.735, 0.83, 0.91], abs=0.005)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([0.0, 1 / 3, 0.5, 1.0]), min_size=2, max_size=12))
def test_a_pass_rate_lies_in_its_interval_and_is_the_mirror_of_the_failure_rate(
    shares: list[float],
) -> None:
    found, failed = mean_share(shares), mean_share([1.0 - share for share in shares])
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert (failed.low, failed.high) == pytest.approx((1 - found.high, 1 - found.low), abs=1e-6)


def test_the_simulations_see_the_same_pass_rates() -> None:
    shares = np.random.default_rng(2).binomial(3, 0.7, size=(30, 12)) / 3
    above = share_is_above(shares, 0.55, 0.95)
    assert [mean_share(row).low > 0.55 for row in shares] == above.tolist()
