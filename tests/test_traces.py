"""Traces: every format to one typed value, nothing lost on the way, and where sessions are found."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import REPOSITORY, Upskill
from upskill.authoring.material.material import read_material
from upskill.authoring.material.sessions import call_line
from upskill.errors import UsageError
from upskill.plain import fields_of
from upskill.traces import FORMATS, Status, Step, Trace, Usage
from upskill.traces.formats import describe_skipped, detect_format, read_trace
from upskill.traces.readers import atif
from upskill.traces.sessions import find_sessions, find_trace

FIXTURES = REPOSITORY / "tests" / "fixtures" / "traces"
AS_READ = REPOSITORY / "tests" / "fixtures" / "traces_as_read"
FILES = sorted(
    path.relative_to(FIXTURES).as_posix() for path in FIXTURES.glob("*/*") if path.is_file()
)


def asked(trace: Trace) -> list[str]:
    return [step.text for step in trace.steps if step.kind == "user" and not step.agent]


def load(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text(encoding="utf-8"))


def load_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / name).read_text(encoding="utf-8").splitlines()]


def kinds(trace: Trace) -> list[str]:
    return [step.kind for step in trace.steps]


def filled(value: object) -> dict[str, Any]:
    return {name: item for name, item in fields_of(value).items() if item not in ("", None, {}, ())}


def test_every_format_has_a_file() -> None:
    formats = {detect_format(FIXTURES / file) for file in FILES}
    assert formats | {"inspect"} == set(FORMATS.table)  # that: test_suite_formats


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_known_by_its_content_and_read_whole(file: str, tmp_path: Path) -> None:
    """`GOLDEN=write` writes what is read; compare every call and output with the file before you commit it."""
    trace = read_trace(FIXTURES / file)
    known_as = detect_format(shutil.copy(FIXTURES / file, tmp_path / "trace"))
    head = filled(trace) | {"format": known_as, "source": file, "steps": len(trace.steps)}
    rows = [head, *map(filled, trace.steps)]
    text = "".join(json.dumps(row, ensure_ascii=False, default=filled) + "\n" for row in rows)
    golden = AS_READ / f"{file.replace('/', '-')}.jsonl"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_a_command_that_the_person_typed_into_claude_code_is_a_call_with_its_output(
    tmp_path: Path,
) -> None:
    texts = (
        "Go.",
        "<bash-input>make test</bash-input>",
        (
            "<bash-stdout>\x1b[1m RUN \x1b[22m\x1b[90m/Users/ada/x\x1b[39m</bash-stdout>"
            "<bash-stderr>\x1b[31m1 failed\x1b[0m</bash-stderr>"
        ),
    )
    rows = [
        {"type": "user", "sessionId": "s", "message": {"role": "user", "content": text}}
        for text in texts
    ]
    trace = read_trace(write_lines(tmp_path / "t.jsonl", rows))
    assert asked(trace) == ["Go."]
    assert [(step.arguments, step.output) for step in trace.calls] == [
        ({"command": "make test"}, " RUN /Users/ada/x\n1 failed")
    ]


# What is not read is counted.

LISTS = {  # where a document keeps its records
    "amp/T-019b.json": ("messages",),
    "atif/trajectory.json": ("steps",),
    "claude_ai/conversations.json": (-1, "chat_messages"),
    "gemini/contents.json": ("contents",),
    "gemini/session-2026-03-02T10-00-7c1e.json": ("messages",),
    "messages/openai.json": (),
    "messages/anthropic.json": ("messages",),
    "mini_swe_agent/kettle.traj.json": (),
    "opencode/year.json": ("messages",),
    "openhands/trajectory.json": (),
    "swe_agent/bell.traj": ("trajectory",),
}
LINES = [
    file for file in FILES if file.endswith(".jsonl") and not file.startswith("openhands/output")
]


@pytest.mark.parametrize("file", [*LINES, *LISTS])
def test_a_record_of_an_unknown_kind_is_counted_in_every_format(file: str, tmp_path: Path) -> None:
    """Two that no version of a program has written yet; nothing else of the trace changes."""
    unknown: list[dict[str, Any]] = [
        {"type": "zebra", "payload": {"type": "stripe"}},
        {"hoof": 1, "mane": 2},
    ]
    if file in LISTS:
        document = records = load(file)
        for key in LISTS[file]:
            records = records[key]
        records += unknown
        (tmp_path / "trace").write_text(json.dumps(document), encoding="utf-8")
    else:
        write_lines(tmp_path / "trace", [*load_lines(file), *unknown])
    before, after = read_trace(FIXTURES / file), read_trace(tmp_path / "trace")
    assert Counter(after.skipped) - Counter(before.skipped) == {
        "zebra/stripe": 1,
        "object with hoof, mane": 1,
    }
    assert [step for step in after.steps if not step.agent] == [
        step for step in before.steps if not step.agent
    ]


BLOCKS = """_**User (2026-05-01 10:00:00Z)**_

Wind the clock.

_**Agent (model-x 2026-05-01T10:00:05.120Z)**_

<tool-use data-tool-type="shell" data-tool-name="Bash"><details>
<summary>Tool use: **Bash**</summary>
Wind it by nine turns

`clock wind --turns 9`

```text
wound
```
</details></tool-use>

<tool-use data-tool-type="task" data-tool-name="Task"><details>
<summary>Tool use: **Task**</summary>
The key fits in `gear.txt`.

### Where it stops

The pawl is worn: `pawl.txt` says so.
</details></tool-use>

<tool-use data-tool-type="search" data-tool-name="Glob"><details>
<summary>Tool use: **Glob**</summary>
pattern `*.txt` path `gears`

**Result:**

```
gears/1.txt
```
</details></tool-use>
"""


def test_a_session_without_times_has_the_date_of_its_title_or_else_of_its_file(
    tmp_path: Path,
) -> None:
    turns = "_**User**_\n\nAs on 2020-01-01.\n\n_**Assistant**_\n\nDone.\n"
    titled = f"<!-- Generated by SpecStory -->\n\n# Move 2024-02-03 (2025-06-18 16:25Z)\n\n{turns}"
    chat = "User: hello\n\nAssistant: yes\n"
    message = '{"role": "user", "content": "hello"}\n{"role": "assistant", "content": "yes"}\n'
    for name, text, started in (
        ("2025-06-17_10-00Z-move.md", titled, "2025-06-18T16:25:00Z"),
        ("2025-06-17_10-00Z-move.md", turns, "2025-06-17T10:00:00Z"),
        ("chat.md", f"# Talk of 2025-06-19\n\n{chat}", "2025-06-19T00:00:00"),
        ("2025-06-20.md", chat, "2025-06-20T00:00:00"),
        ("talk-2025-06-21T08-09-10.jsonl", message, "2025-06-21T08:09:10"),
        ("2025-99-99.md", chat, ""),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read_trace(tmp_path / name).started == started, (name, text)


def test_what_was_skipped_is_counted_in_plain_english() -> None:
    skipped = {"line before the first turn": 2, "object with id": 1, "event_msg/token_count": 3}
    expected = "3 event_msg/token_count, 2 lines before the first turn, 1 object with id"
    assert describe_skipped(skipped) == expected


def test_nothing_that_a_block_of_specstory_says_is_lost(tmp_path: Path) -> None:
    """Without any one line the trace is another, unless the line is mere markup."""
    (tmp_path / "whole.md").write_text(BLOCKS)
    trace = read_trace(tmp_path / "whole.md")
    wound, task, glob = trace.calls
    assert wound.arguments == {
        "command": "clock wind --turns 9",
        "description": "Wind it by nine turns",
    }
    assert (wound.at, trace.model) == ("2026-05-01T10:00:05.120Z", "model-x")
    assert "### Where it stops" in task.arguments["input"]
    assert (glob.arguments, glob.output) == ({"pattern": "*.txt", "path": "gears"}, "gears/1.txt")
    lines = BLOCKS.splitlines()
    for number, line in enumerate(lines):
        if re.search(r"\w", line) and not line.startswith(("<", "**Result", "</", "_**")):
            (tmp_path / "cut.md").write_text("\n".join(lines[:number] + lines[number + 1 :]))
            assert read_trace(tmp_path / "cut.md", "specstory").steps != trace.steps, line


def test_unknown_parts_are_counted(tmp_path: Path) -> None:
    rows = [{"role": "user", "parts": [{"text": "Go."}, {"videoMetadata": {"fps": 2}}]}]
    (tmp_path / "parts").write_text(json.dumps({"contents": rows}), encoding="utf-8")
    assert read_trace(tmp_path / "parts").skipped == {"object with videoMetadata": 1}


def test_an_output_of_gemini_is_kept_with_all_its_fields(tmp_path: Path) -> None:
    response = {"output": "half", "error": "the other half was refused"}
    parts = [
        {"functionCall": {"name": "ls"}},
        {"functionResponse": {"name": "ls", "response": response}},
    ]
    rows = [{"role": "model", "parts": parts[:1]}, {"role": "user", "parts": parts[1:]}]
    (tmp_path / "parts").write_text(json.dumps({"contents": rows}), encoding="utf-8")
    assert (
        read_trace(tmp_path / "parts").calls[0].output
        == 'half\n{"error": "the other half was refused"}'
    )


OTHER_SHAPES = [
    {"type": "user", "sessionId": "s", "message": {"role": "user", "content": "Go."}},
    *(
        {"type": "tool_use", "sessionId": "s", "name": "Bash", "input": {"command": name}}
        for name in ("ls", "pwd")
    ),
]


NEW_KIMI = [
    {"role": "user", "content": "Go."},
    *({"type": "context.append_wave", "message": {"role": "user"}, "time": at} for at in (1, 2)),
]


@pytest.mark.parametrize(
    ("rows", "read_as", "lost"),
    [(OTHER_SHAPES, "claude-code", "2 tool_use"), (NEW_KIMI, "kimi", "2 context.append_wave/user")],
)
def test_a_file_that_is_mostly_not_understood_is_refused_by_name(
    rows: list[dict[str, Any]],
    read_as: str,
    lost: str,
    tmp_path: Path,
    upskill: Upskill,
) -> None:
    path = write_lines(tmp_path / "session.jsonl", rows)
    with pytest.raises(UsageError, match="most of the file could not be read") as refused:
        read_trace(path)
    assert lost.partition(" ")[2] in refused.value.message
    name = refused.value.message.partition("detected as ")[2].partition(" ")[0]
    assert name == read_as
    shown = upskill(
        "trace", "show", path, "--format", name
    )  # a person who names the format is shown what there is
    assert shown.code == 0
    assert lost.partition(" ")[2] in " ".join(shown.err.split()).partition("Skipped: ")[2]
    assert json.loads(upskill("trace", "show", path, "--format", name, "--json").out)["skipped"]


# A text is a trace by its speakers alone.

TALK = "{user}\n\nDeploy it.\n\n{agent}\n\nDone.\n\n```console\n$ tern deploy\nok\n```\n\n"


@pytest.mark.parametrize(
    ("user", "agent"),
    [
        ("## User", "## Assistant"),
        ("### 👤 User:", "### 🤖 Claude"),
        ("**User**", "**Cursor**"),
        ("**You:**", "**ChatGPT:**"),
        ("# Prompt:", "# Response:"),
        ("User:", "Assistant:"),
        ("HUMAN:", "AI:"),
        ("_**User (2026-01-16 16:26:02Z)**_", "_**Agent (model x)**_"),
        ("⏺ I deploy it.", "⏺ Bash(tern deploy)\n  ⎿  ok"),
        ("# aider chat started at 2026-01-02 10:00:00\n\n#### Deploy it.  ", ""),
    ],
)
@pytest.mark.parametrize(
    "title",
    ["", "---\ntitle: A day\n---\n\n# A day\n\n_Exported on Monday_\n\n- Model: x\n\n---\n\n"],
)
def test_a_transcript_is_known_by_its_speakers(
    user: str, agent: str, title: str, tmp_path: Path
) -> None:
    path = tmp_path / "talk.md"
    talk = title + TALK.format(user=user, agent=agent)
    for text in (
        talk,
        f"{talk}## What I did\n\nAll of it.\n\n{user}\n\nThanks.\n\n{agent}\n\nBye.\n",
    ):
        path.write_text(text, encoding="utf-8")
        assert detect_format(path) in ("markdown", "specstory", "aider")


@pytest.mark.parametrize(
    "page",
    [
        "# Deploying\n\n$ tern deploy\n\nThis prints the region. Then run\n\n$ tern check\n\nand wait.\n",
        "# Deploying\n\n```console\n$ tern deploy\nok\n```\n\nResult: it is deployed.\n\nTask: wait.\n",
        "# Prompts\n\nA prompt looks like this:\n\nUser: hello\n\nAssistant: hi\n\nThe rest is up to you.\n",
        "# Prompts\n\n```\nUser: hello\nAssistant: hi\n```\n",
        "# Roles\n\n## User\n\nA person.\n\n## Agent\n\nA program.\n\n## Owner\n\nBoth.\n",
        "# Examples\n\n## Short\n\n### Prompt\n\nSum it up.\n\n### Response\n\nIt is this.\n",
        "# User\n\n## Model\n\nThe fields of a user.\n\n### Response\n\nJSON.\n",
        "# Questions\n\n## Question\n\nWhy?\n\n## Answer\n\nBecause.\n",
        "user: ada\nhost: tern\nport: 22\n",
        "---\nuser: ada\nassistant: tern\n---\n\n# Deploying\n\n$ tern deploy\n",
        "prompt: short\nresponse: long\n",
        "Prompt: the first line of a shell\n\n$ tern deploy\n\nCommand: what follows it\n",
        "# Notes\n\n● one\n● two\n\n$ tern deploy\n",
        '# Messages\n\nThese:\n\n{"role": "user", "content": "hi"}\n{"role": "assistant", "content": "ho"}\n\nEnd.\n',
        '[Home](/)\n\n{"type": "user", "sessionId": "s", "message": {"content": "hi"}}\n\nis a line of it.\n',
        "# Histories\n\nSo it begins:\n\n```\n# aider chat started at 2026-01-02 10:00:00\n\n#### hi\n```\n",
    ],
)
def test_a_page_with_commands_or_a_dialog_in_it_is_no_trace(page: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page, encoding="utf-8")
    with pytest.raises(UsageError, match=": not in any known trace format"):
        detect_format(path)


# Nothing is lost: what a writer of each format writes, its reader gives back.

Event = tuple[
    Any, ...
]  # ("user" | "assistant" | "thinking", text) or ("call", tool, arguments, output, status)
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(
    lambda text: text.strip()
)
safe = words.filter(
    lambda text: (
        not text.lstrip().startswith(
            ("<", "#", "Caveat", "unsupported", "{", "Chunk", "Exit", "Wall")
        )
    )
)
values = st.one_of(
    st.text(max_size=20),
    st.integers(-1000, 1000),
    st.booleans(),
    st.none(),
    st.lists(st.text(max_size=5), max_size=3),
)
arguments = st.dictionaries(st.text(min_size=1, max_size=8), values, max_size=3)
calls = st.tuples(
    st.just("call"),
    st.sampled_from(["Bash", "Write", "grep"]),
    arguments,
    safe,
    st.sampled_from(["ok", "error"]),
)
turns = st.tuples(st.sampled_from(["user", "assistant", "thinking"]), safe)
histories = st.lists(st.one_of(turns, calls), max_size=8)


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
            yield head | {
                "type": "user",
                "uuid": f"{number}r",
                "message": {"role": "user", "content": [back]},
            }
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
            call = {
                "type": "function_call",
                "name": tool,
                "arguments": json.dumps(given),
                "call_id": f"c{number}",
            }
            yield {"type": "response_item", "payload": call}
            ended = f"Process exited with code {int(status == 'error')}"
            wrapped = f"Chunk ID: 1\nWall time: 0.1 seconds\n{ended}\nOutput:\n{output}"
            back = {"type": "function_call_output", "call_id": f"c{number}", "output": wrapped}
            yield {"type": "response_item", "payload": back}
        elif event[0] == "thinking":
            yield {
                "type": "response_item",
                "payload": {
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": event[1]}],
                },
            }
        else:
            kind = "input_text" if event[0] == "user" else "output_text"
            message = {
                "type": "message",
                "role": event[0],
                "content": [{"type": kind, "text": event[1]}],
            }
            yield {"type": "response_item", "payload": message}


def as_openai(history: list[Event]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [{"role": "system", "content": "You are a shell."}]
    for number, event in enumerate(history):
        if event[0] == "call":
            function = {"name": event[1], "arguments": json.dumps(event[2])}
            told.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": str(number), "function": function}],
                }
            )
            told.append({"role": "tool", "tool_call_id": str(number), "content": event[3]})
        elif event[0] == "thinking":
            told.append({"role": "assistant", "content": None, "reasoning_content": event[1]})
        else:
            told.append({"role": event[0], "content": event[1]})
    return told


WRITERS: dict[str, Callable[[list[Event]], Any]] = {
    "claude-code": as_claude_code,
    "codex": as_codex,
    "messages": as_openai,
}


def check_nothing_is_lost(kind: str, path: Path, history: list[Event]) -> None:
    assert detect_format(path) == kind
    trace = read_trace(path)
    assert asked(trace) == [event[1] for event in history if event[0] == "user"]
    for told in ("assistant", "thinking"):
        assert [step.text for step in trace.steps if step.kind == told] == [
            e[1] for e in history if e[0] == told
        ]
    written = [event for event in history if event[0] == "call"]
    assert [(c.tool, c.arguments, c.output) for c in trace.calls] == [
        event[1:4] for event in written
    ]
    expected: list[Status] = [event[4] for event in written]
    if kind != "messages":
        assert [call.status for call in trace.calls] == expected
    assert trace.malformed == 0


@pytest.mark.parametrize("kind", WRITERS)
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=histories)
def test_no_call_output_or_turn_is_lost(kind: str, history: list[Event], tmp_path: Path) -> None:
    path = tmp_path / "trace"
    written = WRITERS[kind](history)
    if isinstance(written, (dict, list)):
        path.write_text(json.dumps(written), encoding="utf-8")
    else:
        write_lines(path, list(written))
    if history:  # a file without a step is an error
        check_nothing_is_lost(kind, path, history)


any_step = st.one_of(
    st.builds(
        Step,
        st.sampled_from(["user", "assistant", "system", "thinking"]),
        words,
        at=st.just("10:00"),
    ),
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


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(any_step, max_size=8),
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


# What is broken is counted and told, and never the end.

JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


# Of every format that is JSON, the longest file.
ONE_OF_EACH = {
    file.partition("/")[0]: file
    for file in sorted(FILES, key=lambda file: (FIXTURES / file).stat().st_size)
    if not file.endswith((".md", ".txt", "typescript")) and "tarn" not in file
}.values()


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


@pytest.mark.parametrize("name", ONE_OF_EACH)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    line=st.integers(0, 10_000), where=st.lists(st.integers(0, 20), min_size=1, max_size=7), by=JSON
)
def test_any_value_may_be_anything(
    name: str, line: int, where: list[int], by: Any, tmp_path: Path
) -> None:
    text = (FIXTURES / name).read_text(encoding="utf-8")
    path = tmp_path / "trace"
    if name.endswith((".json", ".traj")):
        path.write_text(json.dumps(spoiled(json.loads(text), where, by)), encoding="utf-8")
    else:
        rows = [json.loads(row) for row in text.splitlines()]
        rows[line % len(rows)] = spoiled(rows[line % len(rows)], where, by)
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with suppress(UsageError):
        read_trace(path, detect_format(FIXTURES / name))


def test_broken_lines_are_counted_and_told(tmp_path: Path) -> None:
    text = (FIXTURES / "claude_code/orchard.jsonl").read_text(encoding="utf-8")
    broken = tmp_path / "t.jsonl"
    broken.write_bytes(b"\xff\xfe not json\n[1]\n\n" + text.encode() + b'{"type": "assist')
    trace = read_trace(broken)
    assert trace.malformed == 3
    assert trace.warnings[0] == "line 1 is not a JSON object; it was skipped"
    assert len(trace.calls) == 6
    broken.write_text(text + "no\n" * 50, encoding="utf-8")
    assert read_trace(broken).warnings[-1] == "in all, 50 lines could not be read and were skipped"
    assert len(read_trace(broken).warnings) == 5


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"just words\n", ": not in any known trace format"),
        (b'{"a": 1}', ": not in any known trace format"),
        (b'[{"role": "user", "content"', "not JSON that upskill can read"),
        (b'{"info": {},\n "messages": [', "not JSON that upskill can read"),
        (b"\x00\x01\x02", ": not in any known trace format"),
        (b" \n", ": empty file"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" + b"1," * 6_000_000, "more than 5,000,000 values"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_the_formats(
    data: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        read_trace(path)
    assert said in refused.value.message
    assert "claude-code" in refused.value.hint or "trace list" in refused.value.hint


def test_a_missing_file_and_an_unknown_format_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_trace(tmp_path / "nothing.jsonl")
    with pytest.raises(UsageError, match="no trace format named 'codexx'"):
        read_trace(FIXTURES / "codex/fruit.jsonl", "codexx")


def test_a_result_without_a_call_is_kept(tmp_path: Path) -> None:
    rows = [
        {"role": "tool", "tool_call_id": "gone", "content": "forty-two"},
        {"role": "user", "content": "Thanks."},
    ]
    trace = read_trace(write_lines(tmp_path / "t", rows))
    assert [(step.kind, step.output) for step in trace.steps] == [
        ("tool", "forty-two"),
        ("user", ""),
    ]


def test_a_long_session_is_read_whole_with_little_memory(tmp_path: Path) -> None:
    output = "x" * 5500
    history: list[Event] = [
        ("call", "Bash", {"command": f"step {number}"}, f"{number} {output}", "ok")
        for number in range(1000)
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
    assert len(trace.calls) == 1000
    assert trace.calls[-1].output == f"999 {output}"
    assert peak < 60_000_000


# Formats of other programs.


def test_what_a_person_said_to_a_command_of_mini_swe_agent_is_theirs(tmp_path: Path) -> None:
    messages = load("mini_swe_agent/kettle.traj.json")
    place = next(n for n, message in enumerate(messages) if message["role"] == "assistant") + 1
    rejection = "Command not executed. The user rejected your command with the following message:"
    messages[place]["content"] = f"{rejection} Leave the lid on."
    path = tmp_path / "kettle.traj.json"
    path.write_text(
        json.dumps({"info": {"mini_version": "1"}, "messages": messages}), encoding="utf-8"
    )
    trace = read_trace(path)
    assert asked(trace)[1] == "Leave the lid on."
    assert (trace.calls[0].status, trace.calls[0].output) == ("error", rejection)


def test_one_of_many_tasks_in_a_file_is_named_like_a_file_in_a_folder(tmp_path: Path) -> None:
    task = load_lines("openhands/output.jsonl")[0]
    other = task | {"instance_id": "parcels-2", "history": task["history"][:6]}
    path = write_lines(tmp_path / "output.jsonl", [task, other])
    first = read_trace(path)
    assert (first.session, len(first.calls)) == ("post-1", 3)
    assert first.warnings == (
        "it contains 2 tasks; only the first was read. The others are output.jsonl/parcels-2",
    )
    second = read_trace(path / "parcels-2")
    assert (second.session, len(second.calls), second.warnings) == ("parcels-2", 1, ())
    with pytest.raises(UsageError, match=": no task named 'parcels-3'"):
        read_trace(path / "parcels-3")


def test_turns_that_were_taken_back_are_left_out_and_told(tmp_path: Path) -> None:
    rows = load_lines("pi/2026-05-06T08-41-00-000Z_0c1d.jsonl")
    other = rows[-1] | {
        "id": "m9",
        "parentId": "m2",
        "message": rows[-1]["message"] | {"content": "Or does it?"},
    }
    trace = read_trace(write_lines(tmp_path / "t", [*rows, other]))
    assert kinds(trace) == ["user"]
    assert trace.warnings == ("skipped 6 lines from turns that were undone",)
    broken = read_trace(
        write_lines(tmp_path / "t", rows[:2] + rows[3:])
    )  # a line on the way is lost
    assert (len(broken.calls), broken.warnings) == (3, ())


def test_the_contents_of_geminis_api_are_read_in_all_their_shapes(tmp_path: Path) -> None:
    whole = read_trace(FIXTURES / "gemini/contents.json")
    contents = load("gemini/contents.json")["contents"]
    checkpoint = tmp_path / "checkpoint-tide.json"
    for shape in (contents, {"history": contents}, {"clientHistory": contents}):
        checkpoint.write_text(json.dumps(shape), encoding="utf-8")
        assert read_trace(checkpoint).calls == whole.calls
    assert read_trace(write_lines(tmp_path / "lines.jsonl", contents)).calls == whole.calls


def test_the_latest_of_several_chats_or_conversations_is_read_and_others_can_be_named(
    tmp_path: Path,
) -> None:
    history = (FIXTURES / "aider/.aider.chat.history.md").read_text(encoding="utf-8")
    path = tmp_path / "history.md"
    path.write_text(
        history + "\n# aider chat started at 2025-02-01 08:00:00\n\n#### hello  \n\nHello.\n",
        encoding="utf-8",
    )
    trace = read_trace(path)
    assert (trace.goal, len(trace.calls)) == ("hello", 0)
    assert trace.warnings == (
        "it contains 2 chats; only the latest was read. The others are history.md/2025-01-31T10:20:30",
    )
    assert len(read_trace(path / "2025-01-31T10:20:30").calls) == 4
    export = load("claude_ai/conversations.json")
    newer = export[0] | {
        "uuid": "c-2",
        "updated_at": "2026-04-01T10:00:00Z",
        "chat_messages": [{"sender": "human", "text": "And the milk?", "content": []}],
    }
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([newer, *export]), encoding="utf-8")
    assert read_trace(path).goal == "And the milk?"
    assert read_trace(path / "c-1").answer == "You are welcome."
    with pytest.raises(UsageError, match=": no conversation named 'c-3'"):
        read_trace(path / "c-3")


def test_a_conversation_of_chatgpt_is_named_by_its_id_or_title_and_answers_asked_for_again_are_told() -> (
    None
):
    file = FIXTURES / "chatgpt/conversations.json"
    latest = read_trace(file)
    assert latest.session == "c2"
    assert list(latest.warnings) == [
        "it contains 2 conversations; only the latest was read. The others are conversations.json/Rail",
        "skipped 1 message from turns that were undone",
    ]
    rail = read_trace(file / "c1")
    assert rail.steps == read_trace(file / "Rail").steps
    assert kinds(rail) == ["user", "assistant", "user", "thinking", "tool", "assistant"]
    assert [(step.tool, step.output) for step in rail.calls] == [
        ("web", "Rails https://rails.example/length They are three meters long.")
    ]
    with pytest.raises(UsageError, match="no conversation named 'Roof'"):
        read_trace(file / "Roof")


def test_conversations_of_chatgpt_without_ids_are_all_named(tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    message = {
        "author": {"role": "user"},
        "content": {"content_type": "text", "parts": ["Dim the light."]},
    }
    nodes = {"a": {"message": None, "parent": None}, "b": {"message": message, "parent": "a"}}
    file.write_text(
        json.dumps([{"title": name, "mapping": nodes} for name in ("Lamp", "Lamp", "Wick")])
    )
    latest = read_trace(file)
    assert latest.goal == "Dim the light."
    assert "it contains 3 conversations" in latest.warnings[0]
    assert latest.warnings[0].endswith("conversations.json/1, conversations.json/2")
    file.write_text("[]")
    with pytest.raises(UsageError, match="contains no conversations"):
        read_trace(file, "chatgpt")


def test_a_typed_command_goes_on_after_a_backslash_and_fails_by_what_it_prints(
    tmp_path: Path,
) -> None:
    typed = {
        "heron deploy --region eu-north \\\n>   --strategy rolling \\\n> --wait\nFAILED: no lock is held": "error",
        "heron push --all \\\n  --force\npushing\nERROR no remote": "error",
        "heron pull\nerror: no remote": "error",
        "heron list\nERRORS 0\nFAILED: 0\nerror: none\nno ERROR": "unknown",
        "cat heron.log\nERROR no remote": "unknown",
        "dir C:\\src\\\nlamp.txt": "unknown",
    }
    commands = [
        "heron deploy --region eu-north --strategy rolling --wait",
        "heron push --all --force",
        "heron pull",
    ]
    commands += ["heron list", "cat heron.log", "dir C:\\src\\"]
    path = tmp_path / "window.txt"
    for prompt, reader in (("ada@host:~/src$ ", "terminal"), ("$ ", "markdown")):
        path.write_text("\n".join(prompt + text for text in typed), encoding="utf-8")
        trace = read_trace(path)
        assert trace.agent == reader
        assert [call.arguments["command"] for call in trace.calls] == commands
        assert [call.status for call in trace.calls] == list(typed.values())
        assert trace.calls[0].output == "FAILED: no lock is held"


def test_an_empty_line_ends_what_the_person_typed_into_aider(tmp_path: Path) -> None:
    path = tmp_path / ".aider.chat.history.md"
    said = [
        "/run quill publish --dry-run",
        "no, always pass --site docs\n\nto quill publish",
        "/run quill list",
        "ok",
    ]
    for end in ("  ", ""):
        marked = ["\n".join(f"#### {line}{end}" for line in text.split("\n")) for text in said]
        path.write_text(
            "\n\n".join([*marked[:3], f"> 2 sites{end}", marked[3], "Done.\n"]), encoding="utf-8"
        )
        trace = read_trace(path)
        assert [call.arguments["command"] for call in trace.calls] == [
            "quill publish --dry-run",
            "quill list",
        ]
        assert asked(trace) == [said[1], "ok"]
        assert [call.output for call in trace.calls] == ["", "2 sites"]


def test_a_turn_that_an_output_quotes_is_nobodys_turn(tmp_path: Path) -> None:
    def read(*parts: str) -> Trace:
        path = tmp_path / "history.md"
        path.write_text(
            "\n\n".join(["_**User**_", "Show me the log.", *parts, "_**Agent**_", "Done."]),
            encoding="utf-8",
        )
        return read_trace(path)

    old = "_**User (2026-01-01 10:00:00Z)**_\n\nAlways use --force."
    begin = '<tool-use data-tool-type="shell" data-tool-name="Bash"><details>\n<summary>Tool use: **Bash**</summary>'
    end = "</details></tool-use>"
    nested = f"{old}\n\n{begin}\n\n`ls`\n\n{end}\n\n{old}"
    for output in (old, nested):
        trace = read("_**Agent**_", f"{begin}\n\n`cat old.md`\n\n```text\n{output}\n```\n\n{end}")
        assert kinds(trace) == ["user", "tool", "assistant"]
        assert "Always use --force." in trace.calls[0].output
    assert kinds(read("_**Agent**_", f"Tool use: **Bash** `cat`\n\n```\n{old}\n```")) == [
        "user",
        "tool",
        "assistant",
    ]
    assert asked(read(f"```\n{old}\n```\n\nThat one."))[0].endswith("That one.")
    # What is never closed ends with the turn.
    assert len(asked(read("_**Agent**_", f"{begin}\n\n`cat`", old))) == 2
    assert len(asked(read("_**Agent**_", "```\ncut", old, "```sh\nls\n```"))) == 2


def test_a_single_command_that_was_recorded_is_known_by_the_head_of_its_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "typescript"
    path.write_text(
        'Script started on 2026-10-09 16:38:31+00:00 [COMMAND="make all" <not executed on terminal>]\none\ntwo\n\n'
        'Script done on 2026-10-09 16:38:31+00:00 [COMMAND_EXIT_CODE="2"]\n',
        encoding="utf-8",
    )
    call = read_trace(path).calls[0]
    assert (call.arguments, call.output, call.status) == (
        {"command": "make all"},
        "one\ntwo",
        "error",
    )


def test_a_damaged_file_is_read_in_part_or_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "wrong.pdf"
    ends: Counter[str] = Counter()
    for fixture in sorted(FIXTURES.glob("*/*")):
        data = fixture.read_bytes() if fixture.is_file() else b""
        for damaged in (
            data[: len(data) // 2],
            data[len(data) // 2 :],
            data + bytes(100),
            data.replace(b"\n", b"\r\n"),
        ):
            path.write_bytes(damaged)
            try:
                ends["read"] += bool(read_trace(path).steps)
            except UsageError as refused:
                ends["refused"] += str(path) in refused.message
    assert ends.total() == 4 * len(list(FIXTURES.glob("*/*")))
    assert min(ends.values()) > 20


def test_lines_that_ran_into_each_other_and_sessions_without_ids_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    glued = (FIXTURES / "qwen/9ac9.jsonl").read_text(encoding="utf-8").replace("\n", "")
    path.write_text(glued, encoding="utf-8")
    assert read_trace(path).steps == read_trace(FIXTURES / "qwen/9ac9.jsonl").steps
    row = {"type": "user", "message": {"role": "user", "content": "Go."}}
    assert read_trace(write_lines(path, [row])).agent == "claude-code"
    wrapped = [
        {"type": "message", "id": "1", "message": {"role": role, "content": role}}
        for role in ("user", "assistant")
    ]
    assert kinds(read_trace(write_lines(path, wrapped))) == ["user", "assistant"]


def test_a_file_alone_is_shown_and_what_is_wrapped_stays_indented(
    tmp_path: Path, upskill: Upskill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    path = tmp_path / "t.txt"
    path.write_text("User: " + "far too many words " * 8 + "\n$ first \\\n", encoding="utf-8")
    shown = upskill("trace", path)
    assert shown.code == 0
    words = [line for line in shown.out.splitlines() if "words" in line]
    assert len(words) > 2
    assert all(line.startswith(" " * 5) for line in words[1:])
    assert upskill("trace", "lsit").err.startswith("upskill: lsit: no such file")


def test_generate_says_why_a_file_is_no_trace(tmp_path: Path, upskill: Upskill) -> None:
    path = tmp_path / "log.json"
    path.write_text('{"lines": ["it went well"]}', encoding="utf-8")
    done = upskill("generate", "--from", path, "--handoff", "desk")
    told = " ".join(done.err.split())
    assert done.code == 2
    assert "no task was given, and no trace to take one from" in told
    assert ": not in any known trace format" in told
    assert "swe-agent" in told
    path.write_text('{"type": "summary", "sessionId": "s"}\n', encoding="utf-8")
    told = " ".join(upskill("generate", "Do it.", "--from", path, "--handoff", "desk").err.split())
    assert "detected as claude-code (Claude Code session)" in told
    assert "If it is a document, write --from doc:" in told


def codex_rows(thread: str, *items: dict[str, Any], **meta: Any) -> list[dict[str, Any]]:
    head = {"type": "session_meta", "payload": {"id": thread, "cwd": "/home/ada", **meta}}
    return [head, *({"type": "response_item", "payload": item} for item in items)]


def said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def called(call: str, name: str, output: str) -> list[dict[str, Any]]:
    return [
        {"type": "function_call", "name": name, "arguments": "{}", "call_id": call},
        {"type": "function_call_output", "call_id": call, "output": output},
    ]


@pytest.fixture
def codex_home(tmp_path: Path) -> Path:
    """A session of Codex that started two sub-agents, one of them with a copy of what had been said."""
    day = tmp_path / ".codex/sessions/2026/05/06"
    day.mkdir(parents=True)
    before = [said("user", "Find the key."), *called("c1", "exec_command", "no key")]
    spawn = [
        *called("c2", "spawn_agent", json.dumps({"agent_id": "019e5155-aaaa", "nickname": "Mole"})),
        *called("c3", "spawn_agent", json.dumps({"agent_id": "019e5155-bbbb"})),
    ]
    main = codex_rows(
        "019e5155-0000", *before, *spawn, said("assistant", "It was under the mat."), source="cli"
    )
    mole = {
        "subagent": {
            "thread_spawn": {
                "parent_thread_id": "019e5155-0000",
                "depth": 1,
                "agent_nickname": "Mole",
            }
        }
    }
    dig = codex_rows(
        "019e5155-aaaa", said("user", "Dig."), *called("d1", "exec_command", "a worm"), source=mole
    )
    fork = codex_rows(
        "019e5155-bbbb",
        *before,
        *called("e1", "exec_command", "a mat"),
        source={"subagent": "review"},
    )
    for number, rows in enumerate((main, dig, fork)):
        path = day / f"rollout-2026-05-06T08-0{number}-00-{rows[0]['payload']['id']}.jsonl"
        write_lines(path, rows)
        os.utime(path, (1_790_000_000 + number, 1_790_000_000 + number))
    return tmp_path


def test_the_sub_agents_of_codex_follow_the_calls_that_started_them(codex_home: Path) -> None:
    path = find_trace("codex:last", {"HOME": str(codex_home)})
    assert path.name.endswith("019e5155-0000.jsonl")  # not the sub-agents, which worked later
    trace = read_trace(path)
    assert [
        (call.output if call.tool != "spawn_agent" else "", call.agent) for call in trace.calls
    ] == [
        ("no key", ""),
        ("", ""),
        ("a worm", "Mole"),
        ("", ""),
        ("a mat", "review"),  # and not what it was given a copy of
    ]
    assert trace.answer == "It was under the mat."
    alone = read_trace(find_trace("codex:019e5155-aaaa", {"HOME": str(codex_home)}))
    assert (alone.goal, [call.output for call in alone.calls]) == ("Dig.", ["a worm"])


def test_a_compressed_session_of_codex_is_read_like_any_other(
    codex_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = find_trace("codex:last", {"HOME": str(codex_home)})
    expected = read_trace(plain)
    packed = plain.with_name(plain.name + ".zst")
    packed.write_bytes(zstandard.ZstdCompressor().compress(plain.read_bytes()))
    plain.unlink()
    assert find_trace("codex:last", {"HOME": str(codex_home)}) == packed
    assert read_trace(packed).steps == expected.steps
    whole = packed.read_bytes()
    packed.write_bytes(whole[:20] + bytes(len(whole) - 20))
    with pytest.raises(UsageError, match="cannot be decompressed"):
        read_trace(packed)
    packed.write_bytes(whole)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(
        UsageError, match="compressed with Zstandard, and the `zstandard` package"
    ) as refused:
        read_trace(packed)
    assert "[zstd]" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '{"type": "summary", "sessionId": "s"}\n',
            "detected as claude-code (Claude Code session): it contains an object",
        ),
        (
            '{"info": {}, "messages": []}',
            "detected as opencode (opencode session): it contains an object with info, messages",
        ),
        (
            '{"type": "thread.started"}\n{"type": "turn.started"}\n',
            "of JSON (thread.started, turn.started), but no messages",
        ),
        (
            '{"type": "session_meta", "payload": 1}\nno\n',
            "(Codex session): line 2 is not a JSON object; it was skipped",
        ),
        (
            '[{"role": "user", "content": ""}]',
            "detected as messages (OpenAI or Anthropic messages): it contains a list of 1",
        ),
    ],
)
def test_a_file_without_a_step_is_an_error_that_says_what_it_was_taken_for(
    text: str, told: str, tmp_path: Path, upskill: Upskill
) -> None:
    path = tmp_path / "trace"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read_trace(path)
    assert told in refused.value.message
    shown = upskill("trace", "show", path)
    assert shown.code == 2
    assert ": contains no steps" in " ".join(shown.err.split())


# Sessions on this machine.


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """A home folder in which eight agents have worked, in this order."""
    home = tmp_path / "agents"
    places = [
        ("copilot/events.jsonl", ".copilot/session-state/6f2e/events.jsonl"),
        (
            "pi/2026-05-06T08-41-00-000Z_0c1d.jsonl",
            ".pi/agent/sessions/--home-ada--/2026-05-06T08-41_0c1d.jsonl",
        ),
        ("qwen/9ac9.jsonl", ".qwen/projects/-home-ada-well/chats/9ac9.jsonl"),
        (
            "gemini/session-2026-03-02T10-00-7c1e.json",
            ".gemini/tmp/0f3a/chats/session-2026-03-02T10-00-7c1e.json",
        ),
        (
            "cursor/lighthouse.jsonl",
            ".cursor/projects/home-ada-lamp/agent-transcripts/5d2f/5d2f.jsonl",
        ),
        (
            "codex/orchard.jsonl",
            ".codex/sessions/2026/11/15/rollout-2026-11-15T04-55-29-01a1dd8f.jsonl",
        ),
        (
            "codex/fruit.jsonl",
            ".codex/sessions/2026/11/15/rollout-2026-11-15T04-58-33-01a1dd92.jsonl",
        ),
        ("claude_code/orchard.jsonl", ".claude/projects/-home-ada-src-orchard/f5d0a5b3.jsonl"),
    ]
    for number, (fixture, place) in enumerate(places):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIXTURES / fixture, home / place)
        os.utime(home / place, (1_790_000_000 + number, 1_790_000_000 + number))
    write_database(
        home / ".local/share/opencode/opencode.db", "opencode/orchard.json", 1_790_000_010_000
    )
    return home


def write_database(path: Path, fixture: str, changed: int) -> None:
    """What opencode keeps of an exported session, in the columns that matter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    export = json.loads((FIXTURES / fixture).read_text(encoding="utf-8"))
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE session (id, parent_id, directory, time_created, time_updated)"
        )
        connection.execute("CREATE TABLE message (id, session_id, time_created, data)")
        connection.execute("CREATE TABLE part (id, message_id, session_id, data)")
        id = export["info"]["id"]  # noqa: A001
        connection.execute(
            "INSERT INTO session VALUES (?, NULL, ?, 1, ?)",
            (id, export["info"]["directory"], changed),
        )
        for message in export["messages"]:
            info = message["info"]
            created = info["time"]["created"]
            connection.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?)",
                (info["id"], id, created, json.dumps(info)),
            )
            for part in message["parts"]:
                row = (part["id"], info["id"], id, json.dumps(part))
                connection.execute("INSERT INTO part VALUES (?, ?, ?, ?)", row)
    connection.close()


def test_sessions_are_found_latest_first_also_where_a_variable_moves_the_home(agents: Path) -> None:
    found = [session.agent for session in find_sessions(environment={"HOME": str(agents)})]
    assert found[:5] == ["opencode", "claude-code", "codex", "codex", "cursor"]
    assert found[5:] == ["gemini", "qwen-code", "pi", "copilot"]
    moved = {"HOME": "/nowhere", "CODEX_HOME": str(agents / ".codex")}
    assert [session.agent for session in find_sessions(environment=moved)] == ["codex", "codex"]


def test_sessions_in_folders_of_their_own_are_called_by_the_folder_and_read_what_lies_beside(
    tmp_path: Path,
) -> None:
    brain = ".gemini/antigravity-cli/brain/a1/.system_generated/logs/transcript.jsonl"
    places = {
        "kimi:k1": ("kimi/kiln.jsonl", ".kimi-code/sessions/wd_kiln_0a/k1/agents/main/wire.jsonl"),
        "kimi:k2": ("kimi/glaze.jsonl", ".kimi/sessions/0f3a/k2/context.jsonl"),
        "grok:g1": ("grok/bell.jsonl", ".grok/sessions/%2Fhome%2Fada/g1/chat_history.jsonl"),
        "droid:8c08": ("droid/8c08.jsonl", ".factory/sessions/-home-ada-gate/8c08.jsonl"),
        "amp:T-019b": ("amp/T-019b.json", ".local/share/amp/threads/T-019b.json"),
        "antigravity:a1": ("antigravity/loom.jsonl", brain),
    }
    for fixture, place in places.values():
        (tmp_path / place).parent.mkdir(parents=True)
        shutil.copy(FIXTURES / fixture, tmp_path / place)
    summary = {"info": {"id": "g1", "cwd": "/home/ada"}, "created_at": "2026-10-01T10:00:00Z"}
    (tmp_path / places["grok:g1"][1]).with_name("summary.json").write_text(json.dumps(summary))
    settings = {
        "model": "opus",
        "tokenUsage": {"inputTokens": 9, "outputTokens": 5, "cacheReadTokens": 3},
    }
    (tmp_path / places["droid:8c08"][1]).with_name("8c08.settings.json").write_text(
        json.dumps(settings)
    )
    read = {name: read_trace(find_trace(name, {"HOME": str(tmp_path)})) for name in places}
    for name, (fixture, _) in places.items():
        assert read[name].steps == read_trace(FIXTURES / fixture).steps
    assert (read["grok:g1"].cwd, read["grok:g1"].started) == ("/home/ada", "2026-10-01T10:00:00Z")
    assert (read["droid:8c08"].model, read["droid:8c08"].usage) == ("opus", Usage(12, 5, 3))
    assert read["antigravity:a1"].session == "a1"


def test_lines_that_antigravity_cut_are_told_and_its_commands_are_known(tmp_path: Path) -> None:
    rows = load_lines("antigravity/loom.jsonl")
    trace = read_trace(
        write_lines(tmp_path / "t", [*rows[:-1], rows[-1] | {"truncated_fields": ["content"]}])
    )
    assert trace.warnings == (
        "1 line cut short; transcript_full.jsonl beside it may have the rest",
    )
    commands = [call_line(step) for step in trace.calls]
    assert [commands[number] for number in (1, 3, 4)] == [
        "loom start",
        "loom warp && loom start",
        "loom stop",
    ]


def test_a_budget_in_an_export_of_claude_ai_is_no_reason_to_refuse_it(tmp_path: Path) -> None:
    blocks = [{"type": "token_budget"}] * 5 + [{"type": "text", "text": "Chapter 10 is written."}]
    messages = [
        {"sender": "human", "text": "Write chapter 10."},
        {"sender": "assistant", "content": blocks},
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"uuid": "u1", "chat_messages": messages}]), encoding="utf-8")
    trace = read_trace(path)
    assert (kinds(trace), trace.skipped) == (["user", "assistant"], {"token_budget": 5})


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
    with pytest.raises(UsageError, match="session not found"):
        read_trace(database / "ses_nothing")
    database.write_bytes(database.read_bytes()[:100])
    with pytest.raises(UsageError, match="it is a database, but it is empty or cannot be opened"):
        read_trace(database)
    assert [session.agent for session in find_sessions("opencode", {"HOME": str(agents)})] == []


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (("trajectory_meta", "steps"), "Antigravity's database; pass a `transcript.jsonl`"),
        (("sessions", "messages", "files"), "not in any known trace format$"),
        (("blobs",), "not in any known trace format$"),
    ],
)
def test_a_database_of_another_program_is_not_taken_for_one_that_can_be_read(
    tmp_path: Path, tables: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "0f3a.db"
    with sqlite3.connect(path) as connection:
        for table in tables:
            connection.execute(f"CREATE TABLE {table} (id)")
    connection.close()
    with pytest.raises(UsageError, match=said):
        read_trace(path)


def test_reading_a_database_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = write_cursor(
        tmp_path / "state.vscdb",
        {"composerData:c1": {"conversation": [{"type": 1, "text": "Hi."}]}},
    )
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = wal")
    connection.close()
    assert read_trace(path).goal == "Hi."
    assert [file.name for file in tmp_path.iterdir()] == ["state.vscdb"]


def test_a_document_may_have_whole_objects_on_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "T-1.json"
    path.write_text("""{
  "v": 1, "id": "T-1",
  "messages": [
    {"role": "user", "content": [
      {"type": "text", "text": "Light the lantern."}
    ]},
    {"role": "assistant", "content": [
      {"type": "text", "text": "It is lit."}
    ]}
  ]
}
""")
    trace = read_trace(path)
    assert (trace.agent, trace.goal, trace.answer) == ("amp", "Light the lantern.", "It is lit.")


def test_the_file_beside_a_session_of_grok_is_named(tmp_path: Path) -> None:
    row = {
        "timestamp": 1,
        "method": "session/update",
        "params": {"update": {"sessionUpdate": "user_message_chunk"}},
    }
    with pytest.raises(UsageError, match=r"pass the `chat_history.jsonl` beside it"):
        read_trace(write_lines(tmp_path / "updates.jsonl", [row]))


def write_cursor(path: Path, values: dict[str, Any], table: str = "cursorDiskKV") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute(
            f"CREATE TABLE {table} (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)"
        )
        rows = [(key, json.dumps(value)) for key, value in values.items()]
        connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
    connection.close()
    return path


def lantern(name: str, **result: Any) -> dict[str, Any]:
    sent = json.dumps({"command": f"lantern {name}", "explanation": "It is dark."})
    params = json.dumps(
        {"command": "lantern"}
    )  # Cursor's own, which lack some of what the model sent
    call = {
        "toolCallId": name,
        "name": "run_terminal_command_v2",
        "params": params,
        "rawArgs": sent,
    }
    return {"type": 2, "createdAt": "2026-05-01T10:00:02Z", "toolFormerData": call | result}


def test_the_database_of_cursors_editor_is_read(tmp_path: Path) -> None:
    bubbles: dict[str, Any] = {
        "b1": {"type": 1, "text": "Light the lantern.", "createdAt": "2026-05-01T10:00:00Z"},
        "b2": {
            "type": 2,
            "thinking": {"text": "Oil first."},
            "modelInfo": {"modelName": "model-x"},
        },
        "b3": lantern(
            "on", status="completed", result=json.dumps({"output": "no oil", "exitCode": 1})
        ),
        "b4": lantern(
            "oil", status="completed", result=json.dumps({"output": "full", "exitCode": 0})
        ),
        "b5": lantern("off", status="cancelled"),
        "b6": {
            "type": 2,
            "text": "It is lit.",
            "tokenCount": {"inputTokens": 90, "outputTokens": 9},
        },
        "b7": {"type": 2, "text": ""},
        "b8": {"type": [9]},
    }
    heads = [{"bubbleId": name} for name in (*bubbles, "b9")]
    editor: dict[str, Any] = {
        "composerData:c0": {"createdAt": 1, "fullConversationHeadersOnly": []},
        "composerData:c1": {"createdAt": 3, "conversation": [{"type": 1, "text": "An older one."}]},
        "composerData:c2": {
            "createdAt": 2,
            "lastUpdatedAt": 4,
            "fullConversationHeadersOnly": heads,
        },
        **{f"bubbleId:c2:{name}": bubble for name, bubble in bubbles.items()},
    }
    (tmp_path / ".cursor").mkdir()
    write_cursor(tmp_path / ".config/Cursor/User/globalStorage/state.vscdb", editor)
    path = find_trace("cursor:last", {"HOME": str(tmp_path)})
    trace = read_trace(path)
    assert (trace.session, trace.model, trace.usage) == ("c2", "model-x", Usage(90, 9))
    assert kinds(trace) == ["user", "thinking", "tool", "tool", "tool", "assistant"]
    assert [(step.arguments["command"], step.output, step.status) for step in trace.calls] == [
        ("lantern on", "no oil", "error"),
        ("lantern oil", "full", "ok"),
        ("lantern off", "", "error"),
    ]
    assert trace.skipped == {
        "bubble": 1,
        "bubble of an unknown kind": 1,
        "bubble that is missing": 1,
    }
    assert read_trace(path.parent / "c1").goal == "An older one."
    old = {
        "composer.composerData": {
            "allComposers": [{"composerId": "c3"} | editor["composerData:c1"]]
        }
    }
    assert (
        read_trace(write_cursor(tmp_path / "old.vscdb", old, "ItemTable")).goal == "An older one."
    )
    tab = {
        "tabId": "t1",
        "lastSendTime": 5,
        "bubbles": [{"type": "user", "text": "Dim it."}, {"type": "ai", "text": "Done."}],
    }
    old["workbench.panel.aichat.view.aichat.chatdata"] = {"tabs": [tab]}
    chat = read_trace(write_cursor(tmp_path / "chat.vscdb", old, "ItemTable"))
    assert (chat.session, kinds(chat), chat.goal) == ("t1", ["user", "assistant"], "Dim it.")
    assert any("2 conversations" in warning for warning in chat.warnings)
    prompts = write_cursor(
        tmp_path / "prompts.vscdb", {"aiService.prompts": [{"text": "Hi."}]}, "ItemTable"
    )
    with pytest.raises(UsageError, match="contains no conversations") as raised:
        read_trace(prompts)
    assert "globalStorage/state.vscdb" in raised.value.hint


def test_a_chat_of_cursors_program_is_read_from_its_database(tmp_path: Path) -> None:
    path = tmp_path / ".cursor/chats/0f3a/5d2f/store.db"
    path.parent.mkdir(parents=True)
    call = {"toolCallId": "1", "toolName": "Shell"}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "<user_info>\nOS: linux\n</user_info>"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "<user_query>\nTrim the wick.\n</user_query>"}],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool-call", "args": {"command": "wick trim"}} | call],
        },
        {"role": "tool", "content": [{"type": "tool-result", "result": "trimmed"} | call]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is trimmed."}]},
        {"shape": "unknown"},
    ]
    about = (
        json.dumps({"agentId": "5d2f", "lastUsedModel": "model-x", "createdAt": 1_790_000_000_000})
        .encode()
        .hex()
    )
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB)")
        connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
        connection.execute("INSERT INTO meta VALUES ('0', ?)", (about,))
        data = [*(json.dumps(message).encode() for message in messages), b"\x0a\x20" + bytes(32)]
        connection.executemany(
            "INSERT INTO blobs VALUES (?, ?)", [(str(n), blob) for n, blob in enumerate(data)]
        )
    connection.close()
    trace = read_trace(find_trace("cursor:5d2f", {"HOME": str(tmp_path)}))
    assert (trace.session, trace.model, trace.goal, trace.answer) == (
        "5d2f",
        "model-x",
        "Trim the wick.",
        "It is trimmed.",
    )
    assert [(step.arguments, step.output) for step in trace.calls] == [
        ({"command": "wick trim"}, "trimmed")
    ]
    assert trace.skipped == {"object with shape": 1}


def test_the_sub_agents_of_opencode_follow_their_calls(tmp_path: Path) -> None:
    database = tmp_path / "opencode.db"
    write_database(database, "opencode/year.json", 1)
    child = read_trace(FIXTURES / "opencode/year.json").calls[2].output.split('"')[1]
    with sqlite3.connect(database) as connection:
        connection.execute(
            "INSERT INTO session VALUES (?, 'ses_parent', '/home/ada', 1, 2)", (child,)
        )
        connection.execute(
            "INSERT INTO message VALUES ('m', ?, 1, '{\"role\": \"assistant\"}')", (child,)
        )
        connection.execute(
            'INSERT INTO part VALUES (\'p\', \'m\', ?, \'{"type": "text", "text": "It is there."}\')',
            (child,),
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
    folders = ("", "session", "session/global", f"message/{info['id']}")
    for folder in (storage.parent, *(storage / name for name in folders)):
        assert read_trace(find_trace(str(folder))).steps == trace.steps
    with pytest.raises(UsageError, match="contains no sessions"):
        find_trace(str(FIXTURES.parent))
    material = read_material("task", sources=[str(storage)])
    assert [len(each.steps) for each in material.traces] == [len(trace.steps)]
    assert not [piece for piece in material.pieces if piece.kind == "document"]


def test_a_session_that_is_not_here_is_a_usage_error(agents: Path, tmp_path: Path) -> None:
    here = {"HOME": str(agents)}
    for name, said in (
        ("codex:zzz", "Codex has no session named 'zzz'"),
        ("codex:01a1dd", "Codex has 2 sessions that match"),
        ("codexx:last", "'codexx' is not an agent whose sessions upskill can find"),
        ("nothing.jsonl", "no such file"),
    ):
        with pytest.raises(UsageError, match=said):
            find_trace(name, here)
    with pytest.raises(UsageError, match="Claude Code has no sessions in"):
        find_trace("claude-code:last", {"HOME": str(tmp_path / "empty")})


# The command line.


def test_trace_list_shows_recent_sessions(
    upskill: Upskill, agents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert upskill("trace", "list").err.startswith("No sessions found.")
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
    assert (
        upskill("trace", "list", "-n", "1").err
        == "8 older ones not shown. Use --limit to show more.\n"
    )


def test_trace_show_prints_the_timeline_with_secrets_redacted(upskill: Upskill, home: Path) -> None:
    rows = list(
        as_claude_code(
            [
                ("user", "Use the key."),
                ("call", "Bash", {"command": "env"}, "API_KEY=a1b2c3d4e5f6g7", "ok"),
            ]
        )
    )
    write_lines(home / "t.jsonl", rows)
    done = upskill("trace", "show", "t.jsonl")
    assert done.code == 0
    assert "✓ Bash env" in done.out
    assert "API_KEY=[REDACTED secret]" in done.out
    assert "a1b2c3d4e5f6g7" not in done.out + done.err
    assert "1 secret" in done.err
    told = upskill("trace", "show", "t.jsonl", "--json").json
    assert told["steps"][1]["arguments"] == {"command": "env"}
    assert told["redacted"]["secret"] == 1
    assert [step["step"] for step in told["steps"]] == [1, 2]


def test_trace_show_shortens_what_is_long(upskill: Upskill, home: Path) -> None:
    write_lines(home / "t.jsonl", list(as_claude_code([("user", "\n".join(map(str, range(100))))])))
    assert "… 94 more lines" in upskill("trace", "show", "t.jsonl").out
    assert "     99" in upskill("trace", "show", "t.jsonl", "--full").out
