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


def judged(checks: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "cases": [{"prompt": f"Greet {name}.", "checks": checks} for name in ("Ann", "Bob", "Cy")]
    }


def test_the_plan_of_a_run_is_made_without_a_key_and_leaves_nothing_behind(
    upskill: Upskill, home: Path
) -> None:
    skill = write_skill(home / "greeter", suite=judged([{"contains": "ahoy"}]))
    said = upskill("eval", skill, "-m", "haiku", "--plan", "--json").json
    (model,) = said["models"]
    assert (said["trials"], model["draws"], model["cases"], model["fresh"]) == (18, 3, 3, 3)
    assert said["cost_usd"][1] > said["cost_usd_at_one_repeat"][1] > 0
    exact = upskill("eval", skill, "-m", "local", "--plan", "--json").json
    assert (exact["trials"], exact["models"][0]["exact"], exact["cost_usd"]) == (6, True, [0, 0])
    served = upskill(
        *("eval", skill, "-m", "qwen3", "--base-url", "http://localhost:8080/v1"),
        *("--plan", "--json"),
    )
    assert [each["model"] for each in served.json["models"]] == ["qwen3"]
    assert list(home.iterdir()) == [skill]


def test_a_plan_counts_what_a_judge_costs(upskill: Upskill, home: Path) -> None:
    plain = write_skill(home / "plain", suite=judged([{"contains": "ahoy"}]))
    graded = write_skill(home / "graded", suite=judged([{"judge": "It says ahoy."}]))
    alone = upskill("eval", plain, "-m", "haiku", "--plan", "--json").json
    judged_too = upskill("eval", graded, "-m", "haiku", "--judge", "opus", "--plan", "--json").json
    assert judged_too["cost_usd"][1] > alone["cost_usd"][1]
    assert judged_too["calls"] > alone["calls"]
