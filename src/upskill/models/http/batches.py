"""A batch API answers many requests within a day, at half the price.

Kinds, by provider: `openai` (OpenAI itself and any server with its Batch API) and `anthropic` (message batches). The
model builds the requests and parses the replies as for live calls; a kind only knows how to submit a batch, poll it
and unwrap its results.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, ClassVar

from upskill.errors import ModelError
from upskill.models import Address
from upskill.models.http.model import HttpModel, encode
from upskill.models.http.transport import Response
from upskill.plain import dict_or_empty
from upskill.registry import Registry

BATCHES = Registry(
    "batch API",
    "upskill.batches",
    {
        "openai": "upskill.models.http.openai_batches:OpenAIBatches",
        "anthropic": "upskill.models.http.anthropic_batches:AnthropicBatches",
    },
)


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """How far a batch is."""

    id: str
    status: str  # the provider's word for it
    ended: bool
    total: int
    answered: int = 0
    failed: int = 0
    error: str = ""  # why all of it failed
    result_urls: tuple[str, ...] = ()  # once it has ended


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of one request: a response as of a live call, or the error that there is none."""

    key: str
    response: Response | None
    error: str = ""


class Batches(ABC):
    """The batch API for one model. Every method raises ModelError with the provider's message."""

    max_requests: ClassVar[int]
    max_bytes: ClassVar[int]
    has_notes: ClassVar[bool] = False  # a batch can be found by the note it was submitted with

    def __init__(self, model: HttpModel) -> None:
        self.model = model

    @abstractmethod
    def encode_request(self, key: str, body: Mapping[str, Any]) -> bytes:
        """One request of a batch: the body of a live call, with the key that its result will have."""

    @abstractmethod
    async def submit(self, requests: Iterable[bytes], note: str) -> str:
        """Submit requests from `encode_request`; returns the provider's id. Never retried: see `find`."""

    @abstractmethod
    async def poll(self, batch: str) -> BatchStatus: ...

    @abstractmethod
    async def cancel(self, batch: str) -> BatchStatus: ...

    @abstractmethod
    def parse_result(self, line: Mapping[str, Any]) -> BatchResult:
        """One line of the results."""

    async def find(self, note: str) -> str | None:
        """The id of the batch that was submitted with this note, where the provider has notes."""
        del note
        return None

    async def results(self, progress: BatchStatus) -> AsyncGenerator[BatchResult]:
        """The result of each request, in no order; through a file, because it may be very large."""
        for url in progress.result_urls:
            with TemporaryFile() as file:
                await self.model.send(url, into=file)
                for text in file:
                    if text.strip():
                        yield self.parse_result(_read(text))

    def chunks(self, requests: Iterable[tuple[str, bytes]]) -> Iterator[dict[str, bytes]]:
        """The requests, split into batches that the provider accepts."""
        chunk: dict[str, bytes] = {}
        size = 0
        for key, request in requests:
            if chunk and (len(chunk) >= self.max_requests or size + len(request) > self.max_bytes):
                yield chunk
                chunk, size = {}, 0
            chunk[key] = request
            size += len(request) + 1
        if chunk:
            yield chunk

    async def request_json(
        self, url: str, content: Mapping[str, Any] | bytes | None = None, *, once: bool = False
    ) -> Any:
        """The JSON object at this URL: a GET, or a POST of this content."""
        body = content if content is None or isinstance(content, bytes) else encode(content)
        return parse_object((await self.model.send(url, body, once=once)).body)


def supports_batches(address: Address) -> bool:
    """Whether a model has a batch API: that of its provider, or maybe that of a server the user gave."""
    if address.provider == "openai":
        return address.endpoint in ("", "openai", "generic") or bool(address.base_url)
    return address.provider in BATCHES


def parse_object(body: bytes) -> dict[str, Any]:
    try:
        answer = dict_or_empty(json.loads(body))
    except ValueError:
        answer = {}
    if not answer:
        raise ModelError("the batch API answered 200 with something that is not a JSON object", status=200)
    return answer


def _read(text: bytes) -> dict[str, Any]:
    try:
        return dict_or_empty(json.loads(text))
    except ValueError:
        raise ModelError("the results of the batch are not JSON lines", status=200) from None
