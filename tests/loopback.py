"""A Loopback is an API server on this machine that speaks both wire formats, for tests and for benchmarks.

It holds every request against the provider's published shape, writes it down, and answers as told: by a function of
the call, by a text, or with a trouble.

    async with Loopback(answer=lambda call: call.prompt.upper()) as server:
        model = await Models(...).get(resolve("any-name", base_url=server.url))
        ...
        assert server.requests[0].body["model"] == "any-name"
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from upskill.runs.running.probe import PROMPT

Format = Literal["openai", "anthropic"]


# What a test makes the server say.


@dataclass(frozen=True)
class Call:
    """One request as the answering function sees it, whatever its format."""

    format: Format
    model: str
    system: str
    prompt: str  # the last thing the user or a tool said
    seed: int | None
    body: Mapping[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Say:
    """An answer with more to it than text."""

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()  # tool name and arguments
    thoughts: str = ""
    stop: str = ""  # the provider's word; chosen by what is said when empty
    refusal: str = ""
    usage: Mapping[str, Any] | None = None  # instead of the counted one
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])  # laid over the whole answer
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Kind = Literal[
    "status",
    "html page",
    "empty body",
    "cut connection",
    "cut body",
    "slow body",
    "silence",
    "invalid json",
    "encoded",
    "error in a 200",
    "no choices",
    "overflow",
]


@dataclass(frozen=True)
class Trouble:
    """A way in which servers misbehave. `words` are what the provider says about it."""

    kind: Kind = "status"
    status: int = 500
    words: str = "Something went wrong on our side."
    code: str = "server_error"
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float = 30.0  # of a slow body or of silence


def refuse(
    status: int, words: str, code: str = "", *, param: str | None = None, retry_after: str = ""
) -> Trouble:
    """A status that is not 200, in the shape its provider gives it."""
    headers = {"Retry-After": retry_after} if retry_after else {}
    return Trouble(status=status, words=words, code=code, param=param, headers=headers)


Spoken = str | Say | Trouble
Answer = Callable[[Call], Spoken]


def hashed_answer(call: Call) -> str:
    """The same answer for the same model, messages and seed, in every process."""
    told = json.dumps(
        [call.model, call.system, call.body.get("messages"), call.seed], sort_keys=True
    )
    return "answer " + hashlib.sha256(told.encode()).hexdigest()[:12]


# The published shapes of a request. What they do not name is refused.


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TextPart(Shape):
    type: Literal["text"]
    text: str


class FunctionCall(Shape):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    arguments: str

    @model_validator(mode="after")
    def _arguments_are_json(self) -> FunctionCall:
        json.loads(self.arguments)
        return self


class CalledTool(Shape):
    id: str = Field(min_length=1)
    type: Literal["function"]
    function: FunctionCall
    extra_content: dict[str, Any] | None = None  # Gemini's signature of its thoughts


class SystemTurn(Shape):
    role: Literal["system", "developer"]
    content: str | list[TextPart]


class UserTurn(Shape):
    role: Literal["user"]
    content: str | list[TextPart]


class AssistantTurn(Shape):
    role: Literal["assistant"]
    content: str | list[TextPart] | None = None
    tool_calls: list[CalledTool] | None = None
    # What DeepSeek, Moonshot, vLLM and OpenRouter publish beyond OpenAI's own shape.
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> AssistantTurn:
        if self.content is None and not self.tool_calls:
            raise ValueError("an assistant message needs content or tool_calls")
        return self


class ToolTurn(Shape):
    role: Literal["tool"]
    content: str | list[TextPart]
    tool_call_id: str


Turn = Annotated[SystemTurn | UserTurn | AssistantTurn | ToolTurn, Field(discriminator="role")]


class FunctionTool(Shape):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class OfferedTool(Shape):
    type: Literal["function"]
    function: FunctionTool


class JsonSchema(Shape):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _strict_is_closed(self) -> JsonSchema:
        if self.strict:
            for place in _objects(self.schema_):
                if place.get("additionalProperties") is not False:
                    raise ValueError(
                        "'additionalProperties' is required to be supplied and to be false"
                    )
                if set(place.get("required", [])) != set(place.get("properties", {})):
                    raise ValueError(
                        "'required' is required to be an array including every key in properties"
                    )
        return self


class SchemaFormat(Shape):
    type: Literal["json_schema"]
    json_schema: JsonSchema


class PlainFormat(Shape):
    type: Literal["text", "json_object"]


class ChatRequest(Shape):
    model: str = Field(min_length=1)
    messages: list[Turn] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    random_seed: int | None = Field(None, ge=0)  # Mistral's word for it
    stream: bool | None = None
    tools: list[OfferedTool] | None = Field(None, min_length=1)
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: Annotated[SchemaFormat | PlainFormat, Field(discriminator="type")] | None = (
        None
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )

    @model_validator(mode="after")
    def _fits_together(self) -> ChatRequest:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("max_tokens and max_completion_tokens are both set")
        wanted: set[str] = set()
        for turn in self.messages:
            if isinstance(turn, ToolTurn):
                if turn.tool_call_id not in wanted:
                    raise ValueError(
                        "a message of role 'tool' must answer a preceding message with 'tool_calls'"
                    )
                wanted.discard(turn.tool_call_id)
            elif wanted:
                raise ValueError(f"these tool calls have no response message: {sorted(wanted)}")
            if isinstance(turn, AssistantTurn):
                wanted = {call.id for call in turn.tool_calls or ()}
        said = json.dumps([turn.model_dump() for turn in self.messages]).lower()
        if (
            self.response_format
            and self.response_format.type == "json_object"
            and "json" not in said
        ):
            raise ValueError(
                "'messages' must contain the word 'json' to use 'response_format' json_object"
            )
        return self


class CacheControl(Shape):
    type: Literal["ephemeral"]


class TextBlock(Shape):
    type: Literal["text"]
    text: str = Field(min_length=1)
    cache_control: CacheControl | None = None


class ThinkingBlock(Shape):
    type: Literal["thinking"]
    thinking: str
    signature: str


class RedactedBlock(Shape):
    type: Literal["redacted_thinking"]
    data: str


class UseBlock(Shape):
    type: Literal["tool_use"]
    id: str = Field(pattern=r"^[a-zA-Z0-9_-]+$")
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    input: dict[str, Any]
    cache_control: CacheControl | None = None


class ResultBlock(Shape):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


class UserMessage(Shape):
    role: Literal["user"]
    content: (
        Annotated[str, Field(min_length=1)]
        | Annotated[
            list[Annotated[TextBlock | ResultBlock, Field(discriminator="type")]],
            Field(min_length=1),
        ]
    )


class AssistantMessage(Shape):
    role: Literal["assistant"]
    content: (
        Annotated[str, Field(min_length=1)]
        | Annotated[
            list[
                Annotated[
                    TextBlock | ThinkingBlock | RedactedBlock | UseBlock,
                    Field(discriminator="type"),
                ]
            ],
            Field(min_length=1),
        ]
    )


class InputSchema(BaseModel):
    model_config = ConfigDict(extra="allow")
    type: Literal["object"]


class ClientTool(Shape):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    input_schema: InputSchema
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: CacheControl | None = None


class ThinkingEnabled(Shape):
    type: Literal["enabled"]
    budget_tokens: int = Field(ge=1024)


class ThinkingAdaptive(Shape):
    type: Literal["adaptive"]


class ThinkingOff(Shape):
    type: Literal[
        "disabled", "between_tools"
    ]  # the second is how newer models are told not to think first


class OutputFormat(Shape):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")

    @model_validator(mode="after")
    def _is_closed(self) -> OutputFormat:
        if any(place.get("additionalProperties") is not False for place in _objects(self.schema_)):
            raise ValueError(
                "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly set to false"
            )
        return self


class OutputConfig(Shape):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class ChosenTool(Shape):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None


class MessagesRequest(Shape):
    model: str = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    messages: list[Annotated[UserMessage | AssistantMessage, Field(discriminator="role")]] = Field(
        min_length=1
    )
    system: str | list[TextBlock] | None = None
    temperature: float | None = Field(None, ge=0, le=1)  # only models up to Claude Opus 4.6 take it
    stream: bool | None = None
    tools: list[ClientTool] | None = None
    tool_choice: ChosenTool | None = None
    thinking: (
        Annotated[ThinkingEnabled | ThinkingAdaptive | ThinkingOff, Field(discriminator="type")]
        | None
    ) = None
    output_config: OutputConfig | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> MessagesRequest:
        thinks = isinstance(self.thinking, ThinkingEnabled | ThinkingAdaptive)
        if (
            isinstance(self.thinking, ThinkingEnabled)
            and self.thinking.budget_tokens >= self.max_tokens
        ):
            raise ValueError("`max_tokens` must be greater than `thinking.budget_tokens`")
        if thinks and self.temperature not in (None, 1):
            raise ValueError("`temperature` may only be set to 1 when thinking is enabled")
        if thinks and self.tool_choice and self.tool_choice.type in ("any", "tool"):
            raise ValueError("Thinking may not be enabled when tool_choice forces tool use")
        if self.messages[0].role != "user":
            raise ValueError('messages: first message must use the "user" role')
        wanted: set[str] = set()
        for message in self.messages:
            blocks = message.content if isinstance(message.content, list) else []
            answered = {block.tool_use_id for block in blocks if isinstance(block, ResultBlock)}
            if answered != wanted:
                raise ValueError(
                    "each `tool_use` block must have a `tool_result` block in the next message, and no other"
                )
            wanted = {block.id for block in blocks if isinstance(block, UseBlock)}
        if (
            json.dumps(self.model_dump(exclude_none=True, by_alias=True)).count('"cache_control"')
            > 4
        ):
            raise ValueError("A maximum of 4 blocks with cache_control may be provided")
        return self


def _objects(schema: object) -> list[dict[str, Any]]:
    """Every object schema inside a schema."""
    if isinstance(schema, list):
        return [found for item in cast("list[object]", schema) for found in _objects(item)]
    if not isinstance(schema, dict):
        return []
    place = cast("dict[str, Any]", schema)
    mine = [place] if place.get("type") == "object" else []
    return mine + [found for value in place.values() for found in _objects(value)]


class BatchLine(Shape):
    custom_id: str = Field(min_length=1, max_length=64)
    method: Literal["POST"]
    url: Literal["/v1/chat/completions"]
    body: ChatRequest


class BatchOfFile(Shape):
    input_file_id: str
    endpoint: Literal["/v1/chat/completions"]
    completion_window: Literal["24h"]
    metadata: (
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None
    ) = Field(None, max_length=16)


class BatchedMessage(Shape):
    custom_id: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    params: MessagesRequest


class BatchOfMessages(Shape):
    requests: list[BatchedMessage] = Field(min_length=1, max_length=100_000)


SHAPES: dict[Format, TypeAdapter[Any]] = {
    "openai": TypeAdapter(ChatRequest),
    "anthropic": TypeAdapter(MessagesRequest),
}


# The server.


@dataclass(frozen=True)
class Logged:
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def is_probe(self) -> bool:
        """Whether it only looks for a cache, and belongs to no trial."""
        return PROMPT in json.dumps(self.body)


Fate = Literal["answered", "expired", "canceled", "forgotten"]
Desk = Literal["upload", "create", "poll", "results", "list"]  # where a batch API can have trouble


@dataclass
class Batch:
    """A batch as the server has it: what was asked under which custom_id, and how often anyone has looked at it."""

    id: str
    format: Format
    asked: dict[str, dict[str, Any]]
    metadata: Mapping[str, str] | None = None
    polls: int = 0
    lines: list[tuple[str, bool]] | None = (
        None  # once it has ended: the results, and whether each is an answer
    )


class Loopback:
    """`answer` is a text, or a function of the call; each of `script` is said once, first of all.

    `key` is the only API key accepted. `rejects` are request fields that the models here do not take, and that are
    refused in the provider's own words. Requests of a wrong shape are refused, and leaving the block raises. Nobody is
    answered before `together` calls are there at the same time.

    Batches are answered by the same function, and end after `batch_polls` looks at them. `fate` says what else than an
    answer may come of a request in one, `batch_fails` are the words with which OpenAI turns a whole file down, and each
    of `desk_troubles` is met once, at that part of the batch API. A connection that is cut at `create` is cut after
    the batch was taken.
    """

    def __init__(
        self,
        answer: Answer | Spoken = hashed_answer,
        *,
        script: Iterable[Spoken] = (),
        key: str = "",
        rejects: Iterable[str] = (),
        latency: float = 0.0,
        together: int = 0,
        batch_polls: int = 0,
        batch_page: int = 100,
        fate: Callable[[Call], Fate] = lambda _: "answered",
        batch_fails: str = "",
        desk_troubles: Iterable[tuple[Desk, Trouble]] = (),
    ) -> None:
        self.batch_polls = batch_polls
        self.batch_page = batch_page
        self.fate = fate
        self.batch_fails = batch_fails
        self.desk_troubles = list(desk_troubles)
        self.batches: dict[str, Batch] = {}
        self.files: dict[str, bytes] = {}
        self.desk: Counter[str] = Counter()  # calls of the batch APIs
        self.answer = answer
        self.script = deque(script)
        self.key = key
        self.rejects = frozenset(rejects)
        self.latency = latency
        self.together = together
        self._are_together = asyncio.Event()
        self.requests: deque[Logged] = deque(maxlen=10_000)
        self.calls: Counter[str] = Counter()  # by model
        self.invalid: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self._port = 0
        self._runner: web.AppRunner | None = None

    @property
    def root(self) -> str:
        """The base URL of the messages format."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The base URL of the chat completions format."""
        return f"{self.root}/v1"

    async def start(self) -> None:
        app = web.Application(client_max_size=512 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{id}/content", self._download)
        for path, create in (
            ("/v1/batches", self._create_of_file),
            ("/v1/messages/batches", self._create_of_messages),
        ):
            app.router.add_post(path, create)
            app.router.add_get(path, self._list)
            app.router.add_get(path + "/{id}", self._poll)
        app.router.add_get("/v1/messages/batches/{id}/results", self._results)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Loopback:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.stop()
        if kind is None and self.invalid:
            raise AssertionError(
                "requests that do not have the published shape:\n" + "\n".join(self.invalid)
            )

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, "openai")

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, "anthropic")

    async def _serve(self, request: web.Request, format_: Format) -> web.StreamResponse:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            data = await request.read()
            if self.most_at_once >= self.together:
                self._are_together.set()
            await self._are_together.wait()
            if self.latency:
                await asyncio.sleep(self.latency)
            body: dict[str, Any] = json.loads(data)
            self.requests.append(Logged(request.path, dict(request.headers), body))
            self.calls[str(body.get("model", ""))] += 1
            call = _call(format_, body, request.headers)
            return await self._say(self._decide(call, data, request.headers), call, request)
        finally:
            self.at_once -= 1

    async def _models(self, request: web.Request) -> web.StreamResponse:
        del request
        names = sorted(self.calls) or ["loopback"]
        return web.json_response(
            {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}
        )

    # The two batch APIs.

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        if told := await self._at_desk(request, "upload"):
            return told
        form = await request.post()
        file = form.get("file")
        if (
            not isinstance(file, web.FileField)
            or form.get("purpose") != "batch"
            or set(form) != {"file", "purpose"}
        ):
            return self._turn_down(
                request, f"a file with the purpose 'batch' is expected, not {dict(form)}"
            )
        if not file.filename.endswith(".jsonl"):
            return self._turn_down(
                request, f"{file.filename}: Invalid file format. Supported formats: ['jsonl']"
            )
        name = self._keep_file(file.file.read())
        size = len(self.files[name])
        return web.json_response(
            {
                "id": name,
                "object": "file",
                "bytes": size,
                "filename": file.filename,
                "purpose": "batch",
            }
        )

    async def _download(self, request: web.Request) -> web.StreamResponse:
        if told := await self._at_desk(request, "results"):
            return told
        file = self.files.get(request.match_info["id"])
        return self._unknown(request) if file is None else web.Response(body=file)

    async def _create_of_file(self, request: web.Request) -> web.StreamResponse:
        cut = self._cut_at("create")
        if told := await self._at_desk(request, "create"):
            return told
        try:
            wanted = BatchOfFile.model_validate_json(await request.read())
            lines = [json.loads(line) for line in self.files[wanted.input_file_id].splitlines()]
            for line in lines:
                BatchLine.model_validate(line)
            if not 0 < len(lines) <= 50_000 or len({line["body"]["model"] for line in lines}) > 1:
                raise ValueError("a file has 1 to 50,000 requests to one model")
            asked = {line["custom_id"]: line["body"] for line in lines}
            if len(asked) < len(lines):
                raise ValueError("each custom_id must be unique")
        except (ValueError, KeyError) as error:
            return self._turn_down(request, str(error))
        batch = Batch(f"batch_{len(self.batches) + 1}", "openai", asked, wanted.metadata)
        self.batches[batch.id] = batch
        return await self._cut(request) if cut else web.json_response(self._file_batch(batch))

    async def _create_of_messages(self, request: web.Request) -> web.StreamResponse:
        cut = self._cut_at("create")
        if told := await self._at_desk(request, "create"):
            return told
        try:
            data = await request.read()
            BatchOfMessages.model_validate_json(data)
            requests = json.loads(data)["requests"]
            asked = {one["custom_id"]: one["params"] for one in requests}
            if len(asked) < len(requests) or any("stream" in body for body in asked.values()):
                raise ValueError("each custom_id must be unique, and nothing can be streamed")
        except ValueError as error:
            return self._turn_down(request, str(error))
        batch = Batch(f"msgbatch_{len(self.batches) + 1}", "anthropic", asked)
        self.batches[batch.id] = batch
        return await self._cut(request) if cut else web.json_response(self._message_batch(batch))

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if told := await self._at_desk(request, "list"):
            return told
        newest = [
            batch
            for batch in reversed(self.batches.values())
            if batch.format == _desk_format(request)
        ]
        names = [batch.id for batch in newest]
        begin = names.index(request.query["after"]) + 1 if "after" in request.query else 0
        page = newest[begin : begin + min(self.batch_page, int(request.query.get("limit", "20")))]
        written = [
            self._file_batch(b) if b.format == "openai" else self._message_batch(b) for b in page
        ]
        return web.json_response(
            {"object": "list", "data": written, "has_more": begin + len(page) < len(newest)}
        )

    async def _poll(self, request: web.Request) -> web.StreamResponse:
        if told := await self._at_desk(request, "poll"):
            return told
        batch = self.batches.get(request.match_info["id"])
        if batch is None:
            return self._unknown(request)
        batch.polls += 1
        if batch.lines is None and batch.polls > self.batch_polls:
            batch.lines = [
                self._batch_line(batch, key, body, request.headers)
                for key, body in batch.asked.items()
            ]
            batch.lines.reverse()  # results come in any order
        return web.json_response(
            self._file_batch(batch) if batch.format == "openai" else self._message_batch(batch)
        )

    async def _results(self, request: web.Request) -> web.StreamResponse:
        if told := await self._at_desk(request, "results"):
            return told
        batch = self.batches.get(request.match_info["id"])
        if batch is None or batch.lines is None:
            return self._unknown(request)
        return web.Response(text="\n".join(line for line, _ in batch.lines if line))

    def _batch_line(
        self, batch: Batch, key: str, body: dict[str, Any], headers: Mapping[str, str]
    ) -> tuple[str, bool]:
        """What came of one request, as the provider writes it down, and whether that is an answer."""
        call = _call(batch.format, body, headers)
        fate = self.fate(call)
        if fate == "forgotten":
            return "", False
        spoken: Spoken | None = None
        if fate == "answered":
            spoken = next(
                (_rejection(batch.format, name) for name in self.rejects & set(body)), None
            )
            spoken = spoken or (self.answer(call) if callable(self.answer) else self.answer)
        write = _message_line if batch.format == "anthropic" else _file_line
        said = Say(spoken) if isinstance(spoken, str) else spoken
        return json.dumps(write(key, fate, said, call)), isinstance(said, Say)

    def _file_batch(self, batch: Batch) -> dict[str, Any]:
        status = "in_progress" if batch.polls else "validating"
        files: dict[str, str | None] = {"output_file_id": None, "error_file_id": None}
        if batch.lines is not None:
            status = "failed" if self.batch_fails else "completed"
            for name, answers in (("output_file_id", True), ("error_file_id", False)):
                lines = [line for line, is_answer in batch.lines if line and is_answer is answers]
                if lines and not self.batch_fails:
                    files[name] = self._keep_file("\n".join(lines).encode())
        lines = batch.lines or []
        errors = {
            "object": "list",
            "data": [{"code": "token_limit_exceeded", "message": self.batch_fails, "line": None}],
        }
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "errors": errors if status == "failed" else None,
            "input_file_id": "file-1",
            "completion_window": "24h",
            "status": status,
            **files,
            "created_at": 1_760_000_000,
            "request_counts": {
                "total": len(batch.asked),
                "completed": sum(is_answer for _, is_answer in lines),
                "failed": sum(not is_answer for _, is_answer in lines),
            },
            "metadata": batch.metadata,
        }

    def _message_batch(self, batch: Batch) -> dict[str, Any]:
        ended = batch.lines is not None
        kinds = Counter(json.loads(line)["result"]["type"] for line, _ in batch.lines or () if line)
        counts = {kind: kinds[kind] for kind in ("succeeded", "errored", "canceled", "expired")}
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": {"processing": 0 if ended else len(batch.asked), **counts},
            "created_at": "2026-01-01T00:00:00Z",
            "expires_at": "2026-01-02T00:00:00Z",
            "ended_at": "2026-01-01T00:01:00Z" if ended else None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": f"{self.root}/v1/messages/batches/{batch.id}/results" if ended else None,
        }

    def _keep_file(self, content: bytes) -> str:
        name = f"file-{hashlib.sha256(content).hexdigest()[:16]}"
        self.files[name] = content
        return name

    async def _at_desk(self, request: web.Request, desk: Desk) -> web.StreamResponse | None:
        """Count a call of the batch APIs; an answer where it has the wrong key, or trouble is due."""
        self.desk[desk] += 1
        format_ = _desk_format(request)
        given = request.headers.get("x-api-key") or request.headers.get(
            "Authorization", ""
        ).removeprefix("Bearer ")
        if self.key and given != self.key:
            told = refuse(401, "invalid x-api-key", "authentication_error")
            return web.json_response(_error_body(told, format_), status=401)
        if format_ == "anthropic" and "anthropic-version" not in request.headers:
            return self._turn_down(request, "anthropic-version: header is required")
        for number, (where, trouble) in enumerate(self.desk_troubles):
            if where == desk:
                del self.desk_troubles[number]
                return await _misbehave(
                    trouble, _call(format_, {"messages": []}, request.headers), request
                )
        return None

    def _cut_at(self, desk: Desk) -> bool:
        cut = next(
            (
                item
                for item in self.desk_troubles
                if item[0] == desk and item[1].kind == "cut connection"
            ),
            None,
        )
        if cut:
            self.desk_troubles.remove(cut)
        return cut is not None

    async def _cut(self, request: web.Request) -> web.StreamResponse:
        return await _misbehave(
            Trouble("cut connection"), _call("openai", {"messages": []}, request.headers), request
        )

    def _turn_down(self, request: web.Request, words: str) -> web.StreamResponse:
        self.invalid.append(f"{request.path}: {words}")
        told = refuse(400, words, "invalid_request_error")
        return web.json_response(_error_body(told, _desk_format(request)), status=400)

    def _unknown(self, request: web.Request) -> web.StreamResponse:
        told = refuse(404, f"No such object: {request.match_info['id']}", "not_found_error")
        return web.json_response(_error_body(told, _desk_format(request)), status=404)

    def _decide(self, call: Call, data: bytes, headers: Mapping[str, str]) -> Spoken:
        if trouble := self._wrong(call, data, headers):
            return trouble
        if self.script:
            return self.script.popleft()
        return self.answer(call) if callable(self.answer) else self.answer

    def _wrong(self, call: Call, data: bytes, headers: Mapping[str, str]) -> Trouble | None:
        """What is not right about the request itself, as the provider would say it."""
        given = headers.get("x-api-key") or headers.get("Authorization", "").removeprefix("Bearer ")
        if self.key and given != self.key:
            if call.format == "anthropic":
                return refuse(401, "invalid x-api-key", "authentication_error")
            return refuse(401, f"Incorrect API key provided: {given}.", "invalid_api_key")
        for name in self.rejects & set(call.body):
            return _rejection(call.format, name)
        try:
            if call.format == "anthropic" and "anthropic-version" not in headers:
                raise ValueError("anthropic-version: header is required")
            SHAPES[call.format].validate_json(data)
        except (ValidationError, ValueError) as error:
            self.invalid.append(f"{call.format}: {error}")
            return refuse(
                400, f"the request has not the published shape: {error}", "invalid_request_error"
            )
        return None

    async def _say(self, spoken: Spoken, call: Call, request: web.Request) -> web.StreamResponse:
        if isinstance(spoken, Trouble):
            return await _misbehave(spoken, call, request)
        said = Say(spoken) if isinstance(spoken, str) else spoken
        written = (
            _chat_answer(said, call) if call.format == "openai" else _messages_answer(said, call)
        )
        return web.json_response(written | dict(said.extra), headers=said.headers)


def _desk_format(request: web.Request) -> Format:
    return "anthropic" if request.path.startswith("/v1/messages") else "openai"


def _call(format_: Format, body: Mapping[str, Any], headers: Mapping[str, str]) -> Call:
    messages: list[dict[str, Any]] = body.get("messages", [])
    system = _plain(body.get("system", ""))
    system = "\n".join(
        [system, *(_plain(m.get("content")) for m in messages if m.get("role") == "system")]
    ).strip()
    prompt = _plain(messages[-1].get("content")) if messages else ""
    return Call(
        format_, str(body.get("model", "")), system, prompt, body.get("seed"), body, dict(headers)
    )


def _plain(content: object) -> str:
    if isinstance(content, list):
        blocks = cast("list[dict[str, Any]]", content)
        return "\n".join(str(block.get("text") or block.get("content") or "") for block in blocks)
    return content if isinstance(content, str) else ""


def _rejection(format_: Format, name: str) -> Trouble:
    if format_ == "anthropic":
        return refuse(
            400, f"{name}: Extra inputs are not permitted for this model", "invalid_request_error"
        )
    words = f"Unsupported parameter: '{name}' is not supported with this model."
    if name == "max_tokens":
        words += " Use 'max_completion_tokens' instead."
    return refuse(400, words, "unsupported_parameter", param=name)


def _tokens(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def _chat_answer(said: Say, call: Call) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": said.text or None if said.calls else said.text,
    }
    message["refusal"] = said.refusal or None
    if said.refusal:
        message["content"] = None
    if said.thoughts:
        message["reasoning_content"] = said.thoughts
    if said.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{n}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for n, (name, arguments) in enumerate(said.calls)
        ]
    taken, thought = (
        _tokens(call.system + " " + json.dumps(call.body["messages"])),
        _tokens(said.thoughts),
    )
    given = _tokens(said.text) + thought
    usage = {
        "prompt_tokens": taken,
        "completion_tokens": given,
        "total_tokens": taken + given,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
    return {
        "id": "chatcmpl-loopback",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": call.model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": said.stop or ("tool_calls" if said.calls else "stop"),
            }
        ],
        "usage": said.usage if said.usage is not None else usage,
    }


def _messages_answer(said: Say, call: Call) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if said.thoughts:
        content.append({"type": "thinking", "thinking": said.thoughts, "signature": "c2lnbmVk"})
    if said.text:
        content.append({"type": "text", "text": said.text})
    content += [
        {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": arguments}
        for n, (name, arguments) in enumerate(said.calls)
    ]
    taken, thought = (
        _tokens(call.system + " " + json.dumps(call.body["messages"])),
        _tokens(said.thoughts),
    )
    usage = {
        "input_tokens": taken,
        "output_tokens": _tokens(said.text) + thought,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    refused = (
        {"type": "refusal", "category": None, "explanation": said.refusal} if said.refusal else None
    )
    return {
        "id": "msg_loopback",
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": content,
        "stop_reason": said.stop
        or ("refusal" if said.refusal else "tool_use" if said.calls else "end_turn"),
        "stop_sequence": None,
        "stop_details": refused,
        "usage": said.usage if said.usage is not None else usage,
    }


def _file_line(key: str, fate: Fate, said: Say | Trouble | None, call: Call) -> dict[str, Any]:
    line: dict[str, Any] = {
        "id": f"batch_req_{key}",
        "custom_id": key,
        "response": None,
        "error": None,
    }
    if said is None:
        code = "batch_expired" if fate == "expired" else "batch_cancelled"
        line["error"] = {
            "code": code,
            "message": f"This request could not be executed: the batch {fate}.",
        }
    elif isinstance(said, Trouble):
        body = _error_body(said, "openai")
        line["response"] = {"status_code": said.status, "request_id": "req_loopback", "body": body}
    else:
        body = _chat_answer(said, call) | dict(said.extra)
        line["response"] = {"status_code": 200, "request_id": "req_loopback", "body": body}
    return line


def _message_line(key: str, fate: Fate, said: Say | Trouble | None, call: Call) -> dict[str, Any]:
    result: dict[str, Any] = {"type": fate}
    if isinstance(said, Trouble):
        result = {"type": "errored", "error": _error_body(said, "anthropic")}
    elif said is not None:
        result = {"type": "succeeded", "message": _messages_answer(said, call) | dict(said.extra)}
    return {"custom_id": key, "result": result}


def _error_body(trouble: Trouble, format_: Format) -> dict[str, Any]:
    if format_ == "anthropic":
        error = {"type": trouble.code or "api_error", "message": trouble.words}
        return {"type": "error", "error": error, "request_id": "req_loopback"}
    kind = "invalid_request_error" if trouble.status < 500 else "server_error"
    return {
        "error": {
            "message": trouble.words,
            "type": kind,
            "param": trouble.param,
            "code": trouble.code or None,
        }
    }


async def _misbehave(trouble: Trouble, call: Call, request: web.Request) -> web.StreamResponse:
    whole = json.dumps(_chat_answer(Say("cut off"), call)).encode()
    headers = dict(trouble.headers)
    match trouble.kind:
        case "html page":
            page = f"<!doctype html><html><head><title>{trouble.words}</title></head><body><h1>Oops</h1></body></html>"
            return web.Response(
                status=trouble.status, text=page, content_type="text/html", headers=headers
            )
        case "empty body":
            return web.Response(status=200, headers=headers)
        case "invalid json":
            return web.Response(
                status=200, text='{"choices": [{"message": ', content_type="application/json"
            )
        case "encoded":  # it says so, and is not
            return web.Response(text="{}", headers={"Content-Encoding": trouble.code})
        case "error in a 200":
            return web.json_response(_error_body(trouble, call.format))
        case "no choices":
            return web.json_response({"id": "x", "object": "chat.completion", "choices": []})
        case "overflow":
            if call.format == "anthropic":
                told = refuse(
                    400,
                    "prompt is too long: 210000 tokens > 200000 maximum",
                    "invalid_request_error",
                )
            else:
                words = "This model's maximum context length is 8192 tokens. However, your messages are longer."
                told = refuse(400, words, "context_length_exceeded", param="messages")
            return web.json_response(_error_body(told, call.format), status=400)
        case "cut connection":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        case "cut body" | "slow body":
            response = web.StreamResponse(
                headers={"Content-Type": "application/json", "Content-Length": str(len(whole))}
            )
            await response.prepare(request)
            await response.write(whole[: len(whole) // 2])
            if trouble.kind == "slow body":
                await asyncio.sleep(trouble.seconds)
            assert request.transport is not None
            request.transport.abort()
            return response
        case "silence":
            await asyncio.sleep(trouble.seconds)
            return web.Response()
        case "status":
            return web.json_response(
                _error_body(trouble, call.format), status=trouble.status, headers=headers
            )


class Gate:
    """Answers `left` more requests and lets the rest wait, so that no process ends before it can be stopped."""

    def __init__(self, answer: Answer, left: float = math.inf) -> None:
        self.answer = answer
        self.left = left

    def __call__(self, call: Call) -> Spoken:
        self.left -= 1
        return self.answer(call) if self.left >= 0 else Trouble("silence", seconds=3600)
