"""MCP: ask a running tool server which tools it has, over its standard input and output or over HTTP.

Three messages of JSON-RPC are all that this takes, so no package is needed for it. No tool is ever called.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from upskill import __version__
from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping

PROTOCOL = "2025-06-18"
SECONDS = 30.0  # for all of it
MOST_PAGES = 50

Exchange = Callable[[str, Mapping[str, Any] | None], dict[str, Any] | None]


def list_tools(place: str) -> list[dict[str, Any]]:
    """The tools of the server behind `mcp:COMMAND` or a URL; UsageError when there is none that answers."""
    if place.startswith(("http://", "https://")):
        return _listed(place, _Web(place).ask)
    with _Process(place.removeprefix("mcp:")) as process:
        return _listed(place, process.ask)


def _listed(place: str, ask: Exchange) -> list[dict[str, Any]]:
    about = {"name": "upskill", "version": __version__}
    ask("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": about})
    ask("notifications/initialized", None)
    tools: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    for _ in range(MOST_PAGES):
        said = ask("tools/list", cursor) or {}
        tools += [tool for item in as_list(said.get("tools")) or [] if (tool := as_mapping(item)) is not None]
        if not said.get("nextCursor"):
            return tools
        cursor = {"cursor": said["nextCursor"]}
    raise UsageError(f"{place}: lists tools without an end")


def _result(place: str, said: Mapping[str, Any]) -> dict[str, Any]:
    if error := as_mapping(said.get("error")):
        raise UsageError(f"{place}: {error.get('message', 'an error without words')}")
    return as_mapping(said.get("result")) or {}


def _message(method: str, params: Mapping[str, Any] | None, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "id": number, "params": dict(params)}


class _Process:
    """A server that is started, asked and ended."""

    def __init__(self, command: str) -> None:
        self.command = command
        words = shlex.split(command)
        if not words:
            raise UsageError("mcp: says no command", "For example --tool 'mcp:npx my-server'.")
        try:
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
            )
        except OSError as error:
            raise UsageError(f"{words[0]}: {error.strerror or error}", "--tool mcp:COMMAND starts a server.") from error
        self.number = 0
        self.clock = threading.Timer(SECONDS, self.process.kill)

    def __enter__(self) -> _Process:
        self.clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.clock.cancel()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):  # it may have ended before it read what we wrote
                    stream.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any] | None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.number += 1
        try:
            self.process.stdin.write(json.dumps(_message(method, params, self.number)) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise self._ended() from error
        if params is None:
            return None
        for line in self.process.stdout:
            try:
                said = as_mapping(json.loads(line)) or {}
            except ValueError:
                continue  # a server that prints something else, too
            if said.get("id") == self.number:
                return _result(self.command, said)
        raise self._ended()

    def _ended(self) -> UsageError:
        return UsageError(f"{self.command}: ended, or said nothing for {SECONDS:.0f} seconds", "Is it an MCP server?")


class _Web:
    """A server at a URL, by streamable HTTP."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.number = 0
        self.session = ""

    def ask(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any] | None:
        self.number += 1
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session:
            headers |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": PROTOCOL}
        data = json.dumps(_message(method, params, self.number)).encode()
        request = urllib.request.Request(self.url, data, headers)  # noqa: S310 - list_tools takes http and https only
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
                self.session = answer.headers.get("Mcp-Session-Id") or self.session
                text = answer.read().decode()
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.url}: {error}", "Is it an MCP server?") from error
        if params is None:
            return None
        # An answer, or a stream of events of which one is the answer.
        for line in text.splitlines() if "data:" in text else [text]:
            try:
                said = as_mapping(json.loads(line.removeprefix("data:").strip())) or {}
            except ValueError:
                continue
            if said.get("id") == self.number:
                return _result(self.url, said)
        raise UsageError(f"{self.url}: gave no answer to {method}", "Is it an MCP server?")
