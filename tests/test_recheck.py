"""`upskill recheck`: which skills of a library a model still needs."""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from conftest import Upskill, mark_used, serving, spawn, start, write_script
from loopback import Call, Gate
from upskill.verdicts.library import decide_all, log_e_values, needed_for
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import Decision

CASES = 8
# How often the student passes a case of each skill, without and with it.
TRUTH = {"helpful": (0.0, 1.0), "learned": (1.0, 1.0), "harmful": (0.95, 0.2), "noisy": (0.5, 0.6)}


def write_library(folder: Path) -> None:
    for name in (*TRUTH, "untested"):
        (folder / name / "evals").mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: Drawers.\n---\n\n# Drawers\n\nThe manual of {name} drawers.\n"
        (folder / name / "SKILL.md").write_text(text)
        cases = [
            {
                "id": f"{name}-{number}",
                "prompt": f"Open {name} drawer {number}",
                "checks": [{"contains": "yes"}],
            }
            for number in range(CASES)
        ]
        if name != "untested":
            (folder / name / "evals" / "suite.yaml").write_text(json.dumps({"cases": cases}))


def answer(call: Call) -> str:
    """No two draws are worded alike."""
    chance = random.Random(f"{call.seed} {call.prompt} {len(call.system)}")
    name = re.findall(r"Open (\w+)", call.prompt)[-1]
    passes = chance.random() < TRUTH[name]["manual" in call.system]
    return f"{'yes' if passes else 'no'} ({chance.random()})"


@pytest.fixture
def library(home: Path) -> Path:
    write_library(home / "skills")
    return home


def test_each_skill_is_kept_retired_repaired_or_left_open(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        done = upskill("recheck", "skills", "-m", "generic:student", "--json", "-o", "report")
        assert done.code == 0, done.err
        asked = len(server.requests)
        again = upskill("recheck", "skills", "-m", "generic:student", "--strict")
        assert len(server.requests) == asked, "what is stored is not asked again"
    rows = {row["skill"]: row for row in done.json["skills"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "helpful": "keep",
        "learned": "retire",
        "harmful": "repair",
        "noisy": "undecided",
        "untested": "no suite",
    }
    assert asked == 2 * CASES * sum(row["rounds"] for row in rows.values())
    assert rows["helpful"]["rounds"] < rows["learned"]["rounds"] < 12
    assert re.search(
        r"about as well without it, and it costs \d+ tokens per task", rows["learned"]["reason"]
    )
    assert "`harmful-" in rows["harmful"]["reason"]
    assert re.search(
        r"undecided after \d+ rounds. About \d+ more \([\d,]+ trials\) would settle it",
        rows["noisy"]["reason"],
    )
    summary = (library / "report" / "summary.md").read_text()
    assert summary.startswith("### upskill recheck: keep 1, retire 1, repair 1, undecided 1\n")
    assert "Not run, because they have no test cases: `untested`." in summary
    assert (again.code, again.out) == (1, summary), "a skill needs repair"
    page = (library / "report" / "index.html").read_text()
    assert '<table id="verdicts" class="wrap stacks">' in page, (
        "a phone shows the cells of a row below each other"
    )
    assert all(
        (library / "report" / name).is_file() for name in re.findall(r'href="([^"#]+\.html)"', page)
    )
    assert '<td data-head="Model">generic:student</td>' in page


def test_a_student_that_never_varies_decides_after_two_rounds(
    upskill: Upskill, library: Path
) -> None:
    manual = {"system": "The manual of helpful", "answer": "yes"}
    lines = [
        {"match": r"helpful drawer [0-2]", **manual},
        {"match": r"noisy drawer [0-3]", "answer": "yes"},
    ]
    (library / "student.yaml").write_text(json.dumps([*lines, {"match": ".*", "answer": "no"}]))
    done = upskill(
        "recheck", "skills/helpful", "skills/noisy", "-m", "scripted:student.yaml", "--json"
    )
    rows = {row["skill"]: row for row in done.json["skills"]}
    assert {name: (row["status"], row["rounds"]) for name, row in rows.items()} == {
        "helpful": ("keep", 2),
        "noisy": ("retire", 2),
    }
    assert rows["helpful"]["reason"].startswith(
        "it helps. The student gives the same answers every time"
    )
    for name, lift in (("helpful", 3 / CASES), ("noisy", 0.0)):
        (planned,) = upskill(
            "plan", f"skills/{name}", "-m", "scripted:student.yaml", "--json"
        ).json["models"]
        assert planned["last_verdict"]["these_cases"]["interval"] == [lift, lift], (
            "exact, as the reason says"
        )
    assert "undecided; helps on these cases" in upskill("list", "skills").out
    assert "undecided; helps on these cases" in upskill("runs", "-s", "helpful").out
    assert "undecided; no effect on these cases" in upskill("runs").out
    # At most 12 rounds were planned.
    ran = upskill("runs", "--json", "-s", "helpful").json[0]["run"]
    for repeats, differences, no_test in (
        (1, ["the number of repeats (2 → 1)"], "the runs use different seeds"),
        (2, [], "the runs had different limits on repeats"),
    ):
        upskill("eval", "skills/helpful", "-m", "scripted:student.yaml", "--repeats", repeats)
        (compared,) = upskill("compare", ran, "last", "--json").json["comparisons"]
        assert [each for each in compared["differences"] if "repeats" in each] == differences
        assert compared["no_test"] == no_test


def test_all_cases_show_that_a_searched_skill_hurts_and_only_unused_ones_that_it_helps(
    upskill: Upskill, library: Path
) -> None:
    for name in TRUTH:
        mark_used(library / "skills" / name, [f"{name}-{number}" for number in range(6)])
    rules = [
        *(
            {"system": "manual of helpful", "when": f"drawer {number}", "answer": "yes"}
            for number in range(6)
        ),
        {"system": "manual of", "answer": "no"},
        *({"when": f"harmful drawer {number}", "answer": "yes"} for number in range(6)),
    ]
    model = write_script(library / "model.json", [*rules, {"answer": "no"}])
    rows = {
        row["skill"]: row
        for row in upskill("recheck", "skills", "-m", model, "--json").json["skills"]
    }
    assert (rows["helpful"]["status"], rows["harmful"]["status"]) == ("retire", "repair")
    assert "fail with it: `harmful-0`, `harmful-1`" in rows["harmful"]["reason"]


def test_the_verdict_before_stands_beside_the_new_one(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        first = upskill("eval", "skills/helpful", "-m", "generic:old", "--repeats", 2, "--receipt")
        assert first.code == 0, first.err
        done = upskill("recheck", "skills/helpful", "-m", "generic:new")
        assert "| generic:old: helps, +100 points |" in done.out
        assert (
            "| helps, +100 points |"
            in upskill("recheck", "skills/helpful", "-m", "generic:old").out
        )
        elsewhere = upskill("recheck", "skills/helpful", "-m", "generic:new", "--store", "other")
        assert elsewhere.out == done.out, "a receipt says the same"


def test_one_ceiling_holds_for_the_whole_library(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        done = upskill(
            "recheck", "skills", "-m", "generic:student", "--set", "max_calls=100", "--json"
        )
        assert len(server.requests) == 100
    assert "100 calls" in done.json["halted"]
    rows = {row["skill"]: row for row in done.json["skills"]}
    assert [rows[name]["rounds"] for name in TRUTH] == [2, 2, 2, 0], "no round counts in part"
    assert rows["noisy"]["reason"] == done.json["halted"]


def test_a_killed_recheck_goes_on_where_it_was(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(answer, left=150)
    command = ("recheck", "skills", "-m", "generic:student", "--json", "--concurrency", 1)
    with serving(gate) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        process = start(*command)
        while len(server.requests) < 151:
            assert process.poll() is None, "it ended by itself"
            time.sleep(0.001)
        process.kill()
        process.communicate()
        gate.left = math.inf
        resumed = spawn(*command)
        assert resumed.code == 0, resumed.err
        asked = Counter(json.dumps(logged.body, sort_keys=True) for logged in server.requests)
        assert sum(asked.values()) - len(asked) == 1, "only what was under way is asked again"
    statuses = {row["skill"]: row["status"] for row in resumed.json["skills"]}
    assert (statuses["helpful"], statuses["learned"], statuses["harmful"]) == (
        "keep",
        "retire",
        "repair",
    )


def test_a_model_that_only_errs_decides_nothing(upskill: Upskill, library: Path) -> None:
    model = write_script(library / "broken.json", [{"error": "the server is on fire"}])
    done = upskill("recheck", "skills/learned", "-m", model, "--json")
    assert done.json["skills"][0]["status"] == "undecided"
    unknown = upskill("recheck", "skills/learned", "-m", "haiku", "--json")
    assert (unknown.code, unknown.json["skills"][0]["status"]) == (0, "undecided")
    assert "ANTHROPIC_API_KEY" in unknown.json["skills"][0]["reason"]


def rounds_of(
    without: float, with_it: float, rounds: int, seed: int, tokens: tuple[int, int]
) -> list[Outcome]:
    chance = np.random.default_rng(seed)
    return [
        Outcome(
            model="m",
            case=f"c{case}",
            arm=arm,
            seed=number,
            passed=bool(chance.random() < rate),
            input_tokens=cost,
            output_tokens=1,
            cost_usd=0.0,
            answer=int(chance.integers(1, 2**40)),
        )
        for number in range(rounds)
        for case in range(12)
        for arm, rate, cost in (("baseline", without, tokens[0]), ("skill", with_it, tokens[1]))
    ]


@pytest.mark.parametrize(
    ("without", "with_it", "tokens", "decision"),
    [
        (0.2, 0.9, (50, 400), "helps"),
        (0.9, 0.2, (50, 400), "hurts"),
        (1.0, 1.0, (50, 400), "no effect"),
        (1.0, 1.0, (400, 50), "saves"),
        (0.5, 0.5, (50, 400), "undecided"),
    ],
)
def test_what_is_true_is_decided_where_the_evidence_is_strong(
    without: float, with_it: float, tokens: tuple[int, int], decision: Decision
) -> None:
    evidence = log_e_values(rounds_of(without, with_it, 6, seed=1, tokens=tokens), tolerance=0.15)
    assert decide_all([evidence]) == [decision]


def test_many_decisions_need_less_evidence_each() -> None:
    strength = needed_for(10, of=40)
    assert needed_for(1, of=40) > strength

    def helpful(number: int) -> list[dict[Decision, float]]:
        return [{"hurts": 0.0, "helps": strength} for _ in range(number)]

    nothing: list[dict[Decision, float]] = [{} for _ in range(30)]
    assert decide_all([*helpful(10), *nothing]).count("helps") == 10
    assert decide_all([*helpful(9), {}, *nothing]).count("helps") == 0


def test_a_library_without_effects_is_seldom_called_anything() -> None:
    """At a lift of exactly zero nobody may be kept or repaired: over libraries, at most one in twenty is."""
    wrong = 0
    for library in range(40):
        evidence = [
            log_e_values(
                rounds_of(0.5, 0.5, 8, seed=100 * library + skill, tokens=(50, 400)), tolerance=0.15
            )
            for skill in range(5)
        ]
        wrong += any(decision in ("helps", "hurts", "saves") for decision in decide_all(evidence))
    assert wrong <= 2
