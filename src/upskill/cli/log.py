"""Logging on standard error: `-v` (info), `-vv` (debug) or UPSKILL_LOG, with secrets redacted."""

from __future__ import annotations

import logging

import click

from upskill.errors import UsageError, did_you_mean
from upskill.models.keys import find_keys

LEVELS = {"warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}
MIN_KEY_LENGTH = 6  # characters; replacing a shorter one would only garble the rest
LOGGER = logging.getLogger("upskill")


def set_up_logging(verbosity: int, level_name: str) -> None:
    """The more verbose of `-v` flags and level name wins."""
    if level_name and level_name.lower() not in LEVELS:
        raise UsageError(
            f"UPSKILL_LOG: no level named {level_name!r}", did_you_mean(level_name, LEVELS)
        )
    for handler in [each for each in LOGGER.handlers if isinstance(each, _Handler)]:
        LOGGER.removeHandler(handler)
    LOGGER.setLevel(logging.NOTSET)
    if not verbosity and not level_name:
        return
    level = logging.DEBUG if verbosity > 1 else logging.INFO if verbosity else logging.WARNING
    LOGGER.setLevel(min(level, LEVELS.get(level_name.lower(), level)))
    handler = _Handler()
    handler.setFormatter(_RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    LOGGER.addHandler(handler)


class _Handler(logging.Handler):
    """Writes to whatever standard error is at the time: a progress bar takes its place while it is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


class _RedactingFormatter(logging.Formatter):
    """Redacts the whole record, its traceback included: secrets of a known form, and the keys in use."""

    def __init__(self, form: str) -> None:
        super().__init__(form)
        self.keys = [
            value
            for value in find_keys().values()
            if "://" not in value and len(value) >= MIN_KEY_LENGTH
        ]

    def format(self, record: logging.LogRecord) -> str:
        from upskill.traces.redaction.redact import redact  # noqa: PLC0415 - compiles many patterns

        text = super().format(record)
        for key in self.keys:
            text = text.replace(key, "[REDACTED key]")
        return redact(text)
