"""Tells when a small model has begun to repeat itself, which it then does until it is stopped."""

from __future__ import annotations

MAX_PERIOD = 160  # characters of what is repeated
MIN_REPEATS = 6
MIN_SPAN = 240  # characters of the repetition in all: a row of zeros or dashes in an answer is shorter
BLANK_SPAN = 120  # spaces and empty lines


def is_repeating(text: str) -> bool:
    """Whether a text ends in the same words over and over, or in nothing but blanks."""
    if len(text) - len(text.rstrip()) >= BLANK_SPAN:
        return True
    for period in range(1, MAX_PERIOD + 1):
        span = max(MIN_SPAN, MIN_REPEATS * period)
        if len(text) < span:
            return False
        tail = text[-span:]
        if tail[period:] == tail[:-period]:
            return True
    return False
