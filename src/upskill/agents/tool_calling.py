"""How a model calls tools: with the calls of its wire format, or spelled out as JSON of a schema.

Small local models, and programs that only answer questions, have no calls of their own. They are told of the tools in
a few words and answer with one call at a time, which the schema holds to the form; what comes back is said by the user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from upskill.agents.catalog import ACTIVATE
from upskill.models import Address, Message, Reply, Tool, ToolCall
from upskill.models.embedded.local_models import LOCAL_MODELS
from upskill.models.parsing import INVALID_ARGUMENTS
from upskill.plain import dict_or_empty, is_deep
from upskill.traces import Step

WITHOUT_CALLS = ("local", "command", "handoff")  # providers whose models are asked for text alone
ANSWER = "answer"
CONTEXT = 8_192  # tokens of a local model that no table knows
LETTERS = 2.5  # characters that surely fit into a token
# Characters of the texts in a call, and tokens of what stands around them. A model of 135M rambles on until it is
# stopped, and a call that is stopped before its end cannot be carried out.
LONGEST_TEXT, SHORTEST_TEXT, AROUND = 600, 48, 40
OLD_RESULT = 160  # characters that are left of an older result when the context is short


HOW = "Every turn is one call of one of these tools, as JSON:"


@dataclass(frozen=True, slots=True)
class Turn:
    """What a model said in one turn: text and calls. Without calls it is the answer."""

    text: str
    calls: tuple[ToolCall, ...]
    stop: str


class ToolCalling(Protocol):
    """`tools` and `schema` go with every request, `words` into the system prompt.

    `shown` is how many characters of a result the model can take; None: as many as anyone gets.
    """

    tools: tuple[Tool, ...]
    schema: Mapping[str, Any] | None
    words: str
    shown: int | None

    def read(self, reply: Reply) -> Turn: ...

    def turn(self, reply: Reply, said: Turn, steps: Sequence[Step]) -> list[Message]:
        """What the conversation goes on with: the model's turn, and what came of its calls."""
        ...

    def fitting(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation as it is sent."""
        ...


def speaks_tools(address: Address) -> bool:
    """Whether the model at this address has calls of its own."""
    return address.provider not in WITHOUT_CALLS


def tool_calling_for(address: Address, tools: tuple[Tool, ...], output_tokens: int) -> ToolCalling:
    if speaks_tools(address):
        return NativeToolCalling(tools)
    if address.provider != "local":
        return JsonToolCalling(tools)
    row = LOCAL_MODELS.get(address.model or next(iter(LOCAL_MODELS)))
    room = int(LETTERS * max(0, (row.context if row else CONTEXT) - output_tokens))
    longest = max(SHORTEST_TEXT, min(LONGEST_TEXT, int(LETTERS * (output_tokens - AROUND))))
    return JsonToolCalling(tools, longest=longest, room=room)


class NativeToolCalling:
    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self.tools = tools
        self.schema: Mapping[str, Any] | None = None
        self.words = ""
        self.shown: int | None = None

    def read(self, reply: Reply) -> Turn:
        # Some servers give no ids, and a result has to name the call it belongs to.
        named = {call.id for call in reply.calls if call.id}
        if len(named) == len(reply.calls):
            return Turn(reply.text, reply.calls, reply.stop)
        calls = tuple(replace(call, id=f"call_{number}") for number, call in enumerate(reply.calls, 1))
        return Turn(reply.text, calls, reply.stop)

    def turn(self, reply: Reply, said: Turn, steps: Sequence[Step]) -> list[Message]:
        results = [
            Message("tool", step.output, call_id=call.id, is_error=step.status == "error")
            for call, step in zip(said.calls, steps, strict=True)
        ]
        return [Message("assistant", said.text, said.calls, thinking=reply.thinking), *results]

    def fitting(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(messages)


class JsonToolCalling:
    """`longest` bounds the texts of a call together, `room` the characters of the conversation; None: no bound."""

    def __init__(self, tools: tuple[Tool, ...], *, longest: int | None = None, room: int | None = None) -> None:
        self.tools: tuple[Tool, ...] = ()
        self.room = room
        self._kept: set[str] = set()
        self.shown: int | None = None if room is None else max(400, room // 12)
        answer = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        forms = [(tool.name, tool.description, tool.parameters) for tool in tools]
        forms.append((ANSWER, "End, and say what came of it.", answer))
        lines = [f"- {name}({', '.join(parameters['required'])}): {words}" for name, words, parameters in forms]
        self.words = "\n".join([HOW, *lines])
        call = {"anyOf": [_shape(name, parameters, longest) for name, _, parameters in forms]}
        self.schema: Mapping[str, Any] | None = {
            "type": "object",
            "properties": {"call": call},
            "required": ["call"],
            "additionalProperties": False,
        }

    def read(self, reply: Reply) -> Turn:
        try:
            said = dict_or_empty(json.loads(reply.text))
        except (ValueError, RecursionError):
            said = {}
        call = dict_or_empty(said.get("call")) or said
        name = call.pop("tool", None)
        if not isinstance(name, str) or is_deep(call):
            return Turn("", (ToolCall("", "", {INVALID_ARGUMENTS: reply.text}),), reply.stop)
        if name == ANSWER:
            return Turn(str(call.get("text", "")), (), reply.stop)
        return Turn("", (ToolCall("", name, call),), reply.stop)

    def turn(self, reply: Reply, said: Turn, steps: Sequence[Step]) -> list[Message]:
        told = [
            f"{'Error' if step.status == 'error' else 'Result'} of {step.tool or 'your call'}:\n{step.output}"
            for step in steps
        ]
        text = "\n\n".join(told)
        if any(step.tool == ACTIVATE for step in steps):
            self._kept.add(text)
        return [Message("assistant", reply.text), Message("user", text)]

    def fitting(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        if self.room is None:
            return tuple(messages)
        over = sum(len(message.text) for message in messages) - self.room
        sent = list(messages)
        # Not the task, nor what a skill says, nor what came last.
        for number, message in enumerate(messages[2:-1], 2):
            most = len(message.text) - OLD_RESULT
            if over > 0 and most > 0 and message.role == "user" and message.text not in self._kept:
                over -= most
                sent[number] = replace(message, text=f"{message.text[:OLD_RESULT]}…")
        return tuple(sent)


def _shape(name: str, parameters: Mapping[str, Any], longest: int | None) -> dict[str, Any]:
    properties: dict[str, Any] = {"tool": {"type": "string", "enum": [name]}}
    for field in parameters["required"]:
        known = parameters["properties"][field]
        properties[field] = {key: known[key] for key in ("type", "enum") if key in known}
        if longest is not None and "enum" not in known:
            properties[field]["maxLength"] = longest // len(parameters["required"])
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
