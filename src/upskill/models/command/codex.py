"""Codex as a plain model: `codex exec --json`, with its tools, its features and the person's settings turned off."""

from __future__ import annotations

import json
from contextlib import suppress

from upskill.errors import ModelError
from upskill.models import Reply
from upskill.models.command import Command, CommandRequest
from upskill.models.parsing import count_or_zero
from upskill.models.program import Invocation, json_events
from upskill.plain import dict_or_empty, load_json
from upskill.traces import Usage

FEATURES_OFF = (
    *(
        "shell_tool",
        "unified_exec",
        "code_mode",
        "code_mode_host",
        "multi_agent",
        "multi_agent_v2",
        "sleep_tool",
    ),
    *("goals", "apps", "plugins", "hooks", "image_generation", "view_image"),
)
SETTINGS = (
    'web_search="disabled"',
    "project_doc_max_bytes=0",
    "skills.include_instructions=false",
    "include_environment_context=false",
    "include_permissions_instructions=false",
    "include_apps_instructions=false",
    "include_collaboration_mode_instructions=false",
    *(f"features.{feature}=false" for feature in FEATURES_OFF),
)


def invoke(request: CommandRequest) -> Invocation:
    instructions = request.folder / "instructions.md"
    instructions.write_text(request.system, encoding="utf-8")
    settings = [*SETTINGS, f"model_instructions_file={json.dumps(str(instructions))}"]
    if request.effort:
        settings.append(f"model_reasoning_effort={json.dumps(request.effort)}")
    if request.base_url:
        settings.append(f"openai_base_url={json.dumps(request.base_url)}")
    arguments = [
        *("exec", "--json", "--ephemeral", "--skip-git-repo-check", "--sandbox", "read-only"),
        *("--ignore-user-config", "--ignore-rules", "--color", "never"),
    ]
    if request.model:
        arguments += ["--model", request.model]
    if request.schema is not None:
        schema = request.folder / "schema.json"
        schema.write_text(json.dumps(request.schema), encoding="utf-8")
        arguments += ["--output-schema", str(schema)]
    for setting in settings:
        arguments += ["--config", setting]
    return Invocation((*arguments, "-"))


def read(output: str) -> Reply:
    text = failure = ""
    usage: Usage | None = None
    for event in json_events(output):
        item = dict_or_empty(event.get("item"))
        if event.get("type") == "item.completed" and item.get("type") == "agent_message":
            text = str(item.get("text") or "")
        elif event.get("type") == "turn.completed":
            usage_fields = dict_or_empty(event.get("usage"))
            usage = Usage(
                count_or_zero(usage_fields.get("input_tokens")),
                count_or_zero(usage_fields.get("output_tokens")),
                count_or_zero(usage_fields.get("cached_input_tokens")),
                count_or_zero(usage_fields.get("reasoning_output_tokens")),
            )
        elif event.get("type") == "turn.failed":
            failure = str(dict_or_empty(event.get("error")).get("message") or "the turn failed")
        elif event.get("type") == "error":
            failure = str(event.get("message") or failure)
    if usage is not None:
        return Reply(text, usage)
    with suppress(ValueError):  # the command hands a provider's error on as it came
        error = dict_or_empty(load_json(failure))
        failure = str(
            dict_or_empty(error.get("error")).get("message") or error.get("message") or failure
        )
    raise ModelError(failure)


COMMAND = Command(invoke, read)
