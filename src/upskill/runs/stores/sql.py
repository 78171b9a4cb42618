"""Runs, their results, and replies, as SQL for every kind of database (`Database`).

A trial's key is unique within a run, so a result is stored once, however often a run is killed and started again and
whoever else writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from sys import intern
from typing import Any

from upskill.errors import UsageError, did_you_mean
from upskill.runs.planning.plan import Plan, Result, Trial
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.runs.stores import Page, Run
from upskill.runs.stores.database import Transaction, repeatable
from upskill.runs.stores.key_filter import KeyFilter
from upskill.runs.stores.rows import (
    RESULT_COLUMNS,
    ResultRow,
    escape_surrogates,
    result_values,
    timestamp,
    to_json,
)
from upskill.runs.stores.sql_progress import SqlProgress
from upskill.runs.stores.sql_searches import SqlBatches, SqlCandidates, SqlLooks
from upskill.verdicts.outcome import Outcome

_LARGEST = 2**63 - 1  # whole number of a database
ROWS_AT_ONCE = 64
_LONGEST_KEPT = 200_000  # characters of a plan that is kept in memory
_KEYS_READ = 2_000_000  # of replies, when a store is opened; with more of them every key is asked for
KEYS_AT_ONCE = 500
RUNS_SEARCHED = 20  # of a skill, for results that can be used again
_SPENDERS = (
    ("student", "input_tokens + output_tokens + earlier_tokens", "cost_usd + earlier_cost_usd"),
    ("judge", "judge_tokens", "judge_cost_usd"),
)

_OUTCOME = (
    "model, case_id, arm, seed, passed, input_tokens, output_tokens, cost_usd, cached_tokens, seconds, checks_passed,"
    " checks, activated, turns, calls, tool_errors, leak <> '', bug, cause, snapshot"
)
_BOOLEANS = (4, 12, 16, 17)  # of the columns that an Outcome is read from
_NAMES = (0, 1, 2, 18, 19)  # of the same

_KEY_COLUMNS = ("run", "key", "model", "case_id", "arm", "seed")
_COLUMNS = ", ".join(RESULT_COLUMNS)
# An errored result gives way to a later one; a scored result stays as it is.
ADD_RESULT = f"""
INSERT INTO results ({_COLUMNS}) VALUES ({", ".join("?" * len(RESULT_COLUMNS))})
ON CONFLICT (run, key) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in RESULT_COLUMNS if name not in _KEY_COLUMNS)}
WHERE results.passed IS NULL
"""  # noqa: S608 - only the names of our own columns
_COPY_RESULT = f"""
INSERT INTO results ({_COLUMNS})
SELECT {", ".join("?" if name == "run" else name for name in RESULT_COLUMNS)} FROM results WHERE run = ? AND key = ?
ON CONFLICT DO NOTHING
"""  # noqa: S608 - only the names of our own columns
REPLY_COLUMNS = ("key", "model", "reply", "created", "role", "request")
ADD_REPLY = f"""
INSERT INTO replies ({", ".join(REPLY_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET model = excluded.model, reply = excluded.reply, created = excluded.created,
    role = excluded.role, request = excluded.request
"""  # noqa: S608 - only the names of our own columns
FORGET_REPLY = "DELETE FROM replies WHERE key = ?"


class SqlStore(SqlLooks, SqlProgress, SqlBatches, SqlCandidates):
    def __init__(self) -> None:
        # Which replies are stored, so that a miss, the usual case, needs no query. Replies that other processes add
        # later count as misses.
        self._reply_keys: KeyFilter | None = None
        self._all_reply_keys_known = False

    # Runs.

    def find_run(self, plan: Plan) -> Run | None:
        known = self._rows("SELECT id FROM runs WHERE fingerprint = ? ORDER BY number DESC LIMIT 1", plan.fingerprint)
        return self.run(known[0][0]) if known else None

    @repeatable
    def start_run(self, plan: Plan, version: str, *, fresh: bool = False) -> tuple[Run, bool]:
        name = f"{plan.skill.name}-{plan.fingerprint[:8]}"
        written = to_json(StoredPlan.of(plan).to_dict())
        # Looked up and added in one transaction: another process may be starting the same plan.
        with self._transaction() as db:
            known = db.execute(
                "SELECT id FROM runs WHERE fingerprint = ? ORDER BY number", (plan.fingerprint,)
            ).fetchall()
            found = bool(known) and not fresh
            run_id = known[-1][0] if found else free_id(db, name, len(known))
            if not found:
                db.execute(
                    "INSERT INTO runs (id, fingerprint, skill, created, version, trials, plan) VALUES (?,?,?,?,?,?,?)",
                    (run_id, plan.fingerprint, plan.skill.name, timestamp(), version, len(plan), written),
                )
        return self.run(run_id), found

    @repeatable
    def annotate(self, run: Run, **settings: Any) -> Run:
        plan = replace(run.plan, **settings)
        if plan == run.plan:
            return run
        with self._transaction() as db:
            db.execute("UPDATE runs SET plan = ? WHERE number = ?", (to_json(plan.to_dict()), run.number))
        return self.run(run.id)

    def run(self, name: str) -> Run:
        if name == "last":
            rows = self._rows("SELECT number FROM runs ORDER BY number DESC LIMIT 1")
        else:
            rows = self._rows("SELECT number FROM runs WHERE id = ?", name) or self._rows(
                "SELECT number FROM runs WHERE substr(id, 1, ?) = ? ORDER BY number", len(name), name
            )
        if len(rows) != 1:
            known = [row[0] for row in self._rows("SELECT id FROM runs ORDER BY number DESC LIMIT 200")]
            what = f"{len(rows)} runs start with {name!r}" if rows else f"no run is called {name!r}"
            hint = did_you_mean(name, known, otherwise="`upskill runs` lists them.")
            raise UsageError(f"{self.location or 'the store in memory'}: {what}", hint)
        return _run(self._rows(_runs_query("number = ?"), rows[0][0])[0])

    def runs(self, skill: str | None = None, *, newest_first: bool = False) -> Iterator[Run]:
        where, values = ("TRUE", ()) if skill is None else ("skill = ?", (skill,))
        return map(_run, self._stream(_runs_query(where, "DESC" if newest_first else "ASC"), *values))

    def latest_runs(self, count: int, before: int | None = None) -> list[Run]:
        where = "runs.number IN (SELECT number FROM runs WHERE number < ? ORDER BY number DESC LIMIT ?)"
        return list(map(_run, self._rows(_runs_query(where, "DESC"), before or _LARGEST, count)))

    def skills(self) -> dict[str, tuple[int, str]]:
        rows = self._rows(
            "SELECT runs.skill, found.count, runs.id FROM runs JOIN"
            " (SELECT COUNT(*) AS count, MAX(number) AS latest FROM runs GROUP BY skill) AS found ON number = latest"
        )
        return {skill: (count, latest) for skill, count, latest in sorted(rows)}

    def count_runs(self) -> int:
        return self._rows("SELECT COUNT(*) FROM runs")[0][0]

    @repeatable
    def delete_run(self, run: Run) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM runs WHERE number = ?", (run.number,))

    # Results.

    async def add_result(self, run: Run, result: Result) -> None:
        await self._write(ADD_RESULT, result_values(run.number, result))

    def find_results(self, skill: str, keys: Iterable[str]) -> dict[str, int]:
        plans = self._stream("SELECT number, plan FROM runs WHERE skill = ? ORDER BY number DESC", skill)
        runs = list(islice((number for number, plan in plans if _is_whole(_read_plan(plan))), RUNS_SEARCHED))
        found: dict[str, int] = {}
        left = iter(keys)
        while runs and (some := list(islice(left, KEYS_AT_ONCE))):
            query = f"""
                SELECT key, MIN(run) FROM results
                WHERE run IN ({",".join("?" * len(runs))}) AND key IN ({",".join("?" * len(some))})
                    AND passed IS NOT NULL AND leak = ''
                GROUP BY key
            """  # noqa: S608 - only fixed words
            found |= dict(self._rows(query, *runs, *some))
        return found

    @repeatable
    def copy_results(self, run: Run, found: Mapping[str, int]) -> None:
        with self._transaction() as db:
            db.executemany(_COPY_RESULT, [(run.number, number, key) for key, number in found.items()])

    def results(
        self,
        run: Run,
        case: str | None = None,
        model: str | None = None,
        arm: str | None = None,
        *,
        failed: bool = False,
        page: Page | None = None,
    ) -> Iterator[Result]:
        # Keys come from an index, which has them in this order, and rows are fetched as they are needed.
        given = {"run = ?": run.number, "case_id = ?": case, "model = ?": model, "arm = ?": arm}
        conditions = {words: value for words, value in given.items() if value is not None}
        where = " AND ".join([*conditions, *(["passed IS NOT TRUE"] if failed else [])])
        some_of = ("LIMIT ? OFFSET ?", (page.limit, page.offset)) if page else ("", ())
        keys = self._stream(
            f"SELECT key FROM results WHERE {where} ORDER BY case_id, model, seed, arm {some_of[0]}",  # noqa: S608
            *(*conditions.values(), *some_of[1]),
        )
        while some := [row[0] for row in islice(keys, ROWS_AT_ONCE)]:
            query = f"SELECT {_COLUMNS} FROM results WHERE run = ? AND key IN ({','.join('?' * len(some))})"  # noqa: S608
            found = {row.key: row for row in (ResultRow(*row) for row in self._rows(query, run.number, *some))}
            yield from (found[key].to_result() for key in some if key in found)

    def errored(self, run: Run) -> Iterator[Result]:
        query = f"SELECT {_COLUMNS} FROM {self.ERRORED} WHERE run = ? AND passed IS NULL"  # noqa: S608
        rows = self._stream(query, run.number)
        return (ResultRow(*row).to_result() for row in rows)

    def result(self, run: Run, trial: Trial) -> Result | None:
        # Its key comes from the index that has all of this; asked for the whole row, SQLite would look through the run.
        keys = self._rows(
            "SELECT key FROM results WHERE run = ? AND case_id = ? AND model = ? AND seed = ? AND arm = ?",
            *(run.number, trial.case, trial.model, trial.seed, trial.arm),
        )
        query = f"SELECT {_COLUMNS} FROM results WHERE run = ? AND key = ?"  # noqa: S608
        rows = self._rows(query, run.number, keys[0][0]) if keys else []
        return ResultRow(*rows[0]).to_result() if rows else None

    def scored_under(self, run: Run, keys: Sequence[str]) -> Iterator[Result]:
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[start : start + KEYS_AT_ONCE]
            under = f"key IN ({','.join('?' * len(some))}) AND passed IS NOT NULL"
            query = f"SELECT {_COLUMNS} FROM results WHERE run = ? AND {under}"  # noqa: S608
            yield from (ResultRow(*row).to_result() for row in self._rows(query, run.number, *some))

    def outcomes(
        self, run: Run, case: str | None = None, *, after: Trial | None = None, limit: int = -1
    ) -> Iterator[Outcome]:
        # All columns are in the index `results_for_reports`, so that no trace is read.
        given: dict[str, tuple[Any, ...]] = {"run = ?": (run.number,)}
        if case is not None:
            given["case_id = ?"] = (case,)
        if after and case is not None:
            given["(model, seed, arm) > (?, ?, ?)"] = (after.model, after.seed, after.arm)
        elif after:
            given["(case_id, model, seed, arm) > (?, ?, ?, ?)"] = (after.case, after.model, after.seed, after.arm)
        query = f"SELECT {_OUTCOME} FROM results WHERE {' AND '.join(given)} ORDER BY case_id, model, seed, arm"  # noqa: S608
        values = chain(*given.values())  # a page is read at once, as opening a connection for it would take longer
        rows = self._stream(query, *values) if limit < 0 else self._rows(f"{query} LIMIT {limit}", *values)
        for row in rows:
            values = list(row)
            for place in _BOOLEANS:  # which SQLite has not
                values[place] = None if values[place] is None else values[place] == 1
            for place in _NAMES:  # a few of them, again and again: a million outcomes share them
                values[place] = intern(values[place])
            yield Outcome(*values)

    def scores(self, run: Run, model: str, arm: str) -> dict[str, tuple[int, int]]:
        query = (
            "SELECT case_id, COUNT(CASE WHEN passed THEN 1 END), COUNT(passed) FROM results"
            " WHERE run = ? AND model = ? AND arm = ? GROUP BY case_id HAVING COUNT(passed) > 0"
        )
        return {case: (passed, scored) for case, passed, scored in self._rows(query, run.number, model, arm)}

    def scored_in_each(self, run: Run) -> dict[tuple[str, str, str], int]:
        query = "SELECT model, case_id, arm, COUNT(passed) FROM results WHERE run = ? GROUP BY case_id, model, arm"
        return {(model, case, arm): count for model, case, arm, count in self._rows(query, run.number)}

    def scored(self, run: Run, case: str = "") -> Iterator[tuple[str, str, str, int]]:
        query = "SELECT model, case_id, arm, seed FROM results WHERE run = ? AND passed IS NOT NULL"
        one = (" AND case_id = ?", (case,)) if case else ("", ())
        return map(tuple, self._stream(query + one[0], run.number, *one[1]))

    def count_calls(self, run: Run) -> int:
        students, judges = "CASE WHEN turns > 1 THEN turns ELSE 1 END", "CASE WHEN judge_tokens > 0 THEN 1 ELSE 0 END"
        query = f"SELECT COALESCE(SUM({students} + {judges}), 0) FROM results WHERE run = ?"  # noqa: S608
        return int(self._rows(query, run.number)[0][0])

    def spent(self, *runs: Run) -> dict[str, tuple[int, float | None]]:
        spent: dict[str, tuple[int, float | None]] = {}
        for role, tokens, cost in _SPENDERS:
            unknown = f"CASE WHEN {cost} IS NULL THEN 1 ELSE 0 END"
            each = f"MAX({tokens}) AS tokens, MAX({cost}) AS cost, MAX({unknown}) AS unknown"
            if len(runs) == 1:  # where each key is there once
                each = f"{tokens} AS tokens, {cost} AS cost, {unknown} AS unknown"
            query = f"""
                SELECT COALESCE(SUM(tokens), 0), COALESCE(SUM({self.EXACT.format("cost")}), 0), MAX(unknown) FROM (
                    SELECT {each} FROM results
                    WHERE run IN ({",".join("?" * len(runs))}) {"GROUP BY key" if len(runs) > 1 else ""}
                ) AS each_trial
            """  # noqa: S608 - only the fixed words above
            used, dollars, is_unknown = self._rows(query, *(run.number for run in runs))[0] if runs else (0, 0, 0)
            if used:
                spent[role] = (int(used), None if is_unknown else float(dollars))
        return spent

    def errors(self, run: Run, limit: int = 100) -> list[tuple[str, str, int]]:
        query = f"""
            SELECT model, error, COUNT(*) FROM {self.ERRORED} WHERE run = ? AND passed IS NULL AND NOT bug
            GROUP BY model, error ORDER BY COUNT(*) DESC, model, error LIMIT ?
        """  # noqa: S608 - only fixed words
        return self._rows(query, run.number, limit)

    def snapshots(self, run: Run) -> dict[str, dict[str, int]]:
        rows = self._rows(
            "SELECT model, snapshot, COUNT(*) FROM results WHERE run = ? AND snapshot <> '' GROUP BY model, snapshot"
            " ORDER BY model, COUNT(*) DESC, snapshot",
            run.number,
        )
        found: dict[str, dict[str, int]] = {}
        for model, snapshot, trials in rows:
            found.setdefault(model, {})[snapshot] = trials
        return found

    def leaks(self, run: Run) -> list[tuple[Trial, str]]:
        rows = self._rows(
            "SELECT model, case_id, arm, seed, leak FROM results WHERE run = ? AND leak <> ''"
            " ORDER BY model, case_id, seed, arm",
            run.number,
        )
        return [(Trial(*trial), leak) for *trial, leak in rows]

    def bugs(self, run: Run) -> Iterator[tuple[Trial, str, str]]:
        query = f"""
            SELECT model, case_id, arm, seed, error, detail FROM {self.ERRORED}
            WHERE run = ? AND passed IS NULL AND bug ORDER BY model, case_id, seed, arm
        """  # noqa: S608 - only fixed words
        rows = self._stream(query, run.number)
        return ((Trial(*trial), error, json.loads(detail)["traceback"]) for *trial, error, detail in rows)

    # Replies.

    def reply(self, key: str) -> str | None:
        if self._reply_keys is None:
            found, rows = KeyFilter(), self._stream("SELECT key FROM replies LIMIT ?", _KEYS_READ + 1)
            for row in islice(rows, _KEYS_READ):
                found.add(row[0])
            self._reply_keys, self._all_reply_keys_known = found, next(rows, None) is None
        if key not in self._reply_keys and self._all_reply_keys_known:
            return None
        rows = self._rows("SELECT reply FROM replies WHERE key = ?", key)
        return rows[0][0] if rows else None

    async def add_reply(
        self, key: str, model: str, reply: str, role: str = "", request: str = "", *, wait: bool = True
    ) -> None:
        if self._reply_keys is not None:
            self._reply_keys.add(key)
        row = (key, model, escape_surrogates(reply), timestamp(), role or None, escape_surrogates(request) or None)
        if wait:
            await self._write(ADD_REPLY, row)
        else:
            self._write_later(ADD_REPLY, row)

    async def forget_reply(self, key: str) -> None:
        await self._write(FORGET_REPLY, (key,))

    def requests(self) -> Iterator[tuple[str, str, str]]:
        return self._stream(
            "SELECT COALESCE(role, ''), request, reply FROM replies WHERE request IS NOT NULL ORDER BY created, key"
        )


def _runs_query(where: str, order: str = "ASC") -> str:
    # Grouping by the primary key lets the database add up run by run, as the rows are asked for.
    return f"""
        SELECT runs.number, runs.id, runs.fingerprint, runs.skill, runs.created, runs.trials, runs.plan,
               COALESCE(SUM(passed), 0), COALESCE(SUM(failed), 0), COALESCE(SUM(errored), 0)
        FROM runs LEFT JOIN progress ON progress.run = runs.number WHERE {where}
        GROUP BY runs.number ORDER BY runs.number {order}
    """  # noqa: S608 - only fixed words


def _run(row: tuple[Any, ...]) -> Run:
    number, run_id, fingerprint, skill, created, trials, plan, *counts = row
    return Run(number, run_id, fingerprint, skill, created, trials, _read_plan(plan), *map(int, counts))


def _read_plan(text: str) -> StoredPlan:
    return _read_again(text) if len(text) <= _LONGEST_KEPT else StoredPlan.from_dict(json.loads(text))


@lru_cache(maxsize=64)
def _read_again(text: str) -> StoredPlan:
    # The live page lists the same runs all the time, and reading their plans would be most of its work.
    return StoredPlan.from_dict(json.loads(text))


def _is_whole(plan: StoredPlan) -> bool:
    """Whether all of a suite was run, by models and not from a file."""
    return plan.suite.part is None and not plan.replay


def free_id(db: Transaction, name: str, known: int = 0) -> str:
    """`name`, or the first of `name-2`, `name-3`, … that no run has."""
    taken = {row[0] for row in db.execute("SELECT id FROM runs WHERE substr(id, 1, ?) = ?", (len(name), name))}
    number = known + 1
    while (run_id := f"{name}-{number}" if number > 1 else name) in taken:
        number += 1
    return run_id
