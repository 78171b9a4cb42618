"""Anthropic's Message Batches: submit all requests in one call, download a file of results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from upskill.errors import ModelError
from upskill.models.http.batches import Batches, BatchResult, BatchStatus
from upskill.models.http.model import encode
from upskill.models.http.transport import Response
from upskill.models.parsing import count_or_zero
from upskill.plain import dict_or_empty

UNANSWERED = {
    "canceled": "the batch was canceled before this request was answered",
    "expired": "the batch expired before this request was answered",
}
# The HTTP status of a live call with the same error.
STATUS = {
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


class AnthropicBatches(Batches):
    max_requests = 100_000
    max_bytes = 256_000_000

    def encode_request(self, key: str, body: Mapping[str, Any]) -> bytes:
        return encode({"custom_id": key, "params": body})

    async def submit(self, requests: Iterable[bytes], note: str) -> str:
        del note  # this API has no field for it
        body = b'{"requests":[' + b",".join(requests) + b"]}"
        return _status(await self.request_json(f"{self.model.url}/batches", body, once=True), self.model.url).id

    async def poll(self, batch: str) -> BatchStatus:
        return _status(await self.request_json(f"{self.model.url}/batches/{batch}"), self.model.url)

    async def cancel(self, batch: str) -> BatchStatus:
        return _status(await self.request_json(f"{self.model.url}/batches/{batch}/cancel", b""), self.model.url)

    def parse_result(self, line: Mapping[str, Any]) -> BatchResult:
        key, result = str(line.get("custom_id") or ""), dict_or_empty(line.get("result"))
        kind = str(result.get("type") or "")
        if kind == "succeeded":
            return BatchResult(key, Response(200, {}, json.dumps(result.get("message")).encode()))
        if kind == "errored":
            error = dict_or_empty(result.get("error"))
            inner = dict_or_empty(error.get("error")) or error
            return BatchResult(key, Response(STATUS.get(str(inner.get("type")), 500), {}, json.dumps(error).encode()))
        return BatchResult(key, None, UNANSWERED.get(kind, f"the result is of an unknown kind: {kind}"))


def _status(batch: Mapping[str, Any], url: str) -> BatchStatus:
    batch_id = batch.get("id")
    if not isinstance(batch_id, str) or not batch_id:
        raise ModelError("the batch API answered 200 without the id of a batch", status=200)
    counts = {name: count_or_zero(count) for name, count in dict_or_empty(batch.get("request_counts")).items()}
    ended = batch.get("processing_status") == "ended"
    answered = counts.get("succeeded", 0)
    failed = sum(counts.get(name, 0) for name in ("errored", "canceled", "expired"))
    return BatchStatus(
        batch_id,
        str(batch.get("processing_status") or "unknown"),
        ended,
        answered + failed + counts.get("processing", 0),
        answered,
        failed,
        result_urls=(_results_url(batch_id, str(batch.get("results_url") or ""), url),) if ended else (),
    )


def _results_url(batch: str, given: str, url: str) -> str:
    """The URL that the provider gives, unless it is on another server, which must not get the key."""
    ours, theirs = urlsplit(url), urlsplit(given)
    same = (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc)
    return given if same else f"{url}/batches/{batch}/results"
