"""Chat completions: OpenAI's own wire format, and that of every endpoint in `endpoints.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from upskill.errors import UsageError
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
from upskill.models.endpoints import ENDPOINTS, Endpoint, first_set
from upskill.models.http.model import HttpModel, check_base_url, missing_key
from upskill.models.http.transport import Transport
from upskill.models.parsing import count_or_zero, parse_arguments
from upskill.models.prices import price_for
from upskill.plain import dict_or_empty, list_or_empty
from upskill.traces import Usage

STOP_REASONS: dict[str, Stop] = {
    "stop": "end",
    "length": "length",
    "max_tokens": "length",
    "model_length": "context",
    "repetition": "repetition",
    "tool_calls": "tools",
    "function_call": "tools",
}
# OpenAI's models that take only max_completion_tokens.
NEEDS_COMPLETION_TOKENS = re.compile(r"^(o\d|gpt-([5-9]|\d\d)|chatgpt-)")
FILTERED = frozenset(
    ("content_filter", "safety", "sensitive", "prohibited_content", "recitation", "blocklist")
)
LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
REASONING_FIELDS = ("reasoning_content", "reasoning")  # depending on the server
CHARACTERS_PER_TOKEN = (
    8  # more than any text has; a server that counts fewer tokens did not read all of it
)
MIN_CONTEXT = 1000  # tokens
RESENT_FIELDS = (*REASONING_FIELDS, "reasoning_details")  # required by some servers


async def open_model(address: Address, context: ModelContext) -> Model:
    endpoint = ENDPOINTS[address.endpoint or "openai"]
    base_url = resolve_base_url(address, endpoint, context)
    key = first_set(context.keys, endpoint.key_variables)
    if not key and endpoint.key_required:
        raise missing_key(endpoint.name, endpoint.key_variables[0])
    return ChatCompletionsModel(address, endpoint, base_url, key, context)


def resolve_base_url(address: Address, endpoint: Endpoint, context: ModelContext) -> str:
    """That of the address, of the environment, or of the endpoint's row, in this order."""
    configured = first_set(context.keys, endpoint.url_variables)
    url = address.base_url or configured or endpoint.base_url
    if not url:
        raise UsageError(
            f"{address.name!r}: no base URL is set for the {endpoint.name!r} endpoint",
            f"Pass --base-url, or set {endpoint.url_variables[0]}."
            if endpoint.url_variables
            else "Pass --base-url.",
        )
    return check_base_url(address, url).rstrip("/").removesuffix("/chat/completions")


class ChatCompletionsModel(HttpModel):
    empty_is_an_error = True  # where an answer was cut off before its first word

    def __init__(
        self,
        address: Address,
        endpoint: Endpoint,
        base_url: str,
        key: str,
        context: ModelContext,
        *,
        transport: Transport | None = None,
    ) -> None:
        self.key_variable = endpoint.key_variables[0] if endpoint.key_variables else ""
        super().__init__(
            address, f"{base_url.rstrip('/')}/chat/completions", key, context, transport
        )
        self.endpoint = endpoint
        self.price = price_for(replace(address, base_url=base_url), context.prices)
        self._limit_field = endpoint.limit_field
        if endpoint.limit_field == "auto":
            self._limit_field = LIMIT_FIELDS[bool(NEEDS_COMPLETION_TOKENS.match(address.model))]

    def auth_headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def build_body(self, request: Request, unsupported_params: frozenset[str]) -> dict[str, Any]:
        messages = [_write_message(message) for message in request.messages]
        limit = self._limit_field
        if limit in unsupported_params:
            limit = next(field for field in LIMIT_FIELDS if field != limit)
        body: dict[str, Any] = {
            "model": self.address.model,
            "messages": messages,
            limit: request.max_output_tokens,
        }
        if request.temperature is not None and "temperature" not in unsupported_params:
            body["temperature"] = request.temperature
        if (
            request.seed is not None
            and self.endpoint.seeds
            and self.endpoint.seed_field not in unsupported_params
        ):
            body[self.endpoint.seed_field] = request.seed
        effort = request.effort or self.address.effort
        if effort and "reasoning_effort" not in unsupported_params:
            body["reasoning_effort"] = effort
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in request.tools
            ]
        if request.schema is not None:
            if "response_format" in unsupported_params:  # so the prompt says which JSON
                body["response_format"] = {"type": "json_object"}
                instruction = "Answer with JSON of this schema: " + json.dumps(request.schema)
                messages.insert(0, {"role": "system", "content": instruction})
            else:
                format_ = {
                    "name": "answer",
                    "schema": request.schema,
                    "strict": is_strict_schema(request.schema),
                }
                body["response_format"] = {"type": "json_schema", "json_schema": format_}
        return body

    def rejected_param(self, error: str, body: Mapping[str, Any]) -> str:
        # Only parameters in the body count: an error may recommend another.
        named = re.search(r'"param": ?"(\w+)', error)
        suspects = [named.group(1)] if named else []
        known = (
            *LIMIT_FIELDS,
            "temperature",
            self.endpoint.seed_field,
            "reasoning_effort",
            "response_format",
        )
        suspects += [field for field in known if re.search(rf"\b{field}\b", error)]
        return next((field for field in suspects if field in known and field in body), "")

    def parse_reply(self, answer: dict[str, Any], request: Request) -> Reply:
        choice = dict_or_empty(next(iter(list_or_empty(answer.get("choices"))), None))
        message = dict_or_empty(choice.get("message"))
        reason = str(choice.get("finish_reason") or "")
        text, thoughts = _text_and_thoughts(message)
        if refusal := message.get("refusal"):
            error = f"the provider refused: {self.excerpt(str(refusal))}"
            raise Unanswered(error, stop="refusal", text=str(refusal), status=200)
        if reason.lower() in FILTERED:
            error = (
                f"the provider's content filter stopped the answer: {self.excerpt(text) or reason}"
            )
            raise Unanswered(error, stop="refusal", text=text, status=200)
        calls = tuple(_read_call(call) for call in list_or_empty(message.get("tool_calls")))
        is_empty = message.get("content") is None or not (text or reason)
        is_empty = is_empty and not calls and not thoughts and STOP_REASONS.get(reason) != "length"
        # Some servers never have the field; null says that the answer had not ended.
        self.check_whole(
            answer,
            "error" if choice.get("error") else choice.get("finish_reason", ""),
            is_empty=is_empty,
        )
        if reason == "length" and self.empty_is_an_error and not text.strip() and not calls:
            raise self.output_limit_error(reason)
        stop = STOP_REASONS.get(reason, "other")
        if calls and stop not in ("length", "repetition", "context"):
            stop = "tools"
        return Reply(
            text,
            self.parse_usage(answer, request, text + thoughts),
            stop,
            calls,
            _thinking_to_resend(message) if calls else (),
            thoughts,
            str(answer.get("model") or ""),
        )

    def parse_usage(self, answer: dict[str, Any], request: Request, output: str = "") -> Usage:
        usage = dict_or_empty(answer.get("usage"))
        input_tokens, output_tokens = self.estimate_usage(
            count_or_zero(usage.get("prompt_tokens")),
            count_or_zero(usage.get("completion_tokens")),
            request,
            output,
        )
        characters = sum(len(message.text) for message in request.messages)
        if characters > CHARACTERS_PER_TOKEN * max(input_tokens, MIN_CONTEXT):
            self.tell_once(
                f"{self.address.name}: the server seems to cut long prompts: it counted far fewer tokens than it got."
                " Give it a larger context (for Ollama, OLLAMA_CONTEXT_LENGTH)."
            )
        cached = count_or_zero(
            dict_or_empty(usage.get("prompt_tokens_details")).get("cached_tokens")
        )
        cached = cached or count_or_zero(usage.get("prompt_cache_hit_tokens"))
        reasoning = count_or_zero(
            dict_or_empty(usage.get("completion_tokens_details")).get("reasoning_tokens")
        )
        # Some servers count the tokens of thinking in the total only.
        hidden = count_or_zero(usage.get("total_tokens")) - input_tokens - output_tokens
        if hidden > 0:
            output_tokens, reasoning = output_tokens + hidden, max(reasoning, hidden)
        cost = usage.get("cost") if self.endpoint.name == "openrouter" else None
        if not isinstance(cost, int | float):
            cost = self.price.cost(input_tokens, output_tokens, cached)
        return Usage(
            input_tokens,
            output_tokens,
            min(cached, input_tokens),
            min(reasoning, output_tokens),
            cost,
        )


def is_strict_schema(schema: object) -> bool:
    if isinstance(schema, list):
        return all(is_strict_schema(item) for item in cast("list[object]", schema))
    if not isinstance(schema, dict):
        return True
    fields = dict_or_empty(cast("object", schema))
    if fields.get("type") == "object" or "properties" in fields:
        properties = dict_or_empty(fields.get("properties"))
        closed = fields.get("additionalProperties") is False
        if not closed or set(list_or_empty(fields.get("required"))) != set(properties):
            return False
        return all(is_strict_schema(value) for value in properties.values())
    return all(
        is_strict_schema(value)
        for key, value in fields.items()
        if key not in ("enum", "const", "examples", "default")
    )


def _write_message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    written: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.calls:
        extras: dict[str, Any] = {}
        for thinking in message.thinking:
            written |= {field: thinking[field] for field in RESENT_FIELDS if field in thinking}
            extras |= dict_or_empty(thinking.get("extra_content"))
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
                },
                **({"extra_content": extras[call.id]} if extras.get(call.id) else {}),
            }
            for call in message.calls
        ]
        written["content"] = message.text or None
    return written


def _read_call(value: object) -> ToolCall:
    call = dict_or_empty(value)
    function = dict_or_empty(call.get("function"))
    return ToolCall(
        str(call.get("id") or ""),
        str(function.get("name") or ""),
        parse_arguments(function.get("arguments")),
    )


def _text_and_thoughts(message: Mapping[str, Any]) -> tuple[str, str]:
    content = message.get("content")
    thoughts = next(
        (thought for field in REASONING_FIELDS if isinstance(thought := message.get(field), str)),
        "",
    )
    if isinstance(content, list):  # Mistral's thinking models answer in parts
        parts = [dict_or_empty(part) for part in list_or_empty(cast("object", content))]
        texts = [str(part.get("text") or "") for part in parts if part.get("type") == "text"]
        thinks = [
            item
            for part in parts
            if part.get("type") == "thinking"
            for item in list_or_empty(part.get("thinking"))
        ]
        return "".join(texts), thoughts or "".join(
            str(dict_or_empty(item).get("text") or "") for item in thinks
        )
    return (content if isinstance(content, str) else ""), thoughts


def _thinking_to_resend(message: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    thinking = {field: message[field] for field in RESENT_FIELDS if message.get(field)}
    calls = [dict_or_empty(call) for call in list_or_empty(message.get("tool_calls"))]
    if extras := {
        str(call.get("id")): call["extra_content"] for call in calls if call.get("extra_content")
    }:
        thinking["extra_content"] = extras
    return (thinking,) if thinking else ()
