"""Redaction takes secrets and home folders out of a trace: `redact`, by the tables of `rules` and `commands`."""
