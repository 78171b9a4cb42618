"""Chat completions: OpenAI's own wire format, and that of every endpoint in `endpoints.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from upskill.errors import ModelError, UsageError
from upskill.models import Address, Message, Model, ModelContext, Reply, Request, Stop, ToolCall
from upskill.models.endpoints import ENDPOINTS, Endpoint
from upskill.models.http.transport import Transport
from upskill.models.http.wire import WireModel
from upskill.models.lenient import arguments_of, estimated_tokens, items, mapping, number
from upskill.models.prices import find_price, price_list
from upskill.traces import Usage

STOPS: dict[str, Stop] = {"stop": "end", "length": "length", "tool_calls": "tools", "function_call": "tools"}
NEWER = re.compile(r"^(o\d|gpt-([5-9]|\d\d)|chatgpt-)")  # OpenAI's models that know only max_completion_tokens
LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
THOUGHTS = ("reasoning_content", "reasoning")  # one or the other, by server


async def open_model(address: Address, context: ModelContext) -> Model:
    endpoint = ENDPOINTS[address.endpoint or "openai"]
    return ChatCompletions(
        address, endpoint, base_url_of(address, endpoint, context), key_of(endpoint, context), context
    )


def base_url_of(address: Address, endpoint: Endpoint, context: ModelContext) -> str:
    """The address's own, then the environment's, then the row's."""
    given = (context.keys.get(variable, "") for variable in endpoint.url_variables)
    url = address.base_url or next(filter(None, given), "") or endpoint.base_url
    if not url:
        raise UsageError(
            f"{address.name!r}: no base URL is known for the endpoint {endpoint.name!r}",
            f"Give --base-url, or set {endpoint.url_variables[0]}." if endpoint.url_variables else "Give --base-url.",
        )
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{address.name!r}: the base URL {url!r} does not begin with http:// or https://")
    return url.rstrip("/").removesuffix("/chat/completions")


def key_of(endpoint: Endpoint, context: ModelContext) -> str:
    key = next(filter(None, (context.keys.get(variable, "") for variable in endpoint.key_variables)), "")
    if not key and endpoint.key_required:
        variable = endpoint.key_variables[0]
        raise UsageError(
            f"no API key for {endpoint.name}: {variable} is not set",
            f"Set it with `export {variable}=...`, or write {variable}=... into .env; "
            "without any key, the model `local` works.",
        )
    return key.strip()


class ChatCompletions(WireModel):
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
        super().__init__(address, f"{base_url.rstrip('/')}/chat/completions", key, context, transport)
        self.endpoint = endpoint
        self.price = find_price(price_list(endpoint, base_url), address.name, address.model, given=context.prices)
        newer = bool(NEWER.match(address.model)) if endpoint.limit_field == "auto" else False
        self._limit_field = endpoint.limit_field if endpoint.limit_field != "auto" else LIMIT_FIELDS[newer]

    def headers(self, key: str) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "upskill"}
        return headers | {"Authorization": f"Bearer {key}"} if key else headers

    def write(self, request: Request, unsupported_params: frozenset[str]) -> dict[str, Any]:
        messages = [_write_message(message) for message in request.messages]
        limit = self._limit_field
        if limit in unsupported_params:
            limit = next(field for field in LIMIT_FIELDS if field != limit)
        body: dict[str, Any] = {"model": self.address.model, "messages": messages, limit: request.max_output_tokens}
        if request.temperature is not None and "temperature" not in unsupported_params:
            body["temperature"] = request.temperature
        if request.seed is not None and self.endpoint.seeds and self.endpoint.seed_field not in unsupported_params:
            body[self.endpoint.seed_field] = request.seed
        effort = request.effort or self.address.effort
        if effort and "reasoning_effort" not in unsupported_params:
            body["reasoning_effort"] = effort
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in request.tools
            ]
        if request.schema is not None:
            if "response_format" in unsupported_params:  # a server that knows only "some JSON" has to be told which
                body["response_format"] = {"type": "json_object"}
                wish = "Answer with JSON of this schema: " + json.dumps(request.schema)
                messages.insert(0, {"role": "system", "content": wish})
            else:
                format_ = {"name": "answer", "schema": request.schema, "strict": is_strict(request.schema)}
                body["response_format"] = {"type": "json_schema", "json_schema": format_}
        return body

    def learn(self, complaint: str, body: Mapping[str, Any]) -> str:
        # The longer name first: "max_tokens" is part of a complaint that recommends "max_completion_tokens".
        named = re.search(r'"param": ?"(\w+)', complaint)
        suspects = [named.group(1)] if named else []
        known = (*LIMIT_FIELDS, "temperature", self.endpoint.seed_field, "reasoning_effort", "response_format")
        suspects += [field for field in known if re.search(rf"\b{field}\b", complaint)]
        return next((field for field in suspects if field in known and field in body), "")

    def read(self, answer: dict[str, Any], request: Request) -> Reply:
        choice = mapping(next(iter(items(answer.get("choices"))), None))
        message = mapping(choice.get("message"))
        if not message:
            raise ModelError(f"the answer has no choices: {self.words(json.dumps(answer))}", status=200)
        reason = str(choice.get("finish_reason") or "")
        text, thoughts = _text_and_thoughts(message)
        if refusal := message.get("refusal"):
            raise ModelError(f"the provider refused: {self.words(str(refusal))}", status=200)
        if reason == "content_filter":
            raise ModelError(
                f"the provider's content filter stopped the answer: {self.words(text) or reason}", status=200
            )
        if reason in ("error", "insufficient_system_resource") or choice.get("error"):
            said = mapping(choice.get("error")).get("message") or reason
            raise ModelError(f"the provider broke off the answer: {self.words(str(said))}", status=200)
        calls = tuple(_read_call(call) for call in items(message.get("tool_calls")))
        if reason == "length" and not text.strip() and not calls:
            raise self.cut_short(reason)
        stop = "tools" if calls and reason != "length" else STOPS.get(reason, "other")
        return Reply(
            text,
            self.used(answer, request, text + thoughts),
            stop,
            calls,
            _thinking(message) if calls else (),
            thoughts,
            str(answer.get("model") or ""),
        )

    def used(self, answer: dict[str, Any], request: Request, said: str = "") -> Usage:
        usage = mapping(answer.get("usage"))
        taken, given = number(usage.get("prompt_tokens")), number(usage.get("completion_tokens"))
        if not usage or not taken + given:
            self.tell_once(
                f"{self.address.name}: the server does not say how many tokens it used; "
                "they are estimated from the length of the text"
            )
            taken = estimated_tokens("".join(message.text for message in request.messages))
            given = estimated_tokens(said)
        cached = number(mapping(usage.get("prompt_tokens_details")).get("cached_tokens"))
        cached = cached or number(usage.get("prompt_cache_hit_tokens"))
        reasoning = number(mapping(usage.get("completion_tokens_details")).get("reasoning_tokens"))
        # Some servers leave the tokens of thinking out of the completion's and only count them in the total.
        hidden = number(usage.get("total_tokens")) - taken - given
        if hidden > 0:
            given, reasoning = given + hidden, max(reasoning, hidden)
        cost = usage.get("cost") if self.endpoint.name == "openrouter" else None
        if not isinstance(cost, int | float):
            cost = self.price.of(taken, given, cached)
        return Usage(taken, given, min(cached, taken), min(reasoning, given), cost)


def is_strict(schema: object) -> bool:
    """Whether a schema is of the closed form that strict decoding asks for: every property required, none further."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in cast("list[object]", schema))
    if not isinstance(schema, dict):
        return True
    fields = mapping(cast("object", schema))
    if fields.get("type") == "object" or "properties" in fields:
        properties = mapping(fields.get("properties"))
        closed = fields.get("additionalProperties") is False
        if not closed or set(items(fields.get("required"))) != set(properties):
            return False
        return all(is_strict(value) for value in properties.values())
    return all(is_strict(value) for key, value in fields.items() if key not in ("enum", "const", "examples", "default"))


def _write_message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    written: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.calls:
        extras: dict[str, Any] = {}
        for kept in message.thinking:
            written |= {field: kept[field] for field in (*THOUGHTS, "reasoning_details") if field in kept}
            extras |= mapping(kept.get("extra_content"))
        written["tool_calls"] = [_write_call(call, extras.get(call.id)) for call in message.calls]
        written["content"] = message.text or None
    return written


def _write_call(call: ToolCall, extra: object) -> dict[str, Any]:
    written: dict[str, Any] = {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
    }
    return written | {"extra_content": extra} if extra else written


def _read_call(value: object) -> ToolCall:
    call = mapping(value)
    function = mapping(call.get("function"))
    return ToolCall(str(call.get("id") or ""), str(function.get("name") or ""), arguments_of(function.get("arguments")))


def _text_and_thoughts(message: Mapping[str, Any]) -> tuple[str, str]:
    content = message.get("content")
    thoughts = next((thought for field in THOUGHTS if isinstance(thought := message.get(field), str)), "")
    if isinstance(content, list):  # Mistral's thinking models answer in parts
        parts = [mapping(part) for part in items(cast("object", content))]
        texts = [str(part.get("text") or "") for part in parts if part.get("type") == "text"]
        thinks = [item for part in parts if part.get("type") == "thinking" for item in items(part.get("thinking"))]
        return "".join(texts), thoughts or "".join(str(mapping(item).get("text") or "") for item in thinks)
    return (content if isinstance(content, str) else ""), thoughts


def _thinking(message: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """What some servers want to see again beside the tool calls it led to."""
    kept = {field: message[field] for field in (*THOUGHTS, "reasoning_details") if message.get(field)}
    calls = [mapping(call) for call in items(message.get("tool_calls"))]
    extras = {str(call.get("id")): call["extra_content"] for call in calls if call.get("extra_content")}
    if extras:
        kept["extra_content"] = extras
    return (kept,) if kept else ()
