"""Defects of the tool that upskill succeeds, by their numbers in our notes: each test fails where one is back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conftest import BODY, HELPFUL, REPOSITORY, Upskill, greetings, serving, write_script, write_skill
from loopback import Call, Loopback, Say, Spoken, Trouble, refuse
from upskill import Skill

CANARY = "canary-4711"


def helpful(call: Call) -> str:
    return "ahoy, friend" if "ahoy" in call.system else "hello, friend"


def bodies(server: Loopback) -> list[dict[str, Any]]:
    return [dict(logged.body) for logged in server.requests]


def test_1_each_of_several_models_is_called_as_often_as_planned(home: Path, upskill: Upskill) -> None:
    """Defect 1: with several -m, every call went to one model and was printed under each name."""
    skill = write_skill(home / "greeter", cases=6)

    def answer(call: Call) -> str:
        return helpful(call) if call.model == "alpha" else f"no, says {call.model}"

    with serving(answer) as server:
        done = upskill("eval", skill, "-m", "alpha", "-m", "beta", "-m", "gamma", "--base-url", server.url, "--json")
        assert server.calls == {"alpha": 12, "beta": 12, "gamma": 12}
    assert done.code == 0
    assert [(model["model"], model["skill"]["passed"]) for model in done.json["models"]] == [
        ("alpha", 6),
        ("beta", 0),
        ("gamma", 0),
    ]


@pytest.mark.parametrize("status", [400, 401, 404, 500])
def test_2_the_text_of_an_error_is_never_an_answer(home: Path, upskill: Upskill, quick: None, status: int) -> None:
    """Defect 2: a provider's error text was graded as the answer; a 401 passed a test that expected "401"."""
    skill = write_skill(home / "greeter", suite={"cases": greetings(4)["cases"], "checks": [{"contains": "401 ahoy"}]})
    with serving(refuse(status, "401 ahoy", "401 ahoy")) as server:
        done = upskill("eval", skill, "-m", "any", "--base-url", server.url, "--json")
    (model,) = done.json["models"]
    for arm in (model["baseline"], model["skill"]):
        assert (arm["passed"], arm["failed"], arm["pass_rate"]) == (0, 0, None)
        assert arm["errored"] > 0
    assert "401 ahoy" in done.json["errors"][0]["message"]
    assert done.code == 3


def test_3_an_outage_of_one_arm_is_not_lift(home: Path, upskill: Upskill, quick: None) -> None:
    """Defect 3: an outage in the baseline arm was reported as "+100 %, keep skill", exit 0."""
    skill = write_skill(home / "greeter", cases=8)

    def answer(call: Call) -> Spoken:
        return "ahoy, friend" if "ahoy" in call.system else Trouble(status=500)

    with serving(answer) as server:
        done = upskill("eval", skill, "-m", "any", "--base-url", server.url, "--json")
        text = upskill("eval", skill, "-m", "any", "--base-url", server.url)
    (model,) = done.json["models"]
    assert (model["baseline"]["errored"], model["skill"]["passed"]) == (8, 8)
    assert (model["lift"], model["interval"], model["decision"], model["reason"]) == (None, None, "undecided", "errors")
    assert (done.code, text.code) == (3, 3)
    assert "? Undecided whether greeter helps any: 8 of 8 trials of the baseline errored" in text.out
    assert not re.search(r"✓|^.* helps$", text.out, re.MULTILINE)


def test_4_a_missing_key_ends_with_2_before_any_call(
    home: Path, upskill: Upskill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect 4: a missing key gave "0 % -> 0 %", exit 0."""
    skill = write_skill(home / "greeter")
    with serving() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        done = upskill("eval", skill, "-m", "openai:gpt-4.1")
        assert server.calls.total() == 0
    assert (done.code, done.out) == (2, "")
    assert "OPENAI_API_KEY" in done.err


def test_4_a_run_in_which_everything_errors_ends_with_3(home: Path, upskill: Upskill, quick: None) -> None:
    """Defect 4: exit codes never reflected anything."""
    skill = write_skill(home / "greeter")
    with serving(Trouble(status=500)) as server:
        done = upskill("eval", skill, "-m", "any", "--base-url", server.url)
    assert done.code == 3
    assert "0%" not in done.out


def test_5_the_arms_differ_by_the_skill_alone(home: Path, upskill: Upskill) -> None:
    """Defect 5: the two arms differed by more than the skill (an empty system prompt against a preamble)."""
    skill = write_skill(home / "greeter", cases=3)
    body = Skill.load(skill).body
    with serving(helpful) as server:
        assert upskill("eval", skill, "-m", "any", "--base-url", server.url, "--repeats", 2).code == 0
        sent = bodies(server)
        headers = [
            {name: value for name, value in logged.headers.items() if name != "Content-Length"}
            for logged in server.requests
        ]
    taught = [request for request in sent if body in request["messages"][0]["content"]]
    untaught = [request for request in sent if request not in taught]
    assert len(taught) == len(untaught) == 6
    for request in taught:
        system = request["messages"][0]["content"].replace(f"\n\n{body}", "")
        assert system
        bare = request | {"messages": [{"role": "system", "content": system}, *request["messages"][1:]]}
        untaught.remove(bare)
    assert untaught == []
    assert all(header == headers[0] for header in headers)


def test_6_the_baseline_never_sees_a_word_of_the_skill(home: Path, upskill: Upskill) -> None:
    """Defect 6: the baseline arm could read the skill from disk."""
    skill = write_skill(home / "greeter", body=f"{BODY}\n{CANARY}\n")
    manifest = (skill / "SKILL.md").read_text(encoding="utf-8")
    (skill / "SKILL.md").write_text(manifest.replace("description: ", f"description: {CANARY} "), encoding="utf-8")
    (skill / "references").mkdir()
    (skill / "references" / "more.md").write_text(CANARY, encoding="utf-8")
    with serving(helpful) as server:
        assert upskill("eval", skill, "-m", "any", "--base-url", server.url, "--repeats", 2).code == 0
        untaught = [logged for logged in server.requests if "comma, and the name" not in json.dumps(logged.body)]
        assert len(untaught) == len(server.requests) / 2 == 8
    for logged in untaught:
        seen = json.dumps([logged.path, dict(logged.headers), logged.body])
        assert CANARY not in seen
        assert "greeter" not in seen
        assert str(skill) not in seen


def test_9_there_is_a_baseline_with_several_models_and_several_runs(home: Path, upskill: Upskill) -> None:
    """Defect 9: no baseline once there are several models or runs, so repeats could not give lift."""
    skill = write_skill(home / "greeter", cases=4)
    with serving(helpful) as server:
        done = upskill("benchmark", skill, "-m", "alpha", "-m", "beta", "--base-url", server.url, "--json")
        asked = Counter((request["model"], request["seed"]) for request in bodies(server))
    assert asked == {(model, seed): 8 for model in ("alpha", "beta") for seed in (0, 1, 2)}
    for model in done.json["models"]:
        assert (model["pairs"], model["baseline"]["failed"], model["skill"]["passed"]) == (12, 12, 12)
        assert model["lift"] == 1.0


def test_11_a_refusal_that_names_the_keywords_can_be_told_from_an_answer(home: Path, upskill: Upskill) -> None:
    """Defect 11: substring-only grading, so that a refusal naming the keywords passed."""
    refusal = write_script(home / "refusal.yaml", [{"answer": "I cannot say ahoy to a friend."}])
    cases = {"cases": greetings(4)["cases"]}
    strict = write_skill(home / "strict", suite=cases | {"checks": [{"regex": "^ahoy, "}, {"max_length": 60}]})
    done = upskill("eval", strict, "-m", refusal, "--json")
    assert done.json["models"][0]["skill"]["passed"] == 0
    assert done.json["warnings"] == []
    loose = write_skill(home / "loose", suite=cases | {"checks": [{"contains": "ahoy"}]})
    warnings = upskill("eval", loose, "-m", refusal, "--json").json["warnings"]
    assert any("a refusal that names the keywords passes" in warning for warning in warnings)


@pytest.mark.parametrize(
    "suite",
    [
        [],
        {"cases": []},
        [{"input": "Greet.", "expected": {"contains": ""}}],
        [{"input": "Greet.", "expected": {"contains": []}}],
        [{"input": "Greet.", "expected": {}}],
        [{"input": "Greet."}],
        [{"prompt": "Greet.", "checks": []}],
        [{"prompt": "Greet.", "checks": [{"contains": ""}]}],
        [{"prompt": "Greet.", "checks": [{"contains": ["ahoy", " "]}]}],
        [{"prompt": "Greet.", "checks": [{"regex": ""}]}],
        [{"prompt": "Greet.", "checks": [{"not_contains": "hello"}]}],
        [{"prompt": "Greet.", "checks": [{"regex": "a*"}]}],
    ],
    ids=json.dumps,
)
def test_11_what_decides_nothing_is_a_usage_error(home: Path, upskill: Upskill, suite: Any) -> None:
    """Defect 11: an empty `contains` passed, and an empty suite got a recommendation."""
    skill = write_skill(home / "greeter")
    (home / "suite.json").write_text(json.dumps(suite), encoding="utf-8")
    with serving() as server:
        done = upskill("eval", skill, "-t", "suite.json", "-m", "any", "--base-url", server.url)
        assert server.calls.total() == 0
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("upskill: suite.json: ")


def test_14_no_run_overwrites_another_and_the_latest_is_shown(home: Path, upskill: Upskill) -> None:
    """Defect 14: folder names by the minute overwrote earlier runs; `runs` showed the best run ever."""
    greeter, sailor = write_skill(home / "greeter"), write_skill(home / "sailor")
    model = write_script(home / "model.yaml")
    first = upskill("eval", greeter, "-m", model, "--json").json
    assert upskill("eval", sailor, "-m", model).code == 0
    write_script(home / "model.yaml", [{"answer": "hello"}])
    second = upskill("eval", greeter, "-m", model, "--fresh", "--json").json
    assert (first["models"][0]["lift"], second["models"][0]["lift"]) == (1.0, 0.0)
    assert first["run"] != second["run"]
    listed = upskill("runs", "--json").json
    assert [(row["run"], row["verdict"]["lift"]) for row in listed if row["skill"] == "greeter"] == [
        (first["run"], 1.0),
        (second["run"], 0.0),
    ]
    matrix = {line.split()[0]: line for line in upskill("runs").out.splitlines() if line}
    assert "0% → 0%" in matrix["greeter"]
    assert "0% → 100% (+100 points)" in matrix["sailor"]
    again = upskill("show", first["run"], "--json").json
    assert {trial["answer"] for trial in again["trials"]} == {"ahoy, friend", "hello, friend"}


def test_15_a_colon_in_the_description_is_read_and_nothing_is_lost_in_saving(home: Path, upskill: Upskill) -> None:
    """Defect 15: a colon in the description crashed it; load and save dropped licence, metadata, files, run bits."""
    skill = write_skill(home / "greeter")
    text = (skill / "SKILL.md").read_text(encoding="utf-8")
    head = "license: MIT\nmetadata:\n  author: someone\nx-own-field: kept\ndescription: Use when: someone arrives: "
    (skill / "SKILL.md").write_text(text.replace("description: ", head), encoding="utf-8")
    (skill / "scripts" / "deep" / "er").mkdir(parents=True)
    (skill / "scripts" / "deep" / "er" / "run.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (skill / "scripts" / "deep" / "er" / "run.sh").chmod(0o755)
    (skill / "assets").mkdir()
    (skill / "assets" / "logo.png").write_bytes(bytes(range(256)))
    done = upskill("eval", skill, "-m", write_script(home / "model.yaml"), "--json")
    assert done.code == 0
    loaded = Skill.load(skill)
    assert loaded.description.startswith("Use when: someone arrives: Greets people")
    saved = Skill.load(loaded.save(home / "elsewhere" / "greeter"))
    assert saved.files == loaded.files
    assert saved.fingerprint == loaded.fingerprint == done.json["skill"]["fingerprint"]
    assert saved.frontmatter == loaded.frontmatter
    assert saved.frontmatter["x-own-field"] == "kept"
    script = saved.file("scripts/deep/er/run.sh")
    assert script is not None
    assert script.executable
    assert (home / "elsewhere" / "greeter" / "scripts" / "deep" / "er" / "run.sh").stat().st_mode & 0o111


def test_17_tokens_are_never_silently_zero_and_cost_is_there(home: Path, upskill: Upskill) -> None:
    """Defect 17: tokens were silently zero with newer dependencies, and cost was nowhere."""
    skill = write_skill(home / "greeter")
    (home / "upskill.config.yaml").write_text("prices:\n  any: {input: 1.0, output: 10.0}\n", encoding="utf-8")

    def counted(call: Call) -> Say:
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
        return Say(helpful(call), usage=usage)

    def uncounted(call: Call) -> Say:
        return Say(helpful(call), usage={})

    with serving(counted) as server:
        done = upskill("eval", skill, "-m", "any", "--base-url", server.url, "--json")
        text = upskill("eval", skill, "-m", "any", "--base-url", server.url)
    for arm in ("baseline", "skill"):
        found = done.json["models"][0][arm]
        assert (found["input_tokens"], found["output_tokens"], found["cost_usd"]) == (4000, 400, 0.008)
    assert "$0.0160" in text.out
    with serving(uncounted) as server:
        done = upskill("eval", skill, "-m", "any", "--base-url", server.url)
        quiet = upskill("eval", skill, "-m", "any", "--base-url", server.url, "--json")
    assert "estimated from the length of the text" in done.err
    for arm in ("baseline", "skill"):
        found = quiet.json["models"][0][arm]
        assert min(found["input_tokens"], found["output_tokens"]) > 0


def test_17_an_errored_call_saves_no_tokens(home: Path, upskill: Upskill) -> None:
    """Defect 17: errored calls counted as tokens saved."""
    skill = write_skill(home / "greeter", cases=20)
    same = {"input": 50, "output": 10, "cost": 0.01}
    rules = [{"when": "guest 7.", "system": "ahoy", "error": "gone"}, *({**rule, "usage": same} for rule in HELPFUL)]
    done = upskill("eval", skill, "-m", write_script(home / "model.yaml", rules), "--json")
    (model,) = done.json["models"]
    assert (model["pairs"], model["skill"]["errored"]) == (19, 1)
    assert model["token_savings"] == 0
    assert model["skill"]["input_tokens"] == 19 * 50
    assert done.code == 0


def test_18_a_call_that_hangs_ends_at_the_timeout(home: Path, upskill: Upskill, quick: None) -> None:
    """Defect 18: no timeout."""
    skill = write_skill(home / "greeter", cases=2)
    with serving(Trouble("silence", seconds=60)) as server:
        done = upskill("eval", skill, "-m", "any", "--base-url", server.url, "--set", "timeout=0.2", "--json")
    assert done.code == 3
    assert done.json["models"][0]["baseline"]["errored"] == 2
    assert "0.2" in done.json["errors"][0]["message"]


def test_18_no_more_calls_run_at_once_than_allowed(home: Path, upskill: Upskill) -> None:
    """Defect 18: no bound on parallel calls."""
    skill = write_skill(home / "greeter", cases=12)
    with serving(helpful, latency=0.01, together=3) as server:
        assert upskill("eval", skill, "-m", "any", "--base-url", server.url, "--concurrency", 3).code == 0
        assert server.most_at_once == 3


def test_18_a_run_is_resumed_and_says_so(home: Path, upskill: Upskill) -> None:
    """Defect 18: no resume."""
    skill = write_skill(home / "greeter")
    with serving(helpful) as server:
        command = ("eval", skill, "-m", "any", "--base-url", server.url)
        stopped = upskill(*command, "--set", "max_calls=3", "--concurrency", 1)
        assert server.calls.total() == 3
        done = upskill(*command)
        assert server.calls.total() == 8
    assert "ceiling of 3 calls" in stopped.err
    assert "3 of 8 trials are stored, running the other 5" in done.err


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
def test_18_bad_input_is_one_message_and_never_a_traceback(home: Path, upskill: Upskill, argv: list[str]) -> None:
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
    assert len(project["dependencies"]) <= 14
    assert project["requires-python"] == ">=3.11"


def test_19_help_loads_little() -> None:
    """Defect 19: 1,274 modules and seconds for `--help`."""
    argv = [sys.executable, "-X", "importtime", "-m", "upskill", "--help"]
    bare = {name: value for name, value in os.environ.items() if not name.startswith("COV")}  # it loads modules too
    done = subprocess.run(argv, capture_output=True, encoding="utf-8", check=True, env=bare)
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert "upskill.cli" in imported
    assert not {"pydantic", "rich", "numpy", "aiohttp", "asyncio", "yaml"} & set(imported)
    assert len(imported) < 200
