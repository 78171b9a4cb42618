"""Quotations of traces: commands that worked or failed and what the person said, each in the step that it cites."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY
from upskill.authoring.evidence.commands import (
    command_key,
    error_line,
    only_looks,
    outcome_of,
    shell_command,
    step_failed,
)
from upskill.authoring.evidence.quotations import FailedCommand, Quotation, quote_trace
from upskill.authoring.material.material import gather
from upskill.plain import as_list, as_mapping
from upskill.traces import Status, Step, Trace
from upskill.traces.formats import read_trace
from upskill.traces.redaction.redact import redact_trace

FIXTURES = REPOSITORY / "tests" / "fixtures"
TARN = FIXTURES / "traces" / "claude_code" / "tarn.jsonl"
SILENT = (  # no command but such as look around
    *(
        "traces/gemini/contents.json",
        "traces/claude_ai/conversations.json",
        "traces/messages/anthropic.json",
    ),
    "traces/chatgpt/conversations.json",
    *("traces/copilot/events.jsonl", "traces/messages/lines.jsonl"),
    *("traces/swe_agent/bell-calls.traj", "traces/swe_agent/demonstration.traj"),
    "traces/chatgpt/outputs-without-text.json",
    "traces/claude_code/sidechain.jsonl",
    "traces/codex/of-2025.jsonl",
    "traces/markdown/pasted-terminal.txt",
    "traces/messages/responses-and-vercel.json",
    "traces/specstory/code-blocks.md",
)
SESSIONS = [
    path
    for folder in ("evidence", "traces")
    for path in sorted((FIXTURES / folder).glob("*/*"))
    if path.is_file() and str(path.relative_to(FIXTURES)) not in SILENT
]


def ran(command: str, output: str = "", status: Status = "ok", **more: Any) -> Step:
    return Step(
        "tool", tool="Bash", arguments={"command": command, **more}, output=output, status=status
    )


def wrote(path: str, content: str) -> Step:
    return Step(
        "tool", tool="Write", arguments={"file_path": path, "content": content}, status="ok"
    )


def failed(command: str, output: str) -> Step:
    return ran(command, output, "error")


def strings(value: object) -> Iterator[str]:
    if (items := as_list(value)) is not None:
        yield shlex.join(map(str, items))
        for item in items:
            yield from strings(item)
    elif (fields := as_mapping(value)) is not None:
        for item in fields.values():
            yield from strings(item)
    else:
        yield str(value)


def text_of(step: Step) -> str:
    return "\n".join([step.text, *strings(step.arguments)])


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: f"{path.parent.name}-{path.stem[:20]}")
def test_every_quotation_is_in_the_step_that_it_cites(path: Path) -> None:
    trace = redact_trace(read_trace(path)).trace
    found = quote_trace(trace)
    behind = [quote for each in found.failed for quote in (each.command, each.success) if quote]
    quotes = [*found.messages, *found.worked, *behind]
    assert quotes
    for quote in quotes:
        assert quote.text in text_of(trace.steps[quote.step - 1])
    for each in found.failed:
        output = trace.steps[each.command.step - 1].output
        assert all(line in output for line in each.error.splitlines())


def test_a_session_is_quoted_in_its_order() -> None:
    found = quote_trace(read_trace(TARN))
    assert [quote.text for quote in found.worked][:3] == [
        *("tarn open --depot south", "tarn weigh --unit stone", "tarn seal --wax red"),
    ]
    assert [quote.step for quote in found.messages] == [17, 43]
    assert found.messages[0].text.startswith("No, use the south depot, not the north one.")
    by_error = {failure.error: failure for failure in found.failed}
    unready = by_error["tarn: send: the crates were not checked; run check first"]
    assert unready == FailedCommand(
        Quotation("tarn send --window noon", 37),
        unready.error,
        Quotation("tarn send --window dawn", 41),
        (
            Quotation("tarn check --level quick", 38),
            Quotation("tarn check --level strict", 39),
            Quotation("tarn send --window noon", 40),
        ),
    )


def test_a_later_success_is_shown_beside_a_failure_and_called_no_cure() -> None:
    """The window that came next failed too, and the one that worked skips the check."""
    steps = (
        Step("user", "Release it."),
        failed("gate open", "gate: window closed"),
        wrote("/srv/gate.toml", "window = 45"),
        Step(
            "tool",
            tool="edit",
            arguments={"input": "*** Begin Patch\n*** Update File: a.py\n*** End Patch"},
        ),
        failed("gate open --window 45m", "gate: window closed"),
        ran("ls -l && cat a | head -3"),
        ran("gate status"),
        ran("gate open --force"),
        ran("gate open --window 9h"),
        ran("gate open --window 9h"),
    )
    found = quote_trace(Trace(steps))
    assert [(each.command.text, each.error) for each in found.failed] == [
        ("gate open", "gate: window closed"),
        ("gate open --window 45m", "gate: window closed"),
    ]
    assert [quote.text for quote in found.failed[0].between] == [
        *("/srv/gate.toml", "*** Update File: a.py", "gate open --window 45m", "gate status"),
    ]
    assert [quote.text for quote in found.failed[1].between] == ["gate status"]
    assert {each.success.text for each in found.failed if each.success} == {"gate open --force"}
    assert [quote.text for quote in found.worked] == [
        *("gate status", "gate open --force", "gate open --window 9h"),
    ]


def test_what_programs_write_is_not_what_the_person_said() -> None:
    steps = (
        Step("user", "Go."),
        Step("user", "<system-reminder>be good</system-reminder>"),
        Step("user", "[Request interrupted by user]"),
        Step("user", "Do it.", agent="helper"),
        Step("user", "Use uv."),
    )
    assert [quote.text for quote in quote_trace(Trace(steps)).messages] == ["Use uv."]


def test_a_teacher_gets_the_same_quotations_and_no_guess() -> None:
    pieces = [
        piece for piece in gather("Ship it.", sources=[TARN]).pieces if piece.kind == "quotation"
    ]
    assert pieces[0].text.startswith('{"failed": ')
    assert '"the next run of the same command that succeeded": "tarn seal --wax red"' in "".join(
        piece.text for piece in pieces
    )
    assert not any("guess" in piece.text for piece in pieces)


# Commands.


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("tarn open --depot south", "tarn open"),
        ("cd /srv && FOO=1 sudo tarn open | tail -3", "tarn open"),
        ("uv run pytest -q tests", "uv run pytest tests"),
        ("uv run tarn open --depot south", "uv run tarn open"),
        ("npx --yes tarn open-depot south --wax=red", "npx tarn open-depot"),
        ("npx tarn --version", "npx tarn"),
        ("python3 -m tarn open south", "python3 -m tarn open"),
        ("/usr/bin/python -m build", "python -m build"),
        ("python tools/a.py --x", "python"),
        ("python a.py --x", "python a.py"),
        ("pytest -q", "pytest"),
        ("docker compose up -d", "docker compose up"),
        ("git add . && git commit -m 'a; b'", "git add ; git commit"),
        ("cd /srv", "cd /srv"),
        ("echo 'never closed", "echo 'never closed"),
        ("cat <<E\nx\nE", "cat <<E\nx\nE"),
    ],
)
def test_two_runs_are_the_same_command_by_program_and_first_word(line: str, key: str) -> None:
    assert command_key(line) == key


def test_what_only_looks_around_is_known() -> None:
    assert all(
        map(
            only_looks,
            ("ls -l", "cd /srv && cat a | wc", "grep -rn 'a; b' .", "head -3 a; tail -3 a"),
        )
    )
    assert not any(
        map(only_looks, ("make", "cd /srv && make", "echo a > b", "cat 'a", "cat <<E\nx\nE"))
    )


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ({"command": "ls -l"}, "ls -l"),
        ({"command": ["bash", "-lc", "ls -l | wc"]}, "ls -l | wc"),
        ({"command": ["ls", "-l", "a b"]}, "ls -l 'a b'"),
        ({"cmd": "bash -c 'make all'"}, "make all"),
        ({"command": "view", "path": "/a"}, ""),
        ({"script": "make"}, "make"),
        ({"input": "make"}, "make"),
        ({"code": 7}, ""),
        ({}, ""),
    ],
)
def test_a_command_is_found_in_any_agents_call(arguments: dict[str, Any], command: str) -> None:
    assert shell_command(Step("tool", tool="run_shell", arguments=arguments)) == command
    assert shell_command(Step("assistant", arguments=arguments)) == ""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("compiling\nerror: no such flag\n1 error", "error: no such flag"),
        (
            "Traceback (most recent call last)\n  File a\nKeyError: 'x'\nExit code: 1",
            "KeyError: 'x'",
        ),
        ("nothing\nto see\n\nExit code 1", "to see"),
        ("", ""),
    ],
)
def test_the_line_that_says_what_was_wrong_is_found(output: str, line: str) -> None:
    assert error_line(output) == line


def test_the_excerpt_of_a_failure_has_what_it_says_went_wrong_and_not_the_end_of_its_help() -> None:
    usage = "".join(f"  tarn add {n}\n" for n in range(9))
    said = 'Error creating tag: "master" is a reserved name'
    for output, excerpt in (
        (f"Warning: old\n{said}\nUsage:\n{usage}", said),
        (f"Usage:\n{usage}", "\n".join(f"tarn add {n}" for n in range(4, 9))),
        (f"{usage}cannot add", "\n".join([*(f"tarn add {n}" for n in range(5, 9)), "cannot add"])),
    ):
        (failure,) = quote_trace(Trace((failed("tarn add", output),))).failed
        assert failure.error == excerpt


def test_a_line_that_always_ends_well_is_no_success() -> None:
    for line in (
        "tarn add dev 2>&1 || true",
        "tarn add dev; true",
        "tarn add dev || echo 'not added'",
    ):
        found = quote_trace(Trace((failed("tarn add", "error: no"), ran(line, "hm"))))
        assert (found.worked, found.failed[0].success) == ((), None), line


@pytest.mark.parametrize(
    "output",
    [
        "wget: bad address 'crane:80'",
        "HTTP/1.1 404\nDate: today",
        "<title>HTTP Status 404 – Not Found</title>",
    ],
)
def test_a_request_that_nobody_answered_did_not_work(output: str) -> None:
    assert (
        outcome_of(
            Step(
                "tool", tool="Bash", arguments={"command": "wget -qO- crane | head"}, output=output
            )
        )
        != "ok"
    )


def test_a_changed_file_whose_path_only_the_output_has_is_named() -> None:
    edit = Step(
        "tool",
        tool="Edit",
        output="The file /srv/a b.json has been updated. Here's the result:\n1 x",
        status="ok",
    )
    steps = (failed("tarn add", "error: no"), edit, ran("tarn add dev"))
    assert [quote.text for quote in quote_trace(Trace(steps)).failed[0].between] == [
        "/srv/a b.json"
    ]


def test_where_no_status_is_told_the_output_decides() -> None:
    assert step_failed(ran("make", "make: *** [all] Error 2\nerror: x", "unknown"))
    assert not step_failed(ran("make", "done, 0 errors", "unknown"))
    trace = Trace(
        (
            ran("make | tail -1", "2 failed"),  # the pipe hides the status
            failed("make", "The user doesn't want to proceed"),
            ran("make", "done"),
        )
    )
    found = quote_trace(trace)
    assert ([quote.step for quote in found.worked], found.failed) == ([3], ())
