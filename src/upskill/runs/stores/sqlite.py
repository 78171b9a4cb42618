"""The Store keeps runs and results in SQLite: every result is on disk before anyone is told about it.

One writer thread commits whatever has arrived since its last commit (group commit), and each caller waits for the
commit that has its own result. A trial's key is unique within a run, so a result is there once, however often a run
is killed and started again. Reading needs no lock (WAL).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from upskill.errors import StoreError, UsageError, did_you_mean
from upskill.runs.plan import Plan, Result, Trial
from upskill.runs.stores.rows import (
    Batch,
    Candidate,
    Run,
    as_json,
    as_utf8,
    now,
    read_result,
    row_of,
    truth,
    write_files,
)
from upskill.runs.stores.tables import migrate, switch_to_wal, transaction
from upskill.skills import Skill
from upskill.verdicts.outcome import Outcome

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

FILE = "upskill.db"
MOST_KEYS = 200_000  # of replies, held in memory
_SPENDERS = (("student", "input_tokens + output_tokens", "cost_usd"), ("judge", "judge_tokens", "judge_cost_usd"))
ROOM = "Make room on the disk, then run the same command: it goes on from what was kept."


# An errored result gives way to a later one; anything that was scored stays as it is.
_ADD = """
INSERT INTO results VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
ON CONFLICT (run, key) DO UPDATE SET
    passed = excluded.passed, input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
    cached_tokens = excluded.cached_tokens, cost_usd = excluded.cost_usd, seconds = excluded.seconds,
    checks_passed = excluded.checks_passed, checks = excluded.checks,
    judge_tokens = excluded.judge_tokens, judge_cost_usd = excluded.judge_cost_usd,
    finished = excluded.finished, error = excluded.error, detail = excluded.detail,
    activated = excluded.activated, turns = excluded.turns, calls = excluded.calls,
    tool_errors = excluded.tool_errors, leak = excluded.leak
WHERE results.passed IS NULL
"""

_FORGET_REPLY = "DELETE FROM replies WHERE key = ?"
_ADD_REPLY = "INSERT OR REPLACE INTO replies VALUES (?,?,?,?,?,?)"


class Store:
    def __init__(self, folder: str | Path | None) -> None:
        """Open the store of a runs folder; None keeps everything in memory and forgets it at the end."""
        self.path = Path(folder) / FILE if folder is not None else None
        try:
            if self.path:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._connect()
            # Readers have a connection of their own, so that looking something up never waits for a commit.
            self._reader = self._connect() if self.path else self._db
        except (sqlite3.Error, OSError) as error:
            raise UsageError(
                f"{self.path}: cannot be used as a store: {error}", "Choose another folder with --runs-dir."
            ) from error
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # held while writing
        self._read_lock = threading.Lock() if self.path else self._lock
        self._writer: threading.Thread | None = None
        # Which replies are there, so that a miss, the usual case, asks nobody. Another process's newest are missed too.
        self._replies: set[str] | None = None
        self._all_replies_known = False

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path or ":memory:", timeout=30, check_same_thread=False, isolation_level=None)
        try:
            switch_to_wal(db)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            # Keys are random, so every result touches other pages: in long runs most of the work would be moving them.
            db.execute("PRAGMA cache_size = -16000")  # KiB
            db.execute("PRAGMA wal_autocheckpoint = 4000")  # pages
            migrate(db, str(self.path))
        except BaseException:
            db.close()
            raise
        return db

    def find_run(self, plan: Plan) -> Run | None:
        """The latest run of this plan, where there is one."""
        known = self._rows("SELECT id FROM runs WHERE fingerprint = ? ORDER BY number", plan.fingerprint)
        return self.run(known[-1][0]) if known else None

    def start_run(self, plan: Plan, version: str, *, fresh: bool = False) -> tuple[Run, bool]:
        """The run of this plan, and whether it was there already. `fresh` starts another one beside it."""
        name = f"{plan.skill.name}-{plan.fingerprint[:8]}"
        written = as_json(plan.plain())
        # Looked up and added in one transaction: another process may be starting the same plan.
        with self._writing() as db:
            known = db.execute(
                "SELECT id FROM runs WHERE fingerprint = ? ORDER BY number", (plan.fingerprint,)
            ).fetchall()
            found = bool(known) and not fresh
            run_id = known[-1][0] if found else _free_id(db, name, len(known))
            if not found:
                db.execute(
                    "INSERT INTO runs (id, fingerprint, skill, created, version, trials, plan) VALUES (?,?,?,?,?,?,?)",
                    (run_id, plan.fingerprint, plan.skill.name, now(), version, len(plan), written),
                )
        return self.run(run_id), found

    def note(self, run: Run, **said: Any) -> Run:
        """Keep with a run how it is looked at; what is not part of its trials."""
        if any(run.plan.get(key) != value for key, value in said.items()):
            with self._writing() as db:
                db.execute("UPDATE runs SET plan = ? WHERE number = ?", (as_json(run.plan | said), run.number))
        return self.run(run.id)

    def run(self, name: str) -> Run:
        """A run by its id, the beginning of it, or `last`."""
        if name == "last":
            rows = self._rows("SELECT id FROM runs ORDER BY number DESC LIMIT 1")
        else:
            rows = self._rows("SELECT id FROM runs WHERE id = ?", name) or self._rows(
                "SELECT id FROM runs WHERE substr(id, 1, ?) = ? ORDER BY number", len(name), name
            )
        if len(rows) != 1:
            known = [row[0] for row in self._rows("SELECT id FROM runs ORDER BY number DESC LIMIT 200")]
            what = f"{len(rows)} runs start with {name!r}" if rows else f"no run is called {name!r}"
            hint = did_you_mean(name, known, otherwise="`upskill runs` lists them.")
            raise UsageError(f"{self.path}: {what}", hint)
        return next(self.runs(rows[0][0]))

    def runs(self, name: str | None = None) -> Iterator[Run]:
        """Every run, oldest first, with its counts."""
        where = "WHERE runs.id = ?" if name else ""
        query = f"""
            SELECT runs.number, runs.id, runs.fingerprint, runs.skill, runs.created, runs.trials, runs.plan,
                   COALESCE(SUM(results.passed = 1), 0), COALESCE(SUM(results.passed = 0), 0),
                   COALESCE(SUM(results.key IS NOT NULL AND results.passed IS NULL), 0)
            FROM runs LEFT JOIN results ON results.run = runs.number {where}
            GROUP BY runs.number ORDER BY runs.number
        """  # noqa: S608 - only the fixed words above
        for number, run_id, fingerprint, skill, created, trials, plan, *counts in self._rows(
            query, *([name] if name else [])
        ):
            yield Run(number, run_id, fingerprint, skill, created, trials, json.loads(plan), *counts)

    def done(self, run: Run) -> set[str]:
        """The keys of the trials that need not be run again: those with a score."""
        return {
            row[0] for row in self._rows("SELECT key FROM results WHERE run = ? AND passed IS NOT NULL", run.number)
        }

    def outcomes(self, run: Run) -> list[Outcome]:
        """The arithmetic part of every result, from an index alone."""
        rows = self._rows(
            "SELECT model, case_id, arm, seed, passed, input_tokens, output_tokens, cost_usd, cached_tokens, seconds,"
            " checks_passed, checks, activated, turns, calls, tool_errors, leak <> ''"
            " FROM results WHERE run = ?",
            run.number,
        )
        return [
            Outcome(
                *(model, case, arm, seed, truth(passed)),
                *numbers,
                activated=truth(activated),
                turns=turns,
                calls=calls,
                tool_errors=errors,
                leaked=bool(leaked),
            )
            for model, case, arm, seed, passed, *numbers, activated, turns, calls, errors, leaked in rows
        ]

    def spent(self, run: Run) -> dict[str, tuple[int, float | None]]:
        """Tokens and dollars of a run by role. None: a price is not known."""
        spent: dict[str, tuple[int, float | None]] = {}
        for role, tokens, cost in _SPENDERS:
            row = self._rows(
                f"SELECT COALESCE(SUM({tokens}), 0), TOTAL({cost}), SUM({cost} IS NULL) FROM results WHERE run = ?",  # noqa: S608
                run.number,
            )[0]
            if row[0]:
                spent[role] = (row[0], None if row[2] else row[1])
        return spent

    def spent_in_all(self, runs: Iterable[Run]) -> dict[str, tuple[int, float | None]]:
        """The same of several runs together. A trial that is in more than one of them was paid for once."""
        numbers = [run.number for run in runs]
        spent: dict[str, tuple[int, float | None]] = {}
        for role, tokens, cost in _SPENDERS:
            trials = self._rows(
                f"SELECT MAX({tokens}), MAX({cost}), MAX({cost} IS NULL) FROM results"  # noqa: S608
                f" WHERE run IN ({','.join('?' * len(numbers))}) GROUP BY key",
                *numbers,
            )
            if used := sum(row[0] for row in trials):
                unknown = any(row[2] for row in trials)
                spent[role] = (used, None if unknown else math.fsum(row[1] for row in trials))
        return spent

    def errors(self, run: Run, most: int = 100) -> list[tuple[str, str, int]]:
        """The distinct errors of a run, most frequent first: model, message, how many trials."""
        rows = self._rows(
            "SELECT model, error, COUNT(*) FROM results WHERE run = ? AND passed IS NULL"
            " GROUP BY model, error ORDER BY COUNT(*) DESC, model, error LIMIT ?",
            run.number,
            most,
        )
        return [(row[0], row[1], row[2]) for row in rows]

    def leaks(self, run: Run) -> list[tuple[Trial, str]]:
        """The trials that saw a skill that was kept from them, and what shows it."""
        rows = self._rows(
            "SELECT model, case_id, arm, seed, leak FROM results WHERE run = ? AND leak <> ''"
            " ORDER BY model, case_id, seed, arm",
            run.number,
        )
        return [(Trial(model, case, arm, seed), leak) for model, case, arm, seed, leak in rows]

    def results(self, run: Run, case: str | None = None, model: str | None = None) -> Iterator[Result]:
        """Whole results, in the order of case, model, seed and arm."""
        rows = self._rows(
            "SELECT model, case_id, arm, seed, key, passed, error, detail, activated, leak, seconds FROM results"
            " WHERE run = ? AND (? IS NULL OR case_id = ?) AND (? IS NULL OR model = ?)"
            " ORDER BY case_id, model, seed, arm",
            run.number,
            case,
            case,
            model,
            model,
        )
        for row in rows:
            yield read_result(row)

    async def add(self, run: Run, result: Result) -> None:
        """Keep a result; returns when it is on disk."""
        await self._keep(_ADD, row_of(run.number, result))

    def reply(self, key: str) -> str | None:
        """A stored reply, as the cache wrote it."""
        if self._replies is None:
            rows = self._rows("SELECT key FROM replies LIMIT ?", MOST_KEYS + 1)
            self._replies = {row[0] for row in rows}
            self._all_replies_known = len(rows) <= MOST_KEYS
        if key not in self._replies and self._all_replies_known:
            return None
        rows = self._rows("SELECT reply FROM replies WHERE key = ?", key)
        return rows[0][0] if rows else None

    async def add_reply(
        self, key: str, model: str, reply: str, role: str = "", request: str = "", *, wait: bool = True
    ) -> None:
        """Keep a reply under the hash of the request that it answers; returns when it is on disk, unless told not to
        wait: then it is there at the latest when the next thing is that somebody waits for.

        The request itself is kept where it is given: of everyone but students, whose trials say what they were asked.
        """
        said = as_utf8(request) if request else None
        if self._replies is not None:
            self._replies.add(key)
        await self._keep(_ADD_REPLY, (key, model, as_utf8(reply), now(), role or None, said), wait=wait)

    def requests(self) -> list[tuple[str, str, str]]:
        """What teachers, test writers and judges were asked: the role, the request and the reply, as JSON."""
        rows = self._rows("SELECT role, request, reply FROM replies WHERE request IS NOT NULL ORDER BY created, key")
        return [(role or "", request, reply) for role, request, reply in rows]

    async def forget_reply(self, key: str) -> None:
        await self._keep(_FORGET_REPLY, (key,))

    def open_batches(self, url: str) -> list[Batch]:
        """The batches at this URL that have something to collect, of whatever run: a reply is anyone's."""
        rows = self._rows(
            "SELECT token, model, url, id, submitted, keys FROM batches WHERE state != 'ended' AND url = ?"
            " ORDER BY submitted, token",
            url,
        )
        return [
            Batch(token, model, url, provider_id, submitted, tuple(json.loads(keys)))
            for token, model, url, provider_id, submitted, keys in rows
        ]

    def begin_batch(self, run: str, model: str, url: str, keys: Iterable[str]) -> Batch:
        """Note that these requests are about to be submitted; what is known of them is on disk before they are."""
        batch = Batch(uuid4().hex, model, url, "", now(), tuple(keys))
        with self._writing() as db:
            db.execute(
                "INSERT INTO batches VALUES (?,?,?,?,?,?,?,?)",
                (batch.token, run, model, url, "", batch.submitted, "submitting", as_json(batch.keys)),
            )
        return batch

    def confirm_batch(self, batch: Batch, provider_id: str) -> Batch:
        """The provider has it, under this id."""
        with self._writing() as db:
            db.execute("UPDATE batches SET id = ?, state = 'open' WHERE token = ?", (provider_id, batch.token))
        return replace(batch, id=provider_id)

    def settle_batch(self, batch: Batch, keys: Iterable[str] | None = None) -> None:
        """These of its requests need nobody's waiting any more; without keys, all of them."""
        with self._writing() as db:
            row = db.execute("SELECT keys FROM batches WHERE token = ?", (batch.token,)).fetchone()
            settled = set(keys) if keys is not None else None
            left = [key for key in json.loads(row[0]) if settled is not None and key not in settled] if row else []
            state = ", state = 'ended'" if not left else ""
            db.execute(f"UPDATE batches SET keys = ?{state} WHERE token = ?", (as_json(left), batch.token))  # noqa: S608

    def add_candidate(
        self,
        search: str,
        skill: Skill,
        parent: int | None,
        accepted: bool | None,
        note: str,
        verdict: Mapping[str, Any],
    ) -> Candidate:
        """Keep a candidate; the same one of the same search is there once, with what was last said of it."""
        row = (search, skill.name, skill.visible_hash, parent, now(), write_files(skill.files))
        said = (None if accepted is None else int(accepted), as_utf8(note), as_json(verdict))
        with self._writing() as db:
            db.execute(
                "INSERT INTO candidates (search, skill, fingerprint, parent, created, files, accepted, note, verdict)"
                " VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT (search, fingerprint) DO UPDATE SET"
                " accepted = excluded.accepted, note = excluded.note, verdict = excluded.verdict",
                (*row, *said),
            )
        return next(one for one in self.candidates(skill.name) if (one.search, one.fingerprint) == (search, row[2]))

    def candidates(self, skill: str) -> list[Candidate]:
        """Every candidate for a skill of this name, oldest first."""
        rows = self._rows(
            "SELECT number, search, skill, fingerprint, parent, created, accepted, note, verdict, files"
            " FROM candidates WHERE skill = ? ORDER BY number",
            skill,
        )
        return [
            Candidate(
                *row,
                accepted=truth(accepted),
                note=note,
                verdict=json.loads(verdict),
                files=files,
            )
            for *row, accepted, note, verdict, files in rows
        ]

    async def _keep(self, statement: str, row: tuple[Any, ...], *, wait: bool = True) -> None:
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="store", daemon=True)
            self._writer.start()
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] | None = loop.create_future() if wait else None
        self._queue.put(_Write(statement, row, loop, told))
        if told is not None:
            await told

    @contextmanager
    def claim(self, run: Run) -> Generator[None]:
        """Carry a run in this process only: a second process with the same plan is turned away."""
        if self.path is None or fcntl is None:
            yield
            return
        lock = self.path.with_name(f".{run.number}.lock")
        with _locked(lock) as ours:
            if not ours:
                raise UsageError(
                    f"the run {run.id} is being carried out by another process",
                    "Wait for it and give the same command again, or start another run with --fresh.",
                )
            yield

    def delete(self, run: Run) -> None:
        with self._writing() as db:
            db.execute("DELETE FROM runs WHERE number = ?", (run.number,))

    def close(self) -> None:
        """Write what is waiting, then close. What was acknowledged is safe without this."""
        if self._writer is not None:
            self._queue.put(None)
            self._writer.join()
            self._writer = None
        self._reader.close()
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        """A transaction: all of it or, when something goes wrong, nothing."""
        try:
            with self._lock, transaction(self._db):
                yield self._db
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot be written: {error}", ROOM) from error

    def _rows(self, query: str, *values: Any) -> list[Any]:
        try:
            with self._read_lock:
                return self._reader.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}", "The file may be damaged; move it away to start anew.") from error

    def _write(self) -> None:
        while True:
            batch = [self._queue.get()]
            while len(batch) < 1000:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            writes = [item for item in batch if item is not None]
            if writes:
                failure = self._commit(writes)
                _tell(writes, failure)
            if len(writes) < len(batch):
                return

    def _commit(self, writes: list[_Write]) -> StoreError | None:
        for attempt in range(5):
            try:
                with self._lock, transaction(self._db):
                    # What is forgotten may have been added a moment before, without waiting for it.
                    for statement in sorted({write.statement for write in writes}, key=_FORGET_REPLY.__eq__):
                        rows = [write.row for write in writes if write.statement is statement]
                        self._db.executemany(statement, rows)
                return None
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or attempt == 4:
                    return StoreError(f"{self.path}: results cannot be kept: {error}", ROOM)
                time.sleep(0.2 * (attempt + 1))
            except Exception as error:  # whoever waits has to hear of it: a writer that dies would hang them all
                return StoreError(f"{self.path}: results cannot be kept: {type(error).__name__}: {error}")
        return None


@dataclass(slots=True)
class _Write:
    statement: str
    row: tuple[Any, ...]
    loop: asyncio.AbstractEventLoop
    told: asyncio.Future[None] | None  # None: nobody waits for it


def _tell(writes: list[_Write], failure: StoreError | None) -> None:
    """Wake every waiting task: one call into its event loop for the whole batch."""

    def wake(group: list[_Write]) -> None:
        for write in group:
            if write.told is None or write.told.done():
                continue
            if failure:
                write.told.set_exception(failure)
            else:
                write.told.set_result(None)

    for loop in {write.loop for write in writes if write.told is not None}:
        try:
            loop.call_soon_threadsafe(wake, [write for write in writes if write.loop is loop])
        except RuntimeError:  # the loop was closed by an interrupt; the rows are on disk all the same
            continue


def _free_id(db: sqlite3.Connection, name: str, known: int) -> str:
    """`name`, or the first of `name-2`, `name-3`, … that no run has."""
    taken = {row[0] for row in db.execute("SELECT id FROM runs WHERE substr(id, 1, ?) = ?", (len(name), name))}
    number = known + 1
    while (run_id := f"{name}-{number}" if number > 1 else name) in taken:
        number += 1
    return run_id


@contextmanager
def _locked(path: Path) -> Generator[bool]:
    """Hold a lock file while the block runs; False where another process does."""
    assert fcntl is not None
    while True:
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            except OSError:  # a file system without locks
                yield True
                return
            # Whoever held it before may have removed the file between our opening and our locking it.
            if not _is_at(file, path):
                continue
            try:
                yield True
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
