"""A batch API answers many requests within a day, at half the price.

The model builds requests and parses replies as for live calls; a kind only submits, polls and unwraps.
"""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any, ClassVar
from urllib.parse import urlsplit

from upskill.errors import ModelError
from upskill.models import Address
from upskill.models.http.model import HttpModel, encode
from upskill.models.http.transport import Response
from upskill.models.parsing import count_or_zero
from upskill.plain import dict_or_empty, list_or_empty, load_json
from upskill.registry import Registry

BATCHES = Registry(
    "batch API",
    "upskill.batches",
    {
        "openai": "upskill.models.http.batches:OpenAIBatches",
        "anthropic": "upskill.models.http.batches:AnthropicBatches",
    },
)
ENDED_STATUSES = frozenset(("completed", "failed", "expired", "cancelled"))
BATCH_PATH = "/v1/chat/completions"  # inside a batch, whatever the base URL
NOTE_FIELD = "upskill"  # the metadata field that a batch is found by
MAX_PAGES = 10  # of a hundred batches each, newest first
UNANSWERED = {
    "canceled": "the batch was canceled before this request was answered",
    "expired": "the batch expired before this request was answered",
}
# The HTTP status of a live call with the same error.
ERROR_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


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
    """A response as of a live call, or the error that there is none."""

    key: str
    response: Response | None
    error: str = ""


class Batches(ABC):
    """The batch API for one model. Methods raise ModelError."""

    max_requests: ClassVar[int]
    max_bytes: ClassVar[int]
    has_notes: ClassVar[bool] = False  # a batch can be found by the note it was submitted with

    def __init__(self, model: HttpModel) -> None:
        self.model = model
        self.base = model.url.removesuffix("/chat/completions")
        self.url = f"{self.base}/batches"

    @abstractmethod
    def encode_request(self, key: str, body: Mapping[str, Any]) -> bytes:
        """One request of a batch, with the key that its result will have."""

    @abstractmethod
    async def submit(self, requests: Iterable[bytes], note: str) -> str:
        """Submit encoded requests; returns the provider's id. Never retried: see `find`."""

    async def poll(self, batch: str) -> BatchStatus:
        return self._status(await self.request_json(f"{self.url}/{batch}"))

    @abstractmethod
    def _status(self, batch: Mapping[str, Any]) -> BatchStatus: ...

    @abstractmethod
    def parse_result(self, line: Mapping[str, Any]) -> BatchResult:
        """One line of the results."""

    async def find(self, note: str) -> str | None:
        """The id of the batch with this note, where the provider has notes."""
        del note
        return None

    async def results(self, progress: BatchStatus) -> AsyncGenerator[BatchResult]:
        """The result of each request, in no order. They may be very large."""
        for url in progress.result_urls:
            with TemporaryFile() as file:
                await self.model.send(url, into=file)
                for text in filter(bytes.strip, file):
                    try:
                        line = dict_or_empty(load_json(text))
                    except ValueError:
                        raise ModelError(
                            "the batch results are not JSON Lines", status=200
                        ) from None
                    yield self.parse_result(line)

    def chunks(self, requests: Iterable[tuple[str, bytes]]) -> Iterator[dict[str, bytes]]:
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
        self, url: str, body: bytes | None = None, *, once: bool = False, form: str = ""
    ) -> Any:
        """The JSON object at this URL: a GET, or a POST of this body."""
        response = await self.model.send(url, body, once=once, content_type=form)
        try:
            answer = dict_or_empty(load_json(response.body))
        except ValueError:
            answer = {}
        if not answer:
            raise ModelError(
                "the batch API returned 200 with something that is not a JSON object", status=200
            )
        return answer


class OpenAIBatches(Batches):
    max_requests = 50_000
    max_bytes = 200_000_000
    has_notes = True

    def encode_request(self, key: str, body: Mapping[str, Any]) -> bytes:
        return encode({"custom_id": key, "method": "POST", "url": BATCH_PATH, "body": body})

    async def submit(self, requests: Iterable[bytes], note: str) -> str:
        content_type, body = _encode_form(b"\n".join(requests) + b"\n")
        upload = await self.request_json(f"{self.base}/files", body, form=content_type)
        batch = {
            "input_file_id": upload.get("id"),
            "endpoint": BATCH_PATH,
            "completion_window": "24h",
            "metadata": {NOTE_FIELD: note},
        }
        return _batch_id(await self.request_json(self.url, encode(batch), once=True))

    async def find(self, note: str) -> str | None:
        after = ""
        for _ in range(MAX_PAGES):
            page = await self.request_json(f"{self.url}?limit=100{after}")
            batches = [dict_or_empty(item) for item in list_or_empty(page.get("data"))]
            for batch in batches:
                if dict_or_empty(batch.get("metadata")).get(NOTE_FIELD) == note:
                    return _batch_id(batch)
            if not batches or not page.get("has_more"):
                break
            after = f"&after={_batch_id(batches[-1])}"
        return None

    def parse_result(self, line: Mapping[str, Any]) -> BatchResult:
        key = str(line.get("custom_id") or "")
        if response := dict_or_empty(line.get("response")):
            body = json.dumps(response.get("body")).encode()
            return BatchResult(
                key, Response(count_or_zero(response.get("status_code")) or 200, {}, body)
            )
        return BatchResult(key, None, _error_message(line.get("error")) or "no details")

    def _status(self, batch: Mapping[str, Any]) -> BatchStatus:
        counts = dict_or_empty(batch.get("request_counts"))
        status = str(batch.get("status") or "unknown")
        files = [batch.get("output_file_id"), batch.get("error_file_id")]
        errors = map(_error_message, list_or_empty(dict_or_empty(batch.get("errors")).get("data")))
        return BatchStatus(
            id=_batch_id(batch),
            status=status,
            ended=status in ENDED_STATUSES,
            total=count_or_zero(counts.get("total")),
            answered=count_or_zero(counts.get("completed")),
            failed=count_or_zero(counts.get("failed")),
            error=self.model.excerpt("; ".join(dict.fromkeys(errors)))
            if status == "failed"
            else "",
            result_urls=tuple(f"{self.base}/files/{file}/content" for file in files if file),
        )


class AnthropicBatches(Batches):
    max_requests = 100_000
    max_bytes = 256_000_000

    def encode_request(self, key: str, body: Mapping[str, Any]) -> bytes:
        return encode({"custom_id": key, "params": body})

    async def submit(self, requests: Iterable[bytes], note: str) -> str:
        del note  # this API has no field for it
        body = b'{"requests":[' + b",".join(requests) + b"]}"
        return _batch_id(await self.request_json(self.url, body, once=True))

    def parse_result(self, line: Mapping[str, Any]) -> BatchResult:
        key, result = str(line.get("custom_id") or ""), dict_or_empty(line.get("result"))
        kind = str(result.get("type") or "")
        if kind == "succeeded":
            return BatchResult(key, Response(200, {}, json.dumps(result.get("message")).encode()))
        if kind == "errored":
            error = dict_or_empty(result.get("error"))
            inner = dict_or_empty(error.get("error")) or error
            status = ERROR_STATUS.get(str(inner.get("type")), 500)
            return BatchResult(key, Response(status, {}, json.dumps(error).encode()))
        return BatchResult(key, None, UNANSWERED.get(kind, f"unknown kind of result: {kind}"))

    def _status(self, batch: Mapping[str, Any]) -> BatchStatus:
        counts = {
            name: count_or_zero(count)
            for name, count in dict_or_empty(batch.get("request_counts")).items()
        }
        ended = batch.get("processing_status") == "ended"
        answered = counts.get("succeeded", 0)
        failed = sum(counts.get(name, 0) for name in ("errored", "canceled", "expired"))
        return BatchStatus(
            id=_batch_id(batch),
            status=str(batch.get("processing_status") or "unknown"),
            ended=ended,
            total=answered + failed + counts.get("processing", 0),
            answered=answered,
            failed=failed,
            result_urls=(self._results_url(batch),) if ended else (),
        )

    def _results_url(self, batch: Mapping[str, Any]) -> str:
        """The provider's URL, unless it is on another server, which must not get the key."""
        stated = str(batch.get("results_url") or "")
        same_server = urlsplit(self.url)[:2] == urlsplit(stated)[:2]
        return stated if same_server else f"{self.url}/{_batch_id(batch)}/results"


def supports_batches(address: Address) -> bool:
    if address.provider == "openai":
        return address.endpoint in ("", "openai", "generic") or bool(address.base_url)
    return address.provider in BATCHES


def _batch_id(batch: Mapping[str, Any]) -> str:
    value = batch.get("id")
    if not isinstance(value, str) or not value:
        raise ModelError("the batch API returned 200 without a batch id", status=200)
    return value


def _error_message(value: object) -> str:
    error = dict_or_empty(value)
    message, code = str(error.get("message") or ""), str(error.get("code") or "")
    return f"{message} ({code})" if message and code else message or code


def _encode_form(file: bytes) -> tuple[str, bytes]:
    boundary = secrets.token_hex(16)
    head = (
        f"--{boundary}",
        'Content-Disposition: form-data; name="purpose"',
        "",
        "batch",
        f"--{boundary}",
        'Content-Disposition: form-data; name="file"; filename="upskill.jsonl"',
        "Content-Type: application/octet-stream",
        "",
        "",
    )
    body = "\r\n".join(head).encode() + file + f"\r\n--{boundary}--\r\n".encode()
    return f"multipart/form-data; boundary={boundary}", body
