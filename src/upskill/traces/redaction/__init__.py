"""Redaction takes secrets and home folders out of a trace.

- `redact`: the entry point
- `secret_rules`: keys of providers; `secret_contexts`: secrets given away by their surroundings
- `secret_arguments`: secrets in a tool's arguments; `secret_forms`: encoded or assembled ones
"""
