"""Defects of the tool that upskill succeeds, by their numbers in our notes: each test fails where one is back.

Others are held where the code is tested: 1, 4, 5 and resuming (18) in test_evaluate, keys (4), tokens (17) and timeouts
(18) in test_models_wire, exit codes (4), the matrix of runs (14) and concurrency (18) in test_cli, empty checks (11) in
test_suite, colons and saving (15) in test_skill, starting (19) in test_architecture, 12 in test_refine, 13 in
test_create, 10 and 16 in test_generate.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import (
    BODY,
    HELPFUL,
    REPOSITORY,
    Upskill,
    greetings,
    serving,
    write_script,
    write_skill,
)
from loopback import Call, Loopback, Spoken, Trouble, refuse

CANARY = "canary-4711"


def helpful(call: Call) -> str:
    return "ahoy, friend" if "ahoy" in call.system else "hello, friend"


def bodies(server: Loopback) -> list[dict[str, Any]]:
    """Of the trials, without the probe for a cache."""
    return [dict(logged.body) for logged in server.requests if not logged.is_probe]


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_2_the_text_of_an_error_is_never_an_answer(
    home: Path, upskill: Upskill, quick: None, status: int
) -> None:
    """Defect 2: a provider's error text was graded as the answer; a 401 passed a test that expected "401"."""
    skill = write_skill(
        home / "greeter",
        suite={"cases": greetings(4)["cases"], "checks": [{"contains": "401 ahoy"}]},
    )
    with serving(refuse(status, "401 ahoy", "401 ahoy")) as server:
        done = upskill("eval", skill, "-m", "any", "--base-url", server.url, "--json")
    (model,) = done.json["models"]
    for arm in (model["baseline"], model["skill"]):
        assert (arm["passed"], arm["failed"], arm["pass_rate"]) == (0, 0, None)
        assert arm["missing"] > 0
    assert "401 ahoy" in done.json["errors"][0]["message"]
    assert done.code == 3


def test_3_an_outage_of_one_arm_is_not_lift(home: Path, upskill: Upskill, quick: None) -> None:
    """Defect 3: an outage in the baseline arm was reported as "+100 %, keep skill", exit 0."""
    skill = write_skill(home / "greeter", cases=8)

    def answer(call: Call) -> Spoken:
        return "ahoy, friend" if "ahoy" in call.system else Trouble(status=500)

    with serving(answer) as server:
        command = ("eval", skill, "-m", "any", "--base-url", server.url, "--repeats", 1)
        done = upskill(*command, "--json")
        text = upskill(*command)
    (model,) = done.json["models"]
    assert (model["baseline"]["missing"], model["skill"]["passed"]) == (8, 8)
    assert (model["lift"], model["interval"], model["decision"], model["reason"]) == (
        None,
        None,
        "undecided",
        "errors",
    )
    assert (done.code, text.code) == (3, 3)
    assert "? undecided (errors): 8 of 8 trials without the skill" in text.out
    assert not re.search(r"✓|^.* helps$", text.out, re.MULTILINE)


def test_6_the_baseline_never_sees_a_word_of_the_skill(home: Path, upskill: Upskill) -> None:
    """Defect 6: the baseline arm could read the skill from disk."""
    skill = write_skill(home / "greeter", body=f"{BODY}\n{CANARY}\n")
    manifest = (skill / "SKILL.md").read_text(encoding="utf-8")
    (skill / "SKILL.md").write_text(
        manifest.replace("description: ", f"description: {CANARY} "), encoding="utf-8"
    )
    (skill / "references").mkdir()
    (skill / "references" / "more.md").write_text(CANARY, encoding="utf-8")
    with serving(helpful) as server:
        assert (
            upskill("eval", skill, "-m", "any", "--base-url", server.url, "--repeats", 2).code == 0
        )
        trials = [logged for logged in server.requests if not logged.is_probe]
        untaught = [
            logged for logged in trials if "comma, and the name" not in json.dumps(logged.body)
        ]
        assert len(untaught) == len(trials) / 2 == 8
    for logged in untaught:
        seen = json.dumps([logged.path, dict(logged.headers), logged.body])
        assert CANARY not in seen
        assert "greeter" not in seen
        assert str(skill) not in seen


def test_9_there_is_a_baseline_with_several_models_and_several_runs(
    home: Path, upskill: Upskill
) -> None:
    """Defect 9: no baseline once there are several models or runs, so repeats could not give lift."""
    skill = write_skill(home / "greeter", cases=4)
    with serving(helpful) as server:
        done = upskill(
            "benchmark", skill, "-m", "alpha", "-m", "beta", "--base-url", server.url, "--json"
        )
        asked = Counter(request["model"] for request in bodies(server))
        seeds = {request["seed"] for request in bodies(server)}
    assert asked == {"alpha": 24, "beta": 24}
    assert len(seeds) == 3  # one a round, the same in both arms
    for model in done.json["models"]:
        assert (model["pairs"], model["baseline"]["failed"], model["skill"]["passed"]) == (
            12,
            12,
            12,
        )
        assert model["lift"] == 1.0


def test_11_a_refusal_that_names_the_keywords_can_be_told_from_an_answer(
    home: Path, upskill: Upskill
) -> None:
    """Defect 11: substring-only grading, so that a refusal naming the keywords passed."""
    refusal = write_script(home / "refusal.yaml", [{"answer": "I cannot say ahoy to a friend."}])
    cases = {"cases": greetings(4)["cases"]}
    strict = write_skill(
        home / "strict", suite=cases | {"checks": [{"regex": "^ahoy, "}, {"max_length": 60}]}
    )
    done = upskill("eval", strict, "-m", refusal, "--json")
    assert done.json["models"][0]["skill"]["passed"] == 0
    assert done.json["warnings"] == []


def test_17_an_errored_call_saves_no_tokens(home: Path, upskill: Upskill) -> None:
    """Defect 17: errored calls counted as tokens saved."""
    skill = write_skill(home / "greeter", cases=20)
    same = {"input": 50, "output": 10, "cost": 0.01}
    rules = [
        {"when": "guest 7.", "system": "ahoy", "error": "gone"},
        *({**rule, "usage": same} for rule in HELPFUL),
    ]
    done = upskill("eval", skill, "-m", write_script(home / "model.yaml", rules), "--json")
    (model,) = done.json["models"]
    assert (model["pairs"], model["skill"]["missing"]) == (19, 1)
    assert model["token_savings"] == 0
    assert model["skill"]["input_tokens"] == 19 * 50
    assert done.code == 0


@pytest.mark.parametrize(
    "argv",
    [
        ["eval", "nowhere"],
        ["eval", "greeter", "-t", "nowhere.yaml"],
        ["eval", "greeter", "-m", "scripted:nowhere.yaml"],
        ["eval", "greeter", "-m", "opsu"],
        ["eval", "greeter", "--repeats", "none"],
        ["eval", "greeter", "--seed", "99999999999999999999"],
        ["eval", "greeter", "-m", "any", "--base-url", "nonsense"],
        ["eval", "greeter/evals"],
        ["benchmark", "greeter"],
        ["show", "last"],
        ["runs", "-d", "nowhere"],
        ["list", "-d", "nowhere"],
        ["validate", "nowhere"],
        ["install", "greeter", "--to", "nobody"],
    ],
    ids=" ".join,
)
def test_18_bad_input_is_one_message_and_never_a_traceback(
    home: Path, upskill: Upskill, argv: list[str]
) -> None:
    """Defect 18: tracebacks on bad input."""
    write_skill(home / "greeter")
    done = upskill(*argv)
    assert done.code == 2
    said = done.out + done.err
    assert "Traceback" not in said
    assert "this is a bug" not in said
    assert said.strip()


def test_19_the_base_install_is_small_and_python_need_not_be_the_newest() -> None:
    """Defect 19: 131 packages, and only Python 3.13.5 or newer."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(project["dependencies"]) <= 12  # two of these come with rich and jsonschema anyway
    assert project["requires-python"] == ">=3.11"
