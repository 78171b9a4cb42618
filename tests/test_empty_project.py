"""What the commands say where nothing is stored and nothing is written yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conftest import Done, Upskill, write_skill
from upskill.runs.stores import open_store
from upskill.skills import Skill


def test_commands_that_look_at_results_say_what_to_type_first(upskill: Upskill, home: Path) -> None:
    for argv, said in {
        ("runs",): "`upskill eval SKILL` creates one",
        ("view",): "`upskill eval SKILL` creates one, and `upskill view` shows it",
        ("list",): "`upskill init NAME` starts one",
        ("versions",): "`upskill eval` stores each version",
        ("versions", "greeter"): "`upskill eval` stores each version",
        ("versions", "greeter", "v1", "v2"): "`upskill eval` stores each version",
    }.items():
        done = upskill(*argv)
        assert (done.code, done.out, done.err.startswith("Nothing yet: ")) == (0, "", True), argv
        assert said in done.err
    for name in ("runs", "list", "versions"):
        assert upskill(name, "--json") == Done(0, "[]\n", "")
    assert list(home.iterdir()) == []
    (home / "runs").mkdir()
    assert upskill("runs").code == 0
    assert upskill("runs", "--store", "runs").code == 0


def test_commands_that_need_a_run_say_how_to_make_one(upskill: Upskill) -> None:
    def check() -> None:
        for argv in (
            ("show", "last"),
            ("report", "last"),
            ("compare",),
            ("show", "greeter"),
            ("view", "last"),
        ):
            done = upskill(*argv)
            assert (done.code, done.out) == (2, "")
            assert done.err.endswith(": no runs yet\n  Run `upskill eval SKILL` first.\n"), done.err

    check()
    with open_store("runs"):
        check()


def test_a_folder_that_was_named_has_to_be_there(upskill: Upskill) -> None:
    for argv in (
        ("runs", "-d", "nowhere"),
        ("versions", "greeter", "--store", "nowhere"),
        ("list", "nowhere"),
    ):
        done = upskill(*argv)
        assert (done.code, "nowhere: no such folder" in done.err) == (2, True), argv


def test_list_takes_the_folder_as_its_argument(upskill: Upskill, home: Path) -> None:
    write_skill(home / "mine" / "greeter")
    assert "greeter" in upskill("list", "mine").out
    assert [row["name"] for row in upskill("list", "mine", "--json").json] == ["greeter"]
    assert upskill("list", home / "mine").out == upskill("list", "--dir", home / "mine").out


def test_versions_lists_the_skills_that_have_some(upskill: Upskill, home: Path) -> None:
    skill = Skill.load(write_skill(home / "greeter"))
    with open_store("runs") as store:
        store.add_candidate("search", skill, None, True, "first", {})
        store.add_candidate("search", skill.with_body("Other."), None, False, "second", {})
    assert upskill("versions").out == "greeter  2 versions\n"
    assert upskill("versions", "--json").json == [{"skill": "greeter", "versions": 2}]
    done = upskill("versions", "greter")
    assert (done.code, "Did you mean 'greeter'?" in done.err) == (2, True)


def test_plan_says_how_many_cases_a_suite_needs_before_there_is_one(
    upskill: Upskill, home: Path
) -> None:
    skill = write_skill(home / "greeter")
    (skill / "evals" / "suite.json").unlink(missing_ok=True)
    for argv in ((), (skill,)):
        done = upskill("plan", *argv, "-m", "haiku")
        assert (done.code, done.err) == (0, "")
        assert "Cases needed" in done.out
        assert "Cost" not in done.out
        assert "There is no suite yet, so no cost can be estimated." in done.out
    said: dict[str, Any] = upskill("plan", "-m", "haiku", "--json").json
    (model,) = said["models"]
    assert (said["skill"], model["cases"]) == (None, None)
    assert {
        (option["cost_usd"], option["chance_with_your_cases"]) for option in model["options"]
    } == {(None, None)}
    with_suite = upskill(
        "plan", write_skill(home / "tested", suite=judged(checks=[{"contains": "ahoy"}])), "--json"
    )
    assert [option["cases"] for option in with_suite.json["models"][0]["options"]] == [
        option["cases"] for option in upskill("plan", "--json").json["models"][0]["options"]
    ]
    assert not (home / "runs").exists()


def judged(checks: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "cases": [{"prompt": f"Greet {name}.", "checks": checks} for name in ("Ann", "Bob", "Cy")]
    }


def test_plan_counts_what_a_judge_costs_where_one_is_named(upskill: Upskill, home: Path) -> None:
    skill = write_skill(home / "greeter", suite=judged([{"judge": "It says ahoy."}]))

    def told(*more: str) -> tuple[float, list[str]]:
        said = upskill("plan", skill, "-m", "haiku", *more, "--json").json
        return said["models"][0]["options"][0]["cost_usd"][1], said["notes"]

    alone, notes = told()
    assert (alone > 0, notes) == (True, ["Cost: without the judge. Choose one with --judge."])
    graded, notes = told("--judge", "opus")
    assert (graded > alone, notes) == (True, [])
    assert "without the judge" in upskill("plan", skill, "-m", "haiku").out
    assert "free" in upskill("plan", skill, "-m", "local").out
    served = upskill(
        "plan", skill, "-m", "qwen3", "--base-url", "http://localhost:8080/v1", "--json"
    ).json
    assert [model["model"] for model in served["models"]] == ["qwen3"]
    suite = skill / "evals" / "suite.json"
    assert upskill("plan", "--tests", suite, "-m", "haiku", "--judge", "opus").code == 0
    assert list(home.iterdir()) == [skill]
