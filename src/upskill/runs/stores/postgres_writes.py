"""How rows get into PostgreSQL: copied into a table of the connection's own, then added by one statement.

Of what the drivers offer this is the fastest (`bench/postgres.py`), and the triggers that count results run once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from upskill.runs.stores.rows import RESULT_COLUMNS
from upskill.runs.stores.sql import ADD_REPLY, ADD_RESULT, FORGET_REPLY, REPLY_COLUMNS

if TYPE_CHECKING:
    import psycopg

_KEY = RESULT_COLUMNS.index("key")
_PASSED = RESULT_COLUMNS.index("passed")

INCOMING_TABLES = b"""
CREATE TEMPORARY TABLE incoming_results (LIKE results);
CREATE TEMPORARY TABLE incoming_replies (LIKE replies);
"""


def write_rows(db: psycopg.Connection[Any], statement: str, rows: Iterable[tuple[Any, ...]]) -> set[int]:
    """Execute a statement for each of these rows; returns the runs whose results they are."""
    # In one order everywhere, or two writers could wait for each other.
    if statement == ADD_RESULT:
        results = _last_results(rows)
        _add(db, statement, "incoming_results", RESULT_COLUMNS, [results[key] for key in sorted(results)])
        return {run for run, _ in results}
    if statement == ADD_REPLY:
        replies = {row[0]: row for row in rows}
        _add(db, statement, "incoming_replies", REPLY_COLUMNS, [replies[key] for key in sorted(replies)])
    else:
        assert statement == FORGET_REPLY
        db.execute("DELETE FROM replies WHERE key = ANY (%s::text[])", [sorted(row[0] for row in rows)])
    return set()


def _add(
    db: psycopg.Connection[Any], statement: str, table: str, columns: Collection[str], rows: list[tuple[Any, ...]]
) -> None:
    names = ", ".join(columns)
    with db.cursor() as cursor:
        with cursor.copy(f"COPY {table} ({names}) FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)
        first, last = statement[: statement.index("VALUES")], statement[statement.index("ON CONFLICT") :]
        cursor.execute(f"{first} SELECT {names} FROM {table} {last}; TRUNCATE {table}".encode())  # noqa: S608


def _last_results(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[int, str], tuple[Any, ...]]:
    """One row for each trial: a statement cannot change a row twice."""
    found: dict[tuple[int, str], tuple[Any, ...]] = {}
    for row in rows:
        key = row[0], row[_KEY]
        if key not in found or found[key][_PASSED] is None:
            found[key] = row
    return found
