"""Anthropic's messages API, with the system prompt (and so the skill) in its prompt cache."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from upskill.models import (
    Address,
    Message,
    Model,
    ModelContext,
    Reply,
    Request,
    Stop,
    ToolCall,
    Unanswered,
)
from upskill.models.http.model import HttpModel, check_base_url, missing_key
from upskill.models.parsing import count_or_zero, parse_arguments
from upskill.models.prices import price_for
from upskill.plain import dict_or_empty, list_or_empty
from upskill.traces import Usage

BASE_URL = "https://api.anthropic.com"
KEY_VARIABLE, URL_VARIABLE = "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"
VERSION = "2023-06-01"
STOP_REASONS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "context",
    "tool_use": "tools",
}
EFFORTS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
THINKING_BUDGETS = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}
ANSWER_TOOL = "answer"  # the tool that older models have to call where the answer has a schema
SUPPORTED_KEYWORDS = frozenset(
    (
        *(
            "type",
            "properties",
            "required",
            "items",
            "enum",
            "const",
            "anyOf",
            "allOf",
            "$ref",
            "$defs",
        ),
        *("description", "title", "format"),
    )
)
SUPPORTED_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
)


async def open_model(address: Address, context: ModelContext) -> Model:
    key = context.keys.get(KEY_VARIABLE, "").strip()
    if not key:
        raise missing_key("anthropic", KEY_VARIABLE)
    url = check_base_url(
        address, address.base_url or context.keys.get(URL_VARIABLE, "") or BASE_URL
    )
    return AnthropicModel(address, url, key, context)


class AnthropicModel(HttpModel):
    key_variable = KEY_VARIABLE

    def __init__(self, address: Address, base_url: str, key: str, context: ModelContext) -> None:
        root = base_url.rstrip("/").removesuffix("/messages").removesuffix("/v1")
        super().__init__(address, f"{root}/v1/messages", key, context)
        self.price = price_for(address, context.prices)

    def auth_headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": VERSION, "x-api-key": key}

    def build_body(self, request: Request, unsupported_params: frozenset[str]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.address.model,
            "max_tokens": request.max_output_tokens,
            "messages": _write_messages(request.messages),
        }
        if system := _write_system(request.messages):
            body["system"] = system
        if request.tools:
            body["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": _object_schema(tool.parameters),
                }
                for tool in request.tools
            ]
        forced = request.schema is not None and "output_config.format" in unsupported_params
        self._write_effort(body, request, unsupported_params, forced=forced)
        if request.schema is not None and not forced:
            output = body.setdefault("output_config", {})
            output["format"] = {"type": "json_schema", "schema": close_schema(request.schema)}
        elif request.schema is not None:
            answer = {
                "name": ANSWER_TOOL,
                "description": "Gives the answer.",
                "input_schema": _object_schema(request.schema),
            }
            body["tools"] = [*body.get("tools", ()), answer]
            body["tool_choice"] = {"type": "tool", "name": ANSWER_TOOL}
        thinks = dict_or_empty(body.get("thinking")).get("type") in ("adaptive", "enabled")
        if (
            request.temperature is not None
            and "temperature" not in unsupported_params
            and not thinks
        ):
            body["temperature"] = min(1.0, request.temperature)
        return body

    def _write_effort(
        self,
        body: dict[str, Any],
        request: Request,
        unsupported_params: frozenset[str],
        *,
        forced: bool,
    ) -> None:
        """How long to think. Older models take an older form, so the newest is tried first."""
        effort = request.effort or self.address.effort
        if effort == "none":
            ways = ("disabled", "between_tools")
            if way := next(
                (way for way in ways if f"thinking {way}" not in unsupported_params), ""
            ):
                body["thinking"] = {"type": way}
        elif not effort or forced:  # a model that is forced to call a tool cannot think first
            pass
        elif "thinking adaptive" not in unsupported_params:
            body["thinking"] = {"type": "adaptive"}
            if "output_config.effort" not in unsupported_params:
                body["output_config"] = {"effort": EFFORTS.get(effort, effort)}
        elif "thinking enabled" not in unsupported_params:
            budget = THINKING_BUDGETS.get(effort, THINKING_BUDGETS["medium"])
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
            body["max_tokens"] += budget  # the limit is meant for the answer

    def rejected_param(self, error: str, body: Mapping[str, Any]) -> str:
        output, thinking = (
            dict_or_empty(body.get("output_config")),
            dict_or_empty(body.get("thinking")),
        )
        if "format" in output and re.search(
            r"output_config\.format|output_format|schema|structured output", error
        ):
            return "output_config.format"
        if "effort" in output and "effort" in error:
            return "output_config.effort"
        if thinking and "thinking" in error:
            return f"thinking {thinking['type']}"
        if "output_config" in error and output:
            return "output_config.format" if "format" in output else "output_config.effort"
        return "temperature" if "temperature" in error and "temperature" in body else ""

    def parse_reply(self, answer: dict[str, Any], request: Request) -> Reply:
        blocks = [dict_or_empty(block) for block in list_or_empty(answer.get("content"))]
        reason = str(answer.get("stop_reason") or "")
        text = "".join(
            str(block.get("text") or "") for block in blocks if block.get("type") == "text"
        )
        if reason == "refusal":
            details = dict_or_empty(answer.get("stop_details"))
            reason = details.get("explanation") or details.get("category") or text or "no details"
            error = f"the provider refused: {self.excerpt(str(reason))}"
            raise Unanswered(error, stop="refusal", text=text, status=200)
        is_empty = not isinstance(answer.get("content"), list) or not (blocks or reason)
        self.check_whole(answer, answer.get("stop_reason", ""), is_empty=is_empty)
        calls = tuple(
            ToolCall(
                str(block.get("id")), str(block.get("name")), parse_arguments(block.get("input"))
            )
            for block in blocks
            if block.get("type") == "tool_use"
        )
        if request.schema is not None and (
            answered := next((call for call in calls if call.name == ANSWER_TOOL), None)
        ):
            text, calls = json.dumps(dict(answered.arguments), ensure_ascii=False), ()
            reason = "end_turn" if reason == "tool_use" else reason
        stop = STOP_REASONS.get(reason, "other")
        if stop in ("length", "context") and not text.strip() and not calls:
            raise self.output_limit_error(reason, stop)
        thinking = tuple(
            block for block in blocks if block.get("type") in ("thinking", "redacted_thinking")
        )
        thoughts = "".join(str(block.get("thinking") or "") for block in thinking)
        model = str(answer.get("model") or "")
        usage = self.parse_usage(answer, request, text + thoughts)
        return Reply(text, usage, stop, calls, thinking if calls else (), thoughts, model)

    def parse_usage(self, answer: dict[str, Any], request: Request, output: str = "") -> Usage:
        usage = dict_or_empty(answer.get("usage"))
        read = count_or_zero(usage.get("cache_read_input_tokens"))
        written = count_or_zero(usage.get("cache_creation_input_tokens"))
        input_tokens, output_tokens = self.estimate_usage(
            count_or_zero(usage.get("input_tokens")) + read + written,
            count_or_zero(usage.get("output_tokens")),
            request,
            output,
        )
        reasoning = count_or_zero(
            dict_or_empty(usage.get("output_tokens_details")).get("thinking_tokens")
        )
        cost = self.price.cost(input_tokens, output_tokens, read, written)
        return Usage(input_tokens, output_tokens, read, min(reasoning, output_tokens), cost)


def close_schema(schema: object) -> Any:
    """The schema with closed objects; keywords that cannot be enforced are in the description."""
    if isinstance(schema, list):
        return [close_schema(item) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    closed: dict[str, Any] = {}
    unsupported: dict[str, Any] = {}
    for keyword, value in dict_or_empty(cast("object", schema)).items():
        if keyword in ("properties", "$defs"):
            closed[keyword] = {
                name: close_schema(inner) for name, inner in dict_or_empty(value).items()
            }
        elif keyword in ("items", "anyOf", "allOf"):
            closed[keyword] = close_schema(value)
        elif keyword == "oneOf":
            closed["anyOf"] = close_schema(value)
        elif (
            keyword == "format" and value not in SUPPORTED_FORMATS
        ) or keyword not in SUPPORTED_KEYWORDS:
            unsupported[keyword] = value
        else:
            closed[keyword] = value
    unsupported.pop("additionalProperties", None)
    if closed.get("type") == "object":
        closed["additionalProperties"] = False
    if unsupported:
        limits = ", ".join(f"{keyword}: {value}" for keyword, value in unsupported.items())
        closed["description"] = f"{closed.get('description', '')} ({limits})".strip()
    return closed


def _object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object"} | dict(schema)


def _write_system(messages: Iterable[Message]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": message.text}
        for message in messages
        if message.role == "system" and message.text
    ]
    if blocks:  # the same for every case of an arm
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    return blocks


def _write_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The turns; all that lies between two assistant turns is one."""
    written: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if written and written[-1]["role"] == role:
            written[-1]["content"] += blocks
        elif blocks:
            written.append({"role": role, "content": blocks})
    return written


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        error = {"is_error": True} if message.is_error else {}
        return [
            {
                "type": "tool_result",
                "tool_use_id": message.call_id,
                "content": message.text,
                **error,
            }
        ]
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
        for call in message.calls
    ]
    return [*(dict(block) for block in message.thinking), *text, *calls]
