"""`codex`: through `codex exec --json`. It only speaks the Responses API."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import ClassVar

from upskill.agents.allow_list import Wire
from upskill.agents.mcp import McpServer, expand
from upskill.agents.program import ProgramAgent, incompatible_model
from upskill.agents.proxy import Proxy, Upstream
from upskill.errors import UsageError
from upskill.models import Address
from upskill.models.parsing import collect_secrets
from upskill.models.prices import Prices, price_for
from upskill.models.program import Invocation
from upskill.plain import dict_or_empty, read_json
from upskill.skills.agent_specs import AGENT_SPECS, AgentSpec

OPENAI, CHATGPT = "https://api.openai.com/v1", "https://chatgpt.com/backend-api/codex"
# Endpoints that only have chat completions.
CHAT_ONLY = ("together", "mistral", "deepseek", "gemini")
# Its own sandbox and skills are off, and so is everything that uses the network.
SETTINGS = """\
model_provider = "upskill"
approval_policy = "never"
sandbox_mode = "danger-full-access"
web_search = "disabled"
check_for_update_on_startup = false

[model_providers.upskill]
name = "upskill"
base_url = {url}
wire_api = "responses"
env_key = "UPSKILL_KEY"

[skills.bundled]
enabled = false

[features]
apps = false
plugins = false
remote_plugin = false
image_generation = false
enable_request_compression = false

[analytics]
enabled = false

[feedback]
enabled = false
"""


class Codex(ProgramAgent):
    spec: ClassVar[AgentSpec] = AGENT_SPECS["codex"]

    def wire_for(self, address: Address) -> Wire:
        if address.provider != "openai" or address.endpoint in CHAT_ONLY:
            raise incompatible_model(
                self.spec.name,
                address,
                "the Responses API",
                "Use -m openai:MODEL, --base-url URL for a server that has the model, or -m codex for its own login.",
            )
        return "responses"

    def login(self, address: Address, keys: Mapping[str, str], prices: Prices | None) -> Upstream:
        """With the files and headers of Codex 0.166; never tried with a real account."""
        login = read_json(self.spec.folder_in() / "auth.json")
        tokens = dict_or_empty(login.get("tokens"))
        key = os.environ.get("CODEX_API_KEY") or str(login.get("OPENAI_API_KEY") or "")
        token = str(tokens.get("access_token") or "")
        if not key and not token:
            raise UsageError(
                "no Codex login was found",
                "Run `codex login`, set CODEX_API_KEY, or use a key of your own with -m openai:MODEL.",
            )
        headers = {"Authorization": f"Bearer {key or token}"}
        if not key and (account := str(tokens.get("account_id") or "")):
            headers["chatgpt-account-id"] = account
        price = price_for(address, prices)
        secrets = collect_secrets(key or token, keys)
        return Upstream(
            "responses", OPENAI if key else CHATGPT, headers, address.model, price, secrets
        )

    def settings(self, url: str) -> dict[str, str]:
        return {".codex/config.toml": SETTINGS.format(url=json.dumps(url))}

    def with_servers(self, invocation: Invocation, servers: Mapping[str, McpServer]) -> Invocation:
        options: list[str] = []
        for name, server in servers.items():
            env = ", ".join(
                f"{key} = {json.dumps(value)}" for key, value in expand(server.env).items()
            )
            limits = f"startup_timeout_sec = {server.timeout}, tool_timeout_sec = {server.timeout}"
            command = f"command = {json.dumps(server.command[0])}, args = {json.dumps(server.command[1:])}"
            table = f"{{{command}, env = {{{env}}}, {limits}, required = true}}"  # so it waits for the server
            options += ["--config", f"mcp_servers.{name}={table}"]
        return Invocation(
            (*invocation.arguments[:-1], *options, invocation.arguments[-1]), invocation.environment
        )

    def invocation(self, address: Address, proxy: Proxy) -> Invocation:
        arguments = ["exec", "--json", "--skip-git-repo-check", "--color", "never"]
        if address.model:
            arguments += ["--model", address.model]
        if address.effort:
            arguments += ["--config", f"model_reasoning_effort={json.dumps(address.effort)}"]
        return Invocation((*arguments, "-"), {"UPSKILL_KEY": proxy.key})
