"""The toolbox: the tools that a student has in its sandbox, and their results.

A student's mistakes (a tool that does not exist, wrong arguments, a path that leads out, a command that fails) are
results for the student. Only a sandbox that broke down is an error of the trial.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from upskill.agents.catalog import ACTIVATE_TOOL, activate_tool, activation_text
from upskill.models import Tool, ToolCall
from upskill.models.parsing import INVALID_ARGUMENTS
from upskill.sandboxes import CommandResult, Limits, Sandbox, printable
from upskill.skills import Skill
from upskill.traces import Status, Step

COMMAND_SECONDS = 120.0  # of a command, unless the student sets a timeout
MAX_RESULT = 16_000  # characters
MAX_LINES = 2_000  # of a file, unless the student sets a limit
MAX_LISTED = 1_000  # files
MIN_WALL = 0.1  # seconds; less would end a command before it starts

_TYPES: dict[str, type | tuple[type, ...]] = {"string": str, "integer": int, "number": (int, float)}


def _tool(name: str, description: str, required: Mapping[str, str], optional: Mapping[str, tuple[str, str]]) -> Tool:
    properties = {field: {"type": "string", "description": words} for field, words in required.items()}
    properties |= {field: {"type": kind, "description": words} for field, (kind, words) in optional.items()}
    return Tool(
        name,
        description,
        {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False},
    )


TOOLS = (
    _tool(
        "bash",
        "Run a shell command in the workspace. There is no network.",
        {"command": "a line of bash"},
        {"timeout": ("number", f"seconds until it is ended; {COMMAND_SECONDS:g} when left out")},
    ),
    _tool(
        "read_file",
        "Read a text file.",
        {"path": "the file's path"},
        {
            "offset": ("integer", "the first line, counted from 1"),
            "limit": ("integer", f"how many lines; {MAX_LINES} when left out"),
        },
    ),
    _tool("write_file", "Write a whole file.", {"path": "the file's path", "content": "all that is to be in it"}, {}),
    _tool(
        "edit_file",
        "Replace a text in a file.",
        {"path": "the file's path", "old": "the text as it is now; must be there exactly once", "new": "the new text"},
        {},
    ),
    _tool("list_files", "List the files of a folder.", {}, {"path": ("string", "the workspace when left out")}),
)


class _ToolError(Exception):
    """The call cannot be carried out; the message is for the student."""


@dataclass(frozen=True, slots=True)
class _ToolResult:
    text: str
    status: Status = "ok"


class Toolbox:
    """The tools of one trial. `skills` are those on offer, which are in `folder` of the sandbox."""

    def __init__(self, sandbox: Sandbox, skills: Sequence[Skill], folder: str, max_result: int = MAX_RESULT) -> None:
        self.sandbox = sandbox
        self.skills = {skill.name: skill for skill in skills}
        self.folder = folder
        self.max_result = max_result
        self.tools = (*TOOLS, activate_tool(skills)) if skills else TOOLS
        self._seconds_left = COMMAND_SECONDS
        self._opened: set[str] = set()
        self._handlers: dict[str, Callable[[Mapping[str, Any]], Awaitable[_ToolResult]]] = {
            "bash": self._bash,
            "read_file": self._read_file,
            "write_file": self._write_file,
            "edit_file": self._edit_file,
            "list_files": self._list_files,
            ACTIVATE_TOOL: self._activate,
        }

    async def run(self, call: ToolCall, seconds_left: float) -> Step:
        began = time.perf_counter()
        self._seconds_left = seconds_left
        try:
            result = await self._dispatch(call)
        except _ToolError as error:
            result = _ToolResult(str(error), "error")
        except OSError as error:  # not a SandboxError, which ends the trial
            result = _ToolResult(f"{error.filename or call.name}: {error.strerror or error}", "error")
        output = shorten_middle(printable(result.text), self.max_result) if call.name != ACTIVATE_TOOL else result.text
        seconds = round(time.perf_counter() - began, 4)
        return Step(
            "tool", tool=call.name, arguments=call.arguments, output=output, status=result.status, seconds=seconds
        )

    async def _dispatch(self, call: ToolCall) -> _ToolResult:
        if INVALID_ARGUMENTS in call.arguments:
            raise _ToolError("The arguments of the call are not a JSON object.")
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if call.name in self.skills and tool is None:
            raise _ToolError(f"{call.name!r} is a skill, not a tool. Call {ACTIVATE_TOOL} with its name to open it.")
        if tool is None:
            raise _ToolError(f"There is no tool {call.name!r}. Tools: {', '.join(tool.name for tool in self.tools)}.")
        arguments = {name: value for name, value in call.arguments.items() if value is not None}
        if problem := _argument_error(arguments, tool.parameters):
            raise _ToolError(f"{call.name}: {problem}")
        return await self._handlers[call.name](arguments)

    async def _bash(self, arguments: Mapping[str, Any]) -> _ToolResult:
        wanted = arguments.get("timeout", COMMAND_SECONDS)  # any number, even one that no float can hold
        if not wanted > 0:
            raise _ToolError("bash: timeout must be more than 0")
        default = Limits()
        wall = float(max(MIN_WALL, min(wanted, self._seconds_left)))
        done = await self.sandbox.run(arguments["command"], replace(default, wall=wall, cpu=max(default.cpu, wall)))
        return _ToolResult(_describe_result(done), "error" if done.code or done.killed_why else "ok")

    async def _read_file(self, arguments: Mapping[str, Any]) -> _ToolResult:
        first, most = int(arguments.get("offset", 1)), int(arguments.get("limit", MAX_LINES))
        if first < 1 or most < 1:
            raise _ToolError("read_file: offset and limit must be at least 1")
        lines = (await self._read_text(arguments["path"])).splitlines(keepends=True)
        shown = lines[first - 1 : first - 1 + most]
        if lines and not shown:
            raise _ToolError(f"{arguments['path']} has only {len(lines)} lines")
        text = "".join(shown) or "(empty)"
        if len(shown) < len(lines):
            text = f"{text.rstrip()}\n[lines {first} to {first - 1 + len(shown)} of {len(lines)}]"
        return _ToolResult(text)

    async def _write_file(self, arguments: Mapping[str, Any]) -> _ToolResult:
        content = arguments["content"].encode("utf-8", "replace")
        await self._replace(arguments["path"], content)
        return _ToolResult(f"Wrote {len(content)} bytes to {arguments['path']}")

    async def _edit_file(self, arguments: Mapping[str, Any]) -> _ToolResult:
        path, old, new = arguments["path"], arguments["old"], arguments["new"]
        if not old:
            raise _ToolError("edit_file: old is empty; use write_file to write a whole file")
        text = await self._read_text(path)
        if "\r\n" in text and "\r" not in old:  # read_file shows such line ends as plain ones
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        found = text.count(old)
        if found != 1:
            raise _ToolError(
                f"{path}: the old text is not in it; read the file and copy the text exactly"
                if not found
                else f"{path}: the old text is in it {found} times; give more of what stands around it"
            )
        await self._replace(path, text.replace(old, new).encode("utf-8", "replace"))
        return _ToolResult(f"Replaced 1 place in {path}")

    async def _list_files(self, arguments: Mapping[str, Any]) -> _ToolResult:
        place = self._sandbox_path(arguments.get("path") or "")
        found = await self.sandbox.list(place, MAX_LISTED)
        home = f"{self.sandbox.home}/" if place.startswith(f"{self.sandbox.home}/") else ""
        lines = [
            f"{home}{entry.path}"
            + {"file": f" ({entry.size} bytes)", "folder": "/"}.get(entry.kind, f" ({entry.kind})")
            for entry in found
        ]
        more = [f"[the first {MAX_LISTED}]"] if len(found) == MAX_LISTED else []
        return _ToolResult("\n".join([*lines, *more]) or "(no files)")

    async def _activate(self, arguments: Mapping[str, Any]) -> _ToolResult:
        name = arguments["name"]
        if name in self._opened:  # it is still in the conversation; a second time it would only cost
            return _ToolResult(f"The skill {name} is active already: its instructions were given above.")
        self._opened.add(name)
        return _ToolResult(activation_text(self.skills[name], self.folder))

    def _sandbox_path(self, path: str) -> str:
        """A path as the sandbox expects it."""
        if path == "~" or path.startswith("~/"):
            path = self.sandbox.home + path[1:]
        return f"{path}/" if path == self.sandbox.home else path

    async def _read_text(self, path: str) -> str:
        data = await self.sandbox.read(self._sandbox_path(path))
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise _ToolError(f"{path}: is not a text file ({len(data)} bytes)")
        return text

    async def _replace(self, path: str, content: bytes) -> None:
        """Write a file, which stays executable if it was."""
        place = self._sandbox_path(path)
        whole = place if place.startswith("/") else f"{self.sandbox.workspace}/{place}"
        ran = "\0" not in whole and not (await self.sandbox.run(["test", "-f", whole, "-a", "-x", whole])).code
        await self.sandbox.write(place, content, executable=ran)


def shorten_middle(text: str, max_length: int) -> str:
    """A text of about that length at most: the middle is left out."""
    if len(text) <= max_length:
        return text
    half = max_length // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _describe_result(result: CommandResult) -> str:
    """The output of a command, and its exit code or limit if it failed."""
    parts = [stream.rstrip("\n") for stream in (result.output, result.error) if stream.strip()]
    if result.killed_why:
        parts.append(f"[ended: it {result.killed_why}]")
    elif result.code:
        parts.append(f"[exit code {result.code}]")
    return "\n".join(parts) or "(no output)"


def _argument_error(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """What is wrong with the arguments of a call; empty if nothing is."""
    properties: Mapping[str, Mapping[str, Any]] = parameters["properties"]
    if missing := [name for name in parameters["required"] if name not in arguments]:
        return f"{missing[0]} is missing"
    if unknown := [name for name in arguments if name not in properties]:
        return f"there is no argument {unknown[0]!r}; arguments: {', '.join(properties)}"
    for name, value in arguments.items():
        kind = properties[name]["type"]
        if not isinstance(value, _TYPES[kind]) or isinstance(value, bool):
            return f"{name} must be a {kind}"
        if (allowed := properties[name].get("enum")) and value not in allowed:
            return f"{name} must be one of {', '.join(allowed)}"
    return ""
