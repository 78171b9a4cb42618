"""The Store: runs with results and feedback, notes, replies of models, batches, and candidates for better skills.

A write is durable when its call returns. Long results are iterators; you may write while iterating. A trial's key is
unique within a run, so its result is stored once, no matter who writes it.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from itertools import islice
from sys import intern
from typing import Any, Self
from uuid import uuid4

from upskill.errors import UsageError, did_you_mean
from upskill.runs.planning.plan import Plan, Result, Trial
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.runs.stores.database import ROWS_AT_ONCE, Database, Transaction, chunks, marks
from upskill.runs.stores.rows import (
    Batch,
    Candidate,
    Page,
    Progress,
    Review,
    Run,
    files_to_json,
    result_from_row,
    result_to_row,
    timestamp,
)
from upskill.runs.stores.tables import (
    BATCHES,
    CANDIDATES,
    FEEDBACK,
    REPLIES,
    RESULTS,
    RUNS,
    to_json,
)
from upskill.skills import Skill
from upskill.verdicts.outcome import Outcome

RUNS_SEARCHED = 20  # of a skill, for results that can be used again
_SPENDERS = (
    ("student", "input_tokens + output_tokens", "cost_usd"),
    ("judge", "judge_tokens", "judge_cost_usd"),
)
# All are in the index `results_for_reports`, so that no trace is read.
_OUTCOME_COLUMNS = (
    *(
        "model",
        "case_id",
        "arm",
        "seed",
        "passed",
        "input_tokens",
        "output_tokens",
        "cost_usd",
        "cached_tokens",
    ),
    *(
        "seconds",
        "checks_passed",
        "checks",
        "activated",
        "turns",
        "calls",
        "tool_errors",
        "leak",
        "bug",
        "cause",
    ),
    "snapshot",
)
_TRIAL_COLUMNS = ("run", "key", "model", "case_id", "arm", "seed")

# A result stays as it is, unless the student cannot have been asked for it.
ADD_RESULT = RESULTS.upsert(
    [name for name in RESULTS.names if name not in _TRIAL_COLUMNS], only_if="NOT results.final"
)
ADD_REPLY = REPLIES.upsert([name for name in REPLIES.names if name != "key"])
_COPY_RESULT = f"""
INSERT INTO results ({", ".join(RESULTS.names)})
SELECT {", ".join("?" if name in ("run", "key") else name for name in RESULTS.names)} FROM results
WHERE run = ? AND key = ? ON CONFLICT DO NOTHING
"""  # noqa: S608 - only the names of our own columns
_LISTED = "purpose <> 'search'"  # which runs dozens of plans and reports the result itself
_ONE_TRIAL = "run = ? AND case_id = ? AND model = ? AND seed = ? AND arm = ?"


class Store:
    """A context manager that closes it. `database` is for what works on whole tables."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.location = database.location
        self.address = database.address

    def close(self) -> None:
        """Write what is waiting, then close. What was acknowledged is safe without this."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Runs.

    def find_run(self, plan: Plan) -> Run | None:
        where = "number = (SELECT MAX(number) FROM runs WHERE fingerprint = ?)"
        return next(map(_read_run, self.database.rows(_runs_query(where), plan.fingerprint)), None)

    def start_run(self, plan: Plan, version: str) -> tuple[Run, bool]:
        """The run of this plan and True, or a new one and False."""
        name = f"{plan.skill.name}-{plan.fingerprint[:8]}"
        row = {
            "fingerprint": plan.fingerprint,
            "skill": plan.skill.name,
            "created": timestamp(),
            "version": version,
            "purpose": plan.purpose,
            "trials": len(plan),
            "plan": StoredPlan.of(plan).to_dict(),
        }

        def start(db: Transaction) -> tuple[str, bool]:
            # Looked up and added in one transaction: another process may be starting the same plan.
            query = "SELECT id FROM runs WHERE fingerprint = ? ORDER BY number"
            known = db.execute(query, (plan.fingerprint,)).fetchall()
            if known:
                return known[-1][0], True
            run_id = free_run_id(db, name, len(known))
            db.execute(RUNS.insert(), RUNS.encode({**row, "id": run_id}))
            return run_id, False

        run_id, is_known = self.database.transact(start)
        return self.run(run_id), is_known

    def annotate(self, run: Run, trials: int | None = None, **settings: Any) -> Run:
        """Settings are about how a run is analyzed, and how many rounds it has, which decides how many `trials`."""
        plan = replace(run.plan, **settings)
        trials = run.trials if trials is None else trials
        if plan == run.plan and trials == run.trials:
            return run
        self.database.execute(
            "UPDATE runs SET plan = ?, trials = ? WHERE number = ?",
            to_json(plan.to_dict()),
            trials,
            run.number,
        )
        return self.run(run.id)

    def run(self, name: str) -> Run:
        """A run by its id, the start of its id, or `last` (of those that are listed); UsageError unless one matches."""
        rows = self.database.rows
        if name == "last":
            numbers = rows(f"SELECT number FROM runs WHERE {_LISTED} ORDER BY number DESC LIMIT 1")  # noqa: S608
        else:
            numbers = rows("SELECT number FROM runs WHERE id = ?", name) or rows(
                "SELECT number FROM runs WHERE substr(id, 1, ?) = ? ORDER BY number",
                len(name),
                name,
            )
        if len(numbers) != 1:
            known = [row[0] for row in rows("SELECT id FROM runs ORDER BY number DESC LIMIT 200")]
            where = self.location or "the store in memory"
            if not known or name == "last":
                raise UsageError(f"{where}: no runs yet", "Run `upskill eval SKILL` first.")
            problem = (
                f"{len(numbers)} runs start with {name!r}" if numbers else f"no run named {name!r}"
            )
            raise UsageError(
                f"{where}: {problem}",
                did_you_mean(name, known, otherwise="`upskill runs` lists them."),
            )
        return _read_run(rows(_runs_query("number = ?"), numbers[0][0])[0])

    def runs(
        self, skill: str | None = None, *, newest_first: bool = False, listed: bool = False
    ) -> Iterator[Run]:
        """`listed`: without those of searches."""
        where, values = ("TRUE", ()) if skill is None else ("skill = ?", (skill,))
        query = _runs_query(
            f"{where} AND {_LISTED}" if listed else where, "DESC" if newest_first else "ASC"
        )
        return map(_read_run, self.database.stream(query, *values))

    def skills(self) -> dict[str, tuple[int, str]]:
        """By name: how many runs each skill has, and the id of the latest, without those of searches."""
        query = f"""
            SELECT runs.skill, by_skill.count, runs.id FROM runs JOIN
            (SELECT COUNT(*) AS count, MAX(number) AS latest FROM runs WHERE {_LISTED} GROUP BY skill) AS by_skill
            ON number = latest
        """  # noqa: S608 - only fixed words
        return {
            skill: (count, latest) for skill, count, latest in sorted(self.database.rows(query))
        }

    def count_runs(self) -> int:
        return self.database.rows("SELECT COUNT(*) FROM runs")[0][0]

    def delete_run(self, run: Run) -> None:
        self.database.execute("DELETE FROM runs WHERE number = ?", run.number)

    @contextmanager
    def claim(self, run: Run) -> Generator[None]:
        """Lock a run: UsageError if another process has it. A process that dies releases it."""
        with self.database.claim(run.number) as is_ours:
            if not is_ours:
                raise UsageError(
                    f"another process is already working on run {run.id}",
                    "Wait for it, then run the same command again.",
                )
            yield

    def is_claimed(self, run: Run) -> bool:
        return self.database.is_claimed(run.number)

    # Progress. Triggers count, so none of this takes longer for a run of a million trials.

    def progress(self, run: Run) -> list[Progress]:
        query = "SELECT model, arm, passed, failed, errored, tokens, cost_usd, unpriced FROM progress WHERE run = ?"
        rows = self.database.rows(query, run.number)
        return [
            Progress(*row, cost_usd=None if unpriced else cost) for *row, cost, unpriced in rows
        ]

    def revision(self, run: Run | None = None) -> int:
        """Grows when anything of this run changes, or of any run."""
        rows = self.database.rows(
            "SELECT revision FROM revisions WHERE run = ?", run.number if run else 0
        )
        return rows[0][0] if rows else 0

    # Results.

    async def add_result(self, run: Run, result: Result) -> None:
        """Store a result; durable when it returns. It replaces one that is not final."""
        await self.database.write(ADD_RESULT, RESULTS.encode(result_to_row(run.number, result)))

    def find_results(self, skill: str, keys: Iterable[str], purpose: str = "") -> dict[str, int]:
        """By key: the number of the first run of this skill with a final result under it.

        The first: all draws count, so nothing that came later replaces one. Nothing is taken from a replay, where
        somebody else says what was answered. `purpose`: only from runs with this one.
        """
        runs = [run.number for run in self.recent_runs(skill) if purpose in ("", run.purpose)]
        first_runs: dict[str, int] = {}
        for some in chunks(keys) if runs else ():
            query = f"""
                SELECT key, MIN(run) FROM results
                WHERE run IN ({marks(runs)}) AND key IN ({marks(some)}) AND final AND leak = ''
                GROUP BY key
            """  # noqa: S608 - only fixed words
            first_runs |= dict(self.database.rows(query, *runs, *some))
        return first_runs

    def recent_runs(self, skill: str) -> list[Run]:
        """The latest runs of this skill, newest first, but for replays."""
        runs = (run for run in self.runs(skill, newest_first=True) if not run.plan.replay)
        return list(islice(runs, RUNS_SEARCHED))

    def finished_at(self, run: Run, keys: Sequence[str]) -> dict[str, str]:
        """By key: when a final result of this run was stored."""
        found: dict[str, str] = {}
        for some in chunks(keys):
            query = f"""
                SELECT key, finished FROM results
                WHERE run = ? AND key IN ({marks(some)}) AND final AND leak = ''
            """  # noqa: S608 - only fixed words
            found |= dict(self.database.rows(query, run.number, *some))
        return found

    def copy_results(self, run: Run, sources: Mapping[str, tuple[int, str]]) -> None:
        """By the key that a result gets in this run: the number of another run, and its key there."""
        rows = [(run.number, key, number, before) for key, (number, before) in sources.items()]
        self.database.executemany(_COPY_RESULT, rows)

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
        """Whole results, ordered by case, model, seed and arm; `failed`: only those that failed or errored."""
        # Keys come from an index, which has them in this order, and rows are fetched as they are needed.
        filters = {"run = ?": run.number, "case_id = ?": case, "model = ?": model, "arm = ?": arm}
        conditions = {condition: value for condition, value in filters.items() if value is not None}
        where = " AND ".join([*conditions, *(["passed IS NOT TRUE"] if failed else [])])
        limit, values = ("LIMIT ? OFFSET ?", (page.limit, page.offset)) if page else ("", ())
        keys = self.database.stream(
            f"{RESULTS.select(where, ['key'])} ORDER BY case_id, model, seed, arm {limit}",
            *(*conditions.values(), *values),
        )
        for some in chunks((row[0] for row in keys), ROWS_AT_ONCE):
            results = {result.key: result for result in self._results_under(run, some)}
            yield from (results[key] for key in some if key in results)

    def result(self, run: Run, trial: Trial) -> Result | None:
        # Its key comes from the index that has all of this; asked for the whole row, SQLite would look through the run.
        query = RESULTS.select(_ONE_TRIAL, ["key"])
        keys = self.database.rows(query, run.number, *_order(trial))
        return next(self._results_under(run, keys[0]), None) if keys else None

    def unsettled(self, run: Run) -> Iterator[Result]:
        """Errors that are tried again when the run goes on."""
        columns = ", ".join(RESULTS.names)
        query = f"SELECT {columns} FROM {self.database.errored_results} WHERE run = ? AND passed IS NULL AND NOT final"  # noqa: S608
        return map(result_from_row, RESULTS.decode(self.database.stream(query, run.number)))

    def settled_under(self, run: Run, keys: Iterable[str]) -> Iterator[Result]:
        for some in chunks(keys):
            yield from (result for result in self._results_under(run, some) if result.is_final)

    def _results_under(self, run: Run, keys: Sequence[str]) -> Iterator[Result]:
        rows = self.database.rows(
            RESULTS.select(f"run = ? AND key IN ({marks(keys)})"), run.number, *keys
        )
        return map(result_from_row, RESULTS.decode(rows))

    def outcomes(
        self, run: Run, case: str | None = None, *, after: Trial | None = None, limit: int = -1
    ) -> Iterator[Outcome]:
        """The numbers of every result, without its trace, in the order of `results`; far faster than that."""
        where, values = "run = ?", [run.number]
        if case is not None:
            where, values = f"{where} AND case_id = ?", [*values, case]
        if after and case is not None:
            where, values = (
                f"{where} AND (model, seed, arm) > (?, ?, ?)",
                [*values, *_order(after)[1:]],
            )
        elif after:
            where, values = (
                f"{where} AND (case_id, model, seed, arm) > (?, ?, ?, ?)",
                [*values, *_order(after)],
            )
        query = f"{RESULTS.select(where, _OUTCOME_COLUMNS)} ORDER BY case_id, model, seed, arm"
        # A page is read at once, as opening a connection for it would take longer.
        rows = self.database.stream(query, *values)
        if limit >= 0:
            rows = self.database.rows(f"{query} LIMIT {limit}", *values)
        return map(_read_outcome, RESULTS.decode(rows, _OUTCOME_COLUMNS))

    def scores(self, run: Run, model: str, arm: str) -> dict[str, tuple[int, int]]:
        query = (
            "SELECT case_id, COUNT(CASE WHEN passed THEN 1 END), COUNT(passed) FROM results"
            " WHERE run = ? AND model = ? AND arm = ? GROUP BY case_id HAVING COUNT(passed) > 0"
        )
        return {
            case: (passed, scored)
            for case, passed, scored in self.database.rows(query, run.number, model, arm)
        }

    def settled(self, run: Run) -> Iterator[Trial]:
        """The trials with a result that stays."""
        query = RESULTS.select("run = ? AND final", ["model", "case_id", "arm", "seed"])
        return (Trial(*row) for row in self.database.stream(query, run.number))

    def last_seeds(self, run: Run) -> dict[str, int]:
        """By model: the seed of the last round that has a result."""
        query = "SELECT model, MAX(seed) FROM results WHERE run = ? AND final GROUP BY model"
        return dict(self.database.rows(query, run.number))

    def scored_cases(self, run: Run) -> list[str]:
        query = "SELECT DISTINCT case_id FROM results WHERE run = ? AND passed IS NOT NULL"
        return [row[0] for row in self.database.rows(query, run.number)]

    def count_calls(self, run: Run) -> int:
        """A lower bound: retries are not seen here."""
        students, judges = (
            "CASE WHEN turns > 1 THEN turns ELSE 1 END",
            "CASE WHEN judge_tokens > 0 THEN 1 ELSE 0 END",
        )
        query = f"SELECT COALESCE(SUM({students} + {judges}), 0) FROM results WHERE run = ?"  # noqa: S608
        return int(self.database.rows(query, run.number)[0][0])

    def spent(self, *runs: Run) -> dict[str, tuple[int, float | None]]:
        """Tokens and dollars by role, probes included (None: unknown). A trial in several runs counts once."""
        spent: dict[str, tuple[int, float | None]] = {}
        # In one run a trial is there once, and the index that has all of this is in its order.
        trial = "key" if len(runs) > 1 else "case_id, model, seed, arm"
        for role, tokens, cost in _SPENDERS if runs else ():
            query = f"""
                SELECT COALESCE(SUM(tokens), 0), COALESCE(SUM(CAST(cost AS numeric)), 0), MAX(unpriced) FROM (
                    SELECT MAX({tokens}) AS tokens, MAX({cost}) AS cost,
                        MAX(CASE WHEN {cost} IS NULL THEN 1 ELSE 0 END) AS unpriced
                    FROM results WHERE run IN ({marks(runs)}) GROUP BY {trial}
                ) AS each_trial
            """  # noqa: S608 - only the fixed words above
            total, dollars, is_unpriced = self.database.rows(query, *(run.number for run in runs))[
                0
            ]
            if total:
                spent[role] = (int(total), None if is_unpriced else float(dollars))
        for probe in (probe for run in runs for probe in run.plan.probes.values()):
            tokens, dollars = spent.get("student", (0, 0.0))
            if dollars is not None:
                dollars = None if probe.cost_usd is None else dollars + probe.cost_usd
            spent["student"] = (tokens + probe.tokens, dollars)
        return spent

    def errors(self, run: Run, limit: int = 100) -> list[tuple[str, str, int]]:
        """The distinct errors but for bugs, most frequent first: model, message, number of trials."""
        query = f"""
            SELECT model, error, COUNT(*) FROM {self.database.errored_results}
            WHERE run = ? AND passed IS NULL AND NOT bug
            GROUP BY model, error ORDER BY COUNT(*) DESC, model, error LIMIT ?
        """  # noqa: S608 - only fixed words
        return self.database.rows(query, run.number, limit)

    def snapshots(self, run: Run) -> dict[str, dict[str, int]]:
        """By model: the names its provider answered under, and how many trials each answered."""
        rows = self.database.rows(
            "SELECT model, snapshot, COUNT(*) FROM results WHERE run = ? AND snapshot <> '' GROUP BY model, snapshot"
            " ORDER BY model, COUNT(*) DESC, snapshot",
            run.number,
        )
        snapshots: dict[str, dict[str, int]] = {}
        for model, snapshot, trials in rows:
            snapshots.setdefault(model, {})[snapshot] = trials
        return snapshots

    def leaks(self, run: Run) -> list[tuple[Trial, str]]:
        query = (
            "SELECT model, case_id, arm, seed, leak FROM results WHERE run = ? AND leak <> ''"
            " ORDER BY model, case_id, seed, arm"
        )
        return [(Trial(*trial), leak) for *trial, leak in self.database.rows(query, run.number)]

    def bugs(self, run: Run) -> Iterator[tuple[Trial, str, str]]:
        query = f"""
            SELECT model, case_id, arm, seed, error, detail FROM {self.database.errored_results}
            WHERE run = ? AND passed IS NULL AND bug ORDER BY model, case_id, seed, arm
        """  # noqa: S608 - only fixed words
        rows = self.database.stream(query, run.number)
        return (
            (Trial(*trial), error, json.loads(detail)["traceback"])
            for *trial, error, detail in rows
        )

    # Feedback of people.

    def add_review(self, run: Run, review: Review) -> None:
        """Replaces an earlier review of the same trial."""
        trial = review.trial
        row = asdict(trial) | {"run": run.number, "case_id": trial.case}
        row |= {
            "verdict": review.verdict,
            "note": review.note,
            "created": review.created or timestamp(),
        }
        self.database.execute(
            FEEDBACK.upsert(["verdict", "note", "created"]), *FEEDBACK.encode(row)
        )

    def remove_review(self, run: Run, trial: Trial) -> None:
        self.database.execute(
            f"DELETE FROM feedback WHERE {_ONE_TRIAL}",  # noqa: S608
            run.number,
            *_order(trial),
        )

    def reviews(self, run: Run) -> list[Review]:
        query = (
            "SELECT model, case_id, arm, seed, verdict, note, created FROM feedback WHERE run = ?"
            " ORDER BY case_id, model, seed, arm"
        )
        return [Review(Trial(*row[:4]), *row[4:]) for row in self.database.rows(query, run.number)]

    # Replies.

    def reply(self, key: str) -> str | None:
        rows = self.database.rows("SELECT reply FROM replies WHERE key = ?", key)
        return rows[0][0] if rows else None

    async def add_reply(
        self,
        key: str,
        model: str,
        reply: str,
        role: str = "",
        request: str = "",
        *,
        wait: bool = True,
    ) -> None:
        """Durable when it returns; with `wait=False`, with the next write that somebody waits for."""
        row = {"key": key, "model": model, "reply": reply, "created": timestamp()}
        values = REPLIES.encode(row | {"role": role or None, "request": request or None})
        if wait:
            await self.database.write(ADD_REPLY, values)
        else:
            self.database.write_later(ADD_REPLY, values)

    async def forget_reply(self, key: str) -> None:
        await self.database.write("DELETE FROM replies WHERE key = ?", (key,))

    def notes(self, beginning: str) -> dict[str, str]:
        """What was noted under the keys that begin like this. Notes lie beside the replies, and are never pruned."""
        rows = self.database.rows(
            "SELECT key, reply FROM replies WHERE role = 'note' AND key >= ? AND key < ?",
            beginning,
            beginning + chr(0x10FFFF),
        )
        return dict(rows)

    def add_notes(self, notes: Mapping[str, str]) -> None:
        """A note that is there stays as it is."""
        row = {"model": "", "created": timestamp(), "role": "note", "request": None}
        rows = [REPLIES.encode(row | {"key": key, "reply": text}) for key, text in notes.items()]
        self.database.executemany(REPLIES.upsert(), rows)

    def requests(self) -> Iterator[tuple[str, str, str]]:
        """Of teachers, test writers and judges: role, request and reply, as JSON."""
        return self.database.stream(
            "SELECT COALESCE(role, ''), request, reply FROM replies WHERE request IS NOT NULL ORDER BY created, key"
        )

    # Batches that were submitted to a provider and are not yet collected.

    def pending_batches(self, url: str) -> list[Batch]:
        """Those with something to collect, whichever run submitted them."""
        rows = self.database.rows(
            "SELECT token, model, url, id, submitted, keys FROM batches WHERE state != 'ended' AND url = ?"
            " ORDER BY submitted, token",
            url,
        )
        return [Batch(*row, keys=tuple(json.loads(keys))) for *row, keys in rows]

    def begin_batch(self, run: str, model: str, url: str, keys: Iterable[str]) -> Batch:
        """Record that these requests are about to be submitted, so that a crash afterwards loses nothing."""
        batch = Batch(
            token=uuid4().hex, model=model, url=url, id="", submitted=timestamp(), keys=tuple(keys)
        )
        row = {**asdict(batch), "run": run, "state": "submitting"}
        self.database.execute(BATCHES.insert(), *BATCHES.encode(row))
        return batch

    def confirm_batch(self, batch: Batch, provider_id: str) -> Batch:
        self.database.execute(
            "UPDATE batches SET id = ?, state = 'open' WHERE token = ?", provider_id, batch.token
        )
        return replace(batch, id=provider_id)

    def settle_batch(self, batch: Batch, keys: Iterable[str] | None = None) -> None:
        """Stop waiting for these of its requests; without keys, for all of them."""
        settled = set(keys) if keys is not None else None

        def settle(db: Transaction) -> None:
            row = db.execute("SELECT keys FROM batches WHERE token = ?", (batch.token,)).fetchone()
            left = (
                [key for key in json.loads(row[0]) if settled is not None and key not in settled]
                if row
                else []
            )
            state = ", state = 'ended'" if not left else ""
            db.execute(
                f"UPDATE batches SET keys = ?{state} WHERE token = ?",  # noqa: S608
                (to_json(left), batch.token),
            )

        self.database.transact(settle)

    # Candidates: skills that were tried in searches for a better one.

    def add_candidate(
        self,
        search: str,
        skill: Skill,
        parent: int | None,
        accepted: bool | None,
        note: str,
        verdict: Mapping[str, Any],
    ) -> Candidate:
        """Adding a candidate to the same search again updates its decision, note and verdict."""
        row = {
            "search": search,
            "skill": skill.name,
            "fingerprint": skill.visible_hash,
            "parent": parent,
            "created": timestamp(),
            "files": files_to_json(skill.files),
            "accepted": accepted,
            "note": note,
            "verdict": verdict,
        }
        self.database.execute(
            CANDIDATES.upsert(["accepted", "note", "verdict"]), *CANDIDATES.encode(row)
        )
        query = CANDIDATES.select("search = ? AND fingerprint = ?")
        (stored,) = CANDIDATES.decode(self.database.rows(query, search, skill.visible_hash))
        return Candidate(**stored)

    def candidates(self, skill: str) -> Iterator[Candidate]:
        rows = self.database.stream(f"{CANDIDATES.select('skill = ?')} ORDER BY number", skill)
        return (Candidate(**row) for row in CANDIDATES.decode(rows))

    def skills_with_candidates(self) -> dict[str, int]:
        return dict(
            self.database.rows(
                "SELECT skill, count(*) FROM candidates GROUP BY skill ORDER BY skill"
            )
        )


def free_run_id(db: Transaction, name: str, known: int = 0) -> str:
    """`name`, or the first of `name-2`, `name-3`, … that no run has."""
    query = "SELECT id FROM runs WHERE substr(id, 1, ?) = ?"
    used = {row[0] for row in db.execute(query, (len(name), name))}
    number = known + 1
    while (run_id := f"{name}-{number}" if number > 1 else name) in used:
        number += 1
    return run_id


def _runs_query(where: str, order: str = "ASC", having: str = "TRUE") -> str:
    # Grouping by the primary key lets the database add up run by run, as the rows are asked for.
    return f"""
        SELECT runs.number, runs.id, runs.fingerprint, runs.skill, runs.created, runs.trials, runs.plan,
               COALESCE(SUM(passed), 0), COALESCE(SUM(failed), 0), COALESCE(SUM(errored), 0)
        FROM runs LEFT JOIN progress ON progress.run = runs.number WHERE {where}
        GROUP BY runs.number HAVING {having} ORDER BY runs.number {order}
    """  # noqa: S608 - only fixed words


def _read_run(row: tuple[Any, ...]) -> Run:
    *first, plan, passed, failed, errored = row
    return Run(
        *first, plan=_read_plan(plan), passed=int(passed), failed=int(failed), errored=int(errored)
    )


@lru_cache(maxsize=64)
def _read_plan(text: str) -> StoredPlan:
    # The live page lists the same runs all the time, and reading their plans would be most of its work.
    return StoredPlan.from_dict(json.loads(text))


def _read_outcome(row: dict[str, Any]) -> Outcome:
    for name in ("model", "case_id", "arm", "cause", "snapshot"):
        row[name] = intern(
            row[name]
        )  # the same few texts again and again: a million outcomes share them
    return Outcome(case=row.pop("case_id"), leaked=bool(row.pop("leak")), **row)


def _order(trial: Trial) -> tuple[str, str, int, str]:
    return trial.case, trial.model, trial.seed, trial.arm
