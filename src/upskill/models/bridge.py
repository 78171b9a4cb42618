"""The bridge to pydantic-ai: `pydantic-ai:PROVIDER:MODEL` reaches every provider that it supports.

Keys come from the environment, under the names that pydantic-ai documents for each provider.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from itertools import groupby
from typing import Any

from upskill.errors import ModelError, UsageError
from upskill.installation import add_extra
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
from upskill.models.failures import (
    FAILURES,
    failure_of,
    further_tries,
    status_failure,
    why_no_answer,
)
from upskill.models.ledger import count_retry
from upskill.models.parsing import (
    collect_secrets,
    count_or_zero,
    parse_arguments,
    safe_excerpt,
    unanswered_stop,
)
from upskill.models.prices import price_for
from upskill.models.throttling import PERMANENT, CircuitBreaker, backoff, limiter_for
from upskill.plain import dict_or_empty
from upskill.traces import Usage

ORIGINAL = "pydantic_ai"  # where a reply keeps pydantic-ai's own form of a turn
PART_KINDS = ("text", "thinking", "tool-call")
STOP_REASONS: dict[str, Stop] = {"stop": "end", "length": "length", "tool_call": "tools"}


async def open_model(address: Address, context: ModelContext) -> Model:
    try:
        pydantic_ai = import_module("pydantic_ai")
        models = import_module("pydantic_ai.models")
    except ImportError as error:
        raise UsageError(
            f"{address.name!r} needs pydantic-ai, which is not installed",
            f"Run `{add_extra('providers')}`.",
        ) from error
    if ":" not in address.model:
        raise UsageError(
            f"{address.name!r} is missing the pydantic-ai provider",
            f"Use {address.provider}:PROVIDER:MODEL, for example {address.provider}:bedrock:MODEL.",
        )
    try:
        model = models.infer_model(address.model)
    except (pydantic_ai.UserError, ImportError, ValueError) as error:
        # An unknown provider, a missing key or a missing package: pydantic-ai says which.
        raise UsageError(f"{address.name!r}: {error}") from error
    client: Any = getattr(model, "client", None)
    if hasattr(client, "max_retries"):
        client.max_retries = 0  # ours are counted
    return BridgedModel(address, await model.__aenter__(), context)


class BridgedModel:
    def __init__(self, address: Address, model: Any, context: ModelContext) -> None:
        self.address = address
        self.model = model
        self.context = context
        self.price = price_for(address, context.prices)
        provider = address.model.partition(":")[0]
        self._limiter = limiter_for(f"{address.provider}:{provider}", context.connections)
        self.breaker = CircuitBreaker(address.name, context.failures.get(address.name, 0))
        self._takes_temperature = True
        self._secrets = collect_secrets("", context.keys)

    async def reply(self, request: Request) -> Reply:
        self.breaker.check()
        tries = 0
        while True:
            tries += 1
            try:
                reply = await self._reply_once(request)
            except Unanswered:
                raise
            except ModelError as error:
                failure = failure_of(error)
                may_pass = tries <= further_tries(failure, self.context.retries)
                if FAILURES[failure].reached or not may_pass:
                    if error.status in PERMANENT:
                        self.breaker.record_failure(error)
                    raise
                await asyncio.sleep(backoff(tries + 1))
                count_retry()
                continue
            self.breaker.record_success()
            return reply

    async def _reply_once(self, request: Request) -> Reply:
        await self._limiter.acquire()
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.context.timeout):
                response = await self._ask(request)
        except TimeoutError as error:
            message = f"the answer was not complete after {self.context.timeout:g} s"
            raise ModelError(message, failure="timeout") from error
        finally:
            self._limiter.release()
        return self._read(response, time.monotonic() - started)

    async def close(self) -> None:
        await self.model.__aexit__(None, None, None)

    async def _ask(self, request: Request) -> Any:
        exceptions = import_module("pydantic_ai.exceptions")
        direct = import_module("pydantic_ai.direct")
        try:
            return await direct.model_request(
                self.model,
                _write_messages(request.messages),
                model_settings=self._settings(request),
                model_request_parameters=_parameters(request),
                instrument=False,
            )
        except exceptions.ModelAPIError as error:
            if (
                self._takes_temperature
                and request.temperature is not None
                and "temperature" in str(error)
            ):
                self._takes_temperature = False
                return await self._ask(request)
            raise self._error(error, getattr(error, "status_code", None)) from error
        except (exceptions.AgentRunError, exceptions.UserError) as error:
            raise self._error(error) from error

    def _error(self, error: Exception, status: int | None = None) -> ModelError:
        message, kind = safe_excerpt(str(error), self._secrets), type(error).__name__
        stop = (
            "context" if "ContextWindow" in kind else "refusal" if "ContentFilter" in kind else None
        )
        if stop := stop or unanswered_stop(message, status):
            return Unanswered(message, stop=stop, status=status)
        failure = ""
        if status is not None:
            failure = status_failure(status, message)
        elif any(type(cause).__name__ == "ConnectError" for cause in _causes(error)):
            failure = "no connection"
        return ModelError(message, status=status, failure=failure)

    def _settings(self, request: Request) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "max_tokens": request.max_output_tokens,
            "timeout": self.context.timeout,
        }
        if request.temperature is not None and self._takes_temperature:
            settings["temperature"] = request.temperature
        if request.seed is not None:
            settings["seed"] = request.seed
        if effort := request.effort or self.address.effort:
            settings["thinking"] = False if effort == "none" else effort
        return settings

    def _read(self, response: Any, seconds: float) -> Reply:
        parts = {
            kind: [part for part in response.parts if part.part_kind == kind] for kind in PART_KINDS
        }
        text, thoughts = (
            "".join(part.content or "" for part in parts[kind]) for kind in ("text", "thinking")
        )
        calls = tuple(
            ToolCall(part.tool_call_id, part.tool_name, parse_arguments(part.args))
            for part in parts["tool-call"]
        )
        reason = response.finish_reason or ""
        excerpt = safe_excerpt(text, self._secrets) or reason
        error: ModelError | None = None
        if reason == "content_filter":
            error = Unanswered(f"the provider refused: {excerpt}", stop="refusal", text=text)
        elif why := why_no_answer(
            self._finish_reason(response), is_empty=not response.parts and reason != "length"
        ):
            error = ModelError(f"{why}: {excerpt}", failure="no answer")
        elif reason == "length" and not text.strip() and not calls:
            message = "the model used up its output tokens before answering"
            error = Unanswered(message, "Allow more with --set max_output_tokens=N.", stop="length")
        if error is not None:
            error.usage = self._usage(response)
            raise error
        return Reply(
            text,
            self._usage(response),
            stop="tools" if calls else STOP_REASONS.get(reason, "other" if reason else "end"),
            calls=calls,
            thinking=({ORIGINAL: _adapter().dump_python([response], mode="json")[0]},)
            if calls
            else (),
            thoughts=thoughts,
            model=response.model_name or "",
            seconds=seconds,
        )

    def _finish_reason(self, response: Any) -> str | None:
        """The provider's own word; for chat completions pydantic-ai makes a "stop" of none at all."""
        is_chat = any(kind.__name__ == "OpenAIChatModel" for kind in type(self.model).__mro__)
        reason = dict_or_empty(response.provider_details).get("finish_reason")
        return str(reason) if reason else None if is_chat else response.finish_reason

    def _usage(self, response: Any) -> Usage:
        usage = response.usage
        input_tokens, output_tokens = (
            count_or_zero(usage.input_tokens),
            count_or_zero(usage.output_tokens),
        )
        cached = count_or_zero(usage.cache_read_tokens)
        reasoning = count_or_zero(dict_or_empty(usage.details).get("reasoning_tokens"))
        cost = self.price.cost(input_tokens, output_tokens, cached)
        if cost is None:
            with suppress(LookupError, ValueError, AssertionError):
                cost = float(response.cost().total_price)
        return Usage(
            input_tokens,
            output_tokens,
            min(cached, input_tokens),
            min(reasoning, output_tokens),
            cost,
        )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Each error that this one was raised from."""
    while (cause := error.__cause__ or error.__context__) is not None:
        yield cause
        error = cause


def _write_messages(messages: Iterable[Message]) -> list[Any]:
    """Our turns as pydantic-ai's, where all between two answers is one request."""
    its = import_module("pydantic_ai.messages")
    names = {call.id: call.name for message in messages for call in message.calls}

    def write_part(message: Message) -> Any:
        if message.role == "tool":
            return its.ToolReturnPart(
                names.get(message.call_id, ""), message.text, tool_call_id=message.call_id
            )
        return (its.SystemPromptPart if message.role == "system" else its.UserPromptPart)(
            message.text
        )

    written: list[Any] = []
    for is_answer, turns in groupby(messages, lambda message: message.role == "assistant"):
        if is_answer:
            written += [_write_answer(its, message) for message in turns]
        else:
            written.append(its.ModelRequest(parts=[write_part(message) for message in turns]))
    return written


def _write_answer(its: Any, message: Message) -> Any:
    for thinking in message.thinking:
        if ORIGINAL in thinking:
            return _adapter().validate_python([thinking[ORIGINAL]])[0]
    text = [its.TextPart(message.text)] if message.text else []
    calls = [
        its.ToolCallPart(call.name, dict(call.arguments), tool_call_id=call.id)
        for call in message.calls
    ]
    return its.ModelResponse(parts=[*text, *calls])


def _adapter() -> Any:
    return import_module("pydantic_ai.messages").ModelMessagesTypeAdapter


def _parameters(request: Request) -> Any:
    models = import_module("pydantic_ai.models")
    definition = import_module("pydantic_ai.tools").ToolDefinition
    tools = [
        definition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=dict(tool.parameters),
        )
        for tool in request.tools
    ]
    if request.schema is None:
        return models.ModelRequestParameters(function_tools=tools)
    output = import_module("pydantic_ai.output").OutputObjectDefinition(
        json_schema=dict(request.schema), name="answer"
    )
    return models.ModelRequestParameters(
        function_tools=tools, output_mode="native", output_object=output
    )
