"""The allow-list of what a program may send to its model: fields, tools, content, headers and betas of each API.

A program in a sandbox has no network, but its requests could ask the provider to use it: hosted tools, stored files
and prompts, another model, another server. So whatever is not listed here is dropped, and named in `dropped`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from upskill.plain import as_list, as_mapping, dict_or_empty, list_or_empty

Wire = Literal["messages", "responses", "chat", "gemini"]
MAX_DROPPED = 20  # that are named; a student may invent any number
TOOL_NAME = re.compile(
    r"[A-Za-z0-9_][\w.:/-]{0,127}"
)  # `$web_search` is one that the provider runs


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class AllowList:
    """What passes in one wire format. `tools` has the fields of each type; the first is the default."""

    fields: frozenset[str]
    tools: Mapping[str, frozenset[str]]
    content: frozenset[str]  # the types of messages, of the blocks in them, and of their sources
    content_fields: frozenset[str]
    headers: frozenset[str]
    beta_header: str = ""
    betas: frozenset[str] = frozenset()
    query: frozenset[str] = frozenset()
    fixed: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # sent whatever the program says


HEADERS = _names(
    "accept user-agent x-app x-client-request-id x-request-id x-session-id x-session-affinity "
    "x-stainless-arch x-stainless-lang x-stainless-os x-stainless-package-version x-stainless-retry-count "
    "x-stainless-runtime x-stainless-runtime-version x-stainless-timeout x-stainless-helper-method x-stainless-helper"
)
# About the program's own connection, or a credential: dropped without a word, because every client sends some.
SILENT_HEADERS = _names(
    "authorization x-api-key api-key x-goog-api-key host content-type content-length content-encoding accept-encoding "
    "connection keep-alive transfer-encoding expect accept-language sec-fetch-mode"
)
FUNCTION = _names("type name description parameters strict defer_loading")
DECLARATION = _names(
    "name description parameters parametersJsonSchema response responseJsonSchema behavior"
)
ALLOWED: Mapping[Wire, AllowList] = {
    "messages": AllowList(
        fields=_names(
            "model messages system max_tokens stream temperature top_p top_k stop_sequences tools tool_choice thinking "
            "metadata cache_control context_management output_config output_format"
        ),
        tools={
            "custom": _names(
                "type name description input_schema cache_control strict eager_input_streaming defer_loading "
                "input_examples"
            )
        },
        content=_names(
            "message text image document search_result tool_use tool_result tool_reference thinking redacted_thinking "
            "base64 content"
        ),
        content_fields=_names(
            "type role content text source cache_control id name input tool_use_id tool_name is_error thinking "
            "signature data media_type title context citations"
        ),
        headers=HEADERS
        | _names(
            "anthropic-version anthropic-dangerous-direct-browser-access x-claude-code-session-id"
        ),
        beta_header="anthropic-beta",
        betas=_names(
            "claude-code-20250219 interleaved-thinking-2025-05-14 fine-grained-tool-streaming-2025-05-14 "
            "context-management-2025-06-27 context-1m-2025-08-07 effort-2025-11-24 task-budgets-2026-03-13 "
            "structured-outputs-2025-11-13 structured-outputs-2025-12-15 redact-thinking-2026-02-12 "
            "thinking-token-count-2026-05-13 prompt-caching-2024-07-31 prompt-caching-scope-2026-01-05 "
            "extended-cache-ttl-2025-04-11 token-counting-2024-11-01 token-efficient-tools-2025-02-19 "
            "token-efficient-tools-2026-03-28 advanced-tool-use-2025-11-20 tool-search-tool-2025-10-19 "
            "mid-conversation-system-2026-04-07 output-128k-2025-02-19 pdfs-2024-09-25"
        ),
        query=_names("beta"),
    ),
    "responses": AllowList(
        fields=_names(
            "model input instructions tools tool_choice parallel_tool_calls reasoning text include stream "
            "stream_options temperature top_p top_logprobs max_output_tokens prompt_cache_key truncation "
            "client_metadata"
        ),
        tools={
            "function": FUNCTION,
            "custom": _names("type name description format defer_loading"),
            "namespace": _names("type name description tools"),
            "local_shell": _names("type"),  # Codex runs it itself
        },
        content=_names(
            "message function_call function_call_output custom_tool_call custom_tool_call_output local_shell_call "
            "local_shell_call_output reasoning input_text output_text input_image input_file refusal summary_text "
            "reasoning_text"
        ),
        content_fields=_names(
            "type id role content status phase call_id name namespace arguments input output action summary "
            "encrypted_content text annotations logprobs refusal image_url detail file_data filename"
        ),
        headers=HEADERS
        | _names(
            "originator version session-id session_id thread-id conversation_id x-codex-turn-metadata "
            "x-codex-turn-state x-codex-window-id x-codex-installation-id x-codex-parent-thread-id x-openai-subagent"
        ),
        beta_header="x-codex-beta-features",
        betas=_names("remote_compaction_v2"),
        query=_names("client_version"),
        fixed={"store": False},  # where it is left out, the provider keeps every answer
    ),
    "chat": AllowList(
        fields=_names(
            "model messages tools tool_choice parallel_tool_calls max_tokens max_completion_tokens stream "
            "stream_options temperature top_p top_k min_p frequency_penalty presence_penalty repetition_penalty "
            "seed stop logprobs top_logprobs logit_bias response_format reasoning reasoning_effort include_reasoning "
            "thinking thinking_budget enable_thinking chat_template_kwargs chat_template_args verbosity "
            "prompt_cache_key usage"
        ),
        tools={"function": _names("type function cache_control")},
        content=_names("message text image_url input_audio file refusal thinking reasoning"),
        content_fields=_names(
            "type role content name tool_calls tool_call_id refusal reasoning reasoning_content reasoning_text "
            "reasoning_details thinking text cache_control image_url url detail input_audio data format file file_data "
            "filename"
        ),
        headers=HEADERS | _names("x-initiator x-interaction-type"),  # of Copilot
    ),
    "gemini": AllowList(
        fields=_names(
            "contents tools toolConfig systemInstruction generationConfig safetySettings"
        ),
        tools={"function": _names("functionDeclarations")},
        content=_names("message"),  # its parts have no type: their fields say what they are
        content_fields=_names(
            "role parts text thought thoughtSignature inlineData mimeType data displayName functionCall "
            "functionResponse id name response"
        ),
        headers=HEADERS | _names("x-goog-api-client"),
        query=_names("alt key"),  # the proxy reads them, and writes its own
    ),
}
# Fields of content that hold more content.
CONTENT_FIELDS = ("messages", "input", "system", "contents", "systemInstruction")
NESTED = (
    *("content", "output", "summary", "source", "file", "image_url", "input_audio"),
    *("parts", "inlineData", "functionResponse"),
)
CHOICES = _names("auto none any required tool function custom")
INCLUDES = _names("reasoning.encrypted_content message.output_text.logprobs")


class RequestFilter:
    """Applies the allow-list of one API, and remembers by name what it dropped."""

    def __init__(self, wire: Wire) -> None:
        self.allowed = ALLOWED[wire]
        self.dropped: dict[str, None] = {}  # in the order of the first time

    def drop(self, what: str, name: object) -> None:
        if len(self.dropped) < MAX_DROPPED:
            self.dropped.setdefault(f"{what} {str(name)[:60]!r}")

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        request = self._known(body, {*self.allowed.fields, *self.allowed.fixed}, "field")
        for name in CONTENT_FIELDS:
            if name in request:
                request[name] = self._content(request[name])
        if "tools" in request:
            request["tools"] = self._tools(request["tools"])
        if "tool_choice" in request and not self._is_choice(
            request["tool_choice"], request.get("tools")
        ):
            self.drop("field", "tool_choice")
            del request["tool_choice"]
        if not request.get("tools", True):
            del request["tools"]
        if "include" in request:
            request["include"] = self._listed(
                list_or_empty(request["include"]), INCLUDES, "include"
            )
        if "stream_options" in request:
            request["stream_options"] = self._known(
                dict_or_empty(request["stream_options"]), {"include_usage"}, "stream option"
            )
        return request | dict(self.allowed.fixed)

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        passed: dict[str, str] = {}
        for name, value in ((name.lower(), value) for name, value in headers.items()):
            if name == self.allowed.beta_header:
                if betas := self._listed(
                    [beta.strip() for beta in value.split(",")], self.allowed.betas, "beta"
                ):
                    passed[name] = ",".join(betas)
            elif name in self.allowed.headers:
                passed[name] = value
            elif name not in SILENT_HEADERS:
                self.drop("header", name)
        return passed

    def query(self, query: Mapping[str, str]) -> dict[str, str]:
        return self._known(query, self.allowed.query, "query parameter")

    def _known(
        self, fields: Mapping[str, Any], known: Collection[str], what: str
    ) -> dict[str, Any]:
        for name in fields:
            if name not in known:
                self.drop(what, name)
        return {name: value for name, value in fields.items() if name in known}

    def _listed(self, values: list[Any], known: Collection[str], what: str) -> list[str]:
        for value in values:
            if not isinstance(value, str) or value not in known:
                self.drop(what, value)
        return [value for value in values if isinstance(value, str) and value in known]

    def _content(self, value: Any) -> Any:
        """Messages and the blocks in them, but not the arguments of tools."""
        if (items := as_list(value)) is not None:
            return [self._content(item) for item in items if self._is_content(item)]
        if (block := as_mapping(value)) is None:
            return value
        fields = self._known(block, self.allowed.content_fields, "field of a message")
        return {
            name: self._content(inner) if name in NESTED else inner
            for name, inner in fields.items()
        }

    def _is_content(self, item: Any) -> bool:
        return bool(
            self._listed(
                [dict_or_empty(item).get("type", "message")],
                self.allowed.content,
                "content of type",
            )
        )

    def _tools(self, tools: Any) -> list[dict[str, Any]]:
        allowed: list[dict[str, Any]] = []
        for tool in map(dict_or_empty, list_or_empty(tools)):
            kind = tool.get("type") or next(iter(self.allowed.tools))
            fields = self.allowed.tools.get(kind) if isinstance(kind, str) else None
            if fields is None:
                self.drop("tool of type", kind)
                continue
            tool = self._known(tool, fields, "field of a tool")  # noqa: PLW2901
            if "function" in fields:
                tool["function"] = self._known(
                    dict_or_empty(tool.get("function")), FUNCTION, "field of a tool"
                )
            if "functionDeclarations" in fields:
                declared = list_or_empty(tool.get("functionDeclarations"))
                known = [
                    self._known(dict_or_empty(item), DECLARATION, "field of a tool")
                    for item in declared
                ]
                tool["functionDeclarations"] = [item for item in known if self._is_named(item)]
                allowed += [tool] if tool["functionDeclarations"] else []
                continue
            if "tools" in fields:
                tool["tools"] = self._tools(tool.get("tools"))
            if kind == "local_shell" or self._is_named(tool):
                allowed.append(tool)
        return allowed

    def _is_named(self, tool: Mapping[str, Any]) -> bool:
        name = _tool_name(tool)
        if not TOOL_NAME.fullmatch(name):
            self.drop("tool", name or "without a name")
        return bool(TOOL_NAME.fullmatch(name))

    def _is_choice(self, choice: Any, tools: Any) -> bool:
        fields = dict_or_empty(choice)
        names = {"", *(_tool_name(dict_or_empty(tool)) for tool in list_or_empty(tools))}
        kind = fields.get("type") if fields else choice
        return (
            bool(tools)
            and isinstance(kind, str)
            and kind in CHOICES
            and _tool_name(fields) in names
        )


def _tool_name(tool: Mapping[str, Any]) -> str:
    return str(tool.get("name") or dict_or_empty(tool.get("function")).get("name") or "")


def points_outside(value: object) -> bool:
    """Whether the provider would fetch a part of this content: from a URL, or a file that it keeps."""
    if (items := as_list(value)) is not None:
        return any(map(points_outside, items))
    if (block := as_mapping(value)) is None:
        return False
    if (
        "file_id" in block
        or "fileData" in block
        or dict_or_empty(block.get("source")).get("type") in ("url", "file")
    ):
        return True
    addresses = [
        address for name, address in block.items() if name == "url" or name.endswith("_url")
    ]
    if any(isinstance(address, str) and not address.startswith("data:") for address in addresses):
        return True
    return any(points_outside(block.get(name)) for name in NESTED)
