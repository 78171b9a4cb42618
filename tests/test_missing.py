"""What is missing is not random: errored trials never decide, whichever arm and however many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulations import lift_excludes
from test_verdict import alike, both
from upskill.verdicts.compute import compute_verdict, level_of_look
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.requirements import check_requirement, parse_requirement
from upskill.verdicts.statistics import studentized_bounds
from upskill.verdicts.verdict import Verdict, VerdictOptions


def test_helps_has_to_survive_the_worst_case() -> None:
    won = alike(8, "F", "P") | {f"same{number}": ("P", "P") for number in range(28)}
    assert compute_verdict(both(won)).decision == "helps"
    found = compute_verdict(both(won | {f"x{number}": ("P", "E") for number in range(4)}))
    assert found.lift is not None
    assert found.interval is not None
    assert found.interval[0] > 0
    assert (found.decision, found.reason) == ("undecided", "errors could explain it")
    assert found.missing is not None
    assert found.missing.changes_decision
    assert found.missing.worst.value == pytest.approx((8 - 4) / 40)
    assert found.missing.best.value == pytest.approx(8 / 40)
    assert "could explain it" in found.recommendation
    said = found.to_dict()["missing"]
    assert said["worst"]["value"] == pytest.approx(0.1)
    assert said["changes_decision"] is True


def test_hurts_has_to_survive_the_best_case_and_no_effect_both() -> None:
    lost = alike(8, "P", "F") | {f"same{number}": ("F", "F") for number in range(28)}
    assert compute_verdict(both(lost)).decision == "hurts"
    errors = {f"x{number}": ("F", "E") for number in range(4)}
    assert compute_verdict(both(lost | errors)).reason == "errors could explain it"
    same = alike(80, "P", "P")
    assert compute_verdict(both(same)).decision == "no effect"
    assert compute_verdict(both(same | errors)).reason == "errors could explain it"


def test_decisions_and_requirements_have_to_hold_whichever_way_disputed_trials_are_counted() -> (
    None
):
    won = alike(8, "F", "P") | {f"same{number}": ("P", "P") for number in range(28)}
    lost = {case: (after, before) for case, (before, after) in won.items()}
    for cases, arm, decision in ((won, "baseline", "helps"), (lost, "skill", "hurts")):
        rows = both(cases | {f"x{number}": ("F", "F") for number in range(4)})
        other = "skill" if arm == "baseline" else "baseline"
        assert (
            compute_verdict(_disputed(rows, other)).decision == decision
        )  # these failures count for nobody
        found = compute_verdict(_disputed(rows, arm))
        assert (found.decision, found.reason) == ("undecided", "disputed trials could explain it")
        assert "4 trials are disputed" in found.recommendation
        assert "`keeps`" in found.recommendation
        assert found.to_dict()[arm]["causes"] == {"disputed": 4}
        wrong = parse_requirement(f"decision!={'hurts' if decision == 'helps' else 'helps'}")
        assert not check_requirement(wrong, found).held
    low, high = compute_verdict(_disputed(both(alike(10, "F", "F")), "skill")).limits["pass_rate"]
    assert (low < 0.1, high > 0.9) == (True, True)


def _disputed(rows: list[Outcome], arm: str) -> list[Outcome]:
    chosen = [
        row
        for row in rows
        if row.arm == arm and row.passed is False and not row.case.startswith("same")
    ]
    four = [row for row in chosen if row.case.startswith("x")] or chosen
    return [replace(row, cause="disputed") if row in four else row for row in rows]


def test_savings_have_to_survive_errors_that_may_have_been_long() -> None:
    rows = both(alike(80, "P", "P"))
    shorter = [_with_tokens(row, 60 if row.arm == "skill" else 100) for row in rows]
    assert compute_verdict(shorter).decision == "saves"
    errored = [
        _errored(row) if row.arm == "skill" and row.case < "case-04" else row for row in shorter
    ]
    assert compute_verdict(errored).decision == "undecided"


def test_a_few_errors_that_change_nothing_leave_the_decision_standing() -> None:
    found = compute_verdict(both(alike(38, "F", "P") | {"y": ("F", "E"), "z": ("E", "P")}))
    assert found.decision == "helps"
    assert found.missing is not None
    assert not found.missing.changes_decision
    assert not found.missing.arms_differ
    assert compute_verdict(both(alike(38, "F", "P"))).missing is None


def test_error_rates_that_differ_beyond_chance_are_told() -> None:
    cases = alike(74, "F", "P") | {f"x{number}": ("F", "E") for number in range(6)}
    found = compute_verdict(both(cases))
    assert found.missing is not None
    assert found.missing.p_value == pytest.approx(2 / 2**6)
    assert found.missing.arms_differ


def test_trials_that_were_never_run_are_missing_too() -> None:
    cases = alike(20, "F", "P") | {f"slow{number}": ("P", ".") for number in range(20)}
    found = compute_verdict(both(cases))
    assert (found.decision, found.reason) == ("undecided", "unfinished")
    assert found.recommendation.endswith("Finish the run first.")
    few = alike(8, "F", "P") | {f"same{number}": ("P", "P") for number in range(28)}
    found = compute_verdict(both(few | {f"slow{number}": ("P", ".") for number in range(4)}))
    assert found.reason == "errors could explain it"
    seeds = compute_verdict(both(alike(20, "PPPPF", "P....")))
    assert seeds.reason == "unfinished"


@pytest.mark.parametrize("scope", ["cases", "suite"])
def test_errors_do_not_slip_past_the_test_that_allows_looking(scope: str) -> None:
    won = alike(12, "FFF", "PPP") | {f"same{number}": ("PPP", "PPP") for number in range(28)}
    options = VerdictOptions(anytime="cases" if scope == "cases" else "suite")
    assert compute_verdict(both(won), options).decision == "helps"
    lost = won | {f"same{number}": ("PPP", "EPP") for number in range(12)}
    found = compute_verdict(both(lost), options)
    assert found.missing is not None
    assert found.missing.worst.value < (found.lift or 0.0)


def test_failures_that_turn_into_errors_never_make_a_skill_without_effect_help() -> None:
    rng = np.random.default_rng(11)
    wrong = naive = 0
    for share in (0.25, 1.0) * 20:
        rate = rng.uniform(0.3, 0.95, size=20)
        rows: list[Outcome] = []
        for case, chance in enumerate(rate):
            for seed in range(3):
                passed, passed_with = rng.random(2) < chance
                errored = not passed_with and rng.random() < share
                rows.append(Outcome("m", f"c{case}", "baseline", seed, bool(passed), 80, 20, 0.0))
                rows.append(
                    Outcome(
                        "m",
                        f"c{case}",
                        "skill",
                        seed,
                        None if errored else bool(passed_with),
                        80,
                        20,
                        0.0,
                    )
                )
        verdict = compute_verdict(rows)
        wrong += verdict.decision == "helps"
        naive += _left_out(verdict)
    assert naive >= 12  # where errors are left out and nothing is asked
    assert wrong <= 2


def _left_out(verdict: Verdict) -> bool:
    return verdict.interval is not None and verdict.interval[0] > 0


def test_a_skill_that_breaks_a_tenth_of_the_tasks_is_not_said_to_help() -> None:
    rng = np.random.default_rng(12)
    for cases in (10, 20):
        broken = rng.random((1500, cases)) < 0.1
        means = (
            rng.binomial(5, np.where(broken, 0.0, 1.0))
            - rng.binomial(5, np.full(broken.shape, 0.9))
        ) / 5
        by_spread = studentized_bounds(means, 5, resamples=1000)[0] > 0
        above, below = lift_excludes(means, 5, 0.0, resamples=1000)
        assert by_spread.mean() > 0.08
        assert above.mean() <= 0.04
        assert below.mean() <= 0.04


def test_five_looks_at_a_growing_suite_seldom_find_what_is_not_there() -> None:
    rng = np.random.default_rng(13)
    rate = rng.uniform(0.2, 0.8, size=(1500, 50))
    means = (rng.random(rate.shape) < rate).astype(np.float64) - (rng.random(rate.shape) < rate)
    ever = np.zeros(len(means), dtype=bool)
    plain = ever.copy()
    for look in range(1, 6):
        seen = means[:, : 10 * look]
        ever |= lift_excludes(seen, 1, 0.0, level=level_of_look(0.95, look), resamples=2000)[0]
        plain |= lift_excludes(seen, 1, 0.0, resamples=2000)[0]
    assert ever.mean() < 0.04 < plain.mean()


def test_a_later_look_needs_more_to_decide() -> None:
    rows = both(alike(6, "F", "P") | {f"same{number}": ("P", "P") for number in range(4)})
    first, third = compute_verdict(rows), compute_verdict(rows, VerdictOptions(earlier_looks=2))
    assert first.interval is not None
    assert third.interval is not None
    assert third.interval[0] < first.interval[0]
    assert (first.look, third.look, third.level) == (1, 3, 0.95)


def test_copies_of_a_case_count_as_one() -> None:
    copies = {f"copy{number}": ("F", "P") for number in range(20)} | alike(4, "P", "P")
    assert compute_verdict(both(copies)).decision == "helps"
    twins = {f"copy{number}": "copy0" for number in range(20)}
    found = compute_verdict(both(copies), VerdictOptions(twins=twins))
    assert found.decision == "undecided"
    assert (found.pairs, found.cases) == (24, 5)
    assert found.lift == pytest.approx(1 / 5)
    for scope in ("cases", "suite"):
        running = compute_verdict(
            both(copies),
            VerdictOptions(twins=twins, anytime="cases" if scope == "cases" else "suite"),
        )
        assert running.lift == pytest.approx(1 / 5)


def _with_tokens(row: Outcome, tokens: int) -> Outcome:
    return Outcome(
        row.model, row.case, row.arm, row.seed, row.passed, tokens - 20, 20, row.cost_usd
    )


def _errored(row: Outcome) -> Outcome:
    return Outcome(row.model, row.case, row.arm, row.seed, None, 0, 0, None)
