"""`upskill init` writes a skill whose tests run and hold up, and overwrites nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import venv
from pathlib import Path

import pytest
import skills_ref
import yaml

from conftest import REPOSITORY, Upskill, write_script, write_skill
from upskill import Skill, Suite
from upskill.skills.starter import workflow_file
from upskill.suites.queries import Queries

WORKFLOW = Path(".github/workflows/upskill.yaml")


def test_the_new_skill_is_valid_and_no_answer_that_knows_nothing_passes_its_tests(
    home: Path, upskill: Upskill
) -> None:
    done = upskill("init", "deploy-shop", "--ci", "--yes")
    assert done.code == 0
    assert done.out.splitlines()[:2] == [
        "wrote deploy-shop/",
        "wrote .github/workflows/upskill.yaml",
    ]
    assert "upskill eval ./deploy-shop" in done.out
    checked = upskill("validate", "./deploy-shop", "--strict-suite")
    assert (checked.code, checked.out) == (0, "./deploy-shop: valid\n")
    skill = Skill.load("deploy-shop")
    suite, queries = Suite.of(skill), Queries.of(skill)
    assert suite is not None
    assert queries is not None
    assert (len(suite.cases), len(queries.all)) == (12, 8)


def test_the_reference_validator_takes_it(home: Path, upskill: Upskill) -> None:
    upskill("init", "shop")
    assert skills_ref.validate(Path("shop")) == []


def test_everything_goes_into_the_folder_that_was_named_and_nothing_is_overwritten(
    home: Path, upskill: Upskill
) -> None:
    assert upskill("init", "shop").code == 0
    assert [path.name for path in home.iterdir()] == ["shop"]
    Path("shop/SKILL.md").write_text("mine", encoding="utf-8")
    again = upskill("init", "shop")
    assert (again.code, "already exists" in again.err) == (2, True)
    assert Path("shop/SKILL.md").read_text(encoding="utf-8") == "mine"
    WORKFLOW.parent.mkdir(parents=True)
    WORKFLOW.write_text("mine", encoding="utf-8")
    other = upskill("init", "other", "--ci")
    assert f"kept {WORKFLOW}" in other.out
    assert f"{WORKFLOW} does not test other" in other.err
    assert WORKFLOW.read_text(encoding="utf-8") == "mine"


def test_the_steps_of_the_workflow_prove_the_skill_in_a_fresh_environment(
    home: Path, upskill: Upskill, package_registry: None
) -> None:
    done = upskill("init", "deploy-shop", "--ci", "--yes")
    text = WORKFLOW.read_text(encoding="utf-8")
    assert ("TODO" in text) is ("fill in where CI can get it" in done.err) is ("file://" in text)
    rules = [
        {"system": "Releasing with kiln", "when": case.prompt, "answer": case.reference}
        for case in Suite.load("deploy-shop/evals/suite.yaml").cases
    ]
    student = write_script(home / "model.json", [*rules, {"answer": "I do not know."}])
    Path("upskill.config.yaml").write_text(f"student: {student}\n", encoding="utf-8")
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for line in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "Start"],
        ["add", "deploy-shop"],
    ):
        subprocess.run(["git", *who, *line], check=True)
    subprocess.run(["git", *who, "commit", "-qm", "Add a skill"], check=True)
    venv.create(home / "venv", with_pip=True)
    summary = home / "step-summary.md"
    path = f"{home / 'venv' / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "GITHUB_STEP_SUMMARY": str(summary)}
    for step in yaml.safe_load(text)["jobs"]["eval"]["steps"]:
        if command := step.get("run"):
            ran = subprocess.run(
                ["bash", "-ec", command],
                capture_output=True,
                text=True,
                env=environment,
                check=False,
            )
            assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
    assert "1 skill changed, none blocked" in summary.read_text(encoding="utf-8")


def test_a_second_skill_is_added_to_what_the_workflow_tests(home: Path, upskill: Upskill) -> None:
    before = Skill.load(write_skill(home / "beta"))
    for name in ("alpha", "beta", "skills/gamma"):
        assert upskill("init", name, "--ci", "--yes").code == 0
    assert Skill.load("beta") == before
    text = WORKFLOW.read_text(encoding="utf-8")
    assert yaml.safe_load(text)[True]["pull_request"]["paths"] == [
        "alpha/**",
        "beta/**",
        "skills/gamma/**",
    ]
    assert "run: upskill validate alpha beta skills/gamma\n" in text
    assert "run: upskill ci alpha beta skills/gamma --yes --output upskill-report\n" in text
    WORKFLOW.write_text(text.replace("skills/gamma", "skills"), encoding="utf-8")
    assert f"kept {WORKFLOW}" in (done := upskill("init", "skills/delta", "--ci", "--yes")).out
    assert "does not test" not in done.err


def test_the_workflow_goes_to_the_top_of_the_repository(
    home: Path, upskill: Upskill, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    (home / "skills").mkdir()
    monkeypatch.chdir(home / "skills")
    assert f"wrote ../{WORKFLOW}" in upskill("init", "alpha", "--ci", "--yes").out
    assert not Path(".github").exists()
    text = (home / WORKFLOW).read_text(encoding="utf-8")
    assert 'paths: ["skills/alpha/**"]' in text
    assert "run: upskill ci skills/alpha --yes" in text
    assert f"added skills/beta to ../{WORKFLOW}" in upskill("init", "beta", "--ci", "--yes").out


@pytest.mark.parametrize("folder", ["a$(touch x)", "a${{ github.token }}", "a b", "a\nb"])
def test_a_workflow_names_no_folder_that_could_be_code(
    home: Path, upskill: Upskill, folder: str
) -> None:
    done = upskill("init", f"{folder}/alpha", "--ci", "--yes")
    assert (done.code, list(home.iterdir())) == (2, [])
    assert "a workflow cannot safely name this folder" in done.err


def test_the_documentation_shows_the_whole_workflow(home: Path) -> None:
    page = (REPOSITORY / "docs/how-to/ci.md").read_text(encoding="utf-8")
    shown, *_ = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    shown, written = (
        [line for line in text.splitlines() if "pip install" not in line]
        for text in (shown, workflow_file("my-skill"))
    )
    assert shown == [line for line in written if "TODO" not in line]


@pytest.mark.parametrize("name", ["Shop", "a--b", "a b", "x" * 65])
def test_a_name_that_no_skill_can_have_is_refused_before_anything_is_written(
    name: str, home: Path, upskill: Upskill
) -> None:
    before = sorted(Path().iterdir())
    done = upskill("init", name)
    assert (done.code, done.out) == (2, "")
    assert "lowercase letters" in done.err
    assert sorted(Path().iterdir()) == before


def test_a_description_of_ones_own_is_kept_whatever_it_holds(home: Path, upskill: Upskill) -> None:
    said = "Ships: the 'shop' # of ours. Use when {anything} costs $5 or 100%."
    assert upskill("init", "shop", "--description", said).code == 0
    assert Skill.load("shop").description == said
    assert json.loads(Path("shop/evals/eval_queries.json").read_text(encoding="utf-8"))


def test_queries_of_the_example_are_named_once_the_skill_is_about_something_else(
    home: Path, upskill: Upskill
) -> None:
    assert upskill("init", "shop", "--yes").code == 0
    manifest = Path("shop/SKILL.md")
    head = manifest.read_text(encoding="utf-8").partition("# Releasing")[0]
    manifest.write_text(f"{head}# Greetings\n\nWe say ahoy.\n", encoding="utf-8")
    Path("model.json").write_text('[{"answer": "Hello."}]', encoding="utf-8")
    trigger = ("trigger", "shop", "-m", "scripted:model.json", "--no-log-runs")
    for done in (upskill("validate", "shop"), upskill(*trigger)):
        assert (
            "eval_queries.json: these queries are still about kiln, the example from `upskill init`"
            in done.out + done.err
        )
    own = (
        '[{"query": "How do we greet?", "should_trigger": true}, '
        '{"query": "Fire the kiln.", "should_trigger": false}]'
    )
    Path("shop/evals/eval_queries.json").write_text(own, encoding="utf-8")
    for done in (upskill("validate", "shop"), upskill(*trigger)):
        assert "kiln, the example" not in done.out + done.err
