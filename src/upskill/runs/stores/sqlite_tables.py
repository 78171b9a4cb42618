"""The tables of a store in SQLite, and how an older file gets those it lacks."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from upskill.errors import UsageError
from upskill.plain import compact

LOCK_SECONDS = 30.0  # to wait for another process that holds the file


def _first_tables(db: sqlite3.Connection) -> None:
    db.execute(
        """
        CREATE TABLE runs (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            fingerprint TEXT NOT NULL,
            skill TEXT NOT NULL,
            created TEXT NOT NULL,
            version TEXT NOT NULL,
            trials INTEGER NOT NULL,
            plan TEXT NOT NULL
        )
        """
    )
    db.execute("CREATE INDEX runs_by_fingerprint ON runs (fingerprint)")
    db.execute(
        """
        CREATE TABLE results (
            run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
            key TEXT NOT NULL,
            model TEXT NOT NULL,
            case_id TEXT NOT NULL,
            arm TEXT NOT NULL,
            seed INTEGER NOT NULL,
            passed INTEGER,
            input_tokens INTEGER NOT NULL,
            output_tokens INTEGER NOT NULL,
            cached_tokens INTEGER NOT NULL,
            cost_usd REAL,
            seconds REAL NOT NULL,
            checks_passed INTEGER NOT NULL,
            checks INTEGER NOT NULL,
            judge_tokens INTEGER NOT NULL,
            judge_cost_usd REAL,
            finished TEXT NOT NULL,
            error TEXT NOT NULL,
            detail TEXT NOT NULL,
            PRIMARY KEY (run, key)
        ) WITHOUT ROWID
        """
    )
    db.execute(
        """
        CREATE INDEX results_for_reports ON results
            (run, model, arm, case_id, seed, passed, input_tokens, output_tokens, cost_usd, cached_tokens, seconds,
             checks_passed, checks)
        """
    )


def _replies(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE replies (key TEXT PRIMARY KEY, model TEXT NOT NULL, reply TEXT NOT NULL, created TEXT NOT NULL)"
        " WITHOUT ROWID"
    )


def _batches(db: sqlite3.Connection) -> None:
    db.execute(
        """
        CREATE TABLE batches (
            token TEXT PRIMARY KEY,
            run TEXT NOT NULL,
            model TEXT NOT NULL,
            url TEXT NOT NULL,
            id TEXT NOT NULL,
            submitted TEXT NOT NULL,
            state TEXT NOT NULL,
            keys TEXT NOT NULL
        ) WITHOUT ROWID
        """
    )
    db.execute("CREATE INDEX batches_by_state ON batches (state, url)")


def _candidates(db: sqlite3.Connection) -> None:
    # What was asked of teachers, test writers and judges; null for students, whose trials say it.
    db.execute("ALTER TABLE replies ADD COLUMN role TEXT")
    db.execute("ALTER TABLE replies ADD COLUMN request TEXT")
    db.execute(
        """
        CREATE TABLE candidates (
            number INTEGER PRIMARY KEY,
            search TEXT NOT NULL,
            skill TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            parent INTEGER REFERENCES candidates (number),
            created TEXT NOT NULL,
            files TEXT NOT NULL,
            accepted INTEGER,
            note TEXT NOT NULL,
            verdict TEXT NOT NULL,
            UNIQUE (search, fingerprint)
        )
        """
    )
    db.execute("CREATE INDEX candidates_by_skill ON candidates (skill)")


def _actions(db: sqlite3.Connection) -> None:
    # What an agent with tools did. `leak` says what shows that a trial saw a skill that was kept from it.
    db.execute("ALTER TABLE results ADD COLUMN activated INTEGER")
    for column in ("turns", "calls", "tool_errors"):
        db.execute(f"ALTER TABLE results ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE results ADD COLUMN leak TEXT NOT NULL DEFAULT ''")
    db.execute("DROP INDEX results_for_reports")
    db.execute(
        """
        CREATE INDEX results_for_reports ON results
            (run, model, arm, case_id, seed, passed, input_tokens, output_tokens, cost_usd, cached_tokens, seconds,
             checks_passed, checks, activated, turns, calls, tool_errors, leak)
        """
    )


def _plain_names(db: sqlite3.Connection) -> None:
    db.execute("UPDATE results SET arm = 'baseline_repeat' WHERE arm = 'again'")
    for number, text in db.execute("SELECT number, plan FROM runs").fetchall():
        plan = json.loads(text)
        for old, new in (("against", "reference_skill"), ("beside", "distractors")):
            if old in plan:
                plan[new] = plan.pop(old)
        if "taught" in plan["skill"]:
            plan["skill"]["visible_hash"] = plan["skill"].pop("taught")
        plan["arms"] = ["baseline_repeat" if arm == "again" else arm for arm in plan["arms"]]
        db.execute("UPDATE runs SET plan = ? WHERE number = ?", (compact(plan), number))


def _bugs(db: sqlite3.Connection) -> None:
    # Errors that are bugs in upskill, to be counted apart; the traceback is in `detail`.
    db.execute("ALTER TABLE results ADD COLUMN bug INTEGER NOT NULL DEFAULT 0")
    db.execute("DROP INDEX results_for_reports")
    db.execute(
        """
        CREATE INDEX results_for_reports ON results
            (run, model, arm, case_id, seed, passed, input_tokens, output_tokens, cost_usd, cached_tokens, seconds,
             checks_passed, checks, activated, turns, calls, tool_errors, leak, bug)
        """
    )


def _snapshots(db: sqlite3.Connection) -> None:
    # The name a provider answered under, to tell when it changed within a run.
    db.execute("ALTER TABLE results ADD COLUMN snapshot TEXT NOT NULL DEFAULT ''")
    db.execute("DROP INDEX results_for_reports")
    db.execute(
        """
        CREATE INDEX results_for_reports ON results
            (run, model, arm, case_id, seed, passed, input_tokens, output_tokens, cost_usd, cached_tokens, seconds,
             checks_passed, checks, activated, turns, calls, tool_errors, leak, bug, snapshot)
        """
    )


def _looks(db: sqlite3.Connection) -> None:
    # One row for each verdict that was reported; the same results shown again in the same way are no further look.
    db.execute(
        """
        CREATE TABLE looks (
            number INTEGER PRIMARY KEY,
            run TEXT NOT NULL,
            model TEXT NOT NULL,
            skill TEXT NOT NULL,
            skill_hash TEXT NOT NULL,
            suite TEXT NOT NULL,
            suite_fingerprint TEXT NOT NULL,
            cases TEXT NOT NULL,
            runs INTEGER NOT NULL,
            seed INTEGER NOT NULL,
            margin REAL NOT NULL,
            scope TEXT NOT NULL,
            trials INTEGER NOT NULL,
            pairs INTEGER NOT NULL,
            decision TEXT NOT NULL,
            asked TEXT NOT NULL,
            asked_by TEXT NOT NULL,
            UNIQUE (run, model, margin, scope, trials)
        )
        """
    )
    db.execute("CREATE INDEX looks_by_skill ON looks (skill)")


def _causes(db: sqlite3.Connection) -> None:
    # What a student did instead of answering. Until now only answers that were cut off were failed for that.
    db.execute("ALTER TABLE results ADD COLUMN cause TEXT NOT NULL DEFAULT ''")
    found = """SELECT run, key, detail FROM results WHERE passed = 0 AND detail LIKE '%[["complete",false,%'"""
    for run, key, detail in db.execute(found).fetchall():
        stop = json.loads(detail)["trace"]["stop"]
        db.execute("UPDATE results SET cause = ? WHERE run = ? AND key = ?", (stop, run, key))
    db.execute("DROP INDEX results_for_reports")
    db.execute(
        """
        CREATE INDEX results_for_reports ON results
            (run, model, arm, case_id, seed, passed, input_tokens, output_tokens, cost_usd, cached_tokens, seconds,
             checks_passed, checks, activated, turns, calls, tool_errors, leak, bug, snapshot, cause)
        """
    )


def _earlier_tries(db: sqlite3.Connection) -> None:
    # What errored tries of a trial cost, on top of the one that is kept.
    db.execute("ALTER TABLE results ADD COLUMN earlier_tokens INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE results ADD COLUMN earlier_cost_usd REAL DEFAULT 0")


def _pages(db: sqlite3.Connection) -> None:
    # In the order in which results are shown, so that a page of them needs no sorting; with all that reports add up.
    db.execute("DROP INDEX results_for_reports")
    db.execute(
        """
        CREATE INDEX results_for_reports ON results
            (run, case_id, model, seed, arm, passed, input_tokens, output_tokens, cost_usd, cached_tokens, seconds,
             checks_passed, checks, activated, turns, calls, tool_errors, leak, bug, snapshot, cause,
             judge_tokens, judge_cost_usd, earlier_tokens, earlier_cost_usd)
        """
    )
    # What is rare in a run that is worth anything.
    db.execute("CREATE INDEX results_errored ON results (run, model, error, bug) WHERE passed IS NULL")
    db.execute("CREATE INDEX results_leaked ON results (run, model, case_id, seed, arm, leak) WHERE leak <> ''")
    # What was reported, so that listing runs does not compute it again.
    db.execute("ALTER TABLE looks ADD COLUMN verdict TEXT NOT NULL DEFAULT '{}'")
    db.execute("ALTER TABLE looks ADD COLUMN version TEXT NOT NULL DEFAULT ''")
    db.execute("CREATE INDEX looks_by_run ON looks (run)")


def _progress(db: sqlite3.Connection) -> None:
    # How far each run has come, kept up to date by triggers: counting the results of a large run takes a second.
    db.execute(
        """
        CREATE TABLE progress (
            run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
            model TEXT NOT NULL,
            arm TEXT NOT NULL,
            passed INTEGER NOT NULL DEFAULT 0,
            failed INTEGER NOT NULL DEFAULT 0,
            errored INTEGER NOT NULL DEFAULT 0,
            tokens INTEGER NOT NULL DEFAULT 0,
            cost_usd REAL NOT NULL DEFAULT 0,
            unpriced INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (run, model, arm)
        ) WITHOUT ROWID
        """
    )
    # The number of the latest change, of each run and (run 0) of all: whoever has seen that number has seen everything.
    db.execute("CREATE TABLE revisions (run INTEGER PRIMARY KEY, revision INTEGER NOT NULL)")
    db.execute("INSERT INTO revisions SELECT 0, COUNT(*) FROM runs UNION ALL SELECT number, number FROM runs")
    _keep_count(db)
    totals = ", ".join(f"SUM({_counted('results', column)})" for column in _COUNTED)
    db.execute(f"INSERT INTO progress SELECT run, model, arm, {totals} FROM results GROUP BY run, model, arm")  # noqa: S608
    # What people say of answers.
    db.execute(
        """
        CREATE TABLE feedback (
            run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
            case_id TEXT NOT NULL,
            model TEXT NOT NULL,
            seed INTEGER NOT NULL,
            arm TEXT NOT NULL,
            verdict TEXT NOT NULL,
            note TEXT NOT NULL,
            created TEXT NOT NULL,
            PRIMARY KEY (run, case_id, model, seed, arm)
        ) WITHOUT ROWID
        """
    )
    # What was computed from all results of a run when it was at this revision.
    db.execute(
        """
        CREATE TABLE summaries (
            run INTEGER PRIMARY KEY REFERENCES runs (number) ON DELETE CASCADE,
            revision INTEGER NOT NULL,
            version TEXT NOT NULL,
            document TEXT NOT NULL
        )
        """
    )
    for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
        _note_change(db, "feedback", event, f"{row}.run")


def _skill_names(db: sqlite3.Connection) -> None:
    db.execute("CREATE INDEX runs_by_skill ON runs (skill, number)")


# By column of the table `progress`: what a row of `results` adds to it.
_COUNTED = {
    "passed": "{row}.passed IS 1",
    "failed": "{row}.passed IS 0",
    "errored": "{row}.passed IS NULL",
    "tokens": "{row}.input_tokens + {row}.output_tokens + {row}.earlier_tokens + {row}.judge_tokens",
    "cost_usd": "COALESCE({row}.cost_usd, 0) + COALESCE({row}.earlier_cost_usd, 0) + COALESCE({row}.judge_cost_usd, 0)",
    "unpriced": "{row}.cost_usd + {row}.earlier_cost_usd + {row}.judge_cost_usd IS NULL",
}


def _counted(row: str, column: str) -> str:
    return f"({_COUNTED[column].format(row=row)})"


def _keep_count(db: sqlite3.Connection) -> None:
    """Triggers that count results, and note which run has changed."""

    def change(row: str, sign: str) -> str:
        sums = ", ".join(f"{column} = {column} {sign} {_counted(row, column)}" for column in _COUNTED)
        return f"UPDATE progress SET {sums} WHERE run = {row}.run AND model = {row}.model AND arm = {row}.arm;"  # noqa: S608

    # Not `OR IGNORE`: within a trigger, the statement that set it off decides what a conflict means.
    new = """
        INSERT INTO progress (run, model, arm) SELECT NEW.run, NEW.model, NEW.arm
        WHERE NOT EXISTS (SELECT 1 FROM progress WHERE run = NEW.run AND model = NEW.model AND arm = NEW.arm);
    """
    for event, row, condition, counting in (
        ("INSERT", "NEW", "", f"{new} {change('NEW', '+')}"),
        ("UPDATE", "NEW", "", f"{change('OLD', '-')} {change('NEW', '+')}"),
        # With its run, all that was counted goes too.
        ("DELETE", "OLD", "WHEN EXISTS (SELECT 1 FROM runs WHERE number = OLD.run)", change("OLD", "-")),
    ):
        db.execute(
            f"CREATE TRIGGER count_{event.lower()} AFTER {event} ON results {condition}"
            f" BEGIN {counting} {_next_revision(f'{row}.run')} END"
        )
    _note_change(db, "runs", "INSERT", "NEW.number", "INSERT INTO revisions VALUES (NEW.number, 0);")
    _note_change(db, "runs", "UPDATE", "NEW.number")
    _note_change(db, "runs", "DELETE", "OLD.number", "DELETE FROM revisions WHERE run = OLD.number;")
    _note_change(db, "looks", "INSERT", "(SELECT number FROM runs WHERE id = NEW.run)")


def _note_change(db: sqlite3.Connection, table: str, event: str, run: str, first: str = "") -> None:
    name = f"note_{table}_{event.lower()}"
    db.execute(f"CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN {first} {_next_revision(run)} END")


def _next_revision(run: str) -> str:
    return f"""
        UPDATE revisions SET revision = revision + 1 WHERE run = 0;
        UPDATE revisions SET revision = (SELECT revision FROM revisions WHERE run = 0) WHERE run = {run};
    """  # noqa: S608 - only fixed words


# Each runs inside a transaction, so it executes one statement at a time: `executescript` would commit half of it.
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    _first_tables,
    _replies,
    _batches,
    _candidates,
    _actions,
    _plain_names,
    _bugs,
    _snapshots,
    _looks,
    _causes,
    _earlier_tries,
    _pages,
    _progress,
    _skill_names,
)


@contextmanager
def transaction(db: sqlite3.Connection) -> Generator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def switch_to_wal(db: sqlite3.Connection) -> None:
    # SQLite does not wait for its own lock here, so processes that open a new store at once have to ask again.
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


def migrate(db: sqlite3.Connection, where: str) -> None:
    if is_current(db):
        return
    with transaction(db):
        version = _version(db)  # again: another process may have migrated it in the meantime
        if version > len(MIGRATIONS):
            raise UsageError(f"{where}: was written by a newer upskill", "Upgrade upskill, or use another --store.")
        for migration in MIGRATIONS[version:]:
            migration(db)
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def is_current(db: sqlite3.Connection) -> bool:
    return _version(db) == len(MIGRATIONS)


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]
