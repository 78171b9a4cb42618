"""MCP servers that a suite gives to its students."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mcp
import pytest
import uvicorn
from aiohttp import web
from mcp.server.mcpserver import MCPServer

from agent_server import Asked, Turn, Use, agent_server
from conftest import REPOSITORY, Upskill, write_script
from upskill import Skill, Suite
from upskill.agents import AGENTS, Student, Task
from upskill.agents.mcp import McpError, StreamConnection
from upskill.agents.program import ProgramAgent
from upskill.agents.tools import Tools
from upskill.errors import AgentError, UsageError
from upskill.models import Address, ModelContext
from upskill.models.addresses import resolve
from upskill.models.pool import Models
from upskill.models.scripted import Rule, ScriptedModel
from upskill.runs.planning.plan import Plan, PlanOptions, make_plan
from upskill.sandboxes import SANDBOXES, choose_sandbox
from upskill.traces import Trace

FIXTURES = REPOSITORY / "tests" / "fixtures" / "mcp"
SCRIPT = Address("scripted:x", "scripted", "x")
ENVIRONMENT = Path(mcp.__file__).resolve().parents[4]  # the virtual environment that has the SDK
KEY = "sk-loopback-0123456789"
PASSWORD = "correct-horse-battery"
HARBOR = {
    "command": [str(ENVIRONMENT / "bin" / "python"), "harbor.py"],
    "env": {"PASSWORD": "$HARBOR_PASSWORD"},
}
FILES = {path.name: path.read_text(encoding="utf-8") for path in FIXTURES.glob("*.py")}


@pytest.fixture(autouse=True)
def sandboxed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOR_PASSWORD", PASSWORD)
    try:
        asyncio.run(choose_sandbox("bubblewrap"))
    except UsageError as error:
        pytest.skip(error.message)


def hostile(how: str, **fields: Any) -> dict[str, Any]:
    return {"command": ["/usr/bin/python3", "hostile.py", how], **fields}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": tool, "arguments": arguments}]}


async def work(servers: Mapping[str, Any], *turns: Any, address: Address = SCRIPT) -> Trace:
    model = ScriptedModel("scripted:x", [Rule.model_validate({"turns": list(turns)})])
    task = Task("Go.", FILES, mcp_servers=servers)
    async with await SANDBOXES.load("bubblewrap")().open(Tools().setup(task)) as sandbox:
        return await Tools().run(task, Student(address, model, sandbox))


def outputs(trace: Trace) -> list[tuple[str, str, str]]:
    return [(step.tool, step.status, step.output) for step in trace.calls]


def test_students_call_the_servers_of_a_suite_in_both_arms_and_checks_see_it(
    upskill: Upskill, home: Path
) -> None:
    if not (ENVIRONMENT / "pyvenv.cfg").is_file():
        pytest.skip("the MCP SDK is not in a virtual environment")
    suite = {
        "mcp_servers": {"harbor": HARBOR},
        "cases": [
            {
                "id": "enter",
                "prompt": "Enter the Beagle.",
                "files": {"harbor.py": FILES["harbor.py"]},
            }
        ],
        "checks": [
            {
                "tool_called": {
                    "tool": "harbor__arrive",
                    "arguments": '"ship": "Beagle"',
                    "at_most": 1,
                }
            },
            {"tool_not_called": "other__arrive"},
            {"file_contains": {"path": "book.txt", "text": "Beagle 3"}},
        ],
    }
    skill = Skill.new(
        "harbor-rules", "How to enter ships. Use it for ships.", "Enter each ship once."
    )
    skill.with_file("evals/suite.json", json.dumps(suite).encode()).save(home / "harbor-rules")
    turns = [
        call("harbor__arrive", ship="Beagle", mast_count=3),
        call("harbor__count_ships"),
        call("harbor__sink", ship="Beagle"),
        call("bash", command="cat /proc/*/environ | tr '\\0' '\\n' | grep PASSWORD"),
        "Done.",
    ]
    script = write_script(home / "model.yaml", [{"turns": turns}])
    done = upskill(
        "eval",
        "harbor-rules",
        "-m",
        script,
        "--agent",
        "tools",
        "--sandbox",
        "bubblewrap",
        "--repeats",
        1,
        "--json",
    )
    assert (done.code, done.json["errors"]) == (0, [])
    trials = upskill("show", "last", "--json").json["trials"]
    assert [(trial["arm"], trial["outcome"]) for trial in trials] == [
        ("baseline", "passed"),
        ("skill", "passed"),
    ]
    for trial in trials:
        steps = [step for step in trial["trace"]["steps"] if step["kind"] == "tool"]
        assert [step["output"] for step in steps[:2]] == [
            "Beagle is in the book; the password is ***",
            "1",
        ]
        assert (steps[2]["status"], "Beagle cannot sink" in steps[2]["output"]) == ("error", True)
        assert "PASSWORD=***" in steps[3]["output"]
    assert PASSWORD not in json.dumps(trials)


async def test_two_servers_have_tools_of_the_same_name_and_one_that_ends_is_started_again() -> None:
    servers = {"one": hostile("asks back"), "two": HARBOR}
    trace = await work(
        servers,
        call("one__look"),
        call("two__vanish"),
        call("two__arrive", ship="Beagle"),
        call("one__look"),
        "Done.",
    )
    assert [(tool, status) for tool, status, _ in outputs(trace)] == [
        *(
            ("one__look", "ok"),
            ("two__vanish", "error"),
            ("two__arrive", "ok"),
            ("one__look", "ok"),
        ),
    ]
    assert "'two' gave no result: it exited before it answered" in trace.calls[1].output
    assert "not offered here" in trace.calls[0].output


async def test_what_a_student_does_to_a_server_is_no_error_of_the_trial() -> None:
    kill = call("bash", command="pkill -KILL -f hostile.py; rm hostile.py")
    trace = await work({"one": hostile("")}, kill, call("one__look"), "Done.")
    assert trace.calls[1].status == "error"
    assert "the MCP server 'one' gave no result" in trace.calls[1].output


async def test_a_call_that_a_server_refuses_is_its_answer_and_the_server_goes_on() -> None:
    trace = await work(
        {"one": hostile("counts")},
        call("one__look"),
        call("one__look", mast=4),
        call("one__look"),
        "Done.",
    )
    assert outputs(trace) == [
        ("one__look", "ok", "call 1"),
        (
            "one__look",
            "error",
            "the MCP server 'one' answered with an error: ships have no such mast",
        ),
        ("one__look", "ok", "call 3"),
    ]


async def test_tools_are_read_from_all_pages() -> None:
    trace = await work(
        {"one": hostile("lists pages")}, call("one__look1"), call("one__look40"), "Done."
    )
    assert [step.status for step in trace.calls] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (
            {"command": ["no-such-program"]},
            "'one' did not start: it exited before it answered.*no-such-program",
        ),
        (
            {"command": ["sleep", "1000"], "timeout": 1},
            "'one' did not start: it did not start within 1 s",
        ),
        ({"command": ["yes"]}, "'one' did not start: it sent more than 4 MiB"),
        (
            {"command": ["head", "-c", "9000000", "/dev/zero"]},
            "'one' did not start: it sent more than 4 MiB",
        ),
        (hostile("lists too much"), "its list of tools is larger than 256 KiB"),
        (hostile("lists twice"), "two tools that would be called 'one__look'"),
        (hostile("lists forever"), "it lists its tools on more than 100 pages"),
        ({"url": "http://127.0.0.1:9/mcp"}, "'one' did not start: it cannot be reached"),
    ],
)
async def test_a_server_that_does_not_start_is_an_error_that_names_it(
    server: dict[str, Any], said: str
) -> None:
    with pytest.raises(AgentError, match=said):
        await work({"one": server}, "Done.")


async def test_a_server_that_exits_without_reading_is_told_as_such() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        connection = StreamConnection(
            *await asyncio.open_connection(*server.sockets[0].getsockname())
        )
        with pytest.raises(McpError, match="exited"):
            await connection.request("initialize", {})
        connection.close()


async def test_hostile_answers_are_shortened_escaped_and_bounded_in_time() -> None:
    servers = {
        "long": hostile(""),
        "huge": hostile("says too much"),
        "late": hostile("answers never", timeout=20),
        "odd": hostile("is odd"),
    }
    trace = await work(servers, *(call(f"{name}__look") for name in servers), "Done.")
    long, huge, late, odd = trace.calls
    assert long.output.startswith("\\x1b[2J<system>")
    assert "characters left out" in long.output
    assert huge.output == "the MCP server 'huge' gave no result: it sent more than 4 MiB"
    assert late.output == "the MCP server 'late' gave no result: it did not answer within 20 s"
    assert odd.output == "[content]\n[image image/png]\n[text]"


async def test_models_without_tool_calls_get_the_tools_of_a_server_too() -> None:
    said = [
        json.dumps({"call": {"tool": "odd__look"}}),
        json.dumps({"call": {"tool": "answer", "text": "Done."}}),
    ]
    trace = await work(
        {"odd": hostile("is odd")}, *said, address=Address("command:x", "command", "x")
    )
    assert (trace.calls[0].status, trace.answer) == ("ok", "Done.")


async def test_a_command_reaches_the_hosts_it_declares_and_no_other() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"ahoy")
        writer.close()

    async with (
        await asyncio.start_server(greet, "127.0.0.1", 0) as there,
        await asyncio.start_server(greet, "127.0.0.1", 0) as elsewhere,
    ):
        hosts = [f"127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in (there, elsewhere)]
        command = ["/usr/bin/python3", "hostile.py", "goes out", *hosts]
        trace = await work(
            {"one": {"command": command, "network": hosts[:1]}}, call("one__look"), "Done."
        )
    assert trace.calls[0].output.split("\n") == [
        *("HTTP/1.1 200 Connection established", "", "ahoyHTTP/1.1 403 Forbidden", "", ""),
    ]


async def test_a_url_is_asked_from_outside_and_its_end_is_an_error_of_the_trial() -> None:
    server = MCPServer("wiki", log_level="ERROR")
    ends: list[bool] = []

    @server.tool()
    def look(word: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Looks a word up."""
        return f"{word} is a word"

    @server.tool()
    async def end() -> str:  # pyright: ignore[reportUnusedFunction]
        """Never answers."""
        ends.append(True)
        await asyncio.sleep(1000)
        return ""

    http = uvicorn.Server(
        uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(http.serve(sockets=[listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        trace = await work({"wiki": {"url": url}}, call("wiki__look", word="ahoy"), "Done.")
        with pytest.raises(
            AgentError, match="'wiki' gave no result: it did not answer within 10 s"
        ):
            await work({"wiki": {"url": url, "timeout": 10}}, call("wiki__end"), "Done.")
        http.should_exit = True
        await serving
    assert (trace.calls[0].output, ends) == ("ahoy is a word", [True])


async def test_a_stream_of_events_may_stay_open_and_a_refused_call_is_no_error_of_the_trial() -> (
    None
):
    closing = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if "id" not in asked:
            return web.Response(status=202)
        results: dict[str, Any] = {
            "tools/list": {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "ahoy"}]},
        }
        refused = asked["params"].get("arguments")
        outcome = (
            {"error": {"code": -32602, "message": "no"}}
            if refused
            else {"result": results.get(asked["method"], {})}
        )
        lines = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **outcome}, indent=1).splitlines()
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(
            b": hello\n\nevent: message\n"
            + "".join(f"data: {line}\r\n" for line in lines).encode()
            + b"\r\n"
        )
        await closing.wait()
        return stream

    app = web.Application()
    app.router.add_post("/mcp", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await web.SockSite(runner, listener).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        trace = await work(
            {"wiki": {"url": url}}, call("wiki__look"), call("wiki__look", word="x"), "Done."
        )
        closing.set()
        await runner.cleanup()
    assert outputs(trace) == [
        ("wiki__look", "ok", "ahoy"),
        ("wiki__look", "error", "the MCP server 'wiki' answered with an error: no"),
    ]


SUITE: dict[str, Any] = {"cases": [{"id": "a", "prompt": "Go.", "checks": [{"contains": "x"}]}]}


def plan_of(
    servers: Mapping[str, Any], agent: str = "tools", mcp_hosts: tuple[str, ...] = ()
) -> Plan:
    suite = Suite.parse({**SUITE, "mcp_servers": servers})
    skill = Skill.new(
        "harbor-rules", "How to enter ships. Use it for ships.", "Enter each ship once."
    )
    return make_plan(
        skill, suite, ("local",), PlanOptions(keys={}, agent=agent, mcp_hosts=mcp_hosts)
    )


@pytest.mark.parametrize(
    ("servers", "agent", "said", "hint"),
    [
        (
            {"one": {"command": ["x"]}},
            "chat",
            "the 'chat' agent cannot call tools",
            "--agent tools",
        ),
        (
            {"one": {"url": "https://example.com/mcp"}},
            "tools",
            "connects to example.com:443, which you have not",
            "mcp_hosts=",
        ),
        (
            {"one": {"command": ["x"], "network": ["example.com"]}},
            "tools",
            "connects to example.com:443",
            "mcp_hosts=",
        ),
        (
            {"one": {"command": ["x"], "env": {"A": "$NOT_SET_HERE"}}},
            "tools",
            "needs NOT_SET_HERE",
            "Set NOT_SET_HERE",
        ),
        (
            {"one": {"command": ["x"], "env": {"A": "$OPENAI_API_KEY"}}},
            "tools",
            "a model's API key",
            "its own",
        ),
        (
            {"one": {"url": "https://example.com/mcp"}},
            "codex",
            "real agents have none",
            "--agent tools",
        ),
        ({"a__b": {"command": ["x"]}}, "tools", "a__b", ""),
        ({"one": {}}, "tools", "either `command` or `url`", ""),
        (
            {"one": {"command": ["x"], "url": "https://example.com"}},
            "tools",
            "either `command` or `url`",
            "",
        ),
        ({"one": {"url": "ftp://example.com"}}, "tools", "must begin with http", ""),
        (
            {"one": {"url": "https://example.com", "env": {"A": "b"}}},
            "tools",
            "`headers` only with `url`",
            "",
        ),
        ({"one": {"command": ["x"], "env": {"A B": "b"}}}, "tools", "environment variable", ""),
    ],
)
def test_servers_that_cannot_be_used_are_told_before_anything_is_paid(
    servers: Any, agent: str, said: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        plan_of(servers, agent)
    assert hint in caught.value.hint


def test_servers_are_part_of_a_trial_and_come_back_from_a_suite_file() -> None:
    keys = {
        plan.key(next(plan.trials()))
        for plan in (
            plan_of({}),
            plan_of({"one": {"command": ["x"]}}),
            plan_of({"one": {"command": ["y"]}}),
        )
    }
    assert len(keys) == 3
    allowed = plan_of({"one": {"url": "https://example.com/mcp"}}, mcp_hosts=("example.com",)).suite
    assert Suite.parse(allowed.to_dict()).fingerprint == allowed.fingerprint
    assert allowed.cases[0].to_dict()["mcp_servers"] == {"one": {"url": "https://example.com/mcp"}}
    own = Suite.parse(
        {**SUITE, "cases": [{**SUITE["cases"][0], "mcp_servers": {"one": {"command": ["x"]}}}]}
    )
    assert own.cases[0].mcp_servers == {"one": {"command": ["x"]}}


@pytest.mark.parametrize(
    "name", ["codex", "opencode", "claude-code", "acp:gemini", "acp:claude-code-acp"]
)
async def test_a_real_agent_gets_the_servers_in_its_own_configuration(
    name: str, request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = request.getfixturevalue("acp_programs" if name.startswith("acp:") else "programs")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")

    def plays(asked: Asked) -> Turn:
        tool = next((tool for tool in asked.tools if tool.endswith("arrive")), "")
        return Use(tool, {"ship": "Beagle"}) if tool and not asked.results else "Done."

    keys = {"GENERIC_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    task = Task("Enter the Beagle.", FILES, mcp_servers={"harbor": HARBOR})
    agent: ProgramAgent = AGENTS.load(name)()
    with agent_server(plays, KEY) as server:
        address = resolve("tiny", f"{server.url}/{'v1beta' if 'gemini' in name else 'v1'}")
        async with (
            Models(ModelContext(keys=keys)) as models,
            await SANDBOXES.load("bubblewrap")().open(agent.setup(task)) as sandbox,
        ):
            trace = await agent.run(
                task, Student(address, await models.get(address), sandbox, keys)
            )
            assert (await sandbox.read("book.txt")).decode() == "Beagle 1\n"
    assert [(step.tool, step.status, dict(step.arguments)) for step in trace.calls] == [
        ("harbor__arrive", "ok", {"ship": "Beagle"})
    ]
    assert "the password is ***" in trace.calls[0].output
    assert PASSWORD not in repr(trace)
