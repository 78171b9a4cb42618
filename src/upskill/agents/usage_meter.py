"""Reads the usage and the end of a model's answer while it is forwarded to the program that asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from upskill.agents.allow_list import Wire
from upskill.models.parsing import count_or_zero, estimate_tokens
from upskill.models.prices import Price
from upskill.plain import compact, dict_or_empty, list_or_empty
from upskill.traces import Usage

TELLING = (b'"usage"', b'"error"', b'"refusal"', b'"content_filter"')  # what the events that are read contain
MAX_PLAIN_BYTES = 16 * 1024 * 1024  # of an answer that is not a stream


def error_in(data: Mapping[str, Any]) -> str:
    """The message of an error in any of the three APIs; empty if this is no error."""
    error = data.get("error") or dict_or_empty(data.get("response")).get("error")
    if isinstance(error, str):
        return error
    return str(dict_or_empty(error).get("message") or dict_or_empty(error).get("code") or "")


def _is_refusal(data: Mapping[str, Any]) -> bool:
    """Whether the model or the provider's filter ended its answer, in any of the three APIs."""
    choice = dict_or_empty(next(iter(list_or_empty(data.get("choices"))), None))
    incomplete = dict_or_empty(dict_or_empty(data.get("response") or data).get("incomplete_details"))
    ended = data.get("stop_reason") or dict_or_empty(data.get("delta")).get("stop_reason")
    reasons = (ended, choice.get("finish_reason"), incomplete.get("reason"))
    return any(reason in ("refusal", "content_filter") for reason in reasons)


class UsageMeter:
    """Reads the usage from an answer while it is forwarded, as one document or as a stream of events."""

    def __init__(self, wire: Wire, price: Price, body: Mapping[str, Any]) -> None:
        self.wire = wire
        self.price = price
        self.input_estimate = estimate_tokens(compact(body))
        self.started = False
        self.error = ""
        self.refused = False
        self._fields: dict[str, Any] = {}
        self._events = 0
        self._plain = bytearray()  # of an answer that is not a stream
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._line(line)

    def end(self) -> None:
        self._line(self._rest)
        self._rest = b""
        if self._plain:
            self._read(bytes(self._plain))

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._events += 1
            if any(word in line for word in TELLING):  # otherwise it is one token of many
                self._read(line[5:])
        elif not self._events and len(self._plain) < MAX_PLAIN_BYTES and not line.startswith((b"event:", b":", b"id:")):
            self._plain += line + b"\n"

    def _read(self, text: bytes) -> None:
        try:
            data = dict_or_empty(json.loads(text))
        except (ValueError, RecursionError):
            return
        for place in (dict_or_empty(data.get("message")), dict_or_empty(data.get("response")), data):
            # Later events count the whole answer; what they leave out stays as it was.
            self._fields |= {name: value for name, value in dict_or_empty(place.get("usage")).items() if value}
        self.error = error_in(data) or self.error
        self.refused = self.refused or _is_refusal(data)

    def usage(self) -> Usage:
        fields, wire = self._fields, self.wire
        if not fields:  # about one token in each event of a stream
            given = self._events or estimate_tokens(self._plain.decode("utf-8", "replace"))
            return Usage(self.input_estimate, given, cost_usd=self.price.cost(self.input_estimate, given))
        if wire == "messages":
            cached, written = (count_or_zero(fields.get(f"cache_{how}_input_tokens")) for how in ("read", "creation"))
            taken, given = (
                count_or_zero(fields.get("input_tokens")) + cached + written,
                count_or_zero(fields.get("output_tokens")),
            )
            return Usage(taken, given, cached, 0, self.price.cost(taken, given, cached, written))
        names = ("input", "output") if wire == "responses" else ("prompt", "completion")
        taken, given = (count_or_zero(fields.get(f"{name}_tokens")) for name in names)
        cached = count_or_zero(dict_or_empty(fields.get(f"{names[0]}_tokens_details")).get("cached_tokens"))
        reasoning = count_or_zero(dict_or_empty(fields.get(f"{names[1]}_tokens_details")).get("reasoning_tokens"))
        cost = fields.get("cost")  # some routers report it
        if not isinstance(cost, int | float):
            cost = self.price.cost(taken, given, cached)
        return Usage(taken, given, min(cached, taken), min(reasoning, given), cost)
