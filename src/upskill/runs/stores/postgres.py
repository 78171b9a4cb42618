"""The `postgresql` store: a schema in a database on a server, for many processes and machines that write at once.

One thread of each process writes and commits in groups (`group_writer`). A run is claimed by an advisory lock, which
the server gives up when the connection of its holder ends.
"""

from __future__ import annotations

from upskill.runs.stores import Store
from upskill.runs.stores.postgres_server import PostgresServer
from upskill.runs.stores.sql import SqlStore


def open_postgres(place: str | None, *, create: bool) -> Store | None:
    """The store at a URL `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME`."""
    assert place is not None
    store = PostgresStore(place, create=create)
    if store.found:
        return store
    store.close()
    return None


class PostgresStore(SqlStore, PostgresServer):
    def __init__(self, url: str, *, create: bool = True) -> None:
        SqlStore.__init__(self)
        PostgresServer.__init__(self, url, create=create)
