"""Trace formats of other programs: every call and output of the raw file is there, and nothing is read as empty."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from conftest import REPOSITORY, Upskill
from upskill.errors import UsageError
from upskill.traces import Step, Trace, Usage
from upskill.traces.formats import read_trace
from upskill.traces.sessions import find_trace

FIXTURES = REPOSITORY / "tests" / "fixtures" / "traces"
Calls = list[tuple[str, str]]  # what a file says was run, and what came back


def load(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text(encoding="utf-8"))


def load_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / name).read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def swe_agent_calls(name: str) -> Calls:
    return [(step["action"].strip(), step["observation"]) for step in load(name)["trajectory"] if step["action"]]


def demonstrated_calls(name: str) -> Calls:
    history = load(name)["history"]
    return [(said["action"], seen["content"]) for said, seen in itertools.pairwise(history) if "action" in said]


def mini_calls(name: str) -> Calls:
    messages = load(name)
    found: Calls = []
    for said, seen in itertools.pairwise(messages):
        if said["role"] == "assistant" and said["content"].count("```") == 2:
            output = seen["content"].partition("<output>\n")[2].removesuffix("</output>")
            found.append((said["content"].split("```")[1].partition("\n")[2].strip(), output))
    return found


def mini_function_calls(name: str) -> Calls:
    messages = load(name)["messages"]
    outputs = {said["tool_call_id"]: said["extra"]["raw_output"] for said in messages if said["role"] == "tool"}
    actions = [action for said in messages for action in said.get("extra", {}).get("actions", [])]
    return [(action["command"], outputs.get(action["tool_call_id"], messages[-1]["content"])) for action in actions]


def openhands_calls(events: list[dict[str, Any]]) -> Calls:
    outputs = {event["cause"]: event["content"] for event in events if "observation" in event}
    done = [event for event in events if event.get("action") in ("run", "edit")]
    return [(event["args"]["command"], outputs[event["id"]]) for event in done]


def present_openhands_calls(name: str) -> Calls:
    events = load_lines(name)
    outputs = {
        event["tool_call_id"]: event["observation"]["content"][0]["text"] if "observation" in event else event["error"]
        for event in events
        if event["kind"] in ("ObservationEvent", "AgentErrorEvent")
    }
    done = [event for event in events if event["kind"] == "ActionEvent" and event["tool_name"] != "finish"]
    return [((event["action"] or {}).get("command", ""), outputs[event["tool_call_id"]]) for event in done]


def copilot_calls(name: str) -> Calls:
    events = load_lines(name)
    begun = [event["data"] for event in events if event["type"] == "tool.execution_start"]
    ended = {event["data"]["toolCallId"]: event["data"] for event in events if event["type"].endswith("_complete")}
    outputs = {call: data.get("result", {}).get("content") or data["error"]["message"] for call, data in ended.items()}
    return [(data["arguments"].get("command", ""), outputs[data["toolCallId"]]) for data in begun]


def pi_calls(name: str) -> Calls:
    said = [row["message"] for row in load_lines(name) if row["type"] == "message"]
    outputs = {row["toolCallId"]: row["content"][0]["text"] for row in said if row["role"] == "toolResult"}
    blocks = [block for row in said if row["role"] == "assistant" for block in row["content"]]
    calls = [
        (block["arguments"].get("command", ""), outputs[block["id"]]) for block in blocks if block["type"] == "toolCall"
    ]
    return calls + [(row["command"], row["output"]) for row in said if row["role"] == "bashExecution"]


def claude_ai_calls(name: str) -> Calls:
    blocks = [block for message in load(name)[0]["chat_messages"] for block in message["content"]]
    back = [block["content"] for block in blocks if block["type"] == "tool_result"]
    outputs = [output if isinstance(output, str) else output[0]["text"] for output in back]
    return [("", output) for output in outputs] if sum(block["type"] == "tool_use" for block in blocks) == 2 else []


def specstory_calls(name: str) -> Calls:
    text = (FIXTURES / name).read_text(encoding="utf-8")
    blocks = [block.partition("_**")[0] for block in text.split("Tool use: ")[1:]]
    found: Calls = []
    for block in blocks:
        fences = [fence.partition("\n") for fence in block.split("```")[1::2]]
        found.append(("", "".join(rest.rstrip("\n") for language, _, rest in fences if language in ("", "text"))))
    return found


def otel_calls(name: str) -> Calls:
    spans = [span for row in load_lines(name) for span in row["resourceSpans"][0]["scopeSpans"][0]["spans"]]
    done = sorted(
        (span for span in spans if span["name"].startswith("execute_tool")), key=lambda span: span["startTimeUnixNano"]
    )
    told = [
        {pair["key"]: pair["value"].get("stringValue") for of in (span, *span["events"]) for pair in of["attributes"]}
        for span in done
    ]
    return [("", about.get("gen_ai.tool.call.result") or about["exception.message"]) for about in told]


def parts_calls(messages: list[dict[str, Any]]) -> Calls:
    parts = [part for message in messages for part in message["parts"]]
    done = [part["functionCall"]["args"].get("command", "") for part in parts if "functionCall" in part]
    back = [next(iter(part["functionResponse"]["response"].values())) for part in parts if "functionResponse" in part]
    code = [(part["executableCode"]["code"], "False\n") for part in parts if "executableCode" in part]
    return [*zip(done, back, strict=True), *code]


RAW: dict[str, Callable[[str], Calls]] = {
    "swe_agent/bell.traj": swe_agent_calls,
    "swe_agent/bell-calls.traj": swe_agent_calls,
    "swe_agent/demonstration.traj": demonstrated_calls,
    "mini_swe_agent/kettle.traj.json": mini_calls,
    "mini_swe_agent/kettle-calls.traj.json": mini_function_calls,
    "openhands/output.jsonl": lambda name: openhands_calls(load_lines(name)[0]["history"]),
    "openhands/trajectory.json": lambda name: openhands_calls(load(name)),
    "openhands/events.jsonl": present_openhands_calls,
    "copilot/events.jsonl": copilot_calls,
    "pi/2026-05-06T08-41-00-000Z_0c1d.jsonl": pi_calls,
    "qwen/9ac9.jsonl": lambda name: parts_calls([row["message"] for row in load_lines(name) if "message" in row]),
    "claude_ai/conversations.json": claude_ai_calls,
    "specstory/2026-01-16_16-26-02Z-which-lamp.md": specstory_calls,
    "otel/bridge.jsonl": otel_calls,
    "gemini/contents.json": lambda name: parts_calls(load(name)["contents"]),
}


@pytest.mark.parametrize("name", RAW)
def test_every_call_and_every_output_of_the_raw_file_is_there(name: str) -> None:
    raw = RAW[name](name)
    calls = read_trace(FIXTURES / name).calls
    assert raw
    assert [call.output for call in calls] == [output for _, output in raw]
    for call, (command, _) in zip(calls, raw, strict=True):
        assert not command or call.arguments.get("command", command) == command


def asked(trace: Trace) -> list[str]:
    return [step.text for step in trace.steps if step.kind == "user" and not step.agent]


def kinds(trace: Trace) -> list[str]:
    return [step.kind for step in trace.steps]


def test_a_trajectory_of_swe_agent_tells_thoughts_and_function_calls() -> None:
    text = read_trace(FIXTURES / "swe_agent/bell.traj")
    assert text.goal == "The issue: `bell.py` rings twice at noon. Mend it."  # not the demonstration before it
    assert next(step.text.strip() for step in text.steps if step.kind == "assistant") == "I look for the file."
    assert text.usage == Usage(900, 60, cost_usd=0.02)
    assert text.stop == "submitted"
    calls = read_trace(FIXTURES / "swe_agent/bell-calls.traj")
    assert [(call.tool, call.arguments) for call in calls.calls] == [
        ("find_file", {"file_name": "bell.py"}),
        ("bash", {"command": "cat bell.py"}),
        ("submit", {}),
    ]
    assert calls.calls[0].seconds == 0.25
    assert Step("system", "Your last answer had no call.") in calls.steps


def test_a_trajectory_of_mini_swe_agent_knows_how_commands_ended() -> None:
    text = read_trace(FIXTURES / "mini_swe_agent/kettle.traj.json")
    assert [call.status for call in text.calls] == ["ok", "error", "ok", "unknown"]
    assert text.steps[2] == Step("assistant", "THOUGHT: I look around.")  # the command is told once
    assert next(step.text for step in text.steps[2:] if step.kind == "system").startswith("Please always provide")
    calls = read_trace(FIXTURES / "mini_swe_agent/kettle-calls.traj.json")
    assert [call.status for call in calls.calls] == ["ok", "ok", "error", "unknown"]
    assert (calls.model, calls.cwd, calls.stop) == ("deep/deep-1", "/repo", "Submitted")
    assert calls.usage == Usage(600, 30, 150, 0, 0.002)
    assert calls.calls[0].seconds == 2.5


def test_what_a_person_said_to_a_command_of_mini_swe_agent_is_theirs(tmp_path: Path) -> None:
    messages = load("mini_swe_agent/kettle.traj.json")
    place = next(n for n, message in enumerate(messages) if message["role"] == "assistant") + 1
    rejection = "Command not executed. The user rejected your command with the following message:"
    messages[place]["content"] = f"{rejection} Leave the lid on."
    path = tmp_path / "kettle.traj.json"
    path.write_text(json.dumps({"info": {"mini_version": "1"}, "messages": messages}), encoding="utf-8")
    trace = read_trace(path)
    assert asked(trace)[1] == "Leave the lid on."
    assert (trace.calls[0].status, trace.calls[0].output) == ("error", rejection)


def test_a_trajectory_of_openhands_leaves_out_what_the_program_notes_about_itself() -> None:
    trace = read_trace(FIXTURES / "openhands/output.jsonl")
    assert kinds(trace) == ["system", "user", "assistant", *["tool"] * 2, "thinking", "assistant", "tool", "assistant"]
    assert [call.tool for call in trace.calls] == ["execute_bash", "execute_bash", "str_replace_editor"]
    assert [call.status for call in trace.calls] == ["ok", "error", "unknown"]
    assert trace.usage == Usage(1200, 80, 400, 0, 0.25)
    assert trace.answer == "The post is sorted."
    present = read_trace(FIXTURES / "openhands/events.jsonl")
    assert present.steps[2] == Step("thinking", "There is a scale.", at="2026-02-01T10:00:02")
    assert [call.status for call in present.calls] == ["error", "error", "ok"]
    assert present.calls[1].arguments == {"comand": "scale"}  # what the model wrote, though nothing could be done
    assert present.answer == "There is one parcel."


def test_one_of_many_tasks_in_a_file_is_named_like_a_file_in_a_folder(tmp_path: Path) -> None:
    task = load_lines("openhands/output.jsonl")[0]
    other = task | {"instance_id": "parcels-2", "history": task["history"][:6]}
    path = write_lines(tmp_path / "output.jsonl", [task, other])
    first = read_trace(path)
    assert (first.session, len(first.calls)) == ("post-1", 3)
    assert first.warnings == ("it has 2 tasks, and the first was read; the others are output.jsonl/parcels-2",)
    second = read_trace(path / "parcels-2")
    assert (second.session, len(second.calls), second.warnings) == ("parcels-2", 1, ())
    with pytest.raises(UsageError, match="none of its tasks is called 'parcels-3'"):
        read_trace(path / "parcels-3")


def test_a_session_of_copilot_tells_each_call_once_and_marks_those_of_sub_agents() -> None:
    trace = read_trace(FIXTURES / "copilot/events.jsonl")
    assert asked(trace) == ["Why is the clock late?"]  # as typed, without what the program adds
    assert [(call.tool, call.agent, call.status) for call in trace.calls] == [
        ("bash", "", "ok"),
        ("view", "", "error"),
        ("task", "", "ok"),
        ("grep", "explore", "ok"),
    ]
    assert trace.calls[1].arguments == {"path": "/home/ada/clock/gear.txt"}
    assert (trace.model, trace.cwd, trace.session) == ("gpt-5-mini", "/home/ada/clock", "6f2e")
    assert trace.usage == Usage(3000, 77, 2000)
    assert trace.answer == "Gear 3 is worn."


def test_a_session_of_pi_tells_what_the_person_ran_and_the_cost() -> None:
    trace = read_trace(FIXTURES / "pi/2026-05-06T08-41-00-000Z_0c1d.jsonl")
    assert [(call.tool, call.status) for call in trace.calls] == [("bash", "error"), ("read", "ok"), ("bash", "ok")]
    assert trace.usage == Usage(320, 40, 100, 0, 0.004)
    assert (trace.model, trace.cwd, trace.stop) == ("claude-sonnet-4-5", "/home/ada/mill", "stop")


def test_turns_that_were_taken_back_are_left_out_and_told(tmp_path: Path) -> None:
    rows = load_lines("pi/2026-05-06T08-41-00-000Z_0c1d.jsonl")
    other = rows[-1] | {"id": "m9", "parentId": "m2", "message": rows[-1]["message"] | {"content": "Or does it?"}}
    trace = read_trace(write_lines(tmp_path / "t", [*rows, other]))
    assert kinds(trace) == ["user"]
    assert trace.warnings == ("6 lines belong to turns that were taken back, and were left out",)
    broken = read_trace(write_lines(tmp_path / "t", rows[:2] + rows[3:]))  # a line on the way is lost
    assert (len(broken.calls), broken.warnings) == (3, ())


def test_what_hooks_and_tasks_say_in_qwen_code_is_not_the_persons() -> None:
    trace = read_trace(FIXTURES / "qwen/9ac9.jsonl")
    assert asked(trace) == ["How deep is the well?"]
    assert kinds(trace) == ["user", "system", "thinking", "assistant", "tool", "tool", "system", "assistant"]
    assert [call.status for call in trace.calls] == ["ok", "error"]
    assert trace.usage == Usage(900, 45, 100, 10)


def test_the_contents_of_geminis_api_are_read_in_all_their_shapes(tmp_path: Path) -> None:
    whole = read_trace(FIXTURES / "gemini/contents.json")
    assert [call.status for call in whole.calls] == ["unknown", "error", "ok"]
    assert (whole.usage, whole.model) == (Usage(60, 16, 0, 4), "gemini-2.5-flash")
    contents = load("gemini/contents.json")["contents"]
    checkpoint = tmp_path / "checkpoint-tide.json"
    for shape in (contents, {"history": contents}, {"clientHistory": contents}):
        checkpoint.write_text(json.dumps(shape), encoding="utf-8")
        assert read_trace(checkpoint).calls == whole.calls
    assert read_trace(write_lines(tmp_path / "lines.jsonl", contents)).calls == whole.calls


def test_a_chat_with_aider_tells_edits_and_commands_apart_from_what_the_model_wrote() -> None:
    path = FIXTURES / "aider/.aider.chat.history.md"
    trace = read_trace(path)
    raw = path.read_text(encoding="utf-8")
    calls = [(call.tool, *call.arguments.values()) for call in trace.calls]
    assert calls == [("edit", "rain.py"), ("shell", "pytest -q"), ("edit", "rain.py"), ("shell", "pytest -q")]
    assert raw.count("> Applied edit to") == 2
    assert trace.calls[1].output == "F\nE   NameError: name 'mm' is not defined\n\n1 failed in 0.02s"
    assert trace.calls[3].output == "1 passed in 0.01s"
    assert asked(trace) == ["make rain() say how much\n\nin millimetres", "perfect"]
    answer = next(step.text for step in trace.steps if step.kind == "assistant")
    assert "> a quotation in the answer\n\n#### A heading in the answer" in answer
    assert (trace.usage, trace.model) == (Usage(5400, 200, cost_usd=0.0187), "claude-3-5-sonnet")
    assert trace.started == "2025-01-31T10:20:30"


def test_the_latest_of_several_chats_or_conversations_is_read_and_others_can_be_named(tmp_path: Path) -> None:
    history = (FIXTURES / "aider/.aider.chat.history.md").read_text(encoding="utf-8")
    path = tmp_path / "history.md"
    path.write_text(
        history + "\n# aider chat started at 2025-02-01 08:00:00\n\n#### hello  \n\nHello.\n", encoding="utf-8"
    )
    trace = read_trace(path)
    assert (trace.goal, len(trace.calls)) == ("hello", 0)
    assert trace.warnings == ("it has 2 chats, and the latest was read; the others are history.md/2025-01-31T10:20:30",)
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
    with pytest.raises(UsageError, match="none of its conversations is called 'c-3'"):
        read_trace(path / "c-3")


def test_chats_without_the_spaces_that_editors_take_away_are_read(tmp_path: Path) -> None:
    path = tmp_path / ".aider.chat.history.md"
    path.write_text("> /add it\n\n#### go\n\nI went.\n\n> Applied edit to a.py\n", encoding="utf-8")
    assert kinds(read_trace(path)) == ["system", "user", "assistant", "tool"]


def test_a_typed_command_goes_on_after_a_backslash_and_fails_by_what_it_prints(tmp_path: Path) -> None:
    typed = {
        "heron deploy --region eu-north \\\n>   --strategy rolling \\\n> --wait\nFAILED: no lock is held": "error",
        "heron push --all \\\n  --force\npushing\nERROR no remote": "error",
        "heron pull\nerror: no remote": "error",
        "heron list\nERRORS 0\nFAILED: 0\nerror: none\nno ERROR": "unknown",
        "cat heron.log\nERROR no remote": "unknown",
        "dir C:\\src\\\nlamp.txt": "unknown",
    }
    commands = ["heron deploy --region eu-north --strategy rolling --wait", "heron push --all --force", "heron pull"]
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
    said = ["/run quill publish --dry-run", "no, always pass --site docs\n\nto quill publish", "/run quill list", "ok"]
    for end in ("  ", ""):
        marked = ["\n".join(f"#### {line}{end}" for line in text.split("\n")) for text in said]
        path.write_text("\n\n".join([*marked[:3], f"> 2 sites{end}", marked[3], "Done.\n"]), encoding="utf-8")
        trace = read_trace(path)
        assert [call.arguments["command"] for call in trace.calls] == ["quill publish --dry-run", "quill list"]
        assert asked(trace) == [said[1], "ok"]
        assert [call.output for call in trace.calls] == ["", "2 sites"]


def test_a_conversation_of_claude_ai_has_its_tools_thoughts_and_files() -> None:
    trace = read_trace(FIXTURES / "claude_ai/conversations.json")
    assert [(call.tool, call.output, call.status) for call in trace.calls] == [
        ("web_search", "3 minutes", "ok"),
        ("repl", "NameError", "error"),
    ]
    assert asked(trace)[1] == "[file tea.txt]\noolong, 90 °C"
    assert trace.answer == "You are welcome."


def test_a_history_of_specstory_has_the_commands_wherever_they_stand() -> None:
    trace = read_trace(FIXTURES / "specstory/2026-01-16_16-26-02Z-which-lamp.md")
    assert [(call.tool, dict(call.arguments)) for call in trace.calls] == [
        ("Bash", {"command": "lampctl try --all"}),
        ("Grep", {"path": "./lamps", "pattern": "7"}),
        ("exec_command", {"command": "cat lamps/7.txt"}),
        ("run_terminal_cmd", {"command": "lampctl bulb 7\nlampctl try 7"}),
        ("Write", {"content": 'bulb = "new"'}),
        ("Read", {"input": "./lamps/8.txt"}),
    ]
    assert (trace.calls[0].at, trace.calls[0].status) == ("2026-01-16T16:26:09Z", "error")
    assert trace.calls[5].agent == "sidechain"
    assert (trace.goal, trace.model, trace.session) == ("Which lamp is broken?", "claude-opus-4-5", "5c7d5c23-0691")
    assert trace.answer == "Lamp 7 had no bulb."


def test_a_turn_that_an_output_quotes_is_nobodys_turn(tmp_path: Path) -> None:
    def read(*parts: str) -> Trace:
        path = tmp_path / "history.md"
        path.write_text(
            "\n\n".join(["_**User**_", "Show me the log.", *parts, "_**Agent**_", "Done."]), encoding="utf-8"
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
    assert kinds(read("_**Agent**_", f"Tool use: **Bash** `cat`\n\n```\n{old}\n```")) == ["user", "tool", "assistant"]
    assert asked(read(f"```\n{old}\n```\n\nThat one."))[0].endswith("That one.")
    # What is never closed ends with the turn.
    assert len(asked(read("_**Agent**_", f"{begin}\n\n`cat`", old))) == 2
    assert len(asked(read("_**Agent**_", "```\ncut", old, "```sh\nls\n```"))) == 2


def test_spans_tell_each_message_once_and_tools_by_their_own_spans(tmp_path: Path) -> None:
    trace = read_trace(FIXTURES / "otel/bridge.jsonl")
    assert kinds(trace) == ["user", "system", "thinking", "tool", "tool", "assistant"]
    assert [(call.tool, call.status, call.seconds) for call in trace.calls] == [
        ("ask_keeper", "ok", 2.0),
        ("weather", "error", 1.0),
    ]
    assert trace.calls[0].arguments == {"bridge": "north"}
    assert (trace.usage, trace.model, trace.stop) == (Usage(140, 20), "gpt-5-mini", "stop")  # the agent's own not added
    rows = load_lines("otel/bridge.jsonl")
    path = tmp_path / "spans.json"
    path.write_text("\n".join(json.dumps(row, indent=2) for row in rows), encoding="utf-8")  # as a console prints them
    assert read_trace(path).steps == trace.steps
    path.write_text(json.dumps(rows), encoding="utf-8")
    assert read_trace(path).steps == trace.steps


def test_spans_of_tools_without_an_id_find_their_calls_by_arguments_then_by_order(tmp_path: Path) -> None:
    def span(number: int, **attributes: object) -> dict[str, Any]:
        told = {f"gen_ai.{name.replace('__', '.')}": value for name, value in attributes.items()}
        return {"name": "x", "span_id": f"s{number}", "start_time": f"2026-01-01T10:00:0{number}Z", "attributes": told}

    def run(number: int, command: str, result: str) -> dict[str, Any]:
        given = {"tool__call__arguments": json.dumps({"command": command})} if command else {}
        return span(number, operation__name="execute_tool", tool__name="bash", tool__call__result=result, **given)

    parts = [
        {"type": "tool_call", "id": name, "name": "bash", "arguments": {"command": name}} for name in ("a", "b", "c")
    ]
    said = span(1, operation__name="chat", output__messages=json.dumps([{"role": "assistant", "parts": parts}]))
    path = tmp_path / "spans.jsonl"
    rows = [said, run(2, "b", "of b"), run(3, "a", "of a"), run(4, "", "of c")]
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    assert [(call.arguments["command"], call.output) for call in read_trace(path).calls] == [
        ("a", "of a"),
        ("b", "of b"),
        ("c", "of c"),
    ]


def test_spans_in_the_older_ways_of_telling_messages_are_read(tmp_path: Path) -> None:
    def span(number: int, trace: str = "t1", **more: Any) -> dict[str, Any]:
        about = {"trace_id": trace, "span_id": str(number)}
        return {"name": "x", "context": about, "start_time": f"2026-01-01T10:00:0{number}Z", "attributes": {}, **more}

    numbered = {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Go.",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "I go.",
        "llm.request.type": "chat",
    }
    events = [
        {"name": "gen_ai.user.message", "attributes": {"content": "Go."}},
        {"name": "gen_ai.choice", "attributes": {"message": json.dumps({"role": "assistant", "content": "I go."})}},
    ]
    tool = {"openinference.span.kind": "TOOL", "tool.name": "ls", "input.value": '{"at": "."}', "output.value": "a"}
    inference = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Go.",
        "llm.output_messages.0.message.content": "I go.",
    }
    shapes: list[dict[str, Any]] = [
        {"attributes": numbered},
        {"attributes": inference},
        {"attributes": {"gen_ai.system": "x"}, "events": events},
    ]
    for first in shapes:
        trace = read_trace(write_lines(tmp_path / "spans.jsonl", [span(2, attributes=tool), span(1) | first]))
        assert [step.text or step.output for step in trace.steps] == ["Go.", "I go.", "a"]
        assert trace.calls[0].arguments == {"at": "."}
    other = span(5, trace="t2", attributes=numbered | {"gen_ai.prompt.0.content": "Stay."})
    path = write_lines(tmp_path / "spans.jsonl", [span(1, attributes=numbered), other])
    assert (read_trace(path).goal, read_trace(path / "t1").goal) == ("Stay.", "Go.")
    assert "it has 2 traces, and the latest was read" in read_trace(path).warnings[0]


def test_a_recorded_terminal_shows_what_was_typed_in_the_end() -> None:
    trace = read_trace(FIXTURES / "terminal/typescript")
    assert [(call.arguments["command"], call.output) for call in trace.calls] == [
        ("ls box", "key  lid"),
        ("nano note", ""),
        ("cat box/lock", "cat: box/lock: No such file or directory"),
        ("pip install lock", "100%\ndone"),
        ("exit", "exit"),
    ]
    window = read_trace(FIXTURES / "terminal/window.txt")
    assert [call.arguments["command"] for call in window.calls] == ["make lid", "python -V", "./lid"]
    assert window.calls[0].output == "cc lid.c -o lid\nmake: *** [lid] Error 1"


def test_a_single_command_that_was_recorded_is_known_by_the_head_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "typescript"
    path.write_text(
        'Script started on 2026-10-09 16:38:31+00:00 [COMMAND="make all" <not executed on terminal>]\none\ntwo\n\n'
        'Script done on 2026-10-09 16:38:31+00:00 [COMMAND_EXIT_CODE="2"]\n',
        encoding="utf-8",
    )
    call = read_trace(path).calls[0]
    assert (call.arguments, call.output, call.status) == ({"command": "make all"}, "one\ntwo", "error")


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
        {"type": "message", "id": "1", "message": {"role": role, "content": role}} for role in ("user", "assistant")
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
    assert all(line.startswith(" " * 6) for line in words)
    assert upskill("trace", "lsit").err.startswith("upskill: lsit: no such file")


def test_generate_says_why_a_file_is_no_trace(tmp_path: Path, upskill: Upskill) -> None:
    path = tmp_path / "log.json"
    path.write_text('{"lines": ["it went well"]}', encoding="utf-8")
    done = upskill("generate", "--from", path, "-m", "extract")
    told = " ".join(done.err.split())
    assert done.code == 2
    assert "there is no task, and no trace that one could be taken from" in told
    assert "is not a trace in any known format" in told
    assert "swe-agent" in told
    path.write_text('{"type": "summary", "sessionId": "s"}\n', encoding="utf-8")
    told = " ".join(upskill("generate", "Do it.", "--from", path, "-m", "extract").err.split())
    assert "taken for claude-code (Claude Code session)" in told
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
    main = codex_rows("019e5155-0000", *before, *spawn, said("assistant", "It was under the mat."), source="cli")
    mole = {"subagent": {"thread_spawn": {"parent_thread_id": "019e5155-0000", "depth": 1, "agent_nickname": "Mole"}}}
    dig = codex_rows("019e5155-aaaa", said("user", "Dig."), *called("d1", "exec_command", "a worm"), source=mole)
    fork = codex_rows("019e5155-bbbb", *before, *called("e1", "exec_command", "a mat"), source={"subagent": "review"})
    for number, rows in enumerate((main, dig, fork)):
        path = day / f"rollout-2026-05-06T08-0{number}-00-{rows[0]['payload']['id']}.jsonl"
        write_lines(path, rows)
        os.utime(path, (1_790_000_000 + number, 1_790_000_000 + number))
    return tmp_path


def test_the_sub_agents_of_codex_follow_the_calls_that_started_them(codex_home: Path) -> None:
    path = find_trace("codex:last", {"HOME": str(codex_home)})
    assert path.name.endswith("019e5155-0000.jsonl")  # not the sub-agents, which worked later
    trace = read_trace(path)
    assert [(call.output if call.tool != "spawn_agent" else "", call.agent) for call in trace.calls] == [
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
    with pytest.raises(UsageError, match="cannot be unpacked"):
        read_trace(packed)
    packed.write_bytes(whole)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UsageError, match="compressed with Zstandard, and the package zstandard") as refused:
        read_trace(packed)
    assert "[zstd]" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '{"type": "summary", "sessionId": "s"}\n',
            "taken for claude-code (Claude Code session): it consists of an object",
        ),
        (
            '{"info": {}, "messages": []}',
            "taken for opencode (opencode session): it consists of an object with info, messages",
        ),
        (
            '{"type": "thread.started"}\n{"type": "turn.started"}\n',
            "of JSON (thread.started, turn.started), and tells nothing",
        ),
        (
            '{"type": "session_meta", "payload": 1}\nno\n',
            "(Codex session): line 2 is not a JSON object; it was skipped",
        ),
        (
            '[{"role": "user", "content": ""}]',
            "taken for messages (OpenAI or Anthropic messages): it consists of a list of 1",
        ),
        ("User:\n\n", "taken for markdown (text transcript): it consists of 2 lines of text"),
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
    assert "has no step in it" in " ".join(shown.err.split())
