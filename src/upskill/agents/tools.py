"""`tools`: our own small loop. The skill is in a catalog, and the model works in a sandbox until it answers.

At a bound on turns, tokens or time, the work so far is judged. Embedded models, and those without tool calls in their
API, answer with one call at a time, as JSON that fits a schema; results come back as user messages.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from upskill.agents import SYSTEM, Student, Task, skill_files
from upskill.agents.activation import activated
from upskill.agents.mcp import LIMITS, McpServers, read_servers, secrets_of, show_programs
from upskill.agents.toolbox import (
    ACTIVATE_TOOL,
    MAX_RESULT,
    SKILLS_FOLDER,
    TOOLS,
    Toolbox,
    catalog_prompt,
)
from upskill.errors import AgentError, TrialError
from upskill.models import Address, Message, Reply, Request, Tool, ToolCall
from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL, LOCAL_MODELS
from upskill.models.parsing import INVALID_ARGUMENTS, parse_json_answer, redact
from upskill.plain import dict_or_empty
from upskill.sandboxes import Setup, unused_port
from upskill.traces import NO_USAGE, Step, Trace

log = logging.getLogger(__name__)

# The same in both arms.
WORKSPACE_PROMPT = (
    "You work in a workspace, which is the current folder, with the tools you are given. Do what the task asks for "
    "with them, and answer when it is done."
)
# Embedded models have calls in their template too, but nothing makes them use those, and a system
# prompt takes about 840 tokens there instead of 290. JSON that a grammar holds to a schema is always a call.
TEXT_ONLY_PROVIDERS = ("command", "handoff", "local")
ANSWER = "answer"
OWN_TOOLS = frozenset([ANSWER, ACTIVATE_TOOL, *(tool.name for tool in TOOLS)])
DEFAULT_CONTEXT = 8_192  # tokens, for a local model that is not in the table
CHARACTERS_PER_TOKEN = 2.5  # a safe lower estimate
# Characters of the texts in a call, and tokens of the JSON around them. A model of 135M rambles on until it is stopped,
# and a call that is cut off cannot be run.
MAX_TEXT, MIN_TEXT, CALL_TOKENS = 600, 48, 40
CALL_SECONDS = 20.0  # if only the skill that is opened matters, and not what a command does
OLD_RESULT = 160  # characters that are kept of an older result when the context is short
INSTRUCTIONS = "Every turn is one call of one of these tools, as JSON:"
SAY = "What you say before the call goes into `say`."


class Tools:
    """`system` comes before the catalog; another one lets the same loop do other work.

    With `says`, a model that spells its calls out has a field for what it says before each.
    """

    needs_sandbox: ClassVar[bool] = True

    def __init__(
        self, system: str = f"{SYSTEM}\n{WORKSPACE_PROMPT}", *, says: bool = False
    ) -> None:
        self.system = system
        self.says = says

    def setup(self, task: Task) -> Setup:
        files, runnable = skill_files(task.offered_skills, SKILLS_FOLDER)
        setup = Setup(files=task.files, home_files=files, runnable=runnable)
        if not task.mcp_servers:
            return setup
        setup = replace(setup, limits=LIMITS, proxy_port=unused_port())
        return show_programs(setup, read_servers(task.mcp_servers))

    async def run(self, task: Task, student: Student) -> Trace:
        if student.sandbox is None:
            raise AgentError("the `tools` agent needs a sandbox, but none was provided")
        async with McpServers(read_servers(task.mcp_servers), student.sandbox) as servers:
            loop = _Loop(task, student, self.system, servers, says=self.says)
            try:
                return await loop.run()
            except TrialError as error:  # the turns so far were paid for
                error.usage = loop.usage + (error.usage or NO_USAGE)
                raise


class _Loop:
    """The work on one task."""

    def __init__(
        self, task: Task, student: Student, system: str, servers: McpServers, *, says: bool
    ) -> None:
        assert student.sandbox is not None
        folder = f"{student.sandbox.home}/{SKILLS_FOLDER}"
        self.task = task
        self.student = student
        self.is_embedded = student.address.provider == "local"
        self.secrets = secrets_of(servers.servers)
        self.toolbox = Toolbox(student.sandbox, task.offered_skills, folder, servers=servers)
        self.calling = tool_calling_for(
            student.address, self.toolbox.tools, task.max_output_tokens, says=says
        )
        self.toolbox.max_result = self.calling.max_result or MAX_RESULT
        parts = [system, self.calling.instructions, catalog_prompt(task.offered_skills, folder)]
        self.messages = [
            Message("system", "\n\n".join(part for part in parts if part)),
            Message("user", task.prompt.strip()),
        ]
        self.steps: list[Step] = []
        self.usage = NO_USAGE
        self.turns = 0
        self.last_calls: tuple[ToolCall, ...] = ()
        self.model_name = ""
        self.stop_details = ""
        self.deadline = time.monotonic() + task.bounds.seconds

    async def run(self) -> Trace:
        stop = ""
        while not stop:
            reply = await self._ask()
            if reply is None:
                stop = "seconds"
                break
            if reply.stop in ("refusal", "context") and not reply.calls:
                self._add(Step("assistant", reply.text))
                stop, self.stop_details = reply.stop, reply.stop_details
                break
            turn = self.calling.read(reply)
            tokens = f"{reply.usage.input_tokens} + {reply.usage.output_tokens} tokens"
            names = ", ".join(call.name for call in turn.calls)
            log.debug(
                "turn %d: %s, %s", self.turns, tokens, f"calls {names}" if names else "answer"
            )
            if reply.thoughts:
                self._add(Step("thinking", reply.thoughts))
            if turn.text or not turn.calls:
                self._add(Step("assistant", turn.text))
            if not turn.calls:
                stop = turn.stop
                break
            if (
                self.is_embedded and turn.calls == self.last_calls
            ):  # a small model has no other idea then
                break
            self.last_calls = turn.calls
            self.messages += self.calling.next_messages(reply, turn, await self._run_calls(turn))
            stop = self._bound_reached()
        return Trace(
            tuple(self.steps),
            self.usage,
            stop or "end",
            self.model_name,
            turns=self.turns,
            stop_details=self.stop_details,
        )

    async def _ask(self) -> Reply | None:
        """None if time runs out first."""
        request = Request(
            self.calling.fit(self.messages),
            max_output_tokens=self.task.max_output_tokens,
            temperature=self.task.temperature,
            seed=self.task.seed,
            schema=self.calling.schema,
            tools=self.calling.tools,
        )
        self.turns += 1
        started = time.monotonic()
        # How long an embedded model takes says how busy this machine is, so it does not count.
        timeout = asyncio.timeout(None if self.is_embedded else self._seconds_left)
        try:
            async with timeout:
                reply = await self.student.model.reply(request)
        except TimeoutError:
            if timeout.expired():
                return None
            raise
        if self.is_embedded:
            self.deadline += time.monotonic() - started
        self.usage = self.usage + reply.usage
        self.model_name = reply.model or self.model_name
        return reply

    async def _run_calls(self, turn: Turn) -> Sequence[Step]:
        steps: list[Step] = []
        for call in turn.calls:
            if turn.stop in (
                "length",
                "repetition",
                "context",
            ):  # the end of its arguments may be missing
                why = (
                    "for repeating itself"
                    if turn.stop == "repetition"
                    else "where there was no more room"
                )
                why = (
                    f"after {self.task.max_output_tokens} tokens" if turn.stop == "length" else why
                )
                output = f"Not carried out: your turn was cut off {why}. Write less."
                step = Step(
                    "tool", tool=call.name, arguments=call.arguments, output=output, status="error"
                )
            elif self._seconds_left <= 0:
                step = Step(
                    "tool",
                    tool=call.name,
                    arguments=call.arguments,
                    output="Not carried out: time is up.",
                )
            elif not self.student.replay or (step := self.student.replay(call)) is None:
                longest = CALL_SECONDS if self.task.bounds.until_activated else math.inf
                step = await self.toolbox.run(call, min(self._seconds_left, longest))
            if self.secrets:
                step = replace(step, output=redact(step.output, self.secrets))
            steps.append(step)
            self._add(step)
        return steps

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        if self.student.on_step:
            self.student.on_step(step)

    @property
    def _seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def _bound_reached(self) -> str:
        bounds, skill = self.task.bounds, self.task.skill
        if bounds.until_activated and skill and activated(Trace(tuple(self.steps)), skill.name):
            return "activated"
        if self.turns >= bounds.turns:
            return "turns"
        if bounds.tokens is not None and self.usage.total_tokens >= bounds.tokens:
            return "tokens"
        return "seconds" if self._seconds_left <= 0 else ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a model: text and calls. Without calls it is the answer."""

    text: str
    calls: tuple[ToolCall, ...]
    stop: str


def has_native_tools(address: Address) -> bool:
    return address.provider not in TEXT_ONLY_PROVIDERS


def tool_calling_for(
    address: Address, tools: tuple[Tool, ...], output_tokens: int, *, says: bool = False
) -> ToolCalling:
    if has_native_tools(address):
        return ToolCalling(tools)
    if address.provider != "local":
        return JsonToolCalling(tools, says=says)
    row = LOCAL_MODELS.get(address.model or DEFAULT_LOCAL_MODEL)
    max_conversation = int(
        CHARACTERS_PER_TOKEN * max(0, (row.context if row else DEFAULT_CONTEXT) - output_tokens)
    )
    max_text = max(
        MIN_TEXT, min(MAX_TEXT, int(CHARACTERS_PER_TOKEN * (output_tokens - CALL_TOKENS)))
    )
    return JsonToolCalling(tools, max_text=max_text, max_conversation=max_conversation)


class ToolCalling:
    """With the tool calls of the model's API."""

    def __init__(self, tools: tuple[Tool, ...], *, max_result: int | None = None) -> None:
        self.tools = tools
        self.schema: Mapping[str, Any] | None = None
        self.instructions = ""
        self.max_result = max_result

    def read(self, reply: Reply) -> Turn:
        # Some servers give no ids, but a result has to name its call.
        calls = reply.calls
        if len({call.id for call in calls if call.id}) < len(calls):
            calls = tuple(
                replace(call, id=f"call_{number}") for number, call in enumerate(calls, 1)
            )
        return Turn(reply.text, calls, reply.stop)

    def next_messages(self, reply: Reply, turn: Turn, steps: Sequence[Step]) -> list[Message]:
        results = [
            Message("tool", step.output, call_id=call.id, is_error=step.status == "error")
            for call, step in zip(turn.calls, steps, strict=True)
        ]
        return [Message("assistant", turn.text, turn.calls, thinking=reply.thinking), *results]

    def fit(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(messages)


class JsonToolCalling(ToolCalling):
    """By answers that are JSON. In characters, `max_text` limits a call, and `max_conversation` all messages."""

    def __init__(
        self,
        tools: tuple[Tool, ...],
        *,
        max_text: int | None = None,
        max_conversation: int | None = None,
        says: bool = False,
    ) -> None:
        super().__init__(
            (), max_result=None if max_conversation is None else max(400, max_conversation // 12)
        )
        self.max_conversation = max_conversation
        self.says = says
        self._skill_texts: set[str] = set()
        answer = {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        }
        forms = [(tool.name, tool.description, tool.parameters) for tool in tools]
        forms.append((ANSWER, "End, and say what came of it.", answer))
        lines = [
            f"- {name}({', '.join(_fields(name, parameters))}): {description}"
            for name, description, parameters in forms
        ]
        self.instructions = "\n".join([INSTRUCTIONS, *lines, *([SAY] if says else [])])
        call = {
            "anyOf": [_call_schema(name, parameters, max_text) for name, _, parameters in forms]
        }
        say = {"say": {"type": "string"}} if says else {}
        # Of the forms tried on a few prompts, only this one, with the whole catalog, got the 1.5B to open a skill.
        self.schema = {**_object({**say, "call": call}), "required": ["call"]}

    def read(self, reply: Reply) -> Turn:
        try:
            answer = dict_or_empty(parse_json_answer(reply.text))
        except ValueError:
            answer = {}
        say = str(answer.pop("say", "")) if self.says else ""
        call = dict_or_empty(answer.get("call")) or answer
        name = call.pop("tool", None)
        if not isinstance(name, str):
            return Turn("", (ToolCall("", "", {INVALID_ARGUMENTS: reply.text}),), reply.stop)
        if name == ANSWER:
            return Turn("\n\n".join(filter(None, (say, str(call.get("text", ""))))), (), reply.stop)
        return Turn(say, (ToolCall("", name, call),), reply.stop)

    def next_messages(self, reply: Reply, turn: Turn, steps: Sequence[Step]) -> list[Message]:
        results = [
            f"{'Error' if step.status == 'error' else 'Result'} of {step.tool or 'your call'}:\n{step.output}"
            for step in steps
        ]
        text = "\n\n".join(results)
        if any(step.tool == ACTIVATE_TOOL for step in steps):
            self._skill_texts.add(text)
        return [Message("assistant", reply.text), Message("user", text)]

    def fit(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        if self.max_conversation is None:
            return tuple(messages)
        over = sum(len(message.text) for message in messages) - self.max_conversation
        sent = list(messages)
        # Everything but the task, what a skill says, and the latest result.
        for number, message in enumerate(messages[2:-1], 2):
            saved = len(message.text) - OLD_RESULT
            if (
                over > 0
                and saved > 0
                and message.role == "user"
                and message.text not in self._skill_texts
            ):
                over -= saved
                sent[number] = replace(message, text=f"{message.text[:OLD_RESULT]}…")
        return tuple(sent)


def _fields(name: str, parameters: Mapping[str, Any]) -> list[str]:
    """The arguments that are offered: of our own tools only those that are required, which keeps calls short."""
    return list(parameters["required"] if name in OWN_TOOLS else parameters["properties"])


def _call_schema(name: str, parameters: Mapping[str, Any], max_text: int | None) -> dict[str, Any]:
    fields = _fields(name, parameters)
    properties: dict[str, Any] = {"tool": {"type": "string", "enum": [name]}}
    for field in fields:
        properties[field] = schema = _plain_schema(parameters["properties"][field])
        if max_text is not None and schema.get("type") == "string" and "enum" not in schema:
            schema["maxLength"] = max_text // len(fields)
    return {**_object(properties), "required": ["tool", *parameters["required"]]}


def _plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a grammar can hold a model to."""
    plain = {key: schema[key] for key in ("type", "enum", "required") if key in schema}
    if "properties" in schema:
        inner = dict_or_empty(schema["properties"]).items()
        plain["properties"] = {name: _plain_schema(dict_or_empty(each)) for name, each in inner}
    return plain | (
        {"items": _plain_schema(dict_or_empty(schema["items"]))} if "items" in schema else {}
    )


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
