"""`opencode`: through `opencode run --format json`, with any model that has an API."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from upskill.agents.allow_list import Wire
from upskill.agents.mcp import McpServer, expand
from upskill.agents.program import ProgramAgent, incompatible_model, readonly_mount
from upskill.agents.proxy import Proxy, Upstream
from upskill.errors import UsageError
from upskill.models import Address
from upskill.models.endpoints import ENDPOINTS
from upskill.models.prices import OPENCODE_ENDPOINTS, Prices
from upskill.models.program import Invocation
from upskill.plain import dict_or_empty, read_json
from upskill.skills.agent_specs import AGENT_SPECS, AgentSpec

# The client libraries in opencode: one for each API.
CLIENTS: dict[Wire, str] = {
    "messages": "@ai-sdk/anthropic",
    "responses": "@ai-sdk/openai",
    "chat": "@ai-sdk/openai-compatible",
}
DISABLED = (
    "AUTOUPDATE",
    "MODELS_FETCH",
    "LSP_DOWNLOAD",
    "DEFAULT_PLUGINS",
    "CLAUDE_CODE",
    "SHARE",
    "TERMINAL_TITLE",
)


class OpenCode(ProgramAgent):
    spec: ClassVar[AgentSpec] = AGENT_SPECS["opencode"]

    def wire_for(self, address: Address) -> Wire:
        if address.provider == "local":
            raise incompatible_model(
                self.spec.name,
                address,
                "about 10,000 tokens for its own prompt and tools, which takes an embedded model many minutes to read",
                "Use --agent tools with it, or your own server with a longer context: -m ollama:MODEL.",
            )
        if address.provider == "anthropic":
            return "messages"
        if address.provider == "openai":
            return "responses" if address.endpoint == "openai" else "chat"
        raise incompatible_model(
            self.spec.name,
            address,
            "a model with an API",
            "Use -m anthropic:MODEL, -m openai:MODEL, another endpoint from `upskill models`, or --base-url URL.",
        )

    def login(self, address: Address, keys: Mapping[str, str], prices: Prices | None) -> Upstream:
        """The key that `opencode auth login` has stored; never tried with a real account."""
        provider, _, model = address.model.partition("/")
        if not model:
            raise UsageError(
                f"{address.name!r} does not say which model opencode should use",
                "Write opencode:PROVIDER/MODEL.",
            )
        stored = read_json(self.spec.folder_in() / "auth.json")
        key = str(dict_or_empty(stored.get(provider)).get("key") or "")
        if not key:
            known = sorted(
                name for name, login in stored.items() if dict_or_empty(login).get("key")
            )
            raise UsageError(
                f"opencode has no API key for {provider!r}",
                (f"It has keys for: {', '.join(known)}. " if known else "")
                + "Run `opencode auth login` (a key, not a subscription), or use a key of your own with -m.",
            )
        row = OPENCODE_ENDPOINTS.get(provider, provider)
        there = replace(
            address,
            model=model,
            endpoint=row,
            provider="anthropic" if row == "anthropic" else "openai",
        )
        variables: tuple[str, ...] = ("ANTHROPIC_API_KEY",)
        if row != "anthropic":
            if row not in ENDPOINTS:
                raise incompatible_model(
                    self.spec.name,
                    address,
                    "a provider from `upskill models`",
                    "Pass its URL with --base-url.",
                )
            variables = ENDPOINTS[row].key_variables
        return self.upstream(there, {**keys, **dict.fromkeys(variables, key)}, prices)

    def extra_mounts(self) -> Mapping[str, Path]:
        return readonly_mount(_ripgrep())

    def with_servers(self, invocation: Invocation, servers: Mapping[str, McpServer]) -> Invocation:
        settings = json.loads(invocation.environment["OPENCODE_CONFIG_CONTENT"])
        settings["mcp"] = {
            name: {
                "type": "local",
                "command": server.command,
                "environment": expand(server.env),
                "timeout": int(1000 * server.timeout),
            }
            for name, server in servers.items()
        }
        environment = {**invocation.environment, "OPENCODE_CONFIG_CONTENT": json.dumps(settings)}
        return Invocation(invocation.arguments, environment)

    def invocation(self, address: Address, proxy: Proxy) -> Invocation:
        model = proxy.upstream.model
        provider: dict[str, Any] = {
            "npm": CLIENTS[proxy.upstream.wire],
            "options": {"baseURL": proxy.url, "apiKey": proxy.key},
            "models": {model: {}},
        }
        settings = {
            "share": "disabled",
            "autoupdate": False,
            "permission": {"*": "allow", "webfetch": "deny", "websearch": "deny"},
            "provider": {"upskill": provider},
            "model": f"upskill/{model}",
            "small_model": f"upskill/{model}",
            "agent": {"title": {"disable": True}},  # each would be another call
        }
        # Without a title, opencode would ask the model for one in another call.
        arguments = ["run", "--pure", "--format", "json", "--title", "upskill"]
        arguments += ["--model", f"upskill/{model}"]
        if address.effort:
            arguments += ["--variant", address.effort]
        environment = {f"OPENCODE_DISABLE_{name}": "1" for name in DISABLED}
        environment |= {
            "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
            "PATH": f"{_ripgrep().parent}:/usr/local/bin:/usr/bin:/bin",
        }
        return Invocation(tuple(arguments), environment)


def _ripgrep() -> Path:
    """Needed by opencode's own tools, such as the one that opens a skill; it would download it."""
    downloaded = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opencode" / "bin" / "rg"
    )
    program = shutil.which("rg") or (str(downloaded) if downloaded.is_file() else "")
    if not program:
        raise UsageError(
            "opencode needs the `rg` command, which it would download, but a sandbox has no network",
            "Install ripgrep (`apt install ripgrep`, `brew install ripgrep`, `cargo install ripgrep`).",
        )
    return Path(program).resolve()
