"""How a model calls tools: with the tool calls of its API, or by answering with JSON that fits a schema.

Small local models, and programs that only answer questions, have no tool calls. They get a short description of the
tools and answer with one call at a time, in the form that the schema demands; results come back as user messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from upskill.agents.catalog import ACTIVATE_TOOL
from upskill.models import Address, Message, Reply, Tool, ToolCall
from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL, LOCAL_MODELS
from upskill.models.parsing import INVALID_ARGUMENTS, parse_json_answer
from upskill.plain import dict_or_empty, is_deep
from upskill.traces import Step

TEXT_ONLY_PROVIDERS = ("command", "handoff")
ANSWER = "answer"
DEFAULT_CONTEXT = 8_192  # tokens, for a local model that is not in the table
CHARACTERS_PER_TOKEN = 2.5  # a safe lower estimate
# Characters of the texts in a call, and tokens of the JSON around them. A model of 135M rambles on until it is stopped,
# and a call that is cut off cannot be run.
MAX_TEXT, MIN_TEXT, CALL_TOKENS = 600, 48, 40
LOCAL_RESULT = 3_000  # characters of a result for a local model with tool calls of its own: reading takes it a while
OLD_RESULT = 160  # characters that are kept of an older result when the context is short
INSTRUCTIONS = "Every turn is one call of one of these tools, as JSON:"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a model: text and calls. Without calls it is the answer."""

    text: str
    calls: tuple[ToolCall, ...]
    stop: str


def has_native_tools(address: Address) -> bool:
    """Whether this model has tool calls, in its API or in the chat template of its weights."""
    if address.provider == "local":
        row = LOCAL_MODELS.get(address.model or DEFAULT_LOCAL_MODEL)
        return row is not None and row.tools
    return address.provider not in TEXT_ONLY_PROVIDERS


def tool_calling_for(address: Address, tools: tuple[Tool, ...], output_tokens: int) -> ToolCalling:
    if has_native_tools(address):
        return ToolCalling(tools, max_result=LOCAL_RESULT if address.provider == "local" else None)
    if address.provider != "local":
        return JsonToolCalling(tools)
    row = LOCAL_MODELS.get(address.model)
    max_conversation = int(CHARACTERS_PER_TOKEN * max(0, (row.context if row else DEFAULT_CONTEXT) - output_tokens))
    max_text = max(MIN_TEXT, min(MAX_TEXT, int(CHARACTERS_PER_TOKEN * (output_tokens - CALL_TOKENS))))
    return JsonToolCalling(tools, max_text=max_text, max_conversation=max_conversation)


class ToolCalling:
    """With the tool calls of the model's API.

    `tools` and `schema` go into every request, `instructions` into the system prompt. `max_result` is how many
    characters of a result the model can take; None means the usual number.
    """

    def __init__(self, tools: tuple[Tool, ...], *, max_result: int | None = None) -> None:
        self.tools = tools
        self.schema: Mapping[str, Any] | None = None
        self.instructions = ""
        self.max_result = max_result

    def read(self, reply: Reply) -> Turn:
        # Some servers give no ids, but a result has to name its call.
        named = {call.id for call in reply.calls if call.id}
        if len(named) == len(reply.calls):
            return Turn(reply.text, reply.calls, reply.stop)
        calls = tuple(replace(call, id=f"call_{number}") for number, call in enumerate(reply.calls, 1))
        return Turn(reply.text, calls, reply.stop)

    def next_messages(self, reply: Reply, turn: Turn, steps: Sequence[Step]) -> list[Message]:
        """The messages that continue the conversation: the model's turn, and the results of its calls."""
        results = [
            Message("tool", step.output, call_id=call.id, is_error=step.status == "error")
            for call, step in zip(turn.calls, steps, strict=True)
        ]
        return [Message("assistant", turn.text, turn.calls, thinking=reply.thinking), *results]

    def fit(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The conversation as it is sent, shortened if it would be too long."""
        return tuple(messages)


class JsonToolCalling(ToolCalling):
    """By answers that are JSON. `max_text` limits the texts of a call together, `max_conversation` all messages, in
    characters."""

    def __init__(
        self, tools: tuple[Tool, ...], *, max_text: int | None = None, max_conversation: int | None = None
    ) -> None:
        super().__init__((), max_result=None if max_conversation is None else max(400, max_conversation // 12))
        self.max_conversation = max_conversation
        self._kept: set[str] = set()
        answer = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        forms = [(tool.name, tool.description, tool.parameters) for tool in tools]
        forms.append((ANSWER, "End, and say what came of it.", answer))
        lines = [f"- {name}({', '.join(parameters['required'])}): {words}" for name, words, parameters in forms]
        self.instructions = "\n".join([INSTRUCTIONS, *lines])
        call = {"anyOf": [_call_schema(name, parameters, max_text) for name, _, parameters in forms]}
        self.schema = {
            "type": "object",
            "properties": {"call": call},
            "required": ["call"],
            "additionalProperties": False,
        }

    def read(self, reply: Reply) -> Turn:
        try:
            answer = dict_or_empty(parse_json_answer(reply.text))
        except ValueError:
            answer = {}
        call = dict_or_empty(answer.get("call")) or answer
        name = call.pop("tool", None)
        if not isinstance(name, str) or is_deep(call):
            return Turn("", (ToolCall("", "", {INVALID_ARGUMENTS: reply.text}),), reply.stop)
        if name == ANSWER:
            return Turn(str(call.get("text", "")), (), reply.stop)
        return Turn("", (ToolCall("", name, call),), reply.stop)

    def next_messages(self, reply: Reply, turn: Turn, steps: Sequence[Step]) -> list[Message]:
        results = [
            f"{'Error' if step.status == 'error' else 'Result'} of {step.tool or 'your call'}:\n{step.output}"
            for step in steps
        ]
        text = "\n\n".join(results)
        if any(step.tool == ACTIVATE_TOOL for step in steps):
            self._kept.add(text)
        return [Message("assistant", reply.text), Message("user", text)]

    def fit(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        if self.max_conversation is None:
            return tuple(messages)
        over = sum(len(message.text) for message in messages) - self.max_conversation
        sent = list(messages)
        # Everything but the task, what a skill says, and the latest result.
        for number, message in enumerate(messages[2:-1], 2):
            saved = len(message.text) - OLD_RESULT
            if over > 0 and saved > 0 and message.role == "user" and message.text not in self._kept:
                over -= saved
                sent[number] = replace(message, text=f"{message.text[:OLD_RESULT]}…")
        return tuple(sent)


def _call_schema(name: str, parameters: Mapping[str, Any], max_text: int | None) -> dict[str, Any]:
    properties: dict[str, Any] = {"tool": {"type": "string", "enum": [name]}}
    for field in parameters["required"]:
        schema = parameters["properties"][field]
        properties[field] = {key: schema[key] for key in ("type", "enum") if key in schema}
        if max_text is not None and "enum" not in schema:
            properties[field]["maxLength"] = max_text // len(parameters["required"])
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
