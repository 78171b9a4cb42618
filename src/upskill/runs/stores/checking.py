"""Checking a store: whether the database is whole, and whether what is in it belongs together and can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from upskill.errors import StoreError, UsageError
from upskill.runs.stores import Store
from upskill.runs.stores.database import Tell, tell_nobody
from upskill.runs.stores.rows import RESULT_COLUMNS, ResultRow
from upskill.runs.stores.sql import SqlStore

# What refers to something that is not there. Looks stay when a run is deleted, so theirs may be gone.
_ORPHANS = {
    "{} of a run that does not exist": "SELECT COUNT(*) FROM results WHERE run NOT IN (SELECT number FROM runs)",
    "{} said of a run that does not exist": "SELECT COUNT(*) FROM feedback WHERE run NOT IN (SELECT number FROM runs)",
    "{} at a provider for a run that does not exist": (
        "SELECT COUNT(*) FROM batches WHERE state <> 'ended' AND run NOT IN (SELECT id FROM runs)"
    ),
    "{} made from one that does not exist": (
        "SELECT COUNT(*) FROM candidates WHERE parent IS NOT NULL AND parent NOT IN (SELECT number FROM candidates)"
    ),
}
_NOUNS = (("result", "results"), ("review", "reviews"), ("batch", "batches"), ("candidate", "candidates"))
_COUNTS = """
    SELECT runs.id, runs.trials, counted.passed, counted.failed, counted.errored,
        COALESCE(SUM(progress.passed), 0), COALESCE(SUM(progress.failed), 0), COALESCE(SUM(progress.errored), 0)
    FROM runs JOIN (
        SELECT run, COUNT(CASE WHEN passed THEN 1 END) AS passed, COUNT(CASE WHEN NOT passed THEN 1 END) AS failed,
            COUNT(*) - COUNT(passed) AS errored
        FROM results GROUP BY run
    ) AS counted ON counted.run = runs.number
    LEFT JOIN progress ON progress.run = runs.number
    GROUP BY runs.number, runs.id, runs.trials, counted.passed, counted.failed, counted.errored ORDER BY runs.number
"""
MOST_NAMED = 20  # rows that cannot be read


def check_store(store: Store, tell: Tell = tell_nobody) -> list[str]:
    """What is wrong with it, each in a sentence; empty for a store that is whole."""
    if not isinstance(store, SqlStore):
        raise UsageError(f"{store.location}: cannot be checked", "Folders and postgresql:// stores can.")
    try:
        return [*store.integrity(), *_orphans(store), *_counts(store), *_unreadable(store, tell)]
    except StoreError as error:  # damaged so much that it cannot be read to the end
        return [str(error)]


def _orphans(store: SqlStore) -> Iterator[str]:
    for (words, query), nouns in zip(_ORPHANS.items(), _NOUNS, strict=True):
        if count := next(iter(store.select(query)))[0]:
            yield words.format(f"{count:,} {nouns[count > 1]}")


def _counts(store: SqlStore) -> Iterator[str]:
    for run, trials, *counts in store.select(_COUNTS):
        results, progress = counts[:3], [int(each) for each in counts[3:]]
        if results != progress:
            words = " and ".join(f"{p} passed, {f} failed, {e} errored" for p, f, e in (progress, results))
            yield f"{run}: the counts differ from the results: {words}"
        if sum(results) > trials:
            yield f"{run}: has {sum(results):,} results for {trials:,} trials"


def _unreadable(store: SqlStore, tell: Tell) -> Iterator[str]:
    """Everything that is JSON is read as what it should be."""
    whole = sum(map(store.count, ("runs", "results", "replies"))) or 1
    done = found = 0

    def read_result(row: Any) -> None:
        ResultRow(*row).to_result()

    def read_text(row: Any) -> None:
        cast("dict[str, Any]", json.loads(row[1]))

    columns = ", ".join(RESULT_COLUMNS)
    for what, query, read in (
        ("the plan of run {}", "SELECT id, plan FROM runs", read_text),
        ("the result {} of a run", f"SELECT {columns} FROM results", read_result),  # noqa: S608
        ("the reply {}", "SELECT key, reply FROM replies", read_text),
    ):
        for row in store.select(query):
            done += 1
            if done % 500 == 0:
                tell("reading what is stored", done / whole)
            try:
                read(row)
            except (ValueError, KeyError, TypeError) as error:
                found += 1
                if found <= MOST_NAMED:
                    name = row[1] if len(row) > 2 else row[0]
                    yield f"{what.format(name)} cannot be read: {type(error).__name__}: {error}"
    if found > MOST_NAMED:
        yield f"{found - MOST_NAMED:,} more that cannot be read"
