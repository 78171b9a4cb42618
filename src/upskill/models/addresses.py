"""Resolves a model's name to its Address, and says what stands behind it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from upskill.errors import UsageError, did_you_mean
from upskill.inputs import read_input
from upskill.models import PROVIDERS, Address
from upskill.models.endpoints import ENDPOINTS, first_set
from upskill.skills.agent_specs import AGENT_SPECS

ALIASES: dict[str, str] = {
    "opus": "anthropic:claude-opus-5-5",
    "sonnet": "anthropic:claude-sonnet-5-5",
    "haiku": "anthropic:claude-haiku-5-5",
    "kimi": "hf:moonshotai/Kimi-K2-Thinking",
    "gpt": "openai:gpt-6.1-sol",
    "gemini": "gemini:gemini-3.8-flash",
    "deepseek": "deepseek:deepseek-chat",
}
COMMANDS = tuple(
    spec.name for spec in AGENT_SPECS.values() if spec.model
)  # installed command-line agents
PROVIDER_PATTERNS = {  # for suggestions
    r"claude-(?!code)": "anthropic",
    r"(gpt-|chatgpt-|o\d)": "openai",
    r"gemini-": "gemini",
    r"[\w.-]+/[\w.-]+$": "hf",
}
SPELLINGS = {  # of providers by others
    "huggingface": "hf",
    "google": "gemini",
    "ollama_chat": "ollama",
    "lm_studio": "lmstudio",
    "hosted_vllm": "vllm",
    "together_ai": "together",
    "fireworks_ai": "fireworks",
    "mistralai": "mistral",
}
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def resolve(name: str, base_url: str = "", keys: Mapping[str, str] | None = None) -> Address:
    """With a base URL, `name` is the server's own. The URL is part of the address, so servers never share results."""
    name = name.strip()
    if not name:
        raise UsageError(
            "the model name is empty", "Use provider:model, or `local` for the embedded model."
        )
    if base_url:
        return Address(name, "openai", name, endpoint="generic", base_url=base_url.rstrip("/"))
    text = ALIASES.get(name, name).removeprefix("cli.")
    if text in COMMANDS or text.partition(":")[0] in COMMANDS:
        command, _, model = text.partition(":")
        return Address(name, "command", model, endpoint=command)
    if name.startswith("cli."):
        raise UsageError(f"{name!r}: no such command-line agent. There are {', '.join(COMMANDS)}.")
    if text == "local" or text.startswith("local:"):
        return Address(name, "local", text.partition(":")[2])
    provider, mark, model = _split(text)
    if not mark:
        raise UsageError(
            f"{name!r} is not a model alias and has no provider",
            _guess(text),
        )
    if not model:
        raise UsageError(f"{name!r} has a provider but no model", f"Use {provider}:MODEL.")
    effort = ""
    if mark == "." and model.rpartition(".")[2] in EFFORTS:
        model, _, effort = model.rpartition(".")
    if provider in ENDPOINTS:
        url = _base_url_in(keys, ENDPOINTS[provider].url_variables)
        return Address(name, "openai", model, endpoint=provider, base_url=url, effort=effort)
    if provider in PROVIDERS and provider != "command":
        url = _base_url_in(keys, ("ANTHROPIC_BASE_URL",)) if provider == "anthropic" else ""
        return Address(name, provider, model, base_url=url, effort=effort)
    if "/" in provider:  # ollama/llama3.2:latest
        raise UsageError(f"{name!r} has no provider", _guess(text))
    known = {*ENDPOINTS, *PROVIDERS.names(), *COMMANDS} - {"command"}
    raise UsageError(f"{name!r}: unknown provider {provider!r}", did_you_mean(provider, known))


def _base_url_in(keys: Mapping[str, str] | None, variables: tuple[str, ...]) -> str:
    return first_set(keys or {}, variables).rstrip("/")


def _guess(text: str) -> str:
    """A hint: who most likely serves a name without a provider, or the nearest alias."""
    provider, _, model = text.partition("/")
    provider = SPELLINGS.get(provider, provider)
    if (
        model
        and (provider in ENDPOINTS or provider == "anthropic")
        and not model.startswith("gpt-oss")
    ):
        return f"Did you mean {provider}:{model}?"
    for pattern, provider in PROVIDER_PATTERNS.items():
        if re.match(pattern, text):
            return f"Did you mean {provider}:{text}?"
    return did_you_mean(
        text,
        [*ALIASES, *COMMANDS, "local"],
        otherwise="Use provider:model, for example anthropic:claude-haiku-5-5, or `local` for the embedded model.",
    )


def _split(text: str) -> tuple[str, str, str]:
    """`provider:model`, or the dotted form after a known provider."""
    for name in ENDPOINTS:  # `llama.cpp:x` has a dot in its provider
        if text.startswith((f"{name}:", f"{name}.")):
            return name, text[len(name)], text[len(name) + 1 :]
    head, _, model = text.partition(".")
    if head in PROVIDERS and model:
        return head, ".", model
    return text.partition(":")


def full_name(address: Address, answered_by: str = "") -> str:
    """With the model behind an alias: `local = Qwen2.5-Coder-0.5B-Instruct, Q4_K_M`."""
    if address.provider == "local":
        from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL, LOCAL_MODELS  # noqa: PLC0415

        row = LOCAL_MODELS.get(answered_by or address.model or DEFAULT_LOCAL_MODEL)
        return f"{address.name} = {row.title}" if row else address.name
    if address.name in ALIASES:
        return f"{address.name} = {address.endpoint or address.provider}:{address.model}"
    return address.name


def identity_of(address: Address) -> list[object]:
    """Hash of weights or script, or a program's version; empty where only a provider knows."""
    if address.provider == "local":
        from upskill.models.embedded.weight_files import weights_identity  # noqa: PLC0415 - not for others

        return weights_identity(address)
    if address.provider == "scripted":
        try:
            return [hashlib.sha256(read_input(address.model)).hexdigest()]
        except UsageError:  # whoever opens it says why
            return [""]
    if address.provider == "command" and (spec := AGENT_SPECS.get(address.endpoint)):
        from upskill.models.program import program_version  # noqa: PLC0415 - only for programs

        return [program_version(spec.program)]
    return []
