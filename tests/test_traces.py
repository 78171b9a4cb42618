"""Traces: every format to one typed value, nothing lost on the way, and where sessions are found."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import REPOSITORY, Upskill
from upskill.errors import UsageError
from upskill.traces import FORMATS, Status, Step, StepKind, Trace, Usage
from upskill.traces.formats import detect_format, read_trace
from upskill.traces.readers import atif
from upskill.traces.sessions import find_sessions, find_trace

FIXTURES = REPOSITORY / "tests" / "fixtures" / "traces"
# file -> format, tool calls of which failed, user turns
EXPECTED: dict[str, tuple[str, int, int, int]] = {
    "claude_code/orchard.jsonl": ("claude-code", 6, 1, 2),
    "claude_code/orchard-stream.jsonl": ("claude-code", 5, 1, 0),
    "claude_code/helper.jsonl": ("claude-code", 4, 1, 1),
    "claude_code/tarn.jsonl": ("claude-code", 44, 23, 3),
    "codex/orchard.jsonl": ("codex", 6, 5, 2),
    "codex/fruit.jsonl": ("codex", 5, 1, 1),
    "codex/fruit-exec.jsonl": ("codex", 5, 1, 0),
    "opencode/orchard.json": ("opencode", 6, 1, 2),
    "opencode/year.json": ("opencode", 3, 1, 1),
    "opencode/year-run.jsonl": ("opencode", 3, 1, 0),
    "cursor/lighthouse.jsonl": ("cursor", 4, 0, 2),
    "cursor/lighthouse-stream.jsonl": ("cursor", 3, 1, 1),
    "gemini/tide-stream.jsonl": ("gemini", 3, 1, 1),
    "gemini/session-2026-03-02T10-00-7c1e.json": ("gemini", 2, 1, 2),
    "gemini/contents.json": ("gemini", 3, 1, 2),
    "copilot/events.jsonl": ("copilot", 4, 1, 1),
    "pi/2026-05-06T08-41-00-000Z_0c1d.jsonl": ("pi", 3, 1, 1),
    "qwen/9ac9.jsonl": ("qwen-code", 2, 1, 1),
    "claude_ai/conversations.json": ("claude-ai", 2, 1, 3),
    "aider/.aider.chat.history.md": ("aider", 4, 0, 2),
    "specstory/2026-01-16_16-26-02Z-which-lamp.md": ("specstory", 6, 1, 1),
    "otel/bridge.jsonl": ("otel", 2, 1, 1),
    "terminal/typescript": ("terminal", 5, 0, 0),
    "terminal/window.txt": ("terminal", 3, 0, 0),
    "swe_agent/bell.traj": ("swe-agent", 5, 0, 1),
    "swe_agent/bell-calls.traj": ("swe-agent", 3, 0, 1),
    "swe_agent/demonstration.traj": ("swe-agent", 3, 0, 1),
    "mini_swe_agent/kettle.traj.json": ("mini-swe-agent", 4, 1, 1),
    "mini_swe_agent/kettle-calls.traj.json": ("mini-swe-agent", 4, 1, 1),
    "openhands/output.jsonl": ("openhands", 3, 1, 1),
    "openhands/trajectory.json": ("openhands", 3, 1, 1),
    "openhands/events.jsonl": ("openhands", 3, 2, 1),
    "atif/trajectory.json": ("atif", 3, 1, 1),
    "atif/kesh.json": ("atif", 50, 26, 1),
    "messages/openai.json": ("messages", 2, 0, 1),
    "messages/anthropic.json": ("messages", 1, 0, 1),
    "messages/lines.jsonl": ("messages", 1, 0, 1),
    "markdown/chat.md": ("markdown", 2, 1, 2),
    "markdown/terminal.txt": ("markdown", 2, 0, 1),
}


def asked(trace: Trace) -> list[str]:
    return [step.text for step in trace.steps if step.kind == "user" and not step.agent]


def test_every_fixture_is_expected() -> None:
    files = {path.relative_to(FIXTURES).as_posix() for path in FIXTURES.glob("*/*") if path.is_file()}
    assert files == set(EXPECTED)
    assert {name for name, *_ in EXPECTED.values()} | {"inspect"} == set(FORMATS.table)  # that: test_suite_formats


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_is_known_by_its_content_and_read_whole(name: str, tmp_path: Path) -> None:
    kind, calls, failed, turns = EXPECTED[name]
    anonymous = tmp_path / "trace"
    shutil.copy(FIXTURES / name, anonymous)
    assert detect_format(anonymous) == kind
    trace = read_trace(FIXTURES / name)
    assert len(trace.calls) == calls
    assert sum(step.status == "error" for step in trace.calls) == failed
    assert len(asked(trace)) == turns
    assert (trace.malformed, trace.warnings) == (0, ())
    assert trace.source == str(FIXTURES / name)
    assert trace.answer or kind == "terminal"
    assert trace.goal == (asked(trace) or [""])[0].strip()


def test_a_session_of_claude_code_keeps_all_that_is_known() -> None:
    trace = read_trace(FIXTURES / "claude_code/orchard.jsonl")
    assert trace.goal == "Count the fruit in notes.txt."
    assert trace.agent == "claude-code"
    assert trace.model == "claude-sonnet-4-5"
    assert trace.cwd == "/home/ada/src/orchard-claude"
    assert trace.session.startswith("f5d0a5b3")
    assert trace.started.startswith("2026-11-15T04:55:21")
    assert trace.usage == Usage(4221, 196, 3710, 0, None)  # each message counted once, whatever its number of lines
    assert next(step.text for step in trace.steps if step.kind == "thinking") == "I should look around first."
    first = trace.calls[0]
    assert (first.tool, first.arguments["command"], first.status) == ("Bash", "ls -a && cat notes.txt", "error")
    assert first.output == "Exit code 1\n.\n..\ncat: notes.txt: No such file or directory"
    assert first.seconds is not None
    assert first.seconds > 0
    edit = trace.calls[3]
    assert (edit.tool, edit.arguments["new_string"], edit.status) == ("Edit", "pears = 5", "ok")


def test_a_stream_of_claude_code_tells_the_cost() -> None:
    assert read_trace(FIXTURES / "claude_code/orchard-stream.jsonl").usage == Usage(2960, 135, 2600, 0, 0.0039975)


def test_the_steps_of_a_sub_agent_follow_its_call_and_are_marked() -> None:
    trace = read_trace(FIXTURES / "claude_code/helper.jsonl")
    kinds = [(step.kind, step.tool, bool(step.agent)) for step in trace.steps[2:6]]
    assert kinds == [("tool", "Agent", False), ("user", "", True), ("tool", "Bash", True), ("assistant", "", True)]
    assert trace.answer == "The helper found 2 lines in one.txt; two.txt does not exist."
    assert trace.usage.output_tokens == 135


def test_a_sidechain_in_the_same_file_is_marked(tmp_path: Path) -> None:
    rows = [
        {"type": "user", "sessionId": "s", "isSidechain": False, "message": {"role": "user", "content": "Go."}},
        {"type": "user", "sessionId": "s", "isSidechain": True, "message": {"role": "user", "content": "Help."}},
        {
            "type": "assistant",
            "sessionId": "s",
            "isSidechain": True,
            "message": {"content": [{"type": "text", "text": "I did."}]},
        },
    ]
    trace = read_trace(write_lines(tmp_path / "t.jsonl", rows))
    assert [bool(step.agent) for step in trace.steps] == [False, True, True]
    assert trace.goal == "Go."


def test_what_a_program_puts_into_the_persons_turn_is_not_the_goal(tmp_path: Path) -> None:
    rows = [
        {"type": "user", "sessionId": "s", "isMeta": True, "message": {"role": "user", "content": "Caveat: these"}},
        {
            "type": "user",
            "sessionId": "s",
            "message": {"role": "user", "content": "<command-name>/clear</command-name>"},
        },
        {"type": "user", "session_id": "s", "isSynthetic": True, "message": {"role": "user", "content": "A skill."}},
        {"type": "user", "sessionId": "s", "message": {"role": "user", "content": "Mend it."}},
        {"type": "attachment", "sessionId": "s", "attachment": {"type": "queued_command", "prompt": "And hurry."}},
    ]
    trace = read_trace(write_lines(tmp_path / "t.jsonl", rows))
    assert asked(trace) == ["Mend it.", "And hurry."]
    assert [step.kind for step in trace.steps] == ["system", "system", "system", "user", "user"]


def test_a_session_of_codex_is_told_without_its_wrapping() -> None:
    trace = read_trace(FIXTURES / "codex/orchard.jsonl")
    assert asked(trace) == ["Count the fruit in notes.txt.", "No, you forgot the plums: there are 2 plums as well."]
    first = trace.calls[0]
    assert first.output == ".\n..\ncat: notes.txt: No such file or directory\n"
    assert (first.tool, first.arguments, first.status) == ("exec_command", {"cmd": "ls -a && cat notes.txt"}, "error")
    assert trace.calls[1].output == "unsupported custom tool call: apply_patch"
    assert trace.calls[1].status == "error"
    assert trace.usage == Usage(1680, 133, 721, 28, None)
    patch = read_trace(FIXTURES / "codex/fruit.jsonl").calls[1]
    assert (patch.tool, patch.status) == ("apply_patch", "ok")
    assert "+pears = 4" in patch.arguments["input"]


def test_codex_events_and_items_tell_one_turn_once(tmp_path: Path) -> None:
    def row(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": "2025-10-01T10:00:00Z", "type": kind, "payload": payload}

    output = json.dumps({"output": "two\n", "metadata": {"exit_code": 1, "duration_seconds": 0.4}})
    rows = [
        row("session_meta", id="s", cwd="/home/ada", timestamp="2025-10-01T10:00:00Z"),
        row("response_item", type="message", role="user", content=[{"type": "input_text", "text": "Go."}]),
        row("event_msg", type="user_message", message="Go."),
        row("event_msg", type="agent_message", message="I go."),
        row("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "I go."}]),
        row("response_item", type="function_call", name="shell", arguments='{"command":["ls"]}', call_id="c"),
        row("event_msg", type="exec_command_end", call_id="c", exit_code=1, aggregated_output="one\ntwo\nthree\n"),
        row("response_item", type="function_call_output", call_id="c", output=output),
        row("event_msg", type="user_message", message="Go."),
        row("compacted", message="They went."),
    ]
    trace = read_trace(write_lines(tmp_path / "rollout.jsonl", rows))
    assert [step.kind for step in trace.steps] == ["user", "assistant", "tool", "user", "system"]
    call = trace.calls[0]
    assert (call.output, call.status, call.seconds) == ("one\ntwo\nthree\n", "error", 0.4)  # all of the output


def test_an_export_of_opencode_knows_how_commands_ended() -> None:
    trace = read_trace(FIXTURES / "opencode/orchard.json")
    assert [call.status for call in trace.calls] == ["error", "ok", "ok", "ok", "ok", "ok"]
    assert replace(trace.usage, cost_usd=0.0) == Usage(2191, 126, 420, 21, 0.0)
    assert trace.usage.cost_usd == pytest.approx(0.002023)
    assert trace.calls[0].seconds == pytest.approx(4.72)
    failed = read_trace(FIXTURES / "opencode/year.json").calls[0]
    assert (failed.status, failed.output) == ("error", "File not found: /home/ada/src/year/missing.txt")


def test_transcripts_of_cursor_and_chats_of_gemini_are_read() -> None:
    cursor = read_trace(FIXTURES / "cursor/lighthouse.jsonl")
    assert asked(cursor)[1] == "No, it is called Muckle, not Skerry."
    assert cursor.calls[3].arguments["contents"] == "print('Muckle')\n"
    stream = read_trace(FIXTURES / "gemini/tide-stream.jsonl")
    assert next(step.text for step in stream.steps if step.kind == "assistant") == "I write the table."
    assert stream.calls[1].output == "wc: tides.csv: No such file or directory"
    chat = read_trace(FIXTURES / "gemini/session-2026-03-02T10-00-7c1e.json")
    assert [call.output for call in chat.calls] == ["12,4.0", "File not found"]
    assert chat.usage == Usage(1500, 29, 900, 5, None)


def test_trajectories_tell_the_cost() -> None:
    trace = read_trace(FIXTURES / "atif/trajectory.json")
    assert trace.agent == "terminus-2"
    assert trace.usage == Usage(1220, 110, 700, 0, 0.00075)
    assert [call.output for call in trace.calls][1:] == ["7711 free", "beacon is up on 7711"]


def test_a_pasted_transcript_has_its_commands() -> None:
    trace = read_trace(FIXTURES / "markdown/chat.md")
    assert [call.arguments["command"] for call in trace.calls] == ["lampctl on", "lampctl on --lamp north"]
    assert trace.calls[1].output == "north is on"
    assert '```toml\n[lamp]\nname = "north"\n```' in next(s.text for s in trace.steps if "configuration" in s.text)


def test_the_events_of_an_older_codex_alone_are_enough(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = [
        {"type": "session_configured", "session_id": "s", "model": "gpt-5"},
        {"type": "user_message", "message": "Go."},
        {"type": "agent_reasoning", "text": "Hm."},
        {"type": "exec_command_begin", "call_id": "1", "command": ["bash", "-lc", "ls"], "cwd": "/home/ada"},
        {"type": "exec_command_end", "call_id": "1", "stdout": "a", "stderr": "b", "exit_code": 2},
        {"type": "mcp_tool_call_begin", "call_id": "2", "invocation": {"tool": "look", "arguments": {"at": "it"}}},
        {"type": "mcp_tool_call_end", "call_id": "2", "result": {"Ok": 1}},
        {"type": "patch_apply_end", "call_id": "3", "success": True, "stdout": "patched"},
        {"type": "token_count", "input_tokens": 7, "output_tokens": 2},
        {"type": "turn_aborted", "reason": "interrupted"},
    ]
    trace = read_trace(write_lines(tmp_path / "t", [{"id": str(n), "msg": event} for n, event in enumerate(told)]))
    assert [(c.tool, c.output, c.status) for c in trace.calls] == [
        ("shell", "a\nb", "error"),
        ("look", '{"Ok": 1}', "unknown"),
        ("shell", "patched", "ok"),
    ]
    assert (trace.goal, trace.model, trace.usage) == ("Go.", "gpt-5", Usage(7, 2))
    assert trace.steps[-1] == Step("system", "turn aborted: interrupted")


def test_a_chat_of_gemini_that_grows_by_lines_has_each_message_as_told_last(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-01T10:00:00Z"},
        {"id": "1", "type": "user", "content": "Go."},
        {"id": "2", "type": "gemini", "content": "I"},
        {
            "id": "2",
            "type": "gemini",
            "content": "I go.",
            "toolCalls": [{"id": "c", "name": "ls", "status": "success", "resultDisplay": "a"}],
        },
        {"$set": {"directories": ["/home/ada"]}},
    ]
    trace = read_trace(write_lines(tmp_path / "t", rows))
    assert [(step.kind, step.text or step.output) for step in trace.steps] == [
        ("user", "Go."),
        ("assistant", "I go."),
        ("tool", "a"),
    ]
    assert (trace.session, trace.cwd) == ("s", "/home/ada")


def test_a_terminal_of_claude_code_can_be_pasted(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(
        "User: list it\n⏺ I look.\n⏺ Bash(ls -l)\n  ⎿  a.txt\n     b.txt\nTool: `wc a.txt`\nOutput: 3\n"
        "$ cat b.txt\n```\nin b\n```\n"
        "Thinking: hm\nAssistant: done\n```python\n$ not a command\n```\n",
        encoding="utf-8",
    )
    trace = read_trace(path)
    assert [(c.tool, c.arguments["command"], c.output) for c in trace.calls] == [
        ("Bash", "ls -l", "a.txt\n     b.txt"),
        ("shell", "wc a.txt", "3"),
        ("shell", "cat b.txt", "in b"),
    ]
    assert trace.answer == "done\n```python\n$ not a command\n```"


# Nothing is lost: what a writer of each format writes, its reader gives back.

Event = tuple[Any, ...]  # ("user" | "assistant" | "thinking", text) or ("call", tool, arguments, output, status)
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(lambda text: text.strip())
safe = words.filter(
    lambda text: not text.lstrip().startswith(("<", "#", "Caveat", "unsupported", "{", "Chunk", "Exit", "Wall"))
)
values = st.one_of(
    st.text(max_size=20), st.integers(-1000, 1000), st.booleans(), st.none(), st.lists(st.text(max_size=5), max_size=3)
)
arguments = st.dictionaries(st.text(min_size=1, max_size=8), values, max_size=3)
calls = st.tuples(
    st.just("call"), st.sampled_from(["Bash", "Write", "grep"]), arguments, safe, st.sampled_from(["ok", "error"])
)
said = st.tuples(st.sampled_from(["user", "assistant", "thinking"]), safe)
histories = st.lists(st.one_of(said, calls), max_size=8)
plain_words = st.from_regex(r"[a-z]{1,8}( [a-z]{1,8}){0,4}", fullmatch=True).filter(lambda text: not text.endswith(":"))
plain_histories = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["user", "assistant"]), plain_words),
        st.tuples(
            st.just("call"),
            st.just("shell"),
            st.fixed_dictionaries({"command": plain_words}),
            plain_words,
            st.just("unknown"),
        ),
    ),
    max_size=8,
)


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def as_claude_code(history: list[Event]) -> Iterator[dict[str, Any]]:
    yield {"type": "summary", "summary": "A session", "leafUuid": "x", "sessionId": "s"}
    for number, event in enumerate(history):
        head: dict[str, Any] = {
            "sessionId": "s",
            "uuid": str(number),
            "timestamp": "2026-01-01T10:00:00Z",
            "cwd": "/home/ada",
        }
        if event[0] == "user":
            yield head | {"type": "user", "message": {"role": "user", "content": event[1]}}
        elif event[0] == "call":
            _, tool, given, output, status = event
            block = {"type": "tool_use", "id": f"t{number}", "name": tool, "input": given}
            yield head | {"type": "assistant", "message": {"id": f"m{number}", "content": [block]}}
            back = {
                "type": "tool_result",
                "tool_use_id": f"t{number}",
                "content": output,
                "is_error": status == "error",
            }
            yield head | {"type": "user", "uuid": f"{number}r", "message": {"role": "user", "content": [back]}}
        else:
            kind = "text" if event[0] == "assistant" else "thinking"
            yield head | {
                "type": "assistant",
                "message": {"id": f"m{number}", "content": [{"type": kind, kind: event[1]}]},
            }


def as_codex(history: list[Event]) -> Iterator[dict[str, Any]]:
    yield {"type": "session_meta", "payload": {"id": "s", "cwd": "/home/ada"}}
    for number, event in enumerate(history):
        if event[0] == "call":
            _, tool, given, output, status = event
            call = {"type": "function_call", "name": tool, "arguments": json.dumps(given), "call_id": f"c{number}"}
            yield {"type": "response_item", "payload": call}
            ended = f"Process exited with code {int(status == 'error')}"
            wrapped = f"Chunk ID: 1\nWall time: 0.1 seconds\n{ended}\nOutput:\n{output}"
            back = {"type": "function_call_output", "call_id": f"c{number}", "output": wrapped}
            yield {"type": "response_item", "payload": back}
        elif event[0] == "thinking":
            yield {
                "type": "response_item",
                "payload": {"type": "reasoning", "summary": [{"type": "summary_text", "text": event[1]}]},
            }
        else:
            kind = "input_text" if event[0] == "user" else "output_text"
            message = {"type": "message", "role": event[0], "content": [{"type": kind, "text": event[1]}]}
            yield {"type": "response_item", "payload": message}


def as_opencode(history: list[Event]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for number, event in enumerate(history):
        role = "user" if event[0] == "user" else "assistant"
        part: dict[str, Any] = {"type": "reasoning" if event[0] == "thinking" else "text", "text": event[1]}
        if event[0] == "call":
            _, tool, given, output, status = event
            ended = (
                {"status": "completed", "output": output} if status == "ok" else {"status": "error", "error": output}
            )
            part = {"type": "tool", "tool": tool, "callID": f"c{number}", "state": {"input": given, **ended}}
        messages.append({"info": {"role": role}, "parts": [part]})
    return {"info": {"id": "ses_1", "directory": "/home/ada"}, "messages": messages}


def as_cursor(history: list[Event]) -> Iterator[dict[str, Any]]:
    yield {"type": "system", "subtype": "init", "session_id": "s"}
    yield {"type": "tool_call", "subtype": "unknown", "tool_call": {}}
    for number, event in enumerate(history):
        if event[0] == "call":
            _, tool, given, output, status = event
            for subtype, more in (
                ("started", {}),
                ("completed", {"result": {"success" if status == "ok" else "error": output}}),
            ):
                yield {
                    "type": "tool_call",
                    "subtype": subtype,
                    "call_id": str(number),
                    "tool_call": {f"{tool}ToolCall": {"args": given, **more}},
                }
        elif event[0] == "thinking":
            yield {"type": "thinking", "subtype": "delta", "text": event[1]}
        else:
            yield {
                "type": event[0],
                "message": {"role": event[0], "content": [{"type": "text", "text": event[1]}]},
                "session_id": "s",
            }


def as_gemini(history: list[Event]) -> Iterator[dict[str, Any]]:
    yield {"type": "init", "timestamp": "2026-01-01T10:00:00Z", "session_id": "s", "model": "m"}
    for number, event in enumerate(history):
        if event[0] == "call":
            _, tool, given, output, status = event
            yield {"type": "tool_use", "tool_name": tool, "tool_id": str(number), "parameters": given}
            back = (
                {"status": "success", "output": output}
                if status == "ok"
                else {"status": "error", "error": {"message": output}}
            )
            yield {"type": "tool_result", "tool_id": str(number), **back}
        elif event[0] != "thinking":
            yield {"type": "message", "timestamp": "t", "role": event[0], "content": event[1]}


def as_atif(history: list[Event]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    for number, event in enumerate(history):
        step: dict[str, Any] = {
            "step_id": number + 1,
            "source": "user" if event[0] == "user" else "agent",
            "message": "",
        }
        if event[0] == "call":
            step["tool_calls"] = [{"tool_call_id": str(number), "function_name": event[1], "arguments": event[2]}]
            step["observation"] = {"results": [{"source_call_id": str(number), "content": event[3]}]}
        elif event[0] == "thinking":
            step["reasoning_content"] = event[1]
        else:
            step["message"] = event[1]
        steps.append(step)
    return {"schema_version": "ATIF-v1.4", "agent": {"name": "a"}, "steps": steps}


def as_openai(history: list[Event]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [{"role": "system", "content": "You are a shell."}]
    for number, event in enumerate(history):
        if event[0] == "call":
            function = {"name": event[1], "arguments": json.dumps(event[2])}
            told.append(
                {"role": "assistant", "content": None, "tool_calls": [{"id": str(number), "function": function}]}
            )
            told.append({"role": "tool", "tool_call_id": str(number), "content": event[3]})
        elif event[0] == "thinking":
            told.append({"role": "assistant", "content": None, "reasoning_content": event[1]})
        else:
            told.append({"role": event[0], "content": event[1]})
    return told


def as_anthropic(history: list[Event]) -> dict[str, Any]:
    told: list[dict[str, Any]] = [{"role": "assistant", "content": []}]
    for row in as_claude_code(history):
        if "message" in row:
            told.append({"role": row["type"], "content": row["message"]["content"]})
    return {"messages": told}


def as_markdown(history: list[Event]) -> str:
    lines = ["User: begin"]
    for event in history:
        if event[0] == "call":
            lines += [f"$ {event[2]['command']}", event[3]]
        else:
            lines.append(f"{event[0].title()}: {event[1]}")
    return "\n".join(lines)


WRITERS: dict[str, Callable[[list[Event]], Any]] = {
    "claude-code": as_claude_code,
    "codex": as_codex,
    "opencode": as_opencode,
    "cursor": as_cursor,
    "gemini": as_gemini,
    "atif": as_atif,
    "messages": as_openai,
    "messages of Anthropic": as_anthropic,
}
TELLS_NO_STATUS = ("atif", "messages", "markdown")
TELLS_NO_THOUGHTS = ("gemini",)


def check_nothing_is_lost(kind: str, path: Path, history: list[Event], before: tuple[str, ...] = ()) -> None:
    assert detect_format(path) == kind.split(maxsplit=1)[0]
    trace = read_trace(path)
    assert asked(trace) == [*before, *(event[1] for event in history if event[0] == "user")]
    kinds: list[StepKind] = ["assistant"] if kind in TELLS_NO_THOUGHTS else ["assistant", "thinking"]
    for told in kinds:
        assert [step.text for step in trace.steps if step.kind == told] == [e[1] for e in history if e[0] == told]
    written = [event for event in history if event[0] == "call"]
    assert [(c.tool, c.arguments, c.output) for c in trace.calls] == [event[1:4] for event in written]
    expected: list[Status] = [event[4] for event in written]
    if kind not in TELLS_NO_STATUS:
        assert [call.status for call in trace.calls] == expected
    assert trace.malformed == 0


@pytest.mark.parametrize("kind", WRITERS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(history=histories)
def test_no_call_output_or_turn_is_lost(kind: str, history: list[Event], tmp_path: Path) -> None:
    path = tmp_path / "trace"
    written = WRITERS[kind](history)
    if isinstance(written, (dict, list)):
        path.write_text(json.dumps(written), encoding="utf-8")
    else:
        write_lines(path, list(written))
    if not any(event[0] != "thinking" or kind not in TELLS_NO_THOUGHTS for event in history):
        return  # a file without a step is an error
    check_nothing_is_lost(kind, path, history)


told = st.one_of(
    st.builds(Step, st.sampled_from(["user", "assistant", "system", "thinking"]), words, at=st.just("10:00")),
    st.builds(
        Step,
        st.just("tool"),
        tool=st.sampled_from(["bash", "verify"]),
        arguments=arguments,
        output=st.text(max_size=60),
        status=st.sampled_from(["ok", "error", "unknown"]),
        seconds=st.none() | st.floats(0, 100),
        agent=st.sampled_from(["", "helper"]),
    ),
)
numbers = st.integers(0, 10**6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(told, max_size=8),
    usage=st.builds(Usage, numbers, numbers, numbers, numbers, st.none() | st.floats(0, 10)),
    turns=st.integers(0, 50),
)
def test_a_trace_of_our_own_is_written_and_read_back_the_same(
    steps: list[Step], usage: Usage, turns: int, tmp_path: Path
) -> None:
    trace = Trace(
        (Step("user", "half a pair: \ud83d"), *steps),
        *(usage, "turns", "model", "half a pair: \ud83d", "tools"),
        source=str(tmp_path / "trace.json"),
        cwd="/work space",
        session="s1",
        turns=turns,
    )
    (tmp_path / "trace.json").write_text(atif.write(trace), encoding="utf-8")
    assert detect_format(tmp_path / "trace.json") == "atif"
    assert replace(read_trace(tmp_path / "trace.json"), started="") == trace


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=plain_histories)
def test_no_command_of_a_pasted_transcript_is_lost(history: list[Event], tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(as_markdown(history), encoding="utf-8")
    check_nothing_is_lost("markdown", path, history, before=("begin",))


# What is broken is counted and told, and never the end.

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
)


def spoiled(value: Any, path: list[int], by: Any) -> Any:
    """The same data with one value, found by walking down the path, replaced."""
    if not path or not isinstance(value, (dict, list)) or not value:
        return by
    if isinstance(value, dict):
        fields: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
        key = list(fields)[path[0] % len(fields)]
        return fields | {key: spoiled(fields[key], path[1:], by)}
    entries: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
    number = path[0] % len(entries)
    return [*entries[:number], spoiled(entries[number], path[1:], by), *entries[number + 1 :]]


@pytest.mark.parametrize(
    "name", [name for name in EXPECTED if not name.endswith((".md", ".txt", "typescript")) and "tarn" not in name]
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(line=st.integers(0, 10_000), where=st.lists(st.integers(0, 20), min_size=1, max_size=7), by=JSON)
def test_any_value_may_be_anything(name: str, line: int, where: list[int], by: Any, tmp_path: Path) -> None:
    text = (FIXTURES / name).read_text(encoding="utf-8")
    path = tmp_path / "trace"
    if name.endswith((".json", ".traj")):
        path.write_text(json.dumps(spoiled(json.loads(text), where, by)), encoding="utf-8")
    else:
        rows = [json.loads(row) for row in text.splitlines()]
        rows[line % len(rows)] = spoiled(rows[line % len(rows)], where, by)
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with suppress(UsageError):
        read_trace(path, EXPECTED[name][0])


def test_broken_lines_are_counted_and_told(tmp_path: Path) -> None:
    text = (FIXTURES / "claude_code/orchard.jsonl").read_text(encoding="utf-8")
    broken = tmp_path / "t.jsonl"
    broken.write_bytes(b"\xff\xfe not json\n[1]\n\n" + text.encode() + b'{"type": "assist')
    trace = read_trace(broken)
    assert trace.malformed == 3
    assert trace.warnings[0] == "line 1 is not a JSON object; it was skipped"
    assert len(trace.calls) == 6
    broken.write_text(text + "no\n" * 50, encoding="utf-8")
    assert read_trace(broken).warnings[-1] == "50 lines in all could not be read and were skipped"
    assert len(read_trace(broken).warnings) == 5


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"just words\n", "is not a trace in any known format"),
        (b'{"a": 1}', "is not a trace in any known format"),
        (b'[{"role": "user", "content"', "line 1: not valid JSON"),
        (b'{"info": {},\n "messages": [', "line 2: not valid JSON"),
        (b"\x00\x01\x02", "is not a trace in any known format"),
        (b" \n", "is empty"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_the_formats(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        read_trace(path)
    assert said in refused.value.message
    assert "claude-code" in refused.value.hint or "trace list" in refused.value.hint


def test_a_missing_file_and_an_unknown_format_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_trace(tmp_path / "nothing.jsonl")
    with pytest.raises(UsageError, match="no trace format is called 'codexx'"):
        read_trace(FIXTURES / "codex/fruit.jsonl", "codexx")


def test_a_result_without_a_call_is_kept(tmp_path: Path) -> None:
    rows = [{"role": "tool", "tool_call_id": "gone", "content": "forty-two"}, {"role": "user", "content": "Thanks."}]
    trace = read_trace(write_lines(tmp_path / "t", rows))
    assert [(step.kind, step.output) for step in trace.steps] == [("tool", "forty-two"), ("user", "")]


def test_the_items_of_the_responses_api_and_streams_of_vercel_are_messages(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "input_text", "text": "Go."}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "1", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "a"},
        {
            "role": "assistant",
            "content": [{"type": "tool-call", "toolCallId": "2", "toolName": "cat", "args": {"f": "a"}}],
        },
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "2", "result": "inside"}]},
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"input": rows}), encoding="utf-8")
    trace = read_trace(path)
    assert [(call.tool, call.output) for call in trace.calls] == [("ls", "a"), ("cat", "inside")]
    assert trace.steps[1] == Step("thinking", "Hm.")


def test_a_long_session_is_read_whole_with_little_memory(tmp_path: Path) -> None:
    output = "x" * 1500
    history: list[Event] = [
        ("call", "Bash", {"command": f"step {number}"}, f"{number} {output}", "ok") for number in range(3000)
    ]
    path = write_lines(tmp_path / "long.jsonl", list(as_claude_code(history)))
    assert path.stat().st_size > 5_000_000
    del history
    tracemalloc.start()
    try:
        trace = read_trace(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(trace.calls) == 3000
    assert trace.calls[-1].output == f"2999 {output}"
    assert peak < 60_000_000


# Sessions on this machine.


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """A home folder in which eight agents have worked, in this order."""
    home = tmp_path / "agents"
    places = [
        ("copilot/events.jsonl", ".copilot/session-state/6f2e/events.jsonl"),
        ("pi/2026-05-06T08-41-00-000Z_0c1d.jsonl", ".pi/agent/sessions/--home-ada--/2026-05-06T08-41_0c1d.jsonl"),
        ("qwen/9ac9.jsonl", ".qwen/projects/-home-ada-well/chats/9ac9.jsonl"),
        ("gemini/session-2026-03-02T10-00-7c1e.json", ".gemini/tmp/0f3a/chats/session-2026-03-02T10-00-7c1e.json"),
        ("cursor/lighthouse.jsonl", ".cursor/projects/home-ada-lamp/agent-transcripts/5d2f/5d2f.jsonl"),
        ("codex/orchard.jsonl", ".codex/sessions/2026/11/15/rollout-2026-11-15T04-55-29-01a1dd8f.jsonl"),
        ("codex/fruit.jsonl", ".codex/sessions/2026/11/15/rollout-2026-11-15T04-58-33-01a1dd92.jsonl"),
        ("claude_code/orchard.jsonl", ".claude/projects/-home-ada-src-orchard/f5d0a5b3.jsonl"),
    ]
    for number, (fixture, place) in enumerate(places):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIXTURES / fixture, home / place)
        os.utime(home / place, (1_790_000_000 + number, 1_790_000_000 + number))
    write_database(home / ".local/share/opencode/opencode.db", "opencode/orchard.json", 1_790_000_010_000)
    return home


def write_database(path: Path, fixture: str, changed: int) -> None:
    """What opencode keeps of an exported session, in the columns that matter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    export = json.loads((FIXTURES / fixture).read_text(encoding="utf-8"))
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE session (id, parent_id, directory, time_created, time_updated)")
        connection.execute("CREATE TABLE message (id, session_id, time_created, data)")
        connection.execute("CREATE TABLE part (id, message_id, session_id, data)")
        id = export["info"]["id"]  # noqa: A001
        connection.execute("INSERT INTO session VALUES (?, NULL, ?, 1, ?)", (id, export["info"]["directory"], changed))
        for message in export["messages"]:
            info = message["info"]
            created = info["time"]["created"]
            connection.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (info["id"], id, created, json.dumps(info)))
            for part in message["parts"]:
                row = (part["id"], info["id"], id, json.dumps(part))
                connection.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)
    connection.close()


def test_sessions_are_found_latest_first(agents: Path) -> None:
    found = find_sessions(environment={"HOME": str(agents)})
    assert [session.agent for session in found] == [
        *("opencode", "claude-code", "codex", "codex", "cursor", "gemini", "qwen-code", "pi", "copilot")
    ]
    assert [session.agent for session in find_sessions("codex", {"HOME": str(agents)})] == ["codex", "codex"]


def test_a_variable_moves_an_agents_home(agents: Path) -> None:
    assert [s.agent for s in find_sessions(environment={"HOME": "/nowhere", "CODEX_HOME": str(agents / ".codex")})] == [
        "codex",
        "codex",
    ]


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("claude-code:last", "Count the fruit in notes.txt."),
        ("claude:last", "Count the fruit in notes.txt."),
        ("codex:last", "Write down the fruit and add it up."),
        ("codex:01a1dd8f", "Count the fruit in notes.txt."),
        ("opencode:last", '"Count the fruit in notes.txt."'),
        ("opencode:ses_e22704c09ffe1czgeGaQwUO3yR", '"Count the fruit in notes.txt."'),
        ("cursor:last", "Make lamp.py print the name of the lighthouse."),
        ("gemini:last", "How high is the tide at noon?"),
        ("qwen:last", "How deep is the well?"),
        ("pi:0c1d", "Does the mill turn?"),
        ("copilot:6f2e", "Why is the clock late?"),
    ],
)
def test_a_session_can_be_called_by_its_agent(agents: Path, name: str, goal: str) -> None:
    assert read_trace(find_trace(name, {"HOME": str(agents)})).goal == goal


def test_the_database_and_the_export_of_opencode_tell_the_same(agents: Path) -> None:
    database = agents / ".local/share/opencode/opencode.db"
    inside, exported = read_trace(database), read_trace(FIXTURES / "opencode/orchard.json")
    assert inside.steps == exported.steps
    assert inside.usage == exported.usage
    with pytest.raises(UsageError, match="there is no such session"):
        read_trace(database / "ses_nothing")
    database.write_bytes(database.read_bytes()[:100])
    with pytest.raises(UsageError, match="cannot be read as a database"):
        read_trace(database)
    assert [session.agent for session in find_sessions("opencode", {"HOME": str(agents)})] == []


def test_the_sub_agents_of_opencode_follow_their_calls(tmp_path: Path) -> None:
    database = tmp_path / "opencode.db"
    write_database(database, "opencode/year.json", 1)
    child = read_trace(FIXTURES / "opencode/year.json").calls[2].output.split('"')[1]
    with sqlite3.connect(database) as connection:
        connection.execute("INSERT INTO session VALUES (?, 'ses_parent', '/home/ada', 1, 2)", (child,))
        connection.execute("INSERT INTO message VALUES ('m', ?, 1, '{\"role\": \"assistant\"}')", (child,))
        connection.execute(
            'INSERT INTO part VALUES (\'p\', \'m\', ?, \'{"type": "text", "text": "It is there."}\')', (child,)
        )
        connection.execute("INSERT INTO part VALUES ('q', 'm', ?, 'no JSON')", (child,))
    connection.close()
    trace = read_trace(database)
    place = next(number for number, step in enumerate(trace.steps) if step.tool == "task")
    assert (trace.steps[place + 1].text, trace.steps[place + 1].agent) == ("It is there.", child)
    assert trace.malformed == 1


def test_the_older_storage_of_opencode_is_read(tmp_path: Path) -> None:
    export = json.loads((FIXTURES / "opencode/year.json").read_text(encoding="utf-8"))
    storage = tmp_path / ".local/share/opencode/storage"
    info = export["info"]

    def put(place: str, value: Any) -> None:
        (storage / place).parent.mkdir(parents=True, exist_ok=True)
        (storage / place).write_text(json.dumps(value), encoding="utf-8")

    put(f"session/global/{info['id']}.json", info)
    for message in export["messages"]:
        put(f"message/{info['id']}/{message['info']['id']}.json", message["info"])
        for part in message["parts"]:
            put(f"part/{message['info']['id']}/{part['id']}.json", part)
    trace = read_trace(find_trace("opencode:last", {"HOME": str(tmp_path)}))
    assert trace.steps == read_trace(FIXTURES / "opencode/year.json").steps


def test_a_session_that_is_not_here_is_a_usage_error(agents: Path, tmp_path: Path) -> None:
    here = {"HOME": str(agents)}
    for name, said in (
        ("codex:zzz", "Codex has no session called 'zzz'"),
        ("codex:01a1dd", "2 sessions of Codex fit"),
        ("codexx:last", "no agent whose sessions we know is called 'codexx'"),
        ("nothing.jsonl", "no such file"),
    ):
        with pytest.raises(UsageError, match=said):
            find_trace(name, here)
    with pytest.raises(UsageError, match="Claude Code has no sessions in"):
        find_trace("claude-code:last", {"HOME": str(tmp_path / "empty")})


# The command line.


def test_trace_list_shows_recent_sessions(upskill: Upskill, agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert upskill("trace", "list").err.startswith("No session was found.")
    monkeypatch.setenv("HOME", str(agents))
    monkeypatch.delenv("XDG_DATA_HOME")
    done = upskill("trace", "list")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["Agent", "When", "Calls", "Folder", "Goal"]
    assert lines[1].split()[:1] == ["opencode"]
    assert "/home/ada" not in done.out
    rows = upskill("trace", "list", "--json", "--agent", "codex").json
    assert [(row["agent"], row["calls"], row["folder"]) for row in rows] == [
        ("codex", 5, "~/src/fruit"),
        ("codex", 6, "~/src/orchard-codex"),
    ]
    assert upskill("trace", "list", "-n", "1").err == "8 older ones; show more with --limit.\n"


def test_trace_show_prints_the_timeline_with_secrets_redacted(upskill: Upskill, home: Path) -> None:
    rows = list(
        as_claude_code([("user", "Use the key."), ("call", "Bash", {"command": "env"}, "API_KEY=a1b2c3d4e5f6g7", "ok")])
    )
    write_lines(home / "t.jsonl", rows)
    done = upskill("trace", "show", "t.jsonl")
    assert done.code == 0
    assert "✓ Bash  env" in done.out
    assert "API_KEY=[REDACTED secret]" in done.out
    assert "a1b2c3d4e5f6g7" not in done.out + done.err
    assert "1 secret" in done.err
    told = upskill("trace", "show", "t.jsonl", "--json").json
    assert told["steps"][1]["arguments"] == {"command": "env"}
    assert told["redacted"]["secret"] == 1
    assert [step["step"] for step in told["steps"]] == [1, 2]


def test_trace_show_names_what_is_wrong(upskill: Upskill, home: Path) -> None:
    done = upskill("trace", "show", "nothing.jsonl")
    assert done.code == 2
    assert "no such file" in done.err
    (home / "t.txt").write_text("just words\n", encoding="utf-8")
    assert upskill("trace", "show", "t.txt").code == 2


def test_trace_show_shortens_what_is_long(upskill: Upskill, home: Path) -> None:
    write_lines(home / "t.jsonl", list(as_claude_code([("user", "\n".join(map(str, range(100))))])))
    assert "… 94 more lines" in upskill("trace", "show", "t.jsonl").out
    assert "      99" in upskill("trace", "show", "t.jsonl", "--full").out


def test_sessions_of_other_years_and_exit_codes_in_words_are_read(tmp_path: Path) -> None:
    old = tmp_path / "rollout.jsonl"
    called = {"type": "function_call", "name": "shell", "arguments": json.dumps({"command": ["bash", "-lc", "ls"]})}
    rows = [
        {"id": "s", "timestamp": "2025-09-10T18:58:38Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List it."}]},
        called | {"call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
    ]
    old.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = read_trace(old)
    assert (trace.agent, trace.goal, [step.output for step in trace.calls]) == ("codex", "List it.", ["a.txt"])

    said = "Command: lampctl on\nDirectory: (root)\nOutput: too dark\nExit Code: 3\nSignal: (none)"
    call: dict[str, Any] = {
        "id": "x",
        "name": "run_shell_command",
        "args": {"command": "lampctl on"},
        "status": "success",
    }
    call["result"] = [{"functionResponse": {"id": "x", "name": "run_shell_command", "response": {"output": said}}}]
    messages = [
        {"id": "a", "type": "user", "content": "Go."},
        {"id": "b", "type": "gemini", "content": "", "toolCalls": [call]},
    ]
    session = tmp_path / "session-1.json"
    session.write_text(json.dumps({"sessionId": "s", "projectHash": "p", "messages": messages}))
    assert [step.status for step in read_trace(session).calls] == ["error"]
