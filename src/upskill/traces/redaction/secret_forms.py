"""Other forms of a secret: a known one in base64, hex or percent signs, and a literal put together from pieces."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{8,}={0,2}")
_HEX = re.compile(r"(?<![A-Za-z0-9])(?:0x)?((?:[0-9a-fA-F]{2}){6,})(?![A-Za-z0-9])")
MAX_ENCODED = 100_000  # letters; what is longer is a file

_TEXT = r"[^\"'\\\n]{0,200}"
_LITERAL = rf"(?:\"{_TEXT}\"|'{_TEXT}')"
_JOINT = r"(?:\s*(?:\+|\.\.?|&|\|\||\\)\s*|\s+|\.concat\(\s*)"
# `"a" + "b"`, `"a" "b"`, `a"b"` in a shell, `"".join(["a", "b"])`, `["a", "b"].join("")`, `CONCAT("a", "b")`.
_CHAINS = (
    re.compile(rf"(?:(?<==)[\w.-]{{2,40}}{_LITERAL}|{_LITERAL}{_JOINT}{_LITERAL})(?:{_JOINT}{_LITERAL})*"),
    re.compile(rf"(?i:join|concat)\s*\(\s*[\[(]?\s*{_LITERAL}(?:\s*,\s*{_LITERAL})+"),
    re.compile(rf"[\[(]\s*{_LITERAL}(?:\s*,\s*{_LITERAL})+\s*[\])]\s*\.join\("),
)
_LIST = re.compile(rf"\[\s*{_LITERAL}(?:\s*,\s*{_LITERAL}){{1,200}}\s*,?\s*\]")
_PIECE = re.compile(rf"\"({_TEXT})\"|'({_TEXT})'")
Span = tuple[int, int]


def encoded_spans(text: str, secrets: Sequence[str]) -> Iterator[tuple[Span, str]]:
    """Where one of these secrets is in the text in another form, and which."""
    plain = {secret: secret.encode("utf-8", "replace") for secret in secrets}
    for found in _BASE64.finditer(text):
        if decoded := _decode(found[0]):
            yield from ((found.span(), secret) for secret, data in plain.items() if data in decoded)
    for found in _HEX.finditer(text):
        decoded = bytes.fromhex(found[1])
        yield from ((found.span(), secret) for secret, data in plain.items() if data in decoded)
    for secret in secrets:
        if (escaped := quote(secret, safe="")) != secret:
            yield from ((found.span(), secret) for found in re.finditer(re.escape(escaped), text))


def _decode(word: str) -> bytes:
    if len(word) > MAX_ENCODED:
        return b""
    letters = word.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(letters + "=" * (-len(letters) % 4))
    except (binascii.Error, ValueError):
        return b""


def split_literals(text: str) -> Iterator[tuple[list[Span], str, str]]:
    """Every literal that is put together from pieces: where they are, what is before it in its line, and its value."""
    if '"' not in text and "'" not in text:
        return
    for chain in _CHAINS:
        for found in chain.finditer(text):
            pieces = [span for piece in _PIECE.finditer(text, *found.span()) for span in (piece.span(1), piece.span(2))]
            spans = [(start, end) for start, end in pieces if end > start]
            if found[0][0] not in "\"'[(" and text[found.start() - 1] == "=":
                spans.insert(
                    0, (found.start(), min(text.index(mark, found.start()) for mark in "\"'" if mark in found[0]))
                )
            line = text[max(0, found.start() - 80) : found.start()].rpartition("\n")[2]
            yield spans, line, "".join(text[start:end] for start, end in spans)


def literal_lists(text: str) -> Iterator[list[Span]]:
    """Every list of literals, by where they are."""
    for found in _LIST.finditer(text) if "[" in text else ():
        yield [
            piece.span(1) if piece[1] is not None else piece.span(2) for piece in _PIECE.finditer(text, *found.span())
        ]
