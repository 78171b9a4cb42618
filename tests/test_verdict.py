"""A verdict answers two questions by one interval: worked examples of each rule, in the order of the design."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from upskill.errors import UsageError
from upskill.runs.results.choices import cheapest, list_choices, pareto
from upskill.runs.results.diagnosis import CaseProblem, describe_problem, diagnose
from upskill.verdicts import LEVEL_OF_TASKS, LEVEL_OF_THESE
from upskill.verdicts.compute import compute_verdict, compute_verdicts
from upskill.verdicts.line import decision_in_words, signed_points, verdict_line
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.planning import best_lift, best_pass_rate, cases_to_add, chance_to_show
from upskill.verdicts.requirements import (
    are_settled,
    check_requirement,
    describe_unreachable,
    parse_requirement,
)
from upskill.verdicts.verdict import Verdict, VerdictOptions

stats: Any = scipy_stats  # has no types of its own that strict checking could follow
RESULTS = {"P": True, "F": False, "E": None}
EXACT = frozenset({"m"})
NONE: frozenset[str] = frozenset()
Cases = Mapping[str, tuple[str, str]]


def arm(
    name: str,
    cases: Mapping[str, str],
    *,
    model: str = "m",
    tokens: int = 100,
    cost: float | None = 0.01,
    group: str = "",
) -> list[Outcome]:
    """Outcomes of one arm: of each case a letter a draw, P passed, F failed, E missing, a dot for not run."""
    return [
        Outcome(
            model=model,
            case=case,
            arm=name,
            seed=seed,
            passed=RESULTS[letter],
            input_tokens=tokens - 20,
            output_tokens=20,
            cost_usd=cost,
            seconds=1.0,
            group=group,
        )
        for case, letters in cases.items()
        for seed, letter in enumerate(letters)
        if letter != "."
    ]


def both(cases: Cases, **more: Any) -> list[Outcome]:
    before = arm("baseline", {case: pair[0] for case, pair in cases.items()}, **more)
    return before + arm("skill", {case: pair[1] for case, pair in cases.items()}, **more)


def alike(count: int, before: str, after: str, name: str = "case") -> dict[str, tuple[str, str]]:
    return {f"{name}-{number:02d}": (before, after) for number in range(count)}


def weigh(cases: Cases, **options: Any) -> Verdict:
    return compute_verdict(both(cases), VerdictOptions(**options))


def swapped_arms(rows: list[Outcome]) -> list[Outcome]:
    return [replace(row, arm="baseline" if row.arm == "skill" else "skill") for row in rows]


def low_of_all_won(units: int, level: float) -> float:
    """The lower end where each unit goes from failed to passed once: Student's t with one unit of +1 and one of -1
    added, or the bound for what was not seen, with 0.7 of a unit, whichever is lower."""
    tail, total = (1 - level) / 2, units + 2
    mean = units / total
    error = math.sqrt((1 - mean**2) / total)
    by_spread = mean - stats.t.ppf(1 - tail, units - 1) * error
    return float(max(-1.0, min(by_spread, 2 * stats.beta.ppf(tail, units, 0.7) - 1)))


def width_of_no_difference(units: int, level: float) -> float:
    """Half of the interval where no unit differs between the arms."""
    tail, total = (1 - level) / 2, units + 2
    by_spread = stats.t.ppf(1 - tail, units - 1) * math.sqrt(2 / total / total)
    return float(max(by_spread, stats.beta.ppf(1 - tail, 0.7, units)))


# Two questions, one interval
# ------------------------------------------------------------------------------------------------


def test_tasks_take_the_case_as_unit_at_95_and_these_cases_the_draw_at_99() -> None:
    found = weigh(alike(10, "FFF", "PPP"))
    assert found.tasks is not None
    assert (found.tasks.units, found.tasks.level, found.tasks.cases) == (10, 0.95, 10)
    assert (found.these.units, found.these.level, found.these.cases) == (30, 0.99, 10)
    assert found.these.interval == pytest.approx((low_of_all_won(30, 0.99), 1), abs=1e-4)
    assert found.tasks.interval is not None
    assert low_of_all_won(10, 0.95) < found.tasks.interval[0] < low_of_all_won(30, 0.99)


@pytest.mark.parametrize(
    ("cases", "tasks", "these"),
    [(5, "undecided", "undecided"), (6, "helps", "undecided"), (8, "helps", "helps")],
)
def test_each_question_has_its_own_decision(cases: int, tasks: str, these: str) -> None:
    """One draw each: five unanimous cases show nothing, six are enough at 95 %, eight at 99 %."""
    found = weigh(alike(cases, "F", "P"))
    assert found.tasks is not None
    assert (found.tasks.decision, found.these.decision) == (tasks, these)
    assert found.tasks.interval == pytest.approx((low_of_all_won(cases, 0.95), 1), abs=1e-4)
    assert found.these.interval == pytest.approx((low_of_all_won(cases, 0.99), 1), abs=1e-4)
    lost = compute_verdict(swapped_arms(both(alike(cases, "F", "P"))))
    assert lost.tasks is not None
    mirrored = {"helps": "hurts", "undecided": "undecided"}
    assert (lost.tasks.decision, lost.these.decision) == (mirrored[tasks], mirrored[these])


def test_the_heading_is_about_tasks_where_that_decides_and_else_about_these_cases() -> None:
    by_tasks = weigh(alike(6, "F", "P"))
    assert (by_tasks.about, by_tasks.decision, by_tasks.level) == ("tasks", "helps", LEVEL_OF_TASKS)
    assert by_tasks.other is by_tasks.these
    assert by_tasks.these.decision == "undecided"
    by_these = weigh(alike(5, "FFF", "PPP"))
    assert (by_these.about, by_these.decision, by_these.level) == ("these", "helps", LEVEL_OF_THESE)
    assert by_these.other is by_these.tasks
    seen = weigh(alike(6, "FFF", "PPP"), fresh=NONE)
    assert (seen.about, seen.decision, seen.other, seen.tasks) == ("these", "helps", None, None)


def test_tasks_are_read_from_the_fresh_cases_only() -> None:
    cases = alike(18, "FFF", "PPP", "old") | alike(6, "PPP", "FFF", "new")
    found = weigh(cases, fresh=frozenset(alike(6, "", "", "new")))
    assert found.tasks is not None
    assert (found.tasks.decision, found.tasks.lift, found.tasks.cases) == ("hurts", -1, 6)
    assert (found.these.decision, found.these.lift, found.these.cases) == ("helps", 1 / 2, 24)
    assert (found.about, found.decision, found.cases) == ("tasks", "hurts", 24)
    plain = found.to_dict()
    assert (plain["cases"], plain["other"]["cases"]) == (6, 24)


def test_an_exact_student_takes_the_case_as_unit_at_95_in_both_questions() -> None:
    found = weigh(alike(6, "F", "P"), exact=EXACT)
    assert found.tasks is not None
    assert (found.these.units, found.these.level) == (found.tasks.units, found.tasks.level)
    assert found.these.interval == found.tasks.interval
    assert found.these.interval == pytest.approx((low_of_all_won(6, 0.95), 1), abs=1e-4)
    edited = weigh(alike(6, "F", "P"), exact=EXACT, fresh=NONE)  # the same answers, seen
    assert (edited.decision, edited.lift, edited.interval) == ("helps", found.lift, found.interval)


def test_a_group_counts_once_for_tasks_and_not_at_all_for_these_cases() -> None:
    topic = both(alike(6, "FF", "PP", "topic"), group="topic")
    rows = topic + both(alike(4, "PP", "PP", "alone"))
    found = compute_verdict(rows)
    assert found.tasks is not None
    assert (found.tasks.units, found.tasks.cases, found.tasks.lift) == (5, 10, 1 / 5)
    assert (found.these.units, found.these.lift) == (20, pytest.approx(12 / 20))
    assert (found.baseline.pass_rate, found.skill.pass_rate) == (4 / 5, 1)
    exact = compute_verdict(rows, VerdictOptions(exact=EXACT))
    assert exact.these.lift == pytest.approx(6 / 10)
    assert exact.these.pass_rate is not None
    assert exact.these.pass_rate.low == pytest.approx(0.025 ** (1 / 10), abs=1e-4)


def test_all_cases_of_one_group_show_nothing_about_other_tasks() -> None:
    found = compute_verdict(both(alike(12, "FFF", "PPP"), group="one"))
    assert found.tasks is not None
    assert (found.tasks.interval, found.tasks.reason) == ((-1, 1), "too few cases")
    assert (found.about, found.decision) == ("these", "helps")


# Several models, and rounds
# ------------------------------------------------------------------------------------------------


def of_models(letters: Mapping[str, Cases]) -> list[Outcome]:
    return [row for model, cases in letters.items() for row in both(cases, model=model)]


def test_several_models_share_the_error_as_holm_does() -> None:
    same = alike(10, "P", "P")
    rows = of_models({"a": alike(10, "F", "P"), "b": same, "c": alike(10, "F", "P"), "d": same})
    found = {verdict.model: verdict for verdict in compute_verdicts(rows)}
    levels = {model: verdict.tasks and verdict.tasks.level for model, verdict in found.items()}
    assert levels == pytest.approx({"a": 0.9875, "c": 0.9875, "b": 0.975, "d": 0.975})
    assert found["a"].interval == pytest.approx((low_of_all_won(10, 0.9875), 1), abs=1e-4)
    assert found["b"].tasks is not None
    width = width_of_no_difference(10, 0.975)
    assert found["b"].tasks.interval == pytest.approx((-width, width), abs=1e-4)
    assert {verdict.these.level for verdict in found.values()} == {0.99}, "enough for five models"
    eight = compute_verdicts(of_models(dict.fromkeys("abcdefgh", same)))
    assert [verdict.these.level for verdict in eight] == pytest.approx([1 - 0.05 / 8] * 8)


def test_beside_models_that_decide_another_needs_less() -> None:
    """Six of six reach 95 %, not 98.75 %; where three models decide, the fourth has 95 % for itself."""
    six, many = alike(6, "F", "P"), alike(12, "F", "P")
    four = compute_verdicts(of_models(dict.fromkeys("abcd", six)))
    tasks = [verdict.tasks for verdict in four if verdict.tasks]
    assert [each.decision for each in tasks] == ["undecided"] * 4
    assert [each.level for each in tasks] == pytest.approx([0.9875] * 4)
    helped = compute_verdicts(of_models({"a": six, "b": many, "c": many, "d": many}))
    assert [verdict.decision for verdict in helped] == ["helps"] * 4
    assert [verdict.level for verdict in helped] == pytest.approx([0.95, *[0.9875] * 3])
    assert compute_verdict(both(six)).decision == "helps"


def test_an_exact_student_shares_in_both_questions_and_a_broken_model_takes_no_share() -> None:
    cases, missing = alike(12, "F", "P"), alike(12, "F", "E")
    exact = VerdictOptions(exact=frozenset({"a", "b"}))
    found = compute_verdicts(of_models({"a": cases, "b": cases}), exact)
    assert [verdict.these.level for verdict in found] == [0.975, 0.975]
    beside = compute_verdicts(of_models({"a": cases, "b": missing}), exact)
    assert (beside[0].decision, beside[0].level) == ("helps", 0.95)


def test_after_each_of_several_rounds_both_questions_are_at_99() -> None:
    found = weigh(alike(6, "F", "P"), in_rounds=True)
    assert found.tasks is not None
    assert (found.tasks.level, found.these.level) == (0.99, 0.99)
    assert found.tasks.interval == found.these.interval
    assert (found.decision, weigh(alike(6, "F", "P")).decision) == ("undecided", "helps")


# What stands in the way, in its order
# ------------------------------------------------------------------------------------------------


def test_of_several_reasons_for_undecided_the_first_is_given() -> None:
    cases = alike(12, "FFF", "EEE")
    skill_only = arm("skill", {case: after for case, (_, after) in cases.items()})
    leaked = [replace(skill_only[0], leaked=True), *skill_only[1:]]
    unfinished = {"m": (5, 72)}
    steps = [
        (leaked, VerdictOptions(unfinished=unfinished), "isolation"),
        (skill_only, VerdictOptions(unfinished=unfinished, isolation_broken=True), "isolation"),
        (skill_only, VerdictOptions(unfinished=unfinished, has_baseline=False), "no baseline"),
        (both(cases), VerdictOptions(unfinished=unfinished), "unfinished"),
        (both(cases), VerdictOptions(), "errors"),
        (both(alike(3, "F", "P")), VerdictOptions(), "too few cases"),
        (both(alike(9, "F", "F")), VerdictOptions(), "not enough evidence"),
    ]
    for rows, options, reason in steps:
        found = compute_verdict(rows, options)
        assert (found.decision, found.reason) == ("undecided", reason)


@pytest.mark.parametrize("place", ["baseline", "skill", "placebo"])
def test_one_trial_that_saw_a_hidden_skill_leaves_nothing_to_decide_by(place: str) -> None:
    rows = both(alike(10, "F", "P")) + arm("placebo", {"case-00": "F"})
    leak = next(number for number, row in enumerate(rows) if row.arm == place)
    rows[leak] = replace(rows[leak], leaked=True)
    found = compute_verdict(rows)
    assert (found.decision, found.reason, found.is_beneficial) == ("undecided", "isolation", False)
    assert found.heading.add is None


def test_without_pairs_there_is_no_lift() -> None:
    for rows, reason in (
        (arm("skill", {"a": "P"}), "no baseline"),
        (arm("baseline", {"a": "P"}) + arm("skill", {"b": "P"}), "errors"),
        ([], "no baseline"),
    ):
        found = compute_verdict(rows)
        assert (found.reason, found.pairs, found.lift, found.interval) == (reason, 0, None, None)
        assert found.token_savings is found.cost is found.break_even is None


def test_one_verdict_is_about_one_model() -> None:
    with pytest.raises(ValueError, match="one model"):
        compute_verdict(of_models({"a": alike(2, "P", "F"), "b": alike(2, "P", "F")}))


# Saves, no effect, tokens and cost
# ------------------------------------------------------------------------------------------------


def cheaper_by(tokens: int, cases: Cases) -> list[Outcome]:
    rows = both(cases)
    return [
        replace(row, input_tokens=row.input_tokens - tokens) if row.arm == "skill" else row
        for row in rows
    ]


def test_no_effect_is_said_where_the_whole_interval_is_within_twenty_points() -> None:
    found = weigh(alike(12, "PPP", "PPP"))
    width = width_of_no_difference(36, 0.99)
    assert 0.1 < width < 0.2
    assert (found.decision, found.about) == ("no effect", "these")
    assert found.interval == pytest.approx((-width, width), abs=1e-4)
    many = weigh(alike(20, "PPP", "PPP")).tasks
    assert many is not None
    assert many.interval is not None
    assert (many.decision, many.interval[1] < 0.2) == ("undecided", True), "only of these cases"
    assert weigh(alike(12, "PPP", "PPP"), tolerance=0.1).decision == "undecided"
    assert weigh(alike(12, "P", "P")).decision == "undecided", "twelve pairs show little"


def test_fewer_tokens_in_a_typical_trial_save_where_no_more_than_the_tolerance_is_lost() -> None:
    found = compute_verdict(cheaper_by(30, alike(12, "PPP", "PPP")))
    assert (found.decision, found.about, found.is_beneficial) == ("saves", "these", True)
    assert found.token_savings == pytest.approx(0.3)
    assert compute_verdict(cheaper_by(-10, alike(12, "PPP", "PPP"))).decision == "no effect"
    assert compute_verdict(cheaper_by(30, alike(12, "P", "P"))).decision == "undecided"
    assert compute_verdict(cheaper_by(30, alike(12, "FFF", "PPP"))).decision == "helps"


def test_one_trial_that_is_very_long_is_in_the_bill_and_not_in_the_typical_trial() -> None:
    rows = cheaper_by(70, alike(12, "PPP", "PPP"))
    last = max(number for number, row in enumerate(rows) if row.arm == "skill")
    rows[last] = replace(rows[last], output_tokens=5_000)
    found = compute_verdict(rows)
    assert found.decision == "saves"
    assert found.token_savings is not None
    assert found.token_savings < -0.5, "the total is said beside it"


def test_tokens_and_cost_are_totals_over_complete_pairs() -> None:
    rows = cheaper_by(-20, alike(3, "F", "P")) + both({"x": ("F", "E"), "y": ("E", "P")})
    found = compute_verdict(rows).to_dict()
    assert found["tokens"]["total"] == {"baseline": 300, "skill": 360, "relative": 0.2}
    assert found["tokens"]["input"] == {"baseline": 240, "skill": 300, "relative": 0.25}
    assert (found["token_savings"], found["pairs"]) == (-0.2, 3)
    assert (found["skill"]["passed"], found["skill"]["missing"]) == (4, 1)


def test_an_arm_is_summed_over_its_graded_trials() -> None:
    found = weigh({"a": ("PFE", "PPP"), "b": ("FFF", "PFP")}).baseline
    assert (found.passed, found.failed, found.missing, found.scored) == (1, 4, 1, 5)
    assert found.pass_rate == pytest.approx(1 / 4)  # of a, one in two; of b, none in three
    assert (found.input_tokens, found.output_tokens, found.seconds) == (400, 100, 5)
    assert (found.cost_usd, found.cost_per_pass) == pytest.approx((0.05, 0.05))


def test_an_unknown_price_is_unknown_and_not_nothing() -> None:
    rows = both(alike(8, "F", "P"))
    rows[0] = replace(rows[0], cost_usd=None)
    found = compute_verdict(rows, VerdictOptions(making_cost=1.0))
    assert found.baseline.cost_usd is found.cost is found.break_even is None
    assert found.skill.cost_per_pass == pytest.approx(0.01)
    free = compute_verdict(both(alike(8, "P", "P"), cost=0.0))
    assert (free.skill.cost_usd, free.cost_per_pass_ratio) == (0, None)


def test_break_even_is_the_making_cost_over_what_a_pass_saves() -> None:
    rows = both({"a": ("PFFF", "PPPP"), "b": ("FFFP", "PPPP")})
    found = compute_verdict(rows, VerdictOptions(making_cost=3.0))
    assert (found.baseline.cost_per_pass, found.skill.cost_per_pass) == pytest.approx((0.04, 0.01))
    assert found.break_even == pytest.approx(100)
    assert found.cost_per_pass_ratio == pytest.approx(0.25)
    assert compute_verdict(rows).break_even is None
    assert compute_verdict(swapped_arms(rows), VerdictOptions(making_cost=3.0)).break_even is None


# Controls and activation
# ------------------------------------------------------------------------------------------------


def test_controls_split_the_lift_into_content_and_length() -> None:
    names = list(alike(20, "", ""))
    rows = both(alike(20, "F", "P")) + arm("baseline_repeat", dict.fromkeys(names, "F"))
    rows += arm("placebo", {name: "P" if name < "case-05" else "F" for name in names})
    found = compute_verdict(rows).controls
    assert found is not None
    assert found.content is not None
    assert found.length is not None
    assert found.noise is not None
    values = found.content.value, found.length.value, found.noise.value
    assert values == pytest.approx((0.75, 0.25, 0))
    assert found.content.low > 0 > found.noise.low
    assert {found.content.level, found.length.level, found.noise.level} == {0.99}
    assert weigh(alike(3, "F", "P")).controls is None
    one = both(alike(3, "F", "P")) + arm("baseline_repeat", {"case-00": "F"})
    only = compute_verdict(one).controls
    assert only is not None
    assert only.content is only.length is None


def acting(rows: list[Outcome], opened: Mapping[str, str], **more: Any) -> list[Outcome]:
    """The outcomes of an agent that acts: of each case a letter a draw, O opened the skill, a dot did not."""
    return [
        replace(row, activated=opened[row.case][row.seed] == "O", **more)
        if row.arm == "skill"
        else row
        for row in rows
    ]


def test_the_lift_is_split_by_whether_the_skill_was_activated() -> None:
    cases = {"a": ("FF", "PP"), "b": ("FF", "PF"), "c": ("FP", "FP"), "d": ("PF", "FF")}
    opened = {"a": "OO", "b": "O.", "c": "..", "d": ".."}
    found = compute_verdict(acting(both(cases), opened, turns=2, calls=4, tool_errors=1))
    split = found.activation
    assert split is not None
    assert (split.trials, split.activated, split.rate) == (8, 3, 0.375)
    assert split.interval[0] < 0.375 < split.interval[1]
    assert (split.pairs, split.lifts) == ((3, 5), (1.0, -1 / 5))
    skill = found.skill
    assert (skill.activated, skill.turns, skill.tool_calls, skill.tool_errors) == (3, 2, 4, 0.25)
    plain = compute_verdict(both(cases))
    assert (plain.lift, plain.interval) == (found.lift, found.interval)
    assert plain.activation is plain.skill.activated is plain.skill.turns is None


# What holds for every verdict
# ------------------------------------------------------------------------------------------------

LETTERS = st.text("PFE", min_size=1, max_size=3)
SUITES = st.dictionaries(
    st.sampled_from("abcdefghij"), st.tuples(LETTERS, LETTERS), min_size=1, max_size=10
)


@settings(deadline=None, max_examples=12)
@given(SUITES, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(cases: Cases, random: Any) -> None:
    rows = both(cases)
    mixed = list(rows)
    random.shuffle(mixed)
    assert compute_verdict(mixed) == compute_verdict(rows)


@settings(deadline=None, max_examples=12)
@given(SUITES)
def test_swapping_the_arms_mirrors_both_readings(cases: Cases) -> None:
    there = compute_verdict(both(cases))
    back = compute_verdict(swapped_arms(both(cases)))
    mirrored = {"helps": "hurts", "hurts": "helps"}
    for one, other in ((there.these, back.these), (there.tasks, back.tasks)):
        assert one is not None
        assert other is not None
        assert other.decision == mirrored.get(one.decision, one.decision)
        if one.interval is None or one.lift is None:
            assert other.interval is None
            continue
        assert other.lift == pytest.approx(-one.lift)
        assert other.interval == pytest.approx((-one.interval[1], -one.interval[0]), abs=1e-9)
        assert one.interval[0] <= one.lift <= one.interval[1]


@settings(deadline=None, max_examples=12)
@given(SUITES)
def test_every_verdict_can_be_written_as_json(cases: Cases) -> None:
    found = weigh(cases, making_cost=1.0)
    plain = found.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["other"]["about"] != plain["about"]
    assert (plain["decision"], plain["about"]) == (found.decision, found.about)
    assert [each.case for each in diagnose(both(cases))] == sorted(cases)


def test_the_json_form_has_both_readings_and_the_caveats() -> None:
    plain = weigh(alike(6, "F", "P"), caveats=("Recorded.",)).to_dict()
    same = {"lift": 1.0, "cases": 6, "add": None}
    heading = {"decision": "helps", "about": "tasks", "reason": None, "level": 0.95}
    other = {"decision": "undecided", "about": "these", "level": 0.99} | same
    assert {key: plain[key] for key in heading | same} == heading | same
    assert {key: plain["other"][key] for key in other} == other
    assert (plain["caveats"], plain["other"]["reason"]) == (["Recorded."], "too few cases")
    assert weigh(alike(6, "F", "P"), fresh=NONE).to_dict()["other"] is None


def test_fifty_thousand_rows_give_a_verdict() -> None:
    found = weigh(alike(50, "PF" * 250, "PPPF" * 125))
    assert (found.decision, found.pairs, found.lift) == ("helps", 25_000, pytest.approx(0.25))


# The line
# ------------------------------------------------------------------------------------------------


def stated(about: str, lift: float, interval: tuple[float, float], cases: int) -> Verdict:
    found = weigh(alike(cases, "FFF", "PPP"), fresh=None if about == "tasks" else NONE)
    assert found.about == about
    return replace(found, heading=replace(found.heading, lift=lift, interval=interval, add=None))


def test_a_verdict_is_said_in_one_of_three_forms() -> None:
    tasks = stated("tasks", 0.45, (0.21, 0.63), 20)
    assert verdict_line(tasks) == "✓ helps on tasks like these: +45 points (+21 to +63), 20 cases"
    these = stated("these", 0.75, (0.44, 0.94), 12)
    helps = "✓ helps on these 12 cases: +75 points (+44 to +94)"
    assert verdict_line(these) == f"{helps}; tasks like these: not measured"
    fresh = weigh(alike(8, "F", "P")).tasks
    assert fresh is not None
    mixed = replace(these, other=replace(fresh, decision="undecided", add=6))
    known = f"{helps}; tasks like these: undecided from 8 fresh cases, add about 6"
    assert verdict_line(mixed, "upskill tests drawers --add {}") == (
        f"{known}: upskill tests drawers --add 6"
    )
    assert verdict_line(mixed) == f"{known} cases that no version has seen"


def test_where_the_student_hardly_needs_the_skill_the_line_says_what_the_cases_can_show() -> None:
    passed, failed = alike(9, "PPP", "PPP", "a"), alike(3, "FFF", "FPF", "b")
    easy = weigh(passed | failed)
    shown = "passes 27 of 36 without the skill: these cases can show at most +25 points"
    assert verdict_line(easy).endswith(f"tasks like these: undecided from 12 fresh cases; {shown}")
    command = "upskill tests drawers --add 12 --hard m"
    line = verdict_line(easy, "upskill tests drawers --add {}")
    assert line.endswith(f"{shown}; harder ones: {command}")
    assert "without the skill" not in verdict_line(weigh(alike(12, "F", "P")))


def test_a_small_suite_of_a_sampling_student_helps_on_these_cases() -> None:
    """Upstream's size: five cases, three draws, none passed before and all pass now."""
    line = verdict_line(weigh(alike(5, "FFF", "PPP")))
    assert line.startswith(
        "✓ helps on these 5 cases: +100 points (+47 to +100); tasks like these: "
    )


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (
            both(alike(10, "P", "F")),
            (
                "✗ hurts on tasks like these: \N{MINUS SIGN}100 points"
                " (\N{MINUS SIGN}100 to \N{MINUS SIGN}47), 10 cases"
            ),
        ),
        (
            both(alike(12, "PPP", "PPP")),
            (
                "– no effect of 20 points or more on these 12 cases: 0 points (\N{MINUS SIGN}12 to +12);"
                " tasks like these: undecided from 12 fresh cases; passes 36 of 36 without the skill:"
                " these cases can show at most 0 points"
            ),
        ),
        (
            cheaper_by(30, alike(12, "PPP", "PPP")),
            (
                "✓ saves tokens on these 12 cases: 30% fewer tokens, 0 points (\N{MINUS SIGN}12 to +12);"
                " tasks like these: undecided from 12 fresh cases"
            ),
        ),
        (
            both({"a": ("FFF", "PPP")}),
            (
                "? undecided on this case: +100 points (\N{MINUS SIGN}100 to +100), too few cases;"
                " tasks like these: undecided from 1 fresh case, add about 8 cases that no version has seen"
            ),
        ),
        (
            both(alike(11, "FFF", "FFF") | {"won": ("FFF", "PPP")}),
            (
                "? undecided on these 12 cases: +8 points (\N{MINUS SIGN}7 to +26), not enough evidence;"
                " tasks like these: undecided from 12 fresh cases, and more than 40 more would be needed:"
                " not worth it"
            ),
        ),
        (
            both(alike(9, "F", "P") | alike(3, "F", "E", "x")),
            "? undecided (errors): 3 of 12 trials with the skill are missing",
        ),
        (
            both(alike(7, "P", "E", "x") | alike(3, "P", "P")) + both({"y": ("E", "P")}),
            (
                "? undecided (errors): 1 of 11 trials without the skill and 7 of 11 trials with the"
                " skill are missing"
            ),
        ),
        (arm("skill", {"a": "P"}), "? undecided (no baseline): no baseline was run"),
    ],
    ids=["hurts", "no effect", "saves", "few", "dear", "errors", "errors twice", "no baseline"],
)
def test_the_other_decisions_in_words(rows: list[Outcome], line: str) -> None:
    assert verdict_line(compute_verdict(rows)) == line


def test_an_unfinished_run_says_how_far_it_is() -> None:
    found = weigh(alike(12, "FFF", "PPP"), unfinished={"m": (24, 72)})
    assert verdict_line(found) == "? undecided (unfinished): 24 of 72 trials"
    assert found.to_dict()["unfinished"] == {"trials": 24, "of": 72}


def test_points_are_signed_and_never_an_empty_zero() -> None:
    shares = (0.55, -0.3, 0.0, 0.004, -0.004)
    assert [signed_points(share) for share in shares] == [
        "+55",
        "\N{MINUS SIGN}30",
        "0",
        "just above 0",
        "just below 0",
    ]


def test_a_table_has_the_decision_and_what_it_is_about_or_what_prevents_it() -> None:
    verdicts = {
        "helps": weigh(alike(10, "F", "P")),
        "helps on these cases": weigh(alike(10, "FFF", "PPP"), fresh=NONE),
        "undecided": weigh(alike(9, "F", "F")),
        "undecided (too few cases)": weigh(alike(3, "F", "P")),
        "undecided (no baseline)": compute_verdict(arm("skill", {"a": "P"})),
    }
    for words, verdict in verdicts.items():
        assert decision_in_words(verdict.to_dict()) == words


# What a suite can show
# ------------------------------------------------------------------------------------------------


def test_what_a_suite_shows_at_best_is_where_everything_passes() -> None:
    for cases, level in ((12, 0.95), (20, 0.95), (36, 0.99)):
        tail = (1 - level) / 2
        assert best_pass_rate(cases, level) == pytest.approx(tail ** (1 / cases), abs=1e-4)
        assert best_lift(cases, level) == pytest.approx(low_of_all_won(cases, level), abs=1e-4)
    assert best_lift(1, 0.95) == -1


def test_more_fresh_cases_and_a_larger_lift_leave_fewer_to_add() -> None:
    need = cases_to_add(0.4, 0, 3, 0.2)
    assert need in range(8, 16)
    assert cases_to_add(0.4, 6, 3, 0.2) == need - 6
    assert cases_to_add(0.6, 0, 3, 0.2) < need
    assert cases_to_add(0.05, 0, 3, 0.2) == 41, "not worth it"
    one = chance_to_show(0.4, 12, 3)
    assert one.these == pytest.approx(0.89, abs=0.08)  # the table of verdict-rules, section 19
    assert one.tasks == pytest.approx(0.85, abs=0.08)
    assert max(one.tasks, one.these) <= one.either
    exact = chance_to_show(0.4, 12, 1, exact=True)
    assert exact.these == exact.tasks == exact.either


# Requirements
# ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def won() -> Verdict:
    """Tasks: a lift of 1 from 0.47 up. These cases: from 0.26 up. A fifth more tokens."""
    return compute_verdict(cheaper_by(-20, alike(10, "F", "P")))


@pytest.mark.parametrize(
    ("text", "held", "reason"),
    [
        ("lift>=0.4", True, "lift on tasks like these is 1, its lower bound 0.472"),
        ("these: lift >= 20%", True, "lift on these cases is 1, its lower bound 0.263"),
        ("point:lift>=0.6", True, "lift on tasks like these is 1"),
        ("lift<0.9", False, "lift on these cases is 1, its upper bound 1"),
        ("decision=helps", True, "the decision on tasks like these is helps"),
        ("these:decision=helps", True, "the decision on these cases is helps"),
        ("decision != hurts", True, "the decision on tasks like these is helps"),
        ("decision = no-effect", False, "the decision on these cases is helps"),
        ("tokens<=1.2x", True, "tokens is 1.2x"),
        ("tokens<=1.1x", False, "tokens is 1.2x"),
        ("input_tokens<=1.3x", True, "input_tokens is 1.25x"),
        ("cost<=1x", True, "cost is 1x"),
        ("pass_rate>=0.69", True, "pass_rate on tasks like these is 1, its lower bound 0.692"),
        ("these:pass_rate>=0.5", True, "pass_rate on these cases is 1, its lower bound 0.589"),
        (
            "pass_rate>=0.7",
            False,
            (
                "pass_rate on these cases is 1, its lower bound 0.589; 10 draws can show a pass_rate of"
                " at most 0.59"
            ),
        ),
        (
            "tasks:lift>=60%",
            False,
            (
                "lift on tasks like these is 1, its lower bound 0.472; 10 fresh cases can show a lift of"
                " at most 0.47"
            ),
        ),
    ],
)
def test_a_requirement_reads_the_worse_end_and_says_of_which_reading(
    won: Verdict, text: str, held: bool, reason: str
) -> None:
    ruling = check_requirement(parse_requirement(text), won)
    assert (ruling.held, ruling.reason) == (held, reason)
    assert ruling.requirement.text == text


def holds(text: str, verdict: Verdict) -> bool:
    return check_requirement(parse_requirement(text), verdict).held


def test_without_a_prefix_it_is_enough_that_either_reading_meets_it() -> None:
    only_tasks, only_these = weigh(alike(6, "F", "P")), weigh(alike(5, "FFF", "PPP"))
    texts = ("decision=helps", "tasks:decision=helps", "these:decision=helps")
    assert [holds(text, only_tasks) for text in texts] == [True, True, False]
    assert [holds(text, only_these) for text in texts] == [True, False, True]
    seen = weigh(alike(5, "FFF", "PPP"), fresh=NONE)
    assert [holds(text, seen) for text in texts] == [True, False, True]
    ruling = check_requirement(parse_requirement("tasks:lift>=-1"), seen)
    assert (ruling.held, ruling.reason) == (False, "tasks like these were not measured")


def test_what_must_not_be_said_must_be_said_by_neither_reading() -> None:
    cases = alike(12, "FFF", "PPP", "old") | alike(6, "PPP", "FFF", "new")
    torn = weigh(cases, fresh=frozenset(alike(6, "", "", "new")))
    assert not holds("decision!=hurts", torn)
    assert holds("these:decision!=hurts", torn)
    assert holds("decision!=no effect", torn)


def test_what_stands_in_the_way_meets_no_requirement() -> None:
    leaked = both(alike(10, "F", "P"))
    leaked[0] = replace(leaked[0], leaked=True)
    broken = [
        compute_verdict(leaked),
        compute_verdict(arm("skill", {"a": "P"})),
        weigh(alike(10, "P", "P"), unfinished={"m": (3, 20)}),
        weigh(alike(10, "F", "E")),
        compute_verdict([]),
    ]
    texts = ("decision!=hurts", "decision=undecided", "these:decision!=hurts", "point:lift>=-1")
    for verdict, text in product(broken, (*texts, "pass_rate>=0", "tokens<=9x", "cost<=9x")):
        assert not holds(text, verdict), (text, verdict)


def test_a_reading_that_errors_prevent_meets_nothing_beside_one_that_decides() -> None:
    """Fresh cases are complete and decide; of the seen ones, too many are missing."""
    cases = alike(8, "F", "P", "new") | alike(6, "P", "E", "old")
    found = weigh(cases, fresh=frozenset(alike(8, "", "", "new")))
    assert (found.about, found.decision, found.these.reason) == ("tasks", "helps", "errors")
    assert holds("tasks:decision=helps", found)
    assert not holds("these:decision!=hurts", found)
    assert not holds("decision!=hurts", found)


def test_what_a_suite_cannot_show_is_known_before_the_first_call() -> None:
    units = {"tasks": (12, 0.95), "these": (36, 0.99)}
    for text, why in (
        ("tasks:pass_rate>=0.75", "12 fresh cases can show a pass_rate of at most 0.74"),
        ("tasks:pass_rate>=0.7", ""),
        ("pass_rate>=0.8", ""),  # 36 draws can show 0.86
        ("point:pass_rate>=1", ""),
        ("lift<=0.1", ""),
        ("tokens<=1x", ""),
    ):
        assert describe_unreachable(parse_requirement(text), units) == why
    few = {"tasks": (3, 0.95)}
    assert describe_unreachable(parse_requirement("decision=helps"), few).startswith(
        "3 fresh cases"
    )
    assert describe_unreachable(parse_requirement("tasks:lift>=0"), {"these": (9, 0.99)}) == (
        "no case is fresh"
    )


def test_rounds_end_where_each_requirement_is_known_to_hold_or_fail() -> None:
    helps = weigh(alike(12, "FFF", "PPP"), in_rounds=True)
    for text, settled in (("lift>=0.1", True), ("lift>=0.99", False), ("decision=hurts", True)):
        assert are_settled([parse_requirement(text)], helps) == settled
    lost = weigh(alike(12, "PPPPP", "PPPPP"), in_rounds=True)
    assert are_settled([parse_requirement("lift>=0.5")], lost), "refuted"
    assert not are_settled([parse_requirement("lift>=0.05")], lost)
    assert are_settled([], helps)
    assert not are_settled([], weigh(alike(4, "F", "F"), in_rounds=True))


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
        ("these:tokens<=1x", "`these:` can only be used with lift", "tokens<=1.2x"),
    ],
)
def test_a_requirement_that_makes_no_sense_is_a_usage_error(
    text: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_requirement(text)
    assert message in caught.value.message
    assert hint in caught.value.hint


# Cases and choices
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "problems"),
    [
        ("PPP", "PPP", ("always passes",)),
        ("FFF", "FFF", ("never passes",)),
        ("FFF", "PPP", ()),
        ("PFP", "PPP", ()),  # one odd draw is chance
        ("PFPF", "PPPP", ("flaky",)),
        ("PPPP", "FFFF", ("baseline passes",)),  # four of four are not yet beyond chance
        ("PPPPP", "FFFFF", ("baseline passes", "hurt")),
        ("PPPPPPP", "FFFFFPP", ("baseline passes", "hurt", "flaky")),
        ("EEE", "PPP", ("unscored",)),
        ("PEE", "EEP", ()),  # once each
    ],
)
def test_a_case_is_diagnosed(before: str, after: str, problems: tuple[CaseProblem, ...]) -> None:
    (found,) = diagnose(both({"a": (before, after)}))
    assert found.problems == problems
    assert len(found.advice) == len(problems)


def test_a_problem_names_its_first_cases_and_what_to_do() -> None:
    assert describe_problem("unscored", ["a", "b"], limit=1) == (
        "2 cases got no grade in one of the arms: a, …. Fix the errors."
    )
    (found,) = diagnose(arm("skill", {"a": "PF"}))
    assert found.problems == ("unscored",)


def test_the_pareto_front_leaves_out_what_is_dearer_and_no_better() -> None:
    one = {f"{number}": ("F", "P") for number in range(1, 10)} | {"0": ("F", "F")}
    large = {case: ("F" if case < "2" else "P", "P") for case in one}
    rows = both(one, model="small", cost=0.01) + both(large, model="large", cost=0.5)
    rows = [
        replace(row, cost_usd=0.02) if (row.model, row.arm) == ("small", "skill") else row
        for row in rows
    ]
    rows += arm("baseline", dict.fromkeys(one, "P"), model="unpriced", cost=None)
    choices = list_choices(rows)
    front = [(found.model, found.arm) for found in pareto(choices)]
    assert front == [("small", "baseline"), ("small", "skill"), ("large", "skill")]
    found = cheapest(choices, 0.8)
    assert found is not None
    assert (found.model, found.arm, found.cost_per_task) == ("small", "skill", pytest.approx(0.02))
    assert cheapest(choices, 1.1) is None
