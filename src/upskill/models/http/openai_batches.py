"""OpenAI's Batch API: upload a file of requests, make a batch of it, download files of results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from upskill.errors import ModelError
from upskill.models.http.batches import Batches, BatchResult, BatchStatus, parse_object
from upskill.models.http.model import HttpModel, encode
from upskill.models.http.transport import Response, encode_form
from upskill.models.parsing import count_or_zero
from upskill.plain import dict_or_empty, list_or_empty

ENDED = frozenset(("completed", "failed", "expired", "cancelled"))
ENDPOINT_PATH = "/v1/chat/completions"  # inside a batch, whatever the base URL
NOTE_FIELD = "upskill"  # the metadata field that a batch is found by
MAX_PAGES = 10  # of a hundred batches each, newest first


class OpenAIBatches(Batches):
    max_requests = 50_000
    max_bytes = 200_000_000
    has_notes = True

    def __init__(self, model: HttpModel) -> None:
        super().__init__(model)
        self.base = model.url.removesuffix("/chat/completions")

    def encode_request(self, key: str, body: Mapping[str, Any]) -> bytes:
        return encode({"custom_id": key, "method": "POST", "url": ENDPOINT_PATH, "body": body})

    async def submit(self, requests: Iterable[bytes], note: str) -> str:
        content_type, body = encode_form({"purpose": "batch"}, "upskill.jsonl", b"\n".join(requests) + b"\n")
        uploaded = parse_object((await self.model.send(f"{self.base}/files", body, content_type=content_type)).body)
        made = await self.request_json(
            f"{self.base}/batches",
            {
                "input_file_id": uploaded.get("id"),
                "endpoint": ENDPOINT_PATH,
                "completion_window": "24h",
                "metadata": {NOTE_FIELD: note},
            },
            once=True,
        )
        return _id(made)

    async def poll(self, batch: str) -> BatchStatus:
        return self._status(await self.request_json(f"{self.base}/batches/{batch}"))

    async def cancel(self, batch: str) -> BatchStatus:
        return self._status(await self.request_json(f"{self.base}/batches/{batch}/cancel", b""))

    async def find(self, note: str) -> str | None:
        after = ""
        for _ in range(MAX_PAGES):
            page = await self.request_json(f"{self.base}/batches?limit=100{after}")
            listed = [dict_or_empty(item) for item in list_or_empty(page.get("data"))]
            for batch in listed:
                if dict_or_empty(batch.get("metadata")).get(NOTE_FIELD) == note:
                    return _id(batch)
            if not listed or not page.get("has_more"):
                break
            after = f"&after={_id(listed[-1])}"
        return None

    def parse_result(self, line: Mapping[str, Any]) -> BatchResult:
        key = str(line.get("custom_id") or "")
        response, error = dict_or_empty(line.get("response")), dict_or_empty(line.get("error"))
        if response:
            body = json.dumps(response.get("body")).encode()
            return BatchResult(key, Response(count_or_zero(response.get("status_code")) or 200, {}, body))
        return BatchResult(key, None, _error_message(error) or "no details")

    def _status(self, batch: Mapping[str, Any]) -> BatchStatus:
        counts = dict_or_empty(batch.get("request_counts"))
        status = str(batch.get("status") or "unknown")
        files = [batch.get("output_file_id"), batch.get("error_file_id")]
        errors = [
            _error_message(dict_or_empty(error))
            for error in list_or_empty(dict_or_empty(batch.get("errors")).get("data"))
        ]
        return BatchStatus(
            _id(batch),
            status,
            status in ENDED,
            count_or_zero(counts.get("total")),
            count_or_zero(counts.get("completed")),
            count_or_zero(counts.get("failed")),
            self.model.excerpt("; ".join(dict.fromkeys(errors))) if status == "failed" else "",
            tuple(f"{self.base}/files/{file}/content" for file in files if file),
        )


def _id(batch: Mapping[str, Any]) -> str:
    value = batch.get("id")
    if not isinstance(value, str) or not value:
        raise ModelError("the batch API answered 200 without the id of a batch", status=200)
    return value


def _error_message(error: Mapping[str, Any]) -> str:
    message, code = str(error.get("message") or ""), str(error.get("code") or "")
    return f"{message} ({code})" if message and code else message or code
