"""Intervals, tests and sample sizes agree with references, with worked examples and with what they promise."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from simulations import lift_excludes
from upskill.verdicts import planning, statistics
from upskill.verdicts.outcome import Scope
from upskill.verdicts.planning import EvidenceNeeded, VarianceComponents
from upskill.verdicts.statistics import Sequential, bets, log_wealth, unseen_bound

stats: Any = scipy_stats  # has no types of its own that strict checking could follow

SUITES = st.lists(
    st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=4), min_size=1, max_size=14
)


def flat(suite: list[list[int]]) -> tuple[list[int], list[str]]:
    """Differences and case labels of a suite given as one list of differences a case."""
    values = [value for case in suite for value in case]
    labels = [f"case-{number:02d}" for number, case in enumerate(suite) for _ in case]
    return values, labels


def lift(suite: list[list[int]], level: float = 0.95) -> statistics.Estimate:
    return statistics.paired_lift(*flat(suite), level=level)


# ---------------------------------------------------------------------------------------------------- quantiles


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 10, 39, 299, 300, 301, 2000])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.9, 0.975, 0.9995])
def test_quantiles_of_t_are_those_of_scipy(freedom: int, p: float) -> None:
    expected = float(stats.t.ppf(p, freedom))
    assert statistics.t_quantile(p, freedom) == pytest.approx(expected, rel=1e-7, abs=1e-12)


# ---------------------------------------------------------------------------------------------------- lift


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
    assert statistics.paired_lift(mixed, names) == lift(suite)
    assert statistics.sign_flip_p_value(mixed, names) == statistics.sign_flip_p_value(
        values, labels
    )
    assert statistics.effective_trials(np.abs(mixed), names) == pytest.approx(
        statistics.effective_trials(np.abs(values), labels)
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
    found = statistics.paired_lift([], [])
    assert math.isnan(found.value)
    assert found.interval == (-1, 1)


def test_a_difference_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match="between -1 and 1"):
        statistics.paired_lift([2, 0], ["a", "b"])


def test_thousands_of_cases_are_weighed_by_students_t() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-1, 2, size=3000)
    found = statistics.paired_lift(values, np.arange(3000))
    expected = stats.t.interval(0.95, 2999, loc=values.mean(), scale=stats.sem(values))
    assert found.interval == pytest.approx(expected, abs=2e-3)


def test_many_varied_cases_give_nearly_the_interval_of_scipys_bootstrap() -> None:
    rng = np.random.default_rng(3)
    means = np.rint(np.clip(rng.normal(0.3, 0.4, size=150), -1, 1) * 5) / 5
    low, high = statistics.studentized_bounds(means[np.newaxis, :], 5)
    reference = stats.bootstrap(
        (means,), np.mean, method="BCa", n_resamples=5000, rng=np.random.default_rng(0)
    )
    expected = reference.confidence_interval
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high), abs=0.01)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    rates = rng.beta(1, 2, size=(1000, 20)), rng.beta(2, 1, size=(1000, 20))
    means = (rng.binomial(3, rates[1]) - rng.binomial(3, rates[0])) / 3
    low, high = statistics.studentized_bounds(means, 3, resamples=1000)
    assert 0.925 < np.mean((low <= 1 / 3) & (high >= 1 / 3)) < 0.975


# ---------------------------------------------------------------------------------------------------- sign flips


def _sum_of_differences(one: Any, two: Any, axis: int) -> Any:
    return np.sum(one - two, axis=axis)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=2, max_size=2), min_size=2, max_size=9)
)
def test_exact_flips_agree_with_scipys_permutation_test(suite: list[list[int]]) -> None:
    sums = np.array([sum(case) for case in suite])
    reference = stats.permutation_test(
        (sums, np.zeros(len(sums), dtype=np.int64)),
        _sum_of_differences,
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    )
    # SciPy doubles the smaller tail; flips are symmetric, so that is the same p unless the sum is nil.
    assert statistics.sign_flip_p_value(*flat(suite)) == pytest.approx(
        min(1.0, reference.pvalue), abs=1e-9
    )


@pytest.mark.parametrize(
    ("suite", "expected"),
    [
        ([[1]] * 10, 2 / 1024),
        ([[0]] * 10, 1.0),
        ([[1], [-1]], 1.0),
        ([[1], [1], [-1]], 1.0),
        ([[1], [1], [1], [0], [0]], 2 / 8),
        ([[1, 1], [1], [1, 1, 1]], 2 / 8),
        ([[1, 1], [1, 0], [-1, 0]], 6 / 8),
        ([[1, 0], [1]], 2 / 4),
    ],
)
def test_flips_counted_by_hand(suite: list[list[int]], expected: float) -> None:
    assert statistics.sign_flip_p_value(*flat(suite)) == pytest.approx(expected)


def test_a_p_value_of_many_cases_does_not_vanish() -> None:
    assert statistics.sign_flip_p_value(np.ones(60), np.arange(60)) == pytest.approx(2.0**-59)


def test_flips_that_cannot_be_counted_are_drawn_and_agree_with_the_normal() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0.1, 0.3, size=200)
    drawn = statistics.sign_flip_p_value(values, np.arange(200))
    z = abs(values.sum()) / math.sqrt((values**2).sum())
    assert drawn == pytest.approx(2 * stats.norm.sf(z), abs=2e-3)
    assert drawn == statistics.sign_flip_p_value(values, np.arange(200))


# ---------------------------------------------------------------------------------------------------- one arm


@pytest.mark.parametrize(
    ("passed", "trials"), [(0, 1), (0, 10), (3, 10), (10, 10), (190, 200), (1, 3)]
)
def test_wilsons_interval_is_that_of_scipy(passed: int, trials: int) -> None:
    expected = stats.binomtest(passed, trials).proportion_ci(method="wilson")
    assert statistics.wilson_interval(passed, trials) == pytest.approx(
        (expected.low, expected.high), abs=1e-9
    )


@given(st.integers(0, 200), st.integers(1, 200), st.floats(0.5, 0.999))
def test_wilsons_interval_holds_the_rate_and_rises_with_it(
    passed: int, trials: int, level: float
) -> None:
    passed = min(passed, trials)
    low, high = statistics.wilson_interval(passed, trials, level=level)
    assert 0 <= low <= passed / trials <= high <= 1
    mirrored = statistics.wilson_interval(trials - passed, trials, level=level)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)
    if passed < trials:
        more = statistics.wilson_interval(passed + 1, trials, level=level)
        assert more[0] >= low
        assert more[1] >= high


def test_runs_that_always_agree_are_worth_one_trial_a_case() -> None:
    assert statistics.effective_trials(
        [1, 1, 1, 0, 0, 0, 1, 1, 1], list("aaabbbccc")
    ) == pytest.approx(3)
    assert statistics.effective_trials([1] * 9, list("aaabbbccc")) == pytest.approx(3)
    assert statistics.effective_trials([1, 0, 1], list("aaa")) == 1


def test_runs_that_do_not_resemble_each_other_are_worth_all_their_trials() -> None:
    assert statistics.effective_trials([1, 0, 0, 1, 1, 0], list("aabbcc")) == pytest.approx(6)
    assert statistics.effective_trials([1, 0, 0], list("abc")) == 3
    assert statistics.effective_trials([], []) == 0


# ---------------------------------------------------------------------------------------------------- tokens, cost


def test_a_change_is_a_mean_over_pairs_and_a_ratio_of_totals() -> None:
    before, after, cases = [100, 200, 300, 400], [90, 150, 330, 230], list("abcd")
    assert statistics.mean_change(before, after, cases).value == -50
    assert statistics.relative_change(before, after, cases).value == pytest.approx(-0.2)


def test_a_change_that_is_the_same_everywhere_is_a_point() -> None:
    found = statistics.mean_change([10, 20, 30], [15, 25, 35], list("abc"))
    assert (found.value, found.low, found.high) == (5, 5, 5)
    ratio = statistics.relative_change([10, 20, 30], [20, 40, 60], list("abc"))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1, 1, 1))


def test_one_case_does_not_bound_a_change() -> None:
    assert statistics.mean_change([10, 12], [15, 11], ["a", "a"]).interval == (-math.inf, math.inf)
    assert statistics.relative_change([10], [15], ["a"]).interval == (-1, math.inf)
    many_looks = statistics.relative_change([8, 1], [40, 32], ["a", "b"], level=1 - 0.05 / 380)
    assert many_looks.interval == (pytest.approx(-1), math.inf)
    assert math.isnan(statistics.mean_change([], [], []).value)
    assert math.isnan(statistics.relative_change([], [], []).value)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), min_size=2, max_size=15),
    st.integers(2, 9),
)
def test_a_change_does_not_depend_on_the_unit_and_mirrors_when_arms_are_swapped(
    rows: list[tuple[int, int]], unit: int
) -> None:
    before, after = np.array(rows, dtype=np.float64).T
    cases = [f"{number:02d}" for number in range(len(rows))]
    there = statistics.relative_change(before, after, cases)
    scaled = statistics.relative_change(before * unit, after * unit, cases)
    assert (scaled.value, *scaled.interval) == pytest.approx(
        (there.value, *there.interval), rel=1e-6, abs=1e-9
    )
    assert there.low - 1e-9 <= there.value <= there.high + 1e-9
    back = statistics.relative_change(after, before, cases)
    assert 1 + back.value == pytest.approx(1 / (1 + there.value))
    change, turned = (
        statistics.mean_change(before, after, cases),
        statistics.mean_change(after, before, cases),
    )
    assert change.value == pytest.approx(-turned.value)
    assert change.low - 1e-6 <= change.value <= change.high + 1e-6


def test_token_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(8)
    cases = np.repeat(np.arange(20), 3)
    held = 0
    for _ in range(300):
        size = rng.lognormal(6, 0.5, 20)[cases]
        before, after = rng.lognormal(np.log(size), 0.4), rng.lognormal(np.log(0.8 * size), 0.4)
        found = statistics.relative_change(before, after, cases)
        held += found.low <= -0.2 <= found.high
    assert 0.91 < held / 300 < 0.985


def test_a_pass_that_the_baseline_never_makes_is_cheaper_beyond_doubt() -> None:
    cases = [f"{number:02d}" for number in range(20)]
    found = statistics.cost_per_pass_ratio([1] * 20, [False] * 20, [1.5] * 20, [True] * 20, cases)
    assert found.value == 0
    assert found.high < 1
    turned = statistics.cost_per_pass_ratio([1.5] * 20, [True] * 20, [1] * 20, [False] * 20, cases)
    assert turned.value == turned.high == math.inf
    assert turned.low > 1


# ---------------------------------------------------------------------------------------------------- peeking


def mean_of(running: Sequential) -> float:
    values, counts = running.looks[-1]
    return float(np.average(values, weights=counts))


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=5, max_size=5), min_size=1, max_size=5)
)
@pytest.mark.parametrize("scope", ["cases", "suite"])
def test_looking_again_never_widens_the_running_interval(
    scope: Scope, rounds: list[list[int]]
) -> None:
    running = Sequential(scope)
    assert running.interval() == (-1, 1)
    assert running.p_value == 1
    low, high = running.interval()
    for number, values in enumerate(rounds, start=1):
        running.update({f"case-{i}": value for i, value in enumerate(values)})
        new_low, new_high = running.interval()
        assert low - 1e-9 <= new_low <= new_high <= high + 1e-9
        assert 0 < running.p_value <= 1
        assert mean_of(running) == pytest.approx(np.mean(rounds[:number]))
        low, high = new_low, new_high


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=20))
def test_swapping_the_arms_turns_the_running_interval_around(values: list[int]) -> None:
    there, back = Sequential(), Sequential()
    there.update({str(i): value for i, value in enumerate(values)})
    back.update({str(i): -value for i, value in enumerate(values)})
    low, high = there.interval()
    assert back.interval() == pytest.approx((-high, -low), abs=1e-9)
    assert log_wealth(back.looks[-1], back.highs[-1]) == pytest.approx(
        log_wealth(there.looks[-1], there.highs[-1])
    )


def test_wealth_is_the_mean_over_bets_of_the_product_of_their_gains() -> None:
    running = Sequential("suite")
    running.update({"a": 1, "b": 0, "c": -1})
    running.update({"a": [1], "b": [1], "c": [0]})
    fractions = bets()
    up = np.mean((1 + fractions) ** 3 * (1 - fractions))
    down = np.mean((1 - fractions) ** 3 * (1 + fractions))
    assert log_wealth(running.looks[-1], running.highs[-1]) == pytest.approx(
        np.log((up + down) / 2)
    )


def test_by_case_the_rounds_are_averaged_before_the_bet() -> None:
    running = Sequential("cases")
    running.update({"a": 1, "b": 0})
    running.update({"a": 0, "b": 1})
    up = np.mean((1 + 0.5 * bets()) ** 2)
    down = np.mean((1 - 0.5 * bets()) ** 2)
    assert log_wealth(running.looks[-1], running.highs[-1]) == pytest.approx(
        np.log((up + down) / 2)
    )


@pytest.mark.parametrize(("scope", "expected"), [("cases", 0.0), ("suite", 1 / 3)])
def test_a_case_that_comes_late_is_left_out_by_case_and_counted_in_the_suite(
    scope: Scope, expected: float
) -> None:
    running = Sequential(scope)
    running.update({"a": 0})
    running.update({"a": 0, "late": 1})
    assert mean_of(running) == pytest.approx(expected)


def test_a_difference_out_of_bounds_cannot_be_bet_on() -> None:
    with pytest.raises(ValueError, match="between -1 and 1"):
        Sequential().update({"a": 1.5})


@pytest.mark.parametrize("scope", ["cases", "suite"])
def test_looking_after_every_round_seldom_calls_a_skill_that_does_nothing(scope: Scope) -> None:
    rng = np.random.default_rng(11)
    called = 0
    for _ in range(120):
        rates = rng.beta(1, 1, size=10)
        # Over the suite the lift is nil exactly, over the population on average.
        pairs = np.concatenate([rates, rates[::-1]]), np.concatenate([rates[::-1], rates])
        running = Sequential(scope)
        for _ in range(6):
            values = (rng.random(20) < pairs[0]).astype(int) - (rng.random(20) < pairs[1])
            running.update({str(i): int(value) for i, value in enumerate(values)})
        called += running.p_value <= 0.05
    assert (
        called <= 9
    )  # one in twenty would be six; more than nine happen by chance once in fourteen


# ---------------------------------------------------------------------------------------------------- planning


def test_an_assumed_spread_follows_from_the_rates() -> None:
    spread = VarianceComponents.assumed(0.5, 0.0, between_sd=0.2, correlation=0.0)
    assert (spread.between, spread.within) == pytest.approx((0.04, 0.46))
    assert VarianceComponents.assumed(0.0, 1.0) == VarianceComponents(0, 0)
    assert VarianceComponents.assumed(0.0, 0.5, between_sd=0.9) == VarianceComponents(0.25, 0)


def test_a_measured_spread_splits_into_between_and_within() -> None:
    values, labels = flat([[1, 0], [0, 0], [1, 1], [0, 1], [-1, 0], [0, 0]] * 20)
    spread = VarianceComponents.measured(values, labels)
    case_means = [np.mean(case) for case in [[1, 0], [0, 0], [1, 1], [0, 1], [-1, 0], [0, 0]] * 20]
    assert spread.within == pytest.approx(0.25)
    assert spread.between == pytest.approx(np.var(case_means, ddof=1) - 0.125)
    assert spread.error(120, 2) == pytest.approx(np.std(case_means, ddof=1) / math.sqrt(120))


def test_a_spread_is_never_taken_to_be_nothing() -> None:
    assert VarianceComponents.measured(*flat([[0]] * 8)) == VarianceComponents(0.2, 0)
    assert VarianceComponents.measured([], []) == VarianceComponents(0, 1)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.05, 0.6), st.integers(2, 60), st.integers(1, 8))
def test_power_grows_with_the_lift_the_cases_and_the_runs(
    size: float, cases: int, runs: int
) -> None:
    spread = VarianceComponents.assumed(0.3, 0.2)
    power = planning.power(size, cases, runs, spread)
    assert 0 <= power <= 1
    assert power <= planning.power(size + 0.1, cases, runs, spread)
    assert power <= planning.power(size, cases + 1, runs, spread) + 1e-3
    assert (
        power <= planning.power(size, cases, runs + 1, spread) + 0.01
    )  # a run more may hide a little more
    assert power == pytest.approx(planning.power(-size, cases, runs, spread))


def test_the_cases_needed_have_the_power_and_one_fewer_has_not() -> None:
    spread = VarianceComponents.assumed(0.3, 0.2)
    for runs in (1, 3, 5):
        cases = planning.cases_needed(0.2, runs, spread)
        assert cases is not None
        assert (
            planning.power(0.2, cases, runs, spread)
            >= 0.8
            > planning.power(0.2, cases - 1, runs, spread)
        )
    assert planning.cases_needed(0.0, 1, spread) is None


def test_no_number_of_runs_makes_up_for_too_few_cases() -> None:
    assert planning.power(0.1, 10, 1000, VarianceComponents.assumed(0.3, 0.1)) < 0.8
    assert planning.power(0.5, 1, 1000, VarianceComponents.assumed(0.3, 0.5)) == 0


def test_without_any_spread_every_lift_is_found() -> None:
    assert planning.power(0.1, 5, 1, VarianceComponents(0, 0)) == 1
    assert planning.power(0.0, 5, 1, VarianceComponents(0, 0)) == 0


def test_the_planned_power_is_the_simulated_one() -> None:
    rng = np.random.default_rng(2)
    before = rng.beta(2, 4, size=(1500, 30))
    after = np.clip(before + rng.normal(0.2, 0.15, size=before.shape), 0, 1)
    means = (rng.binomial(3, after) - rng.binomial(3, before)) / 3
    found, _ = lift_excludes(means, 3, 0.0, resamples=1000)
    values = (rng.random((3, *before.shape)) < after).astype(int) - (
        rng.random((3, *before.shape)) < before
    )
    spread = VarianceComponents.measured(values.reshape(-1), np.tile(np.arange(before.size), 3))
    assert planning.power(float(means.mean()), 30, 3, spread) == pytest.approx(
        found.mean(), abs=0.05
    )


def test_advice_aims_at_the_chance_that_a_plan_aims_at() -> None:
    rng = np.random.default_rng(6)
    values = (rng.random((8, 5)) < 0.6).astype(int) - (rng.random((8, 5)) < 0.3)
    labels = np.repeat(np.arange(8), 5)
    lift, spread = float(values.mean()), VarianceComponents.measured(values.reshape(-1), labels)
    more = planning.evidence_needed(values.reshape(-1), labels)
    assert 8 + more.cases == planning.cases_needed(lift, 5, spread)
    # and it is the chance that simulated suites have
    needed = planning.cases_needed(0.3, 5, VarianceComponents(0, 0.45))
    assert needed is not None
    means = (
        rng.binomial(5, 0.6, size=(500, needed)) - rng.binomial(5, 0.3, size=(500, needed))
    ) / 5
    assert lift_excludes(means, 5, 0.0)[0].mean() == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize(("cases", "size"), [(12, 0.4), (15, 0.3), (20, 0.25)])
def test_more_repeats_of_cases_that_differ_find_no_less(cases: int, size: float) -> None:
    rng = np.random.default_rng(7)
    found: list[float] = []
    for runs in (3, 10, 30, 100):
        before = rng.beta(1.5, 3.5, size=(300, cases))
        after = np.clip(before + rng.normal(size, 0.15, size=before.shape), 0, 1)
        means = (rng.binomial(runs, after) - rng.binomial(runs, before)) / runs
        found.append(float(lift_excludes(means, runs, 0.0, resamples=500)[0].mean()))
    assert all(later >= earlier - 0.05 for earlier, later in pairwise(found))
    assert found[-1] > 0.6


@pytest.mark.parametrize("broken", [0.05, 0.1, 0.15])
@pytest.mark.parametrize("runs", [5, 20, 100])
def test_a_few_broken_tasks_that_cancel_the_gain_of_the_rest_are_not_overlooked(
    broken: float, runs: int
) -> None:
    """Those that break always passed before; the rest gains from nothing. A mirror image has the same interval."""
    rng = np.random.default_rng(8)
    for cases in (8, 12, 20, 30):
        means = rng.binomial(runs, broken / (1 - broken), size=(1000, cases)) / runs
        means[rng.random(means.shape) < broken] = -1.0
        above, below = lift_excludes(means, runs, 0.0, resamples=500)
        assert above.mean() <= 0.025 + 2 * 0.005  # two standard errors
        assert (above | below).mean() <= 0.065


def test_further_evidence_is_more_runs_or_more_cases() -> None:
    values, labels = flat(
        [[1, 0], [0, 1], [-1, 1], [0, 0], [1, -1], [1, 0], [0, 1], [-1, 0], [1, 0], [0, 1]] * 2
    )
    more = planning.evidence_needed(values, labels)
    assert more.runs is not None
    assert more.pairs == min(more.runs * 20, more.cases * 2)
    assert planning.evidence_needed(values, labels, anytime="cases").cases > more.cases


def test_where_cases_disagree_only_more_cases_help() -> None:
    values, labels = flat([[1, 1], [-1, -1], [1, 1], [0, 0], [-1, -1], [1, 1]])
    more = planning.evidence_needed(values, labels)
    assert more.runs is None
    assert more.pairs == 2 * more.cases > 12
    assert planning.evidence_needed(values, labels, anytime="suite").runs is not None


def test_after_nothing_everything_is_still_to_be_done() -> None:
    assert isinstance(planning.evidence_needed([], []), EvidenceNeeded)
