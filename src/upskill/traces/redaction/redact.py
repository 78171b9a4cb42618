"""Redact: take secrets, e-mail addresses and home folders out of text and traces before they are sent or stored.

A value found once is replaced everywhere, also in base64, hex or percent-encoding; a short one only as a whole word.
Redacting twice changes nothing.
"""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import quote

from upskill.plain import as_list, as_mapping, counted
from upskill.traces import Step, Trace
from upskill.traces.redaction.commands import calls_for_secret, find_printed
from upskill.traces.redaction.rules import (
    ABOUT,
    COMMAND_LINES,
    EVERYDAY,
    HOME_FOLDER,
    MARK,
    NAME,
    RULES,
    SECRET_NAME,
    decode_base64,
    is_mixed_in_prose,
    is_secret_field,
    is_word_or_mixed,
    kind_of_name,
)

HOME = "home-path"
MAX_KNOWN = 2_000  # values that are looked for again elsewhere
MAX_USES = 8  # of a plain word beside the place where it is a password
MAX_ARGUMENT = 1000  # letters; what is longer is a script, which is looked at by itself
MAX_VALUE = 200  # what is longer is no password
MAX_NAME = 40
STEP_FIELDS = ("text", "tool", "arguments", "output", "at", "agent")
TRACE_FIELDS = ("source", "cwd", "session", "model", "agent", "stop", "started")
ALL_HINTS = sorted({hint for rule in RULES for hint in rule.hints})
# Letters of full width, and letters without any.
FOLDED = {
    **{0xFEE0 + ascii_letter: ascii_letter for ascii_letter in range(0x21, 0x7F)},
    0x3000: " ",
    **dict.fromkeys((0xAD, 0x180E, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF)),
}
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Redaction:
    """A trace without its secrets, and how many of each kind there were."""

    trace: Trace
    counts: Mapping[str, int]

    @property
    def summary(self) -> str:
        return describe_counts(self.counts)


def describe_counts(counts: Mapping[str, int]) -> str:
    if not counts:
        return "nothing to redact"
    nouns = {kind: "home folder" if kind == HOME else kind.replace("-", " ") for kind in counts}
    return "redacted " + ", ".join(
        counted(count, nouns[kind] + ("e" if count > 1 and kind.endswith("hash") else ""))
        for kind, count in sorted(counts.items())
    )


def redact(text: str, counts: Counter[str] | None = None) -> str:
    redactor = Redactor(counts)
    clean = redactor.text(text)
    redactor.keep_rare_words([clean])
    return redactor.replace_known(clean)


def redact_trace(trace: Trace, redactor: Redactor | None = None) -> Redaction:
    redactor = redactor or Redactor()
    # The first pass finds the values; the second finds them again where nothing around them gives them away.
    steps = tuple(map(redactor.hide_printed, trace.steps))
    clean = _clean_trace(replace(trace, steps=steps), redactor.value)
    redactor.keep_rare_words(
        text
        for step in clean.steps
        for text in (step.text, step.output, json.dumps(step.arguments, default=str))
    )
    if redactor.values or redactor.words:
        clean = _clean_trace(clean, redactor.replace_known)
    return Redaction(clean, dict(redactor.counts))


def _clean_trace(trace: Trace, clean: Callable[[Any], Any]) -> Trace:
    steps = [
        replace(step, **{name: clean(getattr(step, name)) for name in STEP_FIELDS})
        for step in trace.steps
    ]
    fields = {name: clean(getattr(trace, name)) for name in TRACE_FIELDS}
    said = (
        new.text.strip()
        for old, new in zip(trace.steps, steps, strict=True)
        if old.text.strip() == trace.goal
    )
    fields["goal"] = next(said, None) or clean(trace.goal)  # a step's text is counted once
    return replace(trace, steps=tuple(steps), warnings=tuple(map(clean, trace.warnings)), **fields)


class Redactor:
    """Remembers the values it found, so that they are found again elsewhere."""

    def __init__(
        self, counts: Counter[str] | None = None, values: dict[str, str] | None = None
    ) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.home = os.path.expanduser("~")  # noqa: PTH111 - which, other than Path.home, never raises
        self.values: dict[str, str] = {} if values is None else values  # value -> kind
        self.words: dict[
            str, str
        ] = {}  # the same, of values that could also be part of something else

    def text(self, text: str) -> str:
        if len(text) < 4:
            return text
        folded = text if text.isascii() else text.translate(FOLDED)
        clean = folded
        for redact_part in (
            self._redact_printed,
            self._redact_encoded,
            self._redact_kubernetes,
            self._apply_rules,
            self._redact_lists,
            self._redact_tables,
            self._shorten_home_paths,
        ):
            clean = redact_part(clean)
        return clean if folded is text else _unfold(text, folded, clean)

    def hide_printed(self, step: Step) -> Step:
        """The step without its output, if that is a secret."""
        output = step.output.strip()
        if not output or output.startswith(MARK) or not calls_for_secret(step.arguments):
            return step
        self.counts["secret"] += 1
        for line in output.splitlines():
            self._remember("secret", line.strip())
        return replace(step, output=f"{MARK}secret]")

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
            names = _names_from_neighbors(fields)
            for key, item in fields.items():
                clean_key = self.text(key)
                while clean_key in redacted:
                    clean_key += "'"
                redacted[clean_key] = self.value(item, names.get(key, key))
            return redacted
        if (entries := as_list(value)) is not None:
            return self._redact_arguments([self.value(item, name) for item in entries])
        return value

    def keep_rare_words(self, texts: Iterable[str]) -> None:
        """Forget the plain words that are all over the texts: they are names that also served as a password."""
        plain = [word for word in self.words if word.isalpha()]
        if plain:
            uses = Counter[str]()
            for text in texts:
                uses.update(
                    {word: len(_whole_word(word).findall(text)) for word in plain if word in text}
                )
            self.words = {word: kind for word, kind in self.words.items() if uses[word] <= MAX_USES}

    def replace_known(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret, kind in self.values.items():
                if secret in value:
                    self.counts[kind] += value.count(secret)
                    value = value.replace(secret, f"{MARK}{kind}]")
            for word, kind in self.words.items():
                if word in value:
                    value, uses = _whole_word(word).subn(f"{MARK}{kind}]", value)
                    self.counts[kind] += uses
            spans = [
                (span, self.values[secret])
                for span, secret in _encoded_spans(value, list(self.values))
            ]
            self.counts.update(kind for _, kind in spans)
            return _replace_spans(value, spans)
        if (fields := as_mapping(value)) is not None:
            return {
                self.replace_known(key): self.replace_known(item) for key, item in fields.items()
            }
        if (entries := as_list(value)) is not None:
            return [self.replace_known(item) for item in entries]
        return value

    def _redact_printed(self, text: str) -> str:
        return self._redact_spans(text, [(span, "secret") for span in find_printed(text)])

    def _redact_spans(self, text: str, spans: list[tuple[Span, str]]) -> str:
        for (start, end), kind in spans:
            self._mark(kind, text[start:end])
        return _replace_spans(text, spans)

    def _apply_rules(self, text: str) -> str:
        lowered = text.lower()
        hints = {hint for hint in ALL_HINTS if hint in lowered}
        for rule in RULES:
            if rule.hints and hints.isdisjoint(rule.hints):
                continue
            text = self._redact_spans(text, [(span, rule.kind) for span in rule.find(text)])
        return text

    def _redact_encoded(self, text: str) -> str:
        """Find text in base64 or hex in which the rules find a secret, as in base64 of `API_KEY=…`."""
        spans: list[tuple[Span, str]] = []
        for span, data in _encoded_words(text, _BASE64_TEXT):
            if data and not _CONTROL.search(data):
                alone = Redactor()
                alone._apply_rules(
                    data.replace(b"\0", b"").decode("utf-8", "replace")
                )  # without zeros, as in UTF-16
                if kind := next((kind for kind in alone.counts if kind != "email"), ""):
                    spans.append((span, kind))
        return self._redact_spans(text, spans)

    def _redact_kubernetes(self, text: str) -> str:
        """Find the values under `data` of a Secret, whatever they are called."""
        spans: list[tuple[Span, str]] = []
        for document in _KUBERNETES.finditer(text):
            is_secret = _KUBERNETES_SECRET.search(document[0])
            for data in _KUBERNETES_DATA.finditer(text, *document.span()) if is_secret else ():
                for value in _KUBERNETES_VALUE.finditer(text, *data.span(1)):
                    if is_secret_field(value[1]):
                        spans.append((value.span(1), "secret"))
        return self._redact_spans(text, spans)

    def _redact_arguments(self, items: list[Any]) -> list[Any]:
        """Find secrets that the item before them gives away, as in `["--password", "…"]`."""
        spans: dict[int, list[tuple[Span, str]]] = {}
        for number, (start, end), kind in _argument_spans(items):
            spans.setdefault(number, []).append(((start, end), kind))
        return [
            self._redact_spans(item, spans[number]) if number in spans else item
            for number, item in enumerate(items)
        ]

    def _redact_lists(self, text: str) -> str:
        """The same for lists that are written out in a text, as in `CMD ["tool", "--password", "…"]`."""
        spans: list[tuple[Span, str]] = []
        for match in _LIST.finditer(text) if "[" in text else ():
            pieces = _pieces(text, match)
            for number, (start, end), kind in _argument_spans(
                [text[slice(*piece)] for piece in pieces]
            ):
                begin = pieces[number][0]
                spans.append(((begin + start, begin + end), kind))
        return self._redact_spans(text, spans)

    def _redact_tables(self, text: str) -> str:
        """Find the values in a column of Markdown or CSV, or a row of Markdown, that is named after a secret."""
        spans: list[tuple[Span, str]] = []
        columns: dict[int, str] = {}  # the kinds of secret by column
        shape = ("", 0)
        begin = 0
        for line in text.splitlines(keepends=True):
            sign = next((sign for sign in "|\t;," if sign in line), "")
            cells = list(_CELLS[sign].finditer(line.rstrip())) if sign else []
            words = [cell[0].strip(" \"'`*") for cell in cells]
            named = {
                number: kind_of_name(word)
                for number, word in enumerate(words)
                if len(word) <= MAX_NAME and SECRET_NAME.search(word)
            }
            secrets = columns
            if not columns or (sign, len(cells)) != shape:
                is_header = sum(map(bool, words)) > 1 and all(map(_HEADING.fullmatch, words))
                columns = named if is_header else {}
                shape = (sign, len(cells))
                secrets = {}
            beside: set[int] = set()  # a variable, in a row of nothing else
            if named and line.lstrip().startswith("|"):
                kind = next(iter(named.values()))
                whole_cells = [
                    number for number, word in enumerate(words) if word and " " not in word
                ]
                secrets = {**secrets, **dict.fromkeys(whole_cells, kind)}
                if len(whole_cells) == 2 == len(list(filter(None, words))) and any(
                    re.fullmatch("[A-Z0-9]+(?:_[A-Z0-9]+)+", words[number]) for number in named
                ):
                    beside = {*whole_cells} - {*named}
            for number, kind in secrets.items():
                value = re.search(r"[^\s\"'`*]{6,}", cells[number][0])
                is_secret = is_word_or_mixed if number in beside else is_mixed_in_prose
                if value and is_secret(value[0]):
                    start = begin + cells[number].start() + value.start()
                    spans.append(((start, start + len(value[0])), kind))
            begin += len(line)
        return self._redact_spans(text, spans)

    def _mark(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        self._remember(kind, value)
        return f"{MARK}{kind}]"

    def _remember(self, kind: str, value: str) -> None:
        if len(self.values) + len(self.words) >= MAX_KNOWN:
            return
        if kind != "email" and _is_distinctive(value):
            self.values.setdefault(value, kind)
        elif (
            kind != "email"
            and re.fullmatch(r"[^\s\[\]]{4,}", value)
            and not EVERYDAY.fullmatch(value)
        ):
            self.words.setdefault(value, kind)

    def _shorten_home_paths(self, text: str) -> str:
        if "/" not in text and "\\" not in text:
            return text

        def home(found: re.Match[str]) -> str:
            quote = found.string[found.start() - 1 : found.start()]
            return "$HOME" if quote == '"' else "~"  # no shell expands "~/x"

        own = 0
        if len(self.home) > 3 and self.home in text:  # it may be anywhere
            text, own = re.subn(rf"{re.escape(self.home)}(?![\w.-])", home, text)
        text, others = HOME_FOLDER.subn(home, text)
        if own + others:
            self.counts[HOME] += own + others
        return text


_CELLS = {sign: re.compile(rf"[^{sign}]+|(?<=[{sign}])") for sign in "|\t;,"}
_HEADING = re.compile(rf"[\w .-]{{0,{MAX_NAME}}}")


def _unfold(text: str, folded: str, clean: str) -> str:
    """The lines in which nothing was redacted, as they were."""
    lines = clean.split("\n")
    before = folded.split("\n")
    if len(lines) != len(before):
        return clean
    originals = zip(lines, before, text.split("\n"), strict=True)
    return "\n".join(original if line == old else line for line, old, original in originals)


def _replace_spans(text: str, spans: list[tuple[Span, str]]) -> str:
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
    kinds = sum(
        bool(re.search(pattern, value)) for pattern in (r"[a-z]", r"[A-Z]", r"\d", r"[^\w\s]")
    )
    return "\n" not in value and len(value) >= 8 and kinds >= 2


_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{8,}={0,2}")
_HEX = re.compile(r"(?<![A-Za-z0-9])(?:0x)?((?:[0-9a-fA-F]{2}){6,})(?![A-Za-z0-9])")

# Text in base64, long enough for `API_KEY=…` and in lines as `base64` prints it: in ASCII every fourth letter is one of
# half of the alphabet, which few other words begin with four times.
_BASE64_TEXT = re.compile(
    r"(?<![A-Za-z0-9+/_=-])(?=(?:[A-Za-f][A-Za-z0-9+/_-]{3}){4})(?:[A-Za-z0-9+/]{76}\s+)*[A-Za-z0-9+/_-]{4,}={0,2}"
)
_CONTROL = re.compile(rb"[^\t\r\n\0 -~\x80-\xff]")
_KUBERNETES = re.compile(r"(?ms)^apiVersion: .*?(?=^---|\Z)|^kind: Secret$.*?(?=^---|\Z)")
_KUBERNETES_SECRET = re.compile(r"(?m)^kind: Secret\s*$")
_KUBERNETES_DATA = re.compile(r"(?m)^(?:stringData|data):[ \t]*\n((?:[ \t]+.*(?:\n|$))+)")
_KUBERNETES_VALUE = re.compile(r"(?m)^[ \t]+[\w.-]+:[ \t]+[\"']?([^\s\"'|>][^\s\"']{3,})")


def _encoded_words(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[Span, bytes]]:
    yield from (
        (match.span(), decode_base64("".join(match[0].split()))) for match in pattern.finditer(text)
    )
    yield from ((match.span(), bytes.fromhex(match[1])) for match in _HEX.finditer(text))


def _encoded_spans(text: str, secrets: Sequence[str]) -> Iterator[tuple[Span, str]]:
    """Where one of these secrets is in the text in another form, and which."""
    if not secrets:
        return
    words = [(span, data) for span, data in _encoded_words(text, _BASE64) if data]
    decoded = b"\n".join(data for _, data in words)
    for secret in secrets:
        data = secret.encode("utf-8", "replace")
        if data in decoded:
            yield from ((span, secret) for span, word in words if data in word)
        escaped = quote(secret, safe="")
        if escaped != secret and escaped in text:
            yield from ((match.span(), secret) for match in re.finditer(re.escape(escaped), text))


_TEXT = r"[^\"'\\\n]{0,200}"
_LITERAL = rf"(?:\"{_TEXT}\"|'{_TEXT}')"
_LIST = re.compile(rf"\[\s*{_LITERAL}(?:\s*,\s*{_LITERAL}){{1,200}}\s*,?\s*\]")
_PIECE = re.compile(rf"\"({_TEXT})\"|'({_TEXT})'")


def _pieces(text: str, match: re.Match[str]) -> list[Span]:
    """Where the literals of a match are, without their quotes."""
    return [
        piece.span(1 if piece[1] is not None else 2)
        for piece in _PIECE.finditer(text, *match.span())
    ]


# Secrets in a tool's arguments that their neighbors give away: a flag before them, or a field that names them.

_ENDS_VALUE = re.compile(r"[\n\"'`\\]")  # in a line; in an argument it is part of the value
_FLAG = re.compile(r"--?[\w-]+=|-\w(?=.)|")
_ABOUT = ABOUT.replace("field|label|", "")  # of a page, both hold it
# "#password", "Password field", "input[name=db_password]"; `SECRET_NAME` knows a name that is nothing else.
_MENTION = re.compile(
    rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{NAME})(?![ _-]?(?i:{_ABOUT}))(?=[^A-Za-z]|$|Input|Field|Box)"
)


def _names_from_neighbors(fields: Mapping[str, Any]) -> dict[str, str]:
    """What `value` and `text` are the value of, where a field beside them names a secret."""
    names = [
        kind_of_name(name)
        for field, name in fields.items()
        if field.lower() in ("name", "key", "element", "selector", "field", "label", "variable")
        if isinstance(name, str)
        and len(name) <= MAX_ARGUMENT
        and (SECRET_NAME.search(name) or _MENTION.search(name))
    ]
    return {
        field: names[0]
        for field, value in fields.items()
        if names and field.lower() in ("value", "text")
        if isinstance(value, str) and len(value) <= MAX_VALUE and "\n" not in value
    }


def _argument_spans(items: Sequence[Any]) -> Iterator[tuple[int, Span, str]]:
    """Where a list holds secrets when it is read as a command line: which item, where in it, and the kind."""
    words: list[str] = []
    starts: list[int] = []  # of the items in the line
    ends: list[int] = []
    length = 0
    after_flag = False
    for item in items:
        is_short = isinstance(item, str) and len(item) <= MAX_ARGUMENT
        text = _ENDS_VALUE.sub("’", item) if is_short else "…"
        flag = _FLAG.match(text)
        begin = flag.end() if flag else 0
        # A shell needs quotes for some of these words, and a plain word after a flag may be its value.
        is_value = after_flag or begin or re.search(r"[\s;|&<>,]", text)
        after_flag = text.startswith("-")
        quote = '"' if is_value and begin < len(text) and not text[begin:].startswith("-") else ""
        words.append(f" {text[:begin]}{quote}{text[begin:]}{quote}")
        starts.append(length + 1 + len(quote))
        length += len(words[-1])
        ends.append(length - len(quote))
    line = "".join(words)
    lowered = line.lower()
    done = 0
    spans = (
        (span, rule.kind)
        for rule in COMMAND_LINES
        if not rule.hints or any(hint in lowered for hint in rule.hints)
        for span in rule.find(line)
    )
    for (start, end), kind in sorted(spans, key=lambda span: (span[0][0], -span[0][1])):
        number = bisect_right(starts, start) - 1
        if start >= done and end <= ends[number]:  # of those that overlap, the longest
            yield number, (start - starts[number], end - starts[number]), kind
            done = end
