"""OpenTelemetry spans of the GenAI conventions: OTLP as JSON, or a span in each object, however they are laid out.

Every request to a model repeats what was said before, so a message is told where it comes first. A file with several
traces means its latest; `spans.jsonl/TRACE` is one of them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from upskill.plain import as_list, as_mapping, dict_or_empty, is_deep, list_or_empty
from upskill.traces import Status, StepKind, Trace, Usage
from upskill.traces.formats import Format, Sample, read_text
from upskill.traces.trace_builder import TraceBuilder
from upskill.traces.values import (
    content_text,
    get_count,
    get_dict,
    get_list,
    get_str,
    iso_time,
    parse_arguments,
    seconds_between,
)

_SPAN = re.compile(r'"span_?id"', re.I)
_GENAI = re.compile(r'"(?:gen_ai|llm|openinference)\.')
_NUMBERED = re.compile(
    r"(?:gen_ai\.(prompt|completion)|llm\.(input|output)_messages)\.(\d+)\.(?:message\.)?(role|content)"
)
ROLES: dict[str, StepKind] = {"user": "user", "human": "user", "assistant": "assistant", "model": "assistant"}
MAX_BROKEN = 20  # pieces, each of which takes as long as the whole file to be found broken
MODEL_CALLS = ("chat", "generate_content", "text_completion", "completion")


def detects(sample: Sample) -> bool:
    text = sample.text
    if '"resourceSpans"' in text or '"resource_spans"' in text:
        return True
    return _SPAN.search(text) is not None and _GENAI.search(text) is not None


def read(path: Path) -> Trace:
    builder = TraceBuilder(path, "otel")
    spans = sorted((span for value in _load(builder) for span in _spans_in(value)), key=lambda span: span.begin)
    traces = list(dict.fromkeys(span.trace for span in spans if span.told))
    if traces:
        builder.session = builder.choose_session(traces, "traces", latest=True)
        spans = [span for span in spans if span.trace == builder.session]
    reader = _Reader(builder)
    for span in spans:
        reader.span(span)
    if not any(step.kind == "assistant" for step in builder.steps):
        for span in reversed(spans):  # only the agent as a whole was recorded
            reader.messages(span, "output")
    return builder.build()


def _load(builder: TraceBuilder) -> Iterator[object]:
    """The JSON values in a file, one a line or one after the other."""
    text = read_text(builder.path)
    decoder, at = json.JSONDecoder(), 0
    while (begin := re.compile(r"[\[{]").search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            builder.skip(f"what begins in line {text.count(chr(10), 0, begin.start()) + 1} is not whole JSON")
            at = text.find("\n", begin.start())
            if at < 0 or builder.malformed == MAX_BROKEN:
                return
            continue
        if not is_deep(value):
            yield value


@dataclass(frozen=True)
class _Span:
    id: str
    trace: str
    begin: str
    end: str
    failed: bool
    attributes: Mapping[str, Any]
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list[tuple[str, Mapping[str, Any]]])

    @property
    def told(self) -> bool:
        """Whether it tells of a model or a tool."""
        names = (*self.attributes, *(name for _, attributes in self.events for name in attributes))
        return bool(self.operation) or any(name.startswith(("gen_ai.", "llm.")) for name in names)

    @property
    def operation(self) -> str:
        told = self.attributes.get("gen_ai.operation.name") or self.attributes.get("llm.request.type")
        kind = self.attributes.get("openinference.span.kind") or self.attributes.get("traceloop.span.kind")
        if told:
            return str(told)
        return {"TOOL": "execute_tool", "LLM": "chat", "AGENT": "invoke_agent"}.get(str(kind).upper(), "")

    def first(self, *names: str) -> Any:
        """The first of these attributes that is there, on the span or on one of its events."""
        for told in (self.attributes, *(attributes for _, attributes in self.events)):
            for name in names:
                if told.get(name) not in (None, ""):
                    return told[name]
        return None


def _spans_in(value: object) -> Iterator[_Span]:
    if (items := as_list(value)) is not None:
        for item in items:
            yield from _spans_in(item)
        return
    fields = dict_or_empty(value)
    for name in (
        "resourceSpans",
        "resource_spans",
        "scopeSpans",
        "scope_spans",
        "instrumentationLibrarySpans",
        "spans",
    ):
        if isinstance(fields.get(name), list):
            yield from _spans_in(fields[name])
            return
    if "attributes" in fields and ("name" in fields or "context" in fields):
        yield _span(fields)


def _span(fields: dict[str, Any]) -> _Span:
    context = get_dict(fields, "context")
    status = fields.get("status")
    code = dict_or_empty(status).get("code", dict_or_empty(status).get("status_code", status))
    events = [dict_or_empty(event) for event in get_list(fields, "events")]
    return _Span(
        str(fields.get("spanId") or fields.get("span_id") or context.get("span_id") or ""),
        str(fields.get("traceId") or fields.get("trace_id") or context.get("trace_id") or ""),
        _time(fields, "startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime"),
        _time(fields, "endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime"),
        code == 2 or "ERROR" in str(code).upper(),
        _attributes(fields.get("attributes")),
        [(get_str(event, "name"), _attributes(event.get("attributes"))) for event in events],
    )


def _time(fields: dict[str, Any], *names: str) -> str:
    value: Any = next((fields[name] for name in names if fields.get(name)), "")
    if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
        return iso_time(int(value) / 1e6)  # nanoseconds
    return value if isinstance(value, str) else ""


def _attributes(value: object) -> dict[str, Any]:
    """Attributes as a mapping; OTLP writes a list of keys and typed values."""
    if (pairs := as_list(value)) is None:
        return dict_or_empty(value)
    found = [dict_or_empty(pair) for pair in pairs]
    return {get_str(pair, "key"): _typed(pair.get("value")) for pair in found if "key" in pair}


def _typed(value: object) -> Any:
    fields = as_mapping(value)
    if fields is None:
        return value
    for name in ("stringValue", "boolValue", "doubleValue"):
        if name in fields:
            return fields[name]
    if "intValue" in fields:
        return int(fields["intValue"]) if str(fields["intValue"]).lstrip("-").isdecimal() else fields["intValue"]
    if "arrayValue" in fields:
        return [_typed(item) for item in get_list(get_dict(fields, "arrayValue"), "values")]
    if "kvlistValue" in fields:
        return _attributes(get_list(get_dict(fields, "kvlistValue"), "values"))
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


class _Reader:
    def __init__(self, builder: TraceBuilder) -> None:
        self.builder = builder
        self.told = Counter[str]()  # messages so far
        self.waiting: dict[str, tuple[str, dict[str, Any]]] = {}  # calls without a result: tool, arguments
        self.instructions = ""

    def span(self, span: _Span) -> None:
        builder, operation = self.builder, span.operation
        if operation == "execute_tool" or (not operation and span.attributes.get("gen_ai.tool.name")):
            self.tool(span)
            return
        if not span.told:
            return
        instructions = content_text(_contents(_parsed(span.first("gen_ai.system_instructions"))))
        if instructions != self.instructions:
            builder.add_text("system", instructions, at=span.begin)
            self.instructions = instructions
        self.messages(span, "input")
        if operation in MODEL_CALLS or not operation:
            builder.model = str(
                span.first("gen_ai.response.model", "gen_ai.request.model", "llm.model_name") or builder.model
            )
            self.messages(span, "output")
            reasons = as_list(span.first("gen_ai.response.finish_reasons"))
            builder.stop = str(reasons[0]) if reasons else builder.stop
            self.count(span.attributes)

    def count(self, told: Mapping[str, Any]) -> None:
        numbers = [
            next((count for name in names if (count := get_count(told, name))), 0)
            for names in (
                ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
                ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
                ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
            )
        ]
        self.builder.usage = self.builder.usage + Usage(*numbers)

    def messages(self, span: _Span, side: str) -> None:
        here = Counter[str]()
        for item in _messages(span, side):
            message = dict_or_empty(item)
            key = json.dumps([message.get("role"), message.get("parts", message.get("content"))], default=str)
            here[key] += 1
            if side == "output" or here[key] > self.told[key]:
                self.told[key] += 1
                self.message(message, span.begin if side == "input" else span.end)

    def message(self, message: dict[str, Any], at: str) -> None:
        role = get_str(message, "role")
        kind = ROLES.get(role, "system")
        parts = list_or_empty(message.get("parts", message.get("content")))
        if not parts:
            content = content_text(message.get("content", message.get("parts")))
            if role == "tool":
                self.result(get_str(message, "tool_call_id") or get_str(message, "id"), content, at)
            else:
                self.builder.add_text(kind, content, at=at)
        for item in parts:
            part = dict_or_empty(item)
            name = get_str(part, "type")
            if name in ("tool_call", "tool_use"):
                self.call(get_str(part, "id"), get_str(part, "name"), part.get("arguments", part.get("input")), at)
            elif name in ("tool_call_response", "tool_result"):
                output = next((part[key] for key in ("response", "result", "content") if key in part), "")
                self.result(get_str(part, "id") or get_str(part, "tool_use_id"), content_text(output), at)
            else:
                shown = "thinking" if name in ("reasoning", "thinking") else kind
                self.builder.add_text(shown, content_text(_contents([item])), at=at)
        for item in get_list(message, "tool_calls"):
            call = dict_or_empty(item)
            function = get_dict(call, "function") or call
            self.call(get_str(call, "id"), get_str(function, "name"), function.get("arguments"), at)

    def call(self, call_id: str, tool: str, arguments: object, at: str) -> None:
        if not self.builder.has_call(call_id):
            call_id = call_id or f"call {len(self.builder.steps)}"
            self.builder.add_call(call_id, tool, arguments, at=at)
            self.waiting[call_id] = (tool, parse_arguments(arguments))

    def result(self, call_id: str, output: str, at: str) -> None:
        call_id = call_id or next(iter(self.waiting), "")
        if call_id in self.waiting:
            self.builder.add_result(call_id, output, at=at)
            del self.waiting[call_id]
        elif not self.builder.has_call(call_id):
            self.builder.add_result(call_id, output, at=at)

    def tool(self, span: _Span) -> None:
        """What a tool did: its own span knows more than the messages around it."""
        name = str(span.first("gen_ai.tool.name", "tool.name", "traceloop.entity.name") or "")
        call_id = str(span.first("gen_ai.tool.call.id") or "")
        arguments = span.first("gen_ai.tool.call.arguments", "input.value", "traceloop.entity.input")
        if not call_id:
            of_tool = [known for known, (tool, _) in self.waiting.items() if tool == name]
            same = [known for known in of_tool if self.waiting[known][1] == parse_arguments(_parsed(arguments))]
            call_id = next(iter(same or of_tool), span.id)
        output = span.first("gen_ai.tool.call.result", "gen_ai.tool.message", "output.value", "traceloop.entity.output")
        if output is None:
            told = [
                get_str(attributes, "content") for event, attributes in span.events if event == "gen_ai.tool.message"
            ]
            output = told[0] if told else span.first("exception.message") if span.failed else ""
        if not self.builder.has_call(call_id):
            self.builder.add_call(call_id, name, _parsed(arguments), at=span.begin)
        self.waiting.pop(call_id, None)
        status: Status = "error" if span.failed else "ok"
        seconds = seconds_between(span.begin, span.end)
        self.builder.add_result(call_id, content_text(_parsed(output)), status, tool=name, seconds=seconds)


def _messages(span: _Span, side: str) -> list[Any]:
    """The messages that went to the model or came from it, in any of the ways in which they are told."""
    given = _parsed(span.first(f"gen_ai.{side}.messages"))
    if (listed := as_list(given)) is not None:
        return listed
    if isinstance(given, str):
        return [{"role": "user" if side == "input" else "assistant", "content": given}]
    numbered: dict[int, dict[str, Any]] = {}
    for name, value in span.attributes.items():
        if found := _NUMBERED.fullmatch(name):
            of = "input" if (found[1] or found[2]) in ("prompt", "input") else "output"
            if of == side:
                numbered.setdefault(int(found[3]), {})[found[4]] = _parsed(value) if found[4] == "content" else value
    if numbered:
        default = {"role": "user" if side == "input" else "assistant"}
        return [default | numbered[number] for number in sorted(numbered)]
    return [
        {"role": "assistant" if name == "gen_ai.choice" else name.split(".")[1], **_choice(attributes)}
        for name, attributes in span.events
        if re.fullmatch(r"gen_ai\.(?:user|system|assistant|tool)\.message|gen_ai\.choice", name)
        and (side == "output") == (name == "gen_ai.choice")
    ]


def _choice(attributes: Mapping[str, Any]) -> dict[str, Any]:
    message = dict_or_empty(_parsed(attributes.get("message")))
    told = message or {
        name: _parsed(attributes[name]) for name in ("content", "tool_calls", "id") if name in attributes
    }
    return {name: value for name, value in told.items() if name != "role"}


def _contents(value: object) -> object:
    """Parts with their text under `text`; the conventions write `content`."""
    parts = as_list(value)
    if parts is None:
        return value
    return [
        {"type": "text", "text": content_text(part["content"])}
        if (part := as_mapping(item)) and "content" in part
        else item
        for item in parts
    ]


FORMAT = Format("OpenTelemetry GenAI spans", read, detects)
