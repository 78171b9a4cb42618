"""Kill -9 at any moment, then the same command: nothing that was finished is lost, and nothing is done twice."""

from __future__ import annotations

import math
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conftest import Done, greetings, scores_of, serving, spawn, start, write_skill
from loopback import Call, Gate, Loopback, Trouble
from upskill import open_store
from upskill.agents.chat import SYSTEM
from upskill.runs.stores.sqlite import FILE

MODELS = ("small", "large")
CASES = 20
TRIALS = len(MODELS) * CASES * 2 * 2
CONCURRENCY = 3
KILLS = 4
Asked = tuple[str, str, str, int | None]


def answer(call: Call) -> str:
    """Always the same for the same request: right with the skill, and now and then without it."""
    if not call.system:
        return f"prose {call.seed}"  # for the probe
    if "ahoy" in call.system or (call.seed and call.seed % 2 and "guest 3" in call.prompt):
        return f"ahoy, {call.model}"
    return f"hello, {call.model}"


def trials_asked(server: Loopback) -> list[Any]:
    """Without the probes, which have no system prompt."""
    return [logged for logged in server.requests if len(logged.body["messages"]) > 1]


def asked(server: Loopback) -> list[Asked]:
    found: list[Asked] = []
    for logged in trials_asked(server):
        system, user = (message["content"] for message in logged.body["messages"])
        found.append((logged.model, system, user, logged.body.get("seed")))
    return found


def stored(folder: Path) -> set[tuple[Any, ...]]:
    """Every scored result, all of it, read without upskill's own code."""
    if not (folder / FILE).exists():
        return set()
    with closing(sqlite3.connect(folder / FILE)) as db:
        made = db.execute("SELECT * FROM sqlite_master WHERE name = 'results'").fetchall()
        return set(db.execute("SELECT * FROM results WHERE passed IS NOT NULL")) if made else set()


def requests_of(folder: Path) -> set[Asked]:
    """What was asked in the trials that are stored."""
    if not stored(folder):
        return set()
    with open_store(folder) as store:
        run = store.run("last")
        plan = run.plan.to_plan()
        assert plan.salt == run.plan.salt
        prompts = {case.id: case.prompt for case in run.plan.suite.cases}
        systems = {"baseline": SYSTEM, "skill": f"{SYSTEM}\n\n{run.plan.skill.body}"}
        return {
            (trial.model, systems[trial.arm], prompts[trial.case], plan.request_seed(trial))
            for trial in store.settled(run)
        }


@pytest.fixture
def skill(home: Path) -> Path:
    return write_skill(home / "greeter", suite=greetings(CASES))


def command(skill: Path, server: Loopback, runs: str) -> list[object]:
    models = [word for model in MODELS for word in ("-m", model)]
    return [
        *("eval", skill, *models, "--base-url", server.url, "--repeats", 2),
        *("--concurrency", CONCURRENCY, "--store", runs, "--json"),
    ]


def wait_for(process: subprocess.Popen[str], server: Loopback, requests: int) -> None:
    while len(asked(server)) < requests:
        assert process.poll() is None, "it ended by itself"
        time.sleep(0.001)


def wait_for_call(process: subprocess.Popen[str], server: Loopback) -> None:
    """Any call, also one of the probe, which comes first."""
    while not server.requests:
        assert process.poll() is None, "it ended by itself"
        time.sleep(0.001)


def test_kills_lose_nothing_repeat_nothing_and_change_nothing(home: Path, skill: Path) -> None:
    chance = random.Random(20261115)
    gate = Gate(answer)
    with serving(gate, latency=0.01) as server:
        whole = spawn(*command(skill, server, "whole"))
        assert whole.code == 0, whole.err
        assert set(Counter(asked(server)).values()) == {1}
        assert len(asked(server)) == TRIALS

        server.requests.clear()
        for number in range(KILLS):
            before = stored(home / "broken")
            known = requests_of(home / "broken")
            seen = len(asked(server))
            # At first while it is still starting, then after it has asked for some.
            wanted = chance.randint(0, 8) if number else 0
            gate.left = wanted + 4
            process = start(*command(skill, server, "broken"))
            wait_for(process, server, seen + wanted)
            time.sleep(chance.random() * (0.02 if wanted else 0.8))
            process.kill()
            process.communicate()
            assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"
            assert before <= stored(home / "broken"), "a stored result was lost or changed"
            assert not known & set(asked(server)[seen:]), "a stored trial was asked for again"
        gate.left = math.inf
        before = stored(home / "broken")
        known = requests_of(home / "broken")
        seen = len(asked(server))
        assert len(before) == len(known) < TRIALS

        last = spawn(*command(skill, server, "broken"))
        assert last.code == 0, last.err
        assert before <= stored(home / "broken")
        assert not known & set(asked(server)[seen:])
        assert len(stored(home / "broken")) == TRIALS
        assert set(asked(server)) == requests_of(home / "broken")
        # What was in flight when a kill came may be asked once more each time, and nothing else.
        assert len(asked(server)) <= TRIALS + KILLS * CONCURRENCY * len(MODELS)
        assert scores_of(last) == scores_of(whole)
        assert last.json["run"].startswith("greeter-")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_does_not_wait_for_answers_that_never_come(
    home: Path, skill: Path, number: signal.Signals
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:  # under nohup, and a child would inherit it
        signal.signal(number, signal.SIG_DFL)
    with serving(Trouble("silence", seconds=600)) as server:
        process = start(*command(skill, server, "broken"))
        wait_for_call(process, server)
        process.send_signal(number)
        _, err = process.communicate(timeout=600)
    assert (process.returncode, "Every finished trial is stored" in err) == (130, True)


@pytest.mark.parametrize("words", [("distill",), ("tests", "--score")], ids=" ".join)
def test_ctrl_c_in_an_experiment_says_how_to_continue(
    home: Path, skill: Path, words: tuple[str, ...]
) -> None:
    with serving(Trouble("silence", seconds=600)) as server:
        process = start(*words, skill, "-m", "small", "--base-url", server.url)
        wait_for_call(process, server)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
    assert (process.returncode, "interrupted. Run the same command again to continue." in err) == (
        130,
        True,
    )


def test_ctrl_c_ends_with_130_says_so_and_can_be_resumed(home: Path, skill: Path) -> None:
    gate = Gate(answer, 30)
    with serving(gate, latency=0.02) as server:
        process = start(*(word for word in command(skill, server, "broken") if word != "--json"))
        wait_for(process, server, 20)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600)
        ended = Done(process.returncode, out, err)
        assert (ended.code, ended.out) == (130, "")
        assert (
            "Every finished trial is stored. Run the same command again to continue." in ended.err
        )
        assert "Traceback" not in ended.err
        kept, known, seen = (
            stored(home / "broken"),
            requests_of(home / "broken"),
            len(server.requests),
        )
        assert 20 - CONCURRENCY * len(MODELS) <= len(kept) < TRIALS
        gate.left = math.inf
        resumed = spawn(*command(skill, server, "broken"))
        assert resumed.code == 0, resumed.err
        assert len(stored(home / "broken")) == TRIALS
        assert kept <= stored(home / "broken")
        assert not known & set(asked(server)[seen:])
