"""What is shown of agents that act: whether they opened the skill, what they did, and that the arms were isolated."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import signal
import time
import xml.etree.ElementTree as ET
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from rich.console import Console

from conftest import REPOSITORY, Done, Upskill, start, write_script, write_skill
from upskill.agents import toolbox
from upskill.reports import terminal
from upskill.reports.evaluated import report_evaluation
from upskill.runs.planning.plan import make_plan
from upskill.runs.running.evaluate import evaluate_now
from upskill.skills import Skill

SCHEMA: dict[str, Any] = json.loads(
    (REPOSITORY / "docs" / "eval.schema.json").read_text(encoding="utf-8")
)
OPEN = {"name": "activate_skill", "arguments": {"name": "greeter"}}
# With the skill on offer, guests 1 to 4 have it opened and are greeted as it says; guests 5 and 6 do not.
ACTING: list[dict[str, Any]] = [
    {
        "match": r"guest [1-4]\.",
        "system": "greeter",
        "turns": [
            {"calls": [OPEN]},
            {
                "text": "I write it down.",
                "calls": [
                    {
                        "name": "write_file",
                        "arguments": {"path": "hello.txt", "content": "one\ntwo\nthree\n"},
                    },
                    {
                        "name": "bash",
                        "arguments": {"command": "printf '\\033[31mahoy\\033[0m'; ls /nowhere"},
                    },
                ],
            },
            "ahoy, friend",
        ],
    },
    {
        "turns": [
            {"calls": [{"name": "bash", "arguments": {"command": "seq 100"}}]},
            "hello, friend",
        ]
    },
]
# In the baseline arm, guest 2 is greeted by one who looks for the skill where it would be.
LEAKY: list[dict[str, Any]] = [
    {
        "when": "guest 2.",
        "not_system": "greeter",
        "turns": [
            {
                "calls": [
                    {
                        "name": "bash",
                        "arguments": {"command": "cat ~/.agents/skills/greeter/SKILL.md"},
                    }
                ]
            },
            "hello, friend",
        ],
    },
    *ACTING,
]


@pytest.fixture
def skill(home: Path) -> Path:
    write_script(home / "acting.json", ACTING)
    write_script(home / "leaky.json", LEAKY)
    return write_skill(home / "greeter", cases=6)


def run(upskill: Upskill, skill: Path, *more: object, model: str = "acting") -> Done:
    return upskill(
        "eval", skill, "-m", f"scripted:{model}.json", "--agent", "tools", "--repeats", 1, *more
    )


def unwrapped(text: str) -> str:
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


# What was opened.


def test_every_report_splits_the_lift_into_offered_and_opened(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    done = run(upskill, skill, "-v", "--report", "markdown=report.md")
    said = unwrapped(done.out)
    assert done.code == 0
    # Each of 6 trials has one call and two turns in the baseline; with the skill 4 have three of both.
    assert "Turns 2.0 → 2.7 Tool calls 1.0 → 2.3 Tool errors 0% → 29%" in said
    assert (
        "Go by the lift offered: the trials that activate the skill are not a random sample."
        in said
    )
    text = (home / "report.md").read_text(encoding="utf-8")
    activity = "67% (22% to 96%) | +100 | 0 | 2.0 → 2.7 | 1.0 → 2.3 | 0% → 29%"
    assert f"scripted:acting.json | {activity}" in text
    assert "not a random sample" in text
    (row,) = csv.DictReader(io.StringIO(upskill("runs", "--csv", "-").out))
    assert (row["activated"][:4], row["baseline_turns"], row["skill_turns"][:4]) == (
        "0.66",
        "2.0",
        "2.66",
    )
    assert (row["baseline_calls"], row["baseline_tool_errors"], row["skill_tool_errors"][:4]) == (
        "1.0",
        "0.0",
        "0.28",
    )
    shown = upskill("show", "last").out
    assert "did not open the skill · 1 tool call 1 ✓ bash seq 100 hello, friend ✗" in unwrapped(
        shown
    )
    assert re.search(
        r"1 ✓ activate_skill greeter\n +3 ✓ write_file path: hello\.txt content: one two three\n",
        shown,
    )
    as_json = run(upskill, skill, "--json").json
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(as_json)] == []
    (model,) = as_json["models"]
    activation = model["activation"]
    assert (activation["trials"], activation["activated"], activation["rate"]) == (
        6,
        4,
        pytest.approx(4 / 6, abs=1e-6),
    )
    activated, not_activated = activation["lift"].values()
    assert (
        activated["pairs"],
        activated["lift"],
        not_activated["pairs"],
        not_activated["lift"],
    ) == (4, 1.0, 2, 0.0)
    assert model["turns"] == {"baseline": 2.0, "skill": pytest.approx(16 / 6, abs=1e-6)}
    assert model["tool_calls"] == {"baseline": 1.0, "skill": pytest.approx(14 / 6, abs=1e-6)}
    assert model["tool_errors"] == {"baseline": 0.0, "skill": pytest.approx(4 / 14, abs=1e-6)}
    assert as_json["invalid"] == []


def test_a_chat_has_nothing_to_open(upskill: Upskill, skill: Path) -> None:
    write_script(skill.parent / "chat.json", [{"answer": "hello"}])
    (model,) = upskill("eval", skill, "-m", "scripted:chat.json", "--json").json["models"]
    assert (model["activation"], model["tool_errors"]) == (None, {"baseline": None, "skill": None})
    assert model["turns"] == {"baseline": 1.0, "skill": 1.0}
    assert "activated" not in upskill("eval", skill, "-m", "scripted:chat.json").out


def test_without_a_baseline_it_still_says_what_was_opened(upskill: Upskill, skill: Path) -> None:
    done = run(upskill, skill, "--no-baseline", "-v")
    assert "scripted:acting.json 67% (22% to 96%) – – 2.7 2.3 29%" in unwrapped(done.out)


# The arms were not isolated.


def test_a_baseline_that_reaches_for_the_skill_makes_the_run_invalid_and_says_so_loudly(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    done = run(
        upskill,
        skill,
        *("-m", "scripted:leaky.json", "--require", "decision!=hurts"),
        *("--report", "markdown=report.md", "--report", "junit=report.xml"),
    )
    assert done.code == 3
    said = unwrapped(done.out)
    assert "INVALID: a trial saw a skill that was hidden from it" in said
    assert (
        "1 trial saw or tried to open a skill that should have been hidden: greet-2, baseline, scripted:leaky.json"
        in said
    )
    assert "uses the skill's folder" in said
    assert re.search(
        r"See how with `upskill show greeter-[0-9a-f]{8} --case greet-2`.* --redraw\.", said
    )
    # Of both models: the wall that did not stand for one stood for none.
    assert not re.search(r"helps|Use it:|activated|undecided|More evidence", said)
    assert done.err.count("INVALID") == 1
    assert said.count("does not meet 'decision!=hurts': a trial saw a skill") == 2
    text = (home / "report.md").read_text(encoding="utf-8")
    assert text.index("🔴 INVALID: a trial saw a skill") < text.index("| Model |")
    assert text.count("| ✗ INVALID | – |") == 2
    assert "Lift activated" not in text
    root = ET.parse(home / "report.xml").getroot()
    for suite in root:
        first = next(suite.iter("testcase"))
        assert (first.get("classname"), first[0].tag, suite.get("errors")) == (
            "isolation",
            "error",
            "1",
        )
        assert "greet-2, baseline" in (first[0].get("message") or "")
    # The JSON decides nothing.
    decided = ("--set", "target_pass_rate=50", "--require", "decision=undecided")
    done = run(upskill, skill, "-m", "scripted:leaky.json", "--json", *decided)
    assert done.code == 3
    assert done.err.startswith("INVALID: ")
    said = done.json
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(said)] == []
    (leak,) = said["invalid"]
    reason = leak.pop("reason")
    assert leak == {"model": "scripted:leaky.json", "case": "greet-2", "arm": "baseline", "seed": 0}
    assert "step 1 uses the skill's folder" in reason
    assert {(model["decision"], model["reason"]) for model in said["models"]} == {
        ("undecided", "isolation")
    }
    assert [row["held"] for row in said["requirements"]] == [False, False]
    assert said["choices"] == {"pareto": [], "target": 0.5, "cheapest": None}


def test_runs_and_show_say_that_a_run_is_invalid(upskill: Upskill, skill: Path, home: Path) -> None:
    assert run(upskill, skill, model="leaky").code == 3
    assert "✗ INVALID" in upskill("runs").out
    done = upskill("show", "last", "--case", "greet-2")
    assert done.code == 0
    said = unwrapped(done.out)
    assert "1 trial saw or tried to open a skill that should have been hidden" in said
    assert "INVALID: step 1 uses the skill's folder" in said
    shown = upskill("show", "last", "--json", "--case", "greet-1").json
    assert [(row["case"], row["arm"]) for row in shown["invalid"]] == [("greet-2", "baseline")]
    (row,) = csv.DictReader(io.StringIO(upskill("runs", "--csv", "-").out))
    assert (row["decision"], row["reason"]) == ("undecided", "isolation")
    write_script(home / "other.json", [{"answer": "hello"}])
    upskill("eval", write_skill(home / "sailor"), "-m", "scripted:other.json")
    assert re.search(r"greeter .* INVALID", upskill("runs").out)


def test_nothing_more_is_run_once_a_run_is_invalid(upskill: Upskill, skill: Path) -> None:
    done = run(
        upskill,
        skill,
        "-m",
        "scripted:acting.json",
        "--until-decided",
        "--repeats",
        4,
        model="leaky",
    )
    assert done.code == 3
    assert "stopped after 1 round" in unwrapped(done.out)


def test_many_leaks_are_counted_and_the_first_are_named(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    write_script(
        home / "leaky.json",
        [{key: value for key, value in LEAKY[0].items() if key != "when"}, *ACTING],
    )
    said = unwrapped(run(upskill, skill, model="leaky").out)
    assert "6 trials saw or tried to open a skill that should have been hidden:" in said
    assert "greet-3, baseline" in said
    assert "greet-4" not in said
    assert "… and 3 more" in said


# Where it was run, and what was done there.


def test_a_run_without_protection_is_warned_of_before_the_first_call(
    upskill: Upskill, skill: Path
) -> None:
    done = run(upskill, skill, "--sandbox", "none", "--set", "max_calls=0")
    assert "Warning: --sandbox none: commands can read, change and send" in done.err
    assert "the limit of 0 calls was reached" in done.out
    assert (
        "Note: --sandbox none"
        in run(upskill, skill, "--sandbox", "none", "--set", "max_calls=0", "-v").out
    )
    done = run(upskill, skill, "--sandbox", "none", "--json")
    assert done.err.startswith("Warning: --sandbox none: ")
    assert any(said.startswith("--sandbox none: ") for said in done.json["warnings"])
    assert "Sandbox: none (no protection): NOTHING was blocked" in upskill("show", "last").out


def test_a_baseline_that_finds_the_skill_where_nothing_is_hidden_makes_the_run_invalid(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    search = {"command": f"find {home} -name SKILL.md -exec cat {{}} +; find {home} -name SKILL.md"}
    turns = [{"calls": [{"name": "bash", "arguments": search}]}, "hello, friend"]
    write_script(home / "searching.json", [{"turns": turns}])
    done = run(upskill, skill, "--sandbox", "none", model="searching")
    assert done.code == 3
    assert "should have been hidden" in unwrapped(done.out)


@pytest.mark.parametrize(("seconds", "shown"), [(0.01, ""), (12.34, " 12.3 s")])
def test_show_tells_where_agents_acted_and_every_step_of_a_case(
    upskill: Upskill, skill: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, shown: str
) -> None:
    """Also how long a step took, if that was long."""
    clock = itertools.count(step=seconds)
    monkeypatch.setattr(toolbox, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    run(upskill, skill, "--concurrency", 1)
    done = upskill("show", "last", "--case", "greet-1")
    assert done.code == 0
    said = unwrapped(done.out)
    assert "Agent: tools " in said
    assert re.search("Sandbox: .* self-test passed: system is read-only, home is hidden", said)
    assert "opened the skill · 3 tool calls, 1 error" in said
    assert f"1 ✓ activate_skill greeter{shown} → <skill_content" in said
    assert "2 I write it down." in said
    assert f"3 ✓ write_file{shown} path: hello.txt content: one two three → " in said
    assert f"4 ✗ bash printf '\\033[31mahoy\\033[0m'; ls /nowhere{shown} → " in said
    assert "5 ahoy, friend" in said
    assert done.out.count("ahoy, friend") == 1
    # What a student wrote must not speak to the terminal.
    assert "\x1b" not in done.out
    assert r"→ \x1b[31mahoy\x1b[0m" in said
    # A long output is cut, and says so.
    assert "20 … 80 more lines; --json has them all" in said


def test_show_says_which_bound_ended_the_work(upskill: Upskill, skill: Path) -> None:
    run(upskill, skill, "--set", "max_turns=1")
    assert "stopped at its limit on turns" in unwrapped(
        upskill("show", "last", "--case", "greet-1").out
    )


# Room, and the older skill.


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_table_keeps_model_and_pass_rates_at_any_width(home: Path, width: int) -> None:
    plan = make_plan(
        Skill.load(write_skill(home / "greeter")),
        models=[write_script(home / "acting.json", ACTING)],
    )
    out = io.StringIO()
    console = Console(file=out, width=width)
    console.print(terminal.render(report_evaluation(evaluate_now(plan))))
    shown = out.getvalue()
    said = " ".join(shown.split())
    for part in ("undecided on these 4 cases:", "scripted:acting.json", "0% (0/4) → 0% (0/4)"):
        assert part in said
    assert ("Model   " in shown) == (width >= 120), "else a line for each cell"
    assert max(map(len, shown.splitlines())) <= width


def test_against_a_reference_skill_the_tables_speak_of_it(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    older = write_skill(home / "older" / "greeter", body="Greet with ahoy.\n")
    done = run(
        upskill,
        skill,
        "--against",
        older,
        "--set",
        "target_pass_rate=50",
        "--report",
        "markdown=report.md",
    )
    assert "Cheapest that reaches 50%: scripted:acting.json (reference skill)" in unwrapped(
        done.out
    )
    done = run(upskill, skill, "--against", older, "--set", "target_pass_rate=50", "-v")
    said = unwrapped(done.out)
    assert "67% (4/6) → 67% (4/6)" in said
    assert "Arrows: reference skill → this skill." in said
    assert "Cheapest that reaches 50%: scripted:acting.json (reference skill)" in said
    assert "with reference skill 4 of 6." in (home / "report.md").read_text(encoding="utf-8")
    assert "reference skill · seed 0" in upskill("show", "last").out
    assert "The baseline is another version of the skill." in said
    assert not re.search(r"baseline|without it", said.replace("The baseline is another", ""))


def test_students_that_only_answer_are_warned_of_cases_that_want_something_done(
    upskill: Upskill, home: Path
) -> None:
    cases = [
        {"id": "file", "prompt": "Write a.txt.", "checks": [{"file_exists": "a.txt"}]},
        {"id": "tool", "prompt": "List the files.", "checks": [{"tool_called": "bash"}]},
        {"id": "said", "prompt": "Say ahoy!", "checks": [{"contains": "AHOY"}, {"max_turns": 3}]},
        {
            "id": "code",
            "prompt": "C, please.",
            "checks": [{"extract": {"to": "a.c"}}, {"file_exists": "a.c"}],
        },
    ]
    write_script(home / "model.json", [{"answer": "```\nAHOY\n```"}])
    skill = write_skill(home / "greeter", suite={"cases": cases})
    done = upskill("eval", skill, "-m", "scripted:model.json", "--store", "there", "-v")
    said = "checks on what the student did in 2 cases (file, tool), but --agent chat only answers"
    assert f"Warning: {said}" in done.err
    assert f"Note: {said}" in unwrapped(done.out)
    assert re.search(r"Read every answer: upskill show greeter-\w+ --store there", done.out)
    write_script(home / "acts.json", [{"answer": "AHOY"}])
    acting = upskill("eval", skill, "-m", "scripted:acts.json", "--agent", "tools")
    assert "only answers" not in acting.err + acting.out


def test_ctrl_c_in_a_terminal_ends_sandboxes_too_without_complaint(home: Path) -> None:
    mark = f"88.{os.getpid()}"
    waits = {"calls": [{"name": "bash", "arguments": {"command": f"sleep {mark}"}}]}
    write_script(home / "waits.json", [{"turns": [waits, "ahoy"]}])
    skill = write_skill(home / "greeter", cases=4)
    with start(
        "eval", skill, "-m", "scripted:waits.json", "--agent", "tools", start_new_session=True
    ) as process:
        while len(_sleeping(mark)) < 4:
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, "")
    assert "Every finished trial is stored. Run the same command again to continue." in err
    assert not re.search("Traceback|exception", err)
    assert _sleeping(mark) == []


def _sleeping(mark: str) -> list[Path]:
    found: list[Path] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", mark.encode()]:
                found.append(path)
    return found
