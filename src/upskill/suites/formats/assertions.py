"""promptfoo's assertions as checks of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping
from upskill.suites.words import agrees, text_of, texts_of

Leave = Callable[[str, str], None]  # what is left out, and why
_PROGRAMS = {
    "javascript": "runs a program of its own; say it with `contains`, `regex` or a `python` check",
    "python": "runs a program of its own; make it a `python` check: `def check(answer, workspace, trace)`",
    "ruby": "runs a program of its own; make it a `python` or `command` check",
    "webhook": "asks a server; make it a `python` or `command` check",
}
_MEASURED = {
    "cost": "is reported for every run; `--require` can ask for it",
    "latency": "is reported for every run",
    "perplexity": "cannot be told of most models",
}
_GRADED = {"llm-rubric", "model-graded-closedqa", "g-eval", "agent-rubric", "search-rubric"}
_BESIDE = {"weight", "threshold", "metric", "provider", "transform", "rubricPrompt", "config", "contextTransform"}


def checks_of(said: object, leave_out: Leave, change: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The checks of one assertion; what has no counterpart is told."""
    assertion = as_mapping(said)
    if assertion is None:
        leave_out("assertion", f"{text_of(said)[:60]!r} is not one")
        return
    kind = text_of(assertion.get("type")).strip()
    if kind == "assert-set":
        change("assert-set: all of its assertions must hold")
        for item in asserted(assertion.get("assert"), leave_out):
            yield from checks_of(item, leave_out, change)
        return
    if more := sorted(set(assertion) - {"type", "value", "description"} - _BESIDE):
        leave_out(kind or "an assertion without a type", f"no check of ours has its field {more[0]!r}")
        return
    for key in sorted(_BESIDE & set(assertion)):
        if key != "metric" and assertion[key] not in (None, 1):
            change(f"{key} of an assertion: every check has to hold, as it is")
    yield from _check(kind, assertion.get("value"), leave_out, change)


def asserted(said: object, leave_out: Leave) -> list[Any]:
    """The assertions that stand in `assert`."""
    items = as_list(said)
    if items is None and said:
        leave_out("assert", f"reads {said}; write out what it says" if isinstance(said, str) else "is not a list")
    return items or []


def _check(kind: str, value: object, leave_out: Leave, change: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    denied = kind.startswith("not-")
    name = kind.removeprefix("not-")
    why = _PROGRAMS.get(name) or _MEASURED.get(name)
    if why is None and isinstance(value, str) and value.startswith("file://"):
        why = f"reads {value.removeprefix('file://')}; write out what it says"
    if why is None and name in _GRADED and not denied:
        change(f"{kind}: a judge finds whether it is true (--judge-model)")
        yield from ({"judge": text} for text in texts_of(value))
    elif why is None and name == "factuality" and not denied:
        change(f"{kind}: a judge finds whether the answer agrees with it (--judge-model)")
        yield {"judge": agrees(text_of(value))}
    elif why is None and (check := _search(name, value, denied=denied) or _form(name, value, denied=denied)):
        if "json_schema" in check:
            change(f"{kind}: JSON in the one fenced block of an answer will do, too")
        yield check
    else:
        leave_out(kind or "an assertion without a type", why or "no check of ours says the same")


def _search(name: str, value: object, *, denied: bool) -> dict[str, Any] | None:
    """Those that look for texts or a pattern."""
    blind = name.startswith("icontains")
    texts = texts_of(value)
    if name.endswith(("-all", "-any")) and isinstance(value, str):
        texts = [text.strip() for text in value.split(",") if text.strip()]
    words: dict[str, Any] = {"text": texts[0] if len(texts) == 1 else texts}
    words |= {} if blind else {"ignore_case": False}
    short: Any = words["text"] if blind else words
    match name.removeprefix("i") if blind else name:
        case "contains":
            return {"not_contains" if denied else "contains": short}
        case "contains-all" if not denied or len(texts) == 1:
            return {"not_contains" if denied else "contains": short}
        case "contains-any":
            return {"not_contains" if denied else "contains_any": short}
        case "regex":
            return {"not_regex" if denied else "regex": {"pattern": _as_python(text_of(value)), "multiline": False}}
        case _:
            return None


def _form(name: str, value: object, *, denied: bool) -> dict[str, Any] | None:
    """Those that look at the whole answer."""
    text = text_of(value).strip()
    match name:
        case "equals" if denied:
            return {"not_regex": {"pattern": rf"\A\s*{re.escape(text)}\s*\Z", "multiline": False}}
        case "equals" if isinstance(value, dict | list):
            return {"json_schema": {"schema": {"const": value}}}
        case "equals":
            return {"equals": {"text": text, "exact": True}}
        case "starts-with" if denied:
            return {"not_regex": {"pattern": rf"\A\s*{re.escape(text)}", "multiline": False}}
        case "starts-with":
            return {"starts_with": {"text": text, "exact": True}}
        case "is-json" | "contains-json" if not denied:
            return {"json_schema": {"schema": _schema(value)}}
        case "min-length" if text.isdecimal() and not denied:
            return {"min_length": int(text)}
        case "max-length" if text.isdecimal() and not denied:
            return {"max_length": {"characters": int(text), "brief": True}}
        case "trajectory:tool-used":
            fields = as_mapping(value) or {}
            tools = texts_of(fields.get("name") or fields.get("pattern") or value)
            return {"tool_not_called" if denied else "tool_called": tools[0] if len(tools) == 1 else tools}
        case _:
            return None


def _schema(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise UsageError(f"is-json: its schema is not JSON: {error}", "Write it as YAML.") from error
    return as_mapping(value) or {"type": ["object", "array", "string", "number", "boolean", "null"]}


# The beginning of a named group or a reference to one; what is escaped or in a class before it is passed over.
_GROUP = re.compile(r"\\k<(\w+)>|\\.|\[(?:\\.|[^\]\\])*\]|\(\?<(?![=!])", re.DOTALL)


def _as_python(pattern: str) -> str:
    """A pattern of JavaScript: `(?<name>` and `/…/i` are written differently in Python."""
    flags = ""
    if whole := re.fullmatch(r"/(.+)/([gimsuy]*)", pattern, re.DOTALL):
        pattern, flags = whole[1], "".join(flag for flag in "ims" if flag in whole[2])
    pattern = _GROUP.sub(
        lambda found: "(?P<" if found[0] == "(?<" else f"(?P={found[1]})" if found[1] else found[0], pattern
    )
    return f"(?{flags}){pattern}" if flags else pattern


def read_expected(said: str) -> dict[str, Any]:
    """The assertion in a cell of a CSV file: `contains: x`, `llm-rubric(0.8): x`, or the answer itself."""
    said = said.strip()
    if found := re.match(r"(?i)(grade|fn|eval|file)://?|(grade|fn|eval):", said):
        kind = "llm-rubric" if found[0].lower().startswith("grade") else "javascript"
        return {"type": kind, "value": said[found.end() :].strip()}
    if found := re.match(r"(not-)?((?:trajectory:)?[a-z][a-z0-9-]*)(?:\(([\d.]+)\))?(?::\s*|$)", said):
        kind = f"{found[1] or ''}{found[2]}"
        if found[2] in _KNOWN or found[2].startswith(_LIKE_A_NAME):
            value: Any = said[found.end() :].strip()
            return {"type": kind, "value": value or None} | ({"threshold": float(found[3])} if found[3] else {})
    return {"type": "equals", "value": said}


_KNOWN = {
    *(f"{letter}contains{end}" for letter in ("", "i") for end in ("", "-all", "-any")),
    *(_PROGRAMS | _MEASURED),
    *_GRADED,
    *("factuality", "equals", "starts-with", "regex", "is-json", "contains-json", "is-sql", "is-xml", "is-html"),
    *("similar", "levenshtein", "rouge-n", "bleu", "gleu", "meteor", "answer-relevance", "conversation-relevance"),
    *("moderation", "guardrails", "classifier", "pi", "select-best", "max-score", "finish-reason", "perplexity-score"),
    *("tool-call-f1", "skill-used", "word-count", "human", "min-length", "max-length"),
}
_LIKE_A_NAME = ("is-", "contains-", "icontains-", "context-", "trace-", "trajectory:", "model-graded-")
