"""`upskill ci`: the skills that a branch changed, as they are, as they were, and without them."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import venv
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from conftest import Upskill, serving, write_script
from loopback import Call
from upskill.skills.changes import changed_skills

CASES = 12
EXAMPLES = Path(__file__).parent.parent / "examples"


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def write_skill(folder: Path, facts: range, suite: int = CASES) -> None:
    (folder / "evals").mkdir(parents=True, exist_ok=True)
    lines = "\n".join(f"- The code of {folder.name} drawer {number} is {code(number)}." for number in facts)
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


def answer(call: Call) -> str:
    """Knows what its prompt says, nine times in ten; no two draws are worded alike."""
    chance = random.Random(f"{call.seed} {call.prompt} {len(call.system)}")
    number = int(re.findall(r"\d+", call.prompt)[-1])
    line = f"drawer {number} is {code(number)}."
    knows = line in call.system and chance.random() < 0.9
    return f"{code(number) if knows else 'No idea'} ({chance.random()})"


@pytest.fixture
def library(home: Path) -> Path:
    """Five skills, and a branch on which each has a fate of its own."""
    git(home, "init", "-q", "-b", "main")
    skills = home / "skills"
    for name in ("worse", "better", "moved", "retested", "untouched"):
        write_skill(skills / name, range(6) if name == "better" else range(CASES))
    git(home, "add", "-A")
    git(home, "commit", "-qm", "Five skills")
    git(home, "checkout", "-qb", "edit")
    write_skill(skills / "worse", range(5))
    write_skill(skills / "better", range(CASES))
    git(home, "mv", "skills/moved", "skills/elsewhere")
    manifest = skills / "elsewhere" / "SKILL.md"
    manifest.write_text(manifest.read_text().replace("name: moved", "name: elsewhere"))
    write_skill(skills / "retested", range(CASES), suite=CASES - 2)
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
    assert {name: (row["change"], row["status"], row["blocked"]) for name, row in rows.items()} == {
        "worse": ("changed", "worse", True),
        "better": ("changed", "ok", False),
        "elsewhere": ("renamed", "ok", False),
        "retested": ("changed", "ok", False),
        "untouched": ("unchanged", "ok", False),
    }
    assert rows["elsewhere"]["was"] == "skills/moved"
    assert rows["worse"]["against_base"]["decision"] == "hurts"
    assert rows["better"]["against_base"]["lift"] > 0.2
    assert rows["retested"]["against_base"] is None, "only its suite has changed"
    assert rows["worse"]["against_none"]["decision"] == "helps"
    summary = (library / "report" / "summary.md").read_text()
    assert summary.startswith("### upskill: 3 skills changed, 1 blocked\n")
    assert "| ❌ | `skills/worse` | generic:student |" in summary
    assert "`worse` passes less often than with the previous skill on: " in summary
    assert "`skills/elsewhere` renamed from skills/moved; nothing that students read has changed." in summary
    assert again.out == summary
    assert (library / "page.md").read_text() == 2 * summary, "the page of a run shows every step"
    suite = ET.parse(library / "report" / "junit.xml").getroot()[0]
    assert [test.get("classname") for test in suite if test.find("failure") is not None] == ["skills/worse"]
    assert len(list((library / "report").glob("*.html"))) == 5


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
    assert (rows["untouched"]["status"], rows["untouched"]["against_none"]["pairs"]) == ("ok", CASES - 2)
    assert rows["untouched"]["against_none"]["replayed"]
    assert rows["worse"]["status"] == "not run"
    assert "Run `upskill ci` with an API key." in rows["worse"]["reason"]


def test_the_steps_of_the_action_write_every_report(library: Path, package_registry: None) -> None:
    action = yaml.safe_load((EXAMPLES.parent / "action.yml").read_text(encoding="utf-8"))
    rules = [{"when": f"drawer {number}?", "answer": code(number)} for number in range(CASES)]
    student = write_script(
        library / "model.json", [{"system": "Drawers", **rule} for rule in rules] + [{"answer": "No."}]
    )
    venv.create(library / "venv", with_pip=True)
    inputs = {name: str(given["default"]) for name, given in action["inputs"].items()}
    inputs |= {"skills": "skills", "student": student}
    environment = os.environ | {"PATH": f"{library / 'venv' / 'bin'}:{os.environ['PATH']}"}
    for step in action["runs"]["steps"]:
        if command := step.get("run"):
            given = {
                name: re.sub(r"\${{ inputs.([\w-]+) }}", lambda match: inputs[match[1]], value).replace(
                    "${{ github.action_path }}", str(EXAMPLES.parent)
                )
                for name, value in step.get("env", {}).items()
            }
            command = command.replace("[local]", "")  # whose weights are for other tests
            ran = subprocess.run(
                ["bash", "-ec", command], capture_output=True, text=True, env=environment | given, check=False
            )
            assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
    report = library / "upskill-report"
    assert (report / "summary.md").read_text().startswith("### upskill: 3 skills changed, none blocked")
    sarif = json.loads((report / "validate.sarif").read_text())
    assert sarif["runs"][0]["tool"]["driver"]["name"] == "upskill"
    assert {"junit.xml", "summary.md", "validate.sarif"} < {path.name for path in report.iterdir()}


def test_nothing_is_asked_where_nothing_has_changed(upskill: Upskill, library: Path) -> None:
    git(library, "checkout", "-q", "main")
    git(library, "commit", "-q", "--allow-empty", "-m", "Nothing")
    done = upskill("ci", "skills", "-m", "scripted:none")
    assert (done.code, done.out.splitlines()[0]) == (0, "### upskill: no skill changed")
    assert "5 other skills unchanged since" in done.out


def test_a_skill_that_cannot_be_run_is_blocked_with_the_reason(upskill: Upskill, library: Path) -> None:
    done = upskill("ci", "skills", "-m", "haiku", "--json")
    assert done.code == 1
    worse = next(row for row in done.json["skills"] if row["skill"] == "worse")
    assert (worse["status"], worse["blocked"]) == ("not run", True)
    assert "ANTHROPIC_API_KEY" in worse["reason"]


def test_a_model_that_only_errs_is_named_and_the_run_has_a_report(upskill: Upskill, library: Path) -> None:
    model = write_script(library / "broken.json", [{"error": "the server is on fire"}])
    done = upskill("ci", "skills", "-m", model, "--repeats", 1, "-o", "report", "--json")
    worse = next(row for row in done.json["skills"] if row["skill"] == "worse")
    assert (done.code, worse["model"], worse["status"]) == (1, model, "not run")
    assert list((library / "report").glob("worse-*.html"))


def test_what_a_branch_did_not_commit_counts_too(library: Path) -> None:
    write_skill(library / "skills" / "fresh", range(3))
    manifest = library / "skills" / "untouched" / "SKILL.md"
    manifest.write_text(manifest.read_text() + "\nBe brief.\n")
    with changed_skills([library / "skills"], "main") as (_, changes):
        kinds = {change.head.name: change.kind for change in changes}
        assert (kinds["fresh"], kinds["untouched"]) == ("new", "changed")


def test_no_commit_to_compare_with_is_a_message(upskill: Upskill, home: Path) -> None:
    write_skill(home / "skills" / "one", range(3))
    outside = upskill("ci", "skills", "-m", "scripted:none")
    assert outside.code == 2
    assert "not a git repository" in outside.err
    git(home, "init", "-q", "-b", "main")
    git(home, "add", "-A")
    git(home, "commit", "-qm", "First")
    first = upskill("ci", "skills", "-m", "scripted:none")
    assert first.code == 2
    assert "there is no earlier commit to compare with" in first.err
    unknown = upskill("ci", "skills", "--base-ref", "nowhere", "-m", "scripted:none")
    assert "nowhere: is no commit that this branch has in common" in unknown.err


def test_a_branch_cannot_bring_its_own_proof(upskill: Upskill, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_skill(library / "skills" / "untouched", range(3))
    with serving(answer) as server:
        monkeypatch.setenv("GENERIC_BASE_URL", server.url)
        assert upskill("eval", "skills/untouched", "-m", "generic:student", "--receipt").code == 0
    done = upskill("ci", "skills", "--base-ref", "main", "-m", "haiku", "--json")
    row = next(row for row in done.json["skills"] if row["skill"] == "untouched")
    assert (row["status"], row["blocked"]) == ("not run", True)
