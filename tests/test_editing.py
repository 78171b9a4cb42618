"""Editing a skill by hand: a part of the suite, what failed, results used again, two runs side by side, and --watch."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import (
    HELPFUL,
    REPOSITORY,
    Upskill,
    greetings,
    serving,
    start,
    write_script,
    write_skill,
)
from loopback import Call
from upskill import Skill, open_store
from upskill.cli.eval_options import EvalOptions
from upskill.cli.watch import Watched, changed
from upskill.errors import UsageError
from upskill.models.addresses import ALIASES
from upskill.reports.runs import skill_verdicts
from upskill.runs.planning.stored_plan import other_suite
from upskill.runs.running.probe import PROMPT
from upskill.suites import Suite
from upskill.suites.suite import CaseFilter


def tagged(cases: int = 8) -> dict[str, Any]:
    suite = greetings(cases)
    for number, case in enumerate(suite["cases"], start=1):
        case["tags"] = ["odd" if number % 2 else "even"]
    return suite


@pytest.fixture
def skill(home: Path) -> Path:
    """The student gets two of eight cases wrong with it, and all of them without."""
    wrong = [{"when": f"guest {number}.", "answer": "goodbye"} for number in (2, 5)]
    write_script(home / "model.yaml", [*wrong, *HELPFUL])
    return write_skill(home / "greeter", suite=tagged())


def cases_of(upskill: Upskill, run: str = "last") -> list[str]:
    return [case["id"] for case in upskill("show", run, "--json").json["plan"]["suite"]["cases"]]


def test_cases_are_chosen_by_id_pattern_tag_and_number() -> None:
    suite = Suite.parse(tagged(), "suite.yaml")

    def chosen(**wanted: Any) -> list[str]:
        return [case.id.removeprefix("greet-") for case in CaseFilter(**wanted).choose(suite).cases]

    assert chosen(ids=["greet-3", "greet-1"]) == ["1", "3"]
    assert chosen(ids=["greet-[13]", "*-8"]) == ["1", "3", "8"]
    assert chosen(tags=["even"], limit=3) == ["2", "4", "6"]
    assert chosen(tags=["even"], failing={"greet-2", "greet-5"}) == ["2"]
    part = CaseFilter(tags=["even"], limit=3).choose(suite)
    assert [case.held_out for case in part.cases] == [True, True, True]  # as in the whole suite
    assert part.part is not None
    assert (part.part.of, part.part.chosen, part.part.by_outcome) == (
        8,
        "--tag even --limit 3",
        False,
    )
    assert CaseFilter(tags=["even", "odd"]).choose(suite) is suite  # all of it is no part
    odd_names = Suite.parse(
        {"cases": [{"id": "a[1]*", "prompt": "Hi.", "checks": [{"contains": "ahoy"}]}]}
    )
    assert CaseFilter(ids=["a[1]*"]).choose(odd_names) is odd_names
    for wanted, said in (
        ({"ids": ["gret-3"]}, "no case named 'gret-3'"),
        ({"tags": ["evn"]}, "no case has the tag 'evn'"),
        ({"ids": ["greet-1"], "tags": ["even"]}, "no case matches --case greet-1 --tag even"),
    ):
        with pytest.raises(UsageError, match=said):
            chosen(**wanted)
    with pytest.raises(UsageError) as unlike:
        chosen(ids=["nosuch"])
    assert unlike.value.hint.startswith("Known: greet-1, greet-2, ")


def test_a_part_of_the_suite_decides_nothing_however_large_the_lift(
    upskill: Upskill, home: Path
) -> None:
    skill, model = write_skill(home / "greeter", cases=30), write_script(home / "model.yaml")
    part = upskill("eval", skill, "-m", model, "--limit", 20, "--json").json
    verdict = part["models"][0]
    assert (verdict["lift"], verdict["decision"]) == (None, "undecided")
    assert (verdict["skill"]["passed"], verdict["baseline"]["passed"]) == (20, 0)
    assert part["suite"]["part"] == {"of": 30, "chosen": "--limit 20", "by_outcome": False}
    again = upskill("eval", skill, "-m", model, "--limit", 20).out
    assert "Only 20 of 30 cases (--limit 20): a part of a suite gives no verdict." in again
    for text in (upskill("runs").out, upskill("runs", "--json").out):
        assert ("undecided" in text, "helps" in text) == (True, False)
    assert "only 20 of 30 cases, --limit 20" in upskill("runs").out
    whole = upskill("eval", skill, "-m", model, "--json").json
    assert (whole["models"][0]["decision"], whole["models"][0]["about"]) == ("helps", "tasks")
    assert whole["suite"]["part"] is None
    # A later run of a part does not stand for the skill where several are listed.
    upskill("eval", skill, "-m", model, "--limit", 3)
    upskill("eval", write_skill(home / "sailor"), "-m", model)
    row = next(line for line in upskill("runs").out.splitlines() if "greeter" in line)
    assert "0% (0/30) → 100% (30/30)" in row


def test_failed_means_what_failed_with_the_skill_when_it_was_last_run(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    model = "scripted:model.yaml"
    none = upskill("eval", skill, "-m", model, "--failed")
    assert (
        none.code,
        "no stored run of greeter on scripted:model.yaml includes cases" in none.err,
    ) == (2, True)
    assert not (home / "runs").exists()
    upskill("eval", skill, "-m", model)
    done = upskill("eval", skill, "-m", model, "--failed")
    assert cases_of(upskill) == ["greet-2", "greet-5"]
    assert "Only 2 of 8 cases (--failed): " in done.out
    # A later run of a part says what became of its cases, and nothing about the others.
    body = (skill / "SKILL.md").read_text(encoding="utf-8")
    (skill / "SKILL.md").write_text(body + "\nTwice for guest 5.\n", encoding="utf-8")
    rules = [{"when": "guest 5.", "system": "Twice", "answer": "ahoy, ahoy"}]
    write_script(
        home / "model.yaml",
        [*rules, *json.loads((home / "model.yaml").read_text(encoding="utf-8"))],
    )
    upskill("eval", skill, "-m", model, "--case", "greet-5")
    upskill("eval", skill, "-m", model, "--case", "greet-1")
    assert upskill("eval", skill, "-m", model, "--failed").code == 0
    assert cases_of(upskill) == ["greet-2"]
    # Another model has failures of its own.
    other = write_script(home / "other.yaml", [{"when": "guest 7.", "answer": "no"}, *HELPFUL])
    assert upskill("eval", skill, "-m", other, "--failed").code == 2
    upskill("eval", skill, "-m", other)
    upskill("eval", skill, "-m", other, "--failed")
    assert cases_of(upskill) == ["greet-7"]
    write_script(home / "other.yaml")
    upskill("eval", skill, "-m", other)
    passed = upskill("eval", skill, "-m", other, "--failed")
    assert (passed.code, passed.out) == (0, "")
    assert passed.err.startswith("Every case passed last time for greeter on scripted:other.yaml.")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--require", "lift>=0.1"), "--require"),
        (("--until-decided",), "--until-decided"),
        (("--set", "target_pass_rate=50"), "target_pass_rate"),
    ],
)
def test_what_decides_is_refused_for_a_part(
    upskill: Upskill, skill: Path, home: Path, flags: tuple[str, ...], named: str
) -> None:
    done = upskill("eval", skill, "-m", "scripted:model.yaml", "--tag", "odd", *flags)
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        f"upskill: --tag and {named} cannot be used together: a decision needs the whole suite",
    )
    assert not (home / "runs").exists()
    assert not (home / "plan.json").exists()


def test_a_trial_is_not_run_again_where_another_run_has_its_result(
    upskill: Upskill, home: Path
) -> None:
    def answer(call: Call) -> str:
        return "ahoy, friend" if "ahoy" in str(call.body) else "hello"

    skill = write_skill(home / "greeter")
    with serving(answer) as server:
        flags = ("eval", skill, "-m", "tiny", "--base-url", server.url, "--repeats", 1)

        def calls(*more: object, stored: str = "") -> int:
            before = len(server.requests)
            done = upskill(*flags, *more)
            assert (done.code, " are stored, " in done.err) == (0, bool(stored))
            assert stored in done.err
            asked = list(server.requests)[before:]
            return sum(PROMPT not in str(logged.body) for logged in asked)

        assert calls() == 8
        assert calls(stored=": 8 of 8 trials are stored, nothing left to run") == 0
        assert calls("--case", "greet-1") == 1  # a draw that nobody has seen
        (skill / "SKILL.md").write_text(
            (skill / "SKILL.md").read_text() + "\nAnd smile.\n", encoding="utf-8"
        )
        assert (
            calls(stored=": 4 of 8 trials are stored, running the remaining 4.") == 4
        )  # the baseline is as it was
        suite = greetings(5)
        suite["cases"][0]["prompt"] = "Greet guest 1, please."
        (skill / "evals" / "suite.json").write_text(json.dumps(suite), encoding="utf-8")
        assert (
            calls(stored=": 6 of 10 trials are stored, running the remaining 4.") == 4
        )  # one case edited, one added
        assert calls("--limit", 2, "--set", "cache=false") == 2
        assert (
            calls("--redraw", stored=": 10 of 20 trials are stored, running the remaining 10.")
            == 10
        )
    with open_store(home / "runs") as store:
        assert all(run.finished for run in store.runs())
        last = store.run("last")
        assert len(list(store.results(last))) == last.trials


def test_errors_and_leaks_are_not_used_again(upskill: Upskill, skill: Path, home: Path) -> None:
    write_script(home / "model.yaml", [{"when": "guest 1.", "error": "gone"}, *HELPFUL])
    upskill("eval", skill, "-m", "scripted:model.yaml")
    with open_store(home / "runs") as store:
        run = store.run("last")
        keys = {
            result.trial.case: result.key
            for result in store.results(run)
            if result.trial.arm == "skill"
        }
        found = store.find_results("greeter", list(keys.values()))
        assert found == {key: run.number for case, key in keys.items() if case != "greet-1"}
        assert store.find_results("another", list(keys.values())) == {}


def rules_for(passing: set[int], cases: int = 8) -> list[dict[str, Any]]:
    return [
        {
            "when": f"guest {number}.",
            "answer": "ahoy, friend" if number in passing else "no greeting",
        }
        for number in range(1, cases + 1)
    ]


def test_compare_says_which_cases_changed_with_both_answers(upskill: Upskill, home: Path) -> None:
    def evaluated(passing: set[int], body: str, *flags: str) -> None:
        skill = write_skill(home / "greeter", cases=8, body=body)
        rules = [rule | {"system": "Greeting"} for rule in rules_for(passing)]
        write_script(home / "model.yaml", [*rules, {"answer": "hello, friend"}])
        assert upskill("eval", skill, "-m", "scripted:model.yaml", *flags).code == 0

    evaluated({1, 2}, "# Greeting\n\nSay ahoy.")
    evaluated({1, 3, 4, 5, 6, 7, 8}, "# Greeting\n\nAlways say ahoy.")
    done = upskill("compare")
    assert (done.code, done.err) == (0, "")
    assert "Only the skill differs." in done.out
    shown = " ".join(done.out.split())
    assert (
        "6 got better, 1 got worse, 1 unchanged (1 passed and 0 failed in both):"
        " +62 (−9 to +100) points, so this may well be chance." in shown
    )
    worse = shown.index("Got worse: 1 case Please greet guest 2. greet-2")
    assert (
        worse
        < shown.index("no greeting")
        < shown.index("Got better: 6 cases Please greet guest 3. greet-3")
    )
    (said,) = upskill("compare", "last~1", "last", "--json").json["comparisons"]
    assert (said["better"], said["worse"], said["stayed"], said["lift"]) == (6, 1, 1, 0.625)
    assert (said["same_skill"], said["differences"], said["no_test"]) == (False, [], "")
    worse = next(case for case in said["cases"] if case["change"] == "worse")
    assert worse == {
        "id": "greet-2",
        "change": "worse",
        "before": {"passed": 1, "scored": 1, "seed": 0, "answer": "ahoy, friend"},
        "after": {"passed": 0, "scored": 1, "seed": 0, "answer": "no greeting"},
    }
    # The other way round, and the arm that nobody edited.
    (back,) = upskill("compare", "last", "last~1", "--json").json["comparisons"]
    assert (back["better"], back["worse"], back["lift"]) == (1, 6, -0.625)
    baseline = upskill("compare", "--arm", "baseline")
    assert "No change in 8 cases (0 passed and 8 failed in both)." in baseline.out
    # Of the settings only what differs, and no name of a field.
    evaluated(
        {1, 3, 4, 5, 6, 7, 8}, "# Greeting\n\nAlways say ahoy.", "--set", "max_output_tokens=77"
    )
    done = upskill("compare")
    assert "The skill is the same. Other differences: the output limit (4096 → 77)." in done.out
    assert "No change in 8 cases" in done.out


def test_versions_of_a_skill_that_a_person_writes_are_listed_and_compared(
    upskill: Upskill, home: Path
) -> None:
    model = write_script(home / "model.yaml")
    for body in ("# Greeting\n\nSay hello.", "# Greeting\n\nSay ahoy.", "# Greeting\n\nSay ahoy."):
        upskill("eval", write_skill(home / "greeter", cases=8, body=body), "-m", model)
    first, second = upskill("versions", "greeter", "--json").json
    assert [(row["id"], row["parent"], row["pass_rate"]) for row in (first, second)] == [
        ("v1", None, 0.0),
        ("v2", "v1", 1.0),
    ]
    assert (first["decision"], second["decision"]) == ("undecided", "helps on these cases")
    broken = write_script(home / "broken.yaml", [{"error": "the line is dead"}])
    assert upskill("eval", home / "greeter", "-m", broken).code == 3
    assert upskill("versions", "greeter", "--json").json == [
        first,
        second,
    ]  # a run without a result changes nothing
    assert second["note"] == f"evaluated in {second['run']} with scripted:model.yaml"
    changed = upskill("versions", "greeter", "--diff").out.splitlines()
    assert [line for line in changed if line[:2] in ("-S", "+S")] == ["-Say hello.", "+Say ahoy."]
    assert upskill("versions").out == "greeter  2 versions\n"
    nothing = upskill("show", "last:held-out")
    assert (nothing.code, "there is no run last:held-out yet" in nothing.err) == (2, True), (
        nothing.out
    )


def test_what_was_last_reported_of_a_skill_is_said_where_it_is_used(
    upskill: Upskill, home: Path
) -> None:
    model, skill = (
        write_script(home / "model.yaml"),
        write_skill(home / "skills" / "greeter", cases=8),
    )
    listed, installed = ("list",), ("install", skill, "--to", "generic")
    (skill / "skill_meta.json").write_text(
        json.dumps({"metadata": {"state": "unproven"}}), encoding="utf-8"
    )
    assert upskill("list", "--json").json[0]["state"] == "unproven"
    assert "not evaluated yet" in upskill(*listed).out
    assert (
        "Unproven: no run in this project's store shows that this skill helps."
        in upskill(*installed).err
    )
    assert upskill("eval", skill, "-m", model).code == 0
    verdict = f"{model}: helps, +100 points"
    helps = rf"{re.escape(model)} +✓ helps"
    row = rf"{helps} +\+100"
    assert re.search(rf"{row}\n", upskill(*listed).out)
    (shown,) = upskill("list", "--json").json
    assert (shown["verdicts"][0]["decision"], shown["state"]) == ("helps", "")
    assert upskill(*installed).err == ""
    shown = " ".join(upskill("list", ".").out.split())  # with the copy, which has no suite
    assert (
        "skills/greeter" in shown,
        ".agents/skills/greeter" in shown,
        "changed since" in shown,
    ) == (
        True,
        True,
        False,
    )
    assert upskill(*installed, "--json").json["proven"] is True
    write_skill(skill, cases=8, body="# Greeting\n\nSay hello.")
    assert re.search(rf"{helps}; another version, unproven +\+100\n", upskill(*listed).out)
    assert f"helps ({verdict} (another version))" in upskill(*installed).err
    # The version that was measured first is back, as on another branch: its own verdict holds, not the latest.
    assert upskill("eval", skill, "-m", model).code == 0
    write_skill(skill, cases=8)
    assert re.search(rf"{row}\n", upskill(*listed).out)


def test_a_run_on_another_suite_does_not_replace_the_verdict_on_the_skills_own(
    upskill: Upskill, home: Path
) -> None:
    model, skill = (
        write_script(home / "model.yaml"),
        write_skill(home / "skills" / "greeter", cases=8),
    )
    other = home / "other" / "evals" / "suite.json"  # of another skill
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps(greetings(2)), encoding="utf-8")
    undecided = rf"{re.escape(model)} +\? undecided \(too few cases\)"
    assert upskill("eval", skill, "-m", model, "-t", "other/evals/suite.json").code == 0
    # There is no other verdict.
    assert re.search(rf"{undecided}; on other/evals/suite.json +\+100\n", upskill("list").out)
    assert upskill("eval", skill, "-m", model).code == 0
    assert (
        upskill("eval", skill, "-m", model, "-t", "other/evals/suite.json", "--seed", 1).code == 0
    )
    assert re.search(rf"{re.escape(model)} +✓ helps +\+100\n", upskill("list").out)
    assert upskill("install", skill, "--to", "generic").err == ""
    (version,) = upskill("versions", "greeter", "--json").json
    assert version["decision"] == "helps"
    heads = [line for line in upskill("runs").out.splitlines() if "greeter-" in line]
    assert ["; on other/evals/suite.json" in line for line in heads] == [True, False, True]
    assert [row["other_suite"] for row in upskill("runs", "--json").json] == [
        "other/evals/suite.json",
        "",
        "other/evals/suite.json",
    ]
    with open_store(home / "runs") as store:
        (row,) = skill_verdicts(store, "greeter")
        assert (row["decision"], row["other_suite"]) == ("helps", "")
    # Of several skills, the table has the verdict on each one's own suite.
    assert upskill("eval", write_skill(home / "skills" / "waver", cases=2), "-m", model).code == 0
    assert "helps" in next(
        line for line in upskill("runs").out.splitlines() if line.lstrip().startswith("greeter")
    )
    # A suite that becomes the skill's own keeps its results.
    shutil.copy(other, skill / "evals" / "suite.json")
    assert "stored" in upskill("eval", skill, "-m", model).err
    assert re.search(rf"{undecided} +\+100\n", upskill("list").out)
    # A new version that was run on the other suite only has no verdict yet.
    write_skill(skill, cases=8, body="# Greeting\n\nSay ahoy, always.")
    assert upskill("eval", skill, "-m", model, "-t", "other/evals/suite.json").code == 0
    listed = upskill("list").out
    # The cell is too long for one line.
    assert re.search(r"another version, its suite changed +\+100\n +since\n", listed)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("greeter/evals/suite.yaml", ""),
        ("/home/ada/greeter/evals/evals.json", ""),
        ("evals/suite.json", ""),  # of `upskill eval .`
        ("../evals/suite.json", ""),
        ("greeter/evals/eval_queries.json", ""),
        ("generated", ""),
        ("/home/ada/greeter/evals/hard.yaml", "evals/hard.yaml"),
        ("other/evals/suite.yaml", "other/evals/suite.yaml"),
        ("not-greeter/evals/suite.yaml", "not-greeter/evals/suite.yaml"),
        ("./suite.yaml", "suite.yaml"),
    ],
)
def test_a_suite_is_named_unless_it_is_the_skills_own(source: str, named: str) -> None:
    assert other_suite(source, "greeter") == named


def test_list_says_which_of_skill_suite_and_model_changed_since_the_verdict(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, skill = (
        write_script(home / "model.yaml"),
        write_skill(home / "skills" / "greeter", cases=8),
    )
    monkeypatch.setitem(ALIASES, "pupil", model)
    assert upskill("eval", skill, "-m", "pupil", "--receipt").code == 0
    assert upskill("list", "--json").json[0]["verdicts"][0]["changed"] == []
    monkeypatch.setitem(ALIASES, "pupil", write_script(home / "newer.yaml"))
    suite = skill / "evals" / "suite.json"
    suite.write_text(suite.read_text().replace("guest 2", "guest 22"), encoding="utf-8")
    for _ in ("from the store", "from the receipt"):
        assert "its suite and its model changed since" in upskill("list").out
        assert upskill("list", "--json").json[0]["verdicts"][0]["changed"] == ["suite", "model"]
        shutil.rmtree(home / "runs", ignore_errors=True)


def test_compare_counts_apart_what_says_nothing_about_the_skill(
    upskill: Upskill, home: Path
) -> None:
    skill = write_skill(home / "greeter", cases=4)
    model, other = (
        write_script(home / f"{name}.yaml", rules_for({1}, 9)) for name in ("model", "other")
    )
    upskill("eval", skill, "-m", model)
    suite = greetings(5)
    suite["cases"][1]["prompt"] = "Do greet guest 2."
    del suite["cases"][2]
    (skill / "evals" / "suite.json").write_text(json.dumps(suite), encoding="utf-8")
    upskill("eval", skill, "-m", model)
    out = upskill("compare").out
    assert (
        "The skill is the same. Other differences: the suite (1 case edited); the suite (1 case removed); "
        in out
    )
    assert "No change in 2 cases" in out
    assert "No interval: the runs do not score the same cases." in out
    assert "1 case edited, so not compared: greet-2." in out
    assert "1 case only in the first run: greet-3." in out
    # A part that somebody chose is compared and not tested.
    upskill("eval", skill, "-m", model, "--failed")
    upskill("eval", skill, "-m", model, "--failed", "--seed", "1")
    assert "No interval: the cases are a hand-picked part of the suite." in upskill("compare").out
    # Without names it is the latest run that can be compared with the last.
    upskill("eval", skill, "-m", model, "--case", "greet-1")
    upskill("eval", skill, "-m", model, "--case", "greet-4")
    assert "before greeter" in " ".join(upskill("compare").out.split())
    assert "No change in 1 case" in upskill("compare").out
    # Two models of one run, and two runs with one model each.
    write_script(home / "other.yaml", rules_for({4, 5}, 9))
    upskill("eval", skill, "-m", model, "-m", other)
    done = upskill("compare", "last", "-m", model, "-m", other)
    assert "Other differences: the model (scripted:model.yaml → scripted:other.yaml)." in done.out
    assert "2 got better, 1 got worse, 1 unchanged" in done.out
    upskill("eval", skill, "-m", other, "--seed", "7")
    assert (
        "the model (scripted:model.yaml → scripted:other.yaml)"
        in upskill("compare", "last~3", "last").out
    )


def test_compare_pairs_the_latest_two_runs_that_share_suite_and_model(
    upskill: Upskill, home: Path
) -> None:
    skill, model = (
        write_skill(home / "greeter", cases=4),
        write_script(home / "model.yaml", rules_for({1}, 9)),
    )
    other, suite = write_script(home / "other.yaml", rules_for({2}, 9)), home / "other.json"
    suite.write_text(json.dumps(greetings(5)), encoding="utf-8")

    def run(*options: object) -> str:
        upskill("eval", skill, *options)
        return upskill("runs", "--json").json[-1]["run"]

    def pair(*options: object) -> tuple[str, ...]:
        (comparison,) = upskill("compare", *options, "--json").json["comparisons"]
        return tuple(comparison[side]["run"] for side in ("before", "after"))

    first = run("-m", model)
    assert "nothing to compare: only one run is stored" in upskill("compare").err
    run("-m", other)
    done = upskill("compare")
    assert (done.code, "no two finished runs share a model, cases and a baseline" in done.err) == (
        2,
        True,
    )
    assert "(own suite, scripted:other.yaml); greeter-" in " ".join(done.err.split())
    second = run("-m", model, "--seed", 1)
    assert pair() == (first, second)
    last = run("-m", model, "-t", suite)
    assert pair() == (first, second)
    assert (
        f"{last}, the last run, has no finished run before it with the same suite"
        in upskill("compare").err
    )
    again = run("-m", model, "-t", suite, "--seed", 1)
    assert pair() == (last, again)
    third = run("-m", other, "--seed", 1)
    assert pair("-m", model) == (last, again)
    assert pair("-m", model, "-m", other) == (second, third)


def test_what_cannot_be_compared_is_a_usage_error(upskill: Upskill, home: Path) -> None:
    model = write_script(home / "model.yaml")
    upskill("eval", write_skill(home / "greeter", cases=2), "-m", model)
    suite = {
        "cases": [{"id": "other", "prompt": "Please greet.", "checks": [{"contains": "ahoy"}]}]
    }
    upskill("eval", write_skill(home / "greeter", suite=suite), "-m", model)
    for argv, message in (
        (["last", "last"], "cannot be compared with itself"),
        (["last"], "cannot be compared with itself"),
        (
            ["last~1", "last", "-m", "scripted:modl.yaml"],
            "no model named 'scripted:modl.yaml'\n  Did you mean",
        ),
        (["last~1", "last", "--arm", "placebo"], "no arm named 'placebo'"),
        (["last~9"], "there is no run last~9: the store has 2 runs"),
        ([], "nothing to compare: no two finished runs share a model, cases and a baseline"),
        (["last~1", "last"], "have no cases in common\n  Compare two runs of the same suite."),
    ):
        done = upskill("compare", *argv)
        assert (done.code, message in done.err) == (2, True), argv


@contextmanager
def killed_in_the_end(process: subprocess.Popen[str]) -> Generator[None]:
    """A process that waits for ever would have a test that fails wait with it."""
    try:
        yield
    finally:
        process.kill()


def test_watch_runs_what_a_saved_file_changes(home: Path, upskill: Upskill) -> None:
    skill = write_skill(home / "greeter", body="# Greeting\n\nBe kind.")
    model = write_script(home / "model.yaml", [{"when": "guest 1.", "answer": "ahoy"}, *HELPFUL])
    shown = skill / "SKILL.md"
    first = shown.read_text(encoding="utf-8")
    with start("eval", skill, "-m", model, "--watch") as process, killed_in_the_end(process):

        def save(file: Path, text: str) -> None:
            """As an editor does: nobody sees half of it."""
            (home / "new").write_text(text, encoding="utf-8")
            (home / "new").replace(file)

        def until(words: str) -> list[str]:
            """What is said up to a line with these words."""
            lines: list[str] = []
            for line in process.stderr or ():
                lines.append(line.rstrip())
                if words in line:
                    return lines
            raise AssertionError(f"it ended after {lines}")

        assert until("Watching the skill and its suite")[-1].endswith("Ctrl-C stops.")
        save(shown, first + "Say ahoy.\n")
        said = until("Watching")
        assert "SKILL.md changed." in said
        assert any(": 4 of 8 trials are stored, running the remaining 4." in line for line in said)
        save(skill / "evals" / "suite.json", "{")  # half saved
        assert any(
            line.startswith("upskill: ") and "suite.json" in line for line in until("Watching")
        )
        save(skill / "evals" / "suite.json", json.dumps(greetings(5)))
        said = until("Watching")
        assert any(": 8 of 10 trials are stored, running the remaining 2." in line for line in said)
        save(shown, first)
        assert any(
            ": 9 of 10 trials are stored, running the remaining 1." in line
            for line in until("Watching")
        )
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert (
        f"Since the previous save, {model}: 3 got better (greet-2, greet-3, greet-4), none got worse, 1 unchanged.\n"
        in out
    )
    assert (
        f"Since the previous save, {model}: none got better, 4 got worse (greet-2, greet-3, greet-4, greet-5), "
        in out
    )
    assert out.count("Read every answer") == 4
    assert len(upskill("runs", "--json").json) == 4


def test_watch_keeps_to_the_cases_that_failed_when_it_began(home: Path) -> None:
    options = EvalOptions(
        skill="greeter", students=("scripted:model.yaml",), failed=True, watch=True
    )
    suite = Suite.parse(tagged())
    skill = Skill.new("greeter", "Greets.", "Say ahoy.")
    options.failing = {"greet-2", "greet-5"}
    chosen = options.choose_cases(skill, suite)
    assert chosen is not None
    assert [case.id for case in chosen.cases] == ["greet-2", "greet-5"]
    assert chosen.part is not None
    assert chosen.part.by_outcome


@pytest.mark.parametrize("flag", ["--json", "--redraw", "--batch"])
def test_watch_refuses_what_it_cannot_go_on_with(
    upskill: Upskill, skill: Path, home: Path, flag: str
) -> None:
    done = upskill("eval", skill, "-m", "scripted:model.yaml", "--watch", flag)
    assert (done.code, done.err) == (
        2,
        f"upskill: --watch and {flag} cannot be used together\n  Drop {flag}.\n",
    )
    assert not (home / "runs").exists()


def test_watched_are_the_files_that_a_person_edits(home: Path) -> None:
    skill = write_skill(home / "greeter")
    for name in ("runs/upskill.db", ".git/HEAD", "report.json", "references/a.md"):
        (skill / name).parent.mkdir(exist_ok=True)
        (skill / name).write_text("x", encoding="utf-8")
    (home / "more.yaml").write_text("x", encoding="utf-8")
    watched = Watched([skill / "SKILL.md", "more.yaml"], [skill / "runs", skill / "report.json"])
    seen = watched.look()
    assert {watched.name(path) for path in seen} == {
        "SKILL.md",
        "evals/suite.json",
        "references/a.md",
        "more.yaml",
    }
    (home / "more.yaml").unlink()
    (skill / "references" / "a.md").write_text("xy", encoding="utf-8")
    (skill / "new.md").write_text("x", encoding="utf-8")
    after = watched.wait(seen)
    assert {watched.name(path) for path in changed(seen, after)} == {
        "new.md",
        "references/a.md",
        "more.yaml",
    }


def test_the_page_on_editing_does_what_it_says(upskill: Upskill, home: Path) -> None:
    page = (REPOSITORY / "docs/how-to/edit.md").read_text(encoding="utf-8")
    shutil.copytree(REPOSITORY / "examples/tern-deploy", home / "my-skill")
    manifest = home / "my-skill" / "SKILL.md"
    manifest.write_text(
        manifest.read_text(encoding="utf-8").replace("tern-deploy", "my-skill", 1), encoding="utf-8"
    )
    shutil.copy(REPOSITORY / "examples/scripted.yaml", home)
    (home / "upskill.config.yaml").write_text("student: scripted:scripted.yaml", encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 9
    said = ""
    for line in lines:
        if "# after an edit" in line:
            manifest.write_text(
                manifest.read_text(encoding="utf-8") + "\nRead twice.\n", encoding="utf-8"
            )
        done = upskill(*shlex.split(line, comments=True)[1:])
        assert done.code == 0, (line, done.err)
        said += " ".join(done.out.split())
    (warning,) = re.findall(r"```text\nOnly .*: (.*?)\n```", page)
    assert warning in said
