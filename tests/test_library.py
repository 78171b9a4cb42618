"""upskill as a library: every public name, lazily loaded, and the examples of the documentation as they are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

import upskill
from conftest import BODY, REPOSITORY, serving, write_script, write_skill
from loopback import Call
from teaching import ANSWERS, NUMBERS, REVISES, TESTS, WRITES, case, draft, fact, fresh, insert

BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SKIP = "# doctest: skip"
PAGES = sorted(chain([REPOSITORY / "README.md"], (REPOSITORY / "docs").rglob("*.md")))


def run(program: str, cwd: Path = REPOSITORY) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=cwd,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", upskill.__all__)
def test_a_public_name_is_what_its_module_calls_so(name: str) -> None:
    value = getattr(upskill, name)
    assert value.__name__ == name
    assert value.__module__.startswith("upskill.")
    assert getattr(sys.modules[value.__module__], name) is value


def test_importing_submodules_first_does_not_hide_a_verb() -> None:
    said = run(
        "import upskill.runs.running.evaluate, upskill.skills.install, upskill.cli.commands.eval, sys, upskill\n"
        "from upskill import evaluate, install\n"
        "assert evaluate is upskill.evaluate is sys.modules['upskill.runs.running.evaluate'].evaluate\n"
        "assert install is upskill.install is sys.modules['upskill.skills.install'].install\n"
        "from upskill.runs.planning.plan import make_plan\n"
        "assert upskill.evaluate is evaluate and make_plan is upskill.make_plan\n"
        "print(callable(evaluate), callable(install))"
    )
    assert said == "True True\n"


async def test_exported_keys_and_settings_are_found(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(call: Call) -> str:
        if call.system.startswith(WRITES):
            return json.dumps(draft(NUMBERS[:2]))
        if call.system.startswith(TESTS):
            return json.dumps({"cases": [case(number) for number in NUMBERS[:6]]})
        if call.system.startswith(ANSWERS):
            return json.dumps(fresh(case(number) for number in NUMBERS[:6]))
        return json.dumps(insert(fact(3))) if call.system.startswith(REVISES) else "I do not know."

    (home / "upskill.config.yaml").write_text(
        "skill_generation_model: openai:teacher\neval_model: openai:student\n"
    )
    with serving(answer, key="sk-4711") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-4711")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        skill = await upskill.generate_skill("know the ship")
        tests = await upskill.generate_tests("know the ship", count=6)
        results = await upskill.evaluate_skill(skill, tests)
        better = await upskill.refine_skill(skill, results.failures)
    assert {logged.model for logged in server.requests} == {"teacher", "student"}
    assert (len(tests.cases), results.skill_lift, fact(3) in better.body) == (6, 0.0, True)


async def test_what_a_program_prints_of_a_skill_a_plan_or_a_result_fits_on_a_line(
    home: Path,
) -> None:
    skill = upskill.Skill.load(write_skill(home / "greeter", cases=40, body=BODY + "ahoy " * 5000))
    plan = upskill.make_plan(skill, models=[write_script(home / "model.json")])
    with upskill.open_store(None) as store:
        evaluation = await upskill.evaluate(plan, store=store)
        result = next(store.results(evaluation.run))
    material = upskill.Material("Greet people. " * 100, skill=skill)
    printed = [
        *(
            skill,
            skill.files[0],
            plan.suite,
            plan.suite.cases[0],
            plan,
            evaluation,
            evaluation.run,
            result,
        ),
        *(
            result.trace,
            evaluation.verdicts[0],
            material,
        ),
    ]
    for each in printed:
        assert repr(each).startswith(f"{type(each).__name__}(")
        assert len(repr(each)) <= 130, repr(each)
        assert "\n" not in repr(each)


async def test_a_run_that_failed_is_raised_unless_partial_results_were_asked_for(
    home: Path,
) -> None:
    plan = upskill.make_plan(
        upskill.Skill.load(write_skill(home / "greeter")),
        models=[write_script(home / "model.json", [{"error": "no such model"}])],
    )
    with pytest.raises(
        upskill.RunFailed, match=r"8 of 8 trials errored \(scripted:model.json: .*no such model"
    ) as caught:
        await upskill.evaluate(plan)
    assert caught.value.evaluation.too_many_errors
    evaluation = await upskill.evaluate(plan, options=upskill.RunOptions(partial=True))
    assert (evaluation.has_failed, evaluation.verdicts[0].lift) == (True, None)


# Every Python block of the documentation that is meant to be run, by its page.
BLOCKS = {
    f"{page.relative_to(REPOSITORY).as_posix()}-{number}": text
    for page in PAGES
    for number, text in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), start=1)
    if SKIP not in text
}


@pytest.mark.parametrize("program", BLOCKS.values(), ids=BLOCKS)
def test_an_example_of_the_documentation_runs_as_it_is(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "import torch" in program:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.chdir(REPOSITORY)
    exec(compile(program, "example", "exec"), {"__name__": "__main__"})
