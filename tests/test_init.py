"""`upskill init` writes a skill whose tests run and hold up, and overwrites nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import skills_ref
import yaml

from conftest import Upskill
from upskill import Settings, Skill, Suite
from upskill.suites.queries import Queries


def test_the_new_skill_is_valid_and_no_answer_that_knows_nothing_passes_its_tests(home: Path, upskill: Upskill) -> None:
    done = upskill("init", "deploy-shop", "--ci", "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:3] == [
        "wrote deploy-shop/",
        "wrote upskill.config.yaml",
        "wrote .github/workflows/upskill.yaml",
    ]
    assert "upskill eval ./deploy-shop" in done.out
    checked = upskill("validate", "./deploy-shop", "--strict-suite")
    assert (checked.code, checked.out) == (0, "./deploy-shop: valid\n")
    skill = Skill.load("deploy-shop")
    suite, queries = Suite.of(skill), Queries.of(skill)
    assert suite is not None
    assert queries is not None
    assert (len(suite.cases), len(queries.all), Settings.load()) == (12, 8, Settings(source="upskill.config.yaml"))
    workflow = yaml.safe_load(Path(".github/workflows/upskill.yaml").read_text(encoding="utf-8"))
    assert any("upskill eval deploy-shop " in step.get("run", "") for step in workflow["jobs"]["eval"]["steps"])


def test_the_reference_validator_takes_it(home: Path, upskill: Upskill) -> None:
    upskill("init", "shop")
    assert skills_ref.validate(Path("shop")) == []


def test_nothing_is_overwritten(home: Path, upskill: Upskill) -> None:
    settings = Path("upskill.config.yaml")
    settings.write_text("concurrency: 2\n", encoding="utf-8")
    assert "kept upskill.config.yaml" in upskill("init", "shop").out
    assert settings.read_text(encoding="utf-8") == "concurrency: 2\n"
    Path("shop/SKILL.md").write_text("mine", encoding="utf-8")
    again = upskill("init", "shop")
    assert (again.code, "is there already" in again.err) == (2, True)
    assert Path("shop/SKILL.md").read_text(encoding="utf-8") == "mine"


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


def test_queries_of_the_example_are_named_once_the_skill_is_about_something_else(home: Path, upskill: Upskill) -> None:
    assert upskill("init", "shop", "--yes").code == 0
    manifest = Path("shop/SKILL.md")
    head = manifest.read_text(encoding="utf-8").partition("# Releasing")[0]
    manifest.write_text(f"{head}# Greetings\n\nWe say ahoy.\n", encoding="utf-8")
    Path("model.json").write_text('[{"answer": "Hello."}]', encoding="utf-8")
    trigger = ("trigger", "shop", "-m", "scripted:model.json", "--no-log-runs")
    for done in (upskill("validate", "shop"), upskill(*trigger)):
        assert "eval_queries.json: has queries about kiln, the example that `upskill init` wrote" in done.out + done.err
    own = (
        '[{"query": "How do we greet?", "should_trigger": true}, {"query": "Fire the kiln.", "should_trigger": false}]'
    )
    Path("shop/evals/eval_queries.json").write_text(own, encoding="utf-8")
    for done in (upskill("validate", "shop"), upskill(*trigger)):
        assert "kiln, the example" not in done.out + done.err
