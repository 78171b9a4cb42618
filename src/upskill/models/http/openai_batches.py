"""OpenAI's Batch API: a file of requests goes up, a batch is made of it, and files of results come down."""

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
PATH = "/v1/chat/completions"  # as it is called inside a batch, whatever the base URL
NOTE = "upskill"  # the metadata that a batch is found again by
PAGES = 10  # of a hundred batches each; what we look for is among the newest


class OpenAIBatches(Batches):
    max_requests = 50_000
    max_bytes = 200_000_000
    has_notes = True

    def __init__(self, model: HttpModel) -> None:
        super().__init__(model)
        self.base = model.url.removesuffix("/chat/completions")

    def encode_request(self, key: str, body: Mapping[str, Any]) -> bytes:
        return encode({"custom_id": key, "method": "POST", "url": PATH, "body": body})

    async def submit(self, requests: Iterable[bytes], note: str) -> str:
        content_type, body = await encode_form({"purpose": "batch"}, "upskill.jsonl", b"\n".join(requests) + b"\n")
        uploaded = parse_object((await self.model.send(f"{self.base}/files", body, content_type=content_type)).body)
        made = await self.request_json(
            f"{self.base}/batches",
            {
                "input_file_id": uploaded.get("id"),
                "endpoint": PATH,
                "completion_window": "24h",
                "metadata": {NOTE: note},
            },
            once=True,
        )
        return _id(made)

    async def poll(self, batch: str) -> BatchStatus:
        return self._progress(await self.request_json(f"{self.base}/batches/{batch}"))

    async def cancel(self, batch: str) -> BatchStatus:
        return self._progress(await self.request_json(f"{self.base}/batches/{batch}/cancel", b""))

    async def find(self, note: str) -> str | None:
        after = ""
        for _ in range(PAGES):
            page = await self.request_json(f"{self.base}/batches?limit=100{after}")
            listed = [dict_or_empty(item) for item in list_or_empty(page.get("data"))]
            for batch in listed:
                if dict_or_empty(batch.get("metadata")).get(NOTE) == note:
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
        return BatchResult(key, None, _words(error) or "no further word")

    def _progress(self, said: Mapping[str, Any]) -> BatchStatus:
        counts = dict_or_empty(said.get("request_counts"))
        word = str(said.get("status") or "unknown")
        files = [said.get("output_file_id"), said.get("error_file_id")]
        troubles = [
            _words(dict_or_empty(error)) for error in list_or_empty(dict_or_empty(said.get("errors")).get("data"))
        ]
        return BatchStatus(
            _id(said),
            word,
            word in ENDED,
            count_or_zero(counts.get("total")),
            count_or_zero(counts.get("completed")),
            count_or_zero(counts.get("failed")),
            self.model.excerpt("; ".join(dict.fromkeys(troubles))) if word == "failed" else "",
            tuple(f"{self.base}/files/{file}/content" for file in files if file),
        )


def _id(said: Mapping[str, Any]) -> str:
    found = said.get("id")
    if not isinstance(found, str) or not found:
        raise ModelError("the batch API answered 200 without the id of a batch", status=200)
    return found


def _words(error: Mapping[str, Any]) -> str:
    message, code = str(error.get("message") or ""), str(error.get("code") or "")
    return f"{message} ({code})" if message and code else message or code
