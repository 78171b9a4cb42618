"""An ordinary week with a skill: which question its verdict answers after each thing that people do."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, serving, write_script
from loopback import Call

CASES = 12
State = tuple[str, str, str | None]  # what the heading is about, its decision, and the other's
FRESH: State = ("tasks", "helps", "helps")
SEEN: State = ("these", "helps", None)


def code(number: int) -> str:
    return f"q{number * 37 + 11}x"


def write_skill(folder: Path, more: str = "", *, facts: int = 40) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(f"- Drawer {number} is {code(number)}." for number in range(facts))
    head = f"---\nname: {folder.name}\ndescription: Drawers.\n---\n"
    (folder / "SKILL.md").write_text(f"{head}\n# Drawers\n\n{lines}\n{more}")


def write_suite(folder: Path, cases: int = CASES, ask: str = "What is the code") -> None:
    suite = [
        {
            "id": f"drawer-{number}",
            "prompt": f"{ask} of drawer {number}?",
            "checks": [{"contains": code(number)}],
        }
        for number in range(cases)
    ]
    (folder / "evals").mkdir(exist_ok=True)
    (folder / "evals" / "suite.json").write_text(json.dumps({"cases": suite}))


def write_student(path: Path) -> str:
    """Knows what its prompt says, and nothing else."""
    knows = [
        {"system": code(number), "when": f"drawer {number}?", "answer": code(number)}
        for number in range(40)
    ]
    return write_script(path, [*knows, {"answer": "No idea"}])


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def state_of(verdict: Mapping[str, Any]) -> State:
    other = verdict["other"]
    return verdict["about"], verdict["decision"], other and other["decision"]


@dataclass
class Week:
    """A skill whose facts a scripted student needs, in a repository, and the command line."""

    upskill: Upskill
    home: Path
    student: str

    @property
    def skill(self) -> Path:
        return self.home / "drawers"

    @property
    def record(self) -> dict[str, str]:
        file = self.skill / "skill_meta.json"
        return json.loads(file.read_text())["seen"] if file.is_file() else {}

    def eval(self, *options: object, skill: Path | None = None) -> Any:
        done = self.upskill("eval", skill or self.skill, "-m", self.student, "--json", *options)
        assert done.code == 0, done.err
        return done.json["models"][0]

    def edit(self, folder: Path | None = None, line: str = "Be brief.") -> None:
        write_skill(folder or self.skill, f"\n{line}\n")

    def commit(self, message: str) -> None:
        git(self.home, "add", "-A", "drawers")
        git(self.home, "commit", "-qm", message)


@pytest.fixture
def week(upskill: Upskill, home: Path) -> Week:
    found = Week(upskill, home, write_student(home / "student.json"))
    write_skill(found.skill)
    write_suite(found.skill)
    git(home, "init", "-q", "-b", "main")
    return found


def nothing(week: Week) -> Any:
    return week.eval()


def other_model(week: Week) -> Any:
    week.student = write_student(week.home / "other.json")
    return week.eval()


def white_space(week: Week) -> Any:
    manifest = week.skill / "SKILL.md"
    manifest.write_text(manifest.read_text().replace("- Drawer", "-  Drawer") + "\n\n")
    return week.eval()


def another_line(week: Week) -> Any:
    week.edit()
    return week.eval()


def back_to_the_old_text(week: Week) -> Any:
    week.edit()
    week.eval()
    write_skill(week.skill)
    return week.eval()


def mended_check(week: Week) -> Any:
    suite = week.skill / "evals" / "suite.json"
    suite.write_text(suite.read_text().replace('"contains": "q11x"', '"regex": "q11x"'))
    return week.eval()


def reworded_cases(week: Week) -> Any:
    week.edit()
    write_suite(week.skill, ask="Please say the code")
    return week.eval()


def rename(week: Week) -> Any:
    renamed = week.skill.rename(week.home / "cupboard")
    write_skill(renamed)
    return week.eval(skill=renamed)


def rename_and_edit(week: Week) -> Any:
    renamed = week.skill.rename(week.home / "cupboard")
    week.edit(renamed)
    return week.eval(skill=renamed)


def copy_and_edit(week: Week) -> Any:
    copy = shutil.copytree(week.skill, week.home / "copies" / "drawers")
    week.edit(copy)
    return week.eval(skill=copy)


def clone_and_edit(week: Week) -> Any:
    week.commit("First")
    git(week.home, "clone", "-q", ".", "clone")
    clone = week.home / "clone" / "drawers"
    week.edit(clone)
    return week.eval("--store", week.home / "clone" / "runs", skill=clone)


def teammate_with_an_empty_store(week: Week) -> Any:
    week.edit()
    return week.eval("--store", week.home / "theirs")


def two_branches(week: Week) -> Any:
    """Each was written without the results of the other; what is merged has seen both."""
    (week.skill / "skill_meta.json").unlink()
    week.commit("First")
    for branch in ("one", "two"):
        git(week.home, "switch", "-q", "-c", branch, "main")
        week.edit(line=f"As in branch {branch}.")
        assert state_of(week.eval("--store", week.home / branch)) == FRESH
        week.commit(branch)
    git(week.home, "merge", "-q", "-X", "ours", "one")
    week.edit(line="As in both.")
    return week.eval()


def baseline_alone(week: Week) -> Any:
    """As whoever ran the cases without a skill leaves them: seen by every text that is written then."""
    seen = {"seen": {f"drawer-{number}": "" for number in range(CASES)}}
    (week.skill / "skill_meta.json").write_text(json.dumps(seen))
    return week.eval()


def twelve_new_cases_after_an_edit(week: Week) -> Any:
    week.edit()
    write_suite(week.skill, 2 * CASES)
    verdict = week.eval()
    assert (verdict["cases"], verdict["other"]["cases"]) == (12, 24)
    return verdict


def three_new_cases_after_an_edit(week: Week) -> Any:
    week.edit()
    write_suite(week.skill, CASES + 3)
    verdict = week.eval()
    assert (verdict["cases"], verdict["other"]["cases"]) == (15, 3)
    assert verdict["other"]["add"] > 0
    return verdict


WEEK: dict[Callable[[Week], Any], State] = {
    nothing: FRESH,
    other_model: FRESH,
    white_space: FRESH,
    another_line: SEEN,
    back_to_the_old_text: FRESH,
    mended_check: FRESH,
    reworded_cases: SEEN,
    rename: FRESH,
    rename_and_edit: SEEN,
    copy_and_edit: SEEN,
    clone_and_edit: SEEN,
    teammate_with_an_empty_store: SEEN,
    two_branches: SEEN,
    baseline_alone: SEEN,
    twelve_new_cases_after_an_edit: ("tasks", "helps", "helps"),
    three_new_cases_after_an_edit: ("these", "helps", "undecided"),
}


@pytest.mark.parametrize("what", WEEK, ids=lambda what: what.__name__)
def test_after_the_first_verdict(what: Callable[[Week], Any], week: Week) -> None:
    first = week.eval()
    assert state_of(first) == FRESH
    found = what(week)
    assert state_of(found) == WEEK[what]
    assert found["lift"] == first["lift"] == 1


def test_an_edit_that_changes_no_answer_changes_no_number(week: Week) -> None:
    first = week.eval()
    these = first["other"]
    for line in ("Be brief.", "Be brief, please.", "Be brief, and kind."):
        week.edit(line=line)
        found = week.eval()
        assert {key: found[key] for key in these} == these | {"add": found["add"]}


def test_a_line_for_each_failed_case_proves_nothing_about_other_tasks(week: Week) -> None:
    write_skill(week.skill, facts=2)
    assert week.eval()["decision"] == "undecided"
    write_skill(week.skill)
    assert state_of(week.eval()) == SEEN
    write_suite(week.skill, 2 * CASES)
    write_skill(week.skill, facts=CASES)  # the new ones are not in it
    found = week.eval()
    assert (found["about"], found["decision"], found["other"]["lift"]) == ("these", "helps", 0)


def test_a_stub_that_was_run_first_has_shown_what_the_baseline_fails(week: Week) -> None:
    write_skill(week.skill, "\nTo be written.\n", facts=0)
    week.eval()
    write_skill(week.skill)
    assert state_of(week.eval()) == SEEN


def test_results_of_one_arm_make_cases_seen(week: Week) -> None:
    assert week.eval("--no-baseline")["reason"] == "no baseline"
    assert state_of(week.eval()) == FRESH, "they belong to this text"
    week.edit()
    assert state_of(week.eval()) == SEEN


def test_a_plan_shows_no_result(week: Week) -> None:
    done = week.upskill("eval", week.skill, "-m", week.student, "--plan", "--json")
    assert (done.code, week.record) == (0, {})
    week.edit()
    assert state_of(week.eval()) == FRESH


def test_a_part_of_a_suite_gives_no_verdict_and_its_cases_are_seen(week: Week) -> None:
    found = week.eval("--case", "drawer-1*")
    assert (found["decision"], found["reason"]) == ("undecided", "no baseline")
    assert (found["lift"], found["skill"]["passed"], found["baseline"]["passed"]) == (None, 3, 0)
    assert set(week.record) == {"drawer-1", "drawer-10", "drawer-11"}
    week.edit()
    whole = week.eval()
    assert state_of(whole) == FRESH
    assert (whole["cases"], whole["other"]["cases"]) == (CASES - 3, CASES)
    done = week.upskill("eval", week.skill, "-m", week.student, "--json")
    assert done.json["suite"]["fresh"] == CASES - 3


def test_where_nothing_can_be_written_there_is_a_verdict_and_one_warning(week: Week) -> None:
    (week.skill / "skill_meta.json").mkdir()  # as in a folder that is read-only, also for root
    done = week.upskill("eval", week.skill, "-m", week.student, "--json")
    assert state_of(done.json["models"][0]) == FRESH
    warnings = [line for line in done.json["warnings"] if "cannot be written" in line]
    assert len(warnings) == 1
    assert "will take the cases shown here for fresh ones" in warnings[0]


def test_ci_asks_about_these_cases_and_writes_nothing(week: Week) -> None:
    week.commit("First")
    git(week.home, "switch", "-q", "-c", "edit")
    week.edit()
    week.commit("Edit")
    options = ("--base-ref", "main", "-m", week.student, "--json")
    done = week.upskill("ci", "drawers", *options, "--store", week.home / "empty")
    (row,) = done.json["skills"]
    assert (row["mark"], row["change"]) == ("pass", "changed")
    assert (row["against_base"]["about"], row["against_none"]["about"]) == ("these", "these")
    assert row["against_base"]["other"] is row["against_none"]["other"] is None
    assert (row["against_base"]["lift"], row["against_none"]["decision"]) == (0, "helps")
    assert week.record == {}
    assert state_of(week.eval()) == FRESH


# A student that samples
# ------------------------------------------------------------------------------------------------


def number_of(call: Call) -> int | None:
    """Of the drawer that it is asked for; None for the probe."""
    numbers = re.findall(r"drawer (\d+)", call.prompt)
    return int(numbers[-1]) if numbers else None


def forgetful(call: Call) -> str:
    """Knows what its prompt says, nine times in ten."""
    number = number_of(call)
    chance = random.Random(f"{call.seed} {call.prompt} {len(call.system)}").random()
    if number is None:
        return f"Prose number {call.seed}."
    return code(number) if code(number) in call.system and chance < 0.9 else "No idea"


def guessing(call: Call) -> str:
    """Guesses half of the codes, with the skill and without."""
    number = number_of(call)
    if number is None:
        return f"Prose number {call.seed}."
    chance = random.Random(f"{call.seed} {call.prompt} {len(call.system)}").random()
    return code(number) if chance < 0.5 else "No idea"


def test_more_draws_of_the_same_text_are_no_second_look(
    week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    week.student = "generic:student"
    with serving(forgetful) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        counts: list[int] = []
        for options in (("--repeats", 1), (), ("--repeats", 1), ("--redraw",)):
            found = week.eval(*options)
            assert state_of(found)[:2] == ("tasks", "helps")
            assert found["level"] == 0.95
            counts.append(found["pairs"])
    assert counts == [CASES, 3 * CASES, 3 * CASES, 6 * CASES]


def test_draws_that_chose_a_case_are_in_no_verdict(
    week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps the cases that a useless skill won, and asks again, is answered by new draws of both arms."""
    week.student = "generic:student"
    with serving(guessing) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)

        def asked() -> int:
            return sum("drawer" in json.dumps(request.body) for request in server.requests)

        week.eval()
        assert asked() == 2 * 3 * CASES
        week.edit()
        week.eval()
        assert asked() == 3 * 3 * CASES, "the baseline of seen cases is used for a day"
        part = week.eval("--limit", 6)
        assert (part["lift"], asked()) == (None, 9 * CASES + 3 * 6), "a part is drawn anew"
        write_suite(week.skill, 6)
        week.edit(line="Be kind.")
        found = week.eval()
        assert asked() == 9 * CASES + 9 * 6, "in a suite that has lost cases the baseline, too"
    assert (found["about"], found["decision"], found["pairs"]) == ("these", "undecided", 18)


def test_cases_that_leave_the_suite_take_their_draws_along(
    week: Week, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever drops the cases that a useless skill lost is answered by new draws, and the report says so."""
    week.student = "generic:student"
    with serving(guessing) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)

        def asked() -> int:
            return sum("drawer" in json.dumps(request.body) for request in server.requests)

        whole = week.eval()
        write_suite(week.skill, 6)
        part = week.eval()
        assert asked() == 2 * 3 * CASES + 2 * 3 * 6
        assert part["caveats"][0].startswith(
            "6 cases of earlier runs not in this suite: drawer-10,"
        )
        chosen = week.skill / "evals" / "suite.json"
        copy = chosen.rename(week.home / "chosen.json")
        assert week.eval("--tests", copy)["lift"] == part["lift"]
        copy.write_text(copy.read_text().replace('"drawer-', '"renamed-'))
        assert week.eval("--tests", copy)["caveats"] == part["caveats"]
        assert asked() == 2 * 3 * CASES + 2 * 3 * 6, "in a copy of the suite, too"
        write_suite(week.skill)
        assert week.eval()["lift"] == whole["lift"]
        assert asked() == 2 * 3 * CASES + 2 * 3 * 6
