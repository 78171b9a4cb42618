"""Redact: take secrets, e-mail addresses and home folders out of text and traces before they are sent or stored.

What the rules of `secret_rules` (shapes) and `secret_contexts` (surroundings) find is replaced by `[REDACTED kind]` and
counted by kind; a home folder becomes `~`. A value that was found once is replaced everywhere else, in other forms too
(`secret_forms`); a short one only where it is a whole word. Redacting twice changes nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from upskill.plain import as_list, as_mapping, counted
from upskill.traces import Step, Trace
from upskill.traces.redaction.secret_arguments import flag_spans, names_of_fields
from upskill.traces.redaction.secret_contexts import CONTEXTS, EVERYDAY, SECRET_NAME, is_secret_field, kind_of_name
from upskill.traces.redaction.secret_forms import encoded_spans, literal_lists, split_literals
from upskill.traces.redaction.secret_rules import (
    EMAIL,
    HOME_FOLDER,
    LONG_WORD,
    MARK,
    OTHER_DETECTORS,
    SHAPE_DETECTORS,
    SHAPES,
    Rule,
    detectors,
    matched_spans,
)

HOME = "home-path"
MAX_USES = 8  # of a plain word beside the place where it is a password
STEP_FIELDS = ("text", "tool", "output", "at", "agent")
TRACE_FIELDS = ("goal", "source", "cwd", "session", "model", "agent", "stop", "started")


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, in the order in which they are applied."""
    return (*SHAPES, *detectors(SHAPE_DETECTORS), *CONTEXTS, *detectors(OTHER_DETECTORS), *EMAIL)


@dataclass(frozen=True, slots=True)
class Redaction:
    """A trace without its secrets, and how many of each kind there were."""

    trace: Trace
    counts: Mapping[str, int]

    @property
    def summary(self) -> str:
        """The counts in one line."""
        return describe_counts(self.counts)


def describe_counts(counts: Mapping[str, int]) -> str:
    if not counts:
        return "nothing to redact"
    nouns = {kind: "home folder" if kind == HOME else kind.replace("-", " ") for kind in counts}
    found = [
        counted(count, nouns[kind] + ("e" if count > 1 and kind.endswith("hash") else ""))
        for kind, count in sorted(counts.items())
    ]
    return "redacted " + ", ".join(found)


def redact(text: str, counts: Counter[str] | None = None) -> str:
    """Text without secrets; what was found is added to `counts`."""
    redactor = Redactor(counts)
    clean = redactor.text(text)
    redactor.keep_rare_words([clean])
    return redactor.replace_known(clean)


def redact_trace(trace: Trace) -> Redaction:
    """The same trace without secrets in its texts, arguments, outputs and metadata."""
    redactor = Redactor()
    # The first pass finds the values; the second finds them again where nothing around them gives them away.
    steps = [redactor.step(step) for step in trace.steps]
    fields: dict[str, Any] = {name: redactor.text(getattr(trace, name)) for name in TRACE_FIELDS}
    fields["warnings"] = tuple(redactor.text(warning) for warning in trace.warnings)
    redactor.keep_rare_words(
        text for step in steps for text in (step.text, step.output, json.dumps(step.arguments, default=str))
    )
    if redactor.values or redactor.words:
        steps = [redactor.step_again(step) for step in steps]
        fields = {name: redactor.replace_known(value) for name, value in fields.items()}
    return Redaction(replace(trace, steps=tuple(steps), **fields), dict(redactor.counts))


@cache
def _every_hint() -> tuple[str, ...]:
    """Looked for once in a text, since many rules share them."""
    return tuple(sorted({hint for rule in rules() for hint in rule.hints}))


class Redactor:
    """Remembers the values it found, so that they are found again elsewhere."""

    def __init__(self, counts: Counter[str] | None = None) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.home = os.path.expanduser("~")  # noqa: PTH111 - which, other than Path.home, never raises
        self.values: dict[str, str] = {}  # value -> kind
        self.words: dict[str, str] = {}  # the same, of values that could also be part of something else

    def text(self, text: str) -> str:
        if len(text) < 4:
            return text
        return self._shorten_home_paths(self._redact_lists(self._apply_rules(self._join_literals(text))))

    def _apply_rules(self, text: str) -> str:
        lowered, has_long_word = text.lower(), bool(LONG_WORD.search(text))
        hints = {hint for hint in _every_hint() if hint in lowered}
        for rule in rules():
            hinted = not rule.hints or not hints.isdisjoint(rule.hints)
            if hinted and (has_long_word or not rule.long_word):
                text = self._apply(rule, text)
        return text

    def _join_literals(self, text: str) -> str:
        """Find secrets that are put together from pieces, none of which would be found by itself."""
        spans: list[tuple[tuple[int, int], str]] = []
        for pieces, before, value in split_literals(text):
            if len(pieces) < 2 or MARK.rstrip() in value:
                continue
            alone = Redactor()
            if f'"{value}"' not in alone._apply_rules(f'{before}"{value}"') and "email" not in alone.counts:
                kind = next(iter(alone.counts))
                self.counts[kind] += 1
                self.values.setdefault(value, kind)
                spans += [(piece, kind) for piece in pieces]
        return _replace_spans(text, spans)

    def value(self, value: Any, name: str = "") -> Any:
        """Plain data with all text in it redacted; `name` is the field it is the value of."""
        if isinstance(value, str):
            kind = kind_of_name(name) if SECRET_NAME.search(name) else ""
            is_count = kind == "secret" and value.isdigit()  # max_tokens: "2048"
            if kind and not is_count and is_secret_field(value):
                return self._mark(kind, value)
            return self.text(value)
        if (fields := as_mapping(value)) is not None:
            redacted: dict[str, Any] = {}
            names = names_of_fields(fields)
            for key, item in fields.items():
                clean_key = self.text(key)
                while clean_key in redacted:
                    clean_key += "'"
                redacted[clean_key] = self.value(item, names.get(key, key))
            return redacted
        if (entries := as_list(value)) is not None:
            return self._redact_flags([self.value(item, name) for item in entries])
        return value

    def _redact_flags(self, items: list[Any]) -> list[Any]:
        """Find secrets that the item before them gives away, as in `["--password", "…"]`."""
        spans: dict[int, list[tuple[tuple[int, int], str]]] = {}
        for number, (start, end), kind in flag_spans(items):
            self._mark(kind, items[number][start:end])
            spans.setdefault(number, []).append(((start, end), kind))
        return [_replace_spans(item, spans[number]) if number in spans else item for number, item in enumerate(items)]

    def _redact_lists(self, text: str) -> str:
        """The same for lists that are written out in a text, as in `CMD ["tool", "--password", "…"]`."""
        spans: list[tuple[tuple[int, int], str]] = []
        for pieces in literal_lists(text):
            for number, (start, end), kind in flag_spans([text[slice(*piece)] for piece in pieces]):
                begin = pieces[number][0]
                self._mark(kind, text[begin + start : begin + end])
                spans.append(((begin + start, begin + end), kind))
        return _replace_spans(text, spans)

    def step(self, step: Step) -> Step:
        texts = {name: self.text(getattr(step, name)) for name in STEP_FIELDS if getattr(step, name)}
        arguments = self.value(step.arguments) if step.arguments else step.arguments
        return replace(step, arguments=arguments, **texts)

    def step_again(self, step: Step) -> Step:
        """The second pass over a step."""
        texts = {name: self.replace_known(getattr(step, name)) for name in STEP_FIELDS if getattr(step, name)}
        return replace(
            step, arguments=self.replace_known(step.arguments) if step.arguments else step.arguments, **texts
        )

    def replace_known(self, value: Any) -> Any:
        """Replace the values that were found before."""
        if isinstance(value, str):
            for secret, kind in self.values.items():
                if secret in value:
                    self.counts[kind] += value.count(secret)
                    value = value.replace(secret, f"{MARK}{kind}]")
            for word, kind in self.words.items():
                if word in value:
                    value, found = _whole_word(word).subn(f"{MARK}{kind}]", value)
                    self.counts[kind] += found
            return self._replace_encoded(value)
        if (fields := as_mapping(value)) is not None:
            return {self.replace_known(key): self.replace_known(item) for key, item in fields.items()}
        if (entries := as_list(value)) is not None:
            return [self.replace_known(item) for item in entries]
        if isinstance(value, tuple):
            return tuple(self.replace_known(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
        return value

    def keep_rare_words(self, texts: Iterable[str]) -> None:
        """Forget the plain words that are all over the texts: they are names that also served as a password."""
        plain = [word for word in self.words if word.isalpha()]
        if plain:
            uses = Counter(
                word for text in texts for word in plain if word in text for _ in _whole_word(word).finditer(text)
            )
            for word in plain:
                if uses[word] > MAX_USES:
                    del self.words[word]

    def _replace_encoded(self, text: str) -> str:
        if not self.values:
            return text
        spans = [(span, self.values[secret]) for span, secret in encoded_spans(text, list(self.values))]
        self.counts.update(kind for _, kind in spans)
        return _replace_spans(text, spans)

    def _apply(self, rule: Rule, text: str) -> str:
        pieces: list[str] = []
        last = 0
        for found in rule.pattern.finditer(text):
            for start, end in matched_spans(found):
                value = text[start:end]
                if start < last or MARK.rstrip() in value or (rule.is_secret is not None and not rule.is_secret(value)):
                    continue
                pieces += [text[last:start], self._mark(rule.kind, value)]
                last = end
        return "".join([*pieces, text[last:]]) if pieces else text

    def _mark(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        if kind != "email" and _is_distinctive(value):
            self.values.setdefault(value, kind)
        elif kind != "email" and re.fullmatch(r"[^\s\[\]]{4,}", value) and value.lower() not in EVERYDAY:
            self.words.setdefault(value, kind)
        return f"{MARK}{kind}]"

    def _shorten_home_paths(self, text: str) -> str:
        if "/" not in text and "\\" not in text:
            return text
        found = 0
        if len(self.home) > 3 and self.home in text:  # it may be anywhere
            text, found = re.subn(rf"{re.escape(self.home)}(?![\w.-])", "~", text)
        text, more = HOME_FOLDER.subn("~", text)
        if found + more:
            self.counts[HOME] += found + more
        return text


def _replace_spans(text: str, spans: list[tuple[tuple[int, int], str]]) -> str:
    pieces: list[str] = []
    last = 0
    for (start, end), kind in sorted(spans):
        if start >= last:
            pieces += [text[last:start], f"{MARK}{kind}]"]
            last = end
    return "".join([*pieces, text[last:]])


@cache
def _whole_word(word: str) -> re.Pattern[str]:
    """Where this word stands alone; one of letters only is not looked for in paths and host names either."""
    before, after = (r"[\w./-]", r"[\w/-]|\.\w") if word.isalpha() else (r"\w", r"\w")
    return re.compile(rf"(?<!{before}){re.escape(word)}(?!{after})")


def _is_distinctive(value: str) -> bool:
    """Is it unlikely that this value turns up elsewhere as anything but the same secret?"""
    kinds = sum(bool(re.search(pattern, value)) for pattern in (r"[a-z]", r"[A-Z]", r"\d", r"[^\w\s]"))
    return "\n" not in value and (len(value) >= 8 and kinds >= 2)
