"""Copying a store into another, of any kind: again after an interruption, and again when the first has grown.

Runs are told apart by what was planned and when, so that those of several people fit into one store; one whose id is
taken there gets the next free one. What the other store has is never overwritten by anything worse.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from upskill.errors import StoreError, UsageError
from upskill.runs.stores import Store
from upskill.runs.stores.database import Tell, tell_nobody
from upskill.runs.stores.rows import LOOK_COLUMNS, RESULT_COLUMNS, optional_bool
from upskill.runs.stores.sql import ADD_REPLY, ADD_RESULT, REPLY_COLUMNS, SqlStore, free_id

ROWS_AT_ONCE = 500
RUN_COLUMNS = ("id", "fingerprint", "skill", "created", "version", "trials", "plan")
BATCH_COLUMNS = ("token", "run", "model", "url", "id", "submitted", "state", "keys")
CANDIDATE_COLUMNS = ("search", "fingerprint", "skill", "parent", "created", "files", "accepted", "note", "verdict")
FEEDBACK_COLUMNS = ("run", "case_id", "model", "seed", "arm", "verdict", "note", "created")
_BOOLEANS = tuple(RESULT_COLUMNS.index(name) for name in ("passed", "activated", "bug"))
_KEY, _PASSED = RESULT_COLUMNS.index("key"), RESULT_COLUMNS.index("passed")


@dataclass(frozen=True, slots=True)
class Copied:
    """How many there are of each, and how many of them were new."""

    runs: int = 0
    new_runs: int = 0
    results: int = 0
    new_results: int = 0
    replies: int = 0
    new_replies: int = 0


def copy_store(source: Store, target: Store, tell: Tell = tell_nobody) -> Copied:
    """Copy all that is stored; StoreError if something that was read is not there in the end."""
    for store in (source, target):
        if not isinstance(store, SqlStore):
            raise UsageError(f"{store.location}: cannot be copied", "Folders and postgresql:// stores can.")
    one, two = cast("SqlStore", source), cast("SqlStore", target)
    if one.location == two.location:
        raise UsageError(f"{one.location}: cannot be copied into itself", "Name another place to copy to.")
    return asyncio.run(_copy(one, two, tell))


async def _copy(source: SqlStore, target: SqlStore, tell: Tell) -> Copied:
    runs = _copy_runs(source, target)
    whole = source.count("results") + source.count("replies") or 1
    done, results, new_results = 0, 0, 0
    for run in runs:
        before = results
        for rows in _chunks(source.select(f"{_select('results', RESULT_COLUMNS)} WHERE run = ?", run.number)):
            new_results += await _add_results(target, run.target, rows)
            results += len(rows)
            done += len(rows)
            tell(f"results of {run.id}", done / whole)
        if target.count("results", "run = ?", run.target) < results - before:
            raise StoreError(f"{target.location}: has fewer results of {run.id} than were copied", "Copy it again.")
    replies, new_replies = 0, 0
    for rows in _chunks(source.select(_select("replies", REPLY_COLUMNS))):
        known = _known(target, "key", "replies", [row[0] for row in rows])
        missing = [row for row in rows if row[0] not in known]
        await asyncio.gather(*(target.write(ADD_REPLY, tuple(row)) for row in missing))
        new_replies += len(missing)
        replies += len(rows)
        tell("replies", (done + replies) / whole)
    if target.count("replies") < replies:
        raise StoreError(f"{target.location}: has fewer replies than were copied", "Copy it again.")
    _copy_searches(source, target, runs)
    return Copied(len(runs), sum(run.is_new for run in runs), results, new_results, replies, new_replies)


# Runs.


@dataclass(frozen=True, slots=True)
class _Run:
    number: int
    id: str
    target: int  # its number there
    target_id: str
    is_new: bool


def _copy_runs(source: SqlStore, target: SqlStore) -> list[_Run]:
    """The runs of the source, each with the one that it is in the target."""
    plans: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for number, run_id, fingerprint, created in source.select(
        "SELECT number, id, fingerprint, created FROM runs ORDER BY number"
    ):
        plans[fingerprint, created].append((number, run_id))
    found: list[_Run] = []
    for (fingerprint, created), ours in plans.items():
        known: dict[str, int] = dict(
            target.select(
                "SELECT id, number FROM runs WHERE fingerprint = ? AND created = ? ORDER BY number",
                *(fingerprint, created),
            )
        )
        same = {run_id for _, run_id in ours if run_id in known}
        renamed = iter([run_id for run_id in known if run_id not in same])
        for number, run_id in ours:
            there = run_id if run_id in same else next(renamed, "")
            is_new = not there
            if is_new:
                there = _add_run(source, target, number)
                known[there] = next(iter(target.select("SELECT number FROM runs WHERE id = ?", there)))[0]
            found.append(_Run(number, run_id, known[there], there, is_new))
    return sorted(found, key=lambda run: run.number)


def _add_run(source: SqlStore, target: SqlStore, number: int) -> str:
    row = dict(
        zip(RUN_COLUMNS, *source.select(f"{_select('runs', RUN_COLUMNS)} WHERE number = ?", number), strict=True)
    )
    with target.transaction() as db:
        row["id"] = free_id(db, row["id"])
        db.execute(_insert("runs", RUN_COLUMNS), list(row.values()))
    return row["id"]


async def _add_results(target: SqlStore, run: int, rows: Sequence[Sequence[Any]]) -> int:
    known = _known(target, "key, passed", "results", [row[_KEY] for row in rows], "run = ? AND", run)
    missing = [
        row for row in rows if known.get(row[_KEY]) is None and (row[_KEY] not in known or row[_PASSED] is not None)
    ]
    await asyncio.gather(*(target.write(ADD_RESULT, (run, *_with_booleans(row)[1:])) for row in missing))
    return len(missing)


def _with_booleans(row: Sequence[Any]) -> list[Any]:
    """Of a row of SQLite, which has none."""
    values = list(row)
    for place in _BOOLEANS:
        values[place] = optional_bool(values[place])
    return values


# All else.


def _copy_searches(source: SqlStore, target: SqlStore, runs: Sequence[_Run]) -> None:
    ids, numbers = {run.id: run.target_id for run in runs}, {run.number: run.target for run in runs}
    looks = source.select(f"{_select('looks', LOOK_COLUMNS)} ORDER BY number")
    _add(target, f"{_insert('looks', LOOK_COLUMNS)} ON CONFLICT DO NOTHING", _renamed(looks, LOOK_COLUMNS, ids))
    batches = source.select(_select("batches", BATCH_COLUMNS))
    _add(
        target,
        f"{_insert('batches', BATCH_COLUMNS)} ON CONFLICT (token) DO UPDATE SET id = excluded.id,"
        " state = excluded.state, keys = excluded.keys WHERE batches.state <> 'ended'",
        _renamed(batches, BATCH_COLUMNS, ids),
    )
    said = source.select(_select("feedback", FEEDBACK_COLUMNS))
    _add(
        target,
        f"{_insert('feedback', FEEDBACK_COLUMNS)} ON CONFLICT (run, case_id, model, seed, arm) DO UPDATE SET"
        " verdict = excluded.verdict, note = excluded.note, created = excluded.created"
        " WHERE excluded.created > feedback.created",
        ((numbers[run], *rest) for run, *rest in said if run in numbers),
    )
    _copy_candidates(source, target)


def _renamed(rows: Iterator[Any], columns: Sequence[str], ids: Mapping[str, str]) -> Iterator[list[Any]]:
    """With the ids that runs have in the other store; of a run that was deleted, with its own."""
    place = columns.index("run")
    for row in rows:
        yield [*row[:place], ids.get(row[place], row[place]), *row[place + 1 :]]


def _copy_candidates(source: SqlStore, target: SqlStore) -> None:
    statement = (
        f"{_insert('candidates', CANDIDATE_COLUMNS)} ON CONFLICT (search, fingerprint) DO UPDATE SET"
        " accepted = excluded.accepted, note = excluded.note, verdict = excluded.verdict"
        " WHERE candidates.accepted IS NULL"
    )
    numbers: dict[int, int] = {}
    for number, *row in source.select(f"SELECT number, {', '.join(CANDIDATE_COLUMNS)} FROM candidates ORDER BY number"):  # noqa: S608
        values = dict(zip(CANDIDATE_COLUMNS, row, strict=True))
        values |= {"parent": numbers.get(values["parent"]), "accepted": optional_bool(values["accepted"])}
        with target.transaction() as db:
            db.execute(statement, list(values.values()))
        there = target.select("SELECT number FROM candidates WHERE search = ? AND fingerprint = ?", *row[:2])
        numbers[number] = next(iter(there))[0]


# Tables.


def _select(table: str, columns: Sequence[str]) -> str:
    return f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608 - only names of our own


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608


def _chunks(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield some


def _add(target: SqlStore, statement: str, rows: Iterator[Sequence[Any]]) -> None:
    while some := list(islice(rows, ROWS_AT_ONCE)):
        with target.transaction() as db:
            db.executemany(statement, some)


def _known(
    target: SqlStore, what: str, table: str, keys: Sequence[str], where: str = "", *values: Any
) -> dict[str, Any]:
    """Of these keys, those that are there, with what else was asked for."""
    query = f"SELECT {what} FROM {table} WHERE {where} key IN ({', '.join('?' * len(keys))})"  # noqa: S608
    return {row[0]: row[-1] for row in target.select(query, *values, *keys)}
