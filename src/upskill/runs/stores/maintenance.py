"""Maintenance of stores: copying one into another, checking it, and pruning what is no longer needed.

Copying can be repeated. A run is identified by its plan and its date, so one store can hold the runs of several
people. A copy never replaces data in the target with anything worse.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import compress
from typing import Any

from upskill.errors import StoreError, UsageError
from upskill.runs.stores import Run, Store
from upskill.runs.stores.database import Database, Transaction, chunks, marks
from upskill.runs.stores.rows import result_from_row
from upskill.runs.stores.store import ADD_REPLY, ADD_RESULT, free_run_id
from upskill.runs.stores.tables import (
    BATCHES,
    CANDIDATES,
    DRAWS,
    FEEDBACK,
    LOOKS,
    OPEN_DRAWS,
    REPLIES,
    RESULTS,
    RUNS,
    Table,
)

MAX_NAMED = 20  # rows that cannot be read

Report = Callable[[str, float], None]  # what is being worked on, and the share that is done
Row = dict[str, Any]


def _report_nothing(_: str, __: float) -> None: ...


# Copying.


@dataclass(frozen=True, slots=True)
class Copied:
    """How many there are of each, and how many of them were new."""

    runs: int
    new_runs: int
    results: int
    new_results: int
    replies: int
    new_replies: int


@dataclass(frozen=True, slots=True)
class _CopiedRun:
    number: int
    id: str
    target_number: int
    target_id: str
    is_new: bool


def copy_store(source: Store, target: Store, report: Report = _report_nothing) -> Copied:
    """StoreError if something that was read is not there in the end."""
    if source.location == target.location:
        raise UsageError(
            f"{source.location}: cannot copy a store into itself",
            "Choose another store to copy to.",
        )
    origin, copy = source.database, target.database
    runs = _copy_runs(origin, copy)
    total = _count(origin, RESULTS) + _count(origin, REPLIES) or 1
    results = new_results = replies = new_replies = 0
    for run in runs:
        before = results
        for rows in chunks(_read(origin, RESULTS, "run = ?", run.number)):
            new_results += _copy_results(copy, run.target_number, rows)
            results += len(rows)
            report(f"results of {run.id}", results / total)
        if _count(copy, RESULTS, "run = ?", run.target_number) < results - before:
            raise StoreError(
                f"{copy.location}: it has fewer results for {run.id} than were copied",
                "Copy it again.",
            )
    for rows in chunks(_read(origin, REPLIES)):
        keys = [row["key"] for row in rows]
        known = {row["key"] for row in _read(copy, REPLIES, f"key IN ({marks(keys)})", *keys)}
        new_replies += _write(
            copy, REPLIES, ADD_REPLY, [row for row in rows if row["key"] not in known]
        )
        replies += len(rows)
        report("replies", (results + replies) / total)
    if _count(copy, REPLIES) < replies:
        raise StoreError(
            f"{copy.location}: it has fewer replies than were copied", "Copy it again."
        )
    _copy_small_tables(origin, copy, runs)
    _copy_candidates(origin, copy)
    new_runs = sum(run.is_new for run in runs)
    return Copied(len(runs), new_runs, results, new_results, replies, new_replies)


def _copy_runs(source: Database, target: Database) -> list[_CopiedRun]:
    plans: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for number, run_id, *plan in source.stream(
        "SELECT number, id, fingerprint, created FROM runs ORDER BY number"
    ):
        plans[plan[0], plan[1]][run_id] = number
    copied: list[_CopiedRun] = []
    for plan, numbers in plans.items():
        query = "SELECT id, number FROM runs WHERE fingerprint = ? AND created = ? ORDER BY number"
        known = dict(target.rows(query, *plan))
        renamed = iter([run_id for run_id in known if run_id not in numbers])
        for run_id, number in numbers.items():
            target_id = run_id if run_id in known else next(renamed, "")
            is_new = not target_id
            if is_new:
                target_id = _add_run(source, target, number)
                known[target_id] = target.rows("SELECT number FROM runs WHERE id = ?", target_id)[
                    0
                ][0]
            copied.append(_CopiedRun(number, run_id, known[target_id], target_id, is_new=is_new))
    return sorted(copied, key=lambda run: run.number)


def _add_run(source: Database, target: Database, number: int) -> str:
    (row,) = _read(source, RUNS, "number = ?", number)

    def add(db: Transaction) -> str:
        run_id = free_run_id(db, row["id"])
        db.execute(RUNS.insert(), _values(RUNS, {**row, "id": run_id}))
        return run_id

    return target.transact(add)


def _copy_results(target: Database, run: int, rows: Sequence[Row]) -> int:
    keys = [row["key"] for row in rows]
    query = RESULTS.select(f"run = ? AND key IN ({marks(keys)})", ["key", "passed"])
    known = dict(target.rows(query, run, *keys))
    is_new = [
        row["key"] not in known or (known[row["key"]] is None and row["passed"] is not None)
        for row in rows
    ]
    return _write(
        target, RESULTS, ADD_RESULT, [{**row, "run": run} for row in compress(rows, is_new)]
    )


def _copy_small_tables(source: Database, target: Database, runs: Sequence[_CopiedRun]) -> None:
    ids, numbers = (
        {run.id: run.target_id for run in runs},
        {run.number: run.target_number for run in runs},
    )
    update_batches = BATCHES.upsert(["id", "state", "keys"], only_if="batches.state <> 'ended'")
    for table, statement in ((LOOKS, LOOKS.upsert()), (BATCHES, update_batches)):
        for rows in chunks(_read(source, table)):
            # A run that was deleted keeps its id.
            _write(
                target,
                table,
                statement,
                [{**row, "run": ids.get(row["run"], row["run"])} for row in rows],
            )
    for row in _read(source, DRAWS):
        Store(target).keep_draws(row["key"], json.loads(row["reasons"]))
    for row in _read(source, OPEN_DRAWS):  # nobody will end them there
        killed = Counter(killed=1) + Counter(Store(source).draws(row["key"]))
        Store(target).keep_draws(row["key"], killed)
    update_feedback = FEEDBACK.upsert(
        ["verdict", "note", "created"], only_if="excluded.created > feedback.created"
    )
    for rows in chunks(_read(source, FEEDBACK)):
        known = [{**row, "run": numbers[row["run"]]} for row in rows if row["run"] in numbers]
        _write(target, FEEDBACK, update_feedback, known)


def _copy_candidates(source: Database, target: Database) -> None:
    statement = CANDIDATES.upsert(
        ["accepted", "note", "verdict"], only_if="candidates.accepted IS NULL"
    )
    numbers: dict[int | None, int] = {}
    for row in _read(source, CANDIDATES):
        _write(target, CANDIDATES, statement, [{**row, "parent": numbers.get(row["parent"])}])
        query = "SELECT number FROM candidates WHERE search = ? AND fingerprint = ?"
        numbers[row["number"]] = target.rows(query, row["search"], row["fingerprint"])[0][0]


def _read(database: Database, table: Table, where: str = "", *values: Any) -> Iterator[Row]:
    """In the order of their keys; JSON stays as it is."""
    names = [column.name for column in table.columns]
    booleans = [column.name for column in table.columns if column.kind == "boolean"]
    for values_read in database.stream(
        f"{table.select(where)} ORDER BY {', '.join(table.key)}", *values
    ):
        row = dict(zip(names, values_read, strict=True))
        yield row | {
            name: bool(row[name]) for name in booleans if row[name] is not None
        }  # SQLite has none


def _write(database: Database, table: Table, statement: str, rows: Sequence[Row]) -> int:
    if rows:
        database.executemany(statement, [_values(table, row) for row in rows])
    return len(rows)


def _values(table: Table, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.names)


def _count(database: Database, table: Table, where: str = "TRUE", *values: Any) -> int:
    return database.rows(f"SELECT COUNT(*) FROM {table.name} WHERE {where}", *values)[0][0]  # noqa: S608


# Checking.

# What refers to something that is not there. Looks stay when a run is deleted, so theirs may be gone.
_ORPHANS = {
    "results for a run that does not exist": "FROM results WHERE run NOT IN (SELECT number FROM runs)",
    "reviews for a run that does not exist": "FROM feedback WHERE run NOT IN (SELECT number FROM runs)",
    "batches at a provider for a run that does not exist": (
        "FROM batches WHERE state <> 'ended' AND run NOT IN (SELECT id FROM runs)"
    ),
    "candidates whose parent does not exist": (
        "FROM candidates WHERE parent IS NOT NULL AND parent NOT IN (SELECT number FROM candidates)"
    ),
}
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


def check_store(store: Store, report: Report = _report_nothing) -> list[str]:
    database = store.database
    try:
        orphans = (
            (problem, database.rows(f"SELECT COUNT(*) {query}")[0][0])
            for problem, query in _ORPHANS.items()
        )
        return [
            *database.integrity_problems(),
            *(f"{problem}: {count:,}" for problem, count in orphans if count),
            *_wrong_counts(database),
            *_unreadable(database, report),
        ]
    except StoreError as error:  # damaged so much that it cannot be read to the end
        return [str(error)]


def _wrong_counts(database: Database) -> Iterator[str]:
    for run, trials, *counts in database.stream(_COUNTS):
        results, progress = counts[:3], [int(each) for each in counts[3:]]
        if results != progress:
            both = " and ".join(
                f"{p} passed, {f} failed, {e} errored" for p, f, e in (progress, results)
            )
            yield f"{run}: the counts do not match the results: {both}"
        if sum(results) > trials:
            yield f"{run}: {sum(results):,} results for {trials:,} trials"


def _unreadable(database: Database, report: Report) -> Iterator[str]:
    total = sum(_count(database, table) for table in (RUNS, RESULTS, REPLIES)) or 1
    done = unreadable = 0
    kinds: tuple[tuple[Table, str, Callable[[Row], object]], ...] = (
        (RUNS, "the plan of run {id}", lambda row: json.loads(row["plan"])),
        (
            RESULTS,
            "the result {key}",
            lambda row: result_from_row(row | {"detail": json.loads(row["detail"])}),
        ),
        (REPLIES, "the reply {key}", lambda row: json.loads(row["reply"])),
    )
    for table, name, read in kinds:
        for row in _read(database, table):
            done += 1
            if done % 500 == 0:
                report("reading the store", done / total)
            try:
                read(row)
            except (ValueError, KeyError, TypeError) as error:
                unreadable += 1
                if unreadable <= MAX_NAMED:
                    yield f"{name.format_map(row)} cannot be read: {type(error).__name__}: {error}"
    if unreadable > MAX_NAMED:
        yield f"{unreadable - MAX_NAMED:,} more that cannot be read"


# Pruning. Looks stay: they were had.


@dataclass(frozen=True, slots=True)
class Pruned:
    runs: int
    results: int
    replies: int
    busy: tuple[str, ...]  # runs that somebody is working on, and so were left alone


def choose_runs(
    store: Store,
    skill: str | None = None,
    *,
    older_than: timedelta | None = None,
    keep: int | None = None,
) -> list[Run]:
    """Those older than this and not among the latest so many of their skill."""
    latest = datetime.now(UTC) - (older_than or timedelta())
    counts: dict[str, int] = defaultdict(int)
    chosen: list[Run] = []
    for run in store.runs(skill, newest_first=True):
        counts[run.skill] += 1
        is_old = older_than is None or datetime.fromisoformat(run.created) < latest
        if is_old and (keep is None or counts[run.skill] > keep):
            chosen.append(run)
    return chosen[::-1]


def prune(store: Store, runs: Iterable[Run], reply_keys: Iterable[str]) -> Pruned:
    """Runs that somebody is working on are left alone."""
    deleted = results = replies = 0
    busy: list[str] = []
    for run in runs:
        try:
            with store.claim(run):
                now = store.run(run.id)
                store.delete_run(run)
        except UsageError:
            busy.append(run.id)
            continue
        deleted += 1
        results += now.passed + now.failed + now.errored
    for keys in chunks(reply_keys):
        store.database.execute(f"DELETE FROM replies WHERE key IN ({marks(keys)})", *keys)  # noqa: S608
        replies += len(keys)
    store.database.compact()
    return Pruned(deleted, results, replies, tuple(busy))


def unused_replies(store: Store, without: Iterable[Run] = ()) -> Iterator[str]:
    """Replies of students that no remaining run uses. What an older upskill's run may have used is kept."""
    gone = {run.number for run in without}
    used: set[str] = set()
    unknown_models: set[str] = set()
    for run, model, text in store.database.stream("SELECT run, model, detail FROM results"):
        if run in gone:
            continue
        detail: dict[str, Any] = json.loads(text)
        used.update(request[0] for request in detail.get("asked", ()))
        if "asked" not in detail:
            unknown_models.add(model)
    for key, model in store.database.stream("SELECT key, model FROM replies WHERE role IS NULL"):
        if key not in used and model not in unknown_models:
            yield key
