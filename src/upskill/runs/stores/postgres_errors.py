"""Errors of PostgreSQL: which pass, and what to do about the others."""

from __future__ import annotations

from upskill.runs.stores.postgres_driver import errors, psycopg

# Of errors that pass: the server is stopping, starting or full of clients, or two writers waited for each other.
_PASSING = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.TooManyConnections,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.IdleInTransactionSessionTimeout,
)
# The same of one that cannot be connected to, where there is no code.
_SOON = ("starting up", "not yet accepting", "recovery mode", "shutting down", "too many clients", "connection slots")


def is_passing(error: psycopg.Error, *, opening: bool = False) -> bool:
    if isinstance(error, _PASSING):
        return True
    starting = any(words in str(error) for words in _SOON)
    lost = error.sqlstate is None or error.sqlstate.startswith("08")  # the server said nothing at all
    return starting or (not opening and isinstance(error, psycopg.OperationalError) and lost)


def hint_for(said: str) -> str:
    """What to do about a server that cannot be reached."""
    if "password" in said or "authentication" in said:
        return "Put the password into UPSKILL_STORE (postgresql://USER:PASSWORD@…), PGPASSWORD or ~/.pgpass."
    if "database" in said and "does not exist" in said:
        return "Make it first: createdb NAME."
    return "Is the server running, and are host and port right?"
