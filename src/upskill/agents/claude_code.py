"""`claude-code`: through `claude --print`. It only speaks the messages API."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import ClassVar

from upskill.agents.allow_list import Wire
from upskill.agents.mcp import McpServer, expand
from upskill.agents.program import ProgramAgent, incompatible_model
from upskill.agents.proxy import ANTHROPIC, Proxy, Upstream, messages_url
from upskill.errors import UsageError
from upskill.models import Address
from upskill.models.parsing import collect_secrets
from upskill.models.prices import Prices, price_for
from upskill.models.program import Invocation
from upskill.plain import dict_or_empty, read_json
from upskill.skills.agent_specs import AGENT_SPECS, AgentSpec

OAUTH_BETA = "oauth-2025-04-20"  # the beta that accepts the login of a subscription
# No updates, no telemetry, no skills and no memory of its own.
DISABLE_VARIABLES = (
    *("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY"),
    *("CLAUDE_CODE_DISABLE_BUNDLED_SKILLS", "CLAUDE_CODE_DISABLE_AUTO_MEMORY"),
    "CLAUDE_CODE_DISABLE_LEGACY_MODEL_REMAP",
)
# How long it waits for an MCP server: to start, before it asks the model without it (after 5 s), and for a tool.
TIMEOUT_VARIABLES = ("MCP_TIMEOUT", "MCP_CONNECT_TIMEOUT_MS", "MCP_TOOL_TIMEOUT")
NETWORK_TOOLS = ("WebSearch", "WebFetch")
# Its side requests go to the model under test, too.
SIDE_MODELS = (
    *("ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL"),
    *(f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("HAIKU", "SONNET", "OPUS")),
)


class ClaudeCode(ProgramAgent):
    spec: ClassVar[AgentSpec] = AGENT_SPECS["claude-code"]

    def wire_for(self, address: Address) -> Wire:
        if address.provider != "anthropic" and not (
            address.provider == "openai" and address.endpoint == "generic"
        ):
            raise incompatible_model(
                self.spec.name,
                address,
                "the Anthropic messages API",
                "Use -m anthropic:MODEL, --base-url URL for a server that has the model, or -m claude-code for its "
                "own login.",
            )
        return "messages"

    def login(self, address: Address, keys: Mapping[str, str], prices: Prices | None) -> Upstream:
        """In the files of Claude Code 2.1; never tried with a real account."""
        stored = read_json(self.spec.folder_in() / ".credentials.json")
        token = os.environ.get("CLAUDE_CODE_OAUTH_TOKEN") or str(
            dict_or_empty(stored.get("claudeAiOauth")).get("accessToken") or ""
        )
        key = keys.get("ANTHROPIC_API_KEY", "")
        if not token and not key:
            raise UsageError(
                "no Claude Code login was found",
                "Set CLAUDE_CODE_OAUTH_TOKEN (from `claude setup-token`), or use a key with -m anthropic:MODEL.",
            )
        return Upstream(
            "messages",
            messages_url(keys.get("ANTHROPIC_BASE_URL", "") or ANTHROPIC),
            {"Authorization": f"Bearer {token}"} if token else {"x-api-key": key},
            address.model,
            price_for(address, prices),
            collect_secrets(token or key, keys),
            OAUTH_BETA if token else "",
        )

    def settings(self, url: str) -> dict[str, str]:
        return {".claude.json": json.dumps({"hasCompletedOnboarding": True})}

    def with_servers(self, invocation: Invocation, servers: Mapping[str, McpServer]) -> Invocation:
        named = {
            name: {
                "command": server.command[0],
                "args": server.command[1:],
                "env": expand(server.env),
                "alwaysLoad": True,  # else it asks the model before the server has started
            }
            for name, server in servers.items()
        }
        milliseconds = str(int(1000 * max(server.timeout for server in servers.values())))
        return Invocation(
            (*invocation.arguments, "--mcp-config", json.dumps({"mcpServers": named})),
            {**invocation.environment, **dict.fromkeys(TIMEOUT_VARIABLES, milliseconds)},
        )

    def invocation(self, address: Address, proxy: Proxy) -> Invocation:
        arguments = [
            *(
                "--print",
                "--output-format",
                "stream-json",
                "--verbose",
                "--dangerously-skip-permissions",
            ),
            *("--strict-mcp-config", "--disallowedTools", ",".join(NETWORK_TOOLS)),
        ]
        environment = dict.fromkeys(DISABLE_VARIABLES, "1")
        environment |= {
            "ANTHROPIC_BASE_URL": proxy.url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": proxy.key,
        }
        if address.model:
            arguments += ["--model", address.model]
            environment |= dict.fromkeys(SIDE_MODELS, address.model)
        if address.effort:
            arguments += ["--effort", address.effort]
        return Invocation(tuple(arguments), environment)
