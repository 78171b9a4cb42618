"""`upskill mcp`, over real standard input and output, with the client of the MCP SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

import anyio
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.types import ResourceLink, TextContent, TextResourceContents

from conftest import HELPFUL, REPOSITORY, spawn, start, write_script, write_skill


@asynccontextmanager
async def connected(folder: Path) -> AsyncGenerator[Client]:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "upskill", "mcp"], cwd=folder, env=dict(os.environ)
    )
    async with Client(stdio_client(server)) as client:
        yield client


async def call(client: Client, name: str, *, fails: bool = False, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    content = result.content[0]
    assert isinstance(content, TextContent)
    assert bool(result.is_error) == fails, content.text
    return content.text


async def test_an_agent_validates_measures_and_looks(home: Path) -> None:
    write_skill(home / "greeter", cases=12)
    student = write_script(home / "helpful.yaml")
    steps: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total))

    async with connected(home) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["validate", "eval", "show", "report"]
        assert tools["eval"].description
        assert (await client.list_resources()).resources == []  # no store yet
        assert "./runs: no runs yet" in await call(client, "show", fails=True)
        assert (await call(client, "validate", path="greeter")).startswith("greeter: valid\n")

        arguments = {"skill": "greeter", "students": [student]}
        result = await client.call_tool("eval", arguments, progress_callback=note)
        summary, link = result.content
        assert isinstance(summary, TextContent)
        assert "100% (12/12)" in summary.text
        assert steps == [(done, 24) for done in range(25)]

        [run] = (await client.list_resources()).resources
        assert isinstance(link, ResourceLink)
        assert link.uri == run.uri
        [content] = (await client.read_resource(run.uri)).contents
        assert content == TextResourceContents(
            uri=run.uri, mime_type="text/markdown", text=summary.text
        )
        [document] = (await client.read_resource(f"{run.uri}/json")).contents
        assert isinstance(document, TextResourceContents)
        assert json.loads(document.text)["models"][0]["skill"]["passed"] == 12

        assert (await call(client, "report", html="lift.html")).startswith(summary.text)
        assert (home / "lift.html").read_text(encoding="utf-8").startswith("<!doctype html>")
        assert "ahoy, friend" in await call(client, "show")
        shown = await call(client, "show", failed=True)
        assert shown.endswith("No trial with the skill failed or errored.")


async def test_what_goes_wrong_is_a_tool_error_in_the_words_of_the_command_line(home: Path) -> None:
    write_skill(home / "greeter")
    outside = write_skill(home.parent / "outside")
    (home / "link").symlink_to(outside)
    async with connected(home) as client:
        for path in ("../outside", str(outside), "link"):
            for tool, argument in (("validate", "path"), ("eval", "skill")):
                assert f"{path}: outside {home}" in await call(
                    client, tool, fails=True, **{argument: path}
                )
        assert f"../page.html: outside {home}" in await call(
            client, "report", fails=True, html="../page.html"
        )
        for student, words in (
            ("scripted:/etc/passwd", "/etc/passwd: outside"),
            ("hiaku", "'hiaku' is not a model alias"),
        ):
            assert words in await call(
                client, "eval", fails=True, skill="greeter", students=[student]
            )
        assert "missing: " in await call(client, "eval", fails=True, skill="missing")
        with pytest.raises(MCPError, match="no runs yet"):
            await client.read_resource("upskill://runs/last")


async def test_an_argument_that_a_tool_does_not_have_is_refused(home: Path) -> None:
    write_skill(home / "greeter")
    async with connected(home) as client:
        message = await call(client, "eval", fails=True, skill="greeter", models=["haiku"])
        assert "eval has no argument 'models'. It has skill, students, agent, cases, " in message
        page = (REPOSITORY / "docs/how-to/agents-mcp.md").read_text(encoding="utf-8")
        for tool in (await client.list_tools()).tools:
            [row] = [line for line in page.splitlines() if line.startswith(f"| `{tool.name}` |")]
            assert row.endswith(
                f"| {', '.join(f'`{name}`' for name in tool.input_schema['properties'])} |"
            )
    assert not (home / "runs").exists()


async def test_a_run_above_the_limit_needs_a_ceiling(home: Path) -> None:
    write_skill(home / "greeter")
    (home / "upskill.config.yaml").write_text(
        "confirm_above: 0\nprices: {dear: {input: 900, output: 900}}\n"
    )
    async with connected(home) as client:
        text = await call(client, "eval", fails=True, skill="greeter", students=["ollama:dear"])
        assert "Ask the user, then pass max_cost." in text


async def test_a_cancelled_eval_keeps_its_trials_and_the_server_goes_on(home: Path) -> None:
    write_skill(home / "greeter", cases=3)
    stuck = {"seed": 1, "when": "guest 1", "system": "ahoy", "seconds": 3600, "answer": "ahoy"}
    student = write_script(home / "slow.yaml", [stuck, *HELPFUL])
    arguments: dict[str, Any] = {"skill": "greeter", "students": [student], "repeats": 2}
    seen: list[float] = []

    async with connected(home) as client:
        for _ in range(2):
            seen.clear()
            with anyio.CancelScope() as scope:

                async def note(
                    progress: float,
                    total: float | None,
                    message: str | None,
                    scope: anyio.CancelScope = scope,
                ) -> None:
                    seen.append(progress)
                    if progress == 11:  # all but the one that is stuck
                        scope.cancel()

                await client.call_tool("eval", arguments, progress_callback=note)
            assert scope.cancelled_caught
        assert seen == [11]  # the second time, all others were stored
        assert "3/3" in await call(client, "eval", skill="greeter", students=[student])


def test_nothing_but_the_protocol_goes_to_standard_output(home: Path) -> None:
    write_skill(home / "greeter")
    arguments = {"skill": "greeter", "students": [write_script(home / "helpful.yaml")]}
    about = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    requests: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "eval", "arguments": arguments}},
    ]
    with start("mcp", stdin=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.writelines(
            json.dumps({"jsonrpc": "2.0", **request}) + "\n" for request in requests
        )
        server.stdin.flush()
        replies = [json.loads(server.stdout.readline()) for _ in range(2)]
        rest, errors = server.communicate()
    assert [reply["id"] for reply in replies] == [1, 2]
    assert "100% (4/4)" in replies[1]["result"]["content"][0]["text"]
    assert (server.returncode, rest, errors) == (0, "", "")


def test_without_the_package_the_command_says_how_to_install_it(home: Path) -> None:
    (home / "mcp.py").write_text("raise ImportError", encoding="utf-8")
    done = spawn("mcp", env={**os.environ, "PYTHONPATH": str(home)})
    assert done.code == 2
    assert done.err.startswith(
        "upskill: `upskill mcp` needs the `mcp` package (2 or newer), which is not installed\n"
    )
    assert "[mcp]" in done.err
