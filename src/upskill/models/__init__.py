"""A Model answers messages and reports what it used.

Kinds: `openai` (chat completions: OpenAI itself and every row of `endpoints`), `anthropic` (messages), `local` (the
embedded model), `command` (a subscription agent as a plain model), `bridge` (whatever pydantic-ai reaches),
`scripted` (a file of answers, for tests and demonstrations) and `handoff` (files that anyone answers).

The name that a person types becomes an `Address`, a plain value; `open_model` turns an address into a Model.

- `addresses`: names a person may type, and what stands behind them; `keys`: API keys
- `endpoints`: OpenAI-compatible servers, a row each; `servers`: which of them run on this machine
- `http`: models reached over HTTP; `embedded`: models on this machine
- `command`, `bridge`, `scripted`, `handoff`: the other kinds
- `failures`: which failures of a call may have reached the student
- `throttling`: how many calls a server takes at once, when to retry, when to give up
- `pool`: Models, those that this process has open, with a cache of replies and a ledger
- `cache`: replies that were paid for once; `cassette`: a file of them that travels
- `ledger`: what was spent, and ceilings; `prices`: what tokens cost
- `prompt`: reads prompt texts; `parsing`: reads JSON that servers send, quotes their errors
- `program`: runs an installed program, and says which version it is
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

from upskill.errors import ModelError
from upskill.models.failures import PROXY_ERRORS
from upskill.models.keys import find_keys
from upskill.registry import Registry
from upskill.settings import Settings
from upskill.traces import NO_USAGE, Usage

logging.getLogger("upskill").addHandler(logging.NullHandler())  # silent until somebody listens

PROVIDERS = Registry(
    "provider",
    "upskill.providers",
    {
        "openai": "upskill.models.http.openai:open_model",
        "anthropic": "upskill.models.http.anthropic:open_model",
        "local": "upskill.models.embedded.local:open_model",
        "command": "upskill.models.command:open_model",
        "pydantic-ai": "upskill.models.bridge:open_model",
        "scripted": "upskill.models.scripted:open_model",
        "handoff": "upskill.models.handoff:open_model",
    },
)

Speaker = Literal["system", "user", "assistant", "tool"]
Role = Literal["student", "judge", "test writer", "teacher"]
CacheMode = Literal["use", "refresh", "replay", "off"]
Stop = Literal["end", "length", "repetition", "context", "tools", "refusal", "other"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """Something the model may call; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Speaker
    text: str
    calls: tuple[ToolCall, ...] = ()  # of an assistant
    call_id: str = ""  # of the call that a tool's turn answers
    is_error: bool = False
    thinking: tuple[Mapping[str, Any], ...] = ()  # in the provider's form, to be sent back


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that decides an answer: equal requests may share a stored reply."""

    messages: tuple[Message, ...]
    max_output_tokens: int = 1024
    temperature: float | None = None
    seed: int | None = None
    schema: Mapping[str, Any] | None = None  # the answer is JSON of this schema
    tools: tuple[Tool, ...] = ()
    effort: str = ""  # how long to think, in the provider's word


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    usage: Usage = NO_USAGE
    stop: Stop = "end"
    calls: tuple[ToolCall, ...] = ()
    thinking: tuple[Mapping[str, Any], ...] = ()  # passed back in Message.thinking
    thoughts: str = ""  # the readable part of the thinking
    model: str = ""  # the name the provider answered under
    seconds: float = 0.0
    attempts: int = 1
    stop_details: str = ""  # why there is no answer, in the provider's words
    file: str = ""  # that somebody wrote the answer into
    proxy_retries: int = 0  # how often a proxy had asked before, in vain


class Unanswered(ModelError):
    """The model refused, or the prompt or the answer had no room."""

    def __init__(
        self, message: str, hint: str = "", *, stop: Stop, text: str = "", status: int | None = None
    ) -> None:
        super().__init__(message, hint, status=status)
        self.stop: Stop = stop
        self.text = text

    def as_reply(self, request: Request) -> Reply:
        # A prompt that was turned away is free, but it had tokens.
        sent = sum(len(message.text) for message in request.messages) // 4
        return Reply(
            self.text, self.usage or Usage(sent, cost_usd=0.0), self.stop, stop_details=self.message
        )


class Model(Protocol):
    """What answers. `reply` raises ModelError when there is no answer that could be judged."""

    async def reply(self, request: Request) -> Reply: ...


class OpenModel(Model, Protocol):
    """A model that holds connections or processes until it is closed."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Address:
    """Where a model is: plain text that can travel to another process."""

    name: str  # as the person typed it; what reports show
    provider: str  # a row of PROVIDERS
    model: str  # what that provider calls it
    endpoint: str = ""  # a row of ENDPOINTS, for the providers that have rows
    base_url: str = ""
    effort: str = ""


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ModelContext:
    """What models are opened with. The functions stay in this process."""

    # API keys and base URLs by variable name
    keys: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    offline: bool = False  # nothing may be downloaded
    timeout: float = 300.0  # seconds for one whole call
    connections: int = 64  # at the same time, to one endpoint
    retries: int = 4  # further tries for what can heal
    servers: int = 0  # of each embedded model; 0: one for each core
    prices: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )  # given ones
    # Permanent errors in a row that a model had elsewhere, by its name.
    failures: Mapping[str, int] = field(default_factory=dict[str, int])
    tell: Callable[[str], None] = _ignore  # a line for the person
    progress: Callable[[str, int, int], None] = _ignore  # what, bytes done, in all
    reading: Callable[[str, int, int], None] = _ignore  # model, tokens read, in all

    @classmethod
    def load(cls, settings: Settings | None = None, **changes: Any) -> ModelContext:
        settings = settings or Settings.load()
        prices = {
            name: price.model_dump(exclude_none=True) for name, price in settings.prices.items()
        }
        return replace(cls(keys=find_keys(), timeout=settings.timeout, prices=prices), **changes)

    def portable(self) -> ModelContext:
        return replace(self, tell=_ignore, progress=_ignore, reading=_ignore)


async def open_model(address: Address, context: ModelContext) -> OpenModel:
    """UsageError when a key or weights are missing."""
    opener: Callable[[Address, ModelContext], Any] = PROVIDERS.load(address.provider)
    return await opener(address, context)


class Failures(NamedTuple):
    """The permanent errors of a model since its last success."""

    in_a_row: int
    answered: bool  # it has answered at least once since it was opened


class StudentModel:
    """A model under test: a refusal, or a prompt that does not fit, is its reply, and its first answer counts."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def reply(self, request: Request) -> Reply:
        try:
            reply = await self.model.reply(request)
        except Unanswered as unanswered:
            return unanswered.as_reply(request)
        if reply.proxy_retries:
            message, hint = PROXY_ERRORS["retried by a proxy"]
            error = ModelError(message, hint, status=200, failure="retried by a proxy")
            error.usage = reply.usage
            raise error
        if reply.file and not reply.usage.cost_usd:  # paid elsewhere, if at all
            return replace(reply, usage=replace(reply.usage, cost_usd=None))
        return reply


class RequestHash(NamedTuple):
    key: str  # hash of the request and of what answers here
    request: str  # hash of the request alone, which is the same on every machine
    role: str = ""  # empty: the student


class ReplyStore(Protocol):
    """Stored replies, by the hash of their request. A store of runs is one."""

    def reply(self, key: str) -> str | None: ...

    async def add_reply(
        self,
        key: str,
        model: str,
        reply: str,
        role: str = "",
        request: str = "",
        *,
        wait: bool = True,
    ) -> None:
        """Durable when it returns; with `wait=False`, at the latest with the next thing that somebody waits for.

        The request is given for everyone but students, whose trials say what they were asked.
        """
        ...

    async def forget_reply(self, key: str) -> None: ...
