"""A Store keeps runs with results and feedback, notes, replies of models, batches, and candidates for better skills.

Kinds: `sqlite` (a file in a folder, or memory) and `postgresql` (a server). `open_store` picks one by the address: a
folder, a URL whose scheme is the name of a kind, or None for memory. A kind is a `Database`, which the `Store` runs on.

- `store`: the Store, in SQL for every kind; `rows`: Run, Progress, Page, Review, Batch, Candidate, and a result
  as a row
- `tables`: the description of all tables, from which the schemas of both kinds follow
- `database`: what SQL runs on, and many writes in one commit; `sqlite`, `postgres`: the kinds
- `addresses`: folders and URLs, and how to show them without a password
- `prune`: deleting runs and replies that nobody needs
"""

from __future__ import annotations

from pathlib import Path

from upskill.errors import UsageError
from upskill.registry import Registry
from upskill.runs.stores.addresses import is_url, url_scheme, without_password
from upskill.runs.stores.database import Database
from upskill.runs.stores.rows import Batch, Candidate, Page, Progress, Review, Run
from upskill.runs.stores.store import Store

__all__ = [
    "STORES",
    "Batch",
    "Candidate",
    "Page",
    "Progress",
    "Review",
    "Run",
    "Store",
    "find_store",
    "is_url",
    "open_store",
    "without_password",
]

# Each opens the database at an address. None: there is none, and it was not to be created. One that was not to be
# created is opened for reading where it cannot be written.
STORES = Registry(
    "store",
    "upskill.stores",
    {
        "sqlite": "upskill.runs.stores.sqlite:open_sqlite",
        "postgresql": "upskill.runs.stores.postgres:open_postgres",
    },
)
_ALIASES = {"postgres": "postgresql"}


def open_store(address: str | Path | None) -> Store:
    """Creates the store if need be; None keeps everything in memory."""
    database = _open_database(address, create=True)
    assert database is not None
    return Store(database)


def find_store(address: str | Path) -> Store | None:
    """Looking at runs never creates a store."""
    database = _open_database(address, create=False)
    return Store(database) if database else None


def _open_database(address: str | Path | None, *, create: bool) -> Database | None:
    if address == "":
        raise UsageError(
            "the store's name is empty", "Pass a folder, or leave it out to use the default."
        )
    scheme = url_scheme(address) if isinstance(address, str) else ""
    kind = _ALIASES.get(scheme, scheme) or "sqlite"
    if kind not in STORES:
        kinds = ", ".join(f"{name}://" for name in STORES.names())
        # Without the rest of the URL, which may hold a password.
        raise UsageError(
            f"unknown kind of store {kind!r}", f"Pass a folder, or a URL that starts with {kinds}."
        )
    return STORES.load(kind)(None if address is None else str(address), create=create)
