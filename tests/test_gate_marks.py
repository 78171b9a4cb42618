"""What `ci` says about an edit, and about a skill: rule 11 of the verdicts, worked by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from upskill.verdicts import MAX_ROUNDS
from upskill.verdicts.compute import compute_verdict
from upskill.verdicts.gate import Assessment, judge_edit, judge_use
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import VerdictOptions

Draws = Mapping[
    str, tuple[str, str]
]  # by case: the draws of both arms, "+" passed, "-" failed, "." missing
RESULTS = {"+": True, "-": False, ".": None}


def outcomes_of(draws: Draws) -> list[Outcome]:
    return [
        Outcome(
            model="student",
            case=case,
            arm=arm,
            seed=seed,
            passed=RESULTS[result],
            input_tokens=10,
            output_tokens=10,
            cost_usd=0.0,
        )
        for case, both in draws.items()
        for arm, results in zip(("baseline", "skill"), both, strict=True)
        for seed, result in enumerate(results)
    ]


def many(count: int, before: str, after: str, name: str = "case") -> dict[str, tuple[str, str]]:
    return {f"{name}-{number}": (before, after) for number in range(count)}


def edit(draws: Draws, *, exact: bool = False, most: int = MAX_ROUNDS) -> Assessment:
    outcomes = outcomes_of(draws)
    models = frozenset({"student"} if exact else ())
    options = VerdictOptions(exact=models, fresh=frozenset(), in_rounds=True)
    rounds = len({outcome.seed for outcome in outcomes})
    return judge_edit(compute_verdict(outcomes, options), outcomes, rounds=rounds, most=most)


def use(draws: Draws, *, exact: bool = False) -> Assessment:
    outcomes = outcomes_of(draws)
    models = frozenset({"student"} if exact else ())
    options = VerdictOptions(exact=models, fresh=frozenset(), in_rounds=True)
    return judge_use(compute_verdict(outcomes, options), outcomes)


@pytest.mark.parametrize(
    ("lost", "gained", "cases", "mark"),
    [
        (0, 0, 24, "pass"),
        (0, 3, 24, "pass"),
        (1, 0, 24, "warn"),  # a single flip is chance
        (1, 1, 24, "warn"),
        (3, 0, 24, "warn"),  # three and none: p = 1/8
        (4, 0, 24, "block"),  # 24 to 20: p = 1/16, 17 points
        (4, 1, 24, "warn"),  # p = 6/32
        (6, 1, 24, "block"),  # p = 8/128, 21 points
        (4, 0, 41, "warn"),  # beyond chance, but less than half the tolerance
        (4, 0, 40, "block"),  # exactly half of it
        (1, 0, 4, "warn"),  # 25 points, but one case
        (2, 0, 9, "block"),  # 22 points, two cases
        (2, 0, 10, "warn"),  # 20 points are within the tolerance
        (12, 0, 12, "block"),
    ],
)
def test_for_an_exact_student_what_was_seen_is_the_fact(
    lost: int, gained: int, cases: int, mark: str
) -> None:
    draws = many(lost, "+", "-", "lost") | many(gained, "-", "+", "gained")
    draws |= many(cases - lost - gained, "+", "+")
    found = edit(draws, exact=True)
    assert (found.mark, len(found.lost), len(found.gained)) == (mark, lost, gained)
    assert found.is_settled


def test_an_exact_answer_that_is_missing_passes_nothing() -> None:
    assert edit(many(11, "+", "+") | {"last": ("+", ".")}, exact=True).mark == "open"


def test_an_edit_that_breaks_half_of_the_cases_is_blocked_in_two_rounds() -> None:
    assert edit(many(6, "++", "--", "lost") | many(6, "++", "++")).mark == "block"


def test_a_flaky_case_does_not_hide_six_that_broke() -> None:
    draws = many(6, "++", "--", "lost") | many(5, "++", "++") | {"flaky": ("+-", "-+")}
    assert edit(draws).mark == "block"


def test_a_loss_of_less_than_half_the_tolerance_is_not_blocked() -> None:
    draws = many(1, "+" * 12, "-" * 12, "lost") | many(11, "+" * 12, "+" * 12)
    found = edit(draws)
    assert (found.mark, found.lost) == ("warn", ("lost-0",))
    assert "1 case passed every draw before and none now" in found.words


@pytest.mark.parametrize(
    ("rounds", "mark", "settled"),
    [
        (1, "open", False),
        (2, "open", False),
        (3, "warn", False),
        (4, "warn", False),
        (5, "warn", True),
    ],
)
def test_while_a_case_has_turned_no_edit_passes_and_the_rounds_end_with_the_fifth(
    rounds: int, mark: str, settled: bool
) -> None:
    draws = many(1, "+" * rounds, "-" * rounds, "lost") | many(39, "+" * rounds, "+" * rounds)
    found = edit(draws)
    assert (found.mark, found.is_settled) == (mark, settled)


def test_a_case_that_passed_once_more_did_not_turn() -> None:
    draws = {"shaky": ("+++++", "----+")} | many(39, "+++++", "+++++")
    found = edit(draws)
    assert (found.mark, found.lost, found.is_settled) == ("pass", (), True)


def test_an_edit_passes_as_soon_as_it_is_known_to_lose_little() -> None:
    assert edit(many(12, "+", "+")).mark == "open", "twelve pairs show little"
    assert edit(many(12, "+++", "+++")).mark == "pass"


def test_the_last_round_leaves_open_what_is_open() -> None:
    found = edit(many(12, "+-", "-+"), most=2)
    assert (found.mark, found.is_settled) == ("open", True)
    assert "not decided after 2 rounds" in found.words


def test_a_server_that_fails_is_no_evidence() -> None:
    found = edit(many(12, "+++", "..."))
    assert found.mark == "open"
    assert "missing" in found.words


@pytest.mark.parametrize(
    ("draws", "mark", "settled"),
    [
        (many(12, "---", "+++"), "pass", True),
        (many(12, "+++", "---"), "block", True),
        (many(40, "+++", "+++"), "warn", True),
        (many(12, "+", "+"), "open", False),
    ],
)
def test_a_skill_against_none(draws: Draws, mark: str, settled: bool) -> None:
    found = use(draws)
    assert (found.mark, found.is_settled) == (mark, settled)


@pytest.mark.parametrize(
    ("gained", "mark"), [(0, "warn"), (1, "open"), (12, "pass")]
)  # one is more than nothing, and too little to decide
def test_a_skill_against_none_of_an_exact_student(gained: int, mark: str) -> None:
    draws = many(gained, "-", "+", "gained") | many(12 - gained, "-", "-")
    found = use(draws, exact=True)
    assert (found.mark, found.is_settled) == (mark, True)
