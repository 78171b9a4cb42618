"""OpenTelemetry spans of the GenAI conventions: OTLP as JSON, or a span in each object, however they are laid out.

A file with several traces means its latest; `spans.jsonl/TRACE` is one of them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upskill.plain import as_list, is_deep, list_or_empty
from upskill.traces import Status, Usage
from upskill.traces.formats import ROLES, Format, Sample, TraceBuilder, read_text
from upskill.traces.values import (
    Row,
    as_row,
    content_text,
    is_object,
    iso_time,
    parse_arguments,
    seconds_between,
)

_SPAN = re.compile(r'"span_?id"', re.I)
_GENAI = re.compile(r'"(?:gen_ai|llm|openinference)\.')
_NUMBERED = re.compile(
    r"(?:gen_ai\.(prompt|completion)|llm\.(input|output)_messages)\.(\d+)\.(?:message\.)?(role|content)"
)
MAX_BROKEN = 20  # pieces, each of which takes as long as the whole file to be found broken
COUNTS = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
)
NESTED = (
    "resourceSpans",
    "resource_spans",
    "scopeSpans",
    "scope_spans",
    "instrumentationLibrarySpans",
    "spans",
)
MODEL_CALLS = ("chat", "generate_content", "text_completion", "completion")


def detects(sample: Sample) -> bool:
    text = "" if sample.is_text else sample.text
    if '"resourceSpans"' in text or '"resource_spans"' in text:
        return True
    mentioned = _SPAN.search(text) is not None and _GENAI.search(text) is not None
    return mentioned and (sample.document is None or any(_spans_in(sample.document)))


@dataclass(frozen=True)
class _Span:
    name: str
    id: str
    trace: str
    begin: str
    end: str
    failed: bool
    attributes: Row
    events: list[tuple[str, Row]]

    @property
    def is_genai(self) -> bool:
        names = (*self.attributes, *(name for _, attributes in self.events for name in attributes))
        return bool(self.operation) or any(name.startswith(("gen_ai.", "llm.")) for name in names)

    @property
    def operation(self) -> str:
        name = self.attributes.get("gen_ai.operation.name") or self.attributes.get(
            "llm.request.type"
        )
        kind = self.attributes.get("openinference.span.kind") or self.attributes.get(
            "traceloop.span.kind"
        )
        if name:
            return str(name)
        return {"TOOL": "execute_tool", "LLM": "chat", "AGENT": "invoke_agent"}.get(
            str(kind).upper(), ""
        )

    def first(self, *names: str) -> Any:
        """The first of these attributes that is there, on the span or on one of its events."""
        places = (self.attributes, *(attributes for _, attributes in self.events))
        values = (attributes.get(name) for attributes in places for name in names)
        return next((value for value in values if value not in (None, "")), None)


def _spans_in(value: object) -> Iterator[_Span]:
    if (items := as_list(value)) is not None:
        for item in items:
            yield from _spans_in(item)
        return
    fields = as_row(value)
    for name in NESTED:
        if isinstance(fields.get(name), list):
            yield from _spans_in(fields[name])
            return
    if "attributes" in fields and ("name" in fields or "context" in fields):
        yield _span(fields)


def _span(fields: Row) -> _Span:
    context = fields.child("context")
    status = fields.get("status")
    code = as_row(status).get("code", as_row(status).get("status_code", status))
    return _Span(
        fields.text("name"),
        str(fields.get("spanId") or fields.get("span_id") or context.get("span_id") or ""),
        str(fields.get("traceId") or fields.get("trace_id") or context.get("trace_id") or ""),
        _time(fields, "startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime"),
        _time(fields, "endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime"),
        code == 2 or "ERROR" in str(code).upper(),
        _attributes(fields.get("attributes")),
        [
            (event.text("name"), _attributes(event.get("attributes")))
            for event in fields.children("events")
        ],
    )


def _time(fields: Row, *names: str) -> str:
    value: Any = next((fields[name] for name in names if fields.get(name)), "")
    if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
        return iso_time(int(value) / 1e6)  # nanoseconds
    return value if isinstance(value, str) else ""


def _attributes(value: object) -> Row:
    """Attributes as a mapping; OTLP writes a list of keys and typed values."""
    if (pairs := as_list(value)) is None:
        return as_row(value)
    return Row(
        (pair.text("key"), _typed(pair.get("value")))
        for pair in map(as_row, pairs)
        if "key" in pair
    )


def _typed(value: object) -> Any:
    fields = as_row(value)
    for name in ("stringValue", "boolValue", "doubleValue"):
        if name in fields:
            return fields[name]
    if "intValue" in fields:
        return (
            int(fields["intValue"])
            if str(fields["intValue"]).lstrip("-").isdecimal()
            else fields["intValue"]
        )
    if "arrayValue" in fields:
        return [_typed(item) for item in fields.child("arrayValue").array("values")]
    if "kvlistValue" in fields:
        return _attributes(fields.child("kvlistValue").array("values"))
    return value


def _parsed(value: object) -> object:
    """What an attribute says, where it is JSON written as text."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return value if is_deep(parsed) else parsed
    return value


class _Reader(TraceBuilder):
    instructions = ""

    def __init__(self, path: Path, agent: str) -> None:
        super().__init__(path, agent)
        self.seen = Counter[str]()  # messages so far
        self.waiting: dict[
            str, tuple[str, dict[str, Any]]
        ] = {}  # calls without a result: tool, arguments

    def fill(self) -> None:
        spans = sorted(
            (span for value in self.load() for span in _spans_in(value)),
            key=lambda span: span.begin,
        )
        traces = list(dict.fromkeys(span.trace for span in spans if span.is_genai))
        if traces:
            self.session = self.choose_session(traces, "traces", latest=True)
            spans = [span for span in spans if span.trace == self.session]
        for span in self.watch(spans, lambda span: f"span/{span.operation or span.name}"):
            self.span(span)
        if not any(step.kind == "assistant" for step in self.steps):
            for span in reversed(spans):  # only the agent as a whole was recorded
                self.messages(span, "output")

    def load(self) -> Iterator[object]:
        """The JSON values in a file, one a line or one after the other."""
        text = read_text(self.path)
        decoder, at = json.JSONDecoder(), 0
        while (begin := re.compile(r"[\[{]").search(text, at)) is not None:
            try:
                value, at = decoder.raw_decode(text, begin.start())
            except (ValueError, RecursionError):
                self.skip(
                    f"the JSON that starts on line {text.count(chr(10), 0, begin.start()) + 1} is incomplete"
                )
                at = text.find("\n", begin.start())
                if at < 0 or self.malformed == MAX_BROKEN:
                    return
                continue
            if not is_deep(value):
                yield value

    def span(self, span: _Span) -> None:
        operation, self.at = span.operation, span.begin
        if operation == "execute_tool" or (
            not operation and span.attributes.get("gen_ai.tool.name")
        ):
            self.tool(span)
            return
        if not span.is_genai:
            return
        instructions = content_text(_contents(_parsed(span.first("gen_ai.system_instructions"))))
        if instructions != self.instructions:
            self.add_text("system", instructions)
            self.instructions = instructions
        self.messages(span, "input")
        if operation in MODEL_CALLS or not operation:
            model = span.first("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
            self.model = str(model or self.model)
            self.messages(span, "output")
            reasons = as_list(span.first("gen_ai.response.finish_reasons"))
            self.stop = str(reasons[0]) if reasons else self.stop
            counts = [
                next((n for name in names if (n := span.attributes.count(name))), 0)
                for names in COUNTS
            ]
            self.usage += Usage(*counts)

    def messages(self, span: _Span, side: str) -> None:
        here = Counter[str]()
        self.at = span.begin if side == "input" else span.end
        for item in _messages(span, side):
            message = as_row(item)
            key = json.dumps(
                [message.get("role"), message.get("parts", message.get("content"))], default=str
            )
            here[key] += 1
            if side == "output" or here[key] > self.seen[key]:
                self.seen[key] += 1
                self.message(message)
            self.use()

    def message(self, message: Row) -> None:
        role = message.text("role")
        kind = ROLES.get(role, "system")
        parts = list_or_empty(message.get("parts", message.get("content")))
        if not parts:
            content = content_text(message.get("content", message.get("parts")))
            if role == "tool":
                self.result(message.text("tool_call_id", "id"), content)
            else:
                self.add_text(kind, content)
        for item in parts:
            part = as_row(item)
            name = part.text("type")
            if name in ("tool_call", "tool_use"):
                self.call(
                    part.text("id"), part.text("name"), part.get("arguments", part.get("input"))
                )
            elif name in ("tool_call_response", "tool_result"):
                output = next(
                    (part[key] for key in ("response", "result", "content") if key in part), ""
                )
                self.result(part.text("id", "tool_use_id"), content_text(output))
            else:
                part_kind = "thinking" if name in ("reasoning", "thinking") else kind
                self.add_text(part_kind, content_text(_contents([item])))
        for call in message.children("tool_calls"):
            function = call.child("function") or call
            self.call(call.text("id"), function.text("name"), function.get("arguments"))

    def call(self, call_id: str, tool: str, arguments: object) -> None:
        if not self.has_call(call_id):
            call_id = call_id or f"call {len(self.steps)}"
            self.add_call(call_id, tool, arguments)
            self.waiting[call_id] = (tool, parse_arguments(arguments))

    def result(self, call_id: str, output: str) -> None:
        call_id = call_id or next(iter(self.waiting), "")
        if call_id in self.waiting or not self.has_call(call_id):
            self.add_result(call_id, output)
            self.waiting.pop(call_id, None)

    def tool(self, span: _Span) -> None:
        """What a tool did: its own span knows more than the messages around it."""
        name = str(span.first("gen_ai.tool.name", "tool.name", "traceloop.entity.name") or "")
        call_id = str(span.first("gen_ai.tool.call.id") or "")
        arguments = span.first(
            "gen_ai.tool.call.arguments", "input.value", "traceloop.entity.input"
        )
        if not call_id:
            of_tool = [known for known, (tool, _) in self.waiting.items() if tool == name]
            same = [
                known
                for known in of_tool
                if self.waiting[known][1] == parse_arguments(_parsed(arguments))
            ]
            call_id = next(iter(same or of_tool), span.id)
        output = span.first(
            "gen_ai.tool.call.result",
            "gen_ai.tool.message",
            "output.value",
            "traceloop.entity.output",
        )
        if output is None:
            events = (
                attributes for name, attributes in span.events if name == "gen_ai.tool.message"
            )
            message = next(events, None)
            failure = span.first("exception.message") if span.failed else ""
            output = failure if message is None else message.text("content")
        if not self.has_call(call_id):
            self.add_call(call_id, name, _parsed(arguments))
        self.waiting.pop(call_id, None)
        status: Status = "error" if span.failed else "ok"
        seconds, self.at = seconds_between(span.begin, span.end), ""
        self.add_result(call_id, content_text(_parsed(output)), status, tool=name, seconds=seconds)


def _messages(span: _Span, side: str) -> list[Any]:
    """The messages that went to the model or came from it, in any of the ways in which they are told."""
    messages = _parsed(span.first(f"gen_ai.{side}.messages"))
    if (listed := as_list(messages)) is not None:
        return listed
    if isinstance(messages, str):
        return [{"role": "user" if side == "input" else "assistant", "content": messages}]
    numbered: dict[int, dict[str, Any]] = {}
    for name, value in span.attributes.items():
        match = _NUMBERED.fullmatch(name)
        if match and ((match[1] or match[2]) in ("prompt", "input")) == (side == "input"):
            field = match[4]
            numbered.setdefault(int(match[3]), {})[field] = (
                _parsed(value) if field == "content" else value
            )
    if numbered:
        default = {"role": "user" if side == "input" else "assistant"}
        return [default | numbered[number] for number in sorted(numbered)]
    return [
        {
            "role": "assistant" if name == "gen_ai.choice" else name.split(".")[1],
            **_choice(attributes),
        }
        for name, attributes in span.events
        if re.fullmatch(r"gen_ai\.(?:user|system|assistant|tool)\.message|gen_ai\.choice", name)
        and (side == "output") == (name == "gen_ai.choice")
    ]


def _choice(attributes: Row) -> dict[str, Any]:
    message = as_row(_parsed(attributes.get("message")))
    names = ("content", "tool_calls", "id")
    fields = message or {name: _parsed(attributes[name]) for name in names if name in attributes}
    return {name: value for name, value in fields.items() if name != "role"}


def _contents(value: object) -> object:
    """Parts with their text under `text`; the conventions write `content`."""
    parts = as_list(value)
    if parts is None:
        return value
    return [
        {"type": "text", "text": content_text(item["content"])}
        if is_object(item) and "content" in item
        else item
        for item in parts
    ]


FORMAT = Format(
    "otel", "OpenTelemetry GenAI spans", _Reader.fill, detects, builder=_Reader, noise=("span",)
)
