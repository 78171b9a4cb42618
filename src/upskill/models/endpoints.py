"""The table of OpenAI-compatible endpoints: one row each, and nothing else to write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that speaks chat completions."""

    name: str
    base_url: str
    key_variables: tuple[str, ...] = ()  # the first that is set is used
    url_variables: tuple[str, ...] = ()
    key_required: bool = True
    prices: str = ""  # the provider's id in the price list; "free" on this machine
    limit_field: Literal["auto", "max_tokens", "max_completion_tokens"] = "max_tokens"
    seeds: bool = True  # whether it takes a seed
    seed_field: str = "seed"
    title: str = ""  # of a server on this machine: what people call it,
    start: str = ""  # and the command that starts it


def first_set(keys: Mapping[str, str], variables: Iterable[str]) -> str:
    """The value of the first of these variables that has one."""
    return next(filter(None, (keys.get(name, "").strip() for name in variables)), "")


def _local(
    name: str, base_url: str, variables: tuple[str, str], title: str, start: str
) -> Endpoint:
    """A server on this machine, with the variables of its key (its own program's name for it) and of its URL."""
    key, url = variables
    return Endpoint(
        name, base_url, (key,), (url,), key_required=False, prices="free", title=title, start=start
    )


ENDPOINTS: dict[str, Endpoint] = {
    row.name: row
    for row in (
        Endpoint(
            "openai",
            "https://api.openai.com/v1",
            ("OPENAI_API_KEY",),
            ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
            prices="openai",
            limit_field="auto",
        ),
        Endpoint(
            "hf",
            "https://router.huggingface.co/v1",
            ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
            ("HF_BASE_URL",),
            prices="huggingface",
        ),
        Endpoint(
            "openrouter",
            "https://openrouter.ai/api/v1",
            ("OPENROUTER_API_KEY",),
            prices="openrouter",
        ),
        Endpoint("groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",), prices="groq"),
        Endpoint(
            "together", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",), prices="together"
        ),
        Endpoint(
            "fireworks",
            "https://api.fireworks.ai/inference/v1",
            ("FIREWORKS_API_KEY",),
            prices="fireworks",
        ),
        Endpoint(
            "mistral",
            "https://api.mistral.ai/v1",
            ("MISTRAL_API_KEY",),
            prices="mistral",
            seed_field="random_seed",
        ),
        Endpoint(
            "deepseek",
            "https://api.deepseek.com/v1",
            ("DEEPSEEK_API_KEY",),
            prices="deepseek",
            seeds=False,
        ),
        Endpoint(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            prices="google",
        ),
        Endpoint("generic", "", ("GENERIC_API_KEY",), ("GENERIC_BASE_URL",), key_required=False),
        Endpoint(
            "litellm",
            "http://localhost:4000/v1",
            ("LITELLM_PROXY_API_KEY",),
            ("LITELLM_PROXY_API_BASE",),
            key_required=False,
            prices="litellm",  # not in the list: the proxy says what an answer cost
            title="LiteLLM's proxy",
            start="litellm --config FILE",
        ),
        _local(
            "ollama",
            "http://localhost:11434/v1",
            ("OLLAMA_API_KEY", "OLLAMA_BASE_URL"),
            "Ollama",
            "ollama serve",
        ),
        _local(
            "lmstudio",
            "http://localhost:1234/v1",
            ("LM_API_TOKEN", "LMSTUDIO_BASE_URL"),
            "LM Studio",
            "lms server start",
        ),
        _local(
            "vllm",
            "http://localhost:8000/v1",
            ("VLLM_API_KEY", "VLLM_BASE_URL"),
            "vLLM",
            "vllm serve MODEL",
        ),
        _local(
            "llama.cpp",
            "http://localhost:8080/v1",
            ("LLAMA_API_KEY", "LLAMA_CPP_BASE_URL"),
            "llama.cpp",
            "llama-server -m MODEL.gguf",
        ),
    )
}


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
