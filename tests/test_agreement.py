"""Agreement with people: kappa by hand, its interval by simulation, and tables that allow no kappa."""

from __future__ import annotations

import numpy as np
import pytest

from upskill.verdicts.agreement import measure_agreement


def ratings(
    both: int, person: int, check: int, neither: int, per_case: int = 1
) -> list[tuple[str, bool, bool]]:
    rows = (
        [(True, True)] * both
        + [(True, False)] * person
        + [(False, True)] * check
        + [(False, False)] * neither
    )
    return [(f"case-{number // per_case}", *row) for number, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("table", "kappa"),
    [
        ((20, 5, 10, 15), 0.4),  # observed 0.7, expected 0.5: (0.7 - 0.5) / 0.5
        ((25, 0, 0, 25), 1.0),
        ((0, 25, 25, 0), -1.0),
        ((10, 10, 10, 10), 0.0),
        (
            (45, 15, 25, 15),
            (0.6 - 0.54) / 0.46,
        ),  # the textbook's pair with the same agreement of 60 %
        ((25, 35, 5, 35), (0.6 - 0.46) / 0.54),
    ],
)
def test_kappa_is_what_it_is_by_hand(table: tuple[int, int, int, int], kappa: float) -> None:
    found = measure_agreement(ratings(*table))
    assert found.kappa == pytest.approx(kappa)
    assert (found.both_pass, found.only_person, found.only_check, found.both_fail) == table
    assert found.interval is not None
    low, high = found.interval
    assert low <= kappa + 1e-9
    assert high >= kappa - 1e-9


def test_where_both_always_say_the_same_there_is_no_kappa() -> None:
    for table in ((12, 0, 0, 0), (0, 0, 0, 3)):
        found = measure_agreement(ratings(*table))
        assert found.kappa is None
        assert found.agreed == found.ratings == sum(table)
        assert found.to_dict()["kappa"] is None
    # One side says always the same: that is as good as chance.
    assert measure_agreement(ratings(5, 0, 5, 0)).kappa == 0
    nothing = measure_agreement([])
    assert (nothing.kappa, nothing.interval, nothing.ratings, nothing.cases) == (None, None, 0, 0)


def test_one_rating_is_too_few() -> None:
    for table in ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)):
        found = measure_agreement(ratings(*table))
        assert (found.ratings, found.kappa, found.interval) == (1, None, None)


def test_a_few_marks_that_all_agree_are_no_certainty() -> None:
    few, many = measure_agreement(ratings(2, 0, 0, 2)), measure_agreement(ratings(100, 0, 0, 100))
    assert few.kappa == many.kappa == 1.0
    assert few.interval is not None
    assert many.interval is not None
    assert few.interval[0] < 0.4
    assert many.interval[0] > 0.9
    assert few.interval[1] == many.interval[1] == 1.0


def test_marks_on_one_case_count_as_one_draw() -> None:
    apart, together = (
        measure_agreement(ratings(20, 5, 5, 20)),
        measure_agreement(ratings(20, 5, 5, 20, per_case=10)),
    )
    assert apart.kappa == together.kappa
    assert apart.interval is not None
    assert together.interval is not None
    assert together.interval[1] - together.interval[0] > 1.4 * (
        apart.interval[1] - apart.interval[0]
    )
    assert (apart.cases, together.cases) == (50, 5)


@pytest.mark.parametrize(
    ("shares", "marks"), [((0.45, 0.05, 0.05, 0.45), 30), ((0.7, 0.1, 0.08, 0.12), 40)]
)
def test_the_interval_covers_the_truth_about_as_often_as_it_says(
    shares: tuple[float, ...], marks: int
) -> None:
    both, person, check, neither = shares
    expected = (both + person) * (both + check) + (check + neither) * (person + neither)
    truth = (both + neither - expected) / (1 - expected)
    draw = np.random.default_rng(7)
    covered = 0
    for _ in range(150):
        found = measure_agreement(
            ratings(*(int(count) for count in draw.multinomial(marks, shares)))
        )
        assert found.interval is not None
        covered += found.interval[0] <= truth <= found.interval[1]
    assert 0.88 <= covered / 150 <= 0.99


def test_the_same_marks_have_the_same_interval() -> None:
    assert measure_agreement(ratings(7, 2, 3, 4)) == measure_agreement(ratings(7, 2, 3, 4))
