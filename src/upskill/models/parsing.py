"""Reads JSON from other programs, which may be malformed in any way, and quotes their errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from upskill.plain import is_deep, load_json

MAX_EXCERPT = 300  # characters of a provider's text in a message
INVALID_ARGUMENTS = "invalid_json"  # holds arguments that were no JSON object


CONTEXT_OVERFLOW = (
    r"(?i)context[ _](length|size|window)|maximum context|prompt is too long|too many (input )?tokens|exceed_context|"
    r"input length .*exceed|exceeds? the (model'?s )?(maximum )?(context|number of tokens)"
)
OVERLOAD = r"(?i)throttl|please wait|rate.?limit|per (minute|day)|out of memory|allocate"  # though it speaks of tokens
CONTENT_FILTER = (
    r"(?i)content[ _](filter|policy|management)|ResponsibleAIPolicy|(was|were|been) (flagged|filtered)|"
    r"(input|prompt) flagged|data_inspection_failed|inappropriate content|content exists risk|prohibited[ _]content|"
    r"safety (filter|system|polic)|guardrail"
)


def is_overflow(error: str) -> bool:
    """Whether the prompt was too long, and not the server busy or out of memory."""
    return bool(re.search(CONTEXT_OVERFLOW, error)) and not re.search(OVERLOAD, error)


def unanswered_stop(error: str, status: int | None = None) -> Literal["context", "refusal"] | None:
    """Why a prompt was turned away: too long, or refused by a filter; None for other errors."""
    if is_overflow(error) and status in (None, 200, 400, 413, 422, 500):
        return "context"
    return (
        "refusal"
        if re.search(CONTENT_FILTER, error) and status in (None, 200, 400, 403, 422, 451)
        else None
    )


# What servers say when a prompt fits and only the limit of the answer is too large beside it.
PROMPT_AND_LIMIT = (  # of vLLM and SGLang; of Anthropic; of vLLM since 0.32
    r"(?s)maximum context length (?:is|of) (?P<context>\d+)(?!.*requested 0 output).{1,120}?(?P<least>at least )?"
    r"(?P<prompt>\d+) (?:in the messages|tokens from the input|input tokens(?: \(|, for a total))"
    r"|(?:context limit: (?P<beside>\d+) \+ \d+ >|cannot be greater than max_model_len=)\s*(?P<limit>\d+)"
)


def smaller_limit(error: str, limit: int) -> int:
    """The limit of an answer to try instead; 0 for other errors."""
    if (match := re.search(PROMPT_AND_LIMIT, error)) is None:
        return 0
    room = int(match["context"] or match["limit"]) - int(match["prompt"] or match["beside"] or 0)
    smaller = limit * 3 // 4 if match["least"] else room
    return smaller if 0 < smaller < limit else 0


MAX_COUNT = 10**12


def count_or_zero(value: object) -> int:
    return int(value) if isinstance(value, int | float) and 0 < value <= MAX_COUNT else 0


def safe_excerpt(text: str, secrets: Iterable[str]) -> str:
    """Short, on one line, without secrets."""
    text = " ".join(redact(text, secrets).split())
    return text if len(text) <= MAX_EXCERPT else text[: MAX_EXCERPT - 1] + "…"


def redact(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def parse_arguments(text: object) -> Mapping[str, Any]:
    """The arguments of a tool call. What is no JSON object is kept, so that it can be told."""
    parsed: Any = text
    try:
        if not isinstance(text, dict):
            parsed = load_json(text) if isinstance(text, str) and text.strip() else {}
    except ValueError:
        parsed = None
    if isinstance(parsed, dict) and not is_deep(cast("object", parsed)):
        return cast("dict[str, Any]", parsed)
    return {INVALID_ARGUMENTS: text if isinstance(text, str) else ""}


_FENCED = r"(?is)\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*"


def parse_json_answer(text: str) -> Any:
    """The value of a JSON answer, with or without a code fence; ValueError if it is none."""
    fenced = re.fullmatch(_FENCED, text)
    return load_json(fenced[1] if fenced else text)


def estimate_tokens(text: str) -> int:
    return (len(text) + 3) // 4


def collect_secrets(key: str, keys: Mapping[str, str]) -> tuple[str, ...]:
    """What must never show up in a message, longest first."""
    others = (value for name, value in keys.items() if not name.endswith(("_URL", "_BASE")))
    return tuple(
        sorted({secret for secret in (key, *others) if len(secret) >= 6}, key=len, reverse=True)
    )
