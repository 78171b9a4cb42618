"""The toolbox: the catalog of skills that our own agent is offered, and its tools.

Progressive disclosure: name and description always, the body when the skill is activated, its other files only when
they are read. A student's mistakes are results for the student.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from upskill.agents.mcp import LIMITS, McpError, McpServers
from upskill.models import Tool, ToolCall
from upskill.models.parsing import INVALID_ARGUMENTS
from upskill.sandboxes import Limits, Sandbox, printable
from upskill.skills import MANIFEST, Skill
from upskill.traces import Status, Step

SKILLS_FOLDER = ".agents/skills"  # in the student's home folder
ACTIVATE_TOOL = "activate_skill"
CATALOG_INSTRUCTIONS = (
    "These skills hold instructions for specific tasks: when a task fits the description of one, call "
    f"{ACTIVATE_TOOL} with its name before you begin, and take paths in its instructions as relative to its folder."
)
COMMAND_SECONDS = 120.0  # of a command, unless the student sets a timeout
MAX_RESULT = 16_000  # characters
MAX_LINES = 2_000  # of a file, unless the student sets a limit
MAX_LISTED = 1_000  # files
MIN_WALL = 0.1  # seconds; less would end a command before it starts

_TYPES: dict[str, type | tuple[type, ...]] = {"string": str, "integer": int, "number": (int, float)}


def _tool(
    name: str,
    description: str,
    required: Mapping[str, str],
    optional: Mapping[str, tuple[str, str]],
) -> Tool:
    properties = {
        field: {"type": "string", "description": text} for field, text in required.items()
    }
    properties |= {
        field: {"type": kind, "description": text} for field, (kind, text) in optional.items()
    }
    return Tool(
        name,
        description,
        {
            "type": "object",
            "properties": properties,
            "required": list(required),
            "additionalProperties": False,
        },
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
    _tool(
        "write_file",
        "Write a whole file.",
        {"path": "the file's path", "content": "all that is to be in it"},
        {},
    ),
    _tool(
        "edit_file",
        "Replace a text in a file.",
        {
            "path": "the file's path",
            "old": "the text as it is now; must be there exactly once",
            "new": "the new text",
        },
        {},
    ),
    _tool(
        "list_files",
        "List the files of a folder.",
        {},
        {"path": ("string", "the workspace when left out")},
    ),
)


def catalog_prompt(skills: Iterable[Skill], folder: str) -> str:
    rows = [
        f"<skill><name>{escape(skill.name)}</name><description>{escape(skill.description)}</description>"
        f"<location>{escape(f'{folder}/{skill.name}/{MANIFEST}')}</location></skill>"
        for skill in skills
    ]
    return (
        "\n".join([CATALOG_INSTRUCTIONS, "<available_skills>", *rows, "</available_skills>"])
        if rows
        else ""
    )


def activation_text(skill: Skill, folder: str) -> str:
    parts = [f"<skill_content name={quoteattr(skill.name)}>", skill.body.strip(), ""]
    parts.append(f"Folder of this skill: {folder}/{skill.name}")
    if skill.resources:
        files = [f"<file>{escape(path)}</file>" for path in skill.resources]
        parts += ["<skill_resources>", *files, "</skill_resources>"]
    return "\n".join([*parts, "</skill_content>"])


class _ToolError(Exception):
    """The call cannot be carried out; the message is for the student."""


class Toolbox:
    """The tools of one trial, each carried out by the method of its name."""

    def __init__(
        self,
        sandbox: Sandbox,
        skills: Sequence[Skill],
        folder: str,
        max_result: int = MAX_RESULT,
        servers: McpServers | None = None,
    ) -> None:
        self.sandbox = sandbox
        self.skills = {skill.name: skill for skill in skills}
        self.folder = folder
        self.max_result = max_result
        self.servers = servers
        self.limits = LIMITS if servers and servers.servers else Limits()
        self.tools = (*TOOLS, *(servers.tools if servers else ()))
        if skills:
            name = {"type": "string", "enum": list(self.skills), "description": "the skill's name"}
            schema = {
                "type": "object",
                "properties": {"name": name},
                "required": ["name"],
                "additionalProperties": False,
            }
            self.tools = (
                *self.tools,
                Tool(ACTIVATE_TOOL, "Load the instructions of a skill.", schema),
            )
        self._seconds_left = COMMAND_SECONDS
        self._opened: set[str] = set()

    async def run(self, call: ToolCall, seconds_left: float) -> Step:
        began = time.perf_counter()
        self._seconds_left = seconds_left
        status: Status = "error"
        try:
            output = await self._dispatch(call)
            status = "ok"
        except (_ToolError, McpError) as error:
            output = str(error)
        except OSError as error:  # not a SandboxError, which ends the trial
            output = f"{error.filename or call.name}: {error.strerror or error}"
        if call.name != ACTIVATE_TOOL:
            output = shorten_middle(printable(output), self.max_result)
        seconds = round(time.perf_counter() - began, 4)
        return Step(
            "tool",
            tool=call.name,
            arguments=call.arguments,
            output=output,
            status=status,
            seconds=seconds,
        )

    async def _dispatch(self, call: ToolCall) -> str:
        if INVALID_ARGUMENTS in call.arguments:
            raise _ToolError("The arguments of the call are not a JSON object.")
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if call.name in self.skills and tool is None:
            raise _ToolError(
                f"{call.name!r} is a skill, not a tool. Call {ACTIVATE_TOOL} with its name to open it."
            )
        if tool is None:
            raise _ToolError(
                f"There is no tool {call.name!r}. Tools: {', '.join(tool.name for tool in self.tools)}."
            )
        if self.servers and tool in self.servers.tools:
            output, is_error = await self.servers.call(
                call.name, call.arguments, self._seconds_left
            )
            if is_error:
                raise _ToolError(output)
            return output
        arguments = {name: value for name, value in call.arguments.items() if value is not None}
        if problem := _argument_error(arguments, tool.parameters):
            raise _ToolError(f"{call.name}: {problem}")
        method: Callable[..., Awaitable[str]] = getattr(self, tool.name)
        return await method(**arguments)

    async def bash(self, command: str, timeout: float = COMMAND_SECONDS) -> str:  # noqa: ASYNC109 - it is the tool's
        if not timeout > 0:  # any number, even one that no float can hold
            raise _ToolError("bash: timeout must be more than 0")
        default = self.limits
        wall = float(max(MIN_WALL, min(timeout, self._seconds_left)))
        done = await self.sandbox.run(
            command, replace(default, wall=wall, cpu=max(default.cpu, wall))
        )
        parts = [stream.rstrip("\n") for stream in (done.output, done.error) if stream.strip()]
        if done.killed_why:
            parts.append(f"[ended: it {done.killed_why}]")
        elif done.code:
            parts.append(f"[exit code {done.code}]")
        text = "\n".join(parts) or "(no output)"
        if done.code or done.killed_why:
            raise _ToolError(text)
        return text

    async def read_file(self, path: str, offset: int = 1, limit: int = MAX_LINES) -> str:
        if offset < 1 or limit < 1:
            raise _ToolError("read_file: offset and limit must be at least 1")
        lines = (await self._read_text(path)).splitlines(keepends=True)
        selected = lines[offset - 1 : offset - 1 + limit]
        if lines and not selected:
            raise _ToolError(f"{path} has only {len(lines)} lines")
        text = "".join(selected) or "(empty)"
        if len(selected) < len(lines):
            text = (
                f"{text.rstrip()}\n[lines {offset} to {offset - 1 + len(selected)} of {len(lines)}]"
            )
        return text

    async def write_file(self, path: str, content: str) -> str:
        data = content.encode("utf-8", "replace")
        await self._replace(path, data)
        return f"Wrote {len(data)} bytes to {path}"

    async def edit_file(self, path: str, old: str, new: str) -> str:
        if not old:
            raise _ToolError("edit_file: old is empty; use write_file to write a whole file")
        text = await self._read_text(path)
        if "\r\n" in text and "\r" not in old:  # read_file shows such line ends as plain ones
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        count = text.count(old)
        if not count:
            raise _ToolError(
                f"{path}: the old text is not in it; read the file and copy the text exactly"
            )
        if count > 1:
            raise _ToolError(
                f"{path}: the old text is in it {count} times; give more of what stands around it"
            )
        await self._replace(path, text.replace(old, new).encode("utf-8", "replace"))
        return f"Replaced 1 place in {path}"

    async def list_files(self, path: str = "") -> str:
        folder = self._sandbox_path(path)
        entries = await self.sandbox.list(folder, MAX_LISTED)
        home = f"{self.sandbox.home}/" if folder.startswith(f"{self.sandbox.home}/") else ""
        lines = [
            f"{home}{entry.path}"
            + {"file": f" ({entry.size} bytes)", "folder": "/"}.get(entry.kind, f" ({entry.kind})")
            for entry in entries
        ]
        if len(entries) == MAX_LISTED:
            lines.append(f"[the first {MAX_LISTED}]")
        return "\n".join(lines) or "(no files)"

    async def activate_skill(self, name: str) -> str:
        if (
            name in self._opened
        ):  # it is still in the conversation; a second time it would only cost
            return f"The skill {name} is active already: its instructions were given above."
        self._opened.add(name)
        return activation_text(self.skills[name], self.folder)

    def _sandbox_path(self, path: str) -> str:
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
        """The file stays executable if it was."""
        path = self._sandbox_path(path)
        full_path = path if path.startswith("/") else f"{self.sandbox.workspace}/{path}"
        test = ["test", "-f", full_path, "-a", "-x", full_path]
        executable = "\0" not in path and (await self.sandbox.run(test)).code == 0
        await self.sandbox.write(path, content, executable=executable)


def shorten_middle(text: str, max_length: int) -> str:
    if len(text) <= max_length:
        return text
    half = max_length // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _argument_error(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
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
