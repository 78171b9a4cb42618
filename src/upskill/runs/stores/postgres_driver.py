"""The driver of PostgreSQL, which is an extra."""

from __future__ import annotations

from upskill.errors import UsageError
from upskill.installation import add_extra

try:
    import psycopg
    from psycopg import conninfo, errors, pq
except ImportError as error:
    raise UsageError(
        "a postgresql:// store needs psycopg, which is not installed", f"Run `{add_extra('postgres')}`."
    ) from error

__all__ = ["conninfo", "errors", "pq", "psycopg"]
