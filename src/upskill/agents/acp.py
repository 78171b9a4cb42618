"""`acp:COMMAND`: any program that speaks the Agent Client Protocol. Its client runs beside it, in the sandbox.

COMMAND may begin with variables, as in a shell: those of the agent, in which {url}, {model} and {key} stand for the
proxy, the student and the key of the trial, and two of ours. UPSKILL_SKILLS is the folder below the home folder in
which the agent looks for skills; UPSKILL_API is the API that it speaks to its model.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast, get_args

from upskill.agents import AGENTS, Task
from upskill.agents.allow_list import Wire
from upskill.agents.mcp import McpServer, expand, read_servers
from upskill.agents.program import (
    Program,
    ProgramAgent,
    incompatible_model,
    readonly_mount,
)
from upskill.agents.proxy import Proxy, Upstream
from upskill.errors import UsageError
from upskill.models import Address
from upskill.models.prices import Prices
from upskill.models.program import Invocation, json_events
from upskill.plain import as_mapping, dict_or_empty, list_or_empty
from upskill.skills.agent_specs import ACP_PROGRAMS, AGENT_SPECS, AgentSpec
from upskill.traces import Status, Step, StepKind, Trace
from upskill.traces.values import content_text
from upskill.version import __version__

WIRES: tuple[Wire, ...] = get_args(Wire)
OPENAI = {"OPENAI_BASE_URL": "{url}", "OPENAI_API_KEY": "{key}", "OPENAI_MODEL": "{model}"}
ANTHROPIC = {
    "ANTHROPIC_BASE_URL": "{host}",
    "ANTHROPIC_API_KEY": "{key}",
    "ANTHROPIC_MODEL": "{model}",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A program that we know. What it shares with an agent of ours, such as its settings, is that agent's."""

    arguments: tuple[str, ...] = ()  # that start it as an agent, if the person gives none
    like: str = ""  # a row of AGENTS
    skills: str = ".agents/skills"
    wire: Wire | None = None  # None: the one that the model has
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # JSON files of the home folder


PROGRAMS = {
    "opencode": Row(("acp",), "opencode"),
    "claude-code-acp": Row((), "claude-code"),
    "claude-agent-acp": Row((), "claude-code"),
    "codex-acp": Row(
        (),
        "codex",
        environment={
            "CODEX_CONFIG": '{"model": "{model}"}',
            "INITIAL_AGENT_MODE": "agent-full-access",
        },
    ),
    "gemini": Row(
        ("--acp", "--yolo"),
        skills=".gemini/skills",
        wire="gemini",
        environment={
            "GOOGLE_GEMINI_BASE_URL": "{host}",
            "GEMINI_API_KEY": "{key}",
            "GEMINI_MODEL": "{model}",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        settings={
            ".gemini/settings.json": {
                "general": {"enableAutoUpdate": False},
                "privacy": {"usageStatisticsEnabled": False},
                "tools": {"exclude": ["google_web_search", "web_fetch"]},
                "skills": {"disabled": ["skill-creator", "antigravity-support"]},  # its own
            }
        },
    ),
    "qwen": Row(
        ("--acp", "--yolo"),
        skills=".qwen/skills",
        wire="chat",
        environment={
            **OPENAI,
            "QWEN_CODE_LEGACY_MCP_BLOCKING": "1",
        },  # wait until they have started
    ),
    "goose": Row(
        ("acp",),
        wire="chat",
        environment={
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": "{model}",
            "GOOSE_DISABLE_KEYRING": "1",
            "OPENAI_HOST": "{host}",
            "OPENAI_API_KEY": "{key}",
        },
    ),
    "copilot": Row(
        ("--acp",),
        skills=".copilot/skills",
        wire="chat",
        environment={
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_BASE_URL": "{url}",
            "COPILOT_PROVIDER_API_KEY": "{key}",
            "COPILOT_MODEL": "{model}",
            "COPILOT_OFFLINE": "true",
        },
    ),
    "kimi": Row(
        ("acp",),
        wire="chat",
        environment={
            "KIMI_MODEL_PROVIDER_TYPE": "openai",
            "KIMI_MODEL_BASE_URL": "{url}",
            "KIMI_MODEL_API_KEY": "{key}",
            "KIMI_MODEL_NAME": "{model}",
            "KIMI_CODE_NO_AUTO_UPDATE": "1",
        },
    ),
}
# Ways to log in with a key, in the words of the programs.
KEY_LOGINS = ("api-key", "openai", "openai-api-key", "codex-api-key", "anthropic-api-key")
STATUSES: dict[str, Status] = {"completed": "ok", "failed": "error"}
CHUNKS: dict[str, StepKind] = {
    "agent_message_chunk": "assistant",
    "agent_thought_chunk": "thinking",
}
STOPS = {"end_turn": "stop", "cancelled": "seconds", "max_turn_requests": "turns"}


class Acp(ProgramAgent):
    """`with_argument` makes a class for one command."""

    arguments: ClassVar[tuple[str, ...]] = ()
    variables: ClassVar[Mapping[str, str]] = {}
    row: ClassVar[Row] = Row()

    def __init__(self) -> None:
        if not hasattr(self, "spec"):
            self.with_argument("")

    @classmethod
    def with_argument(cls, line: str) -> type[Self]:
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"the command in 'acp:{line}' cannot be read: {error}") from error
        variables: dict[str, str] = {}
        while words and re.match(r"[A-Za-z_]\w*=", words[0]):
            name, _, variables[name] = words.pop(0).partition("=")
        if not words:
            raise UsageError(
                f"'acp:{line}' names no program",
                f'For example --agent "acp:opencode acp". These need no arguments: {", ".join(PROGRAMS)}.',
            )
        skills, wire = variables.pop("UPSKILL_SKILLS", ""), variables.pop("UPSKILL_API", "")
        if wire and wire not in WIRES:
            raise UsageError(f"UPSKILL_API is {wire!r}; it must be one of {', '.join(WIRES)}")
        program, *arguments = words
        row = PROGRAMS.get(Path(program).name, Row(environment={**OPENAI, **ANTHROPIC}))
        if wire in WIRES:
            row = replace(row, wire=wire)
        known = AGENT_SPECS.get(row.like)
        spec = AgentSpec(
            name=f"acp:{line}",
            title=program,
            program=program,
            install=ACP_PROGRAMS.get(Path(program).name, known.install if known else ""),
            user_skills=skills or (known.user_skills if known else row.skills),
        )
        fields = {
            "arguments": tuple(arguments) or row.arguments,
            "variables": variables,
            "row": row,
            "spec": spec,
        }
        return cast("type[Self]", type("Acp", (cls,), fields))

    @property
    def like(self) -> ProgramAgent | None:
        return AGENTS.load(self.row.like)() if self.row.like else None

    def wire_for(self, address: Address) -> Wire:
        if self.like:
            return self.like.wire_for(address)
        wire = self.row.wire or ("messages" if address.provider == "anthropic" else "chat")
        fits = {
            "messages": address.provider == "anthropic" or address.endpoint == "generic",
            "gemini": address.endpoint in ("gemini", "generic"),
        }.get(wire, address.provider == "openai")
        if not fits:
            needs = {"messages": "the Anthropic messages API", "gemini": "the Gemini API"}.get(
                wire, "an OpenAI-compatible API"
            )
            raise incompatible_model(
                self.spec.name, address, needs, "Use another -m, or --base-url URL."
            )
        return wire

    def login(self, address: Address, keys: Mapping[str, str], prices: Prices | None) -> Upstream:
        raise NotImplementedError  # no model is called like this agent

    def settings(self, url: str) -> dict[str, str]:
        own = {path: json.dumps(content) for path, content in self.row.settings.items()}
        return {**(self.like.settings(url) if self.like else {}), **own}

    def extra_mounts(self) -> Mapping[str, Path]:
        python = {
            **readonly_mount(Path(sys.executable).resolve()),
            **readonly_mount(Path(sys.base_prefix)),
        }
        return {**python, **(self.like.extra_mounts() if self.like else {})}

    def command(self, program: Program, invocation: Invocation) -> tuple[str, ...]:
        del program, invocation
        client = Path(__file__).with_name("acp_client.py").read_text(encoding="utf-8")
        return (str(Path(sys.executable).resolve()), "-I", "-S", "-c", client)

    def stdin(self, task: Task) -> bytes:
        program = self._program()
        order = {
            "command": [*program.command, *self.arguments],
            "prompt": task.prompt.encode("utf-8", "replace").decode(),
            "seconds": task.bounds.seconds,
            "authenticate": KEY_LOGINS,
            "version": __version__,
            "session": self._session(read_servers(task.mcp_servers)),
        }
        return json.dumps(order).encode()

    def with_servers(self, invocation: Invocation, servers: Mapping[str, McpServer]) -> Invocation:
        if not self.like:
            return invocation
        waiting = self.like.with_servers(Invocation(()), servers).environment
        return Invocation(invocation.arguments, {**invocation.environment, **waiting})

    def _session(self, servers: Mapping[str, McpServer]) -> dict[str, Any]:
        """Of `session/new`: the servers, and that the adapters wait until they have started."""
        if not servers:
            return {"mcpServers": []}
        if self.row.like == "claude-code" and self.like:  # as for its --mcp-config
            options = json.loads(self.like.with_servers(Invocation(()), servers).arguments[-1])
            return {"mcpServers": [], "_meta": {"claudeCode": {"options": options}}}
        listed = [
            {
                "name": name,
                "command": server.command[0],
                "args": server.command[1:],
                "env": [{"name": key, "value": value} for key, value in expand(server.env).items()],
            }
            for name, server in servers.items()
        ]
        milliseconds = int(1000 * max(server.timeout for server in servers.values()))
        return {
            "mcpServers": listed,
            "_meta": {"mcpStartupAwaitTimeoutMs": milliseconds},
        }  # of codex-acp

    def invocation(self, address: Address, proxy: Proxy) -> Invocation:
        like = self.like.invocation(address, proxy).environment if self.like else dict[str, str]()
        values = {
            "{url}": proxy.url,
            "{host}": proxy.url.removesuffix("/v1"),
            "{model}": proxy.upstream.model,
            "{key}": proxy.key,
        }
        variables = {
            name: re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], value)
            for name, value in {**self.row.environment, **self.variables}.items()
        }
        return Invocation((), {**like, **variables})

    def read(self, output: str, calls: Mapping[str, Step]) -> Trace:
        return read_events(output, calls)


def read_events(output: str, calls: Mapping[str, Step]) -> Trace:
    """`calls` are the tool calls as the model made them, by id: agents report them in words of their own."""
    reader = EventReader()
    for event in json_events(output):
        reader.read(event)
    for call, fields in reader.calls.items():
        step = _call_step(fields, reader.terminals)
        # Gemini CLI puts the tool's name before the id.
        made = calls.get(call) or calls.get(call.partition("__")[2])
        if made and made.tool:
            step = replace(
                step, tool=made.tool, arguments=made.arguments, output=step.output or made.output
            )
        reader.steps[reader.places[call]] = step
    steps = tuple(step for step in reader.steps if step.kind == "tool" or step.text.strip())
    return Trace(steps, stop=STOPS.get(reader.stop, reader.stop))


class EventReader:
    """Chunks become messages, and the updates of a tool call become one step."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.calls: dict[str, dict[str, Any]] = {}
        self.places: dict[str, int] = {}  # of the calls in `steps`
        self.terminals: dict[str, str] = {}
        self.stop = self.message = ""

    def read(self, event: dict[str, Any]) -> None:
        update = dict_or_empty(event.get("update"))
        kind = str(update.get("sessionUpdate") or "")
        if kind in CHUNKS:
            self._chunk(CHUNKS[kind], update)
        elif kind in ("tool_call", "tool_call_update"):
            self._call(update)
        elif "permission" in event:
            self._permission(dict_or_empty(event["permission"]))
        elif "terminal" in event:
            self.terminals[str(event["terminal"])] = str(event.get("output"))
        elif "error" in event:
            self.steps.append(
                Step("system", text=f"error: {json.dumps(event['error'], ensure_ascii=False)}")
            )
        elif "stop" in event:
            self.stop = str(event["stop"] or "")

    def _chunk(self, kind: StepKind, update: dict[str, Any]) -> None:
        text, before = content_text(update.get("content")), self.message
        self.message = str(update.get("messageId"))
        if self.steps and self.steps[-1].kind == kind and self.message == before:
            self.steps[-1] = replace(self.steps[-1], text=self.steps[-1].text + text)
        else:
            self.steps.append(Step(kind, text=text))

    def _call(self, update: dict[str, Any]) -> None:
        call = str(update.get("toolCallId"))
        if call not in self.calls:
            # Some agents name the tool, and with others the first title is its name and later ones describe the call.
            self.calls[call] = {"name": update.get("title")}
            self.places[call] = len(self.steps)
            self.steps.append(Step("tool"))
        if update.get("status") in STATUSES and update.get("content") == []:
            self.calls[call].pop("content", None)  # it was about what the call would do
        self.calls[call] |= {
            name: value for name, value in update.items() if value not in (None, {}, [])
        }
        for name in (
            "terminal_output",
            "terminal_output_delta",
        ):  # of commands that the agent ran itself
            printed = dict_or_empty(dict_or_empty(update.get("_meta")).get(name))
            terminal = str(printed.get("terminal_id"))
            self.terminals[terminal] = self.terminals.get(terminal, "") + str(
                printed.get("data") or ""
            )

    def _permission(self, asked: dict[str, Any]) -> None:
        call = dict_or_empty(asked.get("call"))
        if call.get("rawInput"):  # some agents tell it only here
            self.calls.get(str(call.get("toolCallId")), {})["rawInput"] = call["rawInput"]
        answer = (
            f"allowed ({asked['option']})"
            if asked.get("option")
            else "refused: it offers no way to allow it"
        )
        what = call.get("title") or call.get("toolCallId") or "something"
        self.steps.append(Step("system", text=f"permission for {what}: {answer}"))


def _call_step(fields: Mapping[str, Any], terminals: Mapping[str, str]) -> Step:
    metas = (
        dict_or_empty(fields.get("_meta")),
        *map(dict_or_empty, dict_or_empty(fields.get("_meta")).values()),
    )
    name = next((str(meta["toolName"]) for meta in metas if meta.get("toolName")), "")
    title = str(fields.get("name") or "")
    if not name:  # a title is a sentence, or the name of the tool
        name = title if re.fullmatch(r"[\w.:/-]+", title) else str(fields.get("kind") or "other")
    arguments = dict_or_empty(fields.get("rawInput"))
    if not arguments:
        paths = [
            dict_or_empty(place).get("path") for place in list_or_empty(fields.get("locations"))
        ]
        arguments = {"title": fields.get("title") or title, **({"path": paths[0]} if paths else {})}
    texts: list[str] = []
    for item in map(dict_or_empty, list_or_empty(fields.get("content"))):
        if item.get("type") == "terminal":
            texts.append(terminals.get(str(item.get("terminalId")), ""))
        elif item.get("type") == "diff":
            texts.append(f"{item.get('path')}:\n{item.get('newText')}")
        else:
            texts.append(content_text(item.get("content")))
    output = "\n".join(filter(None, texts)) or _raw_output(fields.get("rawOutput"))
    status = STATUSES.get(str(fields.get("status")), "unknown")
    return Step("tool", tool=name, arguments=arguments, output=output, status=status)


def _raw_output(value: object) -> str:
    fields = as_mapping(value) or {}
    return next(
        (
            str(fields[name])
            for name in ("output", "formatted_output", "stdout")
            if fields.get(name)
        ),
        content_text(value),
    )
