"""opencode as a plain model: `opencode run --format json`, as an agent of ours that has no tools."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from upskill.errors import ModelError
from upskill.models import Reply, Stop
from upskill.models.command import Command, CommandRequest
from upskill.models.parsing import count_or_zero
from upskill.models.program import Invocation, json_events
from upskill.plain import dict_or_empty
from upskill.traces import Usage


def invoke(request: CommandRequest) -> Invocation:
    prompt = request.system
    if request.schema is not None:
        prompt += "\n\nAnswer with JSON of this schema and nothing else: " + json.dumps(
            request.schema
        )
    agent = {
        "mode": "primary",
        "prompt": prompt,
        "tools": {"*": False},
        "permission": {"*": "deny"},
    }
    settings: dict[str, Any] = {
        "share": "disabled",
        "autoupdate": False,
        "agent": {"upskill": agent},
    }
    if request.base_url:
        provider, _, model = request.model.partition("/")
        settings["provider"] = {
            provider: {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": request.base_url},
                "models": {model: {}},
            }
        }
    # A title is given because the command would ask the model for one, in a second call.
    arguments = ["run", "--pure", "--format", "json", "--agent", "upskill", "--title", "upskill"]
    if request.model:
        arguments += ["--model", request.model]
    if request.effort:
        arguments += ["--variant", request.effort]
    own = request.folder / "opencode"
    own.mkdir()
    off = ("AUTOUPDATE", "CLAUDE_CODE", "EXTERNAL_SKILLS", "PROJECT_CONFIG", "SHARE")
    variables = {f"OPENCODE_DISABLE_{name}": "1" for name in off}
    variables |= {"OPENCODE_CONFIG_CONTENT": json.dumps(settings), "OPENCODE_CONFIG_DIR": str(own)}
    return Invocation(tuple(arguments), variables)


def read(output: str) -> Reply:
    texts: list[str] = []
    usage = Usage(cost_usd=0.0)
    stop: Stop | None = None
    for event in json_events(output):
        part = dict_or_empty(event.get("part"))
        if event.get("type") == "text":
            texts.append(str(part.get("text") or ""))
        elif event.get("type") == "step_finish":
            stop = "length" if part.get("reason") == "length" else "end"
            tokens = dict_or_empty(part.get("tokens"))
            cache = dict_or_empty(tokens.get("cache"))
            cached, thought = (
                count_or_zero(cache.get("read")),
                count_or_zero(tokens.get("reasoning")),
            )
            cost = part.get("cost")
            usage += Usage(  # the command counts cached and reasoning tokens beside the others
                count_or_zero(tokens.get("input")) + cached + count_or_zero(cache.get("write")),
                count_or_zero(tokens.get("output")) + thought,
                cached,
                thought,
                cost if isinstance(cost, int | float) else 0.0,
            )
        elif event.get("type") == "error":
            error = dict_or_empty(event.get("error"))
            raise ModelError(
                str(dict_or_empty(error.get("data")).get("message") or error.get("name") or "")
            )
    if stop is None:
        raise ModelError("")
    # It says 0 both for what is free and for what it has no price of.
    return Reply("".join(texts), replace(usage, cost_usd=usage.cost_usd or None), stop)


COMMAND = Command(invoke, read)
