"""A bug in upskill: stored with its traceback, counted apart from other errors, shown loudly, and exit code 3."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from conftest import Done, spawn, write_script, write_skill
from plugin import install_plugin

# A check of another package with a bug: this answer, or none, makes it look up what is not there.
BROKEN = """
from upskill.checks import Check, Finding

class Broken(Check):
    answer: str

    async def run(self, evidence):
        if evidence.answer in (self.answer, ""):
            {}["sk-ant-api03-" + 40 * "Ab3"]
        return Finding(False, "as it should be")
"""
HEADING = "4 trials hit a bug in upskill, not in your skill or model."


@pytest.fixture
def environment(home: Path, tmp_path: Path) -> dict[str, str]:
    """A run of which half the trials hit a bug and one other trial a provider's error."""
    suite = {
        "cases": [
            {"id": f"greet-{number}", "prompt": f"Please greet guest {number}."}
            for number in range(4)
        ],
        "checks": [{"contains": "ahoy"}, {"broken": "ahoy, friend"}],
    }
    write_skill(home / "greeter", suite=suite)
    gone: dict[str, Any] = {"when": "guest 0", "error": "gone"}
    write_script(
        home / "model.yaml",
        [{"system": "ahoy", "answer": "ahoy, friend"}, gone, {"answer": "hello"}],
    )
    return install_plugin(
        tmp_path / "site", "broken_check", BROKEN, {"upskill.checks:broken": "Broken"}
    )


def run(environment: dict[str, str], *given: str) -> Done:
    return spawn("eval", "greeter", "-m", "scripted:model.yaml", *given, env=environment)


def test_a_bug_comes_first_in_the_report_and_ends_the_run_with_3(
    environment: dict[str, str],
) -> None:
    done = run(environment, "-v")
    assert done.code == 3
    assert done.out.index(HEADING) < done.out.index("? undecided")
    said = " ".join(done.out.replace("│", " ").split())
    assert "KeyError: 'sk-" in said
    assert "--bugs` prints the tracebacks. Please report them in upskill's issue tracker." in said
    assert "1 trial of scripted:model.yaml missing: asking scripted:model.yaml: gone" in said
    assert "missing: checking" not in said  # a bug is no error of the provider
    quiet = run(environment, "--no-log-runs", "-q")
    assert (quiet.code, "BUG" in quiet.out, HEADING in quiet.err) == (3, False, True)


def test_every_report_counts_bugs_apart_from_errors(environment: dict[str, str]) -> None:
    reports = ("junit=tests.xml", "markdown=summary.md", "csv=rows.csv")
    done = run(
        environment,
        "--json",
        "--require",
        "decision!=hurts",
        *(f"--report={report}" for report in reports),
    )
    assert done.code == 3
    assert [(each["held"], each["reason"]) for each in done.json["requirements"]] == [
        (False, "a trial hit a bug in upskill")
    ]
    (message,) = done.json["bugs"]["messages"]
    assert (done.json["bugs"]["trials"], message["trials"]) == (4, 4)
    assert message["message"].startswith("KeyError: ")
    assert [error["message"] for error in done.json["errors"]] == [
        "asking scripted:model.yaml: gone"
    ]
    markdown = Path("summary.md").read_text()
    assert markdown.index(f"> **{HEADING}**") < markdown.index("4 cases")
    (suite,) = ET.parse("tests.xml").getroot()
    (error,) = suite.findall("testcase[@classname='upskill']/error")
    assert error.get("message") == HEADING
    assert "Traceback (most recent call last)" in (error.text or "")
    with Path("rows.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["missing"], row["bugs"]) == ("5", "4")


def test_show_prints_the_tracebacks_without_secrets(environment: dict[str, str]) -> None:
    run(environment)
    shown = spawn("show", "last", "--bugs", env=environment)
    assert (shown.code, shown.out.startswith("upskill ")) == (0, True)
    assert shown.out.count("Traceback (most recent call last)") == 4
    assert (
        "greet-0, skill, scripted:model.yaml, seed 0: checking broken of greet-0: KeyError: "
        in shown.out
    )
    assert "Ab3Ab3" not in shown.out
    assert len(spawn("show", "last", "--bugs", "--json", env=environment).json["bugs"]) == 4
    write_script(Path("model.yaml"), [{"answer": "hello"}])  # which hits no bug
    assert run(environment, "--no-baseline", "--set", "cache=false").code == 0
    assert "hit a bug in upskill" in spawn("show", "last", "--bugs", env=environment).err


BROKEN_AGENT = """
from upskill.sandboxes import Setup

class BrokenAgent:
    needs_sandbox = True

    def setup(self, task):
        return Setup()

    async def run(self, task, student):
        return {}[task.prompt]
"""


def test_a_bug_while_queries_are_run_is_shown_too(home: Path, tmp_path: Path) -> None:
    write_skill(home / "greeter")
    queries = [
        {"query": f"Greet guest {number}.", "should_trigger": number < 10} for number in range(20)
    ]
    (home / "greeter" / "eval_queries.json").write_text(json.dumps(queries))
    write_script(home / "model.yaml", [{"answer": "hello"}])
    environment = install_plugin(
        tmp_path / "site", "broken_agent", BROKEN_AGENT, {"upskill.agents:broken": "BrokenAgent"}
    )
    common = (
        "trigger",
        "greeter",
        "-m",
        "scripted:model.yaml",
        "--agent",
        "broken",
        "--repeats",
        1,
    )
    done = spawn(*common, "--json", env=environment)
    assert done.code == 3
    assert done.json["bugs"]["trials"] == 20
    assert done.json["errors"] == []
    done = spawn(*common, "--improve", "--teacher", "scripted:model.yaml", env=environment)
    assert done.code == 3
    why = r"cannot be measured: a bug in upskill ended \d+ trials: KeyError: 'Greet guest"
    assert re.search(why, done.err)


def test_a_bug_in_a_search_is_shown_and_ends_it_with_3(
    environment: dict[str, str], home: Path
) -> None:
    """It is in one of the held-out cases, or in every train case of the first draft."""
    cases: list[dict[str, Any]] = [
        {
            "id": f"greet-{number}",
            "prompt": f"Please greet guest {number}.",
            "held_out": number >= 8,
        }
        for number in range(12)
    ]
    broken = [{"contains": "ahoy"}, {"broken": "ahoy, friend"}]
    command = (
        "generate",
        "--from",
        "greeter",
        "-m",
        "scripted:model.yaml",
        "--student",
        "scripted:model.yaml",
    )
    common = (*command, "--tests", "suite.json", "--attempts", 0, "--output", "out/greeter")
    write_script(
        home / "model.yaml", [{"system": "ahoy", "answer": "ahoy, friend"}, {"answer": "hello"}]
    )
    some = [
        case | {"checks": broken if case["id"] == "greet-11" else [{"contains": "ahoy"}]}
        for case in cases
    ]
    (home / "suite.json").write_text(json.dumps({"cases": some}))
    done = spawn(*common, env=environment)
    assert done.code == 3, done.err
    assert "1 trial hit a bug in upskill" in done.out
    (home / "suite.json").write_text(json.dumps({"cases": cases, "checks": broken}))
    done = spawn(*common, "--json", env=environment)
    assert (done.code, done.json["held_out"]["models"][0]["decision"]) == (3, "undecided")
    done = spawn(*common, env=environment)
    assert "12 trials hit a bug in upskill" in done.out
    assert "No answer was graded, so nothing is proven" in " ".join(done.out.split())
    done = spawn(*common, "--attempts", 1, env=environment)
    assert done.code == 3
    assert (
        "the skill cannot be evaluated: a bug in upskill ended 8 trials: KeyError: 'sk-" in done.err
    )
