"""The toolbox: what a student may do in its sandbox, one tool each, and what comes back to it.

What a student does wrong (a tool that does not exist, arguments that do not fit, a path that leads out, a command that
fails) is an answer for the student. Only a sandbox that broke down is an error of the trial.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from upskill.agents.catalog import ACTIVATE, activate_tool, activation
from upskill.models import Tool, ToolCall
from upskill.models.parsing import INVALID_ARGUMENTS
from upskill.sandboxes import CommandResult, Limits, Sandbox, printable
from upskill.skills import Skill
from upskill.traces import Status, Step

COMMAND_SECONDS = 120.0  # of a command, where the student does not say
MOST_SHOWN = 16_000  # characters of a result
MOST_LINES = 2_000  # of a file, where the student does not say
MOST_LISTED = 1_000  # files
SMALLEST_WALL = 0.1  # seconds; less would end a command before it began

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
            "limit": ("integer", f"how many lines; {MOST_LINES} when left out"),
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


class _Refused(Exception):
    """What the student asked for cannot be done; the message is for the student."""


@dataclass(frozen=True, slots=True)
class _Given:
    """What a tool gives back."""

    text: str
    status: Status = "ok"


class Toolbox:
    """The tools of one trial. `skills` are those on offer, which lie under `folder` in the sandbox."""

    def __init__(self, sandbox: Sandbox, skills: Sequence[Skill], folder: str, most: int = MOST_SHOWN) -> None:
        self.sandbox = sandbox
        self.skills = {skill.name: skill for skill in skills}
        self.folder = folder
        self.most = most
        self.tools = (*TOOLS, activate_tool(skills)) if skills else TOOLS
        self._left = COMMAND_SECONDS
        self._opened: set[str] = set()
        self._acts: dict[str, Callable[[Mapping[str, Any]], Awaitable[_Given]]] = {
            "bash": self._bash,
            "read_file": self._read_file,
            "write_file": self._write_file,
            "edit_file": self._edit_file,
            "list_files": self._list_files,
            ACTIVATE: self._activate,
        }

    async def use(self, call: ToolCall, left: float) -> Step:
        """Carry out one call, which has so many seconds left."""
        began = time.perf_counter()
        self._left = left
        try:
            given = await self._act(call)
        except _Refused as refused:
            given = _Given(str(refused), "error")
        except OSError as error:  # a SandboxError is none, and ends the trial
            given = _Given(f"{error.filename or call.name}: {error.strerror or error}", "error")
        output = cut(printable(given.text), self.most) if call.name != ACTIVATE else given.text
        seconds = round(time.perf_counter() - began, 4)
        return Step(
            "tool", tool=call.name, arguments=call.arguments, output=output, status=given.status, seconds=seconds
        )

    async def _act(self, call: ToolCall) -> _Given:
        if INVALID_ARGUMENTS in call.arguments:
            raise _Refused("The arguments of the call are not a JSON object.")
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if tool is None:
            raise _Refused(f"There is no tool {call.name!r}. Tools: {', '.join(tool.name for tool in self.tools)}.")
        arguments = {name: value for name, value in call.arguments.items() if value is not None}
        if wrong := _misfit(arguments, tool.parameters):
            raise _Refused(f"{call.name}: {wrong}")
        return await self._acts[call.name](arguments)

    async def _bash(self, asked: Mapping[str, Any]) -> _Given:
        wanted = asked.get("timeout", COMMAND_SECONDS)  # any number, also one that no float can hold
        if not wanted > 0:
            raise _Refused("bash: timeout must be more than 0")
        usual = Limits()
        wall = float(max(SMALLEST_WALL, min(wanted, self._left)))
        done = await self.sandbox.run(asked["command"], replace(usual, wall=wall, cpu=max(usual.cpu, wall)))
        return _Given(_report(done), "error" if done.code or done.killed_why else "ok")

    async def _read_file(self, asked: Mapping[str, Any]) -> _Given:
        first, most = int(asked.get("offset", 1)), int(asked.get("limit", MOST_LINES))
        if first < 1 or most < 1:
            raise _Refused("read_file: offset and limit must be at least 1")
        lines = (await self._text(asked["path"])).splitlines(keepends=True)
        shown = lines[first - 1 : first - 1 + most]
        if lines and not shown:
            raise _Refused(f"{asked['path']} has only {len(lines)} lines")
        text = "".join(shown) or "(empty)"
        if len(shown) < len(lines):
            text = f"{text.rstrip()}\n[lines {first} to {first - 1 + len(shown)} of {len(lines)}]"
        return _Given(text)

    async def _write_file(self, asked: Mapping[str, Any]) -> _Given:
        content = asked["content"].encode("utf-8", "replace")
        await self._replace(asked["path"], content)
        return _Given(f"Wrote {len(content)} bytes to {asked['path']}")

    async def _edit_file(self, asked: Mapping[str, Any]) -> _Given:
        path, old, new = asked["path"], asked["old"], asked["new"]
        if not old:
            raise _Refused("edit_file: old is empty; use write_file to write a whole file")
        text = await self._text(path)
        if "\r\n" in text and "\r" not in old:  # read_file shows such line ends as plain ones
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        found = text.count(old)
        if found != 1:
            raise _Refused(
                f"{path}: the old text is not in it; read the file and copy the text exactly"
                if not found
                else f"{path}: the old text is in it {found} times; give more of what stands around it"
            )
        await self._replace(path, text.replace(old, new).encode("utf-8", "replace"))
        return _Given(f"Replaced 1 place in {path}")

    async def _list_files(self, asked: Mapping[str, Any]) -> _Given:
        place = self._place(asked.get("path") or "")
        found = await self.sandbox.list(place, MOST_LISTED)
        home = f"{self.sandbox.home}/" if place.startswith(f"{self.sandbox.home}/") else ""
        lines = [
            f"{home}{entry.path}"
            + {"file": f" ({entry.size} bytes)", "folder": "/"}.get(entry.kind, f" ({entry.kind})")
            for entry in found
        ]
        more = [f"[the first {MOST_LISTED}]"] if len(found) == MOST_LISTED else []
        return _Given("\n".join([*lines, *more]) or "(no files)")

    async def _activate(self, asked: Mapping[str, Any]) -> _Given:
        name = asked["name"]
        if name in self._opened:  # it stands further up still; again it would only cost
            return _Given(f"The skill {name} is active already: its instructions were given above.")
        self._opened.add(name)
        return _Given(activation(self.skills[name], self.folder))

    def _place(self, path: str) -> str:
        """A path as the sandbox takes it."""
        if path == "~" or path.startswith("~/"):
            path = self.sandbox.home + path[1:]
        return f"{path}/" if path == self.sandbox.home else path

    async def _text(self, path: str) -> str:
        data = await self.sandbox.read(self._place(path))
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise _Refused(f"{path}: is not a text file ({len(data)} bytes)")
        return text

    async def _replace(self, path: str, content: bytes) -> None:
        """Write a file. One that could be run before still can."""
        place = self._place(path)
        whole = place if place.startswith("/") else f"{self.sandbox.workspace}/{place}"
        ran = "\0" not in whole and not (await self.sandbox.run(["test", "-f", whole, "-a", "-x", whole])).code
        await self.sandbox.write(place, content, executable=ran)


def cut(text: str, most: int) -> str:
    """A text of at most about so many characters: the middle is left out."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _report(done: CommandResult) -> str:
    """What a command printed, and how it ended where that was not well."""
    parts = [stream.rstrip("\n") for stream in (done.output, done.error) if stream.strip()]
    if done.killed_why:
        parts.append(f"[ended: it {done.killed_why}]")
    elif done.code:
        parts.append(f"[exit code {done.code}]")
    return "\n".join(parts) or "(no output)"


def _misfit(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """What is wrong with the arguments of a call; empty where nothing is."""
    properties: Mapping[str, Mapping[str, Any]] = parameters["properties"]
    if missing := [name for name in parameters["required"] if name not in arguments]:
        return f"{missing[0]} is missing"
    if strange := [name for name in arguments if name not in properties]:
        return f"there is no argument {strange[0]!r}; arguments: {', '.join(properties)}"
    for name, value in arguments.items():
        kind = properties[name]["type"]
        if not isinstance(value, _TYPES[kind]) or isinstance(value, bool):
            return f"{name} must be a {kind}"
        if (allowed := properties[name].get("enum")) and value not in allowed:
            return f"{name} must be one of {', '.join(allowed)}"
    return ""
