"""Logging: what -v, -vv and UPSKILL_LOG show on standard error, and that no secret is in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Upskill, serving, write_script, write_skill

KEY = "kept-by-nobody-4711"  # of no form that a rule would know
SECRET = "sk-ant-api03-" + "Ab3" * 30
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO) upskill\.[a-z_.]+: .+")


@pytest.fixture
def skill(home: Path) -> Path:
    write_script(home / "model.yaml")
    return write_skill(home / "greeter", cases=2)


def test_requests_are_logged_without_the_key(
    upskill: Upskill, skill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(lambda call: f"ahoy, {KEY}") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        command = ("eval", skill, "-m", "openai:gpt-4.1", "--set", "cache=false", "--no-log-runs")
        quiet, info, debug = (upskill(*command, *verbose) for verbose in ((), ("-v",), ("-vv",)))
        before = upskill("-v", *command)
    assert not LINE.search(quiet.err)
    assert (
        f"INFO upskill.models.http.model: openai:gpt-4.1: POST {server.url}/chat/completions: 200\n"
        in info.err
    )
    assert "DEBUG" not in info.err
    assert "DEBUG upskill.models.http.model: openai:gpt-4.1: sent " in debug.err
    assert "Please greet guest 1." in debug.err
    assert "ahoy, ***" in debug.err
    assert KEY not in debug.err + info.err
    assert "INFO upskill.models.http.model" in before.err
    every_case = "  greet-1\n"  # which -v also shows
    assert every_case in info.out == before.out


def test_commands_in_a_sandbox_are_logged_without_their_secrets(
    upskill: Upskill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    command = ("--sandbox", "none", "--", "sh", "-c", f"TOKEN={SECRET} true {KEY}")
    done = upskill("doctor", "-vv", *command)
    assert re.search(r"DEBUG upskill\.sandboxes: none: .*sh -c .*exit code 0 after", done.err)
    assert (SECRET in done.err, KEY in done.err) == (False, False)
    assert "true [REDACTED key]" in done.err
    assert "DEBUG" not in upskill("doctor", *command).err


def test_the_level_can_be_set_by_a_variable(
    upskill: Upskill, skill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("eval", skill, "-m", "scripted:model.yaml", "--json", "-d", "again")
    for level, levels in (
        ("debug", {"INFO", "DEBUG"}),
        ("INFO", {"INFO"}),
        ("warning", set[str]()),
    ):
        monkeypatch.setenv("UPSKILL_LOG", level)
        done = upskill(*command)
        assert done.json["run"]
        lines = done.err.splitlines()
        assert all(LINE.fullmatch(line) for line in lines)
        assert {line.split()[2] for line in lines} == levels
    monkeypatch.setenv("UPSKILL_LOG", "loud")
    refused = upskill(*command)
    assert (refused.code, "UPSKILL_LOG: no level named 'loud'" in refused.err) == (2, True)


@pytest.mark.parametrize(
    "command", [("runs",), ("list",), ("doctor",), ("trace", "list"), ("models",), ("validate",)]
)
def test_every_command_takes_v_before_and_after_its_name(
    upskill: Upskill, command: tuple[str, ...]
) -> None:
    assert "-v, --verbose" in upskill(*command, "--help").out
    assert "No such option" not in upskill(*command, "-vv").err + upskill("-v", *command).err


def test_the_library_logs_to_whoever_listens_and_to_nobody_else(skill: Path) -> None:
    run = "from upskill import *; evaluate_now(make_plan(Skill.load('greeter'), models=['scripted:model.yaml']))"
    listen = "import logging; logging.basicConfig(level='INFO'); "
    for code, said in (
        (run, ""),
        (listen + run, "INFO:upskill.runs.running.evaluate:run greeter-"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert (done.stdout, done.stderr.startswith(said), bool(done.stderr)) == (
            "",
            True,
            bool(said),
        )
