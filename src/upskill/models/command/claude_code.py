"""Claude Code as a plain model: `claude --print --output-format json`, with its tools and settings turned off."""

from __future__ import annotations

import json

from upskill.errors import ModelError
from upskill.models import Reply, Unanswered
from upskill.models.command import Command, CommandRequest
from upskill.models.parsing import count_or_zero
from upskill.models.program import Invocation, json_events
from upskill.plain import dict_or_empty, list_or_empty
from upskill.traces import Usage


def invoke(request: CommandRequest) -> Invocation:
    arguments = [
        *("--print", "--output-format", "json", "--system-prompt", request.system),
        *(
            "--tools",
            "",
            "--setting-sources",
            "",
            "--strict-mcp-config",
            "--disable-slash-commands",
        ),
        "--no-session-persistence",
    ]
    if request.model:
        arguments += ["--model", request.model]
    if request.effort:
        arguments += ["--effort", request.effort]
    if request.schema is not None:
        arguments += ["--json-schema", json.dumps(request.schema)]
    variables = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    if request.base_url:
        variables["ANTHROPIC_BASE_URL"] = request.base_url
    return Invocation(tuple(arguments), variables)


def read(output: str) -> Reply:
    result = next((event for event in json_events(output) if event.get("type") == "result"), None)
    if result is None:
        raise ModelError("")
    text = str(result.get("result") or "")
    reason = str(result.get("stop_reason") or "")
    if result.get("is_error") or result.get("subtype") != "success":
        errors = ", ".join(map(str, list_or_empty(result.get("errors"))))
        raise ModelError(text or errors or str(result.get("subtype")))
    if reason == "refusal":
        raise Unanswered(f"the provider refused: {text or reason}", stop="refusal", text=text)
    if (structured := result.get("structured_output")) is not None:
        text = json.dumps(structured, ensure_ascii=False)
    usage = dict_or_empty(result.get("usage"))
    cached = count_or_zero(usage.get("cache_read_input_tokens"))
    written = count_or_zero(usage.get("cache_creation_input_tokens"))
    cost = result.get("total_cost_usd")
    return Reply(
        text,
        Usage(
            input_tokens=count_or_zero(usage.get("input_tokens")) + cached + written,
            output_tokens=count_or_zero(usage.get("output_tokens")),
            cached_tokens=cached,
            cost_usd=cost if isinstance(cost, int | float) else None,
        ),
        "length" if reason == "max_tokens" else "end",
        model=next(iter(dict_or_empty(result.get("modelUsage"))), ""),
    )


COMMAND = Command(invoke, read)
