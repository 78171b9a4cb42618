"""Recorded replies that travel: `upskill export --replies` here, `upskill eval --replay FILE` anywhere."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from conftest import Done, Upskill, evaluate, greetings, serving, write_script, write_skill
from loopback import Call
from upskill import Models, Skill, UsageError, make_plan, open_store
from upskill.models.cassette import Cassette
from upskill.reports.runs import skill_verdicts
from upskill.runs.replay.replay import plan_from
from upskill.runs.results.evaluation import evaluation_of

KEY = "AKIA" + "QX7TR2LMWPZ3VK5N"  # the shape of an access key, and nobody's
# Starts the command line on a machine where nothing can be reached.
OFFLINE = """
import socket
def refuse(*_, **__):
    raise OSError("there is no network here")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
from upskill.cli import main
main()
"""


def elsewhere(folder: Path, *argv: object) -> Done:
    """The command line on a machine without a key, a store, a home or a network."""
    folder.mkdir(exist_ok=True)
    environment = {
        "HOME": str(folder / "nobody"),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", OFFLINE, *map(str, argv)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def skill(home: Path) -> Path:
    return write_skill(home / "skills" / "greeting")


@pytest.fixture
def cassette(upskill: Upskill, skill: Path, home: Path) -> Path:
    """The replies of a run."""
    student = write_script(home / "student.json")
    assert upskill("eval", skill, "-m", student).code == 0
    assert upskill("export", "last", "--replies", "replies.gz").code == 0
    return home / "replies.gz"


def lines_of(cassette: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(cassette.read_bytes()).splitlines()]


def unmarked(document: dict[str, Any]) -> dict[str, Any]:
    """The same for a run and its replay: all but its name, and that it was replayed."""
    models: list[dict[str, Any]] = [
        {**model, "caveats": list[str]()} for model in document["models"]
    ]
    return {**document, "run": "", "models": models}


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode() + b"\n"))
    return path


def helpful(call: Call) -> str:
    return "ahoy, friend" if "ahoy" in call.system else "hello, friend"


def test_a_run_with_a_judge_is_played_bit_for_bit_on_another_machine(
    upskill: Upskill, home: Path
) -> None:
    suite = greetings(3) | {
        "checks": [{"contains": "friend"}, {"judge": "it greets the way sailors do"}]
    }
    skill = write_skill(home / "skills" / "greeting", suite=suite)
    with serving(helpful) as server:
        students = ("-m", "any", "-m", "other", "--base-url", server.url)
        judged = ("--judge", write_script(home / "judge.json", JUDGE))
        live = upskill(
            "eval", skill, *students, *judged, "--repeats", 2, "--seed", 5, "--controls", "--json"
        )
        assert live.code == 0, live.err
    assert upskill("export", "last", "--replies", "out/replies.gz").code == 0
    other = home.parent / "other"
    shutil.copytree(skill, other / "deep" / "greeting")
    shutil.move(home / "out" / "replies.gz", other / "tape")
    played = elsewhere(other, "eval", "deep/greeting", "--replay", "tape", "--json")
    assert played.code == 0, played.err
    assert played.json["models"][0]["skill"]["passed"] == 6
    # Live, there was a probe for a cache as well.
    assert unmarked(played.json | {"spent": {}}) == unmarked(live.json | {"spent": {}})
    assert played.json["spent"]["judge"] == live.json["spent"]["judge"]
    # One of the two students, and again: the run is stored there by now.
    for _ in range(2):
        one = elsewhere(other, "eval", "deep/greeting", "--replay", "tape", "-m", "other", "--json")
        assert [model["model"] for model in one.json["models"]] == ["other"]


JUDGE = [
    {
        "match": "ahoy, friend",
        "answer": '{"evidence": "ahoy, friend", "reason": "it says ahoy", "passed": true}',
    },
    {"answer": '{"evidence": "", "reason": "it says hello", "passed": false}'},
]


def test_the_same_run_gives_the_same_bytes_and_nothing_of_the_machine(
    upskill: Upskill, cassette: Path
) -> None:
    before = cassette.read_bytes()
    cassette.unlink()
    cassette.symlink_to("precious")
    Path("precious").write_text("keep me")
    written = upskill("export", "last", "--replies", "replies.gz", "--force")
    assert "Wrote 8 replies for 8 trials to replies.gz" in written.err
    assert (cassette.read_bytes(), Path("precious").read_text()) == (before, "keep me")
    text = gzip.decompress(before).decode()
    assert str(Path.cwd()) not in text
    assert "Please greet" not in text  # requests are there as hashes only
    assert not [path.name for path in Path.cwd().iterdir() if path.name.startswith(".replies")]


def test_where_the_files_of_models_lie_stays_on_the_machine(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    for folder in ("one", "two"):
        (home / folder).mkdir()
        write_script(home / folder / "student.json")
    students = [
        option
        for folder in ("one", "two")
        for option in ("-m", f"scripted:{home / folder}/student.json")
    ]
    live = upskill("eval", skill, *students, "--json").json
    assert upskill("export", "last", "--replies", "replies.gz").code == 0
    assert str(home) not in gzip.decompress((home / "replies.gz").read_bytes()).decode()
    played = upskill("eval", skill, "--replay", "replies.gz", "--json").json
    names = ["scripted:student.json", "scripted:student.json (2)"]
    assert [model["model"] for model in played["models"]] == names
    assert [model["lift"] for model in played["models"]] == [
        model["lift"] for model in live["models"]
    ]
    one = upskill("eval", skill, "--replay", "replies.gz", "-m", names[1], "--json").json
    assert [model["model"] for model in one["models"]] == names[1:]


def test_a_replayed_run_says_so_wherever_its_verdict_is_shown(
    upskill: Upskill, skill: Path, cassette: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 28: none of them did, so that a forged file of replies was an ordinary `helps`."""
    monkeypatch.setenv("COLUMNS", "220")
    sha256 = hashlib.sha256(cassette.read_bytes()).hexdigest()
    recorded = lines_of(cassette)[0]["created"][:10]
    mark = f"replayed from replies.gz (sha256 {sha256[:12]}…, recorded {recorded})"
    live = upskill("runs", "--json").json[0]["run"]
    shown = surfaces(upskill, live)
    assert not [name for name, text in shown.items() if "eplayed from" in text]
    played = upskill("eval", skill, "--replay", cassette, "--json").json
    (caveat,) = played["models"][0]["caveats"]
    assert caveat == f"Recorded answers, {mark}: no model was asked."
    shown = surfaces(upskill, played["run"])
    shown["compare"] = " ".join(upskill("compare", live, played["run"]).out.split())
    for name, more in SHORT.items():
        shown[name] = " ".join(upskill("eval", skill, "--replay", cassette, *more).out.split())
    missing = [name for name, text in shown.items() if mark[1:] not in text]
    assert missing == [], shown[missing[0]]
    with open_store("runs") as store:
        run = store.run(played["run"])
        assert run.plan.replayed == mark
        assert evaluation_of(store, run).verdicts[0].caveats == (caveat,)
        assert [verdict["of"] for verdict in skill_verdicts(store, run.skill)] == [
            ""
        ]  # the one of the model itself


SHORT = {"eval": (), "eval --quiet": ("--quiet",)}


def surfaces(upskill: Upskill, run: str) -> dict[str, str]:
    """What each command that shows something of a run prints or writes."""
    texts = {
        "runs": upskill("runs").out,
        "runs --csv": upskill("runs", "--csv", "-").out,
        "runs --json": json.dumps(upskill("runs", "--json").json, ensure_ascii=False),
        "show": upskill("show", run).out,
        "show --json": json.dumps(upskill("show", run, "--json").json, ensure_ascii=False),
        "report": upskill("report", run, "-o", "-").out,
    }
    for kind in ("csv", "junit", "markdown"):
        texts[kind] = upskill("export", run, "--format", kind, "-o", "-").out
    assert upskill("export", run, "--format", "upskill-runs", "-o", "tree").code == 0
    documents = [json.loads(path.read_text()) for path in Path("tree").rglob("*.json")]
    texts["upskill-runs"] = json.dumps(documents, ensure_ascii=False)
    assert upskill("export", run, "--format", "svg", "-o", "pictures").code == 0
    for path in Path("pictures").glob("*.svg"):  # a paragraph is several lines of text
        texts[path.stem] = re.sub(r"</text><text[^>]*>", " ", path.read_text())
    return {
        name: " ".join(unescape(text).replace("\\", "").split()) for name, text in texts.items()
    }


def test_what_a_file_says_of_itself_is_its_claim(
    upskill: Upskill, skill: Path, cassette: Path, home: Path
) -> None:
    head, *rest = lines_of(cassette)
    forged = {**head, "models": [{**head["models"][0], "name": "gpt-9"}], "created": "long ago"}
    os.utime(write_lines(home / "forged.gz", [forged, *rest]), (0, 0))
    done = upskill("eval", skill, "--replay", "forged.gz")
    shown = " ".join(done.out.split())
    assert "Recorded answers, replayed from forged.gz (sha256 " in shown
    assert "…, file of 1970-01-01): no model was asked." in shown


async def test_a_plan_that_does_not_say_that_it_is_played_is_not(
    skill: Path, cassette: Path
) -> None:
    plan, file = make_plan(Skill.load(skill), None, ["scripted:student.json"]), Cassette(cassette)
    with open_store(None) as store:
        for asked, models in (
            (plan, Models(replies=store, cassette=file)),
            (plan_from(plan, file), Models(replies=store)),
            (plan_from(plan, file), Models(cassette=file)),
        ):
            with pytest.raises(UsageError, match="use different replies files"):
                await evaluate(asked, store=store, models=models)
        played = await evaluate(
            plan_from(plan, file), store=store, models=Models(replies=store, cassette=file)
        )
    assert played.run.plan.replayed.startswith("replayed from replies.gz (sha256 ")
    file.close()


def test_two_replies_to_one_request_are_refused(
    upskill: Upskill, skill: Path, cassette: Path, home: Path
) -> None:
    lines = lines_of(cassette)
    number = next(number for number, line in enumerate(lines) if "reply" in line)
    again = {"reply": {**lines[number]["reply"], "text": "ahoy, friend, and welcome"}}
    end = {"end": {**lines[-1]["end"], "replies": lines[-1]["end"]["replies"] + 1}}
    write_lines(home / "two.gz", [*lines[:-1], again, end])
    done = upskill("eval", skill, "--replay", "two.gz")
    assert done.code == 2
    where = (
        f"line {len(lines)} is invalid",
        f"line {number + 1} has a different reply to the same request",
    )
    assert all(words in done.err for words in where), done.err
    # The same reply twice is how two cases that ask the same are recorded.
    write_lines(home / "same.gz", [*lines[:-1], lines[number], end])
    assert upskill("eval", skill, "--replay", "same.gz").code == 0


def test_playing_what_was_seen_gives_the_same_numbers(
    upskill: Upskill, skill: Path, cassette: Path
) -> None:
    live = upskill("eval", skill, "-m", "scripted:student.json", "--json").json
    for more in ((), ("--no-log-runs",)):
        played = upskill("eval", skill, "--replay", cassette, "--json", *more).json
        assert unmarked(played) == unmarked(live)


def test_checks_are_run_anew_and_a_live_run_never_takes_what_was_played(
    upskill: Upskill, skill: Path, cassette: Path
) -> None:
    strict = greetings(4) | {"checks": [{"contains": "ahoy"}, {"contains": "my friend"}]}
    Path("strict.json").write_text(json.dumps(strict))
    played = upskill("eval", skill, "--replay", cassette, "--tests", "strict.json", "--json")
    assert played.json["models"][0]["skill"]["passed"] == 0
    # The student is asked itself where a plan was only played so far.
    Path("student.json").write_text(json.dumps([{"answer": "ahoy, my friend"}]))
    live = upskill(
        "eval",
        skill,
        "-m",
        "scripted:student.json",
        "--tests",
        "strict.json",
        "--json",
    )
    assert live.json["models"][0]["skill"]["passed"] == 4
    assert (
        "this run is itself a replay"
        in upskill("export", played.json["run"], "--replies", "again.gz").err
    )
    assert (
        upskill("eval", "--replay", skill, "-m", "scripted:student.json").code == 0
    )  # from the store


def test_what_is_not_recorded_is_an_error_that_says_what_changed(
    upskill: Upskill, skill: Path, cassette: Path
) -> None:
    def play(*more: object) -> Done:
        return upskill("eval", skill, "--replay", cassette, *more)

    def errors(*more: object) -> str:
        done = play("--json", *more)
        return " | ".join(error["message"] for error in done.json["errors"])

    assert play("--set", "temperature=0.1").code == 3, "nothing of it is recorded"
    assert "the temperature changed from None to 0.1" in errors("--set", "temperature=0.1")
    assert "the output limit changed from 4096 to 7" in errors("--set", "max_output_tokens=7")
    assert "case 'greet-1', placebo" in errors("--controls")
    suite = greetings(5)
    suite["cases"][1]["prompt"] = "Please greet the second guest."
    Path("changed.json").write_text(json.dumps(suite))
    said = errors("--tests", "changed.json")
    assert "no reply for case 'greet-5', skill, seed 0 (it has no reply for that case)" in said
    assert "case 'greet-2', baseline: since" in said
    assert "the case has changed: its prompt, its files or its output limit" in said
    assert "greet-3" not in said
    write_skill(skill, body="# Greeting\n\nSay ahoy, always.\n")
    said = errors()
    assert "case 'greet-1', skill: since" in said
    assert "the skill greeting has changed" in said
    assert "baseline" not in said
    Path("other.json").write_text(
        json.dumps(
            {"cases": [{**suite["cases"][0], "id": "else"}], "checks": [{"contains": "ahoy"}]}
        )
    )
    for more, words in (
        (("--tests", "other.json"), "none of the recorded cases are in other.json"),
        (("-m", "scripted:other.json"), "no replies from scripted:other.json"),
        (("--judge", "sonnet", "-m", "scripted:student.json"), "no replies from sonnet"),
        (("--batch",), "--batch and --replay cannot be used together"),
    ):
        done = play(*more)
        assert (done.code, words in done.err) == (2, True), done.err


def test_errors_and_half_a_run_are_recorded_as_they_are(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    rules = [
        {"when": "guest 3", "error": "the server is on fire"},
        {"answer": "ahoy \ud83d and \x00\x1b[2J"},
    ]
    student = write_script(home / "student.json", rules)
    live = upskill("eval", skill, "-m", student, "--json")
    assert [live.json["models"][0][arm]["missing"] for arm in ("baseline", "skill")] == [1, 1]
    done = upskill("export", "last", "--replies", "replies.gz")
    assert "Wrote 6 replies for 8 trials to replies.gz" in done.err
    played = elsewhere(
        home.parent / "other", "eval", skill, "--replay", home / "replies.gz", "--json"
    )
    assert unmarked(played.json) == unmarked(live.json)
    half = upskill("eval", skill, "-m", student, "--store", "half", "--set", "max_calls=4")
    assert "Stopped" in half.out
    assert upskill("export", "last", "--replies", "half.gz", "--store", "half").code == 0
    assert len([line for line in lines_of(home / "half.gz") if "trial" in line]) == 4


def test_secrets_are_taken_out_and_everybody_is_told(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    answer = f"ahoy; aws_access_key_id = {KEY}"
    rules = [{"when": "guest 2", "answer": answer}, {"answer": "ahoy"}]
    student = write_script(home / "student.json", rules)
    upskill("eval", skill, "-m", student)
    done = upskill("export", "last", "--replies", "replies.gz")
    assert "in answers to 1 case (greet-2). On replay, these graded answers differ" in done.err
    assert KEY not in gzip.decompress((home / "replies.gz").read_bytes()).decode()
    played = upskill("eval", skill, "--replay", "replies.gz", "--json").json
    assert [
        line for line in played["warnings"] if "secrets were removed" in line and "greet-2" in line
    ]
    assert played["models"][0]["skill"]["passed"] == 4


def test_replies_that_are_not_stored_are_missed_before_anything_is_written(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    student = write_script(home / "student.json")
    upskill("eval", skill, "-m", student, "--set", "cache=false")
    done = upskill("export", "last", "--replies", "replies.gz")
    assert (done.code, "no stored replies found for 8 trials" in done.err) == (2, True)
    assert "Runs with cache=false keep no replies." in done.err
    assert not (home / "replies.gz").exists()
    upskill("eval", skill, "-m", student, "--store", "other")
    assert upskill("export", "last", "--replies", "replies.gz", "--store", "other").code == 0


def test_damaged_and_hostile_files_are_refused(
    upskill: Upskill, skill: Path, cassette: Path, home: Path
) -> None:
    lines, packed = lines_of(cassette), cassette.read_bytes()
    bad = home / "bad.gz"

    def refused(words: str) -> None:
        done = upskill("eval", skill, "--replay", bad)
        assert (done.code, words in done.err) == (2, True), done.err
        assert "Traceback" not in done.err

    for data, words in (
        (b"", "the first line"),
        (b"no gzip at all", "damaged or cut off"),
        (packed[:-200], "damaged or cut off"),
        (packed[:300] + b"\x00" + packed[301:], "cannot be read as a replies file"),
        (gzip.compress(b"{}\n"), "the first line"),
        (gzip.compress(b"\xff\xfe\n"), "cannot be read as a replies file"),
        (gzip.compress(b"[" * 100_000), "cannot be read as a replies file"),
        (gzip.compress(b" " * 70_000_000), "a line is too long"),
    ):
        bad.write_bytes(data)
        refused(words)
    bad.unlink()
    os.mkfifo(bad)
    refused(": a FIFO")
    bad.unlink()
    number = next(number for number, line in enumerate(lines) if "reply" in line)
    reply: Mapping[str, Any] = lines[number]["reply"]
    head = lines[0]
    changes: list[tuple[int, dict[str, Any], str]] = [
        (0, {**head, "version": 9}, "format version 9 is not supported"),
        (0, {**head, "models": []}, "there is no model 0"),
        (0, {**head, "judge": 7}, "cannot be read as a replies file"),
        (0, {**head, "judge": -1}, "there is no model -1"),
        (0, {**head, "students": 9}, "there is no model 8"),
        (0, {**head, "runs": 10**15}, "out of range"),
        (0, {**head, "max_output_tokens": -1}, "out of range"),
        (
            0,
            {**head, "models": [{**head["models"][0], "name": "one\nline"}]},
            "is not a model name",
        ),
        (0, {**head, "models": [{**head["models"][0], "name": ""}]}, "is not a model name"),
        (0, {**head, "bounds": 3}, "cannot be read as a replies file"),
        (0, {**head, "temperature": "hot"}, "is not a number in range"),
        (number, {"reply": {**reply, "text": 5}}, "is not a string"),
        (number, {"reply": {**reply, "by": 9}}, "there is no model 9"),
        (number, {"reply": {**reply, "usage": {"input_tokens": -1}}}, "is out of range"),
        (
            number,
            {"reply": {**reply, "usage": {"cost_usd": float("nan")}}},
            "NaN is not a JSON value",
        ),
        (number, {"reply": {**reply, "usage": {"cost_usd": 1e300}}}, "is not a number in range"),
        (number, {"reply": {**reply, "usage": {"output_tokens": 2**62}}}, "is out of range"),
        (number, {"reply": {**reply, "stop": "never"}}, "not a stop reason"),
        (number, {"reply": {**reply, "calls": [{"id": 1}]}}, "is not a string"),
        (number, {"reply": {**reply, "seconds": 10**400}}, "cannot be read as a replies file"),
        (number, {"what": 1}, "neither a trial nor a reply"),
        (1, lines[4], "is invalid"),
        (len(lines) - 1, {"end": {"trials": 3, "replies": 8}}, "expected 3 trials, found 8"),
    ]
    for place, change, words in changes:
        write_lines(bad, [*lines[:place], change, *lines[place + 1 :]])
        refused(words)
    write_lines(bad, lines[:-1])
    refused("the last line is missing")
    write_lines(bad, [*lines, lines[1]])
    refused("data after the last line")


def test_commands_of_an_agent_are_run_again_and_its_replies_are_found(
    upskill: Upskill, home: Path
) -> None:
    case = {
        "id": "write",
        "prompt": "Write the greeting into a file.",
        "checks": [{"command": "grep -q ahoy hello.txt"}],
    }
    suite = {
        "cases": [
            case,
            {**case, "id": "again", "prompt": "Write the greeting into a file, please."},
        ]
    }
    skill = write_skill(home / "skills" / "greeting", suite=suite)
    student = write_script(home / "student.json", ACTS)
    live = upskill(
        *("eval", skill, "-m", student, "--agent", "tools", "--repeats", 1),
        *("--set", "max_turns=7", "--json"),
    )
    assert live.code == 0, live.err
    assert live.json["models"][0]["activation"]["trials"] == 2
    upskill("export", "last", "--replies", "replies.gz")
    other = home.parent / "other"
    shutil.copytree(skill, other / "greeting")
    played = elsewhere(other, "eval", "greeting", "--replay", home / "replies.gz", "--json")
    assert played.code == 0, played.err
    assert unmarked(played.json) == unmarked(live.json)


ACTS: list[dict[str, Any]] = [
    {
        "system": "greeting",
        "turns": [
            {"calls": [{"name": "activate_skill", "arguments": {"name": "greeting"}}]},
            {
                "calls": [
                    {
                        "name": "bash",
                        "arguments": {"command": "echo ahoy, friend > hello.txt; cat hello.txt"},
                    }
                ]
            },
            "It is written.",
        ],
    },
    {
        "turns": [
            {"calls": [{"name": "bash", "arguments": {"command": "echo hello > hello.txt"}}]},
            "Done.",
        ]
    },
]


def test_answers_that_could_not_be_graded_are_recorded_and_graded_elsewhere(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    student, judge = (
        write_script(home / "student.json"),
        write_script(home / "judge.json", [{"error": "on strike"}]),
    )
    Path("judged.json").write_text(
        json.dumps(greetings(4) | {"checks": [{"judge": "it says ahoy"}]})
    )
    command = ("eval", skill, "-m", student, "--tests", "judged.json", "--judge", judge)
    for _ in range(2):  # what has no grade stays missing
        assert upskill(*command).code == 3
    done = upskill("export", "last", "--replies", "replies.gz")
    assert "Wrote 8 replies for 8 trials" in done.err
    played = elsewhere(
        home.parent / "other", "eval", skill, "--replay", home / "replies.gz", "--json"
    )
    assert (played.json["models"][0]["skill"]["passed"], played.json["errors"]) == (4, [])
