"""`upskill ci`: whether the edits of a branch made cases worse, and whether skills help at all."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import time
import venv
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Upskill, serving, write_script
from loopback import Call
from upskill import open_store
from upskill.plain import counted
from upskill.runs.results.evaluation import evaluation_of
from upskill.skills.changes import changed_skills

CASES = 12
EXAMPLES = Path(__file__).parent.parent / "examples"


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def write_skill(folder: Path, facts: range, suite: int = CASES) -> None:
    (folder / "evals").mkdir(parents=True, exist_ok=True)
    lines = "\n".join(f"- The code of {folder.name} {fact(number)}" for number in facts)
    text = f"---\nname: {folder.name}\ndescription: Drawers.\n---\n\n# Drawers\n\n{lines}\n"
    (folder / "SKILL.md").write_text(text)
    cases = [
        {
            "id": f"drawer-{number}",
            "prompt": f"What is the code of {folder.name} drawer {number}?",
            "checks": [{"contains": code(number)}],
        }
        for number in range(suite)
    ]
    (folder / "evals" / "suite.yaml").write_text(json.dumps({"cases": cases}))


def code(number: int) -> str:
    return f"q{number * 37 + 11}x"


def fact(number: int) -> str:
    return f"drawer {number} is {code(number)}."


def answer(call: Call) -> str:
    """Knows what its prompt says, nine times in ten, and says it in the same words each time."""
    chance = random.Random(f"{call.seed} {call.prompt} {len(call.system)}")
    numbers = re.findall(r"\d+", call.prompt)
    if not numbers:  # the probe
        return f"Prose number {call.seed}."
    number = int(numbers[-1])
    knows = fact(number) in call.system and chance.random() < 0.9
    return code(number) if knows else "No idea"


@pytest.fixture
def library(home: Path) -> Path:
    """Five skills, and a branch on which each has a fate of its own."""
    git(home, "init", "-q", "-b", "main")
    skills = home / "skills"
    for name in ("worse", "better", "moved", "retested", "untouched"):
        write_skill(skills / name, range(6) if name == "better" else range(CASES))
    (skills / "retested" / "evals" / "suite.yaml").unlink()
    git(home, "add", "-A")
    git(home, "commit", "-qm", "Five skills")
    git(home, "checkout", "-qb", "edit")
    write_skill(skills / "worse", range(5))
    write_skill(skills / "better", range(CASES))
    git(home, "mv", "skills/moved", "skills/elsewhere")
    manifest = skills / "elsewhere" / "SKILL.md"
    manifest.write_text(manifest.read_text().replace("name: moved", "name: elsewhere"))
    write_skill(skills / "retested", range(CASES))
    git(home, "add", "-A")
    git(home, "commit", "-qm", "Edit four of them")
    return home


def test_a_branch_is_blocked_for_the_skill_it_breaks_and_for_no_other(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(library / "page.md"))
    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        done = upskill("ci", "skills", "-m", "generic:student", "--json", "-o", "report")
        asked = len(server.requests)
        assert done.code == 1, done.err
        again = upskill("ci", "skills", "-m", "generic:student")
        assert len(server.requests) == asked, "what is stored is not asked again"
    rows = {row["skill"]: row for row in done.json["skills"]}
    assert {name: (row["change"], row["mark"], row["blocked"]) for name, row in rows.items()} == {
        "worse": ("changed", "block", True),
        "better": ("changed", "pass", False),
        "elsewhere": ("renamed", None, False),
        "retested": ("changed", "pass", False),
        "untouched": ("unchanged", None, False),
    }
    assert done.json["spent"]["calls"] == asked
    assert rows["elsewhere"]["was"] == "skills/moved"
    edit = rows["worse"]["against_base"]
    assert (edit["decision"], edit["about"], edit["mark"]) == ("hurts", "these", "block")
    with open_store("runs") as store:
        assert store.run("last").id == edit["run"]
    assert rows["better"]["against_base"]["lift"] > 0.2
    assert rows["retested"]["against_base"] is None, "only its suite is new"
    assert rows["worse"]["against_none"]["decision"] == "helps"
    summary = (library / "report" / "summary.md").read_text()
    assert summary.startswith("### upskill: `ci`\n\n🔴 3 skills changed, 1 blocked.\n")
    assert "| `skills/worse` | generic:student | ✖ |" in summary
    assert "worse on these 12 cases: " in summary
    assert "| `skills/better` | generic:student | ✅ |" in summary
    assert "loses no more than 20 points: " in summary
    assert "`skills/worse` no longer passes " in summary
    assert (
        "`skills/elsewhere` was previously `skills/moved`; nothing that students read has changed."
        in summary
    )
    command = rows["worse"]["command"]
    assert f"Check this skill again: `{command}`" in summary
    base = done.json["base"][:10]
    assert command == f"upskill ci skills/worse --base-ref {base} -m generic:student"
    (spent,) = (line for line in summary.splitlines() if line.startswith("Spent "))
    assert spent.startswith(f"Spent {asked:,} calls, ")
    unchanged = summary.replace(spent, "Spent nothing: no model was asked.")
    assert (library / "page.md").read_text() == summary + unchanged, (
        "the page of a run shows every step"
    )
    shown = " ".join(again.out.split())
    assert shown.startswith("✖ 3 skills changed, 1 blocked. ✖ `skills/worse`, generic:student: ")
    assert f"Check this skill again: {command}" in shown
    suite = ET.parse(library / "report" / "junit.xml").getroot()[0]
    assert [test.get("classname") for test in suite if test.find("failure") is not None] == [
        "skills/worse"
    ]
    assert len(list((library / "report").glob("*.html"))) == 5


def test_what_ci_says_of_a_run_is_what_show_says(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        done = upskill("ci", "skills/worse", "-m", "generic:student", "--json")
    row = done.json["skills"][0]
    with open_store("runs") as store:
        for answered in (row["against_base"], row["against_none"]):
            evaluation = evaluation_of(store, store.run(answered["run"]))
            shown = evaluation.verdicts[0].to_dict()
            assert {name: answered[name] for name in shown} == shown
            assert evaluation.run.purpose == "gate"
            assert shown["level"] == 0.99, "looked at after each round"


def test_a_fork_without_a_key_grades_recorded_answers_where_only_the_suite_changed(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(library, "checkout", "-q", "main")
    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        for name in ("untouched", "worse"):
            proven = upskill("eval", f"skills/{name}", "-m", "generic:student", "--receipt")
            assert proven.code == 0, proven.err
    git(library, "add", "-A")
    git(library, "commit", "-qm", "Prove two skills")
    git(library, "checkout", "-qb", "fork")
    write_skill(library / "skills" / "untouched", range(CASES), suite=CASES - 2)
    write_skill(library / "skills" / "worse", range(5))
    done = upskill("ci", "skills", "--base-ref", "main", "-m", "haiku", "--json")
    assert done.code == 1
    rows = {row["skill"]: row for row in done.json["skills"] if row["change"] == "changed"}
    row = rows["untouched"]
    assert row["against_none"], row["reason"]
    assert (row["mark"], row["against_none"]["cases"]) == ("pass", CASES - 2)
    assert row["reason"].startswith("recorded answers; generic:student was not asked; helps on ")
    assert done.json["spent"]["calls"] == 0
    assert rows["worse"]["mark"] == "block"
    assert "Run `upskill ci` with an API key." in rows["worse"]["reason"]


def test_the_steps_of_the_action_write_every_report(library: Path, package_registry: None) -> None:
    action = yaml.safe_load((EXAMPLES.parent / "action.yml").read_text(encoding="utf-8"))
    rules = [
        {"system": fact(number), "when": f"drawer {number}?", "answer": code(number)}
        for number in range(CASES)
    ]
    student = write_script(library / "model.json", [*rules, {"answer": "No."}])
    venv.create(library / "venv", with_pip=True)
    inputs = {name: str(given["default"]) for name, given in action["inputs"].items()}
    inputs |= {"skills": "skills", "student": student}
    environment = os.environ | {"PATH": f"{library / 'venv' / 'bin'}:{os.environ['PATH']}"}
    for step in action["runs"]["steps"]:
        if command := step.get("run"):
            given = {
                name: re.sub(
                    r"\${{ inputs.([\w-]+) }}", lambda match: inputs[match[1]], value
                ).replace("${{ github.action_path }}", str(EXAMPLES.parent))
                for name, value in step.get("env", {}).items()
            }
            command = command.replace("[local]", "")  # whose weights are for other tests
            ran = subprocess.run(
                ["bash", "-ec", command],
                capture_output=True,
                text=True,
                env=environment | given,
                check=False,
            )
            blocks = command.startswith("upskill ci")
            assert ran.returncode == blocks, (command, ran.stdout, ran.stderr)
    report = library / "upskill-report"
    summary = (report / "summary.md").read_text()
    assert "3 skills changed, 1 blocked." in summary
    rows = [line.split(" | ") for line in summary.splitlines() if line.startswith("| `skills/")]
    marks = {row[0]: row[2] for row in rows}
    assert marks == {
        "| `skills/worse`": "✖",
        "| `skills/better`": "✅",
        "| `skills/retested`": "✅",
    }
    for line in (
        "`skills/elsewhere` was previously `skills/moved`",
        "1 other",
    ):
        assert line in summary
    assert {"junit.xml", "summary.md"} < {path.name for path in report.iterdir()}


def test_ci_says_how_far_it_is(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSKILL_PROGRESS", "0.1")

    def slow(call: Call) -> str:
        time.sleep(0.1)
        return answer(call)

    with serving(slow) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        done = upskill("ci", "skills/retested", "-m", "generic:student", "--repeats", 1)
    assert re.search(r"… \d+ of 24 trials", done.err), done.err


def test_nothing_is_asked_where_nothing_has_changed(upskill: Upskill, library: Path) -> None:
    git(library, "checkout", "-q", "main")
    git(library, "commit", "-q", "--allow-empty", "-m", "Nothing")
    done = upskill("ci", "skills", "-m", "scripted:none")
    assert (done.code, done.out.splitlines()[0]) == (0, "")
    assert "✅ no skill changed." in done.out
    assert "5 skills unchanged since" in done.out
    assert "Comparing 1 skill with " in upskill("ci", "skills/untouched", "-m", "scripted:none").err


def test_a_skill_that_cannot_be_run_is_blocked_with_the_reason(
    upskill: Upskill, library: Path
) -> None:
    done = upskill("ci", "skills", "-m", "haiku", "--json")
    assert done.code == 1
    worse = next(row for row in done.json["skills"] if row["skill"] == "worse")
    assert (worse["mark"], worse["blocked"]) == ("block", True)
    assert "ANTHROPIC_API_KEY" in worse["reason"]


def test_a_model_that_only_errs_is_named_and_the_run_has_a_report(
    upskill: Upskill, library: Path
) -> None:
    model = write_script(library / "broken.json", [{"error": "the server is on fire"}])
    done = upskill("ci", "skills", "-m", model, "--repeats", 1, "-o", "report", "--json")
    worse = next(row for row in done.json["skills"] if row["skill"] == "worse")
    assert (done.code, worse["model"], worse["mark"]) == (1, model, "block")
    assert "missing" in worse["reason"]
    assert list((library / "report").glob("worse-*.html"))


def test_what_a_branch_did_not_commit_counts_too(library: Path) -> None:
    write_skill(library / "skills" / "fresh", range(3))
    manifest = library / "skills" / "untouched" / "SKILL.md"
    manifest.write_text(manifest.read_text() + "\nBe brief.\n")
    with changed_skills([library / "skills"], "main") as (_, changes):
        kinds = {change.name: change.kind for change in changes}
        assert (kinds["fresh"], kinds["untouched"]) == ("new", "changed")
        assert [change.name for change in changes if not change.in_git] == ["fresh"]


def test_no_commit_to_compare_with_is_a_message(upskill: Upskill, home: Path) -> None:
    write_skill(home / "skills" / "one", range(3))
    outside = upskill("ci", "skills", "-m", "scripted:none")
    assert outside.code == 2
    assert "not a git repository" in outside.err
    git(home, "init", "-q", "-b", "main")
    git(home, "add", "-A")
    git(home, "commit", "-qm", "First")
    unknown = upskill("ci", "skills", "--base-ref", "nowhere", "-m", "scripted:none")
    assert "nowhere: shares no commit with this branch" in unknown.err


@pytest.mark.parametrize("branch", ["main", "feature"])
def test_edits_on_top_of_the_main_branch_are_compared_with_its_tip(
    library: Path, branch: str
) -> None:
    git(library, "checkout", "-qB", branch, "main")
    write_skill(library / "skills" / "merged", range(3))
    git(library, "add", "-A")
    git(library, "commit", "-qm", "Another change")
    if branch != "main":
        git(library, "branch", "-f", "main")
    (library / "notes.txt").write_text("No skill")
    with changed_skills([library / "skills"]) as (_, changes):
        assert [change.name for change in changes if change.kind != "unchanged"] == ["merged"]
    write_skill(library / "skills" / "untouched", range(3))
    with changed_skills([library / "skills"]) as (commit, changes):
        assert [change.name for change in changes if change.kind != "unchanged"] == ["untouched"]
        assert commit == (library / ".git/refs/heads" / branch).read_text().strip()


def test_the_only_commit_is_compared_with_what_is_edited_since(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "skills" / "one", range(3))
    git(home, "init", "-q", "-b", "main")
    git(home, "add", "-A")
    git(home, "commit", "-qm", "First")
    same = upskill("ci", "skills", "-m", "scripted:none")
    assert (same.code, "no skill changed" in same.out) == (0, True)
    git(home, "rm", "-rq", "skills/one")
    (home / "skills").mkdir(exist_ok=True)
    gone = upskill("ci", "skills", "-m", "scripted:none")
    assert (gone.code, "`skills/one` was deleted" in gone.out) == (0, True)


def test_a_shallow_clone_says_that_the_commit_before_is_missing(
    upskill: Upskill, library: Path
) -> None:
    git(library, "clone", "-q", "--depth", "1", f"file://{library}", "shallow")
    done = upskill("ci", "shallow/skills", "-m", "scripted:none")
    assert done.code == 2
    assert "the commit before this one is not in this clone" in done.err


def test_a_branch_cannot_bring_its_own_proof(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(library / "skills" / "untouched", range(3))
    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        assert upskill("eval", "skills/untouched", "-m", "generic:student", "--receipt").code == 0
    done = upskill("ci", "skills", "--base-ref", "main", "-m", "haiku", "--json")
    row = next(row for row in done.json["skills"] if row["skill"] == "untouched")
    assert (row["mark"], row["blocked"]) == ("block", True)


@pytest.mark.parametrize("was", ["", "student: scripted:honest.json\n"])
def test_a_branch_cannot_choose_its_student(upskill: Upskill, library: Path, was: str) -> None:
    settings = library / "upskill.config.yaml"
    honest = write_script(library / "honest.json", [{"answer": "No idea"}])
    git(library, "checkout", "-q", "main")
    if was:
        settings.write_text(was)
    git(library, "add", "-A")
    git(library, "commit", "-qm", "A student")
    git(library, "checkout", "-qb", "other")
    write_skill(library / "skills" / "untouched", range(3))
    write_script(library / "evil.json", [{"answer": " ".join(map(code, range(CASES)))}])
    settings.write_text("student: scripted:evil.json\n")
    git(library, "add", "-A")
    command = ("ci", "skills/untouched", "--base-ref", "main", *(() if was else ("-m", honest)))
    done = upskill(*command, "--json")
    changed = f"This branch changes `upskill.config.yaml`; upskill used the settings from `{done.json['base'][:10]}`."
    assert done.json["notes"] == [changed]
    assert [row["model"] for row in done.json["skills"]] == [honest]
    assert changed in upskill(*command).out


def test_settings_that_are_not_in_git_are_not_those_of_a_branch(
    upskill: Upskill, library: Path
) -> None:
    student = write_script(library / "student.json", [{"answer": "No idea"}])
    (library / "upskill.config.yaml").write_text(f"student: {student}\n")
    done = upskill("ci", "skills/worse", "--base-ref", "main", "--json")
    assert (done.json["notes"], done.json["skills"][0]["model"]) == ([], student)


def test_a_branch_cannot_choose_the_server_that_answers(upskill: Upskill, library: Path) -> None:
    (library / ".env").write_text("GENERIC_BASE_URL=http://127.0.0.1:9/v1\n")
    git(library, "add", "-Af")
    done = upskill("ci", "skills", "--base-ref", "main", "-m", "generic:student")
    assert done.code == 2
    assert ".env: this branch changes it, so the branch could redirect the model calls" in done.err


@pytest.mark.parametrize("how", ["folder", "link"])
def test_a_branch_cannot_bring_a_store(upskill: Upskill, library: Path, how: str) -> None:
    (library / "brought").mkdir()
    (library / "brought" / "upskill.db").write_bytes(b"")
    if how == "folder":
        (library / "brought").rename(library / "runs")
    else:
        (library / "runs").symlink_to("brought")
    git(library, "add", "-Af")
    done = upskill("ci", "skills", "--base-ref", "main", "-m", "scripted:none")
    assert done.code == 2
    assert "runs: this store is in git, so a branch can add its own answers" in done.err
    assert (
        upskill(
            "ci", "skills", "--base-ref", "main", "-m", "scripted:none", "--store", "elsewhere"
        ).code
        == 1
    )


def _kinds(library: Path, *folders: str) -> dict[str, tuple[str, str]]:
    """By path: what happened to each skill since the main branch, and where it was."""
    with changed_skills([library / folder for folder in folders or ("skills",)], "main") as (
        _,
        changes,
    ):
        return {change.path: (change.kind, change.base_path) for change in changes}


def test_an_installed_copy_of_a_skill_is_not_checked_again(upskill: Upskill, library: Path) -> None:
    assert upskill("install", library / "skills" / "worse", "--to", "claude-code").code == 0
    git(library, "add", "-Af", ".")
    copy = ".claude/skills/worse"
    assert copy not in _kinds(library, ".")
    (library / copy / "SKILL.md").write_text(
        (library / copy / "SKILL.md").read_text() + "\nOne more line.\n"
    )
    assert _kinds(library, ".")[copy] == ("new", "")


def _rename_and_rewrite(library: Path, name: str, cases: int = CASES) -> None:
    """Another folder and another text, as an edit that would pass for a new skill."""
    git(library, "rm", "-rqf", "skills/untouched")
    write_skill(library / "skills" / "other", range(5), cases)
    manifest = library / "skills" / "other" / "SKILL.md"
    text = f"---\nname: {name}\ndescription: All is new.\n---\n\nNothing here reads like before.\n"
    manifest.write_text(text)


def test_a_renamed_and_rewritten_skill_is_known_by_its_name(library: Path) -> None:
    _rename_and_rewrite(library, "untouched", cases=1)
    assert _kinds(library)["skills/other"] == ("changed", "skills/untouched")


def test_a_renamed_and_rewritten_skill_is_known_by_its_cases(library: Path) -> None:
    _rename_and_rewrite(library, "other")
    assert _kinds(library)["skills/other"] == ("changed", "skills/untouched")


def test_an_unrelated_skill_is_new_beside_one_that_was_deleted(library: Path) -> None:
    git(library, "rm", "-rqf", "skills/untouched")
    folder = library / "skills" / "cups"
    (folder / "evals").mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: cups\ndescription: Tea.\n---\n\nPour gently, then wait four minutes.\n"
    )
    (folder / "evals" / "suite.yaml").write_text(
        "- {prompt: How long do we wait?, checks: [{contains: four}]}\n"
    )
    kinds = _kinds(library)
    assert (kinds["skills/cups"], kinds["skills/untouched"]) == (
        ("new", ""),
        ("deleted", "skills/untouched"),
    )


def test_a_deleted_skill_is_named_and_one_without_its_manifest_is_blocked(
    upskill: Upskill, library: Path
) -> None:
    git(library, "checkout", "-q", "main")
    git(library, "rm", "-rqf", "skills/worse", "skills/better/SKILL.md")
    done = upskill("ci", "skills", "--base-ref", "main", "-m", "scripted:none")
    assert done.code == 1
    assert "✖ 2 skills changed, 1 blocked." in done.out
    assert "`skills/worse` was deleted, with its suite." in done.out
    assert "✖ `skills/better`: the SKILL.md was removed, but other files of the skill" in done.out


def test_a_broken_suite_or_skill_of_the_base_can_be_repaired(library: Path) -> None:
    git(library, "checkout", "-q", "main")
    folder = library / "skills" / "untouched"
    whole = (folder / "SKILL.md").read_text()
    (folder / "SKILL.md").write_text("no frontmatter")
    git(library, "commit", "-qam", "Break it")
    (folder / "SKILL.md").write_text(whole)
    assert _kinds(library)["skills/untouched"] == ("new", "")


def test_a_broken_base_suite_does_not_stop_the_check_of_the_branch(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(library, "checkout", "-q", "main")
    (library / "skills" / "untouched" / "evals" / "suite.yaml").write_text("cases: 7")
    git(library, "commit", "-qam", "Break a suite")
    write_skill(library / "skills" / "untouched", range(CASES))
    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        done = upskill("ci", "skills", "--base-ref", "HEAD", "-m", "generic:student", "--json")
    row = next(row for row in done.json["skills"] if row["skill"] == "untouched")
    assert (done.code, row["change"], row["mark"]) == (0, "changed", "pass"), done.err


@pytest.mark.parametrize("edit", ["mode", "tools", "hidden by an attribute", "meta"])
def test_what_students_or_checks_get_is_compared_whole(library: Path, edit: str) -> None:
    git(library, "checkout", "-q", "main")
    folder = library / "skills" / "untouched"
    for path in ("scripts/run.sh", "skill_meta.json"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("{}")
    (library / ".gitattributes").write_text(
        "scripts export-ignore\nskills/untouched/scripts/* export-ignore\n"
    )
    git(library, "add", "-A")
    git(library, "commit", "-qm", "Add scripts")
    assert _kinds(library)["skills/untouched"][0] == "unchanged"
    if edit == "mode":
        (folder / "scripts/run.sh").chmod(0o755)
    elif edit == "tools":
        manifest = folder / "SKILL.md"
        manifest.write_text(
            manifest.read_text().replace("\n---\n\n", "\nallowed-tools: Bash(*)\n---\n\n", 1)
        )
    elif edit == "meta":
        (folder / "skill_meta.json").write_text('{"tests": []}')
    else:
        (folder / "scripts/run.sh").write_text("echo other")
    assert _kinds(library)["skills/untouched"][0] == "changed"


def test_links_to_skills_are_followed_and_compared(library: Path) -> None:
    git(library, "checkout", "-q", "main")
    (library / ".claude").mkdir()
    for name in ("one", "two"):
        (library / ".claude" / name).symlink_to("../skills/untouched")
    git(library, "add", "-A")
    git(library, "commit", "-qm", "Install two skills")
    assert _kinds(library, ".claude") == {".claude/one": ("unchanged", ".claude/one")}
    manifest = library / "skills/untouched/SKILL.md"
    manifest.write_text(manifest.read_text() + "\nMore.\n")
    (library / ".claude/two").unlink()
    (library / ".claude/two").symlink_to("../skills/better")
    kinds = _kinds(library, ".")
    assert (kinds["skills/untouched"][0], kinds[".claude/two"][0]) == ("changed", "changed")
    assert ".claude/one" not in kinds, "it still leads to a skill that is there itself"


def test_a_skill_in_a_submodule_is_compared_with_the_commit_that_the_base_had(
    library: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    write_skill(theirs, range(CASES))
    git(theirs, "init", "-q", "-b", "main")
    git(theirs, "add", "-A")
    git(theirs, "commit", "-qm", "First")
    git(library, "checkout", "-q", "main")
    git(
        library,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        theirs.as_uri(),
        "skills/theirs",
    )
    git(library, "commit", "-qm", "A submodule")
    git(library, "checkout", "-qb", "bump")
    write_skill(library / "skills/theirs", range(3))
    git(library / "skills/theirs", "commit", "-qam", "Second")
    git(library, "commit", "-qam", "Bump it")
    assert _kinds(library)["skills/theirs"] == ("changed", "skills/theirs")
    git(library / "skills/theirs", "push", "-q", "origin", "HEAD:second")
    shutil.rmtree(library / "skills/theirs")
    git(
        library,
        "clone",
        "-q",
        "--depth",
        "1",
        "--branch",
        "second",
        theirs.as_uri(),
        "skills/theirs",
    )
    with changed_skills([library / "skills"], "main") as (_, changes):
        problems = {change.name: change.problem for change in changes if change.problem}
    assert "not compared: the submodule's earlier commit was not fetched" in problems.pop("theirs")
    assert problems == {}


def test_what_git_ignores_is_no_part_of_a_branch(library: Path) -> None:
    (library / ".gitignore").write_text("*.log\n/skills/venv/\n")
    (library / "skills/untouched/last.log").write_text("noise")
    write_skill(library / "skills/venv/lib/fresh", range(3))
    kinds = _kinds(library)
    assert kinds["skills/untouched"][0] == "unchanged"
    assert not any("venv" in path for path in kinds)


def test_a_suite_reads_no_file_outside_of_its_skill(upskill: Upskill, library: Path) -> None:
    (library / "skills/check.py").write_text("raise SystemExit(0)")
    suite = library / "skills/untouched/evals/suite.yaml"
    suite.write_text("- {prompt: Write a.py, checks: [{python: {file: ../check.py}}]}\n")
    done = upskill("ci", "skills", "-m", "scripted:none", "--base-ref", "main", "--json")
    row = next(row for row in done.json["skills"] if row["skill"] == "untouched")
    assert (row["mark"], row["blocked"]) == ("block", True)


def greedy(call: Call) -> str:
    """A server that answers from a cache, as the probe finds out."""
    numbers = re.findall(r"\d+", call.prompt)
    if not numbers:
        return "It was a quiet afternoon in the library, and the clerk had put all keys away. " * 2
    number = int(numbers[-1])
    knows = fact(number) in call.system
    return f"The code of drawer {number} is {code(number) if knows else 'not known to me'}."


def _row(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch, student: Callable[[Call], str]
) -> Any:
    with serving(student) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        done = upskill(
            "ci", "skills/untouched", "--base-ref", "main", "-m", "generic:student", "--json"
        )
    assert done.json["skills"], done.err
    return done.json["skills"][0]


@pytest.mark.parametrize(
    ("facts", "mark", "code", "strict_code"),
    [(CASES - 4, "block", 1, 1), (CASES - 1, "warn", 0, 1), (CASES, "pass", 0, 0)],
)
def test_what_an_exact_student_was_seen_to_lose_is_the_fact(
    upskill: Upskill,
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
    facts: int,
    mark: str,
    code: int,
    strict_code: int,
) -> None:
    write_skill(library / "skills/untouched", range(facts))
    manifest = library / "skills/untouched/SKILL.md"
    manifest.write_text(manifest.read_text() + "\nBe brief.\n")
    command = ("ci", "skills/untouched", "--base-ref", "main", "-m", "generic:student")
    with serving(greedy) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        done = upskill(*command)
        strict = upskill(*command, "--strict", "--json")
    row = strict.json["skills"][0]
    assert (row["mark"], done.code, strict.code) == (mark, code, strict_code)
    edit = row["against_base"]
    assert (edit["exact"], edit["pairs"], edit["level"]) == (True, CASES, 0.95)
    assert edit["lost"] == sorted(f"drawer-{number}" for number in range(facts, CASES))
    assert f"{counted(CASES - facts, 'case')} lost, 0 gained of {CASES}" in row["reason"]
    assert ("no longer passes `drawer-" in done.out) is (mark != "pass")
    assert ("✅" in done.out) is (mark == "pass")


@pytest.mark.parametrize(("facts", "mark"), [(0, "warn"), (1, "open"), (CASES, "pass")])
def test_one_round_of_an_exact_student_says_whether_a_new_skill_helps(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch, facts: int, mark: str
) -> None:
    git(library, "rm", "-rqf", "skills/untouched")
    git(library, "commit", "-qm", "Without it")
    git(library, "branch", "-f", "main")
    write_skill(library / "skills/untouched", range(facts))
    row = _row(upskill, library, monkeypatch, greedy)
    assert (row["change"], row["mark"], row["against_base"]) == ("new", mark, None)
    assert row["against_none"]["pairs"] == CASES
    assert ("tokens a trial" in row["reason"]) is (mark == "warn"), "the bill of what has no effect"


@pytest.mark.parametrize("text", ["the same text", "another text"])
def test_a_skill_with_the_same_cases_does_not_block_another_one(
    upskill: Upskill, library: Path, text: str
) -> None:
    suite = (library / "skills/untouched/evals/suite.yaml").read_text()
    student = [
        {
            "when": case["prompt"],
            "system": case["checks"][0]["contains"],
            "answer": case["checks"][0]["contains"],
        }
        for case in json.loads(suite)["cases"]
    ]
    (library / "student.yaml").write_text(
        yaml.safe_dump([*student, {"match": ".*", "answer": "No idea."}])
    )
    git(library, "checkout", "-q", "main")
    twin = library / "skills/twin"
    shutil.copytree(library / "skills/untouched", twin)
    lines = "\n".join(f"{number}: {code(number)}" for number in range(CASES))
    body = (twin / "SKILL.md").read_text().replace("untouched", "twin", 1)
    body = (
        body
        if text == "the same text"
        else f"---\nname: twin\ndescription: Codes.\n---\n\n{lines}\n"
    )
    (twin / "SKILL.md").write_text(body)
    git(library, "add", "-A")
    git(library, "commit", "-qm", "A twin")
    command = ("ci", "skills", "--base-ref", "main", "-m", "scripted:student.yaml", "--strict")
    twin_half = "\n".join(body.splitlines()[:-6])
    (twin / "SKILL.md").write_text(twin_half)
    assert upskill(*command).code == 1
    git(library, "checkout", "-q", "skills/twin")
    manifest = library / "skills/untouched/SKILL.md"
    manifest.write_text(manifest.read_text().replace("# Drawers", "# The drawers"))
    done = upskill(*command)
    assert done.code == 0, done.out
    assert "0 cases lost, 0 gained of 12" in done.out


@pytest.mark.parametrize("how", ["removed", "weakened"])
def test_a_branch_cannot_edit_away_the_cases_that_it_fails(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    write_skill(library / "skills/untouched", range(6), suite=6)
    if how == "weakened":
        write_skill(library / "skills/untouched", range(6))
        suite = library / "skills/untouched/evals/suite.yaml"
        cases = json.loads(suite.read_text())
        for case in cases["cases"][6:]:
            case["checks"] = [{"contains": "drawer"}]
        suite.write_text(json.dumps(cases))
    row = _row(upskill, library, monkeypatch, greedy)
    assert row["mark"] == "block"
    assert "removes or changes 6 cases in its suite, which count in before → now" in row["reason"]


def test_new_cases_cannot_outweigh_those_that_an_edit_loses(
    upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(library / "skills/untouched", range(6, 3 * CASES), suite=3 * CASES)
    row = _row(upskill, library, monkeypatch, greedy)
    assert (row["mark"], row["against_base"]["lift"]) == ("block", -0.5)
    assert row["against_none"]["cases"] == 3 * CASES, "new cases count for whether it helps"


def test_a_skill_that_another_one_swallows_is_blocked(library: Path) -> None:
    git(library, "checkout", "-q", "main")
    (library / "skills" / "SKILL.md").write_text(
        "---\nname: skills\ndescription: Everything.\n---\n\nAsk nicely.\n"
    )
    with changed_skills([library / "skills"], "main") as (_, changes):
        problems = {change.path: change.problem for change in changes if change.problem}
    assert set(problems) == {
        f"skills/{name}" for name in ("worse", "better", "moved", "retested", "untouched")
    }


# How often the student passes a case of each skill, without and with it.
TRUTH = {"helpful": (0.0, 1.0), "learned": (1.0, 1.0), "harmful": (1.0, 0.2), "noisy": (0.4, 0.6)}


def drawers(call: Call) -> str:
    """A student that knows some skills' drawers by itself."""
    chance = random.Random(f"{call.seed} {call.prompt} {len(call.system)}")
    names = re.findall(r"Open (\w+)", call.prompt)
    if not names:  # the probe
        return f"Prose number {call.seed}."
    return "yes" if chance.random() < TRUTH[names[-1]]["manual" in call.system] else "no"


def test_every_skill_of_a_library_is_kept_retired_repaired_or_left_open(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*TRUTH, "untested"):
        evals = home / "skills" / name / "evals"
        evals.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: Drawers.\n---\n\nThe manual of {name} drawers.\n"
        (evals.parent / "SKILL.md").write_text(text)
        if name != "untested":
            checks = [{"contains": "yes"}]
            cases = [
                {"prompt": f"Open {name} drawer {number}", "checks": checks}
                for number in range(CASES)
            ]
            (evals / "suite.yaml").write_text(json.dumps({"cases": cases}))
    command = ("ci", "--all", "skills", "-m", "generic:student")
    with serving(drawers) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        done = upskill(*command, "--json", "-o", "report")
        asked = len(server.requests)
        again = upskill(*command)
        assert len(server.requests) == asked, "what is stored is not asked again"
    rows = {row["skill"]: row for row in done.json["skills"]}
    assert {name: row["advice"] for name, row in rows.items()} == {
        "helpful": "keep",
        "learned": "retire?",
        "harmful": "repair",
        "noisy": "undecided",
    }
    assert (done.code, again.code, done.json["base"]) == (1, 1, None)
    assert rows["helpful"]["against_none"]["pairs"] < rows["noisy"]["against_none"]["pairs"]
    assert "tokens a trial" in rows["learned"]["reason"]
    assert rows["harmful"]["command"] == "upskill ci skills/harmful --all -m generic:student"
    assert "Of 50 useless skills, about one would be called helpful by chance." in again.out
    assert "because they have no test cases: `untested`" in again.out
    assert re.search(r"skills/learned +generic:student +⚠ retire\?", again.out)
    assert "`skills/harmful` no longer passes " in again.out


def test_a_library_has_no_base_to_compare_with(upskill: Upskill, home: Path) -> None:
    assert "--base-ref" in upskill("ci", "--all", "--base-ref", "main").err
    assert "there is no skill here" in upskill("ci", "--all", "-m", "scripted:none").err
    assert "`upskill ci --all -m MODEL`" in upskill("recheck", "-m", "haiku").err
