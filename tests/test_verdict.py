"""A verdict pairs outcomes, decides by the documented rules, and never takes an error for a result."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from upskill.errors import UsageError
from upskill.verdicts.advice import advise
from upskill.verdicts.choices import cheapest, list_choices, pareto
from upskill.verdicts.compute import compute_verdict
from upskill.verdicts.diagnosis import diagnose
from upskill.verdicts.outcome import Outcome, never_varies
from upskill.verdicts.planning import EvidenceNeeded
from upskill.verdicts.requirements import check_requirement, parse_requirement
from upskill.verdicts.verdict import Verdict, VerdictOptions

stats: Any = scipy_stats  # has no types of its own that strict checking could follow
SCORES = {"P": True, "F": False, "E": None}


def arm(
    name: str,
    cases: Mapping[str, str],
    *,
    model: str = "m",
    tokens: int = 100,
    cost: float | None = 0.01,
) -> list[Outcome]:
    """Outcomes of one arm: of each case a letter a seed, P passed, F failed, E errored, a dot for not run."""
    return [
        Outcome(model, case, name, seed, SCORES[letter], tokens - 20, 20, cost, seconds=1.0)
        for case, letters in cases.items()
        for seed, letter in enumerate(letters)
        if letter != "."
    ]


def both(cases: Mapping[str, tuple[str, str]], **more: Any) -> list[Outcome]:
    one = arm("baseline", {case: pair[0] for case, pair in cases.items()}, **more)
    return one + arm("skill", {case: pair[1] for case, pair in cases.items()}, **more)


def swapped_arms(rows: list[Outcome]) -> list[Outcome]:
    return [replace(row, arm="baseline" if row.arm == "skill" else "skill") for row in rows]


def alike(count: int, before: str, after: str) -> dict[str, tuple[str, str]]:
    return {f"case-{number:02d}": (before, after) for number in range(count)}


# ---------------------------------------------------------------------------------------------------- worked examples
# The table "Worked examples" of docs/simulations.md.

EXAMPLES: dict[str, tuple[dict[str, tuple[str, str]], tuple[Any, ...]]] = {
    # name: (cases, (pairs, lift, low, high, p, decision, reason))
    "all pass": (alike(10, "P", "P"), (10, 0.0, -0.267, 0.267, 1.0, "undecided")),
    "all fail": (alike(10, "F", "F"), (10, 0.0, -0.267, 0.267, 1.0, "undecided")),
    "every case won": (alike(10, "F", "P"), (10, 1.0, 0.472, 1.0, 2 / 1024, "helps")),
    "every case lost": (alike(10, "P", "F"), (10, -1.0, -1.0, -0.472, 2 / 1024, "hurts")),
    "five of five won": (alike(5, "F", "P"), (5, 1.0, -0.020, 1.0, 2 / 32, "undecided")),
    "one case, five runs": ({"a": ("FFFFF", "PPPPP")}, (5, 1.0, -1.0, 1.0, 1.0, "undecided")),
    "three up, three down": (
        {
            "a": ("F", "P"),
            "b": ("F", "P"),
            "c": ("F", "P"),
            "d": ("P", "F"),
            "e": ("P", "F"),
            "f": ("P", "F"),
        }
        | {"g": ("P", "P"), "h": ("F", "F"), "i": ("P", "P"), "j": ("F", "F")},
        (10, 0.0, None, None, 1.0, "undecided"),
    ),
    "unequal seeds": (
        {"a": ("FFFF", "PPPP"), "b": ("F", "F")},
        (5, 0.5, -1.0, 1.0, 1.0, "undecided"),
    ),
    "errors in one arm": (
        alike(7, "F", "P") | {"x": ("F", "E"), "y": ("F", "E"), "z": ("F", "E")},
        (7, 1.0, 7 / 9 - 2.4469 * math.sqrt((1 - (7 / 9) ** 2) / 9), 1.0, 2 / 128, "undecided"),
    ),
    "one error in forty trials": (
        alike(19, "F", "P") | {"z": ("F", "E")},
        (19, 1.0, 2 * stats.beta.ppf(0.025, 19, 0.7) - 1, 1.0, 2.0**-18, "helps"),
    ),
    "sixty cases without a difference": (
        alike(60, "P", "P"),
        (
            60,
            0.0,
            -stats.beta.ppf(0.975, 0.7, 60),
            stats.beta.ppf(0.975, 0.7, 60),
            1.0,
            "no effect",
        ),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_worked_example_gives_the_documented_verdict(name: str) -> None:
    cases, (pairs, lift, low, high, p, decision) = EXAMPLES[name]
    found = compute_verdict(both(cases))
    assert found.pairs == pairs
    assert found.lift == pytest.approx(lift)
    assert found.interval is not None
    if low is not None:
        assert found.interval == pytest.approx((low, high), abs=6e-4)
    else:
        assert found.interval[0] == pytest.approx(-found.interval[1])
    assert found.p_value == pytest.approx(p)
    assert found.decision == decision


def test_one_case_proves_nothing_about_others() -> None:
    found = compute_verdict(both({"a": ("FFFFF", "PPPPP")}))
    assert found.reason == "one case"
    assert found.evidence_needed is not None
    assert found.evidence_needed.runs is None
    assert "more cases" in found.recommendation


def test_too_many_errors_decide_nothing() -> None:
    found = compute_verdict(both(EXAMPLES["errors in one arm"][0]))
    assert (found.decision, found.reason) == ("undecided", "errors")
    assert found.recommendation == (
        "Undecided whether it helps this model: 3 of 10 trials with the skill errored, too many for a verdict. "
        "Fix the errors and run again."
    )
    assert found.pairs_needed is None


def test_a_tenth_of_errors_is_still_borne() -> None:
    nine = alike(18, "F", "P") | {"y": ("F", "E"), "z": ("E", "P")}
    assert compute_verdict(both(nine)).decision == "helps"
    assert compute_verdict(both(nine | {"x": ("E", "E"), "w": ("F", "E")})).reason == "errors"


def test_an_errored_trial_saves_no_tokens() -> None:
    rows = both(alike(19, "F", "P") | {"z": ("F", "E")})
    without = [
        replace(row, input_tokens=0, output_tokens=0) if row.passed is None else row for row in rows
    ]
    found = compute_verdict(without)
    assert found.token_savings == 0
    assert found.skill.input_tokens == 19 * 80
    assert found.skill.errored == 1


def test_without_a_baseline_there_is_no_lift() -> None:
    found = compute_verdict(arm("skill", {"a": "P", "b": "F"}))
    assert (found.decision, found.reason, found.lift, found.interval) == (
        "undecided",
        "no baseline",
        None,
        None,
    )
    assert found.skill.pass_rate == 0.5
    assert found.baseline.pass_rate is None
    assert found.token_savings is None
    assert found.recommendation.endswith("the baseline was not run. Run the baseline too.")


def test_without_pairs_there_is_no_lift() -> None:
    found = compute_verdict(arm("baseline", {"a": "P"}) + arm("skill", {"b": "P"}))
    assert (found.decision, found.reason, found.pairs, found.lift) == (
        "undecided",
        "no pairs",
        0,
        None,
    )


def test_nothing_at_all_is_undecided() -> None:
    found = compute_verdict([])
    assert (found.model, found.pairs, found.decision) == ("", 0, "undecided")
    assert found.skill.interval == (0, 1)
    assert found.recommendation == (
        "Unknown whether it helps this model: no trial has been scored. Continue the run."
    )


def test_a_trial_tried_again_counts_by_its_scored_row() -> None:
    rows = both(alike(8, "F", "P"))
    errored = [replace(row, passed=None) for row in rows]
    assert (
        compute_verdict(errored + rows) == compute_verdict(rows + errored) == compute_verdict(rows)
    )


@pytest.mark.parametrize("margin", [math.nan, -0.1, 1.5])
def test_a_margin_that_is_no_share_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        VerdictOptions(margin=margin)


def test_arms_that_different_snapshots_answered_prove_nothing() -> None:
    rows = both(alike(12, "F", "P"))
    apart = [replace(row, snapshot="m-1" if row.arm == "skill" else "m-0") for row in rows]
    found = compute_verdict(apart)
    assert (found.decision, found.reason) == ("undecided", "snapshots")
    assert "--fresh" in found.recommendation
    assert not check_requirement(parse_requirement("decision=helps"), found).held
    mostly = [replace(row, snapshot="m-0") if row.case == rows[0].case else row for row in apart]
    assert compute_verdict(mostly).reason == "snapshots"
    # A provider that moves on in the middle of a run answers both arms of a case alike.
    moved = [replace(row, snapshot=f"m-{row.case < rows[6].case:d}") for row in rows]
    assert compute_verdict(moved).decision == compute_verdict(rows).decision == "helps"


def test_one_verdict_is_about_one_model() -> None:
    with pytest.raises(ValueError, match="one model"):
        compute_verdict(both(alike(2, "P", "F")) + both(alike(2, "P", "F"), model="other"))


# ---------------------------------------------------------------------------------------------------- properties

LETTERS = st.text("PFE", min_size=1, max_size=3)
SUITES = st.dictionaries(
    st.sampled_from("abcdefghij"), st.tuples(LETTERS, LETTERS), min_size=1, max_size=10
)


@settings(deadline=None, max_examples=20)
@given(SUITES, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(
    cases: dict[str, tuple[str, str]], random: Any
) -> None:
    rows = both(cases)
    mixed = list(rows)
    random.shuffle(mixed)
    assert compute_verdict(mixed) == compute_verdict(rows)
    peeking = VerdictOptions(anytime="cases")
    assert compute_verdict(mixed, peeking).interval == compute_verdict(rows, peeking).interval


@settings(deadline=None, max_examples=40)
@given(SUITES)
def test_swapping_the_arms_swaps_the_verdict(cases: dict[str, tuple[str, str]]) -> None:
    rows = both(cases)
    there, back = compute_verdict(rows), compute_verdict(swapped_arms(rows))
    swapped = {"helps": "hurts", "hurts": "helps"}
    assert back.decision == swapped.get(there.decision, there.decision)
    if there.interval is None or there.lift is None:
        assert back.interval is None
        return
    assert back.lift == pytest.approx(-there.lift)
    assert back.interval == pytest.approx((-there.interval[1], -there.interval[0]), abs=1e-9)
    assert there.interval[0] <= there.lift <= there.interval[1]


@settings(deadline=None, max_examples=40)
@given(SUITES)
def test_every_verdict_can_be_written_as_json(cases: dict[str, tuple[str, str]]) -> None:
    plain = compute_verdict(both(cases), VerdictOptions(making_cost=1.0)).to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


@settings(deadline=None, max_examples=25)
@given(SUITES)
def test_diagnoses_name_every_case_once(cases: dict[str, tuple[str, str]]) -> None:
    assert [found.case for found in diagnose(both(cases))] == sorted(cases)


def test_fifty_thousand_rows_give_a_verdict() -> None:
    verdict = compute_verdict(both(alike(50, "PF" * 250, "PPPF" * 125)))
    assert (verdict.decision, verdict.pairs, verdict.lift) == ("helps", 25_000, pytest.approx(0.25))


# ---------------------------------------------------------------------------------------------------- summaries


def test_an_arm_is_summed_over_its_scored_trials() -> None:
    found = compute_verdict(both({"a": ("PFE", "PPP"), "b": ("FFF", "PFP")})).baseline
    assert (found.passed, found.failed, found.errored, found.scored) == (1, 4, 1, 5)
    assert found.pass_rate == 0.2
    assert (found.input_tokens, found.output_tokens, found.total_tokens) == (400, 100, 500)
    assert found.cost_usd == pytest.approx(0.05)
    assert found.cost_per_pass == pytest.approx(0.05)
    assert found.seconds == 5
    assert found.interval[0] < 0.2 < found.interval[1]


def test_an_unknown_price_is_unknown_and_not_nothing() -> None:
    found = compute_verdict(both(alike(8, "F", "P"), cost=None), VerdictOptions(making_cost=1.0))
    assert found.baseline.cost_usd is found.skill.cost_per_pass is found.cost is None
    assert found.cost_per_pass_ratio is found.break_even is None


def test_a_free_model_has_no_cost_ratio() -> None:
    found = compute_verdict(both(alike(8, "F", "P"), cost=0.0))
    assert found.skill.cost_usd == 0
    assert found.cost_per_pass_ratio is None


def test_without_tokens_there_is_no_relative_change() -> None:
    rows = [replace(row, input_tokens=0, output_tokens=0) for row in both(alike(8, "F", "P"))]
    found = compute_verdict(rows)
    assert found.token_savings is None
    assert found.total_tokens is not None
    assert found.total_tokens.mean == 0


def test_break_even_is_the_making_cost_over_what_a_pass_saves() -> None:
    rows = both({"a": ("PFFF", "PPPP"), "b": ("FFFP", "PPPP")})
    found = compute_verdict(rows, VerdictOptions(making_cost=3.0))
    assert found.baseline.cost_per_pass == pytest.approx(0.04)
    assert found.skill.cost_per_pass == pytest.approx(0.01)
    assert found.break_even == pytest.approx(100)
    assert compute_verdict(rows).break_even is None
    assert compute_verdict(swapped_arms(rows), VerdictOptions(making_cost=3.0)).break_even is None


# ---------------------------------------------------------------------------------------------------- decisions


def cheaper_by(tokens: int, cases: Mapping[str, tuple[str, str]]) -> list[Outcome]:
    rows = both(cases)
    return [
        replace(row, output_tokens=row.output_tokens - tokens) if row.arm == "skill" else row
        for row in rows
    ]


def test_as_good_with_fewer_tokens_saves() -> None:
    found = compute_verdict(cheaper_by(10, alike(60, "P", "P")))
    assert (found.decision, found.token_savings) == ("saves", pytest.approx(0.1))
    assert found.recommendation == (
        "It saves tokens: this model passes as often as without it, with 10% fewer tokens."
    )
    assert found.is_beneficial


def test_fewer_tokens_do_not_make_up_for_a_lift_that_may_be_negative() -> None:
    assert compute_verdict(cheaper_by(10, alike(20, "P", "P"))).decision == "undecided"
    assert (
        compute_verdict(cheaper_by(10, alike(20, "P", "P")), VerdictOptions(margin=0.2)).decision
        == "saves"
    )


def test_a_cheaper_pass_saves_too() -> None:
    rows = both(alike(60, "P", "P"))
    rows = [replace(row, cost_usd=0.005) if row.arm == "skill" else row for row in rows]
    found = compute_verdict(rows)
    assert found.decision == "saves"
    assert found.recommendation == (
        "It saves money: this model passes as often as without it, at a lower cost per pass."
    )


def test_no_effect_says_what_it_costs() -> None:
    found = compute_verdict(cheaper_by(-20, alike(60, "F", "F")))
    assert found.decision == "no effect"
    assert found.recommendation == (
        "It has no effect on this model: any change is below 5 points. Do not use it with this model: it takes 20% "
        "more tokens."
    )


def test_a_skill_that_hurts_is_not_recommended() -> None:
    found = compute_verdict(both(alike(10, "P", "F")))
    assert found.recommendation == (
        "It hurts this model: -100 points (-100 to -47) over 10 pairs. Do not use it with this model."
    )


def test_a_skill_that_helps_a_little_says_where_it_still_fails() -> None:
    cases = alike(12, "F", "P") | {f"hard-{number}": ("F", "F") for number in range(12)}
    tags = {case: ("hard", "slow") if case.startswith("hard") else ("easy",) for case in cases}
    found = compute_verdict(both(cases), VerdictOptions(tags=tags))
    assert found.decision == "helps"
    assert found.advice == "Cases tagged hard, slow still fail."
    assert (
        found.recommendation
        == f"It helps this model: +50 points (+24 to +70) over 24 pairs. {found.advice}"
    )


def test_undecided_says_how_much_more_would_settle_it() -> None:
    rows = both(alike(4, "F", "P") | {"x": ("P", "F"), "y": ("P", "P"), "z": ("F", "F")})
    found = compute_verdict(rows)
    assert found.decision == "undecided"
    assert found.pairs_needed is not None
    assert found.pairs_needed > 0
    assert re.fullmatch(
        r"About (\d+ more runs? of each case, or )?\d+ more cases?,? would settle it\.",
        found.advice,
    )
    answers = [
        replace(row, seed=seed, answer=number)
        for number, row in enumerate(rows, 1)
        for seed in (0, 1)
    ]
    assert re.fullmatch(r"About \d+ more cases? would settle it\.", compute_verdict(answers).advice)


def test_one_of_anything_is_told_in_the_singular() -> None:
    found = compute_verdict(both({"a": ("E", "P")}))
    assert "1 of 1 trial in the baseline errored" in found.recommendation
    more = compute_verdict(both(alike(4, "F", "P") | {"x": ("P", "F")}))
    one = replace(more, evidence_needed=EvidenceNeeded(pairs=1, runs=None, cases=1))
    assert advise(one) == "About 1 more case would settle it."


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            both(alike(10, "F", "P")),
            "It is better than the reference skill with this model: +100 points (+47 to +100) over 10 pairs.",
        ),
        (
            both(alike(10, "P", "F")),
            (
                "It is worse than the reference skill with this model: -100 points (-100 to -47) over 10 pairs. Keep "
                "the reference skill."
            ),
        ),
        (
            both(alike(60, "P", "P")),
            (
                "It is no better or worse than the reference skill with this model: any change is below 5 points. Keep "
                "the reference skill."
            ),
        ),
        (
            cheaper_by(10, alike(60, "P", "P")),
            "It saves tokens: this model passes as often as with the reference skill, with 10% fewer tokens.",
        ),
    ],
    ids=["helps", "hurts", "no effect", "saves"],
)
def test_against_a_reference_skill_the_recommendation_speaks_of_it(
    rows: list[Outcome], said: str
) -> None:
    assert compute_verdict(rows, VerdictOptions(has_reference=True)).recommendation == said


# ---------------------------------------------------------------------------------------------------- peeking


def test_looking_after_every_round_asks_for_more_evidence() -> None:
    rows = both(alike(7, "F", "P"))
    assert compute_verdict(rows).decision == "helps"
    peeked = compute_verdict(rows, VerdictOptions(anytime="cases"))
    assert (peeked.decision, peeked.anytime) == ("undecided", "cases")
    assert (
        compute_verdict(both(alike(8, "F", "P")), VerdictOptions(anytime="cases")).decision
        == "helps"
    )


def test_over_the_suite_more_runs_of_the_same_cases_decide() -> None:
    rows = both(alike(5, "FF", "PP"))
    assert compute_verdict(rows, VerdictOptions(anytime="cases")).decision == "undecided"
    assert compute_verdict(rows, VerdictOptions(anytime="suite")).decision == "helps"
    calm = both(alike(20, "PPPPPP", "PPPPPP"))
    assert compute_verdict(calm, VerdictOptions(anytime="suite")).decision == "no effect"
    assert compute_verdict(calm, VerdictOptions(anytime="cases")).decision == "undecided"


def test_a_planned_end_spends_less_on_early_looks_and_has_a_last_one() -> None:
    rows = both(alike(8, "F", "P"))
    assert compute_verdict(rows, VerdictOptions(anytime="cases")).decision == "helps"
    assert (
        compute_verdict(rows, VerdictOptions(anytime="cases", stopping_point="early")).decision
        == "undecided"
    )
    assert (
        compute_verdict(rows, VerdictOptions(anytime="cases", stopping_point="last")).decision
        == "helps"
    )


def test_the_last_look_is_never_wider_than_the_early_one() -> None:
    rows = both(
        {
            "a": ("FFF", "PFP"),
            "b": ("FPF", "PPP"),
            "c": ("FFF", "FFF"),
            "d": ("PFF", "PPF"),
            "e": ("FF", "PF"),
        }
    )
    early, last, fixed = (
        compute_verdict(rows, VerdictOptions(anytime="cases", stopping_point="early")),
        compute_verdict(rows, VerdictOptions(anytime="cases", stopping_point="last")),
        compute_verdict(rows, VerdictOptions(level=0.97)),
    )
    assert early.interval
    assert last.interval
    assert fixed.interval
    assert last.interval == (
        max(early.interval[0], fixed.interval[0]),
        min(early.interval[1], fixed.interval[1]),
    )
    assert last.p_value is not None
    assert early.p_value is not None
    assert last.p_value <= early.p_value


def test_saving_can_be_peeked_at_as_well() -> None:
    rows = [
        replace(row, output_tokens=400) if row.arm == "baseline" else row
        for row in both(alike(30, "PPPPP", "PPPPP"))
    ]
    assert compute_verdict(rows, VerdictOptions(anytime="suite")).decision == "saves"
    assert (
        compute_verdict(rows, VerdictOptions(anytime="suite", stopping_point="last")).decision
        == "saves"
    )


def test_a_case_whose_first_pair_errored_is_not_counted_by_case() -> None:
    rows = both(alike(20, "FF", "PP") | {"late": ("PP", "EF")})
    assert (
        compute_verdict(rows, VerdictOptions(anytime="cases")).interval
        == compute_verdict(both(alike(20, "FF", "PP")), VerdictOptions(anytime="cases")).interval
    )


# ---------------------------------------------------------------------------------------------------- controls


def test_controls_split_the_lift_into_content_and_length() -> None:
    names = [f"{number:02d}" for number in range(20)]
    rows = arm("baseline", dict.fromkeys(names, "F")) + arm("skill", dict.fromkeys(names, "P"))
    rows += arm("placebo", {name: "P" if number < 5 else "F" for number, name in enumerate(names)})
    rows += arm("baseline_repeat", dict.fromkeys(names, "F"))
    found = compute_verdict(rows).controls
    assert found is not None
    assert found.content is not None
    assert found.length is not None
    assert found.noise is not None
    assert (found.content.value, found.length.value, found.noise.value) == pytest.approx(
        (0.75, 0.25, 0)
    )
    assert found.content.low > 0 > found.noise.low


def test_without_control_arms_there_are_no_controls() -> None:
    assert compute_verdict(both(alike(3, "F", "P"))).controls is None
    only = compute_verdict(
        both(alike(3, "F", "P")) + arm("baseline_repeat", {"case-00": "F"})
    ).controls
    assert only is not None
    assert only.content is only.length is None
    assert only.noise is not None


# ---------------------------------------------------------------------------------------------------- acting


def acting(rows: list[Outcome], opened: Mapping[str, str], **more: Any) -> list[Outcome]:
    """The same outcomes of an agent that acts: of each case a letter a seed, O opened the skill, a dot did not."""
    return [
        replace(
            row,
            activated=opened[row.case][row.seed] == "O" if row.arm == "skill" else None,
            turns=2,
            **more,
        )
        for row in rows
    ]


def test_where_nothing_could_be_activated_there_is_no_activation() -> None:
    found = compute_verdict(both(alike(4, "F", "P")))
    assert found.activation is found.baseline.activated is found.skill.activated is None
    assert found.skill.turns is None


def test_the_lift_is_split_by_whether_the_skill_was_activated() -> None:
    cases = {"a": ("FF", "PP"), "b": ("FF", "PF"), "c": ("FP", "FP"), "d": ("PF", "FF")}
    found = compute_verdict(
        acting(both(cases), {"a": "OO", "b": "O.", "c": "..", "d": ".."})
    ).activation
    assert found is not None
    assert (found.trials, found.activated, found.rate) == (8, 3, 0.375)
    assert found.interval[0] < 0.375 < found.interval[1]
    assert (found.where_activated.pairs, found.where_activated.lift) == (3, 1.0)
    # Of b its second run, of c and d both: the cases weigh the same.
    assert (found.where_not_activated.pairs, found.where_not_activated.lift) == (
        5,
        pytest.approx((0 + 0 - 0.5) / 3),
    )
    assert found.where_not_activated.interval is not None
    assert found.where_not_activated.interval[0] < -1 / 6 < found.where_not_activated.interval[1]


def test_a_part_has_the_interval_that_a_run_of_its_pairs_would_have() -> None:
    won = alike(9, "F", "P") | {"x": ("F", "F")}
    rest = {f"rest-{number}": ("P", "P") for number in range(6)}
    opened = dict.fromkeys(won, "O") | dict.fromkeys(rest, ".")
    whole, alone = compute_verdict(acting(both(won | rest), opened)), compute_verdict(both(won))
    assert whole.activation is not None
    assert (whole.activation.where_activated.lift, whole.activation.where_activated.interval) == (
        alone.lift,
        alone.interval,
    )
    assert whole.activation.where_activated.pairs == alone.pairs == 10


def test_the_share_that_activated_has_the_interval_of_a_pass_rate() -> None:
    cases = {"a": ("FFF", "PPP"), "b": ("FFF", "FFF"), "c": ("FFF", "PPF"), "d": ("FFF", "FPF")}
    letters = {case: after.replace("P", "O") for case, (_, after) in cases.items()}
    found = compute_verdict(acting(both(cases), letters))
    assert found.activation is not None
    assert (found.activation.rate, found.activation.interval) == (
        found.skill.pass_rate,
        found.skill.interval,
    )


@settings(deadline=None, max_examples=30)
@given(SUITES, st.randoms(use_true_random=False))
def test_what_was_activated_changes_nothing_about_the_lift_that_was_offered(
    cases: dict[str, tuple[str, str]], random: Any
) -> None:
    rows = both(cases)
    found = compute_verdict(
        acting(rows, {case: "".join(random.choices("O.", k=3)) for case in cases})
    )
    plain = compute_verdict(rows)
    assert (found.lift, found.interval, found.decision, found.p_value) == (
        plain.lift,
        plain.interval,
        plain.decision,
        plain.p_value,
    )
    scored = [row for row in rows if row.arm == "skill" and row.passed is not None]
    if found.activation is None:
        assert not scored
    else:
        assert found.activation.trials == len(scored)
        assert (
            found.activation.where_activated.pairs + found.activation.where_not_activated.pairs
            == found.pairs
        )


def test_all_activated_leaves_the_other_part_empty() -> None:
    found = compute_verdict(
        acting(both(alike(6, "F", "P")), dict.fromkeys(alike(6, "", ""), "O"))
    ).activation
    assert found is not None
    assert (
        found.where_not_activated.pairs,
        found.where_not_activated.lift,
        found.where_not_activated.interval,
    ) == (
        0,
        None,
        None,
    )
    assert found.where_activated.lift == 1


def test_turns_and_tool_calls_are_means_and_tool_errors_a_share_of_the_calls() -> None:
    rows = [
        replace(row, turns=2 + row.seed, calls=4, tool_errors=1)
        if row.arm == "skill"
        else replace(row, turns=1)
        for row in both({"a": ("PPP", "PPE"), "b": ("P", "P")})
    ]
    found = compute_verdict(rows)
    assert (found.skill.turns, found.skill.tool_calls, found.skill.tool_errors) == (
        pytest.approx(7 / 3),
        4,
        0.25,
    )
    assert (found.baseline.turns, found.baseline.tool_calls, found.baseline.tool_errors) == (
        1,
        0,
        None,
    )


def test_a_skill_that_is_rarely_activated_wants_a_better_description() -> None:
    said = "Improve its description: the skill was activated in 3 of 20 trials (`upskill trigger SKILL --improve`)."
    names = [f"case-{number:02d}" for number in range(20)]
    rarely = {name: "O" if number < 3 else "." for number, name in enumerate(names)}
    undecided = compute_verdict(acting(both(alike(20, "F", "F")), rarely))
    assert undecided.decision == "undecided"
    assert undecided.advice.startswith(f"{said} About ")
    nothing = compute_verdict(acting(both(alike(20, "F", "F")), rarely), VerdictOptions(margin=0.2))
    assert nothing.decision == "no effect"
    assert nothing.advice == f"Do not use it with this model. {said}"
    often = {name: "O" if number < 10 else "." for number, name in enumerate(names)}
    assert (
        "description"
        not in compute_verdict(acting(both(alike(20, "F", "F")), often)).recommendation
    )
    helps = compute_verdict(acting(both(alike(20, "F", "P")), rarely))
    assert (helps.decision, "description" in helps.recommendation) == ("helps", False)
    errors = compute_verdict(
        acting(
            both(alike(18, "F", "F") | {"x": ("E", "E"), "y": ("E", "E"), "z": ("E", "E")}),
            dict.fromkeys([*names, "x", "y", "z"], "."),
        )
    )
    assert (errors.reason, "description" in errors.recommendation) == ("errors", False)


@pytest.mark.parametrize("letters", ["P", "E"])
@pytest.mark.parametrize("place", ["baseline", "skill", "placebo"])
def test_one_trial_that_saw_a_hidden_skill_leaves_nothing_to_decide_by(
    place: str, letters: str
) -> None:
    rows = both(alike(10, "F", letters)) + arm("placebo", {"case-00": "F"})
    leak = next(number for number, row in enumerate(rows) if row.arm == place)
    rows[leak] = replace(rows[leak], leaked=True)
    found = compute_verdict(rows)
    assert (found.decision, found.reason, found.evidence_needed, found.is_beneficial) == (
        "undecided",
        "isolation",
        None,
        False,
    )
    assert "the arms were not isolated" in found.recommendation
    for text in ("decision=undecided", "decision!=hurts", "point:lift>=-1", "pass_rate>=0"):
        ruling = check_requirement(parse_requirement(text), found)
        assert (ruling.held, ruling.reason) == (
            False,
            "the run is invalid: the arms were not isolated",
        )


def test_a_leak_elsewhere_in_the_run_counts_here_too() -> None:
    assert (
        compute_verdict(both(alike(10, "F", "P")), VerdictOptions(isolation_broken=True)).reason
        == "isolation"
    )


# ---------------------------------------------------------------------------------------------------- cases


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ("PPP", "PPP", ("always passes",)),
        ("FFF", "FFF", ("never passes",)),
        ("FFF", "PPP", ()),
        ("PFP", "PPP", ()),  # one odd run is chance
        ("PFPF", "PPPP", ("flaky",)),
        ("FFFF", "PFFP", ("flaky",)),
        ("PPPP", "FFFF", ("baseline passes",)),  # four of four are not yet beyond chance
        ("PPPPP", "FFFFF", ("baseline passes", "hurt")),
        ("PPPPPPP", "FFFFFPP", ("baseline passes", "hurt", "flaky")),
        ("EEE", "PPP", ("unscored",)),
        ("PEE", "EEP", ()),  # once each
        ("P", "P", ()),
        ("P", "F", ()),
        ("F", "F", ()),
    ],
)
def test_a_case_is_diagnosed(before: str, after: str, kinds: tuple[str, ...]) -> None:
    (found,) = diagnose(both({"a": (before, after)}))
    assert found.problems == kinds
    assert len(found.advice) == len(kinds)


def test_a_case_of_one_arm_only_is_unscored() -> None:
    (found,) = diagnose(arm("skill", {"a": "PF"}))
    assert (found.baseline_rate, found.skill_rate, found.problems) == (None, 0.5, ("unscored",))


# ---------------------------------------------------------------------------------------------------- models


def several() -> list[Outcome]:
    names = [f"{number:02d}" for number in range(10)]
    small = arm("baseline", dict.fromkeys(names, "F"), model="small", cost=0.01)
    small += arm("skill", {n: "F" if n == "00" else "P" for n in names}, model="small", cost=0.02)
    large = arm("baseline", {n: "F" if n < "02" else "P" for n in names}, model="large", cost=0.5)
    large += arm("skill", dict.fromkeys(names, "P"), model="large", cost=0.6)
    free = arm("baseline", dict.fromkeys(names, "P"), model="unpriced", cost=None)
    return small + large + free


def test_the_pareto_front_leaves_out_what_is_dearer_and_no_better() -> None:
    front = pareto(list_choices(several()))
    assert [(found.model, found.arm) for found in front] == [
        ("small", "baseline"),
        ("small", "skill"),
        ("large", "skill"),
    ]


def test_the_cheapest_that_reaches_the_target_is_the_small_model_with_the_skill() -> None:
    found = cheapest(list_choices(several()), 0.8)
    assert found is not None
    assert (found.model, found.arm, found.cost_per_task) == ("small", "skill", pytest.approx(0.02))
    assert cheapest(list_choices(several()), 1.1) is None


# ---------------------------------------------------------------------------------------------------- requirements


@pytest.fixture(scope="module")
def won() -> Verdict:
    """Lift 1 with a lower bound of 0.47; a fifth more tokens."""
    return compute_verdict(cheaper_by(-20, alike(10, "F", "P")))


@pytest.mark.parametrize(
    ("text", "held", "reason"),
    [
        ("lift>=0.4", True, "lift is 1, its lower bound 0.472"),
        ("lift >= 60%", False, "lift is 1, its lower bound 0.472"),
        ("point:lift>=0.6", True, "lift is 1"),
        ("lift<0.9", False, "lift is 1, its upper bound 1"),
        ("decision=helps", True, "the decision is helps"),
        ("decision!=hurts", True, "the decision is helps"),
        ("decision = no-effect", False, "the decision is helps"),
        ("tokens<=1.2x", True, "tokens is 1.2x, its upper bound 1.2x"),
        ("tokens<=1.1x", False, "tokens is 1.2x, its upper bound 1.2x"),
        ("output_tokens<=2x", True, "output_tokens is 2x, its upper bound 2x"),
        ("input_tokens<=1x", True, "input_tokens is 1x, its upper bound 1x"),
        ("cost<=1x", True, "cost is 1x, its upper bound 1x"),
        ("pass_rate>=0.7", True, "pass_rate is 1, its lower bound 0.722"),
        ("point:cost_per_pass<1x", True, "cost_per_pass is 0x"),
    ],
)
def test_a_requirement_is_judged_on_the_less_favourable_bound(
    won: Verdict, text: str, held: bool, reason: str
) -> None:
    ruling = check_requirement(parse_requirement(text), won)
    assert (ruling.held, ruling.reason) == (held, reason)
    assert ruling.requirement.text == text


def test_a_decision_that_errors_prevent_meets_no_requirement() -> None:
    broken = compute_verdict(
        [*arm("baseline", {"a": "PF", "b": "PF"}), *arm("skill", {"a": "EE", "b": "EE"})]
    )
    for text in ("decision!=hurts", "decision=undecided", "these:decision!=hurts"):
        ruling = check_requirement(parse_requirement(text), broken)
        assert (ruling.held, "errored" in ruling.reason) == (False, True), text


def test_an_unfinished_run_meets_no_requirement() -> None:
    half = compute_verdict(both(alike(10, "P", "P"))[:15])
    assert half.reason == "unfinished"
    for text in ("decision!=hurts", "these:decision!=hurts", "lift>=-1"):
        ruling = check_requirement(parse_requirement(text), half)
        assert (ruling.held, ruling.reason) == (False, "the run is unfinished")


def test_an_error_meets_no_requirement_for_a_skill_that_hurts() -> None:
    hurts = alike(5, "P", "F") | {f"same-{number}": ("P", "P") for number in range(9)}
    assert compute_verdict(both(hurts)).decision == "hurts"
    verdict = compute_verdict(both(hurts | {"x": ("F", "E")}))
    assert verdict.reason == "errors could explain it"
    assert not check_requirement(parse_requirement("decision!=hurts"), verdict).held


def test_what_was_not_measured_is_not_met() -> None:
    no_baseline = arm("skill", {"a": "P"}, cost=None)
    no_pairs = [*no_baseline, *arm("baseline", {"b": "P"}, cost=None)]
    decisions = ("decision!=hurts", "decision=undecided", "these:decision!=hurts")
    texts = ("lift>=-1", "tokens<=9x", "cost_per_pass<=9x", "cost<=9x", *decisions)
    for rows, text in product((no_baseline, no_pairs), texts):
        ruling = check_requirement(parse_requirement(text), compute_verdict(rows))
        assert (ruling.held, ruling.reason.endswith("was not measured")) == (False, True), text
    assert not check_requirement(parse_requirement("pass_rate>=0"), compute_verdict([])).held


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("lift", "is not a valid requirement", "lift>=0.1"),
        ("lift>=lots", "'lots' is not a number", "lift>=0.1"),
        ("lifts>=0.1", "unknown quantity 'lifts'", "'lift'"),
        ("decision=helpful", "unknown decision 'helpful'", "'helps'"),
        ("decision>=helps", "decisions can only be compared with = or !=", "decision=helps"),
        ("lift=0.1", "numbers can only be compared with >=", "lift>=0.1"),
        ("tokens<=1.2", "a multiple of the baseline, such as 1.2x", "tokens<=1.2x"),
        ("lift>=1.2x", "a share, such as 0.1 or 10%", "lift>=0.1"),
    ],
)
def test_a_requirement_that_makes_no_sense_is_a_usage_error(
    text: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_requirement(text)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("cases", "rounds", "is_exact"),
    [(1, 3, False), (1, 4, True), (2, 2, False), (3, 2, True), (9, 1, False)],
)
def test_a_few_copies_do_not_show_that_a_student_never_varies(
    cases: int, rounds: int, is_exact: bool
) -> None:
    """Of a single case, one that passes half the time repeats itself in two rounds of both arms in every fourth run."""
    every = product(range(cases), ("baseline", "skill"), range(rounds))
    rows = [
        Outcome("m", f"case-{case}", arm, seed, arm == "skill", 0, 0, 0.0, answer=7)
        for case, arm, seed in every
    ]
    assert never_varies(rows) == is_exact
    assert not never_varies([*rows, replace(rows[0], seed=rounds, answer=8)])
