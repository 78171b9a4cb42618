"""A verdict answers two questions, about exactly these cases and about tasks like these, and allows for many models."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Upskill, write_script, write_skill
from upskill.errors import UsageError
from upskill.verdicts.advice import conclude, signed_points
from upskill.verdicts.compute import compute_verdict
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.requirements import check_requirement, parse_requirement
from upskill.verdicts.several_models import decide_together
from upskill.verdicts.statistics import Floats
from upskill.verdicts.these_cases import lift_on_these_cases
from upskill.verdicts.verdict import Decision, OnTheseCases, Verdict, VerdictOptions

Chances = Callable[
    [int], tuple[Floats, Floats]
]  # by the number of cases: how often each passes in both arms


def outcomes(before: list[str], after: list[str], model: str = "m", **more: Any) -> list[Outcome]:
    """A word for each case with a letter for each seed: P passed, F failed, E errored."""
    score = {"P": True, "F": False, "E": None}
    return [
        Outcome(model, f"case-{number:02d}", arm, seed, score[letter], 80, 20, 0.0, **more)
        for arm, words in (("baseline", before), ("skill", after))
        for number, word in enumerate(words)
        for seed, letter in enumerate(word)
    ]


def drawn(rng: np.random.Generator, chances: Floats, repeats: int) -> list[str]:
    return [
        "".join("P" if rng.random() < chance else "F" for _ in range(repeats)) for chance in chances
    ]


def these(verdict: Verdict) -> OnTheseCases:
    assert verdict.these_cases is not None
    return verdict.these_cases


# ---------------------------------------------------------------------------------------------------- these cases


def on_these(passed: tuple[int, int], draws: tuple[int, int]) -> tuple[float, float]:
    """With one unit, so that each arm is one binomial."""
    pairs = math.lcm(*draws)
    before, after = (
        np.repeat([1.0, 0.0], [p * pairs // n, (n - p) * pairs // n])
        for p, n in zip(passed, draws, strict=True)
    )
    shares = tuple(np.full(pairs, n / pairs) for n in draws)
    return lift_on_these_cases(before, after, (shares[0], shares[1]), ["a"] * pairs).interval


@pytest.mark.parametrize("draws", [(3, 3), (8, 8), (4, 10)])
def test_the_interval_on_these_cases_covers_every_lift_by_exact_enumeration(
    draws: tuple[int, int],
) -> None:
    def chances(n: int, rate: float) -> Floats:
        return np.array([math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1)])

    bounds = {
        (b, s): on_these((b, s), draws) for b in range(draws[0] + 1) for s in range(draws[1] + 1)
    }
    low, high = (
        np.array([[bounds[b, s][end] for s in range(draws[1] + 1)] for b in range(draws[0] + 1)])
        for end in (0, 1)
    )
    for before in (0.01, 0.1, 0.3, 0.5, 0.77, 0.95):
        for after in (0.01, 0.1, 0.3, 0.5, 0.77, 0.95):
            weights = np.outer(chances(draws[0], before), chances(draws[1], after))
            above = float(weights[low > after - before + 1e-6].sum())
            below = float(weights[high < after - before - 1e-6].sum())
            assert above + below <= 0.05
            assert before != after or max(above, below) <= 0.025


def alike(rate: float) -> Chances:
    return lambda cases: (np.full(cases, rate), np.full(cases, rate))


def decided(cases: int) -> tuple[Floats, Floats]:
    """Half of the cases always pass or never do."""
    rates = np.where(np.arange(cases) % 2 == 0, np.arange(cases) % 4 == 0, 0.5).astype(np.float64)
    return rates, rates


def skewed(cases: int) -> tuple[Floats, Floats]:
    """One case is broken for good, the rest gains a little; in all the skill does nothing."""
    before, after = np.full(cases, 0.6), np.full(cases, 0.6 + 0.6 / (cases - 1))
    after[0] = 0.0
    return before, after


@pytest.mark.parametrize("world", [alike(0.1), alike(0.5), decided, skewed])
@pytest.mark.parametrize(("cases", "repeats"), [(3, 1), (6, 4), (20, 1), (5, 8)])
def test_a_skill_that_does_nothing_on_these_cases_is_seldom_called(
    world: Chances, cases: int, repeats: int
) -> None:
    rng = np.random.default_rng(11)
    chances, suites = world(cases), 300
    units, ones = (
        [f"{number}" for number in range(cases) for _ in range(repeats)],
        np.ones(cases * repeats),
    )
    called = covered = 0
    for _ in range(suites):
        before, after = (
            (rng.random((cases, repeats)) < rate[:, np.newaxis]).ravel().astype(np.float64)
            for rate in chances
        )
        lift = lift_on_these_cases(before, after, (ones, ones), units)
        called += lift.low > 0
        covered += lift.low <= 0 <= lift.high
    assert called <= 0.025 * suites + 2 * math.sqrt(0.025 * 0.975 * suites)
    assert covered >= 0.95 * suites - 2 * math.sqrt(0.05 * 0.95 * suites)


def test_thirty_points_on_eight_cases_are_found_on_these_cases() -> None:
    rng = np.random.default_rng(4)
    units, ones = [f"{number}" for number in range(8) for _ in range(5)], np.ones(40)
    found = 0
    for _ in range(200):
        before, after = ((rng.random(40) < rate).astype(np.float64) for rate in (0.3, 0.6))
        found += lift_on_these_cases(before, after, (ones, ones), units).low > 0
    assert found >= 140


EIGHT = (
    ["FFFPF", "FPFFP", "FFFFF", "PFFPF", "FFPFF", "FFFFF", "PFPFF", "FPFFF"],
    ["PPFPP", "FPPFP", "FPFFF", "PPPPP", "PFPFP", "FFFFF", "PPPPF", "PPFPF"],
)


def test_both_answers_are_given_in_one_line_where_they_differ() -> None:
    verdict = compute_verdict(outcomes(*EIGHT))
    assert (verdict.decision, these(verdict).decision) == ("undecided", "helps")
    said = "tern helps haiku on these 8 cases (+35, +12 to +54); too few cases to say more; about 11 in all would do."
    assert conclude(verdict, "tern", "haiku") == said
    assert verdict.advice == ""  # said once
    assert verdict.to_dict()["these_cases"]["interval"] == pytest.approx([0.1236, 0.5422], abs=1e-3)
    swapped = compute_verdict(outcomes(EIGHT[1], EIGHT[0]))
    assert (swapped.decision, these(swapped).decision) == ("undecided", "hurts")
    one = compute_verdict(outcomes(["FFFFFF"], ["PPPPPP"]))
    assert conclude(one, "tern", "haiku").endswith(
        "on this case (+100, +47 to +100); one case says nothing about other tasks."
    )
    both = compute_verdict(outcomes(["FFF"] * 12, ["PPP"] * 12))
    assert (both.decision, these(both).decision) == ("helps", "helps")
    assert conclude(both, "tern", "haiku").startswith("tern helps haiku: +100 points")


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("decision=helps", False),
        ("these:decision=helps", True),
        ("these:lift>=0.1", True),
        ("these:lift>=0.3", False),
        ("these:point:lift>0.3", True),
        ("lift>0", False),
    ],
)
def test_a_requirement_can_be_about_these_cases(text: str, held: bool) -> None:
    assert (
        check_requirement(parse_requirement(text), compute_verdict(outcomes(*EIGHT))).held is held
    )
    nothing = compute_verdict(outcomes([], ["PP"]))
    assert not check_requirement(parse_requirement(text), nothing).held


def test_only_a_lift_or_a_decision_can_be_required_of_these_cases() -> None:
    for text in ("these:tokens<=1.2x", "these:pass_rate>=0.5"):
        with pytest.raises(UsageError, match="can only be used with lift and decision"):
            parse_requirement(text)


def test_what_prevents_a_decision_prevents_it_in_both_scopes() -> None:
    before, after = (["FFFFF"] * 8, ["PPPPP"] * 8)
    assert these(compute_verdict(outcomes(before, after))).decision == "helps"
    leaked = compute_verdict(outcomes(before, after, leaked=True))
    many = compute_verdict(outcomes(before, ["PPPEE", *after[1:4], *["PPPPE"] * 4]))
    for verdict, reason in ((leaked, "isolation"), (many, "errors")):
        assert (these(verdict).decision, these(verdict).reason) == ("undecided", reason)
    # Three errors of forty trials are few, but the skill may have failed all three.
    narrow = (
        ["FFFFP"] * 8,
        ["PPFPF", "FPFPF", "FFFPF", "PFFPF", "FPFPF", "FFFPE", "PFFPE", "FFPPE"],
    )
    verdict = compute_verdict(outcomes(*narrow))
    assert (these(verdict).decision, these(verdict).reason) == (
        "undecided",
        "errors could explain it",
    )
    assert not check_requirement(parse_requirement("these:lift>0"), verdict).held


def test_earlier_looks_and_rounds_widen_the_interval_on_these_cases() -> None:
    first, seventh = (
        these(compute_verdict(outcomes(*EIGHT), VerdictOptions(earlier_looks=n))).lift
        for n in (0, 6)
    )
    rounds = these(compute_verdict(outcomes(*EIGHT), VerdictOptions(anytime="cases"))).lift
    assert seventh.low < first.low < first.high < seventh.high
    assert rounds.high - rounds.low > first.high - first.low


def test_a_run_that_stopped_by_its_rule_is_not_cut_short(upskill: Upskill, home: Path) -> None:
    lines = [{"when": "guest 1", "system": "ahoy", "answer": "ahoy"}, {"answer": "hello"}]
    model, skill = write_script(home / "model.json", lines), write_skill(home / "greeter")
    rounds = ("-m", model, "--until-decided", "--set", "scope=suite", "--repeats", 12)
    upskill("eval", write_skill(home / "sailor"), "-m", model)
    upskill("eval", skill, *rounds)
    assert re.search(
        r"greeter +0% → 25% \(\+25 points\), undecided; helps on these cases$",
        upskill("runs").out,
        re.MULTILINE,
    )


def test_answers_that_are_copies_are_one_draw() -> None:
    rows = outcomes(["FFFFF"] * 5 + ["PPPPP"] * 3, ["PPPPP"] * 6 + ["FFFFF"] * 2)
    copies = [replace(row, answer=1 + hash((row.case, row.arm)) % 1000) for row in rows]
    varied = [replace(row, answer=1 + number) for number, row in enumerate(rows)]
    assert these(compute_verdict(varied)).decision == "helps"
    assert these(compute_verdict(rows)).decision == "helps"  # nothing is known of the answers
    once = these(compute_verdict(copies))
    assert (once.decision, once.copies) == ("undecided", 8)
    single = these(compute_verdict([row for row in rows if row.seed == 0]))
    assert once.lift.interval == pytest.approx(single.lift.interval)
    rounds = these(compute_verdict(copies, VerdictOptions(anytime="cases")))
    assert rounds.decision == "undecided"


@pytest.mark.parametrize(
    ("copied", "distinct"), [(10, 2), (4, 1), (1, 1)], ids=["two replicas", "some cases", "one"]
)
def test_a_cache_in_front_of_some_calls_makes_no_lift(copied: int, distinct: int) -> None:
    rng, wrong = np.random.default_rng(28), 0
    for _ in range(100):
        rows: list[Outcome] = []
        for row in outcomes(["F" * 10] * 10, ["F" * 10] * 10):
            is_copy = int(row.case[-2:]) < copied and row.seed >= distinct
            passed, answer = (
                (rows[-1].passed, rows[-1].answer)
                if is_copy
                else (bool(rng.random() < 0.5), len(rows) + 1)
            )
            rows.append(replace(row, passed=passed, answer=answer))
        wrong += these(compute_verdict(rows)).decision == "helps"
    assert wrong <= 7  # of 100: 2.5 are promised, and 8 or more have a chance of 0.4 %


def test_rounds_of_a_case_that_repeats_itself_count_against_every_claim() -> None:
    """Else the claim would be about the cases that vary: here one that gains, among five that lose."""
    rows = outcomes(["FFFFFFFFFFFF"] + ["P" * 12] * 5, ["PPPPPPPPPPPP"] + ["F" * 12] * 5)
    copied = [
        replace(
            row,
            answer=number if row.case == "case-00" else 10_000 + hash((row.case, row.arm)) % 1000,
        )
        for number, row in enumerate(rows, start=1)
    ]
    verdict = compute_verdict(copied, VerdictOptions(anytime="suite"))
    low, high = verdict.interval or (1.0, -1.0)
    assert low <= -4 / 6 <= high
    assert verdict.lift == pytest.approx(-4 / 6)
    assert (verdict.decision, these(verdict).decision) == ("undecided", "undecided")
    drawn = compute_verdict(
        [replace(row, answer=0) for row in rows], VerdictOptions(anytime="suite")
    )
    assert drawn.decision == "hurts"


def test_a_short_answer_may_repeat() -> None:
    rows = outcomes(["FFFFP"] * 8, ["PPPPF"] * 8)
    short = [replace(row, answer=1 + bool(row.passed)) for row in rows]
    assert these(compute_verdict(short)) == these(compute_verdict(rows))


def test_a_bound_above_zero_does_not_read_as_zero() -> None:
    assert [*map(signed_points, (0.0, 0.003, -0.0004, 0.55, 1e-17))] == [
        "0",
        "just above 0",
        "just below 0",
        "+55",
        "0",
    ]


def test_a_gate_can_ask_for_these_cases_and_reports_have_both(upskill: Upskill, home: Path) -> None:
    command = (
        "eval",
        write_skill(home / "greeter"),
        "-m",
        write_script(home / "model.yaml"),
        "--repeats",
        "3",
    )
    (model,) = upskill(*command, "--json").json["models"]
    these_cases = model["these_cases"]
    assert (model["decision"], these_cases["decision"], these_cases["copies"]) == (
        "undecided",
        "helps",
        4,
    )
    assert [
        upskill(*command, "--require", text).code
        for text in ("decision=helps", "these:decision=helps")
    ] == [1, 0]
    said = "on these 4 cases (+100, +26 to +100); too few cases to say more"
    for kind in ("terminal", "markdown"):
        assert said in " ".join(upskill(*command, "--report", kind).out.replace("\\", "").split())
    junit = upskill(*command, "--report", "junit").out
    assert '<property name="decision" value="undecided" />' in junit
    assert '<property name="these:interval" value="+26 to +100" />' in junit
    assert upskill("runs", "-s", "greeter").out.count("undecided; helps on these cases") == 1


# ---------------------------------------------------------------------------------------------------- several models


def table(
    rng: np.random.Generator, rates: list[tuple[float, float]], cases: int, repeats: int
) -> dict[str, list[Outcome]]:
    rows: dict[str, list[Outcome]] = {}
    for number, (before, after) in enumerate(rates):
        words = (
            drawn(rng, np.full(cases, before), repeats),
            drawn(rng, np.full(cases, after), repeats),
        )
        rows[f"m{number}"] = outcomes(*words, model=f"m{number}")
    return rows


def together(rows: dict[str, list[Outcome]]) -> tuple[list[Verdict], list[Verdict]]:
    def weigh(model: str, models: int = 1) -> Verdict:
        return compute_verdict(rows[model], VerdictOptions(models=models))

    return [weigh(model) for model in rows], decide_together(rows, weigh)


def test_the_best_of_eight_models_that_a_skill_does_nothing_for_is_seldom_helped() -> None:
    rng = np.random.default_rng(3)
    called = {"alone": 0, "together": 0, "alone, these": 0, "together, these": 0}
    for _ in range(24):
        alone, all_ = together(table(rng, [(0.5, 0.5)] * 8, cases=12, repeats=2))
        for name, verdicts in (("alone", alone), ("together", all_)):
            called[name] += any(verdict.decision == "helps" for verdict in verdicts)
            called[f"{name}, these"] += any(
                these(verdict).decision == "helps" for verdict in verdicts
            )
    assert called["alone"] + called["alone, these"] >= 5
    assert called["together"] + called["together, these"] <= 1


def test_a_decision_that_does_not_stand_among_the_models_says_so() -> None:
    lucky = ["FP"] * 2 + ["FF"] * 8, ["FP"] * 2 + ["PP"] * 5 + ["FP"] * 2 + ["FF"]
    rows = {"lucky": outcomes(*lucky, model="lucky")} | {
        f"m{n}": outcomes(["FP"] * 10, ["PF"] * 10, model=f"m{n}") for n in range(7)
    }
    alone, all_ = together(rows)
    assert (alone[0].decision, all_[0].decision) == ("helps", "undecided")
    assert all_[0].interval == alone[0].interval
    assert all_[0].reason == "helps alone, but not among 8 models"
    assert (all_[0].models, all_[0].alone) == (8, "helps")
    assert not check_requirement(parse_requirement("decision=helps"), all_[0]).held
    assert "on tasks like these it helps alone, but not among 8 models" in all_[0].recommendation


def test_what_a_skill_does_to_a_model_leaves_the_others_more_but_no_effect_does_not() -> None:
    base = compute_verdict(outcomes(["FP"] * 2, ["FP"] * 2))

    def decide(needs: dict[str, tuple[Decision, int]]) -> list[str]:
        """Each model has a decision that holds among so many models."""

        def weigh(model: str, models: int = 1) -> Verdict:
            decision, among = needs[model]
            return replace(
                base,
                model=model,
                decision=decision if models <= among else "undecided",
                these_cases=None,
            )

        return [verdict.decision for verdict in decide_together(needs, weigh)]

    assert decide({"a": ("helps", 3), "b": ("hurts", 2), "c": ("helps", 1)}) == [
        "helps",
        "hurts",
        "helps",
    ]
    assert decide({"a": ("helps", 2), "b": ("hurts", 2), "c": ("helps", 1)}) == ["undecided"] * 3
    assert decide({"a": ("no effect", 3), "b": ("saves", 3), "c": ("helps", 2)}) == [
        "no effect",
        "saves",
        "undecided",
    ]
    assert decide({"a": ("helps", 1)}) == ["helps"]


def test_a_table_of_models_says_what_its_intervals_and_decisions_mean(
    upskill: Upskill, home: Path
) -> None:
    skill = write_skill(home / "greeter")
    for name in ("one", "two"):
        write_script(home / f"{name}.yaml")
    command = ("eval", skill, "-m", "scripted:one.yaml", "-m", "scripted:two.yaml", "-v")
    said = "Each interval is for that model alone. Decisions correct for testing 2 models"
    for kind in ("terminal", "markdown"):
        assert said in " ".join(upskill(*command, "--report", kind).out.split())
    models = json.loads(upskill(*command, "--json").out)["models"]
    assert [model["models"] for model in models] == [2, 2]
    assert said not in " ".join(upskill(*command[:4]).out.split())
