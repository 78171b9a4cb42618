"""Redaction takes secrets and home folders out of a trace.

- `redact`: the entry point
- `rules`: the table of rules, one row for each kind of secret
"""
