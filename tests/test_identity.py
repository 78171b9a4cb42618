"""What answered is part of a trial's key and of a stored reply's: nothing old stands in for something that changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, greetings, read_check, write_script, write_skill
from loopback import Call, Loopback, Say
from upskill import Address, Plan, Skill, Suite
from upskill.agents import Task
from upskill.agents.chat import chat_request
from upskill.checks import Evidence, judge
from upskill.models import Message, Reply, Request
from upskill.models.addresses import resolve
from upskill.models.cache import request_key
from upskill.models.pool import Models
from upskill.runs.planning.plan import GENERATION
from upskill.runs.running.evaluate import evaluate
from upskill.runs.stores import open_store
from upskill.traces import Step, Trace

SKILL = Skill.new("greeter", "Greets.", "Say ahoy to the guest.")
REQUEST = Request((Message("user", "Hello."),), seed=1)
REMOTE = Address("one", "openai", "one", "generic", "http://127.0.0.1:1/v1")


def keys(model: str, **changed: Any) -> tuple[set[str], str]:
    """The keys of the trials with a model, and of a request to it."""
    address = resolve(model)
    plan = replace(Plan(SKILL, Suite.parse(greetings(2)), (address,)), **changed)
    return {plan.key(trial) for trial in plan.trials()}, request_key(address, REQUEST)


def install(folder: Path, name: str, version: str) -> None:
    """A program as npm installs it: a link to a script in a package."""
    package = folder / "node_modules" / name
    package.mkdir(parents=True, exist_ok=True)
    (package / "package.json").write_text(
        json.dumps({"name": name, "version": version}), encoding="utf-8"
    )
    script = package / "run.js"
    script.write_text("#!/usr/bin/env node\n", encoding="utf-8")
    script.chmod(0o755)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(script)


def test_keys_of_trials_and_of_providers_replies_stay_what_they_are() -> None:
    """Fails when what is stored would no longer be found. If that is meant, the changelog says so."""
    plan = Plan(SKILL, Suite.parse(greetings(2)), (REMOTE,))
    asked = chat_request(Task("Greet.", {"a.txt": "Ann\n"}, SKILL, 1, 0.0, 64))
    assert (GENERATION, plan.fingerprint) == (2, "ac53189b5bb74a93")
    plain = replace(
        plan,
        suite=Suite.parse([{"id": "one", "prompt": "Greet.", "checks": [{"contains": "ahoy"}]}]),
    )
    assert (
        plain.fingerprint == "ba59131cd06be103"
    )  # as before max_length, equals and starts_with came to mean something else
    assert request_key(REMOTE, asked) == "c1d947b7e089267a"  # as in 0.1


def test_an_edited_script_never_gets_the_results_or_replies_of_the_old_one(
    upskill: Upskill, home: Path
) -> None:
    folder = write_skill(home / "greeter")
    command = ("eval", folder, "-m", write_script(home / "student.yaml"), "--json")
    before, same = upskill(*command).json, upskill(*command).json
    assert same["run"] == before["run"]
    assert before["models"][0]["skill"]["pass_rate"] == 1
    write_script(home / "student.yaml", [{"answer": "goodbye"}])
    after = upskill(*command).json
    assert after["run"] != before["run"]
    assert after["models"][0]["skill"]["pass_rate"] == 0


async def test_a_script_edited_while_its_model_is_open_leaves_no_reply_under_the_new_one(
    home: Path,
) -> None:
    address = resolve(write_script(home / "student.yaml", [{"answer": "old"}]))
    with open_store(None) as store:
        async with Models(replies=store) as models:
            model = await models.get(address)
            write_script(home / "student.yaml", [{"answer": "new"}])
            assert (await model.reply(REQUEST)).text == "old"
        async with Models(replies=store) as models:
            assert (await (await models.get(address)).reply(REQUEST)).text == "new"


@pytest.mark.parametrize(
    "change", [{}, {"agent": "claude-code"}], ids=["as a plain model", "as an agent"]
)
def test_another_version_of_a_program_gets_keys_of_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    monkeypatch.setenv("PATH", f"{home}{os.pathsep}{os.environ['PATH']}")
    model = "haiku" if change else "claude-code"
    found: list[set[str]] = []
    for version in ("1.0.0", "1.0.1", "1.0.0"):
        install(home, "claude", version)
        trials, reply = keys(model, **change)
        found.append(trials if change else {*trials, reply})
    assert not found[0] & found[1]
    assert found[0] == found[2]
    # One that came in no package is known by what is in its file.
    for content in ("one", "two", "one"):
        (home / "claude").unlink()
        (home / "claude").write_text(f"#!/bin/sh\necho {content}\n", encoding="utf-8")
        (home / "claude").chmod(0o755)
        found.append(keys(model, **change)[0])
    assert not found[3] & found[4]
    assert found[3] == found[5]


def edited_suite(folder: Path, checks: list[Any], file: str) -> Callable[[str], Plan]:
    folder.mkdir()
    suite = folder / "suite.json"
    suite.write_text(
        json.dumps({"cases": [{"id": "one", "prompt": "Do it.", "checks": checks}]}),
        encoding="utf-8",
    )

    def plan(text: str) -> Plan:
        (folder / file).write_text(text, encoding="utf-8")
        return Plan(SKILL, Suite.load(suite), (REMOTE,))

    return plan


def test_the_files_of_checks_are_part_of_the_key(home: Path) -> None:
    python = edited_suite(home / "python", [{"python": {"file": "check.py"}}], "check.py")
    command = edited_suite(
        home / "command", [{"command": {"run": "sh $CHECK/t.sh", "files": ["t.sh"]}}], "t.sh"
    )
    for plan, old, new in (
        (python, "def check(*_):\n    return True\n", "def check(*_):\n    return False\n"),
        (command, "true\n", "false\n"),
    ):
        assert plan(old).fingerprint != plan(new).fingerprint
        assert plan(old).fingerprint == plan(old).fingerprint


def test_the_kind_of_sandbox_is_part_of_the_key_where_something_acts() -> None:
    written = greetings(2)
    written["cases"][0]["checks"] = [{"command": "true"}]
    plan = Plan(SKILL, Suite.parse(written), (REMOTE,))
    kinds = [replace(plan, sandbox=kind) for kind in ("bubblewrap", "container", "none")]
    for trial in plan.trials():
        assert len({each.key(trial) for each in kinds}) == (3 if trial.case == "greet-1" else 1)
        assert len({replace(each, agent="tools").key(trial) for each in kinds}) == 3


def test_a_run_is_found_again_by_the_sandbox_it_was_run_in(upskill: Upskill, home: Path) -> None:
    suite = greetings(2)
    suite["checks"].append({"command": "true"})
    folder = write_skill(home / "greeter", suite=suite)
    command = ("eval", folder, "-m", write_script(home / "student.yaml"), "--sandbox", "none")
    run = upskill(*command, "--json").json["run"]
    assert upskill(*command, "--json").json["run"] == run
    assert "nothing left to run" in upskill(*command).err


async def test_what_a_judge_is_told_is_part_of_the_key_of_a_judged_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = greetings(2)
    written["cases"][0]["checks"] = [{"judge": "It greets."}]
    plan = Plan(SKILL, Suite.parse(written), (REMOTE,), judge=REMOTE)
    before = {trial: plan.key(trial) for trial in plan.trials()}
    told = judge.read_prompt

    def kinder(package: str, name: str) -> str:
        return told(package, name) + "Be kind."

    monkeypatch.setattr(judge, "read_prompt", kinder)
    after = replace(plan)
    for trial, key in before.items():
        assert (after.key(trial) == key) is (trial.case == "greet-2")


async def test_the_prompts_of_a_judge_are_those_that_it_is_sent() -> None:
    sent: list[Request] = []

    async def ask(request: Request) -> Reply:
        sent.append(request)
        return Reply("{}")

    evidence = Evidence(Trace((Step("assistant", "ahoy"),)), ask=ask)
    for written in ("It greets.", {"rubric": ["It greets."]}, {"better_than": "hello"}):
        check = read_check({"judge": written}, "here").check
        with pytest.raises(Exception, match="the judge"):
            await check.run(evidence)
        assert [sent[-1].messages[0].text] == [prompt.strip() for prompt in check.prompts]
    assert len({request.messages[0].text for request in sent}) == 3


async def test_a_run_that_several_snapshots_answered_says_so(home: Path) -> None:
    def answer(call: Call) -> Say:
        return Say(
            "ahoy, friend", extra={"model": f"tiny-2026-0{1 + ('guest 2' in call.prompt)}-01"}
        )

    folder = write_skill(home / "greeter", suite=greetings(3))
    async with Loopback(answer=answer) as server:
        plan = Plan(
            Skill.load(folder), Suite.parse(greetings(3)), (resolve("tiny", base_url=server.url),)
        )
        with open_store(home / "runs") as store:
            evaluation = await evaluate(plan, store=store)
            one = await evaluate(replace(plan, suite=Suite.parse(greetings(1))), store=store)
    assert evaluation.snapshots == {"tiny": {"tiny-2026-01-01": 4, "tiny-2026-02-01": 2}}
    said = "tiny: 2 snapshots answered (tiny-2026-01-01: 4 trials and tiny-2026-02-01: 2 trials)."
    assert evaluation.verdicts[0].caveats == (said,)
    assert one.snapshots == {"tiny": {"tiny-2026-01-01": 2}}
    assert one.verdicts[0].caveats == (
        "2 cases of earlier runs not in this suite: greet-2, greet-3.",
    )
